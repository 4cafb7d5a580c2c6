"""Losses: declared, decided by policy, noted once."""

import pytest

from dragoman.core.losses import LossBook, LossRule, LossTable
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss

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
