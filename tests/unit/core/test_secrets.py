"""Values that are hidden, however they are written; and everything else as it was."""

import html
import json
import time
from base64 import b64encode
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.core.secrets import (
    HIDDEN,
    MIN_CREDENTIAL,
    MIN_OTHER,
    NO_SECRETS,
    Secrets,
    header_credentials,
    url_credentials,
    url_others,
)
from dragoman.model.outcome import ErrorInfo

KEYS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=60)
VALUES = st.text(st.characters(codec="utf-8"), min_size=8, max_size=30)


def written(value: str) -> list[str]:
    """In every way in which some program writes text."""
    plain = json.dumps(value, ensure_ascii=False)[1:-1]
    return [
        value,
        plain,
        json.dumps(value)[1:-1],
        plain.replace("/", "\\/"),
        plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003E"),
        html.escape(value),
        quote_plus(value),
        html.escape(value, quote=False),
        quote(value, safe=""),
        quote(value, safe="").lower() if value.islower() else quote(value),
        value.encode("ascii", "xmlcharrefreplace").decode(),
    ]


@given(st.one_of(KEYS, VALUES))
def test_a_value_is_hidden_however_it_is_written(value: str) -> None:
    secrets = Secrets([value])
    for text in written(value):
        said = f"sent: '{text}'."
        assert secrets.hide(said) == f"sent: '{HIDDEN}'.", text
        assert secrets.hide_bytes(said.encode()) == f"sent: '{HIDDEN}'.".encode()


@given(KEYS, st.sampled_from(["{}", "{}:", ":{}"]))
def test_a_credential_is_hidden_in_base64(value: str, form: str) -> None:
    pair = b64encode(form.format(value).encode()).decode()
    hidden = Secrets([value]).hide(f"Basic {pair} was refused")
    assert pair.rstrip("=") not in hidden


@given(KEYS, st.text(max_size=80), st.text(max_size=80))
def test_nothing_else_is_changed(value: str, before: str, behind: str) -> None:
    text = before + behind
    secrets = Secrets([value])
    assume(secrets.hide(text) == text)
    data = text.encode("utf-8", "surrogatepass")
    assert secrets.hide_bytes(data) == data
    assert secrets.hide_bytes(b"\xff\xfe" + data) == b"\xff\xfe" + data


@given(st.lists(KEYS, min_size=2, max_size=6))
def test_of_values_that_contain_one_another_nothing_is_left(values: list[str]) -> None:
    whole = "".join(values)
    assert Secrets([*values, whole]).hide(f"<{whole}>") == f"<{HIDDEN}>"


def test_short_values_are_hidden_where_they_stand_alone_and_shorter_ones_never() -> None:
    secrets = Secrets(["test", "abc"], ["jsonfile", "json"])
    assert secrets.hide("the latest test, tested") == f"the latest {HIDDEN}, tested"
    assert secrets.hide("abc json jsonfile myjsonfile") == f"abc json {HIDDEN} myjsonfile"
    assert (MIN_CREDENTIAL, MIN_OTHER) == (4, 8)


def test_without_secrets_everything_is_as_it_was() -> None:
    error = ErrorInfo(kind="upstream", message="m", raw=Raw(b'{"a":1}'))
    assert not NO_SECRETS
    assert NO_SECRETS.hide("x") == "x"
    assert NO_SECRETS.hide_bytes(b"x") == b"x"
    assert NO_SECRETS.hide_error(error) is error


@given(KEYS)
def test_an_error_is_hidden_in_every_field_and_its_raw_stays_json(key: str) -> None:
    raw = json.dumps({"message": f"no {key}", "list": [key]}).encode()
    error = ErrorInfo(
        kind="authentication", message=f"no {key}", code=key, param=key, raw=Raw(raw), status=401
    )
    hidden = Secrets([key]).hide_error(error)
    assert hidden.raw is not None
    assert json.loads(bytes(hidden.raw)) == {"message": f"no {HIDDEN}", "list": [HIDDEN]}
    assert (hidden.message, hidden.code, hidden.param) == (f"no {HIDDEN}", HIDDEN, HIDDEN)
    assert (hidden.kind, hidden.status) == ("authentication", 401)


def test_both_hides_what_each_would() -> None:
    both = Secrets(["first-key"]) | Secrets([], ["second-value"])
    assert both.hide("first-key second-value") == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("Bearer abc", ["abc"]),
        ("Basic " + b64encode(b"me:pw").decode(), [b64encode(b"me:pw").decode(), "me:pw", "pw"]),
        ("Basic %%%", ["%%%"]),
        ("abc", []),
    ],
)
def test_the_credentials_of_a_header(value: str, found: list[str]) -> None:
    assert [each for each in header_credentials(value) if each][: len(found)] == found


def test_the_credentials_of_an_address() -> None:
    assert set(url_credentials("http://me:p%40w@h/x")) == {"p%40w", "p@w", "me:p%40w", "me:p@w"}
    assert set(url_credentials("http://token@h")) == {"token"}
    assert not list(url_credentials("http://h/x"))
    assert not list(url_credentials("http://[h"))
    address = "http://me@h/v1/a-long-part-of-a-path?a=b%20c&d#e"
    assert {*url_others(address)} == {"a-long-part-of-a-path", "me", "e", "b c"}
    assert "a-long-part-of-a-path" not in {*url_others(address, has_path=True)}
    assert not list(url_others("http://[h"))


def test_hiding_takes_linear_time() -> None:
    secrets = Secrets([f"sk-{number:040d}/&<x" for number in range(20)])
    times: list[float] = []
    for size in (100_000, 400_000):
        text = 'sk-0000\\u0026&amp;%26"' * (size // 20)
        began = time.process_time()
        secrets.hide(text)
        times.append(time.process_time() - began)
    # Four times the text: more than twenty times the work would not be linear, on the busiest machine.
    assert times[1] < 20 * times[0] + 1.0
