"""Reads `messages` to turns, and writes turns as `messages`.

A regular message, as nearly all are, is read by its typed shape; any other is read field by field. Both ways give the same
turn for a regular message. Chat has no error flag for results, so the text carries the mark of `core.pairing`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import attrgetter

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.aliases import NameMap, ToolKey, alias_id
from dragoman.core.fields import (
    Fields,
    ask_list,
    ask_text,
    extra_of,
    first_text,
    is_object,
    join_object,
    need_object,
    own_fields,
    present,
    read_fragment,
    read_items,
    read_present,
    refuse,
    typed_readers,
)
from dragoman.core.freeform import wrap_input
from dragoman.core.loaded_tools import LoadedTools
from dragoman.core.losses import LossBook, note_opaque
from dragoman.core.pairing import bare_text, mark_error, unmark_error
from dragoman.dialects.chat.content import (
    ContentPart,
    join_sealed,
    put_breakpoint,
    read_part,
    read_sealed,
    seal_content,
    write_media,
    write_text,
)
from dragoman.dialects.chat.entries import CallEntry, legacy_entry, read_entry
from dragoman.dialects.chat.losses import note_extra, note_foreign
from dragoman.dialects.chat.wire import (
    CACHE_CONTROL,
    CALL_FIELDS,
    LEGACY_CHOICE,
    MESSAGE_FIELDS,
    REASONING_FIELDS,
    SEALED_FIELDS,
    TypedMessage,
)
from dragoman.dialects.codec import Target
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import Repair
from dragoman.model.parts import (
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import Role, Tool, Turn

_Message = dict[str, object]
_Entry = dict[str, object] | Raw  # of a content list
_Content = str | list[_Entry]

_is_head = attrgetter("head")
# Stands between texts that are separate items in other dialects and share a message here.
_BETWEEN = "\n\n"


def wire_name(call: Call) -> ToolKey:
    """Return the namespace and the name of a call. A call without a name gets the name of its kind."""
    return call.namespace, call.name or call.kind


class MessageWriter:
    """Writes `messages` of one request. `is_own`: it came in this dialect."""

    def __init__(
        self,
        names: NameMap,
        target: Target,
        book: LossBook,
        tools: tuple[Tool, ...] = (),
        *,
        is_own: bool,
    ) -> None:
        self._tools = tools
        self._names = names
        self._target = target
        self._book = book
        self._is_own = is_own
        self._has_custom = "custom" in target.builtin
        self._legacy_ids: set[str] = set()  # of the calls that were written as `function_call`
        self.repairs: list[Repair] = []

    @cached_property
    def _loaded(self) -> LoadedTools:
        return LoadedTools(self._tools, self._names, "chat", self._book, note_foreign)

    def write(self, turns: Sequence[Turn]) -> list[_Message]:
        messages: list[_Message] = []
        for index, turn in enumerate(sorted(turns, key=_is_head, reverse=True)):
            text = bare_text(turn)
            if text is None:
                messages.extend(self._turn(turn, f"turns[{index}]"))
            else:
                messages.append({"role": self._role(turn), "content": text})
        if self._target.user_first:
            self._put_user_first(messages)
        return messages

    def _put_user_first(self, messages: list[_Message]) -> None:
        first = next(
            (at for at, each in enumerate(messages) if each["role"] not in _SYSTEM_ROLES),
            len(messages),
        )
        if first == len(messages) or messages[first]["role"] != "user":
            messages.insert(first, {"role": "user", "content": ""})
            self.repairs.append(Repair("user_first", f"messages[{first}]"))

    def _turn(self, turn: Turn, where: str) -> Iterable[_Message]:
        note_foreign(self._book, turn.extra, where)
        if turn.role == "tool":
            return self._results(turn, where)
        message: _Message | None
        if turn.role == "assistant":
            message = self._assistant(turn, where)
            if message is None:
                return ()
        elif turn.role == "user":
            message = {"role": "user", "content": self._content(turn.parts, where)}
        else:
            message = {"role": self._role(turn), "content": self._plain(turn.parts, where)}
            if not message["content"] and not self._is_own:
                return ()  # nothing of the turn could be written
        if turn.name is not None:
            message["name"] = turn.name
        put_breakpoint(message, self._cache(turn.cache, where))
        return (message | own_fields("chat", turn.extra),)

    def _role(self, turn: Turn) -> str:
        """Return the role to write: only OpenAI has `developer`, and every server has `system`."""
        return turn.role if self._is_own or turn.role != "developer" else "system"

    # --- content ------------------------------------------------------------------------------------------------------

    def _content(self, parts: Iterable[Part], where: str) -> _Content:
        """Return a string for a single text, else a list."""
        written = (self._part(part, where) for part in parts)
        entries = [entry for entry in written if entry is not None]
        if not entries:
            return ""
        text = _bare_text(entries[0])
        return entries if text is None or len(entries) > 1 else text

    def _plain(self, parts: Iterable[Part], where: str) -> _Content:
        """Return content where most servers accept only strings: join several texts, unless they came as a Chat list."""
        content = self._content(parts, where)
        if isinstance(content, str) or self._is_own:
            return content
        texts = [_bare_text(entry) for entry in content]
        joined = [text for text in texts if text is not None]
        return _BETWEEN.join(joined) if len(joined) == len(texts) else content

    def _part(self, part: Part, where: str) -> _Entry | None:
        match part:
            case Text():
                note_foreign(self._book, part.extra, where)
                if part.annotations:
                    self._book.note("annotation", where)
                if part.logprobs is not None:
                    self._book.note("logprobs", where)
                return write_text(part, self._cache(part.cache, where))
            case Media():
                written = self._media(part, where)
                if written is None:
                    self._book.note("media", where, _described(part))
                return written
            case Opaque() if part.dialect == "chat":
                return part.raw
            case Opaque() if part.tools:
                self._loaded.leave_out(part, where)
            case Opaque():
                text = note_opaque(self._book, "opaque_part", where, part)
                return None if text is None else write_text(text, None)
            case _:
                self._book.note("opaque_part", where, type(part).__name__.lower())
        return None

    def _media(self, media: Media, where: str) -> _Entry | None:
        note_foreign(self._book, media.extra, where)
        return write_media(media, self._cache(media.cache, where))

    def _cache(self, cache: Breakpoint | None, where: str) -> Breakpoint | None:
        if cache is None or self._is_own or not cache.alone:
            return cache
        return cache if self._book.note("cache_control", where) == "carry" else None

    # --- assistant ----------------------------------------------------------------------------------------------------

    def _assistant(self, turn: Turn, where: str) -> _Message | None:
        content_parts: list[Part] = []
        refusals: list[str] = []
        thoughts: list[Reasoning] = []
        calls: list[Call] = []
        message: _Message = {"role": "assistant"}
        for part in turn.parts:
            match part:
                case Reasoning():
                    thoughts.append(part)
                case Call() if part.executor == "client":
                    calls.append(part)
                case Call():
                    self._book.note("provider_call", where, part.name)
                case Result():
                    self._book.note("provider_result", where)
                case Refusal():
                    note_extra(self._book, part.extra, where)
                    refusals.append(part.text)
                case Media(kind="audio", data=None) if part.item_id and "audio" not in message:
                    message["audio"] = {"id": part.item_id, **own_fields("chat", part.extra)}
                case Media() if write_media(part, None) is None:
                    self._book.note("assistant_media", where, _described(part))
                case _:
                    content_parts.append(part)
        if refusals:
            message["refusal"] = _BETWEEN.join(refusals)
        content = self._plain(content_parts, where)
        message |= self._reasoning(thoughts, where)
        is_empty = not content and not calls and len(message) == 1
        if is_empty and not self._is_own:
            return None
        has_more = calls or "refusal" in message or "audio" in message
        message["content"] = content or (None if has_more else "")
        self._add_calls(message, calls, where)
        return message

    def _reasoning(self, thoughts: Sequence[Reasoning], where: str) -> _Message:
        for part in thoughts:
            note_foreign(self._book, part.extra, where)
        fields = [own_fields("chat", part.extra) for part in thoughts]
        out: _Message = {**join_sealed(fields)}
        texts = [text for part in thoughts for text in (*part.summary, *part.content) if text]
        if not out and any(part.seals for part in thoughts):
            self._book.note("seal", where)
        if not texts:
            return out
        if not self._is_own and self._book.note("reasoning_history", where) != "carry":
            return {}
        names = (name for own in fields for name in REASONING_FIELDS if name in own)
        return {next(names, "reasoning_content"): _BETWEEN.join(texts), **out}

    def _add_calls(self, message: _Message, calls: Sequence[Call], where: str) -> None:
        legacy = [call for call in calls if LEGACY_CHOICE in own_fields("chat", call.extra)]
        if legacy and len(calls) == 1:
            arguments = legacy[0].input.strip() and legacy[0].input
            name = self._names.wire(legacy[0].name)
            own = own_fields("chat", legacy[0].extra)
            more = {field: raw for field, raw in own.items() if field != LEGACY_CHOICE}
            message[LEGACY_CHOICE] = {"name": name, "arguments": arguments or "{}", **more}
            self._legacy_ids.add(legacy[0].call_id)
        elif calls:
            message["tool_calls"] = [self._call(call, where) for call in calls]

    def _call(self, call: Call, where: str) -> _Message:
        note_foreign(self._book, call.extra, where)
        cache = self._cache(call.cache, where)
        namespace, name = wire_name(call)
        if namespace is not None:
            self._book.note("namespace", where, namespace)
        out: _Message = {"id": alias_id(call.call_id, self._target.ids)}
        wire = self._names.wire(name, namespace)
        if call.kind == "custom" and self._has_custom:
            out |= {"type": "custom", "custom": {"name": wire, "input": call.input}}
        else:
            arguments = call.input if call.input.strip() else "{}"
            if call.kind == "custom":
                self._book.note("custom_tool", where, name)
                arguments = wrap_input(call.input)
            elif call.kind != "function":
                self._book.note("call_kind", where, call.kind)
            out |= {"type": "function", "function": {"name": wire, "arguments": arguments}}
        for seal in call.seals:
            content = seal_content(seal)
            if content is None:
                self._book.note("seal", where, seal.kind)
            else:
                out["extra_content"] = content
        put_breakpoint(out, cache)
        for field, raw in own_fields("chat", call.extra).items():
            inner = out.get(field)
            if isinstance(inner, dict):
                out[field] = {**inner, **read_present(raw)}
            elif field != LEGACY_CHOICE:
                out[field] = raw
        return out

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self, turn: Turn, where: str) -> Iterable[_Message]:
        moved: list[_Entry] = []
        for index, part in enumerate(turn.parts):
            if isinstance(part, Result) and part.executor == "client":
                yield self._result(part, f"{where}.parts[{index}]", moved)
            else:
                self._book.note("provider_result", f"{where}.parts[{index}]")
        if moved:
            heading: _Entry = {"type": "text", "text": "What the tools above gave back:"}
            yield {"role": "user", "content": [heading, *moved]}

    def _result(self, result: Result, where: str, moved: list[_Entry]) -> _Message:
        note_foreign(self._book, result.extra, where)
        own = dict(own_fields("chat", result.extra))
        given = self._loaded.described(result, where)
        parts = given if self._is_own else self._move(given, where, moved)
        content = self._plain(parts, where)
        if result.is_error:
            content = self._mark(content, where)
        is_legacy = own.pop(LEGACY_CHOICE, None) is not None
        if is_legacy and result.call_id in self._legacy_ids:
            message: _Message = {"role": "function", "name": result.name or "", "content": content}
        else:
            call_id = alias_id(result.call_id, self._target.ids)
            message = {"role": "tool", "tool_call_id": call_id, "content": content}
            if result.name is not None and self._is_own:
                message["name"] = result.name
        put_breakpoint(message, self._cache(result.cache, where))
        return message | own

    def _move(self, parts: Iterable[Part], where: str, moved: list[_Entry]) -> Iterable[Part]:
        """Return a result's content with its media moved to `moved`, and a line of text in place of each."""
        for part in parts:
            entry = self._media(part, where) if isinstance(part, Media) else None
            if entry is None or not isinstance(part, Media):
                yield part
                continue
            self._book.note("result_media", where, part.kind)
            moved.append(entry)
            yield Text(text=f"[{part.kind} {len(moved)} of the next message]")

    def _mark(self, content: _Content, where: str) -> _Content:
        """Write the error flag in front of the first text."""
        if not self._is_own:
            self._book.note("error_flag", where)
        if isinstance(content, str):
            return mark_error(content)
        first = content[0]
        text = first.get("text") if isinstance(first, dict) else None
        if isinstance(first, dict) and isinstance(text, str):
            return [{**first, "text": mark_error(text)}, *content[1:]]
        return [{"type": "text", "text": mark_error("")}, *content]


