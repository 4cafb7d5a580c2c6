"""Law 11: drop, cut or corrupt any one frame of any stream; no call comes out complete with other bytes than were sent.

Over the corpus, the vendors' own streams, every deviation that was tried on clients, and generated streams; every frame, every
kind of damage; read, translated to each door, relayed, collected to a body, aggregated. What "could be run" means is
`core.call_input.judge`.

The law has one exception, because there is nothing to see: a frame that vanishes from the wire as a whole. Responses repeats each
call's input, and so shows the loss; Chat and Messages do not (`leaves_no_trace`). The same holds for text in which a call is
written, in every dialect; and for a frame of Chat that is still JSON but has lost the name of a member, because servers add members
of their own there.
"""

import random
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from corpus_cases import DIALECTS, stream_cases
from damage import WAYS, Calls, Damage, Stream, damages, frames_of, payload_of
from dragoman._json import is_same_json, raw
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.translate import make_encoder
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
)
from dragoman.model.parts import Call, Text
from dragoman.model.request import Tool
from relay_streams import HARMFUL, HARMLESS, base, wire
from text_formats import FORMATS, TOOLS
from text_samples import ROUNDS, Chance, cut, some_calls
from vendor_answers import STREAMS, frames

WAYS_PER_DAMAGE = ROUNDS  # in turn, so that every way meets every kind of damage
SHARE = 0.15 if ROUNDS == 1 else 1.0
"""Of the damaged copies of a stream. `make laws` reads all of them, each in many ways."""
GENERATED = 8 * ROUNDS  # for each dialect
SEARCH = tuple(
    Tool(name=str(tool["name"]), schema=raw(tool["input_schema"]))  # the tools of the text formats
    for tool in TOOLS
)
INPUTS = (
    '{"path":"/srv/app/main.py","text":"a\\nb"}',
    '{"path": "/srv/app/main.py", "line": 12, "all": true}',
    '{"a": [1, 2, 3], "b": {"c": "d"}, "e": "été 🌍"}',
    "[1,2,3]",
    "{}",
    "",
)


def streams() -> Iterator[Stream]:
    for case in stream_cases():
        yield Stream(f"corpus: {case.name}", case.dialect, case.stream, case.context.tools)
    for dialect in DIALECTS:
        for name, payloads in STREAMS[dialect].items():
            yield Stream(f"vendor: {dialect}, {name}", dialect, frames(dialect, payloads))
        for number in range(GENERATED):
            yield generated(dialect, number)
        for number, form in enumerate(FORMATS):
            if form.name in SENTINELS and (number + len(dialect)) % 2 == 0:
                yield with_text_calls(dialect, form.name)
    for (dialect, name), deviation in {**HARMLESS, **HARMFUL}.items():
        changed = deviation(base(dialect))
        data = changed if isinstance(changed, bytes) else wire(dialect, changed)
        yield Stream(f"deviation: {dialect}, {name}", dialect, data)


SENTINELS = frozenset(form.name for form in FORMATS)


def encoded(dialect: str, events: list[Event]) -> bytes:
    encoder = make_encoder(dialect, EncodeContext(created=1757000000, seed="up"))
    return encoder.encode_all(events) + encoder.close()


def generated(dialect: str, number: int) -> Stream:
    """An answer of texts and calls, whose input comes in small pieces."""
    chance = Chance(f"generated {dialect} {number}")
    events: list[Event] = [Started("resp_1", "m", 1757000000)]
    for part in range(chance.randint(1, 4)):
        if chance.random() < 0.3:
            pieces = cut("Let me look at this. ", chance)
            events += [PartStarted(part, Text(status="in_progress"))]
            events += [TextDelta(part, piece) for piece in pieces]
            events += [PartEnded(part, Text(text="".join(pieces)))]
            continue
        call = Call(call_id=f"call_{part}", name="write_file", input=chance.choice(INPUTS))
        header = Call(call_id=call.call_id, name=call.name, status="in_progress")
        pieces = cut(call.input, chance, most=chance.choice((2, 8, 100)))
        events += [PartStarted(part, header), *(InputDelta(part, piece) for piece in pieces)]
        events += [PartEnded(part, call)]
    has_calls = any(isinstance(event, InputDelta) for event in events)
    events += [Finished("tool_calls" if has_calls else "stop"), Completed()]
    return Stream(f"generated: {dialect} {number}", dialect, encoded(dialect, events))


