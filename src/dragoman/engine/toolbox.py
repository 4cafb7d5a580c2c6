"""The tools of one request: those that were given and those that the sources have now, by what a model may call them."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct

from dragoman.core.aliases import flat_name
from dragoman.engine.tools import Offer, Tool, ToolSource
from dragoman.errors import ConfigError
from dragoman.model.parts import CLIENT_KINDS, Call
from dragoman.model.request import Namespace
from dragoman.model.request import Tool as Declaration

__all__ = ("Entry", "Toolbox", "gather", "spoken_name")

MAX_SUGGESTIONS = 3
# Looking for near names costs with their number and length; beyond these nobody mistypes.
MAX_COMPARED = 1000
MAX_NAME = 200

# Agents that flatten MCP servers into names write this before them, and models remember it.
_MCP_PREFIX = "mcp__"


class Entry(Struct, frozen=True):
    """A tool, and what it offered when the request was made."""

    tool: Tool
    offer: Offer


class Toolbox:
    """Finds the tool a call means.

    Raises:
        ConfigError: two tools that a model could not tell apart.
    """

    __slots__ = ("_entries", "_kinds", "_names")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._entries = tuple(Entry(tool, tool.offer) for tool in tools)
        self._names: dict[str, Entry] = {}
        self._kinds: dict[str, Entry] = {}
        for entry in self._entries:
            declaration = entry.offer.declaration
            name = spoken_name(declaration.name, declaration.namespace)
            if not declaration.name:
                raise ConfigError("expected every tool to have a name, got one without")
            if self._names.setdefault(name, entry) is not entry:
                raise ConfigError(f"expected tools with different names, got {name!r} twice")
            if declaration.kind in CLIENT_KINDS:
                self._kinds.setdefault(declaration.kind, entry)

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        return tuple(entry.offer.declaration for entry in self._entries)

    def find(self, call: Call) -> Entry | None:
        """The tool of that name and, for a built-in kind, of that kind."""
        entry = self._names.get(spoken_name(call.name, call.namespace))
        if call.kind in CLIENT_KINDS and (
            entry is None or entry.offer.declaration.kind != call.kind
        ):
            return self._kinds.get(call.kind)
        return entry

    def near(self, name: str) -> tuple[str, ...]:
        """Names that could have been meant, the likeliest first."""
        names: Mapping[str, str] = {
            spoken.casefold(): flat_name(
                entry.offer.declaration.name, entry.offer.declaration.namespace
            )
            for spoken, entry in list(self._names.items())[:MAX_COMPARED]
        }
        wanted = spoken_name(name, None).casefold()[:MAX_NAME]
        inner = [key for key in names if key.endswith(f"__{wanted}")]
        close = get_close_matches(wanted, names, n=MAX_SUGGESTIONS)
        return tuple(names[key] for key in dict.fromkeys((*inner, *close)))[:MAX_SUGGESTIONS]

    def check_apart(self, others: Iterable[Declaration]) -> None:
        """Whether a model can tell these tools from others that it is told of.

        Raises:
            ConfigError: it cannot.
        """
        for other in others:
            name = spoken_name(other.name, other.namespace)
            if name in self._names:
                raise ConfigError(
                    f"expected the request's tools and the engine's to differ, got {name!r} in both"
                )

    def namespaces(self, known: Sequence[Namespace]) -> tuple[Namespace, ...]:
        """The namespaces of the tools here that are not among the known ones."""
        names = {namespace.name for namespace in known}
        wanted = dict.fromkeys(
            declaration.namespace
            for declaration in self.declarations
            if declaration.namespace is not None and declaration.namespace not in names
        )
        return tuple(Namespace(name) for name in wanted)


def gather(tools: Iterable[Tool | ToolSource]) -> Toolbox:
    """All there are now.

    Raises:
        ConfigError: two tools that a model could not tell apart.
    """
    found: list[Tool] = []
    for entry in tools:
        if isinstance(entry, ToolSource):
            found.extend(entry.tools())
        else:
            found.append(entry)
    return Toolbox(found)


def spoken_name(name: str, namespace: str | None) -> str:
    """One form for the ways to write `server`, `tool`: in a namespace, joined, and with the prefix for MCP."""
    return flat_name(name, namespace).removeprefix(_MCP_PREFIX)
