"""The rehearsal as an upstream: it answers in the dialect of the request, without network and key.

The same request is answered with the same bytes.
"""

import asyncio
from hashlib import blake2b

from dragoman._json import dumps
from dragoman.core.failures import error_info
from dragoman.core.ids import Minter
from dragoman.core.pairing import pair_results
from dragoman.core.secrets import NO_SECRETS
from dragoman.dialects.chat import is_legacy
from dragoman.dialects.codec import Codec, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.errors import RequestRefused
from dragoman.model.outcome import ErrorInfo, ErrorKind
from dragoman.model.parts import Dialect
from dragoman.model.request import Request
from dragoman.upstream.base import CheckResult, UpstreamReply, UpstreamRequest
from dragoman.upstream.rehearsal.answer import (
    CREATED,
    AnswerInput,
    check_seals,
    compose,
    count_request,
)
from dragoman.upstream.rehearsal.delivery import (
    Delivery,
    RehearsalReply,
    deliver_body,
    deliver_error,
    deliver_stream,
)
from dragoman.upstream.rehearsal.scenarios import Scenario, find_scenario

# Bytes of a request. The rehearsal decodes it in the gateway's own process: a large one in a thread.
_LARGE = 256 * 1024


class RehearsalUpstream:
    """A `base.Upstream`. It has no state between requests, and needs no credentials."""

    secrets = NO_SECRETS

    def __init__(self, name: str = "rehearsal") -> None:
        self.name = name

    def dialect_for(self, door: Dialect) -> Dialect:
        """The client's dialect: the rehearsal speaks all of them."""
        return door

    def url_of(self, dialect: Dialect, operation: str) -> str:  # noqa: ARG002 -- it answers by itself
        return ""

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """The reply. An error is a reply too; nothing is raised."""
        if len(request.body) < _LARGE:
            return RehearsalReply(perform(request))
        return RehearsalReply(await asyncio.to_thread(perform, request))

    async def check(self) -> CheckResult:
        return CheckResult(ok=True, status=None, detail="answers by itself")

    async def close(self) -> None:
        """Does nothing: there are no connections."""


# Short, so that clients do not wait long, but not zero, so that the wait can be observed.
RETRY_AFTER = 1.0


def perform(request: UpstreamRequest) -> Delivery:
    """The answer to a request, or its error."""
    spoken = codec(request.dialect)
    seed = blake2b(request.body, digest_size=16).hexdigest()
    try:
        delivery = _answer(request, spoken, seed)
    except RequestRefused as error:
        delivery = deliver_error(error_info(error), spoken)
    name = "request-id" if request.dialect == "messages" else "x-request-id"
    return Delivery(
        delivery.status,
        {**delivery.headers, name: Minter(f"{seed} request")("req_")},
        delivery.pieces,
        delivery.ending,
        delivery.delay,
    )


def _answer(request: UpstreamRequest, spoken: Codec, seed: str) -> Delivery:
    asked = spoken.decode_request(request.body)
    if request.operation == "count_tokens":
        kind = {"object": "response.input_tokens"} if request.dialect == "responses" else {}
        body = dumps({**kind, "input_tokens": count_request(asked)})
        return Delivery(200, {"content-type": "application/json"}, (body,))
    if request.operation != "generate":
        raise RequestRefused(
            f"operation: expected generate or count_tokens, got {request.operation!r}"
        )
    scenario = find_scenario(request.model or asked.model)
    if scenario.error is not None:
        return deliver_error(_ordered(scenario, scenario.error), spoken)
    check_seals(asked)
    if scenario.strict:
        _check_pairs(asked)
    outcome = compose(AnswerInput(asked, request.dialect, scenario, seed))
    context = EncodeContext(
        seed=f"{seed} items",
        include_usage=asked.include_usage is True or not request.stream,
        legacy_functions=any(map(is_legacy, asked.tools)),
        request=asked,
        clock=lambda: CREATED,
    )
    deliver = deliver_stream if request.stream else deliver_body
    return deliver(outcome, spoken, context, scenario)


def _ordered(scenario: Scenario, error: tuple[int, ErrorKind]) -> ErrorInfo:
    """The error of a scenario that is an error."""
    status, kind = error
    return ErrorInfo(
        kind=kind,
        message=f"{scenario.name}: {scenario.about}",
        status=status,
        retry_after=RETRY_AFTER if kind == "rate_limit" else None,
    )


def _check_pairs(asked: Request) -> None:
    _, repairs = pair_results(asked.turns)
    if repairs:
        found = "; ".join(f"{repair.rule} at {repair.where}" for repair in repairs)
        raise RequestRefused(
            f"expected every call to have one result and every result its call: {found}"
        )
