"""Tools for models that have none: offered in the prompt, in a format that the scanner reads back.

A request with tools becomes one without: the tools are described in the system text, calls and results of the
conversation become text. What the model then writes is found by the scanner of the same format, given `tools`, and put
in the client's terms by `names`. The upstream, its dialect and its limits are not known here.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from dragoman.core.aliases import NameMap
from dragoman.core.losses import LossBook
from dragoman.errors import ConfigError
from dragoman.model.outcome import Loss, LossAction, Repair
from dragoman.model.parts import Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.prompting.base import ToolPrompt
from dragoman.textcalls.prompting.formats import PROMPTS
from dragoman.textcalls.prompting.history import BETWEEN, add_text, is_told, retell
from dragoman.textcalls.prompting.losses import LOSSES
from dragoman.textcalls.prompting.offering import Offering, plan_offering

__all__ = ("PROMPT_FORMATS", "PromptedRequest", "needs_prompting", "prompt_tools")

PROMPT_FORMATS: tuple[str, ...] = tuple(PROMPTS)
"""The formats tools can be prompted in."""

# OpenAI takes four stop sequences; other servers are not stricter.
MAX_STOPS = 4


class PromptedRequest(Struct, frozen=True, kw_only=True):
    """A request without tools, and what is needed to read the answer.

    tools: what the prompt offers, as functions under the names used in the text: what the scanner is to look for.
    names: from those names to the client's own.
    """

    request: Request
    tools: tuple[Tool, ...]
    names: NameMap
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()


def needs_prompting(request: Request) -> bool:
    """Whether there is anything for a prompt to say: tools, or calls and results of the past. Others stay as they are."""
    return bool(request.tools) or any(
        is_told(part) for turn in request.turns for part in turn.parts
    )


def prompt_tools(
    request: Request, format_name: str, policy: Mapping[str, LossAction] | None = None
) -> PromptedRequest:
    """The request with its tools in the prompt.

    Raises:
        ConfigError: there is no such format. RequestRefused: the policy refuses what a prompt cannot say.
    """
    prompt = PROMPTS.get(format_name)
    if prompt is None:
        known = ", ".join(PROMPT_FORMATS)
        raise ConfigError(f"expected prompted_tools to be one of {known}, got {format_name!r}")
    book = LossBook(LOSSES, policy)
    offering = plan_offering(request, prompt, book)
    retold = retell(
        request.turns,
        prompt,
        offering.names,
        Offers(offering.tools),
        book,
        continues=request.previous_id is not None,
    )
    turns = _with_head(retold.turns, offering.text) if offering.text else retold.turns
    return PromptedRequest(
        request=_without_tools(request, offering, prompt, turns, book),
        tools=offering.tools,
        names=offering.names,
        losses=book.losses,
        repairs=retold.repairs,
    )


def _without_tools(
    request: Request,
    offering: Offering,
    prompt: ToolPrompt,
    turns: tuple[Turn, ...],
    book: LossBook,
) -> Request:
    stops = request.stop
    if offering.text:
        if request.response_format is not None and request.response_format.kind != "text":
            book.note("response_format", "response_format", request.response_format.kind)
        missing = tuple(stop for stop in prompt.stops if stop not in stops)
        if len(stops) + len(missing) <= MAX_STOPS:
            stops += missing
        else:
            book.note("stop", "stop")
    return structs.replace(
        request,
        turns=turns,
        tools=offering.kept,
        namespaces=(),
        tool_choice=offering.choice,
        parallel_calls=request.parallel_calls if offering.kept else None,
        stop=stops,
    )


def _with_head(turns: tuple[Turn, ...], text: str) -> tuple[Turn, ...]:
    """The instruction at the end of the first system text, where templates put it; or as a system text of its own."""
    if turns and turns[0].role in ("system", "developer"):
        told = add_text(turns[0].parts, text, BETWEEN)
        return (structs.replace(turns[0], parts=told), *turns[1:])
    return (Turn(role="system", parts=(Text(text=text),), head=True), *turns)
