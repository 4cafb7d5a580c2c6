"""POST /v1/messages/count_tokens: the upstream's own count where it has one, else an estimate.

Only the first upstream of the route is asked: clients count often (before each turn), and the estimate is the fallback.
"""

from collections.abc import Iterable
from math import ceil
from typing import assert_never

from msgspec import structs
from starlette.responses import Response

from dragoman._json import dumps
from dragoman.config.settings import ServerSettings
from dragoman.core.failures import status_of
from dragoman.core.fields import set_members
from dragoman.dialects.registry import codec
from dragoman.dialects.relay_request import relay_request
from dragoman.errors import GatewayError
from dragoman.gateway.attempt import error_of_reply, no_reply
from dragoman.gateway.reply import read_whole
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Request, Tool
from dragoman.offload import offload
from dragoman.server.gateway import Gateway
from dragoman.server.http.headers import ClientHeaders, error_headers
from dragoman.server.limits import check_json, check_tools
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.retry import retry_after

_MAX_COUNT_BYTES = 1024 * 1024  # the answer is one number
_JSON = "application/json"


async def count_tokens(
    gateway: Gateway, headers: list[tuple[bytes, bytes]], body: bytes
) -> Response:
    """How many tokens a Messages request has.

    Raises:
        RequestRefused: the request is malformed, or no route takes its model.
    """
    request = await offload(len(body), _decode, body, gateway.settings.server)
    target = gateway.upstreams.targets("messages", request.model)[0]
    upstream = gateway.upstreams.by_name[target.upstream]
    if target.dialect != "messages":
        return await _estimated(request, len(body))
    asked = await offload(len(body), _question, body, request, target)
    try:
        reply = await upstream.send(
            UpstreamRequest(
                dialect="messages",
                body=asked,
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
        return _failed(no_reply(error, upstream.secrets))
    if reply.status == 404:  # compatible servers often lack this endpoint
        return await _estimated(request, len(body))
    if not 200 <= reply.status <= 299:
        info = error_of_reply(reply, data, target, upstream.secrets)
        after = retry_after(reply.headers, now=gateway.wall_clock())
        return _failed(structs.replace(info, retry_after=after))
    return Response(data, media_type=_JSON)


def _question(body: bytes, request: Request, target: AttemptTarget) -> bytes:
    """The request for the upstream's own count."""
    asked = relay_request(
        body,
        request,
        dialect="messages",
        target=target.accepts,
        model=target.model,
        policy=target.settings.losses,
    ).body
    # A request that was written anew has a limit, which this endpoint refuses.
    return set_members(asked, {"max_tokens": None}) if request.max_tokens is None else asked


def _decode(body: bytes, server: ServerSettings) -> Request:
    check_json(body, max_depth=server.max_depth, max_values=server.max_values)
    request = codec("messages").decode_request(body)
    check_tools(request, server.max_tools)
    return request


async def _estimated(request: Request, size: int) -> Response:
    """`size`: the size of the body that the request was decoded from."""
    count = await offload(size, estimate_tokens, request)
    estimated = {"x-dragoman-estimate": "true"}
    return Response(dumps({"input_tokens": count}), 200, estimated, _JSON)


def _failed(error: ErrorInfo) -> Response:
    headers = {name.decode("ascii"): value.decode("ascii") for name, value in error_headers(error)}
    return Response(codec("messages").encode_error(error), status_of(error), headers, _JSON)


# English and code have 3.5 to 4.5 characters per token with the vendors' current tokenizers.
CHARACTERS_PER_TOKEN = 4
# Other scripts: from half a token per character (Cyrillic) to one and a half (rare ideographs).
TOKENS_PER_FOREIGN_CHARACTER = 1
# Role, separators, and the ids of calls.
TOKENS_PER_TURN = 4
TOKENS_PER_CALL = 12
# The text that Anthropic and OpenAI add to each tool, and before the first.
TOKENS_PER_TOOL = 8
TOKENS_FOR_TOOLS = 300
# The largest image that Anthropic does not scale down, by Anthropic's count.
TOKENS_PER_IMAGE = 1600
# A PDF page has some 50 KB and counts 1,500 to 3,000 tokens.
BASE64_PER_TOKEN = 25


def estimate_tokens(request: Request) -> int:
    """An estimate of the tokens in a request's conversation, tools and answer schema. At least 1."""
    total = float(sum(TOKENS_PER_TURN + _parts(turn.parts) for turn in request.turns))
    if request.tools:
        total += TOKENS_FOR_TOOLS + sum(map(_tool, request.tools))
    if request.response_format is not None and request.response_format.schema is not None:
        total += _bytes(bytes(request.response_format.schema))
    return max(1, ceil(total))


def _parts(parts: Iterable[Part]) -> float:
    return sum(map(_part, parts))


def _part(part: Part) -> float:
    match part:
        case Text() | Refusal():
            return _text(part.text)
        case Reasoning():
            return sum(map(_text, (*part.summary, *part.content)))
        case Call():
            return TOKENS_PER_CALL + _text(part.name) + _text(part.input)
        case Result():
            return TOKENS_PER_CALL + _parts(part.content)
        case Media():
            return _media(part)
        case Opaque():
            return _bytes(bytes(part.raw))
        case _:
            assert_never(part)


def _media(media: Media) -> float:
    if media.kind == "image" or media.data is None:
        return TOKENS_PER_IMAGE
    return max(TOKENS_PER_IMAGE, len(media.data) / BASE64_PER_TOKEN)


def _tool(tool: Tool) -> float:
    total = TOKENS_PER_TOOL + _text(tool.name) + _text(tool.description or "")
    if tool.schema is not None:
        total += _bytes(bytes(tool.schema))
    if tool.grammar is not None:
        total += _text(tool.grammar.definition)
    return total


def _text(text: str) -> float:
    if text.isascii():
        return len(text) / CHARACTERS_PER_TOKEN
    plain = len(text.encode("ascii", "ignore"))
    return plain / CHARACTERS_PER_TOKEN + (len(text) - plain) * TOKENS_PER_FOREIGN_CHARACTER


def _bytes(data: bytes) -> float:
    return _text(data.decode("utf-8", "replace"))
