"""An answer on its way into the store, and an end that comes twice."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from msgspec import structs

from dragoman.config.settings import StoreSettings
from dragoman.core.fold import unfold
from dragoman.core.losses import answer_book
from dragoman.core.store_notes import StoreNotes
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import CODECS
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.translate import make_encoder
from dragoman.errors import StoreMissing
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import Call, Dialect, Text
from dragoman.model.request import Request
from dragoman.state import managed_store
from dragoman.state.keeper import Keeper
from dragoman.state.managed_store import ManagedStore
from dragoman.store.contract import Key
from dragoman.store.records import Draft, Link
from store_help import draft, ending

ID = "resp_1"
KEY = ("owner", ID)


def keeper_of(
    holder: ManagedStore,
    stop: Callable[[ErrorInfo], None] = lambda _: None,
    parent: str | None = None,
    door: Dialect = "responses",
) -> Keeper:
    """`parent`: the response that it continues by a claim."""
    request = Request(model="m")
    draft = Draft(
        id=ID,
        owner="owner",
        created=7.0,
        door=door,
        request=request,
        parent=parent,
        claims=parent is not None,
    )
    return Keeper(holder, draft, stop)


def encoded(keeper: Keeper, outcome: Outcome, door: Dialect = "responses") -> bytes:
    """The stream of an answer, of which its encoder has noted what the keeper needs."""
    context = EncodeContext(response_id=ID, created=7, notes=keeper.expect("local", "openai"))
    encoder = make_encoder(door, context)
    return encoder.encode_all(unfold(outcome)) + encoder.close()


def streamed(keeper: Keeper, text: str) -> bytes:
    choice = Choice(parts=(Text(text=text),), finish="stop")
    outcome = Outcome(response_id=ID, model="m", choices=(choice,), completed=True)
    return encoded(keeper, outcome)


def holder_of(url: str = "memory:") -> ManagedStore:
    def note(_operation: str, _outcome: str, _seconds: float) -> None:
        return

    return ManagedStore(StoreSettings(url=url), note, lambda _: None)


def test_an_answer_that_is_stopped_while_it_is_stored_is_kept_once() -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = keeper_of(holder)
        received = streamed(keeper, "x" * 20_000)
        first = asyncio.create_task(keeper.end_stream(received))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await keeper.end_stream(received) == received
        kept = await holder.call("read", lambda store: store.read(*KEY, stream=True))
        assert kept.stream == received
        keeper.close()
        await holder.close()

    asyncio.run(run())


async def claimed(
    holder: ManagedStore, stop: Callable[[ErrorInfo], None] = lambda _: None
) -> Keeper:
    """A response that continues another by a claim, begun."""
    above = structs.replace(draft("above"), owner="owner")
    await holder.call("store", lambda store: store.put(above, ending()))
    await holder.call("claim", lambda store: store.claim("owner", "above", by=ID))
    keeper = keeper_of(holder, stop, parent="above")
    await keeper.claim()
    return keeper


def test_a_response_that_is_being_stored_is_not_lost_because_it_runs_no_more(
    tmp_path: Path,
) -> None:
    """Whoever looks for cancelled responses sees in the store that this one has ended, before its own client does."""
    stopped: list[ErrorInfo] = []

    async def run() -> None:
        holder = holder_of(f"sqlite://{tmp_path / 'store.db'}")
        keeper = await claimed(holder, stopped.append)
        received = streamed(keeper, "x")
        storing = asyncio.create_task(keeper.end_stream(received))
        lost: frozenset[Key] = frozenset()
        async with asyncio.timeout(60):
            while not lost and not storing.done():
                lost = await holder.call("look", lambda store: store.lost([KEY]))
        keeper.lose()
        assert await storing == received
        keeper.close()
        await holder.close()

    asyncio.run(run())
    assert stopped == []


@pytest.mark.parametrize("is_claimed", [True, False])
def test_an_end_that_is_written_again_before_the_first_write_is_done_is_no_conflict_with_itself(
    tmp_path: Path, is_claimed: bool
) -> None:
    """The exchange was cancelled while its end waited for another process, and ends a second time."""

    async def run() -> None:
        path = tmp_path / "store.db"
        holder = holder_of(f"sqlite://{path}")
        keeper = await claimed(holder) if is_claimed else keeper_of(holder)
        received = streamed(keeper, "x")
        if not is_claimed:
            keeper.take(received[:100])
            await keeper.begin_now()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(keeper.end_stream(received))
        for _ in range(20):  # the write is handed to the store's thread
            await asyncio.sleep(0)
        assert keeper.is_ending
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(keeper.end_stream(received))
        await holder.call("read", lambda store: store.head(*KEY))
        for _ in range(10):
            await asyncio.sleep(0)
        other.execute("ROLLBACK")
        other.close()
        assert await second == received
        keeper.close()
        await holder.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_claimed", [True, False])
def test_an_end_that_is_stored_twice_is_no_conflict_with_itself(is_claimed: bool) -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = await claimed(holder) if is_claimed else keeper_of(holder)
        received = streamed(keeper, "x")
        assert await keeper.end_stream(received) == received
        assert await keeper.end_stream(received) == received
        kept = await holder.call("read", lambda store: store.read(*KEY, stream=True))
        assert kept.stream == received
        keeper.close()
        await holder.close()

    asyncio.run(run())


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("waited too long")


def test_the_same_answer_that_runs_twice_at_once_ends_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One ends while the other still runs under the same id: that is no cancellation of the other."""
    monkeypatch.setattr(managed_store, "BEGIN_SECONDS", 0.02)
    monkeypatch.setattr(managed_store, "LOOK_SECONDS", 0.02)
    stopped: list[ErrorInfo] = []
    looks = 0

    def note(operation: str, _outcome: str, _seconds: float) -> None:
        nonlocal looks
        looks += operation == "look"

    async def run() -> None:
        nonlocal looks
        holder = ManagedStore(StoreSettings(url="memory:"), note, lambda _: None)
        running, other = keeper_of(holder, stopped.append), keeper_of(holder)
        received = streamed(running, "x")
        assert streamed(other, "x") == received
        first = received[: received.index(b"\n\n") + 2]
        await holder.call("ping", lambda store: store.ping())
        running.take(first)
        await until(lambda: running.is_begun)
        assert await other.end_stream(received) == received
        looks = 0
        await until(lambda: looks >= 3)
        assert stopped == []
        assert await running.end_stream(received[len(first) :]) == received[len(first) :]
        await holder.call("cancel", lambda store: store.delete(*KEY))
        kept = keeper_of(holder, stopped.append)
        streamed(kept, "x")
        kept.take(first)
        await until(lambda: kept.is_begun)
        await holder.call("cancel", lambda store: store.cancel(*KEY))
        await until(lambda: bool(stopped))
        for keeper in (running, other, kept):
            keeper.close()
        await holder.close()

    asyncio.run(run())


