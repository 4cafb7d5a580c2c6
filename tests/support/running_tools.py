"""Calls to tools of the engine in tests, and a look at what they leave behind."""

import asyncio
import os
import time
from pathlib import Path

from dragoman._json import dumps_document
from dragoman.engine.tools import Invocation, Output, Tool
from dragoman.errors import ToolError
from dragoman.model.parts import Call, CallKind, Text

# Nothing here waits longer than this without having failed.
SECONDS = 60.0


def call_of(tool: Tool, text: str, kind: CallKind | None = None) -> Call:
    declaration = tool.offer.declaration
    return Call(call_id="call_1", name=declaration.name, input=text, kind=kind or declaration.kind)


def run_tool(tool: Tool, **arguments: object) -> Output:
    """One call, awaited on a loop of its own. `input` alone is the text of a freeform tool."""
    is_freeform = tool.offer.declaration.kind == "custom"
    text = str(arguments["input"]) if is_freeform else dumps_document(arguments).decode("utf-8")

    async def go() -> Output:
        async with asyncio.timeout(SECONDS):
            return await tool.run(Invocation(call_of(tool, text), lambda _: None))

    return asyncio.run(go())


def said(output: Output) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


def error_of(tool: Tool, **arguments: object) -> str:
    """What the tool says when it cannot do it."""
    try:
        output = run_tool(tool, **arguments)
    except ToolError as error:
        return error.message
    raise AssertionError(f"expected a ToolError, got {output}")


def open_files() -> set[str]:
    """What this process has open, by number and target. What earlier tests left to the collector may be gone the next time."""
    found: set[str] = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:
            continue  # the listing's own
    return {each for each in found if "/proc/" not in each}


def processes_with(word: str, parent: int | None = None) -> list[int]:
    """Processes that have the word in their command line, zombies left out; of one parent only, if it is given."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            state, above = (
                (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            )
        except OSError:
            continue
        if word.encode() in line and state != "Z" and parent in (None, int(above)):
            found.append(int(entry.name))
    return found


def stuck(word: str) -> list[int]:
    """Those of `processes_with` that are still there after a moment."""
    for _ in range(1500):
        if not processes_with(word):
            return []
        time.sleep(0.02)
    return processes_with(word)
