"""Reads answers as strictly as the SDKs do, for the oracle: a call counts as delivered when its dialect says that it is complete.

Chat: the choice has finished with `tool_calls`. Messages: the message has a `stop_reason` of `tool_use`. Responses: the item is done
and `completed`; agents run it from there on, without waiting for the end of the response. Pure: bytes in, a `Received` out.
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from fault_oracle import DeliveredCall, End, Received

Json = dict[str, Any]
_TEXT = "output_text"


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"")


class _Message(msgspec.Struct):
    """A Messages body. The input of a call keeps its bytes."""

    content: list[_Block]
    stop_reason: str


class StreamReader:
    """One streamed answer, frame by frame. `received` is None until the answer has ended."""

    def __init__(self, door: str) -> None:
        self.received: Received | None = None
        self._door = door
        self._buffer = b""
        self._text: list[str] = []
        self._calls: list[DeliveredCall] = []
        self._open: dict[int, Json] = {}
        self._finish: str | None = None

    def feed(self, data: bytes) -> None:
        """Take bytes of the body."""
        *frames, self._buffer = (self._buffer + data).split(b"\n\n")
        for frame in frames:
            lines = [line[6:] for line in frame.split(b"\n") if line.startswith(b"data: ")]
            if lines:
                self.take(b"\n".join(lines))

    def take(self, data: bytes) -> None:
        """Take the data of one event."""
        if self.received is not None:
            self._end("malformed", f"after the end came {data[:200]!r}")
            return
        if data == b"[DONE]":
            is_whole = self._door == "chat" and self._finish is not None
            self._end(_ends(self._finish) if is_whole else "malformed", "[DONE]")
            return
        try:
            event: Json = json.loads(data)
            if self._door == "chat":
                self._chat(event)
            elif self._door == "messages":
                self._messages(event)
            else:
                self._responses(event)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            self._end("malformed", f"{error!r} in {data[:200]!r}")

    def cut(self, end: End, why: str) -> Received:
        """The connection ended, or the client did. Returns what was read until then."""
        if self.received is None:
            self._end(end, why)
        assert self.received is not None
        return self.received

    def _end(self, end: End, detail: str = "", response: Json | None = None) -> None:
        self.received = Received(
            end=end,
            detail=detail,
            calls=self._calls,
            text="".join(self._text),
            response=response,
        )

    def _close_calls(self) -> None:
        """The open calls are complete."""
        self._calls += [
            DeliveredCall(call["id"], call["name"], "".join(call["pieces"]))
            for call in self._open.values()
        ]

    def _chat(self, event: Json) -> None:
        if "error" in event:
            self._end("error", _message(event["error"]))
            return
        for choice in event["choices"]:
            delta = choice["delta"]
            self._text.append(delta.get("content") or "")
            for piece in delta.get("tool_calls") or ():
                call = self._open.setdefault(piece["index"], {"pieces": []})
                if "id" in piece:
                    call |= {"id": piece["id"], "name": piece["function"]["name"]}
                call["pieces"].append(piece["function"].get("arguments") or "")
            if choice["finish_reason"] is not None:
                self._finish = choice["finish_reason"]
                if self._finish == "tool_calls":
                    self._close_calls()

    def _messages(self, event: Json) -> None:
        match event["type"]:
            case "error":
                self._end("error", _message(event["error"]))
            case "content_block_start":
                block = event["content_block"]
                self._text.append(block.get("text") or "")
                if block["type"] == "tool_use":
                    self._open[event["index"]] = {**block, "pieces": []}
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                self._text.append(event["delta"]["text"])
            case "content_block_delta" if event["delta"]["type"] == "input_json_delta":
                self._open[event["index"]]["pieces"].append(event["delta"]["partial_json"])
            case "message_delta":
                self._finish = event["delta"]["stop_reason"]
                if self._finish == "tool_use":
                    self._close_calls()
            case "message_stop":
                self._end(_ends(self._finish) if self._finish else "malformed", "no stop_reason")
            case _:
                pass

    def _responses(self, event: Json) -> None:
        match event["type"]:
            case "error":
                self._end("error", _message(event.get("error", event)))
            case "response.failed":
                self._end("error", _message(event["response"]["error"]))
            case "response.output_text.delta":
                self._text.append(event["delta"])
            case "response.output_item.done":
                self._calls += _calls_of([event["item"]])
            case "response.completed" | "response.incomplete":
                response: Json = event["response"]
                calls = list(_calls_of(response["output"]))
                if calls != self._calls:
                    self._end("malformed", f"the response has {calls}, its items {self._calls}")
                else:
                    self._end(_ends(response["status"]), response=response)
            case _:
                pass


def _ends(finish: str | None) -> End:
    return "incomplete" if finish in ("length", "max_tokens", "incomplete") else "success"


def _calls_of(items: Iterable[Json]) -> Iterable[DeliveredCall]:
    for item in items:
        if item["type"] == "function_call" and item["status"] == "completed":
            yield DeliveredCall(item["call_id"], item["name"], item["arguments"])


def read_body(door: str, data: bytes) -> Received:
    """Read an answer that is not streamed."""
    try:
        if door == "messages":
            return _message_body(data)
        body: Json = json.loads(data)
        return _chat_body(body) if door == "chat" else _response_body(body)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return Received(end="malformed", detail=f"{error!r} in {data[:200]!r}")


def _chat_body(body: Json) -> Received:
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [
        DeliveredCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
        if choice["finish_reason"] == "tool_calls"
    ]
    return Received(end=_ends(choice["finish_reason"]), calls=calls, text=message["content"] or "")


def _message_body(data: bytes) -> Received:
    message = msgspec.json.decode(data, type=_Message)
    calls = [
        DeliveredCall(block.id, block.name, bytes(block.input).decode())
        for block in message.content
        if block.type == "tool_use" and message.stop_reason == "tool_use"
    ]
    text = "".join(block.text for block in message.content if block.type == "text")
    return Received(end=_ends(message.stop_reason), calls=calls, text=text)


def _response_body(body: Json) -> Received:
    text = "".join(
        content["text"]
        for item in body["output"]
        if item["type"] == "message"
        for content in item["content"]
        if content["type"] == _TEXT
    )
    if body["status"] not in ("completed", "incomplete"):
        return Received(end="error", detail=_message(body["error"]))
    calls = list(_calls_of(body["output"]))
    return Received(end=_ends(body["status"]), calls=calls, text=text, response=body)


def read_error(door: str, status: int, data: bytes) -> Received:
    """Read an error that is the whole answer: it must have the form that the door's dialect gives to errors."""
    try:
        body: Json = json.loads(data)
        is_typed = door != "messages" or body["type"] == "error"
        end: End = "error" if is_typed else "malformed"
        return Received(end=end, detail=f"{status} {_message(body['error'])}")
    except (ValueError, KeyError, TypeError) as error:
        return Received(end="malformed", detail=f"{status}: {error!r} in {data[:200]!r}")


def _message(error: Json) -> str:
    """Raises KeyError or ValueError if it has no message."""
    message = error["message"]
    if not isinstance(message, str) or not message:
        raise ValueError("an error without a message")
    return message