_SYSTEM_ROLES = frozenset({"system", "developer"})


def _described(media: Media) -> str:
    """Describe the kind of media and how it is referred to."""
    by = "file_id" if media.file_id is not None else "url" if media.url is not None else "data"
    return f"{media.kind} by {by}"


def _bare_text(entry: _Entry) -> str | None:
    """Return the text of an entry that has only a text; else None."""
    if not isinstance(entry, dict) or entry.keys() != {"type", "text"}:
        return None
    text = entry["text"]
    return text if isinstance(text, str) else None


def _turn_of(message: TypedMessage) -> Turn | None:
    """Return the turn; None if a field has no meaning for the message's role."""
    content = message.content
    texts: tuple[Text, ...]
    if isinstance(content, str):
        texts = (Text(text=content),) if content else ()
    else:
        texts = tuple(Text(text=part.text) for part in content or ())
    calls = message.tool_calls
    if message.role == "tool":
        return _result(message, texts) if calls is None else None
    if message.tool_call_id is not None:
        return None
    if calls is None:
        return Turn(role=message.role, parts=texts, name=message.name)
    if message.role != "assistant" or not all(call.function.name for call in calls):
        return None
    parts = (
        Call(call_id=call.id, name=call.function.name, input=call.function.arguments)
        for call in calls
    )
    return Turn(role="assistant", parts=(*texts, *parts), name=message.name)


