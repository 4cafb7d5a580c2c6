"""The dump: what is worth a line, what is hidden in it, and how the file is written."""

import asyncio
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman.config.settings import DumpSettings, Settings, UpstreamSettings
from dragoman.core.secrets import Secrets, redact_json
from dragoman.gateway.route import Upstreams
from dragoman.server.observe.dump import MAX_EVENT, Dump, EventPicker
from dragoman.sse import FrameParser
from vendor_wire import Answer, Said, Thought, Tool, stream

ANSWER = Answer(
    (
        Thought("hm", "SEAL-OF-THE-PROVIDER"),
        Said(("Let me ", "look.")),
        Tool("call_1", "get_weather", ('{"city": "Paris", "pass', 'word": "zyxw', 'vuts9"}')),
        Tool("call_2", "get_time", ('{"tz":', '"CET"}')),
    ),
    interleaved=True,
)
SETTINGS = Settings(
    upstreams={"codex": UpstreamSettings(kind="responses", base_url="http://127.0.0.1:1/v1")}
)
TARGET = Upstreams(SETTINGS, {}).targets("responses", "gpt-5.5")[0]


def picked(dialect: str, data: bytes) -> list[dict[str, Any]]:
    parser = FrameParser()
    picker = EventPicker(dialect)
    frames = [*parser.feed(data), *parser.close()]
    found = [event for frame in frames if frame.data for event in picker.pick(frame.data)]
    return [*found, *picker.close()]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.requirement("S000-27")
def test_of_a_responses_stream_items_arguments_and_ends_are_picked() -> None:
    events = picked("responses", stream("responses", ANSWER))
    kinds = [event["type"] for event in events]
    assert not any(kind.endswith(".delta") for kind in kinds)
    assert {
        "response.content_part.added",
        "response.output_item.done",
        "response.function_call_arguments.done",
    } <= set(kinds)
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"


@pytest.mark.requirement("S000-27")
def test_the_bodies_of_responses_are_left_out() -> None:
    events = picked("responses", stream("responses", ANSWER))
    assert [sorted(event["response"]) for event in events if "response" in event] == [
        ["error", "id", "incomplete_details", "model", "status", "usage"]
    ] * 2


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_credential_in_arguments_is_hidden_however_it_was_cut(dialect: str) -> None:
    text = json.dumps(picked(dialect, stream(dialect, ANSWER)))
    assert "zyxw" not in text
    assert "vuts9" not in text
    assert "SEAL-OF-THE-PROVIDER" not in text
    assert "Paris" in text


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_arguments_sent_in_pieces_are_written_as_one(dialect: str) -> None:
    text = json.dumps(picked(dialect, stream(dialect, ANSWER)))
    assert json.dumps('{"tz":"CET"}') in text
    assert "Let me" not in text


def test_a_call_in_the_old_form_of_chat_is_picked() -> None:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    data = chunk({"function_call": {"name": "f", "arguments": '{"a"'}})
    data += chunk({"function_call": {"arguments": ": 1}"}}) + chunk({}, "function_call")
    head, arguments, end = picked("chat", data)
    assert head["choices"][0]["delta"]["function_call"] == {"name": "f", "arguments": ""}
    assert json.dumps('{"a": 1}') in json.dumps(arguments)
    assert end["choices"][0]["finish_reason"] == "function_call"


def test_arguments_of_a_call_that_never_ended_are_written_at_the_end() -> None:
    data = stream("messages", ANSWER).partition(b"event: content_block_stop")[0]
    whole = picked("messages", data)
    assert whole[-1]["type"] != "content_block_delta"
    cut = stream("messages", Answer(ANSWER.parts[2:3])).partition(b"event: content_block_stop")[0]
    assert picked("messages", cut)[-1]["delta"]["partial_json"].startswith('{"city": "Paris"')
    chat = stream("chat", Answer(ANSWER.parts[2:3])).partition(b'"finish_reason": "tool_calls"')[0]
    chat = chat.rpartition(b"data: ")[0]
    [last] = picked("chat", chat)[-1]["choices"]
    assert last["delta"]["tool_calls"][0]["function"]["arguments"].startswith('{"city": "Paris"')


@pytest.mark.parametrize("data", [b"[DONE]", b"{", b"[1]", b'{"type":1}', b"null", b"\xff"])
@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "codex"])
def test_what_is_no_event_is_passed_over(dialect: str, data: bytes) -> None:
    assert EventPicker(dialect).pick(data) == []


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices":[{"index":0,"delta":{"tool_calls":[1,{"function":3}]},"finish_reason":"stop"}]}',
        b'{"choices":[5],"error":{"message":"no"}}',
        b'{"choices":{},"usage":{"prompt_tokens":1}}',
    ],
)
def test_a_crooked_chunk_is_picked_as_it_is(data: bytes) -> None:
    assert EventPicker("chat").pick(data) == [json.loads(data)]


