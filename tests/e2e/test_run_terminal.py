"""`dragoman run` in a terminal: what is seen, Ctrl-C, approval, questions one after the other."""

import json
import re
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from dragoman.testing import (
    ReceivedRequest,
    Script,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
)
from oauth_server import guarded_in_thread
from pty_command import (
    InTerminal,
    answer,
    call,
    in_terminal,
    messages,
    processes_with,
    run_piped,
)
from vendor_wire import Answer, Said, stream

PROMPT = "2004h.*m>"  # the editor writes no space at the end of a line
SPINNER = "[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"


def options(upstream: ScriptedUpstream) -> tuple[str, ...]:
    return "--upstream", f"chat={upstream.url}/v1", "--model", "some-model"


@pytest.fixture
def gate() -> Generator[threading.Event]:
    """What a scripted upstream waits for; opened at the end, whatever happens."""
    event = threading.Event()
    yield event
    event.set()


def half_an_answer(gate: threading.Event) -> ScriptedReply:
    """Some words, and then silence until the gate is opened."""
    frames = stream("chat", Answer((Said(("Half of", " the answer.")),))).split(b"\n\n")
    spoken = next(at for at, frame in enumerate(frames) if b"Half of" in frame) + 1
    first, rest = (b"\n\n".join([*part, b""]) for part in (frames[:spoken], frames[spoken:-1]))
    return ScriptedReply(content_type="text/event-stream", chunks=[first, Wait(gate), rest])


def user_words(request: ReceivedRequest) -> list[str]:
    return [each["content"] for each in messages(request) if each["role"] == "user"]


def gone(text: str) -> bool:
    """Whether no process is left whose command line holds the text; it may be ending just now."""
    deadline = time.monotonic() + 60
    while processes_with(text):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_words_calls_and_counts_are_seen(tmp_path: Path, gate: threading.Event) -> None:
    (tmp_path / "a.txt").write_text("the content\n", encoding="utf-8")
    script = [call("read", {"path": "a.txt"}), half_an_answer(gate)]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "look at it", *options(upstream)) as running,
    ):
        running.until(f"{SPINNER}.* waiting for the model")
        running.until(r"read a\.txt")
        running.until("Half")  # seen while the rest is still to come
        gate.set()
        assert running.wait() == 0
        lines = running.screen.splitlines()
    assert re.match(r"✓ read a\.txt  \d+\.\d", lines[1])
    assert "the content" in lines[2]
    assert "Half of the answer." in lines
    assert "2 turns, 1 call · 22 tokens in (6 cached), 14 out" in lines[-1]
    assert "waiting" not in running.screen


def test_running_call_has_a_spinner_and_its_time(tmp_path: Path) -> None:
    script = [
        call("shell", {"command": "while [ ! -e go ]; do sleep 0.05; done; echo gone"}),
        answer("Done."),
    ]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "wait", "--yes", *options(upstream)) as running,
    ):
        running.until(f"{SPINNER}.* shell while.*\\d\\.\\d s")
        running.until(f"{SPINNER}.* shell while.*([1-9]\\.\\d|0\\.[3-9]) s")
        (tmp_path / "go").touch()
        assert running.wait() == 0
        assert "✓ shell while" in running.screen
        assert "gone" in running.screen
        assert not [line for line in running.screen.splitlines() if "⠋" in line]


def test_ctrl_c_interrupts_the_answer_and_the_conversation_is_kept(
    tmp_path: Path, gate: threading.Event
) -> None:
    script = [half_an_answer(gate), answer("Going on.")]
    with ScriptedUpstream.in_thread(script) as upstream:
        with in_terminal(tmp_path, "one", *options(upstream)) as running:
            running.until("Half")
            running.press_ctrl_c()
            assert running.wait() == 130
            assert "interrupted" in running.screen
        upstream.wait_until(lambda: upstream.requests[0].closed_at is not None)
        done = run_piped(tmp_path, "two", "--resume", *options(upstream))
    assert done.returncode == 0, done.stderr
    assert user_words(upstream.requests[1]) == ["one", "two"]


