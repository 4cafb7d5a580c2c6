"""Who may inspect, and what stays within its limits: other origins, rebinding, keys, memory, slow readers, secrets."""

import http.client
import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from dragoman.config.check import complete
from dragoman.config.settings import InspectSettings, ServerSettings, Settings
from dragoman.errors import ConfigError
from dragoman.testing import ScriptedReply, ScriptedUpstream, json_reply, sse
from gateway_harness import RunningGateway, one_upstream, running_gateway, wait_until
from sample_exchanges import PATHS, ask, call, inspected
from vendor_wire import Answer, Said, Tool, stream

ON = InspectSettings(capture="on")
ANSWER = Answer((Said(("fine",)),))
READS = ("/v1/inspect", "/v1/inspect/requests", "/v1/inspect/requests/x", "/v1/inspect/events")
USER, OPERATOR, OTHER = "user-key-0123456789", "operator-key-0123456", "other-key-0123456789"


@contextmanager
def gateway_with(
    *replies: ScriptedReply, keys: tuple[str, ...] = (), **inspect: Any
) -> Generator[RunningGateway]:
    with ScriptedUpstream.in_thread(replies) as upstream:
        chosen = structs.replace(ON, **inspect)
        server = ServerSettings(shutdown_grace=0.3, api_keys=keys, allowed_hosts=("gateway.lan",))
        settings = one_upstream(upstream.url, "chat", inspect=chosen, server=server)
        with running_gateway(settings) as gateway:
            yield gateway


def code_of(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    status, headers, data = answer
    assert "access-control-allow-origin" not in headers
    return status, json.loads(data)["error"]["code"]


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "attacker.example"}, "foreign_host"),
        ({"host": "gateway.lan"}, "foreign_host"),
        (
            {"host": "attacker.example:8787", "origin": "http://attacker.example:8787"},
            "foreign_host",
        ),
        ({"origin": "https://attacker.example"}, "foreign_origin"),
        ({"origin": "null"}, "foreign_origin"),
        ({"origin": "http://localhost:3000"}, "foreign_origin"),
        ({"origin": "app://obsidian.md"}, "foreign_origin"),
        ({"sec-fetch-site": "cross-site"}, "foreign_origin"),
        ({"sec-fetch-site": "same-site"}, "foreign_origin"),
    ],
)
def test_other_hosts_and_origins_are_refused(path: str, headers: dict[str, str], code: str) -> None:
    with gateway_with() as gateway:
        assert code_of(call(gateway.url, "GET", path, None, headers)) == (403, code)


def test_its_own_page_and_programs_are_served() -> None:
    with gateway_with() as gateway:
        own = {"origin": gateway.url, "sec-fetch-site": "same-origin"}
        for headers in ({}, own, {"sec-fetch-site": "none"}):
            status, got, _ = call(gateway.url, "GET", "/v1/inspect", None, headers)
            assert status == 200
            assert got["cache-control"] == "no-store"
            assert got["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"origin": "OWN", "content-type": "text/plain"},
        {"origin": "OWN", "content-type": "application/x-www-form-urlencoded"},
        {"origin": "https://attacker.example"},
        {"sec-fetch-site": "none"},
    ],
)
def test_a_post_that_a_page_of_another_site_could_send_changes_nothing(
    headers: dict[str, str],
) -> None:
    with gateway_with(capture="ask") as gateway:
        sent = {name: gateway.url if value == "OWN" else value for name, value in headers.items()}
        status, _, _ = call(gateway.url, "POST", "/v1/inspect/capture", {"on": True}, sent)
        assert status in (400, 403)
        assert state(gateway)["capture"]["on"] is False


def test_a_preflight_is_not_answered_even_where_cors_is_on() -> None:
    server = ServerSettings(shutdown_grace=0.3, cors_origins=("https://friend.example",))
    with running_gateway(Settings(server=server, inspect=ON)) as gateway:
        asked = {"origin": "https://friend.example", "access-control-request-method": "POST"}
        status, headers, _ = call(gateway.url, "OPTIONS", "/v1/inspect/capture", None, asked)
        assert status >= 400
        assert "access-control-allow-origin" not in headers
        answer = call(gateway.url, "GET", "/v1/inspect", None, {"origin": "https://friend.example"})
        assert code_of(answer) == (403, "foreign_origin")