read_typed, read_all_typed = typed_readers(TypedMessage, _turn_of)


def _result(message: TypedMessage, texts: tuple[Text, ...]) -> Turn:
    is_error = False
    if texts:
        text, is_error = unmark_error(texts[0].text)
        if is_error:
            texts = (Text(text=text), *texts[1:]) if text else texts[1:]
    result = Result(
        call_id=message.tool_call_id or "", content=texts, is_error=is_error, name=message.name
    )
    return Turn(role="tool", parts=(result,))


_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_MARK = Extra("chat", {LEGACY_CHOICE: Raw(b"true")})


def read_turns(fields: Fields, key: str) -> tuple[Turn, ...]:
    """Read `messages`. Raises RequestRefused for a message that cannot be read, and for an empty list."""
    value = fields[key]
    turns = read_all_typed(value)
    if turns:
        return turns
    messages = ask_list(fields, key)
    if not messages:
        refuse(key, "at least one message", value)
    reader = _TurnReader()
    return tuple(reader.read(message, f"{key}[{index}]") for index, message in enumerate(messages))


class _TurnReader:
    def __init__(self) -> None:
        self._legacy_calls = 0
        self._unanswered: dict[str, deque[str]] = {}  # ids of legacy calls by name

    def read(self, message: Raw, path: str) -> Turn:
        plain = read_typed(message)
        if plain is not None:
            return plain
        fields = present(need_object(message, path))
        name = ask_text(fields, "role", path)
        role = _ROLES.get(name or "")
        if role is None:
            refuse(f"{path}.role", f"one of {', '.join(_ROLES)}", fields.get("role"))
        cache = CACHE_CONTROL.read(fields.get("cache_control"))
        content = _read_content(fields, path)
        if role == "tool":
            result = self._result(fields, content, path, is_legacy=name == "function")
            return Turn(role="tool", parts=(result,))
        parts: tuple[Part, ...] = content
        if role == "assistant":
            parts = self._assistant(fields, content, path)
        if cache is not None and parts:
            # A cache breakpoint on the message replaces one on its last part: both mark the same place.
            parts = (*parts[:-1], _without_cache(parts[-1]))
        return Turn(
            role=role,
            parts=parts,
            name=ask_text(fields, "name", path),
            cache=cache,
            extra=extra_of("chat", fields, MESSAGE_FIELDS.get(role, MESSAGE_FIELDS["user"])),
        )

    def _assistant(
        self, fields: Fields, content: tuple[ContentPart, ...], path: str
    ) -> tuple[Part, ...]:
        parts: list[Part] = [*_read_reasoning(fields), *content]
        refusal = ask_text(fields, "refusal", path)
        if refusal:
            parts.append(Refusal(text=refusal))
        audio = read_present(fields.get("audio"))
        if audio:
            extra = extra_of("chat", audio, ("id",))
            parts.append(Media(kind="audio", item_id=read_fragment(audio.get("id")), extra=extra))
        if LEGACY_CHOICE in fields:
            parts.append(self._legacy_call(fields[LEGACY_CHOICE], path))
        for index, raw in enumerate(ask_list(fields, "tool_calls", path) or ()):
            parts.append(_read_call(raw, f"{path}.tool_calls[{index}]"))
        return tuple(parts)

    def _legacy_call(self, raw: Raw, path: str) -> Call:
        entry = _entry(legacy_entry, raw, f"{path}.{LEGACY_CHOICE}")
        if not entry.name:
            refuse(f"{path}.{LEGACY_CHOICE}.name", "a name", read_present(raw).get("name"))
        self._legacy_calls += 1
        call_id = f"call_function_{self._legacy_calls}"
        self._unanswered.setdefault(entry.name, deque()).append(call_id)
        extra = Extra("chat", {**entry.extra, **_MARK.fields}) if entry.extra else _MARK
        return Call(call_id=call_id, name=entry.name, input=_input(entry), extra=extra)

    def _result(
        self, fields: Fields, content: tuple[ContentPart, ...], path: str, *, is_legacy: bool
    ) -> Result:
        name = ask_text(fields, "name", path)
        call_id = ask_text(fields, "tool_call_id", path) or ""
        extra = extra_of("chat", fields, MESSAGE_FIELDS["tool"])
        if is_legacy:
            waiting = self._unanswered.get(name or "")
            call_id = waiting.popleft() if waiting else call_id
            extra = Extra("chat", {**own_fields("chat", extra), **_MARK.fields})
        kept, is_error = _unmark(content)
        return Result(
            call_id=call_id,
            content=kept,
            is_error=is_error,
            name=name,
            cache=CACHE_CONTROL.read(fields.get("cache_control")),
            extra=extra,
        )


