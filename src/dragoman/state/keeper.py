"""Stores one answer while it is sent.

    take(sent)* ─► end_stream(last)      a stream: stored before its last bytes are sent
    end_body(body)                       a body: stored before it is sent
    close()                              in every case

If the store fails, the response fails: the client gets a failure in place of the end, or an error if nothing was sent
yet. A response that runs for a while is begun in the store, so that others see that it runs; a response that continues
another by a claim is begun before anything is sent. A response that is stored only while it waits (`Draft.only_waiting`)
is neither begun early nor replayed, and one that waits for nothing leaves no content.

A background response (`Draft.background`) is begun, as queued, before its client gets anything. While it runs, the node
appends to the store what was sent, for followers on other nodes. Its client is gone when it ends, so storing the end is
tried as long as its lease lasts.

The end of a response that is remembered (`remember_by`) goes to the connection that sent its request. It does not enter the
store, unless it waits for the outputs of its calls (`Draft.only_waiting`): those may come by another connection. A response
that belongs to a conversation (`hold`) adds its input and output there, in the same write; a response that is not stored
itself (`only_add`) adds them all the same.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import TypeVar

from msgspec import structs

from dragoman._json import dumps, dumps_text
from dragoman.core.credentials import remove_credentials
from dragoman.core.failures import error_info
from dragoman.core.fields import set_members
from dragoman.core.ids import RESPONSE_PREFIX
from dragoman.core.losses import answer_book
from dragoman.core.seals import Family
from dragoman.core.store_notes import AnswerEnd, StoreNotes, open_call_ids
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import CODECS
from dragoman.dialects.responses import terminal
from dragoman.errors import (
    StoreConflict,
    StoreError,
    StoreHeld,
    StoreMissing,
    StoreUnavailable,
)
from dragoman.model.outcome import ErrorInfo, Outcome
from dragoman.model.parts import part_size
from dragoman.offload import offload
from dragoman.state.conversation import without_settings
from dragoman.state.held_conversation import HeldConversation
from dragoman.state.managed_store import ManagedStore
from dragoman.store.codec import read_parts
from dragoman.store.contract import Key
from dragoman.store.engine_store import Store
from dragoman.store.packing import StreamBuffer
from dragoman.store.records import ConversationItem, Draft, Link, StoredEnd, StoredHead

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The largest stream that is stored for replay. Events take some ten times their text; of a larger stream only the body is stored.
MAX_STREAM_BYTES = 64 * 1024 * 1024

APPEND_SECONDS = 0.5
"""How often what was sent of a background response is appended to the store. A follower on another node sees it with its next
poll, within about a second; each append is one small write."""

RETRY_SECONDS = 1.0
"""How often storing the end of a background response is tried while the store does not answer."""


class RepeatedId(StoreConflict):
    """An upstream gave a new response the id of a stored one."""


def cancelled_error() -> ErrorInfo:
    """Return the failure that the client of a cancelled response gets."""
    return ErrorInfo(kind="cancelled", message="the response was cancelled", code="cancelled")


class Keeper:
    """Stores one answer. `draft.id` is the answer's id if the gateway chooses it. `stop` ends the exchange with an error.

    is_storing: False: nothing is stored, but the answer may be remembered, or added to its conversation.
    """

    __slots__ = (
        "_appended",
        "_appended_at",
        "_appending",
        "_beginning",
        "_buffer",
        "_end",
        "_family",
        "_has_begun",
        "_has_progress",
        "_held",
        "_is_over",
        "_is_tried",
        "_managed",
        "_notes",
        "_past_bytes",
        "_remember",
        "_shown",
        "_stop",
        "_takes_more",
        "_upstream",
        "_waiters",
        "draft",
        "is_begun",
        "is_ending",
        "is_storing",
        "problem",
        "since",
    )

    def __init__(
        self, managed: ManagedStore, draft: Draft, stop: Callable[[ErrorInfo], None]
    ) -> None:
        self._managed = managed
        self.draft = draft
        self._stop = stop
        self._notes = StoreNotes()
        self._end: AnswerEnd | None = None
        self._remember: Callable[[Link], None] | None = None
        self._past_bytes = 0
        self._held: HeldConversation | None = None
        self.is_storing = True
        self._has_begun = False  # whether anything was sent
        self._buffer = StreamBuffer()
        # No endpoint returns the stream of a message, nor of a response that only waits.
        self._takes_more = draft.door == "responses" and not draft.only_waiting
        # Once the stream ends: how many bytes of the buffer precede its last bytes.
        self._shown: int | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._beginning: asyncio.Task[None] | None = None
        self._appending: asyncio.Task[None] | None = None
        self._appended = 0  # how many bytes of the buffer the store has
        self._appended_at = float("-inf")
        # Whether the store has the response object of an answer in progress.
        self._has_progress = False
        self._is_over = False
        self._is_tried = False  # whether storing the end was tried
        self.is_ending = False
        """Whether the end is being stored; the result of that write says whether the response was cancelled before."""
        self.problem: ErrorInfo | None = None
        """Why the client gets a failure in place of the end."""
        self.is_begun = False
        self.since = 0.0
        self._upstream = ""
        self._family: Family | str = ""

    def remember_by(self, remember: Callable[[Link], None], past_bytes: int) -> None:
        """Pass the whole conversation to `remember` when the answer has ended. Its request has all turns.

        past_bytes: the size of the turns before the client's request. Nothing is stored, unless the response waits for
        outputs.
        """
        self._remember = remember
        self._past_bytes = past_bytes
        self.is_storing = self.draft.only_waiting
        self._takes_more = False

    def only_add(self) -> None:
        """Do not store the answer; only its conversation gets its input and output."""
        self.is_storing = self._takes_more = False

    def hold(self, held: HeldConversation) -> None:
        """Have the answer belong to a conversation, which it holds until it ends."""
        self._held = held
        held.is_kept = True
        self.since = inf  # it is begun in the store once something was sent
        self._managed.running.add(self)

    def expect(self, upstream: str, family: Family | str) -> StoreNotes:
        """Prepare for the answer of this upstream. Returns the notes that the writer of the answer fills in."""
        self._upstream, self._family = upstream, family
        self._notes = StoreNotes()
        return self._notes

    @property
    def names_itself(self) -> bool:
        """Whether the answer must have the gateway's id: it continues what is stored, or is a message of a thread.

        A message's id is sent first of all, before the gateway can know whether the store has a message with that id.
        """
        draft = self.draft
        return draft.parent is not None or self._held is not None or draft.door == "messages"

    @property
    def key(self) -> Key | None:
        """The key in the store; None while the answer has no id."""
        if self.draft.claims or self.draft.background or self._held is not None:
            return self.draft.owner, self.draft.id
        response_id = self._notes.response_id if self._has_begun else ""
        return (self.draft.owner, response_id) if response_id else None

    async def claim(self) -> None:
        """Begin a response that continues another by a claim, before anything is sent.

        Raises:
            StoreError
        """
        await self._managed.call("begin", lambda store: store.begin(self.draft))
        self.is_begun = True
        self._managed.running.add(self)

    async def queue(self, body: bytes, opening: bytes) -> None:
        """Begin a background response, before anything is sent: its response object, and the events that begin its stream.

        Raises:
            StoreError
        """
        draft = structs.replace(self.draft, body=body)
        await self._managed.call("begin", lambda store: store.begin(draft))
        self.is_begun = True
        self.take(opening)

    def append_soon(self, now: float) -> None:
        """Start a task that appends to the store what was sent of a background response, if that is due."""
        is_idle = self._appending is None or self._appending.done()
        is_due = self._buffer.size > self._appended and now - self._appended_at >= APPEND_SECONDS
        if self.draft.background and self.is_begun and is_due and is_idle and self._end is None:
            self._appended_at = now
            self._appending = self._managed.spawn(self._append())

    async def _append(self) -> None:
        key, place = (self.draft.owner, self.draft.id), self._appended
        sent = self.sent_from(place)
        opening = None if self._has_progress else self._notes.opening
        body = b"" if opening is None else opening()
        # What is not appended now is appended the next time. Others see to it that a response that was cancelled ends.
        with suppress(StoreError):
            await self._managed.call(
                "append", lambda store: store.append(*key, place, sent, body=body)
            )
            self._appended = place + len(sent)
            self._has_progress = self._has_progress or bool(body)

    def take(self, sent: bytes) -> None:
        """Add bytes of the stream that were sent."""
        if not self._has_begun:
            self._has_begun = True
            self.since = time.monotonic()
            if self.is_storing:
                self._managed.running.add(self)
        if self._takes_more and self._buffer.add(sent):
            self._takes_more = self._buffer.size <= MAX_STREAM_BYTES
        if self._waiters:
            self._wake()

    def sent_from(self, start: int) -> bytes:
        """Return the bytes that were sent to the client, from `start` on, without the end, which must be stored first."""
        sent = self._buffer.read(start)
        return sent if self._shown is None else sent[: max(self._shown - start, 0)]

    def more(self) -> asyncio.Future[None]:
        """Return a future that is done when more was sent or the exchange is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def end_stream(self, last: bytes) -> bytes:
        """Store the stream that ends with `last`. Returns the bytes to send: `last`, or a failure in place of the end."""
        buffer = self._buffer
        # If it is set, the first call was stopped while storing, and this is the second.
        if self._shown is None:
            self._shown = buffer.size
            if self._takes_more:
                buffer.add_last(last)
        end = self._end
        if end is None:
            end = self._end = await self._find_end()
        if end is None:
            return last
        is_whole = self._takes_more and buffer.size <= MAX_STREAM_BYTES
        is_cancelled = False
        try:
            if self.is_storing:
                is_cancelled = await self._store(end, buffer if is_whole else None)
            else:
                await self._add_to_conversation(end)
        except StoreError as error:
            if self.draft.background and not isinstance(error, StoreConflict):
                await self._store_failure(_unstored(error))
            return self._fail(end, last, _unstored(error))
        if is_cancelled and end.status != "failed":
            return self._fail(end, last, cancelled_error())
        if self._remember is not None:
            await self._pass_on(end, self._remember)
        return last

    async def _store_failure(self, problem: ErrorInfo) -> None:
        """Store that a background response has failed because its end could not be stored, for example because of its size."""
        owner, response_id = self.draft.owner, self.draft.id

        async def fail(store: Store) -> None:
            begun = await store.read(owner, response_id)
            body = terminal.change_status(begun.body, "failed", problem)
            await store.finish(owner, response_id, StoredEnd(status="failed", body=body))

        with suppress(StoreError):  # if the store still does not answer: the lease ends
            await self._managed.call("store", fail)
            self._is_over = True

    async def _find_end(self) -> AnswerEnd | None:
        """Return how the stream ended; None if it has no end that can be stored."""
        notes = self._notes
        end = notes.end
        if end is None:
            frame = notes.last_frame
            end = await offload(len(frame), terminal.read_end, frame)
            return None if end is None else self._with_open_calls(end)
        if end.body:
            return end
        outcome = notes.outcome()
        size = sum([part_size(part) for choice in outcome.choices for part in choice.parts])
        body = await offload(size, _message_body, end.id, outcome)
        return self._with_open_calls(structs.replace(end, body=body))

    async def _add_to_conversation(self, end: AnswerEnd) -> None:
        """Add an answer that is not stored itself to the conversation that it holds, if any. Raises StoreError."""
        if self._held is not None and self._held.is_held:
            self.is_ending = True
            try:
                await self._held.add(end)
            finally:
                self.is_ending = False

    async def _pass_on(self, end: AnswerEnd, remember: Callable[[Link], None]) -> None:
        """Have the response remembered, unless it failed."""
        if end.status == "failed":
            return
        draft = self.draft
        if self._notes.end is None:  # relayed: the last frame of some upstreams repeats no items
            parts = tuple(
                part for choice in self._notes.outcome().choices[:1] for part in choice.parts
            )
        else:
            parts = await offload(len(end.body), read_parts, draft.door, end.body, has_failed=False)
        request = without_settings(draft.request)
        head = StoredHead(
            id=end.id,
            owner=draft.owner,
            created=draft.created,
            expires=0.0,
            status=end.status,
            door=draft.door,
            model=draft.model,
            parent=draft.parent,
            open_calls=end.open_calls,
            family=self._family,  # but no upstream, because none has stored it
            size=self._past_bytes + sum([part_size(part) for part in parts]),
        )
        remember(Link(head, request, parts))

    def _with_open_calls(self, end: AnswerEnd) -> AnswerEnd:
        return structs.replace(end, open_calls=open_call_ids(self._notes.outcome()))

    def _fail(self, end: AnswerEnd, last: bytes, problem: ErrorInfo) -> bytes:
        """Return the bytes to send in place of an end that was not stored."""
        self.problem = problem
        if end.fail is None:  # the frames already end with a failure
            return last
        before, _, after = last.rpartition(end.frames)
        return before + end.fail(problem) + after

    async def end_body(self, body: bytes) -> bytes:
        """Store a body before it is sent. Returns the body, with the gateway's id if the upstream's id is already taken.

        Raises:
            StoreError: the body is not stored, and must not be sent.
        """
        end = self._notes.end
        if end is None and self.draft.door == "responses":
            end = await offload(len(body), terminal.read_body_end, body)
            end = None if end is None else self._with_open_calls(end)
        if end is None:
            return body
        if not self.is_storing:
            await self._add_to_conversation(end)
            if self._remember is not None:
                await self._pass_on(end, self._remember)
            return body
        try:
            await self._store_body(end)
        except RepeatedId:
            own = self.draft.id
            body = await offload(len(body), set_members, body, {"id": dumps_text(own)})
            await self._store_body(structs.replace(end, id=own, body=body))
        return body

    async def _store_body(self, end: AnswerEnd) -> None:
        if end.id != self.draft.id:
            # Remembers the id for the next answer; for this one the store decides.
            self.repeats(end.id)
        if await self._store(end, None):
            raise StoreConflict(cancelled_error().message)

    def close(self) -> None:
        """End the exchange. A response that was begun but did not end is cancelled, or deleted if nothing was sent."""
        self._managed.running.discard(self)
        self._wake()
        # A cycle: it refers to the encoder, and the encoder to the notes.
        self._end = self._notes.end = None
        if self._held is not None and self._held.is_held:
            self._managed.spawn(self._held.let_go())
        if not self._is_over and (self.is_begun or self._beginning is not None):
            self._is_over = True
            self._managed.spawn(self._abandon())

    async def give_up(self) -> None:
        """Release claim and hold before an error is sent as the whole answer, so that the client can retry at once."""
        if self._held is not None and self._held.is_held and not self._has_begun:
            await self._held.let_go()
        if self.is_begun and not self._has_begun and not self._is_over:
            self._is_over = True
            await self._abandon()

    async def renew_hold(self) -> None:
        """Renew the hold on the conversation, or stop the exchange if it is lost."""
        held = self._held
        if held is None or not held.is_held or self.is_ending:
            return
        try:
            await held.renew()
        except StoreHeld as error:
            held.is_held = False
            if not (self.is_ending or self._is_over):
                self._stop(_unstored(error))
        except StoreError:
            pass  # the next renewal tries again; an end that comes first needs none

    def begin_soon(self) -> None:
        """Start a task that begins the response in the store, so that others see that it runs."""
        if self.draft.only_waiting or not self.is_storing:
            return
        if self._beginning is None and not self._is_over and self.key is not None:
            self._beginning = self._managed.spawn(self._begin())

    async def begin_now(self) -> None:
        """Begin the response in the store and wait until it is stored."""
        self.begin_soon()
        if self._beginning is not None:
            await asyncio.shield(self._beginning)

    def lose(self) -> None:
        """Stop the exchange: the response was cancelled or deleted, perhaps on another node."""
        # A response whose end is being stored also counts as no longer running, once the write is done.
        if not (self.is_ending or self._is_over):
            self._stop(cancelled_error())

    async def _begin(self) -> None:
        notes = self._notes
        opening = notes.opening
        body = terminal.read_opening(notes.first_frame) if opening is None else opening()
        draft = structs.replace(self.draft, id=notes.response_id or self.draft.id, body=body)
        with suppress(StoreError):  # storing the end tries again
            await self._managed.call("begin", lambda store: store.begin(draft))
            self.is_begun = True

    async def _store(self, end: AnswerEnd, stream: StreamBuffer | None) -> bool:
        """Store the end. Returns whether the response was cancelled meanwhile, and so not stored."""
        whole = end
        if self.draft.only_waiting and not end.open_calls:
            if not self.is_begun:
                await self._add_to_conversation(end)
                return False
            end = _without_content(end)  # settles the claim
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        ending = StoredEnd(
            status=end.status,
            body=end.body,
            stream=stream,
            open_calls=end.open_calls,
            upstream=self._upstream,
            family=self._family,
            needs_lease=self.draft.background,
            items=await self._added(end),
        )
        self.is_ending = True
        try:
            status = await self._try_to_store(end, ending)
        finally:
            self.is_ending = False
        self._is_over = True
        if self._held is not None:
            # Stored apart from the conversation, which belongs to another owner than a response that only waits.
            if self.draft.conversation is None:
                await self._held.add(whole)
            elif status != "cancelled":
                self._held.is_held = False
        return status == "cancelled"

    async def _try_to_store(self, end: AnswerEnd, ending: StoredEnd) -> str:
        until = time.monotonic() + self._managed.settings.lease
        while True:
            try:
                return await self._managed.call(
                    "store", lambda store: self._write(store, end, ending)
                )
            except StoreUnavailable:
                is_late = time.monotonic() >= until or self._managed.is_closed
                if not self.draft.background or is_late:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _added(self, end: AnswerEnd) -> tuple[ConversationItem, ...]:
        """Return what the response adds to its conversation in the same write."""
        if self._held is None or self.draft.conversation is None:
            return ()
        return await offload(len(end.body), self._held.items, end)

    async def _write(self, store: Store, end: AnswerEnd, ending: StoredEnd) -> str:
        owner, response_id = self.draft.owner, end.id
        if self._is_tried and await _is_stored(store, (owner, response_id), ending):
            return ending.status
        self._is_tried = True
        is_begun = self.is_begun and self.key == (owner, response_id)
        draft = structs.replace(self.draft, id=response_id)
        try:
            if is_begun:
                finished = store.finish(owner, response_id, ending)
                return await _with_items(store, (owner, response_id), end.items, finished)
            put = store.put(draft, ending)
            await _with_items(store, (owner, response_id), end.items, put)
        except StoreMissing:
            if not is_begun:
                raise
            # The owner has deleted the response meanwhile: nothing is stored, and the conversation is not changed.
            if self._held is not None:
                await self._held.let_go()
        except StoreConflict:
            if not (draft.claims or draft.background or draft.conversation):
                return await self._meet(store, draft, ending)
            # A write that was stopped may have happened after the check above.
            if not await _is_stored(store, (owner, response_id), ending):
                raise
        return ending.status

    async def _meet(self, store: Store, draft: Draft, ending: StoredEnd) -> str:
        """Store the end where the store already has a response with this id. Content that a client got is not replaced.

        Raises:
            RepeatedId: the stored response is a different one.
        """
        (link,) = await store.chain(draft.owner, draft.id, depth=1)
        status = link.head.status
        # For example the rehearsal: it gives the same answer to the same request, under the same id.
        is_same = (
            link.request == remove_credentials(draft.request) and link.head.parent == draft.parent
        )
        if status == "in_progress" and (is_same or link.head.created == draft.created):
            # A twin that will end alike, or this response itself: `begin` raised although the store had written it.
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
        """Whether the upstream gave this id to the answer before, which was to a different request."""
        last = self._managed.last_named.get(self._upstream)
        self._managed.last_named[self._upstream] = (response_id, self.draft.request)
        if last is None or last[0] != response_id or last[1] == self.draft.request:
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
        # A background response without an end has failed, when its lease ends; nobody has cancelled it.
        if not self.is_begun or key is None or self.draft.background:
            return
        with suppress(StoreError):
            if self._has_begun:
                await self._managed.call("cancel", lambda store: store.cancel(*key))
            else:
                await self._managed.call("forget", lambda store: forget(store, key))


