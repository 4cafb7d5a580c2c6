"""What an operator writes about an upstream, and what becomes of it: addresses, dialects, a look at the server."""

import asyncio

import pytest
from msgspec import structs

from dragoman.config.settings import UpstreamKind, UpstreamSettings
from dragoman.errors import ConfigError, RequestRefused, UpstreamError
from dragoman.model.parts import Dialect
from dragoman.testing import ScriptedReply, ScriptedUpstream, json_reply
from dragoman.upstream.base import CheckResult, Upstream, UpstreamRequest
from dragoman.upstream.http.upstream import HttpUpstream, url_for
from ports import free_port


@pytest.mark.parametrize(
    ("kind", "base", "dialect", "operation", "url"),
    [
        ("chat", "http://h:1/v1", "chat", "generate", "http://h:1/v1/chat/completions"),
        ("chat", "http://h:1/v1/", "chat", "generate", "http://h:1/v1/chat/completions"),
        ("chat", "http://h", "chat", "generate", "http://h/chat/completions"),
        ("chat", "http://h/v1", "chat", "models", "http://h/v1/models"),
        ("responses", "https://h/v1", "responses", "generate", "https://h/v1/responses"),
        ("messages", "https://h", "messages", "generate", "https://h/v1/messages"),
        ("messages", "https://h/", "messages", "generate", "https://h/v1/messages"),
        ("messages", "https://h/v1", "messages", "generate", "https://h/v1/messages"),
        ("messages", "https://h/x", "messages", "generate", "https://h/x/v1/messages"),
        ("messages", "https://h", "messages", "count_tokens", "https://h/v1/messages/count_tokens"),
        ("messages", "https://h", "messages", "models", "https://h/v1/models"),
        ("chat", "http://h/v1", "messages", "generate", "http://h/v1/messages"),
        ("messages", "https://h", "chat", "generate", "https://h/v1/chat/completions"),
        ("chat", "http://[::1]:8/v1", "chat", "generate", "http://[::1]:8/v1/chat/completions"),
    ],
)
def test_the_address_of_an_operation_follows_from_the_base(
    kind: UpstreamKind, base: str, dialect: Dialect, operation: str, url: str
) -> None:
    settings = UpstreamSettings(kind=kind, base_url=base)
    assert url_for("up", settings, dialect, operation) == url


def test_the_query_of_the_base_and_the_configured_one_are_both_sent() -> None:
    settings = UpstreamSettings(
        kind="chat", base_url="https://h/openai?api-version=2025", query={"a b": "c&d", "e": ""}
    )
    assert (
        url_for("up", settings, "chat", "generate")
        == "https://h/openai/chat/completions?api-version=2025&a+b=c%26d&e="
    )


@pytest.mark.parametrize(
    "base", ["", "h/v1", "ftp://h", "http://", "unix:/x", "http://[::1", "http://h:x"]
)
def test_an_address_that_leads_nowhere_is_refused(base: str) -> None:
    settings = UpstreamSettings(kind="chat", base_url=base)
    with pytest.raises(ConfigError, match=r"upstreams\.up\.base_url: expected"):
        HttpUpstream("up", settings, key=None)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    settings = UpstreamSettings(kind="chat", base_url="https://me:hush@h/v1")
    with pytest.raises(ConfigError, match="no user and password") as caught:
        HttpUpstream("up", settings, key=None)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-1\n", "sk\r\nx: y", "schlüssel", "a\0b"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(key: str) -> None:
    settings = UpstreamSettings(kind="chat", base_url="http://h")
    with pytest.raises(ConfigError, match="printable ASCII in 'key'") as caught:
        HttpUpstream("up", settings, key=key)
    assert key not in str(caught.value)


def test_a_configured_header_that_cannot_be_sent_is_refused() -> None:
    settings = UpstreamSettings(kind="chat", base_url="http://h", headers={"x-team": "a\nb"})
    with pytest.raises(ConfigError, match="printable ASCII in 'x-team'"):
        HttpUpstream("up", settings, key=None)


def test_a_header_name_that_is_none_is_refused() -> None:
    settings = UpstreamSettings(kind="chat", base_url="http://h", headers={"x team": "a"})
    with pytest.raises(ConfigError, match="expected a header name, got 'x team'"):
        HttpUpstream("up", settings, key=None)


def test_a_rehearsal_has_no_address() -> None:
    with pytest.raises(ConfigError, match="rehearsal"):
        HttpUpstream("up", UpstreamSettings(kind="rehearsal"), key=None)


def test_a_file_that_holds_no_certificates_is_refused() -> None:
    settings = UpstreamSettings(kind="chat", base_url="https://h", ca_file="/no/such/file")
    with pytest.raises(
        ConfigError, match=r"upstreams\.up\.ca_file: expected a file of certificates"
    ):
        HttpUpstream("up", settings, key=None)


@pytest.mark.parametrize("proxy", ["https://p:1", "socks5://p", "p:1", "http://"])
def test_a_proxy_that_cannot_be_used_is_refused(proxy: str) -> None:
    settings = UpstreamSettings(kind="chat", base_url="http://h", proxy=proxy)
    with pytest.raises(ConfigError, match=r"upstreams\.up\.proxy: expected"):
        HttpUpstream("up", settings, key=None)


