"""Chat Completions as OpenAI, Azure, DeepSeek, OpenRouter, Google and vLLM send them. See `vendor_answers`."""

from collections.abc import Iterator
from typing import Any

from vendor_pieces import Payload, token

_CHAT: Payload = {
    "id": "chatcmpl-CXyZ0123456789abcdefghijklmn",
    "object": "chat.completion.chunk",
    "created": 1757000000,
    "model": "gpt-4.1-2025-04-14",
    "service_tier": "default",
    "system_fingerprint": "fp_0123456789",
}
_CHAT_USAGE: Payload = {
    "prompt_tokens": 30,
    "completion_tokens": 12,
    "total_tokens": 42,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
_CITATION: Payload = {
    "type": "url_citation",
    "url_citation": {
        "start_index": 0,
        "end_index": 5,
        "title": "A title",
        "url": "https://example.org/?a=b",
    },
}


def _chunk(delta: Payload, *, index: int = 0, finish: str | None = None, **beside: Any) -> Payload:
    choice = {
        "index": index,
        "delta": delta,
        "logprobs": None,
        "finish_reason": finish,
        **beside,
    }
    return {**_CHAT, "choices": [choice], "usage": None, "obfuscation": "7sc1eA5jd"}


def _role(index: int = 0) -> Payload:
    return _chunk({"role": "assistant", "content": "", "refusal": None}, index=index)


def _chat_usage(usage: Payload = _CHAT_USAGE) -> Payload:
    return {**_CHAT, "choices": [], "usage": usage, "obfuscation": "x"}


def _call(index: int, call_id: str, name: str) -> Payload:
    function = {"name": name, "arguments": ""}
    return {
        "tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]
    }


def _arguments(index: int, text: str) -> Payload:
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def chat_streams() -> Iterator[tuple[str, list[Payload]]]:
    yield (
        "text with logprobs, a citation and usage",
        [
            _role(),
            _chunk({"content": "Hello"}, logprobs={"content": [token("Hello")], "refusal": None}),
            _chunk({"content": " é\u2028"}, logprobs={"content": [token(" é")], "refusal": None}),
            _chunk({"annotations": [_CITATION]}),
            _chunk({}, finish="stop"),
            _chat_usage(),
        ],
    )
    yield (
        "a refusal",
        [
            _role(),
            _chunk({"refusal": "I"}, logprobs={"content": None, "refusal": [token("I")]}),
            _chunk({"refusal": " cannot."}),
            _chunk({}, finish="stop"),
        ],
    )
    yield (
        "text and parallel calls",
        [
            _role(),
            _chunk({"content": "Let me look."}),
            _chunk(_call(0, "call_a", "get_weather")),
            _chunk(_arguments(0, '{"city":')),
            _chunk(_arguments(0, '"Paris"}')),
            _chunk(_call(1, "call_b", "get_time")),
            _chunk(_arguments(1, "{}")),
            _chunk({}, finish="tool_calls"),
            _chat_usage(),
        ],
    )
    yield (
        "two choices in turns",
        [
            _role(),
            _chunk({"content": "One"}),
            _role(1),
            _chunk({"content": "Two"}, index=1),
            _chunk({"content": "!"}),
            _chunk({}, finish="stop"),
            _chunk({"content": "?"}, index=1),
            _chunk({}, index=1, finish="length"),
            _chat_usage(),
        ],
    )
    yield (
        "sound",
        [
            _role(),
            _chunk({"audio": {"id": "audio_abc"}}),
            _chunk({"audio": {"data": "AAAA"}}),
            _chunk({"audio": {"transcript": "Hi"}}),
            _chunk({"audio": {"data": "BBBB"}}),
            _chunk({"audio": {"expires_at": 1757003600}}),
            _chunk({}, finish="stop"),
        ],
    )
    yield (
        "a custom call",
        [
            _role(),
            _chunk(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "call_c",
                            "type": "custom",
                            "custom": {"name": "apply_patch", "input": ""},
                        }
                    ]
                }
            ),
            _chunk({"tool_calls": [{"index": 0, "custom": {"input": "*** Begin"}}]}),
            _chunk({"tool_calls": [{"index": 0, "custom": {"input": " Patch\n"}}]}),
            _chunk({}, finish="tool_calls"),
        ],
    )
    yield (
        "reasoning as DeepSeek sends it",
        [
            _role(),
            _chunk({"reasoning_content": "First"}),
            _chunk({"reasoning_content": ", think."}),
            _chunk({"content": "Done."}),
            _chunk({}, finish="stop"),
        ],
    )
    yield (
        "reasoning as OpenRouter sends it",
        [
            _role(),
            _chunk(
                {
                    "reasoning": "Think.",
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "Think.", "format": "x", "index": 0}
                    ],
                }
            ),
            _chunk({"content": "Done."}),
            _chunk({}, finish="stop", native_finish_reason="STOP"),
        ],
    )
    yield (
        "a thought signature",
        [
            _role(),
            _chunk(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "call_a",
                            "type": "function",
                            "function": {"name": "f", "arguments": ""},
                        }
                    ]
                }
            ),
            _chunk(_arguments(0, "{}")),
            _chunk(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "function": {"arguments": ""},
                            "extra_content": {"google": {"thought_signature": "abc"}},
                        }
                    ]
                }
            ),
            _chunk({}, finish="tool_calls"),
        ],
    )
    filters = {"hate": {"filtered": False, "severity": "safe"}}
    yield (
        "Azure",
        [
            {
                **_CHAT,
                "choices": [],
                "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": filters}],
            },
            _role(),
            _chunk({"content": "Hi"}),
            _chunk({}, finish="stop", content_filter_results=filters),
        ],
    )
    yield (
        "a call that a limit cut",
        [
            _role(),
            _chunk(_call(0, "call_a", "write")),
            _chunk(_arguments(0, '{"text":"abc')),
            _chunk({}, finish="length"),
        ],
    )
    yield (
        "a stop sequence as vLLM tells it",
        [_role(), _chunk({"content": "ab"}), _chunk({}, finish="stop", stop_reason="END")],
    )


