"""POST /v1/messages/count_tokens: the upstream's own count where it has one, an estimate elsewhere.

A count goes to the first planned upstream only: it is asked often (before each turn), and an estimate is at hand.
"""

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.core.failures import status_of
from dragoman.dialects.registry import codec
from dragoman.dialects.relay_request import relay_request
from dragoman.errors import GatewayError
from dragoman.model.outcome import ErrorInfo
from dragoman.model.request import Request
from dragoman.server.answer_headers import error_headers
from dragoman.server.client_headers import ClientHeaders
from dragoman.server.estimates import estimate_tokens
from dragoman.server.gateway import Gateway
from dragoman.server.limits import check_json, check_tools
from dragoman.server.replies import no_reply, read_whole
from dragoman.server.settings import ServerSettings
from dragoman.server.targets import target_of
from dragoman.store.working import beside
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.retry import retry_after

__all__ = ("Counted", "count_tokens")

_MAX_COUNT_BYTES = 1024 * 1024  # the answer is one number
_ESTIMATED = {"x-dragoman-estimate": "true"}


class Counted(Struct, frozen=True):
    status: int
    body: bytes
    headers: dict[str, str]


async def count_tokens(
    gateway: Gateway, headers: list[tuple[bytes, bytes]], body: bytes
) -> Counted:
    """How many tokens a Messages request has.

    Raises:
        RequestRefused: the request is malformed, or no route takes its model.
    """
    request = await beside(len(body), _decode, body, gateway.settings.server)
    attempt = gateway.router.plan(request.model)[0]
    upstream = gateway.upstreams[attempt.upstream]
    settings = gateway.settings.upstreams[attempt.upstream]
    if upstream.dialect_for("messages") != "messages":
        return await _estimated(request, len(body))
    target = target_of(settings, "messages", attempt.model)
    asked = await beside(
        len(body),
        relay_request,
        body,
        request,
        dialect="messages",
        target=target,
        model=attempt.model,
        policy=settings.losses,
    )
    try:
        reply = await upstream.send(
            UpstreamRequest(
                dialect="messages",
                body=asked.body,
                stream=False,
                model=attempt.model,
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
        return _failed(no_reply(error, upstream.secrets)[0])
    if reply.status == 404:  # compatible servers often lack this endpoint
        return await _estimated(request, len(body))
    if not 200 <= reply.status <= 299:
        secrets = upstream.secrets
        info = codec("messages").decode_error(secrets.hide_bytes(data), reply.status)
        info = secrets.hide_error(info)
        after = retry_after(reply.headers, now=gateway.wall_clock())
        return _failed(structs.replace(info, retry_after=after))
    return Counted(200, data, {})


def _decode(body: bytes, server: ServerSettings) -> Request:
    check_json(body, max_depth=server.max_depth, max_values=server.max_values)
    request = codec("messages").decode_request(body)
    check_tools(request, server.max_tools)
    return request


async def _estimated(request: Request, size: int) -> Counted:
    """`size`: of the body that the request was read from."""
    count = await beside(size, estimate_tokens, request)
    return Counted(200, dumps({"input_tokens": count}), _ESTIMATED)


def _failed(error: ErrorInfo) -> Counted:
    told = {name.decode("ascii"): value.decode("ascii") for name, value in error_headers(error)}
    return Counted(status_of(error), codec("messages").encode_error(error), told)
