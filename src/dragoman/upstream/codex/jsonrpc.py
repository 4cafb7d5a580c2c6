"""JSON-RPC as `codex app-server` speaks it: one object a line, without a `jsonrpc` field. No I/O.

Only the envelope of a message and its thread are decoded here; the line is kept for those who decode the rest.
"""

from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, loads
from dragoman.dialects.codex import decode_envelope
from dragoman.errors import FrameTooLarge, MalformedJson

# The child's reports repeat a client's images as base64; a request body may have 64 MiB.
MAX_LINE_BYTES = 128 * 1024 * 1024


class LineSplitter:
    """Splits bytes into whole lines, without their ends. Work is linear however the reads are cut."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete with `data`.

        Raises:
            FrameTooLarge: a line exceeds the limit.
        """
        *lines, rest = data.split(b"\n")
        if lines and self._held:
            lines[0] = b"".join((*self._held, lines[0]))
            self._held, self._size = [], 0
        if rest:
            self._held.append(rest)
            self._size += len(rest)
            if self._size > self._limit:
                raise FrameTooLarge(f"expected a line of at most {self._limit:,} bytes, got more")
        return [line for line in lines if line.strip()]


class Message(Struct, frozen=True, gc=False):
    """One message. `id`: the JSON of the id as received; present in requests and answers.

    method: empty for an answer. thread: empty if the message concerns no thread. error: whether an answer is an error.
    """

    line: bytes
    method: str = ""
    id: bytes = b""
    thread: str = ""
    is_error: bool = False

    def params(self) -> dict[str, Raw]:
        return object_of(as_object(self.line), "params")

    def result(self) -> dict[str, Raw]:
        """The result of an answer; empty if it is not an object."""
        return object_of(as_object(self.line), "result")

    def error(self) -> tuple[int, str]:
        """The code and message of an error answer."""
        error = object_of(as_object(self.line), "error")
        code = cast("object", loads(error["code"])) if "code" in error else 0
        return (code if isinstance(code, int) else 0), text_of(error, "message")


def read_message(line: bytes) -> Message | None:
    """The message in a line; None if the line is not a message, because a program may print anything."""
    try:
        envelope = decode_envelope(line)
    except FAST_FAILURES:
        return _read_slowly(line)
    thread = envelope.params.thread_id if envelope.params is not None else None
    return _message(line, envelope.method, bytes(envelope.id), thread, bytes(envelope.error))


def _read_slowly(line: bytes) -> Message | None:
    """Decode what the fast decoder refuses: half a surrogate pair, a field of an unexpected type."""
    try:
        fields = as_object(line)
        method = text_of(fields, "method")
        thread = text_of(object_of(fields, "params"), "threadId")
    except MalformedJson:
        return None
    number, error = bytes(fields.get("id", b"")), bytes(fields.get("error", b""))
    return _message(line, method, number, thread, error)


def _message(
    line: bytes, method: str | None, number: bytes, thread: str | None, error: bytes
) -> Message | None:
    number = b"" if number == b"null" else number
    if not method and not number:
        return None
    return Message(line, method or "", number, thread or "", error not in (b"", b"null"))


def object_of(fields: Mapping[str, Raw], key: str) -> dict[str, Raw]:
    """The fields of an object; empty for any other value.

    Raises:
        MalformedJson: the object is damaged. (The readers in `core.fields` treat a damaged value as absent.)
    """
    data = bytes(fields.get(key, b""))
    return as_object(data) if data.startswith(b"{") else {}


def text_of(fields: Mapping[str, Raw], key: str) -> str:
    """A string; empty for any other value. Raises MalformedJson: the value is damaged."""
    value = cast("object", loads(bytes(fields.get(key, b"null"))))
    return value if isinstance(value, str) else ""


def request(number: int, method: str, params: object) -> bytes:
    return dumps_line({"id": number, "method": method, "params": params})


def notification(method: str, params: object = None) -> bytes:
    return dumps_line(
        {"method": method} if params is None else {"method": method, "params": params}
    )


def answer(number: bytes, result: object) -> bytes:
    """The answer to a request of the child; `number`: the id of the request as received."""
    return dumps_line({"id": Raw(number), "result": result})


def refusal(number: bytes, code: int, message: str) -> bytes:
    return dumps_line({"id": Raw(number), "error": {"code": code, "message": message}})


def dumps_line(value: object) -> bytes:
    """The value as one line: a client's schema may have line ends between its tokens."""
    data = dumps_document(value)
    if b"\n" in data or b"\r" in data:
        # Strict JSON has no raw line end inside a string, so these are only white space.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data + b"\n"
