"""The scripted model: a server that speaks all three dialects and refuses what their vendors would refuse.

It is stateless, as the real ones are: which turn comes next follows from the results in the request, so repeated and
resumed requests get the same answer. A request without tools that the script needs (a title, a warm-up) gets a short
text.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import get_args

from clients.script import (
    Call,
    Conversation,
    Dialect,
    Fault,
    ModelTurn,
    Script,
    SpokenCall,
    Tool,
)
from clients.wire import chat, messages, responses
from dragoman.testing import Chunk, Pause, ReceivedRequest, ScriptedReply, ScriptedUpstream

__all__ = ("DIALECTS", "SMALL_TALK", "Heard", "Model", "serve")

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
WIRES: dict[Dialect, ModuleType] = {"chat": chat, "responses": responses, "messages": messages}
PATHS: dict[str, Dialect] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
SMALL_TALK = "Small talk."
MAX_REQUESTS = 20  # no script needs as many, with all retries
SILENCE_SECONDS = 60.0


class Heard:
    """A request of the conversation, as the model understood it."""

    def __init__(
        self, request: ReceivedRequest, dialect: Dialect, conversation: Conversation
    ) -> None:
        self.request = request
        self.dialect: Dialect = dialect
        self.conversation = conversation

    def text(self) -> str:
        return self.request.body.decode()


class Model:
    """Say what is to happen with `play`, let a client talk, then look at `heard` and `objections`."""

    def __init__(self) -> None:
        self.script = Script()
        self.heard: list[Heard] = []
        self.objections: list[str] = []
        self._faults = 0

    def play(self, script: Script) -> None:
        self.script = script
        self.heard = []
        self.objections = []
        self._faults = 0

    def answer(self, request: ReceivedRequest) -> ScriptedReply:
        """The whole server, as a function."""
        dialect = PATHS.get(request.path)
        if dialect is None or request.method != "POST":
            return ScriptedReply(status=404, content_type="application/json", body=b"{}")
        wire = WIRES[dialect]
        value = json.loads(request.body)
        if "thread" in value:
            body = messages.threads_refused()
            return ScriptedReply(status=400, content_type="application/json", body=body)
        conversation: Conversation = wire.read(value)
        script = self.script
        if not _is_offered(script, conversation):
            return self._reply(wire, conversation, ModelTurn(text=SMALL_TALK), [])
        self.heard.append(Heard(request, dialect, conversation))
        conversation.object_if(len(self.heard) > MAX_REQUESTS, "it asks and asks")
        if conversation.objections:
            self.objections += conversation.objections
            message = "; ".join(conversation.objections)
            return _error(wire, 400, "invalid_request_error", message)
        if script.fault is not None and self._faults < script.fault.times:
            self._faults += 1
            return self._fail(wire, conversation, script.fault)
        turn, calls = self._next(wire, conversation)
        self.objections += conversation.objections
        return self._reply(wire, conversation, turn, calls)

    def call_ids(self, dialect: Dialect) -> list[str]:
        """The ids of all calls of the script as that dialect's server gives them."""
        return [
            _call_id(dialect, number, index)
            for number, turn in enumerate(self.script.turns)
            for index in range(len(turn.calls))
        ]

    def _next(
        self, wire: ModuleType, conversation: Conversation
    ) -> tuple[ModelTurn, list[SpokenCall]]:
        answered = {result.id: result.text for result in conversation.results}
        dialect: Dialect = next(name for name, module in WIRES.items() if module is wire)
        results: list[str] = []
        for number, turn in enumerate(self.script.turns):
            ids = [_call_id(dialect, number, index) for index in range(len(turn.calls))]
            if not answered.keys() >= set(ids):
                offered = [tool.name for tool in conversation.tools]
                missing = [call for call in turn.calls if not _find(call, conversation.tools)]
                conversation.object_if(missing, f"{missing} not offered: {offered}")
                spoken = [
                    _speak(call, call_id, conversation)
                    for call, call_id in zip(turn.calls, ids, strict=True)
                    if call not in missing
                ]
                return turn, spoken
            results += [answered[call_id] for call_id in ids]
        return ModelTurn(text=" | ".join((self.script.closing, *results))), []

    def _reply(
        self, wire: ModuleType, conversation: Conversation, turn: ModelTurn, calls: list[SpokenCall]
    ) -> ScriptedReply:
        if not conversation.stream:
            body = wire.body(turn, calls, conversation.model)
            return ScriptedReply(content_type="application/json", body=body)
        chunks: list[Chunk] = [frame for _, frame in wire.stream(turn, calls, conversation.model)]
        if self.script.quirk is not None and calls:
            chunks = [*self.script.quirk(chunks)]
        return ScriptedReply(content_type="text/event-stream", chunks=chunks)

    def _fail(self, wire: ModuleType, conversation: Conversation, fault: Fault) -> ScriptedReply:
        if fault.status is not None:
            return _error(wire, fault.status, "server_error", "scripted failure", fault)
        if not conversation.stream:
            return _error(wire, 500, "server_error", "scripted failure", fault)
        turn, calls = self._next(wire, conversation)
        frames = list(wire.stream(turn, calls, conversation.model))
        # In the middle of the last thing said: the input of the last call, or the text.
        last = max(index for index, (word, _) in enumerate(frames) if word in ("input", "text"))
        chunks: list[Chunk] = [frame for _, frame in frames[:last]]
        if fault.mid_stream == "error":
            chunks.append(wire.error_frames("scripted failure"))
        if fault.mid_stream == "silence":
            chunks.append(Pause(SILENCE_SECONDS))
        cut = fault.mid_stream == "cut"
        return ScriptedReply(content_type="text/event-stream", chunks=chunks, cut=cut)


