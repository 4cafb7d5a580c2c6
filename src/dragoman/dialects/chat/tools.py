"""Tools and the choice among them, both ways.

Functions and custom tools are Chat's own; any other type is a built-in of some server and goes back whole. `functions`
and `function_call`, their ancestors, are read as tools and written back as they came.
"""

from collections.abc import Iterable, Sequence

from dragoman._json import Raw
from dragoman.core.aliases import NameMap
from dragoman.core.freeform import wrapper_tool
from dragoman.core.losses import LossBook
from dragoman.core.schemas import fix_schema
from dragoman.dialects.base import Target
from dragoman.dialects.chat.checks import Fields, ask_array, ask_flag, ask_string, refuse
from dragoman.dialects.chat.fields import (
    extra_of,
    fields_of,
    is_object,
    join_object,
    kind_of,
    own_fields,
    text_of,
)
from dragoman.dialects.chat.wire import BUILTIN_KINDS
from dragoman.model.outcome import Repair
from dragoman.model.parts import CallKind, Extra
from dragoman.model.request import Grammar, Tool, ToolChoice, ToolRef

__all__ = ("LEGACY_TOOLS", "ToolWriter", "read_choice", "read_tools")

LEGACY_TOOLS = "functions"
_LEGACY_CHOICE = "function_call"

_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "strict"})
_CUSTOM_FIELDS = frozenset({"name", "description", "format"})
_TOOL_FIELDS = frozenset({"type", "function", "custom", "cache_control"})
_MODES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tools(fields: Fields) -> tuple[Tool, ...]:
    """Raises RequestRefused for a tool that cannot be read."""
    legacy = ask_array(fields, LEGACY_TOOLS) or []
    tools = [
        _read_function(raw, Raw(b"{}"), f"{LEGACY_TOOLS}[{index}]")
        for index, raw in enumerate(legacy)
    ]
    for index, raw in enumerate(ask_array(fields, "tools") or ()):
        tools.append(_read_tool(raw, f"tools[{index}]"))
    return tuple(tools)
