"""Requests, answers and streams that are as heavy as the limits allow, each in another way."""

import json
from collections.abc import Callable, Mapping

MIB = 1024 * 1024
LIMIT = 63 * MIB  # a little below the limits of a body and of a frame, which are 64 MiB
LONG = 12 * MIB  # where more would only take longer: it is refused, or worked on in short steps

Make = Callable[[], bytes]


def _repeated(piece: bytes, between: bytes = b",", size: int = LONG) -> bytes:
    # Not by `join`: a list of 60 million pieces takes seconds to make.
    return ((piece + between) * (size // (len(piece) + len(between)))).removesuffix(between)


# --- requests --------------------------------------------------------------------------------------------------------


def _text(piece: bytes, size: int = LONG) -> bytes:
    return b'{"role":"user","content":"%b"}' % _repeated(piece, b"", size)


def _parts(size: int) -> bytes:
    return b'{"role":"user","content":[%b]}' % _repeated(b'{"type":"text","text":"x"}', size=size)


def _members(member: Callable[[int], bytes], count: int) -> bytes:
    members = b",".join([member(number) for number in range(count)])
    return b'{"role":"user","content":"x","more":{%b}}' % members


def _history() -> bytes:
    """What a long session of a coding agent sends: eight megabytes, some thousand messages."""
    code = json.dumps("def f(a, b):\n    return {'x': [a, b], \"y\": (a, b)}\n" * 40).encode()
    pair = b'{"role":"user","content":%b},{"role":"assistant","content":%b}' % (code, code)
    return _repeated(pair, size=8 * MIB)


MESSAGES: Mapping[str, Make] = {
    "too many messages": lambda: _repeated(b'{"role":"user","content":"x"}'),
    "many messages": lambda: _repeated(b'{"role":"user","content":"x"}', size=4 * MIB),
    "too many parts": lambda: _parts(LONG),
    "many parts": lambda: _parts(4 * MIB),
    "empty objects": lambda: _repeated(b"{}"),
    "numbers": lambda: _repeated(b"0"),
    "open brackets": lambda: _repeated(b"[", b"", LIMIT),
    "deep and broad": lambda: b"[" * 200 + _repeated(b"[[]]") + b"]" * 200,
    "a text": lambda: _text(b"x", LIMIT),
    "a text of commas": lambda: _text(b","),
    "a text of quotes": lambda: _text(b'\\"', LIMIT),
    "a text of backslashes": lambda: _text(b"\\\\"),
    "a text of escapes": lambda: _text(b"\\u0000"),
    "a text of halves of characters": lambda: _text(b"\\ud800"),
    "a text in other scripts": lambda: _text(b"\xc3\xa9\xe4\xb8\xad "),
    "a number": lambda: _repeated(b"1", b""),
    "no JSON at its end": lambda: _text(b"x")[:-1],
    "many members": lambda: _members(lambda number: b'"k%07d":0' % number, 400_000),
    "a member again and again": lambda: _members(lambda _: b'"k":0', 400_000),
    "numbers that are no doubles": lambda: _members(
        lambda number: b'"%d":1.2345678901234567e-300' % number, 200_000
    ),
    "a long session": _history,
}
"""What stands in the list of messages, or of input items."""


def request_of(door: str, messages: bytes, *, stream: bool = False) -> bytes:
    """A request of a dialect with one tool."""
    place = b"input" if door == "responses" else b"messages"
    tool: dict[str, object] = {"name": "f", "input_schema": {"type": "object"}}
    if door != "messages":
        function = {"name": "f", "parameters": {"type": "object"}}
        tool = (
            {"type": "function", **function}
            if door == "responses"
            else {"type": "function", "function": function}
        )
    return b'{"model":"m","stream":%b,"store":false,"tools":%b,%b"%b":[%b]}' % (
        b"true" if stream else b"false",
        json.dumps([tool]).encode(),
        b"" if door == "responses" else b'"max_tokens":99,',
        place,
        messages,
    )


# --- answers of a Chat upstream --------------------------------------------------------------------------------------


def _chat(content: bytes, more: bytes = b"") -> bytes:
    message = b'{"role":"assistant","content":"%b"%b}' % (content, more)
    choice = b'{"index":0,"finish_reason":"stop","message":%b}' % message
    return b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[%b]}' % choice


def _calls(calls: bytes) -> bytes:
    return _chat(b"", b',"tool_calls":[%b]' % calls)


def _call(arguments: bytes) -> bytes:
    return b'{"id":"a","type":"function","function":{"name":"f","arguments":"%b"}}' % arguments


ANSWERS: Mapping[str, Make] = {
    "a text": lambda: _chat(b"x" * LIMIT),
    "a text of escapes": lambda: _chat(_repeated(b"\\u0000", b"")),
    "a text of halves of characters": lambda: _chat(_repeated(b"\\ud800", b"")),
    "openers of calls": lambda: _chat(_repeated(b"<tool_call>", b"", 2 * MIB)),
    "openers of calls and no JSON": lambda: _chat(
        _repeated(b'<tool_call>{\\"name\\":', b"", 4 * MIB)
    ),
    "brackets in a text": lambda: _chat(_repeated(b"[", b"", 4 * MIB)),
    "too many calls": lambda: _calls(_repeated(_call(b"{}"))),
    "many calls": lambda: _calls(_repeated(_call(b"{}"), size=MIB)),
    "arguments of numbers": lambda: _calls(_call(b"[" + _repeated(b"0", size=LIMIT) + b"]")),
    "arguments of brackets": lambda: _calls(_call(_repeated(b"[", b""))),
    "deep": lambda: _chat(b"", b',"x":' + _repeated(b"[", b"")),
    "many members": lambda: _chat(b"x", b',"x":%b' % _members(lambda n: b'"k%07d":0' % n, 400_000)),
    "no JSON": lambda: _repeated(b"{", b""),
}


def _delta(content: bytes) -> bytes:
    choice = b'{"index":0,"delta":{"content":"%b"}}' % content
    return (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]}\n\n'
        % choice
    )


