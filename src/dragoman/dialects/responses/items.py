"""Items other than messages, both ways: reasoning, calls of every kind and their results.

An item is one part. The same functions serve answers and conversations; what differs (minted ids, streaming, pairing)
is the business of the modules that call them.
"""

from dragoman._json import FAST_FAILURES, Raw, is_strict
from dragoman.core.fields import expect_list, expect_object, expect_text
from dragoman.core.seals import seals_from_encrypted
from dragoman.core.surrogates import join_exactly
from dragoman.dialects.responses.fields import (
    Fields,
    extra_of,
    find_call_id,
    find_input,
    find_name,
    first_byte,
    is_present,
    own_fields,
    read_items,
    read_list,
    read_object,
    read_status,
    read_text,
    source_text,
    text_source,
)
from dragoman.dialects.responses.results import read_result
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    ITEM_OF_KIND,
    REASONING_FIELDS,
    RESULT_ITEMS,
    CallSpec,
    decode_call,
)
from dragoman.model.parts import (
    Call,
    Executor,
    Opaque,
    Reasoning,
    Result,
)

__all__ = (
    "ItemPart",
    "call_fields",
    "call_spec",
    "is_input_lost",
    "is_streamed",
    "read_call",
    "read_function_like",
    "read_item",
    "read_regular_call",
    "reasoning_fields",
)

ItemPart = Reasoning | Call | Result | Opaque

_SURROGATE = b"\\ud"  # how the escape of one begins; writers that use capitals are read as ever

_CALL_FIELDS = {
    # by type and the field of the input: the fields of a call item that have a home
    (spec.type, field): frozenset(
        {
            *("type", "id", "status", "namespace", field),
            *(() if spec.name else ("name",)),
            *(("call_id",) if spec.has_call_id else ()),
        }
    )
    for spec in CALL_ITEMS.values()
    for field in (spec.field, "actions")
}
_LIKE_FIELDS = frozenset(
    {
        "arguments",
        "call_id",
        "call_name",
        "function",
        "function_name",
        "id",
        "input",
        "name",
        "namespace",
        "parameters",
        "status",
        "tool_call_id",
        "tool_name",
        "tool_use_id",
        "type",
    }
)


# --- reading ---------------------------------------------------------------------------------------------------------


def check_item(fields: Fields) -> None:
    """Raises MalformedJson for an item of which something that a call consists of is of a type that it never has."""
    # By their first bytes: every item comes three times, and nearly all of them are as they should be.
    for key in ("type", "id", "status", "name"):
        value = fields.get(key)
        if value is not None and first_byte(value) not in (b'"', b"n"):
            expect_text(value, key)
    kind = read_text(fields, "type") or ""
    spec = CALL_ITEMS.get(kind)
    if spec is not None and spec.form == "text":
        check_input(fields.get(spec.field), spec.field)
    elif kind == "message":
        for part in expect_list(fields.get("content"), "content"):
            if first_byte(part) != b"{":
                expect_object(part, "a part of the content")


def check_input(value: Raw | None, what: str) -> None:
    """Input that is text on the wire. Backends send objects too; anything else cannot be read."""
    if value is None:
        return
    first = first_byte(value)
    if first not in (b'"', b"{"):
        expect_text(value, what)
    elif first == b'"' and _SURROGATE in bytes(value):
        join_exactly(expect_text(value, what) or "", "")


def read_item(item: Raw, fields: Fields, *, executor: Executor = "client") -> ItemPart:
    """An item that is no message. `executor` says who ran the tool where a result does not tell."""
    kind = read_text(fields, "type") or ""
    if kind == "reasoning":
        return _reasoning(fields)
    call = CALL_ITEMS.get(kind)
    if call is not None:
        return read_call(call, fields)
    result = RESULT_ITEMS.get(kind)
    if result is not None:
        return read_result(result, fields, executor)
    return Opaque(dialect="responses", type=kind, raw=item, item_id=read_text(fields, "id") or None)


def read_call(spec: CallSpec, fields: Fields) -> Call:
    """A call. Its id is "" where the item has none, its name "" where that is still to come."""
    item_id = read_text(fields, "id") or None
    field = _input_field(spec, fields)
    return Call(
        # `call_id` is the join key; the item's own id only where there is none.
        call_id=find_call_id(fields) or item_id or "",
        name=spec.name or find_name(fields),
        input=_input(spec, fields, field),
        kind=spec.kind,
        namespace=read_text(fields, "namespace") or None,
        executor=_executor(spec, fields),
        status=read_status(fields),
        item_id=item_id,
        extra=extra_of(fields, _CALL_FIELDS[spec.type, field]),
    )


def read_regular_call(item: Raw) -> Call | None:
    """A function call with nothing odd about it, as `read_call` reads it; None for every other item."""
    try:
        call = decode_call(item)
    except FAST_FAILURES:
        return None
    return Call(
        call_id=call.call_id or call.id,
        name=call.name,
        input=call.arguments,
        namespace=call.namespace or None,
        status=call.status,
        item_id=call.id or None,
    )


def read_function_like(fields: Fields, item_id: str | None) -> Call:
    """A call that stands as a content part inside a message."""
    text, _ = find_input(fields)
    return Call(
        call_id=find_call_id(fields) or read_text(fields, "id") or "",
        name=find_name(fields),
        input=text or "",
        namespace=read_text(fields, "namespace") or None,
        status=read_status(fields),
        item_id=item_id,
        extra=extra_of(fields, _LIKE_FIELDS),
    )


