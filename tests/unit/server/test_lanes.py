"""The lanes of one WebSocket connection: order, limits, memory."""

import pytest

from dragoman.dialects.responses.websocket import Create
from dragoman.errors import RequestRefused
from dragoman.model.parts import Text
from dragoman.model.request import Request, Turn
from dragoman.server.lanes import (
    MAX_LANES,
    MAX_RUNNING,
    MAX_WAITING,
    PART_BYTES,
    ConversationCache,
    LaneBusy,
    Lanes,
)
from dragoman.store.records import Link, StoredHead


def create(lane: str | None = None, previous: str | None = None, body: bytes = b"{}") -> Create:
    size = len(body)
    return Create(body=body, size=size, input_size=size, lane=lane, previous=previous)


def link(response_id: str, size: int = 0, parts: int = 0) -> Link:
    head = StoredHead(
        id=response_id,
        owner="",
        created=0.0,
        expires=0.0,
        status="completed",
        door="responses",
        model="m",
        parent=None,
        inherits=False,
        open_calls=(),
        upstream="",
        family="",
        continued_by=None,
        is_settled=False,
        size=size,
    )
    turn = Turn(role="user", parts=(Text(text="x"),) * parts)
    return Link(head, Request(model="m", turns=(turn,)), ())


def lanes(max_bytes: int = 1000, cache: ConversationCache | None = None) -> Lanes:
    return Lanes(max_bytes, cache or ConversationCache(1_000_000))


def recalled(made: Lanes, response_id: str) -> str | None:
    found = made.recall(response_id)
    return None if found is None else found.head.id


def test_requests_of_one_lane_run_one_after_the_other() -> None:
    made = lanes()
    first, second, third = create(), create(body=b"{2}"), create(body=b"{3}")
    assert made.add(first) == [first]
    assert made.add(second) == []
    assert made.add(third) == []
    assert made.end(first, has_failed=False) == [second]
    assert made.end(second, has_failed=True) == [third]
    assert not made.is_idle
    assert made.end(third, has_failed=False) == []
    assert made.is_idle


def test_lanes_run_at_the_same_time() -> None:
    made = lanes()
    for name in (None, "a", "b"):
        assert made.add(create(name)) == [create(name)]


def test_no_more_responses_run_than_allowed_and_the_rest_waits_in_order() -> None:
    made = lanes()
    names = [f"lane-{number}" for number in range(MAX_RUNNING + 2)]
    started = [each.lane for name in names for each in made.add(create(name))]
    assert started == names[:MAX_RUNNING]
    assert made.end(create(names[3]), has_failed=False) == [create(names[MAX_RUNNING])]
    assert made.end(create(names[0]), has_failed=False) == [create(names[MAX_RUNNING + 1])]


def test_a_connection_has_a_limited_number_of_named_lanes() -> None:
    made = lanes()
    for number in range(MAX_LANES):
        made.add(create(f"lane-{number}"))
        made.end(create(f"lane-{number}"), has_failed=False)
    with pytest.raises(RequestRefused) as refused:
        made.add(create("one-more"))
    assert (refused.value.code, refused.value.param) == (
        "websocket_stream_limit_reached",
        "stream_id",
    )
    assert made.add(create("lane-0")) == [create("lane-0")]
    assert made.add(create()) == [create()]


def test_only_so_many_requests_wait() -> None:
    made = lanes()
    for _ in range(MAX_WAITING + 1):
        made.add(create())
    with pytest.raises(LaneBusy):
        made.add(create())


def test_only_so_many_bytes_wait() -> None:
    made = lanes(max_bytes=10)
    made.add(create(body=b"1234567890"))
    made.add(create(body=b"123456"))
    with pytest.raises(LaneBusy):
        made.add(create(body=b"12345"))


def test_the_last_response_of_each_lane_is_remembered() -> None:
    made = lanes()
    made.remember(create(), link("resp_1"))
    made.remember(create("a"), link("resp_a"))
    made.remember(create(), link("resp_2"))
    assert made.recall("resp_1") is None
    assert recalled(made, "resp_2") == "resp_2"
    assert recalled(made, "resp_a") == "resp_a"


def test_a_failed_continuation_forgets_what_it_continued() -> None:
    made = lanes()
    made.remember(create(), link("resp_1"))
    made.end(create(previous="resp_1"), has_failed=True)
    assert made.recall("resp_1") is None


def test_a_failed_continuation_in_another_lane_forgets_nothing() -> None:
    made = lanes()
    made.remember(create(), link("resp_1"))
    made.end(create("fork", previous="resp_1"), has_failed=True)
    assert made.recall("resp_1") is not None


def test_a_failed_request_that_continues_nothing_forgets_nothing() -> None:
    made = lanes()
    made.remember(create(), link("resp_1"))
    made.end(create(), has_failed=True)
    made.end(create(previous="resp_1"), has_failed=False)
    assert made.recall("resp_1") is not None


def test_a_conversation_that_grows_too_large_is_not_remembered() -> None:
    made = lanes(max_bytes=100)
    made.remember(create(body=b"x" * 30), link("resp_1", size=30))
    first = made.recall("resp_1")
    assert first is not None
    assert first.head.size == 60
    made.remember(create(body=b"x" * 20, previous="resp_1"), link("resp_2", size=60 + 21))
    assert made.recall("resp_1") is None
    assert made.recall("resp_2") is None


def test_connections_share_what_may_be_remembered_and_the_oldest_is_forgotten() -> None:
    cache = ConversationCache(100)
    one, other = lanes(cache=cache), lanes(cache=cache)
    one.remember(create(body=b"x" * 40), link("resp_1"))
    other.remember(create(body=b"x" * 40), link("resp_2"))
    assert recalled(one, "resp_1")  # used last
    other.remember(create("a", body=b"x" * 20), link("resp_a"))
    assert recalled(other, "resp_2")
    one.remember(create("b", body=b"x"), link("resp_b"))
    assert one.recall("resp_1") is None
    assert recalled(other, "resp_2")
    assert recalled(other, "resp_a")
    assert recalled(one, "resp_b")


def test_parts_without_text_count_too() -> None:
    cache = ConversationCache(10 * PART_BYTES)
    made = lanes(cache=cache)
    made.remember(create("a"), link("resp_a", parts=6))
    made.remember(create("b"), link("resp_b", parts=6))
    assert made.recall("resp_a") is None
    assert recalled(made, "resp_b")


def test_connection_that_has_ended_takes_no_memory() -> None:
    cache = ConversationCache(100)
    for _ in range(3):
        made = lanes(cache=cache)
        made.remember(create(body=b"x" * 80), link("resp_1"))
        made.end(create(previous="resp_1"), has_failed=True)
        made.remember(create(body=b"x" * 80), link("resp_2"))
        made.forget_all()
    last = lanes(cache=cache)
    last.remember(create("a", body=b"x" * 40), link("resp_a"))
    last.remember(create("b", body=b"x" * 40), link("resp_b"))
    assert recalled(last, "resp_a")
    assert recalled(last, "resp_b")


def test_waiting_requests_can_be_dropped() -> None:
    made = lanes()
    made.add(create())
    made.add(create(body=b"{2}"))
    assert made.drop_waiting() == [create(body=b"{2}")]
    assert made.end(create(), has_failed=False) == []
    assert made.is_idle
