"""`edit`: one piece of a text file replaced by another. The piece must stand there exactly, and only once."""

import threading
from typing import Annotated

from msgspec import Struct

from dragoman.engine.builtin.paths import path_subjects
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.texts import as_bytes, as_text
from dragoman.engine.builtin.tooling import BuiltinTool, Spec
from dragoman.engine.tools import Output, text_output
from dragoman.errors import ToolError

__all__ = ("EditArguments", "edit_tool", "replaced")

# Places that are named when there are too many of them.
MAX_PLACES = 10

DESCRIPTION = (
    "Replace a piece of a text file. old_string must be exactly what stands in the file, white space included, and stand "
    "there only once: take in enough lines around it. replace_all replaces every occurrence."
)


class EditArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, "The file, relative to the working folder"]
    old_string: Annotated[str, "The text to replace, exactly as it is in the file"]
    new_string: Annotated[str, "The text to put in its place"]
    replace_all: Annotated[bool, "Replace every occurrence"] = False


def edit_tool(root: Root) -> BuiltinTool[EditArguments]:
    """The tool `edit` below a root."""

    def work(arguments: EditArguments, _: threading.Event) -> Output:
        data, status = root.read(arguments.path)
        text, count = replaced(as_text(data, arguments.path), arguments)
        root.write(arguments.path, as_bytes(text, arguments.path), expected=status)
        times = "once" if count == 1 else f"{count} times"
        return text_output(f"edited {arguments.path} ({times})")

    return BuiltinTool(
        Spec(
            name="edit",
            description=DESCRIPTION,
            arguments=EditArguments,
            work=work,
            subjects=lambda arguments: path_subjects(root, [arguments.path]),
        )
    )


def replaced(text: str, arguments: EditArguments) -> tuple[str, int]:
    """The text with the piece replaced, and how often.

    Raises:
        ToolError: the piece is not there, or more than once.
    """
    path, old, new = arguments.path, arguments.old_string, arguments.new_string
    if not old:
        raise ToolError(
            "expected old_string to be the text to replace, got nothing; use write for a new file"
        )
    if old == new:
        raise ToolError("old_string and new_string are the same: there is nothing to change")
    if old not in text and "\r\n" in text and "\r" not in old:
        # A model is shown lines without their ends and cannot know that there are two characters.
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = text.count(old)
    if not count:
        raise ToolError(_not_found(text, old, path))
    if count > 1 and not arguments.replace_all:
        raise ToolError(
            f"old_string stands {count} times in {path} (lines {_places(text, old)}): "
            "take in more of the lines around it, or set replace_all"
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
    """Where its first line stands but for white space: what models get wrong most."""
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
    return f"{message}, nor is its first line; read the file and copy the text exactly"
