"""Which peer is asked, and which upstreams and peers rest after failures. Pure: the caller passes the time and random numbers in.

A peer is one server of an upstream; an upstream without `peers` is its own only peer. Each has a `PeerHealth`:

    up ──── `failures` in a row ────► cooling ──── the cooldown is over ────► due ──── an attempt begins ────► probing
     ▲                                   ▲                                                                       │
     │                                   └──────── it fails: the next cooldown is twice as long ─────────────────┤
     └─────────────────────────────────── it answers ────────────────────────────────────────────────────────────┘

Only one attempt at a time probes a peer. A `Retry-After` sets the end of the cooldown: with a 503 for the peer, with a 429 for
the model alone, because vendors count each model by itself.

`PeerOrder` chooses the target of each attempt of one request. Targets that are up come first, in the order of the route. Among the
peers of an upstream, a conversation keeps its peer, whose cache has its prompt: rendezvous hashing with weights gives each
peer its share, and moves only the conversations of a peer that rests. When no target that is up is left, the one that is due first
is tried, and no other: a request never fails without having asked one server, and does not ask all that are known to be down.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from hashlib import blake2b
from math import log

from msgspec import Struct

from dragoman.config.settings import RetrySettings
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.outcome import ErrorKind
from dragoman.model.parts import Media, Text
from dragoman.model.request import Request
from dragoman.upstream.retry import Failure

FAILURE_WINDOW = 60.0
"""Seconds. Failures further apart are not in a row: a peer that is asked once an hour should not rest for a fault of last week."""

# Models of one peer that rest at the same time. Clients choose the names; beyond this, the one that is due first is forgotten.
_MAX_MODELS = 256
# Exponents above make no cooldown longer: the shortest doubles to more than an hour before.
_MAX_LEVEL = 64
# Characters of each text that identify a conversation. Texts that differ only after so many are rare, and share a peer.
_MAX_TEXT = 32 * 1024
_SCORE_BYTES = 6  # a float holds such a number exactly

# Nothing usable came, whoever asked.
_OF_SERVER: frozenset[ErrorKind] = frozenset(
    ("upstream", "truncated", "overloaded", "server", "timeout", "protocol")
)
# These are about the account. With the caller's own key, they say nothing about the peer.
_OF_ACCOUNT: frozenset[ErrorKind] = frozenset(
    ("rate_limit", "quota", "authentication", "permission")
)
_ACCOUNT_STATUSES = frozenset((401, 402, 403, 429))


class PeerState(Enum):
    UP = auto()
    COOLING = auto()
    DUE = auto()  # the next attempt is a probe
    PROBING = auto()


class HealthReport(Struct, frozen=True):
    """The health of a peer now. seconds: until it is due. reason: what failed. models: how many of its models rest."""

    state: PeerState
    seconds: float = 0.0
    reason: str = ""
    models: int = 0

    @property
    def is_well(self) -> bool:
        return self.state is PeerState.UP and not self.models

    @property
    def text(self) -> str:
        """The report in words, for the operator."""
        match self.state:
            case PeerState.UP:
                own = []
            case PeerState.COOLING:
                own = [f"cools down for {self.seconds:.0f} s more, after {self.reason}"]
            case PeerState.DUE:
                own = [f"will be probed by the next request, after {self.reason}"]
            case PeerState.PROBING:
                own = [f"is being probed, after {self.reason}"]
        if self.models:
            rest = "1 model rests" if self.models == 1 else f"{self.models} models rest"
            own.append(f"{rest} after a rate limit")
        return "; ".join(own) or "up"


class PeerHealth:
    """The health of one peer, from the results of its attempts.

    is_out: whether the peer has cooled down and has not answered since.
    """

    __slots__ = ("_failed_at", "_failures", "_level", "_models", "_probe", "_reason", "_until", "is_out")  # fmt: skip

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = 0.0
        self._level = 0  # how often in a row it has cooled down
        self.is_out = False
        self._until = 0.0
        self._probe = 0  # the number of the probe that runs; negative: none, and the last number
        self._models: dict[str, float] = {}
        self._reason = ""

    def is_ready(self, model: str, now: float) -> bool:
        """Whether an attempt may begin that is not the last resort."""
        if self._models and self._models.get(model, 0.0) > now:
            return False
        return not self.is_out or (self._until <= now and self._probe <= 0)

    def due(self, model: str) -> float:
        """When the peer may be asked for this model again."""
        return max(self._until if self.is_out else 0.0, self._models.get(model, 0.0))

    def begin(self, now: float) -> int:
        """An attempt begins. Returns the number of the probe that it is, for `end`; 0 if it is none."""
        if not self.is_out or self._until > now or self._probe > 0:
            return 0
        self._probe = 1 - self._probe
        return self._probe

    def end(self, probe: int) -> None:
        """A probe has ended, whatever came of it."""
        if probe and probe == self._probe:
            self._probe = -probe

    def replied(self, status: int) -> bool:
        """The peer replied. Returns whether it was out until now, and is not any more. The failures count until `succeeded`."""
        if not self.is_out or _is_harmful_status(status) or status in _ACCOUNT_STATUSES:
            return False
        self.is_out = False
        self._probe = -abs(self._probe)  # it has ended: its answer may take long
        return True

    def succeeded(self, model: str) -> None:
        """An attempt ended with an answer."""
        self._failures = self._level = 0
        if self._models:
            self._models.pop(model, None)

    def failed(
        self,
        failure: Failure,
        model: str,
        *,
        settings: RetrySettings,
        now: float,
        has_own_key: bool,
    ) -> float | None:
        """An attempt failed. Returns the seconds of the cooldown that begins now, or None.

        has_own_key: the gateway's key was used, not the caller's.
        """
        if not settings.cooldown or not _is_harmful(failure, has_own_key=has_own_key):
            return None
        wait = failure.retry_after
        if wait:
            wait = min(wait, settings.max_cooldown)
            if failure.status == 429:
                self._rest_model(model, now + wait, now)
                return None
            if failure.status == 503:
                return self._cool(now, wait, failure)
        if now - self._failed_at > FAILURE_WINDOW and not self.is_out:
            self._failures = self._level = 0
        self._failed_at = now
        self._failures += 1
        if self._failures < settings.failures or (self.is_out and self._until > now):
            return None
        self._level = min(self._level + 1, _MAX_LEVEL)
        length = min(settings.cooldown * 2.0 ** (self._level - 1), settings.max_cooldown)
        return self._cool(now, length, failure)

    def report(self, now: float) -> HealthReport:
        models = sum(until > now for until in self._models.values())
        if not self.is_out:
            return HealthReport(PeerState.UP, models=models)
        if self._until > now:
            state = PeerState.COOLING
        else:
            state = PeerState.PROBING if self._probe > 0 else PeerState.DUE
        left = max(0.0, self._until - now)
        return HealthReport(state, left, self._reason, models)

    def _cool(self, now: float, seconds: float, failure: Failure) -> float | None:
        was_cooling = self.is_out and self._until > now
        self.is_out = True
        self._until = max(self._until, now + seconds)
        what = failure.kind if failure.status is None else f"status {failure.status}"
        count = f"{self._failures} failures, the last: " if self._failures > 1 else ""
        self._reason = count + what
        return None if was_cooling else seconds

    def _rest_model(self, model: str, until: float, now: float) -> None:
        if len(self._models) >= _MAX_MODELS:
            self._models = {name: end for name, end in self._models.items() if end > now}
        if len(self._models) >= _MAX_MODELS:
            del self._models[min(self._models, key=self._models.__getitem__)]
        self._models[model] = max(until, self._models.get(model, 0.0))


def _is_harmful(failure: Failure, *, has_own_key: bool) -> bool:
    """Whether a failure says that the peer cannot serve others either."""
    if failure.is_local:
        return False
    if failure.kind in _OF_ACCOUNT or failure.status in _ACCOUNT_STATUSES:
        return has_own_key
    if failure.status is not None:
        return _is_harmful_status(failure.status)
    return failure.kind in _OF_SERVER


def _is_harmful_status(status: int) -> bool:
    return status >= 500 or status == 408


class PeerOrder:
    """The targets of one request, in the order in which they are tried.

    targets: those of the route; the peers of one upstream follow one another. key: what identifies the conversation.
    only_first: another upstream is never asked, as with `retry.enabled = false`.
    """

    __slots__ = ("_health", "_is_last_resort", "_key", "_scores", "_targets", "_tried")

    def __init__(
        self,
        targets: Sequence[AttemptTarget],
        health: Mapping[str, PeerHealth],
        key: Callable[[], bytes],
        *,
        only_first: bool = False,
    ) -> None:
        if only_first:
            targets = [each for each in targets if is_beside(each, targets[0])]
        self._targets = targets
        self._health = health
        self._key = key
        self._scores: dict[str, float] = {}
        self._tried: list[AttemptTarget] = []
        self._is_last_resort = False

    def next(self, now: float) -> AttemptTarget | None:
        """The target to try next, of those that were not tried; None if there is none left."""
        if self._is_last_resort:
            return None
        left = [each for each in self._targets if each not in self._tried]
        ready = [each for each in left if self._is_ready(each, now)]
        if ready:
            return self._preferred([each for each in ready if is_beside(each, ready[0])])
        return min(left, key=self._due, default=None)

    def take(self, target: AttemptTarget, now: float) -> AttemptTarget:
        """Note that the target that `next` returned is tried now."""
        self._tried.append(target)
        self._is_last_resort = not self._is_ready(target, now)
        return target

    def again(self, target: AttemptTarget, now: float) -> AttemptTarget:
        """The target of a retry: a peer of the same upstream, of which each was tried."""
        beside = [each for each in self._targets if is_beside(each, target)]
        if len(beside) == 1:
            return target
        ready = [each for each in beside if self._is_ready(each, now)]
        return self._preferred(ready) if ready else min(beside, key=self._due)

    def _is_ready(self, target: AttemptTarget, now: float) -> bool:
        return self._health[target.peer].is_ready(target.model, now)

    def _due(self, target: AttemptTarget) -> float:
        return self._health[target.peer].due(target.model)

    def _preferred(self, peers: Sequence[AttemptTarget]) -> AttemptTarget:
        return peers[0] if len(peers) == 1 else max(peers, key=self._score)

    def _score(self, target: AttemptTarget) -> float:
        score = self._scores.get(target.peer)
        if score is None:
            score = self._scores[target.peer] = score_of(target.peer, target.weight, self._key())
        return score


def score_of(peer: str, weight: float, key: bytes) -> float:
    """The peer with the highest score gets the conversation: each gets as many as its weight is of the sum of all."""
    digest = blake2b(peer.encode(), key=key, digest_size=_SCORE_BYTES).digest()
    share = (int.from_bytes(digest, "big") + 0.5) / 2.0 ** (8 * _SCORE_BYTES)  # between 0 and 1
    return -weight / log(share)


def conversation_key(request: Request) -> bytes:
    """What all requests of a conversation have in common: the client's cache key or session, else how it begins.

    The beginning is the instructions and the first message of the user: they stay the same from turn to turn.
    """
    digest = blake2b(digest_size=16)
    own = request.cache_key or request.session
    if own:
        digest.update(own.encode("utf-8", "surrogatepass"))
        return digest.digest()
    for turn in request.turns:
        if turn.role in ("assistant", "tool"):
            break
        for part in turn.parts:
            match part:
                case Text():
                    text = part.text
                case Media():
                    text = part.data or part.url or part.file_id or ""
                case _:
                    continue
            data = text[:_MAX_TEXT].encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
        if turn.role == "user":
            break
    return digest.digest()


def is_beside(one: AttemptTarget, other: AttemptTarget) -> bool:
    """Whether two targets are peers of one upstream, in one place of the route."""
    return one.upstream == other.upstream and one.model == other.model
