"""Log lines: what they say, what they never say, and that nobody writes a second one into them."""

import io
import json
import logging
from collections.abc import Generator
from pathlib import Path

import pytest

from dragoman.config.settings import LogSettings
from dragoman.model.outcome import Loss, Problem, Repair
from dragoman.obsidian.answer import ObsidianReport
from dragoman.server.observe.console import WIDTH, console_line
from dragoman.server.observe.logs import (
    LineHandler,
    RequestLog,
    configure_logging,
    json_line,
)
from dragoman.server.observe.record import RequestRecord

DOCS = Path(__file__).parents[4] / "docs" / "operations.md"
NOW = 1_700_000_000.25


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, _text: str, /) -> int:
        raise BrokenPipeError


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Generator[None]:
    root, ours = logging.getLogger(), logging.getLogger("dragoman")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def done(**changes: object) -> RequestRecord:
    record = RequestRecord(
        door="messages",
        request_id="req_1",
        upstream="local",
        model="claude-9",
        upstream_model="qwen3",
        status=200,
        stream=True,
        call_count=2,
        call_names=("get_weather", "search"),
        finish="tool_calls",
        input_tokens=120,
        output_tokens=30,
        first_byte_s=0.1234,
        duration_s=1.5,
        bytes_in=200,
        bytes_out=1000,
        attempts=2,
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def configured(
    level: str = "info", form: str = "json", stream: io.StringIO | None = None
) -> io.StringIO:
    stream = stream or io.StringIO()
    configure_logging(LogSettings(format=form, level=level), stream)  # type: ignore[arg-type]
    return stream


def written(record: RequestRecord, level: str = "info", form: str = "json") -> str:
    stream = configured(level, form)
    RequestLog(LogSettings()).write([record])
    return stream.getvalue()


def test_json_line_reports_the_whole_request() -> None:
    assert json.loads(json_line(done(), NOW)) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "event": "request",
        "request_id": "req_1",
        "door": "messages",
        "upstream": "local",
        "model": "claude-9",
        "upstream_model": "qwen3",
        "status": 200,
        "stream": True,
        "tool_calls": 2,
        "tool_names": ["get_weather", "search"],
        "finish": "tool_calls",
        "input_tokens": 120,
        "output_tokens": 30,
        "first_byte_ms": 123.4,
        "duration_ms": 1500.0,
        "bytes_in": 200,
        "bytes_out": 1000,
        "attempts": 2,
    }


def test_json_line_reports_what_went_wrong() -> None:
    line = json.loads(
        json_line(
            done(
                status=504,
                first_byte_s=None,
                error_kind="timeout",
                error="nothing came for 300 s",
                client_gone=True,
                caller="0a1b2c3d",
                losses=(Loss("strict_tools", "tools[0]", "drop"),),
                repairs=(Repair("orphan_result", "turns[3]"),),
                problems=(Problem(4, "malformed_frame", "the upstream's own words"),),
            ),
            NOW,
        )
    )
    assert line["error_kind"] == "timeout"
    assert line["error"] == "nothing came for 300 s"
    assert line["client_gone"] is True
    assert line["caller"] == "0a1b2c3d"
    assert line["losses"] == ["strict_tools drop tools[0]"]
    assert line["repairs"] == ["orphan_result turns[3]"]
    assert line["problems"] == ["malformed_frame"]
    assert line["first_byte_ms"] is None


def test_cached_tokens_are_logged_where_the_upstream_reports_them() -> None:
    line = json.loads(written(done(cached_tokens=80, cache_write_tokens=0)))
    assert (line["cached_tokens"], line["cache_write_tokens"]) == (80, 0)
    assert "cached_tokens" not in json.loads(written(done()))


NASTY = 'm\r\n{"level":"info"}\x1b[2J\x9b31m\u2028\u202e\x00\x7f\ud800'


@pytest.mark.parametrize("render", [json_line, console_line])
def test_nothing_a_client_sends_leaves_its_line(render: object) -> None:
    line_of = json_line if render is json_line else console_line
    line = line_of(
        done(
            model=NASTY,
            upstream_model=NASTY,
            request_id=NASTY,
            call_names=(NASTY,),
            error_kind="upstream",
            error=NASTY,
            losses=(Loss("code", NASTY, "drop"),),
        ),
        NOW,
    )
    lines = line.split("\n")
    assert all(each.isprintable() for each in lines)
    # The line of a person has its own details below it, and each of those begins with blanks.
    assert len(lines) == 1 if render is json_line else all(each[:9].isspace() for each in lines[1:])


def test_long_names_are_cut() -> None:
    record = done(
        model="m" * 100_000, call_names=("n" * 100_000,), error_kind="server", error="e" * 100_000
    )
    assert len(json_line(record, NOW)) < 2000
    assert len(console_line(record, NOW)) < 2000


def test_name_with_spaces_cannot_pass_for_columns() -> None:
    assert ' "m 200 ok"→qwen3 ' in console_line(done(model="m 200 ok"), NOW)


@pytest.mark.parametrize("form", ["json", "console"])
def test_credentials_in_an_upstreams_words_are_hidden(form: str) -> None:
    line = written(done(error_kind="authentication", error="wrong key sk-abcdef123456"), form=form)
    assert "abcdef123456" not in line
    assert "wrong key [redacted]" in line


