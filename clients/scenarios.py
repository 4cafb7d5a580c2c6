"""What the model does in the SDK tests, and the judgement of a round trip from both of its ends."""

import json
from dataclasses import dataclass
from typing import Any

from clients.model import Model
from clients.script import Call, Dialect, ModelTurn
from clients.stack import KEY, Stack
from clients.worker import Seen

__all__ = (
    "MODES",
    "PYTHON_MODES",
    "SCENARIOS",
    "TOOLS",
    "WEBSOCKET_MODES",
    "Mode",
    "as_double",
    "check_round_trip",
    "describe",
)


@dataclass(frozen=True)
class Mode:
    """One way to use one SDK.

    keeps_text: it shows tool input as source text and sends it back as such. Others parse it and write it again.
    runs_tools: it runs the tools itself, and makes a result of what they raise. worker: the driver that has it.
    wraps_results: it sends a result as JSON, `{"result": …}`.
    """

    client: str
    mode: str
    door: Dialect
    streams: bool
    keeps_text: bool = False
    runs_tools: bool = False
    wraps_results: bool = False
    worker: str = "node"

    def __str__(self) -> str:
        return f"{self.client}/{self.mode}"

    def result(self, text: str) -> str:
        """What the model gets when a tool answers with this text."""
        return json.dumps({"result": text}, ensure_ascii=False) if self.wraps_results else text


MODES = (
    Mode("openai-chat", "create", "chat", streams=False, keeps_text=True),
    Mode("openai-chat", "stream", "chat", streams=True, keeps_text=True),
    Mode("openai-chat", "helper", "chat", streams=True, keeps_text=True),
    Mode("openai-chat", "run", "chat", streams=False, keeps_text=True),
    Mode("openai-chat", "run-stream", "chat", streams=True, keeps_text=True),
    Mode("openai-responses", "create", "responses", streams=False, keeps_text=True),
    Mode("openai-responses", "stream", "responses", streams=True, keeps_text=True),
    Mode("openai-responses", "helper", "responses", streams=True, keeps_text=True),
    Mode("anthropic-messages", "create", "messages", streams=False),
    Mode("anthropic-messages", "stream", "messages", streams=True),
    Mode("anthropic-messages", "helper", "messages", streams=True),
    Mode("anthropic-messages", "run", "messages", streams=False),
    Mode("anthropic-messages", "run-stream", "messages", streams=True),
    Mode("vercel-openai-chat", "generate", "chat", streams=False),
    Mode("vercel-openai-chat", "stream", "chat", streams=True),
    Mode("vercel-openai-responses", "generate", "responses", streams=False),
    Mode("vercel-openai-responses", "stream", "responses", streams=True),
    Mode("vercel-compatible", "generate", "chat", streams=False),
    Mode("vercel-compatible", "stream", "chat", streams=True),
    Mode("vercel-anthropic", "generate", "messages", streams=False),
    Mode("vercel-anthropic", "stream", "messages", streams=True),
    Mode("mastra-chat", "generate", "chat", streams=False, runs_tools=True),
    Mode("mastra-chat", "stream", "chat", streams=True, runs_tools=True),
    Mode("mastra-responses", "generate", "responses", streams=False, runs_tools=True),
    Mode("mastra-responses", "stream", "responses", streams=True, runs_tools=True),
    Mode("mastra-anthropic", "generate", "messages", streams=False, runs_tools=True),
    Mode("mastra-anthropic", "stream", "messages", streams=True, runs_tools=True),
)

_PYTHON_CLIENTS: dict[str, Dialect] = {
    "chat": "chat",
    "responses": "responses",
    "anthropic": "messages",
}
PYTHON_MODES = tuple(
    mode
    for client, door in _PYTHON_CLIENTS.items()
    for mode in (
        Mode(f"langchain-{client}", "invoke", door, streams=False, worker="langchain"),
        Mode(f"langchain-{client}", "stream", door, streams=True, worker="langchain"),
        Mode(f"llama-{client}", "run", door, False, runs_tools=True, worker="agents"),
        Mode(f"llama-{client}", "stream", door, True, runs_tools=True, worker="agents"),
        Mode(f"adk-{client}", "run", door, False, False, True, True, "agents"),
        Mode(f"adk-{client}", "stream", door, True, False, True, True, "agents"),
    )
)

WEBSOCKET_MODES = (
    Mode("openai-responses", "websocket", "responses", streams=True, keeps_text=True),
    Mode("openai-python", "websocket", "responses", True, keeps_text=True, worker="langchain"),
    Mode("openai-agents", "websocket", "responses", True, keeps_text=True, worker="langchain"),
)
"""Over one connection for all turns. The model speaks HTTP only, so these need the gateway."""

