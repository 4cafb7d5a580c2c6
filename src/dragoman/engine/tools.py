"""A tool as the engine sees it: its declaration for the model, how it may be run, and its output."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman._json import Raw
from dragoman.model.parts import Call, Media, Opaque, Text
from dragoman.model.request import Tool as Declaration

__all__ = ("Declaration", "Invocation", "Offer", "Output", "Tool", "ToolSource", "text_output")


class Offer(Struct, frozen=True, gc=False, kw_only=True):
    """The declaration of a tool for the model, and how the tool may be run.

    is_parallel: the tool may run beside other parallel tools; every other tool runs alone.
    timeout: seconds a call may take; None: the limit of the engine's settings.
    """

    declaration: Declaration
    is_parallel: bool = False
    timeout: float | None = None


class Invocation(Struct, frozen=True):
    """One call to run. `report` sends a text on progress to the observer; call it on the event loop only."""

    call: Call
    report: Callable[[str], None]


class Output(Struct, frozen=True, gc=False, kw_only=True):
    """The output of a tool. `structured` is the output as JSON, if the tool provides it."""

    content: tuple[Text | Media | Opaque, ...] = ()
    is_error: bool = False
    structured: Raw | None = None


class Tool(Protocol):
    """Something a model may call."""

    @property
    def offer(self) -> Offer: ...

    def run(self, invocation: Invocation) -> Awaitable[Output]:
        """Run the call. If it is cancelled, it first stops everything that it started, then raises the cancellation.

        Raises:
            ToolError: the call failed; the message becomes the result that the model reads.
            FatalToolError: the conversation cannot continue; the turn ends.
        """
        ...


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools that may change, such as an MCP server."""

    def tools(self) -> Sequence[Tool]:
        """The tools that are available now. The engine asks before each request."""
        ...


def text_output(text: str, *, is_error: bool = False) -> Output:
    """An output of one text."""
    return Output(content=(Text(text=text),), is_error=is_error)