def _call_id(dialect: Dialect, turn: int, index: int) -> str:
    return f"{WIRES[dialect].ID_PREFIX}0{turn + 1}Turn{index + 1}Call"


def _is_offered(script: Script, conversation: Conversation) -> bool:
    """Whether the first turn could be said. Tools of later ones may be offered later."""
    first = script.turns[0].calls if script.turns else ()
    return all(_find(call, conversation.tools) for call in first)


def _find(call: Call, tools: list[Tool]) -> Tool | None:
    """The tool a call means: as it is named, or flattened by the gateway into a name that has both words."""
    for tool in tools:
        if (tool.name, tool.namespace) == (call.name, call.namespace):
            return tool
    if call.namespace is None:
        return None
    for tool in tools:
        words = (tool.name.startswith(call.namespace), tool.name.endswith(call.name))
        if tool.namespace is None and all(words):
            return tool
    return None


def _speak(call: Call, call_id: str, conversation: Conversation) -> SpokenCall:
    tool = _find(call, conversation.tools)
    if tool is None:
        raise AssertionError(
            f"{call.name} is not among {[tool.name for tool in conversation.tools]}"
        )
    if not call.custom or tool.kind == "custom":
        return SpokenCall(call_id, tool, call.input)
    # A custom tool that reached the model as a function: it puts the text where the schema has its one string.
    (key,) = tool.schema["properties"]
    return SpokenCall(call_id, tool, json.dumps({key: call.input}))


def _error(
    wire: ModuleType, status: int, kind: str, message: str, fault: Fault | None = None
) -> ScriptedReply:
    return ScriptedReply(
        status=status,
        content_type="application/json",
        headers=dict(fault.headers) if fault is not None else {},
        body=wire.error_body(kind, message),
    )


@contextmanager
def serve(model: Model) -> Generator[ScriptedUpstream]:
    """The model on a port of 127.0.0.1, in a thread of its own."""
    with ScriptedUpstream.in_thread(model.answer) as upstream:
        yield upstream
