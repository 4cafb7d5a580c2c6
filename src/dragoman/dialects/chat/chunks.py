"""Chunks as bytes: the envelope that all chunks of a stream share, and what goes into it."""

from collections.abc import Mapping

from dragoman._json import dumps

__all__ = ("Envelope",)


class Envelope:
    """`data: {"id":…,"object":…,"created":…,"model":…,…,"choices":[` and what closes it again."""

    __slots__ = ("_head",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._head = b"data: " + dumps(fields)[:-1] + b',"choices":['

    def chunk(
        self,
        choice: int,
        delta: Mapping[str, object],
        fields: Mapping[str, object] | None = None,
    ) -> bytes:
        """A chunk of one choice; `fields` are those beside the delta."""
        entry = {"index": choice, "delta": delta, "finish_reason": None, **(fields or {})}
        return self._head + dumps(entry) + b"]}\n\n"

    def bare(self, fields: Mapping[str, object]) -> bytes:
        """A chunk without choices."""
        return self._head + b"]," + dumps(fields)[1:] + b"\n\n"

    def frame(self, choice: int, before: bytes, after: bytes) -> tuple[bytes, bytes]:
        """What stands before and after the one JSON string in which the deltas of a part differ."""
        prefix = self._head + b'{"index":%d,"delta":' % choice + before
        return prefix, after + b',"finish_reason":null}]}\n\n'
