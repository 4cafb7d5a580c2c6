"""Removes credentials from the tools and settings of a request before the request is stored, or repeated in an answer.

Clients give a provider the keys of their MCP servers, as headers or a token of a tool or of a list of servers, and the
secrets that a container may send to a host. Providers expect these with every request, so a client that continues a stored
response sends them again. The text of a conversation is not searched, nor are the schemas of functions, where a parameter
may be called `token`.
"""

import re
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from msgspec import structs

from dragoman._json import Raw, loads, raw
from dragoman.model.parts import Extra, Opaque, Part, Result
from dragoman.model.request import Namespace, Request, Tool, Turn

T = TypeVar("T")
D = TypeVar("D", Tool, Namespace)

_CREDENTIALS = (
    r"(?:proxy[-_])?authorization(?:[-_]token)?|headers|cookies?|api[-_]?key|x-api-key|passwords?|(?:domain[-_])?secrets?"
    r"|credentials?|(?:access|refresh|id|auth|bearer|session|api)[-_]?token|token|client[-_]?secret|private[-_]?key"
)
_NAME = re.compile(_CREDENTIALS, re.IGNORECASE)
# Members that describe the arguments of a function.
_SCHEMAS = frozenset({"parameters", "input_schema", "output_schema", "input_examples", "schema"})
_MEMBER = re.compile(rf'"(?:{_CREDENTIALS})"\s*:'.encode("ascii"), re.IGNORECASE)


def remove_credentials(request: Request) -> Request:
    """Return the request without credentials; the same object if it had none."""
    if _is_plain(request):
        return request
    extra = _scrub_extra(request.extra)
    tools = _each(request.tools, _scrub_declared)
    namespaces = _each(request.namespaces, _scrub_declared)
    turns = _each(request.turns, _scrub_turn)
    if (
        extra is request.extra
        and tools is request.tools
        and namespaces is request.namespaces
        and turns is request.turns
    ):
        return request
    return structs.replace(request, extra=extra, tools=tools, namespaces=namespaces, turns=turns)


def remove_from_item(turn: Turn, data: bytes) -> bytes:
    """Return an item of a conversation without credentials; the same object if it had none. `turn`: the item, decoded."""
    return data if _scrub_turn(turn) is turn else bytes(_scrub_raw(Raw(data)))


def credentials_of(request: Request) -> tuple[str, ...]:
    """Return the texts in the credentials of the request's tools: an upstream may repeat the tools as they were sent."""
    extras = [tool.extra for tool in request.tools] + [each.extra for each in request.namespaces]
    secret = [extra for extra in extras if extra is not None and _scrub_extra(extra) is not extra]
    fields = [
        (name, loads(bytes(value))) for extra in secret for name, value in extra.fields.items()
    ]
    return tuple([text for name, value in fields for text in _secret_texts({name: value})])


def _is_plain(request: Request) -> bool:
    """Whether the request has no field that could hold credentials, like most requests."""
    if (request.extra is not None and request.extra.fields) or request.namespaces:
        return False
    for tool in request.tools:
        if tool.extra is not None:
            return False
    return all(turn.role != "developer" for turn in request.turns)


def _each(values: tuple[T, ...], change: Callable[[T], T]) -> tuple[T, ...]:
    """Apply `change` to each value; return the same tuple if no value changed."""
    changed = [change(value) for value in values]
    is_same = all(new is old for new, old in zip(changed, values, strict=True))
    return values if is_same else tuple(changed)


def _scrub_declared(declared: D) -> D:
    extra = _scrub_extra(declared.extra)
    return declared if extra is declared.extra else structs.replace(declared, extra=extra)


def _scrub_turn(turn: Turn) -> Turn:
    """Developer turns and results of a search declare tools too, in items that the gateway does not decode (`Opaque`)."""
    if turn.role not in ("developer", "tool"):
        return turn
    parts = _each(turn.parts, _scrub_part)
    return turn if parts is turn.parts else structs.replace(turn, parts=parts)


def _scrub_part(part: Part) -> Part:
    if isinstance(part, Opaque):
        return _scrub_opaque(part)
    if not isinstance(part, Result) or part.kind != "tool_search":
        return part
    content = tuple(
        [_scrub_opaque(one) if isinstance(one, Opaque) else one for one in part.content]
    )
    return part if content == part.content else structs.replace(part, content=content)


def _scrub_opaque(part: Opaque) -> Opaque:
    kept, extra = _scrub_raw(part.raw), _scrub_extra(part.extra)
    is_same = kept is part.raw and extra is part.extra
    return part if is_same else structs.replace(part, raw=kept, extra=extra)


def _scrub_extra(extra: Extra | None) -> Extra | None:
    if extra is None:
        return None
    kept = {
        name: value if name in _SCHEMAS else _scrub_raw(value)
        for name, value in extra.fields.items()
        if _NAME.fullmatch(name) is None
    }
    if len(kept) == len(extra.fields) and all(kept[name] is extra.fields[name] for name in kept):
        return extra
    return Extra(extra.dialect, kept)


def _scrub_raw(value: Raw) -> Raw:
    if _MEMBER.search(bytes(value)) is None:
        return value
    found: object = loads(bytes(value))
    kept = _without_secrets(found)
    # Otherwise the bytes stay: a provider's cache compares them with those of the request before.
    return value if kept == found else raw(kept)


def _without_secrets(value: object) -> object:
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {
            name: item if name in _SCHEMAS else _without_secrets(item)
            for name, item in pairs
            if _NAME.fullmatch(name) is None
        }
    if isinstance(value, list):
        return [_without_secrets(item) for item in cast("list[object]", value)]
    return value


def _secret_texts(value: object, *, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if is_secret and value:
            yield value
    elif isinstance(value, dict):
        for name, item in cast("dict[str, object]", value).items():
            is_below = is_secret or _NAME.fullmatch(name) is not None
            if name not in _SCHEMAS:
                yield from _secret_texts(item, is_secret=is_below)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _secret_texts(item, is_secret=is_secret)