CALL = Call(call_id="call_1", name="f", input='{"a":1}')
CUT = Call(call_id="call_2", name="f", input='{"a":', status="incomplete")
OUTCOME = Outcome(
    response_id="resp_1",
    model="m",
    choices=(Choice(parts=(Text(text="So."), CALL), finish="tool_calls"),),
    completed=True,
)


async def stored(door: Dialect, outcome: Outcome, *, is_body: bool = False) -> Link:
    """What is found of an answer that was sent."""
    holder = holder_of()
    keeper = keeper_of(holder, door=door)
    if is_body:
        notes = keeper.expect("local", "openai")
        context = EncodeContext(response_id=ID, created=7, notes=notes)
        codec = CODECS[door]
        body = codec.write_body(outcome, context, answer_book(codec.losses, {}))
        assert await keeper.end_body(body) == body
    else:
        received = encoded(keeper, outcome, door)
        first = received.index(b"\n\n") + 2
        keeper.take(received[:first])
        assert await keeper.end_stream(received[first:]) == received[first:]
    (link,) = await holder.call("chain", lambda store: store.chain(*KEY))
    keeper.close()
    await holder.close()
    return link


@pytest.mark.parametrize("is_body", [False, True])
@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_stream_and_its_body_are_kept_alike(door: Dialect, is_body: bool) -> None:
    link = asyncio.run(stored(door, OUTCOME, is_body=is_body))
    assert link.head.status == "completed"
    assert link.head.open_calls == ("call_1",)
    assert link.parts is not None
    assert [type(part) for part in link.parts] == [Text, Call]


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_failure_is_kept_as_one_with_what_was_said_before(door: Dialect) -> None:
    failed = Outcome(
        response_id="resp_1",
        choices=(Choice(parts=(Text(text="So."),)),),
        error=ErrorInfo(kind="server", message="broken"),
    )
    link = asyncio.run(stored(door, failed))
    assert link.head.status == "failed"
    assert link.head.open_calls == ()
    assert link.parts is not None
    assert [part.text for part in link.parts if isinstance(part, Text)] == ["So."]


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_what_is_no_answer_is_not_kept(door: Dialect) -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = keeper_of(holder, door=door)
        keeper.expect("local", "openai")
        error = b'{"error":{"message":"x"}}'
        assert await keeper.end_body(error) == error
        assert await keeper.end_stream(b"event: error\ndata: {}\n\n")
        with pytest.raises(StoreMissing):
            await holder.call("read", lambda store: store.read(*KEY))
        keeper.close()
        await holder.close()

    asyncio.run(run())


