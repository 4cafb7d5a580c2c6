"""JSON-RPC as `codex app-server` speaks it: one object a line, without a `jsonrpc` field. No I/O.

Of a message only the envelope is read here, and whose thread it is; the line itself is kept for whoever reads the rest.
"""

from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, loads
from dragoman.dialects.codex import decode_envelope
from dragoman.errors import FrameTooLarge, MalformedJson

# Images that a client sends come back in the child's reports as base64; a body of ours may have 64 MiB.
MAX_LINE_BYTES = 128 * 1024 * 1024


class LineSplitter:
    """Bytes in, whole lines out, without their ends. Work is linear however the reads are cut."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in `data`.

        Raises:
            FrameTooLarge: a line has no end within the limit.
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
    """One message. `id` is the JSON of it, as it came, and is there for requests and answers.

    method: empty for an answer. thread: empty for what concerns no thread. error: whether an answer is a refusal.
    """

    line: bytes
    method: str = ""
    id: bytes = b""
    thread: str = ""
    is_error: bool = False

    def params(self) -> dict[str, Raw]:
        return object_of(as_object(self.line), "params")

    def result(self) -> dict[str, Raw]:
        """What an answer brought; empty if that is no object."""
        return object_of(as_object(self.line), "result")

    def error(self) -> tuple[int, str]:
        """Code and words of a refusal."""
        error = object_of(as_object(self.line), "error")
        code = cast("object", loads(error["code"])) if "code" in error else 0
        return (code if isinstance(code, int) else 0), text_of(error, "message")


def read_message(line: bytes) -> Message | None:
    """The message in a line; None if it is none: a program may print what it likes."""
    try:
        envelope = decode_envelope(line)
    except FAST_FAILURES:
        return _read_slowly(line)
    thread = envelope.params.thread_id if envelope.params is not None else None
    return _message(line, envelope.method, bytes(envelope.id), thread, bytes(envelope.error))


def _read_slowly(line: bytes) -> Message | None:
    """For what the fast reader refuses: half a surrogate pair, a field of an odd type."""
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
    """The fields of an object; none if it is anything else.

    Raises:
        MalformedJson: the object is damaged. Of `core.fields` none does: there a damaged value is an absent one.
    """
    data = bytes(fields.get(key, b""))
    return as_object(data) if data.startswith(b"{") else {}


def text_of(fields: Mapping[str, Raw], key: str) -> str:
    """A string; empty if it is anything else. Raises MalformedJson: it is damaged."""
    value = cast("object", loads(bytes(fields.get(key, b"null"))))
    return value if isinstance(value, str) else ""


def request(number: int, method: str, params: object) -> bytes:
    return dumps_line({"id": number, "method": method, "params": params})


def notification(method: str) -> bytes:
    return dumps_line({"method": method})


def answer(number: bytes, result: object) -> bytes:
    """The answer to a request of the child's; `number` is its id as it came."""
    return dumps_line({"id": Raw(number), "result": result})


def refusal(number: bytes, code: int, message: str) -> bytes:
    return dumps_line({"id": Raw(number), "error": {"code": code, "message": message}})


def dumps_line(value: object) -> bytes:
    """One line: what a client sent may have line ends between the tokens of a schema."""
    data = dumps_document(value)
    if b"\n" in data or b"\r" in data:
        # Strict JSON has no bare line end inside a string, so these are only white space.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data + b"\n"
