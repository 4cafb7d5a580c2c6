"""The gateway: the state that all exchanges share.

It owns the upstreams' connections, the open exchanges, and the sweeper: the one task that writes
keep-alives into silent streams. When the gateway stops, it ends exchanges that outlast the grace period.

When the settings change, a new gateway takes over from the one before (`App.reload`). They share what must outlive the change: counts,
slots, the inspector, and whatever has the same settings in both. The one before serves the exchanges that it has, and is
closed when it has none.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING, Protocol

from dragoman.config.check import OTEL_MISSING
from dragoman.config.secrets import secrets_of
from dragoman.config.settings import OtelSettings, Settings, StoreSettings
from dragoman.core.secrets import redact
from dragoman.errors import ConfigError
from dragoman.gateway.hosted.servers import HostedServers
from dragoman.gateway.plan import Profile
from dragoman.gateway.route import Upstreams
from dragoman.gateway.targets import AttemptTarget
from dragoman.obsidian.policy import MODE_HEADER, ObsidianPolicy, policy_for
from dragoman.server.access import Caller, Cors, Hosts, KeyRing, check_source
from dragoman.server.background import BackgroundConnection
from dragoman.server.catalog import UpstreamModels
from dragoman.server.doors import Door, stopping_error
from dragoman.server.exchange import Exchange
from dragoman.server.http.connection import ClientConnection
from dragoman.server.inspector import Inspector
from dragoman.server.key_limits import NamedKeys
from dragoman.server.lanes import ConversationCache
from dragoman.server.limits import StreamSlots
from dragoman.server.observe.dump import Dump
from dragoman.server.observe.metrics import Telemetry
from dragoman.server.observe.record import RequestRecord
from dragoman.server.rate_limits import LatestLimits
from dragoman.state.managed_store import ManagedStore

if TYPE_CHECKING:
    from dragoman.server.observe.tracing import Tracing
    from dragoman.server.websocket import WebSocketSession

logger = logging.getLogger(__name__)

_MAX_REQUEST_ID = 128  # longest id of a client; longer ones are replaced
_RECORDS_SECONDS = 0.05  # how late a log line may be
_SWEEP_SECONDS = 1.0  # how late a keep-alive may be
_STORE_SECONDS = 5.0  # in which background responses that a shutdown ended must be stored


class _Part(Protocol):
    """What a gateway closes when no other gateway uses it."""

    async def close(self) -> None: ...


class Gateway:
    """Serves doors. Created outside an event loop, started by its first request or by `start`, ended by `close`."""

    upstreams: Upstreams
    store: ManagedStore
    dump: Dump | None
    hosted_servers: HostedServers | None
    tracing: "Tracing | None"
    named_keys: NamedKeys
    clock: Callable[[], float]

    # Of more than thirty attributes, CPython keeps a dictionary, in which each is looked up twice as slowly.
    __slots__ = (
        "__weakref__",
        "_background",
        "_flushing",
        "_hosts",
        "_is_cut_short",
        "_is_empty",
        "_is_open",
        "_is_unused",
        "_pages",
        "_records",
        "_sweeper",
        "background_slots",
        "clock",
        "conversations",
        "cors",
        "dump",
        "exchanges",
        "hosted_servers",
        "inspector",
        "is_replaced",
        "is_stopping",
        "is_storing",
        "keys",
        "limits",
        "models",
        "named_keys",
        "sessions",
        "settings",
        "slots",
        "started_at",
        "store",
        "telemetry",
        "tracing",
        "upstreams",
        "wall_clock",
    )

    def __init__(self, settings: Settings, before: "Gateway | None" = None) -> None:
        """`before`: the gateway that this one takes over from, with `take_over`. Here it is only read: this may run in a thread.

        Raises:
            ConfigError: a key, a program or a file that the settings name is missing.
        """
        self.settings = settings
        self.keys = KeyRing(settings.server.api_keys, settings.keys, settings.inspect.api_keys)
        self._is_open = self.keys.is_open
        self.cors = Cors(settings.server.cors_origins)
        self._hosts = Hosts(settings.server.allowed_hosts)
        self._background: set[asyncio.Task[None]] = set()
        self.exchanges: set[Exchange] = set()
        self.sessions: set[WebSocketSession] = set()
        if before is None:
            self._make_shared(settings)
        else:
            self._share(before)
        self._make_own(settings, before)
        self.is_storing = self.store.is_on
        refused = self.telemetry.key_refused
        unstored = {} if before is None else before.named_keys.unstored
        self.named_keys = NamedKeys(settings, self.store, time.time, refused, unstored)
        self.models = UpstreamModels(self.upstreams)
        self.clock = time.monotonic
        self.wall_clock = time.time
        self.is_stopping = False
        self._is_empty = asyncio.Event()
        self._pages = 0  # requests that are not exchanges and use this gateway
        self.is_replaced = False
        self._is_unused = asyncio.Event()
        self._is_cut_short = False
        self._records: list[RequestRecord] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None

    def _make_shared(self, settings: Settings) -> None:
        """Make what this gateway will share with those that take over from it, whatever their settings."""
        server = settings.server
        self.slots = StreamSlots(server.max_streams)
        self.background_slots = StreamSlots(
            server.max_background, "server.max_background", "background responses"
        )
        self.telemetry = Telemetry(settings)
        self.limits = LatestLimits(time.time, self.telemetry.note_limits)
        self.conversations = ConversationCache(server.websocket_memory)
        self.inspector = Inspector(settings, secrets_of(settings, os.environ), time.time)
        self.started_at = time.time()

    def _share(self, before: "Gateway") -> None:
        self.slots = before.slots
        self.background_slots = before.background_slots
        self.telemetry = before.telemetry
        self.limits = before.limits
        self.conversations = before.conversations
        self.inspector = before.inspector
        self.started_at = before.started_at

    def _make_own(self, settings: Settings, before: "Gateway | None") -> None:
        """Take from the gateway before this one what has the same settings here, and make the rest."""
        self.upstreams = Upstreams(settings, before=None if before is None else before.upstreams)
        if before is not None and before.settings.store == settings.store:
            self.store = before.store
        else:
            telemetry = self.telemetry
            place = settings.store or StoreSettings(url="memory:")
            self.store = ManagedStore(place, telemetry.store_asked, telemetry.store_swept)
        if before is not None and before.settings.dump == settings.dump:
            self.dump = before.dump
        else:
            self.dump = None if settings.dump.path is None else Dump(settings.dump)
        if before is not None and before.settings.mcp == settings.mcp:
            self.hosted_servers = before.hosted_servers
        else:
            self.hosted_servers = HostedServers(settings.mcp) if settings.mcp else None
        if before is not None and before.settings.otel == settings.otel:
            self.tracing = before.tracing
        else:
            self.tracing = _make_tracing(settings.otel)

    def take_over(self, before: "Gateway") -> None:
        """Apply the settings to what is shared with the gateway before this one, and serve its WebSockets from now on."""
        settings = self.settings
        self.slots.limit = settings.server.max_streams
        self.background_slots.limit = settings.server.max_background
        self.telemetry.change(settings)
        self.limits.keep(self.upstreams.by_name)
        self.conversations.resize(settings.server.websocket_memory)
        self.inspector.change(settings, secrets_of(settings, os.environ))
        for session in tuple(before.sessions):
            if settings.server.websocket:
                session.move(self)
            else:
                session.stop()
        before.is_replaced = True

    def serve(
        self, door: Door, connection: ClientConnection, submits: str | None = None
    ) -> Coroutine[object, object, None]:
        """Serve one request at a door. `submits`: the id of the response whose call outputs the request contains."""
        if self._sweeper is None:
            self.start()
        return Exchange(self, door, connection, submits).run()

    def serve_in_background(
        self, door: Door, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> BackgroundConnection:
        """Start to serve a request whose response goes on without its client. Returns its connection, which has the outcome.

        Raises:
            TooManyStreams: every slot is taken.
        """
        self.background_slots.acquire()
        connection = BackgroundConnection(headers, body)
        exchange = Exchange(self, door, connection, background=connection)
        self._run_in_background(exchange, connection)
        return connection

    def replay(
        self, door: Door, headers: list[tuple[bytes, bytes]], body: bytes, upstream: str | None
    ) -> None:
        """Serve a request whose answer nobody but the inspector reads. `upstream`: the one to ask; None: by the routes.

        Raises:
            TooManyStreams: every slot is taken.
        """
        self.background_slots.acquire()
        connection = BackgroundConnection(headers, body)
        exchange = Exchange(self, door, connection)
        exchange.only_upstream = upstream
        self._run_in_background(exchange, connection)

    def _run_in_background(self, exchange: Exchange, connection: BackgroundConnection) -> None:
        connection.running = task = asyncio.get_running_loop().create_task(exchange.run())
        self._background.add(task)
        task.add_done_callback(partial(self._end_background, connection))

    def _end_background(self, connection: BackgroundConnection, task: asyncio.Task[None]) -> None:
        connection.outcome.cancel()  # if the task was cancelled before it had one
        self._background.discard(task)
        self.background_slots.release()
        self._note_unused()

    def start(self) -> None:
        """Start the sweeper, the store, the MCP servers and the supervised upstreams. Requires a running event loop."""
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
            self.store.start()
            if self.hosted_servers is not None:
                self.hosted_servers.start()
            self.upstreams.start(self.limits.note_headers)

    def note(self, record: RequestRecord) -> None:
        """Count a finished exchange and log its line soon, together with others that end at about the same time."""
        if not self._records:
            self._flushing = asyncio.get_running_loop().call_later(_RECORDS_SECONDS, self.flush)
        self._records.append(record)

    def flush(self) -> None:
        """Write the noted records now."""
        records, self._records = self._records, []
        if records:
            if self.tracing is not None:
                _end_traces(records)
            self.telemetry.record(*records)

    def begin(self, exchange: Exchange) -> None:
        """Register an exchange, whose request is not read yet.

        Raises:
            TooManyStreams: every slot is taken.
        """
        if self.slots.open >= self.slots.limit:
            self.slots.check()
        self.exchanges.add(exchange)
        self.telemetry.opened()

    def release_slot(self, exchange: Exchange) -> None:
        if exchange.has_slot:
            exchange.has_slot = False
            self.slots.release()

    def forget(self, exchange: Exchange) -> None:
        """Remove an exchange that has ended, whether or not it was registered."""
        self.release_slot(exchange)
        if exchange in self.exchanges:
            self.exchanges.remove(exchange)
            self.telemetry.closed()
        if self.is_stopping and not self.exchanges:
            self._is_empty.set()
        if self.is_replaced:
            self._note_unused()

    @contextmanager
    def serving_page(self) -> Generator[None]:
        """Counts a request that is not an exchange, while it is served."""
        self._pages += 1
        try:
            yield
        finally:
            self._pages -= 1
            self._note_unused()

    @property
    def _is_used(self) -> bool:
        return bool(self.exchanges or self._background or self._pages)

    def _note_unused(self) -> None:
        if self.is_replaced and not self._is_used:
            self._is_unused.set()

    async def drain(self) -> None:
        """Wait until the last exchange of a gateway that was replaced has ended, or until `cut_short` is called."""
        await asyncio.sleep(0)  # tasks that were created before the change register their exchanges
        while self._is_used and not self._is_cut_short:
            self._is_unused.clear()
            await self._is_unused.wait()

    def cut_short(self) -> None:
        """Let `drain` return: the process ends."""
        self._is_cut_short = True
        self._is_unused.set()

    async def stop(self) -> None:
        """Let open exchanges finish within the grace period, then end them with a failure in their own dialect."""
        self.is_stopping = True
        self.inspector.stop()
        for session in tuple(self.sessions):
            session.stop()
        if self.exchanges:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.server.shutdown_grace):
                    await self._is_empty.wait()
        for exchange in tuple(self.exchanges):
            exchange.stop(stopping_error())

    async def _end_all_background(self) -> None:
        """Wait for background responses, which no connection of a server waits for: they have the grace period too."""
        if not self._background:
            return
        if not self.is_stopping:
            await self.stop()
        grace = self.settings.server.shutdown_grace
        _, late = await asyncio.wait(self._background, timeout=grace + _STORE_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_STORE_SECONDS)

    def parts(self) -> list[_Part]:
        """What is closed with the last gateway that uses it, in this order."""
        hosted = () if self.hosted_servers is None else (self.hosted_servers,)
        dump = () if self.dump is None else (self.dump,)
        return [*hosted, *self.upstreams.by_name.values(), self.store, self.inspector, *dump]

    async def close(self, others: "Collection[Gateway]" = ()) -> None:
        """End the sweeper and close the upstreams' connections. `others`: gateways that go on; what they use stays open."""
        await self._end_all_background()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
            self._sweeper = None
        used = {id(part) for other in others for part in other.parts()}
        for part in self.parts():
            if id(part) not in used:
                await _close(part)
        if self._flushing is not None:
            self._flushing.cancel()
        self.flush()
        # After the last records, whose spans it sends.
        tracing = self.tracing
        if tracing is not None and all(other.tracing is not tracing for other in others):
            await _close(tracing)

    def make_record(
        self, door: Door, request_id: str, headers: Mapping[bytes, bytes], method: str
    ) -> RequestRecord:
        """The record of a new exchange, with its trace if requests are traced. `method`: `WEBSOCKET` for a message of one."""
        record = RequestRecord(door=door.dialect, request_id=request_id)
        if self.tracing is not None:
            record.trace = self.tracing.begin(door, headers, method)
            record.trace_id = record.trace.trace_id
        return record

    def mint_request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """The client's `x-request-id` if it is short and plain and does not look like a key, else a new id."""
        value = headers.get(b"x-request-id")
        if value is not None and len(value) <= _MAX_REQUEST_ID and value.isascii():
            text = value.decode("ascii")
            if text.isprintable() and text.strip() and redact(text) == text:
                return text
        return f"req_{getrandbits(96):024x}"

    def response_headers(
        self, door: Door, request_id: str, headers: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """The headers of every response of an exchange."""
        encoded = request_id.encode("ascii")
        found = [(b"x-request-id", encoded)]
        if door.request_id_header is not None:
            found.append((door.request_id_header, encoded))
        if self.cors.is_on:
            found += self.cors.headers(headers)
        return found

    def identify(self, headers: list[tuple[bytes, bytes]]) -> Caller:
        """The caller.

        Raises:
            Unauthorized: the caller sent no key of the operator. Forbidden: a web page called a gateway without keys.
        """
        if self._is_open:
            check_source(self.cors, self._hosts, headers)
        caller = self.keys.identify(headers)
        if caller is None:
            raise self.keys.refusal(headers)
        return caller

    def check_source(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Refuse pages of other sites if the gateway requires no keys: any page in a browser could call it.

        Raises:
            Forbidden: the request comes from a page of another site.
        """
        if self._is_open:
            check_source(self.cors, self._hosts, headers)

    def profile(self, headers: Mapping[bytes, bytes]) -> Profile:
        """The profile of the Responses door: the request's header wins over the configuration.

        Without a store a client could not submit outputs, so the profile that asks for them is not used.
        """
        if not self.is_storing:
            return "default"
        wanted = headers.get(b"x-dragoman-profile")
        if wanted is not None:
            return "required_action" if wanted == b"required-action" else "default"
        return self.settings.server.responses_profile

    def obsidian_policy(
        self, target: AttemptTarget, headers: Mapping[bytes, bytes]
    ) -> ObsidianPolicy | None:
        """The Obsidian policy for a request of the Chat door; None if no policy applies.

        Raises:
            RequestRefused: the request asks for an unknown mode.
        """
        if not (target.is_obsidian or MODE_HEADER in headers) or target.client_dialect != "chat":
            return None
        upstream = target.settings
        chat, mode = self.settings.chat, upstream.output_mode
        return policy_for(chat, headers, kind=str(upstream.kind), upstream_mode=mode)

    async def _sweep(self) -> None:
        """Write a keep-alive into every stream that has been silent for the interval."""
        interval = self.settings.server.keep_alive_interval
        async with asyncio.TaskGroup() as writes:
            while True:
                await asyncio.sleep(min(_SWEEP_SECONDS, interval / 2))
                self.limits.settle()
                if self.named_keys:
                    self.named_keys.keep()
                self._write_keep_alives(interval, writes)

    def _write_keep_alives(self, interval: float, writes: asyncio.TaskGroup) -> None:
        # Not in `_sweep`, whose variables would keep the last exchange in memory until the next sweep.
        before = self.clock() - interval
        for exchange in self.exchanges:
            client = exchange.client
            if (
                client.keep_alive is not None
                and not exchange.is_background
                and client.last_write <= before
                and not client.is_writing
            ):
                client.last_write = self.clock()
                writes.create_task(_keep_open(exchange))


async def _close(part: _Part) -> None:
    """Close one part. A failure must not keep the others open, nor cost the last log lines."""
    try:
        await part.close()
    except Exception:
        logger.exception("%s could not be closed", type(part).__name__)


def _make_tracing(settings: OtelSettings) -> "Tracing | None":
    """What sends traces and metrics to a collector; None if there is no collector.

    Raises:
        ConfigError: the extra `otel` is not installed.
    """
    if settings.endpoint is None:
        return None
    try:
        from dragoman.server.observe.tracing import Tracing  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"otel.endpoint: {OTEL_MISSING}") from error
    return Tracing.to_collector(settings)


def _end_traces(records: Collection[RequestRecord]) -> None:
    """End the spans of finished requests. A failure of the SDK must not cost the log lines."""
    for record in records:
        trace, record.trace = record.trace, None
        if trace is not None:
            try:
                trace.end(record)
            except Exception:
                logger.exception("the trace of request %s could not be ended", record.request_id)


async def _keep_open(exchange: Exchange) -> None:
    """Write one keep-alive. The exchange handles failures of its connection; none may end the sweeper."""
    try:
        await exchange.client.keep_open()
    except Exception:
        logger.exception("keep-alive of request %s failed", exchange.request_id)
