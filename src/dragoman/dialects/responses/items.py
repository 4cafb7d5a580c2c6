"""Items other than messages, both ways: reasoning, calls of every kind and their results.

An item is one part. The same functions serve answers and conversations; their callers mint ids, stream and pair. Names
and ids of calls are searched under all the spellings that backends use.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, is_strict
from dragoman.core.fields import (
    Fields,
    expect_list,
    expect_object,
    expect_text,
    extra_of,
    first_byte,
    is_present,
    own_fields,
    read_fragment,
    read_list,
    read_object,
    read_objects,
    read_text,
    source_raw,
    source_text,
)
from dragoman.core.pairing import mark_error, unmark_error
from dragoman.core.seals import seals_from_encrypted
from dragoman.core.surrogates import join_exactly
from dragoman.dialects.responses.content import (
    breakpoint_fields,
    media_fields,
    read_content,
    read_image,
)
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    ITEM_OF_KIND,
    PART_STATUS,
    REASONING_FIELDS,
    RESULT_ITEMS,
    RESULT_OF_KIND,
    CallSpec,
    ResultSpec,
    decode_call,
)
from dragoman.model.parts import (
    Call,
    Executor,
    Media,
    Opaque,
    PartStatus,
    Reasoning,
    Refusal,
    Result,
    Text,
)

_NAMES = ("name", "function_name", "tool_name", "call_name")
_IDS = ("call_id", "tool_call_id", "tool_use_id")
_INPUTS = ("arguments", "input", "parameters")
_SCREENSHOT_FIELDS = ("image_url", "file_id", "detail")


def read_status(fields: Fields) -> PartStatus:
    """Return an item's status; `completed` for a word that only shows progress (`searching`)."""
    return PART_STATUS.get(read_text(fields.get("status")) or "", "completed")


def find_name(fields: Fields) -> str:
    """Return a call's name, "" if it has none under any spelling."""
    name = _first(fields, _NAMES)
    if name or "function" not in fields:
        return name
    return read_text(read_object(fields.get("function")).get("name")) or ""


def find_call_id(fields: Fields) -> str:
    """Return the id that pairs a call with its result, "" if there is none. Ignores the item's own `id`."""
    call_id = _first(fields, _IDS)
    if call_id or "function" not in fields:
        return call_id
    return _first(read_object(fields.get("function")), ("call_id", "id"))


def _first(fields: Fields, names: Iterable[str]) -> str:
    for name in names:
        text = read_text(fields.get(name))
        if text:
            return text
    return ""


def find_input(fields: Fields) -> tuple[str | None, bool]:
    """Return a function-like part's input as source text (None if absent), and whether it came as an object."""
    for source in (fields, read_object(fields.get("function"))):
        for key in _INPUTS:
            value = source.get(key)
            if value is None or not is_present(value):
                continue
            text = read_text(value)
            return (source_text(value), True) if text is None else (text, False)
    return None, False


ItemPart = Reasoning | Call | Result | Opaque

_SURROGATE = b"\\ud"  # the beginning of a surrogate's escape; escapes in capitals are not checked

_CALL_FIELDS = {
    # by type and by the field of the input: the fields of a call item that `Call` has fields for
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
    (*_NAMES, *_IDS, *_INPUTS, "function", "id", "namespace", "status", "type")
)


# --- reading ---------------------------------------------------------------------------------------------------------


def check_item(fields: Fields) -> None:
    """Raise MalformedJson if a field that a call consists of has a type that it never has."""
    # Only the first bytes are checked: every item comes three times, and nearly all items are correct.
    for key in ("type", "id", "status", "name"):
        value = fields.get(key)
        if value is not None and first_byte(value) not in (b'"', b"n"):
            expect_text(value, key)
    kind = read_text(fields.get("type")) or ""
    spec = CALL_ITEMS.get(kind)
    if spec is not None and spec.form == "text":
        check_input(fields.get(spec.field), spec.field)
    elif kind == "message":
        for part in expect_list(fields.get("content"), "content"):
            if first_byte(part) != b"{":
                expect_object(part, "a part of the content")


def check_input(value: Raw | None, what: str) -> None:
    """Check an input that is text on the wire. Objects pass too, because backends send them; others raise MalformedJson."""
    if value is None:
        return
    first = first_byte(value)
    if first not in (b'"', b"{"):
        expect_text(value, what)
    elif first == b'"' and _SURROGATE in bytes(value):
        join_exactly(expect_text(value, what) or "", "")


