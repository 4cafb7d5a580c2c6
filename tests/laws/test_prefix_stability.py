"""Law 13: two consecutive requests of one conversation, translated, share the longest possible prefix byte for byte.

A provider caches a prompt by its beginning: tools, system text, history. What a client sent before, and sends again unchanged
with a longer history, must reach the upstream in the same bytes.

Cache breakpoints are no part of the prompt: they say up to where it is cached, and move to the end of each request. So
requests are compared without them (`prompt_of`), and by their bytes where there are none.
"""

import json
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corpus_cases import DIALECTS
from dragoman._json import Raw, as_object
from dragoman.config.settings import UpstreamSettings
from dragoman.core.fields import read_list, read_text
from dragoman.core.summaries import Packed, pack_summary
from dragoman.dialects.codec import Target
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import translate_request
from dragoman.gateway.compaction import expand
from dragoman.gateway.targets import AttemptTarget, target_of
from dragoman.model.parts import Dialect
from strategies import json_texts, texts
from text_samples import ROUNDS

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
# Names that some upstream does not accept are replaced by aliases; some of these are alike when flattened.
NAMES = ("f", "mcp__x__y", "a name with spaces", "long_" * 20, "ns__f", "found__late")
IDS = ("a", "b:1", "functions.f:0", "c" * 70)


DATA = "iVBORw0KGgo="
URL = f"data:image/png;base64,{DATA}"
IMAGES: dict[str, Json] = {
    "chat": {"type": "image_url", "image_url": {"url": URL}},
    "responses": {"type": "input_image", "image_url": URL},
    "messages": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": DATA},
    },
}
TEXTS = {"chat": "text", "responses": "input_text", "messages": "text"}
MARKS: dict[str, Json] = {
    "chat": {"prompt_cache_breakpoint": {"mode": "explicit"}},
    "responses": {"prompt_cache_breakpoint": {"mode": "explicit"}},
    "messages": {"cache_control": {"type": "ephemeral"}},
}


class Called(NamedTuple):
    call_id: str
    name: str
    namespace: str | None
    arguments: str
    result: str


class Step(NamedTuple):
    """What one round adds: a user's text, then calls with their results or a search, then the answer."""

    question: str
    image: bool
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
        st.booleans(),
        st.sampled_from(("", "", "remember")),
        st.lists(called, max_size=2).map(tuple),
        st.sampled_from(("", "", "late", "later tool", "a tool", "f")),
        words,
    )
    return st.lists(step, min_size=2, max_size=4)


class Conversation:
    """The requests of one conversation in one dialect. `cuts`: the lengths that its history had when a request was sent.

    is_marked: each request has a cache breakpoint at the end of the last text of the user.
    """

    def __init__(
        self, dialect: str, rounds: list[Step], offered: list[str], *, is_marked: bool
    ) -> None:
        self.dialect = dialect
        self.is_marked = is_marked
        self.offered = offered
        self.items: list[Json] = []
        self.loaded: dict[int, str] = {}  # the length of the history at which a tool was declared
        self.cuts: list[int] = []
        self._count = 0
        for each in rounds:
            self._add(each)

    def _add(self, step: Step) -> None:
        self.items.append(self._question(step))
        if step.reminder:
            role = "system" if self.dialect == "messages" else "developer"
            self.items.append(self._message(role, step.reminder))
        self.cuts.append(len(self.items))
        if step.loads:
            self._load(step.loads)
        if step.calls:
            self._call(step.calls)
        self.items.append(self._message("assistant", step.answer))

    def _question(self, step: Step) -> Json:
        message = self._message("user", step.question)
        if step.image:
            message["content"] = [{"type": TEXTS[self.dialect], "text": step.question}]
            message["content"].append(IMAGES[self.dialect])
        return message

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
        tools = [self._tool(name) for name in names]
        if self.dialect == "messages":
            # Claude Code has a loaded tool at its alphabetical place; here, all of them come first.
            loaded = {name for at, name in self.loaded.items() if at <= cut} - set(names)
            tools = [{**self._tool(name), "defer_loading": True} for name in sorted(loaded)] + tools
        if self.dialect == "responses":
            tools.append({"type": "tool_search", "execution": "client", "parameters": SCHEMA})
            members = [self._tool(name) for name in self.offered]
            group = {"type": "namespace", "name": "ns", "description": "d", "tools": members}
            tools.append(group)
        items = json.loads(json.dumps(self.items[:cut]))
        if self.is_marked:
            _mark_last(items, self.dialect)
        fields: Json = {"model": "m", "tools": tools}
        if self.dialect == "chat":
            fields["messages"] = [{"role": "system", "content": "Be exact."}, *items]
        elif self.dialect == "responses":
            fields |= {"instructions": "Be exact.", "input": items}
        else:
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


