"""What a request that is served with tools of ours leaves behind: its record, counters and the answer's headers."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.server.answer_headers import loss_header
from dragoman.server.client import Client
from dragoman.server.doors import Door
from dragoman.server.line import Headers
from dragoman.server.planning import Sending
from dragoman.server.ratelimits import limit_headers
from dragoman.server.records import RequestRecord
from dragoman.server.telemetry import ACTIONS
from dragoman.server.ways import Way
from dragoman.upstream.base import Reply
from dragoman.upstream.headers import response_headers_for
from dragoman.upstream.retry import Decision

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

__all__ = ("Witnessing",)

T = TypeVar("T")


class Witnessing:
    """A `speaking.Witness`. `headers`: what else every answer carries; `on_send`: hears of each attempt."""

    def __init__(
        self,
        gateway: "Gateway",
        door: Door,
        record: RequestRecord,
        client: Client,
        on_send: Callable[[Way, Sending], None],
    ) -> None:
        self.losses: list[Loss] = []
        self.problems: list[Problem] = []
        self.headers: Headers = ()
        self._gateway = gateway
        self._door = door
        self._record = record
        self._client = client
        self._on_send = on_send

    def sends(self, way: Way, sending: Sending) -> None:
        record = self._record
        record.attempts += 1
        record.upstream = way.attempt.upstream
        record.upstream_model = way.attempt.model
        record.repairs = (*record.repairs, *_new(sending.encoded.repairs, record.repairs))
        # The same is left out of every request of one conversation.
        self.losses += _new(sending.losses, self.losses)
        self._on_send(way, sending)

    def failed(self, way: Way, error: ErrorInfo, decision: Decision) -> None:
        action = ACTIONS[type(decision)]
        self._gateway.telemetry.attempt_failed(way.attempt.upstream, error.kind, action)

    def replied(self, way: Way, reply: Reply) -> None:
        gateway, door = self._gateway, self._door.dialect
        limits = limit_headers(door, way.dialect, reply.headers, gateway.wall_clock())
        if limits:
            gateway.limits.note_headers(way.attempt.upstream, reply.headers)
        if self._client.started:
            return
        told = [*response_headers_for(door, way.dialect, reply.headers), *limits, *self.headers]
        if self.losses:
            told.append(loss_header(self.losses))
        self._client.reply_headers = told

    def ended(self, way: Way, problems: Sequence[Problem]) -> None:
        del way
        self.problems += problems


def _new(found: Sequence[T], known: Sequence[T]) -> list[T]:
    return [each for each in found if each not in known]
