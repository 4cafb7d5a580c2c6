"""Conversations over a scripted upstream that is asked over WebSockets: its answers, and what the requests of a client look like."""

import json
from collections.abc import Callable
from typing import Any

from dragoman.testing import ReceivedRequest, ScriptedReply, sse
from vendor_wire import Answer, stream

__all__ = ("Json", "answer_stream", "error_frame", "numbered", "outputs")

Json = dict[str, Any]


def answer_stream(answer: Answer, response_id: str) -> bytes:
    """An answer as a Responses server streams it."""
    return stream("responses", answer).replace(b"resp_vendor1", response_id.encode())


def numbered(*answers: Answer) -> Callable[[ReceivedRequest], ScriptedReply]:
    """A script that answers the first request with the first of these and the id `resp_1`, and so on; the last again and again."""
    count = 0

    def reply(_: ReceivedRequest) -> ScriptedReply:
        nonlocal count
        count += 1
        answer = answers[min(count, len(answers)) - 1]
        return sse(answer_stream(answer, f"resp_{count}"))

    return reply


def outputs(data: bytes) -> list[Json]:
    """The items of a stream, as they came by `output_item.done`."""
    lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: {")]
    events: list[Json] = [json.loads(line) for line in lines]
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def error_frame(status: int, code: str, **more: object) -> ScriptedReply:
    """An answer that is one frame of type `error`."""
    error = {"type": "invalid_request_error", "code": code, "message": f"it says {code}"}
    frame = {"type": "error", "status": status, "error": error, **more}
    return ScriptedReply(body=json.dumps(frame).encode())
