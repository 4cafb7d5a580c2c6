"""`dragoman inspect` as a user runs it: in a process of its own, on recorded answers."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import Command, run_for_bytes

SAMPLES = Path(__file__).parent / "samples"
COMMAND = str(Path(sysconfig.get_path("scripts")) / "dragoman")
WAIT = 60
"""Seconds a run may take: far more than it needs, so that only a hang fails."""

WEATHER, TIME = '{"city":"Paris"}', '{"zone":"Europe/Paris"}'
HEALTHY = (
    "chat/parallel.sse",
    "chat/parallel.json",
    "chat/curl_i.txt",
    "messages/parallel.sse",
    "messages/parallel.json",
    "messages/bom_crlf.sse",
    "messages/events.jsonl",
    "responses/parallel.sse",
    "responses/parallel.json",
    "responses/events.jsonl",
)
STREAMS = tuple(f"{dialect}/parallel.sse" for dialect in ("chat", "responses", "messages"))
BODIES = tuple(f"{dialect}/parallel.json" for dialect in ("chat", "responses", "messages"))


def environment(variables: dict[str, str]) -> dict[str, str]:
    unset = ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if name not in unset} | variables


def run(
    *arguments: str, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    return run_for_bytes(*arguments, cwd=SAMPLES, env=environment(variables), stdin=stdin)


def run_fresh(
    *arguments: str, variables: dict[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run the installed command, with variables that its interpreter reads when it starts."""
    return subprocess.run(
        (COMMAND, *arguments),
        input=stdin,
        capture_output=True,
        env=environment(variables),
        timeout=WAIT,
        check=False,
    )


def inspect(sample: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    return run("inspect", *options, str(SAMPLES / sample))


def findings(sample: str, *options: str) -> tuple[int, Any]:
    """The exit code and the JSON object."""
    done = inspect(sample, "--json", *options)
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1
    return done.returncode, json.loads(done.stdout)


def kinds(found: Any) -> list[str]:
    return [problem["kind"] for problem in found["problems"]]


def arguments_of(found: Any) -> list[tuple[str, str]]:
    """Name and arguments of each call, spaces between JSON tokens aside."""
    return [(call["name"], call["arguments"].replace(": ", ":")) for call in found["calls"]]


@pytest.mark.parametrize("sample", HEALTHY)
def test_a_healthy_recording_is_clean_and_shows_both_calls(sample: str) -> None:
    code, found = findings(sample)
    assert (code, found["problems"]) == (0, [])
    assert found["dialect"] == sample.partition("/")[0]
    assert found["form"] == ("body" if sample.endswith(".json") else "stream")
    assert arguments_of(found) == [("get_weather", WEATHER), ("get_time", TIME)]
    for call in found["calls"]:
        assert (call["kind"], call["executable"], call["reason"]) == ("function", True, "complete")
        assert call["id"].startswith(("call_", "toolu_"))
    assert found["finish"] == "tool_calls"


def test_deltas_are_counted_as_they_came() -> None:
    for sample, deltas in (
        ("chat/parallel.sse", [5, 3]),
        ("responses/parallel.sse", [5, 3]),
        ("messages/parallel.sse", [2, 2]),
    ):
        assert [call["deltas"] for call in findings(sample)[1]["calls"]] == deltas


def test_text_reasoning_and_usage_are_reported() -> None:
    found = findings("messages/parallel.sse")[1]
    assert found["text"] == "I'll check the weather and the time in Paris."
    assert found["reasoning"] == "The user wants weather and time. Two calls."
    assert found["usage"] == {"input": 472, "cached": 0, "cache_write": 0, "output": 143}
    found = findings("responses/parallel.sse")[1]
    assert found["reasoning"] == "Checking weather and time"
    assert found["usage"] == {
        "input": 291,
        "cached": 128,
        "output": 103,
        "reasoning": 64,
        "total": 394,
    }


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("chat/interleaved.sse", {"interleaved_calls"}),
        ("chat/cut.sse", {"cut_stream"}),
        ("chat/cut_body.json", {"malformed_body"}),
        ("chat/damaged.sse", {"malformed_frame"}),
        ("chat/error.json", {"provider_error"}),
        ("chat/error_in_stream.sse", {"provider_error"}),
        ("chat/length.sse", {"unfinished_call"}),
        ("chat/no_blank_lines.log", {"missing_blank_lines"}),
        ("chat/no_ids_repeated_names.sse", {"missing_id", "repeated_name"}),
        ("chat/not_json.sse", {"invalid_arguments"}),
        ("chat/ollama_same_index.sse", {"index_reused", "wrong_finish"}),
        ("messages/interleaved.sse", {"interleaved_blocks"}),
        ("messages/cut.sse", {"cut_stream"}),
        ("messages/error.json", {"provider_error"}),
        ("messages/no_event_lines.sse", {"missing_event_name"}),
        ("messages/overloaded.sse", {"provider_error"}),
        ("messages/wrong_stop.sse", {"wrong_finish"}),
        ("responses/interleaved.sse", {"interleaved_calls"}),
        ("responses/cut.sse", {"cut_stream"}),
        ("responses/empty_output.sse", {"empty_output"}),
        ("responses/failed.sse", {"provider_error"}),
        ("responses/incomplete.sse", {"unfinished_call"}),
    ],
)
def test_each_fault_is_named_once_with_its_frame(sample: str, expected: set[str]) -> None:
    code, found = findings(sample)
    assert code == 1
    assert set(kinds(found)) == expected
    for problem in found["problems"]:
        assert isinstance(problem["frame"], int)
        assert problem["frame"] >= 1
        assert problem["message"]