def _mark_last(messages: list[Json], dialect: str) -> None:
    """Put a cache breakpoint on the last block of the last message of the user, where Claude Code has it."""
    last = next(each for each in reversed(messages) if each.get("role") == "user")
    said = last["content"]
    if isinstance(said, str):
        last["content"] = [{"type": TEXTS[dialect], "text": said}]
    marked: list[Json] = last["content"]
    marked[-1] |= MARKS[dialect]


HISTORY = {"chat": "messages", "messages": "messages", "responses": "input"}
MARK_FIELDS = ("cache_control", "prompt_cache_breakpoint")
Fields = dict[str, bytes]


class Prompt(NamedTuple):
    """What the provider's cache depends on: the bytes of all fields but the breakpoints, with strings as blocks."""

    tools: list[Fields]
    head: list[Fields]
    history: list[tuple[Fields, list[Fields]]]


def prompt_of(body: bytes, target: str) -> Prompt:
    fields = as_object(body)
    head = fields.get("system", fields.get("instructions"))
    tools = blocks(fields.get("tools"), target)
    return Prompt(
        [
            tool for tool in tools if "defer_loading" not in tool
        ],  # the others are not at the beginning
        blocks(head, target),
        [entry(each, target) for each in read_list(fields[HISTORY[target]]) or ()],
    )


def entry(source: Raw, target: str) -> tuple[Fields, list[Fields]]:
    """A message or an item: its fields, and the blocks of its content."""
    fields = as_object(source)
    content = fields.pop("content", fields.pop("output", None))
    return raw_fields(fields), blocks(content, target)


def blocks(source: Raw | None, target: str) -> list[Fields]:
    text = read_text(source)
    if text is not None:
        found = [{"type": TEXTS[target], "text": text}]
        return [raw_fields(as_object(json.dumps(each).encode())) for each in found]
    return [raw_fields(as_object(each)) for each in read_list(source) or ()]


def raw_fields(fields: dict[str, Raw]) -> Fields:
    kept = {name: bytes(value) for name, value in fields.items() if name not in MARK_FIELDS}
    if "text" in kept:  # a string may have been written by this test
        kept["text"] = json.dumps(json.loads(kept["text"])).encode()
    return kept


def target_for(target: str) -> Target:
    """As the gateway has it: it adds breakpoints, and cache keys."""
    return replace(codec(target).target, cache=True)


def count_marks(body: bytes) -> int:
    return body.count(b'"cache_control"')


LAW = settings(max_examples=50 * ROUNDS)
rounds_and_tools = given(
    rounds=steps(),
    offered=st.lists(st.sampled_from(NAMES), unique=True),
    is_marked=st.booleans(),
    data=st.data(),
)


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
@LAW
@rounds_and_tools
def test_a_longer_request_begins_with_the_shorter_one(
    source: str,
    target: str,
    rounds: list[Step],
    offered: list[str],
    is_marked: bool,
    data: st.DataObject,
) -> None:
    conversation = Conversation(source, rounds, offered, is_marked=is_marked)
    index = data.draw(st.integers(0, len(conversation.cuts) - 2))
    cuts = conversation.cuts[index : index + 2]
    bodies = [conversation.request(cut) for cut in cuts]
    limits = target_for(target)
    sent = [translate_request(body, source, target, limits=limits).body for body in bodies]
    old, new = (prompt_of(body, target) for body in sent)
    if target == "messages":
        # Neighbours of one role are one message, so the last one may have grown.
        assert new.history[: len(old.history) - 1] == old.history[:-1]
        (about, last), (new_about, grown) = old.history[-1], new.history[len(old.history) - 1]
        assert (new_about, grown[: len(last)]) == (about, last)
    else:
        assert new.history[: len(old.history)] == old.history
    if source != target:
        assert new.head == old.head
    given_tools = [as_object(body)["tools"] for body in bodies]
    if given_tools[0] == given_tools[1] and source != "responses":
        assert new.tools == old.tools
    else:
        # Tools that were loaded come after the others.
        assert new.tools[: len(old.tools)] == old.tools
    if target != "messages" and not (is_marked and source != "messages"):
        # Nothing of it has breakpoints: the bytes are the same.
        before, after = (read_list(as_object(body)[HISTORY[target]]) or [] for body in sent)
        assert after[: len(before)] == before


