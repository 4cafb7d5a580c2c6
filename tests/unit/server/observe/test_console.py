"""The log line for a person: at most 120 columns, and details below it only if something is not as it should be."""

import re

import pytest

from dragoman.gateway.hosted.merge import HostedCall
from dragoman.model.outcome import Loss, Problem, Repair
from dragoman.server.observe.console import MAX_LISTED, WIDTH, coloured_line, console_line
from dragoman.server.observe.record import RequestRecord

NOW = 1_700_000_000.25


def done(**changes: object) -> RequestRecord:
    record = RequestRecord(
        door="messages",
        request_id="req_1",
        upstream="local",
        model="claude-9",
        upstream_model="qwen3",
        status=200,
        call_count=2,
        call_names=("read", "grep"),
        finish="tool_calls",
        input_tokens=120,
        output_tokens=30,
        first_byte_s=0.1234,
        duration_s=1.5,
        attempts=1,
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def details(**changes: object) -> list[str]:
    return [line.strip() for line in console_line(done(**changes), NOW).split("\n")[1:]]


def test_a_request_that_went_well_has_one_line() -> None:
    assert console_line(done(), NOW)[8:] == (
        "  messages→local        claude-9→qwen3              tool_calls      0.12s  1.50s     120→30  read, grep"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": "m" * 500, "upstream_model": "n" * 500, "upstream": "u" * 500},
        {"model": "模型" * 50, "upstream_model": "模型" * 50},
        {"door": "responses", "upstream": "a-long-upstream-name", "finish": "context_window"},
        {"call_count": 900, "call_names": tuple(f"a_rather_long_tool_{n}" for n in range(32))},
        {"call_count": 1, "call_names": ("x" * 200,)},
        {"input_tokens": 123_456_789, "output_tokens": 98_765_432, "duration_s": 86_399.0},
        dict.fromkeys(("input_tokens", "output_tokens", "cached_tokens"), 10**400),
        {"cached_tokens": 123_456_789, "call_names": ("a_tool_with_a_name",), "call_count": 1},
        {"first_byte_s": 3600.0, "status": 503, "error_kind": "authentication"},
        {"status": 502, "error_kind": "protocol", "error": "expected this or that, got it; " * 20},
        {"status": 502, "error_kind": "protocol", "error": "模型" * 200},
        {"failed": tuple((f"an-upstream-{number}", "overloaded") for number in range(9))},
    ],
)
def test_no_line_is_wider_than_120_columns(changes: dict[str, object]) -> None:
    lines = console_line(done(**changes), NOW).split("\n")
    assert max(len(line) + sum(map(line.count, "模型")) for line in lines) <= WIDTH


def test_columns_are_aligned() -> None:
    lines = [
        console_line(record, NOW)
        for record in (
            done(),
            done(door="chat", upstream="a-long-upstream-name", model="m", upstream_model="m"),
            done(finish="stop", input_tokens=None, first_byte_s=None),
        )
    ]

    assert {line.index("1.50s") for line in lines} == {lines[0].index("1.50s")}
    assert {line.index("read, grep") for line in lines} == {lines[0].index("read, grep")}


def test_names_of_calls_are_folded_and_counted_where_they_do_not_fit() -> None:
    assert console_line(done(call_count=3, call_names=("read",) * 3), NOW).endswith("  read ×3")
    long = done(call_count=2, call_names=("a_tool_with_a_long_name", "another_tool"))
    assert console_line(long, NOW).endswith("  2 calls")
    assert console_line(done(call_count=40, call_names=("read",) * 32), NOW).endswith("  40 calls")
    hosted = (HostedCall("files", "ls", "ok"),)
    assert console_line(done(call_count=0, call_names=(), hosted=hosted), NOW).endswith("ls (here)")
    long_names = (HostedCall("files", "a_tool_with_a_long_name", "ok"),)
    assert console_line(done(hosted=long_names), NOW).endswith("  2 calls, 1 here")


def test_cached_tokens_end_the_line_where_they_fit() -> None:
    assert console_line(done(cached_tokens=12_000), NOW).endswith("  2 calls  12k cached")
    assert console_line(done(cached_tokens=0), NOW).endswith("  read, grep")
    assert console_line(done(call_count=0, call_names=(), cached_tokens=60), NOW).endswith(
        "  60 cached"
    )


def test_equal_losses_are_folded_and_a_single_one_names_its_place() -> None:
    losses = (
        *(Loss("schema", f"tools[{n}].parameters", "carry") for n in range(27)),
        Loss("stop", "stop", "drop"),
    )
    assert details(losses=losses) == [
        "losses    schema carry ×27, stop drop stop",
        "request   req_1",
    ]


def test_of_many_kinds_the_first_are_listed() -> None:
    losses = tuple(Loss(f"code{n}", "", "drop") for n in range(MAX_LISTED + 2))
    shown = " ".join(details(losses=losses)[:2])
    assert shown.endswith(f"code{MAX_LISTED - 1} drop, and 2 more")


def test_a_fallback_names_who_failed() -> None:
    failed = (("local", "timeout"), ("local", "timeout"), ("spare", "overloaded"))
    assert details(upstream="openai", failed=failed)[0] == (
        "failed    local (timeout) ×2, spare (overloaded), then openai answered"
    )
    with_error = details(
        upstream="openai", failed=failed, error_kind="server", error="down", status=502
    )
    assert with_error == [
        "error     server: down",
        "failed    local (timeout) ×2, spare (overloaded)",
        "request   req_1",
    ]


def test_everything_irregular_has_a_line_of_its_own() -> None:
    assert details(
        repairs=(Repair("orphan_result", "turns[3]"),),
        problems=(Problem(4, "malformed_frame", "words"), Problem(5, "malformed_frame", "words")),
    ) == ["repairs   orphan_result turns[3]", "problems  malformed_frame ×2", "request   req_1"]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"client_gone": True}, "client left"),
        ({"status": 429, "finish": None, "error_kind": "rate_limit"}, "429 rate_limit"),
        ({"status": 404, "finish": None}, "404"),
        ({"status": 0, "finish": None, "error_kind": "upstream"}, "upstream"),
        ({"error_kind": "truncated", "finish": "error"}, "error"),
        ({"finish": None}, "-"),
    ],
)
def test_the_finish_column_says_how_it_ended(changes: dict[str, object], shown: str) -> None:
    assert console_line(done(**changes), NOW)[60:].startswith(f"{shown} ")


def test_colours_change_nothing_but_colours() -> None:
    record = done(losses=(Loss("stop", "stop", "drop"),), error_kind="server", error="down")
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured_line(record, NOW))
    assert [line.rstrip() for line in bare.split("\n")] == console_line(record, NOW).split("\n")
    assert "\x1b[1;31m" in coloured_line(record, NOW)
    assert "\x1b[1;31m" not in coloured_line(done(), NOW)
