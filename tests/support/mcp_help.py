"""Real MCP servers for tests: their settings, calls of their tools, and what is left of them afterwards."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path

from dragoman._json import dumps
from dragoman.config.settings import McpServerSettings, RestartSettings
from dragoman.engine.mcp.servers import McpServers
from dragoman.engine.tools import Invocation, Output, Tool
from dragoman.model.parts import Call, Text

SERVERS = Path(__file__).parent / "mcp_servers"
# A bound on each wait, not a measure: two cores may be shared by many.
PATIENCE = 30.0
QUICK = RestartSettings(first_delay=0.01, max_delay=0.05, attempts=3, again_after=600.0)


def workshop(records: Path | None = None) -> McpServerSettings:
    """The well-behaved server, over its pipes."""
    env = {} if records is None else {"RECORDS": str(records)}
    command = (sys.executable, str(SERVERS / "workshop.py"))
    return McpServerSettings(name="workshop", command=command, env=env, restart=QUICK)


def rough(kind: str, records: Path, *, name: str = "rough") -> McpServerSettings:
    """A server that behaves badly, over its pipes."""
    # without the site packages it starts at once
    command = (sys.executable, "-S", str(SERVERS / "rough.py"), kind)
    return McpServerSettings(
        name=name, command=command, env={"RECORDS": str(records)}, restart=QUICK
    )


@contextmanager
def served_workshop(
    records: Path | None = None, port: int = 0, *, is_old: bool = False
) -> Generator["Served"]:
    """The well-behaved server, over streamable HTTP on a port of its own. `is_old`: it knows no protocol without a handshake."""
    served = Served(records, port, is_old=is_old)
    try:
        yield served
    finally:
        served.end()


class Served:
    """A process that serves MCP over HTTP."""

    def __init__(self, records: Path | None, port: int, *, is_old: bool) -> None:
        env = dict(os.environ) if records is None else {**os.environ, "RECORDS": str(records)}
        self._process = subprocess.Popen(
            [sys.executable, str(SERVERS / "workshop.py"), "old" if is_old else "http", str(port)],
            stdout=subprocess.PIPE,
            env=env,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def settings(self) -> McpServerSettings:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return McpServerSettings(name="workshop", url=url, restart=QUICK)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def tool_named(servers: McpServers, name: str) -> Tool:
    return next(each for each in servers.tools() if each.offer.declaration.name == name)


async def call_tool(
    servers: McpServers,
    name: str,
    /,
    *,
    report: Callable[[str], None] = lambda text: None,
    **arguments: object,
) -> Output:
    """Run a tool as the engine would, within `PATIENCE`."""
    call = Call(call_id="call_1", name=name, input=dumps(arguments).decode())
    async with asyncio.timeout(PATIENCE):
        return await tool_named(servers, name).run(Invocation(call, report))


def said(output: Output) -> str:
    """The words of an output that has nothing else."""
    assert all(isinstance(part, Text) for part in output.content)
    return "".join(part.text for part in output.content if isinstance(part, Text))


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what another process does; a test that waits in vain fails."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 -- files have no events
            await asyncio.sleep(0.01)


def recorded(records: Path, event: str) -> int | None:
    """The process that recorded the event; None: it has not happened."""
    path = records / event
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return int(text) if text else None


def is_alive(pid: int) -> bool:
    """Whether the process is there and is not a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def played(main: Coroutine[object, object, None]) -> None:
    """Play it in a loop of its own, and see that no task, no process and no file of it is left."""
    children, files = _children(), _files()

    async def whole() -> None:
        await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())
    assert _children() == children
    assert _files() == files


def _children() -> set[int]:
    """Our child processes, zombies included."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            status = path.read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(status.rpartition(")")[2].split()[1]) == os.getpid():
            found.add(int(path.parent.name))
    return found


def _files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