def state(gateway: RunningGateway, **headers: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(call(gateway.url, "GET", "/v1/inspect", None, headers)[2])
    return read


def test_the_switch_turns_the_capture_on_and_off() -> None:
    replies = [sse(stream("chat", ANSWER))] * 3
    with gateway_with(*replies, capture="ask") as gateway:
        own = {"origin": gateway.url}
        captured: list[bool] = []
        for on in (False, True, False):
            status, _, data = call(gateway.url, "POST", "/v1/inspect/capture", {"on": on}, own)
            assert (status, json.loads(data)["on"]) == (200, on)
            call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
            rows: list[dict[str, Any]] = []

            def has_ended(rows: list[dict[str, Any]] = rows) -> bool:
                listed = call(gateway.url, "GET", "/v1/inspect/requests")[2]
                rows[:] = json.loads(listed)["data"]
                return len(rows) == len(captured) + 1 and not rows[0]["live"]

            wait_until(has_ended)
            captured.append(rows[0]["captured"])
        assert captured == [False, True, False]


def test_where_it_is_off_nothing_can_be_seen_or_switched() -> None:
    with gateway_with(capture="off") as gateway:
        for path in READS:
            assert code_of(call(gateway.url, "GET", path)) == (403, "inspect_off")
        own = {"origin": gateway.url}
        answer = call(gateway.url, "POST", "/v1/inspect/capture", {"on": True}, own)
        assert code_of(answer) == (403, "inspect_off")


def test_with_keys_only_a_key_with_the_right_inspects() -> None:
    replies = [sse(stream("chat", ANSWER))]
    with gateway_with(*replies, keys=(USER, OPERATOR), api_keys=(OPERATOR,)) as gateway:
        call(
            gateway.url,
            "POST",
            PATHS["chat"],
            ask("chat", "hi"),
            {"authorization": f"Bearer {USER}"},
        )
        for path in READS:
            status, _, _ = call(gateway.url, "GET", path)
            assert status == 401
            refused = call(gateway.url, "GET", path, None, {"x-api-key": USER})
            assert code_of(refused) == (403, "inspect_not_allowed")
        public = {"host": "gateway.example", "x-api-key": OPERATOR}
        status, _, data = call(gateway.url, "GET", "/v1/inspect/requests", None, public)
        assert status == 200
        assert len(json.loads(data)["data"]) == 1
        switched = call(gateway.url, "POST", "/v1/inspect/capture", {"on": False}, public)
        assert switched[0] == 200


def test_a_receipt_is_for_its_owner_and_for_those_who_may_inspect() -> None:
    replies = [sse(stream("chat", ANSWER))]
    keys = (USER, OTHER, OPERATOR)
    with gateway_with(*replies, keys=keys, api_keys=(OPERATOR,), capture="ask") as gateway:
        own = {"x-api-key": USER, "x-dragoman-receipt": "full", "x-request-id": "mine"}
        call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"), own)
        path = "/v1/inspect/requests/mine/receipt"
        wait_until(lambda: call(gateway.url, "GET", path, None, {"x-api-key": USER})[0] == 200)
        assert call(gateway.url, "GET", path, None, {"x-api-key": OPERATOR})[0] == 200
        other = call(gateway.url, "GET", path, None, {"x-api-key": OTHER})
        unknown = call(gateway.url, "GET", path.replace("mine", "none"), None, {"x-api-key": OTHER})
        assert code_of(other) == code_of(unknown) == (404, "not_captured")
        # Its receipt was asked for, and nothing else of it is kept.
        whole = call(gateway.url, "GET", "/v1/inspect/requests/mine", None, {"x-api-key": OPERATOR})
        assert whole[0] == 404


def test_a_key_that_may_inspect_is_one_of_the_gateways_keys() -> None:
    settings = Settings(inspect=InspectSettings(api_keys=(OPERATOR,)))
    with pytest.raises(ConfigError, match=r"expected one of server\.api_keys"):
        complete(settings)


def test_ids_of_clients_may_repeat_and_are_hostile_to_nobody() -> None:
    replies = [sse(stream("chat", ANSWER))] * 3
    hostile = "../../etc/<script>%2f?x=1"
    with gateway_with(*replies) as gateway:
        for _ in range(3):
            call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"), {"x-request-id": hostile})
        wait_until(
            lambda: (
                len(json.loads(call(gateway.url, "GET", "/v1/inspect/requests")[2])["data"]) == 3
            )
        )
        listed = json.loads(call(gateway.url, "GET", "/v1/inspect/requests")[2])["data"]
    assert [row["id"] for row in listed] == [f"{hostile}.3", f"{hostile}.2", hostile]


def test_a_refused_caller_leaves_nothing_in_the_ring() -> None:
    with gateway_with(keys=(USER, OPERATOR), api_keys=(OPERATOR,)) as gateway:
        for _ in range(3):
            call(gateway.url, "POST", PATHS["chat"], b"x" * 10_000, {"x-api-key": "wrong"})
        assert state(gateway, **{"x-api-key": OPERATOR})["capture"]["exchanges"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/inspect/requests?limit=0", None),
        ("GET", "/v1/inspect/requests?limit=x", None),
        ("GET", "/v1/inspect/requests?limit=99999999999", None),
        ("GET", f"/v1/inspect/requests?limit={'0' * 8}1{'0' * 4300}", None),
        ("POST", "/v1/inspect/capture", {"on": "yes"}),
    ],
)
def test_what_is_out_of_range_is_refused(method: str, path: str, body: Any) -> None:
    with gateway_with() as gateway:
        assert call(gateway.url, method, path, body, {"origin": gateway.url})[0] == 400


