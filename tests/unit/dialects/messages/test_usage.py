"""Counts that exclude cached tokens on the wire and include them in the vocabulary."""

from dragoman._json import as_object, dumps, loads, raw
from dragoman.dialects.messages.usage import UsageReader, usage_at_end, usage_in_full
from dragoman.model.outcome import Usage
from dragoman.model.parts import Extra

FULL = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 30,
    "output_tokens": 5,
    "output_tokens_details": {"thinking_tokens": 4},
    "service_tier": "priority",
    "cache_creation": {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5},
    "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
    "inference_geo": "eu",
}
UNKNOWN = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": None,
    "server_tool_use": None,
    "service_tier": "standard",
    "inference_geo": None,
}


def test_input_includes_what_was_cached() -> None:
    usage = UsageReader().read(as_object(dumps(FULL)))
    assert (usage.input, usage.output, usage.cached, usage.cache_write) == (60, 5, 30, 20)
    assert usage.reasoning == 4


def test_own_counts_come_back_as_they_were() -> None:
    usage = UsageReader().read(as_object(dumps(FULL)))
    back = as_object(dumps(usage_in_full(usage)))
    assert back == {key: raw(value) for key, value in FULL.items()}


def test_a_message_has_every_count_of_the_vendors_schema_known_or_not() -> None:
    assert loads(dumps(usage_in_full(None))) == UNKNOWN


def test_what_is_written_for_unknown_counts_is_read_as_unknown() -> None:
    usage = UsageReader().read(as_object(dumps(UNKNOWN)))
    assert usage == Usage(input=0, output=0, cached=0, cache_write=0)


def test_tokens_written_to_the_cache_of_another_provider_count_for_the_usual_time() -> None:
    counts = usage_in_full(Usage(input=9, cache_write=4))
    expected = {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 0}
    assert counts["cache_creation"] == expected
    assert UsageReader().read(as_object(dumps(counts))).extra is None


def test_later_input_without_cache_counts_is_made_inclusive() -> None:
    reader = UsageReader()
    first = reader.read(as_object(dumps(FULL)))
    second = reader.read(as_object(b'{"input_tokens": 11, "output_tokens": 9}'))
    assert (second.input, second.cached, second.output) == (61, None, 9)
    assert usage_at_end(second, first)["input_tokens"] == 11


def test_output_alone_says_nothing_of_the_input() -> None:
    reader = UsageReader()
    reader.read(as_object(dumps(FULL)))
    assert reader.read(as_object(b'{"output_tokens": 9}')) == Usage(output=9)


def test_cache_counts_without_an_input_count_give_no_sum() -> None:
    usage = UsageReader().read(as_object(b'{"cache_read_input_tokens": 9}'))
    assert usage == Usage(cached=9)


def test_no_count_is_negative() -> None:
    assert usage_in_full(Usage(input=5, cached=9))["input_tokens"] == 0
    assert usage_at_end(Usage(input=5, cached=9), None)["input_tokens"] == 0


def test_counts_of_others_have_their_names_and_foreign_details_stay_behind() -> None:
    usage = Usage(input=5, output=None, reasoning=2, extra=Extra("chat", {"x": raw(1)}))
    assert usage_at_end(usage, None) == {
        "input_tokens": 5,
        "cache_creation_input_tokens": None,
        "cache_read_input_tokens": None,
        "output_tokens": 0,
        "output_tokens_details": {"thinking_tokens": 2},
        "server_tool_use": None,
    }
