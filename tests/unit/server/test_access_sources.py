"""CORS: who may read answers, what a preflight gets, and pages of other sites."""

import asyncio
from collections.abc import MutableMapping
from typing import cast

import pytest

from dragoman.core.failures import error_info, status_of
from dragoman.server.access import Cors, Hosts, check_source
from dragoman.server.limits import Forbidden

Headers = list[tuple[bytes, bytes]]
OBSIDIAN = b"app://obsidian.md"


def origin(value: bytes) -> Headers:
    return [(b"host", b"127.0.0.1:8787"), (b"origin", value)]


def allowed(cors: Cors, value: bytes) -> bytes | None:
    return dict(cors.headers(origin(value))).get(b"access-control-allow-origin")


def preflight(cors: Cors, *headers: tuple[bytes, bytes]) -> tuple[int, dict[bytes, bytes]]:
    sent: list[MutableMapping[str, object]] = []

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message)

    asyncio.run(cors.preflight([*origin(OBSIDIAN), *headers], send))
    start, body = sent
    assert body == {"type": "http.response.body", "body": b""}
    assert isinstance(start["status"], int)
    return start["status"], dict(cast("Headers", start["headers"]))


def test_not_configured_there_is_nothing() -> None:
    cors = Cors(())
    assert not cors.is_on
    assert cors.headers(origin(OBSIDIAN)) == []


def test_any_origin_gets_a_star_and_never_credentials() -> None:
    cors = Cors(("*",))
    assert cors.is_on
    found = dict(cors.headers(origin(b"https://example.org")))
    assert found[b"access-control-allow-origin"] == b"*"
    assert b"access-control-allow-credentials" not in found


def test_listed_origin_gets_itself_and_caches_are_warned() -> None:
    cors = Cors(("app://obsidian.md", "https://one.example/"))
    assert allowed(cors, OBSIDIAN) == OBSIDIAN
    assert allowed(cors, b"https://one.example") == b"https://one.example"
    assert (b"vary", b"origin") in cors.headers(origin(OBSIDIAN))
    assert cors.headers([]) == [(b"vary", b"origin")]


@pytest.mark.parametrize(
    ("pattern", "value", "is_allowed"),
    [
        ("http://localhost:*", b"http://localhost:5173", True),
        ("http://localhost:*", b"http://localhost", False),
        ("http://localhost:*", b"http://localhost:1@evil.example", False),
        ("http://localhost:*", b"https://localhost:5173", False),
        ("https://*.example.org", b"https://a.b.example.org", True),
        ("https://*.example.org", b"https://example.org", False),
        ("https://*.example.org", b"https://evil.org/.example.org", False),
        ("https://*.example.org", b"https://a.example.org.evil", False),
        ("https://a.example.org", b"https://aXexample.org", False),
        ("app://obsidian.md", b"null", False),
        ("app://obsidian.md", b"x" * 5000, False),
    ],
)
def test_globs_match_hosts_and_ports_and_nothing_else(
    pattern: str, value: bytes, *, is_allowed: bool
) -> None:
    assert allowed(Cors((pattern,)), value) == (value if is_allowed else None)


def test_page_may_read_what_the_gateway_says_in_headers() -> None:
    exposed = dict(Cors(("*",)).headers([]))[b"access-control-expose-headers"].split(b", ")
    for name in (b"x-request-id", b"x-dragoman-loss", b"retry-after"):
        assert name in exposed
    assert b"x-ratelimit-remaining-tokens" in exposed
    assert b"anthropic-ratelimit-requests-reset" in exposed


def test_preflight_allows_the_headers_that_are_asked_for() -> None:
    status, found = preflight(
        Cors(("*",)),
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"authorization,x-stainless-lang"),
    )
    assert status == 204
    assert found[b"access-control-allow-headers"] == b"authorization,x-stainless-lang"
    assert b"POST" in found[b"access-control-allow-methods"]
    assert int(found[b"access-control-max-age"]) > 0
    assert b"access-control-allow-private-network" not in found


