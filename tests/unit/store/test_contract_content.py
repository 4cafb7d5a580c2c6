"""What every engine does with content that can be had from elsewhere: answers in bodies, streams in pieces, items by id."""

import asyncio

import pytest
from msgspec import structs

from dragoman._json import Raw
from dragoman.errors import StoreConflict, StoreDamaged, StoreTooLarge
from dragoman.model.parts import Extra
from dragoman.store.engine_store import Store
from dragoman.store.packing import StreamBuffer
from store_help import OWNER, Bench, call_ending, draft, ending, said

TOLD = ending().body


def test_answer_whose_body_cannot_be_decoded_is_damaged(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending(body=b"{}"))
        with pytest.raises(StoreDamaged, match="body of an answer"):
            await store.chain(OWNER, "a")
        # A failed response needs no answer in its body.
        await store.put(draft("b"), ending(body=b"{}", status="failed"))
        (link,) = await store.chain(OWNER, "b")
        assert link.parts == ()

    bench.run(work)


def test_stream_that_was_packed_in_pieces_is_read_whole(bench: Bench) -> None:
    buffer = StreamBuffer()
    for number in range(3000):
        buffer.add(b"data: %d\n\n" % number)

    async def work(store: Store) -> None:
        await store.put(draft("a"), structs.replace(ending(), stream=buffer))
        assert (await store.read(OWNER, "a", stream=True)).stream == buffer.read()

    bench.run(work)


def test_stream_and_the_body_that_it_ends_in_are_read_separately(bench: Bench) -> None:
    told_stream = b'data: {"delta":"a"}\n\ndata: ' + TOLD + b"\n\n"

    async def work(store: Store) -> None:
        over = ending(stream=told_stream)
        await store.put(draft("a"), over)
        await store.begin(draft("b", parent="a"))
        await store.finish(OWNER, "b", over)
        for name in "ab":
            sent = await store.read(OWNER, name, stream=True)
            assert sent.stream == told_stream
            assert sent.body == TOLD
            sent = await store.read(OWNER, name)
            assert (sent.body, sent.stream) == (TOLD, None)
        links = await store.chain(OWNER, "b")
        assert [link.parts for link in links] == [said(), said()]

    bench.run(work)


@pytest.mark.parametrize("value", [b"[" * 900 + b"]" * 900, b"nothing", b'"\xff"'])
def test_request_that_is_no_json_is_refused_and_delays_no_other(bench: Bench, value: bytes) -> None:
    extra = Extra("responses", {"options": Raw(b'{"token": 1, "more": ' + value + b"}")})
    hostile = draft("b", request=structs.replace(draft().request, extra=extra))

    async def work(store: Store) -> None:
        writes = (store.put(each, ending()) for each in (draft("a"), hostile, draft("c")))
        async with asyncio.timeout(10):
            first, second, third = await asyncio.gather(*writes, return_exceptions=True)
        assert (first, third) == (None, None)
        assert isinstance(second, StoreTooLarge)

    bench.run(work)


def test_what_runs_no_more_is_reported_without_renewing(bench: Bench) -> None:
    async def work(store: Store) -> None:
        for name in "abcd":
            await store.begin(draft(name))
        await store.cancel(OWNER, "a")
        await store.delete(OWNER, "b")
        await store.finish(OWNER, "c", ending())
        keys = [(OWNER, name) for name in "abcd"]
        assert await store.lost(keys) == set(keys[:3])
        assert await store.lost([("owner-2", "d")]) == {("owner-2", "d")}
        assert await store.lost([]) == frozenset()
        bench.clock.now += 61
        assert (await store.head(OWNER, "d")).status == "failed"

    bench.run(work)


def test_items_are_found_by_their_owner_until_they_expire(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put_items(OWNER, "resp_1", ["msg_1", "fc_\0"])
        await store.put_items(OWNER, "resp_2", ["msg_2"])
        await store.put_items(OWNER, "resp_2", [])
        wanted = ["msg_1", "fc_\0", "msg_2", "msg_3"]
        found = {"msg_1": "resp_1", "fc_\0": "resp_1", "msg_2": "resp_2"}
        assert await store.find_items(OWNER, wanted) == found
        assert await store.find_items("owner-2", wanted) == {}
        assert await store.find_items(OWNER, []) == {}
        assert await store.get_seals(OWNER, "openai", wanted) == {}
        await store.put_items(OWNER, "resp_3", ["msg_1"])
        assert await store.find_items(OWNER, ["msg_1"]) == {"msg_1": "resp_3"}
        bench.clock.now += 1001
        assert await store.find_items(OWNER, wanted) == {}

    bench.run(work)


def test_of_many_put_at_once_only_those_whose_id_is_taken_fail(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("r7"), ending("first"))
        await store.put(draft("parent"), call_ending("call_1"))
        assert await store.claim(OWNER, "parent", by="claiming") == "won"
        drafts = [
            draft(f"r{number}", parent="parent" if number % 2 else None) for number in range(90)
        ]
        drafts += [draft("r3"), draft("claiming", parent="parent", claims=True)]
        results = await asyncio.gather(
            *(store.put(each, ending(each.id)) for each in drafts), return_exceptions=True
        )
        failed = [
            each.id for each, result in zip(drafts, results, strict=True) if result is not None
        ]
        assert sorted(failed) == ["r3", "r7"]  # of the two called r3, either one
        assert all(isinstance(each, StoreConflict) for each in results if each is not None)
        for number in range(90):
            (*_, link) = await store.chain(OWNER, f"r{number}")
            assert link.parts == said("first" if number == 7 else f"r{number}")
        assert (await store.head(OWNER, "parent")).continued_by == "claiming"

    bench.run(work)
