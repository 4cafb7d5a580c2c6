"""A recorded exchange as the files of a folder, and back. Pure: names and bytes in, names and bytes out.

    exchange.json           the exchange without its bytes: times, headers, names, losses, how the request ended
    client/                 the client's wire
    upstream-1/, …          the wire of each attempt

Each wire is a case in the format of `tests/corpus`: `meta.toml` (title, origin, dialect, the expected answer),
`request.json`, and `stream.sse` or `body.json` (`body.txt` if it is not JSON). Such a case alone is a recording too: one
attempt, without a client.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import get_args

from msgspec import Struct, structs

from dragoman._json import FAST_FAILURES, dumps, dumps_document, typed_decoder
from dragoman.core.surrogates import replace_lone
from dragoman.errors import RequestRefused
from dragoman.inspection.exchange import (
    RecordedAnswer,
    RecordedAttempt,
    RecordedExchange,
    TimedBytes,
)
from dragoman.inspection.wire_reading import read_answer
from dragoman.model.parts import Dialect, Refusal, Text

INDEX = "exchange.json"
META = "meta.toml"
REQUEST = "request.json"
CLIENT = "client"
ANSWERS = ("stream.sse", "body.json", "body.txt")

WIRE_FILES = frozenset((META, REQUEST, *ANSWERS))
"""The files that a wire may have; a reader opens no others."""

MAX_ATTEMPTS = 64
"""Attempts of one exchange that are written and read: retries are few, an answer with hosted tools takes at most some twenty."""

_VERSION = 1

# The escape of a lone surrogate in JSON of our own: a pair is never escaped there.
_LONE_HALF = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

Times = tuple[tuple[float, int], ...]
"""When each piece of an answer came, and its size."""


class _Index(Struct, frozen=True, kw_only=True):
    """The file `exchange.json`: the exchange without its bytes, which are in the other files.

    times: of the client's answer, then of each attempt's.
    """

    version: int
    exchange: RecordedExchange
    times: tuple[Times, ...] = ()


_read_index = typed_decoder(_Index)


def to_files(exchange: RecordedExchange) -> dict[str, bytes]:
    """The files of a recording."""
    attempts = exchange.attempts[-MAX_ATTEMPTS:]
    bare = structs.replace(
        exchange,
        body=b"",
        answer=structs.replace(exchange.answer, pieces=()),
        attempts=tuple(map(_without_bytes, attempts)),
    )
    answers = [exchange.answer, *(each.answer or RecordedAnswer() for each in attempts)]
    index = _Index(version=_VERSION, exchange=bare, times=tuple(map(_times, answers)))
    files = {INDEX: _without_lone_halves(dumps_document(index)) + b"\n"}
    title = f"{exchange.facts.model or 'A model'} asked through {exchange.dialect}"
    client = wire_files(f"{title}, {CLIENT}", exchange.dialect, exchange.body, exchange.answer)
    files |= {f"{CLIENT}/{name}": data for name, data in client.items()}
    for number, attempt in enumerate(attempts, 1):
        folder = f"upstream-{number}"
        wire = wire_files(f"{title}, {folder}", attempt.dialect, attempt.body, answers[number])
        files |= {f"{folder}/{name}": data for name, data in wire.items()}
    return files


def _without_lone_halves(document: bytes) -> bytes:
    """JSON in which U+FFFD stands for each lone surrogate, which a strict reader refuses."""
    return _LONE_HALF.sub(rb"\1\\ufffd", document)


def _without_bytes(attempt: RecordedAttempt) -> RecordedAttempt:
    answer = attempt.answer
    bare = None if answer is None else structs.replace(answer, pieces=())
    return structs.replace(attempt, body=b"", answer=bare)


def _times(answer: RecordedAnswer) -> Times:
    return tuple((round(piece.at, 3), len(piece.data)) for piece in answer.pieces)


def wire_files(
    title: str, dialect: Dialect, body: bytes, answer: RecordedAnswer
) -> dict[str, bytes]:
    """The files of one wire: a case in the format of the corpus."""
    files = {META: _meta(title, dialect, answer)}
    if body:
        files[REQUEST] = body
    data = answer.data
    if data:
        is_json = data.lstrip()[:1] in (b"{", b"[")
        files[ANSWERS[0] if answer.is_stream else ANSWERS[1 if is_json else 2]] = data
    return files


def _meta(title: str, dialect: Dialect, answer: RecordedAnswer) -> bytes:
    """The description of a case, with the expected answer, as the decoder reads it now."""
    lines = [
        f"title = {_toml(title)}",
        'origin = "recorded by dragoman serve"',
        f"dialect = {_toml(dialect)}",
    ]
    wire = read_answer(answer, dialect)
    choice = wire.outcome.choices[0] if wire.outcome.choices else None
    if choice is not None and choice.finish is not None:
        texts = [part.text for part in choice.parts if isinstance(part, (Text, Refusal))]
        lines += ["", "[expect]", f"finish = {_toml(choice.finish)}"]
        lines.append(f"text = {_toml(''.join(texts))}")
        for ended in wire.calls:
            call = ended.call
            lines += [
                *("", "[[expect.calls]]"),
                *(f"name = {_toml(call.name)}", f"input = {_toml(call.input)}"),
                *(f"status = {_toml(call.status)}", f"call_id = {_toml(call.call_id)}"),
            ]
    return ("\n".join(lines) + "\n").encode("utf-8")


def _toml(text: str) -> str:
    """A string in TOML: as in JSON, but DEL needs an escape, and a lone surrogate cannot be written."""
    return dumps(replace_lone(text)).decode("utf-8").replace("\x7f", "\\u007f")


# --- reading ----------------------------------------------------------------------------------------------------------


def from_files(files: Mapping[str, bytes]) -> RecordedExchange:
    """The exchange of a recording.

    Raises:
        RequestRefused: the files are not a recording; the message says what was expected.
    """
    if INDEX not in files:
        return _from_case(files)
    try:
        index = _read_index(files[INDEX])
    except (*FAST_FAILURES, RecursionError) as error:
        raise RequestRefused(f"{INDEX}: expected the index of a recording: {error}") from error
    if index.version != _VERSION:
        raise RequestRefused(f"{INDEX}: expected version {_VERSION}, got {index.version}")
    exchange = index.exchange
    if len(exchange.attempts) > MAX_ATTEMPTS:
        raise RequestRefused(f"{INDEX}: expected at most {MAX_ATTEMPTS} attempts")
    times = dict(enumerate(index.times))
    return structs.replace(
        exchange,
        body=files.get(f"{CLIENT}/{REQUEST}", b""),
        answer=_with_bytes(exchange.answer, files, CLIENT, times.get(0, ())),
        attempts=tuple(
            structs.replace(
                attempt,
                body=files.get(f"upstream-{number}/{REQUEST}", b""),
                answer=None
                if attempt.answer is None
                else _with_bytes(
                    attempt.answer, files, f"upstream-{number}", times.get(number, ())
                ),
            )
            for number, attempt in enumerate(exchange.attempts, 1)
        ),
    )


def _with_bytes(
    answer: RecordedAnswer, files: Mapping[str, bytes], folder: str, times: Times
) -> RecordedAnswer:
    data = next((files[path] for name in ANSWERS if (path := f"{folder}/{name}") in files), b"")
    return structs.replace(answer, pieces=tuple(_cut(data, times)))


def _cut(data: bytes, times: Times) -> Iterator[TimedBytes]:
    """The data in the pieces in which it came. Data that the times do not cover comes last: a person may have edited it."""
    at = 0.0
    place = 0
    for at, size in times:
        if size > 0 and place < len(data):
            yield TimedBytes(at, data[place : place + size])
            place += size
    if place < len(data):
        yield TimedBytes(at, data[place:])


def _from_case(files: Mapping[str, bytes]) -> RecordedExchange:
    """The recording that a case of the corpus is: one attempt."""
    if META not in files:
        raise RequestRefused(f"expected a recording: a folder with {INDEX}, or with {META}")
    try:
        meta = tomllib.loads(files[META].decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also a number of more digits than Python reads
        raise RequestRefused(f"{META}: expected TOML: {error}") from error
    dialect = next((each for each in get_args(Dialect) if each == meta.get("dialect")), None)
    if dialect is None:
        known = ", ".join(get_args(Dialect))
        raise RequestRefused(f"{META}: dialect: expected one of {known}")
    data = next((files[name] for name in ANSWERS if name in files), None)
    if data is None:
        raise RequestRefused(f"expected {', '.join(ANSWERS[:-1])} or {ANSWERS[-1]}, got none")
    answer = RecordedAnswer(status=200, pieces=(TimedBytes(0.0, data),))
    attempt = RecordedAttempt(
        upstream="recorded", dialect=dialect, body=files.get(REQUEST, b""), answer=answer
    )
    return RecordedExchange(
        id=str(meta.get("title", "")), at=0.0, dialect=dialect, attempts=(attempt,)
    )
