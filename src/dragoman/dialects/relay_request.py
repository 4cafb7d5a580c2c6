"""Prepares a request for an upstream that speaks the client's dialect: the client's bytes, with as few changes as possible.

The model's name changes where a route renames it, and `stream` where the gateway needs another value; both are edited in
place. An empty list of tools is left out. All other members stay, also unknown ones. The dialect's encoder writes the request anew only if the upstream is
known to refuse it because of:

    a call without its result, or a result without its call; and what else the dialect's `find_repairs` reports
    ids and names beyond the target's limits
    tools, schemas and fields that the target's table rules out, where an operator changed that table
    seals of another provider in this gateway's envelope, or reasoning without a seal

Only the conversation is written anew if it has calls that the assistant wrote as text (`textcalls/history.py`), or if the operator
wants cache breakpoints for Messages clients that set none.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from dragoman._json import Raw, as_object, dumps_text, is_same_json
from dragoman.core.aliases import NameMap, ToolKey, alias_id
from dragoman.core.fields import set_members, source_text
from dragoman.core.schemas import SchemaRules, fix_schema
from dragoman.core.seals import ENVELOPE
from dragoman.core.tool_cache import made_of
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.registry import codec
from dragoman.model.outcome import LossAction
from dragoman.model.parts import Call, Part, Reasoning, Result, Text
from dragoman.model.request import Request, Tool

_OFFERED = ("function", "custom")
_TOOLS = b'"tools"'
_BREAKPOINT = b'"cache_control"'
_INCLUDE_USAGE = b'{"include_usage":true}'
_SEALED = b'"' + ENVELOPE.encode("ascii")  # the beginning of a JSON string that holds our envelope

# Agents send the same tools with every request of a session: a hundred tools of ten sessions.
_SCHEMAS_KEPT = 1024
# Bytes. Real schemas have some thousand; a client may send one as long as a request may be.
_LONGEST_KEPT = 16_384


def relay_request(  # noqa: PLR0913 -- the request, its target, and the changes
    body: bytes,
    request: Request,
    *,
    dialect: str,
    target: Target,
    model: str,
    stream: bool | None = None,
    policy: Mapping[str, LossAction] | None = None,
    is_repaired: bool = False,
) -> EncodedRequest:
    """Return the request to send. `request` is the decoded `body`; `stream` is None to keep the client's value.

    is_repaired: the conversation of `request` is not that of `body`, and replaces it, with what depends on it.

    Raises:
        RequestRefused: the request must be written anew, and contains what the policy refuses to lose.
    """
    own = codec(dialect)
    parts = [part for turn in request.turns for part in turn.parts if type(part) is not Text]
    names = _names(request.tools, parts, target, own.target)
    repairs = own.find_repairs(request)
    is_acceptable = (
        names is not None
        and (is_repaired or not repairs)
        and (not parts or all(_is_welcome(part, target) for part in parts))
        and _has_its_limit(request, target)
        and (not target.user_first or _begins_with_user(request))
        and (target.system_messages or not _has_late_system(request, dialect))
        and (target.deferred_tools is not False or not _has_deferred(request))
        and _SEALED not in body
    )
    if names is None or not is_acceptable:
        changed = _changed(request, model, stream=stream)
        encoded = own.encode_request(changed, target, policy)
        # The encoder does not report what other dialects allow, such as an empty text.
        reported = {repair.rule for repair in encoded.repairs}
        more = [repair for repair in repairs if repair.rule not in reported]
        return replace(encoded, repairs=(*more, *encoded.repairs)) if more else encoded
    values: dict[str, bytes | None] = {}
    if model != request.model:
        values["model"] = dumps_text(model)
    if stream is not None and stream != bool(request.stream):
        values["stream"] = b"true" if stream else b"false"
        if dialect == "chat":
            # Chat reports usage only on request, and refuses `stream_options` without `stream`.
            values["stream_options"] = _INCLUDE_USAGE if stream else None
    if not request.tools and not request.namespaces and _TOOLS in body:
        values.update(_without_tools(body, dialect))
    # The target wants breakpoints, also for clients of its dialect that set none.
    is_marked = target.cache and dialect == "messages" and _BREAKPOINT not in body
    if is_repaired or is_marked:
        written = own.encode_request(_changed(request, model, stream=stream), target, policy)
        values.update(_differing(body, written.body))
        return replace(written, body=set_members(body, values))
    return EncodedRequest(set_members(body, values) if values else body, names)


def _without_tools(body: bytes, dialect: str) -> dict[str, None]:
    """Return the members to remove: an empty list of tools, which OpenAI's Chat refuses, and what is refused without tools."""
    if "tools" not in as_object(body):
        return {}
    more = ("parallel_tool_calls",) if dialect == "chat" else ()
    return dict.fromkeys(("tools", "tool_choice", *more))


