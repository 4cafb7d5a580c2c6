"""One answer on its way into the store, while it is sent.

    take(sent)* ─► end_stream(last)      a stream: stored before its last bytes leave
    end_body(body)                       a body: stored before it leaves
    close()                              whatever became of it

A store that fails makes the response fail: a failure is sent in place of its end, or an error is raised where nothing was
sent yet. A response that runs for a while is begun in the store, so that others see that it runs; one that continues
another by a claim is begun before anything is sent.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from msgspec import structs

from dragoman._json import dumps_text
from dragoman.core.failures import error_info
from dragoman.core.fields import set_members
from dragoman.core.ids import RESPONSE_PREFIX
from dragoman.core.losses import answer_book
from dragoman.core.seals import Family
from dragoman.core.store_notes import AnswerEnd, StoreNotes, open_call_ids
from dragoman.dialects import responses
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import CODECS
from dragoman.errors import StoreConflict, StoreError, StoreMissing
from dragoman.model.outcome import ErrorInfo, Outcome
from dragoman.model.parts import part_size
from dragoman.offload import offload
from dragoman.state.managed_store import ManagedStore
from dragoman.store.contract import Key, Store
from dragoman.store.credentials import remove_credentials
from dragoman.store.packing import StreamBuffer
from dragoman.store.records import Draft, StoredEnd

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Of a stream that is stored to be replayed. Its events are some ten times what they say; beyond this only the answer is stored.
MAX_STREAM_BYTES = 64 * 1024 * 1024


class RepeatedId(StoreConflict):
    """An upstream has given the id of a stored response to another."""


def cancelled_error() -> ErrorInfo:
    """The failure that the client of a cancelled response gets."""
    return ErrorInfo(kind="cancelled", message="the response was cancelled", code="cancelled")


class Keeper:
    """Stores one answer. `draft`: under the id that the answer has where we name it. `stop`: ends its exchange with this error."""

    __slots__ = (
        "_beginning",
        "_buffer",
        "_draft",
        "_end",
        "_family",
        "_has_begun",
        "_is_over",
        "_is_tried",
        "_managed",
        "_notes",
        "_shown",
        "_stop",
        "_takes_more",
        "_upstream",
        "_waiters",
        "is_begun",
        "is_ending",
        "problem",
        "since",
    )

    def __init__(
        self, managed: ManagedStore, draft: Draft, stop: Callable[[ErrorInfo], None]
    ) -> None:
        self._managed = managed
        self._draft = draft
        self._stop = stop
        self._notes = StoreNotes()
        self._end: AnswerEnd | None = None  # once it was found
        self._has_begun = False  # something was sent
        self._buffer = StreamBuffer()
        # The stream of a message is never asked for.
        self._takes_more = draft.door == "responses"
        self._shown: int | None = None  # of the buffer, from its end on
        self._waiters: list[asyncio.Future[None]] = []
        self._beginning: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_tried = False  # to store its end
        self.is_ending = False
        """Its end is being stored: whether it was cancelled before that, the store will say."""
        self.problem: ErrorInfo | None = None
        """Why its client is sent a failure in place of the end."""
        self.is_begun = False
        self.since = 0.0
        self._upstream = ""
        self._family: Family | str = ""

    def expect(self, upstream: str, family: Family | str) -> StoreNotes:
        """The answer of this upstream comes next. Returns where its writer is to note what is stored."""
        self._upstream, self._family = upstream, family
        self._notes = StoreNotes()
        return self._notes

    @property
    def response_id(self) -> str:
        """What the answer is called where we name it."""
        return self._draft.id

    @property
    def parent(self) -> str | None:
        return self._draft.parent

    @property
    def names_itself(self) -> bool:
        """Whether the answer must have our id: it was promised, or it names what it continues.

        A thread begins with a message whose id is sent first of all, when nobody knows yet whether there was one before.
        """
        return self._draft.parent is not None or self._draft.door == "messages"

    @property
    def key(self) -> Key | None:
        """None: it has no id yet, or nobody else may see it."""
        if self._draft.claims:
            return self._draft.owner, self._draft.id
        response_id = self._notes.response_id if self._has_begun else ""
        return (self._draft.owner, response_id) if response_id else None

    async def claim(self) -> None:
        """Begin a response that continues another by a claim, before anything is sent.

        Raises:
            StoreError
        """
        await self._managed.call("begin", lambda store: store.begin(self._draft))
        self.is_begun = True
        self._managed.running.add(self)

    def take(self, sent: bytes) -> None:
        """More of a stream has been sent."""
        if not self._has_begun:
            self._has_begun = True
            self.since = time.monotonic()
            self._managed.running.add(self)
        if self._takes_more and self._buffer.add(sent):
            self._takes_more = self._buffer.size <= MAX_STREAM_BYTES
        if self._waiters:
            self._wake()

    def sent_from(self, start: int) -> bytes:
        """What was sent to the client, from a byte on; without the end, which is not sent before it is stored."""
        sent = self._buffer.read(start)
        return sent if self._shown is None else sent[: max(self._shown - start, 0)]

    def more(self) -> asyncio.Future[None]:
        """Done when more was sent, or the exchange is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def end_stream(self, last: bytes) -> bytes:
        """Store the stream that ends with `last`. Returns what is to be sent: the same, or a failure in place of the end."""
        buffer = self._buffer
        if self._shown is None:  # else it was stopped while it was stored, and ends once more
            self._shown = buffer.size
            if self._takes_more:
                buffer.add_last(last)
        end = self._end
        if end is None:
            end = self._end = await self._find_end()
        if end is None:
            return last
        is_whole = self._takes_more and buffer.size <= MAX_STREAM_BYTES
        try:
            is_cancelled = await self._store(end, buffer if is_whole else None)
        except StoreError as error:
            return self._fail(end, last, _unstored(error))
        if is_cancelled and end.status != "failed":
            return self._fail(end, last, cancelled_error())
        return last

    async def _find_end(self) -> AnswerEnd | None:
        """How the stream ended; None if it came to no end that can be stored."""
        notes = self._notes
        end = notes.end
        if end is None:
            frame = notes.last_frame
            end = await offload(len(frame), responses.read_end, frame)
            return None if end is None else self._with_open_calls(end)
        if end.body:
            return end
        outcome = notes.outcome()
        size = sum([part_size(part) for choice in outcome.choices for part in choice.parts])
        body = await offload(size, _message_body, end.id, outcome)
        return self._with_open_calls(structs.replace(end, body=body))

    def _with_open_calls(self, end: AnswerEnd) -> AnswerEnd:
        return structs.replace(end, open_calls=open_call_ids(self._notes.outcome()))

    def _fail(self, end: AnswerEnd, last: bytes, problem: ErrorInfo) -> bytes:
        """What is sent in place of an end that is not stored."""
        self.problem = problem
        if end.fail is None:  # a message that failed says so
            return last
        before, _, after = last.rpartition(end.frames)
        return before + end.fail(problem) + after

    async def end_body(self, body: bytes) -> bytes:
        """Store a body that is about to be sent. The same, or with our id where the upstream's names another response.

        Raises:
            StoreError: it is not stored, and must not be sent.
        """
        end = self._notes.end
        if end is None and self._draft.door == "responses":
            end = await offload(len(body), responses.read_body_end, body)
            end = None if end is None else self._with_open_calls(end)
        if end is None:
            return body
        try:
            await self._store_body(end)
        except RepeatedId:
            own = self._draft.id
            body = await offload(len(body), set_members, body, {"id": dumps_text(own)})
            await self._store_body(structs.replace(end, id=own, body=body))
        return body

    async def _store_body(self, end: AnswerEnd) -> None:
        if end.id != self._draft.id:
            self.repeats(end.id)  # for the next: the store knows better
        if await self._store(end, None):
            raise StoreConflict(cancelled_error().message)

    def close(self) -> None:
        """The exchange is over. What was begun and never ended is cancelled; what was never sent is forgotten."""
        self._managed.running.discard(self)
        self._wake()
        if not self._is_over and (self.is_begun or self._beginning is not None):
            self._is_over = True
            self._managed.spawn(self._abandon())

    async def give_up(self) -> None:
        """Nothing was sent but an error that is about to be: what was claimed is free again before the client gets it."""
        if self.is_begun and not self._has_begun and not self._is_over:
            self._is_over = True
            await self._abandon()

    def begin_soon(self) -> None:
        """Begin it in the store soon, so that others see that it runs."""
        if self._beginning is None and not self._is_over and self.key is not None:
            self._beginning = self._managed.spawn(self._begin())

    async def begin_now(self) -> None:
        """The same, and wait for it."""
        self.begin_soon()
        if self._beginning is not None:
            await asyncio.shield(self._beginning)

    def lose(self) -> None:
        """It is running no more: cancelled or deleted, perhaps on another node."""
        # One that is being stored runs no more as well, as soon as it is stored.
        if not (self.is_ending or self._is_over):
            self._stop(cancelled_error())

    async def _begin(self) -> None:
        notes = self._notes
        opening = notes.opening
        body = responses.read_opening(notes.first_frame) if opening is None else opening()
        draft = structs.replace(self._draft, id=notes.response_id, body=body)
        with suppress(StoreError):  # it is tried once more, with the end
            await self._managed.call("begin", lambda store: store.begin(draft))
            self.is_begun = True

    async def _store(self, end: AnswerEnd, stream: StreamBuffer | None) -> bool:
        """Whether it has been cancelled meanwhile, and is not stored."""
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        ending = StoredEnd(
            status=end.status,
            body=end.body,
            stream=stream,
            open_calls=end.open_calls,
            upstream=self._upstream,
            family=self._family,
        )
        self.is_ending = True
        try:
            status = await self._managed.call(
                "store", lambda store: self._write(store, end, ending)
            )
        finally:
            self.is_ending = False
        self._is_over = True
        return status == "cancelled"

    async def _write(self, store: Store, end: AnswerEnd, ending: StoredEnd) -> str:
        owner, response_id = self._draft.owner, end.id
        if self._is_tried and await _is_stored(store, (owner, response_id), ending):
            return ending.status
        self._is_tried = True
        is_begun = self.is_begun and self.key == (owner, response_id)
        draft = structs.replace(self._draft, id=response_id)
        try:
            if is_begun:
                finished = store.finish(owner, response_id, ending)
                return await _with_items(store, (owner, response_id), end.items, finished)
            put = store.put(draft, ending)
            await _with_items(store, (owner, response_id), end.items, put)
        except StoreMissing:
            if not is_begun:
                raise
            # Its owner has deleted it: there is nothing to be kept.
        except StoreConflict:
            if self._draft.claims:
                raise
            return await self._meet(store, draft, ending)
        return ending.status

    async def _meet(self, store: Store, draft: Draft, ending: StoredEnd) -> str:
        """There is a response with this id. What a client got of it stays.

        Raises:
            RepeatedId: it is another one.
        """
        (link,) = await store.chain(draft.owner, draft.id, depth=1)
        status = link.head.status
        # The rehearsal, for one, gives the same answer to the same request, under the same id.
        is_same = (
            link.request == remove_credentials(draft.request) and link.head.parent == draft.parent
        )
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
            f"expected a new id from the upstream {self._upstream!r}, a response called {draft.id!r} is stored "
            "already; from now on the gateway gives its responses ids of its own"
        )

    def repeats(self, response_id: str) -> bool:
        """Whether the upstream has just given the same id to the answer to another request."""
        last = self._managed.last_named.get(self._upstream)
        self._managed.last_named[self._upstream] = (response_id, self._draft.request)
        if last is None or last[0] != response_id or last[1] == self._draft.request:
            return False
        self._note_repeated()
        return True

    @property
    def is_repeating(self) -> bool:
        """Whether the upstream is known to give one id to several responses."""
        return self._upstream in self._managed.repeating

    def _note_repeated(self) -> None:
        if not self.is_repeating:
            logger.warning(
                "the upstream %s repeats the ids of responses: they get ids of the gateway from now on",
                self._upstream,
            )
            self._managed.repeating.add(self._upstream)

    async def _abandon(self) -> None:
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        key = self.key
        if not self.is_begun or key is None:
            return
        with suppress(StoreError):
            if self._has_begun:
                await self._managed.call("cancel", lambda store: store.cancel(*key))
            else:
                await self._managed.call("forget", lambda store: _forget(store, key))


async def _is_stored(store: Store, key: Key, ending: StoredEnd) -> bool:
    """Whether this very end is there: one that was stopped while it was stored may have been stored all the same."""
    try:
        return (await store.read(*key)).body == ending.body
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
    """Remove a response that was begun and of which nothing was sent. Its claim is given back."""
    await store.cancel(*key)
    await store.delete(*key)


def _unstored(error: StoreError) -> ErrorInfo:
    info = error_info(error)
    message = f"the response could not be stored: {error.message}"
    return ErrorInfo(kind=info.kind, message=message, status=info.status)


def _message_body(message_id: str, outcome: Outcome) -> bytes:
    """The body of a streamed message; of one that failed, with what it said before."""
    if outcome.error is not None or not outcome.completed:
        choices = tuple([structs.replace(choice, finish=None) for choice in outcome.choices])
        outcome = structs.replace(outcome, choices=choices, error=None, completed=True)
    codec = CODECS["messages"]
    book = answer_book(codec.losses, {})
    return codec.write_body(outcome, EncodeContext(response_id=message_id), book)
