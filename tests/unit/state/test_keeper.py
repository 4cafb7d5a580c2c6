"""An answer on its way into the store, and an end that comes twice."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from msgspec import structs

from dragoman.config.settings import StoreSettings
from dragoman.core.fold import unfold
from dragoman.core.journal import Journal
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.translate import make_encoder
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import Call, Dialect, Text
from dragoman.model.request import Request
from dragoman.state import managed_store
from dragoman.state.keeper import Keeper, read_ended_body, read_ended_stream
from dragoman.state.managed_store import ManagedStore
from dragoman.store.codec import read_answer
from dragoman.store.contract import Key
from dragoman.store.records import Draft
from store_help import draft, ending

ID = "resp_1"
KEY = ("owner", ID)


def stream_of(text: str) -> bytes:
    choice = Choice(parts=(Text(text=text),), finish="stop")
    outcome = Outcome(response_id=ID, model="m", choices=(choice,), completed=True)
    encoder = make_encoder("responses", EncodeContext(response_id=ID, created=7))
    return encoder.encode_all(unfold(outcome)) + encoder.close()


def keeper_of(
    holder: ManagedStore,
    stop: Callable[[ErrorInfo], None] = lambda _: None,
    parent: str | None = None,
) -> Keeper:
    """`parent`: the response that it continues by a claim."""
    request = Request(model="m")
    draft = Draft(
        id=ID,
        owner="owner",
        created=7.0,
        door="responses",
        request=request,
        parent=parent,
        claims=parent is not None,
    )
    return Keeper(holder, draft, stop)


def holder_of(url: str = "memory:") -> ManagedStore:
    def note(_operation: str, _outcome: str, _seconds: float) -> None:
        return

    return ManagedStore(StoreSettings(url=url), note, lambda _: None)


def test_an_answer_that_is_stopped_while_it_is_stored_is_kept_once() -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = keeper_of(holder)
        told = stream_of("x" * 20_000)
        first = asyncio.create_task(keeper.end_stream(told))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await keeper.end_stream(told) == told
        kept = await holder.call("read", lambda store: store.read(*KEY, stream=True))
        assert kept.stream == told
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
        told = stream_of("x")
        storing = asyncio.create_task(keeper.end_stream(told))
        lost: frozenset[Key] = frozenset()
        async with asyncio.timeout(10):
            while not lost and not storing.done():
                lost = await holder.call("look", lambda store: store.lost([KEY]))
        keeper.lose()
        assert await storing == told
        keeper.close()
        await holder.close()

    asyncio.run(run())
    assert stopped == []


@pytest.mark.parametrize("is_claimed", [True, False])
def test_an_end_that_is_stored_twice_is_no_conflict_with_itself(is_claimed: bool) -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = await claimed(holder) if is_claimed else keeper_of(holder)
        told = stream_of("x")
        assert await keeper.end_stream(told) == told
        assert await keeper.end_stream(told) == told
        kept = await holder.call("read", lambda store: store.read(*KEY, stream=True))
        assert kept.stream == told
        keeper.close()
        await holder.close()

    asyncio.run(run())


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(1000):
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
        told = stream_of("x")
        first = told[: told.index(b"\n\n") + 2]
        await holder.call("ping", lambda store: store.ping())
        running.take(first)
        await until(lambda: running.is_begun)
        assert await other.end_stream(told) == told
        looks = 0
        await until(lambda: looks >= 3)
        assert stopped == []
        assert await running.end_stream(told[len(first) :]) == told[len(first) :]
        await holder.call("cancel", lambda store: store.delete(*KEY))
        kept = keeper_of(holder, stopped.append)
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


def stream_in(door: str, outcome: Outcome) -> bytes:
    encoder = make_encoder(door, EncodeContext(response_id="id_1", created=7))
    return encoder.encode_all(unfold(outcome)) + encoder.close()


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_stream_and_its_body_are_kept_alike(door: Dialect) -> None:
    told = stream_in(door, OUTCOME)
    last = told[told.rindex(b"\n\n", 0, len(told) // 2) + 2 :]
    ended = read_ended_stream(door, last, lambda: told)
    assert ended is not None
    assert (ended.id, ended.status, ended.waiting) == ("id_1", "completed", ("call_1",))
    answer = ended.answer or read_answer(door, ended.body)
    assert [type(part) for part in answer.parts] == [Text, Call]
    again = read_ended_body(door, ended.body)
    assert again is not None
    assert (again.answer or read_answer(door, again.body)).finish == answer.finish == "tool_calls"
    assert again.waiting == ended.waiting
    assert json.loads(again.body) == json.loads(ended.body)


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_failure_is_kept_as_one_and_a_beginning_is_not_kept(door: Dialect) -> None:
    failed = Outcome(
        response_id="resp_1",
        choices=(Choice(parts=(Text(text="So."),)),),
        error=ErrorInfo(kind="server", message="broken"),
    )
    told = stream_in(door, failed)
    ended = read_ended_stream(door, told, lambda: told)
    assert ended is not None
    assert ended.status == "failed"
    assert ended.waiting == ()
    begun = told[: told.index(b"\n\n") + 2]
    if door == "responses":
        assert read_ended_stream(door, begun, lambda: begun) is None
    assert read_ended_body(door, b'{"error":{"message":"x"}}') is None


def test_a_call_that_was_cut_is_not_waited_for() -> None:
    outcome = Outcome(
        response_id="r",
        choices=(Choice(parts=(CALL, CUT), finish="length"),),
        completed=True,
    )
    told = stream_in("responses", outcome)
    ended = read_ended_stream("responses", told, lambda: told)
    assert ended is not None
    assert ended.status == "incomplete"
    assert ended.waiting == ("call_1",)


def written(door: Dialect, profile: Literal["default", "required_action"]) -> tuple[bytes, bytes]:
    """A stream without its end, and the failure that is encoded in place of the end."""
    journal = Journal()
    context = EncodeContext(response_id="id_1", created=7, profile=profile, journal=journal)
    encoder = make_encoder(door, context)
    stream = encoder.encode_all(unfold(OUTCOME)) + encoder.close()
    assert journal.end is not None
    assert stream.endswith(journal.end.frames)
    failure = journal.end.fail(ErrorInfo(kind="overloaded", message="why"))
    return stream.removesuffix(journal.end.frames), failure


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