def _input_field(spec: CallSpec, fields: Fields) -> str:
    # Newer models act several times in one computer call and fill `actions` instead.
    if spec.kind == "computer" and not is_present(fields.get("action")):
        return "actions"
    return spec.field


def _input(spec: CallSpec, fields: Fields, field: str) -> str:
    value = fields.get(field)
    if spec.form == "none" or value is None or not is_present(value):
        return ""
    text = read_text(fields, field) if spec.form == "text" else None
    return source_text(value) if text is None else text


def _executor(spec: CallSpec, fields: Fields) -> Executor:
    if spec.kind == "tool_search":
        return "client" if read_text(fields, "execution") == "client" else "provider"
    if spec.kind == "shell":
        environment = read_object(fields.get("environment"))
        # A shell in a container of the provider's has run by the time it is told of.
        return "provider" if read_text(environment, "type") == "container_reference" else "client"
    return spec.executor


def _reasoning(fields: Fields) -> Reasoning:
    return Reasoning(
        summary=_texts(fields.get("summary")),
        content=_texts(fields.get("content")),
        seals=seals_from_encrypted(read_text(fields, "encrypted_content")),
        status=read_status(fields),
        item_id=read_text(fields, "id") or None,
        extra=extra_of(fields, REASONING_FIELDS),
    )


def _texts(value: Raw | None) -> tuple[str, ...]:
    return tuple(read_text(entry, "text") or "" for entry in read_items(value))


# --- writing ---------------------------------------------------------------------------------------------------------


def reasoning_fields(reasoning: Reasoning, encrypted: str | None) -> dict[str, object]:
    """Everything but `id` and `status`."""
    out: dict[str, object] = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in reasoning.summary],
    }
    if reasoning.content:
        out["content"] = [{"type": "reasoning_text", "text": text} for text in reasoning.content]
    if encrypted is not None:
        out["encrypted_content"] = encrypted
    return {**out, **own_fields(reasoning.extra)}


def call_spec(call: Call, *, is_native: bool = False) -> CallSpec | None:
    """The item for a call; None if this wire has none for it.

    Client tools that another vendor defined (an editor, a shell with its own schema) are functions here. Both vendors
    have a computer tool, with other actions; this one's calls always carry fields of their own, and before the input
    has come nothing else tells them apart. is_native: the call stood in a conversation of this dialect.
    """
    spec = ITEM_OF_KIND.get("web_search" if call.kind == "web_fetch" else call.kind)
    is_foreign = call.kind == "computer" and not is_native and not own_fields(call.extra)
    if spec is None or is_foreign:
        return ITEM_OF_KIND["function"] if call.executor != "provider" else None
    return spec


def call_fields(call: Call, spec: CallSpec) -> dict[str, object]:
    """Everything but `id` and `status`. A field the SDK demands is filled in."""
    out: dict[str, object] = {"type": spec.type}
    if spec.has_call_id:
        out["call_id"] = call.call_id
    if not spec.name:
        out["name"] = call.name
    if call.namespace is not None:
        out["namespace"] = call.namespace
    own = own_fields(call.extra)
    if spec.kind == "tool_search" and "execution" not in own:
        out["execution"] = "client" if call.executor == "client" else "server"
    out.update(_input_fields(call, spec))
    out.update({key: value for key, value in spec.required.items() if key not in own})
    return {**out, **own}


def _input_fields(call: Call, spec: CallSpec) -> dict[str, object]:
    if spec.form == "none":
        return {}
    if spec.form == "text":
        return {spec.field: call.input if is_streamed(call, spec) else _code(call.input)}
    told = _native_input(call, spec)
    if told is not None:
        is_list = spec.kind == "computer" and call.input.lstrip().startswith("[")
        return {"actions" if is_list else spec.field: told}
    return {spec.field: Raw(spec.placeholder)} if spec.placeholder else {}


def is_input_lost(call: Call, spec: CallSpec) -> bool:
    """Whether a call's input has no place in its item: another vendor's tool of the same kind may take other things."""
    if not call.input.strip() or spec.form != "json" or call.status == "incomplete":
        return False
    if _native_input(call, spec) is None:
        return True
    # A search crosses by its query alone, a fetch by its address.
    fields = read_object(text_source(call.input))
    return spec.kind in ("web_search", "file_search") and "type" not in fields and len(fields) > 1


def is_streamed(call: Call, spec: CallSpec) -> bool:
    """Whether a call's input can be told as it comes: another vendor's code stands in a JSON object."""
    return spec.kind != "code_interpreter" or bool(own_fields(call.extra))


def _native_input(call: Call, spec: CallSpec) -> Raw | None:
    """The input as JSON of the item's own shape."""
    if not call.input or not is_strict(call.input):
        return None
    source = text_source(call.input)
    fields = read_object(source)
    if spec.kind == "web_search":
        return source if "type" in fields else _web_action(fields)
    if spec.kind == "file_search":
        query = fields.get("query")
        if query is not None and read_text(fields, "query") is not None:
            return Raw(b"[" + bytes(query) + b"]")
        return None if read_list(source) is None else source
    return source


def _code(text: str) -> str:
    """Another vendor's code tool has the code in a JSON object."""
    return read_text(read_object(text_source(text)), "code") or text


def _web_action(fields: Fields) -> Raw | None:
    """A search or a fetch by another vendor's tool, in this one's words. The values stay the bytes they were."""
    for key, head in (
        ("query", b'{"type":"search","query":'),
        ("url", b'{"type":"open_page","url":'),
    ):
        value = fields.get(key)
        if value is not None and read_text(fields, key) is not None:
            return Raw(head + bytes(value) + b"}")
    return None
