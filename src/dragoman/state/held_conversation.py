"""A conversation that a response continues.

    take ─► past, add_input ─► (renew)* ─► items, or add ─► release

A response holds its conversation while it runs, on whatever node: others that would continue or change it are refused
(`conversation_locked`), as at OpenAI. A node renews its holds; the hold of a node that died lapses. The keeper stores the
response's input and output in the same write as the response (`items`), or alone if the response itself is not stored (`add`).
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress

from dragoman.core.credentials import remove_from_item
from dragoman.core.ids import response_of
from dragoman.core.store_notes import AnswerEnd
from dragoman.dialects.responses.conversations import (
    NewItems,
    StoredItem,
    complete,
    mint_id,
    output_items,
    read_items,
    references_of,
    rename,
    resolve,
)
from dragoman.dialects.responses.turns import EarlierItems
from dragoman.errors import RequestRefused, StoreError, StoreHeld, StoreMissing, StoreTooLarge
from dragoman.model.request import Turn
from dragoman.offload import offload
from dragoman.state.managed_store import ManagedStore
from dragoman.store.contract import MAX_CHAIN_BYTES, Key
from dragoman.store.records import ConversationItem, StoredConversation


class Missing(RequestRefused):
    """A request names a response, an item, a thread or a conversation that the store does not have."""

    kind = "not_found"
    status = 404


class HeldConversation:
    """One conversation, held for one response. `position`: where the response's items begin. `is_kept`: a keeper has it.

    past, past_bytes: the items before the response, and their size.
    """

    __slots__ = (
        "_by",
        "_input",
        "_is_tried",
        "_managed",
        "_owner",
        "_taken",
        "id",
        "is_held",
        "is_kept",
        "past",
        "past_bytes",
        "position",
    )

    def __init__(self, managed: ManagedStore, key: Key, by: str) -> None:
        self._managed = managed
        self._owner, self.id = key
        self._by = by
        self._taken: set[str] = set()
        self._input: list[StoredItem] = []
        self._is_tried = False
        self.is_held = False
        self.is_kept = False
        self.position = 0
        self.past = EarlierItems()
        self.past_bytes = 0

    @contextmanager
    def given_back(self) -> Generator[None]:
        """Give back the hold at the end of the block unless a keeper has it by then."""
        try:
            yield
        finally:
            if self.is_held and not self.is_kept:
                self._managed.spawn(self.let_go())

    async def take(self) -> None:
        """Take the hold, and read the items.

        Raises:
            StoreMissing: there is no such conversation. RequestRefused: another response holds it.
        """
        # Also if the write is cancelled: it may have happened, and then the hold must be given back.
        self.is_held = True
        try:
            found = await self._hold()
        except StoreHeld as error:
            self.is_held = False
            raise locked() from error
        except StoreMissing:
            self.is_held = False
            raise
        self.position = found.position
        await self.read()

    async def read(self) -> None:
        """Read the items. Raises StoreMissing."""
        items = await self._managed.call(
            "items", lambda store: store.conversations.items(self._owner, self.id)
        )
        self._taken = {item.id for item in items}
        self.past = await decode_items(items)
        self.past_bytes = sum([len(item.data) for item in items])

    async def add_input(self, sent: NewItems) -> tuple[Turn, ...] | None:
        """Note the input of the response. Returns its turns, with the ids that the conversation gives them.

        None if an item has credentials: they are sent with this request, and not stored.

        Raises:
            RequestRefused: an item cannot be used, is unknown, or is in the conversation already.
        """
        referred: set[str] = set()
        for item_id in references_of(sent):
            # Before they are read: many references to one item would make as many copies of it.
            if item_id in self._taken or item_id in referred:
                raise _repeated(item_id)
            referred.add(item_id)
        items = await complete_items(self._managed, self._owner, sent, f"input of {self._by}")
        self._input = [
            StoredItem(item.id, remove_from_item(item.turn, item.data), item.turn) for item in items
        ]
        for item in items:
            if item.id in self._taken:
                raise _repeated(item.id)
            self._taken.add(item.id)
        is_plain = all(new.data is old.data for new, old in zip(self._input, items, strict=True))
        return tuple([item.turn for item in items]) if is_plain else None

    def items(self, end: AnswerEnd) -> tuple[ConversationItem, ...]:
        """Return what the response adds to the conversation: nothing if it failed."""
        if end.status not in ("completed", "incomplete"):
            return ()
        taken = set(self._taken)
        added = [ConversationItem(item.id, item.data) for item in self._input]
        for number, (item_id, data) in enumerate(output_items(end.body, f"output of {self._by}")):
            name, made = item_id, data
            if item_id in taken:  # some upstreams number their items from one in every answer
                name = mint_id(data, f"output {number} of {self._by}")
                made = rename(data, name)
            taken.add(name)
            added.append(ConversationItem(name, made))
        return tuple(added)

    async def add(self, end: AnswerEnd) -> None:
        """Add the response's items without the response, and give back the hold. Raises StoreError."""
        items = await offload(len(end.body), self.items, end)
        if not items:
            await self.release()
            return
        is_tried, self._is_tried = self._is_tried, True
        try:
            with suppress(StoreMissing):  # the owner has deleted the conversation meanwhile
                await self._managed.call(
                    "add_items",
                    lambda store: store.conversations.add(self._owner, self.id, items, by=self._by),
                )
        except StoreHeld:
            # A write that was stopped may have happened all the same.
            if not (is_tried and await self._has(items[0].id)):
                raise
        self.is_held = False

    async def _has(self, item_id: str) -> bool:
        try:
            await self._managed.call(
                "items", lambda store: store.conversations.item(self._owner, self.id, item_id)
            )
        except StoreMissing:
            return False
        return True

    async def renew(self) -> None:
        """Raises StoreHeld: the hold had lapsed, and another response took it. Other StoreError."""
        await self._hold()
        if not self.is_held:  # the response has ended meanwhile, and this write took the hold again
            await self._give_back()

    async def release(self) -> None:
        """Give back the hold. Raises StoreError."""
        self.is_held = False
        await self._give_back()

    async def let_go(self) -> None:
        """Give back the hold if the store works; otherwise it lapses."""
        with suppress(StoreError):
            await self.release()

    async def _give_back(self) -> None:
        await self._managed.call(
            "release",
            lambda store: store.conversations.release(self._owner, self.id, by=self._by),
        )

    async def _hold(self) -> StoredConversation:
        return await self._managed.call(
            "hold", lambda store: store.conversations.hold(self._owner, self.id, by=self._by)
        )


