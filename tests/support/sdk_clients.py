"""The vendors' own SDKs behind one interface: a conversation is held the way their documentation shows, in every mode they have.

A mode is a way to ask: `create` and `parse` for a body, `stream` for the raw events, `helper` for the SDK's own
accumulator. What an SDK made of the answer comes back as `Got`; the next turn replays it as the SDK holds it.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import anthropic
import openai
from anthropic.types import Message
from msgspec import Struct, field

Json = dict[str, Any]

DOORS = ("chat", "responses", "messages")
MODES = {
    "chat": ("create", "parse", "stream", "helper"),
    "responses": ("create", "parse", "stream", "helper"),
    "messages": ("create", "parse", "stream", "helper"),
}
TIMEOUT = 60.0
CLIENT_KEY = "key-of-the-client"


@lru_cache
def openai_client(url: str, key: str = CLIENT_KEY) -> Any:
    """`Any`: its types say what should come, and the tests look at what did."""
    return openai.OpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0, timeout=TIMEOUT)


@lru_cache
def anthropic_client(url: str, key: str = CLIENT_KEY) -> Any:
    return anthropic.Anthropic(api_key=key, base_url=url, max_retries=0, timeout=TIMEOUT)


class Unfinished(Exception):
    """A Responses stream reported a failure, which the SDK gives as an event like any other."""


class Offered(Struct, frozen=True):
    """A tool. `schema` is left out for custom ones; namespaces exist at the Responses door only."""

    name: str
    schema: Json | None = None
    description: str = "does what it says"
    custom: bool = False
    namespace: str | None = None
    strict: bool | None = None


class Image(Struct, frozen=True):
    media_type: str
    data: str

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class SeenCall(Struct, frozen=True):
    """A call as the SDK assembled it. `arguments` is an object where the SDK parsed it and kept no text."""

    call_id: str
    name: str
    arguments: str | Json
    custom: bool = False
    namespace: str | None = None


class Got(Struct, kw_only=True):
    """What the SDK made of an answer. Token counts are in the door's own sense."""

    text: str = ""
    refusal: str = ""
    thought: str = ""
    seal: str = ""
    calls: list[SeenCall] = field(default_factory=list[SeenCall])
    hosted: list[Any] = field(default_factory=list[Any])  # items of calls that the gateway ran
    finish: str | None = None
    usage: tuple[int, int, int] | None = None
    model: str = ""


