"""The example files for Azure, Bedrock and Vertex, as they stand: what each sends, where, and with which key."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec import Struct, structs

from dragoman.config.check import check_surroundings, complete
from dragoman.config.read import load_settings
from dragoman.config.settings import RetrySettings, Settings
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from gateway_harness import RunningGateway, running_gateway
from plain_http import ask, fetch, plain_body
from sdk_clients import DOORS, conversation
from stage import deliver
from vendor_wire import Answer, Said, Tool

EXAMPLES = Path(__file__).parents[2] / "examples" / "upstreams"
KEYS = {
    "AZURE_OPENAI_API_KEY": "azure-key",
    "AWS_BEARER_TOKEN_BEDROCK": "bedrock-key",
    "VLLM_KEY": "vllm-key",
    "RENTED_KEY": "rented-key",
    "OTHER_KEY": "other-key",
}
ANSWER = Answer((Said(("Here ", "I am.")), Tool("call_1", "get_weather", ('{"city":"Oslo"}',))))


class Cloud(Struct):
    """A server that stands for all addresses of a file; each upstream's own path is kept."""

    gateway: RunningGateway
    requests: list[ReceivedRequest]
    refused: list[str]
    """Bearer tokens that it answers with 401."""

    @property
    def last(self) -> ReceivedRequest:
        return self.requests[-1]


