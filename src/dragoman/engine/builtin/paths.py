"""What a call to a file tool is about: its paths, as they are written and as they lead."""

from collections.abc import Iterable, Sequence

from dragoman.engine.approval import Subject
from dragoman.engine.builtin.rooted import Root

__all__ = ("path_subjects",)


def path_subjects(root: Root, paths: Iterable[str]) -> Sequence[Subject]:
    """Both forms of each path: a rule may speak of either, and a link must not lead around it.

    Raises:
        ToolError: a path leads out of the root.
    """
    found: dict[str, None] = {}
    for path in paths:
        found[root.written(path)] = None
        found[root.resolved(path)] = None
    return [Subject("path", path) for path in found]
