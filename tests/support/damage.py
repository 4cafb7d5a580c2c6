"""Streams with one frame damaged, and the calls that each way through the gateway makes of them.

`Stream` is an answer as some upstream sends it. `damages` are the copies of it in which one frame is dropped, cut or cannot be
read. `WAYS` are the ways out: each gives the calls that a client could run, by name and input.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

from msgspec import Struct

from corpus_cases import DIALECTS
from dragoman.core.call_input import judge
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.staging import Stage
from dragoman.dialects.translate import (
    BodyCollector,
    Interpreter,
    StreamInterpreter,
    StreamTranslator,
    make_decoder,
)
from dragoman.model.events import Event
from dragoman.model.parts import Call
from dragoman.model.request import Request, Tool
from dragoman.sse import FrameParser
from dragoman.textcalls import TextCallStage
from dragoman.textcalls.stage import stage_for
from dragoman.toolcalls import ToolCallAggregator, ToolCallParser

Calls = Counter[tuple[str, str]]
"""Calls that can be run: how often each name and input came."""

SOME, FEW = 24, 8
"""Frames of one stream that are damaged; of longer streams, so many of them all over it. Few where calls are in the text."""


class Stream(Struct, frozen=True):
    """An answer. `request`: what it answers, where its text may hold calls."""

    name: str
    dialect: str
    data: bytes
    tools: tuple[Tool, ...] = ()
    has_text_calls: bool = False

    @property
    def context(self) -> DecodeContext:
        return DecodeContext(tools=self.tools)

    def stage(self) -> TextCallStage | None:
        if not self.has_text_calls:
            return None
        return stage_for(Request(model="m", tools=self.tools), seed="seed")


class Damage(Struct, frozen=True):
    """A damaged copy. `frame`: the number of the damaged frame, from 0. `kind`: what was done to it."""

    kind: str
    frame: int
    reads: list[bytes]


def frames_of(data: bytes) -> list[bytes]:
    parser = FrameParser()
    return [frame.raw for frame in (*parser.feed(data), *parser.close())]


def payload_of(frame: bytes) -> bytes:
    """The JSON of a frame of one data line; nothing if it has none."""
    head, mark, rest = frame.partition(b"data:")
    payload = rest.strip()
    is_plain = bool(mark) and b"\n" not in payload and b"data:" not in head
    return payload if is_plain and payload.startswith(b"{") else b""


def is_readable(payload: bytes) -> bool:
    try:
        return isinstance(json.loads(payload.decode("utf-8")), dict)
    except ValueError:
        return False


DAMAGED_WORDS = (b'"partial_json"', b'"input_json_delta"')
"""Words of Messages without which a frame that carries a call's input is still JSON, but carries none. In Chat the same damage
cannot be told from a frame with fields of a vendor's own: see `test_lost_frames`."""


def damages(stream: Stream, rng: random.Random) -> Iterator[Damage]:
    """One damage of every kind to every frame. Each is read whole or frame by frame."""
    frames = frames_of(stream.data)
    numbers = [*range(len(frames))]
    most = FEW if stream.has_text_calls else SOME
    if len(frames) > most:
        numbers = sorted(rng.sample(numbers, most))
    for number in numbers:
        frame = frames[number]
        before, after = frames[:number], frames[number + 1 :]
        yield _read("drop", number, [*before, *after], rng)
        yield _read("cut before", number, before, rng)
        yield _read("cut within", number, [*before, frame[: rng.randrange(1, len(frame))]], rng)
        for kind, damaged in _corrupted(frame, rng):
            yield _read(kind, number, [*before, damaged, *after], rng)


def _read(kind: str, number: int, frames: list[bytes], rng: random.Random) -> Damage:
    return Damage(kind, number, [b"".join(frames)] if rng.random() < 0.5 else frames)


