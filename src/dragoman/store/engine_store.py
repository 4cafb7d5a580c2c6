"""The store, over any engine: packs records, removes credentials and checks the caps. `open_store` opens one by its URL.

`config.environment` says which URLs there are.
"""

import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager

from dragoman._json import dumps
from dragoman.config.environment import sqlite_place, store_engine
from dragoman.config.settings import StoreSettings
from dragoman.core.credentials import remove_credentials
from dragoman.core.surrogates import replace_lone
from dragoman.errors import ConfigError, MalformedJson, StoreDamaged, StoreTooLarge
from dragoman.model.parts import Part, part_size
from dragoman.offload import LARGE, offload
from dragoman.store.codec import (
    pack,
    pack_names,
    read_parts,
    unpack_escrowed,
    unpack_old_answer,
    unpack_request,
    weigh_request,
)
from dragoman.store.contract import (
    MAX_CHAIN,
    MAX_CHAIN_BYTES,
    MAX_PAGE,
    MAX_UNPACKED_BYTES,
    SWEEP_BATCH,
    WAITING_SECONDS,
    ClaimResult,
    Key,
)
from dragoman.store.engine import (
    ConversationEngine,
    ConversationRow,
    ItemRow,
    Row,
    RowEnd,
    StoredContent,
    StoreEngine,
    StreamPiece,
    broken_chain,
    check_size,
    head_of,
    missing,
)
from dragoman.store.key_usage import (
    KeyChange,
    KeyRequest,
    KeyUsage,
    LimitReached,
    admit,
    read_state,
    report,
    usage_of,
)
from dragoman.store.packing import pack_bytes, unpack_bytes, unpack_stream
from dragoman.store.records import (
    ConversationItem,
    Draft,
    Escrowed,
    ItemPage,
    Link,
    NewConversation,
    Status,
    Stored,
    StoredConversation,
    StoredEnd,
    StoredHead,
    StoreStats,
    StreamProgress,
    Swept,
)
from dragoman.store.sqlite.engine import memory_engine, open_sqlite

# Compressed JSON grows about eightfold when it is unpacked: decides whether another thread decodes it.
_GROWTH = 8
# Items are stored in the table of seals, under a provider family that does not exist.
_ITEMS = "items of responses"


