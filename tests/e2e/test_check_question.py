"""`dragoman check` asks each upstream a tiny question, and says what to write where the settings are wrong."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from check_command import run, verdicts
from http_servers import QuietHandler, running_server
from vendor_wire import Answer, Said, body_bytes

KEY = "sk-right-key-of-tests"
MODELS = ("small-model", "large-model")
ANSWER = Answer((Said(("ok",)),))
PATHS = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}


class Server(QuietHandler):
    """Speaks `dialects` below `/v1`; Messages wants the key in `x-api-key`, the others as a bearer token."""

    dialects: tuple[str, ...]
    heard: list[tuple[str, Any]]
    lists = True

    def respond(self) -> None:
        size = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(size) or b"null")
        self.heard.append((self.path, body))
        dialect = PATHS.get(self.path)
        if self.path == "/v1/models" and self.lists:
            listed = {"data": [{"id": name} for name in MODELS]}
            self.answer(200, json.dumps(listed).encode())
        elif dialect not in self.dialects:
            self.answer(404, b'{"detail":"Not Found"}')
        elif not self._has_key(dialect):
            self.answer(401, b'{"error":{"message":"missing key"}}')
        elif body["model"] not in MODELS:
            said = f"The model `{body['model']}` does not exist"
            self.answer(404, json.dumps({"error": {"message": said}}).encode())
        else:
            self.answer(200, body_bytes(dialect, ANSWER))

    def _has_key(self, dialect: str) -> bool:
        if dialect == "messages":
            return self.headers.get("x-api-key") == KEY
        return self.headers.get("authorization") == f"Bearer {KEY}"


class Running:
    def __init__(self, address: str, heard: list[tuple[str, Any]]) -> None:
        self.url = f"http://{address}"
        self.heard = heard

    def questions(self) -> list[Any]:
        return [body for _, body in self.heard if body is not None]


def serving(*dialects: str, lists: bool = True) -> Iterator[Running]:
    heard: list[tuple[str, Any]] = []
    members = {"dialects": dialects, "heard": heard, "lists": lists}
    with running_server(type("Own", (Server,), members)) as address:
        yield Running(address, heard)


@pytest.fixture
def chat() -> Iterator[Running]:
    yield from serving("chat")


@pytest.fixture
def messages() -> Iterator[Running]:
    yield from serving("messages")


@pytest.fixture
def unlisted() -> Iterator[Running]:
    yield from serving("chat", lists=False)


def check(
    folder: Path, kind: str, base_url: str, *flags: str, model: str | None = "small-model"
) -> tuple[int, str, str]:
    """The exit code, and the verdict and detail of the upstream."""
    route = f'upstream_model = "{model}"' if model else ""
    text = f"""[upstreams.up]
