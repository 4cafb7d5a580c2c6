"""What the inspector shows of an exchange, through real HTTP, over every pair of dialects, streamed and not."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

from dragoman.config.settings import InspectSettings, StoreSettings
from dragoman.testing import Pause, ScriptedReply, ScriptedUpstream, json_reply, sse
from gateway_harness import DIALECTS, RunningGateway, one_upstream, running_gateway
from sample_exchanges import PATHS, ask, call, inspected
from vendor_wire import Answer, Said, Tool, body_bytes, stream

ANSWER = Answer(
    (
        Said(("Let me ", "look: “é” 🜂.")),
        Tool("call_1", "get_weather", ('{"city":', ' "Par', 'is", "n": 1.0, "é": "🜂\\n"}')),
        Tool("call_2", "get_time", ('{"tz":"C', 'ET"}')),
    )
)
NAMES = ("get_weather", "get_time")
ON = InspectSettings(capture="on")
# The time of day is all that may differ between two answers to the same request.
TIMES = re.compile(rb'"(?:created|created_at|completed_at)":\d+(?:\.\d+)?')

PAIRS = [
    (door, kind, streams) for door in DIALECTS for kind in DIALECTS for streams in (True, False)
]
every_pair = pytest.mark.parametrize(("door", "kind", "streams"), PAIRS)


def reply(kind: str, *, streams: bool) -> ScriptedReply:
    if streams:
        return sse(stream(kind, ANSWER), cut_into=97)
    return json_reply(body_bytes(kind, ANSWER))


@contextmanager
def gateway_over(
    kind: str, *replies: ScriptedReply, inspect: InspectSettings = ON
) -> Generator[RunningGateway]:
    with ScriptedUpstream.in_thread(replies) as upstream:
        settings = one_upstream(
            upstream.url, kind, inspect=inspect, store=StoreSettings(url="memory:", policy="off")
        )
        with running_gateway(settings) as gateway:
            yield gateway
        assert not upstream.failures


def send(gateway: RunningGateway, door: str, *, streams: bool, **headers: str) -> bytes:
    asked = ask(door, "How is the weather?", *NAMES, stream=streams)
    fixed = {"x-request-id": "req_fixed", **{k.replace("_", "-"): v for k, v in headers.items()}}
    status, _, data = call(gateway.url, "POST", PATHS[door], asked, fixed)
    assert status == 200
    return data


@every_pair
def test_capture_changes_no_byte_of_what_the_client_gets(
    door: str, kind: str, streams: bool
) -> None:
    got: list[bytes] = []
    for inspect in (InspectSettings(capture="off"), ON):
        with gateway_over(kind, reply(kind, streams=streams), inspect=inspect) as gateway:
            got.append(TIMES.sub(b"", send(gateway, door, streams=streams)))
    assert got[0] == got[1]


@every_pair
def test_the_frames_join_to_the_bytes_of_both_wires(door: str, kind: str, streams: bool) -> None:
    scripted = stream(kind, ANSWER) if streams else body_bytes(kind, ANSWER)
    with gateway_over(kind, reply(kind, streams=streams)) as gateway:
        got = send(gateway, door, streams=streams)
        [report] = inspected(gateway.url)
    assert joined(report["client"]["answer"]) == got
    [attempt] = report["attempts"]
    assert joined(attempt["answer"]) == scripted
    assert report["client"]["answer"]["stream"] is streams
    assert not report["truncated"]


def joined(answer: dict[str, Any]) -> bytes:
    frames = answer["frames"]
    assert [frame["n"] for frame in frames] == list(range(1, len(frames) + 1))
    assert all(frame["bytes"] == len(frame["text"].encode()) for frame in frames)
    return "".join(frame["text"] for frame in frames).encode()


@every_pair
def test_a_call_has_the_hash_of_its_input_on_both_wires(
    door: str, kind: str, streams: bool
) -> None:
    with gateway_over(kind, reply(kind, streams=streams)) as gateway:
        send(gateway, door, streams=streams)
        [report] = inspected(gateway.url)
    rows = report["calls"]
    assert [row["name"] for row in rows] == [{"upstream": name, "client": name} for name in NAMES]
    for row, tool in zip(rows, ANSWER.calls, strict=True):
        inputs = row["input"]
        assert row["id"]["upstream"] == tool.call_id
        assert (row["executable"], row["why"]) == (True, None)
        assert row["result"] == {"state": "waiting", "request": None}
        assert inputs["equal"] is (inputs["upstream"]["text"] == inputs["client"]["text"])
        assert inputs["equal"] is True
        for side in ("upstream", "client"):
            data = inputs[side]["text"].encode()
            assert inputs[side]["sha256"] == sha256(data).hexdigest()
            assert inputs[side]["bytes"] == len(data)
        if streams:
            assert inputs["client"]["text"] == tool.arguments


@every_pair
def test_each_delta_is_linked_to_the_characters_that_it_became(
    door: str, kind: str, streams: bool
) -> None:
    with gateway_over(kind, reply(kind, streams=streams)) as gateway:
        send(gateway, door, streams=streams)
        [report] = inspected(gateway.url)
    upstream = {frame["n"]: frame["text"] for frame in report["attempts"][0]["answer"]["frames"]}
    client = {frame["n"]: frame["text"] for frame in report["client"]["answer"]["frames"]}
    deltas = [event for event in report["events"] if event["type"] in ("TextDelta", "InputDelta")]
    assert deltas
    for event in deltas:
        start, end = event["upstream_range"]
        assert spelt(upstream[event["upstream_frame"]][start:end], event["text"])
        assert event["client_frames"] == sorted({at for at, _, _ in event["client_ranges"]})
        became = [client[at][first:last] for at, first, last in event["client_ranges"]]
        assert event["text"] in "".join(map(unescaped, became)) or spelt(
            "".join(became), event["text"]
        )
    kinds = {event["type"] for event in report["events"]}
    assert {"Started", "PartStarted", "PartEnded", "Finished", "Completed"} <= kinds
    for event in report["events"]:
        if event["type"] in ("Started", "PartStarted", "Finished", "Completed"):
            assert event["client_frames"], event


def unescaped(source: str) -> str:
    try:
        return str(json.loads(f'"{source}"'))
    except ValueError:
        return source


def spelt(source: str, text: str) -> bool:
    return source == text or unescaped(source) == text


def test_times_grow_and_those_of_a_slow_stream_are_apart() -> None:
    frames = list(sse(stream("chat", ANSWER), cut_into="frames").chunks or ())
    slow = ScriptedReply(
        content_type="text/event-stream", chunks=[frames[0], Pause(0.2), *frames[1:]]
    )
    with gateway_over("chat", slow) as gateway:
        send(gateway, "messages", streams=True)
        [report] = inspected(gateway.url)
    times = [frame["at"] for frame in report["attempts"][0]["answer"]["frames"]]
    assert times == sorted(times)
    assert times[1] - times[0] >= 150
    assert report["summary"]["first_byte_ms"] <= report["summary"]["total_ms"]


def test_a_failed_attempt_is_shown_before_the_one_that_answered() -> None:
    refused = json_reply({"error": {"message": "slow down", "type": "rate_limit_error"}}, 503)
    with gateway_over("chat", refused, reply("chat", streams=True)) as gateway:
        send(gateway, "chat", streams=True)
        [report] = inspected(gateway.url)
    first, second = report["attempts"]
    assert (first["answer"]["status"], second["answer"]["status"]) == (503, 200)
    assert "slow down" in first["error"]
    assert second["error"] is None
    assert [row["name"]["client"] for row in report["calls"]] == list(NAMES)


def test_an_upstream_that_cannot_be_reached_is_an_attempt_without_an_answer() -> None:
    settings = one_upstream("http://127.0.0.1:9", "chat", inspect=ON)
    with running_gateway(settings) as gateway:
        status, _, _ = call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
        [report] = inspected(gateway.url)
    assert status >= 500
    assert report["summary"]["error"]["kind"] == "upstream"
    assert report["attempts"][-1]["answer"] is None
    assert report["attempts"][-1]["error"]


def test_a_cut_stream_is_a_problem_pinned_to_its_last_frame() -> None:
    data = stream("chat", ANSWER)
    cut = sse(data[: data.index(b'ET\\"}')], cut_into="frames", cut=True)
    with gateway_over("chat", cut) as gateway:
        call(gateway.url, "POST", PATHS["messages"], ask("messages", "hi", *NAMES))
        [report] = inspected(gateway.url)
    notes = [note for note in report["notes"] if note["side"] == "upstream"]
    assert any(note["type"] == "problem" and note["frame"] for note in notes)
    last = report["calls"][-1]
    assert (last["executable"], last["why"]) == (False, "not_closed")


def test_a_loss_of_the_request_is_pinned_to_its_field() -> None:
    with gateway_over("messages", reply("messages", streams=True)) as gateway:
        asked = {**ask("chat", "hi", *NAMES), "logit_bias": {"1": 2}}
        call(gateway.url, "POST", PATHS["chat"], asked)
        [report] = inspected(gateway.url)
    [note] = [note for note in report["notes"] if note["code"] == "logit_bias"]
    assert (note["type"], note["side"], note["docs"]) == (
        "loss",
        "client",
        "dialects/messages.md#losses",
    )
    assert note["field"] is not None


def second_request(door: str, first: dict[str, Any]) -> dict[str, Any]:
    """The next request of the conversation: the answer of the first, and the results of its calls."""
    if door == "responses":
        calls = [
            {
                "type": "function_call",
                "call_id": tool.call_id,
                "name": tool.name,
                "arguments": tool.arguments,
            }
            for tool in ANSWER.calls
        ]
        results = [
            {"type": "function_call_output", "call_id": tool.call_id, "output": "fine"}
            for tool in ANSWER.calls
        ]
        return {**first, "input": [*first["input"], *calls, *results]}
    if door == "chat":
        wanted: list[dict[str, Any]] = [
            {
                "id": tool.call_id,
                "type": "function",
                "function": {"name": tool.name, "arguments": tool.arguments},
            }
            for tool in ANSWER.calls
        ]
        results = [
            {"role": "tool", "tool_call_id": tool.call_id, "content": "fine"}
            for tool in ANSWER.calls
        ]
        said = {"role": "assistant", "content": "Let me look.", "tool_calls": wanted}
        return {**first, "messages": [*first["messages"], said, *results]}
    used = [
        {
            "type": "tool_use",
            "id": tool.call_id,
            "name": tool.name,
            "input": json.loads(tool.arguments),
        }
        for tool in ANSWER.calls
    ]
    results = [
        {"type": "tool_result", "tool_use_id": tool.call_id, "content": "fine"}
        for tool in ANSWER.calls
    ]
    return {
        **first,
        "messages": [
            *first["messages"],
            {"role": "assistant", "content": used},
            {"role": "user", "content": results},
        ],
    }


@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("kind", DIALECTS)
def test_the_next_request_pairs_the_calls_and_says_what_changed(door: str, kind: str) -> None:
    first = ask(door, "How is the weather?", *NAMES)
    with gateway_over(kind, reply(kind, streams=True), reply(kind, streams=True)) as gateway:
        call(gateway.url, "POST", PATHS[door], first)
        inspected(gateway.url)
        call(gateway.url, "POST", PATHS[door], second_request(door, first))
        before, after = inspected(gateway.url, 2)
        sent = [attempt["body"] for report in (before, after) for attempt in report["attempts"]]
    assert after["summary"]["previous"] == before["summary"]["id"]
    paired = {"state": "paired", "request": after["summary"]["id"]}
    assert [row["result"] for row in before["calls"]] == [paired, paired]
    change = after["change"]
    assert change["previous"] == before["summary"]["id"]
    prefix = change["common_prefix_bytes"]
    assert sent[0].encode()[:prefix] == sent[1].encode()[:prefix]
    assert sent[0].encode()[prefix : prefix + 1] != sent[1].encode()[prefix : prefix + 1]
    assert any(line["op"] == "+" and "fine" in line["text"] for line in change["lines"])
    history = [row for row in after["calls"] if row["place"] == "request"]
    assert [row["name"]["client"] for row in history] == list(NAMES)
    assert all(row["input"]["equal"] for row in history)
    assert {row["result"]["state"] for row in history} == {"paired"}
