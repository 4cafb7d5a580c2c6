"""The rehearsal as an upstream: it answers in the dialect of the request, without network and key.

The same request is answered with the same bytes. The dialect's own encoder writes them. Texts come in small deltas, and a piece is the
output for one event. Interrupted answers end in the middle of their last part.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest

from msgspec import Struct, structs

from dragoman._json import as_object, dumps, raw
from dragoman.core.failures import error_info, status_of
from dragoman.core.fold import fold, unfold
from dragoman.core.ids import Minter
from dragoman.core.pairing import pair_results
from dragoman.core.secrets import NO_SECRETS
from dragoman.dialects.chat import is_legacy
from dragoman.dialects.codec import Codec, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.errors import RequestRefused, UpstreamError
from dragoman.model.events import (
    Event,
    Failed,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, ErrorKind, Outcome, Usage
from dragoman.model.parts import Call, Dialect
from dragoman.model.request import Request
from dragoman.upstream.base import CheckResult, UpstreamReply, UpstreamRequest
from dragoman.upstream.rehearsal.answer import (
    CHARACTERS,
    CREATED,
    check_seals,
    compose,
    count_request,
)
from dragoman.upstream.rehearsal.scenarios import Ending, Scenario, find_scenario

# A delta is about a token; a long text has larger deltas, so that 300 KB do not become 75,000 frames.
MAX_DELTAS = 500
# The usual size of one socket read.
BODY_PIECE = 65_536

_BROKEN = ErrorInfo(kind="overloaded", message="the rehearsal fails half-way, as it was asked to")
_JSON = "application/json"
_STREAM = "text/event-stream"

_Delta = TextDelta | ReasoningDelta | InputDelta
# Bytes of a request. The rehearsal decodes it in the gateway's own process: a large one in a thread.
_LARGE = 256 * 1024
# Short, so that clients do not wait long, but not zero, so that the wait can be observed.
RETRY_AFTER = 1.0


class Delivery(Struct, frozen=True):
    """The content of a reply: its status and headers, its bytes in pieces, and how it ends."""

    status: int
    headers: dict[str, str]
    pieces: tuple[bytes, ...] = ()
    ending: Ending = "whole"
    delay: float = 0.0


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


def perform(request: UpstreamRequest) -> Delivery:
    """The answer to a request, or its error."""
    spoken = codec(request.dialect)
    seed = blake2b(request.body, digest_size=16).hexdigest()
    try:
        delivery = _answer(request, spoken, seed)
    except RequestRefused as error:
        delivery = deliver_error(error_info(error), spoken)
    name = "request-id" if request.dialect == "messages" else "x-request-id"
    request_id = Minter(f"{seed} request")("req_")
    return structs.replace(delivery, headers={**delivery.headers, name: request_id})


def _answer(request: UpstreamRequest, spoken: Codec, seed: str) -> Delivery:
    asked = spoken.decode_request(request.body)
    if request.operation == "count_tokens":
        kind = {"object": "response.input_tokens"} if request.dialect == "responses" else {}
        body = dumps({**kind, "input_tokens": count_request(asked)})
        return Delivery(200, {"content-type": _JSON}, (body,))
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
    outcome = compose(asked, request.dialect, scenario, seed)
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


# --- the answer in pieces of the dialect's bytes ----------------------------------------------------------------------


def deliver_error(error: ErrorInfo, codec: Codec) -> Delivery:
    """An error as a whole answer."""
    headers = {"content-type": _JSON}
    if error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:g}"
    return Delivery(status_of(error), headers, (codec.encode_error(error),))


def deliver_stream(
    outcome: Outcome, codec: Codec, context: EncodeContext, scenario: Scenario
) -> Delivery:
    """An answer as a stream."""
    events = list(events_of(outcome))
    ending = scenario.ending
    if ending != "whole":
        events = events[: _middle(events)]
    if ending == "error":
        events += _failure(events)
        ending = "whole"
    pieces = _frames(events, codec, context, interleaved=scenario.interleaved)
    return _delivery(_STREAM, pieces, ending, scenario)


def deliver_body(
    outcome: Outcome, codec: Codec, context: EncodeContext, scenario: Scenario
) -> Delivery:
    """An answer as one body. If the scenario fails half-way, the error replaces the body."""
    if scenario.ending == "error":
        return deliver_error(_BROKEN, codec)
    body = codec.encode_body(unfold(outcome), context)
    if scenario.ending != "whole":
        body = body[: len(body) // 2]
    pieces = [body[at : at + BODY_PIECE] for at in range(0, len(body), BODY_PIECE)]
    return _delivery(_JSON, pieces, scenario.ending, scenario)


def _delivery(
    content_type: str, pieces: Sequence[bytes], ending: Ending, scenario: Scenario
) -> Delivery:
    sent = tuple(pieces) if scenario.starts else ()
    return Delivery(200, {"content-type": content_type}, sent, ending, scenario.delay)


def events_of(outcome: Outcome) -> Iterator[Event]:
    """The events of an answer, with its texts in small deltas and the input tokens reported at the start."""
    for event in unfold(outcome):
        match event:
            case Started():
                yield event
                if outcome.usage is not None:
                    yield UsageReported(Usage(input=outcome.usage.input, output=0))
            case TextDelta() | ReasoningDelta() | InputDelta():
                size = max(CHARACTERS, -(-len(event.text) // MAX_DELTAS))
                for at in range(0, len(event.text), size):
                    yield structs.replace(event, text=event.text[at : at + size])
            case _:
                yield event


def _middle(events: Sequence[Event]) -> int:
    """The number of events up to the middle of the last part with deltas, or of a call without any."""
    started = [event.part for event in events if isinstance(event, PartStarted)]
    last = started[-1] if started else 0
    written = [
        index
        for index, event in enumerate(events)
        if isinstance(event, (PartStarted, TextDelta, ReasoningDelta, InputDelta))
        and event.part == last
    ]
    return written[len(written) // 2] + 1 if written else 1


def _failure(events: Sequence[Event]) -> Iterator[Event]:
    """The events that end a started answer: its open part, incomplete, then the error."""
    folded = fold([*events, Failed(_BROKEN)])
    ended = {event.part for event in events if isinstance(event, PartEnded)}
    opened = [
        event for event in events if isinstance(event, PartStarted) and event.part not in ended
    ]
    for event in opened:
        value = next(c.parts[-1] for c in folded.choices if c.index == event.choice)
        yield PartEnded(event.part, structs.replace(value, status="incomplete"))
    yield Failed(_BROKEN)


def _frames(
    events: Iterable[Event], codec: Codec, context: EncodeContext, *, interleaved: bool
) -> list[bytes]:
    encoder = codec.encoder(context)
    written = [(event, encoder.encode(event)) for event in events]
    if interleaved:
        return _renumber(_interleave(written))
    return [data for _, data in written if data]


def _interleave(written: Sequence[tuple[Event, bytes]]) -> list[bytes]:
    """The frames of the calls, interleaved: the first frame of each call, then the second of each.

    Our encoders never write overlapping calls, but servers send them, so the frames are reordered after
    each call was written on its own.
    """
    calls: dict[int, list[bytes]] = {
        event.part: []
        for event, _ in written
        if isinstance(event, PartStarted) and isinstance(event.header, Call)
    }
    before: list[bytes] = []
    after: list[bytes] = []
    for event, data in written:
        part = event.part if isinstance(event, (PartStarted, InputDelta, PartEnded)) else -1
        if part in calls:
            calls[part].append(data)
        else:
            (after if any(calls.values()) else before).append(data)
    alternating = [data for row in zip_longest(*calls.values(), fillvalue=b"") for data in row]
    return [data for data in (*before, *alternating, *after) if data]


def _renumber(frames: Sequence[bytes]) -> list[bytes]:
    """Frames with a sequence number (as in Responses) are renumbered in the order of sending."""
    out: list[bytes] = []
    number = 0
    for frame in frames:
        for piece in frame.split(b"\n\n")[:-1]:
            head, _, data = piece.rpartition(b"data: ")
            if b'"sequence_number"' not in data:
                out.append(piece + b"\n\n")
                continue
            fields = as_object(data)
            fields["sequence_number"] = raw(number)
            number += 1
            out.append(head + b"data: " + dumps(fields) + b"\n\n")
    return out


class RehearsalReply(UpstreamReply):
    """The reply of a delivery: each read returns the next piece, after its delay."""

    def __init__(self, delivery: Delivery) -> None:
        self.status = delivery.status
        self.headers = delivery.headers
        self._delivery = delivery
        self._pieces = deque(delivery.pieces)
        self._closed = asyncio.Event()

    async def read(self) -> bytes:
        """The next piece; empty at the end.

        Raises:
            UpstreamError: kind `truncated`: the scenario cuts the connection, or the reply was closed.
        """
        ending = self._delivery.ending
        if self._pieces:
            # Other tasks run between two pieces, as they would if the pieces came from a socket.
            await self._wait(self._delivery.delay)
        elif ending == "stall":
            await self._closed.wait()
        if self._closed.is_set():
            message = "the reply was closed before it was read to its end"
            raise UpstreamError(message, kind="truncated")
        if self._pieces:
            return self._pieces.popleft()
        if ending == "cut":
            message = "the rehearsal cut the connection, as it was asked to"
            raise UpstreamError(message, kind="truncated")
        return b""

    def close(self) -> None:
        """Wake a waiting reader at once. May be called twice."""
        self._closed.set()

    async def _wait(self, delay: float) -> None:
        if not delay:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(delay):
                await self._closed.wait()
        except TimeoutError:
            pass
