"""An answer has the id that its keeper gives, and names the response it continues."""

import json

import pytest
from msgspec.structs import replace

from dragoman.core.fold import unfold
from dragoman.core.losses import LossBook
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import CODECS
from dragoman.dialects.translate import make_encoder
from dragoman.model.outcome import Choice, FinishReason, Outcome
from dragoman.model.parts import Call, Refusal, Text
from dragoman.model.request import Request

PLAIN = (Text(text="Hello."), Call(call_id="call_1", name="f", input="{}"))
ODD = (Refusal(text="No."),)


def outcome(*, is_plain: bool) -> Outcome:
    parts = PLAIN if is_plain else ODD
    finish: FinishReason = "tool_calls" if is_plain else "refusal"
    return Outcome(
        response_id="resp_theirs",
        choices=(Choice(parts=parts, finish=finish),),
        completed=True,
    )


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("door", ["responses", "messages"])
def test_the_given_id_is_emitted_in_streams_and_bodies(door: str, is_plain: bool) -> None:
    context = EncodeContext(response_id="id_ours", seed="x")
    answer = outcome(is_plain=is_plain)
    codec = CODECS[door]
    body = json.loads(codec.write_body(answer, context, LossBook(codec.losses)))
    assert body["id"] == "id_ours"
    encoder = make_encoder(door, context)
    stream = encoder.encode_all(unfold(answer)) + encoder.close()
    assert b'"id":"id_ours"' in stream
    assert b"resp_theirs" not in stream


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_a_response_continues_is_emitted_with_it(is_plain: bool) -> None:
    context = EncodeContext(request=Request(previous_id="resp_before"), seed="x")
    answer = outcome(is_plain=is_plain)
    codec = CODECS["responses"]
    body = json.loads(codec.write_body(answer, context, LossBook(codec.losses)))
    assert body["previous_response_id"] == "resp_before"
    assert body["id"] == "resp_theirs"
    encoder = make_encoder("responses", context)
    stream = encoder.encode_all(unfold(answer)) + encoder.close()
    assert stream.count(b'"previous_response_id":"resp_before"') == 3
    assert b'"previous_response_id":null' not in stream


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("door", ["chat", "messages"])
def test_the_model_asked_for_stands_in_for_one_that_the_upstream_does_not_name(
    door: str, is_plain: bool
) -> None:
    context = EncodeContext(asked_model="mine", seed="x")
    answer = outcome(is_plain=is_plain)
    codec = CODECS[door]
    assert json.loads(codec.write_body(answer, context, LossBook(codec.losses)))["model"] == "mine"
    encoder = make_encoder(door, context)
    assert b'"model":"mine"' in encoder.encode_all(unfold(answer)) + encoder.close()
    named = replace(answer, model="theirs")
    written = codec.write_body(named, context, LossBook(codec.losses))
    assert json.loads(written)["model"] == "theirs"
