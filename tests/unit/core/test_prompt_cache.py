"""Breakpoints and settings of the cache, in the forms of the dialects."""

import json
from typing import Any

import pytest

from dragoman._json import Raw, dumps, raw
from dragoman.core.prompt_cache import BreakpointForm, read_settings, seconds_of, write_options
from dragoman.errors import RequestRefused
from dragoman.model.parts import Breakpoint, Extra
from dragoman.model.request import CacheSettings

Json = dict[str, Any]

ANTHROPIC = BreakpointForm("messages", "type", "ephemeral", alone=True)
OPENAI = BreakpointForm("chat", "mode", "explicit", alone=False)
OTHER_OPENAI = BreakpointForm("responses", "mode", "explicit", alone=False)


@pytest.mark.parametrize(
    ("value", "point"),
    [
        ({"type": "ephemeral"}, Breakpoint(alone=True)),
        ({"type": "ephemeral", "ttl": "1h"}, Breakpoint(ttl="1h", alone=True)),
        (
            {"type": "other"},
            Breakpoint(alone=True, extra=Extra("messages", {"type": Raw(b'"other"')})),
        ),
        (
            {"type": "ephemeral", "ttl": 5},
            Breakpoint(
                alone=True,
                extra=Extra("messages", {"type": Raw(b'"ephemeral"'), "ttl": Raw(b"5")}),
            ),
        ),
    ],
)
def test_a_breakpoint_is_read_and_written_as_it_came(value: Json, point: Breakpoint) -> None:
    assert ANTHROPIC.read(raw(value)) == point
    assert json.loads(dumps(ANTHROPIC.write(point))) == value


@pytest.mark.parametrize("value", [b"null", b"{}", b"[]", b'"ephemeral"', b"1", b"{broken"])
def test_what_is_no_object_with_fields_is_no_breakpoint(value: bytes) -> None:
    assert ANTHROPIC.read(Raw(value)) is None


def test_there_is_no_breakpoint_where_there_is_no_field() -> None:
    assert ANTHROPIC.read(None) is None


def test_a_long_object_is_read_like_a_short_one() -> None:
    value = {"type": "ephemeral", "note": "x" * 1000}
    point = ANTHROPIC.read(raw(value))
    assert point is not None
    assert json.loads(dumps(ANTHROPIC.write(point))) == value


def test_dialects_that_share_a_form_keep_its_unknown_fields_and_others_do_not() -> None:
    point = OPENAI.read(raw({"mode": "explicit", "ttl": "30m", "later": 1}))
    assert point is not None
    written = json.loads(dumps(OTHER_OPENAI.write(point)))
    assert written == {"mode": "explicit", "ttl": "30m", "later": 1}
    assert ANTHROPIC.write(point) == {"type": "ephemeral", "ttl": "30m"}


def settings(fields: Json) -> CacheSettings | None:
    return read_settings("chat", {name: raw(value) for name, value in fields.items()}, "o", "r")


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "explicit"}, {"ttl": "30m"}, {"mode": "implicit", "ttl": "30m", "later": [1]}],
)
def test_options_are_written_as_they_came(options: Json) -> None:
    found = settings({"o": options})
    assert found is not None
    assert json.loads(dumps(write_options(found))) == options


def test_settings_are_absent_where_nothing_is_stated() -> None:
    assert settings({}) is None
    assert settings({"o": None, "r": None}) is None
    only = settings({"r": "24h"})
    assert only == CacheSettings(retention="24h")
    assert write_options(CacheSettings(retention="24h")) is None


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"o": 1}, "o"),
        ({"r": {}}, "r"),
        ({"o": {"mode": 1}}, "o.mode"),
        ({"o": {"ttl": []}}, "o.ttl"),
    ],
)
def test_settings_of_another_type_are_refused_with_their_place(fields: Json, where: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        settings(fields)
    assert caught.value.param == where


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        *(("5m", 300), ("30m", 1800), ("1h", 3600), ("24h", 86400), ("2d", 172800), ("90s", 90)),
        *(("in_memory", None), ("", None), ("m", None), ("1h30m", None), ("-1h", None)),
        *((None, None), ("9" * 40 + "h", None)),
    ],
)
def test_a_duration_is_so_many_seconds(duration: str | None, seconds: int | None) -> None:
    assert seconds_of(duration) == seconds
