"""What the messages of an app-server mean: turns, texts, reasoning, costs and failures."""

import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codex_reading import (
    completed,
    note,
    raw_item,
    read,
    read_all,
    read_message,
    started,
    turn_completed,
)
from disagreements import find_disagreements
from dragoman._json import dumps
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.codex import ANSWER, PAUSE, CodexReader
from dragoman.errors import MalformedJson
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Outcome, Usage
from dragoman.model.parts import Call, Opaque, Reasoning, Seal, Text
from dragoman.sse import Frame

FIXTURE = Path(__file__).parent / "fixtures" / "parallel_calls.jsonl"
TRANSCRIPTS = Path(__file__).parents[5] / "shared" / "codex" / "transcripts"


def lines() -> list[bytes]:
    return FIXTURE.read_bytes().splitlines()


def read_fixture() -> tuple[CodexReader, list[Event]]:
    reader = CodexReader()
    events = [event for line in lines() for event in reader.read(Frame(line, line))]
    return reader, events


def text_of(outcome: Outcome) -> list[str]:
    return [part.text for part in outcome.choices[0].parts if isinstance(part, Text)]


def test_recorded_turn_folds_to_its_answer() -> None:
    reader, events = read_fixture()
    assert is_grammatical(events)
    assert reader.problems == []
    assert reader.over
    outcome = fold(events)
    assert (outcome.response_id, outcome.created, outcome.completed) == ("u1", 1800000000, True)
    (choice,) = outcome.choices
    assert choice.finish == "stop"
    reasoning, seal, paris, brest, answer = choice.parts
    assert reasoning == Reasoning(summary=("Two cities.",), content=("hm",), item_id="rs_1")
    assert seal == Reasoning(seals=(Seal("encrypted", "c2VhbA=="),), item_id="rs_1")
    assert paris == Call(
        call_id="call_A",
        name="get_weather",
        input='{"city": "Paris",  "n": 1.0}',
        item_id="fc_A",
    )
    assert brest == Call(
        call_id="call_B", name="get_tide", namespace="wx", input='{"port": "Brest"}'
    )
    assert isinstance(answer, Text)
    assert answer.text == "Paris 21C, Brest high."
    assert answer.extra is not None
    assert {name: bytes(raw) for name, raw in answer.extra.fields.items()} == {
        "phase": b'"final_answer"'
    }


def test_usage_is_the_turns_own_and_not_the_threads() -> None:
    _, events = read_fixture()
    assert fold(events).usage == Usage(
        input=55, output=20, cached=30, cache_write=0, reasoning=2, total=75
    )


def test_limits_that_came_before_the_turn_are_reported_with_it() -> None:
    _, events = read_fixture()
    started_at = next(at for at, event in enumerate(events) if isinstance(event, Started))
    assert isinstance(events[started_at + 1], LimitsReported)
    limits = fold(events).limits
    assert limits is not None
    assert [(window.name, window.used_percent) for window in limits.windows] == [("primary", 12.0)]


def test_messages_of_another_thread_say_nothing() -> None:
    _, events = read_fixture()
    assert "of another thread" not in repr(events)


def test_request_to_run_a_call_is_shown_with_its_request_id() -> None:
    _, events = read_fixture()
    asked = [event for event in events if isinstance(event, Progress)]
    shown = [
        (event.stage, event.part, {name: bytes(raw) for name, raw in event.extra.fields.items()})
        for event in asked
        if event.extra is not None
    ]
    assert shown == [
        ("item/tool/call", 2, {"id": b"0"}),
        ("item/tool/call", 3, {"id": b"1"}),
        ("rawResponse/completed", None, {"responseId": b'"resp_1"'}),
    ]


def test_answers_to_the_callers_own_requests_are_nobodys_events() -> None:
    assert read_message(CodexReader(), {"id": 1, "result": {"turn": {"id": "u"}}}) == ()
    assert CodexReader().read(Frame(b": x\n\n")) == ()


