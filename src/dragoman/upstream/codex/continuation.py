"""Whether a request goes on with a turn that waits, and with what. Pure.

It does if it says what the request before it said, word for word, then whatever the assistant answered, then a result for
every call that waits, and at the end perhaps something more of the user's. Anything else is a conversation of its own.
"""

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import cast

from msgspec import Struct

from dragoman._json import Raw, loads, typed_decoder

__all__ = ("Asked", "Continuation", "continuation", "digests", "read_asked")

_Json = dict[str, object]

_DIGEST_BYTES = 16


class Asked(Struct, frozen=True):
    """A request, as `dialects.codex.request` writes it."""

    thread: Raw
    turn: Raw
    items: list[Raw]

    @property
    def settings(self) -> bytes:
        """What cannot change while a turn goes on."""
        return _digest(bytes(self.thread) + b"\0" + bytes(self.turn))


class Continuation(Struct, frozen=True):
    """Results by the ids of their calls, as `item/tool/call` is answered; and what `turn/steer` is told first."""

    results: dict[str, _Json]
    steer: list[_Json]


read_asked = typed_decoder(Asked)


def digests(items: Sequence[Raw]) -> tuple[bytes, ...]:
    """What tells items apart, at a small part of their size."""
    return tuple(_digest(bytes(item)) for item in items)


def continuation(tail: Sequence[Raw], waiting: Collection[str]) -> Continuation | None:
    """What `tail`, the items after those of the earlier request, brings; None if a turn cannot be told so."""
    results: dict[str, _Json] = {}
    steer: list[_Json] = []
    for raw in tail:
        item = cast("_Json", loads(bytes(raw)))
        kind, role = item.get("type"), item.get("role")
        if kind == "function_call_output":
            call_id = str(item.get("call_id"))
            result = _result(item.get("output"))
            if call_id not in waiting or call_id in results or result is None or steer:
                return None
            results[call_id] = result
        elif kind == "message" and role == "user":
            said = _user_input(item.get("content"))
            if said is None or len(results) < len(waiting):
                return None
            steer += said
        elif results or (kind == "message" and role != "assistant"):
            return None  # the assistant had gone on, or somebody else has spoken
    return Continuation(results, steer) if len(results) == len(waiting) else None


def _result(output: object) -> _Json | None:
    content: list[_Json] = []
    for entry in _entries(output):
        if entry.get("type") == "input_text":
            content.append({"type": "inputText", "text": entry.get("text")})
            continue
        url = entry.get("image_url")
        # Codex takes no other images in results, nor a word on how closely to look.
        if not isinstance(url, str) or not url.startswith("data:") or "detail" in entry:
            return None
        content.append({"type": "inputImage", "imageUrl": url})
    # Whether it succeeded is not said to the model, and errors are marked in the text.
    return {"contentItems": content, "success": True}


def _entries(output: object) -> list[_Json]:
    if isinstance(output, list):
        return cast("list[_Json]", output)
    return [{"type": "input_text", "text": output}]


def _user_input(content: object) -> list[_Json] | None:
    """Text only: what Codex puts around images would be words that the client has not said."""
    said: list[_Json] = []
    for entry in cast("list[_Json]", content):
        if entry.get("type") != "input_text":
            return None
        said.append({"type": "text", "text": entry.get("text"), "text_elements": []})
    return said


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
