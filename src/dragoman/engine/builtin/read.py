"""`read`: lines of a text file with their numbers, or a picture."""

import threading
from typing import Annotated

from msgspec import Struct

from dragoman.engine.builtin.paths import path_subjects
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.texts import is_binary, shown_line
from dragoman.engine.builtin.tooling import BuiltinTool, Spec
from dragoman.engine.images import image_part
from dragoman.engine.tools import Output, text_output
from dragoman.errors import ToolError

__all__ = ("ReadArguments", "read_tool")

# Most source files are read whole at this.
DEFAULT_LINES = 2_000
# Fits into what the engine lets one result have.
MAX_SHOWN = 60_000
# Providers take pictures of up to 5 MB.
MAX_IMAGE = 5_000_000

DESCRIPTION = "Read a file. Text comes with line numbers; images are shown. Paths are relative to the working folder."


class ReadArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, "The file, relative to the working folder"]
    offset: Annotated[int, "The first line to read, from 1"] = 1
    limit: Annotated[int, "How many lines to read"] = DEFAULT_LINES


def read_tool(root: Root) -> BuiltinTool[ReadArguments]:
    """The tool `read` below a root."""

    def work(arguments: ReadArguments, _: threading.Event) -> Output:
        return _read(root, arguments)

    return BuiltinTool(
        Spec(
            name="read",
            description=DESCRIPTION,
            arguments=ReadArguments,
            work=work,
            subjects=lambda arguments: path_subjects(root, [arguments.path]),
            is_parallel=True,
        )
    )


def _read(root: Root, arguments: ReadArguments) -> Output:
    if arguments.offset < 1 or arguments.limit < 1:
        raise ToolError(
            f"expected offset and limit to be at least 1, got {arguments.offset} and {arguments.limit}"
        )
    path = arguments.path
    data, _ = root.read(path)
    image = image_part(data) if len(data) <= MAX_IMAGE else None
    if image is not None:
        return Output(content=(image,))
    if is_binary(data):
        raise ToolError(f"{path} is a binary file of {len(data):,} bytes")
    if not data:
        return text_output(f"({path} is empty)")
    return text_output(_numbered(data.decode("utf-8", "replace"), arguments))


def _numbered(text: str, arguments: ReadArguments) -> str:
    lines = text.split("\n")
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
        plain = shown_line(line.removesuffix("\r"))
        written = f"{number:6d}\t{plain}"
        size += len(written) + 1
        if size > MAX_SHOWN and shown:
            break
        shown.append(written)
    last = first + len(shown)
    if last < len(lines):
        shown.append(f"({len(lines) - last:,} more lines; read on with offset {last + 1})")
    return "\n".join(shown)