def test_line_that_is_no_object_is_malformed() -> None:
    with pytest.raises(MalformedJson):
        CodexReader().read_line(b"[1]")


def test_unknown_notification_is_kept_whole() -> None:
    reader = CodexReader()
    line = b'{"method": "thread/status/changed",\t"params": null}\n'
    (event,) = reader.read_line(line)
    assert isinstance(event, Noticed)
    assert (event.kind, event.dialect, event.name) == ("unknown", "codex", "thread/status/changed")
    assert event.raw is not None
    assert bytes(event.raw) == line.strip()


def test_reader_follows_the_first_turn_that_speaks() -> None:
    reader = CodexReader()
    read_message(reader, note("thread/status/changed", status={}))
    read_message(reader, started("agentMessage", "m", text=""))
    other = {"threadId": "t", "turnId": "u2", "itemId": "m", "delta": "x"}
    assert read_message(reader, {"method": "item/agentMessage/delta", "params": other}) == ()
    other = {"threadId": "t2", "turnId": "u", "itemId": "m", "delta": "x"}
    assert read_message(reader, {"method": "item/agentMessage/delta", "params": other}) == ()
    nobodys = {"itemId": "m", "delta": "x"}
    assert read_message(reader, {"method": "item/agentMessage/delta", "params": nobodys}) == (
        TextDelta(0, "x"),
    )


def test_injected_history_is_not_answer() -> None:
    reader = CodexReader()
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    params = {"threadId": "t", "turnId": "auto-compact-0", "item": item}
    assert read_message(reader, {"method": "rawResponseItem/completed", "params": params}) == ()
    assert read_message(reader, note("turn/started", turn={"id": "u"})) == (Started("u"),)


def test_text_is_emitted_as_it_comes() -> None:
    events, found = read(
        started("agentMessage", "m", text="Hel"),
        note("item/agentMessage/delta", itemId="m", delta="lo"),
        note("item/agentMessage/delta", itemId="m", delta=""),
        completed("agentMessage", "m", text="Hello!"),
        turn_completed(),
    )
    assert events == [
        Started("u"),
        PartStarted(0, Text(status="in_progress", item_id="m")),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        TextDelta(0, "!"),
        PartEnded(0, Text(text="Hello!", item_id="m")),
        Finished("stop", native="completed"),
        Completed(),
    ]
    assert found == []


def test_completed_text_that_contradicts_its_deltas_wins_and_says_so() -> None:
    events, found = read(
        started("agentMessage", "m"),
        note("item/agentMessage/delta", itemId="m", delta="Hello"),
        completed("agentMessage", "m", text="Bye"),
        turn_completed(),
    )
    (ended,) = [event for event in events if isinstance(event, PartEnded)]
    assert ended == PartEnded(0, Text(text="Bye", item_id="m"), amended=True)
    assert [kind for kind, _ in found] == ["text_disagrees"]


def test_completed_item_without_its_text_keeps_what_was_emitted() -> None:
    events, found = read(
        started("agentMessage", "m"),
        note("item/agentMessage/delta", itemId="m", delta="Hello"),
        completed("agentMessage", "m"),
        turn_completed(),
    )
    assert text_of(fold(events)) == ["Hello"]
    assert found == []


def test_delta_without_its_start_opens_the_item() -> None:
    events, found = read(
        note("item/agentMessage/delta", itemId="m", delta="Hi"),
        note("item/reasoning/textDelta", itemId="m", delta="hm", contentIndex=0),
        turn_completed("interrupted"),
    )
    parts = fold(events).choices[0].parts
    assert parts == (
        Text(text="Hi", item_id="m", status="incomplete"),
        Reasoning(content=("hm",), item_id="m", status="incomplete"),
    )
    assert [kind for kind, _ in found] == ["missing_start", "missing_start", "restarted_item"]


