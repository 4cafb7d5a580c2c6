"""What a person sees of a run: words, lines of calls, ends; nothing that a model wrote controls the terminal.

And what a program reads: event lines, one JSON object each, whole, and safe to look at.
"""

import asyncio
import io
import json
from collections.abc import Sequence

import pytest

from dragoman.cli.run.display import (
    Display,
    EventLines,
    SessionStarted,
    call_in_words,
    limits_in_words,
    usage_in_words,
)
from dragoman.cli.run.live_screen import LiveScreen, seconds
from dragoman.engine.events import (
    CallReported,
    CallSettled,
    CallStarted,
    Compacted,
    EngineEvent,
    ModelSpoke,
    Retried,
    RunEnd,
    RunEnded,
    Settlement,
    TurnEnded,
    TurnStarted,
)
from dragoman.model.events import (
    Event,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.outcome import ErrorInfo, Limits, LimitWindow, Usage
from dragoman.model.parts import Call, Media, Opaque, Reasoning, Refusal, Result, Text

CALL = Call(call_id="call_1", name="read", input='{"path": "README.md", "limit": 5}')
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"


def show(
    *events: EngineEvent, is_live: bool = False, is_quiet: bool = False, has_colours: bool = False
) -> str:
    stream = io.StringIO()
    screen = LiveScreen(stream, is_live=is_live, has_colours=has_colours, clock=lambda: 0.0)
    display = Display(screen, is_quiet=is_quiet, clock=lambda: 0.0)

    async def observe() -> None:
        for event in events:
            await display.observe(event)
            display.tick()
            if isinstance(event, RunEnded):
                display.end(event, "the-session")

    asyncio.run(observe())
    return stream.getvalue()


def spoke(*events: Event) -> Sequence[ModelSpoke]:
    return [ModelSpoke(event) for event in events]


def settled(text: str, how: Settlement = "done", call: Call = CALL) -> CallSettled:
    result = Result(call_id=call.call_id, content=(Text(text=text),), is_error=how != "done")
    return CallSettled(1, call, result, how, 1.25)


def ended(reason: RunEnd = "answered", error: ErrorInfo | None = None) -> RunEnded:
    total = Usage(input=1234, output=56, cached=800)
    return RunEnded(reason=reason, turns=(), total=total, turn_count=2, error=error)


def test_markdown_is_rendered_where_a_person_sees_styles_and_raw_elsewhere() -> None:
    deltas = [TextDelta(0, text) for text in ("# T\n- **bo", "ld**", " and *open")]
    events: list[EngineEvent] = [TurnStarted(1), *spoke(*deltas), ended()]
    styled = show(*events, is_live=True, has_colours=True)
    assert "\x1b[1;36mT\x1b[0m\n• \x1b[1mbold\x1b[0m and *open\n" in styled
    for is_live, has_colours in ((False, True), (False, False), (True, False)):
        raw = show(*events, is_live=is_live, has_colours=has_colours)
        assert "# T\n- **bold** and *open" in raw


def test_markdown_with_escape_codes_in_it_still_controls_nothing() -> None:
    text = f"**{HOSTILE}** `{HOSTILE}` [{HOSTILE}](https://{HOSTILE})"
    shown = show(
        TurnStarted(1),
        *spoke(TextDelta(0, text)),
        ended(),
        is_live=True,
        has_colours=True,
    )
    assert "\x1b]0" not in shown
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown
    assert "\x9b" not in shown


def test_words_calls_and_counts_are_lines_where_there_is_no_terminal() -> None:
    limits = Limits(windows=(LimitWindow(name="5h", used_percent=34.4),))
    shown = show(
        TurnStarted(1),
        *spoke(TextDelta(0, "Let me "), TextDelta(0, "see.")),
        CallStarted(1, CALL),
        CallReported("call_1", "half"),
        settled("# Title\nwords"),
        TurnEnded(1, "tool_calls", None, Usage(), limits),
        TurnStarted(2),
        *spoke(TextDelta(0, "Done.\n")),
        TurnEnded(2, "stop", None, Usage()),
        ended(),
    )
    assert shown == (
        "Let me see.\n"
        "✓ read README.md limit=5  1.2 s\n"
        "  │ # Title\n"
        "  │ words\n"
        "Done.\n"
        "2 turns, 1 call · 1,234 tokens in (800 cached), 56 out · 5h 34% used · 0.0 s · session the-session\n"
    )


def test_quiet_shows_the_words_of_the_model_alone() -> None:
    shown = show(
        TurnStarted(1),
        CallStarted(1, CALL),
        settled("result"),
        *spoke(TextDelta(0, "Done.")),
        ended(),
        is_quiet=True,
    )
    assert shown == "Done.\n"


@pytest.mark.parametrize("is_live", [False, True])
def test_nothing_that_a_model_or_a_tool_wrote_reaches_the_terminal_raw(is_live: bool) -> None:
    call = Call(call_id="call_1", name=f"read{HOSTILE}", input=f'{{"path": "{HOSTILE}"}}')
    error = ErrorInfo(kind="upstream", message=HOSTILE)
    shown = show(
        TurnStarted(1),
        *spoke(
            PartStarted(0, Text()),
            TextDelta(0, HOSTILE),
            PartEnded(1, Refusal(text=HOSTILE)),
            PartStarted(2, call),
            InputDelta(2, HOSTILE),
            PartEnded(2, call),
        ),
        CallStarted(1, call),
        CallReported("call_1", HOSTILE),
        settled(HOSTILE, "failed", call),
        Retried(1, error, 0.5),
        TurnEnded(
            1, "stop", None, Usage(), Limits(windows=(LimitWindow(name=HOSTILE, used_percent=1),))
        ),
        ended("failed", error),
        is_live=is_live,
    )
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert not set(shown) & set("\x07\u202e\x9b")
    assert is_live or "\x1b" not in shown


def test_line_end_cut_in_two_is_one_line_end() -> None:
    shown = show(TurnStarted(1), *spoke(TextDelta(0, "a\r"), TextDelta(0, "\nb\rc")))
    assert shown == "a\nb\\rc"


def test_text_without_deltas_is_shown_once() -> None:
    whole = spoke(PartEnded(0, Text(text="all of it")))
    assert show(TurnStarted(1), *whole) == "all of it"
    assert show(TurnStarted(1), *spoke(TextDelta(0, "all of it")), *whole) == "all of it"


def test_rows_report_what_goes_on() -> None:
    shown = show(
        TurnStarted(1),
        *spoke(ReasoningDelta(0, "hm"), PartEnded(0, Reasoning(summary=("hm",)))),
        *spoke(PartStarted(1, CALL), InputDelta(1, "12345")),
        CallStarted(1, CALL),
        CallReported("call_1", "half of it"),
        is_live=True,
    )
    for row in ("waiting for the model", "thinking", "read …", "5 characters", "half of it"):
        assert row in shown


def test_long_result_is_folded_and_its_size_is_reported() -> None:
    shown = show(settled("\n".join(f"line {number}" for number in range(100))))
    assert shown.count("\n") == 6
    assert "100 lines, 789 characters in all" in shown


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("failed", "✗ read README.md limit=5  1.2 s\n  │ failed: why\n"),
        ("refused", "✗ read README.md limit=5  1.2 s\n  │ not run: why\n"),
        ("timed_out", "✗ read README.md limit=5  1.2 s\n  │ timed out: why\n"),
        ("aborted", "✗ read README.md limit=5  1.2 s\n  │ stopped: why\n"),
    ],
)
def test_call_that_did_not_succeed_says_how(how: Settlement, says: str) -> None:
    assert show(settled("why", how)) == says


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("max_turns", "the limit of turns"),
        ("max_tokens", "the limit of tokens"),
        ("max_time", "the limit of time"),
        ("no_progress", "without progress"),
        ("cancelled", "interrupted"),
        ("failed", "failed: the key is wrong"),
        ("handed_over", "is not run here"),
    ],
)
def test_end_before_the_answer_says_why(reason: RunEnd, says: str) -> None:
    error = ErrorInfo(kind="authentication", message="the key is wrong")
    assert says in show(ended(reason, error)).splitlines()[0]


