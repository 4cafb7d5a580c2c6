"""Law 13: two consecutive requests of one conversation, translated, share the longest possible prefix byte for byte.

A provider caches a prompt by its beginning: tools, system text, history. What a client sent before, and sends again unchanged
with a longer history, must reach the upstream in the same bytes.
"""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_cases import DIALECTS
from dragoman._json import as_object
from dragoman.core.fields import read_list
from dragoman.dialects.translate import translate_request
from strategies import json_texts, texts

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
# Names that some upstream does not accept are replaced by aliases; two of these are alike when flattened.
NAMES = ("f", "mcp__x__y", "a name with spaces", "long_" * 20, "ns__f")
IDS = ("a", "b:1", "functions.f:0", "c" * 70)


class Called(NamedTuple):
    call_id: str
    name: str
    namespace: str | None
    arguments: str
    result: str


class Step(NamedTuple):
    """What one round adds: a user's text, then calls with their results or a search, then the answer."""

    question: str
    reminder: str
    calls: tuple[Called, ...]
    loads: str
    answer: str


def steps() -> st.SearchStrategy[list[Step]]:
    words = texts(min_size=1)
    objects = json_texts().filter(lambda text: text.strip().startswith("{"))
    spaces = st.sampled_from((None, None, "ns"))
    called = st.builds(
        Called, st.sampled_from(IDS), st.sampled_from(NAMES), spaces, objects, texts()
    )
    step = st.builds(
        Step,
        words,
        st.sampled_from(("", "", "remember")),
        st.lists(called, max_size=2).map(tuple),
        st.sampled_from(("", "", "late", "later tool")),
        words,
    )
    return st.lists(step, min_size=2, max_size=4)


class Conversation:
    """The requests of one conversation in one dialect. `cuts`: the lengths that its history had when a request was sent."""

    def __init__(self, dialect: str, rounds: list[Step], offered: list[str]) -> None:
        self.dialect = dialect
        self.offered = offered
        self.items: list[Json] = []
        self.loaded: dict[int, str] = {}  # the length of the history at which a tool was declared
        self.cuts: list[int] = []
        self._count = 0
        for each in rounds:
            self._add(each)

    def _add(self, step: Step) -> None:
        self.items.append(self._message("user", step.question))
        if step.reminder:
            role = "system" if self.dialect == "messages" else "developer"
            self.items.append(self._message(role, step.reminder))
        self.cuts.append(len(self.items))
        if step.loads:
            self._load(step.loads)
        if step.calls:
            self._call(step.calls)
        self.items.append(self._message("assistant", step.answer))

    def _message(self, role: str, text: str) -> Json:
        kind = {"type": "message"} if self.dialect == "responses" else {}
        return {**kind, "role": role, "content": text}

    def _call(self, calls: tuple[Called, ...]) -> None:
        if self.dialect == "chat":
            entries = [
                {
                    "id": each.call_id,
                    "type": "function",
                    "function": {"name": each.name, "arguments": each.arguments},
                }
                for each in calls
            ]
            self.items.append({"role": "assistant", "content": None, "tool_calls": entries})
            for each in calls:
                result = {"role": "tool", "tool_call_id": each.call_id, "content": each.result}
                self.items.append(result)
        elif self.dialect == "messages":
            uses: list[Json] = []
            results: list[Json] = []
            for each in calls:
                value = json.loads(each.arguments)
                use = {"type": "tool_use", "id": each.call_id, "name": each.name, "input": value}
                uses.append(use)
                result = {"type": "tool_result", "tool_use_id": each.call_id}
                results.append({**result, "content": each.result})
            self.items += [
                {"role": "assistant", "content": uses},
                {"role": "user", "content": results},
            ]
        else:
            for each in calls:
                call = {"type": "function_call", "call_id": each.call_id, "name": each.name}
                space = {} if each.namespace is None else {"namespace": each.namespace}
                self.items.append({**call, **space, "arguments": each.arguments})
            for each in calls:
                output = {"type": "function_call_output", "call_id": each.call_id}
                self.items.append({**output, "output": each.result})
        self.cuts.append(len(self.items))

    def _load(self, name: str) -> None:
        """Search for a tool, in the way of Claude Code and of Codex."""
        self._count += 1
        call_id = f"search_{self._count}"
        if self.dialect == "messages":
            use = {"type": "tool_use", "id": call_id, "name": "ToolSearch", "input": {"q": name}}
            found = {"type": "tool_reference", "tool_name": name}
            result = {"type": "tool_result", "tool_use_id": call_id, "content": [found]}
            said = {"type": "text", "text": "Tool loaded."}
            self.items += [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result, said]},
            ]
        elif self.dialect == "responses":
            call = {"type": "tool_search_call", "call_id": call_id, "execution": "client"}
            output = {"type": "tool_search_output", "call_id": call_id, "execution": "client"}
            tool = {"type": "function", "name": name, "parameters": SCHEMA, "defer_loading": True}
            group = {"type": "namespace", "name": "found", "description": "d", "tools": [tool]}
            self.items += [{**call, "arguments": {"q": name}}, {**output, "tools": [group]}]
        else:
            return
        self.loaded[len(self.items)] = name
        self.cuts.append(len(self.items))

    def request(self, cut: int) -> bytes:
        names = ["ToolSearch", *self.offered]
        if self.dialect == "messages":
            names += [name for at, name in self.loaded.items() if at <= cut]
        tools = [self._tool(name) for name in dict.fromkeys(names)]
        if self.dialect == "responses":
            tools.append({"type": "tool_search", "execution": "client", "parameters": SCHEMA})
            members = [self._tool(name) for name in self.offered]
            group = {"type": "namespace", "name": "ns", "description": "d", "tools": members}
            tools.append(group)
        items = json.loads(json.dumps(self.items[:cut]))
        fields: Json = {"model": "m", "tools": tools}
        if self.dialect == "chat":
            fields["messages"] = [{"role": "system", "content": "Be exact."}, *items]
        elif self.dialect == "responses":
            fields |= {"instructions": "Be exact.", "input": items}
        else:
            _mark_last(items)
            billing = f"x-anthropic-billing-header: cch={cut};"
            system = [{"type": "text", "text": text} for text in (billing, "Be exact.")]
            fields |= {"max_tokens": 99, "system": system, "messages": items}
        return json.dumps(fields).encode()

    def _tool(self, name: str) -> Json:
        if self.dialect == "messages":
            return {"name": name, "description": "d", "input_schema": SCHEMA}
        function = {"name": name, "description": "d", "parameters": SCHEMA}
        if self.dialect == "chat":
            return {"type": "function", "function": function}
        return {"type": "function", **function}