def test_an_event_beyond_the_limit_is_named_without_its_content() -> None:
    item = {"type": "image_generation_call", "result": "A" * MAX_EVENT}
    event = {"type": "response.output_item.done", "item": item}
    [picked_event] = EventPicker("responses").pick(json.dumps(event).encode())
    assert set(picked_event) == {"type", "omitted_bytes"}
    assert picked_event["type"] == "response.output_item.done"


def test_what_is_hidden_in_json_leaves_json() -> None:
    arguments = '{"api_key": "x\\"y", "n": 1, "token": 5, "authorization": "Bearer abcdef"}'
    hidden = redact_json(
        {"arguments": arguments, "encrypted_content": "E", "list": ["sk-abcdefgh"]}
    )
    fields: dict[str, Any] = json.loads(json.dumps(hidden))
    assert json.loads(fields.pop("arguments")) == {
        "api_key": "[redacted]",
        "n": 1,
        "token": "[redacted]",
        "authorization": "[redacted]",
    }
    assert fields == {"encrypted_content": "[redacted]", "list": ["[redacted]"]}


def dump_all(settings: DumpSettings, data: bytes, times: int = 1, cut: int = 50) -> None:
    dump = Dump(settings)
    for _ in range(times):
        tap = dump.begin(TARGET, "req_1")
        for start in range(0, len(data), cut):
            tap.feed(data[start : start + cut])
        tap.close()
    asyncio.run(dump.close())


def test_an_error_that_quotes_what_the_upstream_was_sent_is_dumped_without_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "dump.jsonl"
    key = 'own "key" of the gateway'
    error = {"type": "error", "code": "x", "message": f"no such key: {key}", "sequence_number": 0}
    dump = Dump(DumpSettings(path=str(path)))
    tap = dump.begin(TARGET, "req_1", Secrets([key]))
    tap.feed(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n")
    tap.close()
    asyncio.run(dump.close())
    (line,) = lines(path)
    assert line["event"]["message"] == "no such key: [redacted]"


def test_lines_say_whose_they_are(tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    dump_all(DumpSettings(path=str(path)), stream("responses", ANSWER))
    found = lines(path)
    assert len(found) == len(picked("responses", stream("responses", ANSWER)))
    head = {key: value for key, value in found[0].items() if key not in ("at", "event")}
    assert head == {
        "request_id": "req_1",
        "answer": 0,
        "upstream": "codex",
        "dialect": "responses",
        "model": "gpt-5.5",
        "frame": 1,
    }
    assert [line["frame"] for line in found] == sorted(line["frame"] for line in found)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_file_is_moved_on_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    settings = DumpSettings(path=str(path), max_bytes=4000, files=3)
    dump_all(settings, stream("responses", ANSWER), times=8)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "dump.jsonl",
        "dump.jsonl.1",
        "dump.jsonl.2",
    ]
    for each in tmp_path.iterdir():
        assert each.stat().st_size <= 4000
        assert lines(each)


def test_a_file_of_an_earlier_run_counts(tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    path.write_bytes(b"x" * 3999)
    settings = DumpSettings(path=str(path), max_bytes=4000, files=2)
    dump_all(settings, stream("responses", Answer((Said(("ok",)),))))
    assert (tmp_path / "dump.jsonl.1").read_bytes() == b"x" * 3999
    assert lines(path)


def test_one_file_alone_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    settings = DumpSettings(path=str(path), max_bytes=3000, files=1)
    dump_all(settings, stream("responses", ANSWER), times=4)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size <= 3000


def test_a_file_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = DumpSettings(path=str(tmp_path / "missing" / "dump.jsonl"))
    with caplog.at_level(logging.WARNING):
        dump_all(settings, stream("responses", ANSWER), times=3)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the dump cannot be written"
    ]


def test_a_thread_that_is_behind_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it waits for somebody who reads
    dump = Dump(DumpSettings(path=str(pipe)))
    tap = dump.begin(TARGET, "req_1")
    data = stream("responses", ANSWER)
    for _ in range(20_000):
        tap.feed(data)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    tap.close()
    asyncio.run(dump.close())
    reader.join(60)  # the thread reads all that waited; whoever closed the dump did not wait for it
    assert read
