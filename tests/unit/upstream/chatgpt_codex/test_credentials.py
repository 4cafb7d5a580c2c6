"""Codex's login file: what is read from it, when it is read again, and the error where it cannot be used."""

import json
import os
from pathlib import Path

import pytest

from codex_logins import chatgpt_login, make_token
from dragoman.errors import UpstreamError
from dragoman.upstream.chatgpt_codex.credentials import Login, LoginFile, auth_path, read_login

CLAIMS = "https://api.openai.com/auth"


def written(path: Path, data: bytes) -> LoginFile:
    path.write_bytes(data)
    return LoginFile(path, now=lambda: 1000.0)


def test_a_chatgpt_login_is_its_access_token_and_account() -> None:
    token = make_token(2000)
    assert read_login(chatgpt_login(token)) == Login(token, "acct-1", 2000)


@pytest.mark.parametrize("holder", ["access_token", "id_token"])
def test_an_account_that_the_file_does_not_name_is_taken_from_a_token(holder: str) -> None:
    found = make_token(2000, **{CLAIMS: {"chatgpt_account_id": "acct-2"}})
    tokens = {"access_token": make_token(2000), "id_token": make_token(2000), holder: found}
    assert read_login(json.dumps({"tokens": tokens}).encode()).account_id == "acct-2"


def test_a_login_without_any_account_has_none() -> None:
    assert read_login(chatgpt_login(account_id=None)).account_id is None


def test_a_token_that_is_no_jwt_does_not_expire() -> None:
    login = read_login(chatgpt_login("opaque-token"))
    assert (login.token, login.expires_at) == ("opaque-token", None)


@pytest.mark.parametrize("token", ["a.b.c", "a.!!!.c", "a.W10.c"])
def test_a_token_whose_claims_cannot_be_read_does_not_expire(token: str) -> None:
    assert read_login(chatgpt_login(token)).expires_at is None


def test_a_key_alone_is_an_api_key() -> None:
    assert read_login(b'{"OPENAI_API_KEY": "sk-plain"}') == Login("sk-plain", is_api_key=True)


@pytest.mark.parametrize("mode", ["apikey", "api_key", "ApiKey"])
def test_the_mode_decides_where_both_are_there(mode: str) -> None:
    both = chatgpt_login(auth_mode=mode, OPENAI_API_KEY="sk-plain")
    assert read_login(both).is_api_key
    assert not read_login(chatgpt_login(OPENAI_API_KEY="sk-plain")).is_api_key
    assert not read_login(chatgpt_login(OPENAI_API_KEY="sk-plain", auth_mode="chatgpt")).is_api_key


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json, secret-1",
        b'["secret-1"]',
        b'{"tokens": {"access_token": ["secret-1"]}}',
        b'{"tokens": "secret-1"}',
        b'{"tokens": {"access_token": "secret-1\\nx: y"}}',
        b'{"auth_mode": "chatgpt", "OPENAI_API_KEY": "secret-1"}',
        b'{"tokens": {"access_token": "  "}}',
        b'\xff{"tokens": "secret-1"}',
    ],
)
def test_a_malformed_file_asks_for_a_login_and_is_not_quoted(data: bytes) -> None:
    with pytest.raises(UpstreamError, match="codex login") as caught:
        read_login(data, "auth.json")
    assert (caught.value.kind, caught.value.status) == ("authentication", 401)
    assert "secret-1" not in caught.value.message
    assert caught.value.__cause__ is None


def test_a_missing_file_asks_for_a_login(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match=r"does not exist; run `codex login`"):
        LoginFile(tmp_path / "auth.json", now=lambda: 0.0).current()


def test_a_file_that_cannot_be_read_asks_for_a_login(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match=r"cannot be read .*; run `codex login`"):
        LoginFile(tmp_path, now=lambda: 0.0).current()


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match="too large"):
        written(tmp_path / "auth.json", b" " * 2_000_000).current()


def test_an_expired_login_asks_for_a_new_one(tmp_path: Path) -> None:
    file = written(tmp_path / "auth.json", chatgpt_login(make_token(1000)))
    with pytest.raises(UpstreamError, match="has expired; run `codex login`") as caught:
        file.current()
    assert (caught.value.kind, caught.value.status) == ("authentication", 401)


def test_an_unchanged_file_is_read_once(tmp_path: Path) -> None:
    file = written(tmp_path / "auth.json", chatgpt_login())
    assert file.current() is file.current()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    file = written(path, chatgpt_login(make_token(1000)))
    with pytest.raises(UpstreamError):
        file.current()
    path.write_bytes(chatgpt_login(make_token(5000), account_id="acct-other"))
    assert file.current().account_id == "acct-other"
    path.write_bytes(b"half a fi")
    with pytest.raises(UpstreamError):
        file.current()
    path.write_bytes(chatgpt_login())
    assert file.current().account_id == "acct-1"


def test_reading_again_does_not_trust_the_date(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    file = written(path, chatgpt_login("token-a"))
    before = path.stat()
    assert file.current().token == "token-a"
    path.write_bytes(chatgpt_login("token-b"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.current().token == "token-a"
    assert file.reread().token == "token-b"


def test_the_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    file = written(path, chatgpt_login())
    path.chmod(0o400)
    before = path.read_bytes(), path.stat().st_mtime_ns
    file.current()
    file.reread()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_login_does_not_show_its_token() -> None:
    shown = repr(read_login(chatgpt_login("secret-token", account_id="acct-hidden")))
    assert "secret-token" not in shown
    assert "acct-hidden" not in shown


def test_the_file_is_where_codex_keeps_it() -> None:
    assert auth_path("/named/file.json", {"CODEX_HOME": "/elsewhere"}) == Path("/named/file.json")
    assert auth_path(None, {"CODEX_HOME": "/elsewhere"}) == Path("/elsewhere/auth.json")
    assert auth_path(None, {"CODEX_HOME": ""}) == Path.home() / ".codex" / "auth.json"
    assert auth_path("~/file.json", {}) == Path.home() / "file.json"
