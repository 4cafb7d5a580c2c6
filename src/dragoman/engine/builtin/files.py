"""`read`: lines of a text file with their numbers, or an image. `write`: a whole file. `edit`: one piece of a text file replaced
by another; the piece must occur exactly, and only once.

First what all tools for files share: typed arguments, work that runs in a thread because it blocks, the paths of a call for
the policy, and the rules for what counts as text.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Generic, TypeVar

from msgspec import Struct

from dragoman.engine.approval import READING_TOOLS, FileChange, Subject
from dragoman.engine.builtin.root import Root
from dragoman.engine.function_tool import describe_record
from dragoman.engine.results import image_part
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Declaration, Invocation, Offer, Output, text_output
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


# --- read, write, edit ------------------------------------------------------------------------------------------------

# Most source files are shorter.
DEFAULT_LINES = 2_000
# Less than the engine's limit for one result.
MAX_SHOWN = 60_000
# Longer lines are data or minified code.
MAX_LINE = 2_000
# Providers accept images of up to 5 MB.
MAX_IMAGE = 5_000_000

READ_DESCRIPTION = "Read a file. Text comes with line numbers; images are shown. Paths are relative to the working folder."


class ReadArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, "The file, relative to the working folder"]
    offset: Annotated[int, "The first line to read, from 1"] = 1
    limit: Annotated[int, "How many lines to read"] = DEFAULT_LINES


def read_tool(root: Root) -> FileTool[ReadArguments]:
    """The tool `read` below a root."""
    return file_tool(
        root, "read", READ_DESCRIPTION, ReadArguments, _read, lambda arguments: [arguments.path]
    )


def _read(root: Root, arguments: ReadArguments, _: threading.Event) -> Output:
    if arguments.offset < 1 or arguments.limit < 1:
        raise ToolError(
            f"expected offset and limit to be at least 1, got {arguments.offset} and {arguments.limit}"
        )
    path = arguments.path
    data = root.read(path)[0]
    image = image_part(data) if len(data) <= MAX_IMAGE else None
    if image is not None:
        return Output(content=(image,))
    if is_binary(data):
        raise ToolError(f"{path} is a binary file of {len(data):,} bytes")
    if not data:
        return text_output(f"({path} is empty)")
    return text_output(_numbered(data.decode("utf-8", "replace"), arguments))


def _numbered(content: str, arguments: ReadArguments) -> str:
    lines = content.split("\n")
    if not lines[-1]:
        lines.pop()
    first = arguments.offset - 1
    if first >= len(lines):
        raise ToolError(
            f"{arguments.path} has {len(lines):,} lines; there is no line {first + 1:,}"
        )
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines[first : first + arguments.limit], first + 1):
        text = line.removesuffix("\r")
        if len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]}… ({len(text):,} characters)"
        written = f"{number:6d}\t{text}"
        size += len(written) + 1
        if size > MAX_SHOWN and shown:
            break
        shown.append(written)
    last = first + len(shown)
    if last < len(lines):
        shown.append(f"({len(lines) - last:,} more lines; read on with offset {last + 1})")
    return "\n".join(shown)


WRITE_DESCRIPTION = (
    "Write a whole file: create it, or replace the existing one. Missing folders are created. To change a part of a file, "
    "use edit."
)


class WriteArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, "The file, relative to the working folder"]
    content: Annotated[str, "The whole content of the file"]


def write_tool(root: Root) -> FileTool[WriteArguments]:
    """The tool `write` below a root."""
    return file_tool(
        root,
        "write",
        WRITE_DESCRIPTION,
        WriteArguments,
        _write,
        lambda arguments: [arguments.path],
        changes=_write_changes,
    )


def _write_changes(root: Root, arguments: WriteArguments) -> list[FileChange]:
    path = arguments.path
    before = None if root.status(path) is None else as_text(root.read(path)[0], path)
    return [FileChange(path, before, arguments.content)]


def _write(root: Root, arguments: WriteArguments, _: threading.Event) -> Output:
    data = as_bytes(arguments.content, arguments.path)
    done = "replaced" if root.write(arguments.path, data) else "created"
    return text_output(f"{done} {arguments.path} ({len(data):,} bytes)")


# Line numbers in the message for a text that occurs several times.
MAX_PLACES = 10

EDIT_DESCRIPTION = (
    "Replace a piece of a text file. old_string must match the file exactly, including white space, and must occur only "
    "once: include enough lines around it. replace_all replaces every occurrence."
)


class EditArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, "The file, relative to the working folder"]
    old_string: Annotated[str, "The text to replace, exactly as it is in the file"]
    new_string: Annotated[str, "The text to put in its place"]
    replace_all: Annotated[bool, "Replace every occurrence"] = False


def edit_tool(root: Root) -> FileTool[EditArguments]:
    """The tool `edit` below a root."""
    return file_tool(
        root,
        "edit",
        EDIT_DESCRIPTION,
        EditArguments,
        _edit,
        lambda arguments: [arguments.path],
        changes=_edit_changes,
    )


def _edit_changes(root: Root, arguments: EditArguments) -> list[FileChange]:
    before = as_text(root.read(arguments.path)[0], arguments.path)
    return [FileChange(arguments.path, before, _replaced(before, arguments)[0])]


def _edit(root: Root, arguments: EditArguments, _: threading.Event) -> Output:
    data, status = root.read(arguments.path)
    text, count = _replaced(as_text(data, arguments.path), arguments)
    root.write(arguments.path, as_bytes(text, arguments.path), expected=status)
    times = "once" if count == 1 else f"{count} times"
    return text_output(f"edited {arguments.path} ({times})")


def _replaced(text: str, arguments: EditArguments) -> tuple[str, int]:
    """The text with the replacement, and the number of replacements."""
    path, old, new = arguments.path, arguments.old_string, arguments.new_string
    if not old:
        raise ToolError(
            "expected old_string to be the text to replace, got nothing; use write for a new file"
        )
    if old == new:
        raise ToolError("old_string and new_string are the same: there is nothing to change")
    ends = text.count("\r\n")
    if ends and "\r" not in old and (ends == text.count("\n") or old not in text):
        # `read` shows lines without their ends, so the model cannot know that this file ends its lines with two characters.
        old, new = (each.replace("\r\n", "\n").replace("\n", "\r\n") for each in (old, new))
    count = text.count(old)
    if not count:
        raise ToolError(_not_found(text, old, path))
    if count > 1 and not arguments.replace_all:
        raise ToolError(
            f"old_string occurs {count} times in {path} (lines {_places(text, old)}): "
            "include more of the lines around it, or set replace_all"
        )
    return text.replace(old, new), count


def _places(text: str, piece: str) -> str:
    places: list[str] = []
    at = line = 0
    start = 0
    while len(places) < MAX_PLACES and (at := text.find(piece, start)) >= 0:
        line += text.count("\n", start, at)
        places.append(str(line + 1))
        line += piece.count("\n")
        start = at + len(piece)
    return ", ".join(places) + (", …" if text.find(piece, start) >= 0 else "")


def _not_found(text: str, old: str, path: str) -> str:
    """The error message. It names a line that differs only in white space: the most frequent mistake of models."""
    message = f"old_string was not found in {path}"
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    if not first:
        return f"{message}; read the file and copy the text exactly"
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() == first:
            return (
                f"{message}; its first line is like line {number} ({line[:200]!r}), but the white space or what follows "
                "differs: read the file and copy the text exactly"
            )
    return f"{message}, and neither was its first line; read the file and copy the text exactly"
