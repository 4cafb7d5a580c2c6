"""Whose a call is, and what is wrong with it: which tool runs it, or the words that go back to the model instead.

executor `provider`                 the provider has run it: not touched
named by the request's own tools    the caller's: handed over
cut, nameless, no strict JSON       refused (`core.calls.judge`)
no such tool, or of another form    refused, with near names
arguments that do not fit           refused, with what `check` says
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from dragoman.core.calls import judge
from dragoman.engine import wording
from dragoman.engine.toolbox import Entry, Toolbox, spoken_name
from dragoman.model.parts import CLIENT_KINDS, Call, CallKind
from dragoman.model.request import Tool as Declaration

__all__ = ("Check", "Ours", "Refused", "Route", "Router", "Theirs")

Check = Callable[[Declaration, str], str | None]
"""What is wrong with the input of a call to this tool, for the model to read; None: nothing."""

# Kinds by which a model calls a tool by its name; the rest are built in, and found by their kind.
_BY_NAME = frozenset(("function", "custom", "mcp"))


class Ours(Struct, frozen=True):
    """To be run by this tool."""

    entry: Entry


class Theirs(Struct, frozen=True):
    """The caller's."""


class Refused(Struct, frozen=True):
    """Not to be run; `text` tells the model why."""

    text: str


Route = Ours | Theirs | Refused


class Router:
    """One per request: knows the engine's tools and the caller's."""

    __slots__ = ("_check", "_their_kinds", "_their_names", "_toolbox")

    def __init__(self, toolbox: Toolbox, theirs: Iterable[Declaration], check: Check) -> None:
        self._toolbox = toolbox
        self._check = check
        self._their_names: set[str] = set()
        self._their_kinds: set[CallKind] = set()
        for declaration in theirs:
            self._their_names.add(spoken_name(declaration.name, declaration.namespace))
            if declaration.kind in CLIENT_KINDS:
                self._their_kinds.add(declaration.kind)

    def route(self, call: Call) -> Route:
        """What becomes of a call that the provider has not run. Its executor is `client`."""
        entry = self._toolbox.find(call)
        if entry is None and self._is_theirs(call):
            # Also one that is cut or no JSON: what that is worth is for the caller to say.
            return Theirs()
        verdict = judge(call)
        if not verdict.executable:
            return Refused(wording.refused_call(verdict.reason))
        if entry is None:
            return Refused(self._unknown(call))
        declaration = entry.offer.declaration
        if (declaration.kind == "custom") != (call.kind == "custom"):
            return Refused(wording.wrong_kind(call.name, declaration.kind))
        problem = self._check(declaration, call.input)
        return Ours(entry) if problem is None else Refused(problem)

    def _is_theirs(self, call: Call) -> bool:
        return (
            call.kind in self._their_kinds
            or spoken_name(call.name, call.namespace) in self._their_names
        )

    def _unknown(self, call: Call) -> str:
        if call.kind in CLIENT_KINDS or call.kind not in _BY_NAME:
            return wording.unknown_kind(call.kind)
        return wording.unknown_tool(call.name, self._toolbox.near(call.name))
