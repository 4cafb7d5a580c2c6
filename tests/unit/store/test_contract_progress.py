"""The stream of a response that runs, as other nodes see it: on every engine."""

import asyncio
from collections.abc import Awaitable
from random import Random

import pytest

from dragoman.errors import StoreConflict, StoreError, StoreMissing, StoreTooLarge
from dragoman.store.engine_store import Store
from dragoman.store.records import StoreStats
from store_help import OWNER, Bench, bounded, draft, ending

ID = "resp_1"
KEY = (OWNER, ID)
LONG = b"data: {}\n\n" * 1000


async def sent(store: Store, start: int = 0) -> bytes:
    return (await store.progress(*KEY, start=start)).sent


def test_what_was_appended_is_read_from_any_byte_on(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft(body=b'{"status":"queued"}'))
        assert (await store.progress(*KEY)).head.status == "in_progress"
        assert await sent(store) == b""
        await store.append(*KEY, 0, LONG, body=b'{"status":"in_progress"}')
        await store.append(*KEY, len(LONG), b"more")
        assert (await store.read(*KEY)).body == b'{"status":"in_progress"}'
        whole = LONG + b"more"
        for start in (0, 1, len(LONG) - 1, len(LONG), len(LONG) + 3, len(whole), len(whole) + 9):
            assert await sent(store, start) == whole[start:]
        # The end of a response is not there before it is stored.
        assert (await store.read(*KEY, stream=True)).stream is None

    bench.run(work)


def test_a_place_that_is_written_again_is_replaced(bench: Bench) -> None:
    """A write whose answer was lost is repeated, by then with more."""

    async def work(store: Store) -> None:
        await store.begin(draft())
        before = (await store.head(*KEY)).size
        await store.append(*KEY, 0, b"one")
        first = (await store.head(*KEY)).size - before
        await store.append(*KEY, 0, b"one two")
        await store.append(*KEY, 7, b" three")
        assert await sent(store) == b"one two three"
        # Whoever had read the first piece goes on in the middle of the second.
        assert await sent(store, 3) == b" two three"
        assert (await store.head(*KEY)).size == before + first + len(b" two") + len(b" three") + 1

    bench.run(work)


