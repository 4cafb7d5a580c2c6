"""Law 9: every call sent upstream has exactly one result, and every result its call, whatever the client's history."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_cases import DIALECTS
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import translate_request
from dragoman.model.parts import Call, Result, Text

IDS = st.sampled_from(["a", "b", "c:1", "", "functions.f:0"])
NAMES = st.sampled_from(["f", "g", "mcp__x__y", "a name with spaces"])
ARGUMENTS = st.sampled_from(["{}", '{"x":1}', "", "not json", '{"cut":'])
WORDS = st.sampled_from(["one", "two", "three", "", " "])


Message = dict[str, Any]


def call_entry(identity: str, name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": identity, "type": "function", "function": function}


def plain(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def calling(text: str, calls: list[Message]) -> Message:
    return {"role": "assistant", "content": text, "tool_calls": calls}


def result(identity: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": identity, "content": text}


def chat_messages() -> st.SearchStrategy[list[Message]]:
    calls = st.lists(st.builds(call_entry, IDS, NAMES, ARGUMENTS), min_size=1, max_size=3)
    message = st.one_of(
        st.builds(plain, st.sampled_from(["user", "system", "assistant"]), WORDS),
        st.builds(calling, WORDS, calls),
        st.builds(result, IDS, WORDS),
    )
    return st.lists(message, min_size=1, max_size=8)


@pytest.mark.parametrize("target", DIALECTS)
@given(messages=chat_messages())
def test_calls_and_results_pair_whatever_the_history(target: str, messages: list[Message]) -> None:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    encoded = translate_request(body, "chat", target)
    sent = codec(target).decode_request(encoded.body)
    parts = [part for turn in sent.turns for part in turn.parts]
    calls = [part for part in parts if isinstance(part, Call)]
    results = [part for part in parts if isinstance(part, Result)]
    assert len(calls) == sum(len(message.get("tool_calls", ())) for message in messages)
    assert len({call.call_id for call in calls}) == len(calls)
    assert [result.call_id for result in results] == [call.call_id for call in calls]
    output = json.dumps([part.text for part in texts_in(parts)])
    for message in messages:
        if message["role"] in ("tool", "user"):
            assert message["content"].strip() in output


def texts_in(parts: list[Any]) -> list[Text]:
    found: list[Text] = []
    for part in parts:
        if isinstance(part, Text):
            found.append(part)
        elif isinstance(part, Result):
            found.extend(texts_in(list(part.content)))
    return found


@given(messages=chat_messages())
def test_repairing_again_repairs_nothing(messages: list[Message]) -> None:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    once = translate_request(body, "chat", "chat")
    twice = translate_request(once.body, "chat", "chat")
    assert not twice.repairs
    assert json.loads(twice.body) == json.loads(once.body)
