"""Records from events of several channels."""

import pytest

from dragoman.model.events import Event, InputDelta, PartEnded, PartStarted, TextDelta
from dragoman.model.parts import Call, PartStatus, Text
from dragoman.toolcalls.ledger import Changes, Ledger, is_same_json
from dragoman.toolcalls.records import IngestResult


def call(
    text: str = "{}", call_id: str = "c", name: str = "f", status: PartStatus = "completed"
) -> Call:
    return Call(call_id=call_id, name=name, input=text, status=status)


def start(part: int = 0, call_id: str = "c", name: str = "f") -> Event:
    return PartStarted(part, call("", call_id, name, "in_progress"))


def end(
    text: str,
    part: int = 0,
    call_id: str = "c",
    name: str = "f",
    *,
    status: PartStatus = "completed",
    amended: bool = False,
) -> Event:
    return PartEnded(part, call(text, call_id, name, status), amended)


def absorb(ledger: Ledger, channel: int, *events: Event) -> IngestResult:
    changes = Changes()
    ledger.absorb(channel, events, changes)
    return changes.result()


def confirm(ledger: Ledger, channel: int, *calls: Call) -> IngestResult:
    changes = Changes()
    ledger.confirm(channel, calls, changes)
    return changes.result()


def shown(ledger: Ledger) -> list[tuple[str, str, str]]:
    return [(record.id, record.arguments, record.reason) for record in ledger.snapshot()]


def test_one_payload_gives_one_delta_per_call() -> None:
    ledger = Ledger(3)
    result = absorb(
        ledger,
        1,
        start(0, "a"),
        InputDelta(0, "{"),
        start(1, "b"),
        InputDelta(0, '"x"'),
        InputDelta(1, "{}"),
    )
    assert [(delta.index, delta.id, delta.arguments_delta) for delta in result.deltas] == [
        (0, "a", '{"x"'),
        (1, "b", "{}"),
    ]
    assert all(delta.is_first and delta.choice_index == 3 for delta in result.deltas)
    (later,) = absorb(ledger, 1, InputDelta(0, ":1}")).deltas
    assert not later.is_first
    assert (later.arguments_delta, later.arguments) == (":1}", '{"x":1}')


def test_closing_a_call_makes_it_executable_and_is_no_delta() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, "{}"))
    assert shown(ledger) == [("c", "{}", "not_closed")]
    result = absorb(ledger, 1, end("{}"))
    assert (result.updated, result.deltas) == (False, ())
    assert [(record.id, record.executable, record.reason) for record in result.closed] == [
        ("c", True, "complete")
    ]


def test_call_that_ends_incomplete_stays_open() -> None:
    ledger = Ledger()
    result = absorb(ledger, 1, start(), InputDelta(0, "{"), end("{", status="incomplete"))
    assert result.closed == ()
    assert shown(ledger) == [("c", "{", "not_closed")]


def test_amended_call_says_so_and_old_deltas_keep_their_text() -> None:
    ledger = Ledger()
    (before,) = absorb(ledger, 1, start(), InputDelta(0, '{"a":1}')).deltas
    (after,) = absorb(ledger, 1, end('{"a":2}', amended=True)).deltas
    assert before.arguments == '{"a":1}'
    assert (after.amended, after.arguments_delta, after.arguments) == (True, "", '{"a":2}')
    assert shown(ledger) == [("c", '{"a":2}', "amended")]
    assert ledger.found == []


def test_amended_text_that_is_no_json_is_not_executable() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, "{}"), end("{", amended=True))
    assert shown(ledger) == [("c", "{", "invalid_json")]


def test_providers_own_calls_and_texts_make_no_record() -> None:
    ledger = Ledger()
    own = Call(call_id="s", name="web_search", executor="provider", status="in_progress")
    done = Call(call_id="s", name="web_search", executor="provider", input="{}")
    result = absorb(
        ledger,
        1,
        PartStarted(0, own),
        InputDelta(0, "{}"),
        PartEnded(0, done),
        PartStarted(1, Text(status="in_progress")),
        TextDelta(1, "x"),
        PartEnded(1, Text(text="x")),
    )
    assert result == IngestResult()
    assert len(ledger) == 0


def test_second_channel_of_a_call_adds_nothing() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, '{"a": 1}'), end('{"a": 1}'))
    assert (
        absorb(ledger, 2, start(5), InputDelta(5, '{"a":1}'), end('{"a":1}', 5)) == IngestResult()
    )
    assert shown(ledger) == [("c", '{"a": 1}', "complete")]


def test_second_channel_closes_what_the_first_left_open() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, '{"a"'), end('{"a"', status="incomplete"))
    result = absorb(ledger, 2, start(), InputDelta(0, '{"a":1}'), end('{"a":1}'))
    assert [delta.arguments_delta for delta in result.deltas] == [":1}"]
    assert [record.id for record in result.closed] == ["c"]


def test_second_channel_that_is_cut_changes_nothing() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, "{"))
    absorb(ledger, 2, start(), InputDelta(0, "{}"), end("{}", status="incomplete"))
    assert shown(ledger) == [("c", "{", "not_closed")]


def test_second_channel_that_disagrees_wins_and_is_reported() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, '{"a":1}'), end('{"a":1}'))
    (delta,) = absorb(ledger, 2, start(), end('{"a":2}')).deltas
    assert (delta.amended, delta.arguments) == (True, '{"a":2}')
    assert shown(ledger) == [("c", '{"a":2}', "amended")]
    assert [kind for kind, _ in ledger.found] == ["input_disagrees"]


