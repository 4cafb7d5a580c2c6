"""The gateway: the state that all exchanges share.

One per event loop. It owns the upstreams' connections, the open exchanges, and the sweeper: the one task that writes
keep-alives into silent streams. When the gateway stops, it ends exchanges that outlast the grace period.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING

from dragoman.config.settings import Settings, StoreSettings
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
from dragoman.server.limits import StreamSlots
from dragoman.server.observe.dump import Dump, DumpingUpstream
from dragoman.server.observe.metrics import Telemetry
from dragoman.server.observe.record import RequestRecord
from dragoman.server.rate_limits import LatestLimits
from dragoman.state.managed_store import ManagedStore
from dragoman.upstream.base import Supervised

if TYPE_CHECKING:
    from dragoman.server.websocket import Session

logger = logging.getLogger(__name__)

_MAX_REQUEST_ID = 128  # longest id of a client; longer ones are replaced
# Half of the time in which a client's leaving must reach the upstream, with room for a busy loop.
_UNWATCHED_SECONDS = 0.03
_RECORDS_SECONDS = 0.05  # how late a log line may be
_SWEEP_SECONDS = 1.0  # how late a keep-alive may be
_STORE_SECONDS = 5.0  # in which background responses that a shutdown ended must be stored


class Gateway:
    """Serves doors. Created outside an event loop, started by its first request or by `start`, ended by `close`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyRing(settings.server.api_keys)
        self._is_open = self.keys.is_open
        self.cors = Cors(settings.server.cors_origins)
        self._hosts = Hosts(settings.server.allowed_hosts)
        self.slots = StreamSlots(settings.server.max_streams)
        self._background_slots = StreamSlots(
            settings.server.max_background, "server.max_background", "background responses"
        )
        self._background: set[asyncio.Task[None]] = set()
        self.telemetry = Telemetry(settings)
        self.limits = LatestLimits(time.time, self.telemetry.note_limits)
        self.store = ManagedStore(
            settings.store or StoreSettings(url="memory:"),
            self.telemetry.store_asked,
            self.telemetry.store_swept,
        )
        self.is_storing = self.store.is_on
        self.exchanges: set[Exchange] = set()
        self.sessions: set[Session] = set()
        self.upstreams = Upstreams(settings)
        self.models = UpstreamModels(self.upstreams)
        self._dump = self._start_dump()
        self.hosted_servers = HostedServers(settings.mcp) if settings.mcp else None
        self.clock = time.monotonic
        self.wall_clock = time.time
        self.is_stopping = False
        self._is_empty = asyncio.Event()
        self._unwatched: list[Exchange] = []
        self._records: list[RequestRecord] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None

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
        self._background_slots.acquire()
        connection = BackgroundConnection(headers, body)
        exchange = Exchange(self, door, connection, background=connection)
        connection.running = task = asyncio.get_running_loop().create_task(exchange.run())
        self._background.add(task)
        task.add_done_callback(partial(self._end_background, connection))
        return connection

    def _end_background(self, connection: BackgroundConnection, task: asyncio.Task[None]) -> None:
        connection.outcome.cancel()  # if the task was cancelled before it had one
        self._background.discard(task)
        self._background_slots.release()

    def _start_dump(self) -> Dump | None:
        """Let the dump see the streams of all upstreams, if a dump is configured."""
        if self.settings.dump.path is None:
            return None
        dump = Dump(self.settings.dump)
        for name, upstream in self.upstreams.by_name.items():
            if not isinstance(upstream, Supervised):  # that one speaks JSON-RPC, not SSE
                self.upstreams.by_name[name] = DumpingUpstream(upstream, dump)
        return dump

    def start(self) -> None:
        """Start the sweeper, the store, the MCP servers and the supervised upstreams. Requires a running event loop."""
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
            self.store.start()
            if self.hosted_servers is not None:
                self.hosted_servers.start()
            self.upstreams.start(self.limits.note_headers)

    def watch_soon(self, exchange: Exchange) -> None:
        """Let an exchange watch its client soon; most small exchanges end before that.

        A watching task would cost a small exchange a tenth of its time, so one timer starts the tasks of those still open.
        """
        if not self._unwatched:
            asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._watch_all)
        self._unwatched.append(exchange)

    def _watch_all(self) -> None:
        unwatched, self._unwatched = self._unwatched, []
        for exchange in unwatched:
            exchange.watch()

    def note(self, record: RequestRecord) -> None:
        """Count a finished exchange and log its line soon, together with others that end at about the same time."""
        if not self._records:
            self._flushing = asyncio.get_running_loop().call_later(_RECORDS_SECONDS, self.flush)
        self._records.append(record)

    def flush(self) -> None:
        """Write the noted records now."""
        records, self._records = self._records, []
        if records:
            self.telemetry.record(*records)

    def begin(self, exchange: Exchange) -> None:
        """Register an exchange, whose request is not read yet.

        Raises:
            TooManyStreams: every slot is taken.
        """
        self.slots.check()
        self.exchanges.add(exchange)
        self.telemetry.opened()

    def take_slot(self, exchange: Exchange) -> None:
        """Take a slot for an exchange whose request has been read. Clients that stall while sending thus take no slots.

        Raises:
            TooManyStreams: every slot is taken.
        """
        self.slots.acquire()
        exchange.has_slot = True

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

    async def stop(self) -> None:
        """Let open exchanges finish within the grace period, then end them with a failure in their own dialect."""
        self.is_stopping = True
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

    async def close(self) -> None:
        """End the sweeper and close the upstreams' connections."""
        await self._end_all_background()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
            self._sweeper = None
        if self.hosted_servers is not None:
            await self.hosted_servers.close()
        await self.upstreams.close()
        await self.store.close()
        if self._dump is not None:
            self._dump.close()
        if self._flushing is not None:
            self._flushing.cancel()
        self.flush()

    def mint_request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """The client's `x-request-id` if it is short and plain, else a new id."""
        value = headers.get(b"x-request-id")
        if value is not None and len(value) <= _MAX_REQUEST_ID and value.isascii():
            text = value.decode("ascii")
            if text.isprintable() and text.strip():
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

        Without a store nobody could submit outputs, so nobody is asked for them.
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


async def _keep_open(exchange: Exchange) -> None:
    """Write one keep-alive. The exchange handles failures of its connection; none may end the sweeper."""
    try:
        await exchange.client.keep_open()
    except Exception:
        logger.exception("keep-alive of request %s failed", exchange.request_id)
