"""What every engine does: one suite for all of them."""

import asyncio
from random import Random

import pytest
from msgspec import structs

from dragoman._json import Raw
from dragoman.errors import StoreConflict, StoreMissing, StoreTooLarge
from dragoman.model.parts import Extra, Reasoning, Seal, Text
from dragoman.model.request import Request, Turn
from dragoman.store.contract import MAX_CHAIN
from dragoman.store.engine_store import Store
from dragoman.store.records import Escrowed, StoreStats
from store_help import OWNER, Bench, call_ending, draft, ending, said


def test_what_was_put_is_read_back_whole(bench: Bench) -> None:
    made = draft(inherits=True)
    over = ending(
        stream=b"data: {}\n\n" * 200, upstream="u", family="openai", open_calls=("call_1",)
    )

    async def work(store: Store) -> None:
        await store.put(made, over)
        head = await store.head(OWNER, "resp_1")
        assert (head.id, head.owner, head.parent, head.door) == ("resp_1", OWNER, None, "responses")
        assert (head.status, head.model, head.created) == ("completed", "m", made.created)
        assert (head.upstream, head.family, head.open_calls) == ("u", "openai", ("call_1",))
        assert head.inherits
        assert head.continued_by is None
        assert not head.is_settled
        assert head.expires == bench.clock.now + 1000.0
        assert head.size > 0
        sent = await store.read(OWNER, "resp_1", stream=True)
        assert (sent.head, sent.body, sent.stream) == (head, over.body, b"data: {}\n\n" * 200)
        assert (await store.read(OWNER, "resp_1")).stream is None
        (link,) = await store.chain(OWNER, "resp_1")
        assert (link.head, link.request, link.parts) == (head, made.request, said())

    bench.run(work)


def test_answer_that_was_not_streamed_has_no_stream(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft(), ending())
        assert (await store.read(OWNER, "resp_1", stream=True)).stream is None

    bench.run(work)


def test_running_response_is_seen_and_then_ends(bench: Bench) -> None:
    made = draft(body=b'{"status":"in_progress"}')

    async def work(store: Store) -> None:
        await store.begin(made)
        sent = await store.read(OWNER, "resp_1", stream=True)
        assert (sent.head.status, sent.body, sent.stream) == ("in_progress", made.body, None)
        (link,) = await store.chain(OWNER, "resp_1")
        assert link.parts is None
        assert (
            await store.finish(OWNER, "resp_1", ending(stream=b"x", status="incomplete"))
            == "incomplete"
        )
        after = await store.read(OWNER, "resp_1", stream=True)
        assert (after.head.status, after.body, after.stream) == ("incomplete", ending().body, b"x")
        assert (await store.chain(OWNER, "resp_1"))[0].parts == said()

    bench.run(work)


def test_size_counts_what_is_kept(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending())
        await store.begin(draft("b", body=b"early words"))
        await store.finish(OWNER, "b", ending())
        sizes = [(await store.head(OWNER, name)).size for name in "ab"]
        assert sizes[0] == sizes[1]
        assert await store.stats() == StoreStats(responses=2, seals=0, size=sum(sizes))

    bench.run(work)


def test_id_that_is_stored_is_refused(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft(), ending("first"))
        with pytest.raises(StoreConflict, match="resp_1"):
            await store.put(draft(), ending("second"))
        with pytest.raises(StoreConflict):
            await store.begin(draft())
        (link,) = await store.chain(OWNER, "resp_1")
        assert link.parts == said("first")

    bench.run(work)


def test_id_may_be_used_again_when_the_other_has_expired(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft(), ending("first"))
        bench.clock.now += 1001
        await store.put(draft(), ending("second"))
        (link,) = await store.chain(OWNER, "resp_1")
        assert link.parts == said("second")
        assert (await store.stats()).responses == 1

    bench.run(work)


