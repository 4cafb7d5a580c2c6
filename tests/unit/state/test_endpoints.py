"""The items of a conversation, page by page."""

import pytest

from dragoman._json import loads
from dragoman.dialects.responses import decode_request
from dragoman.errors import RequestRefused
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request
from dragoman.state.endpoints import Replay, page_of_items
from dragoman.store.records import Link, StoredHead


def link(number: int, request: Request, *parts: Text | Call) -> Link:
    head = StoredHead(
        id=f"resp_{number}",
        owner="",
        created=0.0,
        expires=1.0,
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
        size=0,
    )
    return Link(head, request, parts)


CHAIN = (
    link(
        1,
        decode_request(b'{"model":"m","instructions":"be kind","input":"What is the weather?"}'),
        Call(call_id="call_a", name="weather", input='{"city":"Rome"}', item_id="fc_1"),
    ),
    link(
        2,
        decode_request(
            b'{"model":"m","input":[{"type":"function_call_output","call_id":"call_a","output":"rain"}]}'
        ),
        Text(text="It rains."),
    ),
)


def test_all_that_the_model_saw_is_listed_and_nothing_that_it_answered() -> None:
    page = loads(page_of_items(CHAIN, {"order": "asc"}))
    assert [item["type"] for item in page["data"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert page["data"][0]["content"] == [{"type": "input_text", "text": "What is the weather?"}]
    assert page["data"][1]["id"] == "fc_1"
    assert page["has_more"] is False


def test_the_newest_comes_first_unless_asked_otherwise() -> None:
    kinds = [item["type"] for item in loads(page_of_items(CHAIN, {}))["data"]]
    assert kinds == ["function_call_output", "function_call", "message"]


def test_pages_follow_one_another_by_their_cursor() -> None:
    lines: list[str] = []
    query = {"limit": "1", "order": "asc"}
    while True:
        page = loads(page_of_items(CHAIN, query))
        lines += [item["type"] for item in page["data"]]
        if not page["has_more"]:
            break
        query = {**query, "after": page["last_id"]}
    assert lines == ["message", "function_call", "function_call_output"]


def test_a_page_before_a_cursor_ends_there() -> None:
    page = loads(page_of_items(CHAIN, {"order": "asc", "before": "fc_1"}))
    assert [item["type"] for item in page["data"]] == ["message"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "item_x"}, "after"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: dict[str, str], param: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        page_of_items(CHAIN, query)
    assert caught.value.param == param


FRAMES = [
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n',
    b'event: response.output_text.delta\ndata: {"delta":"a","sequence_number":1}\n\n',
    b'event: response.completed\ndata: {"type":"response.completed","sequence_number":2}\n\n',
]


def test_the_whole_stream_is_returned_byte_for_byte() -> None:
    assert Replay(None).rest(b"".join(FRAMES)) == b"".join(FRAMES)


def test_only_events_after_the_number_are_returned() -> None:
    assert Replay(0).rest(b"".join(FRAMES)) == b"".join(FRAMES[1:])
    assert Replay(2).rest(b"".join(FRAMES)) == b""


def test_what_only_kept_the_connection_open_is_left_out() -> None:
    noise = b': keep-alive\n\nevent: keepalive\ndata: {"type":"keepalive"}\n\ndata: [DONE]\n\n'
    assert Replay(None).rest(FRAMES[0] + noise + FRAMES[1]) == FRAMES[0] + FRAMES[1]


def test_a_stream_that_comes_in_pieces_is_returned_in_whole_frames_and_once() -> None:
    stream = b"".join(FRAMES)
    replaying = Replay(0)
    cut = len(FRAMES[0]) + 5
    assert replaying.feed(b"") == b""
    assert replaying.feed(stream[:cut]) == b""
    assert replaying.feed(stream[cut : len(FRAMES[0]) + len(FRAMES[1])]) == FRAMES[1]
    assert replaying.last == 1
    assert replaying.rest(stream) == FRAMES[2]