def test_a_cut_call_is_shown_and_not_executable() -> None:
    for dialect in ("chat", "responses", "messages"):
        first, second = findings(f"{dialect}/cut.sse")[1]["calls"]
        assert (first["executable"], first["reason"]) == (True, "complete")
        assert (second["executable"], second["reason"]) == (False, "not_closed")
        assert second["arguments"].startswith('{"zone"')


def test_arguments_that_are_no_json_are_shown_and_not_executable() -> None:
    for sample in ("chat/not_json.sse", "messages/not_json.sse"):
        code, found = findings(sample)
        last = found["calls"][-1]
        assert (code, last["executable"], last["reason"]) == (1, False, "invalid_json")
        assert kinds(found).count("invalid_arguments") == 1


def test_a_partial_dump_of_events_still_shows_its_calls() -> None:
    code, found = findings("responses/dump_sse.jsonl")
    assert code == 1
    assert arguments_of(found) == [("get_weather", WEATHER), ("get_time", TIME)]
    assert "cut_stream" in kinds(found)


def test_custom_calls_keep_their_text() -> None:
    code, found = findings("responses/custom.sse")
    (call,) = found["calls"]
    assert (code, call["kind"], call["name"], call["executable"]) == (
        0,
        "custom",
        "apply_patch",
        True,
    )
    assert call["arguments"].startswith("*** Begin Patch\n")


def test_several_choices_are_distinguished() -> None:
    code, found = findings("chat/two_choices.sse")
    assert code == 0
    assert [choice["finish"] for choice in found["choices"]] == ["stop", "tool_calls"]
    assert [call["choice"] for call in found["calls"]] == [1]


def test_the_screen_shows_everything_plainly_when_piped() -> None:
    done = inspect("chat/not_json.sse")
    assert done.returncode == 1
    assert done.stderr == b""
    screen = done.stdout.decode()
    assert "\x1b" not in screen
    head, _, rest = screen.partition("\n")
    assert head.endswith("chat/not_json.sse: OpenAI Chat Completions, stream of 13 frames")
    assert "1  call_7Kq2mZ0vXb4LhT9cRw1sNpYd  get_weather       5  yes\n" in rest
    assert "2  call_4GdEo8UyPa6MjV3xQn5kTzHf  get_time          2  NO: not JSON\n" in rest
    assert '   {"zone":Europe/Paris}\n' in rest
    assert "   invalid_arguments\n      frame 11, line 21: " in rest
    assert rest.endswith("1 problem found; only 1 of 2 calls may be run.\n")


