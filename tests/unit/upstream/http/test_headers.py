"""Which headers cross the gateway, towards each kind of upstream and back."""

import pytest
from msgspec import structs

from dragoman.config.settings import UpstreamKind, UpstreamSettings
from dragoman.model.parts import Dialect
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.http.headers import (
    header_rules,
    request_headers,
    response_headers_for,
    usual_lines,
)


def sent(
    kind: UpstreamKind,
    *,
    dialect: Dialect | None = None,
    key: str | None = None,
    api_key: str | None = None,
    configured: dict[str, str] | None = None,
    client: dict[str, str] | None = None,
    client_key: str | None = None,
    stream: bool = False,
    request_id: str = "",
) -> dict[str, str]:
    assert kind != "rehearsal"
    assert kind != "chatgpt-codex"
    assert kind != "replay"
    spoken: Dialect = dialect or kind
    settings = UpstreamSettings(
        kind=kind, base_url="http://x", api_key=api_key, headers=configured or {}
    )
    request = UpstreamRequest(
        dialect=spoken,
        body=b"",
        stream=stream,
        model="m",
        headers=client or {},
        client_key=client_key,
        request_id=request_id,
    )
    return request_headers(header_rules(settings, spoken, key), request)


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_openai_style_upstreams_get_the_key_as_a_bearer_token(kind: UpstreamKind) -> None:
    headers = sent(kind, key="sk-1")
    assert headers["authorization"] == "Bearer sk-1"
    assert "x-api-key" not in headers
    assert "anthropic-version" not in headers


def test_a_messages_upstream_gets_the_key_as_x_api_key_and_the_configured_version() -> None:
    headers = sent("messages", key="sk-ant-api03-1")
    assert headers["x-api-key"] == "sk-ant-api03-1"
    assert "authorization" not in headers
    assert headers["anthropic-version"] == "2023-06-01"


def test_a_token_that_anthropic_gives_to_people_is_a_bearer_token() -> None:
    headers = sent("messages", key="sk-ant-oat01-1")
    assert headers["authorization"] == "Bearer sk-ant-oat01-1"
    assert "x-api-key" not in headers


def test_an_upstream_without_a_key_gets_none_and_never_the_clients() -> None:
    client = {"authorization": "Bearer gateway-key", "x-api-key": "gateway-key"}
    for kind in ("chat", "responses", "messages"):
        headers = sent(kind, client=client, client_key="gateway-key")
        assert "gateway-key" not in str(headers)


def test_the_upstreams_own_key_is_not_replaced_by_the_clients() -> None:
    client = {"authorization": "Bearer gateway-key"}
    headers = sent("chat", key="own", client=client, client_key="gateway-key")
    assert headers["authorization"] == "Bearer own"


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_the_clients_key_is_passed_on_if_so_configured(kind: UpstreamKind) -> None:
    client = {"x-api-key": "theirs", "openai-organization": "org-1", "openai-project": "proj-1"}
    headers = sent(kind, api_key="client", client=client, client_key="theirs")
    assert headers["authorization"] == "Bearer theirs"
    assert headers["openai-organization"] == "org-1"
    assert headers["openai-project"] == "proj-1"
    assert "x-api-key" not in headers


def test_the_account_of_a_client_stays_out_without_its_key() -> None:
    headers = sent("chat", key="own", client={"openai-organization": "org-1"})
    assert "openai-organization" not in headers


def test_a_configured_account_wins_over_the_clients() -> None:
    client = {"openai-organization": "theirs"}
    configured = {"OpenAI-Organization": "ours"}
    headers = sent("chat", api_key="client", configured=configured, client=client, client_key="k")
    assert headers["openai-organization"] == "ours"


def test_a_client_that_brings_no_key_sends_none() -> None:
    headers = sent("chat", api_key="client")
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (
            {"anthropic-version": "2026-10-21", "authorization": "Bearer sk-ant-api"},
            ("authorization", "Bearer sk-ant-api"),
        ),
        (
            {"anthropic-version": "2023-06-01", "x-api-key": "sk-ant-api"},
            ("x-api-key", "sk-ant-api"),
        ),
        ({"authorization": "Bearer sk-ant-api"}, ("x-api-key", "sk-ant-api")),
    ],
)
def test_a_clients_anthropic_key_goes_as_it_came_if_it_came_by_messages(
    client: dict[str, str], expected: tuple[str, str]
) -> None:
    headers = sent("messages", api_key="client", client=client, client_key="sk-ant-api")
    credentials = {k: v for k, v in headers.items() if k in ("authorization", "x-api-key")}
    assert credentials == dict([expected])


