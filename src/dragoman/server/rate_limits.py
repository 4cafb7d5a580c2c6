"""Rate limits of upstreams: as headers for clients, in the format of the client's vendor, and the latest ones for operators.

    OpenAI      x-ratelimit-{limit,remaining,reset}-{requests,tokens}              resets are durations: 1m2.5s
    Anthropic   anthropic-ratelimit-{requests,tokens,…}-{limit,remaining,reset}    resets are times: RFC 3339
    Codex       x-codex-primary-used-percent and its family                        from Responses servers and Codex

Between servers of one vendor the headers pass unchanged. Codex's headers pass to every client, and are also written in the
format of the client's vendor. `retry-after`, `retry-after-ms` and `x-should-retry` mean the same to both vendors' SDKs and
always pass; Codex reads only whole seconds, so a missing `retry-after` is made from the milliseconds.

`LatestLimits` has the latest report of each upstream, for `GET /v1/limits` and for Prometheus. Each worker knows only the
reports that it received. Reading every answer's headers would cost a twentieth of a request's time: they are
read on demand and each second.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from math import ceil

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.core.usage import merge_limits
from dragoman.model.outcome import Limits
from dragoman.model.parts import Dialect
from dragoman.upstream.rate_limits import (
    FARTHEST,
    duration_text,
    limits_of,
    moment_of,
    seconds_of,
    share_headers,
    time_text,
    whole_seconds,
)

Headers = list[tuple[bytes, bytes]]
_Table = Mapping[str, tuple[bytes, Callable[[str, float], str | None]]]
"""From a header of one vendor to the other vendor's header name, and the function that converts the value."""

_RETRY = frozenset(("retry-after", "retry-after-ms", "x-should-retry"))
_OPENAI = "x-ratelimit-"
_ANTHROPIC = "anthropic-ratelimit-"
# Fast and priority tiers have their own families; so has `unified` (subscriptions), with the prefix of the ordinary one.
_ANTHROPIC_FAMILIES = ("anthropic-ratelimit-", "anthropic-priority-", "anthropic-fast-")
_CODEX = "x-codex-"
_CODEX_DIALECTS = frozenset(("responses", "codex"))
# The only header with the prefix `x-codex-` that is no limit; `upstream.http.headers` passes it on.
_TURN_STATE = "x-codex-turn-state"
# Codex counts other limits in families named `x-<limit>-…` with these endings.
_CODEX_ENDINGS = ("-used-percent", "-window-minutes", "-reset-at", "-limit-name")


def limit_headers(
    door: Dialect, dialect: Dialect, upstream_headers: Mapping[str, str], now: float
) -> Headers:
    """The headers for a client at `door`, from those of an upstream that speaks `dialect`. `now`: seconds since 1970."""
    found = _found(tuple(upstream_headers))
    if not found:
        return []
    if (door == "messages") == (dialect == "messages"):
        sent = [
            (_encoded(name), upstream_headers[name])
            for name in found
            if name in _RETRY or _passes(name, door)
        ]
    else:
        sent = list(_mapped(_table(door, upstream_headers), found, upstream_headers, now))
    if dialect in _CODEX_DIALECTS and any(map(_is_codex, found)):
        sent += [(_encoded(name), upstream_headers[name]) for name in found if _is_codex(name)]
        sent += _shares(door, upstream_headers, found, now)
    if "retry-after-ms" in found and "retry-after" not in found:
        seconds = whole_seconds(upstream_headers["retry-after-ms"])
        sent += [(b"retry-after", seconds)] if seconds else []
    return [(name, value.encode("ascii")) for name, value in sent if _is_plain(value)]


# Header names repeat from answer to answer; most answers have no limits, which should cost little to find out.
@lru_cache(maxsize=128)
def _found(names: tuple[str, ...]) -> list[str]:
    """The names of headers about limits. Cached: callers must not change the list."""
    return [name for name in names if _is_ours(name)]


@lru_cache(maxsize=512)
def _is_ours(name: str) -> bool:
    return name in _RETRY or name.startswith((_OPENAI, *_ANTHROPIC_FAMILIES)) or _is_codex(name)


def _is_codex(name: str) -> bool:
    if name.startswith(_CODEX):
        return name != _TURN_STATE
    return name.startswith("x-") and name.endswith(_CODEX_ENDINGS)


def _passes(name: str, door: Dialect) -> bool:
    if door == "messages":
        return name.startswith(_ANTHROPIC_FAMILIES)
    return name.startswith(_OPENAI)


def _shares(
    door: Dialect, values: Mapping[str, str], found: list[str], now: float
) -> list[tuple[bytes, str]]:
    """Codex's limits under the header names of the client's vendor, unless the upstream sent such headers itself."""
    limits = limits_of({name: values[name] for name in found if _is_codex(name)}, now)
    if limits is None or any(name.startswith((_OPENAI, _ANTHROPIC)) for name in found):
        return []
    return [(name, value.decode("ascii")) for name, value in share_headers(door, limits, now)]


