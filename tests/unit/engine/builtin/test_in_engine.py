"""The built-in tools in the engine: read side by side, written one by one, refused in words, and gone when the run is stopped."""

import asyncio
import os
from pathlib import Path

from dragoman._json import dumps_document
from dragoman.config.policy import read_policy
from dragoman.engine.builtin import TerminalOptions, say_yes, terminal_tools
from dragoman.engine.events import CallReported, CallSettled, EngineEvent, RunEnded
from dragoman.engine.run import Engine
from dragoman.model.parts import Call, CallKind, Result, Text
from dragoman.model.request import Request, Turn
from engine_models import Script, answer_calls, answer_text
from running_tools import open_files, processes_with

# A sandbox has to be set up, and the machine may be busy.
SECONDS = 60.0
ASK = Request(turns=(Turn(role="user", parts=(Text(text="Do it."),)),))


def call(number: int, name: str, kind: CallKind = "function", **arguments: object) -> Call:
    return Call(
        call_id=f"call_{number}",
        name=name,
        kind=kind,
        input=dumps_document(arguments).decode("utf-8"),
    )


def results_of(ended: RunEnded) -> list[str]:
    """Return the results of the calls that the model got, in order."""
    parts = [part for turn in ended.turns for part in turn.parts if isinstance(part, Result)]
    return ["".join(each.text for each in part.content if isinstance(each, Text)) for part in parts]


def test_a_turn_of_all_tools_works_on_real_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n", encoding="utf-8")
    patch = "*** Begin Patch\n*** Update File: b.txt\n@@\n-two\n+three\n*** End Patch"
    calls = [
        call(1, "read", path="a.txt"),
        call(2, "grep", pattern="alp"),
        call(3, "write", path="b.txt", content="one\n"),
        call(4, "edit", path="b.txt", old_string="one", new_string="two"),
        Call(call_id="call_5", name="apply_patch", kind="custom", input=patch),
        call(6, "shell", command="cat b.txt"),
        call(7, "local_shell", "local_shell", type="exec", command=["cat", "b.txt"]),
        call(8, "glob", pattern="*.txt"),
        call(9, "read", path="../outside"),
        call(10, "read", path=3),
    ]
    options = TerminalOptions(freeform_patch=True, local_shell=True)
    engine = Engine(
        Script(answer_calls(*calls), answer_text()),
        terminal_tools(tmp_path, ask=say_yes, options=options),
    )
    ended = asyncio.run(asyncio.wait_for(engine.run(ASK), SECONDS))
    assert ended.reason == "answered"
    found = results_of(ended)
    assert found[0] == "     1\talpha"
    assert found[1] == "a.txt:1:alpha"
    assert found[2:5] == ["created b.txt (4 bytes)", "edited b.txt (once)", "updated b.txt"]
    assert found[5].startswith("three\n[exit code 0")
    assert found[6].startswith("three\n[exit code 0")
    assert found[7] == "a.txt\nb.txt"
    assert "leads out" in found[8]
    assert "path: expected string, got 3" in found[9]


def test_the_name_of_a_file_that_is_no_text_can_be_sent(tmp_path: Path) -> None:
    name = tmp_path / os.fsdecode(b"caf\xe9.txt")
    name.write_text("alpha\n", encoding="utf-8")
    calls = [call(1, "glob", pattern="*.txt"), call(2, "grep", pattern="alpha")]
    engine = Engine(Script(answer_calls(*calls), answer_text()), terminal_tools(tmp_path))
    ended = asyncio.run(asyncio.wait_for(engine.run(ASK), SECONDS))
    assert results_of(ended) == ["caf\ufffd.txt", "caf\ufffd.txt:1:alpha"]


def test_what_is_denied_is_read_by_the_model_and_the_run_goes_on(tmp_path: Path) -> None:
    policy = read_policy('deny = ["shell: rm *"]')
    calls = [call(1, "shell", command="cd . && rm -rf x"), call(2, "write", path="a", content="")]
    engine = Engine(
        Script(answer_calls(*calls), answer_text()), terminal_tools(tmp_path, policy=policy)
    )
    ended = asyncio.run(asyncio.wait_for(engine.run(ASK), SECONDS))
    assert ended.reason == "answered"
    denied, refused = results_of(ended)
    assert "denied here by the rule 'shell: rm *'" in denied
    assert "nobody can be asked" in refused
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_leaves_no_process_and_a_result_for_each_call(tmp_path: Path) -> None:
    sleeping = "sleep 65.2507311 & echo up; sleep 65.2507312"
    settled: list[CallSettled] = []
    before = open_files()

    async def go() -> RunEnded:
        async def watch(event: EngineEvent) -> None:
            if isinstance(event, CallReported):
                engine.interrupt()
            if isinstance(event, CallSettled):
                settled.append(event)

        engine = Engine(
            Script(
                answer_calls(call(1, "shell", command=sleeping), call(2, "shell", command="true"))
            ),
            terminal_tools(tmp_path, ask=say_yes),
            observer=watch,
        )
        ended = await asyncio.wait_for(engine.run(ASK), SECONDS)
        assert not processes_with("65.250731")
        return ended

    ended = asyncio.run(go())
    assert ended.reason == "cancelled"
    assert [each.how for each in settled] == ["aborted", "aborted"]
    assert len(results_of(ended)) == 2
    assert open_files() <= before