def read_item(item: Raw, fields: Fields, *, executor: Executor = "client") -> ItemPart:
    """Read an item that is not a message. `executor` applies to a result that does not say who ran its tool."""
    kind = read_text(fields.get("type")) or ""
    if kind == "reasoning":
        return _reasoning(fields)
    call = CALL_ITEMS.get(kind)
    if call is not None:
        return read_call(call, fields)
    result = RESULT_ITEMS.get(kind)
    if result is not None:
        return read_result(result, fields, executor)
    declared = read_list(fields.get("tools")) if kind == "additional_tools" else None
    return Opaque(
        dialect="responses",
        type=kind,
        raw=item,
        item_id=read_text(fields.get("id")) or None,
        tools=tuple([key for tool in declared or () for key in _declared(tool)]),
        extra=extra_of("responses", fields, _DECLARING_FIELDS) if declared else None,
    )


def read_call(spec: CallSpec, fields: Fields) -> Call:
    """Read a call. Its id is "" if the item has none, and its name is "" if the name comes later."""
    item_id = read_text(fields.get("id")) or None
    field = _input_field(spec, fields)
    return Call(
        # `call_id` pairs calls with results; the item's own id replaces it only if it is absent.
        call_id=find_call_id(fields) or item_id or "",
        name=spec.name or find_name(fields),
        input=_input(spec, fields, field),
        kind=spec.kind,
        namespace=read_text(fields.get("namespace")) or None,
        executor=_executor(spec, fields),
        status=read_status(fields),
        item_id=item_id,
        extra=extra_of("responses", fields, _CALL_FIELDS[spec.type, field]),
    )


def read_regular_call(item: Raw) -> Call | None:
    """Read a function call of the regular shape, with the same result as `read_call`; None for every other item."""
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
    """Read a call that is a content part of a message."""
    text, _ = find_input(fields)
    return Call(
        call_id=find_call_id(fields) or read_text(fields.get("id")) or "",
        name=find_name(fields),
        input=text or "",
        namespace=read_text(fields.get("namespace")) or None,
        status=read_status(fields),
        item_id=item_id,
        extra=extra_of("responses", fields, _LIKE_FIELDS),
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
    text = read_text(value) if spec.form == "text" else None
    return source_text(value) if text is None else text


def _executor(spec: CallSpec, fields: Fields) -> Executor:
    if spec.kind == "tool_search":
        return "client" if read_text(fields.get("execution")) == "client" else "provider"
    if spec.kind == "shell":
        environment = read_object(fields.get("environment"))
        # A shell in the provider's container has finished before its call arrives.
        return (
            "provider" if read_text(environment.get("type")) == "container_reference" else "client"
        )
    return spec.executor


def _reasoning(fields: Fields) -> Reasoning:
    return Reasoning(
        summary=_texts(fields.get("summary")),
        content=_texts(fields.get("content")),
        seals=seals_from_encrypted(read_text(fields.get("encrypted_content"))),
        status=read_status(fields),
        item_id=read_text(fields.get("id")) or None,
        extra=extra_of("responses", fields, REASONING_FIELDS),
    )


def _texts(value: Raw | None) -> tuple[str, ...]:
    return tuple(read_text(entry.get("text")) or "" for entry in read_objects(value))


# --- writing ---------------------------------------------------------------------------------------------------------


def reasoning_fields(reasoning: Reasoning, encrypted: str | None) -> dict[str, object]:
    """Return the fields of a reasoning item without `id` and `status`."""
    out: dict[str, object] = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in reasoning.summary],
    }
    if reasoning.content:
        out["content"] = [{"type": "reasoning_text", "text": text} for text in reasoning.content]
    if encrypted is not None:
        out["encrypted_content"] = encrypted
    return {**out, **own_fields("responses", reasoning.extra)}


def call_spec(call: Call, *, is_native: bool = False) -> CallSpec | None:
    """Return the item type for a call; None if this dialect has none.

    Client tools that another vendor defined (an editor, a shell with its own schema) are functions here. Both vendors
    have a computer tool, with different actions; only OpenAI's calls have extra fields of this dialect, and until the
    input arrives nothing else distinguishes the two. is_native: the call is from a conversation in this dialect.
    """
    spec = ITEM_OF_KIND.get("web_search" if call.kind == "web_fetch" else call.kind)
    is_foreign = (
        call.kind == "computer" and not is_native and not own_fields("responses", call.extra)
    )
    if spec is None or is_foreign:
        return ITEM_OF_KIND["function"] if call.executor != "provider" else None
    return spec


