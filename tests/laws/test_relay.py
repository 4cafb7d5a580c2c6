"""The laws of the relay: vendors' own streams pass untouched, and whatever comes, what leaves is regular."""

import json
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

import pytest
from bench_streams import Story, dialect_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_cases import DIALECTS, Case, stream_cases
from corpus_checks import CHECKS, calls_of, cuts, reasoning_of, text_of
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.relay import StreamRelay, relay_body
from dragoman.dialects.translate import make_decoder
from dragoman.model.outcome import ErrorInfo, Outcome
from regular_streams import REGULAR, VENDOR
from text_samples import ROUNDS
from vendor_answers import BODIES, STREAMS, frames
from vendor_pieces import Payload

TOO_SLOW = ErrorInfo(kind="timeout", message="the upstream was silent for too long")

CASES = stream_cases()


def relay(dialect: str, decode: DecodeContext | None = None) -> StreamRelay:
    return StreamRelay(dialect, decode=decode or DecodeContext(), encode=EncodeContext())


def passed(machine: StreamRelay, reads: list[bytes]) -> bytes:
    return b"".join([machine.feed(read) for read in reads]) + machine.close()


def outcome(dialect: str, data: bytes, decode: DecodeContext | None = None) -> Outcome:
    decoder = make_decoder(dialect, decode or DecodeContext())
    events = [*decoder.events(data)]
    return fold([*events, *(event for step in decoder.close() for event in step.events)])


def meaning(found: Outcome) -> tuple[object, ...]:
    """What of an answer must come through, repaired or not."""
    calls = [(call.call_id, call.name, call.input) for call in calls_of(found)]
    finishes = [choice.finish for choice in found.choices]
    return text_of(found), reasoning_of(found), calls, finishes, found.error is None


@pytest.mark.parametrize(("dialect", "name"), VENDOR)
def test_stream_of_a_vendor_passes_byte_for_byte(dialect: str, name: str) -> None:
    data = frames(dialect, STREAMS[dialect][name])
    for reads in cuts(data).values():
        machine = relay(dialect)
        assert passed(machine, reads) == data, machine.reason
        assert machine.is_passing


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_of_the_corpus_passes_or_is_encoded_again(case: Case) -> None:
    received: set[bytes] = set()
    for reads in cuts(case.stream).values():
        machine = relay(case.dialect, case.context)
        received.add(passed(machine, reads))
        assert machine.is_passing == (case.name in REGULAR), machine.reason
    (out,) = received
    if case.name in REGULAR:
        assert out == case.stream
    else:
        CHECKS[case.dialect](out.replace(b"data:{", b"data: {"))
    before = outcome(case.dialect, case.stream, case.context)
    after = outcome(case.dialect, out)
    assert meaning(after)[:2] == meaning(before)[:2]
    assert [call[1:] for call in _calls(after)] == [call[1:] for call in _calls(before)]
    assert meaning(after)[3:] == meaning(before)[3:]


def _calls(found: Outcome) -> list[tuple[str, str, str]]:
    return [(call.call_id, call.name, call.input) for call in calls_of(found)]


@pytest.mark.parametrize(("dialect", "name"), VENDOR)
def test_failure_between_any_two_frames_is_a_stream_that_clients_understand(
    dialect: str, name: str
) -> None:
    data = frames(dialect, STREAMS[dialect][name])
    pieces = [piece + b"\n\n" for piece in data.split(b"\n\n")[:-1]]
    for count in range(len(pieces)):
        machine = relay(dialect)
        sent = b"".join([machine.feed(piece) for piece in pieces[:count]])
        assert data.startswith(sent)
        out = sent + machine.fail(TOO_SLOW)
        CHECKS[dialect](out)
        assert outcome(dialect, out).error is not None


# --- whatever comes ---------------------------------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(cast("dict[str, Any]", value))
    elif isinstance(value, list):
        keys = list(range(len(cast("list[object]", value))))
    for key in keys:
        yield (*path, key)
        yield from _places(value[key], (*path, key))


