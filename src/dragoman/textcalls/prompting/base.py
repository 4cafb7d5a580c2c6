"""What is written into a prompt, and what one format must know to write it. Values only.

A format here is the reverse of the scanner's pattern of the same name: what `say` writes, the scanner reads back as the
same call, or `say` has told its `Sheet` of a doubt.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from dragoman._json import Raw
from dragoman.core.aliases import NameLimits
from dragoman.textcalls.offers import Offers

__all__ = ("LEGACY_MARKS", "GivenResult", "SaidCall", "Sheet", "Signature", "ToolPrompt")

LEGACY_MARKS = frozenset({"functions", "function_call"})
"""What the reader of Chat marks tools and calls of its older form with: a matter of that wire, and no loss."""


class Signature(Struct, frozen=True):
    """A tool as the model is told of it."""

    name: str
    description: str
    schema: Raw


class SaidCall(Struct, frozen=True):
    """A call of the conversation. `arguments` is the text of a JSON object; `number` counts the calls from 0."""

    name: str
    arguments: str
    call_id: str = ""
    number: int = 0


class GivenResult(Struct, frozen=True):
    """What a call gave back, as text. `number` is that of its call."""

    name: str
    text: str
    call_id: str = ""
    number: int = 0
    is_error: bool = False


class Sheet(Struct):
    """What calls are written on: the tools offered, for the types of their parameters, and the doubts that came up."""

    offers: Offers
    doubts: list[str] = field(default_factory=list[str])


class ToolPrompt(Struct, frozen=True, kw_only=True):
    """How tools, calls and results are told in one format.

    say: the calls of one turn. give: the results of one turn, in the order of their calls.
    ends: what a result must not contain. between: what stands between a turn's text and its calls.
    stops: stop sequences without which models of this format write the result themselves.
    """

    name: str
    offer: Callable[[Sequence[Signature]], str]
    say: Callable[[Sequence[SaidCall], Sheet], str]
    give: Callable[[Sequence[GivenResult]], str]
    ends: tuple[str, ...] = ()
    names: NameLimits = NameLimits()
    between: str = "\n"
    stops: tuple[str, ...] = ()
