"""Lines and envelopes of JSON-RPC as an app-server writes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.errors import FrameTooLarge
from dragoman.upstream.codex.child import decline
from dragoman.upstream.codex.jsonrpc import (
    LineSplitter,
    Message,
    answer,
    notification,
    read_message,
    refusal,
    request,
)


@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b""))), st.data())
def test_lines_do_not_depend_on_the_reads(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    splitter = LineSplitter()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += splitter.feed(whole[start:end])
    assert found == [line for line in lines if line.strip()]


def test_line_without_an_end_is_an_error() -> None:
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"12345678\n12345") == [b"12345678"]
    with pytest.raises(FrameTooLarge, match="at most 10 bytes"):
        splitter.feed(b"678901")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"method":"a","params":{"threadId":"t"}}', ("a", b"", "t", False)),
        (b'{"method":"a","id":"x","params":null}', ("a", b'"x"', "", False)),
        (b'{"id":7,"result":{"a":1}}', ("", b"7", "", False)),
        (b'{"id":7,"error":{"code":-1,"message":"no"}}', ("", b"7", "", True)),
        (b'{"id":7,"result":{},"error":null}', ("", b"7", "", False)),
        # What the fast reader refuses.
        (b'{"method":"a","params":{"threadId":7}}', ("a", b"", "", False)),
        (b'{"method":"a","params":[1]}', ("a", b"", "", False)),
        (b'{"method":5,"id":1}', ("", b"1", "", False)),
        (b'{"method":"a","params":{"threadId":"\\ud83d"}}', ("a", b"", "\ud83d", False)),
    ],
)
def test_envelope_is_read(line: bytes, message: tuple[object, ...]) -> None:
    read = read_message(line)
    assert read is not None
    assert (read.method, read.id, read.thread, read.is_error) == message
    assert read.line is line


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"[1]", b"{}", b'{"id":null}', b'"a"', b'{"method":""}']
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert read_message(line) is None


def test_parts_of_a_message_are_read_when_asked_for() -> None:
    assert bytes(Message(b'{"params":{"a":1}}').params()["a"]) == b"1"
    assert Message(b'{"params":[]}').params() == {}
    assert bytes(Message(b'{"result":{"a":1}}').result()["a"]) == b"1"
    assert Message(b'{"result":5}').result() == {}
    assert Message(b'{"error":{"code":-1,"message":"no"}}').error() == (-1, "no")
    assert Message(b'{"error":{"code":"x","message":1}}').error() == (0, "")
    assert Message(b'{"error":{}}').error() == (0, "")


def test_what_is_written_is_one_line() -> None:
    schema = Raw(b'{\r\n  "type": "object"\n}')
    line = request(3, "thread/start", {"schema": schema})
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "id": 3,
        "method": "thread/start",
        "params": {"schema": {"type": "object"}},
    }
    assert json.loads(notification("initialized")) == {"method": "initialized"}
    assert json.loads(answer(b'"x"', {"a": 1})) == {"id": "x", "result": {"a": 1}}
    assert json.loads(refusal(b"0", -1, "no")) == {"id": 0, "error": {"code": -1, "message": "no"}}


def test_approval_is_never_given() -> None:
    line = json.loads(decline("item/commandExecution/requestApproval", b"4"))
    assert line == {"id": 4, "result": {"decision": "decline"}}
    assert json.loads(decline("x" * 500, b"4"))["error"]["code"] == -32601