def test_escape_sequences_of_a_model_never_reach_the_terminal() -> None:
    for options in ((), ("--json",)):
        done = inspect("chat/escapes.sse", *options)
        assert done.returncode == 1
        assert not any(byte < 32 and byte != 10 for byte in done.stdout)
    screen = inspect("chat/escapes.sse").stdout.decode()
    assert "Look: \\x1b[31mred\\x1b[0m \\x1b]0;owned\\x07 \\u202egnp.exe\\u202c end\n" in screen


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    sample = SAMPLES / "chat/damaged.sse"
    variables = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run_fresh("inspect", str(sample), variables=variables)
    assert done.returncode == 1
    assert done.stdout.isascii()


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input_is_read(arguments: tuple[str, ...]) -> None:
    data = (SAMPLES / "messages/parallel.sse").read_bytes()
    done = run("inspect", *arguments, stdin=data)
    assert done.returncode == 0
    assert done.stdout.startswith(b"standard input: Anthropic Messages, stream of 23 frames\n")


def test_the_dialect_may_be_given() -> None:
    code, found = findings("chat/parallel.sse", "--from", "chat")
    assert (code, found["dialect"]) == (0, "chat")
    code, found = findings("chat/parallel.sse", "--from", "messages")
    assert (code, found["dialect"]) == (1, "messages")


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
@pytest.mark.parametrize(
    "sample", [*STREAMS, *BODIES, "responses/events.jsonl", "messages/bom_crlf.sse"]
)
def test_an_answer_can_be_written_in_any_dialect(sample: str, target: str) -> None:
    done = inspect(sample, "--to", target)
    assert done.returncode == 0
    again = run("inspect", "--json", stdin=done.stdout)
    found = json.loads(again.stdout)
    assert (again.returncode, found["problems"]) == (0, [])
    assert found["dialect"] == target
    assert found["form"] == ("body" if sample.endswith(".json") else "stream")
    assert arguments_of(found) == [("get_weather", WEATHER), ("get_time", TIME)]
    assert found["finish"] == "tool_calls"


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_cut_stream_is_translated_to_a_failure_and_reported_on_stderr(
    dialect: str, target: str
) -> None:
    done = inspect(f"{dialect}/cut.sse", "--to", target)
    assert done.returncode == 1
    assert b": cut_stream: " in done.stderr
    assert all(line.startswith(b"dragoman: ") for line in done.stderr.splitlines())
    found = json.loads(run("inspect", "--json", stdin=done.stdout).stdout)
    assert found["dialect"] == target
    assert found["error"] is not None
    assert [call["name"] for call in found["calls"] if call["executable"]] == ["get_weather"]


def test_interleaved_calls_are_untangled_by_translation() -> None:
    for dialect in ("chat", "responses", "messages"):
        done = inspect(f"{dialect}/interleaved.sse", "--to", dialect)
        assert done.returncode == 1
        again = run("inspect", "--json", stdin=done.stdout)
        assert (again.returncode, json.loads(again.stdout)["problems"]) == (0, [])


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("other/empty.sse", "got an empty file"),
        ("other/proxy_error.html", "HTML error page"),
        ("other/request.json", "looks like a request"),
        ("other/gemini.json", "the fields candidates, usageMetadata, modelVersion"),
        ("other/comments_only.sse", "a stream without payloads"),
        ("other/gzipped.sse", "gzip-compressed"),
        ("other/no_such_file", "No such file or directory"),
        ("other", "expected recordings"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",), ("--to", "chat")])
def test_a_bad_file_gets_one_clear_line(sample: str, words: str, options: tuple[str, ...]) -> None:
    done = inspect(sample, *options)
    assert done.returncode == 2
    assert done.stdout == b""
    line = done.stderr.decode()
    assert line.count("\n") == 1
    assert line.startswith(f"dragoman: {SAMPLES / sample}: expected ")
    assert words in line


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("dance",),
        ("inspect", "--from", "gemini"),
        ("inspect", "--to", "auto"),
        ("inspect", "--json", "--to", "chat"),
        ("inspect", "one", "two"),
    ],
)
def test_bad_options_are_nothing_to_read(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage: dragoman" in done.stderr


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith(b"dragoman ")
    assert b"inspect" in run("--help").stdout
    assert b"--from {auto,chat,responses,messages}" in run("inspect", "--help").stdout
    assert run("inspect", "--help").returncode == 0


def test_the_module_runs_like_the_command() -> None:
    done = subprocess.run(
        (sys.executable, "-m", "dragoman", "inspect", str(SAMPLES / "chat/parallel.sse")),
        capture_output=True,
        timeout=WAIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"Clean; 2 calls may be run.\n")


def test_the_screens_in_the_documentation_are_what_is_shown() -> None:
    page = (Path(__file__).parents[2] / "docs" / "inspect.md").read_text(encoding="utf-8")
    shown = re.findall(r"```\n\$ dragoman ([^\n]*)\n(.*?)```", page, re.DOTALL)
    assert len(shown) >= 4
    for line, screen in shown:
        arguments, redirected, _ = line.partition(" > ")
        done = run(*arguments.split(), COLUMNS="96")
        printed = done.stderr if redirected else done.stdout + done.stderr
        assert printed.decode() == screen


def on_terminal(*arguments: str, variables: dict[str, str]) -> tuple[int, str]:
    """Run with a terminal as standard input and output; the exit code and all that it showed."""
    pid, descriptor = pty.fork()
    if pid == 0:
        variables = environment({"TERM": "xterm-256color", **variables})
        os.execve(COMMAND, (COMMAND, *arguments), variables)
    pieces: list[bytes] = []
    try:
        while piece := os.read(descriptor, 65536):
            pieces.append(piece)
    except OSError:  # Linux ends a terminal whose other side is gone with an error
        pass
    os.close(descriptor)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status), b"".join(pieces).decode()