def test_owner_that_goes_on_after_another_closed_the_call_is_heard_only_at_its_end() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, '{"a"'))
    absorb(ledger, 2, start(), end('{"a":1}'))
    assert absorb(ledger, 1, InputDelta(0, ":1}")) == IngestResult()
    assert absorb(ledger, 1, end('{"a":1}')) == IngestResult()
    assert shown(ledger) == [("c", '{"a":1}', "complete")]


def test_message_has_the_last_word() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, '{"a":1}'))
    confirm(ledger, 2, call('{"a":2}'))
    assert absorb(ledger, 1, end('{"a":1}')) == IngestResult()
    assert shown(ledger) == [("c", '{"a":2}', "amended")]


def test_stream_closes_what_a_message_left_open() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, "{"))
    confirm(ledger, 2, call("{", status="incomplete"))
    absorb(ledger, 1, InputDelta(0, "}"), end("{}"))
    assert shown(ledger) == [("c", "{}", "complete")]


def test_two_parts_of_one_channel_are_two_calls() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(0), end("", 0), start(1), InputDelta(1, "{}"), end("{}", 1))
    assert [record.id for record in ledger.snapshot()] == ["c", "c"]
    assert [record.index for record in ledger.snapshot()] == [0, 1]


def test_same_id_with_another_name_is_another_call() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start())
    absorb(ledger, 2, start(0, "c", "g"))
    confirm(ledger, 3, call("{}", "c", "h"))
    assert [record.name for record in ledger.snapshot()] == ["f", "g", "h"]


def test_message_that_repeats_streamed_calls_adds_nothing_and_closes_them() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(0, "a"), InputDelta(0, "{}"), start(1, "b"), InputDelta(1, '{"x":1}'))
    result = confirm(ledger, 2, call("{}", "a"), call('{"x":1}', "b"))
    assert not result.updated
    assert [record.id for record in result.closed] == ["a", "b"]
    assert confirm(ledger, 3, call("{}", "a"), call('{"x":1}', "b")) == IngestResult()


def test_message_adds_the_calls_that_were_not_streamed() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(0, "a"), InputDelta(0, "{}"))
    result = confirm(ledger, 2, call("{}", "b", "g"), call("{}", "a"))
    assert [(delta.id, delta.arguments) for delta in result.deltas] == [("b", "{}")]
    assert [record.id for record in ledger.snapshot()] == ["a", "b"]


@pytest.mark.parametrize("streamed", ['{"x":1}', '{"x"', "", '{"x": 1}'])
def test_streamed_call_under_another_id_is_the_same_call(streamed: str) -> None:
    """M018: a server that parses its output twice gives the final message other ids."""
    ledger = Ledger()
    absorb(ledger, 1, start(0, "a"), *([InputDelta(0, streamed)] if streamed else []))
    confirm(ledger, 2, call('{"x":1}', "z"))
    (record,) = ledger.snapshot()
    assert (record.id, record.executable) == ("a", True)


def test_call_with_other_arguments_is_not_taken_for_a_streamed_one() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(0, "a"), InputDelta(0, '{"x":1}'), end('{"x":1}', 0, "a"))
    confirm(ledger, 2, call('{"x":2}', "z"))
    assert [record.id for record in ledger.snapshot()] == ["a", "z"]


def test_ids_are_matched_before_contents() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(0, "a"), InputDelta(0, "{}"))
    confirm(ledger, 2, call("{}", "z"), call("{}", "a"))
    assert [record.id for record in ledger.snapshot()] == ["a", "z"]


def test_call_confirmed_by_one_message_is_not_taken_by_the_next() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(0, "a"), InputDelta(0, "{}"))
    confirm(ledger, 2, call("{}", "a"))
    confirm(ledger, 3, call("{}", "b"))
    assert [record.id for record in ledger.snapshot()] == ["a", "b"]


def test_incomplete_call_of_a_message_is_recorded_as_it_is() -> None:
    ledger = Ledger()
    confirm(ledger, 1, call('{"a"', status="incomplete"))
    assert shown(ledger) == [("c", '{"a"', "not_closed")]


def test_freeform_texts_are_compared_as_texts() -> None:
    ledger = Ledger()
    custom = Call(call_id="c", name="f", kind="custom", input="[1]")
    absorb(
        ledger, 1, PartStarted(0, Call(call_id="c", name="f", kind="custom", status="in_progress"))
    )
    absorb(ledger, 1, InputDelta(0, "[ 1]"))
    confirm(ledger, 2, custom)
    assert shown(ledger) == [("c", "[1]", "amended")]


def test_snapshot_is_made_anew_only_after_a_change() -> None:
    ledger = Ledger()
    absorb(ledger, 1, start(), InputDelta(0, "{"))
    (before,) = ledger.snapshot()
    assert ledger.snapshot()[0] is before
    absorb(ledger, 1, InputDelta(0, "}"))
    assert ledger.snapshot()[0] is not before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": [true, null]}', '{"b":[true,null],"a":1}', True),
        ('{"a":1}', '{"a":1.0}', True),
        ('{"a":1}', '{"a":true}', False),
        ("[1]", "[1,2]", False),
        ('{"a":1}', '{"b":1}', False),
        ('{"a":"é"}', '{"a":"\\u00e9"}', True),
        ("{", "{", False),
        ("[[1]]", "[[2]]", False),
    ],
)
def test_texts_are_compared_as_json_values(one: str, other: str, same: bool) -> None:
    assert is_same_json(one, other) is same