def test_the_list_is_read_page_by_page() -> None:
    with gateway_with(*[sse(stream("chat", ANSWER))] * 5) as gateway:
        for number in range(5):
            named = {"x-request-id": f"r{number}"}
            call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"), named)
        inspected(gateway.url, 5)
        found: list[str] = []
        before, has_more = "", True
        while has_more:
            path = f"/v1/inspect/requests?limit=2{before}"
            page = json.loads(call(gateway.url, "GET", path)[2])
            found += [row["id"] for row in page["data"]]
            before, has_more = f"&before={found[-1]}", page["has_more"]
    assert found == ["r4", "r3", "r2", "r1", "r0"]


def test_a_receipt_of_a_captured_request_is_made_when_it_is_read() -> None:
    with gateway_with(sse(stream("chat", ANSWER))) as gateway:
        call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"), {"x-request-id": "r"})
        inspected(gateway.url)
        status, _, data = call(gateway.url, "GET", "/v1/inspect/requests/r/receipt")
    assert (status, json.loads(data)["id"]) == (200, "r")


def test_nothing_is_sent_again_while_the_capture_is_off_or_was_cut() -> None:
    replies = [sse(stream("chat", ANSWER))]
    with gateway_with(*replies, max_exchange_bytes=5000) as gateway:
        asked = ask("chat", "long " * 1000)
        call(gateway.url, "POST", PATHS["chat"], asked, {"x-request-id": "r"})
        inspected(gateway.url)
        own, path = {"origin": gateway.url}, "/v1/inspect/requests/r/replay"
        assert b"captured whole" in call(gateway.url, "POST", path, {}, own)[2]
        call(gateway.url, "POST", "/v1/inspect/capture", {"on": False}, own)
        assert b"capture to be on" in call(gateway.url, "POST", path, {}, own)[2]


def test_only_so_many_pages_follow_the_events() -> None:
    with gateway_with(capture="ask") as gateway:
        host = gateway.url.removeprefix("http://")
        clients = [http.client.HTTPConnection(host, timeout=60) for _ in range(33)]
        statuses: list[int] = []
        for client in clients:
            client.request("GET", "/v1/inspect/events")
            statuses.append(client.getresponse().status)
        for client in clients:
            client.close()
    assert statuses == [200] * 32 + [403]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_ring_stays_within_its_bytes_whatever_comes() -> None:
    most = 512 * 1024
    with gateway_with(*[sse(stream("chat", ANSWER))] * 200, max_bytes=most) as gateway:
        client = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=30)
        body = json.dumps(ask("chat", "long " * 1000)).encode()
        for _ in range(200):
            client.request("POST", PATHS["chat"], body, {"content-type": "application/json"})
            client.getresponse().read()
        client.close()
        capture = state(gateway)["capture"]
    assert 0 < capture["bytes"] <= most
    assert capture["dropped"] >= 100
    assert capture["exchanges"] + capture["dropped"] == 200


def test_an_exchange_beyond_its_limit_reaches_the_client_whole_and_says_that_it_was_cut() -> None:
    long = Answer((Said(tuple("word " for _ in range(20_000))),))
    data = stream("chat", long)
    with gateway_with(sse(data, cut_into=4096), max_exchange_bytes=200_000) as gateway:
        status, _, got = call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
        [report] = inspected(gateway.url)
        capture = state(gateway)["capture"]
    assert status == 200
    assert got.count(b"word ") == 20_000
    assert report["truncated"]
    assert capture["bytes"] <= 200_000
    shown = "".join(frame["text"] for frame in report["client"]["answer"]["frames"])
    assert got.startswith(shown.encode())


