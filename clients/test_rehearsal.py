"""`dragoman serve` as it is on a fresh machine: no configuration, no key, and every client does a round trip."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.claude_code import ClaudeCode
from clients.codex import Codex
from clients.gateway import serve_gateway
from clients.scenarios import MODES, PYTHON_MODES, TOOLS, Mode
from clients.stack import KEY
from clients.worker import Worker


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_gateway(tmp_path_factory.mktemp("rehearsal")) as address:
        yield address


@pytest.mark.parametrize("mode", [*MODES, *PYTHON_MODES], ids=str)
def test_sdk_rehearses(url: str, workers: dict[str, Worker], mode: Mode) -> None:
    job = {"url": url, "key": KEY, "model": "rehearsal", "retries": 0, "store": False}
    prompt = "What is the weather in Paris?"
    seen = workers[mode.worker].run(
        {**job, "client": mode.client, "mode": mode.mode, "prompt": prompt, "tools": TOOLS}
    )
    assert seen.error is None
    assert [(call.name, call.value) for call in seen.calls] == [("get_weather", {"city": "Paris"})]
    assert mode.result('get_weather got {"city":"Paris"}') in seen.texts[-1]


@pytest.mark.parametrize("model", ["rehearsal", "gpt-5.5", "gpt-6.1-sol"])
def test_codex_rehearses(url: str, tmp_path: Path, model: str) -> None:
    run = Codex(tmp_path, url).run(model, "Please use exec_command.")
    assert (run.code, run.errors) == (0, []), run
    assert "returned:" in run.text


README = "# Pomodoro\n\nA small timer.\n"


def test_codex_does_what_people_try_first(url: str, tmp_path: Path) -> None:
    codex = Codex(tmp_path, url)
    (codex.work / "README.md").write_text(README, encoding="utf-8")
    for prompt, shown in (
        ("list the files here", "README.md"),
        ("read README.md", "A small timer."),
        ("what does this project do?", "A small timer."),
        ("hello", "list the files here"),
    ):
        run = codex.run("rehearsal", prompt)
        assert (run.code, run.errors) == (0, []), run
        assert shown in run.text
        assert "rehearsal" in run.text
        assert "Wall time" not in run.text


def test_claude_code_does_what_people_try_first(url: str, tmp_path: Path) -> None:
    claude = ClaudeCode(tmp_path, url)
    (claude.work / "README.md").write_text(README, encoding="utf-8")
    for prompt, tools, shown in (
        ("list the files here", ["Bash"], "README.md"),
        ("read README.md", ["Read"], "A small timer."),
        ("what does this project do?", ["Read"], "A small timer."),
        ("create a file hello.txt with hi there", ["Read", "Write"], "hello.txt"),
        ("create a file hello.txt with something else", ["Read"], "only new files"),
        ("hello", [], "list the files here"),
    ):
        run = claude.run("claude-sonnet-4-5", prompt)
        assert (run.code, run.is_error) == (0, False), run
        assert [call["name"] for call in run.blocks("tool_use")] == tools
        assert shown in run.text
        assert "rehearsal" in run.text
    assert (claude.work / "hello.txt").read_text(encoding="utf-8") == "hi there\n"


def test_claude_code_rehearses(url: str, tmp_path: Path) -> None:
    run = ClaudeCode(tmp_path, url).run("claude-sonnet-4-5", "Please use Bash.")
    assert (run.code, run.is_error) == (0, False), run
    assert [call["name"] for call in run.blocks("tool_use")] == ["Bash"]
    assert "Bash returned:" in run.text
