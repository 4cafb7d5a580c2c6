"""The inspector: decides which exchanges are captured, keeps them in memory (the ring), informs its readers, and records on disk.

Each gateway has one. The ring is limited in bytes: the oldest exchanges are dropped first, even live ones. Reports and receipts are
derived in a thread (`offload`), when somebody asks for them or when the exchange has ended.
"""

import asyncio
import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from msgspec import structs

from dragoman._json import dumps
from dragoman.config.settings import InspectSettings, Settings
from dragoman.core.secrets import Secrets
from dragoman.inspection.call_rows import call_rows
from dragoman.inspection.conversations import ConversationMarks, marks_of
from dragoman.inspection.exchange import RecordedExchange
from dragoman.inspection.exchange_files import to_files
from dragoman.inspection.exchange_form import ExchangeReport, RequestSummary
from dragoman.inspection.exchange_report import report_exchange, summarize
from dragoman.inspection.receipt import Receipt, receipt_of
from dragoman.inspection.redaction import redact_exchange, redact_facts
from dragoman.offload import LARGE, offload
from dragoman.recordings import recording_name, used_bytes, write_recording
from dragoman.server.doors import Door
from dragoman.server.http.connection import ClientConnection, Headers
from dragoman.server.observe.capture import (
    RECEIPT_HEADER,
    CapturedConnection,
    ExchangeCapture,
    facts_of,
)
from dragoman.server.observe.record import RequestRecord

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Rows of requests that were not captured: a page shows some dozens. Each holds a kilobyte of objects; with a thousand of them a new
# record is always in memory that the processor has long forgotten, which costs a small request 2 %.
_MAX_UNCAPTURED = 100
# Events that wait for one reader of `/v1/inspect/events`. A reader that is further behind reads the list again.
_MAX_UNREAD = 256
MAX_FOLLOWERS = 32
"""Readers of `/v1/inspect/events` at a time: a page has one."""
# How many later requests of a conversation are searched for results: a result comes with the next request, or after a retry.
_MAX_FOLLOWING = 4


LastUse = tuple[float, str]
"""When an upstream was last asked, and its error; empty if it answered."""