def read_example(name: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for variable, key in KEYS.items():
        monkeypatch.setenv(variable, key)
    return load_settings(EXAMPLES / f"{name}.toml", dict(os.environ))


def dialect_of(request: ReceivedRequest) -> str:
    if "rawpredict" in request.path.lower() or request.path.endswith("/messages"):
        return "messages"
    return "responses" if request.path.endswith("/responses") else "chat"


@contextmanager
def cloud(name: str, monkeypatch: pytest.MonkeyPatch) -> Generator[Cloud]:
    """A gateway with an example file, whose hosts are all one scripted server."""
    requests: list[ReceivedRequest] = []
    refused: list[str] = []

    def script(request: ReceivedRequest) -> ScriptedReply:
        requests.append(request)
        if request.headers.get("authorization", "").removeprefix("Bearer ") in refused:
            return json_reply({"error": {"message": "the token has expired"}}, 401)
        if not request.body:
            return json_reply({"error": {"message": "no list"}}, 404)
        is_stream = "stream" in request.path or request.json().get("stream") is True
        return deliver(dialect_of(request), ANSWER, is_stream=is_stream)

    with ScriptedUpstream.in_thread(script) as server:
        settings = read_example(name, monkeypatch)
        moved = {
            own: structs.replace(
                upstream,
                base_url=_moved(upstream.base_url, server.url),
                peers=tuple(
                    structs.replace(peer, base_url=_moved(peer.base_url, server.url))
                    for peer in upstream.peers
                ),
            )
            for own, upstream in settings.upstreams.items()
        }
        settings = structs.replace(
            settings, upstreams=moved, retry=RetrySettings(enabled=False), store=None
        )
        settings = complete(settings)
        check_surroundings(settings, dict(os.environ))
        with running_gateway(settings) as gateway:
            yield Cloud(gateway, requests, refused)


def _moved(url: str, server: str) -> str:
    return server + urlsplit(url).path if url else ""


def program(folder: Path, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell script on the PATH, in place of a vendor's program. Returns the file that has the arguments of each run."""
    runs = folder / f"{name}-runs"
    file = folder / name
    file.write_text(f'#!/bin/sh\necho "$@" >> {runs}\n{source}\n', encoding="utf-8")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return runs


def said(cloud: Cloud, door: str, model: str, mode: str) -> None:
    asking = conversation(door, cloud.gateway.url, model)
    asking.say("hi")
    got = asking.ask(mode)
    assert got.text == "Here I am."
    (call,) = got.calls
    assert call.name == "get_weather"
    # Some SDKs parse the arguments.
    assert call.arguments in ('{"city":"Oslo"}', {"city": "Oslo"})


modes = pytest.mark.parametrize("mode", ["create", "stream"])
doors = pytest.mark.parametrize("door", DOORS)


def test_every_example_is_a_configuration_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(path.stem for path in EXAMPLES.glob("*.toml"))
    assert names == ["azure", "azure-entra", "bedrock", "peers", "vertex"]
    for name in names:
        settings = complete(read_example(name, monkeypatch))
        assert settings.upstreams


@modes
@doors
def test_azure_with_a_key(monkeypatch: pytest.MonkeyPatch, door: str, mode: str) -> None:
    with cloud("azure", monkeypatch) as azure:
        said(azure, door, "my-deployment", mode)
        path = "chat/completions" if door == "chat" else "responses"
        assert azure.last.path == f"/openai/v1/{path}"
        assert azure.last.query == ""
        assert azure.last.json()["model"] == "my-deployment"
        assert azure.last.headers["api-key"] == "azure-key"
        assert "authorization" not in azure.last.headers


@modes
@doors
def test_azure_with_a_dated_version(monkeypatch: pytest.MonkeyPatch, door: str, mode: str) -> None:
    with cloud("azure", monkeypatch) as azure:
        said(azure, door, "dated/any", mode)
        assert azure.last.path == "/openai/deployments/gpt-4o/chat/completions"
        assert dict(parse_qsl(azure.last.query)) == {"api-version": "2024-10-21"}
        assert "model" not in azure.last.json()
        assert azure.last.headers["api-key"] == "azure-key"
        assert "authorization" not in azure.last.headers


@modes
def test_azure_with_entra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    token = (
        '{"accessToken":"entra-token","expiresOn":"2099-01-01 00:00:00.0","expires_on":4070908800}'
    )
    runs = program(tmp_path, "az", f"echo '{token}'", monkeypatch)
    with cloud("azure-entra", monkeypatch) as azure:
        for _ in range(3):
            said(azure, "responses", "my-deployment", mode)
        assert azure.last.path == "/openai/v1/responses"
        assert azure.last.headers["authorization"] == "Bearer entra-token"
        assert "api-key" not in azure.last.headers
    assert runs.read_text(encoding="utf-8").splitlines() == [
        "account get-access-token --scope https://cognitiveservices.azure.com/.default --output json"
    ]


@modes
@doors
def test_bedrock(monkeypatch: pytest.MonkeyPatch, door: str, mode: str) -> None:
    with cloud("bedrock", monkeypatch) as bedrock:
        said(bedrock, door, "openai.gpt-oss-20b-1:0", mode)
        assert bedrock.last.path == "/openai/v1/chat/completions"
        assert bedrock.last.json()["model"] == "openai.gpt-oss-20b-1:0"
        assert bedrock.last.headers["authorization"] == "Bearer bedrock-key"
        said(bedrock, door, "claude-sonnet-4-6", mode)
        assert bedrock.last.path == "/anthropic/v1/messages"
        assert bedrock.last.json()["model"] == "anthropic.claude-sonnet-4-6"
        assert bedrock.last.headers["x-api-key"] == "bedrock-key"
        version = bedrock.last.headers["anthropic-version"]
        assert door == "messages" or version == "2023-06-01", "a Messages client has its own"


@modes
@doors
def test_vertex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str, mode: str) -> None:
    runs = program(tmp_path, "gcloud", "echo ya29.token", monkeypatch)
    with cloud("vertex", monkeypatch) as vertex:
        said(vertex, door, "google/gemini-2.5-pro", mode)
        places = "/v1/projects/PROJECT/locations"
        assert vertex.last.path == f"{places}/us-central1/endpoints/openapi/chat/completions"
        assert vertex.last.json()["model"] == "google/gemini-2.5-pro"
        assert vertex.last.headers["authorization"] == "Bearer ya29.token"
        said(vertex, door, "claude-sonnet-4-5@20250929", mode)
        call = "streamRawPredict" if mode == "stream" else "rawPredict"
        models = f"{places}/us-east5/publishers/anthropic/models"
        assert vertex.last.path == f"{models}/claude-sonnet-4-5@20250929:{call}"
        body = vertex.last.json()
        assert "model" not in body
        assert body["anthropic_version"] == "vertex-2023-10-16"
        assert body.get("stream", False) is (mode == "stream")
        assert vertex.last.headers["authorization"] == "Bearer ya29.token"
        assert "x-api-key" not in vertex.last.headers
    # Each upstream has a key of its own.
    assert runs.read_text(encoding="utf-8").splitlines() == ["auth print-access-token"] * 2


def test_a_model_cannot_change_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "gcloud", "echo ya29.token", monkeypatch)
    with cloud("vertex", monkeypatch) as vertex:
        body = plain_body("messages", "claude-x/../../evil?a=b#c")
        assert ask(vertex.gateway.url, "messages", body).status_code == 200
        assert vertex.last.path.endswith("/models/claude-x%2F..%2F..%2Fevil%3Fa%3Db%23c:rawPredict")
        assert vertex.last.query == ""