def test_a_terminal_gets_colours() -> None:
    code, shown = on_terminal("inspect", str(SAMPLES / "chat/not_json.sse"), variables={})
    assert code == 1
    assert "\x1b[1;31mNO: not JSON\x1b[0m" in shown
    assert "\x1b[1;32myes\x1b[0m" in shown


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(variables: dict[str, str]) -> None:
    code, shown = on_terminal("inspect", str(SAMPLES / "chat/not_json.sse"), variables=variables)
    assert code == 1
    assert "\x1b" not in shown
    assert "NO: not JSON" in shown


def test_a_terminal_without_a_file_gets_a_usage_hint() -> None:
    code, shown = on_terminal("inspect", variables={})
    assert code == 2
    assert "expected a FILE, or a recording piped in" in shown


def long_text(size: int) -> bytes:
    """A Chat stream with this much text in small deltas."""
    frame = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"twenty characters..."},"finish_reason":null}]}\n\n'
    )
    end = frame.replace(b'{"content":"twenty characters..."}', b"{}").replace(b"null", b'"stop"')
    return frame * (size // 20) + end + b"data: [DONE]\n\n"


@pytest.mark.parametrize("variables", [{"PYTHONUNBUFFERED": "1"}, {"PYTHONUNBUFFERED": ""}])
def test_long_output_through_a_pipe_is_whole(variables: dict[str, str]) -> None:
    done = run_fresh("inspect", "--json", stdin=long_text(300_000), variables=variables)
    assert len(json.loads(done.stdout)["text"]) == 300_000


@pytest.mark.parametrize("options", [("--json",), ("--to", "messages")])
def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "long.sse"
    file.write_bytes(long_text(400_000))  # the output is more than a pipe holds
    with subprocess.Popen(
        (COMMAND, "inspect", *options, str(file)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT) == 141


def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            (COMMAND, "inspect", str(SAMPLES / "chat/parallel.sse")),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=WAIT,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == b"dragoman: the output cannot be written: No space left on device\n"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Programs that are started take heed of interrupts, also if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_it_quietly() -> None:
    with subprocess.Popen(
        (COMMAND, "inspect", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        # More than a pipe holds: when this returns, the command is reading.
        process.stdin.write(b": wait\n\n" * 500_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=WAIT)
    assert (process.returncode, out, error) == (130, b"", b"")


def test_time_grows_with_the_size_not_with_its_square(tmp_path: Path) -> None:
    taken: list[float] = []
    for size in (100_000, 1_600_000):
        file = tmp_path / f"{size}.sse"
        file.write_bytes(long_text(size))
        with Path(os.devnull).open("r+b") as null:
            files = (null.fileno(), null.fileno(), null.fileno())
            with Command(("inspect", str(file)), cwd=tmp_path, env={}, files=files) as command:
                assert command.wait(WAIT) == 0
        taken.append(command.cpu_time)
    # Sixteen times the size: linear work takes at most sixteen times as long, quadratic work far more than forty.
    assert taken[1] < 40 * taken[0]


# --- the page -------------------------------------------------------------------------------------------------------------


def exported(path: Path) -> dict[str, Any]:
    """The data in an exported page."""
    found = re.search(
        rb'<script type="application/json" id="exported">(.*?)</script>', path.read_bytes()
    )
    assert found is not None
    page: dict[str, Any] = json.loads(found[1])
    return page


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
@pytest.mark.parametrize("recording", [*STREAMS, *BODIES])
def test_html_has_the_recording_and_its_translation(
    tmp_path: Path, recording: str, target: str
) -> None:
    out = tmp_path / "page.html"
    done = run("inspect", recording, "--to", target, "--html", str(out))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    [exchange] = exported(out)["exchanges"]
    assert exchange["client"]["dialect"] == target
    assert [call["input"]["equal"] for call in exchange["calls"]] == [True, True]
    inputs = [json.loads(call["input"]["client"]["text"]) for call in exchange["calls"]]
    assert inputs == [json.loads(WEATHER), json.loads(TIME)]
    assert exchange["summary"]["model"]
    # That one has a signature, a secret.
    if recording in STREAMS and not recording.startswith("messages"):
        wire = "".join(frame["text"] for frame in exchange["client"]["answer"]["frames"])
        assert wire == run("inspect", recording, "--to", target).stdout.decode()


def test_html_without_contents_has_no_arguments(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    run("inspect", "chat/parallel.sse", "--html", str(out), "--no-contents")
    assert b"Paris" not in out.read_bytes()
    assert [call["input"]["equal"] for call in exported(out)["exchanges"][0]["calls"]] == [
        True,
        True,
    ]


def test_html_takes_secrets_out(tmp_path: Path) -> None:
    key = "sk-proj-" + "a1B2" * 12
    text = (SAMPLES / "chat/parallel.sse").read_bytes().replace(b"Paris", key.encode())
    out = tmp_path / "page.html"
    done = run("inspect", "--html", str(out), stdin=text)
    assert done.returncode == 0, done.stderr
    assert key.encode() not in out.read_bytes()


def test_html_of_a_dump_has_every_answer_with_its_times(tmp_path: Path) -> None:
    event = {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "x"}}],
    }
    end: dict[str, Any] = {**event, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    lines = [
        {"at": 1000.0 + at, "request_id": f"req_{number}", "answer": 0, "upstream": "u", "dialect": "chat", "frame": 1, "event": each}
        for number in (1, 2)
        for at, each in ((0.0, event), (0.25, end))
    ]  # fmt: skip
    dump, out = tmp_path / "dump.jsonl", tmp_path / "page.html"
    dump.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run("inspect", str(dump), "--html", str(out))
    exchanges = exported(out)["exchanges"]
    assert [each["summary"]["id"] for each in exchanges] == ["req_1", "req_2"]
    times = [frame["at"] for frame in exchanges[0]["attempts"][0]["answer"]["frames"]]
    assert times == [0.0, 250.0]
    shown = run("inspect", str(dump)).stdout.decode()
    assert (
        "TIME    last after 250 ms; between frames 250 ms (median), longest 250 ms, before frame 2"
        in shown
    )
    timing = json.loads(run("inspect", str(dump), "--json").stdout)["answers"][0]["timing"]
    assert timing["longest_gap_ms"] == 250.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--html", "no/such/folder/page.html"), "expected a file to write"),
        (("--html", "page.html", "--json"), "expected --html or --json"),
    ],
)
def test_html_that_cannot_be_written_says_so(arguments: tuple[str, ...], message: str) -> None:
    done = run("inspect", "chat/parallel.sse", *arguments)
    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    """A pipe that delivers slowly is long work: the line comes, and goes again."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        (COMMAND, "inspect", "-"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=child
    )
    os.close(child)
    assert process.stdin is not None
    text = (SAMPLES / "chat/parallel.sse").read_bytes()
    try:
        shown = b""
        process.stdin.write(b": " + b"x" * (1024 * 1024) + b"\n\n")
        process.stdin.flush()
        while b"reading: " not in shown:
            process.stdin.write(b": " + b"x" * (1024 * 1024) + b"\n\n")
            process.stdin.flush()
            readable, _, _ = select.select([parent], [], [], 0.05)
            if readable:
                shown += os.read(parent, 65536)
        process.stdin.write(text)
        process.stdin.close()
        assert process.wait(WAIT) == 0
        shown += os.read(parent, 65536)
        assert shown.endswith(b"\r\x1b[K")
    finally:
        process.kill()
        process.wait()
        os.close(parent)
