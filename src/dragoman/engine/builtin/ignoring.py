"""What `.gitignore` leaves out: the rules of one such file, and of all those from the root down to a folder.

Git's rules but for two: files that are tracked although a rule leaves them out are left out, and only `.gitignore` is read,
not the user's own excludes.
"""

from collections.abc import Sequence

from msgspec import Struct

from dragoman.engine.globs import PathGlob, path_glob

__all__ = ("Ignored", "rules_of")

MAX_LINES = 5_000


class _Rule(Struct, frozen=True):
    glob: PathGlob
    is_folder: bool
    is_kept: bool


class Ignored(Struct, frozen=True):
    """The rules of one folder, and those of the folders above. `depth` is how many names its paths have above it."""

    rules: tuple[_Rule, ...] = ()
    depth: int = 0
    above: "Ignored | None" = None

    def leaves_out(self, names: Sequence[str], *, is_folder: bool) -> bool:
        """Whether a path (its names from the root) is left out. The last rule that speaks of it counts, deeper files first."""
        here: Ignored | None = self
        while here is not None:
            path = "/".join(names[here.depth :])
            for rule in reversed(here.rules):
                if (is_folder or not rule.is_folder) and rule.glob.matches(path):
                    return not rule.is_kept
            here = here.above
        return False


def rules_of(text: str, depth: int, above: Ignored | None) -> Ignored:
    """The rules of a `.gitignore` that stands in a folder `depth` names below the root."""
    rules = [_rule(line) for line in text.splitlines()[:MAX_LINES]]
    return Ignored(tuple(rule for rule in rules if rule is not None), depth, above)


def _rule(line: str) -> _Rule | None:
    pattern = line.rstrip() if not line.endswith("\\ ") else line.rstrip("\n")
    if not pattern or pattern.startswith("#"):
        return None
    is_kept = pattern.startswith("!")
    pattern = pattern[1:] if is_kept else pattern
    is_folder = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    # With a slash anywhere but at its end a pattern is about this folder, else about any below.
    anchored = pattern.lstrip("/") if "/" in pattern else f"**/{pattern}"
    # Braces mean themselves to git.
    literal = anchored.replace("{", "\\{").replace("}", "\\}")
    try:
        return _Rule(path_glob(literal), is_folder, is_kept) if pattern.strip("/") else None
    except ValueError:
        return None