def _read_content(fields: Fields, path: str) -> tuple[ContentPart, ...]:
    content = fields.get("content")
    text = read_fragment(content)
    if text is not None:
        return (Text(text=text),) if text else ()
    parts: list[ContentPart] = []
    for index, item in enumerate(ask_list(fields, "content", path) or ()):
        text = read_fragment(item)
        if text is not None:
            parts.append(Text(text=text))
        elif is_object(item):
            part = read_part(item)
            if isinstance(part, Opaque):
                _check_entry(part, f"{path}.content[{index}]")
            parts.append(part)
        else:
            refuse(f"{path}.content[{index}]", "an object", item)
    return tuple(parts)


def _check_entry(entry: Opaque, path: str) -> None:
    """Refuse an entry of a content list that no server understands: one without a type, and a text without its text."""
    if not entry.type:
        refuse(f"{path}.type", "a string", read_present(entry.raw).get("type"))
    if entry.type == "text":
        refuse(f"{path}.text", "a string", read_present(entry.raw).get("text"))


def _read_reasoning(fields: Fields) -> tuple[Reasoning, ...]:
    field = next((name for name in REASONING_FIELDS if read_fragment(fields.get(name))), None)
    sealed = {name: fields[name] for name in SEALED_FIELDS if name in fields}
    entries = [read_sealed(raw) for value in sealed.values() for raw in read_items(value)]
    text = first_text(fields, REASONING_FIELDS) or "".join(entry.text for entry in entries)
    if not text and not sealed:
        return ()
    extra = dict(sealed)
    if field not in (None, "reasoning_content"):
        extra[field] = Raw(b'""')
    seals: tuple[Seal, ...] = tuple(entry.seal for entry in entries if entry.seal is not None)
    return (
        Reasoning(
            summary=(text,) if text else (),
            seals=seals,
            extra=Extra("chat", extra) if extra else None,
        ),
    )