def test_item_that_comes_whole_is_emitted_whole_and_once() -> None:
    events, found = read(
        completed("agentMessage", "m", text="Hi"),
        completed("agentMessage", "m", text="Hi"),
        completed("reasoning", "r", summary=["a", "", 7, "b"], content=["c"]),
        raw_item("message", role="assistant", id="m", content=[{"text": "Hi"}]),
        raw_item("message", role="assistant", id="m2", content=[{"text": "a"}, {"text": "b"}]),
        raw_item("message", role="user", id="m3", content=[{"text": "no"}]),
        turn_completed(),
    )
    outcome = fold(events)
    assert text_of(outcome) == ["Hi", "ab"]
    assert outcome.choices[0].parts[1] == Reasoning(summary=("a", "b"), content=("c",), item_id="r")
    assert found == []


def test_summary_of_the_turn_stands_in_for_items_that_never_came() -> None:
    events, _ = read(
        note("turn/started", turn={"id": "u", "startedAt": 5}),
        turn_completed(items=[{"type": "agentMessage", "id": "m", "text": "Hi"}, {"type": "plan"}]),
    )
    assert text_of(fold(events)) == ["Hi"]


def test_half_a_character_waits_for_the_other_half() -> None:
    events, _ = read(
        started("agentMessage", "m"),
        note("item/agentMessage/delta", itemId="m", delta="a\ud83d"),
        note("item/agentMessage/delta", itemId="m", delta="\ude00b\ud83d"),
        turn_completed("interrupted"),
    )
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert deltas == ["a", "😀b", "\ufffd"]


DELTA = b'{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","itemId":"%b","delta":"%b"}}'


@pytest.mark.parametrize(
    "line",
    [
        DELTA % (b"m", b"b"),
        DELTA.replace(b'"threadId":"t",', b"") % (b"m", b"b"),
        DELTA.replace(b'"method":', b'"method": ') % (b"m", b"b"),
        DELTA % (b"m", b"\\u0062"),
    ],
)
def test_text_is_the_same_however_its_message_is_written(line: bytes) -> None:
    reader = CodexReader()
    read_all(reader, [started("agentMessage", "m", text="a")])
    assert reader.read_line(line) == (TextDelta(0, "b"),)
    assert reader.end()[0] == PartEnded(0, Text(text="ab", item_id="m", status="incomplete"))
    assert reader.read_line(line) == ()


def test_uncommon_text_deltas_are_read_with_care() -> None:
    reader = CodexReader()
    read_all(reader, [started("agentMessage", "m"), started("reasoning", "r")])
    assert reader.read_line(DELTA % (b"m", b"")) == ()
    assert reader.read_line(DELTA.replace(b'"t"', b'"t2"') % (b"m", b"x")) == ()
    assert reader.read_line(DELTA % (b"m", b"\\ud83d")) == ()
    assert reader.read_line(DELTA % (b"m", b"\\ude00")) == (TextDelta(0, "😀"),)
    assert reader.problems == []
    assert len(reader.read_line(DELTA % (b"r", b"x"))) == 3
    assert [kind for kind, _ in reader.problems] == ["missing_start", "restarted_item"]
    with pytest.raises(MalformedJson):
        reader.read_line(DELTA[:-1] % (b"m", b"x"))


def test_retry_ends_the_first_attempt_and_starts_another() -> None:
    error = {"message": "Reconnecting... 1/5"}
    events, found = read(
        started("agentMessage", "m"),
        note("item/agentMessage/delta", itemId="m", delta="partial"),
        note("error", error=error, willRetry=True),
        started("agentMessage", "m"),
        note("item/agentMessage/delta", itemId="m", delta="whole"),
        completed("agentMessage", "m", text="whole"),
        turn_completed(),
    )
    assert fold(events).choices[0].parts == (
        Text(text="partial", item_id="m", status="incomplete"),
        Text(text="whole", item_id="m"),
    )
    assert [event.stage for event in events if isinstance(event, Progress)] == ["error"]
    assert found == []


