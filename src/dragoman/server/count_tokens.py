"""POST /v1/messages/count_tokens and /v1/responses/input_tokens: the upstream's own count where it has one, else an estimate.

Only the first upstream of the route is asked: clients count often (before each turn), and the estimate is the fallback. The request is
the one that would be sent to this upstream, so a count of another dialect's upstream is as true as its own.
"""

import time
from collections.abc import Mapping

from msgspec import structs
from starlette.responses import Response

from dragoman._json import as_object, dumps
from dragoman.config.settings import ServerSettings
from dragoman.core.failures import status_of
from dragoman.core.fields import read_int, set_members
from dragoman.core.token_estimate import estimate_tokens
from dragoman.dialects.registry import codec
from dragoman.errors import GatewayError, MalformedJson
from dragoman.gateway.attempt import error_of_reply, no_reply
from dragoman.gateway.compaction import expand
from dragoman.gateway.context_edits import apply_edits
from dragoman.gateway.hosted.tool_search import ToolSearch
from dragoman.gateway.peers import PeerOrder, conversation_key
from dragoman.gateway.plan import ClientRequest, check_previous, knows_previous, plan_request
from dragoman.gateway.reply import read_whole
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Dialect
from dragoman.model.request import Request
from dragoman.offload import offload
from dragoman.server.gateway import Gateway
from dragoman.server.http.headers import ClientHeaders, error_headers
from dragoman.server.limits import check_json, check_tools
from dragoman.state.continuation import StorageCaller, find_continuation
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.retry import retry_after

_MAX_COUNT_BYTES = 1024 * 1024  # the answer is one number
_JSON = "application/json"

# The vendors refuse all other fields of a request whose tokens they count.
_COUNTED: Mapping[str, frozenset[str]] = {
    "messages": frozenset(
        {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"}
    ),
    "responses": frozenset(
        {
            *("model", "input", "instructions", "tools", "tool_choice", "previous_response_id"),
            *("conversation", "reasoning", "text", "parallel_tool_calls", "truncation"),
        }
    ),
}
_MISSING = (404, 405, 501)  # compatible servers often lack the endpoint


async def count_tokens(
    gateway: Gateway, dialect: Dialect, headers: list[tuple[bytes, bytes]], body: bytes
) -> Response:
    """How many tokens a Messages or Responses request has.

    Raises:
        RequestRefused: the request is malformed, or no route takes its model, or it continues something unknown.
    """
    request = await offload(len(body), _decode, dialect, body, gateway.settings.server)
    named = gateway.identify(headers).named
    if not named:
        return await _count(gateway, dialect, headers, body, request)
    use = await gateway.named_keys.admit(named, request.model, body)
    try:
        return await _count(gateway, dialect, headers, body, request)
    finally:
        gateway.named_keys.end(use)


async def _count(
    gateway: Gateway,
    dialect: Dialect,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    request: Request,
) -> Response:
    upstreams, now = gateway.upstreams, time.monotonic()
    targets = upstreams.targets(dialect, request.model)
    order = PeerOrder(targets, upstreams.health, lambda: conversation_key(request), only_first=True)
    target = order.next(now) or targets[0]
    asked = await _complete(gateway, dialect, headers, ClientRequest(body, request), target)
    if not target.counts_tokens:
        return await _estimated(dialect, asked)
    upstream = upstreams.by_name[target.peer]
    question = await offload(len(body), _question, asked, target)
    try:
        reply = await upstream.send(
            UpstreamRequest(
                dialect=target.dialect,
                body=question,
                stream=False,
                model=target.model,
                operation="count_tokens",
                headers=ClientHeaders(dict(headers)),
                client_key=gateway.identify(headers).key,
            )
        )
        try:
            data = await read_whole(reply, _MAX_COUNT_BYTES)
        finally:
            reply.close()
    except GatewayError as error:
        return _failed(dialect, no_reply(error, upstream.secrets))
    if reply.status in _MISSING:
        return await _estimated(dialect, asked)
    if not 200 <= reply.status <= 299:
        info = error_of_reply(reply, data, target, upstream.secrets)
        after = retry_after(reply.headers, now=gateway.wall_clock())
        return _failed(dialect, structs.replace(info, retry_after=after))
    count = _read_count(data)
    if count is None:
        return await _estimated(dialect, asked)
    if target.is_same_dialect:
        return Response(data, media_type=_JSON)
    return Response(_written(dialect, count), media_type=_JSON)


async def _complete(
    gateway: Gateway,
    dialect: Dialect,
    headers: list[tuple[bytes, bytes]],
    asked: ClientRequest,
    target: AttemptTarget,
) -> ClientRequest:
    """The request with the stored history that this upstream does not know, with summaries as messages, and with a search.

    The search stands for the deferred tools that are too many for this upstream.
    """
    request = asked.request
    if dialect == "responses" and not gateway.is_storing:
        check_previous(request, target)  # a count without the history would be false
    elif dialect == "responses":
        owner = gateway.identify(headers).owner
        caller = StorageCaller(owner, "", gateway.wall_clock(), _ignore, only_reads=True)
        # Nothing is stored, so there is no keeper.
        unstored = structs.replace(request, store=False)
        found = await find_continuation(gateway.store, dialect, unstored, caller)
        if not knows_previous(found, request, target) and found.request is not None:
            request = found.request
    request, _ = apply_edits(expand(request, target), target)
    most = target.accepts.max_tools
    if most is not None and len(request.tools) > most:
        search = ToolSearch(request, dialect, str)
        request = search.first_request(target) if search.is_needed(target) else request
    return asked if request is asked.request else ClientRequest(b"", request, is_rebuilt=True)


def _ignore(_reason: ErrorInfo) -> None:
    """Nothing runs that could be stopped."""


def _question(asked: ClientRequest, target: AttemptTarget) -> bytes:
    """The request for the upstream's own count."""
    written = plan_request(asked, target, stream=False).encoded.body
    if target.is_same_dialect and not asked.is_rebuilt:
        # A request that was written anew has a limit, which this endpoint refuses.
        has_limit = asked.request.max_tokens is not None
        return written if has_limit else set_members(written, {"max_tokens": None})
    others = as_object(written).keys() - _COUNTED[target.dialect]
    return set_members(written, dict.fromkeys(others))


def _read_count(data: bytes) -> int | None:
    """The upstream's count; None if the answer has none, like the page of a proxy."""
    try:
        count = read_int(as_object(data).get("input_tokens"))
    except MalformedJson:
        return None
    return None if count is None or count < 0 else count


def _decode(dialect: Dialect, body: bytes, server: ServerSettings) -> Request:
    check_json(body, max_depth=server.max_depth, max_values=server.max_values)
    request = codec(dialect).decode_request(body)
    check_tools(request, server.max_tools)
    return request


async def _estimated(dialect: Dialect, asked: ClientRequest) -> Response:
    count = await offload(asked.size, estimate_tokens, asked.request)
    return Response(_written(dialect, count), 200, {"x-dragoman-estimate": "true"}, _JSON)


def _written(dialect: Dialect, count: int) -> bytes:
    kind = {"object": "response.input_tokens"} if dialect == "responses" else {}
    return dumps({**kind, "input_tokens": count})


def _failed(dialect: Dialect, error: ErrorInfo) -> Response:
    headers = {name.decode("ascii"): value.decode("ascii") for name, value in error_headers(error)}
    return Response(codec(dialect).encode_error(error), status_of(error), headers, _JSON)
