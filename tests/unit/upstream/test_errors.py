"""Why a connection failed, in words for clients: no address, no name of a host."""

import errno
import socket
import ssl

import pytest

from dragoman._json import Raw
from dragoman.model.outcome import ErrorInfo
from dragoman.upstream import errors


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('10.0.3.7', 8000)"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLCertVerificationError("not valid for 'inner.example'"), "its certificate is not accepted"),
        (ssl.SSLError(1, "[SSL] inner.example"), "TLS failed"),
        (OSError("no address for 'inner.example'"), "no connection could be made"),
        (UnicodeError("label 'inner.example' too long"), "UnicodeError"),
    ],
)  # fmt: skip
def test_the_reason_names_no_address_and_the_detail_does(error: Exception, reason: str) -> None:
    for made in (errors.unreachable("local", error), errors.cut_short("local", error)):
        assert made.message.endswith(f": {reason}")
        assert "inner" not in made.message
        assert "10.0.3.7" not in made.message
        assert made.detail == str(error)
        assert made.whole == f"{made.message} ({made.detail})"
    assert errors.cut_short("local", error).kind == "truncated"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://user:pw@other.example/v1?key=k#f", " to https://other.example/v1;"),
        ("//user@other.example/v1", " to //other.example/v1;"),
        ("/v1/elsewhere?key=k", " to /v1/elsewhere;"),
        ("https://a@b@other.example/", " to https://other.example/;"),
        ("https://[broken/pw", ";"),
        ("", ";"),
    ],
)
def test_a_redirect_names_its_place_without_secrets(location: str, shown: str) -> None:
    made = errors.not_followed("local", 307, location)
    assert f"got status 307{shown}" in made.message
    assert (made.kind, made.status) == ("upstream", 502)


def test_a_long_location_is_cut() -> None:
    assert len(errors.not_followed("local", 307, "/" + "x" * 9_000).message) < 600


def test_words_of_our_own_need_no_detail() -> None:
    made = errors.unreachable("local", "the proxy answered 403")
    assert made.whole == "upstream 'local' cannot be reached: the proxy answered 403"


def _found(status: int, message: str, code: str | None = None) -> ErrorInfo:
    return ErrorInfo(kind="not_found", message=message, status=status, code=code, raw=Raw(b"{}"))


ADDRESS = "http://10.0.3.7:8000/v1/chat/completions"


@pytest.mark.parametrize(
    "info",
    [
        _found(404, "Not Found"),
        _found(404, "404 page not found", "404"),
        _found(404, "File Not Found.", "not_found"),
        _found(405, "Method Not Allowed"),
    ],
)
def test_a_404_that_names_nothing_asks_to_check_the_address(info: ErrorInfo) -> None:
    explained = errors.not_there("local", info, ADDRESS, "some-model")
    assert explained.message == (
        f"upstream 'local' answered {info.status} at {ADDRESS}: "
        f"{info.message.rstrip('.')}; check base_url and kind"
    )
    assert (explained.kind, explained.status) == (info.kind, info.status)


@pytest.mark.parametrize(
    "info",
    [
        _found(404, "The model `some-model` does not exist"),
        _found(404, "no such model", "model_not_found"),
        _found(404, "no such response", "previous_response_not_found"),
    ],
)
def test_a_404_that_names_what_is_missing_keeps_its_code_and_gives_no_advice(
    info: ErrorInfo,
) -> None:
    explained = errors.not_there("local", info, ADDRESS, "some-model")
    assert explained.message == f"upstream 'local' answered 404 at {ADDRESS}: {info.message}"
    assert explained.code == info.code


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        (b'{"message":"no","param":null}', b'{"message":"%s","param":null}'),
        (b'{"error":{"message":"no"},"id":"1"}', b'{"error":{"message":"%s"},"id":"1"}'),
        (b'"no"', None),
        (b'{"detail":"no"}', None),
    ],
)
def test_the_error_that_came_keeps_its_other_fields(own: bytes, sent: bytes | None) -> None:
    info = ErrorInfo(kind="not_found", message="no", status=404, raw=Raw(own))
    explained = errors.not_there("local", info, ADDRESS, "some-model")
    wanted = None if sent is None else sent % explained.message.encode()
    assert (None if explained.raw is None else bytes(explained.raw)) == wanted


def test_an_upstream_without_an_address_is_not_suspected() -> None:
    info = _found(404, "Not Found")
    assert errors.not_there("local", info, "", "some-model") is info
