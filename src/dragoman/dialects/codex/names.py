"""The names under which a client's tools are offered to Codex.

Beyond its own tools (`losses.BUILTIN_NAMES`) Codex keeps every name that begins with `mcp__` for its MCP servers, and
refuses the whole thread for one. Clients name the tools of theirs just so: `mcp__files__read` is offered as
`mcp_files__read`, and is `mcp__files__read` again in the answer.
"""

from collections.abc import Sequence

from msgspec import structs

from dragoman.core.aliases import NameLimits, NameMap
from dragoman.model.request import Tool

__all__ = ("RESERVED_PREFIX", "wire_names")

RESERVED_PREFIX = "mcp__"
_REPLACEMENT = "mcp_"

_Key = tuple[str | None, str]


def wire_names(
    tools: tuple[Tool, ...], used: Sequence[tuple[str | None, str]], limits: NameLimits
) -> NameMap:
    """A name for every tool, and for every (namespace, name) that calls in the history use."""
    names = NameMap.build(tools, used, limits)
    reserved = {key: wire for key, wire in names.wires.items() if wire.startswith(RESERVED_PREFIX)}
    if not reserved:
        return names
    taken = set(names.wires.values())
    changed: dict[_Key, str] = {}
    for key, wire in reserved.items():
        changed[key] = _free(wire, taken, limits.max_length)
        taken.add(changed[key])
    wires = names.wires | changed
    return structs.replace(
        names,
        wires=wires,
        origins={
            (None, wires[key]): names.origins[None, wire] for key, wire in names.wires.items()
        },
        customs=frozenset(wires[key] for key, wire in names.wires.items() if wire in names.customs),
    )


def _free(wire: str, taken: set[str], limit: int) -> str:
    """Shorter by an underscore, and told apart by a number where that is somebody else's."""
    plain = _REPLACEMENT + (wire.removeprefix(RESERVED_PREFIX).lstrip("_") or "tool")
    name, number = plain, 1
    while name in taken:
        number += 1
        tail = f"_{number}"
        name = plain[: limit - len(tail)] + tail
    return name