@pytest.mark.parametrize("target", DIALECTS)
@LAW
@given(
    rounds=steps(),
    place=st.integers(0, 8),
    kind=st.sampled_from(("summary", "item", "trigger")),
    data=st.data(),
)
def test_a_compacted_conversation_begins_alike_too(
    target: Dialect, rounds: list[Step], place: int, kind: str, data: st.DataObject
) -> None:
    """The summary stands anywhere in the history, and the requests after it begin alike."""
    conversation = Conversation("responses", rounds, ["f"], is_marked=False)
    sizes = [cut for cut in conversation.cuts if cut > place]
    cuts = sizes[:1] * 2 if len(sizes) < 2 else data.draw(st.sampled_from([*pairwise(sizes)]))
    block = Raw(b'{"type":"compaction","content":"S"}')
    native = Packed(summary="S", native=block, dialect="messages", is_inline=kind == "item")
    packed = pack_summary(Packed(summary="S") if kind == "summary" else native)
    added: list[Json] = [{"type": "compaction", "encrypted_content": packed}]
    if kind == "trigger":
        added.insert(0, {"type": "compaction_trigger"})
    sent: list[Prompt] = []
    for cut in cuts or (len(conversation.items),) * 2:
        fields = json.loads(conversation.request(cut))
        fields["input"][place:place] = added
        request = codec("responses").decode_request(json.dumps(fields).encode())
        expanded = expand(request, upstream(target))
        sent.append(prompt_of(codec(target).encode_request(expanded).body, target))
    old, new = sent
    assert (new.head, new.tools[: len(old.tools)]) == (old.head, old.tools)
    # Neighbours of one role are one message of Messages, so the last one may have grown.
    assert new.history[: len(old.history) - 1] == old.history[:-1]
    (about, last), (new_about, grown) = old.history[-1], new.history[len(old.history) - 1]
    assert (new_about, grown[: len(last)]) == (about, last)


def upstream(dialect: Dialect) -> AttemptTarget:
    settings = replace(UpstreamSettings(kind="chat"), kind=dialect)
    return AttemptTarget(
        client_dialect="responses",
        dialect=dialect,
        upstream="u",
        peer="u",
        weight=1.0,
        model="m",
        settings=settings,
        accepts=target_of(settings, dialect, "m", "responses"),
        is_same_dialect=dialect == "responses",
        is_obsidian=False,
    )


@pytest.mark.parametrize("source", DIALECTS)
@LAW
@rounds_and_tools
def test_the_breakpoints_are_all_that_the_gateway_adds(
    source: str,
    rounds: list[Step],
    offered: list[str],
    is_marked: bool,
    data: st.DataObject,
) -> None:
    conversation = Conversation(source, rounds, offered, is_marked=is_marked)
    body = conversation.request(data.draw(st.sampled_from(conversation.cuts)))
    plain = translate_request(body, source, "messages").body
    added = translate_request(body, source, "messages", limits=target_for("messages")).body
    assert prompt_of(added, "messages") == prompt_of(plain, "messages")
    own, all_marks = count_marks(plain), count_marks(added)
    assert own <= is_marked  # a text of white space is not sent, nor its breakpoint
    if source == "messages" and own:
        assert all_marks == own  # the client places them itself
    else:
        # Tools are always there, and the last message is the user's; a third needs a message before that one.
        assert 2 <= all_marks <= 4


CHANGES: dict[str, tuple[bytes, bytes]] = {
    "a text": (b'"text":"Be exact."', b'"text":"Be exact!"'),
    "an id": (b'"tool_use_id":"call"', b'"tool_use_id":"call2"'),
    "a schema": (b'{"type": "string"}', b'{"type":"string"}'),
    "a name": (b'"name":"f"', b'"name":"g"'),
    "an input": (b'"input":{"x":"1"}', b'"input":{"x": "1"}'),
    "a flag": (b'"type":"tool_result"', b'"is_error":true,"type":"tool_result"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_other_change_is_seen(change: str) -> None:
    old, new = CHANGES[change]
    call = Called("call", "f", None, '{"x":"1"}', "result")
    step = Step("question", False, "", (call,), "", "answer")
    request = Conversation("chat", [step, step], ["f"], is_marked=False).request(5)
    body = translate_request(request, "chat", "messages", limits=target_for("messages")).body
    assert old in body
    assert prompt_of(body, "messages") != prompt_of(body.replace(old, new), "messages")
    marks = b',"cache_control":{"type":"ephemeral"}'
    assert body.count(marks) == 3
    assert prompt_of(body.replace(marks, b""), "messages") == prompt_of(body, "messages")