def _message(finish: str = "stop", index: int = 0, **fields: Any) -> Payload:
    message: Payload = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        **fields,
    }
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def _chat_body(*choices: Payload, usage: Payload = _CHAT_USAGE) -> Payload:
    return {**_CHAT, "object": "chat.completion", "choices": list(choices), "usage": usage}


def chat_bodies() -> Iterator[tuple[str, Payload]]:
    logprobs = {"content": [token("Hello"), token(" é")], "refusal": None}
    cited = _message(content="Hello é", annotations=[_CITATION])
    yield "text with logprobs and a citation", _chat_body({**cited, "logprobs": logprobs})
    calls = [
        {
            "id": "call_a",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{ "city" : "Paris", "n": 1.0 }'},
        },
        {"id": "call_b", "type": "custom", "custom": {"name": "run", "input": "ls -l\n"}},
        {
            "id": "call_c",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
            "extra_content": {"google": {"thought_signature": "abc"}},
        },
    ]
    yield "calls", _chat_body(_message("tool_calls", tool_calls=calls))
    yield "text and a call", _chat_body(_message("tool_calls", content="Hm.", tool_calls=calls[:1]))
    yield "a refusal", _chat_body(_message(refusal="I cannot."))
    sound = {"id": "audio_abc", "data": "AAAA", "transcript": "Hi", "expires_at": 1757003600}
    yield "sound", _chat_body(_message(audio=sound))
    yield (
        "two choices",
        _chat_body(_message(content="One"), _message("length", index=1, content="Two")),
    )
    yield (
        "reasoning",
        _chat_body(
            _message(content="Done.", reasoning_content="Think."),
            usage={**_CHAT_USAGE, "cost": 0.5},
        ),
    )
    details = [{"type": "reasoning.text", "text": "Think.", "signature": "abc", "index": 0}]
    yield (
        "reasoning with its seal",
        _chat_body(_message(content="Done.", reasoning="Think.", reasoning_details=details)),
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    yield "a picture", _chat_body(_message(content="Look:", images=[image]))
