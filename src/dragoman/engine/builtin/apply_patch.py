"""`apply_patch`: several changes to several files, all or none. As a freeform tool with a grammar, or as a function.

    *** Begin Patch
    *** Update File: src/a.py
    *** Move to: src/b.py
    @@ def greet():
     context
    -old line
    +new line
    *** Add File: notes.txt
    +its lines
    *** Delete File: gone.txt
    *** End Patch

A chunk is located by the lines that it keeps and removes, searching from where the last one ended: exactly, then ignoring
white space at the end of lines, then around them, then with typographic signs as plain ones. Kept lines stay as they are in
the file. `@@` with text moves on to the first line with that text; `*** End of File` tries the end of the file first.

All changes are computed before the first file is written. If writing a file fails, the files that were already written are
restored.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated

from msgspec import Struct

from dragoman.engine.approval import FileChange
from dragoman.engine.builtin.files import FileTool, as_bytes, as_text, file_tool
from dragoman.engine.builtin.root import Root
from dragoman.engine.tools import Declaration, Output, text_output
from dragoman.errors import ToolError
from dragoman.model.request import Grammar

MAX_PATCH = 4_194_304
MAX_OPERATIONS = 500
# Lines compared in one patch, about a second: without a limit, a file of equal lines takes quadratic time.
MAX_COMPARED = 2_000_000

GRAMMAR = r"""start: begin operation+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

operation: add | delete | update
add: "*** Add File: " path LF added+
delete: "*** Delete File: " path LF
update: "*** Update File: " path LF move? chunk?
move: "*** Move to: " path LF

chunk: (place | line)+ at_end?
place: ("@@" | "@@ " /(.+)/) LF
line: (" " | "-" | "+") /(.*)/ LF
added: "+" /(.*)/ LF
at_end: "*** End of File" LF
path: /(.+)/

