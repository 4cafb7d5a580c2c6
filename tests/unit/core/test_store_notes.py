"""What the writer of an answer notes for the store is what a reader would find in it."""

import pytest
from msgspec import structs

from corpus_cases import Case, stream_cases
from dragoman.core.fold import unfold
from dragoman.core.store_notes import AnswerEnd, StoreNotes, open_calls
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.responses.terminal import read_end, read_opening
from dragoman.dialects.translate import StreamInterpreter, make_encoder
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import Call, Dialect, Result, Text
from strategies import random_cuts

DECODE = DecodeContext(choices=1)
CALL = Call(call_id="call_1", name="f", input="{}")


def interpreted(dialect: str, reads: list[bytes]) -> tuple[StoreNotes, bytes]:
    """What was noted, and the last bytes of the stream."""
    notes = StoreNotes()
    encode = EncodeContext(seed="law", notes=notes)
    interpreter = StreamInterpreter(dialect, "responses", decode=DECODE, encode=encode)
    last = b""
    for read in reads:
        last = interpreter.feed(read) or last
    return notes, interpreter.close() or last


def without_frames(end: AnswerEnd | None) -> AnswerEnd:
    assert end is not None
    return structs.replace(end, frames=b"", fail=None, open_calls=())


@pytest.mark.parametrize("case", stream_cases(), ids=lambda case: case.name)
def test_end_is_noted_as_it_would_be_read(case: Case) -> None:
    for reads in ([case.stream], random_cuts(case.stream, 3)):
        notes, last = interpreted(case.dialect, reads)
        end = notes.end
        assert end is not None
        assert last.endswith(end.frames)
        assert without_frames(read_end(end.frames)) == without_frames(end)
        assert end.id == notes.response_id
        assert notes.opening is not None
        assert b'"in_progress"' in notes.opening()


@pytest.mark.parametrize(
    "case", [case for case in stream_cases() if case.dialect == "responses"], ids=lambda c: c.name
)
@pytest.mark.parametrize("exact", [False, True])
def test_a_relayed_stream_is_noted_as_it_was_sent(case: Case, exact: bool) -> None:
    notes = StoreNotes()
    encode = EncodeContext(seed="law", notes=notes)
    relay = StreamRelay("responses", decode=case.context, encode=encode, exact=exact)
    sent = relay.feed(case.stream) + relay.close()
    end = notes.end or read_end(notes.last_frame)
    if end is None:
        return  # an upstream's error that is no response
    assert end.frames in sent
    if relay.is_passing:
        assert notes.end is None
        assert end.id == notes.response_id
        assert read_opening(notes.first_frame) in sent


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_secrets_are_removed_from_what_was_noted(door: Dialect) -> None:
    notes = StoreNotes()
    encoder = make_encoder(door, EncodeContext(response_id="id_1", notes=notes))
    choice = Choice(parts=(Text(text="sk-1"),), finish="stop")
    encoder.encode_all(unfold(Outcome(response_id="r", choices=(choice,), completed=True)))
    notes.hide(lambda data: data.replace(b"sk-1", b"***"))
    end = notes.end
    assert end is not None
    assert end.fail is not None
    assert b"sk-1" not in end.body + end.frames + end.fail(ErrorInfo(kind="server", message="sk-1"))


def test_calls_wait_until_they_have_a_result() -> None:
    other = structs.replace(CALL, call_id="call_2")
    cut = structs.replace(CALL, call_id="call_3", status="incomplete")
    theirs = structs.replace(CALL, call_id="call_4", executor="provider")
    assert open_calls([CALL, other, cut, theirs, Result(call_id="call_1")]) == [other]