def test_item_started_twice_is_two_parts() -> None:
    events, found = read(
        started("agentMessage", "m"),
        note("item/agentMessage/delta", itemId="m", delta="one"),
        started("agentMessage", "m"),
        completed("agentMessage", "m", text="two"),
        turn_completed(),
    )
    assert text_of(fold(events)) == ["one", "two"]
    assert [kind for kind, _ in found] == ["restarted_item"]


def test_reasoning_entries_are_kept_apart() -> None:
    events, found = read(
        started("reasoning", "r", summary=[], content=[]),
        note("item/reasoning/summaryTextDelta", itemId="r", delta="a", summaryIndex=0),
        note("item/reasoning/summaryTextDelta", itemId="r", delta="b", summaryIndex=1),
        note("item/reasoning/textDelta", itemId="r", delta="c", contentIndex=0),
        completed("reasoning", "r", summary=["a!", "b"], content=[]),
        turn_completed(),
    )
    assert [event for event in events if isinstance(event, ReasoningDelta)] == [
        ReasoningDelta(0, "a", "summary", 0),
        ReasoningDelta(0, "b", "summary", 1),
        ReasoningDelta(0, "c", "content", 0),
        ReasoningDelta(0, "!", "summary", 0),
    ]
    assert fold(events).choices[0].parts == (
        Reasoning(summary=("a!", "b"), content=("c",), item_id="r"),
    )
    assert found == []


def test_seal_of_open_reasoning_joins_it() -> None:
    events, _ = read(
        started("reasoning", "r"),
        raw_item("reasoning", id="r", encrypted_content="seal"),
        raw_item("reasoning", id="r"),
        completed("reasoning", "r", summary=["a"]),
        turn_completed(),
    )
    assert fold(events).choices[0].parts == (
        Reasoning(summary=("a",), seals=(Seal("encrypted", "seal"),), item_id="r"),
    )


def test_what_codex_does_itself_is_carried_whole() -> None:
    item = {"type": "commandExecution", "id": "call_1", "command": "ls", "exitCode": 0}
    events, found = read(
        note("item/started", item=item),
        note("item/completed", item=item),
        note("item/completed", item=None),
        raw_item("web_search_call", id="ws"),
        turn_completed(),
    )
    (part,) = fold(events).choices[0].parts
    assert isinstance(part, Opaque)
    assert (part.dialect, part.type, part.item_id) == ("codex", "commandExecution", "call_1")
    assert json.loads(bytes(part.raw)) == item
    assert [event.stage for event in events if isinstance(event, Progress)] == ["item/started"]
    assert [event.name for event in events if isinstance(event, Noticed)] == [
        "rawResponseItem/completed"
    ]
    assert found == []


def test_probe_for_an_unknown_mcp_server_is_not_shown() -> None:
    events, _ = read(
        raw_item(
            "function_call_output",
            call_id="x",
            output="resources/list failed: unknown MCP server 'obsidian'",
        ),
        completed(
            "mcpToolCall", "x", error={"message": "resources/list failed: Unknown MCP server 'o'"}
        ),
        turn_completed(),
    )
    assert fold(events).choices[0].parts == ()


def test_turn_that_ends_with_an_open_item_leaves_it_incomplete() -> None:
    events, found = read(
        started("agentMessage", "m"),
        note("item/agentMessage/delta", itemId="m", delta="cut"),
        turn_completed(),
    )
    assert fold(events).choices[0].parts == (Text(text="cut", item_id="m", status="incomplete"),)
    assert [kind for kind, _ in found] == ["inferred_end"]


def test_interrupted_turn_is_cancelled() -> None:
    events, found = read(note("turn/started"), turn_completed("interrupted"))
    assert events[-2] == Finished("cancelled", native="interrupted")
    assert found == []