async def decode_items(items: Sequence[ConversationItem]) -> EarlierItems:
    """Decode stored items. Raises RequestRefused only if another program wrote them."""
    size = sum([len(item.data) for item in items])
    return await offload(size, read_items, [item.data for item in items])


async def complete_items(
    managed: ManagedStore, owner: str, sent: NewItems, seed: str
) -> list[StoredItem]:
    """Return the items that a client sent as a conversation stores them, with those that it only refers to.

    Raises:
        RequestRefused: an item cannot be used, or an item that is referred to is not stored.
    """
    wanted = references_of(sent)
    if wanted:
        known = await find_items(managed, owner, wanted)
        for item_id in wanted:
            if item_id not in known:
                raise item_missing(item_id)
        sent = resolve(sent, known)
    size = sum([len(bytes(entry)) for entry in sent.entries])
    return await offload(size, complete, sent, seed)


async def find_items(
    managed: ManagedStore, owner: str, item_ids: Iterable[str]
) -> dict[str, bytes]:
    """Return the stored items with these ids: of conversations, or of the output of responses. Raises StoreError."""
    wanted = set(item_ids)
    found = await managed.call("items", lambda store: store.conversations.find_items(owner, wanted))
    known = {item_id: item.data for item_id, item in found.items()}
    rest = wanted - known.keys()
    size = sum(map(len, known.values()))
    check_referred(size)
    for response_id in await responses_of(managed, owner, rest):
        for name, data in await _output(managed, owner, response_id):
            if name in rest:
                known[name] = data
                size += len(data)
        check_referred(size)
    return known


def check_referred(size: int) -> None:
    """Raises StoreTooLarge: the items that a request refers to would make it larger than a request may be."""
    if size > MAX_CHAIN_BYTES:
        raise StoreTooLarge(
            f"expected references to items of at most {MAX_CHAIN_BYTES:,} bytes in all, there are more"
        )


async def responses_of(managed: ManagedStore, owner: str, item_ids: Iterable[str]) -> list[str]:
    """Return the ids of the responses that these items belong to, as far as the items or the store name them."""
    places = {item_id: response_of(item_id) for item_id in item_ids}
    foreign = [item_id for item_id, place in places.items() if place is None]
    if foreign:
        places.update(await managed.call("items", lambda store: store.find_items(owner, foreign)))
    return sorted({place for place in places.values() if place is not None})


async def _output(managed: ManagedStore, owner: str, response_id: str) -> list[tuple[str, bytes]]:
    try:
        stored = await managed.call("read", lambda store: store.read(owner, response_id))
    except StoreMissing:
        return []
    if stored.head.door != "responses" or not stored.body:
        return []
    return await offload(len(stored.body), output_items, stored.body, response_id)


def locked() -> RequestRefused:
    """The refusal of a request that another response is in the way of. OpenAI answers 400, and its agents retry on this code."""
    return RequestRefused(
        "Another process is currently operating on this conversation. Please retry in a few seconds.",
        param="conversation",
        code="conversation_locked",
    )


def conversation_missing(conversation_id: str) -> Missing:
    return Missing(f"Conversation with id '{conversation_id}' not found.", param="conversation")


def item_missing(item_id: str) -> Missing:
    return Missing(
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input.",
        param="input",
    )


def _repeated(item_id: str) -> RequestRefused:
    return RequestRefused(
        f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
        param="input",
    )
