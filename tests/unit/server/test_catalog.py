"""The list of models, in both shapes, as the vendors' SDKs read it."""

import json

import pytest
from anthropic.types import ModelInfo
from openai.types import Model as OpenAIModel

from dragoman.config.settings import ModelLimits, Route, Settings, UpstreamSettings
from dragoman.core.failures import error_info, status_of
from dragoman.errors import RequestRefused
from dragoman.model.parts import Dialect
from dragoman.server.catalog import dialect_of_caller, find_model, known_models, list_models
from dragoman.upstream.rehearsal import SCENARIOS

LOCAL = UpstreamSettings(
    kind="chat",
    base_url="http://127.0.0.1:1/v1",
    models={"qwen3-coder": ModelLimits(), "llama-*": ModelLimits(), "hidden": ModelLimits()},
)
REHEARSAL = UpstreamSettings(kind="rehearsal")

ROUTED = Settings(
    upstreams={"local": LOCAL, "spare": LOCAL, "stage": REHEARSAL},
    routes=(
        Route(model="gpt-x", upstream="local", upstream_model="qwen3-coder"),
        Route(model="claude-*", upstream="local", upstream_model="big-one"),
        Route(model="qwen*", upstream="local"),
        Route(model="rehearsal", upstream="stage"),
        Route(model="rehearsal-p*", upstream="stage"),
        Route(model="[ab]", upstream="local"),
    ),
)
ALONE = Settings(upstreams={"rehearsal": REHEARSAL})


def names(settings: Settings) -> list[str]:
    return [model.name for model in known_models(settings)]


def test_list_has_every_name_that_leads_somewhere_and_no_glob() -> None:
    assert names(ROUTED) == ["gpt-x", "rehearsal", "qwen3-coder", "rehearsal-parallel"]


def test_each_name_stands_with_the_upstream_that_answers_to_it() -> None:
    owners = {model.name: model.upstream for model in known_models(ROUTED)}
    assert owners == {
        "gpt-x": "local",
        "rehearsal": "stage",
        "qwen3-coder": "local",
        "rehearsal-parallel": "stage",
    }


def test_only_upstream_lists_its_own_names() -> None:
    assert names(ALONE) == list(SCENARIOS)
    assert names(Settings(upstreams={"local": LOCAL})) == ["qwen3-coder", "hidden"]


def test_openai_clients_get_openais_list() -> None:
    body = json.loads(list_models(ROUTED, "chat"))
    assert body["object"] == "list"
    assert body["data"][0] == {
        "id": "gpt-x",
        "object": "model",
        "created": 0,
        "owned_by": "local",
    }
    for entry in body["data"]:
        OpenAIModel.model_validate(entry)


def test_anthropic_clients_get_anthropics_list() -> None:
    body = json.loads(list_models(ROUTED, "messages"))
    assert (body["has_more"], body["first_id"]) == (False, "gpt-x")
    assert body["last_id"] == "rehearsal-parallel"
    for entry in body["data"]:
        assert ModelInfo.model_validate(entry).type == "model"


def test_list_of_nothing_is_a_list() -> None:
    empty = Settings(upstreams={"a": LOCAL, "b": LOCAL}, routes=(Route(model="x*", upstream="a"),))
    body = json.loads(list_models(empty, "messages"))
    assert body == {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert json.loads(list_models(empty, "chat"))["data"] == []


def page(**query: str) -> tuple[list[str], bool]:
    body = json.loads(list_models(ROUTED, "messages", query))
    return [entry["id"] for entry in body["data"]], body["has_more"]


def test_pages_go_forward_and_back() -> None:
    assert page(limit="2") == (["gpt-x", "rehearsal"], True)
    assert page(limit="2", after_id="rehearsal") == (["qwen3-coder", "rehearsal-parallel"], False)
    assert page(limit="2", before_id="rehearsal-parallel") == (["rehearsal", "qwen3-coder"], True)
    assert page(limit="2", before_id="rehearsal") == (["gpt-x"], False)
    assert page(after_id="rehearsal-parallel") == ([], False)
    assert page(after_id="nobody", limit="1") == (["gpt-x"], True)


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1", "", "²", "1" * 5000])
def test_odd_limit_is_refused(limit: str) -> None:
    with pytest.raises(RequestRefused, match="limit: expected a number from 1 to 1000") as caught:
        list_models(ROUTED, "messages", {"limit": limit})
    assert caught.value.param == "limit"


@pytest.mark.parametrize("name", ["gpt-x", "claude-anything", "rehearsal-parallel"])
def test_name_that_some_route_takes_is_known_listed_or_not(name: str) -> None:
    assert json.loads(find_model(ROUTED, "chat", name))["id"] == name
    found = json.loads(find_model(ROUTED, "messages", name))
    assert ModelInfo.model_validate(found).id == name


@pytest.mark.parametrize(
    ("settings", "name"),
    [(ROUTED, "mistral"), (ROUTED, "rehearsal-pretend"), (ALONE, "rehearsal-nothing")],
)
def test_name_that_nothing_takes_is_not_found(settings: Settings, name: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        find_model(settings, "chat", name)
    info = error_info(caught.value)
    assert (info.kind, status_of(info), info.code) == ("not_found", 404, "model_not_found")


@pytest.mark.parametrize(
    ("headers", "dialect"),
    [
        ([(b"anthropic-version", b"2023-06-01")], "messages"),
        ([(b"anthropic-beta", b"x")], "messages"),
        ([(b"x-api-key", b"k"), (b"user-agent", b"Anthropic/Python 2.8")], "messages"),
        ([(b"user-agent", b"claude-cli/3"), (b"x-api-key", b"k")], "messages"),
        ([(b"x-api-key", b"k"), (b"user-agent", b"curl/8")], "chat"),
        ([(b"authorization", b"Bearer k"), (b"user-agent", b"Anthropic")], "chat"),
        ([], "chat"),
    ],
)
def test_headers_identify_the_vendor_of_the_client(
    headers: list[tuple[bytes, bytes]], dialect: Dialect
) -> None:
    assert dialect_of_caller(headers) == dialect
