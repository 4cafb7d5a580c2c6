"""Every field that a vendor's own SDK lets a client put into a request, and ways to say it.

The SDKs' parameter types are walked down to their leaves: content parts, tools, choices, settings, in every variant of
every union. A `Spot` is one field in one place; it has a whole request that says it, others that say something else in the
same place, and one that says nothing there. Values are made up from the annotations. What the annotations do not say (that a
result needs its call, that a choice names a tool that is offered) stands in the tables below.
"""

import types
from collections.abc import Callable, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from anthropic.types import message_create_params as messages_params
from anthropic.types.beta import message_create_params as beta_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params
from pydantic import BaseModel
from typing_extensions import is_typeddict

Json = dict[str, Any]
Put = Callable[[Any], Json]


class Spot(NamedTuple):
    """A field in one place, and requests that say it: any two of many values, or all `words` that it can say.

    `unsaid` are the requests without the field, and without each of the objects around it, from the inside out. A field
    that is required is missing only together with its object.
    """

    path: tuple[str, ...]
    said: tuple[Json, ...]
    unsaid: tuple[Json, ...]
    words: tuple[object, ...] = ()
    is_required: bool = False
    is_object: bool = False

    @property
    def name(self) -> str:
        """The path, members of unions behind a colon: `tools:mcp.server_url`."""
        return _name(self.path)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names on the path that are fields, the nearest last."""
        return tuple(step for step in self.path if not step.startswith(":"))


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path).replace(".:", ":")


# --- requests --------------------------------------------------------------------------------------------------------

_LOOK = {"type": "object", "properties": {"path": {"type": "string"}}}
_FIND = {"type": "object", "properties": {"word": {"type": "string"}}}


class Schema(NamedTuple):
    """A dialect's requests: the SDK's types, the least request, and what a conversation needs beside an entry."""

    params: tuple[Any, ...]
    least: Json
    complete: Callable[[Json], Json]


def _chat_companions(body: Json) -> Json:
    """A result stands after the call that it answers."""
    messages: list[Json] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            function = {"name": "look", "arguments": "{}"}
            call = {"id": message["tool_call_id"], "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif message["role"] == "function":
            call = {"name": message["name"], "arguments": "{}"}
            messages.append({"role": "assistant", "content": None, "function_call": call})
        messages.append(message)
    return {**body, "messages": messages}


_CALLS_OF_RESULTS: Mapping[str, Json] = {
    "function_call_output": {"type": "function_call", "name": "look", "arguments": "{}"},
    "custom_tool_call_output": {"type": "custom_tool_call", "name": "look", "input": "x"},
    "computer_call_output": {
        "type": "computer_call",
        "id": "cu_1",
        "status": "completed",
        "pending_safety_checks": [],
        "actions": [{"type": "screenshot"}],
    },
    "shell_call_output": {"type": "shell_call", "action": {"commands": ["ls"]}},
    "apply_patch_call_output": {
        "type": "apply_patch_call",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "a"},
    },
    "tool_search_output": {"type": "tool_search_call", "arguments": {}, "execution": "client"},
}


def _responses_companions(body: Json) -> Json:
    if isinstance(body["input"], str):
        return body
    items: list[Json] = []
    for item in body["input"]:
        kind = item.get("type")
        call = _CALLS_OF_RESULTS.get(kind)
        if call is not None and item.get("call_id"):
            items.append({**call, "call_id": item["call_id"]})
        elif kind == "local_shell_call_output":
            action: Json = {"type": "exec", "command": ["ls"], "env": {}}
            shell = {"type": "local_shell_call", "id": "lsh_1", "call_id": item["id"]}
            items.append({**shell, "status": "completed", "action": action})
        elif kind == "mcp_approval_response":
            asked = {"type": "mcp_approval_request", "server_label": "docs", "name": "look"}
            items.append({**asked, "id": item["approval_request_id"], "arguments": "{}"})
        items.append(item)
    return {**body, "input": items}


_SAID_BY_ASSISTANT = frozenset(
    {
        *("thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"),
        *("compaction", "fallback", "mcp_tool_listing"),
    }
)


def _messages_companions(body: Json) -> Json:
    messages: list[Json] = []
    for message in body["messages"]:
        content = message.get("content")
        blocks = cast("list[Json]", content) if isinstance(content, list) else []
        calls: list[Json] = []
        for block in blocks:
            kind = block.get("type", "")
            if not kind.endswith("_tool_result") and kind != "tool_result":
                continue
            name = kind.removesuffix("_tool_result")
            used: Json = {"id": block["tool_use_id"], "input": {}}
            if kind == "tool_result":
                calls.append({"type": "tool_use", "name": "look", **used})
            elif kind == "mcp_tool_result":
                about = {"name": "look", "server_name": "docs"}
                calls.append({"type": "mcp_tool_use", **about, **used})
            else:
                server = "tool_search_tool_regex" if name == "tool_search" else name
                calls.append({"type": "server_tool_use", "name": server, **used})
        if calls and calls[0]["type"] == "tool_use":
            messages.append({"role": "assistant", "content": calls})
            messages.append({**message, "role": "user"})
        elif calls:
            messages.append({**message, "role": "assistant", "content": [*calls, *blocks]})
        elif any(block.get("type") in _SAID_BY_ASSISTANT for block in blocks):
            messages.append({**message, "role": "assistant"})
        else:
            messages.append(message)
    return {**body, "messages": messages}


SCHEMAS: Mapping[str, Schema] = {
    "chat": Schema(
        (
            chat_params.CompletionCreateParamsNonStreaming,
            chat_params.CompletionCreateParamsStreaming,
        ),
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [
                {"type": "function", "function": {"name": "look", "parameters": _LOOK}},
                {"type": "function", "function": {"name": "find", "parameters": _FIND}},
            ],
        },
        _chat_companions,
    ),
    "responses": Schema(
        (
            responses_params.ResponseCreateParamsNonStreaming,
            responses_params.ResponseCreateParamsStreaming,
        ),
        {
            "model": "m",
            "input": [{"type": "message", "role": "user", "content": "hi"}],
            "tools": [
                {"type": "function", "name": "look", "parameters": _LOOK, "strict": False},
                {"type": "function", "name": "find", "parameters": _FIND, "strict": False},
            ],
        },
        _responses_companions,
    ),
    "messages": Schema(
        (
            messages_params.MessageCreateParamsNonStreaming,
            messages_params.MessageCreateParamsStreaming,
            beta_params.MessageCreateParamsNonStreaming,
            beta_params.MessageCreateParamsStreaming,
        ),
        {
            "model": "m",
            "max_tokens": 50_000,
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [
                {"name": "look", "input_schema": _LOOK},
                {"name": "find", "input_schema": _FIND},
            ],
        },
        _messages_companions,
    ),
}

_LISTS = frozenset({"messages", "input", "tools"})
"""Lists that the least request has too; what is said is added to them."""

IN_HEADERS = frozenset({"betas", "user_profile_id", "workspace_id"})
"""Parameters of the anthropic SDK that it sends as headers (`anthropic-beta`, …): they are in no body."""

LATER = "x_later"
"""A field that no schema has: every object may get one with the vendor's next version."""

