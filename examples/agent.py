"""An agent of your own with two tools. It answers two questions and prints each call on the way.

Without any configuration the rehearsal answers, so no key and no network are needed. With OPENAI_API_KEY,
ANTHROPIC_API_KEY or a dragoman.toml the same program asks that model.
"""

import asyncio

from dragoman.agent import Agent, EngineEvent, open_model, tool
from dragoman.engine.events import CallSettled, CallStarted

DEGREES = {"Oslo": 4, "Rome": 21}


@tool(parallel=True)
async def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name
    """
    if city not in DEGREES:
        return f"nothing is known of {city}"
    return f"{DEGREES[city]} degrees in {city}"


@tool
def note_down(text: str) -> str:
    """Keep a line for later. A function that is not async runs in a thread."""
    return f"kept {len(text)} characters"


async def watch(event: EngineEvent) -> None:
    if isinstance(event, CallStarted):
        print(f"started {event.call.name} {event.call.input}")
    elif isinstance(event, CallSettled):
        print(f"{event.how}: {event.call.name}")


async def main() -> None:
    async with open_model() as model:
        agent = Agent(model, [weather, note_down], instructions="Be brief.", observer=watch)
        reply = await agent.ask("What is the weather in Oslo?")
        print(reply.text)
        reply = await agent.ask("And what is the weather in Rome?")  # it knows the first question
        print(reply.text)
        print(f"{len(agent.turns)} turns, ended: {reply.ended.reason}")


asyncio.run(main())
