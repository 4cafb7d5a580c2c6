"""`glob`: the files whose paths match a pattern."""

import threading
from contextlib import closing
from typing import Annotated

from msgspec import Struct

from dragoman.engine.builtin.paths import path_subjects
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.tooling import BuiltinTool, Spec
from dragoman.engine.builtin.walking import Walk
from dragoman.engine.globs import PathGlob, path_glob
from dragoman.engine.tools import Output, text_output
from dragoman.errors import ToolError

__all__ = ("GlobArguments", "glob_tool", "pattern_below")

# A longer list is a question asked too broadly.
MAX_RESULTS = 500
MAX_SHOWN = 60_000

DESCRIPTION = (
    "Find files by a pattern such as **/*.py or src/{a,b}/*.json. A pattern without a slash is looked for in every "
    "folder. .git and what .gitignore leaves out are passed over."
)


class GlobArguments(Struct, forbid_unknown_fields=True):
    pattern: Annotated[str, "The pattern, relative to `path`"]
    path: Annotated[str, "The folder to look in"] = "."
    ignored: Annotated[bool, "Also what .gitignore leaves out"] = False


def glob_tool(root: Root) -> BuiltinTool[GlobArguments]:
    """The tool `glob` below a root."""

    def work(arguments: GlobArguments, stop: threading.Event) -> Output:
        return _glob(root, arguments, stop)

    return BuiltinTool(
        Spec(
            name="glob",
            description=DESCRIPTION,
            arguments=GlobArguments,
            work=work,
            subjects=lambda arguments: path_subjects(root, [arguments.path]),
            is_parallel=True,
        )
    )


def pattern_below(root: Root, pattern: str) -> PathGlob:
    """A pattern for paths below a folder; one without a slash is meant in any of them.

    Raises:
        ToolError: it cannot match anything below the root, or cannot be read.
    """
    text = pattern.removeprefix(f"{root.path}/")
    if text.startswith("/") or ".." in text.split("/"):
        raise ToolError(
            f"expected a pattern for paths below the working folder, got {pattern[:200]!r}"
        )
    try:
        return path_glob(text if "/" in text else f"**/{text}")
    except ValueError as error:
        raise ToolError(str(error)) from error


def _glob(root: Root, arguments: GlobArguments, stop: threading.Event) -> Output:
    if not arguments.pattern:
        raise ToolError("expected a pattern such as **/*.py, got nothing")
    glob = pattern_below(root, arguments.pattern)
    walk = Walk(root, stop, with_ignored=arguments.ignored)
    base = root.resolved(arguments.path)
    depth = 0 if base == "." else base.count("/") + 1
    found: list[str] = []
    size = 0
    with closing(walk.files(arguments.path)) as files:
        for file, _ in files:
            if glob.matches("/".join(file.names[depth:]) or file.name):
                found.append(file.path)
                size += len(file.path) + 1
                if len(found) >= MAX_RESULTS or size > MAX_SHOWN:
                    found.append("(and perhaps more; narrow the pattern)")
                    break
    if walk.was_cut:
        found.append("(not everything was looked at; name a folder)")
    return text_output("\n".join(found) or f"no file matches {arguments.pattern}")
