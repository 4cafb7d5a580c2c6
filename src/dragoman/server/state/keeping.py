"""One answer on its way into the store, while it is told.

    take(told)* ─► end_stream(last)      a stream: stored before its last bytes leave
    end_body(body)                       a body: stored before it leaves
    close()                              whatever became of it

A store that fails makes the response fail: its end is taken back and a failure told instead, or an error is raised where
nothing was told yet. A response that runs for a while is begun in the store, so that others see that it runs; one that
continues another by a claim is begun before anything is sent.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from dragoman.core.failures import error_info
from dragoman.core.ids import RESPONSE_PREFIX
from dragoman.core.journal import Journal
from dragoman.core.seals import Family
from dragoman.dialects.responses import read_opening, rename
from dragoman.errors import StoreConflict, StoreError, StoreMissing
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Dialect
from dragoman.model.request import Request
from dragoman.server.state.endings import (
    Ended,
    ended_response,
    fail_last,
    read_ended_body,
    read_ended_stream,
)
from dragoman.server.state.holding import StoreHolder
from dragoman.store.base import Key, Store
from dragoman.store.piling import Pile
from dragoman.store.records import Draft, Ending, Piled
from dragoman.store.scrubbing import scrub
from dragoman.store.working import beside

__all__ = ("Keeper", "Kept", "cancelled_error")

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Of a stream as told, to be told again. Its events are some ten times what they tell; beyond this only that is kept.
MAX_STREAM_BYTES = 64 * 1024 * 1024


class RepeatedId(StoreConflict):
    """An upstream has given the id of a stored response to another."""


def cancelled_error() -> ErrorInfo:
    """What the client of a response is told that somebody cancelled."""
    return ErrorInfo(kind="cancelled", message="the response was cancelled", code="cancelled")


class Kept(Struct, frozen=True, kw_only=True):
    """What is to be kept of a request.

    request: what was asked this time; response_id: what the answer is called where we name it.
    parent, inherits, claims: see `store.records.Draft`.
    """

    owner: str
    door: Dialect
    request: Request
    response_id: str
    parent: str | None = None
    inherits: bool = False
    claims: bool = False


class Keeper:
    """Keeps one answer. `stop`: ends its exchange with this error."""

    __slots__ = (
        "_beginning",
        "_created",
        "_holder",
        "_is_over",
        "_is_tried",
        "_kept",
        "_opening",
        "_pile",
        "_shown",
        "_stop",
        "_takes_more",
        "_told_id",
        "_waiters",
        "family",
        "is_begun",
        "is_ending",
        "journal",
        "problem",
        "since",
        "upstream",
    )

    def __init__(
        self, holder: StoreHolder, kept: Kept, stop: Callable[[ErrorInfo], None], now: float
    ) -> None:
        self._holder = holder
        self._kept = kept
        self._stop = stop
        self._created = now
        self._opening = b""
        self._pile = Pile()
        self._takes_more = True
        self._shown: int | None = None  # of the pile, from its end on
        self._waiters: list[asyncio.Future[None]] = []
        self._told_id = ""
        self._beginning: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_tried = False  # to store its end
        self.is_ending = False
        """Its end is being stored: whether it was cancelled before that, the store will say."""
        self.problem: ErrorInfo | None = None
        """Why its client is sent a failure in place of the end."""
        self.journal = Journal()  # for who writes what is kept
        self.is_begun = False
        self.since = 0.0
        self.upstream = ""
        self.family: Family | str = ""

    @property
    def response_id(self) -> str:
        """What the answer is called where we name it."""
        return self._kept.response_id

    @property
    def parent(self) -> str | None:
        return self._kept.parent

    @property
    def names_itself(self) -> bool:
        """Whether the answer must have our id: it was promised, or it tells what it continues.

        A thread begins with a message whose id is told first of all, when nobody knows yet whether there was one before.
        """
        return self._kept.parent is not None or self._kept.door == "messages"

    @property
    def key(self) -> Key | None:
        if self._kept.claims:
            return self._kept.owner, self._kept.response_id
        if not self._told_id and self._opening and self._kept.door == "responses":
            self._told_id = read_opening(self._opening)[0]
        return (self._kept.owner, self._told_id) if self._told_id else None

    async def claim(self) -> None:
        """Begin a response that continues another by a claim, before anything is sent.

        Raises:
            StoreError
        """
        draft = self._draft(self._kept.response_id)
        await self._holder.ask("begin", lambda store: store.begin(draft))
        self.is_begun = True
        self._holder.running.add(self)

    def take(self, told: bytes) -> None:
        """More of a stream has been told."""
        if not self._opening:
            self.since = time.monotonic()
            self._holder.running.add(self)
            self._opening = _first_frame(told)
        pieces = self.journal.cut(told)
        if self._takes_more and self._pile.add(told, pieces):
            self._takes_more = self._pile.size <= MAX_STREAM_BYTES
        if self._waiters:
            self._wake()

    def told_from(self, start: int) -> bytes:
        """What the client was told, from a byte on; without the end, which is not told before it is stored."""
        told = self._pile.read(start)
        return told if self._shown is None else told[: max(self._shown - start, 0)]

    def more(self) -> asyncio.Future[None]:
        """Done when more was told, or the exchange is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def end_stream(self, last: bytes) -> bytes:
        """Store the stream that ends with `last`. What is to be told: the same, or that it failed."""
        door = self._kept.door
        pile = self._pile
        if self._shown is None:  # else it was stopped while it was stored, and ends once more
            self._shown = pile.size
            pile.add_last(last, self.journal.cut(last))
        is_whole = pile.size <= MAX_STREAM_BYTES
        if not is_whole and door != "responses":
            return self._fail(last, _too_large())  # no frame of it tells the whole answer
        terminal = self.journal.terminal
        if terminal is None:
            size = len(last) if door == "responses" else pile.size
            ended = await beside(size, read_ended_stream, door, last, pile.read)
        else:
            ended = await beside(len(terminal.body), ended_response, terminal)
        if ended is None:
            return last
        try:
            is_cancelled = await self._store(ended, pile if is_whole else None)
        except StoreError as error:
            return self._fail(last, _unstored(error))
        if is_cancelled and ended.status != "failed":
            return self._fail(last, cancelled_error())
        return last

    def _fail(self, last: bytes, problem: ErrorInfo) -> bytes:
        """What is sent in place of an end that is not stored."""
        self.problem = problem
        return fail_last(self._kept.door, last, problem)

    async def end_body(self, body: bytes) -> bytes:
        """Store a body that is about to be sent. The same, or with our id where the upstream's names another response.

        Raises:
            StoreError: it is not stored, and must not be sent.
        """
        try:
            await self._end_body(body)
        except RepeatedId:
            body = rename(body, self._kept.response_id)
            await self._end_body(body)
        return body

    async def _end_body(self, body: bytes) -> None:
        ended = await beside(len(body), read_ended_body, self._kept.door, body)
        if ended is None:
            return
        if ended.id != self._kept.response_id:
            self.repeats(ended.id)  # for the next: the store knows better
        if await self._store(ended, None):
            raise StoreConflict(cancelled_error().message)

    def close(self) -> None:
        """The exchange is over. What was begun and never ended is cancelled; what was never told is forgotten."""
        self._holder.running.discard(self)
        self._wake()
        if not self._is_over and (self.is_begun or self._beginning is not None):
            self._is_over = True
            self._holder.spawn(self._abandon())

    async def give_up(self) -> None:
        """Nothing was told, and an error is about to be: what was claimed is free again before its client hears of it."""
        if self.is_begun and not self._opening and not self._is_over:
            self._is_over = True
            await self._abandon()

    def begin_soon(self) -> None:
        """Have others see that it runs."""
        if self._beginning is None and not self._is_over and self.key is not None:
            self._beginning = self._holder.spawn(self._begin())

    async def begin_now(self) -> None:
        """The same, and wait for it."""
        self.begin_soon()
        if self._beginning is not None:
            await asyncio.shield(self._beginning)

    def lose(self) -> None:
        # One that is being stored runs no more as well, as soon as it is stored.
        if not (self.is_ending or self._is_over):
            self._stop(cancelled_error())

    async def _begin(self) -> None:
        response_id, body = read_opening(self._opening)
        draft = self._draft(response_id, body)
        with suppress(StoreError):  # it is tried once more, with the end
            await self._holder.ask("begin", lambda store: store.begin(draft))
            self.is_begun = True

    async def _store(self, ended: Ended, stream: Piled | None) -> bool:
        """Whether it has been cancelled meanwhile, and is not stored."""
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        ending = Ending(
            status=ended.status,
            answer=ended.answer,
            body=ended.body,
            stream=stream,
            open_calls=ended.waiting,
            upstream=self.upstream,
            family=self.family,
        )
        self.is_ending = True
        try:
            status = await self._holder.ask(
                "store", lambda store: self._write(store, ended, ending)
            )
        finally:
            self.is_ending = False
        self._is_over = True
        return status == "cancelled"

    async def _write(self, store: Store, ended: Ended, ending: Ending) -> str:
        owner, response_id = self._kept.owner, ended.id
        if self._is_tried and await _is_stored(store, (owner, response_id), ending):
            return ending.status
        self._is_tried = True
        is_begun = self.is_begun and self.key == (owner, response_id)
        draft = self._draft(response_id)
        try:
            if is_begun:
                finished = store.finish(owner, response_id, ending)
                return await _with_items(store, (owner, response_id), ended.items, finished)
            put = store.put(draft, ending)
            await _with_items(store, (owner, response_id), ended.items, put)
        except StoreMissing:
            if not is_begun:
                raise
            # Its owner has deleted it: there is nothing to be kept.
        except StoreConflict:
            if self._kept.claims:
                raise
            return await self._meet(store, draft, ending)
        return ending.status

    async def _meet(self, store: Store, draft: Draft, ending: Ending) -> str:
        """There is a response with this id. What a client was told of it stays.

        Raises:
            RepeatedId: it is another one.
        """
        (link,) = await store.chain(draft.owner, draft.id, depth=1)
        status = link.head.status
        # The rehearsal, for one, gives the same answer to the same request, under the same id.
        is_same = link.request == scrub(draft.request) and link.head.parent == draft.parent
        if status == "in_progress" and (is_same or link.head.created == draft.created):
            # Another that will end alike, or this one: the store has begun it without saying so.
            return await store.finish(draft.owner, draft.id, ending)
        if is_same and status in ("failed", "cancelled"):
            with suppress(StoreMissing):
                await store.delete(draft.owner, draft.id)
            await store.put(draft, ending)
            return ending.status
        if is_same and await _is_stored(store, (draft.owner, draft.id), ending):
            return ending.status
        self._note_repeated()
        raise RepeatedId(
            f"expected a new id from the upstream {self.upstream!r}, a response called {draft.id!r} is stored "
            "already; from now on the gateway gives its responses ids of its own"
        )

    def repeats(self, response_id: str) -> bool:
        """Whether the upstream has just given the same id to the answer to another request."""
        last = self._holder.last_named.get(self.upstream)
        self._holder.last_named[self.upstream] = (response_id, self._kept.request)
        if last is None or last[0] != response_id or last[1] == self._kept.request:
            return False
        self._note_repeated()
        return True

    @property
    def is_repeating(self) -> bool:
        """Whether the upstream is known to give one id to several responses."""
        return self.upstream in self._holder.repeating

    def _note_repeated(self) -> None:
        if not self.is_repeating:
            logger.warning(
                "the upstream %s repeats the ids of responses: they get ids of the gateway from now on",
                self.upstream,
            )
            self._holder.repeating.add(self.upstream)

    async def _abandon(self) -> None:
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        key = self.key
        if not self.is_begun or key is None:
            return
        with suppress(StoreError):
            if self._opening:
                await self._holder.ask("cancel", lambda store: store.cancel(*key))
            else:
                await self._holder.ask("forget", lambda store: _forget(store, key))

    def _draft(self, response_id: str, body: bytes = b"") -> Draft:
        kept = self._kept
        return Draft(
            id=response_id,
            owner=kept.owner,
            created=self._created,
            door=kept.door,
            request=kept.request,
            model=kept.request.model,
            parent=kept.parent,
            inherits=kept.inherits,
            claims=kept.claims,
            body=body,
        )


