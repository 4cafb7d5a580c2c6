"""What a tool is to the engine: what the model is told of it, how it may be run, and what it gives back."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman._json import Raw
from dragoman.model.parts import Call, Media, Opaque, Text
from dragoman.model.request import Tool as Declaration

__all__ = ("Declaration", "Invocation", "Offer", "Output", "Tool", "ToolSource", "text_output")


class Offer(Struct, frozen=True, gc=False, kw_only=True):
    """A tool as the model is told of it, and how it may be run.

    is_parallel: it may run beside others that say the same; every other tool runs alone.
    timeout: seconds it may take; None: as long as the engine's settings allow any tool.
    """

    declaration: Declaration
    is_parallel: bool = False
    timeout: float | None = None


class Invocation(Struct, frozen=True, gc=False):
    """One call to be run. `report` tells whoever watches how far it is; it may be called from the event loop only."""

    call: Call
    report: Callable[[str], None]


class Output(Struct, frozen=True, gc=False, kw_only=True):
    """What a tool gave back. `structured` is the same as JSON, where the tool has it so."""

    content: tuple[Text | Media | Opaque, ...] = ()
    is_error: bool = False
    structured: Raw | None = None


class Tool(Protocol):
    """Something a model may call."""

    @property
    def offer(self) -> Offer: ...

    def run(self, invocation: Invocation) -> Awaitable[Output]:
        """Do it. When it is cancelled it stops all that it started before it lets the cancellation through.

        Raises:
            ToolError: it cannot be done; its message becomes the result that the model reads.
            FatalToolError: nothing more can be done in this conversation; the turn ends.
        """
        ...


@runtime_checkable
class ToolSource(Protocol):
    """Tools that come and go, as those of an MCP server do."""

    def tools(self) -> Sequence[Tool]:
        """Those there are now; asked before each request."""
        ...


def text_output(text: str, *, is_error: bool = False) -> Output:
    """What a tool says in words."""
    return Output(content=(Text(text=text),), is_error=is_error)
