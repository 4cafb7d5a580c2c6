"""Trying upstreams: bounded in time, and silent about keys."""

import asyncio
from pathlib import Path

import pytest

from codex_logins import chatgpt_login, make_token
from dragoman.config.settings import Settings, UpstreamSettings
from dragoman.server import reachability
from dragoman.server.reachability import CheckFinding, check_upstreams
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, Wait, json_reply


def test_an_upstream_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "PATIENCE", 0.2)

    async def run() -> list[CheckFinding]:
        async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
            port: int = server.sockets[0].getsockname()[1]
            silent = UpstreamSettings(kind="chat", base_url=f"http://127.0.0.1:{port}/v1")
            return await check_upstreams(Settings(upstreams={"silent": silent}), {})

    assert asyncio.run(run()) == [
        CheckFinding("silent", is_ok=False, detail="no answer within 0.2 s"),
    ]


def test_a_question_that_is_never_answered_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "ASK_PATIENCE", 0.3)

    def script(request: ReceivedRequest) -> ScriptedReply:
        listed = json_reply({"data": [{"id": "m"}]})
        return listed if request.method == "GET" else ScriptedReply(hold=Wait(asyncio.Event()))

    async def run() -> list[CheckFinding]:
        async with ScriptedUpstream(script) as upstream:
            silent = UpstreamSettings(kind="chat", base_url=f"{upstream.url}/v1")
            settings = Settings(upstreams={"silent": silent})
            return await check_upstreams(settings, {})

    detail = "reached, but no answer to a question within 0.3 s"
    assert asyncio.run(run()) == [CheckFinding("silent", is_ok=False, detail=detail)]


def test_a_key_that_cannot_be_sent_is_a_finding() -> None:
    upstream = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1", api_key_env="K")
    (found,) = asyncio.run(check_upstreams(Settings(upstreams={"a": upstream}), {"K": "SECRET\n"}))
    assert not found.is_ok
    assert "SECRET" not in found.detail


def test_the_chatgpt_codex_backend_is_tried_with_the_login(tmp_path: Path) -> None:
    def found(reply: ScriptedReply, login: bytes | None = None) -> tuple[CheckFinding, list[str]]:
        async def run() -> tuple[CheckFinding, list[str]]:
            async with ScriptedUpstream([reply]) as backend:
                upstream = UpstreamSettings(kind="chatgpt-codex", base_url=backend.url)
                [finding] = await check_upstreams(
                    Settings(upstreams={"a": upstream}), {"CODEX_HOME": str(tmp_path)}
                )
                return finding, [r.headers["chatgpt-account-id"] for r in backend.requests]

        if login is not None:
            (tmp_path / "auth.json").write_bytes(login)
        return asyncio.run(run())

    missing, asked = found(json_reply({}))
    assert (missing.is_ok, asked) == (False, [])
    assert "run `codex login`" in missing.detail
    expired, asked = found(json_reply({}), chatgpt_login(make_token(1000)))
    assert (expired.is_ok, asked) == (False, [])
    ok = CheckFinding("a", is_ok=True, detail="reached")
    assert found(json_reply({}), chatgpt_login()) == (ok, ["acct-1"])
    assert found(json_reply({"detail": "client_version"}, 400))[0].is_ok
    refused, _ = found(json_reply({"detail": "no"}, 401))
    assert not refused.is_ok
    assert "was refused; run `codex login`" in refused.detail


def test_a_rehearsal_needs_no_network() -> None:
    found = asyncio.run(
        check_upstreams(Settings(upstreams={"r": UpstreamSettings(kind="rehearsal")}), {})
    )
    assert found == [CheckFinding("r", is_ok=True, detail="answers by itself")]


def test_a_server_that_repeats_the_key_is_not_quoted() -> None:
    async def run() -> list[CheckFinding]:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"SECRET" in head
            writer.write(b"HTTP/1.1 401 No\r\ncontent-length: 15\r\n\r\nbad key: SECRET")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port: int = server.sockets[0].getsockname()[1]
            base_url = f"http://127.0.0.1:{port}/v1"
            upstream = UpstreamSettings(kind="chat", base_url=base_url, api_key="SECRET")
            return await check_upstreams(Settings(upstreams={"a": upstream}), {})

    (found,) = asyncio.run(run())
    assert (found.is_ok, "SECRET" in found.detail, "[redacted]" in found.detail) == (
        False,
        False,
        True,
    )
