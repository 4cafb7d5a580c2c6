"""Token counts, both ways."""

import json

import pytest

from dragoman._json import Raw
from dragoman.dialects.chat.usage import read_usage, write_usage
from dragoman.model.outcome import Usage
from dragoman.model.parts import Extra


def read(value: object) -> Usage:
    return read_usage(Raw(json.dumps(value).encode()))


def test_zero_is_a_count() -> None:
    usage = read(
        {
            "prompt_tokens_details": {"cached_tokens": 0},
            "prompt_cache_hit_tokens": 3,
            "total_tokens": 0,
        }
    )
    assert (usage.cached, usage.cache_write, usage.total) == (0, None, 0)


def test_counts_have_their_homes() -> None:
    usage = read(
        {
            "prompt_tokens": 10,
            "completion_tokens": 20,
            "total_tokens": 30,
            "prompt_tokens_details": {
                "cached_tokens": 1,
                "cache_write_tokens": 2,
                "audio_tokens": 3,
            },
            "completion_tokens_details": {"reasoning_tokens": 4, "audio_tokens": 5},
        }
    )
    assert usage == Usage(
        input=10,
        output=20,
        total=30,
        cached=1,
        cache_write=2,
        input_audio=3,
        reasoning=4,
        output_audio=5,
    )


@pytest.mark.parametrize(
    "value",
    [
        {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        {
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 0, "image_tokens": 7},
            "completion_tokens_details": {"reasoning_tokens": 1, "rejected_prediction_tokens": 0},
            "cost": 0.5,
        },
    ],
)
def test_what_was_read_is_written_again(value: dict[str, object]) -> None:
    assert json.loads(json.dumps(write_usage_plain(read(value)))) == value


def write_usage_plain(usage: Usage) -> dict[str, object]:
    return {
        name: json.loads(bytes(value)) if isinstance(value, Raw) else value
        for name, value in write_usage(usage).items()
    }


def test_other_spellings_are_understood() -> None:
    usage = read({"input_tokens": 1, "output_tokens": 2, "prompt_cache_hit_tokens": 3})
    assert (usage.input, usage.output, usage.cached) == (1, 2, 3)
    assert read({"cache_creation_input_tokens": 4}).cache_write == 4


def test_unknown_counts_are_kept() -> None:
    assert read({"prompt_tokens": 1, "cost": 0.5}).extra == Extra("chat", {"cost": Raw(b"0.5")})


def test_missing_counts_are_zero_on_the_wire_and_the_total_is_their_sum() -> None:
    assert write_usage(Usage(input=2)) == {
        "prompt_tokens": 2,
        "completion_tokens": 0,
        "total_tokens": 2,
    }


def test_foreign_counts_stay_behind() -> None:
    usage = Usage(input=1, output=1, extra=Extra("messages", {"x": Raw(b"1")}))
    assert "x" not in write_usage(usage)


def test_usage_that_is_no_object_says_nothing() -> None:
    assert read(3) == Usage()