def _corrupted(frame: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The frame in every way in which it cannot be read, or one of its fields is of a type that it never has."""
    payload = payload_of(frame)
    if not payload:
        return
    middle = rng.randrange(1, len(payload))
    texts = {
        "truncated": payload[:middle],
        "bytes cut out": payload[:middle] + payload[middle + rng.randrange(1, 8) :],
        "garbage": payload[:middle] + b"\x00\x13}" + payload[middle:],
        "invalid UTF-8": payload[:middle] + b"\xff" + payload[middle:],
        "half a character": payload[:middle] + b"\xe2\x82" + payload[middle + 1 :],
        "a keep-alive inside": payload[:middle] + b": keep-alive\n\n" + payload[middle:],
        "a blank line inside": payload[:middle] + b"\n\n" + payload[middle:],
        "no JSON": b"oops",
        "HTML": b"<html>502 Bad Gateway</html>",
        "an array": b"[" + payload + b"]",
        "a number": b"5",
    }
    for kind, text in texts.items():
        if not is_readable(text):
            yield kind, frame.replace(payload, text)
    yield "another field", frame.replace(b"data:", b"dXta:")
    if frame.startswith(b"event:"):
        yield "no data", frame[: frame.index(b"data:")] + b"\n"
        yield "empty data", frame.replace(payload, b"")
    for where, text in _retyped(payload, rng):
        yield where, frame.replace(payload, text)
    for word in DAMAGED_WORDS:
        if word in payload:
            text = payload.replace(word, b'"' + word[2:], 1)
            yield f"{word.decode()} without its first letter", frame.replace(payload, text)


def _places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner: list[tuple[Any, object]] = []
    if isinstance(value, dict):
        inner = list(cast("dict[str, object]", value).items())
    elif isinstance(value, list):
        inner = list(enumerate(cast("list[object]", value)))
    for key, each in inner:
        yield (*path, key)
        yield from _places(each, (*path, key))


def _retyped(payload: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The payload with one value in it of another type, at a few places."""
    if len(payload) > 20_000:
        return
    # What an input that is an object has inside is the model's, and may be of any type.
    inputs = {"input", "arguments"}
    places = [path for path in _places(json.loads(payload)) if not inputs & {*path[:-1]}]
    for path in rng.sample(places, min(6, len(places))):
        whole = json.loads(payload)
        holder = whole
        for key in path[:-1]:
            holder = holder[key]
        old = holder[path[-1]]
        match old:
            case None:
                continue
            case str():
                new: Any = rng.choice((5, True, [1]))
            case bool() | int() | float():
                new = rng.choice(("word", {"a": 1}, [1]))
            case _:
                new = rng.choice((5, "word", True))
        holder[path[-1]] = new
        # Written as it was: input that is an object is sent by its bytes.
        separators = (", ", ": ") if b'": ' in payload else (",", ":")
        text = json.dumps(whole, ensure_ascii=False, separators=separators).encode()
        yield f"type of {'.'.join(map(str, path))}", text


# --- ways out -----------------------------------------------------------------------------------------------------

Way = Callable[[Stream, list[bytes]], Calls]


def runnable(events: list[Event]) -> Calls:
    """The calls of an answer that a client could run."""
    found: Calls = Counter()
    for choice in fold(events).choices:
        for part in choice.parts:
            if isinstance(part, Call) and judge(part).executable:
                found[part.name, part.input or "{}"] += 1
    return found


def decoded(dialect: str, reads: list[bytes], context: DecodeContext | None = None) -> Calls:
    decoder = make_decoder(dialect, context or DecodeContext())
    events = [event for read in reads for event in decoder.events(read)]
    events += [event for step in decoder.close() for event in step.events]
    return runnable(events)


def _through(machine: Interpreter | StreamTranslator, reads: list[bytes]) -> bytes:
    return b"".join([machine.feed(read) for read in reads]) + machine.close()


def _decode(stream: Stream, reads: list[bytes]) -> Calls:
    return decoded(stream.dialect, reads, stream.context)


def _translate(target: str) -> Way:
    def way(stream: Stream, reads: list[bytes]) -> Calls:
        machine = StreamInterpreter(
            stream.dialect,
            target,
            decode=stream.context,
            encode=EncodeContext(),
            scan=stream.stage(),
        )
        return decoded(target, [_through(machine, reads)])

    return way


def _relay(stream: Stream, reads: list[bytes]) -> Calls:
    scan: Stage | None = stream.stage()
    machine = StreamRelay(stream.dialect, decode=stream.context, encode=EncodeContext(), stage=scan)
    return decoded(stream.dialect, [_through(machine, reads)])


def _relay_exactly(stream: Stream, reads: list[bytes]) -> Calls:
    """Seen by a client that passes over what it cannot read."""
    encode = EncodeContext()
    machine = StreamRelay(stream.dialect, decode=stream.context, encode=encode, exact=True)
    frames = frames_of(_through(machine, reads))
    is_read = [not payload_of(frame) or is_readable(payload_of(frame)) for frame in frames]
    kept = [frame for frame, is_one in zip(frames, is_read, strict=True) if is_one]
    return decoded(stream.dialect, kept)


def _collect(target: str) -> Way:
    def way(stream: Stream, reads: list[bytes]) -> Calls:
        stage = stream.stage()
        change = None if stage is None else stage.feed
        collector = BodyCollector(stream.dialect, decode=stream.context, change=change)
        for read in reads:
            collector.feed(read)
        collector.close()
        result = collector.body(target, EncodeContext())
        if result.error is not None:
            return Counter()
        return runnable([*codec(target).read_body(result.body, DecodeContext()).events])

    return way


def _aggregate(stream: Stream, reads: list[bytes]) -> Calls:
    """As a program uses it that hands over each frame as it comes."""
    aggregator = ToolCallAggregator(stream.context)
    parser = FrameParser()
    frames = [frame for read in reads for frame in parser.feed(read)] + parser.close()
    for frame in frames:
        aggregator.ingest_delta(frame.raw)
    aggregator.close()
    choices = range(4)
    records = [each for choice in choices for each in aggregator.snapshot(choice_index=choice)]
    return Counter((each.name, each.arguments or "{}") for each in records if each.executable)


def _parse(stream: Stream, reads: list[bytes]) -> Calls:
    parser = ToolCallParser(context=stream.context)
    calls = [call for read in reads for call in parser.feed(read)]
    calls += parser.close()
    found: Calls = Counter()
    for call in calls:
        raw = call.metadata.raw
        if call.metadata.error is None and raw is not None and judge(raw).executable:
            found[raw.name, raw.input or "{}"] += 1
    return found


WAYS: dict[str, Way] = {
    "decode": _decode,
    "relay": _relay,
    "relay exactly": _relay_exactly,
    **{f"translate to {target}": _translate(target) for target in DIALECTS},
    **{f"collect for {target}": _collect(target) for target in DIALECTS},
    "aggregate": _aggregate,
    "parse": _parse,
}
