"""What the contract is to do in one answer: values only, decided by whoever reads the settings."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

__all__ = ("ContractPolicy", "OutputMode", "OutputModeWord", "StopMode", "XmlEscape", "mode_of")

OutputMode = Literal["obsidian-xml", "openai-json"]
OutputModeWord = Literal["obsidian-xml", "obsidian_xml", "openai-json", "openai_json"]
"""How a mode may be spelled in a file."""
StopMode = Literal["burst", "first"]
XmlEscape = Literal["none", "entities"]


class ContractPolicy(Struct, frozen=True, kw_only=True):
    """mode: `obsidian-xml` writes each call as a `<use_tool>` block too, after the text before it.

    xml_escape: `entities` for readers that decode them; Obsidian Copilot does not.
    stop: True ends the turn after its calls, False lets it go on; None: only where the calls came as text.
    stop_mode: `burst`: further calls and white space go on, other text ends it; `first`: the first call ends it.
    suppress_tail: no text after a call; None: only where the calls came as text.
    max_calls: so many calls are told in a choice and no more; 0: all.
    delimiter: what stands between two blocks. dedup: a call with name and arguments of an earlier one is not told again.
    finish_failed: an answer that fails after complete calls ends with them, not with the failure.
    """

    mode: OutputMode = "openai-json"
    xml_escape: XmlEscape = "none"
    stop: bool | None = None
    stop_mode: StopMode = "burst"
    suppress_tail: bool | None = None
    max_calls: int = 0
    delimiter: str = ""
    dedup: bool = False
    finish_failed: bool = False


_MODES: Mapping[str, OutputMode] = {
    "obsidian-xml": "obsidian-xml",
    "obsidian": "obsidian-xml",
    "openai-json": "openai-json",
    "openai": "openai-json",
}


def mode_of(word: str) -> OutputMode | None:
    """The mode that a word means, with `-` or `_`, in any case; None if it means none."""
    return _MODES.get(word.strip().lower().replace("_", "-"))