def test_ctrl_c_stops_a_running_command_and_the_call_has_a_result(tmp_path: Path) -> None:
    mark = f"{time.time_ns() % 10**9}.25"
    script = [call("shell", {"command": f"touch begun; sleep {mark}"}), answer("Going on.")]
    with ScriptedUpstream.in_thread(script) as upstream:
        with in_terminal(tmp_path, "one", "--yes", *options(upstream)) as running:
            wait_for(tmp_path / "begun", running)
            running.press_ctrl_c()
            assert running.wait() == 130
            assert "stopped" in running.screen
        assert gone(mark)
        done = run_piped(tmp_path, "two", "--resume", *options(upstream))
    assert done.returncode == 0, done.stderr
    roles = [each["role"] for each in messages(upstream.requests[1])]
    assert roles == ["system", "user", "assistant", "tool", "user"]


def test_ctrl_c_twice_quits_at_once_and_leaves_no_process(tmp_path: Path) -> None:
    mark = f"{time.time_ns() % 10**9}.75"
    stubborn = f"trap '' INT TERM; touch begun; sleep {mark}; sleep {mark}"
    script = [call("shell", {"command": stubborn})]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "one", "--yes", *options(upstream)) as running,
    ):
        wait_for(tmp_path / "begun", running)
        running.press_ctrl_c()
        running.until("Ctrl-C again quits")
        running.press_ctrl_c()
        assert running.wait() == 130
    assert gone(mark)


def test_signal_to_end_ends_it_and_leaves_no_process(tmp_path: Path) -> None:
    mark = f"{time.time_ns() % 10**9}.5"
    script = [call("shell", {"command": f"touch begun; sleep {mark}"})]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "one", "--yes", *options(upstream)) as running,
    ):
        wait_for(tmp_path / "begun", running)
        running.process.terminate()
        assert running.wait() == 143
    assert gone(mark)


def test_questions_one_after_the_other_until_ctrl_d(tmp_path: Path, gate: threading.Event) -> None:
    script = [answer("First."), half_an_answer(gate), answer("Third.")]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, *options(upstream)) as running,
    ):
        running.until(PROMPT)
        running.type("one\n")
        running.until(r"First\.")
        running.until(PROMPT)
        running.type("two\n")
        running.until("Half")
        running.press_ctrl_c()
        running.until("interrupted")
        running.until(PROMPT)
        running.press_ctrl_c()
        running.until("Ctrl-C again quits")
        running.type("three\n")
        running.until(r"Third\.")
        running.until(PROMPT)
        running.press_ctrl_d()
        assert running.wait() == 0
    assert user_words(upstream.requests[2]) == ["one", "two", "three"]


def test_ctrl_c_twice_where_nothing_runs_quits(tmp_path: Path) -> None:
    with in_terminal(tmp_path) as running:
        running.until(PROMPT)
        running.press_ctrl_c()
        running.until("Ctrl-C again quits")
        running.press_ctrl_c()
        assert running.wait() == 130


@pytest.mark.parametrize(
    ("typed", "is_written", "sign"),
    [("y\n", True, "✓"), ("n\n", False, "✗"), ("maybe\ny\n", True, "✓")],
)
def test_writing_is_asked_for(tmp_path: Path, typed: str, is_written: bool, sign: str) -> None:
    script = [call("write", {"path": "new.txt", "content": "words\n"}), answer("Done.")]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "write it", *options(upstream)) as running,
    ):
        for line in typed.splitlines(keepends=True):
            running.until(r"new\.txt")
            running.until(r"2004h.*\[y\]es.*:")
            running.type(line)
        if typed == "n\n":
            running.until("why not")
            running.type("\n")
        assert running.wait() == 0
        assert f"{sign} write new.txt" in running.screen
    assert (tmp_path / "new.txt").exists() is is_written
    result = messages(upstream.requests[1])[-1]
    assert result["role"] == "tool"


def test_tool_that_is_always_allowed_is_asked_for_once(tmp_path: Path) -> None:
    script = [
        call("shell", {"command": "echo one > one"}),
        call("shell", {"command": "echo two > two"}, "call_2"),
        answer("Done."),
    ]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "do it", *options(upstream)) as running,
    ):
        running.until(r"2004h.*\[y\]es.*:")
        running.type("t\n")
        assert running.wait() == 0
        assert running.screen.count("[y]es") == 1
    assert (tmp_path / "two").exists()


def test_ctrl_c_where_approval_is_asked_for_interrupts(tmp_path: Path) -> None:
    script = [call("shell", {"command": "touch done"})]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "do it", *options(upstream)) as running,
    ):
        running.until(r"2004h.*\[y\]es.*:")
        running.press_ctrl_c()
        assert running.wait() == 130
    assert not (tmp_path / "done").exists()


