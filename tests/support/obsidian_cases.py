"""The test cases of the Obsidian contract: five answers under every setting, and what the client must get.

`expected_answer` lists the expected results by hand, setting by setting; it shares nothing with the code under test.
"""

import json
import re
from typing import Any

from msgspec import Struct, structs

from dragoman.obsidian.settings import ChatSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, json_reply, sse
from vendor_wire import Answer, Said, Tool, stream

Json = dict[str, Any]

SEARCH = '{"terms":["a","b"],"query":"piano"}'
AGAIN = '{"query":"piano","terms":["a","b"]}'
BLOCKS = {
    "search": '<use_tool>\n  <name>search</name>\n  <query>piano</query>\n  <terms>["a","b"]</terms>\n</use_tool>',
    "now": "<use_tool>\n  <name>now</name>\n</use_tool>",
}
_WRITTEN = {
    "search": '<use_tool>\n<name>search</name>\n<query>piano</query>\n<terms>["a","b"]</terms>\n</use_tool>',
    "now": "<use_tool>\n<name>now</name>\n</use_tool>",
}
DECLARED: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string"},
                    "terms": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
]


def _pieces(text: str) -> tuple[str, ...]:
    return tuple(text[at : at + 6] for at in range(0, len(text), 6))


_ONE = Tool("call_1", "search", _pieces(SEARCH))
_TWO = Tool("call_2", "now", ("{}",))
_THREE = Tool("call_3", "search", _pieces(AGAIN))
_LOOK = Said(("I ", "look."))
CASES: dict[str, tuple[str, Answer]] = {
    "one call": ("messages", Answer((_LOOK, _ONE))),
    "three calls": ("messages", Answer((_LOOK, _ONE, _TWO, _THREE))),
    "text around": ("messages", Answer((_LOOK, _ONE, Said(("Mean", "while.")), _TWO, Said(("Done.",))))),
    "written": (
        "chat",
        Answer((Said(_pieces(f"I look.\n{_WRITTEN['search']}\n{_WRITTEN['now']}\nIt is five.\n{_WRITTEN['now']}")),)),
    ),
    "cut": ("messages", Answer((_LOOK, _ONE, _THREE))),
}  # fmt: skip
"""Each with the dialect of its upstream: one that knows the order of text and calls."""

_FLAGS: dict[str, ChatSettings] = {
    "nothing": ChatSettings(),
    "PROXY_OUTPUT_MODE": ChatSettings(output_mode="obsidian_xml"),
    "PROXY_STOP_AFTER_TOOLS": ChatSettings(stop_after_tools=True),
    "PROXY_STOP_AFTER_TOOLS=false": ChatSettings(stop_after_tools=False),
    "PROXY_STOP_AFTER_TOOLS_MODE": ChatSettings(
        stop_after_tools=True, stop_after_tools_mode="first"
    ),
    "PROXY_STOP_AFTER_TOOLS_MODE alone": ChatSettings(stop_after_tools_mode="first"),
    "PROXY_STOP_AFTER_TOOLS_GRACE_MS": ChatSettings(
        stop_after_tools=True, stop_after_tools_grace_ms=90_000
    ),
    "PROXY_SUPPRESS_TAIL_AFTER_TOOLS": ChatSettings(suppress_tail_after_tools=True),
    "PROXY_SUPPRESS_TAIL_AFTER_TOOLS=false": ChatSettings(suppress_tail_after_tools=False),
    "PROXY_TOOL_BLOCK_MAX": ChatSettings(tool_block_max=1),
    "PROXY_TOOL_BLOCK_DELIMITER": ChatSettings(tool_block_delimiter="\n--\n"),
    "PROXY_TOOL_BLOCK_DEDUP": ChatSettings(tool_block_dedup=True),
    "PROXY_ENABLE_PARALLEL_TOOL_CALLS": ChatSettings(enable_parallel_tool_calls=False),
}

# A machine that stands still for longer than the usual 300 ms would cut the answer between two calls.
_GRACE_MS = 60_000
FLAGS = {
    name: structs.replace(
        flag, stop_after_tools_grace_ms=max(flag.stop_after_tools_grace_ms, _GRACE_MS)
    )
    for name, flag in _FLAGS.items()
}


class ExpectedAnswer(Struct, frozen=True):
    """What a client is to get. `truncated`: whether calls were withheld, of a stream and of a body that was heard whole."""

    calls: tuple[str, ...] = ()
    prose: str = ""
    truncated: tuple[bool, bool] = (False, False)
    fails: bool = False


