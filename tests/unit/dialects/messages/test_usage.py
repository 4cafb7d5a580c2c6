"""Counts that exclude cached tokens on the wire and include them in the vocabulary."""

from dragoman._json import as_object, dumps, raw
from dragoman.dialects.messages.usage import UsageReader, usage_to_wire
from dragoman.model.outcome import Usage
from dragoman.model.parts import Extra

FULL = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 30,
    "output_tokens": 5,
    "output_tokens_details": {"thinking_tokens": 4},
    "service_tier": "standard",
    "cache_creation": None,
}


def test_input_includes_what_was_cached() -> None:
    usage = UsageReader().read(as_object(dumps(FULL)))
    assert (usage.input, usage.output, usage.cached, usage.cache_write) == (60, 5, 30, 20)
    assert usage.reasoning == 4


def test_own_counts_come_back_as_they_were() -> None:
    usage = UsageReader().read(as_object(dumps(FULL)))
    back = as_object(dumps(usage_to_wire(usage)))
    assert back == {key: raw(value) for key, value in FULL.items() if value is not None}


def test_later_input_without_cache_counts_is_made_inclusive() -> None:
    reader = UsageReader()
    first = reader.read(as_object(dumps(FULL)))
    second = reader.read(as_object(b'{"input_tokens": 11, "output_tokens": 9}'))
    assert (second.input, second.cached, second.output) == (61, None, 9)
    assert usage_to_wire(second, first)["input_tokens"] == 11


def test_output_alone_says_nothing_of_the_input() -> None:
    reader = UsageReader()
    reader.read(as_object(dumps(FULL)))
    assert reader.read(as_object(b'{"output_tokens": 9}')) == Usage(output=9)


def test_cache_counts_without_an_input_count_give_no_sum() -> None:
    usage = UsageReader().read(as_object(b'{"cache_read_input_tokens": 9}'))
    assert usage == Usage(cached=9)


def test_no_count_is_negative() -> None:
    assert usage_to_wire(Usage(input=5, cached=9))["input_tokens"] == 0


def test_counts_of_others_have_their_names_and_foreign_details_stay_behind() -> None:
    usage = Usage(input=5, output=None, reasoning=2, extra=Extra("chat", {"x": raw(1)}))
    assert usage_to_wire(usage) == {
        "input_tokens": 5,
        "output_tokens": 0,
        "output_tokens_details": {"thinking_tokens": 2},
    }
