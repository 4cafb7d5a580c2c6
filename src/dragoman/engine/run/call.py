"""One call: the tool runs with a time limit, its output is checked and cut, and its exceptions become results.

The tool runs in a task of its own. To stop it, the engine cancels it once and gives it `stop_grace` seconds to clean up. A tool
that does not stop is left behind, cancelled again, and logged: no tool can block a run.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from dragoman.core.failures import error_info
from dragoman.engine.actions import RunCall, Settled
from dragoman.engine.events import Settlement
from dragoman.engine.results import STILL_RUNNING, check_output, cut_text, fit_content
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import Entry
from dragoman.engine.tools import Invocation, Output
from dragoman.errors import FatalToolError, ToolError
from dragoman.model.parts import Text

logger = logging.getLogger("dragoman.engine")

MAX_ERROR_CHARACTERS = 4000
"""Characters of an exception's text: one that quotes its whole input must not fill the model's context."""

# Tools that did not stop, referenced so that they are not garbage-collected while they run. They remove themselves.
_left_behind: set[asyncio.Task[Output]] = set()


async def run_call(
    order: RunCall, settings: EngineSettings, report: Callable[[str], None]
) -> Settled:
    """Run the call to its end. If the caller is cancelled, the tool is stopped and the call settles as aborted."""
    clock = asyncio.get_running_loop().time
    start = clock()
    seconds = order.entry.offer.timeout
    limit = settings.tool_timeout if seconds is None else seconds
    task = asyncio.create_task(_perform(order.entry, Invocation(order.call, report)))
    how: Settlement = "timed_out"
    try:
        await asyncio.wait((task,), timeout=limit)
    except asyncio.CancelledError:
        how = "aborted"
    if task.done():
        return _settle(order, task, settings, clock() - start)
    is_stuck = not await _stop(task, settings.stop_grace)
    if is_stuck:
        _leave_behind(order.call.name, task)
    text = f"Timed out after {limit or 0.0:g} s and was stopped.{STILL_RUNNING if is_stuck else ''}"
    return Settled(
        number=order.number,
        how=how,
        content=() if how == "aborted" else (Text(text=text),),
        elapsed=clock() - start,
        is_stuck=is_stuck,
    )


async def _perform(entry: Entry, invocation: Invocation) -> Output:
    name = invocation.call.name
    try:
        return check_output(name, await entry.tool.run(invocation))
    except SystemExit as error:
        # An exception of this kind would end the event loop, and the program with it.
        raise ToolError(
            f"The tool {name!r} exited with the code {error.code!r} and returned no output."
        ) from error


async def _stop(task: asyncio.Task[Output], grace: float) -> bool:
    """Cancel the task and wait, even if the caller is cancelled too. Returns whether the task has stopped."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + grace
    task.cancel()
    while not task.done() and clock() < deadline:
        try:
            await asyncio.wait((task,), timeout=deadline - clock())
        except asyncio.CancelledError:
            continue
    if task.done() and not task.cancelled():
        # Retrieve an exception that the task raised while stopping, or asyncio logs it.
        task.exception()
    return task.done()


def _leave_behind(name: str, task: asyncio.Task[Output]) -> None:
    logger.warning("tool %s did not stop when it was cancelled and is left behind", name)
    _left_behind.add(task)
    task.add_done_callback(_forget)
    task.cancel()


def _forget(task: asyncio.Task[Output]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()


def _settle(
    order: RunCall, task: asyncio.Task[Output], settings: EngineSettings, elapsed: float
) -> Settled:
    name = order.call.name
    if task.cancelled():
        return _failed(order, f"The tool {name!r} was cancelled without an output.", elapsed)
    error = task.exception()
    if isinstance(error, FatalToolError):
        return replace(_failed(order, error.message, elapsed), fatal=error_info(error))
    if isinstance(error, ToolError):
        return _failed(order, error.message, elapsed)
    if error is not None:
        logger.warning("tool %s failed", name, exc_info=error)
        return _failed(order, f"The tool {name!r} failed: {_describe(error)}", elapsed)
    output = task.result()
    return Settled(
        number=order.number,
        how="failed" if output.is_error else "done",
        content=fit_content(
            output,
            max_characters=settings.max_output_characters,
            max_media=settings.max_media_characters,
        ),
        is_error=output.is_error,
        elapsed=elapsed,
    )


def _failed(order: RunCall, text: str, elapsed: float) -> Settled:
    content = (Text(text=cut_text(text, MAX_ERROR_CHARACTERS)),)
    return Settled(number=order.number, how="failed", content=content, elapsed=elapsed)


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        # An exception whose `__str__` raises.
        return type(error).__name__