# --- values ----------------------------------------------------------------------------------------------------------

_PNG = "iVBORw0KGgo="
_VALUES: Mapping[str, tuple[Any, Any]] = {
    "approval_request_id": ("mcpr_1", "mcpr_2"),
    "arguments": ('{"a":1}', '{"a":2}'),
    "budget_tokens": (2048, 20_000),
    "data": (_PNG, "iVBORw0KGgp="),
    "definition": ("start: A", "start: B"),
    "file_data": ("data:application/pdf;base64,AAAA", "data:application/pdf;base64,BBBB"),
    "file_id": ("file_1", "file_2"),
    "file_url": ("https://example.com/a.pdf", "https://example.com/b.pdf"),
    "image_url": ("https://example.com/a.png", "https://example.com/b.png"),
    "input_schema": (_LOOK, _FIND),
    "logit_bias": ({"50256": -100}, {"50257": -100}),
    "max_completion_tokens": (2000, 3000),
    "max_output_tokens": (2000, 3000),
    "max_tokens": (2000, 3000),
    "n": (2, 3),
    "parameters": (_LOOK, _FIND),
    "schema": (_LOOK, _FIND),
    "temperature": (0.25, 0.75),
    "top_p": (0.25, 0.75),
    "url": ("https://example.com/a.png", "https://example.com/b.png"),
}
_PLACED: Mapping[str, tuple[Any, Any]] = {
    # The vendor's ids begin with a word of their own, and it refuses others.
    "input:custom_tool_call.id": ("ctc_1", "ctc_2"),
    "input:function_call.id": ("fc_1", "fc_2"),
    "input:message.id": ("msg_1", "msg_2"),
    "input:reasoning.id": ("rs_1", "rs_2"),
    "tool_choice:tool.name": ("look", "find"),
    "tool_choice:function.name": ("look", "find"),
    "tool_choice:function.function.name": ("look", "find"),
    "function_call.name": ("look", "find"),
    # What names a type where the SDK says `str`.
    "tools:namespace.tools:function.parameters": (_LOOK, _FIND),
    "context_management.type": ("compaction", "other"),
    "tool_choice:allowed_tools.tools": (
        [{"type": "function", "name": "look"}],
        [{"type": "function", "name": "find"}],
    ),
    "tool_choice:allowed_tools.allowed_tools.tools": (
        [{"type": "function", "function": {"name": "look"}}],
        [{"type": "function", "function": {"name": "find"}}],
    ),
}
_PLAIN: Mapping[Any, tuple[Any, Any]] = {
    int: (7, 8),
    float: (0.5, 1.5),
    object: ({"key": "a"}, {"key": "b"}),
    Any: ({"key": "a"}, {"key": "b"}),
}


