"""Proxies and certificates in the environment: which proxy an address gets, and which problems are reported at once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config.check import check_surroundings, complete
from dragoman.config.environment import certificate_problems, proxy_from
from dragoman.config.settings import Route, Settings, UpstreamSettings
from dragoman.errors import ConfigError

FAR = "https://api.example.com/v1"
PROXY = "http://proxy.corp:3128"


def found(url: str, **environ: str) -> str | None:
    return proxy_from(url, environ)


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        (FAR, {}, None),
        (FAR, {"HTTPS_PROXY": PROXY}, PROXY),
        (FAR, {"https_proxy": PROXY}, PROXY),
        (FAR, {"https_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, PROXY),
        (FAR, {"https_proxy": " ", "HTTPS_PROXY": PROXY}, PROXY),
        (FAR, {"HTTP_PROXY": PROXY}, None),
        ("http://api.example.com/v1", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://api.example.com/v1", {"HTTPS_PROXY": PROXY}, None),
        (FAR, {"HTTPS_PROXY": "proxy.corp:3128"}, PROXY),
        (
            FAR,
            {"HTTPS_PROXY": "http://me:p%40ss@proxy.corp:3128/"},
            "http://me:p%40ss@proxy.corp:3128",
        ),
        # An address of this machine is not reached through a proxy.
        ("https://localhost:8443/v1", {"HTTPS_PROXY": PROXY}, None),
        ("http://127.0.0.1:8000/v1", {"HTTP_PROXY": PROXY}, None),
        ("http://[::1]:8000/v1", {"HTTP_PROXY": PROXY}, None),
        ("http://model.localhost/v1", {"HTTP_PROXY": PROXY}, None),
        ("http://10.0.0.5/v1", {"HTTP_PROXY": PROXY}, PROXY),
    ],
)
def test_which_proxy_the_environment_names(
    url: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_from(url, environ) == proxy


@pytest.mark.parametrize(
    ("url", "exceptions", "is_direct"),
    [
        (FAR, "*", True),
        (FAR, "example.com", True),
        (FAR, ".example.com", True),
        (FAR, "*.example.com", True),
        (FAR, "API.Example.COM", True),
        (FAR, "other.com, api.example.com", True),
        (FAR, "other.com api.example.com", True),
        (FAR, "api.example.com:443", True),
        (FAR, "api.example.com:8443", False),
        ("https://api.example.com:8443/v1", "api.example.com:8443", True),
        (FAR, "ample.com", False),
        (FAR, "example.com.evil", False),
        (FAR, "example", False),
        (FAR, ".", False),
        (FAR, ",, ,", False),
        ("https://10.1.2.3/v1", "10.0.0.0/8", True),
        ("https://11.1.2.3/v1", "10.0.0.0/8", False),
        ("https://10.1.2.3/v1", "10.1.2.3", True),
        ("https://10.1.2.3:8443/v1", "10.1.2.3:443", False),
        ("https://[fd00::1]/v1", "fd00::/8", True),
        ("https://[fd00::1]:8443/v1", "[fd00::1]:8443", True),
        ("https://[fd00::1]:8443/v1", "[fd00::1]:443", False),
        ("https://[fd00::1]/v1", "10.0.0.0/8", False),
        (FAR, "10.0.0.0/8", False),
    ],
)
@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_which_addresses_need_no_proxy(
    url: str, exceptions: str, variable: str, *, is_direct: bool
) -> None:
    proxy = proxy_from(url, {"HTTPS_PROXY": PROXY, variable: exceptions})
    assert (proxy is None) is is_direct


@pytest.mark.parametrize(
    "value", ["socks5://me:secret@p:1", "https://me:secret@p:1", "http://", "http://me:secret@p:x"]
)
def test_a_variable_that_names_no_http_proxy_is_an_error_that_does_not_quote_it(value: str) -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY: expected an HTTP proxy") as refused:
        found(FAR, HTTPS_PROXY=value)
    assert "secret" not in refused.value.message


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_exception_and_no_url_breaks_the_reading(url: str, exceptions: str) -> None:
    for address in (url, f"https://{url}/v1", FAR):
        environ = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, "NO_PROXY": exceptions}
        assert proxy_from(address, environ) in (None, PROXY)


def test_problems_of_the_environment_are_reported_before_the_start(tmp_path: Path) -> None:
    upstream = UpstreamSettings(kind="chat", base_url="https://far.example")
    routes = (Route(model="*", upstream="a", fallback=("b",)),)
    settings = complete(Settings(upstreams={"a": upstream, "b": upstream}, routes=routes))
    missing = str(tmp_path / "missing.pem")
    environ = {"HTTPS_PROXY": "socks5://p:1", "SSL_CERT_FILE": missing, "SSL_CERT_DIR": missing}
    with pytest.raises(ConfigError) as refused:
        check_surroundings(settings, environ)
    assert [line.partition(":")[0] for line in refused.value.message.splitlines()] == [
        "HTTPS_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ]


def test_certificates_that_can_be_read_are_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(b"")
    environ = {"SSL_CERT_FILE": str(file), "SSL_CERT_DIR": str(tmp_path)}
    assert certificate_problems(environ) == []
    assert certificate_problems({"SSL_CERT_FILE": "", "SSL_CERT_DIR": ""}) == []


def test_a_program_for_tokens_that_is_not_there_is_reported() -> None:
    upstream = UpstreamSettings(
        kind="chat", base_url="http://127.0.0.1:1", token_command=("no-such-program-here",)
    )
    with pytest.raises(ConfigError, match=r"upstreams\.a\.token_command: expected the program"):
        check_surroundings(complete(Settings(upstreams={"a": upstream})), {"PATH": "/nowhere"})
