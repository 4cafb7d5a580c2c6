"""Messages of a request to turns: one turn per message.

Legacy calls (`function_call`) and their results (role `function`) have no ids; they are given some, so that they pair
by name and order. Marks in `extra` remember the form.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.results import unmark_error
from dragoman.dialects.chat.checks import Fields, ask_array, ask_string, refuse
from dragoman.dialects.chat.content import ContentPart, read_part
from dragoman.dialects.chat.entries import CallEntry, legacy_entry, read_entry
from dragoman.dialects.chat.fields import (
    extra_of,
    fields_of,
    first_text,
    is_object,
    items_of,
    join_object,
    own_fields,
    text_of,
)
from dragoman.dialects.chat.plain_turn import read_plain
from dragoman.dialects.chat.sealed import read_sealed
from dragoman.dialects.chat.wire import (
    CALL_FIELDS,
    LEGACY_CHOICE,
    MESSAGE_FIELDS,
    REASONING_FIELDS,
    SEALED_FIELDS,
)
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.parts import (
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
from dragoman.model.request import Role, Turn

__all__ = ("read_turns",)

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_MARK = Extra("chat", {LEGACY_CHOICE: Raw(b"true")})


def read_turns(messages: list[Raw]) -> tuple[Turn, ...]:
    """Raises RequestRefused for a message that cannot be read."""
    reader = _TurnReader()
    return tuple(
        reader.read(message, f"messages[{index}]") for index, message in enumerate(messages)
    )


class _TurnReader:
    def __init__(self) -> None:
        self._legacy_calls = 0
        self._unanswered: dict[str, list[str]] = {}  # ids of legacy calls by name

    def read(self, message: Raw, path: str) -> Turn:
        plain = read_plain(message)
        if plain is not None:
            return plain
        if not is_object(message):
            refuse(path, "an object", message)
        fields = fields_of(message)
        name = ask_string(fields, "role", f"{path}.")
        role = _ROLES.get(name or "")
        if role is None:
            refuse(f"{path}.role", f"one of {', '.join(_ROLES)}", fields.get("role"))
        cache = fields.get("cache_control")
        content = _read_content(fields, path)
        if role == "tool":
            result = self._result(fields, content, path, is_legacy=name == "function")
            return Turn(role="tool", parts=(result,))
        parts: tuple[Part, ...] = content
        if role == "assistant":
            parts = self._assistant(fields, content, path)
        if cache is not None and parts:
            # The message's own breakpoint stands where that of its last part would.
            parts = (*parts[:-1], _without_cache(parts[-1]))
        return Turn(
            role=role,
            parts=parts,
            name=ask_string(fields, "name", f"{path}."),
            cache=cache,
            extra=extra_of(fields, MESSAGE_FIELDS.get(role, MESSAGE_FIELDS["user"])),
        )

    def _assistant(
        self, fields: Fields, content: tuple[ContentPart, ...], path: str
    ) -> tuple[Part, ...]:
        parts: list[Part] = [*_read_reasoning(fields), *content]
        refusal = ask_string(fields, "refusal", f"{path}.")
        if refusal:
            parts.append(Refusal(text=refusal))
        audio = fields_of(fields.get("audio"))
        if audio:
            extra = extra_of(audio, ("id",))
            parts.append(Media(kind="audio", item_id=text_of(audio.get("id")), extra=extra))
        if LEGACY_CHOICE in fields:
            parts.append(self._legacy_call(fields[LEGACY_CHOICE], path))
        for index, raw in enumerate(ask_array(fields, "tool_calls", f"{path}.") or ()):
            parts.append(_read_call(raw, f"{path}.tool_calls[{index}]"))
        return tuple(parts)

    def _legacy_call(self, raw: Raw, path: str) -> Call:
        entry = _entry(legacy_entry, raw, f"{path}.{LEGACY_CHOICE}")
        if not entry.name:
            refuse(f"{path}.{LEGACY_CHOICE}.name", "a name", fields_of(raw).get("name"))
        self._legacy_calls += 1
        call_id = f"call_function_{self._legacy_calls}"
        self._unanswered.setdefault(entry.name, []).append(call_id)
        extra = Extra("chat", {**entry.extra, **_MARK.fields}) if entry.extra else _MARK
        return Call(call_id=call_id, name=entry.name, input=_input(entry), extra=extra)

    def _result(
        self, fields: Fields, content: tuple[ContentPart, ...], path: str, *, is_legacy: bool
    ) -> Result:
        name = ask_string(fields, "name", f"{path}.")
        call_id = ask_string(fields, "tool_call_id", f"{path}.") or ""
        extra = extra_of(fields, MESSAGE_FIELDS["tool"])
        if is_legacy:
            waiting = self._unanswered.get(name or "")
            call_id = waiting.pop(0) if waiting else call_id
            extra = Extra("chat", {**own_fields(extra), **_MARK.fields})
        kept, is_error = _unmark(content)
        return Result(
            call_id=call_id,
            content=kept,
            is_error=is_error,
            name=name,
            cache=fields.get("cache_control"),
            extra=extra,
        )


def _read_content(fields: Fields, path: str) -> tuple[ContentPart, ...]:
    content = fields.get("content")
    text = text_of(content)
    if text is not None:
        return (Text(text=text),) if text else ()
    parts: list[ContentPart] = []
    for index, item in enumerate(ask_array(fields, "content", f"{path}.") or ()):
        text = text_of(item)
        if text is not None:
            parts.append(Text(text=text))
        elif is_object(item):
            parts.append(read_part(item))
        else:
            refuse(f"{path}.content[{index}]", "an object", item)
    return tuple(parts)


def _read_reasoning(fields: Fields) -> tuple[Reasoning, ...]:
    field = next((name for name in REASONING_FIELDS if text_of(fields.get(name))), None)
    sealed = {name: fields[name] for name in SEALED_FIELDS if name in fields}
    entries = [read_sealed(raw) for value in sealed.values() for raw in items_of(value)]
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
        kind = text_of(fields_of(raw).get("type")) or ""
        if kind not in ("", "function", "custom"):
            return Opaque(dialect="chat", type=kind, raw=raw)
        refuse(f"{path}.function.name", "a name", None)
    seals: tuple[Seal, ...] = ()
    if entry.extra_content is not None:
        seals = (Seal("thought", bytes(entry.extra_content).decode("utf-8")),)
    kind = "custom" if entry.kind == "custom" else "function"
    within = extra_of(fields_of(fields_of(raw).get(kind)), CALL_FIELDS)
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


def _unmark(
    content: tuple[ContentPart, ...],
) -> tuple[tuple[Text | Media | Opaque, ...], bool]:
    """A result's content without the mark of an error, and whether it had one."""
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
