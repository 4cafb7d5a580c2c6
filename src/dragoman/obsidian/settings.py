"""The settings of the Obsidian contract: `[chat]` in the file, and the `PROXY_…` environment variables over it.

The variables keep the names and spellings of the original proxy, so that its environment works here.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

OutputMode = Literal["obsidian-xml", "openai-json"]
OutputModeWord = Literal["obsidian-xml", "obsidian_xml", "openai-json", "openai_json"]
"""The spellings of a mode in the configuration file."""
StopMode = Literal["burst", "first"]
XmlEscape = Literal["none", "entities"]

_MODES: Mapping[str, OutputMode] = {
    "obsidian-xml": "obsidian-xml",
    "obsidian": "obsidian-xml",
    "openai-json": "openai-json",
    "openai": "openai-json",
}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class ChatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[chat]` settings; `docs/obsidian.md` explains each key.

    None means that the upstream and the answer decide: calls that came as text end their turn, and text after them is
    dropped, and structured calls do neither. A gateway with only the defaults applies the contract to
    upstreams and requests that ask for it. Every key but the last three has a `PROXY_…` variable.
    """

    output_mode: OutputModeWord | None = None
    stop_after_tools: bool | None = None
    stop_after_tools_mode: StopMode = "burst"
    stop_after_tools_grace_ms: int = 300
    suppress_tail_after_tools: bool | None = None
    tool_block_max: int = 0
    tool_block_delimiter: str = ""
    tool_block_dedup: bool = False
    enable_parallel_tool_calls: bool | None = None
    xml_escape: XmlEscape = "none"
    error_after_calls: Literal["fail", "finish"] | None = None
    written_results: Literal["auto", "on", "off"] = "auto"


def mode_of(word: str) -> OutputMode | None:
    """The mode that a word names, with `-` or `_` and in any case; None if it names none."""
    return _MODES.get(word.strip().lower().replace("_", "-"))


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
    """`true` means a blank line, `false` no delimiter; any other text is the delimiter, with `\\n` for a line end."""
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
"""Each variable with its key of `[chat]`. A value that cannot be read stays text, which the key's type then refuses."""
