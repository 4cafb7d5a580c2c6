"""Recognises that two requests belong to one conversation. Pure.

A client sends the whole conversation again with each request, so the turns of the previous request are the beginning of the
turns of this one. Turns are compared by their texts and calls, not by their bytes: clients move cache breakpoints and
leave reasoning out. A request with a previous response's id continues the request that got this response.
"""

from hashlib import blake2b

from msgspec import Struct

from dragoman.inspection.call_rows import decoded_request
from dragoman.inspection.exchange import RecordedAnswer, RecordedExchange
from dragoman.inspection.wire_reading import read_answer
from dragoman.model.events import Started
from dragoman.model.parts import Call, Dialect, Media, Part, Refusal, Result, Text
from dragoman.model.request import Turn

_DIGEST_BYTES = 16
# The first frame of an answer names its id; a stream begins with a small frame.
_FIRST_PIECES = 8


class ConversationMarks(Struct, frozen=True):
    """How a request is found, and how it finds the one before it.

    own: marks by which a later request of the conversation finds this one. before: marks of requests that it may continue, the
    nearest first.
    """

    own: tuple[bytes, ...]
    before: tuple[bytes, ...]


def marks_of(exchange: RecordedExchange) -> ConversationMarks:
    """The marks of an exchange that has ended."""
    request = decoded_request(exchange.body, exchange.dialect)
    own: list[bytes] = []
    before: list[bytes] = []
    response_id = _response_id(exchange.answer, exchange.dialect)
    if response_id:
        own.append(_mark(b"response", response_id))
    if request is None:
        return ConversationMarks(tuple(own), ())
    if request.previous_id is not None:
        before.append(_mark(b"response", request.previous_id))
    chain = _chain(request.turns)
    if chain and request.previous_id is None:
        own.append(chain[-1])
        before += reversed(chain[:-1])
    return ConversationMarks(tuple(own), tuple(before))


def _chain(turns: tuple[Turn, ...]) -> list[bytes]:
    """A mark for each beginning of the conversation. Instructions do not count: some clients put the time into them."""
    marks: list[bytes] = []
    mark = b"turns"
    for turn in turns:
        if turn.role in ("system", "developer"):
            continue
        said = [text for part in turn.parts if (text := _said(part))]
        if said:
            mark = _mark(mark, turn.role, *said)
            marks.append(mark)
    return marks


def _mark(before: bytes, *texts: str) -> bytes:
    digest = blake2b(before, digest_size=_DIGEST_BYTES)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


def _said(part: Part) -> str:
    match part:
        case Text() | Refusal():
            return part.text
        case Call():
            return f"{part.call_id}\0{part.name}\0{part.input}"
        case Result():
            return f"{part.call_id}\0" + "\0".join(_said(each) for each in part.content)
        case Media():
            return part.data or part.url or part.file_id or ""
        case _:
            return ""


def _response_id(answer: RecordedAnswer, dialect: Dialect) -> str:
    if answer.is_stream:
        answer = RecordedAnswer(
            status=answer.status, pieces=answer.pieces[:_FIRST_PIECES], is_whole=False
        )
    for placed in read_answer(answer, dialect).events:
        if isinstance(placed.event, Started):
            return placed.event.response_id
    return ""
