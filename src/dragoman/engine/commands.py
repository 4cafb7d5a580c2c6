"""A shell command, looked at: is it one plain command, and which commands does it run as far as can be seen.

Not a shell's parser. Where a shell could do more than run the one command that stands there, the command counts as compound;
what is doubtful is compound too. A shell can always hide what it runs (in a script, in a variable, behind `xargs`): judging
commands by their text keeps honest mistakes away, and the sandbox is what holds the rest.
"""

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache

__all__ = ("commands_within", "is_compound", "script_of", "spoken")

# The kernel takes no longer one; what stands beyond it is not looked at.
MAX_COMMAND = 131_072
MAX_NESTED = 4
# `sudo env nohup …`: nobody means it to go on for long.
MAX_PREFIXES = 8

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
# Words that run the words after them.
_PREFIXES = frozenset(("sudo", "doas", "env", "nohup", "exec", "command", "builtin", "time", "nice", "setsid", "xargs", "eval"))  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_LINE_ENDS = frozenset("\n\r")
_BREAKS = frozenset(";&|<>(){}`") | _LINE_ENDS


def spoken(argv: Sequence[str]) -> str:
    """A command given as words, as one would type it. `bash -lc script` is the script."""
    script = script_of(argv)
    return shlex.join(argv) if script is None else script


def script_of(argv: Sequence[str]) -> str | None:
    """What a shell is told to run by `-c`; None if this is no such command."""
    if not argv or argv[0].rpartition("/")[2] not in _SHELLS:
        return None
    for at, word in enumerate(argv[1:], 1):
        if not word.startswith(("-", "+")):
            return None
        if not word.startswith("--") and "c" in word and word.startswith("-"):
            return argv[at + 1] if at + 1 < len(argv) else None
    return None


@lru_cache(16)  # every rule of a policy asks anew
def is_compound(command: str) -> bool:
    """Whether a shell would do anything but run one command with the words that stand there.

    More than one line is more than one can overlook, be it in quotes.
    """
    is_plain = len(command) <= MAX_COMMAND and not _LINE_ENDS & {*command}
    return not is_plain or len(_split(command)) != 1


@lru_cache(16)
def commands_within(command: str) -> tuple[str, ...]:
    """The single commands that can be seen in it, with what goes before them (assignments, `sudo`) and without."""
    found: dict[str, None] = {}
    _gather(command[:MAX_COMMAND], found, 0)
    return tuple(found)


def _gather(command: str, found: dict[str, None], depth: int) -> None:
    if depth < MAX_NESTED:
        for inner in _substitutions(command):
            _gather(inner, found, depth + 1)
    for piece in _split(command):
        text = piece.strip()
        if not text:
            continue
        found[text] = None
        words = _words(text)
        for _ in range(MAX_PREFIXES):
            if not words or not _is_prefix(words[0]):
                break
            words = words[1:]
            if words:
                found[shlex.join(words)] = None
        if words:
            # `/bin/rm` and `\rm` are `rm`
            found[shlex.join([words[0].rpartition("/")[2], *words[1:]])] = None
        script = script_of(words)
        if script is not None and depth < MAX_NESTED:
            _gather(script, found, depth + 1)


def _is_prefix(word: str) -> bool:
    return _ASSIGNMENT.match(word) is not None or word in _PREFIXES or word.startswith("-")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _split(command: str) -> list[str]:
    """Cut at every sign by which a shell does more than one thing. One piece: a plain command.

    Inside double quotes only substitutions count; inside single quotes nothing does.
    """
    pieces: list[str] = []
    start = at = 0
    quote = ""
    while at < len(command):
        char = command[at]
        step = 1
        if quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\" and command[at + 1 : at + 2] != "\n":
            step = 2
        elif char == quote:
            quote = ""
        elif _is_break(command, at, quote):
            pieces.append(command[start:at])
            start = at + 1
        elif not quote and char in "'\"":
            quote = char
        at += step
    pieces.append(command[start:])
    # An open quote is completed by nothing we know.
    return [*pieces, ""] if quote else pieces


def _is_break(command: str, at: int, quote: str) -> bool:
    char = command[at]
    if char == "$":
        # `$'…'` has escapes of its own, `${…}` can run things, `$(…)` does.
        return command[at + 1 : at + 2] in ("(", "{", "'" if not quote else "(", "[")
    if char == "\0" or (char == "\\" and command[at + 1 : at + 2] == "\n"):
        return True
    return char == "`" if quote else char in _BREAKS


def _substitutions(text: str) -> list[str]:
    """What stands in `$(…)` or backquotes, wherever: a first approximation by the signs alone."""
    return [found[0] or found[1] for found in re.findall(r"\$\(([^()]*)\)|`([^`]*)`", text)]
