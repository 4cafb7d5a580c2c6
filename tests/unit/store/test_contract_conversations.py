"""What every engine does with conversations: items in order, one response at a time, nothing half."""

import asyncio
from random import Random

import pytest
from msgspec import structs

from dragoman.errors import StoreConflict, StoreHeld, StoreMissing, StoreTooLarge
from dragoman.store import engine as engine_module
from dragoman.store.contract import MAX_ITEMS
from dragoman.store.engine_store import Store
from dragoman.store.records import ConversationItem, NewConversation, StoredConversation
from store_help import OWNER, Bench, draft, ending

NAME = "conv_1"


def item(number: int) -> ConversationItem:
    return ConversationItem(f"msg_{number}", b'{"id":"msg_%d"}' % number)


def items(*numbers: int) -> tuple[ConversationItem, ...]:
    return tuple(map(item, numbers))


def new(*numbers: int, name: str = NAME, **changes: object) -> NewConversation:
    made = NewConversation(
        id=name, owner=OWNER, created=5.5, metadata=b'{"a":"b"}', items=items(*numbers)
    )
    return structs.replace(made, **changes)


async def names(store: Store, name: str = NAME, owner: str = OWNER) -> list[str]:
    return [each.id for each in await store.conversations.items(owner, name)]


def test_conversation_is_read_back_whole(bench: Bench) -> None:
    async def work(store: Store) -> None:
        made = await store.conversations.create(new(1, 2))
        assert made == StoredConversation(
            id=NAME,
            owner=OWNER,
            created=5.5,
            expires=bench.clock.now + 1000.0,
            metadata=b'{"a":"b"}',
            position=2,
            count=2,
            size=made.size,
        )
        assert made.size > len(b'{"a":"b"}') + len(item(1).data)
        assert await store.conversations.read(OWNER, NAME) == made
        assert await store.conversations.items(OWNER, NAME) == items(1, 2)
        assert await store.conversations.item(OWNER, NAME, "msg_2") == item(2)
        stats = await store.stats()
        assert (stats.conversations, stats.size, stats.responses) == (1, made.size, 0)

    bench.run(work)


