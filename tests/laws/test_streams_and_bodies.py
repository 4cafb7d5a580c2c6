"""Law 3: an answer means the same streamed and whole.

The same events are written as a stream and as a body of one dialect; what is read from both folds alike, but for
`LISTED`. `make laws` reads twenty times as many cases.
"""

import os
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from corpus_cases import DIALECTS
from dragoman._json import Raw
from dragoman.core.fold import fold, join_logprobs, unfold
from dragoman.core.losses import answer_book
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.model.events import Event
from dragoman.model.outcome import Choice, Outcome
from dragoman.model.parts import Call, Extra, Media, Opaque, Part, Reasoning, Refusal, Text
from projections import read, received, write
from strategies import events

ROUNDS = int(os.environ.get("DRAGOMAN_LAW_ROUNDS", "1"))
law = settings(max_examples=50 * ROUNDS, deadline=None, derandomize=True)

LISTED: Mapping[str, Mapping[str, str]] = {
    "chat": {
        "order": "a message has fields, not an order of parts: what a stream told in turns stands together",
        "logprobs": "probabilities of tokens without text belong to no text in a stream; a body has them in its list",
        "cut input": "in an answer that was cut, a call without input that another follows: a body closes it as `{}`",
        "audio": "the SDK's type of a whole sound demands `expires_at`, that of its deltas does not",
    },
    "responses": {
        "audio": "a response object has no sound: only the stream tells it",
        "extra": "a body does not show which fields were known at the beginning",
    },
    "messages": {
        "extra": "a body does not show which fields came at the beginning, with the stop reason or at the end",
        "cut input": "input that a limit cut is told as it came in a stream; in a body it is made the object that the "
        "type demands, and the last call of an answer that was cut counts as cut",
        "input": "in a body the input is JSON among JSON: white space around it belongs to the body",
        "misleading": "a stream fails rather than show a cut call that looks whole in front of another block",
    },
}
"""Where a stream and a body of one answer may differ, and why."""

LOST_IN_ONE = {"responses": {"media_output"}, "messages": {"invalid_input"}}
"""The losses that come with these differences."""


@pytest.mark.parametrize("dialect", DIALECTS)
@law
@given(sequence=events(may_fail=False))
def test_stream_and_body_fold_alike(dialect: str, sequence: tuple[Event, ...]) -> None:
    canonical = unfold(_with_distinct_fields(fold(sequence)))
    written = write(dialect, canonical)
    streamed = received(dialect, read(dialect, [written.data]).events)
    if streamed.error is not None:
        return  # "misleading"
    book = answer_book(codec(dialect).losses, {})
    body = codec(dialect).encode_body(canonical, EncodeContext(), book)
    step = codec(dialect).read_body(body, DecodeContext())
    assert step.raw == body
    whole = received(dialect, step.events)
    assert ALIKE[dialect](whole) == ALIKE[dialect](streamed)
    differing = LOST_IN_ONE.get(dialect, set())
    lost_in_stream = {loss.code for loss in written.losses}
    lost_in_body = {loss.code for loss in book.losses}
    assert lost_in_body - differing == lost_in_stream - differing


@pytest.mark.parametrize("dialect", DIALECTS)
@law
@given(sequence=events())
def test_stream_and_body_fail_alike(dialect: str, sequence: tuple[Event, ...]) -> None:
    sent = fold(sequence).error
    if sent is None:
        return
    streamed = fold(read(dialect, [write(dialect, sequence).data]).events).error
    body = codec(dialect).encode_body(sequence, EncodeContext())
    whole = fold(codec(dialect).read_body(body, DecodeContext()).events).error
    assert streamed is not None
    assert whole is not None
    assert whole.message == streamed.message
    if sent.code is None:  # an unknown code hides the kind, which the HTTP status of a body shows
        assert whole.kind == streamed.kind


# --- what is left out of the comparison -------------------------------------------------------------------------------


