"""Upstreams that would hang, flood or mislead a run: it ends soon, and says why."""

import asyncio
from collections.abc import Callable

import pytest

from certified_model import CertifiedModel
from dragoman.certify.asker import MAX_REQUESTS
from dragoman.certify.report import CertifyReport
from dragoman.certify.run import certify
from dragoman.config.settings import UpstreamSettings
from dragoman.testing import (
    Pause,
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    json_reply,
)
from vendor_errors import error_body

FLOOD = b": " + b"x" * 65_000 + b"\n\n"
DELTA = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"no "},"finish_reason":null}]}\n\n'


def run(
    script: Callable[[ReceivedRequest], ScriptedReply],
    patience: float = 60.0,
    max_requests: int = MAX_REQUESTS,
) -> CertifyReport:
    with ScriptedUpstream.in_thread(script) as upstream:
        settings = UpstreamSettings(kind="chat", base_url=f"{upstream.url}/v1")
        made = certify(
            "it", settings, "small-model", {}, patience=patience, max_requests=max_requests
        )
        return asyncio.run(made)


def after(
    count: int, reply: Callable[[], ScriptedReply]
) -> Callable[[ReceivedRequest], ScriptedReply]:
    """A good upstream that turns bad after so many requests."""
    good = CertifiedModel()
    seen: list[None] = []

    def script(request: ReceivedRequest) -> ScriptedReply:
        seen.append(None)
        return good(request) if len(seen) <= count else reply()

    return script


def endless(chunk: bytes, content_type: str = "text/event-stream") -> ScriptedReply:
    return ScriptedReply(
        content_type=content_type, chunks=[chunk] * (16 * 1024 * 1024 // len(chunk))
    )


@pytest.mark.parametrize(
    "reply",
    [
        lambda: endless(FLOOD),
        lambda: endless(DELTA * 400),
        lambda: endless(b" " * 65_536, "application/json"),
    ],
    ids=["comments", "deltas", "body"],
)
def test_an_answer_without_end_is_cut(reply: Callable[[], ScriptedReply]) -> None:
    report = run(lambda _request: reply())
    assert report.stopped is not None
    assert report.stopped.startswith("nothing works without a text, not streamed: ")
    assert "expected an answer of at most" in report.stopped
    assert report.asked < 12


def test_an_upstream_that_is_silent_ends_the_run_after_two_waits() -> None:
    report = run(lambda _request: ScriptedReply(hold=Pause(30.0)), patience=0.2)
    assert report.stopped is not None
    assert "no whole answer within 0.2 s" in report.stopped
    assert report.asked <= 2


def test_an_upstream_that_falls_silent_ends_the_run_with_what_was_found() -> None:
    report = run(after(8, lambda: ScriptedReply(framing="raw", cut="reset")))
    assert report.stopped is not None
    assert report.stopped.startswith("the upstream does not answer any more: ")
    assert [finding.status for finding in report.findings[:7]] == ["ok"] * 7
    assert report.asked == 10


def test_an_upstream_that_drips_is_cut_by_the_clock() -> None:
    chunks = [each for _ in range(200) for each in (b": x\n\n", Pause(0.05))]
    report = run(
        lambda _request: ScriptedReply(content_type="text/event-stream", chunks=chunks),
        patience=0.3,
    )
    assert report.stopped is not None
    assert report.asked <= 2


@pytest.mark.parametrize(
    "reply",
    [
        lambda: ScriptedReply(content_type="text/html", body=b"<html>welcome</html>"),
        lambda: ScriptedReply(status=302, headers={"location": "http://127.0.0.1:9/elsewhere"}),
        lambda: ScriptedReply(status=500, content_type="text/html", body=b"<html>oops</html>"),
        lambda: json_reply(b"[]"),
        lambda: json_reply(b"{}"),
        lambda: ScriptedReply(framing="raw", chunks=[b"SSH-2.0-x\r\n"]),
        lambda: ScriptedReply(content_type="application/json", chunks=[b'{"a":'], cut="reset"),
    ],
    ids=["page", "redirect", "error page", "list", "empty", "no HTTP", "reset"],
)
def test_an_answer_of_another_kind_ends_the_run(reply: Callable[[], ScriptedReply]) -> None:
    report = run(lambda _request: reply())
    assert report.stopped is not None
    assert report.asked < 12
    assert "elsewhere" not in str([finding.settings for finding in report.findings])
    assert not report.reasons


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_ends_the_run_at_once(status: int) -> None:
    report = run(after(3, lambda: json_reply(error_body("chat", status, "no"), status)))
    assert report.stopped is not None
    assert report.stopped.startswith("the upstream refuses access")
    assert report.asked == 4


def test_a_rate_limit_is_waited_for() -> None:
    replies: list[None] = []
    good = CertifiedModel()

    def script(request: ReceivedRequest) -> ScriptedReply:
        replies.append(None)
        if len(replies) % 5 == 0:
            busy = error_body("chat", 429, "slow down")
            return json_reply(busy, 429, headers={"retry-after": "0"})
        return good(request)

    report = run(script)
    assert report.stopped is None
    assert report.is_clean


def test_a_long_pause_is_not_waited_for() -> None:
    busy = json_reply(error_body("chat", 429, "slow down"), 429, headers={"retry-after": "86400"})
    report = run(after(3, lambda: busy))
    assert report.stopped == "the upstream wants a pause of 86400 s: slow down"


def test_a_server_that_fails_now_and_then_gets_no_settings() -> None:
    seen: list[None] = []
    good = CertifiedModel()

    def script(request: ReceivedRequest) -> ScriptedReply:
        seen.append(None)
        is_bad = len(seen) % 6 == 0
        return json_reply(error_body("chat", 500, "oops"), 500) if is_bad else good(request)

    report = run(script)
    assert not report.reasons


def test_a_run_never_sends_more_requests_than_it_says() -> None:
    """The first upstream refuses everything that has tools, for another reason each time."""
    fickle = CertifiedModel(
        refuses=(lambda body: f"no {len(str(body))}" if body.get("tools") else None,)
    )
    assert run(fickle).asked <= MAX_REQUESTS
    few = 12
    report = run(CertifiedModel(), max_requests=few)
    assert report.asked == few
    assert report.stopped == f"all {few} requests of a run were sent"