class Conversation:
    """One conversation at one door. `more` goes to the SDK as it is."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        tools: Sequence[Offered] = (),
        system: str | None = None,
        more: Json | None = None,
    ) -> None:
        self.url = url
        self.model = model
        self.tools = list(tools)
        self.system = system
        self.more = more or {}
        self.history: list[Any] = []

    def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def answer(
        self, call: SeenCall, text: str, *, is_error: bool = False, image: Image | None = None
    ) -> None:
        raise NotImplementedError

    def ask(self, mode: str) -> Got:
        """Send the conversation, and keep the answer for the next turn."""
        how: Any = getattr(self, f"_{mode}")
        return cast("Got", how())


def conversation(door: str, url: str, model: str, **more: Any) -> Conversation:
    return {"chat": _Chat, "responses": _Responses, "messages": _Messages}[door](url, model, **more)


# --- Chat Completions -------------------------------------------------------------------------------------------------


class _Chat(Conversation):
    def answer(
        self, call: SeenCall, text: str, *, is_error: bool = False, image: Image | None = None
    ) -> None:
        content: Any = text
        if image is not None:
            content = [
                {"type": "text", "text": text},
                {"type": "image_url", "image_url": {"url": image.url}},
            ]
        self.history.append({"role": "tool", "tool_call_id": call.call_id, "content": content})

    @property
    def _given(self) -> Json:
        head = [{"role": "system", "content": self.system}] if self.system else []
        given: Json = {"model": self.model, "messages": [*head, *self.history], **self.more}
        if self.tools:
            given["tools"] = [_chat_tool(tool) for tool in self.tools]
        return given

    def _create(self) -> Got:
        client = openai_client(self.url)
        return self._keep(client.chat.completions.create(**self._given))

    def _parse(self) -> Got:
        client = openai_client(self.url)
        return self._keep(client.chat.completions.parse(**self._given))

    def _helper(self) -> Got:
        client = openai_client(self.url)
        usage = {"include_usage": True}
        with client.chat.completions.stream(**self._given, stream_options=usage) as stream:
            counted: Any = None
            for event in stream:
                if event.type == "chunk" and event.chunk.usage is not None:
                    counted = event.chunk.usage
            return self._keep(stream.get_final_completion(), counted)

    def _keep(self, completion: Any, usage: Any = None) -> Got:
        choice = completion.choices[0]
        message = choice.message
        self.history.append(message)
        return Got(
            text=message.content or "",
            refusal=message.refusal or "",
            thought=getattr(message, "reasoning_content", None) or "",
            calls=[_chat_call(call) for call in message.tool_calls or ()],
            finish=choice.finish_reason,
            usage=_chat_usage(usage or completion.usage),
            model=completion.model,
        )

    def _stream(self) -> Got:
        client = openai_client(self.url)
        usage = {"include_usage": True}
        chunks = client.chat.completions.create(**self._given, stream=True, stream_options=usage)
        got = Got()
        texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
        calls: list[Json] = []
        for chunk in chunks:
            got.model = chunk.model
            if chunk.usage is not None:
                got.usage = _chat_usage(chunk.usage)
            for choice in chunk.choices:
                assert got.finish is None, "nothing of a choice comes after its finish"
                got.finish = choice.finish_reason
                for name, pieces in texts.items():
                    pieces.append(getattr(choice.delta, name, None) or "")
                for delta in choice.delta.tool_calls or ():
                    _grow(calls, delta.to_dict())
        got.text, got.refusal, got.thought = ("".join(pieces) for pieces in texts.values())
        message: Json = {"role": "assistant", "content": got.text or None}
        if got.refusal:
            message["refusal"] = got.refusal
        if got.thought:
            message["reasoning_content"] = got.thought
        if calls:
            message["tool_calls"] = [_settled(call) for call in calls]
        self.history.append(message)
        got.calls = [_chat_call(_Attributes(_settled(call))) for call in calls]
        return got


class _Attributes:
    """A dictionary's entries as attributes, as an SDK's model has them."""

    def __init__(self, entries: Json) -> None:
        for name, value in entries.items():
            nested = _Attributes(cast("Json", value)) if isinstance(value, dict) else value
            setattr(self, name, nested)


def _grow(calls: list[Json], delta: Json) -> None:
    """What most clients do with a Chat delta: by index; the name and the arguments are appended to."""
    index: int = delta["index"]
    assert index <= len(calls)
    if index == len(calls):
        calls.append({"id": "", "type": "", "name": [], "text": []})
    call = calls[index]
    call["id"] = call["id"] or delta.get("id") or ""
    call["type"] = call["type"] or delta.get("type") or ""
    body: Json = delta.get("function") or delta.get("custom") or {}
    call["name"].append(body.get("name") or "")
    call["text"].append(body.get("arguments") or body.get("input") or "")


def _settled(call: Json) -> Json:
    text = "input" if call["type"] == "custom" else "arguments"
    body = {"name": "".join(call["name"]), text: "".join(call["text"])}
    return {"id": call["id"], "type": call["type"], call["type"]: body}


def _chat_tool(tool: Offered) -> Json:
    if tool.custom:
        return {"type": "custom", "custom": {"name": tool.name, "description": tool.description}}
    function: Json = {"name": tool.name, "description": tool.description}
    function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _chat_call(call: Any) -> SeenCall:
    if call.type == "custom":
        return SeenCall(call.id, call.custom.name, call.custom.input, custom=True)
    assert call.type == "function"
    return SeenCall(call.id, call.function.name, call.function.arguments)


def _chat_usage(usage: Any) -> tuple[int, int, int] | None:
    if usage is None:
        return None
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return usage.prompt_tokens, usage.completion_tokens, cached or 0


# --- Responses --------------------------------------------------------------------------------------------------------


class _Responses(Conversation):
    def answer(
        self, call: SeenCall, text: str, *, is_error: bool = False, image: Image | None = None
    ) -> None:
        output: Any = text
        if image is not None:
            output = [
                {"type": "input_text", "text": text},
                {"type": "input_image", "image_url": image.url},
            ]
        kind = "custom_tool_call_output" if call.custom else "function_call_output"
        self.history.append({"type": kind, "call_id": call.call_id, "output": output})

    @property
    def _given(self) -> Json:
        given: Json = {"model": self.model, "input": self.history, **self.more}
        if self.system:
            given["instructions"] = self.system
        if self.tools:
            given["tools"] = _response_tools(self.tools)
        return given

    def _create(self) -> Got:
        return self._keep(openai_client(self.url).responses.create(**self._given))

    def _parse(self) -> Got:
        return self._keep(openai_client(self.url).responses.parse(**self._given))

    def _stream(self) -> Got:
        events = openai_client(self.url).responses.create(**self._given, stream=True)
        final: Any = None
        deltas: dict[str, list[str]] = {}
        for number, event in enumerate(events):
            assert event.sequence_number == number
            if event.type.endswith((".completed", ".incomplete")) and hasattr(event, "response"):
                final = event.response
            elif event.type == "response.function_call_arguments.delta":
                deltas.setdefault(event.item_id, []).append(event.delta)
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                assert "".join(deltas.get(event.item.id or "", ())) == event.item.arguments
            elif event.type == "response.failed":
                raise Unfinished(event.response.error)
        assert final is not None, "the stream ended without its terminal"
        return self._keep(final)

    def _helper(self) -> Got:
        with openai_client(self.url).responses.stream(**self._given) as stream:
            ends = [
                event
                for event in stream
                if event.type in ("response.completed", "response.incomplete")
            ]
            # The helper keeps a final response only of what is completed.
            last = ends[-1]
            final = last.response if last.type == "response.incomplete" else None
            return self._keep(final or stream.get_final_response())

    def _keep(self, response: Any) -> Got:
        self.history += response.output
        got = Got(model=response.model, finish=response.status)
        if response.incomplete_details is not None:
            got.finish = response.incomplete_details.reason
        for item in response.output:
            if item.type == "message":
                for content in item.content:
                    got.text += content.text if content.type == "output_text" else ""
                    got.refusal += content.refusal if content.type == "refusal" else ""
            elif item.type == "reasoning":
                got.thought += "".join(entry.text for entry in item.summary)
                got.thought += "".join(entry.text for entry in item.content or ())
                got.seal += item.encrypted_content or ""
            elif item.type == "function_call":
                space = getattr(item, "namespace", None)
                got.calls.append(SeenCall(item.call_id, item.name, item.arguments, namespace=space))
            elif item.type == "custom_tool_call":
                got.calls.append(SeenCall(item.call_id, item.name, item.input, custom=True))
            elif item.type == "mcp_call":
                got.hosted.append(item)
            else:
                raise AssertionError(f"an item of type {item.type}")
        usage = response.usage
        if usage is not None:
            assert usage.total_tokens == usage.input_tokens + usage.output_tokens
            cached = usage.input_tokens_details.cached_tokens
            got.usage = (usage.input_tokens, usage.output_tokens, cached)
        return got


def _response_tools(tools: Sequence[Offered]) -> list[Json]:
    found: list[Json] = []
    spaces: dict[str, Json] = {}
    for tool in tools:
        if tool.custom:
            made: Json = {"type": "custom", "name": tool.name, "description": tool.description}
        else:
            made = {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": tool.strict or False,
            }
        if tool.namespace is None:
            found.append(made)
            continue
        if tool.namespace not in spaces:
            spaces[tool.namespace] = {
                "type": "namespace",
                "name": tool.namespace,
                "description": f"the tools of {tool.namespace}",
                "tools": [],
            }
            found.append(spaces[tool.namespace])
        spaces[tool.namespace]["tools"].append(made)
    return found


# --- Messages ---------------------------------------------------------------------------------------------------------


class _Messages(Conversation):
    """Results that follow one another go into one message, as the vendor asks."""

    def answer(
        self, call: SeenCall, text: str, *, is_error: bool = False, image: Image | None = None
    ) -> None:
        content: Any = text
        if image is not None:
            source = {"type": "base64", "media_type": image.media_type, "data": image.data}
            content = [{"type": "text", "text": text}, {"type": "image", "source": source}]
        block: Json = {"type": "tool_result", "tool_use_id": call.call_id, "content": content}
        if is_error:
            block["is_error"] = True
        last: Json = self.history[-1]
        if last["role"] == "results":
            last["content"].append(block)
        else:
            self.history.append({"role": "results", "content": [block]})

    @property
    def _given(self) -> Json:
        messages = [
            {**turn, "role": "user"} if turn["role"] == "results" else turn for turn in self.history
        ]
        given: Json = {"model": self.model, "messages": messages, "max_tokens": 4096, **self.more}
        if self.system:
            given["system"] = self.system
        if self.tools:
            given["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                | ({} if tool.strict is None else {"strict": tool.strict})
                for tool in self.tools
            ]
        return given

    def _create(self) -> Got:
        return self._keep(anthropic_client(self.url).messages.create(**self._given))

    def _parse(self) -> Got:
        return self._keep(anthropic_client(self.url).messages.parse(**self._given))

    def _helper(self) -> Got:
        with anthropic_client(self.url).messages.stream(**self._given) as stream:
            for _ in stream:
                pass
            return self._keep(stream.get_final_message())

    def _stream(self) -> Got:
        """The raw events, put together by hand; the arguments by their own bytes."""
        blocks: list[Json] = []
        texts: list[list[str]] = []
        message: Any = None
        is_over = False
        for event in anthropic_client(self.url).messages.create(**self._given, stream=True):
            assert not is_over
            if event.type == "message_start":
                message = event.message
            elif event.type == "content_block_start":
                assert event.index == len(blocks)
                blocks.append(event.content_block.to_dict())
                texts.append([])
            elif event.type == "content_block_delta":
                assert event.index == len(blocks) - 1, "one block after the other"
                _take_delta(blocks[-1], texts[-1], event.delta)
            elif event.type == "content_block_stop":
                assert event.index == len(blocks) - 1
                if blocks[-1]["type"] == "tool_use":
                    # The vendor itself sends no text for a call without arguments.
                    texts[-1] = texts[-1] or ["{}"]
                    blocks[-1]["input"] = json.loads("".join(texts[-1]))
            elif event.type == "message_delta":
                message.stop_reason = event.delta.stop_reason
                message.usage.output_tokens = event.usage.output_tokens
                for name in ("input_tokens", "cache_read_input_tokens"):
                    count = getattr(event.usage, name)
                    if count is not None:
                        setattr(message.usage, name, count)
            elif event.type == "message_stop":
                is_over = True
        assert is_over, "the stream ended without message_stop"
        whole = Message.model_validate({**message.to_dict(), "content": blocks})
        got = self._keep(whole, blocks)
        got.calls = [
            SeenCall(block["id"], block["name"], "".join(text))
            for block, text in zip(blocks, texts, strict=True)
            if block["type"] == "tool_use"
        ]
        return got

    def _keep(self, message: Any, blocks: list[Json] | None = None) -> Got:
        self.history.append({"role": "assistant", "content": blocks or message.content})
        usage = message.usage
        got = Got(model=message.model, finish=message.stop_reason)
        got.usage = (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens or 0)
        for block in message.content:
            if block.type == "text":
                got.text += block.text
            elif block.type == "thinking":
                got.thought += block.thinking
                got.seal += block.signature
            elif block.type == "redacted_thinking":
                got.seal += block.data
            else:
                assert block.type == "tool_use", block.type
                got.calls.append(SeenCall(block.id, block.name, block.input))
        return got


def _take_delta(block: Json, texts: list[str], delta: Any) -> None:
    match delta.type:
        case "text_delta":
            block["text"] += delta.text
        case "thinking_delta":
            block["thinking"] += delta.thinking
        case "signature_delta":
            block["signature"] = delta.signature
        case "input_json_delta":
            texts += [delta.partial_json] if delta.partial_json else []
        case kind:
            raise AssertionError(f"a delta of type {kind}")
