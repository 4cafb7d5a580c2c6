"""Peers of one name, on real servers: conversations keep theirs, failures move on, what is down rests and comes back."""

import json
import logging
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from msgspec import Struct

from dragoman.config.settings import (
    PeerSettings,
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply, sse
from gateway_harness import RunningGateway, running_gateway, wait_until
from heard import hear
from plain_http import ask, fetch, plain_body
from ports import free_port
from sdk_clients import DOORS, conversation
from stage import deliver
from vendor_errors import error_body
from vendor_wire import Answer, Said, stream

ANSWER = Answer((Said(("Here ", "I am.")),))
# Cooldowns that no test outlives; those that wait for the end of one set their own.
QUICK = RetrySettings(
    base_delay=0.005, max_delay=0.01, failures=2, cooldown=600.0, max_cooldown=900.0
)
NAMES = ("a", "b", "c")


class Server(Struct):
    """A scripted server. `reply`: what it answers in place of the answer, while it is set."""

    name: str
    dialect: str = "chat"
    reply: ScriptedReply | None = None
    requests: list[ReceivedRequest] = []

    def script(self, request: ReceivedRequest) -> ScriptedReply:
        self.requests.append(request)
        if self.reply is not None:
            return self.reply
        is_stream = json.loads(request.body).get("stream") is True
        return deliver(self.dialect, ANSWER, is_stream=is_stream)

    def fail(self, status: int, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply = json_reply(error_body(self.dialect, status, "not now"), status, headers=named)


class Scene(Struct):
    gateway: RunningGateway
    servers: dict[str, Server]

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(server.requests) for name, server in self.servers.items()}

    def ask(self, text: str = "hi", model: str = "m", **more: object) -> int:
        """The status of a small request that begins with this text."""
        body = plain_body("chat", model, **more)
        body["messages"] = [{"role": "user", "content": text}]
        return ask(self.gateway.url, "chat", body).status_code

    def text_for(self, name: str) -> str:
        """The beginning of a conversation that this peer gets. Asks until one is found."""
        for number in range(1000):
            before = self.counts[name]
            assert self.ask(f"question {number}") == 200
            if self.counts[name] > before:
                return f"question {number}"
        raise AssertionError("no conversation for this peer")

    def page(self, path: str) -> Any:
        return json.loads(fetch("GET", self.gateway.url + path).content)


@contextmanager
def running(
    names: Sequence[str] = NAMES,
    *,
    dialect: str = "chat",
    retry: RetrySettings = QUICK,
    spare: bool = False,
    weights: Sequence[float] = (1.0, 1.0, 1.0),
) -> Generator[Scene]:
    """A gateway with one upstream `many` that has these peers, and perhaps a fallback `spare`."""
    servers = {name: Server(name, dialect) for name in (*names, *(("spare",) if spare else ()))}
    with ExitStack() as stack:
        urls: dict[str, str] = {}
        for name, server in servers.items():
            url = stack.enter_context(ScriptedUpstream.in_thread(server.script)).url
            urls[name] = url if dialect == "messages" else f"{url}/v1"
        peers = [
            PeerSettings(name=name, base_url=urls[name], weight=weight, api_key=f"key-of-{name}")
            for name, weight in zip(names, weights, strict=False)
        ]
        upstreams = {"many": UpstreamSettings(kind="chat", peers=tuple(peers))}
        if dialect != "chat":
            upstreams = {"many": _of_kind(dialect, peers)}
        if spare:
            upstreams["spare"] = UpstreamSettings(kind="chat", base_url=urls["spare"])
        route = Route(model="*", upstream="many", fallback=("spare",) if spare else ())
        settings = Settings(
            server=ServerSettings(shutdown_grace=0.3),
            upstreams=upstreams,
            routes=(route,),
            retry=retry,
        )
        gateway = stack.enter_context(running_gateway(settings))
        yield Scene(gateway, servers)


def _of_kind(dialect: str, peers: list[PeerSettings]) -> UpstreamSettings:
    kinds = {
        kind: UpstreamSettings(kind=kind, peers=tuple(peers)) for kind in ("responses", "messages")
    }
    return kinds[dialect]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("dialect", DOORS)
def test_a_conversation_keeps_its_peer_from_turn_to_turn(door: str, dialect: str) -> None:
    with running(dialect=dialect) as scene:
        used: set[str] = set()
        for number in range(8):
            asking = conversation(door, scene.gateway.url, "m")
            before = scene.counts
            for turn in range(3):
                asking.say(f"conversation {number}, turn {turn}")
                assert asking.ask("stream" if turn % 2 else "create").text == "Here I am."
            grown = {name for name, count in scene.counts.items() if count != before[name]}
            assert len(grown) == 1, f"one conversation at {grown}"
            (own,) = grown
            used |= grown
            last = hear(dialect, scene.servers[own].requests[-1].body)
            assert len(last.turns) == 5
        assert len(used) > 1


def test_each_peer_gets_its_own_key_and_its_share() -> None:
    with running(weights=(3.0, 1.0, 0.0)) as scene:
        for number in range(40):
            assert scene.ask(f"conversation {number}") == 200
        counts = Counter(scene.counts)
        assert counts["a"] > counts["b"] > counts["c"] == 0
        for name in ("a", "b"):
            sent = scene.servers[name].requests[0].headers["authorization"]
            assert sent == f"Bearer key-of-{name}"


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_failed_attempt_goes_to_another_peer_and_the_client_does_not_notice(
    *, is_stream: bool
) -> None:
    with running() as scene:
        text = scene.text_for("a")
        before = scene.counts
        scene.servers["a"].fail(503)
        assert scene.ask(text, stream=is_stream) == 200
        others = sum(scene.counts[name] - before[name] for name in ("b", "c"))
        assert (scene.counts["a"] - before["a"], others) == (1, 1)


def test_a_peer_that_cannot_be_reached_rests_and_the_pages_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running() as scene, caplog.at_level(logging.INFO, logger="dragoman"):
        text = scene.text_for("a")
        assert scene.page("/readyz") == {"status": "ready"}
        scene.servers["a"].fail(500)
        for _ in range(2):
            assert scene.ask(text) == 200
        asked = scene.counts["a"]
        for _ in range(5):
            assert scene.ask(text) == 200
        assert scene.counts["a"] == asked, "it rests"

        ready = fetch("GET", f"{scene.gateway.url}/readyz")
        assert ready.status_code == 200
        report = json.loads(ready.content)
        assert report["status"] == "ready"
        assert list(report["resting"]) == ["many/a"]
        assert "after 2 failures, the last: status 500" in report["resting"]["many/a"]
        assert "127.0.0.1" not in ready.text

        rows = {row["name"]: row for row in scene.page("/v1/inspect")["upstreams"]}
        assert {name: row["state"] for name, row in rows.items()}["many/a"] == "resting"
        assert rows["many/a"]["upstream"] == "many"
        assert "cools down" in rows["many/a"]["health"]
        assert rows["many/b"]["health"] is None

        metrics = fetch("GET", f"{scene.gateway.url}/metrics").text
        assert 'dragoman_upstream_cooling{peer="many/a",upstream="many"} 1.0' in metrics
        assert 'dragoman_upstream_cooling{peer="many/b",upstream="many"} 0.0' in metrics
        assert 'action="peer"' in metrics
        assert "upstream 'many/a' cools down for 600 s" in caplog.text


def test_a_peer_that_answers_again_gets_its_conversations_back() -> None:
    retry = RetrySettings(base_delay=0.005, failures=1, cooldown=0.05, max_cooldown=0.1)
    with running(retry=retry) as scene:
        text = scene.text_for("a")
        scene.servers["a"].fail(503)
        assert scene.ask(text) == 200
        scene.servers["a"].reply = None
        before = scene.counts["a"]

        def is_back() -> bool:
            assert scene.ask(text) == 200
            return scene.counts["a"] > before

        wait_until(is_back, 30)
        assert scene.page("/readyz") == {"status": "ready"}
        metrics = fetch("GET", f"{scene.gateway.url}/metrics").text
        assert 'dragoman_upstream_cooling{peer="many/a",upstream="many"} 0.0' in metrics


def test_no_other_peer_is_asked_after_the_first_byte() -> None:
    whole = stream("chat", ANSWER)
    begun = whole[: whole.index(b"\n\n", whole.index(b"Here")) + 2]
    with running() as scene:
        text = scene.text_for("a")
        before = scene.counts
        scene.servers["a"].reply = sse(begun, cut=True)
        assert scene.ask(text, stream=True) == 200
        after = scene.counts
        assert {name: after[name] - before[name] for name in NAMES} == {"a": 1, "b": 0, "c": 0}


def test_the_fallback_comes_after_all_peers_and_directly_while_they_rest() -> None:
    retry = RetrySettings(
        attempts=1, base_delay=0.005, failures=1, cooldown=600.0, max_cooldown=900.0
    )
    with running(spare=True, retry=retry) as scene:
        for name in NAMES:
            scene.servers[name].fail(500)
        assert scene.ask() == 200
        assert scene.counts == {"a": 1, "b": 1, "c": 1, "spare": 1}
        assert scene.ask() == 200
        assert scene.counts == {"a": 1, "b": 1, "c": 1, "spare": 2}


def test_when_everything_rests_one_server_is_asked_and_its_error_is_the_answer() -> None:
    retry = RetrySettings(attempts=1, failures=1, cooldown=600.0, max_cooldown=900.0)
    with running(retry=retry) as scene:
        for name in NAMES:
            scene.servers[name].fail(503, retry_after="77")
        assert scene.ask() == 503
        assert sum(scene.counts.values()) == 3
        body = plain_body("chat", "m")
        answer = ask(scene.gateway.url, "chat", body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "77")
        assert sum(scene.counts.values()) == 4
        assert fetch("GET", f"{scene.gateway.url}/readyz").status_code == 200


def test_a_rate_limit_rests_one_model_at_one_peer_for_as_long_as_it_says() -> None:
    with running(("a", "b"), weights=(1.0, 0.0)) as scene:
        scene.servers["a"].fail(429, retry_after="600")
        assert scene.ask(model="busy") == 200
        scene.servers["a"].reply = None
        before = scene.counts
        assert scene.ask(model="busy") == 200
        assert scene.counts == {"a": before["a"], "b": before["b"] + 1}
        assert scene.ask(model="other") == 200
        assert scene.counts["a"] == before["a"] + 1
        resting = scene.page("/readyz")["resting"]
        assert resting == {"many/a": "1 model rests after a rate limit"}


def test_with_the_callers_key_a_caller_cannot_take_a_peer_from_the_others() -> None:
    with ExitStack() as stack:
        server = Server("a")
        url = stack.enter_context(ScriptedUpstream.in_thread(server.script)).url
        peers = (
            PeerSettings(name="a", base_url=f"{url}/v1"),
            PeerSettings(name="b", base_url=f"http://127.0.0.1:{free_port()}/v1", weight=0.0),
        )
        upstream = UpstreamSettings(kind="chat", peers=peers, api_key="client")
        retry = RetrySettings(failures=1, cooldown=600.0, max_cooldown=900.0, attempts=1)
        settings = Settings(upstreams={"many": upstream}, retry=retry)
        gateway = stack.enter_context(running_gateway(settings))
        server.fail(401)
        for _ in range(3):
            refused = ask(
                gateway.url, "chat", plain_body("chat", "m"), {"authorization": "Bearer x"}
            )
            assert refused.status_code in (401, 502)
        server.reply = None
        assert ask(gateway.url, "chat", plain_body("chat", "m")).status_code == 200
        resting = json.loads(fetch("GET", f"{gateway.url}/readyz").content)["resting"]
        assert list(resting) == ["many/b"], "it cannot be reached, which is nobody's key"
