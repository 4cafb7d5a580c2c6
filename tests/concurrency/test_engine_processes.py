"""A run that is ended while a real shell works: no process and no file handle stays."""

import asyncio
from pathlib import Path

import pytest

from dragoman._json import dumps
from dragoman.core.pairing import is_paired
from dragoman.engine.builtin import terminal_tools
from dragoman.engine.builtin.gate import say_yes
from dragoman.engine.run import Engine
from dragoman.engine.settings import EngineSettings
from engine_models import Script, answer_calls, answer_text, ask, bounded, call, texts_of

# Two processes: the shell, and a child in the background that nobody waits for.
COMMAND = "sleep 1000 & echo $! $$ > pids; mv pids ready; wait"


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    # One that has ended and that nobody has asked after yet holds nothing any more.
    return " Z " not in stat


async def started(root: Path) -> list[int]:
    async def wait() -> list[int]:
        ready = root / "ready"
        while not ready.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.005)
        return [int(word) for word in ready.read_text(encoding="utf-8").split()]

    return await bounded(wait())


@pytest.mark.requirement("S002-32")
@pytest.mark.parametrize("how", ["interrupted", "cancelled", "out of time"])
def test_shell_and_its_children_end_with_the_run(how: str, tmp_path: Path) -> None:
    async def main() -> tuple[Engine, list[int]]:
        tools = terminal_tools(tmp_path, ask=say_yes, sandbox="off")
        made = call("shell", arguments=dumps({"command": COMMAND}).decode())
        settings = EngineSettings(max_seconds=2.0 if how == "out of time" else None)
        engine = Engine(Script(answer_calls(made), answer_text()), tools, settings=settings)
        run = asyncio.create_task(engine.run(ask()))
        pids = await started(tmp_path)
        assert all(map(is_alive, pids))
        if how == "interrupted":
            engine.interrupt()
        elif how == "cancelled":
            run.cancel()
        await bounded(asyncio.wait((run,)))
        assert run.cancelled() is (how == "cancelled")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return engine, pids

    before = handles()
    engine, pids = asyncio.run(main())
    assert not any(map(is_alive, pids))
    assert handles() <= before
    assert is_paired(engine.turns)
    assert texts_of(engine.turns)[0][1].startswith("Aborted after")
