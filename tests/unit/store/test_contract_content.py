"""What every engine does with content that can be had from elsewhere: answers in bodies, streams in pieces, items by id."""

import asyncio

import pytest

from dragoman.core.journal import Deltas, Form
from dragoman.errors import StoreConflict, StoreDamaged
from dragoman.model.parts import Text
from dragoman.store.codec import StreamBuffer
from dragoman.store.contract import Store
from store_help import OWNER, Bench, call_ending, draft, ending

TOLD = (
    b'{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{"type":"message","id":"msg_1",'
    b'"status":"completed","role":"assistant","content":[{"type":"output_text","text":"world","annotations":[]}]}]}'
)


def test_answer_that_its_body_tells_is_read_from_it(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending(answer=None, body=TOLD))
        await store.begin(draft("b", parent="a"))
        await store.finish(OWNER, "b", ending(answer=None, body=TOLD))
        await store.put(draft("c", parent="b"), ending("itself"))
        links = await store.chain(OWNER, "c")
        said = [link.answer.parts[0] for link in links if link.answer is not None]
        assert [part.text for part in said if isinstance(part, Text)] == [
            "world",
            "world",
            "itself",
        ]
        assert said[0].item_id == "msg_1"

    bench.run(work)


def test_answer_whose_body_does_not_tell_it_is_damaged(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("a"), ending(answer=None, body=b"{}"))
        with pytest.raises(StoreDamaged, match="body of an answer"):
            await store.chain(OWNER, "a")
        # A failure has no answer to tell of.
        await store.put(draft("b"), ending(answer=None, body=b"{}", status="failed"))
        (link,) = await store.chain(OWNER, "b")
        assert link.answer is not None
        assert link.answer.error is not None

    bench.run(work)


def test_stream_that_was_packed_in_pieces_is_told_whole(bench: Bench) -> None:
    buffer = StreamBuffer()
    for number in range(3000):
        buffer.add(b"data: %d\n\n" % number)

    async def work(store: Store) -> None:
        await store.put(draft("a"), ending(stream=buffer))
        assert (await store.read(OWNER, "a", stream=True)).stream == buffer.read()

    bench.run(work)


def test_stream_and_the_body_that_it_ends_in_are_told_each_by_itself(bench: Bench) -> None:
    buffer = StreamBuffer()
    deltas = Deltas(Form(b'data: {"delta":', b',"n":', b"}\n\n"), 3, b'"a"\n"b"')
    buffer.add(deltas.frames(), [deltas])
    buffer.add_last(b"data: " + TOLD + b"\n\n")

    async def work(store: Store) -> None:
        over = ending(answer=None, body=TOLD, stream=buffer)
        await store.put(draft("a"), over)
        await store.begin(draft("b", parent="a"))
        await store.finish(OWNER, "b", over)
        for name in "ab":
            told = await store.read(OWNER, name, stream=True)
            assert told.stream == deltas.frames() + b"data: " + TOLD + b"\n\n"
            assert told.body == TOLD
            told = await store.read(OWNER, name)
            assert (told.body, told.stream) == (TOLD, None)
        links = await store.chain(OWNER, "b")
        answers = [link.answer for link in links if link.answer is not None]
        assert answers[0] == answers[1]
        assert answers[0].parts == (Text(text="world", item_id="msg_1"),)

    bench.run(work)


def test_what_runs_no_more_is_told_without_renewing(bench: Bench) -> None:
    async def work(store: Store) -> None:
        for name in "abcd":
            await store.begin(draft(name), lease=60)
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
        assert failed == ["r7", "r3"]
        assert all(isinstance(each, StoreConflict) for each in results if each is not None)
        for number in range(90):
            (*_, link) = await store.chain(OWNER, f"r{number}")
            said = "first" if number == 7 else f"r{number}"
            assert link.answer is not None
            assert link.answer == ending(said).answer
        assert (await store.head(OWNER, "parent")).continued_by == "claiming"

    bench.run(work)
