"""`apply_patch`: several changes to several files, all or none. As a freeform tool with a grammar, or as a function.

Every change is worked out before the first file is written; where writing one fails after others, those are put back.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from msgspec import Struct

from dragoman.engine.approval import Subject
from dragoman.engine.builtin.patches import GRAMMAR, Operation, apply_chunks, read_patch
from dragoman.engine.builtin.paths import path_subjects
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.texts import as_bytes, as_text
from dragoman.engine.builtin.tooling import BuiltinTool, Spec
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Declaration, Invocation, Offer, Output, text_output
from dragoman.errors import ToolError
from dragoman.model.parts import Call
from dragoman.model.request import Grammar

__all__ = ("FreeformPatchTool", "PatchArguments", "apply_patch_tool", "freeform_patch_tool")

_FORMAT = (
    "A patch begins with *** Begin Patch and ends with *** End Patch. Between them: *** Add File: path, then its lines, "
    "each after +; *** Delete File: path; *** Update File: path, perhaps *** Move to: path, then chunks: @@ with the line "
    "of the function or class the change is in, then lines after a space (kept), - (taken away) or + (added), with about "
    "three lines kept before and after. Paths are relative to the working folder. All changes are made, or none."
)
FREEFORM_DESCRIPTION = (
    f"Change files by a patch. This is a freeform tool: write the patch itself, not JSON. {_FORMAT}"
)
DESCRIPTION = f"Change files by a patch. {_FORMAT}"


class PatchArguments(Struct, forbid_unknown_fields=True):
    input: Annotated[str, "The whole patch"]


def apply_patch_tool(root: Root) -> BuiltinTool[PatchArguments]:
    """The tool `apply_patch` as a function, below a root."""

    def work(arguments: PatchArguments, _: threading.Event) -> Output:
        return _apply(root, arguments.input)

    return BuiltinTool(
        Spec(
            name="apply_patch",
            description=DESCRIPTION,
            arguments=PatchArguments,
            work=work,
            subjects=lambda arguments: _subjects(root, arguments.input),
        )
    )


class FreeformPatchTool:
    """The same for models that write the patch itself."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._offer = Offer(
            declaration=Declaration(
                name="apply_patch",
                kind="custom",
                description=FREEFORM_DESCRIPTION,
                grammar=Grammar("lark", GRAMMAR),
            )
        )

    @property
    def offer(self) -> Offer:
        return self._offer

    def subjects(self, call: Call) -> Sequence[Subject]:
        return _subjects(self._root, call.input)

    async def run(self, invocation: Invocation) -> Output:
        return await run_to_end(lambda: _apply(self._root, invocation.call.input), "apply_patch")


def freeform_patch_tool(root: Root) -> FreeformPatchTool:
    """The tool `apply_patch` with a grammar, below a root."""
    return FreeformPatchTool(root)


def _subjects(root: Root, text: str) -> Sequence[Subject]:
    operations = read_patch(text)
    moved = [operation.move_to for operation in operations if operation.move_to]
    return path_subjects(root, [*(operation.path for operation in operations), *moved])


class _File(Struct):
    """One file in the course of a patch: as it is (None: not there) and as it is to be. `like`: whose permissions it has."""

    path: str
    before: bytes | None
    after: bytes | None
    status: os.stat_result | None = None
    like: os.stat_result | None = None


class _Desk:
    """The files that a patch is about, worked on here before any is written."""

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

    def write(self) -> None:
        """Write what has changed; what cannot be written puts back the rest."""
        written: list[_File] = []
        changed = [file for file in self._files.values() if file.before != file.after]
        try:
            for file in changed:
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
                        self._root.write(file.path, file.before)
            raise


def _apply(root: Root, text: str) -> Output:
    desk = _Desk(root)
    done = [_work_out(desk, operation) for operation in read_patch(text)]
    desk.write()
    return text_output("\n".join(done))


def _work_out(desk: _Desk, operation: Operation) -> str:
    path = operation.path
    file = desk.take(path)
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
    if operation.move_to is None or desk.take(operation.move_to) is file:
        file.after = after
        return f"updated {path}"
    target = desk.take(operation.move_to)
    if target.after is not None:
        raise ToolError(f"{operation.move_to} exists already; {path} cannot be moved there")
    target.after, file.after = after, None
    target.like = file.status
    return f"updated {path} and moved it to {operation.move_to}"