_S, _N = "search", "now"
_USUAL = {
    "one call": ExpectedAnswer((_S,), "I look."),
    "three calls": ExpectedAnswer((_S, _N, _S), "I look."),
    "text around": ExpectedAnswer((_S, _N), "I look.Meanwhile.Done."),
    "written": ExpectedAnswer((_S, _N), "I look.", (False, True)),
    "cut": ExpectedAnswer(fails=True),
}
_STOPS = {
    "text around": ExpectedAnswer((_S,), "I look.", (False, True)),
}
_FIRST = {
    "three calls": ExpectedAnswer((_S,), "I look.", (False, True)),
    "text around": ExpectedAnswer((_S,), "I look.", (False, True)),
    "written": ExpectedAnswer((_S,), "I look.", (False, True)),
    "cut": ExpectedAnswer((_S,), "I look."),
}
_OTHERWISE: dict[str, dict[str, ExpectedAnswer]] = {
    "PROXY_STOP_AFTER_TOOLS": _STOPS,
    "PROXY_STOP_AFTER_TOOLS=false": {"written": ExpectedAnswer((_S, _N, _N), "I look.")},
    "PROXY_STOP_AFTER_TOOLS_MODE": _FIRST,
    "PROXY_STOP_AFTER_TOOLS_MODE alone": {"written": _FIRST["written"]},
    "PROXY_STOP_AFTER_TOOLS_GRACE_MS": _STOPS,
    "PROXY_SUPPRESS_TAIL_AFTER_TOOLS": {"text around": ExpectedAnswer((_S, _N), "I look.")},
    "PROXY_SUPPRESS_TAIL_AFTER_TOOLS=false": {
        "written": ExpectedAnswer((_S, _N), "I look.It is five.", (True, True))
    },
    "PROXY_TOOL_BLOCK_MAX": {
        "three calls": ExpectedAnswer((_S,), "I look.", (True, True)),
        "text around": ExpectedAnswer((_S,), "I look.Meanwhile.Done.", (True, True)),
        "written": ExpectedAnswer((_S,), "I look.", (True, True)),
    },
    "PROXY_TOOL_BLOCK_DEDUP": {"three calls": ExpectedAnswer((_S, _N), "I look.")},
}


def expected_answer(flag: str, case: str) -> ExpectedAnswer:
    return _OTHERWISE.get(flag, {}).get(case, _USUAL[case])


def reply_of(case: str, request: ReceivedRequest) -> ScriptedReply | None:
    """Return the upstream's answer where it differs from the common form; None where it does not."""
    if case != "cut":
        return None
    dialect, answer = CASES[case]
    whole = stream(dialect, answer)
    middle = whole.rindex(b"input_json_delta")
    if json.loads(request.body).get("stream") is True:
        return structs.replace(sse(whole[:middle]), cut=True)
    return json_reply({"type": "error", "error": {"type": "api_error", "message": "it broke"}}, 500)


class ToldStream(Struct):
    """A Chat stream, put together by hand. `frames` are all of it, comments too."""

    frames: list[str]
    roles: list[str]
    content: str
    calls: list[Json]
    finishes: list[str]
    error: Json | None
    usage: Json | None


def read_stream(text: str) -> ToldStream:
    frames = [frame for frame in re.split(r"\n\n", text) if frame]
    read = ToldStream(frames, [], "", [], [], None, None)
    for frame in frames:
        if not frame.startswith("data: ") or frame == "data: [DONE]":
            continue
        chunk = json.loads(frame.removeprefix("data: "))
        if "error" in chunk:
            read.error = chunk["error"]
            continue
        read.usage = chunk.get("usage") or read.usage
        for choice in chunk["choices"]:
            _take(read, choice)
    return read


def _take(read: ToldStream, choice: Json) -> None:
    delta = choice["delta"]
    if "role" in delta:
        read.roles.append(delta["role"])
    read.content += delta.get("content") or ""
    for call in delta.get("tool_calls", ()):
        assert read.roles, "a call before the role"
        if call["index"] == len(read.calls):
            read.calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
        read.calls[call["index"]]["arguments"] += call["function"].get("arguments", "")
    if choice["finish_reason"] is not None:
        read.finishes.append(choice["finish_reason"])