async def _is_stored(store: Store, key: Key, ending: StoredEnd) -> bool:
    """Whether this end is stored: a write that was stopped may have happened all the same."""
    try:
        return (await store.read(*key)).body == ending.body
    except StoreMissing:
        return False


def _with_items(
    store: Store, key: Key, items: tuple[str, ...], write: Awaitable[T]
) -> Awaitable[T]:
    """Return `write`, joined in one commit with the response of each item whose id does not name its response."""
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


async def forget(store: Store, key: Key) -> None:
    """Remove a response that was begun and sent nothing, and release its claim. Raises StoreMissing: it was not begun."""
    await store.cancel(*key)
    await store.delete(*key)


def _unstored(error: StoreError) -> ErrorInfo:
    info = error_info(error)
    message = f"the response could not be stored: {error.message}"
    return ErrorInfo(kind=info.kind, message=message, status=info.status)


def _without_content(end: AnswerEnd) -> AnswerEnd:
    fields: dict[str, object] = {"id": end.id, "object": "response", "status": end.status}
    return structs.replace(end, body=dumps({**fields, "output": []}), items=())


def _message_body(message_id: str, outcome: Outcome) -> bytes:
    """Encode the body of a streamed message; a failed message keeps the parts it sent before the failure."""
    if outcome.error is not None or not outcome.completed:
        choices = tuple([structs.replace(choice, finish=None) for choice in outcome.choices])
        outcome = structs.replace(outcome, choices=choices, error=None, completed=True)
    codec = CODECS["messages"]
    book = answer_book(codec.losses, {})
    return codec.write_body(outcome, EncodeContext(response_id=message_id), book)
