"""The formats we know, one file per family. The order is their rank where openers are shared."""

from dragoman.textcalls.block import TextPattern
from dragoman.textcalls.formats.json_formats import HEADED, JSON_BLOCKS
from dragoman.textcalls.formats.notations import GEMMA, PYTHON_CALLS
from dragoman.textcalls.formats.tag_formats import MINIMAX_M3, PAIRS, TAGGED
from dragoman.textcalls.formats.use_tool import USE_TOOL
from dragoman.textcalls.formats.without_sentinel import BARE, MARKS

__all__ = ("BUILT_IN",)

BUILT_IN: tuple[TextPattern, ...] = (
    *USE_TOOL,
    *JSON_BLOCKS,
    *HEADED,
    *TAGGED,
    *PAIRS,
    *PYTHON_CALLS,
    *GEMMA,
    *MINIMAX_M3,
    *MARKS,
    *BARE,
)
"""All formats, in order of rank."""