def _values(annotation: Any, path: tuple[str, ...]) -> tuple[Any, Any]:
    """Two values of a type that is no record, no list and no word."""
    name = path[-1]
    found = _PLACED.get(_name(path)) or _VALUES.get(name) or _PLAIN.get(annotation)
    return found or (f"a_{name}", f"b_{name}")


# --- annotations -----------------------------------------------------------------------------------------------------


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) in (Annotated, Required, NotRequired):
        annotation = get_args(annotation)[0]
    return annotation


def _members(annotation: Any) -> list[Any]:
    """The types of a union, however it is nested, without null."""
    bare = _bare(annotation)
    if get_origin(bare) in (Union, types.UnionType):
        return [each for one in get_args(bare) for each in _members(one)]
    # Parts of answers may be handed back as they are: the models are the parameters over again.
    is_model = isinstance(bare, type) and issubclass(bare, BaseModel)
    return [] if bare is type(None) or is_model else [bare]


def _fields(record: Any) -> dict[str, Any]:
    hints = get_type_hints(record, include_extras=True)
    return {name.rstrip("_"): hint for name, hint in hints.items() if name not in IN_HEADERS}


# What the SDK calls optional although nothing can be done without it: a result answers a call.
_NEEDED: Mapping[str, set[str]] = {
    "function_call_output": {"call_id"},
    "tool_search_output": {"call_id"},
}


def _required(record: Any) -> set[str]:
    """The SDKs' annotations are strings, of which `__required_keys__` knows nothing."""
    hints = get_type_hints(record, include_extras=True)
    own = set(record.__annotations__) if record.__total__ else set[str]()
    marked = {name for name, hint in hints.items() if get_origin(hint) is Required}
    return {name.rstrip("_") for name in marked | own} | _NEEDED.get(_tag(record), set())


def _is_tag(name: str, annotation: Any, record: Any) -> bool:
    """Whether a field only says which member of a union this is."""
    members = _members(annotation)
    bare = members[0] if len(members) == 1 else None
    is_single = get_origin(bare) is Literal and len(get_args(bare)) == 1
    return is_single and (name in ("type", "role") or name in _required(record))


def _tag(record: Any) -> str:
    """What a member of a union is known by."""
    fields = _fields(record)
    for name in ("type", "role", "mode"):
        bare = _bare(fields.get(name))
        if get_origin(bare) is Literal:
            return str(get_args(bare)[0])
    return str(record.__name__)


def _least(annotation: Any, path: tuple[str, ...]) -> Any:
    """The least value of a type: only what is required, the first member of a union."""
    member = _members(annotation)[0]
    origin = get_origin(member)
    if is_typeddict(member):
        fields = _fields(member)
        required = _required(member)
        return {
            name: _least(hint, (*path, name)) for name, hint in fields.items() if name in required
        }
    if origin is Literal:
        return get_args(member)[0]
    placed = _PLACED.get(_name(path)) or _VALUES.get(path[-1])
    if placed is not None:
        return placed[0]
    if origin is dict:
        return {"key": _least(get_args(member)[1], path)}
    if origin is not None:
        return [_least(get_args(member)[0], path)]
    return True if member is bool else _values(member, path)[0]


