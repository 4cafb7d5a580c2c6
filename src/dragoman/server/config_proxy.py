"""The `PROXY_…` environment variables of the Chat contract: which key each sets, and how its text is read.

They keep the names and the spellings they have elsewhere, so that an environment that worked there works here.
"""

from collections.abc import Callable, Mapping

from dragoman.textcalls.contract.policy import mode_of

__all__ = ("PROXY_VARIABLES",)

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def _flag(text: str) -> object:
    word = text.strip().lower()
    return word in _TRUE if word in _TRUE | _FALSE else text


def _number(text: str) -> object:
    word = text.strip()
    return int(word) if word.isascii() and word.isdecimal() else text


def _word(text: str) -> object:
    return text.strip().lower()


def _mode(text: str) -> object:
    return mode_of(text) or text


def _delimiter(text: str) -> object:
    """`true` is a blank line, `false` nothing, all else stands for itself, with `\\n` for a line end."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return "\n\n" if word == "true" else ""
    return text.replace("\\n", "\n")


PROXY_VARIABLES: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "PROXY_OUTPUT_MODE": ("output_mode", _mode),
    "PROXY_STOP_AFTER_TOOLS": ("stop_after_tools", _flag),
    "PROXY_STOP_AFTER_TOOLS_MODE": ("stop_after_tools_mode", _word),
    "PROXY_STOP_AFTER_TOOLS_GRACE_MS": ("stop_after_tools_grace_ms", _number),
    "PROXY_SUPPRESS_TAIL_AFTER_TOOLS": ("suppress_tail_after_tools", _flag),
    "PROXY_TOOL_BLOCK_MAX": ("tool_block_max", _number),
    "PROXY_TOOL_BLOCK_DELIMITER": ("tool_block_delimiter", _delimiter),
    "PROXY_TOOL_BLOCK_DEDUP": ("tool_block_dedup", _flag),
    "PROXY_ENABLE_PARALLEL_TOOL_CALLS": ("enable_parallel_tool_calls", _flag),
}
"""Each variable with its key of `[chat]`; what cannot be read is left as it is, for the key's type to refuse."""
