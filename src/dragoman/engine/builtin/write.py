"""`write`: a whole file."""

import threading
from typing import Annotated

from msgspec import Struct

from dragoman.engine.builtin.paths import path_subjects
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.texts import as_bytes
from dragoman.engine.builtin.tooling import BuiltinTool, Spec
from dragoman.engine.tools import Output, text_output

__all__ = ("WriteArguments", "write_tool")

DESCRIPTION = (
    "Write a file, whole: a new one, or in place of the one that is there. Folders on the way are made. To change a part of "
    "a file, edit it."
)


class WriteArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, "The file, relative to the working folder"]
    content: Annotated[str, "All that the file is to hold"]


def write_tool(root: Root) -> BuiltinTool[WriteArguments]:
    """The tool `write` below a root."""

    def work(arguments: WriteArguments, _: threading.Event) -> Output:
        data = as_bytes(arguments.content, arguments.path)
        was_there = root.write(arguments.path, data)
        done = "replaced" if was_there else "created"
        return text_output(f"{done} {arguments.path} ({len(data):,} bytes)")

    return BuiltinTool(
        Spec(
            name="write",
            description=DESCRIPTION,
            arguments=WriteArguments,
            work=work,
            subjects=lambda arguments: path_subjects(root, [arguments.path]),
        )
    )