def _first_frame(told: bytes) -> bytes:
    """As much of the beginning of a stream as says whose it is, where that is easy to tell."""
    end = told.find(b"\n\n") + 2
    return told[:end] if b"data:" in told[:end] else told


async def _is_stored(store: Store, key: Key, ending: Ending) -> bool:
    """Whether this very end is there: one that was stopped while it was stored may have been stored all the same."""
    try:
        return (await store.told(*key)).body == ending.body
    except StoreMissing:
        return False


def _with_items(
    store: Store, key: Key, items: tuple[str, ...], write: Awaitable[T]
) -> Awaitable[T]:
    """`write`, and in one commit with it that items are found by their ids, where those do not say whose they are."""
    number = key[1].removeprefix(RESPONSE_PREFIX)
    foreign = [item_id for item_id in items if number not in item_id]
    return _together(store.put_items(*key, foreign), write) if foreign else write


async def _together(noting: Awaitable[None], write: Awaitable[T]) -> T:
    noted, written = await asyncio.gather(noting, write, return_exceptions=True)
    if isinstance(written, BaseException):
        raise written
    if noted is not None:
        raise noted
    return written


async def _forget(store: Store, key: Key) -> None:
    """A response that was begun and of which nobody was told: its claim is given back, and it never was."""
    await store.cancel(*key)
    await store.delete(*key)


def _too_large() -> ErrorInfo:
    message = f"expected an answer of at most {MAX_STREAM_BYTES:,} bytes to be kept, got more"
    return ErrorInfo(kind="server", message=message)


def _unstored(error: StoreError) -> ErrorInfo:
    info = error_info(error)
    message = f"the response could not be stored: {error.message}"
    return ErrorInfo(kind=info.kind, message=message, status=info.status)