def test_a_stream_of_single_bytes_takes_no_more_than_its_limit() -> None:
    data = stream("chat", Answer((Said(tuple("abcdefghij" * 20)),)))
    with gateway_with(sse(data, cut_into=1), max_exchange_bytes=300_000) as gateway:
        call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
        assert state(gateway)["capture"]["bytes"] <= 300_000


def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    with gateway_with(*[sse(stream("chat", ANSWER))] * 300) as gateway:
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        slow = socket.create_connection((host, int(port)), timeout=30)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(f"GET /v1/inspect/events HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
        assert slow.recv(15) == b"HTTP/1.1 200 OK"
        client = http.client.HTTPConnection(f"{host}:{port}", timeout=30)
        body = json.dumps(ask("chat", "hi")).encode()
        for _ in range(300):
            client.request("POST", PATHS["chat"], body, {"content-type": "application/json"})
            assert client.getresponse().read()
        client.close()
        slow.close()


def test_events_report_each_request_when_it_begins_and_when_it_has_ended() -> None:
    found: list[tuple[str, dict[str, Any]]] = []
    with gateway_with(sse(stream("chat", ANSWER))) as gateway:
        client = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
        client.request("GET", "/v1/inspect/events")
        reply = client.getresponse()
        assert reply.getheader("content-type", "").startswith("text/event-stream")

        def read() -> None:
            name = ""
            while len(found) < 3 and (line := reply.readline()):
                if line.startswith(b"event: "):
                    name = line[7:].decode().strip()
                elif line.startswith(b"data: "):
                    found.append((name, json.loads(line[6:])))

        reader = threading.Thread(target=read)
        reader.start()
        wait_until(lambda: len(found) == 1)
        call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
        reader.join(60)
        client.close()
    assert [name for name, _ in found] == ["capture", "request", "request"]
    assert [row["live"] for name, row in found if name == "request"] == [True, False]


def test_a_gateway_that_stops_ends_the_streams_of_events() -> None:
    with gateway_with() as gateway:
        client = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
        client.request("GET", "/v1/inspect/events")
        reply = client.getresponse()
        gateway.stop()
        assert b"capture" in reply.read()
        client.close()


# --- secrets ----------------------------------------------------------------------------------------------------------

SECRET = "sk-proj-abcdefgh12345678"


@pytest.mark.parametrize("door", PATHS)
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_secret_is_not_shown_however_many_deltas_it_is_spread_over(door: str, cut: int) -> None:
    arguments = f'{{"key": "{SECRET}", "password": "hunter2 \\"x\\"", "n": 1}}'
    pieces = tuple(arguments[at : at + cut] for at in range(0, len(arguments), cut))
    said = f"The key is {SECRET}."
    answer = Answer(
        (
            Said(tuple(said[at : at + cut] for at in range(0, len(said), cut))),
            Tool("c1", "f", pieces),
        )
    )
    with gateway_with(sse(stream("chat", answer))) as gateway:
        asked = ask(door, f"use {SECRET} and upstream-key", "f")
        call(gateway.url, "POST", PATHS[door], asked, {"x-api-key": "the-callers-own-key"})
        [report] = inspected(gateway.url)
        status, _, zipped = call(
            gateway.url, "GET", f"/v1/inspect/requests/{report['summary']['id']}/case"
        )
    text = json.dumps(report)
    for hidden in (SECRET, SECRET[8:], "hunter2", "the-callers-own-key", "upstream-key"):
        assert hidden not in text
    joined = "".join(frame["text"] for frame in report["client"]["answer"]["frames"])
    assert "[redacted]" in joined
    [row] = report["calls"]
    assert row["input"]["equal"] is True
    assert json.loads(row["input"]["client"]["text"]) == {
        "key": "[redacted]",
        "password": "[redacted]",
        "n": 1,
    }
    assert row["input"]["client"]["bytes"] == len(arguments)
    assert status == 200
    assert zipped.startswith(b"PK")


def test_an_upstream_error_that_quotes_a_key_is_shown_without_it() -> None:
    error = json_reply({"error": {"message": f"bad key {SECRET}", "type": "x"}}, 401)
    with gateway_with(error) as gateway:
        call(gateway.url, "POST", PATHS["chat"], ask("chat", "hi"))
        [report] = inspected(gateway.url)
    assert SECRET not in json.dumps(report)
