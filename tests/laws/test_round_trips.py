"""Law 4: what a vendor said is said again in the vendor's own dialect, equal as JSON values but for `LISTED`.

Compared are the frames one by one, what the vendors' own SDKs put together from them, and whole bodies. The answers are
those of `vendor_answers`, of the benchmarks and of the regular streams of the corpus.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import httpx2
import pytest
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaRawMessageStreamEvent
from bench_streams import Story, dialect_stream
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from pydantic import TypeAdapter

from corpus_cases import DIALECTS, folder_cases, stream_cases
from doors import payloads
from dragoman.dialects.translate import StreamTranslator, translate_body
from vendor_answers import BODIES, STREAMS, frames
from vendor_pieces import Payload

LISTED: Mapping[str, Mapping[str, str]] = {
    "chat": {
        "null": "a field that is null and one that is not there mean the same",
        "obfuscation": "padding of random length against traffic analysis; it means nothing",
        "annotations": "an empty list says nothing",
        "choices in turns": "the finish of a choice is told at the end of the stream, because servers send more after it: "
        "with several choices the chunks of each keep their order, but not those of different ones",
        "content": "text that is empty and text that is not there mean the same",
        "role": "the first chunk of a choice has the role and empty content, whatever else stood there",
        "sealed lists": "`reasoning_details` and `thinking_blocks` come in one chunk, when their reasoning ends",
        "no-op chunks": "a chunk that says nothing is not said again",
        "stop_reason": "reported as a loss even if it came that way: strict clients do not know it",
    },
    "responses": {
        "null": "a field that is null and one that is not there mean the same",
        "obfuscation": "padding of random length against traffic analysis; it means nothing",
        "announcement": "what an announced item holds before its time (a seal, an action, an empty list) comes with its end",
        "input of provider-run tools": "it is repeated whole when the item ends, after the reports of progress",
        "sequence_number": "counted anew, from 0 (see `doors.check_responses`)",
    },
    "messages": {
        "null": "a field that is null and one that is not there mean the same",
        "silence": "a text block without text is not said again: the vendor refuses it when it is sent back",
        "no input": "an empty input that the protocol closed is `{}`, as a delta too",
        "mcp": "the content of an MCP result is a list of blocks, also where it was a string",
    },
}
"""What a round trip changes, and why. `CLEANERS` and the tests below apply it."""

DEMANDED: Mapping[str, frozenset[str]] = {
    "chat": frozenset({"created", "model", "object", "id"}),
    "responses": frozenset(
        {
            # what a response says of its request
            *("background", "metadata", "parallel_tool_calls", "reasoning", "text", "tool_choice"),
            *("tools", "truncation", "created_at", "model", "object", "frequency_penalty", "store"),
            *("presence_penalty", "service_tier", "temperature", "top_logprobs", "top_p"),
            "verbosity",
            # counts, and lists that may be empty
            *("cache_write_tokens", "logprobs", "annotations", "status", "id", "item_id"),
        }
    ),
    "messages": frozenset(
        {
            *("role", "model", "id", "caller", "citations"),
            # counts, and how they were made
            *("cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation"),
            "service_tier",
        }
    ),
}
"""Fields that the vendor's schema demands: filled in where a server, or a small test stream, leaves them out."""

CARRIED = {"stop_sequence", "output_media"}

# --- streams ----------------------------------------------------------------------------------------------------------


def _cases() -> list[tuple[str, str, bytes]]:
    found = [
        (dialect, name, frames(dialect, result))
        for dialect in DIALECTS
        for name, result in STREAMS[dialect].items()
    ]
    stories = (Story(texts=5, calls=2, arguments=6), Story(texts=1, calls=1, arguments=100))
    found += [
        (dialect, f"bench {story}", b"".join(dialect_stream(dialect, story)))
        for dialect in DIALECTS
        for story in stories
    ]
    return found


CASES = _cases()
CORPUS = [
    (case.dialect, f"corpus {case.name}", case.stream)
    for case in stream_cases()
    if case.meta["expect"].get("regular")
]
"""Small streams: many leave out what a vendor's own would have, so that only their sum is compared."""