@pytest.mark.parametrize("asked", [b"a\r\nset-cookie: x", b"", b"x" * 5000, "ü".encode()])
def test_odd_names_are_not_echoed(asked: bytes) -> None:
    _, found = preflight(Cors(("*",)), (b"access-control-request-headers", asked))
    assert found[b"access-control-allow-headers"].startswith(b"authorization, ")


def test_preflight_from_the_open_web_to_loopback_is_allowed() -> None:
    _, found = preflight(Cors(("app://*",)), (b"access-control-request-private-network", b"true"))
    assert found[b"access-control-allow-private-network"] == b"true"


def test_preflight_of_another_origin_is_allowed_nothing() -> None:
    status, found = preflight(Cors(("https://one.example",)))
    assert status == 204
    assert not [name for name in found if name.startswith(b"access-control-allow")]


@pytest.mark.parametrize(
    "value",
    [
        b"http://localhost:3000",
        b"https://127.0.0.1",
        b"http://[::1]:80",
        OBSIDIAN,
        b"vscode-webview://abc",
        b"https://one.example",
    ],
)
def test_programs_and_pages_of_this_machine_and_configured_ones_may_ask(value: bytes) -> None:
    check_source(Cors(("https://one.example",)), Hosts(), origin(value))
    check_source(Cors(()), Hosts(), [(b"host", b"127.0.0.1")])


@pytest.mark.parametrize(
    "value", [b"https://evil.example", b"null", b"http://localhost.evil.example", b"http://\xff"]
)
def test_page_of_another_site_may_not_ask(value: bytes) -> None:
    with pytest.raises(Forbidden, match=r"server\.cors_origins") as caught:
        check_source(Cors(()), Hosts(), origin(value))
    info = error_info(caught.value)
    assert (info.kind, status_of(info), info.code) == ("permission", 403, "foreign_origin")


LOCAL_HOSTS = (
    b"localhost",
    b"LOCALHOST:8787",
    b"localhost.",
    b"app.localhost:80",
    b"127.0.0.1",
    b"127.8.8.8:8787",
    b"[::1]",
    b"[::1]:8787",
    b"host.docker.internal:8787",
    b"host.containers.internal",
    b"",
)
FOREIGN_HOSTS = (
    b"evil.example",
    b"evil.example:8787",
    b"localhost.evil.example",
    b"127.0.0.1.evil.example",
    b"127.evil.example",
    b"128.0.0.1",
    b"[::2]",
    b"::1",
    b"localhost:port",
    b"localhost:8787:1",
    b"user@localhost",
    b"localhost/",
    b"evil.example\x00localhost",
    b"host.docker.internal.evil.example",
    b"\xff",
    b"a" * 300,
)


@pytest.mark.parametrize("value", LOCAL_HOSTS)
def test_names_of_this_machine_are_served(value: bytes) -> None:
    check_source(Cors(), Hosts(), [(b"host", value)])


@pytest.mark.parametrize("value", FOREIGN_HOSTS)
def test_other_names_are_refused(value: bytes) -> None:
    for _ in range(2):
        with pytest.raises(Forbidden, match=r"server\.allowed_hosts") as caught:
            check_source(Cors(), Hosts(("gateway.lan",)), [(b"host", value)])
        info = error_info(caught.value)
        assert (info.kind, status_of(info), info.code) == ("permission", 403, "foreign_host")


def test_request_without_a_host_is_no_browsers() -> None:
    check_source(Cors(), Hosts(), [])


@pytest.mark.parametrize(
    ("value", "is_allowed"),
    [
        (b"gateway.lan", True),
        (b"Gateway.LAN:99", True),
        (b"a.ts.net", True),
        (b"a.b.ts.net:1", True),
        (b"ts.net", False),
        (b"evil-ts.net", False),
        (b"x.gateway.lan", False),
    ],
)
def test_configured_names_are_served(value: bytes, is_allowed: bool) -> None:
    assert Hosts(("gateway.lan", "*.ts.net")).allows(value) is is_allowed
    assert Hosts(("*",)).allows(value)
