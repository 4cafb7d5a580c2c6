"""What the tools for files share: typed arguments, work that runs in a thread because it blocks, the paths of a call for the
policy, and the rules for what counts as text.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from dragoman.engine.approval import READING_TOOLS, FileChange, Subject
from dragoman.engine.builtin.root import Root
from dragoman.engine.function_tool import describe_record
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Declaration, Invocation, Offer, Output
from dragoman.errors import ToolError
from dragoman.model.parts import Call

A = TypeVar("A", bound=Struct)
T = TypeVar("T")
Work = Callable[[Root, A, threading.Event], Output]
Changes = Callable[[Root, A], Sequence[FileChange]]


class FileTool(Struct, Generic[A], frozen=True, kw_only=True):
    """A tool for the files below a root.

    read: reads the input of a call. paths: returns the paths that a call names. work: runs in a thread, and ends soon after
    its event is set. changes: what a call would do to files; None: the tool only reads.
    """

    root: Root
    declaration: Declaration
    read: Callable[[str], A]
    paths: Callable[[A], Iterable[str]]
    work: Work[A]
    changes: Changes[A] | None = None

    @property
    def offer(self) -> Offer:
        return Offer(
            declaration=self.declaration, is_parallel=self.declaration.name in READING_TOOLS
        )

    def subjects(self, call: Call) -> Sequence[Subject]:
        """Each path, both as written and with links resolved: a rule may name either, and a link must not evade it.

        Raises:
            ToolError: a path leads out of the root, or the arguments do not fit.
        """
        found: dict[str, None] = {}
        for path in self.paths(self.read(call.input)):
            found[self.root.written(path)] = None
            found[self.root.resolved(path)] = None
        return [Subject("path", path) for path in found]

    async def preview(self, call: Call) -> Sequence[FileChange]:
        """What the call would do to the files as they are now.

        Raises:
            ToolError: the call would fail, or a file is not text.
        """
        if self.changes is None:
            return ()
        return await self._perform(partial(self.changes, self.root, self.read(call.input)))

    async def run(self, invocation: Invocation) -> Output:
        arguments = self.read(invocation.call.input)
        stop = threading.Event()
        return await self._perform(partial(self.work, self.root, arguments, stop), stop.set)

    async def _perform(self, work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
        name = self.declaration.name
        try:
            return await run_to_end(work, name, stop)
        except OSError as error:
            raise ToolError(f"{name}: {error.strerror or error}") from error


def file_tool(  # noqa: PLR0913 - the parts of a tool
    root: Root,
    name: str,
    description: str,
    kind: type[A],
    work: Work[A],
    paths: Callable[[A], Iterable[str]],
    *,
    changes: Changes[A] | None = None,
) -> FileTool[A]:
    """A tool whose arguments are the fields of a struct."""
    arguments = describe_record(name, description, kind)
    return FileTool(
        root=root,
        declaration=arguments.declaration,
        read=arguments.read,
        paths=paths,
        work=work,
        changes=changes,
    )


# The number of bytes that git checks.
_PROBED = 8_192


def is_binary(data: bytes) -> bool:
    """Whether the bytes are not text: a zero byte is among the first ones."""
    return b"\0" in data[:_PROBED]


def as_text(data: bytes, path: str) -> str:
    """The text of a file that will be changed.

    Raises:
        ToolError: the bytes are not UTF-8, so writing the text back would change more than intended.
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
        ToolError: the text has characters that UTF-8 cannot express.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{path}: the text has half a surrogate pair at character {error.start:,}"
        ) from error
