"""A gateway between one scripted upstream that speaks every dialect and the SDKs: started once, used by many tests.

Each test makes a *scene*: the answers of an upstream under a model name that no other test uses. The requests under that
name belong to the scene, so that tests need no server of their own.
"""

import itertools
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import Struct, structs

from dragoman.config.settings import (
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamSettings,
)
from dragoman.obsidian.settings import ChatSettings
from dragoman.testing import (
    Chunk,
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    json_reply,
    sse,
)
from gateway_harness import DIALECTS, RunningGateway, running_gateway
from vendor_wire import Answer, body_bytes, stream

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
UPSTREAM_KEY = "key-of-the-upstream"
NO_RETRY = RetrySettings(enabled=False)

Delivery = Literal["whole", "frames", "bytes", "crlf", "cr"]
Part = Answer | ScriptedReply | Callable[[ReceivedRequest], ScriptedReply]


class Scene(Struct):
    """The answers of one upstream under one model name, in order, and the requests that asked for them."""

    dialect: str
    model: str
    parts: list[Part]
    delivery: Delivery
    requests: list[ReceivedRequest]

    @property
    def heard(self) -> Any:
        """The JSON body of the last request."""
        return json.loads(self.requests[-1].body)

    def reply(self, request: ReceivedRequest) -> ScriptedReply:
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self.parts):
            return json_reply({"error": {"message": "nobody expected this request"}}, 418)
        part = self.parts[number]
        if isinstance(part, Answer):
            is_stream = json.loads(request.body).get("stream") is True
            return deliver(self.dialect, part, is_stream=is_stream, delivery=self.delivery)
        return part if isinstance(part, ScriptedReply) else part(request)


def deliver(
    dialect: str, answer: Answer, *, is_stream: bool, delivery: Delivery = "whole"
) -> ScriptedReply:
    """An answer as the vendor sends it, cut in the way asked for."""
    if not is_stream:
        whole = body_bytes(dialect, answer)
        if delivery != "bytes":
            return json_reply(whole)
        chunks: Sequence[Chunk] = [whole[at : at + 1] for at in range(len(whole))]
        return ScriptedReply(content_type="application/json", chunks=chunks)
    sent = stream(dialect, answer)
    match delivery:
        case "whole":
            return sse(sent)
        case "frames":
            return sse(sent, cut_into="frames")
        case "bytes":
            return sse(sent, cut_into=1)
        case "crlf":
            return sse(sent.replace(b"\n", b"\r\n"))
        case "cr":
            return sse(sent.replace(b"\n", b"\r"))


class Stage:
    """The gateway and its upstream. `prefix` of a model's name is the upstream of that name."""

    def __init__(self) -> None:
        self._scenes: dict[str, Scene] = {}
        self._numbers = itertools.count(1)
        self.strangers: list[ReceivedRequest] = []
        self.upstream: ScriptedUpstream
        self.gateway: RunningGateway

    @property
    def url(self) -> str:
        """The gateway's, without a path."""
        return self.gateway.url

    def scene(
        self,
        dialect: str,
        *parts: Part,
        delivery: Delivery = "whole",
        route: str | None = None,
        upstream_model: str | None = None,
    ) -> Scene:
        """`route`: the prefix of the model's name, where that is not the dialect's; `upstream_model`: the name the upstream is asked for."""
        model = f"{route or dialect}/scene-{next(self._numbers)}"
        scene = Scene(dialect, model, list(parts), delivery, [])
        self._scenes[upstream_model or model] = scene
        return scene

    def script(self, request: ReceivedRequest) -> ScriptedReply:
        model: str = json.loads(request.body)["model"] if request.body else ""
        scene = self._scenes.get(model)
        if scene is None:
            self.strangers.append(request)
            return json_reply({"error": {"message": f"no scene for {model}"}}, 418)
        return scene.reply(request)


def upstream_settings(url: str, kind: str, **more: object) -> UpstreamSettings:
    base = url if kind == "messages" else f"{url}/v1"
    settings = UpstreamSettings(kind="chat", base_url=base, api_key=UPSTREAM_KEY)
    return structs.replace(settings, kind=kind, **more)


@contextmanager
def running_stage(
    *,
    server: ServerSettings | None = None,
    retry: RetrySettings = NO_RETRY,
    upstreams: Mapping[str, Mapping[str, object]] | None = None,
    routes: Sequence[Route] = (),
    chat: ChatSettings | None = None,
    store: StoreSettings | None = None,
    further: Mapping[str, object] | None = None,
    way: str = "direct",
) -> Generator[Stage]:
    """A gateway with an upstream for each dialect, by its name, and more by theirs (`kind` and other settings).

    further: other settings, by their names. way: see `running_gateway`.
    """
    stage = Stage()
    wanted: dict[str, Mapping[str, object]] = {kind: {"kind": kind} for kind in DIALECTS}
    wanted |= upstreams or {}
    with ScriptedUpstream.in_thread(stage.script) as upstream:
        stage.upstream = upstream
        made: dict[str, UpstreamSettings] = {}
        for name, more in wanted.items():
            others = {key: value for key, value in more.items() if key != "kind"}
            made[name] = upstream_settings(upstream.url, str(more["kind"]), **others)
        settings = Settings(
            server=server or ServerSettings(shutdown_grace=0.3),
            retry=retry,
            chat=chat or ChatSettings(),
            store=store,
            upstreams=made,
            routes=(*routes, *(Route(model=f"{name}/*", upstream=name) for name in made)),
        )
        with running_gateway(structs.replace(settings, **(further or {})), way) as gateway:
            stage.gateway = gateway
            yield stage
    assert not upstream.failures, upstream.failures