@pytest.mark.parametrize(
    ("info", "kind", "status", "code"),
    [
        ("usageLimitExceeded", "quota", None, "usageLimitExceeded"),
        ("contextWindowExceeded", "context_length", None, "contextWindowExceeded"),
        ("other", "upstream", None, "other"),
        (
            {"httpConnectionFailed": {"httpStatusCode": 401}},
            "authentication",
            401,
            "httpConnectionFailed",
        ),
        (
            {"responseStreamDisconnected": {"httpStatusCode": None}},
            "truncated",
            None,
            "responseStreamDisconnected",
        ),
        (None, "upstream", None, None),
        (7, "upstream", None, None),
    ],
)
def test_failed_turn_fails_the_answer(
    info: object, kind: str, status: int | None, code: str | None
) -> None:
    error = {"message": "no", "codexErrorInfo": info}
    events, found = read(
        started("agentMessage", "m"),
        note("error", error=error, willRetry=False),
        turn_completed("failed", error=error),
    )
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.kind, failed.error.message) == (kind, "no")
    assert (failed.error.status, failed.error.code) == (status, code)
    assert failed.error.dialect == "codex"
    assert failed.error.raw is not None
    assert json.loads(bytes(failed.error.raw)) == error
    assert found == []


def test_failed_turn_without_its_error_takes_the_one_reported_before() -> None:
    events, _ = read(
        note("error", error={"message": "before"}, willRetry=False),
        turn_completed("failed", error=None),
    )
    assert isinstance(events[-1], Failed)
    assert events[-1].error.message == "before"
    events, _ = read(turn_completed("failed"))
    assert isinstance(events[-1], Failed)
    assert events[-1].error.message == "the turn failed without saying why"


def test_stream_that_ends_early_is_truncated() -> None:
    events, found = read(started("agentMessage", "m"))
    assert isinstance(events[-1], Failed)
    assert events[-1].error.kind == "truncated"
    assert [kind for kind, _ in found] == ["cut_stream"]


def test_stream_that_ends_after_an_error_fails_with_it() -> None:
    events, found = read(note("error", error={"message": "broken"}))
    assert isinstance(events[-1], Failed)
    assert events[-1].error.message == "broken"
    assert found == []


def test_failing_from_outside_closes_what_is_open() -> None:
    reader = CodexReader()
    read_message(reader, started("agentMessage", "m"))
    error = ErrorInfo(kind="timeout", message="too slow")
    assert reader.fail(error) == (
        PartEnded(0, Text(item_id="m", status="incomplete")),
        Failed(error),
    )
    assert reader.over
    assert reader.end() == ()
    assert read_message(reader, started("agentMessage", "m")) == ()


def test_other_families_of_limits_carry_their_name() -> None:
    reader = CodexReader()
    read_message(reader, note("turn/started"))
    window = {"usedPercent": 1.5, "windowDurationMins": 5, "resetsAt": None}
    credits_ = {"hasCredits": True, "unlimited": False, "balance": "3"}
    (event,) = read_message(
        reader,
        {
            "method": "account/rateLimits/updated",
            "params": {
                "rateLimits": {"limitId": "bengal", "secondary": window, "credits": credits_}
            },
        },
    )
    assert isinstance(event, LimitsReported)
    (shown,) = event.limits.windows
    assert (shown.name, shown.used_percent, shown.window_minutes) == ("bengal/secondary", 1.5, 5)
    assert (event.limits.has_credits, event.limits.unlimited, event.limits.balance) == (
        True,
        False,
        "3",
    )


def test_usage_without_the_threads_sum_is_the_last_responses() -> None:
    reader = CodexReader()
    (_, event) = read_message(
        reader,
        note(
            "thread/tokenUsage/updated",
            tokenUsage={"last": {"totalTokens": 3, "inputTokens": True}},
        ),
    )
    assert event == UsageReported(Usage(total=3))
    assert read_message(reader, note("thread/tokenUsage/updated", tokenUsage={})) == ()


