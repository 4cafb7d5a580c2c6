"""Losses: declared, decided by policy, noted once."""

import pytest

from dragoman._json import Raw
from dragoman.core.losses import (
    LONGEST_NAME,
    MOST_FIELDS,
    REQUEST_LOSSES,
    LossBook,
    LossRule,
    LossTable,
    answer_book,
    foreign_noter,
    note_request_fields,
    request_field_code,
)
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss
from dragoman.model.parts import Extra

TABLE: LossTable = {
    "seed": LossRule("this dialect has no seed", "drop"),
    "audio": LossRule("this dialect has no audio", "refuse"),
    "cache": LossRule("cache breakpoints travel in-band", "carry"),
}


def test_a_loss_is_noted_with_what_was_done() -> None:
    book = LossBook(TABLE)
    assert book.note("seed", "seed", "7") == "drop"
    assert book.note("cache", "messages[0]") == "carry"
    assert book.losses == (
        Loss("seed", "seed", "drop", "7"),
        Loss("cache", "messages[0]", "carry"),
    )


def test_the_same_loss_in_the_same_place_is_noted_once() -> None:
    book = LossBook(TABLE)
    for detail in ("first", "second"):
        book.note("seed", "seed", detail)
    book.note("seed", "elsewhere")
    assert book.losses == (Loss("seed", "seed", "drop", "first"), Loss("seed", "elsewhere", "drop"))


def test_the_policy_overrides_the_table() -> None:
    book = LossBook(TABLE, {"audio": "drop", "unheard_of": "carry"})
    assert book.note("audio") == "drop"
    assert book.losses == (Loss("audio", "", "drop"),)


@pytest.mark.parametrize(
    ("where", "detail", "message", "param"),
    [
        ("", "", "request: this dialect has no audio", None),
        ("messages[0]", "wav", "messages[0]: this dialect has no audio (wav)", "messages[0]"),
    ],
)
def test_a_refused_loss_says_what_and_where(
    where: str, detail: str, message: str, param: str | None
) -> None:
    book = LossBook(TABLE)
    with pytest.raises(RequestRefused) as caught:
        book.note("audio", where, detail)
    assert (caught.value.message, caught.value.param, caught.value.code) == (
        message,
        param,
        "audio",
    )
    assert book.losses == ()


def test_a_policy_may_refuse_what_the_table_drops() -> None:
    with pytest.raises(RequestRefused):
        LossBook(TABLE, {"seed": "refuse"}).note("seed")


def test_losses_of_another_book_are_added_once() -> None:
    book = LossBook(TABLE)
    book.note("seed", "seed", "first")
    other = book.fresh()
    other.note("seed", "seed", "second")
    other.note("cache")
    book.add(other.losses)
    assert book.losses == (Loss("seed", "seed", "drop", "first"), Loss("cache", "", "carry"))


def test_a_fresh_book_has_the_same_rules() -> None:
    book = LossBook(TABLE, {"audio": "carry"}, may_refuse=False)
    assert book.fresh().note("audio") == "carry"
    assert book.fresh().rules == book.rules == {("audio", "carry")}
    assert LossBook(TABLE, {}).rules == LossBook(TABLE).rules == frozenset()
    with pytest.raises(RequestRefused):
        LossBook(TABLE).fresh().note("audio")


REQUESTS: LossTable = {**REQUEST_LOSSES, "unknown_field": LossRule("unknown here", "drop")}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("conversation", b'"conv_1"', "conversation"),
        ("conversation", b"null", None),
        ("truncation", b'"auto"', "truncation"),
        ("truncation", b'"disabled"', None),
        ("modalities", b'[ "text" ]', None),
        ("modalities", b'["text","audio"]', "unknown_field"),
        ("moderation", b'{"model":"m"}', "moderation"),
        ("moderation", b'{"policy":{"input":{"mode":"score"}}}', "moderation"),
        ("moderation", b'{"policy":{"output":{"mode":"block"}}}', "moderation_block"),
        ("moderation", b'"strict"', "moderation"),
        ("thread", b'{"type":"create"}', "unknown_field"),
        ("thread", b'{"type":"continue"}', "thread"),
        ("brand_new", b"1", "unknown_field"),
    ],
)
def test_a_field_of_a_request_weighs_what_it_says(
    name: str, value: bytes, code: str | None
) -> None:
    assert request_field_code(name, Raw(value)) == code


def test_fields_of_a_request_are_noted_by_name_but_for_those_that_are_carried() -> None:
    book = LossBook(REQUESTS)
    fields = {"a": Raw(b"1"), "truncation": Raw(b'"auto"'), "b": Raw(b"1"), "c": Raw(b"null")}
    note_request_fields(book, Extra("responses", fields), carried=("b",))
    note_request_fields(book, None)
    assert book.losses == (
        Loss("truncation", "truncation", "drop"),
        Loss("unknown_field", "a", "drop"),
    )


def test_of_any_number_of_fields_the_first_are_named_and_the_others_counted() -> None:
    fields = {f"x{number}": Raw(b"1") for number in range(MOST_FIELDS + 3)} | {"y" * 999: Raw(b"1")}
    top, inside = LossBook(REQUESTS), LossBook(REQUESTS)
    note_request_fields(top, Extra("responses", {**fields, "truncation": Raw(b'"auto"')}))
    foreign_noter("chat")(inside, Extra("responses", fields), "tools[0]")
    assert len(inside.losses) == MOST_FIELDS + 1
    assert inside.losses[-1] == Loss("unknown_field", "tools[0]", "drop", "and 4 more fields")
    assert top.losses[0].code == "truncation"
    assert top.losses[-1] == Loss("unknown_field", "request", "drop", "and 4 more fields")
    long = LossBook(REQUESTS)
    note_request_fields(long, Extra("responses", {"y" * 999: Raw(b"1")}))
    assert long.losses == (Loss("unknown_field", "y" * LONGEST_NAME, "drop"),)


def test_a_field_that_changes_the_question_is_refused_by_name() -> None:
    with pytest.raises(RequestRefused) as caught:
        note_request_fields(LossBook(REQUESTS), Extra("responses", {"prompt": Raw(b"{}")}))
    assert (caught.value.param, caught.value.code) == ("prompt", "prompt")


def test_what_describes_an_answer_is_the_clients_wish_in_a_request() -> None:
    note = foreign_noter("chat")
    extra = Extra("responses", {"store": Raw(b"true"), "x": Raw(b"1"), "y": Raw(b"1")})
    answer = answer_book(REQUESTS, {})
    note(answer, extra, "answer")
    assert answer.losses == (Loss("unknown_field", "answer", "drop", "x, y"),)
    request = LossBook(REQUESTS)
    note(request, extra, "tools[0]", known=("y",))
    assert [loss.where for loss in request.losses] == ["tools[0].store", "tools[0].x"]


def test_a_loss_that_nobody_misses_is_reported_only_if_the_policy_names_it() -> None:
    table = {"mark": LossRule("a mark", "drop", is_reported=False)}
    book = LossBook(table)
    assert (book.note("mark", "here"), book.losses) == ("drop", ())
    for action in ("drop", "carry"):
        named = LossBook(table, {"mark": action})
        assert named.note("mark", "here") == action
        assert named.losses == (Loss("mark", "here", action),)
    with pytest.raises(RequestRefused, match="a mark"):
        LossBook(table, {"mark": "refuse"}).note("mark", "here")