def test_each_door_is_spoken_to_in_the_dialect_that_needs_least_translation() -> None:
    settings = UpstreamSettings(kind="chat", also=("messages",), base_url="http://h")
    upstream: Upstream = HttpUpstream("up", settings, key=None)
    assert upstream.name == "up"
    assert upstream.dialect_for("chat") == "chat"
    assert upstream.dialect_for("messages") == "messages"
    assert upstream.dialect_for("responses") == "chat"


def test_an_operation_that_the_dialect_lacks_is_an_error() -> None:
    async def main() -> None:
        upstream = HttpUpstream("up", UpstreamSettings(kind="chat", base_url="http://h"), key=None)
        asked = UpstreamRequest(
            dialect="chat", body=b"", stream=False, model="m", operation="count_tokens"
        )
        with pytest.raises(UpstreamError, match="has no 'count_tokens' in the dialect 'chat'"):
            await upstream.send(asked)

    asyncio.run(main())


def test_half_a_surrogate_pair_in_the_name_of_a_model_is_replaced_in_the_path() -> None:
    async def main() -> None:
        async with ScriptedUpstream([json_reply({})]) as server:
            settings = UpstreamSettings(kind="chat", base_url=server.url, path="/models/{model}")
            request = UpstreamRequest(dialect="chat", body=b"{}", stream=False, model="a\ud800")
            upstream = HttpUpstream("up", settings, key=None)
            (await upstream.send(request)).close()
            assert server.requests[0].path == "/models/a%3F"
            await upstream.close()

    asyncio.run(main())


@pytest.mark.parametrize("model", [".", "..", "x" * 3000])
def test_a_model_that_no_path_can_name_is_refused(model: str) -> None:
    settings = UpstreamSettings(kind="chat", base_url="http://h/v1", path="/models/{model}:run")
    request = UpstreamRequest(dialect="chat", body=b"{}", stream=False, model=model)

    async def main() -> None:
        with pytest.raises(RequestRefused, match="expected the name of a model, got") as refused:
            await HttpUpstream("up", settings, key=None).send(request)
        assert len(refused.value.message) < 200

    asyncio.run(main())


def test_counting_goes_to_its_own_address_with_the_query() -> None:
    async def main() -> ScriptedUpstream:
        async with ScriptedUpstream([json_reply({"input_tokens": 3})]) as server:
            settings = UpstreamSettings(
                kind="messages", base_url=server.url, query={"beta": "true"}
            )
            upstream = HttpUpstream("up", settings, key="k")
            asked = UpstreamRequest(
                dialect="messages", body=b"{}", stream=False, model="m", operation="count_tokens"
            )
            reply = await upstream.send(asked)
            assert await reply.read() == b'{"input_tokens":3}'
            reply.close()
            await upstream.close()
        return server

    [received] = asyncio.run(main()).requests
    assert (received.path, received.query) == ("/v1/messages/count_tokens", "beta=true")
    assert received.headers["x-api-key"] == "k"


def probed(
    reply: ScriptedReply, settings: UpstreamSettings, key: str | None
) -> tuple[CheckResult, ScriptedUpstream]:
    async def main() -> tuple[CheckResult, ScriptedUpstream]:
        async with ScriptedUpstream([reply]) as server:
            pointed = structs.replace(settings, base_url=f"{server.url}/v1")
            upstream = HttpUpstream("up", pointed, key=key)
            found = await upstream.check()
            await upstream.close()
        return found, server

    return asyncio.run(main())


CHAT = UpstreamSettings(kind="chat")
PASSED_ON = UpstreamSettings(kind="chat", api_key="client")


@pytest.mark.parametrize(
    ("status", "settings", "probe"),
    [
        (200, CHAT, CheckResult(ok=True, status=200, detail="reached")),
        (
            401,
            CHAT,
            CheckResult(ok=False, status=401, detail='the key was refused: {"error":"x y"}'),
        ),
        (403, PASSED_ON, CheckResult(ok=True, status=403, detail="reached; clients bring the key")),
        (
            404,
            CHAT,
            CheckResult(ok=True, status=404, detail="reached; it does not list its models"),
        ),
        (500, CHAT, CheckResult(ok=False, status=500, detail='it answered 500: {"error":"x y"}')),
    ],
)
def test_a_look_at_an_upstream_says_what_was_found(
    status: int, settings: UpstreamSettings, probe: CheckResult
) -> None:
    key = "client" if settings is PASSED_ON else "sk-1"
    found, server = probed(json_reply({"error": "x y"}, status), settings, key)
    assert found == probe
    [received] = server.requests
    assert (received.method, received.path) == ("GET", "/v1/models")
    expected = None if settings is PASSED_ON else "Bearer sk-1"
    assert received.headers.get("authorization") == expected


def test_a_look_at_nothing_says_so() -> None:
    port = free_port()

    async def main() -> CheckResult:
        settings = UpstreamSettings(kind="messages", base_url=f"http://127.0.0.1:{port}")
        return await HttpUpstream("up", settings, key="k").check()

    found = asyncio.run(main())
    assert (found.ok, found.status) == (False, None)
    assert "cannot be reached" in found.detail
