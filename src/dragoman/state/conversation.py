"""Rebuilds a conversation from its stored responses, or from its items. Pure."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from msgspec import structs

from dragoman.dialects.responses.compaction import with_trigger
from dragoman.dialects.responses.request import without_background
from dragoman.dialects.responses.turns import EarlierItems
from dragoman.model.parts import Extra
from dragoman.model.request import Namespace, Request, Tool, Turn
from dragoman.store.records import Link

# Fields that apply to one request only; the next request does not inherit them.
_OF_ONE_REQUEST = frozenset(("turns", "stream", "store", "previous_id", "include_usage", "extra"))
_DEFAULTS = {
    field.name: field.default
    for field in structs.fields(Request)
    if field.name not in _OF_ONE_REQUEST
}


def continued(chain: Sequence[Link], request: Request, *, inherits: bool = False) -> Request:
    """Return the request with all earlier turns prepended, oldest first, for an upstream that stores nothing.

    `inherits`: fields that the request leaves unset take the settings of the last response, including instructions and
    tools. Otherwise only the turns carry over, with the tools that were declared among the turns.
    """
    asked = _overlay(settings_of(chain), request) if inherits and chain else request
    heads = [turn for turn in asked.turns if turn.head]
    past = [turn for link in chain for turn in _turns_of(link)]
    new = [turn for turn in request.turns if not turn.head]
    return _joined(asked, (*heads, *past, *new), [link.request for link in chain])


def prepended(past: EarlierItems, request: Request) -> Request:
    """Return the request with the items of a conversation before its own turns, and with the tools that were declared among them."""
    heads = [turn for turn in request.turns if turn.head]
    new = [turn for turn in request.turns if not turn.head]
    earlier = Request(turns=past.turns, tools=past.tools, namespaces=past.namespaces)
    return _joined(request, (*heads, *with_trigger(past.turns), *new), [earlier])


def _joined(asked: Request, turns: tuple[Turn, ...], earlier: Sequence[Request]) -> Request:
    tools, namespaces = _declared(earlier, asked)
    return structs.replace(
        asked,
        turns=turns,
        tools=(*tools, *asked.tools) if tools else asked.tools,
        namespaces=(*namespaces, *asked.namespaces),
        previous_id=None,
    )


def without_settings(request: Request) -> Request:
    """Return what `continued` takes of an earlier request, unless its settings are inherited: the turns, and the tools among them."""
    return Request(
        model=request.model,
        turns=tuple([turn for turn in request.turns if not turn.head]),
        tools=tuple([tool for tool in request.tools if tool.place == "input"]),
        namespaces=tuple([group for group in request.namespaces if group.place == "input"]),
    )


def settings_of(chain: Sequence[Link]) -> Request:
    """Return the settings of the last response, laid over those of the responses that it inherits from.

    The result contains only the head turns (instructions), no others.
    """
    heirs = list(takewhile(lambda link: link.head.inherits, reversed(chain)))
    first = len(chain) - len(heirs) - 1
    settings = chain[max(first, 0)].request
    settings = structs.replace(
        settings, turns=tuple([turn for turn in settings.turns if turn.head])
    )
    for link in chain[max(first, 0) + 1 :]:
        settings = _overlay(settings, link.request)
    return settings


def _overlay(below: Request, above: Request) -> Request:
    inherited = {
        name: getattr(below, name)
        for name, default in _DEFAULTS.items()
        if getattr(above, name) == default
    }
    heads = tuple([turn for turn in above.turns if turn.head]) or below.turns
    extra = _merged(without_background(below).extra, above.extra)
    return structs.replace(above, **inherited, turns=heads, extra=extra)


def _merged(below: Extra | None, above: Extra | None) -> Extra | None:
    if below is None or above is None or below.dialect != above.dialect:
        return above or below
    return Extra(above.dialect, {**below.fields, **above.fields})


def _turns_of(link: Link) -> Iterable[Turn]:
    yield from (turn for turn in link.request.turns if not turn.head)
    if link.parts:
        yield Turn(role="assistant", parts=link.parts)


def _declared(
    earlier: Sequence[Request], asked: Request
) -> tuple[tuple[Tool, ...], tuple[Namespace, ...]]:
    """Tools and namespaces that earlier turns declared and `asked` does not repeat. A later declaration of a name wins."""
    tools = {
        (tool.name, tool.namespace): tool
        for request in earlier
        for tool in request.tools
        if tool.place == "input"
    }
    groups = {
        group.name: group
        for request in earlier
        for group in request.namespaces
        if group.place == "input"
    }
    for tool in asked.tools:
        tools.pop((tool.name, tool.namespace), None)
    for group in asked.namespaces:
        groups.pop(group.name, None)
    return tuple(tools.values()), tuple(groups.values())