def test_a_client_that_names_a_version_has_written_its_body_for_it() -> None:
    headers = sent("messages", client={"anthropic-version": "2026-10-21"})
    assert headers["anthropic-version"] == "2026-10-21"


def test_a_configured_version_wins_over_the_clients() -> None:
    headers = sent(
        "messages",
        configured={"Anthropic-Version": "2023-01-01"},
        client={"anthropic-version": "2026-10-21"},
    )
    assert headers["anthropic-version"] == "2023-01-01"


def test_betas_pass_but_message_threads() -> None:
    client = {"anthropic-beta": "a-1, message-threads-2026-08-12,b-2,, a-1"}
    assert sent("messages", client=client)["anthropic-beta"] == "a-1,b-2"
    assert "anthropic-beta" not in sent("chat", client=client)
    alone = {"anthropic-beta": "message-threads-2026-08-12"}
    assert "anthropic-beta" not in sent("messages", client=alone)


def test_configured_betas_are_joined_with_the_clients() -> None:
    configured = {"anthropic-beta": "oauth-2025-04-20"}
    client = {"anthropic-beta": "x-1"}
    headers = sent("messages", configured=configured, client=client)
    assert headers["anthropic-beta"] == "oauth-2025-04-20,x-1"
    assert sent("messages", configured=configured)["anthropic-beta"] == "oauth-2025-04-20"


CODEX = {
    "x-codex-window-id": "w",
    "x-codex-turn-metadata": '{"a":1}',
    "x-openai-internal-codex-responses-lite": "true",
    "x-client-request-id": "t",
    "session-id": "t",
    "thread-id": "t",
    "originator": "codex_exec",
}


def test_codex_headers_go_to_responses_upstreams_alone() -> None:
    assert CODEX.items() <= sent("responses", client=CODEX).items()
    for kind in ("chat", "messages"):
        assert not CODEX.keys() & sent(kind, client=CODEX).keys()


def test_a_configured_header_wins_over_codexs() -> None:
    headers = sent("responses", configured={"originator": "me"}, client=CODEX)
    assert headers["originator"] == "me"


def test_what_is_about_the_clients_connection_and_machine_stays_out() -> None:
    client = {
        "host": "gateway",
        "connection": "keep-alive",
        "content-length": "9",
        "content-encoding": "gzip",
        "transfer-encoding": "chunked",
        "cookie": "secret",
        "user-agent": "theirs",
        "x-stainless-os": "Linux",
        "openai-beta": "assistants=v2",
        "x-forwarded-for": "10.0.0.1",
        "accept": "*/*",
        "accept-encoding": "br",
        "x-request-id": "theirs",
    }
    for kind in ("chat", "responses", "messages"):
        headers = sent(kind, client=client)
        assert headers["user-agent"] == "dragoman"
        assert headers["accept"] == "application/json"
        assert headers["accept-encoding"] == "gzip, deflate"
        assert headers.keys() <= {
            "user-agent",
            "accept",
            "accept-encoding",
            "content-type",
            "anthropic-version",
        }


def test_a_stream_is_asked_for_uncompressed() -> None:
    headers = sent("chat", stream=True)
    assert headers["accept"] == "text/event-stream"
    assert headers["accept-encoding"] == "identity"


def test_the_request_id_is_ours() -> None:
    assert sent("chat", request_id="req_1")["x-request-id"] == "req_1"
    assert "x-request-id" not in sent("chat")


