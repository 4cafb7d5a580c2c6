"""The real SDKs read what the encoders write: their stream helpers assemble the same calls that went in.

The SDKs run whole, with their own HTTP client, SSE parser and accumulator; only the socket is replaced.
"""

import json
from typing import Any, cast

import anthropic
import httpx2
import openai
import pytest

from corpus_cases import Case, decode, stream_cases
from dragoman.core.fold import fold
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Refusal, Text

CASES = stream_cases()
HEALTHY = [case for case in CASES if "error" not in case.meta["expect"]]
BROKEN = [case for case in CASES if "error" in case.meta["expect"]]
healthy = pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
broken = pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)


def serving(body: bytes, kind: str) -> httpx2.Client:
    """An HTTP client whose every answer is `body`, in small pieces as a network gives them."""

    def pieces() -> Any:
        for start in range(0, len(body), 700):
            yield body[start : start + 700]

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, content=pieces())

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def translated(case: Case, target: str) -> bytes:
    translator = StreamTranslator(
        case.dialect, target, decode=case.context, encode=EncodeContext(model="client-model")
    )
    return translator.feed(case.stream) + translator.close()


def whole(case: Case, target: str) -> bytes:
    events = decode(case, [case.stream])[1]
    return codec(target).encode_body(events, EncodeContext(model="client-model"))


def openai_client(body: bytes, kind: str = "text/event-stream") -> openai.OpenAI:
    return openai.OpenAI(
        api_key="key",
        base_url="http://127.0.0.1:1/v1",
        http_client=serving(body, kind),
        max_retries=0,
    )


def anthropic_client(body: bytes, kind: str = "text/event-stream") -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key="key", base_url="http://127.0.0.1:1", http_client=serving(body, kind), max_retries=0
    )


def expected(case: Case) -> tuple[str, list[tuple[str, str]]]:
    outcome = fold(decode(case, [case.stream])[1])
    return text_of(outcome), calls_of(outcome)


def text_of(outcome: Outcome) -> str:
    parts = outcome.choices[0].parts
    return "".join(part.text for part in parts if isinstance(part, Text | Refusal))


def calls_of(outcome: Outcome) -> list[tuple[str, str]]:
    """(name, input) of each call; the namespace and the free-text form need the request's names to come back."""
    return [
        ("" if part.namespace else part.name, part.input)
        for part in outcome.choices[0].parts
        if isinstance(part, Call) and part.executor == "client"
    ]


def same_arguments(found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> None:
    assert len(found) == len(wanted)
    for (name, arguments), (wanted_name, wanted_arguments) in zip(found, wanted, strict=True):
        assert wanted_name in ("", name)
        assert arguments == wanted_arguments


@healthy
def test_openai_chat_stream_assembles_the_calls(case: Case) -> None:
    client = openai_client(translated(case, "chat"))
    text: list[str] = []
    calls: dict[int, list[str]] = {}
    finish: list[str] = []
    stream = client.chat.completions.create(
        model="client-model", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    for chunk in stream:
        assert chunk.model == "client-model"
        for choice in chunk.choices:
            text.append(choice.delta.content or choice.delta.refusal or "")
            finish += [choice.finish_reason] if choice.finish_reason else []
            for call in choice.delta.tool_calls or ():
                entry = calls.setdefault(call.index, ["", ""])
                body: Any = call.function or getattr(call, "custom", None) or {}
                entry[0] += field(body, "name")
                entry[1] += field(body, "arguments") or field(body, "input")
    wanted_text, wanted_calls = expected(case)
    assert "".join(text) == wanted_text
    same_arguments([(name, arguments) for name, arguments in calls.values()], wanted_calls)
    assert len(finish) == 1


def field(body: Any, name: str) -> str:
    if isinstance(body, dict):
        return cast("dict[str, str]", body).get(name, "")
    return getattr(body, name, None) or ""


@healthy
def test_openai_chat_body_has_the_calls(case: Case) -> None:
    client = openai_client(whole(case, "chat"), "application/json")
    answer = client.chat.completions.create(
        model="client-model", messages=[{"role": "user", "content": "hi"}]
    )
    message = answer.choices[0].message
    calls = [
        (call.function.name, call.function.arguments)
        if call.type == "function"
        else (call.custom.name, call.custom.input)
        for call in message.tool_calls or ()
    ]
    wanted_text, wanted_calls = expected(case)
    assert (message.content or message.refusal or "") == wanted_text
    same_arguments(calls, wanted_calls)


@healthy
def test_openai_responses_helper_assembles_the_calls(case: Case) -> None:
    client = openai_client(translated(case, "responses"))
    with client.responses.stream(model="client-model", input="hi") as stream:
        for _ in stream:
            pass
        is_cut = case.meta["expect"]["finish"] == "length"
        if is_cut:
            return  # the helper has no final response after response.incomplete; the door's checks cover it
        final = stream.get_final_response()
    wanted_text, wanted_calls = expected(case)
    assert final.output_text == wanted_text
    same_arguments(response_calls(final), wanted_calls)


def response_calls(response: Any) -> list[tuple[str, str]]:
    return [
        (item.name, item.arguments if item.type == "function_call" else item.input)
        for item in response.output
        if item.type in ("function_call", "custom_tool_call")
    ]


@healthy
def test_openai_responses_body_has_the_calls(case: Case) -> None:
    client = openai_client(whole(case, "responses"), "application/json")
    answer = client.responses.create(model="client-model", input="hi")
    wanted_text, wanted_calls = expected(case)
    assert answer.output_text == wanted_text
    same_arguments(response_calls(answer), wanted_calls)


@healthy
def test_anthropic_helper_assembles_the_calls(case: Case) -> None:
    client = anthropic_client(translated(case, "messages"))
    if "messages" in case.meta.get("fails_on", ()):
        with pytest.raises(anthropic.APIError):
            list(client.messages.create(max_tokens=10, messages=[], model="m", stream=True))
        return
    with client.messages.stream(
        model="client-model", max_tokens=10, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        final = stream.get_final_message()
    check_message(final, case)


@healthy
def test_anthropic_body_has_the_calls(case: Case) -> None:
    client = anthropic_client(whole(case, "messages"), "application/json")
    check_message(
        client.messages.create(
            model="client-model", max_tokens=10, messages=[{"role": "user", "content": "hi"}]
        ),
        case,
    )


def check_message(message: anthropic.types.Message, case: Case) -> None:
    wanted_text, wanted_calls = expected(case)
    assert "".join(block.text for block in message.content if block.type == "text") == wanted_text
    uses = [block for block in message.content if block.type == "tool_use"]
    assert len(uses) == len(wanted_calls)
    if message.stop_reason == "tool_use":
        for use, (name, arguments) in zip(uses, wanted_calls, strict=True):
            assert name in ("", use.name)
            if is_json(arguments):
                assert use.input == json.loads(arguments)
            else:  # a custom tool's free text, or what is no JSON: under a name of its own, never bare
                assert list(use.input.values()) == [arguments]


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@broken
def test_every_sdk_notices_a_failed_stream(case: Case) -> None:
    with pytest.raises(openai.APIError):
        list(
            openai_client(translated(case, "chat")).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
        )
    with pytest.raises(anthropic.APIError):
        list(
            anthropic_client(translated(case, "messages")).messages.create(
                model="m", max_tokens=10, messages=[{"role": "user", "content": "hi"}], stream=True
            )
        )
    events = list(
        openai_client(translated(case, "responses")).responses.create(
            model="m", input="hi", stream=True
        )
    )
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
