"""Answers that are cut short."""

from dragoman._json import Raw
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Seal, Text
from dragoman.upstream.rehearsal.limits import cut_at_stop, cut_at_tokens

CALL = Call(call_id="c", name="call", input="0123456789")


def test_first_stop_sequence_ends_the_text_and_what_follows() -> None:
    parts: list[Part] = [Text(text="one two"), Text(text="three"), CALL]
    assert cut_at_stop(parts, ("hree", "", "two")) == ([Text(text="one ")], "two")
    assert cut_at_stop([CALL, Text(text="aXb")], ("X",)) == ([CALL, Text(text="a")], "X")
    assert cut_at_stop(parts, ("nowhere",)) == (parts, None)


def test_what_fits_is_not_cut() -> None:
    assert cut_at_tokens([Text(text="12345678")], 2) is None


def test_text_is_cut_where_the_tokens_end() -> None:
    parts: list[Part] = [Text(text="12345678"), Refusal(text="12345678")]
    cut = Text(text="1234", status="incomplete")
    assert cut_at_tokens(parts, 1) == [cut]
    assert cut_at_tokens(parts, 2) == [parts[0]]
    assert cut_at_tokens(parts, 3) == [parts[0], Refusal(text="1234", status="incomplete")]


def test_call_is_cut_inside_its_input() -> None:
    assert cut_at_tokens([CALL], 2) == [
        Call(call_id="c", name="call", input="0123", status="incomplete")
    ]
    assert cut_at_tokens([CALL], 1) == [Call(call_id="c", name="call", status="incomplete")]


def test_thought_that_is_cut_has_no_seal() -> None:
    thought = Reasoning(summary=("12345678",), seals=(Seal("signature", "x"),))
    assert cut_at_tokens([thought], 1) == [Reasoning(summary=("1234",), status="incomplete")]


def test_what_cannot_be_cut_is_kept() -> None:
    opaque = Opaque(dialect="chat", type="x", raw=Raw(b'"12345678"'))
    media = Media(kind="image", url="https://example.com/")
    result = Result(call_id="c", content=(Text(text="12345678"),))
    for part in (opaque, media, result):
        assert cut_at_tokens([part], 1) == [part]