def test_what_needs_approval_is_refused_where_nobody_can_be_asked(tmp_path: Path) -> None:
    script = [call("shell", {"command": "touch done"}), answer("I may not.")]
    with ScriptedUpstream.in_thread(script) as upstream:
        done = run_piped(tmp_path, "do it", *options(upstream))
    assert done.returncode == 0, done.stderr
    assert "✗ shell touch done" in done.stdout
    assert not (tmp_path / "done").exists()
    assert "--yes" in done.stdout
    assert "needs approval" in json.dumps(messages(upstream.requests[1])[-1])


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_model_cannot_control_the_terminal(tmp_path: Path, env: dict[str, str]) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\x1b[H\u202e gone"
    (tmp_path / "a.txt").write_text(hostile, encoding="utf-8")
    script: Script = [call("read", {"path": "a.txt"}), answer(f"It says {hostile}")]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "look", *options(upstream), env=env) as running,
    ):
        assert running.wait() == 0
        assert "\\x1b]0;owned\\x07" in running.screen
    assert "\x1b]" not in running.raw
    assert "\x1b[2J" not in running.raw
    assert "\x07" not in running.raw
    if env:
        assert "m" not in {code[-1] for code in running.raw.split("\x1b[")[1:] if code[-1:] == "m"}
        assert "\x1b[1m" not in running.raw
    if env.get("TERM"):
        assert "\x1b" not in running.raw


def test_approval_shows_every_character_of_a_long_and_hostile_command(tmp_path: Path) -> None:
    command = (
        "echo harmless" + " " * 500 + "; touch hidden\r\x1b[2K\x1b[1A# \u202etxt.\u200bgood\n"
    ) * 30 + "touch the-end"
    script = [call("shell", {"command": command}), answer("Done.")]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "do it", *options(upstream)) as running,
    ):
        running.until(r"2004h.*page 1 of \d+.*:")
        assert "allow it?" not in running.raw
        running.type("y\n")
        running.until(r"2004h.*page 1 of \d+.*:")
        assert "allow it?" not in running.raw  # yes is no answer before the end was seen
        running.type("\n")
        running.until(r"2004h.*page 2 of \d+.*:")
        running.type("r\n")
        running.until(r"2004h.*\[y\]es.*:")
        screen = running.screen
        running.type("n\n")
        running.until("why not")
        running.type("\n")
        assert running.wait() == 0
    assert screen.count("; touch hidden\\r\\x1b[2K\\x1b[1A#") >= 30
    assert screen.count("\\u202etxt.\\u200bgood") >= 30
    assert "| touch the-end" in screen
    assert "escapes stand for 30 × carriage return, 60 × escape, 30 × U+202E, 30 × U+200B" in screen
    assert "\u202e" not in running.raw
    assert "\x1b[1A#" not in running.raw
    assert not list(tmp_path.glob("hidden*"))
    assert not (tmp_path / "the-end").exists()


def test_approval_shows_the_whole_content_of_a_file_before_it_is_written(tmp_path: Path) -> None:
    content = "".join(f"line {number}\n" for number in range(200))
    script = [call("write", {"path": "new.txt", "content": content}), answer("Done.")]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "do it", *options(upstream)) as running,
    ):
        pages = 0
        while (
            not running.until(r"2004h.*(page \d+ of \d+.*|\[y\]es.*):").rstrip().endswith("write:")
        ):
            pages += 1
            running.type("\n")
        running.type("y\n")
        assert running.wait() == 0
    assert pages >= 9
    seen = {line.strip() for line in running.screen.splitlines()}
    assert {f"| line {number}" for number in range(200)} <= seen
    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == content


def wait_for(file: Path, running: InTerminal) -> None:
    deadline = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < deadline, running.raw
        assert running.process.poll() is None, running.raw
        time.sleep(0.01)


ROUGH = Path(__file__).parents[1] / "support" / "mcp_servers" / "rough.py"


def test_time_runs_while_servers_start_and_ctrl_c_then_leaves_a_clean_screen(
    tmp_path: Path,
) -> None:
    server = "silent=sleep 987611"
    with in_terminal(tmp_path, "--mcp", server, "--upstream", "rehearsal") as running:
        running.until(r"starting MCP servers: silent.{0,20}0\.0 s")
        running.until(r"starting MCP servers: silent.{0,20}[1-9] s")
        running.press_ctrl_c()
        assert running.wait() == 130
        assert "starting" not in running.screen
        assert gone("sleep 987611")


