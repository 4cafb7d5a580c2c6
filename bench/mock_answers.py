"""The answers of the mock upstream: HTTP bytes prepared once, so that answering costs it next to nothing.

In a paced stream each text delta is the time at which it was sent, `@<monotonic ns> `, in place of a word; events that
repeat the whole text (Responses' closing events) repeat these timestamps, as a real server would.
"""

import re
from typing import Any

import msgspec
from bench_streams import Story, dialect_stream

_MARK = "@when "
_MARK_BYTES = _MARK.encode()
_CHAT_USAGE: dict[str, Any] = {
    "prompt_tokens": 120,
    "completion_tokens": 600,
    "total_tokens": 720,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
_TEXT = "All tests pass; I will read the file next. " * 9
_ARGUMENTS = '{"path":"/srv/app/main.py","limit":200}'
_ID = "68a1f0c2d4e88190b7c3a5e6f7081920a1b2c3d4e5f60718"

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"x-request-id: req_0123456789abcdef\r\nopenai-processing-ms: 12\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"


class Behaviour(msgspec.Struct, frozen=True):
    """How a model name asks to be answered: `-p10` one event every 10 ms, `-x30` about 30 deltas, `-d50` after 50 ms."""

    gap: float = 0.0
    deltas: int = 0
    delay: float = 0.0


Frame = tuple[bytes, ...]
"""One event, cut where a stamp belongs: an event without one is a tuple of one piece."""


def behaviour_of(model: str) -> Behaviour:
    def number(letter: str) -> float:
        found = re.search(rf"-{letter}(\d+(?:\.\d+)?)", model)
        return float(found[1]) if found else 0.0

    return Behaviour(number("p") / 1000, int(number("x")), number("d") / 1000)


class _Stamped(Story, frozen=True):
    def words(self) -> list[str]:
        return [_MARK] * self.texts


def frames(dialect: str, deltas: int = 0, *, is_stamped: bool = False) -> list[Frame]:
    """The events of one stream: 400 text deltas and two calls of 100, or the same shape in about `deltas`."""
    kind = _Stamped if is_stamped else Story
    story = kind(deltas * 2 // 3, 2, max(deltas // 6, 4)) if deltas else kind()
    events = dialect_stream(dialect, story)
    if dialect == "chat":
        events.insert(-1, _chat_usage())
    return [tuple(event.split(_MARK_BYTES)) if is_stamped else (event,) for event in events]


def stamped(frame: Frame, sent: list[bytes], now: int) -> bytes:
    """Return the event's bytes. A delta gets the timestamp `now`, which is added to `sent`; a repeat gets all of `sent`."""
    if len(frame) == 1:
        return frame[0]
    if len(frame) == 2:
        sent.append(b"@%d " % now)
        return frame[0] + sent[-1] + frame[1]
    pieces: list[bytes] = []
    for index, piece in enumerate(frame[:-1]):
        pieces += (piece, sent[index % len(sent)])
    return b"".join((*pieces, frame[-1]))


def flood_answer(dialect: str) -> bytes:
    """A whole streamed answer, every event an HTTP chunk of its own, as real servers send them."""
    return STREAM_HEAD + b"".join(chunk(frame[0]) for frame in frames(dialect)) + STREAM_END


def body_answer(dialect: str) -> bytes:
    """An answer of about 1 KB that is not streamed: some text and one tool call."""
    return json_answer(msgspec.json.encode(_BODIES[dialect]))


def json_answer(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_0123456789abcdef\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _chat_usage() -> bytes:
    event: dict[str, Any] = {
        "id": "chatcmpl-CXyZ0123456789abcdefghijklmn",
        "object": "chat.completion.chunk",
        "created": 1757000000,
        "model": "gpt-4.1-2025-04-14",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
        "choices": [],
        "usage": _CHAT_USAGE,
        "obfuscation": "7sc1eA5jd",
    }
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


_BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "id": "chatcmpl-CXyZ0123456789abcdefghijklmn",
        "object": "chat.completion",
        "created": 1757000000,
        "model": "gpt-4.1-2025-04-14",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": _TEXT,
                    "refusal": None,
                    "tool_calls": [
                        {
                            "id": "call_00AbCdEf",
                            "type": "function",
                            "function": {"name": "read_file", "arguments": _ARGUMENTS},
                        }
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 60, "total_tokens": 180},
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    },
    "responses": {
        "id": "resp_" + _ID,
        "object": "response",
        "created_at": 1757000000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-4.1-2025-04-14",
        "output": [
            {
                "id": "msg_" + _ID,
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "annotations": [], "logprobs": [], "text": _TEXT}
                ],
            },
            {
                "id": "fc_" + _ID,
                "type": "function_call",
                "status": "completed",
                "arguments": _ARGUMENTS,
                "call_id": "call_00AbCdEf",
                "name": "read_file",
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": {
            "input_tokens": 120,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 60,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 180,
        },
    },
    "messages": {
        "id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [
            {"type": "text", "text": _TEXT},
            {
                "type": "tool_use",
                "id": "toolu_00AbCdEf",
                "name": "read_file",
                "input": {"path": "/srv/app/main.py", "limit": 200},
            },
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 120, "output_tokens": 60},
    },
}