TOOLS: list[dict[str, Any]] = [
    {
        "name": "get_weather",
        "description": "The weather in a city.",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
    {
        "name": "get_time",
        "description": "The time.",
        "schema": {"type": "object", "properties": {}},
    },
]

PARIS = Call("get_weather", '{"city": "Paris"}')
TOKYO = Call("get_weather", '{"city":"東京","days":3}')
TIME = Call("get_time", "{}")

# Escapes in both spellings, separators that line iterators split at, a number no double holds, spellings of numbers
# that a parser would change, odd spacing, a name that looks like an index.
EXACT = Call(
    "get_weather",
    r'{ "city" : "Z\u00fcrich \"q\" \\ \/ \n\t é 😀 \ud83d\ude00 '
    "\u2028\u2029\u0085"
    r'", "days":12345678901234567890 , "x": 1.0, "e":1E+2, "deep":[[],{},[null,true]], "0":"" }',
)
LONG = Call("get_weather", json.dumps({"city": "Łódź " * 1000}, ensure_ascii=False))

SCENARIOS: dict[str, tuple[ModelTurn, ...]] = {
    "single": (ModelTurn(calls=(PARIS,)),),
    "parallel": (ModelTurn(calls=(PARIS, TIME, TOKYO)),),
    "text-then-call": (ModelTurn("I shall look, „gleich“.\n", (PARIS,)),),
    "exact-bytes": (ModelTurn(calls=(EXACT,)),),
    "long-input": (ModelTurn(calls=(LONG,)),),
    "no-arguments": (ModelTurn(calls=(TIME,)),),
    "two-rounds": (ModelTurn(calls=(PARIS,)), ModelTurn("Now the other.", (TOKYO, TIME))),
    "thinking": (ModelTurn("Ah.", (PARIS,), thinking="I need the weather first."),),
    "text-only": (),
}


def check_round_trip(stack: Stack, mode: Mode, seen: Seen) -> None:
    """The client understood what the model said, and the model got back what the client's tools answered."""
    model, to = stack.model, stack.to(mode.door)
    assert seen.error is None, describe(model, seen)
    assert model.objections == [], describe(model, seen)
    turns = model.script.turns
    calls = [call for turn in turns for call in turn.calls]

    assert [call.name for call in seen.calls] == [call.name for call in calls]
    for understood, call in zip(seen.calls, calls, strict=True):
        if understood.text is not None:
            assert understood.text == call.input
        assert as_double(understood.value) == as_double(json.loads(call.input))
    results = [
        mode.result(
            f"{call.name} got {json.dumps(call.value, ensure_ascii=False, separators=(',', ':'))}"
        )
        for call in seen.calls
    ]
    assert seen.texts[:-1] == [turn.text for turn in turns]
    if not _has_odd_numbers(calls):
        assert seen.texts[-1] == " | ".join((model.script.closing, *results))

    assert [heard.dialect for heard in model.heard] == [to] * (len(turns) + 1), describe(
        model, seen
    )
    last = model.heard[-1]
    assert [call.id for call in last.conversation.calls] == model.call_ids(to)
    assert [result.id for result in last.conversation.results] == model.call_ids(to)
    assert [call.name for call in last.conversation.calls] == [call.name for call in calls]
    for replayed, call in zip(last.conversation.calls, calls, strict=True):
        if mode.keeps_text and to == "messages":
            assert call.input in last.text()
        elif mode.keeps_text:
            assert replayed.input == call.input
        assert as_double(json.loads(replayed.input)) == as_double(json.loads(call.input))
    if not _has_odd_numbers(calls):
        assert [result.text for result in last.conversation.results] == results
    if not stack.is_direct:
        assert all(KEY not in str(heard.request.headers) for heard in model.heard)


def as_double(value: Any) -> Any:
    """The value with its numbers as JavaScript has them."""
    return json.loads(json.dumps(value), parse_int=float)


def _has_odd_numbers(calls: list[Call]) -> bool:
    return EXACT in calls  # JavaScript writes them in its own way, and sorts the key "0" first


def describe(model: Model, seen: Seen) -> str:
    """All that is needed to repeat a failure by hand."""
    lines = [f"client: {seen}", f"objections: {model.objections}"]
    lines += [
        f"request {number} {heard.request.path}: {heard.text()[:6000]}"
        for number, heard in enumerate(model.heard)
    ]
    return "\n".join(lines)