kind = "{kind}"
base_url = "{base_url}"
api_key_env = "UP_KEY"
[[routes]]
model = "*"
upstream = "up"
{route}
"""
    (folder / "x.toml").write_text(text, encoding="utf-8")
    done = run(folder, "check", "--config", "x.toml", *flags, UP_KEY=KEY)
    assert done.stderr == ""
    assert KEY not in done.stdout
    return (done.returncode, *verdicts(done.stdout)["up"])


def test_an_upstream_that_answers_is_asked_once_for_a_few_tokens(
    tmp_path: Path, chat: Running
) -> None:
    assert check(tmp_path, "chat", f"{chat.url}/v1") == (0, "ok", "small-model answered")
    [question] = chat.questions()
    assert question["max_tokens"] == 16


def test_no_ask_asks_nothing(tmp_path: Path, chat: Running) -> None:
    assert check(tmp_path, "chat", f"{chat.url}/v1", "--no-ask") == (0, "ok", "reached")
    assert chat.questions() == []


@pytest.mark.parametrize("path", ["", "/", "/v1/chat/completions", "/v1/models"])
def test_a_wrong_path_is_explained(tmp_path: Path, chat: Running, path: str) -> None:
    code, verdict, detail = check(tmp_path, "chat", chat.url + path)
    assert (code, verdict) == (1, "FAILED")
    assert f"answered 404 at {chat.url}/" in detail
    assert f'write base_url = "{chat.url}/v1": that works' in detail


def test_a_wrong_path_is_explained_although_the_model_is_called_like_the_upstream(
    tmp_path: Path, chat: Running
) -> None:
    _, _, detail = check(tmp_path, "chat", chat.url, model="up")
    assert f'write base_url = "{chat.url}/v1": that is there, but it has no model' in detail


@pytest.mark.parametrize("kind", ["responses", "messages"])
def test_a_chat_server_of_another_kind_is_explained(
    tmp_path: Path, chat: Running, kind: str
) -> None:
    code, verdict, detail = check(tmp_path, kind, f"{chat.url}/v1")
    assert (code, verdict) == (1, "FAILED")
    assert 'write kind = "chat": that works' in detail


@pytest.mark.parametrize("path", ["", "/v1", "/v1/messages"])
def test_a_messages_server_as_chat_is_explained(
    tmp_path: Path, messages: Running, path: str
) -> None:
    code, verdict, detail = check(tmp_path, "chat", messages.url + path)
    assert (code, verdict) == (1, "FAILED")
    assert 'write kind = "messages"' in detail
    assert "that works" in detail


def test_an_unknown_model_is_explained_with_the_nearest(tmp_path: Path, chat: Running) -> None:
    code, verdict, detail = check(tmp_path, "chat", f"{chat.url}/v1", model="smal-model")
    assert (code, verdict) == (1, "FAILED")
    assert "it has no model 'smal-model'; did you mean `small-model`?" in detail
    _, _, detail = check(tmp_path, "chat", f"{chat.url}/v1", model="zzz")
    assert "it has no model 'zzz'; it has small-model, large-model" in detail


def test_a_wrong_path_and_an_unknown_model_are_both_explained(
    tmp_path: Path, chat: Running
) -> None:
    _, verdict, detail = check(tmp_path, "chat", chat.url, model="zzz")
    assert verdict == "FAILED"
    assert f'write base_url = "{chat.url}/v1": that is there, but it has no model' in detail


def test_without_a_named_model_one_that_is_listed_is_asked(tmp_path: Path, chat: Running) -> None:
    asked = check(tmp_path, "chat", f"{chat.url}/v1", model=None)
    assert asked == (0, "ok", "small-model answered")


def test_without_any_known_model_the_address_is_still_checked(
    tmp_path: Path, unlisted: Running
) -> None:
    code, verdict, detail = check(tmp_path, "chat", f"{unlisted.url}/v1", model=None)
    assert (code, verdict) == (0, "ok")
    assert "name a model in a route" in detail
    code, verdict, detail = check(tmp_path, "chat", unlisted.url, model=None)
    assert (code, verdict) == (1, "FAILED")
    assert f'write base_url = "{unlisted.url}/v1"' in detail


def test_a_server_that_answers_everything_with_a_page_is_no_upstream(tmp_path: Path) -> None:
    class Page(QuietHandler):
        def respond(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.answer(200, b"<html>Welcome</html>", "text/html")

    with running_server(Page) as address:
        code, verdict, _ = check(tmp_path, "chat", f"http://{address}/v1")
    assert (code, verdict) == (1, "FAILED")


def test_a_key_that_is_the_name_of_a_variable_is_reported_before_anything_is_asked(
    tmp_path: Path, chat: Running
) -> None:
    text = f'[upstreams.up]\nkind = "chat"\nbase_url = "{chat.url}/v1"\napi_key = "$UP_KEY"\n'
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    done = run(tmp_path, "check", "--config", "x.toml", UP_KEY=KEY)
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: x.toml:4: upstreams.up.api_key: ")
    assert 'write api_key_env = "UP_KEY"' in done.stderr
    assert chat.heard == []
