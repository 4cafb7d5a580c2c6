"""The tools of one request by the names that a model may use, and the route of each call: which tool runs it, or why none does.

executor `provider`                 not touched: the provider has run it
a tool of the request               handed over: the caller runs it
cut, nameless, no strict JSON       refused (`core.call_input.judge`)
no such tool, or of another form    refused, with similar names
arguments that do not fit           refused, with the text of `check`
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct

from dragoman.core.aliases import flat_name
from dragoman.core.call_input import judge
from dragoman.engine.tools import Offer, Tool, ToolSource
from dragoman.errors import ConfigError
from dragoman.model.parts import CLIENT_KINDS, Call, CallKind
from dragoman.model.request import Namespace
from dragoman.model.request import Tool as Declaration

MAX_SUGGESTIONS = 3
# Finding similar names takes time in proportion to their number and length; beyond these limits a typing error is unlikely.
MAX_COMPARED = 1000
MAX_NAME = 200
# Calls of unknown tools in one answer that get suggestions: a model that makes more of them does not read them.
MAX_HINTS = 32

# Some agents put this prefix before the names of MCP tools, and models have learned it.
_MCP_PREFIX = "mcp__"


class Entry(Struct, frozen=True):
    """A tool, and its offer when the request was made."""

    tool: Tool
    offer: Offer


class Toolbox:
    """Finds the tool that a call means.

    Raises:
        ConfigError: two tools have the same name.
    """

    __slots__ = ("_kinds", "_names")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._names: dict[str, Entry] = {}
        self._kinds: dict[str, Entry] = {}
        for tool in tools:
            entry = Entry(tool, tool.offer)
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
        return tuple(entry.offer.declaration for entry in self._names.values())

    def find(self, call: Call) -> Entry | None:
        """The tool of that name and, for a built-in kind, of that kind."""
        entry = self._names.get(spoken_name(call.name, call.namespace))
        if call.kind in CLIENT_KINDS and (
            entry is None or entry.offer.declaration.kind != call.kind
        ):
            return self._kinds.get(call.kind)
        return entry

    def near(self, name: str) -> tuple[str, ...]:
        """Names that the model may have meant, the likeliest first."""
        names: Mapping[str, str] = {
            plain.casefold(): flat_name(
                entry.offer.declaration.name, entry.offer.declaration.namespace
            )
            for plain, entry in list(self._names.items())[:MAX_COMPARED]
        }
        wanted = spoken_name(name, None).casefold()[:MAX_NAME]
        inner = [key for key in names if key.endswith(f"__{wanted}")]
        close = get_close_matches(wanted, names, n=MAX_SUGGESTIONS)
        return tuple(names[key] for key in dict.fromkeys((*inner, *close)))[:MAX_SUGGESTIONS]

    def check_names_differ(self, others: Iterable[Declaration]) -> None:
        """Check that no other tool of the request has the name of one of these.

        Raises:
            ConfigError: another tool has the same name.
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
    """The toolbox of all tools that are available now.

    Raises:
        ConfigError: two tools have the same name.
    """
    found: list[Tool] = []
    for entry in tools:
        if isinstance(entry, ToolSource):
            found.extend(entry.tools())
        else:
            found.append(entry)
    return Toolbox(found)


def spoken_name(name: str, namespace: str | None) -> str:
    """One spelling for all ways to write `server`, `tool`: in a namespace, joined, and with the prefix for MCP."""
    return flat_name(name, namespace).removeprefix(_MCP_PREFIX)


# The text for each verdict of `core.call_input.judge`.
_REASONS: Mapping[str, str] = {
    "not_closed": (
        "The call was cut off before its input was complete, so it was not run. "
        "Call the tool again with a shorter input."
    ),
    "no_name": "The call names no tool, so it was not run.",
    "invalid_json": (
        "The arguments are not valid JSON, so the call was not run. Call the tool again with one JSON object."
    ),
}

Check = Callable[[Declaration, str], str | None]
"""Returns the problem with the input of a call to this tool, for the model to read; None if the input fits."""

# Calls of these kinds find their tool by name; calls of the other kinds are built in and find it by kind.
_BY_NAME = frozenset(("function", "custom", "mcp"))


class LeftToCaller(Struct, frozen=True):
    """The call is for a tool of the request, which the caller runs."""


class RefusedCall(Struct, frozen=True):
    """The call is not run; `text` says why, for the model."""

    text: str


Route = Entry | LeftToCaller | RefusedCall
"""`Entry`: the engine runs the call with this tool."""


class CallRouter:
    """Decides which tool runs a call. One per request: it knows the engine's tools and the caller's."""

    __slots__ = ("_check", "_hints_left", "_their_kinds", "_their_names", "_toolbox")

    def __init__(self, toolbox: Toolbox, theirs: Iterable[Declaration], check: Check) -> None:
        self._toolbox = toolbox
        self._check = check
        self._hints_left = MAX_HINTS
        self._their_names: set[str] = set()
        self._their_kinds: set[CallKind] = set()
        for declaration in theirs:
            self._their_names.add(spoken_name(declaration.name, declaration.namespace))
            if declaration.kind in CLIENT_KINDS:
                self._their_kinds.add(declaration.kind)

    def route(self, call: Call) -> Route:
        """The route of a call that the provider has not run. Its executor is `client`."""
        entry = self._toolbox.find(call)
        if entry is None and self._is_theirs(call):
            # This includes incomplete calls and invalid JSON: the caller decides what to do with them.
            return LeftToCaller()
        verdict = judge(call)
        if not verdict.executable:
            return RefusedCall(_REASONS[verdict.reason])
        if entry is None:
            return RefusedCall(self._unknown(call))
        declaration = entry.offer.declaration
        if (declaration.kind == "custom") != (call.kind == "custom"):
            form = "plain text" if declaration.kind == "custom" else "a JSON object"
            return RefusedCall(
                f"The tool {call.name!r} takes {form} as its input, but was called with the other form."
            )
        problem = self._check(declaration, call.input)
        return entry if problem is None else RefusedCall(problem)

    def _is_theirs(self, call: Call) -> bool:
        return (
            call.kind in self._their_kinds
            or spoken_name(call.name, call.namespace) in self._their_names
        )

    def _unknown(self, call: Call) -> str:
        if call.kind in CLIENT_KINDS or call.kind not in _BY_NAME:
            return (
                f"Calls of the kind {call.kind!r} cannot be run here. Use one of the other tools."
            )
        self._hints_left -= 1
        found = self._toolbox.near(call.name) if self._hints_left >= 0 else ()
        near = " or ".join(map(repr, found))
        hint = (
            f"Did you mean {near}?"
            if near
            else "Only the tools of this conversation can be called."
        )
        return f"There is no tool named {call.name[:MAX_NAME]!r}. {hint}"