def with_text_calls(dialect: str, name: str) -> Stream:
    """An answer whose calls are written into its text."""
    form = next(form for form in FORMATS if form.name == name)
    chance = Chance(f"text calls {dialect} {name}")
    pieces = cut(f"Some words.\n{form.write(some_calls(form, chance))}", chance)
    events: list[Event] = [
        Started("resp_1", "m", 1757000000),
        PartStarted(0, Text(status="in_progress")),
        *(TextDelta(0, piece) for piece in pieces),
        PartEnded(0, Text(text="".join(pieces))),
        Finished("stop"),
        Completed(),
    ]
    data = encoded(dialect, events)
    return Stream(f"text calls: {dialect}, {name}", dialect, data, SEARCH, has_text_calls=True)


def leaves_no_trace(stream: Stream, damage: Damage) -> bool:
    """Whether a frame of a call is missing and nothing on the wire shows it."""
    if damage.kind != "drop":
        return False
    payload = payload_of(frames_of(stream.data)[damage.frame])
    if stream.has_text_calls:
        return b'"content"' in payload or b"text" in payload
    words = (b'"tool_calls"', b'"function_call"', b'"tool_use"', b'"partial_json"')
    return stream.dialect != "responses" and any(word in payload for word in words)


def is_same_value(call: tuple[str, str], sent: Calls) -> bool:
    """Whether only blanks between the tokens of a call's input are others than were sent: servers write it anew at its end."""
    name, text = call
    return any(each == name and is_same_json(text, other) for each, other in sent)


def wrong_deliveries(stream: Stream) -> tuple[int, list[str]]:
    """How many damaged copies were tried, and which of them made a call that was never sent."""
    rng = random.Random(stream.name)
    sent: dict[str, Calls] = {}  # by way
    names = [*WAYS]
    count = 0
    wrong: list[str] = []
    chance = Chance(f"share {stream.name}")
    for turn, damage in enumerate(damages(stream, rng)):
        is_left_out = count and chance.random() > SHARE
        if is_left_out or leaves_no_trace(stream, damage):
            continue
        for offset in range(WAYS_PER_DAMAGE):
            way = names[(turn + offset) % len(names)]
            count += 1
            if way not in sent:
                sent[way] = WAYS[way](stream, [stream.data])
            unsent = WAYS[way](stream, damage.reads) - sent[way]
            if damage.kind == "drop":
                unsent = Counter(
                    {
                        call: many
                        for call, many in unsent.items()
                        if not is_same_value(call, sent[way])
                    }
                )
            if unsent:
                wrong.append(f"{damage.kind}, frame {damage.frame}, {way}: {dict(unsent)}")
    return count, wrong


ALL = list(streams())


@pytest.mark.parametrize("stream", ALL, ids=lambda stream: stream.name)
def test_no_call_comes_out_with_other_bytes_than_were_sent(stream: Stream) -> None:
    count, wrong = wrong_deliveries(stream)
    assert count
    assert wrong == []


if __name__ == "__main__":
    total, bad = 0, 0
    for each in ALL:
        tried, found = wrong_deliveries(each)
        total += tried
        bad += len(found)
        if found:
            sys.stdout.write(f"{each.name}: {len(found)} of {tried}\n")
            sys.stdout.writelines(f"    {line[:200]}\n" for line in found[:4])
    sys.stdout.write(f"{len(ALL)} streams, {total} damaged copies, {bad} wrong deliveries\n")