class Store:
    """An open store: `contract` has its guarantees. Safe for any number of tasks of one event loop; not for threads or forked processes.

    Every method may raise `StoreUnavailable`; methods that read content may also raise `StoreDamaged`.
    """

    __slots__ = ("_clock", "_engine", "_most", "_settings", "conversations")

    def __init__(
        self,
        engine: StoreEngine,
        settings: StoreSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._most = min(settings.max_record_bytes, settings.max_bytes)
        self._clock = clock
        self.conversations = Conversations(engine.conversations, settings, clock)

    @property
    def engine(self) -> str:
        """`memory`, `sqlite` or `postgresql`."""
        return self._engine.name

    async def begin(self, draft: Draft) -> None:
        """Store a response that runs.

        Raises:
            StoreConflict: the owner has a response with this id, or another response holds the claim.
            StoreTooLarge: the request exceeds a cap.
        """
        await self._insert(draft, None, self._settings.lease)

    async def renew(self, running: Collection[Key]) -> frozenset[Key]:
        """Extend the leases of running responses, and their claims. Returns the responses that no longer run."""
        if not running:
            return frozenset()
        now = self._clock()
        asked = _asked(running)
        lost = await self._engine.renew(list(asked), now + self._settings.lease, now)
        return frozenset([asked[key] for key in lost])

    async def lost(self, running: Collection[Key]) -> frozenset[Key]:
        """Return the responses that no longer run, like `renew`, but only read: cheap enough for once a second."""
        if not running:
            return frozenset()
        asked = _asked(running)
        lost = await self._engine.lost(list(asked), self._clock())
        return frozenset([asked[key] for key in lost])

    async def append(
        self, owner: str, response_id: str, place: int, sent: bytes, *, body: bytes = b""
    ) -> None:
        """Add the bytes from `place` on to the stream of a running response. The same place may be written again.

        body: the response object as it is now; empty: it has not changed. The end of the response replaces both.

        Raises:
            StoreMissing: the response was deleted, or has expired. StoreConflict: it has ended, or was cancelled.
            StoreTooLarge: the bytes exceed a cap.
        """
        data = await offload(len(sent), pack_bytes, sent)
        packed = pack_bytes(body) if body else None
        check_size(len(data) + len(packed or b""), self._settings, "an answer")
        piece = StreamPiece(place, place + len(sent), data)
        await self._engine.append(_key(owner, response_id), piece, packed, self._clock())

    async def progress(self, owner: str, response_id: str, *, start: int = 0) -> StreamProgress:
        """Return the head, and the appended bytes from the byte `start` on; none once it has ended. Raises StoreMissing."""
        now = self._clock()
        found = await self._engine.pieces(_key(owner, response_id), start, now)
        if found is None:
            raise missing(response_id)
        row, pieces = found
        with _readable():
            size = sum(len(piece.data) for piece in pieces) * _GROWTH
            return StreamProgress(head_of(row, now), await offload(size, _joined, pieces, start))

    async def finish(self, owner: str, response_id: str, ending: StoredEnd) -> Status:
        """End a response that was begun, settle its claim, and return its status.

        A response that was cancelled meanwhile stays cancelled, and the ending is not stored.

        Raises:
            StoreMissing: the response was deleted, or has expired. StoreTooLarge: the ending exceeds a cap.
            StoreConflict: the response has ended before, another response holds the claim, or the ending comes after the
                lease that it needs.
        """
        over = await offload(_weigh(ending), self._over, ending)
        key = _key(owner, response_id)
        return await self._engine.finish(key, over, self._clock(), self._settings.ttl)

    async def put(self, draft: Draft, ending: StoredEnd) -> None:
        """`begin` and `finish` in one write.

        Raises:
            StoreConflict: the owner has a response with this id, or another response holds the claim.
            StoreTooLarge: the request or the ending exceeds a cap.
        """
        await self._insert(draft, ending, 0.0)

    async def head(self, owner: str, response_id: str) -> StoredHead:
        """Raises StoreMissing."""
        now = self._clock()
        row = await self._engine.row(_key(owner, response_id), now)
        if row is None:
            raise missing(response_id)
        with _readable():
            return head_of(row, now)

    async def read(self, owner: str, response_id: str, *, stream: bool = False) -> Stored:
        """Return the body that was sent to the client; with `stream`, the stream as well. Raises StoreMissing."""
        now = self._clock()
        content = await self._engine.content(_key(owner, response_id), now, stream=stream)
        if content is None:
            raise missing(response_id)
        with _readable():
            size = (len(content.body) + len(content.stream or b"")) * _GROWTH
            body = await offload(size, unpack_bytes, content.body)
            sent = None
            if stream:
                sent = await offload(size, unpack_stream, content.body, content.stream)
            return Stored(head_of(content.row, now), body, sent)

    async def chain(
        self, owner: str, response_id: str, *, depth: int | None = None
    ) -> tuple[Link, ...]:
        """Return the response and its ancestors, the oldest first. `depth`: return only this many, the last ones.

        Raises:
            StoreMissing: the response or an ancestor is not stored; `response_id` of the error says which.
            StoreTooLarge: there are more than `MAX_CHAIN` responses, or they take more than `MAX_CHAIN_BYTES`, or
                `MAX_UNPACKED_BYTES` unpacked.
        """
        now = self._clock()
        most = MAX_CHAIN if depth is None else depth
        shares = await self._engine.chain(_key(owner, response_id), now, depth=most)
        if not shares:
            raise missing(response_id)
        with _readable():
            size = sum(map(_size, shares))
            oldest = shares[-1].row
            is_cut = oldest.parent is not None and len(shares) != depth
            if size > MAX_CHAIN_BYTES or is_cut:
                raise broken_chain(oldest, count=len(shares), size=size)
            return await offload(size * _GROWTH, _links, shares, now)

    async def claim(self, owner: str, response_id: str, *, by: str) -> ClaimResult:
        """Take the right to continue a response, for the response whose id will be `by`. Raises StoreMissing."""
        now = self._clock()
        until = now + self._settings.lease
        return await self._engine.claim(_key(owner, response_id), _clean(by), until, now)

    async def release(self, owner: str, response_id: str, *, by: str) -> None:
        """Give back a claim that `by` holds and has not settled; does nothing if `by` holds none."""
        await self._engine.release(_key(owner, response_id), _clean(by))

    async def cancel(self, owner: str, response_id: str) -> Status:
        """Cancel a running response and give back its claim. Returns its status, which is unchanged if it had ended.

        Raises:
            StoreMissing
        """
        return await self._engine.cancel(_key(owner, response_id), self._clock())

    async def delete(self, owner: str, response_id: str) -> None:
        """Remove a response with all its content. Responses that continue it can no longer be continued.

        Raises:
            StoreMissing
        """
        if not await self._engine.delete(_key(owner, response_id), self._clock()):
            raise missing(response_id)

    async def put_seals(self, owner: str, family: str, escrow: Mapping[str, Escrowed]) -> None:
        """Store seals by the client's call id; only this provider family gets them back. A later value replaces an earlier one.

        Raises:
            StoreTooLarge: the seals of a call exceed a cap.
        """
        if not escrow:
            return
        packed = {_clean(call_id): pack(value) for call_id, value in escrow.items()}
        for data in packed.values():
            check_size(len(data), self._settings, "the seals of a call")
        expires = self._clock() + self._settings.ttl
        await self._engine.put_seals(_clean(owner), _clean(family), packed, expires)

    async def get_seals(
        self, owner: str, family: str, call_ids: Collection[str]
    ) -> dict[str, Escrowed]:
        """Return the stored seals by call id, without the calls that have none."""
        found = await self._find(owner, family, call_ids)
        return {call_id: unpack_escrowed(data) for call_id, data in found.items()}

    async def put_items(self, owner: str, response_id: str, item_ids: Collection[str]) -> None:
        """Store which response these items belong to, for `ttl` seconds. A later entry of an item replaces an earlier one."""
        if not item_ids:
            return
        place = pack_bytes(_clean(response_id).encode("utf-8"))
        packed = {_clean(item_id): place for item_id in item_ids}
        expires = self._clock() + self._settings.ttl
        await self._engine.put_seals(_clean(owner), _ITEMS, packed, expires)

    async def find_items(self, owner: str, item_ids: Collection[str]) -> dict[str, str]:
        """Return the id of the response of each item, without the items that are not stored."""
        found = await self._find(owner, _ITEMS, item_ids)
        return {item_id: unpack_bytes(data).decode("utf-8") for item_id, data in found.items()}

    async def count_key(
        self, name: str, change: KeyChange, asked: KeyRequest | None = None
    ) -> LimitReached | None:
        """Store what a worker reports of a key, then admit the request that asks; return the limit that refuses it, if one does.

        A request that is admitted is counted, and counts as running for `store.lease` seconds unless it is renewed.
        """

        def update(data: bytes | None) -> tuple[bytes, LimitReached | None]:
            with _readable():
                state = read_state(data)
                now = self._clock()
                until = now + self._settings.lease
                report(state, change, now, until)
                reached = None if asked is None else admit(state, asked, now, until)
                return dumps(state), reached

        return await self._engine.change_key(_clean(name), update)

    async def read_keys(self, names: Collection[str]) -> dict[str, KeyUsage]:
        """Return what each of these keys has used in the windows that now is in; zeros for a key that was never used."""
        found = await self._engine.key_states({_clean(name) for name in names})
        now = self._clock()
        return {name: usage_of(read_state(found.get(_clean(name))), now) for name in names}

    async def expire(self, *, limit: int = SWEEP_BATCH) -> Swept:
        """Remove expired rows, and then those that expire next while the total exceeds `max_bytes`; about `limit` rows."""
        return await self._engine.expire(self._clock(), limit)

    async def stats(self) -> StoreStats:
        """Return how much is stored. Counts every row: fit for a page that a person opens, or once a minute."""
        return await self._engine.stats()

    async def ping(self) -> None:
        """Raises StoreUnavailable if the store does not answer."""
        await self._engine.ping()

    async def close(self) -> None:
        """Finish pending operations and release all resources. A second call does nothing."""
        await self._engine.close()

    async def _find(self, owner: str, family: str, ids: Collection[str]) -> dict[str, bytes]:
        """Return what the table of seals has, by the ids as they were asked for."""
        if not ids:
            return {}
        names = {each: _clean(each) for each in ids}
        found = await self._engine.get_seals(
            _clean(owner), _clean(family), set(names.values()), self._clock()
        )
        return {each: found[name] for each, name in names.items() if name in found}

    async def _insert(self, draft: Draft, ending: StoredEnd | None, lease: float) -> None:
        now = self._clock()
        until = now + lease
        ttl = self._settings.ttl
        if draft.only_waiting:
            ttl = min(ttl, WAITING_SECONDS)

        def entry() -> StoredContent:
            try:
                return self._content(draft, ending, until)
            except (MalformedJson, RecursionError) as error:
                raise StoreTooLarge(
                    "expected a request that can be stored as JSON, it nests too deep or has a value that is not JSON"
                ) from error

        weight = weigh_request(draft.request) + (0 if ending is None else _weigh(ending))
        if weight < LARGE:
            await self._engine.insert(entry, now, ttl)
        else:
            made = await offload(weight, entry)
            await self._engine.insert(lambda: made, self._clock(), ttl)

    def _content(self, draft: Draft, ending: StoredEnd | None, lease: float) -> StoredContent:
        """Return the row and content of a response. `lease`: until when it counts as running without a renewal."""
        request = pack(remove_credentials(draft.request))
        body = pack_bytes(draft.body)
        size = len(request) + len(body)
        if size > self._most:
            check_size(size, self._settings, "a request", is_sent=True)
        over = None if ending is None else self._over(ending)
        parent = None if draft.parent is None else _clean(draft.parent)
        row = Row(
            id=_clean(draft.id),
            owner=_clean(draft.owner),
            parent=parent,
            created=draft.created,
            expires=0.0,
            status="in_progress" if over is None else over.status,
            lease=lease,
            door=draft.door,
            model=_clean(draft.model),
            upstream="" if over is None else over.upstream,
            family="" if over is None else over.family,
            inherits=draft.inherits,
            claims=draft.claims and parent is not None,
            open_calls="" if over is None else over.open_calls,
            claimed_by=None,
            claimed_until=None,
            size=size if over is None else len(request) + over.size,
        )
        if draft.conversation is not None:
            row.conversation, row.position = _clean(draft.conversation), draft.position
        if over is None:
            return StoredContent(row, request, body=body)
        return StoredContent(row, request, b"", over.body, over.stream, over.items)

    def _over(self, ending: StoredEnd) -> RowEnd:
        over = RowEnd(
            status=ending.status,
            open_calls=pack_names(ending.open_calls),
            upstream=_clean(ending.upstream),
            family=_clean(ending.family),
            body=pack_bytes(ending.body),
            stream=None if ending.stream is None else ending.stream.packed(),
            needs_lease=ending.needs_lease,
            items=_pack_items(ending.items, self._settings) if ending.items else (),
        )
        if over.size > self._most:
            check_size(over.size, self._settings, "an answer")
        return over


class Conversations:
    """The conversations in a store. Every method but `create` and `find_items` raises `StoreMissing` if there is none with this id."""

    __slots__ = ("_clock", "_engine", "_settings")

    def __init__(
        self, engine: ConversationEngine, settings: StoreSettings, clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._clock = clock

    async def create(self, new: NewConversation) -> StoredConversation:
        """Raises StoreConflict: the owner has a conversation with this id, or two items have one id. StoreTooLarge."""
        items = await self._packed(new.items)
        now = self._clock()
        metadata = new.metadata.decode("utf-8")
        row = ConversationRow(
            id=_clean(new.id),
            owner=_clean(new.owner),
            created=new.created,
            expires=now + self._settings.ttl,
            metadata=metadata,
            position=0,
            count=0,
            size=len(metadata),
        )
        await self._engine.insert(row, items, now)
        return await self.read(new.owner, new.id)

    async def read(self, owner: str, conversation_id: str) -> StoredConversation:
        return _stored(await self._engine.row(_key(owner, conversation_id), self._clock()))

    async def update(
        self, owner: str, conversation_id: str, metadata: bytes | None = None
    ) -> StoredConversation:
        """Replace the metadata, if there is new metadata, and extend the expiry."""
        now = self._clock()
        text = None if metadata is None else metadata.decode("utf-8")
        expires = now + self._settings.ttl
        key = _key(owner, conversation_id)
        return _stored(await self._engine.update(key, text, expires, now))

    async def delete(self, owner: str, conversation_id: str) -> None:
        """Remove a conversation with all its items, held or not."""
        await self._engine.delete(_key(owner, conversation_id), self._clock())

    async def hold(self, owner: str, conversation_id: str, *, by: str) -> StoredConversation:
        """Give the hold to the response whose id is `by`, or renew it. Raises StoreHeld: another response has it."""
        now = self._clock()
        until = now + self._settings.lease
        expires = now + self._settings.ttl
        key = _key(owner, conversation_id)
        return _stored(await self._engine.hold(key, _clean(by), until, expires, now))

    async def release(self, owner: str, conversation_id: str, *, by: str) -> None:
        """Give back a hold; does nothing if `by` has none, or if there is no such conversation."""
        await self._engine.release(_key(owner, conversation_id), _clean(by))

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: tuple[ConversationItem, ...],
        *,
        by: str | None = None,
    ) -> StoredConversation:
        """Add items at the end. `by`: the response that holds the conversation; its hold is released.

        Raises:
            StoreHeld: another response holds the conversation, or `by` holds it no longer.
            StoreConflict: the conversation has an item with one of these ids. StoreTooLarge: a cap or `MAX_ITEMS` is exceeded.
        """
        packed = await self._packed(items)
        now = self._clock()
        key = _key(owner, conversation_id)
        holder = None if by is None else _clean(by)
        expires = now + self._settings.ttl
        return _stored(await self._engine.add(key, packed, holder, expires, now))

    async def page(
        self,
        owner: str,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int = MAX_PAGE,
        is_descending: bool = False,
    ) -> ItemPage:
        """Return at most `limit` items after the item `after`, in this order; reads no others.

        Raises:
            StoreMissing: there is no conversation, or no item `after`, which the error's `response_id` then names.
        """
        found = await self._engine.page(
            _key(owner, conversation_id),
            None if after is None else _clean(after),
            limit + 1,
            self._clock(),
            is_descending=is_descending,
        )
        return ItemPage(await _unpacked(found[:limit]), more=len(found) > limit)

    async def items(
        self, owner: str, conversation_id: str, *, before: int | None = None
    ) -> tuple[ConversationItem, ...]:
        """Return all items, or those at positions below `before`, in one query. Raises StoreTooLarge."""
        key = _key(owner, conversation_id)
        found = await self._engine.before(key, before, self._clock())
        if sum(map(_item_size, found)) > MAX_CHAIN_BYTES:
            raise StoreTooLarge(
                f"expected a conversation of at most {MAX_CHAIN_BYTES:,} bytes, {conversation_id!r} has more"
            )
        return await _unpacked(found)

    async def item(self, owner: str, conversation_id: str, item_id: str) -> ConversationItem:
        """Raises StoreMissing."""
        key = _key(owner, conversation_id)
        found = await self._engine.item(key, _clean(item_id), self._clock())
        return (await _unpacked([found]))[0]

    async def delete_item(
        self, owner: str, conversation_id: str, item_id: str
    ) -> StoredConversation:
        """Raises StoreMissing. StoreHeld: a response holds the conversation."""
        key = _key(owner, conversation_id)
        return _stored(await self._engine.delete_item(key, _clean(item_id), self._clock()))

    async def find_items(
        self, owner: str, item_ids: Collection[str]
    ) -> dict[str, ConversationItem]:
        """Return the items with these ids in any of the owner's conversations, without the ids that none has."""
        if not item_ids:
            return {}
        names = {_clean(item_id) for item_id in item_ids}
        found = await _unpacked(await self._engine.find(_clean(owner), names, self._clock()))
        return {item.id: item for item in found}

    async def _packed(self, items: tuple[ConversationItem, ...]) -> tuple[ItemRow, ...]:
        size = sum([len(item.data) for item in items])
        return await offload(size, _pack_items, items, self._settings)


async def open_store(settings: StoreSettings, *, clock: Callable[[], float] = time.time) -> Store:
    """Connect to the store, and migrate its tables to the newest version.

    Raises:
        ConfigError: the URL names no engine, or an engine that is not installed.
        StoreUnavailable: the store cannot be reached. StoreDamaged: it is another program's, or of a later version.
    """
    return Store(await _open_engine(settings), settings, clock=clock)


async def _open_engine(settings: StoreSettings) -> StoreEngine:
    match store_engine(settings.url):
        case "memory":
            return memory_engine(settings)
        case "sqlite":
            path, synchronous = sqlite_place(settings.url, os.environ)
            return await open_sqlite(path, settings, synchronous=synchronous)
        case _:
            try:
                from dragoman.store.postgres.engine import open_postgres  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise ConfigError(
                    "expected psycopg for a store in PostgreSQL: install dragoman[postgres]"
                ) from error
            return await open_postgres(settings)


def _pack_items(items: Iterable[ConversationItem], settings: StoreSettings) -> tuple[ItemRow, ...]:
    """Raises StoreTooLarge: an item exceeds a cap."""
    packed = tuple([ItemRow(_clean(item.id), pack_bytes(item.data)) for item in items])
    for row in packed:
        check_size(len(row.data), settings, "an item", is_sent=True)
    return packed


async def _unpacked(rows: list[ItemRow]) -> tuple[ConversationItem, ...]:
    with _readable():
        return await offload(sum(map(_item_size, rows)) * _GROWTH, _unpack, rows)


def _unpack(rows: list[ItemRow]) -> tuple[ConversationItem, ...]:
    """Raises StoreTooLarge."""
    items: list[ConversationItem] = []
    size = 0
    for row in rows:
        items.append(ConversationItem(row.id, unpack_bytes(row.data)))
        size += len(items[-1].data)
        _check_unpacked(size)
    return tuple(items)


def _item_size(row: ItemRow) -> int:
    return len(row.data)


def _stored(row: ConversationRow) -> StoredConversation:
    with _readable():
        return StoredConversation(
            id=row.id,
            owner=row.owner,
            created=row.created,
            expires=row.expires,
            metadata=row.metadata.encode("utf-8"),
            position=row.position,
            count=row.count,
            size=row.size,
        )


@contextmanager
def _readable() -> Generator[None]:
    """Translate errors from reading a row whose values this program did not write: a damaged file may contain anything.

    Raises:
        StoreDamaged: the row cannot be read.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreDamaged(f"expected a row of this program in the store: {error}") from error


def _joined(pieces: list[StreamPiece], start: int) -> bytes:
    """Return the bytes from `start` on, as far as no piece is missing."""
    found: list[bytes] = []
    place = start
    for piece in pieces:
        if piece.place > place:
            break
        found.append(unpack_bytes(piece.data)[place - piece.place :])
        place = piece.until
    return b"".join(found)


def _size(content: StoredContent) -> int:
    return len(content.request) + len(content.answer or b"") + len(content.body)


def _links(shares: list[StoredContent], now: float) -> tuple[Link, ...]:
    """Raises StoreTooLarge."""
    links: list[Link] = []
    size = 0
    for share in reversed(shares):
        link = Link(head_of(share.row, now), unpack_request(share.request), _parts(share))
        links.append(link)
        for turn in link.request.turns:
            size += sum(map(part_size, turn.parts))
        size += sum(map(part_size, link.parts or ()))
        _check_unpacked(size)
    return tuple(links)


def _check_unpacked(size: int) -> None:
    if size > MAX_UNPACKED_BYTES:
        raise StoreTooLarge(
            f"expected to read at most {MAX_UNPACKED_BYTES:,} bytes of a conversation at once, there are more"
        )


def _parts(share: StoredContent) -> tuple[Part, ...] | None:
    if share.answer is None:
        return None
    if share.answer:
        return unpack_old_answer(share.answer)
    has_failed = share.row.status not in ("completed", "incomplete")
    return read_parts(share.row.door, unpack_bytes(share.body), has_failed=has_failed)


def _weigh(ending: StoredEnd) -> int:
    """Return how many bytes of the ending are not packed yet."""
    items = sum([len(item.data) for item in ending.items])
    return len(ending.body) + items + (0 if ending.stream is None else ending.stream.loose)


def _asked(running: Collection[Key]) -> dict[Key, Key]:
    """Return the caller's keys by their clean form."""
    return {_key(owner, response_id): (owner, response_id) for owner, response_id in running}


def _key(owner: str, response_id: str) -> Key:
    return _clean(owner), _clean(response_id)


def _clean(text: str) -> str:
    """Return text that every database accepts: ids come from URLs, and model names from any client."""
    if text.isascii() and "\0" not in text:
        return text
    return replace_lone(text).replace("\0", "\ufffd")
