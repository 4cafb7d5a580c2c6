"""Upstreams behind a real HTTP proxy, and certificates of a company: by settings and by the environment."""

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dragoman.config.settings import RetrySettings, Settings, UpstreamSettings
from dragoman.errors import ConfigError, UpstreamError
from dragoman.gateway.route import make_upstream
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream
from dragoman.upstream.base import UpstreamRequest
from gateway_harness import running_gateway
from http_proxy import RunningProxy, running_proxy
from plain_http import ask, plain_body
from ports import free_port
from served import serving
from stage import deliver
from vendor_wire import Answer, Said

TLS = Path(__file__).parents[1] / "unit" / "upstream" / "http" / "tls"
ANSWER = Answer((Said(("Here ", "I am.")),))
ONCE = RetrySettings(enabled=False)
USER = "me:p@ss"
# The name of this machine that is no address of loopback to anyone but the resolver, which the proxy asks.
FAR = "127.1"


def script(request: ReceivedRequest) -> ScriptedReply:
    is_stream = json.loads(request.body).get("stream") is True
    return deliver("chat", ANSWER, is_stream=is_stream)


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem")
    return context


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    with running_proxy(tmp_path_factory.mktemp("proxy"), USER) as running:
        yield running


def with_user(proxy: RunningProxy, user: str = "me:p%40ss") -> str:
    return proxy.url.replace("://", f"://{user}@")


def chat(url: str, **more: object) -> Settings:
    table: dict[str, object] = {
        "kind": "chat",
        "base_url": f"{url}/v1",
        "api_key": "sk-own",
        **more,
    }
    upstream = UpstreamSettings(**table)  # type: ignore[arg-type]  # a table of settings, as an operator writes it
    return Settings(upstreams={"up": upstream}, retry=ONCE)


@pytest.mark.parametrize("is_stream", [True, False])
def test_tls_goes_through_a_tunnel_and_the_proxy_sees_only_the_host(
    proxy: RunningProxy, *, is_stream: bool
) -> None:
    with ScriptedUpstream.in_thread(script, tls=server_context()) as server:
        settings = chat(server.url, proxy=with_user(proxy), ca_file=str(TLS / "ca.pem"))
        with running_gateway(settings) as gateway:
            for _ in range(2):
                answer = ask(gateway.url, "chat", plain_body("chat", "m", stream=is_stream))
                assert answer.status_code == 200
                assert "Here" in answer.text
        assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 2
        assert len({request.connection for request in server.requests}) == 1, "the tunnel is kept"
        assert all("proxy-authorization" not in request.headers for request in server.requests)


def test_plain_http_goes_through_the_proxy(proxy: RunningProxy) -> None:
    with ScriptedUpstream.in_thread(script) as server:
        with running_gateway(chat(server.url, proxy=with_user(proxy))) as gateway:
            assert ask(gateway.url, "chat", plain_body("chat", "m")).status_code == 200
        (request,) = server.requests
        assert request.path == "/v1/chat/completions"
        assert "proxy-authorization" not in request.headers


@pytest.mark.parametrize("is_tls", [True, False])
@pytest.mark.parametrize(
    ("user", "said"),
    [
        (
            "",
            "its proxy answered 407; it wants a user and a password: http://user:password@host:port",
        ),
        ("me:wrong@", "its proxy answered 407; it refuses the user and password in its address"),
    ],
)
def test_a_proxy_that_refuses_is_a_clear_error_without_its_address_and_password(
    proxy: RunningProxy, user: str, said: str, caplog: pytest.LogCaptureFixture, *, is_tls: bool
) -> None:
    with ScriptedUpstream.in_thread(script, tls=server_context() if is_tls else None) as server:
        address = proxy.url.replace("://", f"://{user}")
        settings = chat(server.url, proxy=address, ca_file=str(TLS / "ca.pem"))
        with running_gateway(settings) as gateway:
            answer = ask(gateway.url, "chat", plain_body("chat", "m"))
        assert answer.status_code == 502
        error = json.loads(answer.content)["error"]
        assert error["message"] == f"upstream 'up' cannot be reached: {said}"
        assert error["code"] == "proxy_refused"
        assert not server.requests
    place = urlsplit(proxy.url).netloc
    assert place not in answer.text
    assert place in caplog.text
    assert "wrong" not in caplog.text


