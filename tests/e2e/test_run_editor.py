"""`dragoman run` with its line editor: pastes, lines, history, commands, diffs and reasons, in a terminal of its own."""

import json
from pathlib import Path

import pytest

from dragoman.testing import ReceivedRequest, ScriptedUpstream
from pty_command import answer, call, in_terminal, messages

PROMPT = "2004h.*m>"
APPROVAL = r"2004h.*\[y\]es.*:"


def options(upstream: ScriptedUpstream) -> tuple[str, ...]:
    return "--upstream", f"chat={upstream.url}/v1", "--model", "some-model"


def user_words(request: ReceivedRequest) -> list[str]:
    return [each["content"] for each in messages(request) if each["role"] == "user"]


def test_long_paste_of_many_lines_is_one_question(tmp_path: Path) -> None:
    pasted = "\n".join(f"line {number} {'x' * 90}" for number in range(1000))
    assert len(pasted) > 95_000
    with (
        ScriptedUpstream.in_thread([answer("Read.")]) as upstream,
        in_terminal(tmp_path, *options(upstream)) as running,
    ):
        running.until(PROMPT)
        running.paste(pasted)
        running.type("\r")
        running.until(r"Read\.")
        running.until(PROMPT)
        running.press_ctrl_d()
        assert running.wait() == 0
    assert user_words(upstream.requests[0]) == [pasted]
    assert len(upstream.requests) == 1


def test_paste_that_the_terminal_does_not_mark_is_one_question(tmp_path: Path) -> None:
    pasted = "\n".join(f"line {number} {'x' * 90}" for number in range(200)) + "\nQQQQ"
    with (
        ScriptedUpstream.in_thread([answer("Read.")]) as upstream,
        in_terminal(tmp_path, *options(upstream)) as running,
    ):
        running.until(PROMPT)
        running.type(pasted.replace("\n", "\r"))
        running.until("QQQQ")
        running.type("\r")
        running.until(r"Read\.")
        running.until(PROMPT)
        running.press_ctrl_d()
        assert running.wait() == 0
    assert user_words(upstream.requests[0]) == [pasted]


def test_lines_end_with_a_backslash_or_alt_enter_and_history_comes_back(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread([answer("One."), answer("Two.")]) as upstream:
        with in_terminal(tmp_path, *options(upstream)) as running:
            running.until(PROMPT)
            running.type("first\\\r")
            running.until("2C|first")
            running.type("second\x1b\rthird")
            running.until("third")
            running.type("\r")
            running.until(r"One\.")
            running.until(PROMPT)
            running.type("/quit\r")
            assert running.wait() == 0
        history = tmp_path / "state" / "dragoman" / "history.jsonl"
        assert history.stat().st_mode & 0o777 == 0o600
        with in_terminal(tmp_path, *options(upstream)) as running:
            running.until(PROMPT)
            running.type("\x10\x10\x10\x10")  # Ctrl-P through /quit and the lines of the question
            running.until("first")
            running.type("\r")
            running.until(r"Two\.")
            running.until(PROMPT)
            running.press_ctrl_d()
            assert running.wait() == 0
    assert user_words(upstream.requests[0]) == ["first\nsecond\nthird"]
    assert user_words(upstream.requests[1]) == ["first\nsecond\nthird"]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("/help", "/compact +replace"),
        ("/tools", "apply_patch"),
        ("/model other", "the model is other"),
        ("/resume", "expected another saved conversation"),
        ("/resume nonsense", "expected the id of a saved conversation"),
        ("/compact", "nothing was summarised"),
        ("/expand 7", "expected the number of a call"),
        ("/nonsense", "unknown command /nonsense"),
    ],
)
def test_command_is_no_question(tmp_path: Path, typed: str, shown: str) -> None:
    with (
        ScriptedUpstream.in_thread([answer("Fine.")]) as upstream,
        in_terminal(tmp_path, *options(upstream)) as running,
    ):
        running.until(PROMPT)
        running.type(f"{typed}\r")
        running.until(shown)
        running.until(PROMPT)
        running.type("//etc is a folder\r")
        running.until(r"Fine\.")
        running.until(PROMPT)
        running.type("/quit\r")
        assert running.wait() == 0
    (request,) = upstream.requests
    assert user_words(request) == ["/etc is a folder"]
    assert request.at("model") == ("other" if "model" in typed else "some-model")


def test_diff_is_shown_before_the_file_changes_and_the_reason_reaches_the_model(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\nthree\n", encoding="utf-8")
    edit = {"path": "a.txt", "old_string": "two", "new_string": "\x1b[2Jzwei"}
    with (
        ScriptedUpstream.in_thread([call("edit", edit), answer("I see.")]) as upstream,
        in_terminal(tmp_path, "change it", *options(upstream)) as running,
    ):
        running.until(APPROVAL)
        screen = running.screen
        running.type("n\r")
        running.until("2004h.*why not")
        running.type("keep it in English\r")
        assert running.wait() == 0
    lines = [line.strip() for line in screen.splitlines()]
    assert "- two" in lines
    assert "+ \\x1b[2Jzwei" in lines
    assert "\x1b[2J" not in running.raw
    assert file.read_text(encoding="utf-8") == "one\ntwo\nthree\n"
    assert "keep it in English" in json.dumps(messages(upstream.requests[1])[-1])


def test_tool_that_is_never_allowed_is_asked_for_once(tmp_path: Path) -> None:
    script = [
        call("shell", {"command": "touch one"}),
        call("shell", {"command": "touch two"}, "call_2"),
        answer("Done."),
    ]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, "do it", *options(upstream)) as running,
    ):
        running.until(APPROVAL)
        running.type("v\r")
        assert running.wait() == 0
        assert running.screen.count("[y]es") == 1
    assert not list(tmp_path.glob("[ot]*"))


def test_what_is_typed_while_the_agent_works_is_no_approval_and_waits_in_the_editor(
    tmp_path: Path,
) -> None:
    wait = "touch begun; while [ ! -e go ]; do sleep 0.05; done"
    script = [
        call("shell", {"command": wait}),
        call("write", {"path": "new.txt", "content": "x"}, "call_2"),
        answer("Done."),
        answer("Fine."),
    ]
    with (
        ScriptedUpstream.in_thread(script) as upstream,
        in_terminal(tmp_path, *options(upstream)) as running,
    ):
        running.until(PROMPT)
        running.type("begin\r")
        running.until(APPROVAL)
        running.type("y\r")
        running.until("shell touch begun")
        running.type("y\r")
        (tmp_path / "go").touch()
        running.until(r"2004h.*always write:")
        assert not (tmp_path / "new.txt").exists()
        running.type("n\r")
        running.until("2004h.*why not")
        running.type("\r")
        running.until(r"Done\.")
        running.until("2004h.*> y")
        running.type("\x15\x7fnext\r")
        running.until(r"Fine\.")
        running.until(PROMPT)
        running.press_ctrl_d()
        assert running.wait() == 0
    assert not (tmp_path / "new.txt").exists()
    assert user_words(upstream.requests[-1])[-1].endswith("next")
