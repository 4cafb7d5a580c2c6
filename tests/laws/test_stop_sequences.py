"""Stop sequences that the gateway handles: the cut depends on the text alone, not on its pieces; stream and body agree."""

from collections.abc import Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.stop_sequences import StopStage
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import Usage
from dragoman.model.parts import Text
from strategies import events

QUICK = settings(max_examples=200, deadline=None)
# Few letters, so that sequences overlap, begin again and fail late.
WORDS = st.text("ab", min_size=1, max_size=5)
STOPS = st.lists(WORDS, min_size=1, max_size=4)


def expected(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text up to the sequence that is complete first, found by trying every end; of several the longest."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def answer(pieces: Sequence[str]) -> list[Event]:
    return [
        Started("id", "m"),
        PartStarted(0, Text(status="in_progress")),
        *(TextDelta(0, piece) for piece in pieces),
        PartEnded(0, Text(text="".join(pieces))),
        Finished("stop"),
        UsageReported(Usage(input=1, output=2)),
        Completed(),
    ]


@QUICK
@given(pieces=st.lists(st.text("abc", max_size=6), max_size=8), stops=STOPS)
def test_the_cut_depends_on_the_text_alone(pieces: list[str], stops: list[str]) -> None:
    stage = StopStage(stops)
    came = said = ""
    for event in answer(pieces):
        out = stage.feed(event)
        said += "".join(each.text for each in out if isinstance(each, TextDelta))
        came += event.text if isinstance(event, TextDelta) else ""
        if isinstance(event, TextDelta) and not stage.is_over:
            # Held is the longest end that may begin a sequence, and nothing else.
            ends = [came[at:] for at in range(len(came) + 1)]
            held = next(end for end in ends if any(stop.startswith(end) for stop in stops))
            assert came == said + held
    text, found = expected("".join(pieces), stops)
    assert said == text
    assert stage.is_cut == (found is not None)


@QUICK
@given(pieces=st.lists(st.text("abc", max_size=6), max_size=8), stops=STOPS)
def test_stream_and_body_are_cut_alike(pieces: list[str], stops: list[str]) -> None:
    stream, body = StopStage(stops), StopStage(stops)
    body.expect_complete()
    streamed = fold([out for event in answer(pieces) for out in stream.feed(event)])
    whole = fold([out for event in answer(["".join(pieces)]) for out in body.feed(event)])
    assert whole.usage is not None
    assert replace(whole, usage=streamed.usage) == streamed


@QUICK
@given(came=events(max_choices=1), data=st.data(), whole=st.booleans())  # as those upstreams give
def test_grammatical_in_grammatical_out(
    came: list[Event], data: st.DataObject, whole: bool
) -> None:
    texts = [event.text for event in came if isinstance(event, TextDelta) and event.text]
    assume(texts)
    stage = StopStage([data.draw(st.sampled_from(texts))])
    if whole:
        stage.expect_complete()
    assert is_grammatical([out for event in came for out in stage.feed(event)])
