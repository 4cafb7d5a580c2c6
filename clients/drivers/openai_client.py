"""The OpenAI SDK and OpenAI Agents over a WebSocket. The SDK's requests continue the last response, those of Agents repeat all."""

import json
from importlib import import_module
from typing import Any

from transcript import MAX_TURNS, Transcript

# By name, because they are installed in an environment of their own.
openai: Any = import_module("openai")
INSTRUCTIONS = "You are a helpful assistant."


def connect(job: dict[str, Any]) -> Any:
    return openai.AsyncOpenAI(
        base_url=f"{job['url']}/v1", api_key=job["key"], max_retries=job["retries"]
    )


async def converse(job: dict[str, Any], transcript: Transcript) -> None:
    if job["client"] == "openai-agents":
        await run_agent(job, transcript)
        return
    async with connect(job).responses.connect() as connection:
        if job["mode"] == "leave-websocket":
            await leave(job, transcript, connection)
            return
        await ask(job, transcript, connection)


# --- the SDK ---------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """An error frame."""

    def __init__(self, frame: Any) -> None:
        super().__init__(frame.error.message)
        self.status_code = frame.status


def create(job: dict[str, Any], given: list[Any], previous: str | None) -> dict[str, Any]:
    tools = [
        {
            "type": "function",
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["schema"],
            "strict": False,
        }
        for tool in job["tools"]
    ]
    request = {
        "model": job["model"],
        "instructions": INSTRUCTIONS,
        "input": given,
        "tools": tools,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    return request if previous is None else {**request, "previous_response_id": previous}


async def ask(job: dict[str, Any], transcript: Transcript, connection: Any) -> None:
    given: list[Any] = [{"role": "user", "content": job["prompt"]}]
    previous = None
    for _ in range(MAX_TURNS):
        await connection.response.create(**create(job, given, previous))
        response = await collect(connection)
        transcript.say(response.output_text)
        given = [
            {
                "type": "function_call_output",
                "call_id": item.call_id,
                "output": transcript.call(item.call_id, item.name, json.loads(item.arguments)),
            }
            for item in response.output
            if item.type == "function_call"
        ]
        if not given:
            return
        previous = response.id
    raise ValueError(f"the model still calls tools after {MAX_TURNS} turns")


async def collect(connection: Any) -> Any:
    """The response, whose items are those that came one by one."""
    items: dict[int, str] = {}
    async for event in connection:
        match event.type:
            case "error":
                raise Refused(event)
            case "response.failed":
                raise ValueError(f"response.failed: {event.response.error.message}")
            case "response.function_call_arguments.delta":
                items[event.output_index] = items.get(event.output_index, "") + event.delta
            case "response.completed":
                for place, text in items.items():
                    whole = event.response.output[place].arguments
                    if whole != text:
                        raise ValueError(f"the pieces {text!r} are not the arguments {whole!r}")
                if not event.response.usage:
                    raise ValueError("no usage")
                return event.response
            case _:
                pass
    raise ValueError("the connection ended without response.completed")


async def leave(job: dict[str, Any], transcript: Transcript, connection: Any) -> None:
    given = [{"role": "user", "content": job["prompt"]}]
    await connection.response.create(**create(job, given, None))
    async for event in connection:
        if event.type == "response.output_text.delta":
            transcript.say(event.delta)
            return


# --- Agents ----------------------------------------------------------------------------------------------------------


async def run_agent(job: dict[str, Any], transcript: Transcript) -> None:
    agents: Any = import_module("agents")
    models: Any = import_module("agents.models.openai_responses")
    agents.set_tracing_disabled(True)

    def declare(tool: dict[str, Any]) -> Any:
        async def call(context: Any, given: str) -> str:
            return transcript.call(context.tool_call_id, tool["name"], json.loads(given))

        return agents.FunctionTool(
            name=tool["name"],
            description=tool["description"],
            params_json_schema=tool["schema"],
            on_invoke_tool=call,
            strict_json_schema=False,
        )

    model = models.OpenAIResponsesWSModel(model=job["model"], openai_client=connect(job))
    agent = agents.Agent(
        name="agent",
        instructions=INSTRUCTIONS,
        model=model,
        tools=[declare(tool) for tool in job["tools"]],
        model_settings=agents.ModelSettings(store=False),
    )
    try:
        result = agents.Runner.run_streamed(agent, job["prompt"], max_turns=MAX_TURNS)
        streamed = ""
        async for event in result.stream_events():
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                streamed += event.data.delta
                if job["mode"] == "leave-websocket":
                    transcript.say(streamed)
                    result.cancel()
                    return
            elif event.data.type == "response.completed":
                if streamed != event.data.response.output_text:
                    raise ValueError(f"the pieces {streamed!r} are not the text")
                transcript.say(streamed)
                streamed = ""
    finally:
        await model.close()
