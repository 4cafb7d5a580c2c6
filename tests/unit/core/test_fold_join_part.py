"""Joining deltas: the value of an unfinished part, and whether a finished part matches its deltas."""

import pytest
from hypothesis import given

from disagreements import find_disagreements
from dragoman._json import Raw, loads
from dragoman.core.fold import join_logprobs, join_part
from dragoman.model.events import (
    AnnotationAdded,
    Delta,
    Event,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
)
from dragoman.model.parts import (
    Annotation,
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from strategies import events

ANNOTATION = Annotation("chat", Raw(b"{}"))
SEAL = Seal("signature", "s")
OPAQUE = Opaque(dialect="chat", type="x", raw=Raw(b"{}"))


@pytest.mark.parametrize(
    ("header", "deltas", "expected"),
    [
        (Text(), [], Text()),
        (
            Text(),
            [TextDelta(0, "a"), AnnotationAdded(0, ANNOTATION), TextDelta(0, "b", Raw(b"[1]"))],
            Text(text="ab", annotations=(ANNOTATION,), logprobs=Raw(b"[1]")),
        ),
        # A delta that does not fit is not this module's to judge; it adds nothing.
        (Text(text="a"), [InputDelta(0, "x"), TextDelta(0, "b")], Text(text="ab")),
        (Refusal(), [TextDelta(0, "no"), TextDelta(0, ".")], Refusal(text="no.")),
        (
            Reasoning(),
            [
                ReasoningDelta(0, "c", "content", 7),
                ReasoningDelta(0, "a", index=0),
                ReasoningDelta(0, "b", index=1),
                ReasoningDelta(0, "a", index=0),
                ReasoningDelta(0, "d", "content", 2),
                SealAdded(0, SEAL),
            ],
            Reasoning(summary=("aa", "b"), content=("d", "c"), seals=(SEAL,)),
        ),
        (
            Call(call_id="c", name="f"),
            [InputDelta(0, "{"), OutputDelta(0, "printed"), InputDelta(0, "}"), SealAdded(0, SEAL)],
            Call(call_id="c", name="f", input="{}", seals=(SEAL,)),
        ),
        (Result(call_id="c"), [], Result(call_id="c")),
        (
            Result(call_id="c"),
            [OutputDelta(0, "a"), OutputDelta(0, "b")],
            Result(call_id="c", content=(Text(text="ab"),)),
        ),
        (
            Media(kind="audio"),
            [MediaDelta(0, "AAAA"), MediaDelta(0, transcript="hi"), MediaDelta(0, "BBBB")],
            Media(kind="audio", data="AAAABBBB", transcript="hi"),
        ),
        (Media(kind="audio"), [], Media(kind="audio")),
        (Media(kind="file", url="https://e.org"), [], Media(kind="file", url="https://e.org")),
        (
            Media(kind="image"),
            [MediaDelta(0, "first preview"), MediaDelta(0, "better preview")],
            Media(kind="image", data="better preview"),
        ),
        (Media(kind="image", data="whole"), [], Media(kind="image", data="whole")),
        (OPAQUE, [], OPAQUE),
    ],
)
def test_a_part_is_its_header_and_its_deltas(
    header: Part, deltas: list[Delta], expected: Part
) -> None:
    assert join_part(header, deltas) == expected


def test_logprobs_of_several_deltas_are_one_array() -> None:
    pieces = [Raw(b"[1, 2]"), None, Raw(b" [ ] "), Raw(b'{"a":1}'), Raw(b"[[3]]")]
    joined = join_logprobs(pieces)
    assert joined is not None
    assert loads(bytes(joined)) == [1, 2, {"a": 1}, [3]]


def test_logprobs_that_never_came_stay_absent() -> None:
    assert join_logprobs([None, None]) is None
    assert join_logprobs([]) is None
    assert join_logprobs([Raw(b"[]")]) == Raw(b"[]")


@given(events(may_amend=True))
def test_deltas_of_generated_answers_join_to_their_parts(sequence: tuple[Event, ...]) -> None:
    assert find_disagreements(sequence) == ()


@pytest.mark.parametrize(
    ("header", "delta", "value"),
    [
        (Text(), TextDelta(1, "a"), Text(text="b")),
        (Refusal(), TextDelta(1, "a"), Refusal(text="ab")),
        (Reasoning(), ReasoningDelta(1, "a"), Reasoning(content=("a",))),
        (Call(call_id="c", name="f"), InputDelta(1, "{}"), Call(call_id="c", name="f", input="")),
    ],
)
def test_an_end_that_differs_from_what_was_emitted_is_found_unless_it_says_so(
    header: Part, delta: Event, value: Part
) -> None:
    sequence: list[Event] = [
        Started(),
        PartStarted(0, Text()),
        PartStarted(1, header),
        delta,
        PartEnded(0, Text()),
    ]
    assert find_disagreements([*sequence, PartEnded(1, value)]) == (1,)
    assert find_disagreements([*sequence, PartEnded(1, value, amended=True)]) == ()


def test_empty_entries_of_a_reasoning_need_no_delta() -> None:
    sequence: list[Event] = [
        PartStarted(0, Reasoning()),
        ReasoningDelta(0, "a", index=1),
        PartEnded(0, Reasoning(summary=("", "a", ""))),
    ]
    assert find_disagreements(sequence) == ()