def each_of(cases: Sequence[tuple[str, str, bytes]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("dialect", "data"),
        [(dialect, data) for dialect, _, data in cases],
        ids=[f"{dialect}: {name}" for dialect, name, _ in cases],
    )


def again(dialect: str, data: bytes) -> bytes:
    translator = StreamTranslator(dialect, dialect)
    out = translator.feed(data) + translator.close()
    assert translator.problems == ()
    assert {loss.code for loss in translator.losses} <= CARRIED
    return out


def payloads_of(data: bytes) -> list[Payload]:
    """The payloads of any stream; `doors.payloads` reads ours, and is strict."""
    found: list[Payload] = []
    for line in data.decode().splitlines():
        text = line.removeprefix("data:").strip()
        if line.startswith("data:") and text != "[DONE]":
            found.append(json.loads(text))
    return found


@each_of(CASES)
def test_every_frame_is_said_again(dialect: str, data: bytes) -> None:
    clean = CLEANERS[dialect]
    said = [payload for _, payload in payloads(again(dialect, data)) if payload != "[DONE]"]
    same(clean(said), clean(payloads_of(data)), DEMANDED[dialect])


@each_of([*CASES, *CORPUS])
def test_the_vendors_sdk_puts_the_same_together(dialect: str, data: bytes) -> None:
    put_together = ACCUMULATORS[dialect]
    said = put_together(payloads_of(again(dialect, data)))
    same(said, put_together(payloads_of(data)), DEMANDED[dialect])


def same(said: Any, original: Any, demanded: Collection[str], path: str = "") -> None:
    """Equal, but that what was said again may have the demanded fields where the original has none."""
    fields, entries = _fields(original), _entries(original)
    if fields is not None and (said_fields := _fields(said)) is not None:
        assert said_fields.keys() - fields.keys() <= set(demanded), path
        assert not fields.keys() - said_fields.keys(), path
        for key, value in fields.items():
            same(said_fields[key], value, demanded, f"{path}.{key}")
    elif entries is not None and (said_entries := _entries(said)) is not None:
        assert len(said_entries) == len(entries), (path, said, original)
        for number, value in enumerate(entries):
            same(said_entries[number], value, demanded, f"{path}.{number}")
    else:
        assert said == original, path


def _fields(value: Any) -> Payload | None:
    return cast("Payload", value) if isinstance(value, dict) else None


def _entries(value: Any) -> Sequence[Any] | None:
    return cast("Sequence[Any]", value) if isinstance(value, list) else None


_LATE = {"response.code_interpreter_call_code.done", "response.mcp_call_arguments.done"}


def _without(value: Any, *names: str) -> Any:
    """The value without nulls, and without fields of these names."""
    fields, entries = _fields(value), _entries(value)
    if fields is not None:
        return {
            key: _without(item, *names)
            for key, item in fields.items()
            if item is not None and key not in names
        }
    if entries is not None:
        return [_without(item, *names) for item in entries]
    return value


def _clean_chat(result: Sequence[Payload]) -> list[Any]:
    lanes: dict[int, list[Any]] = {}
    bare: Payload = {"index": -1}
    for payload in _without(list(result), "obfuscation", "reasoning_details"):
        choices: list[Payload] = payload["choices"] or [bare]
        for choice in choices:
            lane = lanes.setdefault(choice["index"], [])
            delta: Payload = dict(choice.get("delta", {}))
            if delta.pop("role", None) is not None:
                delta.pop("content", None)
                lane.append({**payload, "choices": ["role"]})
            if delta or "finish_reason" in choice or choice is bare:
                lane.append({**payload, "choices": [{**choice, "delta": delta}]})
    return [payload for index in sorted(lanes) for payload in lanes[index]]


def _clean_responses(result: Sequence[Payload]) -> list[Any]:
    found: list[Any] = []
    late: list[Any] = []
    for payload in _without(list(result), "obfuscation", "sequence_number"):
        if payload["type"] == "response.output_item.added":
            item = payload["item"]
            kept = {key: item[key] for key in ("id", "type", "call_id", "name") if key in item}
            found.append({**payload, "item": kept})
        elif payload["type"] in _LATE:
            late.append(payload)
        else:
            found.append(payload)
    return found + late


def _clean_messages(result: Sequence[Payload]) -> list[Any]:
    return [_without(payload) for payload in result]


CLEANERS: Mapping[str, Callable[[Sequence[Payload]], list[Any]]] = {
    "chat": _clean_chat,
    "responses": _clean_responses,
    "messages": _clean_messages,
}

# --- what SDKs make of it ---------------------------------------------------------------------------------------------

_EVENT: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)


def _put_chat_together(result: Sequence[Payload]) -> Any:
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for payload in result:
        state.handle_chunk(ChatCompletionChunk.construct(**payload))
    whole = _without(state.current_completion_snapshot.to_dict(), "obfuscation")
    for choice in whole["choices"]:
        if choice["message"].get("content") == "":
            del choice["message"]["content"]
    return whole


def _put_response_together(result: Sequence[Payload]) -> Any:
    return _without(result[-1]["response"])


def _put_message_together(result: Sequence[Payload]) -> Any:
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for payload in result:
        if payload["type"] != "ping":
            snapshot = accumulate_event(
                event=_EVENT.validate_python(payload),
                current_snapshot=snapshot,
                json_bufs=buffers,
                request_headers=httpx2.Headers(),
            )
    return _without(snapshot.to_dict())


ACCUMULATORS: Mapping[str, Callable[[Sequence[Payload]], Any]] = {
    "chat": _put_chat_together,
    "responses": _put_response_together,
    "messages": _put_message_together,
}

# --- bodies -----------------------------------------------------------------------------------------------------------

IRREGULAR = {
    # an item without an id, among others
    "responses-object-from-a-chat-route"
}
WHOLE = [
    *((dialect, name, body) for dialect in DIALECTS for name, body in BODIES[dialect].items()),
    *(
        (case.meta["dialect"], f"corpus {case.name}", json.loads(case.read("body.json")))
        for case in folder_cases("bodies")
        if case.name not in IRREGULAR
    ),
]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [(dialect, body) for dialect, _, body in WHOLE],
    ids=[f"{dialect}: {name}" for dialect, name, _ in WHOLE],
)
def test_every_body_is_said_again(dialect: str, body: Payload) -> None:
    crossed = translate_body(json.dumps(body).encode(), dialect, dialect)
    assert crossed.problems == ()
    same(_clean_body(json.loads(crossed.body)), _clean_body(body), DEMANDED[dialect])


def _clean_body(body: Payload) -> Any:
    body = _without(body)
    for choice in body.get("choices", ()):
        if choice["message"].get("annotations") == []:
            del choice["message"]["annotations"]
    return body
