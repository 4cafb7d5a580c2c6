"""Picks the events of an upstream's stream for the dump, and removes what must not be written. Pure.

The dump shows how calls came and how the answer ended, not the deltas of text. For a Responses stream these
are the starts and ends of items, the whole arguments, and the starts and ends of answers. Chat and Messages
send arguments only in pieces; the pieces are joined when the call ends, because half a credential cannot be recognised.

Copies of the request or of the whole answer are left out, credentials and seals are hidden, and an event beyond a size
limit is named without its content.
"""

import re
from collections.abc import Iterator
from typing import cast

from dragoman._json import dumps, loads
from dragoman.core.secrets import redact_json
from dragoman.dialects.messages import EVENTS
from dragoman.errors import MalformedJson

Json = dict[str, object]

# An image comes as megabytes of base64 in one event; the events of interest have kilobytes.
MAX_EVENT = 256 * 1024

_RESPONSES = frozenset(
    (
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "codex.rate_limits",
        "error",
    )
)
_MESSAGES = EVENTS - {"ping"}
_CHAT = re.compile(
    rb'"(?:tool_calls|function_call)"\s*:\s*[\[{]|"finish_reason"\s*:\s*"|"usage"\s*:\s*\{|"error"\s*:\s*[{"]'
)
_HEAD = ("id", "object", "created", "model")
# The members of a `response` that are kept: its identity, how it ended and what it cost.
_KEPT = ("id", "model", "status", "usage", "error", "incomplete_details")


class EventPicker:
    """Picks events from one stream. Holds only the pieces of arguments until their call ends."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._pieces: dict[tuple[object, object], list[str]] = {}

    def pick(self, data: bytes) -> list[Json]:
        """The events to dump for a frame's payload: mostly none."""
        if self._dialect == "chat" and _CHAT.search(data) is None:
            return []
        try:
            event = loads(data)
        except MalformedJson:
            return []  # `[DONE]`, or not a JSON object
        fields = _object(event)
        kind = fields.get("type")
        match self._dialect:
            case "responses" if kind in _RESPONSES:
                picked = iter((_without_response(fields),))
            case "messages" if kind in _MESSAGES:
                picked = self._pick_block(fields, str(kind))
            case "chat" if fields:
                picked = self._pick_chunk(fields)
            case _:
                return []
        return [_written(each) for each in picked]

    def close(self) -> list[Json]:
        """The held arguments of calls that never ended."""
        if self._dialect == "messages":
            keys = tuple(self._pieces)
            rest = [delta for _, index in keys for delta in self._block_delta(index)]
        else:
            choices = dict.fromkeys(choice for choice, _ in self._pieces)
            rest = [chunk for choice in choices for chunk in self._chunk_of(choice, {})]
        return [_written(each) for each in rest]

    # --- Messages -----------------------------------------------------------------------------------------------------

    def _pick_block(self, event: Json, kind: str) -> Iterator[Json]:
        index = event.get("index")
        if kind == "content_block_delta":
            piece = _object(event.get("delta")).get("partial_json")
            if isinstance(piece, str):
                self._pieces.setdefault((0, index), []).append(piece)
            return
        if kind == "content_block_stop":
            yield from self._block_delta(index)
        yield event

    def _block_delta(self, index: object) -> Iterator[Json]:
        pieces = self._pieces.pop((0, index), None)
        if pieces is not None:
            delta = {"type": "input_json_delta", "partial_json": "".join(pieces)}
            yield {"type": "content_block_delta", "index": index, "delta": delta}

    # --- Chat ---------------------------------------------------------------------------------------------------------

    def _pick_chunk(self, chunk: Json) -> Iterator[Json]:
        choices = _list(chunk.get("choices"))
        is_news = not choices or chunk.get("error") is not None
        for choice in map(_object, choices):
            number = choice.get("index", 0)
            delta = _object(choice.get("delta"))
            calls = [*_list(delta.get("tool_calls")), {"function": delta.get("function_call")}]
            taken = [self._take_call(number, _object(call)) for call in calls]
            is_news = is_news or any(taken)
            if choice.get("finish_reason") is not None:
                yield from self._chunk_of(number, chunk)
                is_news = True
        if is_news:
            yield chunk

    def _take_call(self, choice: object, call: Json) -> bool:
        """Take the piece of arguments out of a delta; return whether the delta contains anything else."""
        body = _object(call.get("function")) or _object(call.get("custom"))
        for key in ("arguments", "input"):
            piece = body.get(key)
            if isinstance(piece, str) and piece:
                self._pieces.setdefault((choice, call.get("index")), []).append(piece)
                body[key] = ""
        return bool(call.get("id") or body.get("name"))

    def _chunk_of(self, choice: object, like: Json) -> Iterator[Json]:
        """The arguments of all calls of a choice, in one chunk."""
        keys = [key for key in self._pieces if key[0] == choice]
        calls = [
            {"index": index, "function": {"arguments": "".join(self._pieces.pop((choice, index)))}}
            for _, index in keys
        ]
        if calls:
            chosen = {"index": choice, "delta": {"tool_calls": calls}, "finish_reason": None}
            head = {key: value for key, value in like.items() if key in _HEAD}
            yield {"object": "chat.completion.chunk", **head, "choices": [chosen]}


def _without_response(event: Json) -> Json:
    if "response" not in event:
        return event
    response = _object(event["response"])
    return {**event, "response": {key: response[key] for key in _KEPT if key in response}}


def _written(event: Json) -> Json:
    hidden = {key: redact_json(value, key) for key, value in event.items()}
    size = len(dumps(hidden))
    return hidden if size <= MAX_EVENT else {"type": event.get("type"), "omitted_bytes": size}


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
