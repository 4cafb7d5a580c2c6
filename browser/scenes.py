"""What the browser tests look at: a gateway on loopback that captures, and upstreams that stream a tool call in each dialect."""

import http.client
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import structs

from dragoman import StreamTranslator
from dragoman.config.settings import (
    InspectSettings,
    Route,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman.server.inspector import Inspector
from dragoman.testing import (
    Chunk,
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
    sse,
)
from gateway_harness import DIALECTS, RunningGateway, running_gateway, wait_until

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
MODELS = {"chat": "qwen3-coder", "responses": "gpt-5-codex", "messages": "claude-sonnet-4-5"}
"""A model of each upstream; its dialect is the key."""
UPSTREAMS = {"chat": "local", "responses": "openai", "messages": "anthropic"}
UPSTREAM_PATHS = {path.rpartition("/")[2]: dialect for dialect, path in PATHS.items()}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "units": {"enum": ["celsius", "kelvin"]}},
    "required": ["city"],
}
WORDS = ("I", "’ll", " look", " up", " the", " weather", " in", " Oslo", " and", " Bergen", ".")
INPUTS = (
    ('{"ci', 'ty": "Os', 'lo", "un', 'its": "cel', 'sius"}'),
    ('{"city"', ': "Ber', 'gen"}'),
)


def chat_stream(
    words: Sequence[str] = WORDS,
    inputs: Sequence[Sequence[str]] = INPUTS,
    *,
    name: str = "get_weather",
    finish: str = "tool_calls",
) -> bytes:
    """An answer in Chat Completions: text, calls, usage."""

    def chunk(delta: Mapping[str, object], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _frame({**head, "choices": [choice]})

    head = {"id": "chatcmpl-9x2b", "object": "chat.completion.chunk", "created": 1_763_000_000, "model": "qwen3-coder"}  # fmt: skip
    frames = [chunk({"role": "assistant", "content": ""})]
    frames += [chunk({"content": word}) for word in words]
    for index, pieces in enumerate(inputs):
        function = {"name": name, "arguments": ""}
        call = {
            "index": index,
            "id": f"call_{index}Hq7vR2",
            "type": "function",
            "function": function,
        }
        frames.append(chunk({"tool_calls": [call]}))
        frames += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in pieces
        ]
    frames.append(chunk({}, finish if inputs else "stop"))
    usage = {
        "prompt_tokens": 1472,
        "completion_tokens": 54,
        "total_tokens": 1526,
        "prompt_tokens_details": {"cached_tokens": 1024},
    }
    frames.append(_frame({**head, "choices": [], "usage": usage}))
    return b"".join((*frames, b"data: [DONE]\n\n"))


def stream_in(dialect: str, chat: bytes) -> bytes:
    """A stream of Chat Completions in another dialect."""
    if dialect == "chat":
        return chat
    translator = StreamTranslator("chat", dialect)
    return translator.feed(chat) + translator.close()


def _frame(payload: object) -> bytes:
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"


def request_of(door: str, text: str, *, tools: bool = True, **more: Any) -> dict[str, Any]:
    """A streamed request in a door's dialect; `more` are further fields."""
    said = [{"role": "user", "content": text}]
    body: dict[str, Any] = {"stream": True, **more}
    body.setdefault("input" if door == "responses" else "messages", said)
    if door == "messages":
        body.setdefault("max_tokens", 1024)
    if tools:
        body["tools"] = [_tool(door, "get_weather", "The weather in a city, now.")]
    return body


def _tool(door: str, name: str, description: str) -> dict[str, Any]:
    if door == "chat":
        return {"type": "function", "function": {"name": name, "description": description, "parameters": SCHEMA}}  # fmt: skip
    if door == "responses":
        return {"type": "function", "name": name, "description": description, "parameters": SCHEMA}
    return {"name": name, "description": description, "input_schema": SCHEMA}


