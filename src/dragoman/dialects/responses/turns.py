"""The conversation of a request, both ways: items to turns and turns to items.

Reading makes one turn of each item and never merges items. Messages become turns with their content. Calls and reasoning
are turns of the assistant, results are `tool` turns. Tools declared inside the conversation are also collected in
`EarlierItems`. A typed decoder reads the most frequent items; the field-by-field reader returns the same turns for them.

Writing makes one item of every part, in order, except that consecutive texts and media of a turn are one message. Ids that
OpenAI would reject are omitted, too long call ids are aliased, and losses are noted.

`list_items` returns the items as `input_items` lists them; `read_submitted` reads the body of `submit_tool_outputs`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Never, cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman._json import Raw, as_object
from dragoman.core.aliases import NameMap, ToolKey, alias_id
from dragoman.core.fields import (
    Fields,
    ask_bool,
    ask_list,
    ask_text,
    extra_of,
    is_present,
    need_object,
    own_fields,
    read_fragment,
    read_objects,
    read_shallow,
    read_text,
    refuse,
    typed_readers,
)
from dragoman.core.ids import Minter
from dragoman.core.loaded_tools import LoadedTools
from dragoman.core.losses import LossBook, instruction_texts, note_opaque
from dragoman.core.pairing import bare_text, unmark_error
from dragoman.core.seals import seal_to_encrypted, split_family
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codec import Target
from dragoman.dialects.responses.content import breakpoint_fields, media_fields, read_content
from dragoman.dialects.responses.item_writer import (
    ItemWriter,
    JsonObject,
    as_message_part,
    call_status,
)
from dragoman.dialects.responses.items import (
    call_fields,
    call_spec,
    read_item,
    read_result,
    reasoning_fields,
    result_fields,
    result_spec,
)
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.responses.tools import read_tools
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    MESSAGE_FIELDS,
    PART_STATUS,
    PREFIXES,
    RESULT_OF_KIND,
    STRICT_PREFIXES,
    TypedItem,
)
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.parts import (
    Call,
    CallKind,
    Dialect,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from dragoman.model.request import Namespace, Request, Role, Tool, Turn

_NAMED = frozenset({"function", "custom"})


def instructions_of(turns: Sequence[Turn], book: LossBook) -> str | None:
    """Return the text of all turns that came outside the conversation."""
    texts: list[str] = []
    has_head = False
    for number, turn in enumerate(turns):
        if not turn.head:
            continue
        has_head = True
        where = f"turns[{number}]"
        texts += instruction_texts(turn, where, book, note_foreign)
    return "\n\n".join(texts) if has_head else None


class InputItemWriter:
    """Writes the items of one request."""

    def __init__(
        self,
        names: NameMap,
        target: Target,
        book: LossBook,
        tools: tuple[Tool, ...] = (),
        *,
        is_native: bool = False,
        later: Mapping[ToolKey, JsonObject] | None = None,
    ) -> None:
        """`later`: definitions of tools, by namespace and name, that follow the result that loads them."""
        self._is_native = is_native
        self._later = dict(later or {})
        # An upstream without deferred tools reads the result of a search as text.
        self._is_plain = target.deferred_tools is False
        self._tools = tools
        self._names = names
        self._ids = target.ids
        self._book = book
        self._mint = Minter("history")
        self._written: dict[str, CallKind] = {}  # call id -> the kind of item its call became

    @cached_property
    def _loaded(self) -> LoadedTools:
        own: Dialect | None = None if self._is_plain else "responses"
        return LoadedTools(self._tools, self._names, own, self._book, note_foreign)

    def write(self, turns: Sequence[Turn]) -> list[object]:
        out: list[object] = []
        for number, turn in enumerate(turns):
            if not turn.head:
                text = bare_text(turn)
                if text is None:
                    self._write_turn(turn, f"turns[{number}]", out)
                    if self._later:
                        self._declare(turn, out)
                else:
                    out.append({"type": "message", "role": turn.role, "content": text})
        return out

    def _declare(self, turn: Turn, out: list[object]) -> None:
        """Declare the tools that the results of a turn load, each once."""
        keys = [
            key
            for part in turn.parts
            if isinstance(part, Result)
            for piece in part.content
            if isinstance(piece, Opaque)
            for key in piece.tools
        ]
        tools = [self._later.pop(key) for key in dict.fromkeys(keys) if key in self._later]
        if tools:
            out.append({"type": "additional_tools", "role": "developer", "tools": tools})

    def _inspect(self, turn: Turn, where: str) -> None:
        note_foreign(self._book, turn.extra, where)
        if turn.cache is not None:
            self._book.note("cache_control", where)
        if turn.name is not None:
            self._book.note("message_name", where, turn.name)

    def _write_turn(self, turn: Turn, where: str, out: list[object]) -> None:
        self._inspect(turn, where)
        run: list[object] = []
        for part in turn.parts:
            if isinstance(part, Opaque) and part.text is not None:
                text = note_opaque(self._book, "opaque_part", where, part)
                run += [] if text is None else [self._text(turn, text)]
                continue
            self._inspect_part(part, turn, where)
            if isinstance(part, Media) or as_message_part(part) is not None:
                content = self._content(turn, part, where)
                if content is not None:
                    run.append(content)
                continue
            if run:
                out.append(self._message(turn, run))
                run = []
            item = self._item(part, turn, where)
            if item is not None:
                out.append(item)
        # A turn without parts is a message without content; a turn of other items has no message.
        if run or not turn.parts:
            out.append(self._message(turn, run))

    def _inspect_part(self, part: Part, turn: Turn, where: str) -> None:
        if isinstance(part, Opaque):
            return
        note_foreign(self._book, part.extra, where)
        if not isinstance(part, Refusal) and part.cache is not None and part.cache.alone:
            self._book.note("cache_control", where)
        if isinstance(part, Text) and part.annotations and turn.role != "assistant":
            self._book.note("annotation", where, "only an assistant's texts have citations")
        if isinstance(part, Result):
            for each in part.content:
                self._inspect_part(each, turn, where)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _message(self, turn: Turn, content: list[object]) -> JsonObject:
        # Content of a tool turn that is not a result can only be sent as a user's message.
        role = "user" if turn.role == "tool" else turn.role
        is_own_id = turn.item_id is not None and turn.item_id.startswith(PREFIXES["message"])
        out: JsonObject = {"type": "message", "role": role}
        if is_own_id:
            out["id"] = turn.item_id
        if turn.status is not None:
            out["status"] = turn.status
        if (
            len(content) == 1
            and isinstance(content[0], str)
            and not (is_own_id and role == "assistant")
        ):
            out["content"] = content[0]
        elif role == "assistant":
            out["content"] = [
                _output_text(part) if isinstance(part, str) else part for part in content
            ]
            if not self._is_native and not is_own_id:
                # An assistant message with content parts is an output item, which needs an id and a status.
                out.update({"id": self._mint("msg_"), "status": "completed"})
        else:
            out["content"] = [
                _input_text(part) if isinstance(part, str) else part for part in content
            ]
        return {**out, **own_fields("responses", turn.extra)}

    def _content(self, turn: Turn, part: Part, where: str) -> object:
        match part:
            case Text():
                return self._text(turn, part)
            case Refusal():
                if turn.role == "assistant":
                    return {
                        "type": "refusal",
                        "refusal": part.text,
                        **own_fields("responses", part.extra),
                    }
                return part.text
            case Media():
                return self._media(turn, part, where)
            case Opaque():
                return part.raw
            case _:
                raise AssertionError("other parts are items of their own")

    def _text(self, turn: Turn, part: Text) -> object:
        """Return a string if the part is plain text, else a content part."""
        own = {**breakpoint_fields(part.cache), **own_fields("responses", part.extra)}
        if turn.role != "assistant":
            return {**_input_text(part.text), **own} if own else part.text
        if not part.annotations and part.logprobs is None and not own:
            return part.text
        items = ItemWriter(self._mint, self._book)
        out: JsonObject = {**_output_text(part.text), "annotations": items.annotations(part)}
        if part.logprobs is not None:
            out["logprobs"] = part.logprobs
        return {**out, **own}

    def _media(self, turn: Turn, part: Media, where: str) -> object:
        fields = media_fields(part)
        is_known = part.kind in ("image", "file") and turn.role != "assistant"
        if fields is not None and (is_known or self._is_native):
            return fields
        code = "audio_input" if part.kind == "audio" else "media_input"
        if turn.role == "assistant":
            code = "assistant_media"
        action = self._book.note(code, where, part.media_type or part.kind)
        return self._text(turn, Text(text=f"[{part.kind}]")) if action == "carry" else None

    # --- other items -------------------------------------------------------------------------------------------------

    def _item(self, part: Part, turn: Turn, where: str) -> object:
        match part:
            case Reasoning():
                return self._reasoning(part, turn, where)
            case Call():
                return self._call(part, turn, where)
            case Result():
                return self._result(part, turn, where)
            case Opaque() if self._loaded.is_foreign(part):
                self._loaded.leave_out(part, where)
                return None
            case Opaque():
                return ItemWriter(self._mint, self._book).opaque(part)
            case _:
                raise AssertionError("other parts are content of messages")

    def _reasoning(self, part: Reasoning, turn: Turn, where: str) -> JsonObject | None:
        own, foreign = split_family(part.seals, "openai")
        if foreign:
            self._book.note("foreign_seal", where)
        is_known = (part.item_id or "").startswith(PREFIXES["reasoning"]) and not foreign
        if not own and not is_known:
            # OpenAI accepts only reasoning that it sealed or stored itself.
            if not foreign:
                self._book.note("reasoning_text", where)
            return None
        # OpenAI verifies a seal together with its item's id and refuses a wrong id; no id is better than a wrong one.
        bound = next((seal.item_id for seal in own if seal.item_id is not None), None)
        item_id = part.item_id if is_known or self._is_native else bound
        fields = reasoning_fields(part, seal_to_encrypted(own))
        return self._finish(fields, "reasoning", item_id, turn)

    def _call(self, part: Call, turn: Turn, where: str) -> JsonObject | None:
        spec = call_spec(part, is_native=self._is_native)
        is_search = self._is_plain and part.kind == "tool_search"
        if spec is None or is_search or not self._is_ours(part, spec.type):
            # Only the provider that made a provider call accepts it on replay.
            self._book.note("provider_call", where, part.name)
            return None
        if part.seals:
            self._book.note("call_seal", where, part.name)
        self._written[part.call_id] = spec.kind
        call = replace(
            part,
            call_id=alias_id(part.call_id, self._ids),
            # Tools on a server of the provider keep their names.
            name=self._names.wire(part.name, part.namespace) if spec.kind in _NAMED else part.name,
        )
        fields = call_fields(call, spec)
        if part.executor == "provider" and spec.has_status and not self._is_native:
            # The status of an item that was in this dialect's request is the status of its turn.
            fields["status"] = call_status(spec, part.status)
        return self._finish(fields, spec.type, part.item_id, turn)

    def _is_ours(self, part: Call | Result, kind: str) -> bool:
        """Whether a call or a result may be sent: one of a provider must come from this dialect, as its id shows."""
        if part.executor != "provider" or self._is_native:
            return True
        return (part.item_id or "").startswith(PREFIXES[kind])

    def _result(self, part: Result, turn: Turn, where: str) -> JsonObject | None:
        kind = self._written.get(part.call_id, part.kind)
        spec = RESULT_OF_KIND.get(kind) or result_spec(part)
        is_search = self._is_plain and part.kind == "tool_search"
        if spec is None or is_search or not self._is_ours(part, spec.type):
            self._book.note("provider_result", where, part.kind)
            return None
        alias = alias_id(part.call_id, self._ids) if part.call_id else ""
        content = self._own_content(part, where)
        fields = result_fields(replace(part, call_id=alias, content=content), spec)
        if spec.kind == "apply_patch":
            fields["status"] = "failed" if part.is_error else "completed"
            return self._finish(fields, spec.type, part.item_id, replace(turn, status=None))
        if part.is_error and spec.has_status:
            turn = replace(turn, status="incomplete")
        return self._finish(fields, spec.type, part.item_id, turn)

    def _own_content(self, result: Result, where: str) -> tuple[Text | Media | Opaque, ...]:
        """The content of a result, without parts that only another dialect understands, or with their text."""
        if not result.content:
            return ()
        content = self._loaded.described(result, where)
        parts = [
            note_opaque(self._book, "opaque_part", where, part)
            if isinstance(part, Opaque) and part.dialect != "responses"
            else part
            for part in content
        ]
        return tuple([part for part in parts if part is not None])

    def _finish(self, fields: JsonObject, kind: str, item_id: str | None, turn: Turn) -> JsonObject:
        is_fine = kind not in STRICT_PREFIXES or (item_id or "").startswith(PREFIXES[kind])
        if item_id is not None and is_fine:
            fields["id"] = item_id
        if turn.status is not None and len(turn.parts) == 1:
            fields["status"] = turn.status
        return fields


def _input_text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": []}


def _turn_of(item: TypedItem) -> Turn | None:
    if item.type == "message":
        return _plain_message(item)
    if item.role is not UNSET or item.content is not UNSET or not item.call_id:
        return None
    return _call(item) if item.type == "function_call" else _output(item)


read_typed, read_all_typed = typed_readers(TypedItem, _turn_of)


def _plain_message(item: TypedItem) -> Turn | None:
    content, role = item.content, item.role
    if (
        role is UNSET
        or content is UNSET
        or item.call_id is not UNSET
        or item.name is not UNSET
        or item.arguments is not UNSET
        or item.output is not UNSET
        or item.namespace is not UNSET
    ):
        return None
    return Turn(
        role=role,
        parts=(Text(text=content),)
        if isinstance(content, str)
        else tuple(Text(text=part.text) for part in content),
        item_id=item.id or None,
        status=item.status,
    )


def _call(item: TypedItem) -> Turn | None:
    call_id, name, source = item.call_id, item.name, item.arguments
    if call_id is UNSET or name is UNSET or source is UNSET or item.output is not UNSET:
        return None
    if not name:
        return None
    call = Call(
        call_id=call_id,
        name=name,
        input=source,
        namespace=item.namespace or None,
        status=PART_STATUS.get(item.status or "", "completed"),
        item_id=item.id or None,
    )
    return Turn(role="assistant", parts=(call,), status=item.status)


def _output(item: TypedItem) -> Turn | None:
    call_id, output = item.call_id, item.output
    if (
        call_id is UNSET
        or output is UNSET
        or item.name is not UNSET
        or item.arguments is not UNSET
        or item.namespace is not UNSET
    ):
        return None
    text, is_error = unmark_error(output)
    result = Result(
        call_id=call_id,
        content=(Text(text=text),),
        is_error=is_error,
        status=PART_STATUS.get(item.status or "", "completed"),
        item_id=item.id or None,
    )
    return Turn(role="tool", parts=(result,), status=item.status)


_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "developer",
    "system": "system",
    "user": "user",
}
_DEVELOPERS = frozenset({"additional_tools", "compaction_trigger", "configuration_update"})
_DECLARING = frozenset({"additional_tools", "tool_search_output"})


class EarlierItems(Struct, frozen=True):
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    namespaces: tuple[Namespace, ...] = ()


def read_history(value: Raw | None, name: str = "input") -> EarlierItems:
    """Read `input`: a string, or a list of items. `name`: of the field, for messages.

    Raises:
        RequestRefused: an item cannot be used.
    """
    typed = None if value is None else read_all_typed(value)
    if typed is not None:
        return EarlierItems(typed)
    found = None if value is None else read_shallow(value)
    if found is None:
        return EarlierItems()
    if isinstance(found, str):
        return EarlierItems((Turn(role="user", parts=(Text(text=replace_lone(found)),)),))
    if not isinstance(found, list):
        refuse(name, "a string or an array", value)
    turns: list[Turn] = []
    tools: list[Tool] = []
    namespaces: list[Namespace] = []
    for number, entry in enumerate(found):
        plain = read_typed(entry)
        if plain is not None:
            turns.append(plain)
            continue
        where = f"{name}[{number}]"
        fields = need_object(entry, where)
        kind = ask_text(fields, "type", where)
        turns.append(_turn(kind, entry, fields, where))
        if kind in _DECLARING and "tools" in fields:
            declared = read_tools(fields["tools"], f"{where}.tools", "input")
            tools.extend(declared.tools)
            namespaces.extend(declared.namespaces)
    return EarlierItems(tuple(turns), tuple(tools), tuple(namespaces))


def _turn(kind: str | None, entry: Raw, fields: Fields, where: str) -> Turn:
    if kind == "message" or (kind is None and "role" in fields):
        return _message(fields, where)
    if kind is None:
        if read_text(fields.get("id")) is None:
            refuse(f"{where}.type", "the type of an item", fields.get("type"))
        return Turn(role="assistant", parts=(_reference(entry, fields),))
    part = read_item(entry, fields)
    if isinstance(part, Call):
        _check_call(part, kind, fields, where)
    if isinstance(part, Reasoning):
        part = _with_sections(part, fields)
    role = _role(part)
    return Turn(role=role, parts=(part,), status=read_text(fields.get("status")))


def _reference(entry: Raw, fields: Fields) -> Opaque:
    return Opaque(
        dialect="responses", type="item_reference", raw=entry, item_id=read_text(fields.get("id"))
    )


def _with_sections(part: Reasoning, fields: Fields) -> Reasoning:
    """Keep the raw sections of reasoning if they have more fields than type and text."""
    kept = {
        name: fields[name]
        for name in ("summary", "content")
        if any(entry.keys() - {"type", "text"} for entry in read_objects(fields.get(name)))
    }
    return (
        replace(part, extra=Extra("responses", {**own_fields("responses", part.extra), **kept}))
        if kept
        else part
    )


def _role(part: Part) -> Role:
    if isinstance(part, Result):
        return "tool"
    is_developer = isinstance(part, Opaque) and part.type in _DEVELOPERS
    return "developer" if is_developer else "assistant"


def _check_call(call: Call, kind: str, fields: Fields, where: str) -> None:
    if not call.name:
        refuse(f"{where}.name", "the name of the tool", fields.get("name"))
    spec = CALL_ITEMS[kind]
    value = fields.get(spec.field)
    if spec.kind == "custom" and is_present(value) and read_fragment(value) is None:
        refuse(f"{where}.{spec.field}", "a string", value)


def _message(fields: Fields, where: str) -> Turn:
    role = _ROLES.get(ask_text(fields, "role", where) or "")
    if role is None:
        refuse(f"{where}.role", "user, assistant, system or developer", fields.get("role"))
    return Turn(
        role=role,
        parts=_content(fields.get("content"), f"{where}.content"),
        item_id=read_text(fields.get("id")) or None,
        status=read_text(fields.get("status")),
        extra=extra_of("responses", fields, MESSAGE_FIELDS),
    )


def _content(value: Raw | None, where: str) -> tuple[Part, ...]:
    found = None if value is None else read_shallow(value)
    if found is None:
        return ()
    if isinstance(found, str):
        return (Text(text=replace_lone(found)),)
    if not isinstance(found, list):
        refuse(where, "a string or an array", value)
    parts: list[Part] = []
    for number, entry in enumerate(found):
        path = f"{where}[{number}]"
        fields = need_object(entry, path)
        if ask_text(fields, "type", path) is None:
            refuse(f"{path}.type", "the type of a content part", fields.get("type"))
        parts.append(read_content(entry, fields))
    return tuple(parts)


_FIELDS = ("tool_outputs", "stream")


def read_submitted(body: bytes, calls: Iterable[Call]) -> Request:
    """Return a request with only the results as turns. `calls`: the calls that the response waits for.

    Raises:
        RequestRefused: the body has another shape, or a call is unknown, answered twice or unanswered; names the call.
    """
    try:
        fields = as_object(body)
    except MalformedJson as error:
        raise RequestRefused(f"body: {error.message}") from error
    for name in fields:
        if name not in _FIELDS:
            _refuse(name, f"expected no field but {' and '.join(_FIELDS)}, got {name!r}")
    waiting = {call.call_id: call for call in calls}
    results: dict[str, Result] = {}
    for number, entry in enumerate(ask_list(fields, "tool_outputs") or ()):
        where = f"tool_outputs[{number}]"
        result = _result(need_object(entry, where), where, waiting)
        if result.call_id in results:
            _refuse(
                f"{where}.tool_call_id",
                f"expected one output for each call, got a second for {result.call_id!r}",
            )
        results[result.call_id] = result
    missing = [call_id for call_id in waiting if call_id not in results]
    if missing:
        _refuse(
            "tool_outputs", f"expected an output for every call, got none for {', '.join(missing)}"
        )
    return Request(
        turns=tuple(Turn(role="tool", parts=(result,)) for result in results.values()),
        stream=ask_bool(fields, "stream") is True,
        extra=Extra("responses", {}),
    )


def _result(fields: Fields, where: str, waiting: Mapping[str, Call]) -> Result:
    call_id = read_text(fields.get("tool_call_id")) or read_text(fields.get("call_id"))
    if not call_id:
        refuse(f"{where}.tool_call_id", "the id of a call", fields.get("tool_call_id"))
    call = waiting.get(call_id)
    if call is None:
        known = ", ".join(waiting) or "none"
        _refuse(
            f"{where}.tool_call_id",
            f"expected a call that the response waits for ({known}), got {call_id!r}",
        )
    has_failed = "output" not in fields and "error" in fields
    output = fields.get("error" if has_failed else "output")
    if output is None or (has_failed and not is_present(output)):
        refuse(f"{where}.output", "the output of the tool", output)
    spec = RESULT_OF_KIND.get(call.kind) or RESULT_OF_KIND["function"]
    result = read_result(spec, {spec.field: output}, "client")
    return replace(
        result,
        call_id=call_id,
        is_error=has_failed or result.is_error or ask_bool(fields, "is_error", where) is True,
    )


def _refuse(where: str, message: str) -> Never:
    raise RequestRefused(f"{where}: {message}", param=where)


_OTHER_PREFIX = "item_"


def list_items(turns: Sequence[Turn], seed: str) -> list[dict[str, object]]:
    """Return every item of the turns. Missing ids are derived from `seed` and the place: the same each time."""
    mint = Minter(seed)
    book = LossBook(LOSSES)
    names = NameMap.build((), (), DEFAULT_TARGET.names, flatten=False)
    items: list[dict[str, object]] = []
    for entry in InputItemWriter(names, DEFAULT_TARGET, book, is_native=True).write(turns):
        if not isinstance(entry, dict):
            continue  # an item of another vendor, which this list cannot hold
        fields = cast("dict[str, object]", entry)
        kind = str(fields.get("type", ""))
        minted = mint(PREFIXES.get(kind, _OTHER_PREFIX))
        item: dict[str, object] = {"id": minted, **fields}
        if kind == "message" and isinstance(fields.get("content"), str):
            part = "output_text" if fields.get("role") == "assistant" else "input_text"
            item["content"] = [{"type": part, "text": fields["content"]}]
        item.setdefault("status", "completed")
        items.append(item)
    return items