def _with_distinct_fields(outcome: Outcome) -> Outcome:
    """The answer with other names for its extra fields in each place: one name does not mean two things."""
    return replace(
        outcome,
        choices=tuple(
            replace(
                choice,
                parts=tuple(_without_unsaid(part) for part in choice.parts),
                finish_extra=_renamed(choice.finish_extra, "finish"),
            )
            for choice in outcome.choices
        ),
        completed_extra=_renamed(outcome.completed_extra, "completed"),
    )


def _without_unsaid(part: Part) -> Part:
    is_unsaid = isinstance(part, Text | Refusal) and not part.text
    return replace(part, logprobs=None) if is_unsaid else part


def _renamed(extra: Extra | None, prefix: str) -> Extra | None:
    if extra is None:
        return None
    return Extra(extra.dialect, {f"{prefix}_{name}": raw for name, raw in extra.fields.items()})


def alike_chat(outcome: Outcome) -> Outcome:
    return replace(outcome, choices=tuple(_sorted(choice) for choice in outcome.choices))


def _sorted(choice: Choice) -> Choice:
    """The parts of a choice as the fields of a message."""
    parts = choice.parts
    texts = [part for part in parts if isinstance(part, Text)]
    refusals = [part for part in parts if isinstance(part, Refusal)]
    thoughts = "".join(part.summary[0] for part in parts if isinstance(part, Reasoning))
    fields: list[Part] = [
        Reasoning(summary=(thoughts,)),
        Text(
            text="".join(part.text for part in texts),
            annotations=tuple(each for part in texts for each in part.annotations),
            logprobs=join_logprobs(part.logprobs for part in texts),
        ),
        Refusal(
            text="".join(part.text for part in refusals),
            logprobs=join_logprobs(part.logprobs for part in refusals),
        ),
        *(
            _without_expiry(part)
            for part in parts
            if isinstance(part, Media) and part.kind == "audio"
        ),
        *(part for part in parts if isinstance(part, Media) and part.kind != "audio"),
        *(part for part in parts if isinstance(part, Opaque)),
        *(_without_nothing(part, choice) for part in parts if isinstance(part, Call)),
    ]
    return replace(choice, parts=tuple(fields))


def _without_nothing(call: Call, choice: Choice) -> Call:
    is_cut = choice.finish in ("length", "content_filter")
    return replace(call, input="") if is_cut and call.input.strip() == "{}" else call


def _without_expiry(media: Media) -> Media:
    extra = media.extra
    if extra is None:
        return media
    fields = {name: raw for name, raw in extra.fields.items() if name != "expires_at"}
    return replace(media, extra=Extra("chat", fields) if fields else None)


def alike_responses(outcome: Outcome) -> Outcome:
    choices = tuple(
        replace(choice, parts=tuple(part for part in choice.parts if not isinstance(part, Media)))
        for choice in outcome.choices
    )
    return _with_one_extra(replace(outcome, choices=choices))


def alike_messages(outcome: Outcome) -> Outcome:
    choices = tuple(replace(choice, parts=_without_cut_input(choice)) for choice in outcome.choices)
    return _with_one_extra(replace(outcome, choices=choices))


def _without_cut_input(choice: Choice) -> tuple[Part, ...]:
    is_regular = choice.finish in ("stop", "tool_calls", "stop_sequence", "pause")
    return tuple(
        replace(
            part,
            input=part.input.strip() if is_regular else "",
            status=part.status if is_regular else "completed",
        )
        if isinstance(part, Call)
        else part
        for part in choice.parts
    )


def _with_one_extra(outcome: Outcome) -> Outcome:
    """All extra fields of the answer together."""
    fields: dict[str, Raw] = {}
    choices = outcome.choices
    for extra in (outcome.started_extra, choices[0].finish_extra, outcome.completed_extra):
        fields.update(extra.fields if extra is not None else {})
    return replace(
        outcome,
        choices=tuple(replace(choice, finish_extra=None) for choice in choices),
        started_extra=Extra("codex", dict(sorted(fields.items()))),
        completed_extra=None,
    )


ALIKE: Mapping[str, Callable[[Outcome], Outcome]] = {
    "chat": alike_chat,
    "responses": alike_responses,
    "messages": alike_messages,
}