@pytest.mark.parametrize("model", [".", ".."])
def test_a_model_that_is_a_step_in_the_path_is_refused(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    with ScriptedUpstream.in_thread([]) as server:
        settings = read_example("azure", monkeypatch)
        dated = structs.replace(settings.upstreams["azure-dated"], base_url=f"{server.url}/openai")
        with running_gateway(complete(Settings(upstreams={"azure": dated}))) as gateway:
            answer = ask(gateway.url, "chat", plain_body("chat", model))
        assert answer.status_code == 400
        assert not server.requests


def test_tokens_are_estimated_where_the_path_for_counts_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "gcloud", "echo ya29.token", monkeypatch)
    with cloud("vertex", monkeypatch) as vertex:
        data = json.dumps(plain_body("messages", "claude-sonnet-4-5")).encode()
        url = f"{vertex.gateway.url}/v1/messages/count_tokens"
        answer = fetch("POST", url, {"content-type": "application/json"}, data)
        assert answer.status_code == 200
        assert json.loads(answer.content)["input_tokens"] > 0
        assert not vertex.requests


def test_a_refused_token_is_renewed_and_the_request_repeated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.upstream.http.token_command.PAUSE", 0.0)
    source = f'n=$(wc -l < {tmp_path}/gcloud-runs); echo "token-$n"'
    runs = program(tmp_path, "gcloud", source, monkeypatch)
    with cloud("vertex", monkeypatch) as vertex:
        said(vertex, "chat", "google/gemini", "create")
        assert vertex.last.headers["authorization"] == "Bearer token-1"
        vertex.refused.append("token-1")
        said(vertex, "chat", "google/gemini", "stream")
        assert vertex.last.headers["authorization"] == "Bearer token-2"
        assert len(vertex.requests) == 3
        vertex.refused += ["token-2", "token-3"]
        answer = ask(vertex.gateway.url, "chat", plain_body("chat", "google/gemini"))
        assert answer.status_code == 401
        assert len(vertex.requests) == 5, "a second refusal is the answer"
        assert "token-" not in answer.text
    assert len(runs.read_text(encoding="utf-8").splitlines()) == 3


def test_a_program_that_fails_is_a_typed_error_without_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program(tmp_path, "gcloud", "echo half-a-token; echo 'please log in' >&2; exit 1", monkeypatch)
    with cloud("vertex", monkeypatch) as vertex, caplog.at_level("INFO"):
        answer = ask(vertex.gateway.url, "chat", plain_body("chat", "google/gemini"))
        assert answer.status_code == 502
        message = json.loads(answer.content)["error"]["message"]
        assert message == "upstream 'vertex': its token_command ended with status 1"
        assert not vertex.requests
    assert "please log in" in caplog.text
    assert "half-a-token" not in caplog.text + answer.text


def test_the_peers_of_the_example_get_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with cloud("peers", monkeypatch) as qwen:
        for number in range(10):
            body = plain_body("chat", "any")
            body["messages"] = [{"role": "user", "content": f"conversation {number}"}]
            assert ask(qwen.gateway.url, "chat", body).status_code == 200
        assert {request.headers["authorization"] for request in qwen.requests} == {
            "Bearer vllm-key"
        }
        assert {request.json()["model"] for request in qwen.requests} == {"Qwen/Qwen3-Coder"}
