"""The formats we know, one file per family. The order is their rank where openers are shared."""

from dragoman.textcalls.formats.bare import BARE
from dragoman.textcalls.formats.gemma import GEMMA
from dragoman.textcalls.formats.headed import HEADED
from dragoman.textcalls.formats.json_blocks import JSON_BLOCKS
from dragoman.textcalls.formats.marks import MARKS
from dragoman.textcalls.formats.minimax_m3 import MINIMAX_M3
from dragoman.textcalls.formats.pairs import PAIRS
from dragoman.textcalls.formats.python_calls import PYTHON_CALLS
from dragoman.textcalls.formats.tagged import TAGGED
from dragoman.textcalls.formats.use_tool import USE_TOOL
from dragoman.textcalls.patterns import TextPattern

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
