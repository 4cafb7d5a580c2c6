"""A stand-in for the ChatGPT Codex backend as observed, and a gateway in front of it."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from codex_logins import chatgpt_login
from dragoman.config.settings import RetrySettings, ServerSettings, Settings, UpstreamSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from gateway_harness import RunningGateway, running_gateway
from vendor_wire import Answer, stream

Reaction = Callable[[ReceivedRequest], ScriptedReply]

PATH = "/backend-api/codex"
ACCEPTED = frozenset(
    {
        *("model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls", "reasoning"),
        *("store", "stream", "include", "prompt_cache_key", "text", "client_metadata"),
    }
)  # fmt: skip


def refusal(request: ReceivedRequest) -> ScriptedReply | None:
    """Return the backend's refusal of a request, in its own words; None if it accepts the request."""
    body: dict[str, Any] = json.loads(request.body)
    complaints = [f"Unsupported parameter: {name}" for name in body if name not in ACCEPTED]
    if body.get("stream") is not True:
        complaints.append("Stream must be set to true")
    if body.get("store") is not False:
        complaints.append("Store must be set to false")
    if not body.get("instructions"):
        complaints.append("Instructions are required")
    if not isinstance(body.get("input"), list):
        complaints.append("Input must be a list")
    elif any(item.get("role") == "system" for item in body["input"]):
        complaints.append("System messages are not allowed")
    return json_reply({"detail": complaints[0]}, 400) if complaints else None


def bare_stream(data: bytes, **headers: str) -> ScriptedReply:
    """A stream that does not say what it is."""
    return ScriptedReply(chunks=[data], headers=headers)


def odd_stream(answer: Answer) -> bytes:
    """Return the answer as this backend streams it: arguments in `.done` only, and an empty `output` in the last event."""
    sent: list[bytes] = []
    for frame in stream("responses", answer).split(b"\n\n")[:-1]:
        event: dict[str, Any] = json.loads(frame.partition(b"data: ")[2])
        if event["type"] in (
            "response.function_call_arguments.delta",
            "response.custom_tool_call_input.delta",
        ):
            continue
        if event["type"] == "response.completed":
            event["response"]["output"] = []
        sent.append(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return b"".join(sent)


class BackendStage(Struct, frozen=True):
    backend: ScriptedUpstream
    gateway: RunningGateway
    auth_file: Path

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def heard(self) -> dict[str, Any]:
        """The body of the last request."""
        body: dict[str, Any] = json.loads(self.backend.requests[-1].body)
        return body


@contextmanager
def backend_stage(
    folder: Path,
    replies: Sequence[ScriptedReply | Reaction],
    *,
    login: bytes | None = None,
    settings: Settings | None = None,
    **more: Any,
) -> Generator[BackendStage]:
    """Yield a gateway whose only upstream is a backend that gives these answers, one by one, to requests it accepts."""
    auth_file = folder / "auth.json"
    if login != b"":
        auth_file.write_bytes(login or chatgpt_login())
    waiting = list(replies)

    def answer(request: ReceivedRequest) -> ScriptedReply:
        refused = refusal(request)
        if refused is not None:
            return refused
        reply = waiting.pop(0)
        return reply if isinstance(reply, ScriptedReply) else reply(request)

    with ScriptedUpstream.in_thread(answer) as backend:
        upstream = UpstreamSettings(
            kind="chatgpt-codex",
            base_url=f"{backend.url}{PATH}",
            auth_file=str(auth_file),
            **more,
        )
        whole = structs.replace(
            settings or Settings(),
            server=ServerSettings(shutdown_grace=0.3),
            retry=RetrySettings(enabled=False),
            upstreams={"codex": upstream},
        )
        with running_gateway(whole) as gateway:
            yield BackendStage(backend, gateway, auth_file)
        assert backend.failures == []