def _spoil(payloads: list[Payload], rng: random.Random) -> list[Payload]:
    """The stream with one thing wrong."""
    spoilt: list[Payload] = json.loads(json.dumps(payloads))
    at = rng.randrange(len(spoilt))
    match rng.choice(("drop", "repeat", "swap", "cut", "remove", "null", "empty", "word")):
        case "drop":
            del spoilt[at]
        case "repeat":
            spoilt.insert(at, spoilt[at])
        case "swap":
            spoilt.insert(max(at - 1, 0), spoilt.pop(at))
        case "cut":
            spoilt = spoilt[:at]
        case change:
            # An item that becomes another kind of thing half way is beyond repair, and nobody sends that.
            places = [place for place in _places(spoilt[at]) if place[1:][-1:] != ("type",)]
            *path, key = rng.choice(places)
            value: Any = spoilt[at]
            for step in path:
                value = value[step]
            match change:
                case "remove":
                    del value[key]
                case "null":
                    value[key] = None
                case "empty":
                    value[key] = type(value[key])() if value[key] is not None else {}
                case _:
                    value[key] = "word"
    return spoilt


def _wire(dialect: str, payloads: list[Payload], rng: random.Random) -> bytes:
    out: list[str] = []
    for payload in payloads:
        name = payload.get("type")
        head = f"event: {name}\n" if dialect != "chat" and isinstance(name, str) else ""
        out.append(f"{head}data: {json.dumps(payload)}\n\n")
    if dialect == "chat" and rng.random() < 0.8:
        out.append("data: [DONE]\n\n")
    return "".join(out).encode()


@settings(max_examples=150 * ROUNDS, deadline=None)
@given(where=st.sampled_from(VENDOR), seed=st.integers(0, 2**32))
def test_whatever_is_wrong_the_answer_comes_through_and_ends(
    where: tuple[str, str], seed: int
) -> None:
    dialect, name = where
    rng = random.Random(seed)
    data = _wire(dialect, _spoil(STREAMS[dialect][name], rng), rng)
    machine = relay(dialect)
    out = passed(machine, [data])
    for reads in cuts(data).values():
        assert passed(relay(dialect), reads) == out
    assert machine.is_over
    before, after = outcome(dialect, data), outcome(dialect, out)
    assert (after.error is not None) or after.completed
    problems = {problem.kind for problem in machine.problems}
    if "invalid_arguments" in problems:
        return  # Messages fails rather than have a call run whose input is no JSON
    assert meaning(after)[:2] == meaning(before)[:2]
    assert [call[1:] for call in _calls(after)] == [call[1:] for call in _calls(before)]
    assert meaning(after)[3:] == meaning(before)[3:]
    again = outcome(dialect, passed(relay(dialect), [out]))
    assert meaning(again) == meaning(after)


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect in DIALECTS for name in BODIES[dialect]]
)
def test_body_of_a_vendor_passes_byte_for_byte(dialect: str, name: str) -> None:
    data = json.dumps(BODIES[dialect][name], indent=2).encode()
    received, tally = relay_body(data, dialect, decode=DecodeContext(), encode=EncodeContext())
    assert received.body is data
    assert received.error is None
    assert tally.finish is not None
    renamed, _ = relay_body(
        data, dialect, decode=DecodeContext(), encode=EncodeContext(model="our")
    )
    assert json.loads(renamed.body) == {**BODIES[dialect][name], "model": "our"}


# --- work ---------------------------------------------------------------------------------------------------


def _count(work: Callable[[], object]) -> int:
    calls = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("dialect", DIALECTS)
def test_ten_times_the_deltas_cost_ten_times_the_calls(dialect: str) -> None:
    small, large = (
        dialect_stream(dialect, Story(texts=count // 2, calls=1, arguments=count))
        for count in (1_000, 10_000)
    )
    few = _count(lambda: passed(relay(dialect), small))
    many = _count(lambda: passed(relay(dialect), large))
    assert many <= few * 10.5
    assert many < len(large) * 40