def _walk(
    annotation: Any,
    path: tuple[str, ...],
    put: Put,
    unsaid: tuple[Json, ...],
    seen: tuple[Any, ...],
) -> Iterator[Spot]:
    """The spots of one field's type. `put` makes a request of a value."""
    members = _members(annotation)
    records = [member for member in members if is_typeddict(member)]
    for member in members:
        origin = get_origin(member)
        placed = _PLACED.get(_name(path)) or (_VALUES.get(path[-1]) if origin else None)
        if placed is not None:
            yield Spot(path, tuple(map(put, placed)), unsaid)
        elif is_typeddict(member):
            if member not in seen:
                label = (f":{_tag(member)}",) if len(records) > 1 else ()
                yield from _walk_record(member, (*path, *label), put, unsaid, (*seen, member))
        elif origin is Literal:
            words = get_args(member)
            yield Spot(path, tuple(map(put, words)), unsaid, words=words)
        elif member is bool:
            yield Spot(path, (put(True), put(False)), unsaid, words=(True, False))
        elif origin is dict:
            first, second = ({"key": value} for value in _values(get_args(member)[1], path))
            yield Spot(path, (put(first), put(second)), unsaid)
        elif origin is not None:
            inner = get_args(member)[0]
            yield from _walk(inner, path, lambda value: put([value]), (put([]), *unsaid), seen)
        else:
            yield Spot(path, tuple(map(put, _values(member, path))), unsaid)


def _walk_record(
    record: Any, path: tuple[str, ...], put: Put, unsaid: tuple[Json, ...], seen: tuple[Any, ...]
) -> Iterator[Spot]:
    least = _least(record, path)
    if least.keys() - {"role"}:  # a message without content says nothing
        yield Spot(path, (put(least),), unsaid, words=(_tag(record),), is_object=True)
    later = tuple(put({**least, LATER: value}) for value in ("a", "b"))
    yield Spot((*path, LATER), later, (put(least), *unsaid))
    required = _required(record)
    for name, hint in _fields(record).items():
        if _is_tag(name, hint, record):
            continue

        def put_field(value: Any, name: str = name) -> Json:
            return put({**least, name: value})

        without = unsaid if name in required else (put(least), *unsaid)
        for spot in _walk(hint, (*path, name), put_field, without, seen):
            is_own = spot.path == (*path, name) and name in required
            yield spot._replace(is_required=spot.is_required or is_own)


def _top(schema: Schema) -> dict[str, list[Any]]:
    """The fields of a request, each with its types in the SDK's several forms of the request."""
    hints: dict[str, list[Any]] = {}
    for params in schema.params:
        for name, hint in _fields(params).items():
            if _bare(hint) not in hints.setdefault(name, []):
                hints[name].append(_bare(hint))
    return hints


def nullable(dialect: str) -> list[str]:
    """The fields of a request that may be null, which is to say nothing."""
    tops = _top(SCHEMAS[dialect])
    return [name for name, kinds in tops.items() if any(type(None) in get_args(k) for k in kinds)]


def spots(dialect: str) -> Iterator[Spot]:
    """Every field of the dialect's requests, in every place."""
    schema = SCHEMAS[dialect]
    hints = _top(schema)
    found: dict[tuple[str, str], Spot] = {}
    hints["stream"] = [bool]  # the SDKs have a type for each of its values
    for name, kinds in hints.items():
        least = schema.least

        def put(value: Any, name: str = name, least: Json = least) -> Json:
            if name in _LISTS and isinstance(value, list):
                value = [*least[name], *value]
            return schema.complete({**least, name: value})

        unsaid = (schema.complete(least),)
        for kind in kinds:
            for spot in _walk(kind, (name,), put, unsaid, ()):
                found.setdefault((spot.name, repr(spot.said)), spot)
    later = tuple(schema.complete({**schema.least, LATER: value}) for value in ("a", "b"))
    yield Spot((LATER,), later, (schema.complete(schema.least),))
    yield from found.values()