def test_paused_turn_goes_on_in_another_answer() -> None:
    call = {"tool": "f", "arguments": {"a": 1}}
    events = read_all(
        CodexReader(),
        [
            note("turn/started", turn={"id": "u"}),
            started("dynamicToolCall", "c", **call),
            {"method": PAUSE},
        ],
    )
    assert is_grammatical(events)
    assert fold(events).choices[0].finish == "tool_calls"
    more = read_all(
        CodexReader(),
        [
            {"method": ANSWER, "params": {"answerId": "a", "calls": ["c"]}},
            note("item/tool/call", callId="c", **call),
            completed("dynamicToolCall", "c", **call),
            completed("agentMessage", "m", text="done"),
            {"method": "turn/completed", "params": {"turn": {"id": "other"}}},
            turn_completed(),
        ],
    )
    assert is_grammatical(more)
    outcome = fold(more)
    assert outcome.choices[0].parts == (Text(text="done", item_id="m"),)
    assert outcome.choices[0].finish == "stop"


def test_pausing_without_a_call_is_a_plain_end() -> None:
    pause = {"method": PAUSE}
    assert read_message(CodexReader(), pause) == (
        Started(),
        Finished("stop", inferred=True),
        Completed(),
    )


@pytest.mark.parametrize("line_number", range(len(lines())))
def test_no_field_of_any_message_is_needed(line_number: int) -> None:
    """Each object of each message is emptied, and each field made null or another type: nothing raises."""
    message = json.loads(lines()[line_number])
    for broken in _broken(message):
        reader = CodexReader()
        events: list[Event] = []
        for line in lines()[:line_number]:
            events.extend(reader.read_line(line))
        events.extend(reader.read_line(dumps(broken)))
        for line in lines()[line_number + 1 :]:
            events.extend(reader.read_line(line))
        events.extend(reader.end())
        assert is_grammatical(events), broken


@settings(max_examples=100, deadline=None)
@given(order=st.lists(st.sampled_from(lines()), max_size=60))
def test_messages_in_any_order_make_a_grammatical_answer(order: list[bytes]) -> None:
    reader = CodexReader()
    events = [event for line in order for event in reader.read_line(line)]
    events.extend(reader.end())
    assert is_grammatical(events)
    assert find_disagreements(events) == ()


def _broken(value: object) -> list[object]:
    others: tuple[object, ...] = (None, 7, "x", [], {})
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        found: list[object] = [{}]
        for key, entry in fields.items():
            rest = {name: field for name, field in fields.items() if name != key}
            found.append(rest)
            found.extend({**fields, key: other} for other in others)
            found.extend({**fields, key: inner} for inner in _broken(entry))
        return found
    return []


def test_recorded_transcripts_fold_to_clean_answers() -> None:
    turns = 0
    for path in sorted(TRANSCRIPTS.glob("*.jsonl")):
        recorded = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        messages = [entry["msg"] for entry in recorded if entry["dir"] == "s2c"]
        starts = [n for n, each in enumerate(messages) if each.get("method") == "turn/started"]
        for start in starts:
            reader = CodexReader()
            events = [*read_all(reader, messages[start:]), *reader.end()]
            turns += 1
            assert is_grammatical(events), path.name
            outcome = fold(events)
            is_cut = path.name == "hold_disconnect.jsonl"
            assert [kind for kind, _ in reader.problems] == ["cut_stream"] * is_cut, path.name
            assert outcome.completed or outcome.error is not None, path.name
            for part in (part for choice in outcome.choices for part in choice.parts):
                if isinstance(part, Call):
                    assert json.loads(part.input), path.name
    assert turns >= 40 or not TRANSCRIPTS.is_dir()


def test_no_frame_is_understood_without_being_read() -> None:
    reader = CodexReader()
    assert reader.find_delta(b"data: ", b'{"method":"x"}') is None