def test_a_proxy_that_is_not_there_is_named_as_the_reason() -> None:
    dead = f"http://me:hush@127.0.0.1:{free_port()}"
    with running_gateway(chat("https://far.example", proxy=dead)) as gateway:
        answer = ask(gateway.url, "chat", plain_body("chat", "m"))
    assert answer.status_code == 502
    assert "no connection to its proxy: Connection refused" in answer.text
    assert "hush" not in answer.text


def configuration(folder: Path, url: str, *lines: str) -> Path:
    file = folder / "gateway.toml"
    text = ["[upstreams.up]", 'kind = "chat"', f'base_url = "{url}/v1"', *lines, ""]
    file.write_text("\n".join(text), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("more", "lines", "is_proxied"),
    [
        ({}, (), True),
        ({"NO_PROXY": "10.0.0.0/8,example.com"}, (), True),
        ({"NO_PROXY": FAR}, (), False),
        ({"no_proxy": "*"}, (), False),
        ({}, ('proxy = "none"',), False),
    ],
)
def test_the_environment_of_a_gateway_names_the_proxy(
    proxy: RunningProxy,
    tmp_path: Path,
    more: dict[str, str],
    lines: tuple[str, ...],
    *,
    is_proxied: bool,
) -> None:
    with ScriptedUpstream.in_thread(script) as server:
        file = configuration(tmp_path, f"http://{FAR}:{server.port}", *lines)
        environ = {"HTTP_PROXY": with_user(proxy), **more}
        with serving(tmp_path, environ, "--config", str(file)) as gateway:
            status, _ = gateway.ask("/v1/chat/completions", plain_body("chat", "m"))
        assert status == 200
        (request,) = server.requests
        assert ("proxy.py" in request.headers.get("via", "")) is is_proxied


def test_the_environment_names_the_proxy_for_https() -> None:
    """The proxy is asked to connect to the upstream, with its user; it refuses, so no certificate is needed."""
    heads: list[bytes] = []

    async def main() -> UpstreamError:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        environ = {"HTTPS_PROXY": f"http://me:hush@127.0.0.1:{port}"}
        settings = UpstreamSettings(kind="chat", base_url="https://far.example/v1")
        upstream = make_upstream("up", settings, environ)
        sent = UpstreamRequest(dialect="chat", body=b"{}", stream=False, model="m")
        try:
            async with asyncio.timeout(30):
                with pytest.raises(UpstreamError) as refused:
                    await upstream.send(sent)
        finally:
            await upstream.close()
            server.close()
        return refused.value

    error = asyncio.run(main())
    assert error.message == "upstream 'up' cannot be reached: its proxy answered 403"
    (head,) = heads
    assert head.startswith(b"CONNECT far.example:443 HTTP/1.1\r\n")
    assert b"proxy-authorization: Basic bWU6aHVzaA==" in head


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_of_the_environment_are_trusted(tmp_path: Path, variable: str) -> None:
    authority = (TLS / "ca.pem").read_bytes()
    folder = tmp_path / "certificates"
    folder.mkdir()
    # The name by which OpenSSL finds it in a folder: a hash of its subject (`openssl x509 -subject_hash`).
    (folder / "3f1e67bc.0").write_bytes(authority)
    value = str(TLS / "ca.pem") if variable == "SSL_CERT_FILE" else str(folder)
    with ScriptedUpstream.in_thread(script, tls=server_context()) as server:
        file = configuration(tmp_path, server.url)
        with serving(tmp_path, {variable: value}, "--config", str(file)) as gateway:
            status, _ = gateway.ask("/v1/chat/completions", plain_body("chat", "m"))
        assert status == 200
        with serving(tmp_path, {}, "--config", str(file)) as gateway:
            status, body = gateway.ask("/v1/chat/completions", plain_body("chat", "m"))
        assert status == 502
        assert b"its certificate is not accepted" in body


def test_a_certificate_file_that_has_none_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate", encoding="utf-8")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    settings = UpstreamSettings(kind="chat", base_url="https://far.example/v1")
    with pytest.raises(ConfigError, match="SSL_CERT_FILE: expected a file of certificates in PEM"):
        make_upstream("up", settings, {})