def test_question_of_an_mcp_server_is_asked_field_by_field_and_answered(tmp_path: Path) -> None:
    server = f"shop={sys.executable} -S {ROUGH} asks_first"
    script = [call("shop__ask", {}), answer("Done.")]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "ask", "--yes", "--mcp", server, *options(upstream)) as running,
    ):
        running.until("the MCP server shop ")
        running.until("asks for some values")
        running.until("Who is it for")
        running.until("answer it")
        running.type("y\n")
        running.until(r"name \[Ada\]:")
        running.type("\n")
        running.until(r"2004h.*sure \(yes or no\):")
        running.type("perhaps\n")
        running.until("expected yes or no, got 'perhaps'")
        running.until(r"2004h.*sure \(yes or no\):")
        running.type("y\n")
        running.until("send it")
        running.type("y\n")
        assert running.wait() == 0
    body = json.loads(messages(upstream.requests[1])[-1]["content"])
    given = {"action": "accept", "content": {"name": "Ada", "sure": True}}
    assert body == {"inputResponses": {"who": given}, "requestState": "état 1"}


@pytest.mark.parametrize(("typed", "action"), [("n\n", "decline"), ("\x04", "cancel")])
def test_question_of_an_mcp_server_can_be_declined_and_left(
    typed: str, action: str, tmp_path: Path
) -> None:
    server = f"shop={sys.executable} -S {ROUGH} asks_first"
    script = [call("shop__ask", {}), answer("Done.")]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "ask", "--yes", "--mcp", server, *options(upstream)) as running,
    ):
        running.until("answer it")
        running.type(typed)
        assert running.wait() == 0
    body = json.loads(messages(upstream.requests[1])[-1]["content"])
    assert body["inputResponses"] == {"who": {"action": action}}


def test_question_of_an_mcp_server_waits_for_the_line_that_is_being_typed(tmp_path: Path) -> None:
    server = f"shop={sys.executable} -S {ROUGH} asks_by_itself"
    with (
        ScriptedUpstream.in_thread([answer("First.")]) as upstream,
        in_terminal(tmp_path, "--mcp", server, *options(upstream)) as running,
    ):
        running.until(PROMPT)
        (tmp_path / "go").touch()
        running.until("waits for your answer")
        running.type("\n")
        running.until("the MCP server shop ")
        running.until("answer it")
        running.type("n\n")
        running.until(PROMPT)
        running.type("one\n")
        running.until(r"First\.")
        running.until(PROMPT)
        running.press_ctrl_d()
        assert running.wait() == 0
    assert json.loads((tmp_path / "answered").read_text("utf-8"))["result"] == {"action": "decline"}
    assert user_words(upstream.requests[0]) == ["one"]


def test_login_at_an_mcp_server_goes_by_the_browser_and_is_needed_once(tmp_path: Path) -> None:
    browser = tmp_path / "browser.py"
    browser.write_text("import sys, urllib.request as r; r.urlopen(sys.argv[1]).read()\n", "utf-8")
    environ = {"BROWSER": f"{sys.executable} {browser} %s"}
    with guarded_in_thread() as far, ScriptedUpstream.in_thread([answer("Fine.")] * 2) as upstream:
        server = ("--mcp", f"far={far.url}", *options(upstream))
        with in_terminal(tmp_path, "hello", *server, env=environ) as running:
            running.until("the MCP server far wants you to log in: open")
            running.until("Fine")
            assert running.wait() == 0
        assert far.paths().count("/tenant/authorize") == 1
        again = run_piped(tmp_path, "hello", *server)
        assert (again.returncode, again.stderr) == (0, "")
        assert far.paths().count("/tenant/authorize") == 1
    tools = [each["function"]["name"] for each in json.loads(upstream.requests[1].body)["tools"]]
    assert "far__work" in tools


def test_login_that_nobody_can_make_is_reported(tmp_path: Path) -> None:
    with guarded_in_thread() as far, ScriptedUpstream.in_thread([answer("Fine.")]) as upstream:
        done = run_piped(
            tmp_path, "hello", "--quiet", "--mcp", f"far={far.url}", *options(upstream)
        )
    assert (done.returncode, done.stdout) == (4, "Fine.\n")
    assert "MCP server far" in done.stderr
    assert "wants a login" in done.stderr
