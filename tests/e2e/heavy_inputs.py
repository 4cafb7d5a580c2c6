"""Requests and answers that are as heavy as the limits allow, each in another way."""

import gzip
import json
from collections.abc import Callable, Mapping

__all__ = ("ANSWERS", "FLOODS", "REQUESTS", "request_of")

MIB = 1024 * 1024
LIMIT = 63 * MIB  # a little below `server.max_body_bytes` and the largest frame


def _repeated(piece: bytes, between: bytes = b",", size: int = LIMIT) -> bytes:
    return between.join([piece] * (size // (len(piece) + len(between))))


def _in_messages(inside: bytes) -> bytes:
    return b'{"role":"user","content":"hi"},' + inside


def _texts(piece: bytes, size: int = LIMIT) -> bytes:
    return _in_messages(b'{"role":"user","content":"%b"}' % _repeated(piece, b"", size))


def _keys(size: int = LIMIT) -> bytes:
    count = size // 12
    return b",".join([b'"k%07d":0' % number for number in range(count)])


# What stands in the list of messages (or of input items), by what is heavy about it.
MESSAGES: Mapping[str, Callable[[], bytes]] = {
    "many messages": lambda: _repeated(b'{"role":"user","content":"x"}'),
    "some messages": lambda: _repeated(b'{"role":"user","content":"x"}', size=4 * MIB),
    "many parts": lambda: (
        b'{"role":"user","content":[%b]}' % _repeated(b'{"type":"text","text":"x"}')
    ),
    "some parts": lambda: (
        b'{"role":"user","content":[%b]}' % _repeated(b'{"type":"text","text":"x"}', size=4 * MIB)
    ),
    "empty objects": lambda: _repeated(b"{}"),
    "numbers": lambda: _repeated(b"0"),
    "open brackets": lambda: _repeated(b"[", b""),
    "nested": lambda: b"[" * 200 + _repeated(b"[[]]") + b"]" * 200,
    "one text": lambda: _texts(b"x"),
    "one text of commas": lambda: _texts(b","),
    "one text of quotes": lambda: _texts(b'\\"'),
    "one text of backslashes": lambda: _texts(b"\\\\"),
    "one text of escapes": lambda: _texts(b"\\u0000"),
    "one text of halves": lambda: _texts(b"\\ud800"),
    "one text of words": lambda: _texts(b"\xc3\xa9\xe4\xb8\xad "),
    "one number": lambda: _in_messages(_repeated(b"1", b"")),
    "no JSON at its end": lambda: _texts(b"x")[:-1],
    "many members": lambda: b'{"role":"user","content":"x",%b}' % _keys(),
    "one member again and again": lambda: b'{"role":"user","content":"x",%b}' % _repeated(b'"k":0'),
    "history": lambda: _history(),
}


def _history() -> bytes:
    """What a long session of a coding agent sends: eight megabytes, thousands of messages."""
    text = json.dumps("def f(a, b):\n    return {'x': [a, b], \"y\": (a, b)}\n" * 40)
    return _repeated(
        b'{"role":"user","content":%b},{"role":"assistant","content":%b}'
        % (text.encode(), text.encode()),
        size=8 * MIB,
    )


def request_of(
    door: str, messages: bytes, *, model: str, stream: bool = False, more: bytes = b""
) -> bytes:
    place = b"input" if door == "responses" else b"messages"
    return b'{"model":"%b","stream":%b,"max_tokens":99,"store":false,"%b":[%b]%b}' % (
        model.encode(),
        b"true" if stream else b"false",
        place,
        messages,
        more,
    )


REQUESTS = MESSAGES


def _chat(content: bytes, more: bytes = b"") -> bytes:
    return (
        b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
        b'"message":{"role":"assistant","content":"%b"%b}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
    ) % (content, more)


def _call(arguments: bytes) -> bytes:
    return b'{"id":"a","type":"function","function":{"name":"f","arguments":"%b"}}' % arguments


ANSWERS: Mapping[str, Callable[[], bytes]] = {
    "one text": lambda: _chat(b"x" * LIMIT),
    "one text of escapes": lambda: _chat(_repeated(b"\\u0000", b"")),
    "one text of halves": lambda: _chat(_repeated(b"\\ud800", b"")),
    "openers": lambda: _chat(_repeated(b"<tool_call>", b"", 8 * MIB)),
    "openers of JSON": lambda: _chat(_repeated(b'<tool_call>{\\"name\\":', b"", 8 * MIB)),
    "brackets in text": lambda: _chat(_repeated(b"[", b"", 8 * MIB)),
    "many calls": lambda: _chat(b"", b',"tool_calls":[%b]' % _repeated(_call(b"{}"))),
    "some calls": lambda: _chat(b"", b',"tool_calls":[%b]' % _repeated(_call(b"{}"), size=4 * MIB)),
    "arguments of numbers": lambda: _chat(
        b"", b',"tool_calls":[%b]' % _call(b"[" + _repeated(b"0") + b"]")
    ),
    "arguments of brackets": lambda: _chat(
        b"", b',"tool_calls":[%b]' % _call(_repeated(b"[", b""))
    ),
    "deep": lambda: _chat(b"", b',"x":' + _repeated(b"[", b"")),
    "many members": lambda: _chat(b"x", b',"x":{%b}' % _keys()),
    "no JSON": lambda: _repeated(b"{", b""),
}


def _delta(content: bytes) -> bytes:
    return (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
        % content
    )


FLOODS: Mapping[str, Callable[[], bytes]] = {
    "comments": lambda: _repeated(b":\n\n", b"", MIB),
    "comments with CR": lambda: _repeated(b":\r\n\r\n", b"", MIB),
    "blank lines": lambda: _repeated(b"\n", b"", MIB),
    "one comment": lambda: b": " + _repeated(b"x", b"") + b"\n\n",
    "one comment of lines": lambda: _repeated(b":\n", b"", 16 * MIB) + b"\n\n",
    "empty data": lambda: _repeated(b"data:\n\n", b"", MIB),
    "empty objects": lambda: _repeated(b"data: {}\n\n", b"", MIB),
    "pings": lambda: _repeated(b"event: ping\ndata: {}\n\n", b"", MIB),
    "no JSON": lambda: _repeated(b"data: {\n\n", b"", MIB),
    "tiny deltas": lambda: _repeated(_delta(b"x"), b"", 8 * MIB),
    "openers": lambda: _repeated(_delta(b"<tool_call>"), b"", 2 * MIB),
    "one huge delta": lambda: _delta(b"x" * LIMIT),
    "one huge delta of openers": lambda: _delta(_repeated(b"<tool_call>", b"", 8 * MIB)),
    "one frame of numbers": lambda: b"data: [" + _repeated(b"0") + b"]\n\n",
    "one frame of brackets": lambda: b"data: " + _repeated(b"[", b"") + b"\n\n",
    "one frame of lines": lambda: _repeated(b"data: x\n", b"", 16 * MIB) + b"\n",
    "a frame that is too large": lambda: b"data: " + b"x" * 80 * MIB,
}
