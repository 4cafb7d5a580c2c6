"""Reports of usage and limits are merged, and answers added up."""

from hashlib import sha256

from dragoman._json import Raw
from dragoman.core.usage import (
    MAX_FIELDS,
    MAX_NOTED,
    InputHash,
    add_usage,
    hash_input,
    make_tally,
    merge_limits,
    merge_usage,
    tally_of,
    token_count,
)
from dragoman.model.events import Event, PartEnded, Started
from dragoman.model.outcome import Limits, LimitWindow, Usage
from dragoman.model.parts import Call, Extra

EXTRA = Extra("chat", {"a": Raw(b"1")})


def test_later_usage_replaces_what_it_states_and_nothing_else() -> None:
    old = Usage(input=5, output=1, extra=Extra("messages", {"a": Raw(b"1"), "b": Raw(b"2")}))
    new = Usage(output=9, extra=Extra("messages", {"b": Raw(b"3")}))
    assert merge_usage(old, new) == Usage(
        input=5, output=9, extra=Extra("messages", {"a": Raw(b"1"), "b": Raw(b"3")})
    )
    assert merge_usage(old, Usage(output=0)) == Usage(input=5, output=0, extra=old.extra)
    assert merge_usage(old, Usage(extra=EXTRA)).extra == EXTRA
    assert merge_usage(Usage(input=1), new) == Usage(input=1, output=9, extra=new.extra)
    assert merge_usage(None, new) is new


def test_reports_with_ever_other_fields_do_not_grow_without_end() -> None:
    merged = Usage()
    for number in range(1_000):
        report = Usage(output=number, extra=Extra("chat", {f"field_{number}": Raw(b"1")}))
        merged = merge_usage(merged, report)
        assert merged.extra is not None
        assert len(merged.extra.fields) <= MAX_FIELDS + 1
        assert f"field_{number}" in merged.extra.fields
    assert merged.output == 999


def test_usage_adds_up_and_what_nobody_states_stays_unstated() -> None:
    total = add_usage(Usage(), Usage(input=1, cached=1))
    total = add_usage(total, None)
    total = add_usage(total, Usage(input=2, output=3))
    assert total == Usage(input=3, output=3, cached=1)


def test_tokens_are_what_the_provider_says_they_are() -> None:
    assert token_count(None) == 0
    assert token_count(Usage(input=2, output=3)) == 5
    assert token_count(Usage(input=2, output=3, total=7)) == 7
    assert token_count(Usage()) == 0


def test_a_report_replaces_what_it_names_and_keeps_the_rest() -> None:
    old = Limits(
        windows=(LimitWindow(name="primary", used_percent=1), LimitWindow(name="x/primary")),
        has_credits=True,
        balance="5",
    )
    new = Limits(windows=(LimitWindow(name="primary", used_percent=2),), balance="4")
    merged = merge_limits(old, new)
    assert {window.name: window.used_percent for window in merged.windows} == {
        "primary": 2,
        "x/primary": None,
    }
    assert (merged.has_credits, merged.unlimited, merged.balance) == (True, None, "4")
    assert merge_limits(None, new) is new


def test_windows_of_limits_are_merged_up_to_a_number_of_them() -> None:
    known = None
    for number in range(10 * MAX_FIELDS):
        known = merge_limits(known, Limits(windows=(LimitWindow(name=str(number)),)))
    assert known is not None
    names = [window.name for window in known.windows]
    assert (len(names), names[0]) == (MAX_FIELDS, str(10 * MAX_FIELDS - 1))


def test_inputs_are_hashed_as_their_bytes_and_only_if_somebody_wants_it() -> None:
    call = Call(call_id="c", name="f", input='{"city":"Zürich"}')
    events: list[Event] = [Started("r", "m"), PartEnded(0, call)]
    data = call.input.encode()
    hashes = tally_of(events, hashes=True).hashes
    assert hashes == [InputHash(len(data), sha256(data).hexdigest())]
    assert tally_of(events).hashes is None
    assert (tally_of(events).response_id, tally_of(events).model) == ("r", "m")
    # Half of a pair, which a model may write, has no UTF-8.
    assert hash_input("\ud83d").bytes == 3


def test_as_many_inputs_are_hashed_as_calls_are_noted() -> None:
    tally = make_tally(hashes=True)
    for _ in range(MAX_NOTED + 5):
        tally.note_call(Call(call_id="c", name="f", input="{}"))
    assert len(tally.hashes or ()) == len(tally.calls) == MAX_NOTED