def _read_call(raw: Raw, path: str) -> Call | Opaque:
    if not is_object(raw):
        refuse(path, "an object", raw)
    entry = _entry(read_entry, raw, path)
    if not entry.name:
        kind = read_fragment(read_present(raw).get("type")) or ""
        if kind not in ("", "function", "custom"):
            return Opaque(dialect="chat", type=kind, raw=raw)
        refuse(f"{path}.function.name", "a name", None)
    seals: tuple[Seal, ...] = ()
    if entry.extra_content is not None:
        seals = (Seal("thought", bytes(entry.extra_content).decode("utf-8")),)
    kind = "custom" if entry.kind == "custom" else "function"
    within = extra_of("chat", read_present(read_present(raw).get(kind)), CALL_FIELDS)
    more = {**entry.extra, **({} if within is None else {kind: join_object(within.fields)})}
    return Call(
        call_id=entry.id,
        name=entry.name,
        input=_input(entry),
        kind=entry.kind or "function",
        seals=seals,
        extra=Extra("chat", more) if more else None,
    )


def _entry(read: Callable[[Raw], CallEntry], raw: Raw, path: str) -> CallEntry:
    try:
        return read(raw)
    except MalformedJson as error:
        raise RequestRefused(f"{path}: {error.message}", param=path, code="invalid_type") from error


def _input(entry: CallEntry) -> str:
    return entry.text if entry.value is None else bytes(entry.value).decode("utf-8")


def _unmark(content: tuple[ContentPart, ...]) -> tuple[tuple[Text | Media | Opaque, ...], bool]:
    """Return a result's content without the error mark, and whether it had the mark."""
    kept = tuple(Text(text=part.text) if isinstance(part, Refusal) else part for part in content)
    if not kept or not isinstance(kept[0], Text):
        return kept, False
    text, is_error = unmark_error(kept[0].text)
    if not is_error:
        return kept, False
    first = (replace(kept[0], text=text),) if text else ()
    return (*first, *kept[1:]), True


def _without_cache(part: Part) -> Part:
    match part:
        case Text() | Media():
            return replace(part, cache=None)
        case _:
            return part
