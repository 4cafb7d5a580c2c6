"""Reads the requests that an upstream got, by the vendors' documented shapes and rules, without the gateway's decoders.

`hear` fails where a vendor would answer 400: calls without results, results without calls, wrong types, roles out of
order. It returns the same types for all three dialects.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal, cast

from msgspec import Struct, field

Json = dict[str, Any]

ERROR_MARK = "[tool error] "
"""How an error is reported to upstreams whose results have no flag."""

CHOICES: dict[str, dict[str, Any]] = {
    "chat": {
        "auto": "auto",
        "none": "none",
        "required": "required",
        "named": {"type": "function", "function": {"name": "get_weather"}},
    },
    "responses": {
        "auto": "auto",
        "none": "none",
        "required": "required",
        "named": {"type": "function", "name": "get_weather"},
    },
    "messages": {
        "auto": {"type": "auto"},
        "none": {"type": "none"},
        "required": {"type": "any"},
        "named": {"type": "tool", "name": "get_weather"},
    },
}


Role = Literal["system", "user", "assistant"]


class HeardTool(Struct, frozen=True):
    name: str
    schema: Any = None
    description: str | None = None
    custom: bool = False
    namespace: str | None = None


class Spoken(Struct, frozen=True):
    role: Role
    text: str


class Thinking(Struct, frozen=True):
    text: str
    seal: str = ""


class HeardCall(Struct, frozen=True):
    """`arguments` is an object where the dialect has one."""

    call_id: str
    name: str
    arguments: str | Json
    custom: bool = False
    namespace: str | None = None


class HeardResult(Struct, frozen=True):
    """`images` are data URLs, wherever the dialect puts them."""

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[str, ...] = ()


Turn = Spoken | Thinking | HeardCall | HeardResult


class Heard(Struct, kw_only=True):
    model: str
    stream: bool
    tools: list[HeardTool]
    turns: list[Turn]
    choice: Any = None
    parallel: bool | None = None
    stray_images: list[str] = field(default_factory=list[str])

    @property
    def calls(self) -> list[HeardCall]:
        return [turn for turn in self.turns if isinstance(turn, HeardCall)]

    @property
    def results(self) -> list[HeardResult]:
        return [turn for turn in self.turns if isinstance(turn, HeardResult)]

    @property
    def thoughts(self) -> list[Thinking]:
        return [turn for turn in self.turns if isinstance(turn, Thinking)]

    def said(self, role: str) -> list[str]:
        return [turn.text for turn in self.turns if isinstance(turn, Spoken) and turn.role == role]


def hear(dialect: str, body: bytes) -> Heard:
    heard = {"chat": _chat, "responses": _responses, "messages": _messages}[dialect](
        json.loads(body)
    )
    ids = [call.call_id for call in heard.calls]
    assert len(set(ids)) == len(ids), "call ids are unique"
    answered = [result.call_id for result in heard.results]
    assert sorted(answered) == sorted(ids), "every call has one result, every result its call"
    return heard


# --- Chat Completions -------------------------------------------------------------------------------------------------


def _chat(body: Json) -> Heard:
    tools: list[HeardTool] = []
    for tool in body.get("tools", ()):
        inside: Json = tool[tool["type"]]
        tools.append(
            HeardTool(
                inside["name"],
                inside.get("parameters"),
                inside.get("description"),
                custom=tool["type"] == "custom",
            )
        )
    heard = Heard(
        model=body["model"],
        stream=body.get("stream") is True,
        tools=tools,
        turns=[],
        choice=body.get("tool_choice"),
        parallel=body.get("parallel_tool_calls"),
    )
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a tool message follows its calls at once"
            waiting.remove(message["tool_call_id"])
            heard.turns.append(_chat_result(message))
            continue
        assert not waiting, f"calls without results before a {message['role']} message: {waiting}"
        if message["role"] == "assistant":
            heard.turns += _chat_said(message)
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        else:
            _take_chat_turn(heard, message)
    assert not waiting
    return heard


def _chat_result(message: Json) -> HeardResult:
    parts = _parts(message["content"])
    images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    text, is_error = _unmarked("".join(part["text"] for part in parts if part["type"] == "text"))
    return HeardResult(message["tool_call_id"], text, is_error, tuple(images))


def _chat_said(message: Json) -> Iterator[Turn]:
    if message.get("reasoning_content"):
        yield Thinking(message["reasoning_content"])
    content = message.get("content")
    assert content is not None or message.get("tool_calls") or message.get("refusal")
    if content:
        yield Spoken("assistant", _joined(content))
    for call in message.get("tool_calls") or ():
        inside = call[call["type"]]
        is_custom = call["type"] == "custom"
        text = inside["input" if is_custom else "arguments"]
        assert isinstance(text, str)
        if not is_custom:
            json.loads(text)
        yield HeardCall(call["id"], inside["name"], text, custom=is_custom)


def _take_chat_turn(heard: Heard, message: Json) -> None:
    assert message["role"] in ("system", "developer", "user")
    parts = _parts(message["content"])
    images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    heard.stray_images += images
    if not images:
        heard.turns.append(Spoken(_role(message), _joined(message["content"])))


def _role(message: Json) -> Role:
    """`developer` is what OpenAI's newer models call `system`."""
    role: Role = "system" if message["role"] == "developer" else message["role"]
    return role


