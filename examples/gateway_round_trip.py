"""One tool, three dialects: the OpenAI and Anthropic SDKs send the same question through one gateway.

The gateway runs inside this program and answers from the rehearsal, so no key and no network are needed. Against a
running `dragoman serve` only the address differs.
"""

import json
import socket
import threading
import time

import uvicorn
from anthropic import Anthropic
from openai import OpenAI

from dragoman.config.settings import Settings, UpstreamSettings
from dragoman.server.app import create_app

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
ABOUT = "The weather in a city"
QUESTION = "What is the weather in Oslo?"


def start_gateway() -> str:
    """Start the gateway in a thread that ends with this program, and return its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = Settings(upstreams={"rehearsal": UpstreamSettings(kind="rehearsal")})
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="error"))
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def ask_chat(client: OpenAI) -> str:
    function = {"name": "weather", "description": ABOUT, "parameters": SCHEMA}
    answer = client.chat.completions.create(
        model="rehearsal",
        messages=[{"role": "user", "content": QUESTION}],
        tools=[{"type": "function", "function": function}],  # type: ignore[typeddict-item]
    )
    (call,) = answer.choices[0].message.tool_calls or []
    return f"{call.function.name} {call.function.arguments}" if call.type == "function" else ""


def ask_responses(client: OpenAI) -> str:
    tool = {"type": "function", "name": "weather", "description": ABOUT, "parameters": SCHEMA}
    answer = client.responses.create(
        model="rehearsal",
        input=QUESTION,
        tools=[tool],  # type: ignore[list-item]
    )
    (call,) = [item for item in answer.output if item.type == "function_call"]
    return f"{call.name} {call.arguments}"


def ask_messages(client: Anthropic) -> str:
    answer = client.messages.create(
        model="rehearsal",
        max_tokens=200,
        messages=[{"role": "user", "content": QUESTION}],
        tools=[{"name": "weather", "description": ABOUT, "input_schema": SCHEMA}],
    )
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    return f"{call.name} {json.dumps(call.input, separators=(',', ':'))}"


gateway = start_gateway()
openai = OpenAI(base_url=f"{gateway}/v1", api_key="not needed")
anthropic = Anthropic(base_url=gateway, api_key="not needed")
print("Chat Completions:", ask_chat(openai))
print("Responses:       ", ask_responses(openai))
print("Messages:        ", ask_messages(anthropic))
