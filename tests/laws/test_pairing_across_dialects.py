"""Law 9: every call sent upstream has exactly one result, and every result its call, whatever the client's history."""

import json
from typing import Any

import pytest
from corpus_cases import DIALECTS
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.registry import codec
from dragoman.dialects.translate import translate_request
from dragoman.model.parts import Call, Result, Text

IDS = st.sampled_from(["a", "b", "c:1", "", "functions.f:0"])
NAMES = st.sampled_from(["f", "g", "mcp__x__y", "a name with spaces"])
ARGUMENTS = st.sampled_from(["{}", '{"x":1}', "", "not json", '{"cut":'])
WORDS = st.sampled_from(["one", "two", "three", "", " "])


def chat_messages() -> st.SearchStrategy[list[dict[str, Any]]]:
    call = st.builds(
        lambda identity, name, arguments: {
            "id": identity,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        },
        IDS,
        NAMES,
        ARGUMENTS,
    )
    message = st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, WORDS),
        st.builds(lambda text: {"role": "system", "content": text}, WORDS),
        st.builds(
            lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls},
            WORDS,
            st.lists(call, min_size=1, max_size=3),
        ),
        st.builds(lambda text: {"role": "assistant", "content": text}, WORDS),
        st.builds(
            lambda identity, text: {"role": "tool", "tool_call_id": identity, "content": text},
            IDS,
            WORDS,
        ),
    )
    return st.lists(message, min_size=1, max_size=8)


@pytest.mark.parametrize("target", DIALECTS)
@given(messages=chat_messages())
def test_calls_and_results_pair_whatever_the_history(
    target: str, messages: list[dict[str, Any]]
) -> None:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    encoded = translate_request(body, "chat", target)
    sent = codec(target).decode_request(encoded.body)
    parts = [part for turn in sent.turns for part in turn.parts]
    calls = [part for part in parts if isinstance(part, Call)]
    results = [part for part in parts if isinstance(part, Result)]
    assert len(calls) == sum(len(message.get("tool_calls", ())) for message in messages)
    assert len({call.call_id for call in calls}) == len(calls)
    assert [result.call_id for result in results] == [call.call_id for call in calls]
    told = json.dumps([part.text for part in texts_in(parts)])
    for message in messages:
        if message["role"] in ("tool", "user"):
            assert message["content"].strip() in told


def texts_in(parts: list[Any]) -> list[Text]:
    found: list[Text] = []
    for part in parts:
        if isinstance(part, Text):
            found.append(part)
        elif isinstance(part, Result):
            found.extend(texts_in(list(part.content)))
    return found


@given(messages=chat_messages())
def test_repairing_again_repairs_nothing(messages: list[dict[str, Any]]) -> None:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    once = translate_request(body, "chat", "chat")
    twice = translate_request(once.body, "chat", "chat")
    assert not twice.repairs
    assert json.loads(twice.body) == json.loads(once.body)
