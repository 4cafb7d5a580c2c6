"""GET /v1/models lists what the upstreams list, as far as a request for the name would reach that upstream."""

import json
from collections.abc import Iterator
from threading import Event

import pytest

from dragoman.config.settings import Route, ServerSettings, Settings, UpstreamSettings
from dragoman.server import catalog
from gateway_harness import running_gateway
from http_servers import QuietHandler, running_server
from plain_http import fetch
from sdk_clients import anthropic_client, openai_client

MINE = [{"id": "qwen3-coder", "object": "model"}, {"id": "llama-4"}, {"id": "claude-local"}]
RELEASE = Event()
ASKED: list[str] = []


class Lists(QuietHandler):
    """Each path is an upstream of its own; `/slow` does not answer before the test ends."""

    def respond(self) -> None:
        ASKED.append(f"{self.command} {self.path} {self.headers.get('authorization', '')}")
        name = self.path.split("/")[1]
        if name == "slow":
            RELEASE.wait(60)
        body = {
            "good": json.dumps({"object": "list", "data": MINE}).encode(),
            "mine": json.dumps(
                {"data": [{"id": self.headers.get("authorization", "none")}]}
            ).encode(),
            "odd": b'{"data": [7, {"id": 7}, {"id": ""}, {"name": "x"}, null, {"id": "odd-one"}]}',
            "text": b"<html>",
        }.get(name, b"{}")
        self.answer(404 if name == "none" else 200, body)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_server(Lists) as there:
        yield f"http://{there}"
        RELEASE.set()


def upstream(address: str, name: str, key: str | None = "k") -> UpstreamSettings:
    return UpstreamSettings(kind="chat", base_url=f"{address}/{name}/v1", api_key=key)


def settings(address: str, *names: str, routes: tuple[Route, ...] = ()) -> Settings:
    return Settings(
        server=ServerSettings(shutdown_grace=0.3),
        upstreams={name: upstream(address, name) for name in names},
        routes=routes or tuple(Route(model=f"{name}*", upstream=name) for name in names),
    )


def test_both_sdks_list_the_models_of_the_upstream(address: str) -> None:
    everything = settings(address, "good", routes=(Route(model="*", upstream="good"),))
    with running_gateway(everything) as gateway:
        for listed in (
            openai_client(gateway.url).models.list(),
            anthropic_client(gateway.url).models.list(),
        ):
            assert [model.id for model in listed] == ["qwen3-coder", "llama-4", "claude-local"]


def test_only_names_that_are_routed_there_are_listed(address: str) -> None:
    routes = (
        Route(model="claude-*", upstream="other"),
        Route(model="qwen*", upstream="good"),
        Route(model="mine", upstream="good", upstream_model="llama-4"),
    )
    some = Settings(
        server=ServerSettings(shutdown_grace=0.3),
        upstreams={"good": upstream(address, "good"), "other": upstream(address, "none")},
        routes=routes,
    )
    with running_gateway(some) as gateway:
        listed = openai_client(gateway.url).models.list()
        assert {(model.id, model.owned_by) for model in listed} == {
            ("mine", "good"),
            ("qwen3-coder", "good"),
        }


def test_a_list_that_cannot_be_read_is_left_out_and_the_others_stay(address: str) -> None:
    with running_gateway(settings(address, "odd", "text", "none", "good")) as gateway:
        page = fetch("GET", f"{gateway.url}/v1/models")
        assert page.status_code == 200
        assert [model["id"] for model in page.json()["data"]] == ["odd-one"]


def test_an_upstream_that_does_not_answer_delays_the_list_only_for_a_while(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_PATIENCE", 0.2)
    routes = (Route(model="slow*", upstream="slow"), Route(model="*", upstream="good"))
    with running_gateway(settings(address, "slow", "good", routes=routes)) as gateway:
        page = fetch("GET", f"{gateway.url}/v1/models").json()
        assert [model["id"] for model in page["data"]] == ["qwen3-coder", "llama-4", "claude-local"]


def test_a_list_is_asked_for_once_a_minute(address: str) -> None:
    with running_gateway(settings(address, "good")) as gateway:
        ASKED.clear()
        for _ in range(3):
            assert fetch("GET", f"{gateway.url}/v1/models").status_code == 200
        assert ASKED == ["GET /good/v1/models Bearer k"]


def test_where_clients_bring_their_key_each_gets_its_own_list(address: str) -> None:
    own = Settings(
        server=ServerSettings(shutdown_grace=0.3),
        upstreams={"mine": upstream(address, "mine", "client")},
        routes=(Route(model="*", upstream="mine"),),
    )
    with running_gateway(own) as gateway:
        for key in ("key-a", "key-b", "key-a"):
            headers = {"authorization": f"Bearer {key}"}
            page = fetch("GET", f"{gateway.url}/v1/models", headers=headers).json()
            assert [model["id"] for model in page["data"]] == [f"Bearer {key}"]