STREAMS: Mapping[str, Make] = {
    "comments": lambda: _repeated(b":\n\n", b"", MIB // 8),
    "comments with CR": lambda: _repeated(b":\r\n\r\n", b"", MIB // 8),
    "blank lines": lambda: _repeated(b"\n", b"", MIB // 8),
    "a comment": lambda: b": " + _repeated(b"x", b"", LIMIT) + b"\n\n",
    "a comment of many lines": lambda: _repeated(b":\n", b"", 2 * MIB) + b"\n\n",
    "a comment of many lines with CR": lambda: _repeated(b":\r", b"", 2 * MIB) + b"\r\r",
    "empty data": lambda: _repeated(b"data:\n\n", b"", MIB // 8),
    "empty objects": lambda: _repeated(b"data: {}\n\n", b"", MIB // 8),
    "pings": lambda: _repeated(b"event: ping\ndata: {}\n\n", b"", MIB // 8),
    "no JSON": lambda: _repeated(b"data: {\n\n", b"", MIB // 8),
    "small deltas": lambda: _repeated(_delta(b"x"), b"", 4 * MIB),
    "openers of calls": lambda: _repeated(_delta(b"<tool_call>"), b"", MIB),
    "a delta": lambda: _delta(b"x" * LIMIT),
    "a delta of openers": lambda: _delta(_repeated(b"<tool_call>", b"", 2 * MIB)),
    "a frame of numbers": lambda: b"data: [" + _repeated(b"0", size=LIMIT) + b"]\n\n",
    "a frame of brackets": lambda: b"data: " + _repeated(b"[", b"") + b"\n\n",
    "a frame of many lines": lambda: _repeated(b"data: x\n", b"", 2 * MIB) + b"\n",
    "a frame that is too large": lambda: b"data: " + b"x" * 70 * MIB,
}
"""What an upstream streams before it ends as it should."""