def test_a_call_that_was_cut_is_not_waited_for() -> None:
    outcome = Outcome(
        response_id="r",
        choices=(Choice(parts=(CALL, CUT), finish="length"),),
        completed=True,
    )
    link = asyncio.run(stored("responses", outcome))
    assert link.head.status == "incomplete"
    assert link.head.open_calls == ("call_1",)


def written(door: Dialect, profile: Literal["default", "required_action"]) -> tuple[bytes, bytes]:
    """A stream without its end, and the failure that is encoded in place of the end."""
    notes = StoreNotes()
    context = EncodeContext(response_id="id_1", created=7, profile=profile, notes=notes)
    encoder = make_encoder(door, context)
    stream = encoder.encode_all(unfold(OUTCOME)) + encoder.close()
    end = notes.end
    assert end is not None
    assert end.fail is not None
    assert stream.endswith(end.frames)
    failure = end.fail(ErrorInfo(kind="overloaded", message="why"))
    return stream.removesuffix(end.frames), failure


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_failure_is_encoded_in_place_of_an_end_that_is_not_stored(door: Dialect) -> None:
    before, failure = written(door, "default")
    assert b"why" in failure
    assert b"message_delta" not in before + failure
    assert b"message_stop" not in before + failure
    assert b"response.completed" not in before + failure


@pytest.mark.parametrize("profile", ["default", "required_action"])
def test_a_failure_has_the_number_of_the_end(
    profile: Literal["default", "required_action"],
) -> None:
    before, failure = written("responses", profile)
    assert b"response.required_action" not in before + failure
    event = json.loads(failure.rpartition(b"data: ")[2])
    assert event["type"] == "response.failed"
    assert event["sequence_number"] == before.count(b"\nevent: ") + 1
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"]["message"] == "why"
    assert "required_action" not in event["response"]


@pytest.mark.parametrize("exact", [False, True])
def test_a_relayed_end_that_is_not_stored_is_a_failure_in_its_place(
    exact: bool, tmp_path: Path
) -> None:
    async def run() -> None:
        holder = holder_of(f"sqlite://{tmp_path}")  # which is no file
        keeper = keeper_of(holder)
        context = EncodeContext(notes=keeper.expect("local", "openai"))
        relay = StreamRelay("responses", decode=DecodeContext(), encode=context, exact=exact)
        stream = streamed(keeper_of(holder), "x")
        end = stream.index(b"event: response.completed")
        keeper.take(relay.feed(stream[:end]))
        sent = await keeper.end_stream(relay.feed(stream[end:] + b"data: [DONE]\n\n"))
        assert b"response.completed" not in sent
        assert sent.startswith(b"event: response.failed\ndata: ")
        assert sent.endswith(b"data: [DONE]\n\n") is exact
        failed = json.loads(sent.split(b"data: ")[1])
        last = json.loads(stream[end:].split(b"data: ")[1])
        assert failed["sequence_number"] == last["sequence_number"]
        assert (failed["response"]["id"], failed["response"]["status"]) == (ID, "failed")
        assert keeper.problem is not None
        keeper.close()
        await holder.close()

    asyncio.run(run())