def _differing(body: bytes, written: bytes) -> dict[str, bytes | None]:
    """Return the members that have another value in `written`; None: it has no such member."""
    old, new = as_object(body), as_object(written)
    values: dict[str, bytes | None] = {
        key: bytes(value)
        for key, value in new.items()
        if key not in old or not is_same_json(source_text(old[key]), source_text(value))
    }
    return values | dict.fromkeys(old.keys() - new.keys())


def _changed(request: Request, model: str, *, stream: bool | None) -> Request:
    """Apply the changes of `relay_request` to a request that is written anew."""
    if stream is None or stream == bool(request.stream):
        return replace(request, model=model)
    return replace(request, model=model, stream=stream, include_usage=True if stream else None)


def _names(
    tools: tuple[Tool, ...], parts: Sequence[Part], target: Target, default: Target
) -> NameMap | None:
    """Return the names of the tools if the target accepts all tools unchanged, else None. Cached for each list of tools."""
    names = made_of(tools, ("relay", target), _fitting, tools, (), target, default)
    if names is None or not parts:
        return names
    used = [
        (part.namespace or None, part.name)
        for part in parts
        if isinstance(part, Call) and part.executor == "client" and part.kind in _OFFERED
    ]
    is_known = names.wires.keys() >= set(used)
    return names if is_known else _fitting(tools, used, target, default)


def _fitting(
    tools: tuple[Tool, ...], used: Sequence[ToolKey], target: Target, default: Target
) -> NameMap | None:
    if not all(_is_fitting(tool, target, default) for tool in tools):
        return None
    offered = [tool for tool in tools if tool.kind in _OFFERED]
    flatten = target.dialect != "responses"
    names = NameMap.build(offered, used, target.names, flatten=flatten)
    is_same = all(
        wire == name and (space is None or not flatten)
        for (space, name), wire in names.wires.items()
    )
    return names if is_same else None


def _is_welcome(part: Part, target: Target) -> bool:
    match part:
        case Call(executor="client", call_id=call_id) | Result(executor="client", call_id=call_id):
            return not call_id or alias_id(call_id, target.ids) == call_id
        case Reasoning(seals=seals):
            # Anthropic refuses thinking without its signature, which comes from another upstream.
            return bool(seals) or target.dialect != "messages"
        case _:
            return True


def _is_fitting(tool: Tool, target: Target, default: Target) -> bool:
    """Whether the target accepts a tool unchanged. Where it has the dialect's default table, the upstream decides."""
    if tool.kind == "custom":
        return target.dialect != "chat" or "custom" in target.builtin
    if tool.kind != "function":
        return target.builtin == default.builtin or tool.kind in (*target.builtin, "other")
    if tool.strict and not target.strict:
        return False
    if tool.schema is None or target.schemas == default.schemas:
        return True
    schema = bytes(tool.schema)
    is_fitting = _recall_fitting if len(schema) <= _LONGEST_KEPT else _is_fitting_schema
    return is_fitting(schema, target.schemas, tool.strict)


def _is_fitting_schema(schema: bytes, rules: SchemaRules, strict: bool | None) -> bool:  # noqa: FBT001 -- a cache's key
    return not fix_schema(Raw(schema), rules, strict=strict)[2]


_recall_fitting = lru_cache(_SCHEMAS_KEPT)(_is_fitting_schema)


def _has_its_limit(request: Request, target: Target) -> bool:
    """Whether the request's limit has a name that the upstream reads: Chat has two, and an upstream may know only one."""
    if target.dialect != "chat" or request.max_tokens is None:
        return True
    own = {} if request.extra is None else request.extra.fields
    return "max_completion_tokens" in own or target.max_tokens_field == "max_tokens"


def _has_late_system(request: Request, dialect: str) -> bool:
    """Whether there are system messages besides the first: in Messages that one is not a message."""
    later = request.turns[1:] if dialect == "chat" else request.turns
    return any(turn.role in ("system", "developer") and not turn.head for turn in later)


def _has_deferred(request: Request) -> bool:
    """Whether a request has deferred tools, a search for tools, or tools that were loaded."""
    return any(
        tool.deferred or tool.kind == "tool_search" or tool.place == "input"
        for tool in request.tools
    )


def _begins_with_user(request: Request) -> bool:
    roles = (turn.role for turn in request.turns if turn.role not in ("system", "developer"))
    return next(roles, "user") == "user"