def _parts(content: Any) -> list[Json]:
    """Content as a list, which it is in its long form."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _joined(content: Any) -> str:
    return "".join(part["text"] for part in _parts(content))


def _unmarked(text: str) -> tuple[str, bool]:
    return text.removeprefix(ERROR_MARK), text.startswith(ERROR_MARK)


# --- Responses --------------------------------------------------------------------------------------------------------


def _responses(body: Json) -> Heard:
    heard = Heard(
        model=body["model"],
        stream=body.get("stream") is True,
        tools=list(_response_tools(body.get("tools", ()))),
        turns=[],
        choice=body.get("tool_choice"),
        parallel=body.get("parallel_tool_calls"),
    )
    if body.get("instructions"):
        heard.turns.append(Spoken("system", body["instructions"]))
    items = body["input"]
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    for item in items:
        heard.turns += _item(item)
    return heard


def _response_tools(tools: Any, namespace: str | None = None) -> Iterator[HeardTool]:
    for tool in tools:
        if tool["type"] == "namespace":
            yield from _response_tools(tool["tools"], tool["name"])
            continue
        assert tool["type"] in ("function", "custom")
        yield HeardTool(
            tool["name"],
            tool.get("parameters"),
            tool.get("description"),
            custom=tool["type"] == "custom",
            namespace=namespace,
        )


def _item(item: Json) -> Iterator[Turn]:
    prefixes = {
        "message": "msg_",
        "reasoning": "rs_",
        "function_call": "fc_",
        "custom_tool_call": "ctc_",
        "function_call_output": "fc",
        "custom_tool_call_output": "ctc",
    }
    kind = item.get("type", "message")
    if item.get("id"):
        assert item["id"].startswith(prefixes[kind]), "OpenAI refuses other ids"
    match kind:
        case "message":
            yield Spoken(_role(item), _content_text(item["content"]))
        case "reasoning":
            text = "".join(entry["text"] for entry in item["summary"])
            yield Thinking(text, item.get("encrypted_content") or "")
        case "function_call":
            json.loads(item["arguments"])
            yield HeardCall(
                item["call_id"], item["name"], item["arguments"], namespace=item.get("namespace")
            )
        case "custom_tool_call":
            yield HeardCall(item["call_id"], item["name"], item["input"], custom=True)
        case "function_call_output" | "custom_tool_call_output":
            parts = _parts(item["output"])
            images = [part["image_url"] for part in parts if part["type"] == "input_image"]
            text, is_error = _unmarked(_content_text(parts))
            yield HeardResult(item["call_id"], text, is_error, tuple(images))
        case _:
            raise AssertionError(f"an item of type {kind}")


def _content_text(content: Any) -> str:
    return "".join(part.get("text") or part.get("refusal") or "" for part in _parts(content))


# --- Messages ---------------------------------------------------------------------------------------------------------


def _messages(body: Json) -> Heard:
    assert body["max_tokens"] > 0
    assert json.dumps(body).count('"cache_control"') <= 4, "the vendor takes four breakpoints"
    choice: Any = body.get("tool_choice")
    parallel: bool | None = None
    if choice is not None and "disable_parallel_tool_use" in choice:
        parallel = not choice["disable_parallel_tool_use"]
        choice = {key: value for key, value in choice.items() if key != "disable_parallel_tool_use"}
    tools = [
        HeardTool(tool["name"], tool["input_schema"], tool.get("description"))
        for tool in body.get("tools", ())
    ]
    heard = Heard(
        model=body["model"],
        stream=body.get("stream") is True,
        tools=tools,
        turns=[],
        choice=choice,
        parallel=parallel,
    )
    if body.get("system"):
        heard.turns.append(Spoken("system", _joined(body["system"])))
    waiting: list[str] = []
    previous = "assistant"
    for message in body["messages"]:
        assert {message["role"], previous} == {"user", "assistant"}, "roles take turns"
        previous = message["role"]
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(answered) == sorted(waiting), "results follow their calls at once"
        kinds = [block["type"] for block in blocks]
        assert kinds[: len(answered)] == ["tool_result"] * len(answered), "results come first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for block in blocks:
            heard.turns += _block(message["role"], block)
    assert not waiting
    return heard


def _block(role: Any, block: Json) -> Iterator[Turn]:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "the vendor refuses empty texts"
            yield Spoken(role, block["text"])
        case "thinking":
            assert role == "assistant"
            assert "cache_control" not in block
            yield Thinking(block["thinking"], block["signature"])
        case "redacted_thinking":
            yield Thinking("", block["data"])
        case "tool_use":
            assert role == "assistant"
            value: Json = block["input"]
            assert isinstance(value, dict), "the vendor wants an object"
            yield HeardCall(block["id"], block["name"], value)
        case "tool_result":
            assert role == "user"
            yield _tool_result(block)
        case kind:
            raise AssertionError(f"a block of type {kind}")


def _tool_result(block: Json) -> HeardResult:
    parts = _parts(block.get("content", ""))
    sources: list[Json] = [part["source"] for part in parts if part["type"] == "image"]
    return HeardResult(
        block["tool_use_id"],
        "".join(part["text"] for part in parts if part["type"] == "text"),
        block.get("is_error") is True,
        tuple(f"data:{source['media_type']};base64,{source['data']}" for source in sources),
    )


def without_breakpoints(value: object) -> Any:
    """A Messages request without its cache breakpoints; its texts are blocks, because only blocks have breakpoints."""
    if isinstance(value, list):
        return [without_breakpoints(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    plain = {key: without_breakpoints(members[key]) for key in members if key != "cache_control"}
    text_of = "content" if "role" in plain else "system"
    if isinstance(plain.get(text_of), str):
        plain[text_of] = [{"type": "text", "text": plain[text_of]}]
    return plain