def test_retries_and_summaries_are_noted() -> None:
    shown = show(
        Retried(1, ErrorInfo(kind="overloaded", message="busy"), 0.5), Compacted(9000, 40, 7)
    )
    assert "busy; asking again in 0.5 s" in shown
    assert "40 turns became 7" in shown


def test_call_that_the_provider_runs_is_noted() -> None:
    call = Call(call_id="ws_1", name="web_search", kind="web_search", executor="provider")
    shown = show(TurnStarted(1), *spoke(PartStarted(0, call), PartEnded(0, call)))
    assert shown == "web_search (run by the provider)\n"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (Call(call_id="c", name="shell", input='{"command": "ls -l"}'), "shell ls -l"),
        (Call(call_id="c", name="t", input="{}"), "t"),
        (Call(call_id="c", name="t", input="not json\nat all", kind="custom"), "t not json at all"),
        (Call(call_id="c", name="t", input="[1, 2]"), "t [1, 2]"),
        (Call(call_id="c", name="t", namespace="files", input='{"a": 1, "b": null}'), "files.t 1 b=None"),
        (Call(call_id="c", name="t", input='{"a":1,"b":2,"c":3,"d":4,"e":5}'), "t 1 b=2 c=3 d=4 …"),
    ],
)  # fmt: skip
def test_call_in_words(call: Call, says: str) -> None:
    assert call_in_words(call) == says