def test_nobody_finds_a_conversation_of_another(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        kept = store.conversations
        for question in (
            kept.read("owner-2", NAME),
            kept.update("owner-2", NAME, b"{}"),
            kept.delete("owner-2", NAME),
            kept.hold("owner-2", NAME, by="r"),
            kept.add("owner-2", NAME, items(2)),
            kept.page("owner-2", NAME),
            kept.items("owner-2", NAME),
            kept.item("owner-2", NAME, "msg_1"),
            kept.delete_item("owner-2", NAME, "msg_1"),
        ):
            with pytest.raises(StoreMissing) as missing:
                await question
            assert missing.value.response_id == NAME
        await kept.release("owner-2", NAME, by="r")
        assert await kept.find_items("owner-2", ["msg_1"]) == {}
        # and the same id may be another's too
        await kept.create(new(7, owner="owner-2"))
        assert await names(store, owner="owner-2") == ["msg_7"]
        assert await names(store) == ["msg_1"]

    bench.run(work)


def test_id_that_is_taken_is_refused(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        with pytest.raises(StoreConflict, match=NAME):
            await store.conversations.create(new(2))
        bench.clock.now += 1001
        await store.conversations.create(new(2))
        assert await names(store) == ["msg_2"]

    bench.run(work)


def test_metadata_is_replaced_and_keeps_the_conversation_alive(bench: Bench) -> None:
    async def work(store: Store) -> None:
        before = await store.conversations.create(new())
        bench.clock.now += 900
        after = await store.conversations.update(OWNER, NAME, b'{"longer":"value"}')
        assert (after.metadata, after.expires) == (b'{"longer":"value"}', bench.clock.now + 1000)
        assert after.size - before.size == len(b'{"longer":"value"}') - len(b'{"a":"b"}')
        bench.clock.now += 900
        kept = await store.conversations.update(OWNER, NAME)
        assert (kept.metadata, kept.expires) == (after.metadata, bench.clock.now + 1000)
        assert (await store.stats()).size == after.size

    bench.run(work)


def test_items_that_are_added_follow_one_another(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        bench.clock.now += 10
        grown = await store.conversations.add(OWNER, NAME, items(3, 2))
        assert (grown.count, grown.position, grown.expires) == (3, 3, bench.clock.now + 1000)
        await store.conversations.delete_item(OWNER, NAME, "msg_2")
        left = await store.conversations.add(OWNER, NAME, items(9))
        assert (left.count, left.position) == (3, 4)
        assert await names(store) == ["msg_1", "msg_3", "msg_9"]
        assert (await store.stats()).size == left.size
        before = await store.conversations.items(OWNER, NAME, before=2)
        assert [each.id for each in before] == ["msg_1", "msg_3"]

    bench.run(work)


def test_item_that_is_there_is_not_added_again_nor_those_beside_it(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        for repeated in (items(2, 1), items(2, 2)):
            with pytest.raises(StoreConflict, match="msg_"):
                await store.conversations.add(OWNER, NAME, repeated)
        with pytest.raises(StoreConflict):
            await store.conversations.create(new(5, 5, name="conv_2"))
        assert await names(store) == ["msg_1"]
        with pytest.raises(StoreMissing):
            await store.conversations.read(OWNER, "conv_2")
        # in another conversation the id is free
        await store.conversations.create(new(1, name="conv_2"))

    bench.run(work)


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_join_to_the_whole(bench: Bench, limit: int, is_descending: bool) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(*range(7)))
        await store.conversations.delete_item(OWNER, NAME, "msg_3")
        found: list[str] = []
        after: str | None = None
        while True:
            page = await store.conversations.page(
                OWNER, NAME, after=after, limit=limit, is_descending=is_descending
            )
            assert len(page.items) <= limit
            found += [each.id for each in page.items]
            if not page.more:
                break
            after = found[-1]
        whole = await names(store)
        assert found == (whole[::-1] if is_descending else whole)

    bench.run(work)


def test_page_after_an_item_that_is_gone_is_refused(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        with pytest.raises(StoreMissing) as missing:
            await store.conversations.page(OWNER, NAME, after="msg_2")
        assert missing.value.response_id == "msg_2"
        with pytest.raises(StoreMissing):
            await store.conversations.item(OWNER, NAME, "msg_2")
        with pytest.raises(StoreMissing):
            await store.conversations.delete_item(OWNER, NAME, "msg_2")

    bench.run(work)


def test_one_response_holds_a_conversation(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        held = await store.conversations.hold(OWNER, NAME, by="resp_1")
        assert held.position == 1
        await store.conversations.hold(OWNER, NAME, by="resp_1")  # renewed
        with pytest.raises(StoreHeld, match=NAME):
            await store.conversations.hold(OWNER, NAME, by="resp_2")
        for refused in (
            store.conversations.add(OWNER, NAME, items(2)),
            store.conversations.add(OWNER, NAME, items(2), by="resp_2"),
            store.conversations.delete_item(OWNER, NAME, "msg_1"),
        ):
            with pytest.raises(StoreHeld):
                await refused
        await store.conversations.release(OWNER, NAME, by="resp_2")  # has none
        with pytest.raises(StoreHeld):
            await store.conversations.hold(OWNER, NAME, by="resp_2")
        await store.conversations.add(OWNER, NAME, items(2), by="resp_1")
        assert await names(store) == ["msg_1", "msg_2"]
        await store.conversations.hold(OWNER, NAME, by="resp_2")
        await store.conversations.release(OWNER, NAME, by="resp_2")
        await store.conversations.add(OWNER, NAME, items(3))

    bench.run(work)


def test_hold_of_a_dead_node_lapses_and_its_response_adds_nothing(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        await store.conversations.hold(OWNER, NAME, by="resp_1")
        bench.clock.now += 61
        # nobody took it: the response was only slow
        await store.put(draft(conversation=NAME, position=1), ending(items=items(2)))
        await store.conversations.hold(OWNER, NAME, by="resp_2")
        bench.clock.now += 61
        await store.conversations.hold(OWNER, NAME, by="resp_3")
        with pytest.raises(StoreHeld):
            await store.put(draft("resp_2", conversation=NAME), ending(items=items(5)))
        with pytest.raises(StoreMissing):
            await store.head(OWNER, "resp_2")
        bench.clock.now += 61
        await store.conversations.add(OWNER, NAME, items(6))  # voids the lapsed hold
        with pytest.raises(StoreHeld):
            await store.conversations.add(OWNER, NAME, items(7), by="resp_3")
        assert await names(store) == ["msg_1", "msg_2", "msg_6"]

    bench.run(work)


@pytest.mark.parametrize("is_begun", [False, True])
def test_response_and_its_items_are_one_write(bench: Bench, is_begun: bool) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        held = await store.conversations.hold(OWNER, NAME, by="resp_1")
        made = draft(conversation=NAME, position=held.position)
        over = ending(items=items(2, 3))
        if is_begun:
            await store.begin(made)
            assert await names(store) == ["msg_1"]
            assert (await store.head(OWNER, "resp_1")).conversation == NAME
            assert await store.finish(OWNER, "resp_1", over) == "completed"
        else:
            await store.put(made, over)
        assert await names(store) == ["msg_1", "msg_2", "msg_3"]
        head = await store.head(OWNER, "resp_1")
        assert (head.conversation, head.position, head.status) == (NAME, 1, "completed")
        assert (await store.chain(OWNER, "resp_1"))[0].head == head
        await store.conversations.hold(OWNER, NAME, by="resp_2")  # the end released it

    bench.run(work)


@pytest.mark.parametrize("is_begun", [False, True])
def test_response_that_cannot_add_its_items_is_not_stored(bench: Bench, is_begun: bool) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        await store.conversations.hold(OWNER, NAME, by="resp_1")
        made, over = draft(conversation=NAME), ending(items=items(2, 1))
        if is_begun:
            await store.begin(made)
            with pytest.raises(StoreConflict):
                await store.finish(OWNER, "resp_1", over)
            assert (await store.head(OWNER, "resp_1")).status == "in_progress"
        else:
            with pytest.raises(StoreConflict):
                await store.put(made, over)
            with pytest.raises(StoreMissing):
                await store.head(OWNER, "resp_1")
        assert await names(store) == ["msg_1"]

    bench.run(work)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("is_begun", [False, True])
def test_failed_response_adds_nothing_and_frees_the_conversation(
    bench: Bench, status: str, is_begun: bool
) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        await store.conversations.hold(OWNER, NAME, by="resp_1")
        made, over = draft(conversation=NAME), ending(status=status, items=items(2))
        if is_begun:
            await store.begin(made)
            await store.finish(OWNER, "resp_1", over)
        else:
            await store.put(made, over)
        assert await names(store) == ["msg_1"]
        assert (await store.head(OWNER, "resp_1")).status == status
        await store.conversations.hold(OWNER, NAME, by="resp_2")

    bench.run(work)


@pytest.mark.parametrize("is_begun", [False, True])
def test_response_of_a_deleted_conversation_is_stored_alone(bench: Bench, is_begun: bool) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1))
        await store.conversations.hold(OWNER, NAME, by="resp_1")
        if is_begun:
            await store.begin(draft(conversation=NAME))
        await store.conversations.delete(OWNER, NAME)
        with pytest.raises(StoreMissing):
            await store.conversations.delete(OWNER, NAME)
        if is_begun:
            await store.finish(OWNER, "resp_1", ending(items=items(2)))
        else:
            await store.put(draft(conversation=NAME), ending(items=items(2)))
        assert (await store.head(OWNER, "resp_1")).status == "completed"
        with pytest.raises(StoreMissing):
            await store.conversations.items(OWNER, NAME)
        assert await store.conversations.find_items(OWNER, ["msg_1", "msg_2"]) == {}
        assert (await store.stats()).conversations == 0

    bench.run(work)


def test_of_many_responses_at_once_one_holds(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new())

        async def take(number: int) -> bool:
            try:
                await store.conversations.hold(OWNER, NAME, by=f"resp_{number}")
            except StoreHeld:
                return False
            return True

        assert sum(await asyncio.gather(*map(take, range(40)))) == 1

    bench.run(work)


def test_items_that_many_add_at_once_are_all_there(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new())
        await asyncio.gather(
            *(store.conversations.add(OWNER, NAME, items(2 * n, 2 * n + 1)) for n in range(30))
        )
        found = await names(store)
        assert sorted(found) == sorted(f"msg_{n}" for n in range(60))
        for place in range(0, 60, 2):  # what one call added stays together
            first, second = (int(found[place + each].removeprefix("msg_")) for each in (0, 1))
            assert second == first + 1
        assert (await store.conversations.read(OWNER, NAME)).count == 60

    bench.run(work)


def test_conversation_lives_from_its_last_use_and_goes_whole(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1, 2))
        await store.conversations.create(new(3, name="conv_2"))
        bench.clock.now += 900
        await store.conversations.hold(OWNER, NAME, by="resp_1")
        bench.clock.now += 200
        assert await names(store) == ["msg_1", "msg_2"]
        with pytest.raises(StoreMissing):
            await store.conversations.read(OWNER, "conv_2")
        assert await store.conversations.find_items(OWNER, ["msg_3"]) == {}
        swept = await store.expire()
        assert (swept.conversations, swept.responses, swept.more) == (1, 0, False)
        assert swept.size > 0
        bench.clock.now += 1000
        assert (await store.expire()).conversations == 1
        stats = await store.stats()
        assert (stats.conversations, stats.size) == (0, 0)

    bench.run(work)


def test_cap_takes_whole_conversations_the_oldest_first(bench: Bench) -> None:
    async def work(store: Store) -> None:
        noise = Random(1)
        for number in range(6):
            bench.clock.now += 1
            one = NewConversation(id=f"conv_{number}", owner=OWNER, created=0.0)
            await store.conversations.create(one)
            for each in range(4):
                made = ConversationItem(f"m{each}", noise.randbytes(900))
                await store.conversations.add(OWNER, one.id, (made,))
        while (await store.expire()).more:
            pass
        counts: list[int] = []
        for number in range(6):
            try:
                found = await store.conversations.items(OWNER, f"conv_{number}")
            except StoreMissing:
                counts.append(0)
            else:
                counts.append(len(found))
        assert set(counts) == {0, 4}, counts
        assert counts == sorted(counts)

    bench.run(work, max_bytes=10_000)


def test_limits_of_a_conversation_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ITEMS > 10_000
    monkeypatch.setattr(engine_module, "MAX_ITEMS", 3)

    async def work(store: Store) -> None:
        await store.conversations.create(new(1, 2))
        with pytest.raises(StoreTooLarge, match="4 items"):
            await store.conversations.add(OWNER, NAME, items(3, 4))
        await store.conversations.add(OWNER, NAME, items(3))
        with pytest.raises(StoreTooLarge):
            await store.conversations.create(new(1, 2, 3, 4, name="conv_2"))
        monkeypatch.setattr(engine_module, "MAX_ITEMS", 100)
        noise = bytes(range(256)) * 8
        with pytest.raises(StoreTooLarge, match="max_record_bytes"):
            await store.conversations.add(OWNER, NAME, (ConversationItem("big", noise),))
        assert len(await names(store)) == 3

    bench.run(work, max_record_bytes=200)


def test_items_are_found_by_their_ids_in_any_conversation(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(new(1, 2))
        await store.conversations.create(new(2, 3, name="conv_2"))
        found = await store.conversations.find_items(OWNER, ["msg_1", "msg_2", "msg_3", "msg_4"])
        assert {name: each.id for name, each in found.items()} == {
            name: name for name in ("msg_1", "msg_2", "msg_3")
        }
        assert await store.conversations.find_items(OWNER, []) == {}

    bench.run(work)


def test_hostile_names_are_only_names(bench: Bench) -> None:
    async def work(store: Store) -> None:
        for name in ("'; DROP TABLE conversations; --", "a\0b", "\ud800", "%s", "ключ", "x" * 3000):
            with pytest.raises(StoreMissing):
                await store.conversations.read(OWNER, name)
            with pytest.raises(StoreMissing):
                await store.conversations.page(OWNER, name, after=name)
        await store.conversations.create(new(name="a\0b", metadata=b'{"k":"\\u0000"}'))
        found = await store.conversations.read(OWNER, "a\0b")
        assert found.metadata == b'{"k":"\\u0000"}'
        await store.conversations.add(OWNER, "a\0b", (ConversationItem("i\0\ud800", b"{}"),))
        assert (await store.conversations.item(OWNER, "a\0b", "i\0\ud800")).data == b"{}"

    bench.run(work)


def test_conversations_outlive_their_process(lasting: Bench) -> None:
    async def write(store: Store) -> None:
        await store.conversations.create(new(1))
        await store.conversations.hold(OWNER, NAME, by="resp_1")
        await store.put(draft(conversation=NAME, position=1), ending(items=items(2)))

    async def read(store: Store) -> None:
        assert await names(store) == ["msg_1", "msg_2"]
        assert (await store.head(OWNER, "resp_1")).conversation == NAME

    lasting.run(write)
    lasting.run(read)


def test_items_that_are_large_only_when_unpacked_are_read_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.store.engine_store.MAX_UNPACKED_BYTES", 10_000)
    large = tuple(
        [ConversationItem(f"msg_{number}", b'"' + b"x" * 4_000 + b'"') for number in range(3)]
    )

    async def work(store: Store) -> None:
        await store.conversations.create(new(items=large))
        page = await store.conversations.page(OWNER, NAME, limit=2)
        assert page.items == large[:2]
        assert page.more
        for reading in (
            store.conversations.page(OWNER, NAME),
            store.conversations.items(OWNER, NAME),
            store.conversations.find_items(OWNER, [each.id for each in large]),
        ):
            with pytest.raises(StoreTooLarge, match="at most 10,000 bytes"):
                await reading

    bench.run(work)
