"""What the tools for files share: a name, typed arguments, work that runs in a thread because it blocks, the paths of a call for
the policy, and the rules for what counts as text.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from dragoman.engine.approval import Subject
from dragoman.engine.builtin.root import Root
from dragoman.engine.function_tool import Arguments, describe_record
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Invocation, Offer, Output
from dragoman.errors import ToolError
from dragoman.model.parts import Call

A = TypeVar("A", bound=Struct)


@runtime_checkable
class Judged(Protocol):
    """A tool that names the subjects of a call for the policy."""

    def subjects(self, call: Call) -> Sequence[Subject]: ...


class Spec(Struct, Generic[A], frozen=True, kw_only=True):
    """A tool: its name and description, the type of its arguments, its work, and the subjects of a call for the policy.

    `work` runs in a thread and ends soon after its event is set.
    """

    name: str
    description: str
    arguments: type[A]
    work: Callable[[A, threading.Event], Output]
    subjects: Callable[[A], Sequence[Subject]]
    is_parallel: bool = False
    timeout: float | None = None


class BuiltinTool(Generic[A]):
    """A `Spec` as a tool."""

    def __init__(self, spec: Spec[A]) -> None:
        self._spec = spec
        self._arguments: Arguments[A] = describe_record(spec.name, spec.description, spec.arguments)
        self._offer = Offer(
            declaration=self._arguments.declaration,
            is_parallel=spec.is_parallel,
            timeout=spec.timeout,
        )

    @property
    def offer(self) -> Offer:
        return self._offer

    def subjects(self, call: Call) -> Sequence[Subject]:
        return self._spec.subjects(self._arguments.read(call.input))

    async def run(self, invocation: Invocation) -> Output:
        arguments = self._arguments.read(invocation.call.input)
        stop = threading.Event()
        try:
            return await run_to_end(
                partial(self._spec.work, arguments, stop), self._spec.name, stop.set
            )
        except OSError as error:
            raise ToolError(f"{self._spec.name}: {error.strerror or error}") from error


def path_subjects(root: Root, paths: Iterable[str]) -> Sequence[Subject]:
    """Each path as it is written and with links resolved: a rule may name either, and a link must not evade it.

    Raises:
        ToolError: a path leads out of the root.
    """
    found: dict[str, None] = {}
    for path in paths:
        found[root.written(path)] = None
        found[root.resolved(path)] = None
    return [Subject("path", path) for path in found]


# Longer lines are data or minified code; showing more helps nobody.
MAX_LINE = 2_000
# As git does it.
_PROBED = 8_192


def is_binary(data: bytes) -> bool:
    """Whether the bytes are no text: there is a zero byte among the first."""
    return b"\0" in data[:_PROBED]


def as_text(data: bytes, path: str) -> str:
    """The text of a file that will be changed.

    Raises:
        ToolError: it is not UTF-8, so writing it back would change more than intended.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path} is not UTF-8 text (byte {error.start:,}); it cannot be edited as text"
        ) from error


def as_bytes(text: str, path: str) -> bytes:
    """The text as UTF-8.

    Raises:
        ToolError: it has characters that UTF-8 cannot express.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{path}: the text has half a surrogate pair at character {error.start:,}"
        ) from error


def shown_line(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}… ({len(line):,} characters)"