@pytest.mark.parametrize(
    ("record", "level"),
    [
        (done(), "info"),
        (done(status=404), "warning"),
        (done(client_gone=True), "warning"),
        (done(status=502), "error"),
        (done(error_kind="truncated"), "error"),
    ],
)
def test_level_says_how_bad_it_was(record: RequestRecord, level: str) -> None:
    assert json.loads(json_line(record, NOW))["level"] == level
    names = ["debug", "info", "warning", "error"]
    for least in names:
        assert bool(written(record, level=least)) == (names.index(least) <= names.index(level))


def test_who_asked_is_reported_when_debugging_only() -> None:
    assert "caller" not in json.loads(written(done(caller="0a1b2c3d")))
    assert json.loads(written(done(caller="0a1b2c3d"), level="debug"))["caller"] == "0a1b2c3d"


def test_default_is_lines_for_people_on_a_terminal_and_json_elsewhere() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    configured(form="auto", stream=terminal)
    RequestLog(LogSettings()).write([done()])
    configured(form="auto", stream=pipe)
    RequestLog(LogSettings()).write([done()])
    assert "claude-9→qwen3" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()
    assert json.loads(pipe.getvalue())["tool_calls"] == 2


def test_default_level_has_one_line_per_request() -> None:
    stream = configured()
    log = RequestLog(LogSettings())
    log.write([done()])
    log.write([done()])
    assert len(stream.getvalue().splitlines()) == 2


def test_program_with_its_own_logging_gets_the_lines_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "dragoman.requests"):
        RequestLog(LogSettings(format="json")).write([done()])
        RequestLog(LogSettings(format="auto")).write([done(status=500)])
    assert [entry.levelname for entry in caplog.records] == ["INFO", "ERROR"]
    assert json.loads(caplog.messages[0])["request_id"] == "req_1"
    assert "claude-9→qwen3" in caplog.messages[1]


def test_log_that_nobody_reads_does_not_stop_the_gateway() -> None:
    configured(stream=Closed())
    RequestLog(LogSettings()).write([done()])
    logging.getLogger("dragoman.server").error("unheard")


def test_other_messages_take_the_same_form() -> None:
    stream = configured()
    logging.getLogger("dragoman.server").info("started with Bearer abcdefgh\non %s", "127.0.0.1")
    line = json.loads(stream.getvalue())
    assert line["event"] == "log"
    assert line["logger"] == "dragoman.server"
    assert line["message"] == "started with [redacted]\\non 127.0.0.1"


def fail() -> None:
    raise ValueError("because of sk-abcdef123456")


@pytest.mark.parametrize("form", ["json", "console"])
def test_traceback_is_kept_and_redacted(form: str) -> None:
    stream = configured(form=form)
    try:
        fail()
    except ValueError:
        logging.getLogger("dragoman.server").exception("it failed")
    text = stream.getvalue()
    assert "it failed" in text
    assert "ValueError: because of [redacted]" in text
    assert "abcdef123456" not in text
    lines = text.splitlines()
    assert len(lines) == 1 if form == "json" else all(line.startswith("    ") for line in lines[1:])


def test_libraries_are_heard_from_warnings_on_unless_debugging() -> None:
    stream = configured("info")
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["trouble"]
    stream = configured("debug")
    logging.getLogger("some.library").debug("chatter")
    assert "chatter" in stream.getvalue()


def test_configuring_twice_leaves_one_handler() -> None:
    configured()
    configured()
    handlers = logging.getLogger().handlers
    assert len(handlers) == 1
    assert isinstance(handlers[0], LineHandler)


def test_every_field_is_documented() -> None:
    record = done(
        error_kind="timeout",
        client_gone=True,
        caller="x",
        losses=(Loss("a", "", "drop"),),
        repairs=(Repair("a", ""),),
        problems=(Problem(1, "a", ""),),
        obsidian=ObsidianReport(output_mode="obsidian-xml"),
    )
    page = DOCS.read_text(encoding="utf-8")
    fields = json.loads(json_line(record, NOW))
    assert [name for name in fields if f"`{name}`" not in page] == []


def test_other_messages_have_a_line_for_people_too() -> None:
    stream = configured(form="console")
    logging.getLogger("dragoman.server").warning("a\x1b[2J%s", "b")
    logging.getLogger("another").warning("c")
    assert [line[8:] for line in stream.getvalue().splitlines()] == [
        "  warning   a\\x1b[2Jb",
        "  warning   another: c",
    ]


def test_a_long_message_for_people_goes_on_below() -> None:
    stream = configured(form="console")
    logging.getLogger("dragoman.server").warning("%send", "word " * 45)
    first, *more = stream.getvalue().splitlines()
    assert len(first) <= WIDTH
    assert [line[:24] for line in more] == [" " * 20 + "word"] * 2
    assert more[-1].endswith("end")


@pytest.mark.parametrize(("form", "count"), [("console", 2), ("json", 4)])
def test_a_message_that_is_repeated_at_once_is_shown_to_people_once(form: str, count: int) -> None:
    stream = configured(form=form)
    (handler,) = logging.getLogger().handlers
    for at, text in ((1.0, "a"), (1.5, "a"), (3.0, "a"), (60.0, "a")):
        record = logging.makeLogRecord({"name": "x", "msg": text, "created": at})
        handler.handle(record)
    assert len(stream.getvalue().splitlines()) == count