def test_configured_headers_win_except_those_that_would_break_the_message() -> None:
    configured = {
        "Authorization": "Basic abc",
        "User-Agent": "mine",
        "Accept": "x/y",
        "Content-Length": "1",
        "UpstreamConnection": "close",
        "X-Request-Id": "fixed",
    }
    headers = sent("messages", key="own", configured=configured, request_id="req_1")
    assert headers["authorization"] == "Basic abc"
    assert "x-api-key" not in headers
    assert headers["user-agent"] == "mine"
    assert headers["accept"] == "x/y"
    assert headers["x-request-id"] == "fixed"
    assert not headers.keys() & {"content-length", "connection"}


def test_a_configured_credential_wins_over_the_clients() -> None:
    configured = {"x-api-key": "fixed"}
    headers = sent("chat", api_key="client", configured=configured, client_key="theirs")
    assert headers["x-api-key"] == "fixed"
    assert "authorization" not in headers


ANSWERED = {
    "x-request-id": "req_up",
    "content-type": "text/event-stream",
    "transfer-encoding": "chunked",
    "connection": "keep-alive",
    "set-cookie": "__cf=1",
    "openai-model": "gpt-other",
    "openai-organization": "org-operator",
    "openai-processing-ms": "12",
    "openai-version": "2020-10-01",
    "x-codex-primary-used-percent": "42.5",
    "x-codex-turn-state": "s",
    "x-reasoning-included": "true",
    "x-ratelimit-remaining-requests": "9",
    "retry-after": "3",
    "server": "cloudflare",
}


def test_a_responses_client_of_a_responses_upstream_sees_what_codex_reads() -> None:
    assert dict(response_headers_for("responses", "responses", ANSWERED)) == {
        b"x-upstream-request-id": b"req_up",
        b"openai-processing-ms": b"12",
        b"openai-version": b"2020-10-01",
        b"x-codex-turn-state": b"s",
        b"x-reasoning-included": b"true",
    }


def test_a_chat_client_of_a_chat_upstream_sees_less() -> None:
    assert dict(response_headers_for("chat", "chat", ANSWERED)) == {
        b"x-upstream-request-id": b"req_up",
        b"openai-processing-ms": b"12",
        b"openai-version": b"2020-10-01",
    }


@pytest.mark.parametrize("door", ["chat", "responses", "messages"])
def test_across_dialects_only_the_upstreams_request_id_is_reported(door: Dialect) -> None:
    dialect: Dialect = "messages" if door != "messages" else "responses"
    answered = {**ANSWERED, "request-id": "other"}
    assert response_headers_for(door, dialect, answered) == [(b"x-upstream-request-id", b"req_up")]


def test_anthropics_request_id_is_reported_under_the_same_name() -> None:
    found = response_headers_for("messages", "messages", {"request-id": "req_a"})
    assert found == [(b"x-upstream-request-id", b"req_a")]
    assert response_headers_for("messages", "messages", {}) == []


def test_a_dialect_without_headers_of_its_own_reports_none() -> None:
    assert response_headers_for("codex", "codex", {"openai-version": "1"}) == []


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "client",
    [
        {},
        {"user-agent": "x", "accept": "*/*"},
        {"anthropic-version": "2023-06-01"},
        {"anthropic-version": "2026-10-21"},
        {"anthropic-beta": "a"},
        {"session_id": "s"},
        {"x-codex-turn-state": "t"},
    ],
)
def test_usual_lines_say_what_the_headers_would(
    dialect: Dialect, stream: bool, client: dict[str, str]
) -> None:
    settings = UpstreamSettings(kind=dialect, headers={"X-Own": "1"})
    rules = header_rules(settings, dialect, "sk-1")
    asked = UpstreamRequest(
        dialect=dialect, body=b"", stream=stream, model="m", headers=client, request_id="req_1"
    )
    headers = request_headers(rules, asked)
    lines = usual_lines(rules, asked)
    adds = headers != request_headers(rules, structs.replace(asked, headers={}))
    if lines is None:
        assert adds
    else:
        assert sorted(lines.splitlines()) == sorted(f"{k}: {v}" for k, v in headers.items())


def test_no_line_is_usual_that_could_carry_another() -> None:
    rules = header_rules(UpstreamSettings(kind="chat"), "chat", None)
    asked = UpstreamRequest(
        dialect="chat", body=b"", stream=False, model="m", request_id="a\r\nb: c"
    )
    assert usual_lines(rules, asked) is None