%import common.LF
"""

_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _BEGIN, _END, _EOF = "*** Move to: ", "*** Begin Patch", "*** End Patch", "*** End of File"

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)  # fmt: skip


class PatchChunk(Struct):
    """One change: lines by their sign (`" "`, `"-"`, `"+"`), after the places that `@@` names."""

    places: list[str]
    lines: list[tuple[str, str]]
    is_at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]


class Operation(Struct):
    """The change of one file. An added file has one chunk with its lines."""

    kind: str
    path: str
    chunks: list[PatchChunk]
    move_to: str | None = None


def read_patch(text: str) -> list[Operation]:
    """The operations of a patch.

    Raises:
        ToolError: the text is not a patch. The message names the line.
    """
    if len(text) > MAX_PATCH:
        raise ToolError(f"expected a patch of at most {MAX_PATCH:,} characters, got {len(text):,}")
    lines = _unwrapped(text.replace("\r\n", "\n").strip().split("\n"))
    if lines[0].strip() != _BEGIN:
        raise ToolError(
            f"expected the first line of the patch to be {_BEGIN!r}, got {lines[0][:200]!r}"
        )
    if lines[-1].strip() != _END or len(lines) < 2:
        raise ToolError(
            f"expected the last line of the patch to be {_END!r}, got {lines[-1][:200]!r}"
        )
    return _PatchReader(lines[1:-1]).run()


def _unwrapped(lines: list[str]) -> list[str]:
    """The patch without a surrounding `<<'EOF'`, which models write out of habit."""
    is_wrapped = lines[0].strip().removeprefix("apply_patch").strip() in (
        "<<EOF",
        "<<'EOF'",
        '<<"EOF"',
    )
    if is_wrapped and len(lines) > 2 and lines[-1].strip() == "EOF":
        return lines[1:-1]
    return lines


class _PatchReader:
    """Reads the lines between beginning and end."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._at = 0
        self._operations: list[Operation] = []

    def run(self) -> list[Operation]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip():
                self._operations.append(self._operation(line.strip()))
            else:
                self._at += 1
            if len(self._operations) > MAX_OPERATIONS:
                raise ToolError(f"expected a patch of at most {MAX_OPERATIONS} files")
        if not self._operations:
            raise ToolError("the patch changes nothing: expected at least one file")
        return self._operations

    def _operation(self, line: str) -> Operation:
        for mark, kind in ((_ADD, "add"), (_DELETE, "delete"), (_UPDATE, "update")):
            if line.startswith(mark) and (path := line.removeprefix(mark).strip()):
                self._at += 1
                return self._body(kind, path)
        raise self._error(
            "'*** Add File: path', '*** Delete File: path' or '*** Update File: path'", line
        )

    def _body(self, kind: str, path: str) -> Operation:
        if kind == "delete":
            return Operation(kind, path, [])
        if kind == "add":
            lines = [("+", text) for text in self._added()]
            return Operation(kind, path, [PatchChunk([], lines)])
        move_to = None
        if (line := self._peek()) is not None and line.startswith(_MOVE):
            move_to = line.removeprefix(_MOVE).strip()
            self._at += 1
        chunks = self._chunks()
        if not chunks and not move_to:
            raise ToolError(f"expected changes of {path} in the patch, got none")
        return Operation(kind, path, chunks, move_to)

    def _added(self) -> list[str]:
        added: list[str] = []
        while (line := self._peek()) is not None and not line.startswith("*** "):
            if not line.startswith("+"):
                raise self._error("'+' before every line of a file that is added", line)
            added.append(line[1:])
            self._at += 1
        return added

    def _chunks(self) -> list[PatchChunk]:
        chunks: list[PatchChunk] = []
        while (line := self._peek()) is not None:
            chunk = chunks[-1] if chunks else None
            if line.startswith("@@"):
                place = line[2:].strip()
                if chunk is None or chunk.lines or not place:
                    chunks.append(chunk := PatchChunk([], []))
                if place:
                    chunk.places.append(place)
            elif line.rstrip() == _EOF and chunk is not None:
                chunk.is_at_end = True
            elif line.startswith("*** "):
                break
            elif not line or line[0] in " +-":
                if chunk is None or chunk.is_at_end:
                    chunks.append(chunk := PatchChunk([], []))
                # An empty line of a patch is a kept empty line.
                chunk.lines.append((line[0], line[1:]) if line else (" ", ""))
            else:
                raise self._error("'@@', or ' ', '+' or '-' before a line", line)
            self._at += 1
        return _trimmed(chunks)

    def _peek(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _error(self, expected: str, line: str) -> ToolError:
        # Count the first line too, although `read_patch` removed it.
        return ToolError(
            f"line {self._at + 2} of the patch: expected {expected}, got {line[:200]!r}"
        )


def _trimmed(chunks: list[PatchChunk]) -> list[PatchChunk]:
    """The chunks without the empty lines before the next file: those lines belong to the patch, not to the file."""
    for chunk in chunks[-1:]:
        while chunk.lines and chunk.lines[-1] == (" ", "") and not chunk.is_at_end:
            chunk.lines.pop()
    return [chunk for chunk in chunks if chunk.lines]


def apply_chunks(text: str, chunks: Sequence[PatchChunk], path: str) -> str:
    """The text with all the chunks applied.

    Raises:
        ToolError: the old lines of a chunk are not in the text.
    """
    end = "\r" if text.count("\r\n") * 2 > text.count("\n") else ""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    finder = _Finder(lines, path)
    out: list[str] = []
    done = 0
    for chunk in chunks:
        start = finder.find(chunk, done)
        out.extend(lines[done:start])
        done = start
        for sign, line in chunk.lines:
            if sign == "+":
                out.append(line + end)
            else:
                if sign == " ":
                    out.append(lines[done])
                done += 1
    out.extend(lines[done:])
    return "".join(f"{line}\n" for line in out)


class _Finder:
    """Finds where chunks fit, and limits the number of comparisons."""

    def __init__(self, lines: list[str], path: str) -> None:
        self._lines = lines
        self._path = path
        self._left = MAX_COMPARED

    def find(self, chunk: PatchChunk, start: int) -> int:
        for place in chunk.places:
            at = self._seek([place], start, is_at_end=False)
            if at is None:
                raise ToolError(f"{self._path}: no line reads {place[:200]!r} after line {start}")
            start = at + 1
        old = chunk.old
        if not old:
            return start if chunk.places else len(self._lines)
        found = self._seek(old, start, is_at_end=chunk.is_at_end)
        if found is None:
            shown = "\n".join(line[:200] for line in old[:20])
            raise ToolError(
                f"{self._path}: these lines were not found after line {start}:\n{shown}\n"
                "Read the file and write the patch anew."
            )
        return found

    def _seek(self, old: list[str], start: int, *, is_at_end: bool) -> int | None:
        last = len(self._lines) - len(old)
        if last < start:
            return None
        for form in (str, str.rstrip, str.strip, _plainly):
            wanted = [form(line) for line in old]
            starts = range(start, last + 1)
            if is_at_end and self._fits(last, wanted, form):
                return last
            for at in starts:
                if self._fits(at, wanted, form):
                    return at
        return None

    def _fits(self, at: int, wanted: list[str], form: Callable[[str], str]) -> bool:
        for offset, line in enumerate(wanted):
            self._left -= 1
            if self._left < 0:
                raise ToolError(f"{self._path}: the patch fits in too many places to be found")
            if form(self._lines[at + offset]) != line:
                return False
        return True


def _plainly(line: str) -> str:
    return line.strip().translate(_PLAIN)


_FORMAT = (
    "A patch begins with *** Begin Patch and ends with *** End Patch. Between them: *** Add File: path, then its lines, "
    "each after +; *** Delete File: path; *** Update File: path, perhaps *** Move to: path, then chunks: @@ with the line "
    "of the function or class the change is in, then lines after a space (kept), - (removed) or + (added), with about "
    "three lines kept before and after. Paths are relative to the working folder. All changes are made, or none."
)
FREEFORM_DESCRIPTION = (
    f"Change files by a patch. This is a freeform tool: write the patch itself, not JSON. {_FORMAT}"
)
DESCRIPTION = f"Change files by a patch. {_FORMAT}"


class PatchArguments(Struct, forbid_unknown_fields=True):
    input: Annotated[str, "The whole patch"]


def apply_patch_tool(root: Root) -> FileTool[PatchArguments]:
    """The tool `apply_patch` as a function, below a root."""
    return file_tool(
        root, "apply_patch", DESCRIPTION, PatchArguments, _apply, _paths, changes=_patch_changes
    )


def freeform_patch_tool(root: Root) -> FileTool[PatchArguments]:
    """The tool `apply_patch` with a grammar, below a root: models write the patch itself as the input."""
    declaration = Declaration(
        name="apply_patch",
        kind="custom",
        description=FREEFORM_DESCRIPTION,
        grammar=Grammar("lark", GRAMMAR),
    )
    return FileTool(
        root=root,
        declaration=declaration,
        read=PatchArguments,
        paths=_paths,
        work=_apply,
        changes=_patch_changes,
    )


def _paths(arguments: PatchArguments) -> list[str]:
    operations = read_patch(arguments.input)
    moved = [operation.move_to for operation in operations if operation.move_to]
    return [*(operation.path for operation in operations), *moved]


class _File(Struct):
    """One file of a patch: its content before and after (None: no file). `like`: the file whose permissions it gets."""

    path: str
    before: bytes | None
    after: bytes | None
    status: os.stat_result | None = None
    like: os.stat_result | None = None


class _Workspace:
    """The files of a patch, in memory until all changes are computed."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._files: dict[str, _File] = {}

    def take(self, path: str) -> _File:
        key = self._root.resolved(path)
        if key not in self._files:
            self._files[key] = self._look(path)
        return self._files[key]

    def _look(self, path: str) -> _File:
        if self._root.status(path) is None:
            return _File(path, None, None)
        data, status = self._root.read(path)
        return _File(path, data, data, status)

    def changed(self) -> list[_File]:
        return [file for file in self._files.values() if file.before != file.after]

    def write(self) -> None:
        """Write the changed files. If one cannot be written, restore the others."""
        written: list[_File] = []
        try:
            for file in self.changed():
                written.append(file)
                if file.after is None:
                    self._root.delete(file.path)
                else:
                    self._root.write(file.path, file.after, expected=file.status, like=file.like)
        except ToolError:
            for file in written[:-1]:
                with suppress(ToolError):
                    if file.before is None:
                        self._root.delete(file.path)
                    else:
                        self._root.write(file.path, file.before, like=file.status)
            raise


def _apply(root: Root, arguments: PatchArguments, _: threading.Event) -> Output:
    workspace = _Workspace(root)
    done = [_work_out(workspace, operation) for operation in read_patch(arguments.input)]
    workspace.write()
    return text_output("\n".join(done))


def _patch_changes(root: Root, arguments: PatchArguments) -> list[FileChange]:
    workspace = _Workspace(root)
    for operation in read_patch(arguments.input):
        _work_out(workspace, operation)
    return [
        FileChange(
            file.path,
            None if file.before is None else as_text(file.before, file.path),
            None if file.after is None else as_text(file.after, file.path),
        )
        for file in workspace.changed()
    ]


def _work_out(workspace: _Workspace, operation: Operation) -> str:
    path = operation.path
    file = workspace.take(path)
    if operation.kind == "add":
        if file.after is not None:
            raise ToolError(f"{path} exists already; change it by *** Update File")
        lines = [line for chunk in operation.chunks for _, line in chunk.lines]
        file.after = as_bytes("".join(f"{line}\n" for line in lines), path)
        return f"added {path}"
    if file.after is None:
        raise ToolError(f"{path} does not exist")
    if operation.kind == "delete":
        file.after = None
        return f"deleted {path}"
    text = as_text(file.after, path)
    after = (
        as_bytes(apply_chunks(text, operation.chunks, path), path)
        if operation.chunks
        else file.after
    )
    if operation.move_to is None or workspace.take(operation.move_to) is file:
        file.after = after
        return f"updated {path}"
    target = workspace.take(operation.move_to)
    if target.after is not None:
        raise ToolError(f"{operation.move_to} exists already; {path} cannot be moved there")
    target.after, file.after = after, None
    target.like = file.status
    return f"updated {path} and moved it to {operation.move_to}"
