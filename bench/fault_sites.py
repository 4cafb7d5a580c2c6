"""The gateways of `make faults`, real processes on one store, with an injector on every link; and what happens to them.

    client --injector--> gateway --injector--> scripted upstream
                            '-----injector--> PostgreSQL

Both gateways of a site share its store, SQLite or PostgreSQL. What one of them acknowledged is read from the other one.
"""

import asyncio
import resource
import struct
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import fault_plan

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from fault_oracle import leaked_secrets
from fault_plan import Exchange, Fault, Scene
from fault_wire import MARK, Injector
from msgspec import json as msgspec_json

from dragoman.testing import Pause, ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from heard import hear
from postgres_server import PostgresServer
from served import Served

LIMIT = 6.0
"""Long for a loopback connection, short for a campaign: some faults last until a gateway stops waiting."""

UPSTREAM_KEY = "sk-upstream-77d1e0c49ab35f28"
_CLOCK = Path(__file__).parent / "clock"
_GATEWAYS = 2
_SMALLEST_FILE = 4096
"""The size of files while the disk is "full": the first page of a database may be written again, nothing more."""

_STATUSES = (400, 429, 500, 503, 502)
_SETTINGS = """
[server]
head_timeout = {limit}
body_timeout = {limit}
send_timeout = {limit}
shutdown_grace = 5.0

[retry]
attempts = 2
base_delay = 0.02

[store]
url = "{store}"
lease = 5.0
"""
_UPSTREAM = """
[upstreams.{name}]
kind = "{name}"
base_url = "http://127.0.0.1:{port}{path}"
api_key = "{key}"
connect_timeout = {limit}
first_byte_timeout = {limit}
idle_timeout = {limit}

[[routes]]
model = "{name}-*"
upstream = "{name}"
"""