def call_fields(call: Call, spec: CallSpec) -> dict[str, object]:
    """Return the fields of a call item without `id` and `status`, with every field that the SDK demands."""
    out: dict[str, object] = {"type": spec.type}
    if spec.has_call_id:
        out["call_id"] = call.call_id
    if not spec.name:
        out["name"] = call.name
    if call.namespace is not None:
        out["namespace"] = call.namespace
    own = own_fields("responses", call.extra)
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
    native = _native_input(call, spec)
    if native is not None:
        is_list = spec.kind == "computer" and call.input.lstrip().startswith("[")
        return {"actions" if is_list else spec.field: native}
    return {spec.field: Raw(spec.placeholder)} if spec.placeholder else {}


def is_input_lost(call: Call, spec: CallSpec) -> bool:
    """Return whether the item cannot hold the call's input: another vendor's tool of this kind may have other inputs."""
    if not call.input.strip() or spec.form != "json" or call.status == "incomplete":
        return False
    if _native_input(call, spec) is None:
        return True
    # Only the query of a search and the address of a fetch are translated.
    fields = read_object(source_raw(call.input))
    return spec.kind in ("web_search", "file_search") and "type" not in fields and len(fields) > 1


def is_streamed(call: Call, spec: CallSpec) -> bool:
    """Return whether the input can be streamed: another vendor's code is inside a JSON object and cannot."""
    return spec.kind != "code_interpreter" or bool(own_fields("responses", call.extra))


def _native_input(call: Call, spec: CallSpec) -> Raw | None:
    """Return the input as JSON in the item's shape; None if it has no such form."""
    if not call.input or not is_strict(call.input):
        return None
    source = source_raw(call.input)
    fields = read_object(source)
    if spec.kind == "web_search":
        return source if "type" in fields else _web_action(fields)
    if spec.kind == "file_search":
        query = fields.get("query")
        if query is not None and read_text(query) is not None:
            return Raw(b"[" + bytes(query) + b"]")
        return None if read_list(source) is None else source
    return source


def _code(text: str) -> str:
    """Return the code, which another vendor's tool wraps in a JSON object."""
    return read_text(read_object(source_raw(text)).get("code")) or text


def _web_action(fields: Fields) -> Raw | None:
    """Return the action for another vendor's search or fetch. The values keep their bytes."""
    for key, head in (
        ("query", b'{"type":"search","query":'),
        ("url", b'{"type":"open_page","url":'),
    ):
        value = fields.get(key)
        if value is not None and read_text(value) is not None:
            return Raw(head + bytes(value) + b"}")
    return None


def read_result(spec: ResultSpec, fields: Fields, executor: Executor) -> Result:
    item_id = read_text(fields.get("id")) or None
    named = read_text(fields.get("name")) or None
    pair = read_text(fields.get(spec.pair)) or ""
    known = {"type", "id", "status", spec.pair, spec.field}
    if not pair:
        known.add("name")
        # A local shell output has the call's id as its own id; an output with a tool name answers no call.
        pair = "" if named is not None else item_id or ""
    content, is_error = _output(spec, fields)
    if spec.kind == "apply_patch" and read_text(fields.get("status")) == "failed":
        is_error = True
    return Result(
        call_id=pair,
        content=content,
        is_error=is_error,
        kind=spec.kind,
        name=named,
        executor="provider" if read_text(fields.get("execution")) == "server" else executor,
        status=read_status(fields),
        item_id=item_id,
        extra=extra_of("responses", fields, known),
    )


def _output(spec: ResultSpec, fields: Fields) -> tuple[tuple[Text | Media | Opaque, ...], bool]:
    value = fields.get(spec.field)
    if value is None or not is_present(value):
        return (), False
    if spec.form == "image":
        return (read_image(read_object(value), _SCREENSHOT_FIELDS),), False
    if spec.kind == "tool_search":
        found = read_list(value)
        if found is not None:
            return tuple(map(_loaded, found)), False
    text = None if spec.form == "json" else read_fragment(fields.get(spec.field))
    if text is not None:
        text, is_error = unmark_error(text)
        return (Text(text=text),), is_error
    entries = read_list(value) if spec.form == "content" else None
    if entries is None:
        return (Text(text=source_text(value)),), False
    return _contents(entries)


_DECLARING_FIELDS = frozenset({"type", "id", "role", "tools"})


def _loaded(tool: Raw) -> Opaque:
    """Read a definition in the result of a search: a tool, or a namespace with its tools."""
    kind = read_text(read_object(tool).get("type")) or ""
    return Opaque(dialect="responses", type=kind, raw=tool, tools=_declared(tool))


