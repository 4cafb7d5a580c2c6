"""When the answer to a client ends, although the turn of Codex does not: a machine over the messages of one turn. Pure.

    rawResponseItem/completed of a call ──► the call is expected
    item/tool/call ──────────────────────► it waits for its result
    rawResponse/completed ───────────────► the model response is over: no further parallel call will come

The answer may end (`may_pause`) when calls wait, the response that made them is over, and all calls expected of it have
come. The order of the last two messages is not fixed. A model that writes programs makes calls outside any response;
those wait by themselves. If the model's connection is cut after a call, Codex says nothing until the call is answered: a
caller that has waited long enough may end the answer with `is_waiting` alone.

Which calls are the client's is decided as the reader does (`dialects.codex.calls`): by the names that were offered.
"""

from typing import cast

from dragoman._json import Raw, as_object, is_strict, loads
from dragoman.upstream.codex.jsonrpc import Message

__all__ = ("TOOL_CALL", "Watch")

TOOL_CALL = "item/tool/call"
_INJECTED_TURN = "auto-compact-"
_ECHOES = frozenset({"userMessage", "hookPrompt"})
_SPOKEN = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
_STREAMED = frozenset({"agentMessage", "reasoning"})


class Watch:
    """`waiting` are the calls that wait for a result: by their id, the id of the request that asks for it.

    is_heard: the client has something to hear. is_over: the turn has ended, and `is_failed` how. dropped: a tool that
    Codex did not offer although it was told to. is_retrying: Codex begins a model response anew.
    """

    def __init__(self, offered: frozenset[str]) -> None:
        self.waiting: dict[str, bytes] = {}
        self.told: set[str] = set()
        self.turn_id = ""
        self.is_heard = False
        self.is_over = False
        self.is_failed = False
        self.is_retrying = False
        self.is_text_open = False
        self.dropped: str | None = None
        self._offered = offered
        self._expected: dict[str, str] = {}
        self._is_response_open = False

    @property
    def may_pause(self) -> bool:
        return bool(self.waiting) and not self._is_response_open and not self._expected

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting)

    def answered(self) -> None:
        """The calls that wait have been answered, and the turn goes on with another answer."""
        self.waiting = {}
        self.is_heard = self.is_text_open = False

    def note(self, message: Message) -> None:
        """Take the next message of the turn."""
        self.is_retrying = False
        match message.method:
            case (
                "item/agentMessage/delta"
                | "item/reasoning/summaryTextDelta"
                | "item/reasoning/textDelta"
            ):
                self.is_heard = self.is_text_open = self._is_response_open = True
            case "rawResponseItem/completed":
                self._raw_item(message.params())
            case "rawResponse/completed":
                self._is_response_open = self.is_text_open = False
            case "item/started" | "item/completed":
                self._item(message.method, _object(message.params(), "item"))
            case "item/tool/call":
                self._call(message)
            case "error":
                self.is_retrying = bytes(message.params().get("willRetry", b"")) == b"true"
            case "turn/started":
                self.turn_id = _text(_object(message.params(), "turn"), "id")
            case "turn/completed":
                self.is_over = True
                self.is_failed = _text(_object(message.params(), "turn"), "status") == "failed"
            case _:
                pass

    def _raw_item(self, params: dict[str, Raw]) -> None:
        if _text(params, "turnId").startswith(_INJECTED_TURN):
            return
        item = _object(params, "item")
        kind = _text(item, "type")
        if kind == "function_call_output":
            name = self._expected.pop(_text(item, "call_id"), None)
            if name is not None:
                # Answered, and nobody was asked: Codex has a tool of that name itself.
                self.dropped = name
        elif kind in _SPOKEN and not (kind == "message" and _text(item, "role") != "assistant"):
            self.is_heard = self._is_response_open = True
            if kind == "function_call":
                self._expect(item)

    def _expect(self, item: dict[str, Raw]) -> None:
        name, call_id = _text(item, "name"), _text(item, "call_id")
        is_plain = _text(item, "namespace") in ("", "functions")
        if is_plain and name in self._offered and is_strict(_text(item, "arguments")):
            if call_id not in self.waiting:
                self._expected[call_id] = name
            self.told.add(call_id)

    def _item(self, method: str, item: dict[str, Raw]) -> None:
        kind = _text(item, "type")
        if kind in _ECHOES:
            return
        if kind == "dynamicToolCall" and method == "item/completed":
            self.waiting.pop(_text(item, "id"), None)
            self._expected.pop(_text(item, "id"), None)
            return
        self.is_heard = True
        if kind in _STREAMED:
            self.is_text_open = self._is_response_open = True

    def _call(self, message: Message) -> None:
        call_id = _text(message.params(), "callId")
        self.is_heard = True
        self.waiting[call_id] = message.id
        self.told.add(call_id)
        self._expected.pop(call_id, None)


def _object(fields: dict[str, Raw], key: str) -> dict[str, Raw]:
    data = bytes(fields.get(key, b""))
    return as_object(data) if data.startswith(b"{") else {}


def _text(fields: dict[str, Raw], key: str) -> str:
    value = cast("object", loads(bytes(fields.get(key, b"null"))))
    return value if isinstance(value, str) else ""