class Site:
    """Two gateways on one store. `exchanges` holds what the upstream has to answer, by name.

    limit: seconds that a gateway waits for a client or an upstream.
    """

    def __init__(self, folder: Path, database: PostgresServer | None, limit: float) -> None:
        self.folder = folder
        self._limit = limit
        self.exchanges: dict[str, Exchange] = {}
        self.problems: list[str] = []
        """What the upstream saw of broken promises."""
        self._database = database
        self._clock = folder / "clock"
        self._clock.write_bytes(struct.pack("d", 0.0))
        self._upstream = ScriptedUpstream(self._answer)
        self._wire = Injector("upstream", ("127.0.0.1", 0), self._fault)
        self._store_wire = Injector(None, ("127.0.0.1", 0), self._fault)
        self._doors: list[Injector] = []
        self.gateways: list[Served] = []

    @property
    def ports(self) -> list[int]:
        """Of the gateways, through the injectors."""
        return [door.port for door in self._doors]

    @property
    def direct_ports(self) -> list[int]:
        return [served.port for served in self.gateways]

    async def open(self) -> None:
        await self._upstream.__aenter__()
        self._wire.aim(("127.0.0.1", self._upstream.port))
        await self._wire.start()
        settings = self.folder / "dragoman.toml"
        settings.write_text(self._settings(await self._store_url()), encoding="utf-8")
        environment = {"PYTHONPATH": str(_CLOCK), "FAULT_CLOCK": str(self._clock)}
        for _ in range(_GATEWAYS):
            options = ("--config", str(settings), "--log-format", "json")
            served = Served(self.folder, environment, *options, wrapper=("/usr/bin/env",))
            self.gateways.append(served)
            door = Injector("client", ("127.0.0.1", served.port), self._fault)
            await door.start()
            self._doors.append(door)
        await asyncio.gather(*(asyncio.to_thread(served.start) for served in self.gateways))

    async def close(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(served.stop) for served in self.gateways))
        for injector in (*self._doors, self._wire, self._store_wire):
            await injector.close()
        await self._upstream.__aexit__()

    def has_struck(self, name: str) -> bool:
        """Whether the exchange's own fault has happened."""
        return any(name in each.struck for each in (*self._doors, self._wire))

    def forget(self, name: str) -> None:
        """An exchange is over, and nothing of it is needed any more."""
        del self.exchanges[name]
        self._upstream.requests.clear()
        for injector in (*self._doors, self._wire):
            injector.forget(name)

    def secrets_in_logs(self, *more: str) -> list[str]:
        logs = [
            served.log.read_text(encoding="utf-8", errors="replace") for served in self.gateways
        ]
        return [found for log in logs for found in leaked_secrets(log, (UPSTREAM_KEY, *more))]

    async def restart_all(self) -> None:
        """Kill every gateway at once, and start them again."""
        for served in self.gateways:
            served.kill()
        await asyncio.gather(*(asyncio.to_thread(served.start) for served in self.gateways))

    async def happen(self, scene: Scene) -> None:
        """Let the scene's event happen. When this returns, everything is up again."""
        await asyncio.sleep(scene.after)
        victim = self.gateways[scene.seed % len(self.gateways)]
        match scene.event:
            case "kill" | "stop":
                await asyncio.to_thread(victim.kill if scene.event == "kill" else victim.stop)
                await asyncio.to_thread(victim.start)
            case "disk full":
                with self._full_disk():
                    await asyncio.sleep(scene.lasts)
            case "clock":
                self._jump(scene.jump)
                await asyncio.sleep(scene.lasts)
                self._jump(0.0)
            case "database stopped":
                assert self._database is not None
                await self._database.pause(scene.lasts)
            case "database cut":
                self._store_wire.cut()
            case "database silent" | "database garbage":
                silence = Fault(kind="silence", link="upstream")
                garbage = Fault(kind="garbage", link="upstream", data=b"\x00\xffgarbage")
                is_silent = scene.event == "database silent"
                self._store_wire.strike(silence if is_silent else garbage)
            case _:
                pass

    @contextmanager
    def _full_disk(self) -> Generator[None]:
        """No gateway can write beyond the first page of any file: not to the database, not to its log, not to its own log.

        A limit of the process, because a test must not fill or mount a disk. The system reports EFBIG instead of ENOSPC.
        """
        none = resource.RLIM_INFINITY
        pids = [served.pid for served in self.gateways]
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (_SMALLEST_FILE, none))
        try:
            yield
        finally:
            for pid in pids:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (none, none))

    def _jump(self, seconds: float) -> None:
        with self._clock.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    async def _store_url(self) -> str:
        if self._database is None:
            return f"sqlite://{self.folder / 'store.db'}"
        url = await asyncio.to_thread(self._database.fresh)
        self._store_wire.aim(self._database.folder / ".s.PGSQL.5432")
        await self._store_wire.start(self.folder / ".s.PGSQL.5432")
        return url.replace(str(self._database.folder), str(self.folder))

    def _settings(self, store: str) -> str:
        upstreams = [
            _UPSTREAM.format(
                name=name,
                port=self._wire.port,
                path="" if name == "messages" else "/v1",
                key=UPSTREAM_KEY,
                limit=self._limit,
            )
            for name in fault_plan.UPSTREAMS
        ]
        return "".join((_SETTINGS.format(store=store, limit=self._limit), *upstreams))

    def _fault(self, name: str) -> Fault | None:
        exchange = self.exchanges.get(name)
        return None if exchange is None else exchange.fault

    def _answer(self, request: ReceivedRequest) -> ScriptedReply:
        """The upstream: the answer of the exchange that the request's model names."""
        body = msgspec_json.decode(request.body)
        found = MARK.search(str(body["model"]).encode())
        assert found is not None, body["model"]
        exchange = self.exchanges[found[0].decode()]
        try:
            hear(exchange.upstream, request.body)
        except (AssertionError, KeyError, ValueError) as error:
            self.problems.append(f"{exchange.name}: the upstream got a bad request: {error!r}")
        fault = exchange.fault
        if fault is not None and fault.kind == "status":
            status = _STATUSES[fault.at % len(_STATUSES)]
            return json_reply({"error": {"type": "server_error", "message": "scripted"}}, status)
        return _reply(exchange, is_stream=body.get("stream") is True)


def _reply(exchange: Exchange, *, is_stream: bool) -> ScriptedReply:
    whole = fault_plan.answer_bytes(exchange, is_stream=is_stream)
    if not is_stream:
        return json_reply(whole)
    frames = [frame + b"\n\n" for frame in whole.split(b"\n\n")[:-1]]
    fault = exchange.fault
    if fault is not None and fault.kind == "polite end":
        frames = frames[: fault.frames]
    chunks: list[bytes | Pause] = []
    for frame in frames:
        chunks.append(frame)
        if exchange.pace:
            chunks.append(Pause(exchange.pace))
    return ScriptedReply(content_type="text/event-stream", chunks=chunks)


@asynccontextmanager
async def running_site(
    folder: Path, database: PostgresServer | None, limit: float = LIMIT
) -> AsyncGenerator[Site]:
    """A site in this folder, started."""
    site = Site(folder, database, limit)
    try:
        await site.open()
        yield site
    finally:
        await site.close()
