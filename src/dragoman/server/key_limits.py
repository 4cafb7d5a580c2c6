"""Named keys while the gateway runs: which models each may use, whether a request is within its limits, what it has used.

    request ──► admit ──► store: what ended meanwhile, and may this one run? ──► served ──► end ──► store, soon

The counts are in the store (`store.key_usage`), so that limits hold for all workers and nodes. What answers used goes to the
store as soon as they end, several together if they end while it is busy, and at the latest with the next request of the key
here. A worker that dies loses what it had not stored yet: what ended within the last few milliseconds.

A request whose key has no limits does not wait for the store. If the store does not answer, `server.limits_without_store`
decides about requests of keys with limits, and what was used is kept here until the store answers again.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import translate
from functools import lru_cache
from math import ceil
from random import getrandbits
from types import MappingProxyType

from msgspec import Struct, structs

from dragoman.config.settings import KeySettings, PriceSettings, Settings
from dragoman.core.failures import ReportedError
from dragoman.core.fields import has_members_once
from dragoman.errors import RequestRefused, StoreError, StoreUnavailable
from dragoman.model.outcome import ErrorInfo
from dragoman.server.limits import Forbidden
from dragoman.server.observe.record import RequestRecord
from dragoman.state.managed_store import AWAY_SECONDS, ManagedStore
from dragoman.store.key_usage import (
    MAX_COUNT,
    MILLION,
    WINDOWS,
    Counts,
    KeyChange,
    KeyLimit,
    KeyRequest,
    KeyUsage,
    LimitReached,
    Measure,
    Window,
    window_end,
    window_start,
)

# (window, measure) of each limit, by its name in the configuration.
_LIMITS: Mapping[str, tuple[Window, Measure]] = {
    "requests_per_minute": ("minute", "requests"),
    "requests_per_day": ("day", "requests"),
    "tokens_per_minute": ("minute", "tokens"),
    "tokens_per_day": ("day", "tokens"),
    "tokens_per_month": ("month", "tokens"),
    "cost_per_day": ("day", "cost"),
    "cost_per_month": ("month", "cost"),
}
# Model names are chosen by clients: long ones are not cached.
_CACHED_MODELS = 256
_LONGEST_CACHED = 256


# Where no usage was reported: the usual bytes of text for each token, and those of a frame with one token, which has 110 (Messages) to
# 250 (Chat). Frames with several tokens are undercounted, and never to zero.
_TEXT_BYTES = 4
_FRAME_BYTES = 64
# How JSON may spell any letter of `model`.
_ESCAPED = b"\\u006"
_ONE_REQUEST = Counts(requests=1)


class KeyUse(Struct, frozen=True, eq=False):
    """One request that was admitted. `id`: its name in the store while it runs."""

    key: "NamedKey"
    id: str
    price: PriceSettings | None


class UnstoredUse:
    """What the requests of a key used and the store does not have yet. Gateways that follow one another share it.

    running: the requests that run, if their number is limited. is_storing: a task is storing the rest.
    """

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.is_storing = False
        self._used = Counts()
        self._ended: list[str] = []

    def add(self, used: Counts, ended: str | None = None) -> None:
        """Note what an answer used, and the request that has ended."""
        self._used = self._used.plus(used)
        if ended is not None:
            self._ended.append(ended)

    @property
    def is_empty(self) -> bool:
        return not self._ended and self._used == Counts()

    def take(self) -> KeyChange | None:
        """What the store does not have yet; None if it has everything. The caller stores it, or gives it back."""
        if self.is_empty:
            return None
        taken = KeyChange(self._used, tuple(self._ended))
        self._used, self._ended = Counts(), []
        return taken

    def give_back(self, taken: KeyChange | None) -> None:
        """Keep what could not be stored. If it was stored and only the answer was lost, it is counted twice, not never."""
        if taken is not None:
            self._used = self._used.plus(taken.used)
            self._ended += taken.ended


class NamedKey:
    """One named key: its rights, and what its requests used."""

    def __init__(self, name: str, settings: KeySettings, unstored: UnstoredUse) -> None:
        self.name = name
        self.settings = settings
        self.unstored = unstored
        self.limits = tuple(limits_of(settings))
        self.has_limits = bool(self.limits) or settings.max_streams is not None
        has_cost = any(limit.measure == "cost" for limit in self.limits)
        self.depends_on_model = has_cost or "*" not in settings.models
        self._allows = [re.compile(translate(glob)).match for glob in settings.models]

    def allows(self, model: str) -> bool:
        """Whether the key may use a model of this name."""
        return any(is_match(model) for is_match in self._allows)


class NamedKeys:
    """The named keys of one gateway.

    note_refusal: called with the names of the key and of the limit. unstored: of the gateway that this one takes over from.
    """

    def __init__(
        self,
        settings: Settings,
        store: ManagedStore,
        clock: Callable[[], float],
        note_refusal: Callable[[str, str], None],
        unstored: Mapping[str, UnstoredUse] = MappingProxyType({}),
    ) -> None:
        self.unstored = {name: unstored.get(name, UnstoredUse()) for name in settings.keys}
        self._keys = {
            name: NamedKey(name, each, self.unstored[name]) for name, each in settings.keys.items()
        }
        self._store = store
        self._clock = clock
        self._note_refusal = note_refusal
        self._refuses = settings.server.limits_without_store == "refuse"
        self._renewed = 0.0
        self._prices = [
            (re.compile(translate(glob)).match, price) for glob, price in settings.prices.items()
        ]
        self._cached_price = lru_cache(_CACHED_MODELS)(self._find_price)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def allows(self, name: str, model: str) -> bool:
        """Whether this key may use a model. `name`: empty for a caller without a named key, who may use all."""
        return not name or self._keys[name].allows(model)

    def check_model(self, name: str, model: str) -> None:
        """Raises Forbidden: the key may not use this model, whether or not there is one of this name."""
        if not self.allows(name, model):
            self._note_refusal(name, "models")
            raise Forbidden(
                f"expected a model that this key may use ({', '.join(self._keys[name].settings.models)}); "
                f"got {model[:_LONGEST_CACHED]!r}",
                param="model",
                code="model_not_allowed",
            )

    async def admit(self, name: str, model: str, body: bytes | None) -> KeyUse:
        """Count a request of a key, unless the key may not use the model, or one of its limits is reached. `end` must follow.

        Raises:
            Forbidden: the model is not allowed, or has no price and the key has a limit of cost.
            RequestRefused: the body may name two models, and the key may not use all of them at any cost.
            ReportedError: a limit is reached (429), or cannot be checked (503).
        """
        key = self._keys[name]
        self.check_model(name, model)
        if key.depends_on_model and body is not None:
            _check_one_model(body)
        price = self._price(model)
        if price is None and any(limit.measure == "cost" for limit in key.limits):
            self._note_refusal(name, "prices")
            raise Forbidden(
                f"expected a model with a price in [prices], since this key has a limit of cost; got {model[:_LONGEST_CACHED]!r}",
                param="model",
                code="model_without_price",
            )
        use = KeyUse(key, f"{getrandbits(96):024x}", price)
        if not key.has_limits:
            key.unstored.add(_ONE_REQUEST)
        else:
            await self._ask(use)
            if key.settings.max_streams is not None:
                key.unstored.running.add(use.id)
        return use

    async def _ask(self, use: KeyUse) -> None:
        """Ask the store whether a request may run. Raises ReportedError."""
        key, unstored = use.key, use.key.unstored
        taken = unstored.take()
        asked = KeyRequest(use.id, key.limits, key.settings.max_streams)
        try:
            reached = await self._count(key, taken or KeyChange(), asked)
        except StoreError:
            unstored.give_back(taken)
            if self._refuses:
                self._note_refusal(key.name, "store")
                raise ReportedError(_unchecked(key.name)) from None
            unstored.add(_ONE_REQUEST)
            return
        except BaseException:  # the client has left meanwhile
            unstored.give_back(taken)
            unstored.add(Counts(), use.id)
            raise
        if reached is not None:
            self._note_refusal(key.name, reached.setting)
            raise ReportedError(limit_error(key.name, reached))

    def end(self, use: KeyUse, record: RequestRecord | None = None) -> None:
        """Count what the answer to a request used, however it ended. `record`: None if it asked no model."""
        key = use.key
        key.unstored.running.discard(use.id)
        used = Counts() if record is None else counts_of(record, use.price)
        if record is not None:
            record.used = used
        key.unstored.add(used, None if key.settings.max_streams is None else use.id)
        self._store_soon(key)

    def keep(self) -> None:
        """Renew the leases of the requests that run, and store what could not be stored before. Called about once a second."""
        now = self._clock()
        is_time = not 0 <= now - self._renewed < self._store.settings.lease / 3
        for key in self._keys.values():
            if is_time and key.unstored.running:
                renewed = KeyChange(renewed=tuple(key.unstored.running))
                self._store.spawn(self._report(key, renewed))
            if not key.unstored.is_empty and self._store.is_worth_trying:
                self._store_soon(key)
        if is_time:
            self._renewed = now

    def _store_soon(self, key: NamedKey) -> None:
        if not key.unstored.is_storing:
            key.unstored.is_storing = True
            self._store.spawn(self._store_all(key))

    async def _store_all(self, key: NamedKey) -> None:
        unstored = key.unstored
        try:
            while (taken := unstored.take()) is not None:
                if not await self._report(key, taken):
                    unstored.give_back(taken)
                    return
        finally:
            unstored.is_storing = False

    async def _count(
        self, key: NamedKey, change: KeyChange, asked: KeyRequest | None = None
    ) -> LimitReached | None:
        """Raises StoreError: the store does not answer; at once if it did not a moment ago."""
        if not self._store.is_worth_trying:
            raise StoreUnavailable("expected the store to answer, it did not a moment ago")
        return await self._store.call(
            "count_key", lambda store: store.count_key(key.name, change, asked)
        )

    async def _report(self, key: NamedKey, change: KeyChange) -> bool:
        """Report to the store what has changed. Returns whether the store has it."""
        try:
            await self._count(key, change)
        except StoreError:  # `call` has reported it
            return False
        return True

    async def usage(self, names: Collection[str] | None = None) -> list[dict[str, object]]:
        """What these keys have used and may still use, for GET /v1/usage. None: all keys.

        Raises:
            StoreError: the store does not answer.
        """
        wanted = [self._keys[name] for name in (self._keys if names is None else names)]
        asked = [key.name for key in wanted]
        found = await self._store.call("read_keys", lambda store: store.read_keys(asked))
        now = self._clock()
        return [_entry(key, found[key.name], now) for key in wanted]

    def _price(self, model: str) -> PriceSettings | None:
        is_short = len(model) <= _LONGEST_CACHED
        return self._cached_price(model) if is_short else self._find_price(model)

    def _find_price(self, model: str) -> PriceSettings | None:
        return next((price for is_match, price in self._prices if is_match(model)), None)


def _check_one_model(body: bytes) -> None:
    """An upstream that speaks the client's dialect gets the body as it is, and may read the other one of two members.

    Raises:
        RequestRefused
    """
    is_one = body.count(b'"model"') < 2 and _ESCAPED not in body
    if not is_one and not has_members_once(body):
        raise RequestRefused(
            "expected each member of the request once, as `model` decides what this key may use; one came twice",
            param="model",
            code="repeated_member",
        )


def limits_of(settings: KeySettings) -> Iterator[KeyLimit]:
    """The limits of a key per window. Costs are counted in millionths."""
    for name, (window, measure) in _LIMITS.items():
        most: float | None = getattr(settings, name)
        if most is not None:
            scaled = ceil(most * MILLION) if measure == "cost" else int(most)
            yield KeyLimit(name, window, measure, scaled)


def cost_of(price: PriceSettings, used: Counts, cache_write: int = 0) -> int:
    """The cost of an answer, in millionths and rounded up. `cache_write`: input tokens that were written to a cache."""
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    fresh = max(0, used.input_tokens - used.cached_tokens - cache_write)
    tokens = ((fresh, price.input), (used.cached_tokens, cached), (cache_write, written))
    cost = sum(count * each for count, each in (*tokens, (used.output_tokens, price.output)))
    return ceil(min(cost, MAX_COUNT))


def counts_of(record: RequestRecord, price: PriceSettings | None) -> Counts:
    """What a request used: what its upstream reported, and by its size what it did not report.

    Chat upstreams report no usage in a stream unless the client asks for it, and others do so at the end, so a client that does not
    ask, or that leaves early, would have its answers for nothing.
    """
    given, made = record.input_tokens, record.output_tokens
    has_answer = record.attempts > 0 and (record.status == 200 or record.client_gone)
    if has_answer and record.error_kind is None:
        per_token = _FRAME_BYTES if record.stream else _TEXT_BYTES
        if given is None:
            given = record.bytes_in // _TEXT_BYTES
        if made is None or record.client_gone:
            made = max(made or 0, record.bytes_out // per_token)
    used = Counts(
        input_tokens=_within(given),
        cached_tokens=_within(record.cached_tokens),
        output_tokens=_within(made),
    )
    if price is None:
        return used
    return structs.replace(used, cost=cost_of(price, used, _within(record.cache_write_tokens)))


def _within(count: int | None) -> int:
    """A count of an upstream, which may be any number."""
    return min(MAX_COUNT, max(0, count or 0))


def limit_error(name: str, reached: LimitReached) -> ErrorInfo:
    """The error for a request over a limit; `retry_after` is when the limit no longer refuses it."""
    if reached.window is None:
        return ErrorInfo(
            kind="rate_limit",
            message=f"expected fewer than {reached.most} requests of the key {name} at a time ({reached.setting}); "
            f"all are taken, try again in {reached.wait:g} s",
            code="too_many_streams",
            retry_after=reached.wait,
        )
    if reached.measure == "cost":
        most = f"a cost of at most {reached.most / MILLION:f}".rstrip("0").rstrip(".")
    else:
        most = f"at most {reached.most:,} {reached.measure}"
    wait = ceil(reached.wait)
    # Clients do not repeat a request whose quota is spent, and show the message instead.
    is_quota = reached.window != "minute" and reached.measure != "requests"
    return ErrorInfo(
        kind="quota" if is_quota else "rate_limit",
        message=f"expected {most} per {reached.window} with the key {name} ({reached.setting}); "
        f"that is used up, try again in {wait} s",
        code="insufficient_quota" if is_quota else "rate_limit_exceeded",
        retry_after=float(wait),
    )


def _unchecked(name: str) -> ErrorInfo:
    return ErrorInfo(
        kind="overloaded",
        message=f"the limits of the key {name} cannot be checked: the gateway's store does not answer",
        code="limits_unavailable",
        retry_after=AWAY_SECONDS,
    )


def _entry(key: NamedKey, usage: KeyUsage, now: float) -> dict[str, object]:
    return {
        "name": key.name,
        "running": usage.running,
        "windows": [_window(window, usage.windows[window], now) for window in WINDOWS],
        "limits": [_limit(limit, usage.windows[limit.window], now) for limit in key.limits],
        "max_streams": key.settings.max_streams,
        "models": list(key.settings.models),
    }


def _window(window: Window, counts: Counts, now: float) -> dict[str, object]:
    fields = {**structs.asdict(counts), "cost": counts.cost / MILLION}
    start, end = window_start(window, now), window_end(window, now)
    return {"window": window, "start": int(start), "end": int(end), **fields}


def _limit(limit: KeyLimit, counts: Counts, now: float) -> dict[str, object]:
    used: int = getattr(counts, limit.measure)
    left = max(0, limit.most - used)
    scale = MILLION if limit.measure == "cost" else 1
    return {
        "name": limit.setting,
        "limit": limit.most / scale if scale > 1 else limit.most,
        "used": used / scale if scale > 1 else used,
        "remaining": left / scale if scale > 1 else left,
        "resets_at": int(window_end(limit.window, now)),
    }
