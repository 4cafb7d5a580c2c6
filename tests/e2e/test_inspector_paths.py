"""The exchanges that are no plain POST: WebSockets, background responses, hosted tools; and sending a request again."""

import io
import json
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.config.settings import (
    HostedSettings,
    InspectSettings,
    RetrySettings,
    Route,
    Settings,
    StoreSettings,
    UpstreamSettings,
)
from dragoman.testing import ScriptedUpstream, json_reply, sse
from gateway_harness import DIALECTS, RunningGateway, one_upstream, running_gateway, wait_until
from hosted_stage import answers, echo, said, workshop
from sample_exchanges import PATHS, ask, call, inspected
from vendor_wire import Answer, Said, Tool, stream
from websocket_client import socket_client

ON = InspectSettings(capture="on")


@contextmanager
def captured(kind: str, count: int = 1) -> Generator[tuple[RunningGateway, ScriptedUpstream]]:
    """A gateway that captures, over an upstream that gives the same answer `count` times."""
    with ScriptedUpstream.in_thread([sse(stream(kind, ANSWER))] * count) as upstream:
        settings = one_upstream(upstream.url, kind, inspect=ON, store=StoreSettings(url="memory:"))
        with running_gateway(settings) as gateway:
            yield gateway, upstream


ANSWER = Answer((Said(("Let me look.",)), Tool("call_1", "get_weather", ('{"city":', '"Oslo"}'))))


@pytest.mark.parametrize("kind", DIALECTS)
def test_an_exchange_over_a_websocket_is_captured(kind: str) -> None:
    with captured(kind) as (gateway, _), socket_client(gateway.url, "m") as client:
        client.ask(input="hi")
        [report] = inspected(gateway.url)
    assert report["client"]["method"] == "WEBSOCKET"
    [row] = report["calls"]
    assert row["input"]["equal"] is True
    assert report["client"]["answer"]["frames"]


def test_a_background_response_is_captured_with_both_wires() -> None:
    with captured("chat") as (gateway, _):
        asked = {**ask("responses", "hi", stream=False), "background": True, "store": True}
        status, _, data = call(gateway.url, "POST", PATHS["responses"], asked)
        [report] = inspected(gateway.url)
    assert (status, json.loads(data)["status"]) == (200, "queued")
    [row] = report["calls"]
    assert row["input"]["equal"] is True
    assert len(report["attempts"]) == 1


def test_every_request_of_an_answer_with_hosted_tools_is_an_attempt() -> None:
    scripted = [sse(stream("chat", each)) for each in (answers(echo("x")), answers(said("done")))]
    hosted = HostedSettings(servers=("workshop",))
    with ScriptedUpstream.in_thread(scripted) as upstream:
        settings = one_upstream(upstream.url, "chat", inspect=ON, mcp=(workshop(),), hosted=hosted)
        with running_gateway(settings) as gateway:
            call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
            [report] = inspected(gateway.url)
    assert len(report["attempts"]) == 2
    hosted_call = report["calls"][0]
    assert hosted_call["name"]["client"] is None
    assert (hosted_call["executable"], hosted_call["why"]) == (False, "not_sent")
    assert {event["attempt"] for event in report["events"]} == {0, 1}


def test_an_upstream_that_failed_before_another_answered_is_failing() -> None:
    refusal = json_reply({"error": {"message": "busy"}}, 503)
    script = [refusal, sse(stream("chat", ANSWER))]
    with ScriptedUpstream.in_thread(script) as upstream:
        place = UpstreamSettings(kind="chat", base_url=f"{upstream.url}/v1")
        settings = Settings(
            upstreams={"first": place, "second": place},
            routes=(Route(model="*", upstream="first", fallback=("second",)),),
            retry=RetrySettings(attempts=1),
        )
        with running_gateway(settings) as gateway:
            call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
            gateway.app.gateway.flush()
            state = json.loads(call(gateway.url, "GET", "/v1/inspect")[2])
    found = [(each["name"], each["state"], each["last_error"]) for each in state["upstreams"]]
    assert found == [("first", "failing", "overloaded"), ("second", "ok", None)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_captured_request_is_sent_again_in_another_dialect(dialect: str) -> None:
    with captured("chat", 2) as (gateway, upstream):
        call(gateway.url, "POST", PATHS["messages"], ask("messages", "hi", "get_weather"))
        [first] = inspected(gateway.url)
        path = f"/v1/inspect/requests/{first['summary']['id']}/replay"
        own = {"origin": gateway.url}
        asked = {"upstream": "scripted", "model": "other", "dialect": dialect}
        status, _, data = call(gateway.url, "POST", path, asked, own)
        assert status == 200
        wait_until(lambda: len(upstream.requests) == 2)
        _, second = inspected(gateway.url, 2)
        assert upstream.requests[1].at("model") == "other"
    assert second["summary"]["id"] == json.loads(data)["id"]
    assert second["summary"]["door"] == dialect
    assert [row["input"]["equal"] for row in second["calls"]] == [True]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"upstream": "none"}, "no upstream is called"),
        ({"dialect": "morse"}, "expected a dialect"),
        ({"model": 1}, "expected a string"),
        ([], "expected a JSON object"),
    ],
)
def test_a_request_that_cannot_be_sent_again_is_refused(asked: Any, words: str) -> None:
    with captured("chat") as (gateway, _):
        call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
        [first] = inspected(gateway.url)
        path = f"/v1/inspect/requests/{first['summary']['id']}/replay"
        status, _, data = call(gateway.url, "POST", path, asked, {"origin": gateway.url})
    assert status == 400
    assert words in json.loads(data)["error"]["message"]


def test_a_case_is_a_recording_in_a_zip_file() -> None:
    with captured("chat") as (gateway, _):
        call(gateway.url, "POST", PATHS["messages"], ask("messages", "hi"))
        [report] = inspected(gateway.url)
        path = f"/v1/inspect/requests/{report['summary']['id']}/case"
        _, headers, data = call(gateway.url, "GET", path)
    assert headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = {name.partition("/")[2] for name in archive.namelist()}
    assert {"exchange.json", "client/stream.sse", "upstream-1/stream.sse"} <= names