def _mark_last(messages: list[Json]) -> None:
    """Put a cache breakpoint on the last block of the last user message, where Claude Code has it."""
    last = next(each for each in reversed(messages) if each["role"] == "user")
    said = last["content"]
    if isinstance(said, str):
        last["content"] = [{"type": "text", "text": said}]
    marked: list[Json] = last["content"]
    marked[-1]["cache_control"] = {"type": "ephemeral"}


HISTORY = {"chat": "messages", "messages": "messages", "responses": "input"}


def entries(body: bytes, target: str) -> list[bytes]:
    found = read_list(as_object(body)[HISTORY[target]])
    assert found is not None
    return [bytes(each) for each in found]


def blocks(message: bytes) -> list[Json]:
    """The blocks of a message of Messages without their breakpoints, which do not belong to the prompt."""
    content = json.loads(message)["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [{key: each[key] for key in each if key != "cache_control"} for each in content]


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
@given(rounds=steps(), offered=st.lists(st.sampled_from(NAMES), unique=True), data=st.data())
def test_a_longer_request_begins_with_the_shorter_one(
    source: str, target: str, rounds: list[Step], offered: list[str], data: st.DataObject
) -> None:
    conversation = Conversation(source, rounds, offered)
    index = data.draw(st.integers(0, len(conversation.cuts) - 2))
    cuts = conversation.cuts[index : index + 2]
    bodies = [conversation.request(cut) for cut in cuts]
    first, second = (translate_request(body, source, target).body for body in bodies)
    before, after = (entries(body, target) for body in (first, second))
    if target == "messages":
        # Neighbours of one role are one message, so the last one may have grown.
        assert list(map(blocks, after[: len(before) - 1])) == list(map(blocks, before[:-1]))
        last = blocks(before[-1])
        assert blocks(after[len(before) - 1])[: len(last)] == last
    else:
        assert after[: len(before)] == before
    old, new = as_object(first), as_object(second)
    if source != target:
        heads = [[each.get(name) for name in ("system", "instructions")] for each in (old, new)]
        assert heads[0] == heads[1]
    given_tools = [as_object(body)["tools"] for body in bodies]
    if given_tools[0] == given_tools[1] and source != "responses":
        assert old["tools"] == new["tools"]
    else:
        # Tools that were loaded come after the others.
        known, all_tools = (read_list(each["tools"]) or [] for each in (old, new))
        assert all_tools[: len(known)] == known