class Follower:
    """One reader of the events."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[str, object] | None] = asyncio.Queue(_MAX_UNREAD)
        self.missed = 0

    def send(self, name: str, data: object) -> None:
        try:
            self.queue.put_nowait((name, data))
        except asyncio.QueueFull:
            self.missed += 1

    def end(self) -> None:
        """Make the reader end, even if it is behind."""
        while self.queue.full():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class Inspector:
    """The captured exchanges of one gateway, and the switch. Used on the event loop; `derive` works in a thread.

    is_on: exchanges are captured into the ring. secrets: the operator's secrets, which are never shown.
    last_use: of each upstream that was asked.
    """

    def __init__(
        self, settings: Settings, secrets: Secrets, wall_clock: Callable[[], float]
    ) -> None:
        self.settings = settings.inspect
        self.is_on = settings.inspect.capture == "on"
        self.secrets = secrets
        self.size = 0
        self.dropped = 0
        self.last_use: dict[str, LastUse] = {}
        self._clock = wall_clock
        self._ring: OrderedDict[str, ExchangeCapture] = OrderedDict()
        self._repeated = 1  # the number behind the last id that a client repeated
        self._uncaptured: deque[tuple[float, RequestRecord]] = deque(maxlen=_MAX_UNCAPTURED)
        self._by_mark: dict[tuple[str, bytes], str] = {}
        self._marks: dict[str, ConversationMarks] = {}
        self._followers: set[Follower] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # The threads of `offload` are for requests; the inspector uses at most one of them.
        self._thread = asyncio.Semaphore(1)
        record = settings.inspect.record
        self._recorder = None if record is None else Recorder(settings.inspect)

    def change(self, settings: Settings, secrets: Secrets) -> None:
        """Apply other settings. What was captured before stays, so the secrets of before stay hidden too.

        The switch stays where it is, unless the settings move it. Readers of the events must come again: who may read has changed.
        """
        before, self.settings = self.settings, settings.inspect
        self.secrets |= secrets
        if settings.inspect.capture != before.capture:
            self.is_on = settings.inspect.capture == "on"
        places = [(each.record, each.record_max_bytes) for each in (before, settings.inspect)]
        if places[0] != places[1]:
            if self._recorder is not None:
                self._spawn(asyncio.to_thread(self._recorder.close))
            record = settings.inspect.record
            self._recorder = None if record is None else Recorder(settings.inspect)
        self.stop()
        self._make_room()

    # --- capturing ------------------------------------------------------------------------------------------------------

    def begin(
        self, door: Door, headers: Headers, by_name: Mapping[bytes, bytes], method: str
    ) -> ExchangeCapture | None:
        """The capture of a new exchange; None if nobody asked for one."""
        settings = self.settings
        wants_receipt = settings.receipts or by_name.get(RECEIPT_HEADER) == b"full"
        is_wanted = self.is_on or wants_receipt or self._recorder is not None
        if not is_wanted or settings.capture == "off":
            return None
        capture = ExchangeCapture(
            dialect=door.dialect,
            path=door.path,
            method=method,
            headers=headers,
            at=self._clock(),
            limit=settings.max_exchange_bytes,
        )
        capture.wants_receipt = wants_receipt
        capture.is_shown = self.is_on
        return capture

    def tap(
        self, connection: ClientConnection, capture: ExchangeCapture, *, has_head: bool
    ) -> ClientConnection:
        """The connection of a captured exchange. `has_head`: its answer has headers, or is a stream that may have comments."""
        tapped = CapturedConnection(connection, capture)
        if capture.wants_receipt and has_head:
            tapped.make_receipt = partial(self.make_receipt, capture)
        return tapped

    def admit(self, capture: ExchangeCapture, request_id: str, owner: str) -> None:
        """Put an exchange into the ring, once its caller is known. Clients may repeat ids; ids in the ring are unique."""
        own = request_id
        while own in self._ring:
            self._repeated += 1
            own = f"{request_id}.{self._repeated}"
        self._ring[own] = capture
        self.size += capture.size
        capture.admit(own, owner, self._grow)
        self._make_room()
        self._publish_request(capture)

    def end(
        self,
        capture: ExchangeCapture | None,
        record: RequestRecord,
        write: Callable[[RequestRecord], None],
    ) -> None:
        """Note how an exchange ended, captured or not. `write`: writes its record, now or when its receipt is ready."""
        now = self._clock()
        for upstream, kind in record.failed:
            self.last_use[upstream] = (now, kind)
        if record.upstream:
            self.last_use[record.peer or record.upstream] = (now, record.error)
        if capture is None:
            self._uncaptured.append((now, record))
            if self._followers:
                self._publish("request", self._uncaptured_summary(now, record))
            write(record)
            return
        capture.end(record)
        is_admitted = bool(capture.id)
        waits = is_admitted and capture.wants_receipt
        if not waits:
            write(record)
        if is_admitted:
            self._spawn(self._conclude(capture, record, write if waits else None))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        """Start a task that no caller waits for; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def discard(self, capture: ExchangeCapture | None) -> None:
        """Forget an exchange that another one continues."""
        if capture is not None:
            self._remove(capture.id)

    def _uncaptured_summary(self, ended: float, record: RequestRecord) -> RequestSummary:
        exchange = RecordedExchange(
            id=record.request_id,
            at=ended - record.duration_s,
            dialect=record.door,
            facts=redact_facts(facts_of(record), self.secrets),
        )
        return structs.replace(summarize(exchange), captured=False)

    async def _conclude(
        self,
        capture: ExchangeCapture,
        record: RequestRecord,
        write: Callable[[RequestRecord], None] | None,
    ) -> None:
        """Make the receipt and the recording of an ended exchange, find its conversation, and report its end."""
        exchange = capture.recorded()
        marks = ConversationMarks((), ())
        try:
            if capture.wants_receipt and not capture.is_dropped:
                capture.receipt = await self.derive(receipt_of, exchange)
                record.receipt = capture.receipt
            if capture.is_shown:
                marks = await self.derive(marks_of, exchange)
        except Exception:
            logger.exception("request %s was captured, but cannot be read", capture.id)
        if write is not None:
            write(record)
        if self._recorder is not None and not capture.is_dropped:
            self._recorder.take(exchange, self.secrets_of(capture))
        elif self._recorder is not None:
            self._recorder.leave_out()
        if not capture.is_shown:
            capture.is_settled = True
            self._keep_receipt(capture)
            return
        if capture.id in self._ring:
            self._join_conversation(capture, marks)
        capture.is_settled = True
        self._publish_request(capture)

    def _join_conversation(self, capture: ExchangeCapture, marks: ConversationMarks) -> None:
        owner = capture.owner
        known = (self._by_mark.get((owner, mark)) for mark in marks.before)
        capture.previous = next((each for each in known if each is not None), None)
        self._marks[capture.id] = marks
        for mark in marks.own:
            self._by_mark[owner, mark] = capture.id

    def _keep_receipt(self, capture: ExchangeCapture) -> None:
        """Drop the bytes that were captured only for a receipt or a recording."""
        if capture.receipt is None:
            self._remove(capture.id)
        elif capture.id in self._ring:
            self.size -= capture.size
            capture.drop()
            self.size += capture.size

    async def make_receipt(self, capture: ExchangeCapture) -> bytes:
        """The receipt of an exchange whose answer is about to end, in ASCII; empty if it cannot be made."""
        try:
            receipt = await self.derive(receipt_of, capture.recorded())
        except Exception:
            logger.exception("the receipt of request %s could not be made", capture.id)
            return b""
        text = dumps(receipt).decode("utf-8")
        return "".join(letter if letter < "\x7f" else _escape(letter) for letter in text).encode()

    def _grow(self, size: int) -> None:
        self.size += size
        if self.size > self.settings.max_bytes:
            self._make_room()

    def _make_room(self) -> None:
        while self.size > self.settings.max_bytes and self._ring:
            self._remove(next(iter(self._ring)))
            self.dropped += 1

    def _remove(self, id_: str) -> None:
        capture = self._ring.pop(id_, None)
        if capture is None:
            return
        self.size -= capture.size
        capture.drop()
        marks = self._marks.pop(id_, None)
        for mark in () if marks is None else marks.own:
            if self._by_mark.get((capture.owner, mark)) == id_:
                del self._by_mark[capture.owner, mark]

    # --- reading --------------------------------------------------------------------------------------------------------

    def find(self, id_: str) -> ExchangeCapture | None:
        """A captured exchange that the inspector shows."""
        capture = self._ring.get(id_)
        return capture if capture is not None and capture.is_shown else None

    def find_receipt(self, id_: str) -> tuple[Receipt, str] | None:
        """The receipt of an exchange that has ended, and its owner."""
        capture = self._ring.get(id_)
        if capture is None or capture.receipt is None:
            return None
        return capture.receipt, capture.owner

    def summary(self, capture: ExchangeCapture) -> RequestSummary:
        facts = redact_facts(capture.exchange.facts, self.secrets)
        shown = structs.replace(capture.exchange, facts=facts, is_live=not capture.is_settled)
        return structs.replace(summarize(shown, capture.previous), captured=capture.is_shown)

    def summaries(self, limit: int, before: str | None) -> tuple[list[RequestSummary], bool]:
        """The newest rows, or those before a row; and whether there are more."""
        rows = [
            (each.exchange.at, each.id, partial(self.summary, each)) for each in self._ring.values()
        ]
        rows += [
            (
                at - record.duration_s,
                record.request_id,
                partial(self._uncaptured_summary, at, record),
            )
            for at, record in self._uncaptured
        ]
        rows.sort(key=lambda row: row[0], reverse=True)
        if before is not None:
            places = [index for index, row in enumerate(rows) if row[1] == before]
            rows = rows[places[0] + 1 :] if places else []
        return [make() for _, _, make in rows[:limit]], len(rows) > limit

    async def describe(
        self, capture: ExchangeCapture, write: Callable[[ExchangeReport], bytes]
    ) -> bytes:
        """What `write` makes of the description of an exchange, without secrets."""
        exchange = capture.recorded()
        previous = None if capture.previous is None else self.find(capture.previous)
        before = None if previous is None else previous.recorded()
        following, secrets = self._following(capture), self.secrets_of(capture)
        return await self.derive(lambda: write(_report(exchange, before, following, secrets)))

    async def derive(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work on exchanges in a thread, one job at a time."""
        async with self._thread:
            return await offload(LARGE, work, *args, **kwargs)

    def secrets_of(self, capture: ExchangeCapture) -> Secrets:
        """The secrets to hide in an exchange: the operator's, and the caller's own keys."""
        return self.secrets | Secrets(capture.keys) if capture.keys else self.secrets

    def _following(self, capture: ExchangeCapture) -> list[RecordedExchange]:
        later = [each for each in self._ring.values() if each.previous == capture.id]
        return [each.recorded() for each in later[:_MAX_FOLLOWING]]

    # --- events ---------------------------------------------------------------------------------------------------------

    def switch(self, *, on: bool) -> None:
        """Turn the capture on or off. Captured exchanges stay until there is no room for them."""
        self.is_on = on
        self._publish("capture", self.state())

    def state(self) -> dict[str, object]:
        return {
            "on": self.is_on,
            "bytes": self.size,
            "max_bytes": self.settings.max_bytes,
            "exchanges": len(self._ring),
            "dropped": self.dropped,
        }

    def follow(self) -> Follower | None:
        """A new reader of the events; None if there are too many."""
        if len(self._followers) >= MAX_FOLLOWERS:
            return None
        follower = Follower()
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)

    async def close(self) -> None:
        """End the readers, and finish the work on ended exchanges."""
        self.stop()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)

    def stop(self) -> None:
        for follower in self._followers:
            follower.end()

    def _publish_request(self, capture: ExchangeCapture) -> None:
        if self._followers:
            self._publish("request", self.summary(capture))

    def _publish(self, name: str, data: object) -> None:
        for follower in self._followers:
            follower.send(name, data)


def _escape(letter: str) -> str:
    """The escape of a character in JSON."""
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _report(
    exchange: RecordedExchange,
    previous: RecordedExchange | None,
    following: Sequence[RecordedExchange],
    secrets: Secrets,
) -> ExchangeReport:
    rows = call_rows(exchange, following)
    shown = redact_exchange(exchange, secrets)
    before = None if previous is None else redact_exchange(previous, secrets)
    return report_exchange(shown, previous=before, following=following, calls=rows)


# --- recordings ------------------------------------------------------------------------------------------------------

# Exchanges in the thread's queue; each may take `inspect.max_exchange_bytes`.
_MAX_UNWRITTEN = 32
# After this many recordings their bytes are counted again: other workers write into the same folder.
_RECOUNT = 64
# How long a stopping gateway waits for the last recordings.
_LAST_SECONDS = 10.0


class Recorder:
    """Records exchanges on disk (`serve --record DIR`): one folder for each, without secrets.

    A thread takes the secrets out and writes. It starts with the first exchange and ends with `close`. If it falls behind, exchanges
    are left out; if the disk is full, or the recordings have reached their limit, recording stops. Both are logged. No request waits
    or fails because of a recording.
    """

    def __init__(self, settings: InspectSettings) -> None:
        self._root = Path(settings.record or "")
        self._max_bytes = settings.record_max_bytes
        self._waiting: queue.Queue[tuple[RecordedExchange, Secrets] | None] = queue.Queue(
            _MAX_UNWRITTEN
        )
        self._thread: threading.Thread | None = None
        self._written = 0
        self._used = 0  # bytes of all recordings
        self._is_full = False
        self._left_out = 0

    def take(self, exchange: RecordedExchange, secrets: Secrets) -> None:
        """Queue an exchange for the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dragoman-record", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait((exchange, secrets))
        except queue.Full:
            self.leave_out()

    def leave_out(self) -> None:
        """Note that an exchange is not recorded. The first is logged."""
        self._left_out += 1
        if self._left_out == 1:
            logger.warning(
                "exchanges come faster than they can be recorded, or are larger than inspect.max_bytes allows; "
                "some are left out"
            )

    def close(self) -> None:
        """Write what is queued, within a time limit."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._waiting.put(None, timeout=_LAST_SECONDS)
        except queue.Full:
            return
        thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while (taken := self._waiting.get()) is not None:
            exchange, secrets = taken
            if self._is_full:
                continue
            try:
                self._write(exchange, secrets)
            except OSError as error:
                self._is_full = True
                logger.warning("recording stops: %s: %s", self._root, error.strerror or error)
            except Exception:
                logger.exception("request %s could not be recorded", exchange.id)

    def _write(self, exchange: RecordedExchange, secrets: Secrets) -> None:
        files = to_files(redact_exchange(exchange, secrets))
        size = sum(map(len, files.values()))
        self._written += 1
        if self._written % _RECOUNT == 1:
            self._used = used_bytes(self._root)
        used = self._used
        if used + size > self._max_bytes:
            self._is_full = True
            logger.warning(
                "recording stops: %s has %d of %d bytes (inspect.record_max_bytes)",
                *(self._root, used, self._max_bytes),
            )
            return
        write_recording(self._root, recording_name(exchange), files)
        self._used = used + size
