"""A relay that scans text for calls: an answer without calls passes byte for byte, one with a call comes out as translated.

Frames wait while their text may still become a call, and no longer.
"""

import json
import random
from collections.abc import Iterable
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_cases import DIALECTS, Case, stream_cases
from corpus_checks import CHECKS, calls_of, cuts, reasoning_of, text_of
from dragoman._json import raw
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.relay import StreamRelay, relay_body
from dragoman.dialects.translate import StreamInterpreter, make_decoder, make_encoder
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
from dragoman.model.outcome import ErrorInfo, FinishReason, Outcome
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request, Tool
from dragoman.textcalls.stage import TextCallStage, stage_for
from regular_streams import REGULAR, VENDOR
from text_samples import ROUNDS
from vendor_answers import BODIES, STREAMS, frames

SCHEMA = raw({"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}})
TOOLS = (Tool(name="look", schema=SCHEMA), Tool(name="get_weather", schema=SCHEMA))
REQUEST = Request(model="m", tools=TOOLS)
QUICK = settings(max_examples=75 * ROUNDS, deadline=None)
TOO_SLOW = ErrorInfo(kind="timeout", message="the upstream was silent for too long")
CUT = 12

BLOCKS = (
    '<tool_call>{"name": "look", "arguments": {"a": "x < y"}}</tool_call>',
    "<tool_call>\n<function=look>\n<parameter=n>\n7\n</parameter>\n</function>\n</tool_call>",
    '[TOOL_CALLS][{"name": "look", "arguments": {"n": 1}}]',
    '<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"a": "b"}<|tool_call_end|>',
    "<use_tool><name>look</name><a>text</a></use_tool>",
)
PROSE = (
    "Let me look. ",
    "a < b, c > d ",
    "<tool",
    "<<<<",
    "`<tool_call>` begins a call. ",
    "\n```xml\n<tool_call>{}</tool_call>\n```\n",
    "functions [TOOL] [1] <|tool ",
    '<tool_call>{"name": "launch", "arguments": {}}</tool_call> ',
    '<tool_call>{"name": "look", "arguments": {"a": }}</tool_call> ',
    "Fünf Katzen 🐈 — fu",
    " ",
)


def stage() -> TextCallStage:
    made = stage_for(REQUEST, seed="seed")
    assert made is not None
    return made


def relay(dialect: str, scan: TextCallStage | None = None) -> StreamRelay:
    return StreamRelay(
        dialect, decode=DecodeContext(), encode=EncodeContext(), stage=scan or stage()
    )


def passed(machine: StreamRelay, reads: list[bytes]) -> bytes:
    return b"".join([machine.feed(read) for read in reads]) + machine.close()


def outcome(dialect: str, data: bytes) -> Outcome:
    decoder = make_decoder(dialect, DecodeContext())
    events = [*decoder.events(data)]
    return fold([*events, *(event for step in decoder.close() for event in step.events)])


def meaning(found: Outcome) -> tuple[object, ...]:
    calls = [(call.name, call.input, call.status) for call in calls_of(found)]
    finishes = [choice.finish for choice in found.choices]
    return text_of(found), reasoning_of(found), calls, finishes, found.error is None


def answer(pieces: list[str], *, call: bool = False, finish: FinishReason = "stop") -> list[Event]:
    """A text in pieces, then perhaps a structured call."""
    events: list[Event] = [Started("chatcmpl-1", "m", 1757000000)]
    if pieces:
        header = Text(status="in_progress")
        deltas = (TextDelta(0, piece) for piece in pieces)
        events += [PartStarted(0, header), *deltas, PartEnded(0, Text(text="".join(pieces)))]
    if call:
        part = 1 if pieces else 0
        begun = Call(call_id="call_1", name="get_weather", status="in_progress")
        events += [
            PartStarted(part, begun),
            InputDelta(part, '{"a": '),
            InputDelta(part, '"<tool_call>"}'),
            PartEnded(
                part, Call(call_id="call_1", name="get_weather", input='{"a": "<tool_call>"}')
            ),
        ]
        finish = "tool_calls"
    return [*events, Finished(finish), Completed()]


def wire(dialect: str, events: list[Event]) -> list[bytes]:
    """The frames of an answer, as our own encoder writes them: regular ones."""
    encoder = make_encoder(dialect, EncodeContext(created=1757000000, seed="up"))
    stream = encoder.encode_all(events) + encoder.close()
    return [frame + b"\n\n" for frame in stream.split(b"\n\n")[:-1]]


def cut(text: str, rng: random.Random) -> list[str]:
    bounds = [0, *sorted(rng.sample(range(1, len(text)), min(CUT, len(text) - 1))), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


TEXTS = st.lists(st.sampled_from(PROSE), min_size=1, max_size=6).map("".join)


@pytest.mark.parametrize(("dialect", "name"), VENDOR)
def test_stream_of_a_vendor_passes_byte_for_byte(dialect: str, name: str) -> None:
    data = frames(dialect, STREAMS[dialect][name])
    for reads in cuts(data).values():
        machine = relay(dialect)
        assert passed(machine, reads) == data, machine.reason
        assert machine.is_passing


@pytest.mark.parametrize("case", stream_cases(), ids=lambda case: case.name)
def test_case_of_the_corpus_is_relayed_as_without_a_stage(case: Case) -> None:
    plain = StreamRelay(case.dialect, decode=case.context, encode=EncodeContext())
    wanted = passed(plain, [case.stream])
    for reads in cuts(case.stream).values():
        machine = StreamRelay(
            case.dialect, decode=case.context, encode=EncodeContext(), stage=stage()
        )
        out = passed(machine, reads)
        if machine.is_passing or case.name in REGULAR:
            assert out == case.stream
        assert machine.is_passing == plain.is_passing
        assert meaning(outcome(case.dialect, out)) == meaning(outcome(case.dialect, wanted))


@QUICK
@given(
    st.sampled_from(DIALECTS),
    TEXTS,
    st.booleans(),
    st.sampled_from(("stop", "length")),
    st.integers(0, 2**32),
)
def test_text_without_a_call_passes_byte_for_byte_however_it_is_cut(
    dialect: str, text: str, call: bool, finish: FinishReason, seed: int
) -> None:
    rng = random.Random(seed)
    if call:
        text += "."  # an opener right before a structured call would be left out
    stream = wire(dialect, answer(cut(text, rng), call=call, finish=finish))
    data = b"".join(stream)
    for reads in (stream, [data], *cuts(data).values()):
        machine = relay(dialect)
        assert passed(machine, list(reads)) == data, machine.reason
        assert machine.is_passing


@QUICK
@given(st.sampled_from(DIALECTS), TEXTS, st.sampled_from(BLOCKS), TEXTS, st.integers(0, 2**32))
def test_text_with_a_call_is_emitted_as_on_the_translating_path(
    dialect: str, before: str, block: str, after: str, seed: int
) -> None:
    rng = random.Random(seed)
    stream = wire(dialect, answer(cut(f"{before}\n{block}{after}", rng)))
    data = b"".join(stream)
    translated = StreamInterpreter(
        dialect, dialect, decode=DecodeContext(), encode=EncodeContext(), change=stage().feed
    )
    wanted = outcome(dialect, translated.feed(data) + translated.close())
    received: set[bytes] = set()
    for reads in (stream, [data], *cuts(data).values()):
        machine = relay(dialect)
        received.add(passed(machine, list(reads)))
        assert machine.is_over
        assert not machine.is_passing or not calls_of(wanted)
    (out,) = received
    CHECKS[dialect](out)
    assert meaning(outcome(dialect, out)) == meaning(wanted)


@QUICK
@given(st.sampled_from(DIALECTS), TEXTS, st.integers(0, 2**32))
def test_text_is_held_only_while_it_may_still_become_a_call(
    dialect: str, text: str, seed: int
) -> None:
    scanner, machine = stage(), relay(dialect)
    upstream, client = make_decoder(dialect), make_decoder(dialect)
    came: list[int] = []  # how much text had come with each frame
    found = seen = 0
    for frame in wire(dialect, answer(cut(text, random.Random(seed)))):
        events = upstream.events(frame)
        came.append((came[-1] if came else 0) + _size(events))
        found += _size(chain.from_iterable(map(scanner.feed, events)))
        seen += _size(client.events(machine.feed(frame)))
        assert seen == max(size for size in (0, *came) if size <= found)


def _size(events: Iterable[Event]) -> int:
    return sum(len(event.text) for event in events if isinstance(event, TextDelta))


def choices(texts: list[list[str]], rng: random.Random) -> list[Event]:
    """An answer of several choices whose texts come by turns."""
    events: list[Event] = [Started("chatcmpl-1", "m", 1757000000)]
    left = {number: list(pieces) for number, pieces in enumerate(texts)}
    parts: dict[int, int] = {}
    while left:
        number = rng.choice([number for number in left if number <= len(parts)])
        if number not in parts:
            parts[number] = len(parts)
            events.append(PartStarted(parts[number], Text(status="in_progress"), number))
        if left[number]:
            events.append(TextDelta(parts[number], left[number].pop(0)))
        else:
            del left[number]
            events.append(PartEnded(parts[number], Text(text="".join(texts[number]))))
    return [*events, *(Finished("stop", number) for number in range(len(texts))), Completed()]


def by_choice(found: Outcome) -> list[object]:
    return [
        (
            choice.index,
            choice.finish,
            "".join(part.text for part in choice.parts if isinstance(part, Text)),
            [(part.name, part.input) for part in choice.parts if isinstance(part, Call)],
        )
        for choice in sorted(found.choices, key=lambda choice: choice.index)
    ]


@QUICK
@given(
    st.lists(TEXTS, min_size=2, max_size=3),
    st.sampled_from(("", *BLOCKS)),
    st.integers(0, 2**32),
)
def test_choices_do_not_disturb_each_other(texts: list[str], block: str, seed: int) -> None:
    rng = random.Random(seed)
    texts[rng.randrange(len(texts))] += f"\n{block}"
    decode = DecodeContext(choices=len(texts))
    stream = wire("chat", choices([cut(text, rng) for text in texts], rng))
    data = b"".join(stream)
    translated = StreamInterpreter(
        "chat", "chat", decode=decode, encode=EncodeContext(), scan=stage()
    )
    wanted = by_choice(outcome("chat", translated.feed(data) + translated.close()))
    received: set[tuple[bytes, bool, str]] = set()
    for reads in (stream, [data], *cuts(data).values()):
        machine = StreamRelay("chat", decode=decode, encode=EncodeContext(), stage=stage())
        received.add((passed(machine, list(reads)), machine.is_passing, machine.reason))
    ((out, is_passing, reason),) = received
    assert by_choice(outcome("chat", out)) == wanted
    assert is_passing == (not reason)
    assert not is_passing or out == data
    assert not reason or reason == "text_held" or (block and reason == "text_call")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", [f"So. {BLOCKS[0]}", "a <tool_call> b <tool", BLOCKS[1]])
def test_failure_between_any_two_frames_releases_what_was_held(dialect: str, text: str) -> None:
    stream = wire(dialect, answer([text[at : at + 3] for at in range(0, len(text), 3)]))
    for count in range(len(stream)):
        machine = relay(dialect)
        sent = b"".join([machine.feed(frame) for frame in stream[:count]])
        out = sent + machine.fail(TOO_SLOW)
        CHECKS[dialect](out)
        result = outcome(dialect, out)
        assert result.error is not None
        if not calls_of(result):
            assert text_of(result) == text_of(outcome(dialect, b"".join(stream[:count])))


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect in DIALECTS for name in BODIES[dialect]]
)
def test_body_of_a_vendor_passes_byte_for_byte(dialect: str, name: str) -> None:
    data = json.dumps(BODIES[dialect][name], indent=2).encode()
    received, _ = relay_body(
        data, dialect, decode=DecodeContext(), encode=EncodeContext(), stage=stage()
    )
    assert received.body is data