def test_words_for_a_huge_call_are_few() -> None:
    for size in (10_000, 2_000_000):
        call = Call(call_id="c", name="write", input=f'{{"path": "a", "content": "{"x" * size}"}}')
        assert len(call_in_words(call)) < 1100


def test_counts_and_times_in_words() -> None:
    assert usage_in_words(Usage()) == ""
    assert usage_in_words(Usage(input=10)) == "10 tokens in, 0 out"
    assert seconds(59.94) == "59.9 s"
    assert seconds(61) == "1 min 01 s"
    window = LimitWindow(name="requests", remaining=12, limit=100)
    assert limits_in_words(Limits(windows=(window,))) == "requests 12 of 100 left"
    assert limits_in_words(Limits(windows=(LimitWindow(name="empty"),))) == ""


def test_pictures_and_foreign_content_are_named() -> None:
    content = (
        Media(kind="image", media_type="image/png", data="AAAA"),
        Opaque(dialect="responses", type="thing", raw=b"{}"),  # type: ignore[arg-type]
    )
    event = CallSettled(1, CALL, Result(call_id="call_1", content=content), "done", 0.0)
    assert "[image image/png]\n  │ [thing]" in show(event)


def test_lines_are_json_and_hold_no_bare_control_character(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    text = "one\ntwo\x1b[2J\x9b31m\u202e\u2028é\x7f"
    lines = EventLines()
    lines.start(
        SessionStarted(session="s", root="/", model=text, upstreams=("a",), tools=("read",))
    )
    asyncio.run(lines.observe(ModelSpoke(TextDelta(0, text))))
    written = capfdbinary.readouterr().out
    first, second = (json.loads(line) for line in written.splitlines())
    assert (first["type"], first["model"]) == ("session_started", text)
    assert (second["type"], second["event"]["text"]) == ("model_spoke", text)
    assert not set(written.decode()) & set("\x1b\x9b\u202e\u2028\x7f")
    assert "é" in written.decode()


def test_notes_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    EventLines().note("a note\x1b[2J")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "dragoman: a note\\x1b[2J\n")