def test_response_that_ended_does_not_end_again(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft(), ending("first"))
        with pytest.raises(StoreConflict, match="ended as completed"):
            await store.finish(OWNER, "resp_1", ending("second"))
        with pytest.raises(StoreMissing):
            await store.finish(OWNER, "resp_2", ending())

    bench.run(work)


def test_nobody_sees_what_is_anothers(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        await store.put_seals(OWNER, "anthropic", {"call_1": Escrowed()})
        with pytest.raises(StoreMissing):
            await store.head("owner-2", "resp_1")
        with pytest.raises(StoreMissing):
            await store.read("owner-2", "resp_1")
        with pytest.raises(StoreMissing):
            await store.chain("owner-2", "resp_1")
        with pytest.raises(StoreMissing):
            await store.claim("owner-2", "resp_1", by="x")
        with pytest.raises(StoreMissing):
            await store.cancel("owner-2", "resp_1")
        with pytest.raises(StoreMissing):
            await store.delete("owner-2", "resp_1")
        with pytest.raises(StoreMissing):
            await store.finish("owner-2", "resp_1", ending())
        assert await store.renew([("owner-2", "resp_1")]) == {("owner-2", "resp_1")}
        assert await store.get_seals("owner-2", "anthropic", ["call_1"]) == {}
        # and the same id may be another's too
        await store.put(draft(owner="owner-2"), ending())
        assert (await store.head(OWNER, "resp_1")).status == "in_progress"

    bench.run(work)


def test_another_owners_response_is_no_parent(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a", owner="owner-2"), ending())
        await store.put(draft("b", parent="a"), ending())
        with pytest.raises(StoreMissing) as caught:
            await store.chain(OWNER, "b")
        assert caught.value.response_id == "a"

    bench.run(work)


def test_chain_goes_to_the_beginning_the_oldest_first(bench: Bench) -> None:
    async def work(store: Store) -> None:
        parent = None
        for number in range(30):
            await store.put(draft(f"r{number}", f"q{number}", parent=parent), ending(f"a{number}"))
            parent = f"r{number}"
        await store.put(draft("branch", parent="r3"), ending())
        links = await store.chain(OWNER, "r29")
        assert [link.head.id for link in links] == [f"r{number}" for number in range(30)]
        assert [link.parts for link in links] == [said(f"a{n}") for n in range(30)]
        branch = await store.chain(OWNER, "branch")
        assert [link.head.id for link in branch] == ["r0", "r1", "r2", "r3", "branch"]
        last = await store.chain(OWNER, "r29", depth=2)
        assert [link.head.id for link in last] == ["r28", "r29"]
        assert len(await store.chain(OWNER, "r29", depth=1)) == 1

    bench.run(work)


def test_chain_says_which_response_is_missing(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending())
        await store.put(draft("b", parent="a"), ending())
        await store.put(draft("c", parent="b"), ending())
        await store.delete(OWNER, "a")
        with pytest.raises(StoreMissing, match="'a', which 'b' continues") as caught:
            await store.chain(OWNER, "c")
        assert caught.value.response_id == "a"
        # what is asked for can still be had
        assert [link.head.id for link in await store.chain(OWNER, "c", depth=2)] == ["b", "c"]
        with pytest.raises(StoreMissing) as caught:
            await store.chain(OWNER, "nothing")
        assert caught.value.response_id == "nothing"

    bench.run(work)


def test_chain_beyond_its_bound_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.store.engine_store.MAX_CHAIN", 5)
    monkeypatch.setattr("dragoman.store.engine.MAX_CHAIN", 5)

    async def work(store: Store) -> None:
        parent = None
        for number in range(6):
            await store.put(draft(f"r{number}", parent=parent), ending())
            parent = f"r{number}"
        assert len(await store.chain(OWNER, "r4")) == 5
        with pytest.raises(StoreTooLarge, match="at most 5 responses"):
            await store.chain(OWNER, "r5")

    bench.run(work)


def test_chain_of_one_response_too_many_does_not_lose_its_beginning() -> None:
    async def work(store: Store) -> None:
        parent = None
        for number in range(MAX_CHAIN + 1):
            await store.put(draft(f"r{number}", parent=parent), ending())
            parent = f"r{number}"
        assert len(await store.chain(OWNER, f"r{MAX_CHAIN - 1}")) == MAX_CHAIN
        with pytest.raises(StoreTooLarge, match=f"at most {MAX_CHAIN:,} responses"):
            await store.chain(OWNER, f"r{MAX_CHAIN}")

    Bench("memory:").run(work)


def test_conversation_that_is_large_only_when_unpacked_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.store.engine_store.MAX_UNPACKED_BYTES", 10_000)

    async def work(store: Store) -> None:
        parent = None
        for number in range(3):
            text = "x" * 4_000
            await store.put(draft(f"r{number}", text, parent=parent), ending())
            parent = f"r{number}"
        assert len(await store.chain(OWNER, "r1")) == 2
        with pytest.raises(StoreTooLarge, match="at most 10,000 bytes"):
            await store.chain(OWNER, "r2")
        assert len(await store.chain(OWNER, "r2", depth=1)) == 1

    bench.run(work)


@pytest.mark.parametrize(
    "place", ["engine_store", "engine", "sqlite.operations", "postgres.engine"]
)
def test_limits_of_a_chain_are_read_in_one_place(place: str) -> None:
    module = __import__(f"dragoman.store.{place}", fromlist=["MAX_CHAIN_BYTES"])
    assert module.MAX_CHAIN_BYTES == 64 * 1024 * 1024


def test_chain_of_too_many_bytes_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("engine_store", "engine", "sqlite.operations", "postgres.engine"):
        monkeypatch.setattr(f"dragoman.store.{place}.MAX_CHAIN_BYTES", 900)

    async def work(store: Store) -> None:
        parent = None
        for number in range(6):
            await store.put(draft(f"r{number}", parent=parent), ending())
            parent = f"r{number}"
        with pytest.raises(StoreTooLarge, match="900 bytes"):
            await store.chain(OWNER, "r5")
        assert len(await store.chain(OWNER, "r1")) == 2

    bench.run(work)


def test_one_claim_wins_and_the_end_settles_it(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft("a"))
        assert await store.claim(OWNER, "a", by="b") == "running"
        await store.finish(OWNER, "a", call_ending("call_1"))
        assert await store.claim(OWNER, "a", by="b") == "won"
        assert await store.claim(OWNER, "a", by="b") == "won"
        assert await store.claim(OWNER, "a", by="c") == "taken"
        head = await store.head(OWNER, "a")
        assert (head.continued_by, head.is_settled) == ("b", False)
        await store.begin(draft("b", parent="a", claims=True))
        await store.finish(OWNER, "b", ending())
        head = await store.head(OWNER, "a")
        assert (head.continued_by, head.is_settled) == ("b", True)
        bench.clock.now += 500
        assert await store.claim(OWNER, "a", by="c") == "taken"
        assert await store.claim(OWNER, "a", by="b") == "taken"
        await store.release(OWNER, "a", by="b")
        assert (await store.head(OWNER, "a")).is_settled

    bench.run(work)


def test_put_settles_a_claim_too(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        await store.claim(OWNER, "a", by="b")
        await store.put(draft("b", parent="a", claims=True), ending())
        assert (await store.head(OWNER, "a")).is_settled

    bench.run(work)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_continuation_that_failed_gives_the_claim_back(bench: Bench, status: str) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        await store.claim(OWNER, "a", by="b")
        await store.put(draft("b", parent="a", claims=True), ending(status=status))
        assert await store.claim(OWNER, "a", by="c") == "won"
        await store.begin(draft("c", parent="a", claims=True))
        await store.finish(OWNER, "c", ending(status=status))
        assert (await store.head(OWNER, "a")).continued_by is None

    bench.run(work)


def test_claim_can_be_released(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        await store.claim(OWNER, "a", by="b")
        await store.release(OWNER, "a", by="c")
        assert await store.claim(OWNER, "a", by="c") == "taken"
        await store.release(OWNER, "a", by="b")
        assert await store.claim(OWNER, "a", by="c") == "won"
        await store.release(OWNER, "nothing", by="b")

    bench.run(work)


def test_claim_of_the_dead_is_void_and_the_late_one_is_refused(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        await store.claim(OWNER, "a", by="b")
        await store.begin(draft("b", parent="a", claims=True))
        bench.clock.now += 61
        assert (await store.head(OWNER, "a")).continued_by is None
        assert (await store.head(OWNER, "b")).status == "failed"
        assert await store.claim(OWNER, "a", by="c") == "won"
        with pytest.raises(StoreConflict, match="hold the claim"):
            await store.finish(OWNER, "b", ending())
        # an end that gives back has nothing to give, and takes nothing from the other
        assert await store.finish(OWNER, "b", ending(status="failed")) == "failed"
        await store.put(draft("c", parent="a", claims=True), ending())
        assert (await store.head(OWNER, "a")).continued_by == "c"

    bench.run(work)


def test_nobody_continues_with_a_claim_that_is_anothers(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        with pytest.raises(StoreConflict):
            await store.begin(draft("b", parent="a", claims=True))
        await store.claim(OWNER, "a", by="c")
        with pytest.raises(StoreConflict):
            await store.put(draft("b", parent="a", claims=True), ending())
        with pytest.raises(StoreConflict):
            await store.begin(draft("b", parent="nothing", claims=True))
        # a branch needs no claim
        await store.put(draft("b", parent="a"), ending())
        assert (await store.head(OWNER, "a")).continued_by == "c"

    bench.run(work)


def test_claim_on_what_was_deleted_meanwhile_is_lost(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        await store.claim(OWNER, "a", by="b")
        await store.begin(draft("b", parent="a", claims=True))
        await store.delete(OWNER, "a")
        with pytest.raises(StoreConflict):
            await store.finish(OWNER, "b", ending())
        assert await store.renew([(OWNER, "b")]) == frozenset()
        assert await store.cancel(OWNER, "b") == "cancelled"

    bench.run(work)


def test_of_fifty_claims_at_once_one_wins(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        async with bench.open() as other:
            # Memory is not shared between stores: there both are the same one.
            stores = (store, store if store.engine == "memory" else other)
            results = await asyncio.gather(
                *(stores[n % 2].claim(OWNER, "a", by=f"b{n}") for n in range(50))
            )
        assert sorted(results) == ["taken"] * 49 + ["won"]
        winner = f"b{results.index('won')}"
        assert (await store.head(OWNER, "a")).continued_by == winner

    bench.run(work)


def test_lease_is_renewed_with_its_claim(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        await store.claim(OWNER, "a", by="b")
        await store.begin(draft("b", parent="a", claims=True))
        await store.begin(draft("plain"))
        for _ in range(5):
            bench.clock.now += 50
            assert await store.renew([(OWNER, "b"), (OWNER, "plain")]) == frozenset()
        assert (await store.head(OWNER, "b")).status == "in_progress"
        assert (await store.head(OWNER, "plain")).status == "in_progress"
        assert await store.claim(OWNER, "a", by="c") == "taken"
        assert await store.renew([]) == frozenset()

    bench.run(work)


def test_renewing_reports_what_runs_no_more(bench: Bench) -> None:
    async def work(store: Store) -> None:
        for name in "abcd":
            await store.begin(draft(name))
        await store.cancel(OWNER, "a")
        await store.delete(OWNER, "b")
        await store.finish(OWNER, "c", ending())
        keys = [(OWNER, name) for name in "abcd"]
        assert await store.renew(keys) == set(keys[:3])

    bench.run(work)


def test_cancelled_response_stays_cancelled(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), call_ending("call_1"))
        await store.claim(OWNER, "a", by="b")
        await store.begin(draft("b", parent="a", claims=True))
        assert await store.cancel(OWNER, "b") == "cancelled"
        assert await store.cancel(OWNER, "b") == "cancelled"
        assert (await store.head(OWNER, "a")).continued_by is None
        assert await store.finish(OWNER, "b", ending()) == "cancelled"
        sent = await store.read(OWNER, "b")
        assert (sent.head.status, sent.body) == ("cancelled", b"")
        assert await store.cancel(OWNER, "a") == "completed"
        with pytest.raises(StoreMissing):
            await store.cancel(OWNER, "nothing")

    bench.run(work)


def test_deleted_response_is_gone(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.begin(draft())
        await store.delete(OWNER, "resp_1")
        for read in (store.head, store.read, store.chain, store.delete):
            with pytest.raises(StoreMissing):
                await read(OWNER, "resp_1")
        with pytest.raises(StoreMissing):
            await store.finish(OWNER, "resp_1", ending())
        assert await store.stats() == StoreStats(responses=0, seals=0, size=0)

    bench.run(work)


def test_calls_and_items_may_have_ids_of_any_length(bench: Bench) -> None:
    """Some gateways put a signature into the id of a call."""
    numbers = Random(7)
    ids = ["".join(numbers.choices("abcdefghijklmnop\u0416", k=length)) for length in (2000, 9000)]
    escrow = {
        name: Escrowed(seals=(Seal("thought", f'"{at}"', "item"),)) for at, name in enumerate(ids)
    }

    async def work(store: Store) -> None:
        await store.put_seals(OWNER, "openai", escrow)
        await store.put_items(OWNER, "resp_1", ids)
        assert await store.get_seals(OWNER, "openai", [*ids, "other"]) == escrow
        assert await store.find_items(OWNER, [*ids, "other"]) == dict.fromkeys(ids, "resp_1")

    bench.run(work)


def test_seals_are_kept_by_call_and_family(bench: Bench) -> None:
    first = Escrowed(
        before=(Reasoning(summary=("thought",), seals=(Seal("signature", "sig"),)),),
        seals=(Seal("thought", '{"google":{}}', "item"),),
    )
    second = Escrowed(seals=(Seal("encrypted", "gAAA"),))

    async def work(store: Store) -> None:
        await store.put_seals(OWNER, "anthropic", {"call_1": first, "call_2": second})
        await store.put_seals(OWNER, "openai", {"call_1": second})
        await store.put_seals(OWNER, "openai", {})
        calls = ["call_1", "call_2", "call_3", "call_1"]
        assert await store.get_seals(OWNER, "anthropic", calls) == {
            "call_1": first,
            "call_2": second,
        }
        assert await store.get_seals(OWNER, "openai", calls) == {"call_1": second}
        assert await store.get_seals(OWNER, "google", calls) == {}
        assert await store.get_seals(OWNER, "openai", []) == {}
        await store.put_seals(OWNER, "openai", {"call_1": first})
        assert await store.get_seals(OWNER, "openai", calls) == {"call_1": first}
        assert (await store.stats()).seals == 3
        bench.clock.now += 1001
        assert await store.get_seals(OWNER, "openai", calls) == {}
        swept = await store.expire()
        assert (swept.seals, swept.responses, swept.more) == (3, 0, False)
        assert await store.stats() == StoreStats(responses=0, seals=0, size=0)

    bench.run(work)


def test_what_has_expired_is_not_found_swept_or_not(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending())
        await store.begin(draft("b"))
        bench.clock.now += 999
        assert (await store.expire()).responses == 0
        await store.head(OWNER, "a")
        bench.clock.now += 2
        for read in (store.head, store.read, store.chain, store.delete, store.cancel):
            with pytest.raises(StoreMissing):
                await read(OWNER, "b")
        with pytest.raises(StoreMissing):
            await store.finish(OWNER, "b", ending())
        with pytest.raises(StoreMissing):
            await store.claim(OWNER, "a", by="x")
        size = (await store.stats()).size
        swept = await store.expire()
        assert (swept.size, swept.more) == (size, False)
        assert await store.stats() == StoreStats(responses=0, seals=0, size=0)

    bench.run(work)


def test_sweep_goes_as_far_as_its_limit(bench: Bench) -> None:
    async def work(store: Store) -> None:
        for number in range(5):
            await store.put(draft(f"r{number}"), ending())
            bench.clock.now += 1
        bench.clock.now += 2000
        sweeps = [await store.expire(limit=2) for _ in range(4)]
        assert [(swept.responses, swept.more) for swept in sweeps] == [
            (2, True),
            (2, True),
            (1, False),
            (0, False),
        ]

    bench.run(work)


def test_conversation_that_goes_on_keeps_its_beginning(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending())
        await store.put(draft("aside", parent="a"), ending())
        parent = "a"
        for number in range(10):
            bench.clock.now += 400
            name = f"r{number}"
            await store.put(draft(name, parent=parent), ending())
            parent = name
            await store.expire()
        links = await store.chain(OWNER, parent)
        assert len(links) == 11
        lives = [link.head.expires - bench.clock.now for link in links]
        assert all(1000 <= life <= 1020 for life in lives)
        # a branch that nobody went on with has gone
        with pytest.raises(StoreMissing):
            await store.head(OWNER, "aside")

    bench.run(work)


def test_beginning_is_not_written_anew_each_time(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending())
        bench.clock.now += 100
        await store.put(draft("b", parent="a"), ending())
        first = (await store.head(OWNER, "a")).expires
        bench.clock.now += 10
        await store.put(draft("c", parent="b"), ending())
        assert (await store.head(OWNER, "a")).expires == first
        assert (await store.head(OWNER, "c")).expires == first

    bench.run(work)


def test_what_expires_first_goes_first_beyond_the_cap(bench: Bench) -> None:
    async def size(store: Store) -> int:
        await store.put(draft("r0"), ending())
        one = (await store.stats()).size
        await store.delete(OWNER, "r0")
        return one

    one = bench.run(size)

    async def work(store: Store) -> None:
        for number in range(8):
            await store.put(draft(f"r{number}"), ending())
            bench.clock.now += 1
        await store.put_seals(OWNER, "openai", {"call_1": Escrowed()})
        await store.expire()
        left = await store.stats()
        assert left.size <= one * 5
        assert left.seals == 1
        assert left.responses in (3, 4)
        await store.head(OWNER, "r7")
        with pytest.raises(StoreMissing):
            await store.head(OWNER, "r3")
        assert await store.expire() == structs.replace(await store.expire(), more=False)

    bench.run(work, max_bytes=one * 5)


def test_nothing_goes_while_the_content_is_within_the_cap(bench: Bench) -> None:
    async def work(store: Store) -> None:
        for number in range(5):
            await store.put(draft(f"r{number}"), ending())
        assert (await store.expire()).responses == 0
        assert (await store.stats()).responses == 5

    # The files are larger than this by far, their content is not.
    bench.run(work, max_bytes=4000)


def test_seals_go_first_if_they_expire_first(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put_seals(OWNER, "openai", {"call_1": Escrowed()})
        bench.clock.now += 1
        await store.put(draft("a"), ending())
        while (await store.expire()).more:
            pass
        assert (await store.stats()).seals == 0
        assert (await store.head(OWNER, "a")).status == "completed"

    async def size(store: Store) -> int:
        await store.put(draft("a"), ending())
        found = (await store.stats()).size
        await store.delete(OWNER, "a")
        return found

    # room for the response, and for little more: what was just acknowledged stays
    bench.run(work, max_bytes=bench.run(size) + 10)


def test_sweep_beyond_the_cap_goes_on_while_there_is_more(lasting: Bench) -> None:
    async def work(store: Store) -> None:
        for number in range(10):
            await store.put(draft(f"r{number}"), ending())
            lasting.clock.now += 1
        swept = await store.expire(limit=3)
        assert (swept.responses, swept.more) == (3, True)
        while (await store.expire(limit=3)).more:
            pass
        assert (await store.stats()).responses == 1

    lasting.run(work, max_bytes=400)


@pytest.mark.parametrize("cap", ["max_bytes", "max_record_bytes"])
def test_value_beyond_a_cap_is_refused_with_its_name(bench: Bench, cap: str) -> None:
    noise = Random(1).randbytes(5000).hex()

    async def work(store: Store) -> None:
        with pytest.raises(StoreTooLarge, match=cap):
            await store.begin(draft(text=noise))
        with pytest.raises(StoreTooLarge, match=cap):
            await store.put(draft(), ending(noise))
        await store.begin(draft())
        with pytest.raises(StoreTooLarge, match=cap):
            await store.finish(OWNER, "resp_1", ending(noise))
        sealed = Escrowed(before=(Reasoning(summary=(noise,)),))
        with pytest.raises(StoreTooLarge, match=cap):
            await store.put_seals(OWNER, "openai", {"call_1": sealed})
        assert await store.finish(OWNER, "resp_1", ending()) == "completed"

    bench.run(work, **{cap: 1500})


def test_large_values_are_kept_whole(bench: Bench) -> None:
    text = "漢字 \u2028 " * 100_000
    stream = b"data: x\n\n" * 100_000

    async def work(store: Store) -> None:
        await store.put(draft(text=text), ending(text, stream=stream))
        (link,) = await store.chain(OWNER, "resp_1")
        assert link.request.turns[0].parts == (Text(text=text),)
        assert link.parts == said(text)
        assert (await store.read(OWNER, "resp_1", stream=True)).stream == stream

    bench.run(work)


@pytest.mark.parametrize("name", ["resp_\ud83d", "resp_\0", "", "r" * 2000, "'; --", "%s%(id)s{}"])
def test_any_text_is_an_id(bench: Bench, name: str) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(StoreMissing):
            await store.head(OWNER, name)
        await store.put(draft(name, model=name, owner=name), call_ending(name, upstream=name))
        assert (await store.head(name, name)).status == "completed"
        assert await store.claim(name, name, by=name) == "won"
        await store.release(name, name, by=name)
        await store.put_seals(name, name, {name: Escrowed()})
        assert await store.get_seals(name, name, [name]) == {name: Escrowed()}
        await store.begin(draft("child", owner=name, parent=name))
        assert await store.renew([(name, "child"), (name, name)]) == {(name, name)}
        assert len(await store.chain(name, "child")) == 2

    bench.run(work)


def test_secrets_of_tools_are_not_stored(bench: Bench) -> None:
    extra = Extra("messages", {"mcp_servers": Raw(b'[{"url":"u","authorization_token":"hush"}]')})
    request = Request(turns=(Turn(role="user"),), extra=extra)

    async def work(store: Store) -> None:
        await store.put(draft(request=request), ending())
        (link,) = await store.chain(OWNER, "resp_1")
        assert link.request.extra == Extra("messages", {"mcp_servers": Raw(b'[{"url":"u"}]')})

    bench.run(work)


def test_state_is_shared_and_outlives_a_store(lasting: Bench) -> None:
    async def work(store: Store) -> None:
        async with lasting.open() as other:
            await store.put(draft("a"), call_ending("call_1"))
            assert await other.claim(OWNER, "a", by="b") == "won"
            await other.begin(draft("b", parent="a", claims=True))
            await store.cancel(OWNER, "b")
            assert await other.renew([(OWNER, "b")]) == {(OWNER, "b")}
        await store.close()
        await store.close()

    lasting.run(work)
    assert lasting.run(lambda store: store.head(OWNER, "b")).status == "cancelled"


def test_store_answers_a_ping_and_names_its_engine(bench: Bench) -> None:
    async def work(store: Store) -> str:
        await store.ping()
        return store.engine

    assert bench.settings.url.startswith(bench.run(work))