class Scene:
    """A gateway with one upstream of each dialect, all of them served by one scripted server.

    `streams` has the Chat Completions of the next answers; without any, each answer is the usual one. `pause`: seconds
    between frames. `gate`: an answer that stops halfway until it is set.
    """

    def __init__(self) -> None:
        self.streams: list[bytes] = []
        self.replies: list[ScriptedReply] = []
        self.pause = 0.0
        self.gate: threading.Event | None = None
        self.gateway: RunningGateway | None = None

    @property
    def url(self) -> str:
        assert self.gateway is not None
        return self.gateway.url

    @property
    def inspector(self) -> Inspector:
        assert self.gateway is not None
        return self.gateway.app.gateway.inspector

    def on_loop(self, work: Callable[[], None]) -> None:
        """Run work on the gateway's event loop, and wait for it."""
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        assert self.gateway is not None
        self.gateway.server.servers[0].get_loop().call_soon_threadsafe(run)
        assert done.wait(60)

    def reply(self, request: ReceivedRequest) -> ScriptedReply:
        if self.replies:
            return self.replies.pop(0)
        if request.method != "POST":
            return json_reply({"object": "list", "data": []})
        dialect = UPSTREAM_PATHS[request.path.rpartition("/")[2]]
        stream = stream_in(dialect, self.streams.pop(0) if self.streams else chat_stream())
        usual = sse(stream, cut_into="frames", pause=self.pause)
        if self.gate is None:
            return usual
        chunks: list[Chunk] = list(usual.chunks or ())
        chunks.insert(len(chunks) // 2, Wait(self.gate))
        return structs.replace(usual, chunks=chunks)

    def post(
        self,
        door: str,
        body: Mapping[str, Any],
        upstream: str = "chat",
        key: str = "sk-not-a-real-key-1234567890",
    ) -> str:
        """Send a request to a door, over an upstream; the answer's text."""
        model = MODELS[upstream]
        client = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        try:
            headers = {
                "content-type": "application/json",
                "authorization": f"Bearer {key}",
            }
            client.request("POST", PATHS[door], json.dumps({**body, "model": model}), headers)
            return client.getresponse().read().decode()
        finally:
            client.close()

    def get(self, path: str) -> Any:
        client = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        try:
            client.request("GET", path)
            return json.loads(client.getresponse().read())
        finally:
            client.close()

    def latest(self, count: int = 1) -> dict[str, Any]:
        """The row of the newest request, when so many have ended."""
        rows: list[dict[str, Any]] = []

        def are_there() -> bool:
            rows[:] = self.get("/v1/inspect/requests")["data"]
            return len(rows) >= count and not any(row["live"] for row in rows)

        wait_until(are_there)
        return rows[0]


@contextmanager
def scene(**inspect: Any) -> Generator[Scene]:
    """`inspect`: settings of the inspector, which captures from the start unless they say otherwise; and `server_keys`."""
    made = Scene()
    with (
        ScriptedUpstream.in_thread(made.reply) as upstream,
        running_gateway(settings_of(upstream.url, **inspect)) as gateway,
    ):
        made.gateway = gateway
        yield made


def settings_of(url: str, *, server_keys: tuple[str, ...] = (), **inspect: Any) -> Settings:
    upstreams = {
        UPSTREAMS[dialect]: structs.replace(
            UpstreamSettings(kind="chat", base_url=url if dialect == "messages" else f"{url}/v1", api_key="upstream-key"),
            kind=dialect,
        )
        for dialect in DIALECTS
    }  # fmt: skip
    patterns = {"chat": "*", "responses": "gpt-*", "messages": "claude-*"}
    routes = tuple(
        Route(model=patterns[name], upstream=UPSTREAMS[name])
        for name in ("messages", "responses", "chat")
    )
    return Settings(
        server=ServerSettings(shutdown_grace=0.3, api_keys=server_keys),
        inspect=structs.replace(InspectSettings(capture="on"), **inspect),
        upstreams=upstreams,
        routes=routes,
    )