def _declared(tool: Raw) -> tuple[tuple[str | None, str], ...]:
    fields = read_object(tool)
    name = read_text(fields.get("name")) or read_text(
        read_object(fields.get("function")).get("name")
    )
    if not name:
        return ()
    if read_text(fields.get("type")) != "namespace":
        return ((None, name),)
    members = (read_text(member.get("name")) for member in read_objects(fields.get("tools")))
    return tuple([(name, member) for member in members if member])


def _contents(entries: list[Raw]) -> tuple[tuple[Text | Media | Opaque, ...], bool]:
    parts: list[Text | Media | Opaque] = []
    is_error = False
    for entry in entries:
        part = read_content(entry, read_object(entry))
        if isinstance(part, Refusal):
            part = Text(text=part.text)
        if isinstance(part, Text) and not parts:
            text, is_error = unmark_error(part.text)
            if is_error:
                part = replace(part, text=text)
        parts.append(part)
    return tuple(parts), is_error


def result_spec(result: Result) -> ResultSpec | None:
    """Return the item type for a result; None for a result of another vendor's provider tool."""
    spec = RESULT_OF_KIND.get(result.kind)
    if spec is None and result.executor != "provider":
        return RESULT_OF_KIND["function"]
    return spec


def result_fields(result: Result, spec: ResultSpec) -> dict[str, object]:
    """Return the fields of a result item without `id` and `status`."""
    out: dict[str, object] = {"type": spec.type}
    # A local shell's output may carry the call's id only as its own id.
    if result.call_id and (spec.kind != "local_shell" or result.call_id != result.item_id):
        out[spec.pair] = result.call_id
    if result.name is not None and spec.kind == "function" and not result.call_id:
        out["name"] = result.name
    match spec.form:
        case "image":
            out[spec.field] = _screenshot_fields(result)
        case "json":
            out[spec.field] = _json_output(result, spec)
        case "text":
            if result.content or spec.kind != "apply_patch":
                out[spec.field] = _marked(result, _joined(result))
        case "content":
            out[spec.field] = _content_output(result)
        case _:
            assert_never(spec.form)
    return {**out, **own_fields("responses", result.extra)}


def _joined(result: Result) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def _marked(result: Result, text: str) -> str:
    # A failed patch has the status `failed` instead.
    return mark_error(text) if result.is_error and result.kind != "apply_patch" else text


def _text_extras(part: Text) -> dict[str, object]:
    return {**breakpoint_fields(part.cache), **own_fields("responses", part.extra)}


def _content_output(result: Result) -> object:
    """Return a string if the content is a single text, else a list of parts."""
    content = result.content
    if not content:
        return _marked(result, "")
    first = content[0]
    if len(content) == 1 and isinstance(first, Text) and not _text_extras(first):
        return _marked(result, first.text)
    out: list[object] = []
    if result.is_error and not isinstance(first, Text):
        out.append({"type": "input_text", "text": mark_error("")})
    for number, part in enumerate(content):
        match part:
            case Text():
                text = _marked(result, part.text) if number == 0 else part.text
                out.append({"type": "input_text", "text": text, **_text_extras(part)})
            case Media():
                out.append(media_fields(part) or {"type": "input_text", "text": f"[{part.kind}]"})
            case Opaque():
                out.append(part.raw)
            case _:
                assert_never(part)
    return out


def _screenshot_fields(result: Result) -> dict[str, object]:
    for part in result.content:
        if isinstance(part, Media):
            fields = media_fields(part) or {}
            own = own_fields("responses", part.extra)
            kept = {key: value for key, value in fields.items() if key in ("image_url", "file_id")}
            detail: dict[str, object] = {} if part.detail is None else {"detail": part.detail}
            return {"type": "computer_screenshot", **kept, **detail, **own}
    return {"type": "computer_screenshot"}


def _json_output(result: Result, spec: ResultSpec) -> object:
    loaded = [part.raw for part in result.content if isinstance(part, Opaque)]
    if loaded and spec.kind == "tool_search":
        return loaded
    text = _joined(result)
    if text and is_strict(text):
        return source_raw(text)
    if spec.kind == "shell":
        exit_code = 1 if result.is_error else 0
        outcome = {"type": "exit", "exit_code": exit_code}
        return [{"stdout": text, "stderr": "", "outcome": outcome}]
    return False if spec.kind == "mcp_approval" else []