_encoded = lru_cache(maxsize=512)(partial(str.encode, encoding="latin-1"))


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _mapped(
    table: _Table, found: list[str], values: Mapping[str, str], now: float
) -> Iterator[tuple[bytes, str]]:
    for name in found:
        if name in _RETRY:
            yield _encoded(name), values[name]
        elif (entry := table.get(name)) is not None:
            target, convert = entry
            value = convert(values[name], now)
            if value is not None:
                yield target, value


def _table(door: Dialect, values: Mapping[str, str]) -> _Table:
    if door == "messages":
        return _TO_ANTHROPIC
    # Anthropic counts all tokens together, and input and output separately. OpenAI's count is the total; else a separate one.
    kinds = (kind for kind in _TO_OPENAI if f"{_ANTHROPIC}{kind}-remaining" in values)
    return _TO_OPENAI[next(kinds, "tokens")]


def _number(value: str, _now: float) -> str | None:
    return value if value.isdigit() else None


def _reset_time(value: str, now: float) -> str | None:
    wait = seconds_of(value)
    return None if wait is None else time_text(ceil(now + wait))


def _reset_duration(value: str, now: float) -> str | None:
    at = moment_of(value)
    return None if at is None else duration_text(min(FARTHEST, max(0.0, at - now)))


def _to_anthropic(kind: str) -> _Table:
    own = f"{_ANTHROPIC}{kind}-"
    return {
        f"{_OPENAI}limit-{kind}": (f"{own}limit".encode(), _number),
        f"{_OPENAI}remaining-{kind}": (f"{own}remaining".encode(), _number),
        f"{_OPENAI}reset-{kind}": (f"{own}reset".encode(), _reset_time),
    }


def _to_openai(kind: str, source: str) -> _Table:
    own = f"{_ANTHROPIC}{source}-"
    return {
        f"{own}limit": (f"{_OPENAI}limit-{kind}".encode(), _number),
        f"{own}remaining": (f"{_OPENAI}remaining-{kind}".encode(), _number),
        f"{own}reset": (f"{_OPENAI}reset-{kind}".encode(), _reset_duration),
    }


_TO_ANTHROPIC: _Table = {**_to_anthropic("requests"), **_to_anthropic("tokens")}
_TO_OPENAI: Mapping[str, _Table] = {
    source: {**_to_openai("requests", "requests"), **_to_openai("tokens", source)}
    for source in ("tokens", "input-tokens", "output-tokens")
}


class Snapshot(Struct, frozen=True):
    """The known limits of an upstream. `at`: the time of the last report, in seconds since 1970."""

    limits: Limits
    at: float


# Unread answers per upstream. Not all have all limits, but few in a row leave any out.
_WAITING = 8


class LatestLimits:
    """`report` is called with every new state, for the metrics."""

    def __init__(self, now: Callable[[], float], report: Callable[[str, Limits], None]) -> None:
        self._now = now
        self._report = report
        self._snapshots: dict[str, Snapshot] = {}
        self._waiting: dict[str, deque[tuple[Mapping[str, str], float]]] = {}

    def note(self, upstream: str, limits: Limits) -> None:
        """Note limits that an upstream reported in its answer."""
        self.settle()
        self._merge(upstream, limits, self._now())

    def note_headers(self, upstream: str, headers: Mapping[str, str]) -> None:
        """Note an answer's headers, which may contain limits; `settle` reads them."""
        waiting = self._waiting.get(upstream)
        if waiting is None:
            waiting = self._waiting[upstream] = deque(maxlen=_WAITING)
        waiting.append((headers, self._now()))

    def settle(self) -> None:
        """Read the noted headers."""
        waiting, self._waiting = self._waiting, {}
        for upstream, answers in waiting.items():
            for headers, at in answers:
                limits = limits_of(headers, at)
                if limits is not None:
                    self._merge(upstream, limits, at)

    def keep(self, upstreams: Collection[str]) -> None:
        """Forget what other upstreams than these have reported."""
        self.settle()
        self._snapshots = {n: each for n, each in self._snapshots.items() if n in upstreams}

    def page(self) -> bytes:
        """The body for GET /v1/limits."""
        return dumps({"object": "list", "data": self.entries()})

    def entries(self) -> list[dict[str, object]]:
        """Every upstream that has reported limits."""
        self.settle()
        return [_entry(name, snapshot) for name, snapshot in sorted(self._snapshots.items())]

    def _merge(self, upstream: str, limits: Limits, at: float) -> None:
        known = self._snapshots.get(upstream)
        merged = merge_limits(None if known is None else known.limits, limits)
        self._snapshots[upstream] = Snapshot(merged, at)
        self._report(upstream, merged)


def _entry(upstream: str, snapshot: Snapshot) -> dict[str, object]:
    limits = snapshot.limits
    return {
        "upstream": upstream,
        "at": int(snapshot.at),
        "windows": [
            {name: value for name, value in structs.asdict(window).items() if value is not None}
            for window in limits.windows
        ],
        "credits": _credits(limits),
    }


def _credits(limits: Limits) -> dict[str, object] | None:
    if limits.has_credits is None and limits.unlimited is None and limits.balance is None:
        return None
    return {
        "has_credits": limits.has_credits,
        "unlimited": limits.unlimited,
        "balance": limits.balance,
    }
