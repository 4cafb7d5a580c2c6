"""Calls with parsed parameters."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from dragoman.core.ids import Minter
from dragoman.errors import ToolError
from dragoman.model.parts import Call
from dragoman.toolcalls.unified import ToolCall, is_minted, nameless, unify

CALL = Call(call_id="call_1", name="f", input='{"a": 1.0}')
NOON = datetime(2026, 1, 2, 12, 0, 0, 5999, tzinfo=UTC)


def made(call: Call, now: datetime | None = None, *, lacks_id: bool = False) -> ToolCall:
    return unify(call, dialect="chat", choice=0, now=now, lacks_id=lacks_id)


def test_parameters_are_the_parsed_arguments_and_the_raw_call_is_kept() -> None:
    call = made(CALL)
    assert (call.id, call.name, call.parameters) == ("call_1", "f", {"a": 1.0})
    assert call.metadata.raw is CALL
    assert (call.metadata.provider, call.metadata.dialect) == ("openai", "chat")
    assert call.metadata.error is None
    assert call.metadata.timestamp is None


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_empty_arguments_are_no_parameters_and_no_error(text: str) -> None:
    call = made(replace(CALL, input=text))
    assert call.parameters == {}
    assert call.metadata.error is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"secret', "8 characters that are not"),
        ("[1]", "an array"),
        ('"secret"', "a string"),
        ("7", "a number"),
        ("1.5", "a number"),
        ("true", "a boolean"),
        ("null", "null"),
    ],
)
def test_unusable_arguments_are_an_error_that_does_not_quote_them(text: str, words: str) -> None:
    call = made(replace(CALL, input=text))
    assert call.parameters == {}
    error = call.metadata.error
    assert isinstance(error, ToolError)
    assert words in error.message
    assert "'call_1'" in error.message
    assert "secret" not in error.message


def test_call_that_was_cut_off_is_an_error() -> None:
    error = made(replace(CALL, status="incomplete")).metadata.error
    assert error is not None
    assert "cut off" in error.message


def test_call_without_an_id_is_an_error_that_keeps_its_parameters() -> None:
    call = made(CALL, lacks_id=True)
    assert call.parameters == {"a": 1.0}
    assert call.metadata.error is not None
    assert "without an id" in call.metadata.error.message


def test_freeform_input_is_one_parameter() -> None:
    call = made(replace(CALL, kind="custom", input="*** Begin {"))
    assert call.parameters == {"input": "*** Begin {"}
    assert call.metadata.error is None


@pytest.mark.parametrize(
    "now",
    [NOON, NOON.replace(tzinfo=None), NOON.astimezone(timezone(timedelta(hours=-7)))],
)
def test_timestamp_is_iso_8601_in_utc(now: datetime) -> None:
    assert made(CALL, now).metadata.timestamp == "2026-01-02T12:00:00.005Z"


def test_call_from_bare_events_has_no_provider() -> None:
    call = unify(CALL, dialect=None, choice=2, now=None, lacks_id=False)
    assert (call.metadata.provider, call.metadata.dialect) == (None, None)
    assert call.metadata.choice_index == 2


def test_nameless_call_is_only_its_error() -> None:
    call = nameless("no name", dialect="messages", choice=0, now=NOON)
    assert (call.id, call.name, call.parameters, call.metadata.raw) == ("", "", {}, None)
    assert call.metadata.error is not None
    assert (call.metadata.error.message, call.metadata.provider) == ("no name", "anthropic")


def test_minted_ids_are_known_by_their_seed() -> None:
    mint = Minter("seed")
    mint("msg_")
    second = mint("call_")
    assert is_minted(second, "seed", 2)
    assert not is_minted(second, "seed", 1)
    assert not is_minted(second, "other", 9)
    assert not is_minted("call_1", "seed", 9)