def test_bytes_behind_a_gap_are_not_returned(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        await store.append(*KEY, 0, b"one")
        await store.append(*KEY, 10, b"two")
        assert await sent(store) == b"one"
        assert await sent(store, 5) == b""

    bench.run(work)


def test_the_end_replaces_what_was_appended(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        await store.append(*KEY, 0, LONG, body=b"{}")
        await store.finish(*KEY, ending(stream=LONG + b"end"))
        after = await store.progress(*KEY)
        assert (after.head.status, after.sent) == ("completed", b"")
        assert (await store.read(*KEY, stream=True)).stream == LONG + b"end"
        with pytest.raises(StoreConflict, match="completed"):
            await store.append(*KEY, len(LONG), b"late")
        await store.put(draft("resp_2"), ending(stream=LONG + b"end"))
        sizes = [(await store.head(OWNER, name)).size for name in (ID, "resp_2")]
        assert sizes[0] == sizes[1]
        assert await store.stats() == StoreStats(responses=2, seals=0, size=sum(sizes))

    bench.run(work)


def test_a_cancelled_response_keeps_what_was_sent_and_takes_no_more(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        await store.append(*KEY, 0, b"one")
        await store.cancel(*KEY)
        with pytest.raises(StoreConflict, match="cancelled"):
            await store.append(*KEY, 3, b"two")
        assert await store.finish(*KEY, ending(stream=b"one two")) == "cancelled"
        after = await store.progress(*KEY)
        assert (after.head.status, after.sent) == ("cancelled", b"one")

    bench.run(work)


def test_a_response_whose_gateway_died_keeps_what_was_sent(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        await store.append(*KEY, 0, b"one")
        bench.clock.now += 61
        after = await store.progress(*KEY)
        assert (after.head.status, after.sent) == ("failed", b"one")

    bench.run(work)


def test_the_lease_is_a_setting(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        bench.clock.now += 4
        assert (await store.head(*KEY)).status == "in_progress"
        assert await store.renew([KEY]) == frozenset()
        bench.clock.now += 4
        assert (await store.head(*KEY)).status == "in_progress"
        bench.clock.now += 2
        assert (await store.head(*KEY)).status == "failed"

    bench.run(work, lease=5.0)


def test_a_lease_that_has_lapsed_is_not_renewed(bench: Bench) -> None:
    """Others have seen that the response has failed; it must not end otherwise after that."""

    async def work(store: Store) -> None:
        for name in (ID, "resp_2"):
            await store.begin(draft(name))
        bench.clock.now += 61
        assert await store.renew([KEY]) == {KEY}
        assert await store.lost([KEY]) == {KEY}
        with pytest.raises(StoreConflict, match="failed"):
            await store.finish(*KEY, ending(needs_lease=True))
        assert (await store.head(*KEY)).status == "failed"
        # A response whose client waits for it ends all the same.
        assert await store.finish(OWNER, "resp_2", ending()) == "completed"

    bench.run(work)


def test_what_was_appended_goes_with_its_response(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        await store.append(*KEY, 0, LONG)
        await store.delete(*KEY)
        for call in (store.progress(*KEY), store.append(*KEY, 0, b"x")):
            with pytest.raises(StoreMissing):
                await call
        await store.begin(draft())
        assert await sent(store) == b""
        await store.append(*KEY, 0, LONG)
        bench.clock.now += 1001
        for call in (store.progress(*KEY), store.append(*KEY, 0, b"x")):
            with pytest.raises(StoreMissing):
                await call
        # The place of an expired response may be taken before it is swept.
        await store.begin(draft())
        assert await sent(store) == b""
        await store.append(*KEY, 0, LONG)
        bench.clock.now += 1001
        assert (await store.expire()).responses == 1
        assert await store.stats() == StoreStats(responses=0, seals=0, size=0)
        await store.begin(draft())
        assert await sent(store) == b""

    bench.run(work)


def test_nobody_reads_or_writes_anothers_stream(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        with pytest.raises(StoreMissing):
            await store.append("owner-2", ID, 0, b"x")
        with pytest.raises(StoreMissing):
            await store.progress("owner-2", ID)

    bench.run(work)


def test_a_piece_beyond_the_cap_is_refused(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        with pytest.raises(StoreTooLarge, match="an answer"):
            await store.append(*KEY, 0, Random(1).randbytes(5000))
        assert await sent(store) == b""

    bench.run(work, max_record_bytes=400)


def test_what_is_appended_counts_towards_the_cap_of_all(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("old"), ending())
        bench.clock.now += 1
        await store.begin(draft())
        for number in range(40):
            await store.append(*KEY, number * 100, b"%100d" % number)
        while (await store.expire()).more:
            pass
        with pytest.raises(StoreMissing):
            await store.head(OWNER, "old")
        assert (await store.head(*KEY)).status == "in_progress"

    # room for the running response, which takes 4,140 bytes, and not for both
    bench.run(work, max_bytes=4300)


def test_another_process_reads_what_was_appended(lasting: Bench) -> None:
    async def main() -> None:
        async with lasting.open() as one, lasting.open() as two:
            await one.begin(draft())
            await one.append(*KEY, 0, b"one")
            assert await sent(two) == b"one"
            await one.append(*KEY, 3, b"two")
            assert await sent(two, 3) == b"two"
            await one.finish(*KEY, ending(stream=b"onetwo"))
            assert (await two.progress(*KEY)).head.status == "completed"
            assert (await two.read(*KEY, stream=True)).stream == b"onetwo"

    bounded(main())


@pytest.mark.parametrize("rival", ["cancel", "delete"])
def test_a_rival_on_another_node_leaves_nothing_half_done(lasting: Bench, rival: str) -> None:
    """Appends and the end race with a cancellation or a deletion on another node. Exactly one of them counts."""

    async def main() -> None:
        async with lasting.open() as one, lasting.open() as two:
            for number in range(12):
                name = f"resp_{number}"
                await one.begin(draft(name))
                remove = two.cancel if rival == "cancel" else two.delete

                async def write(name: str = name) -> object:
                    await one.append(OWNER, name, 0, b"one")
                    return await one.finish(OWNER, name, ending(stream=b"one"))

                async with asyncio.TaskGroup() as group:
                    work = [_outcome(write()), _outcome(remove(OWNER, name))]
                    order = (1, 0) if number % 2 else (0, 1)
                    tasks = {each: group.create_task(work[each]) for each in order}
                written, removed = tasks[0].result(), tasks[1].result()
                await _check_rivals(two, name, written, removed, rival)

    bounded(main())


async def _outcome(work: Awaitable[object]) -> object:
    try:
        return await work
    except StoreError as error:
        return error


async def _check_rivals(
    store: Store, name: str, written: object, removed: object, rival: str
) -> None:
    try:
        after = await store.progress(OWNER, name)
    except StoreMissing:
        assert rival == "delete"
        assert written == "completed" or isinstance(written, (StoreMissing, StoreConflict))
        return
    assert rival == "cancel"
    assert after.head.status == removed
    if removed == "completed":
        assert written == "completed"
        assert after.sent == b""
        assert (await store.read(OWNER, name, stream=True)).stream == b"one"
    else:
        assert removed == "cancelled"
        assert written == "cancelled" or isinstance(written, StoreError)
        assert (await store.read(OWNER, name, stream=True)).stream is None
