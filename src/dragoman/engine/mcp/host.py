"""What a server may ask of the person who uses it: a login in a browser, and the questions of `elicitation/create`.

`Host` is the program that has the person: `dragoman run` in its terminal. The gateway has none, and questions are declined
there. Needs no SDK.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Literal, Protocol, cast

from msgspec import Struct

__all__ = ("Answer", "Field", "FieldKind", "Form", "Host", "Link", "form_from_schema", "read_value")

MAX_FIELDS = 50
"""Of one form. A person would not fill in more at a terminal, and a server that asks for it is broken."""
MAX_WORDS = 4000
"""Characters of a message or a description that are shown."""

FieldKind = Literal["string", "integer", "number", "boolean", "choice", "choices"]
_Schema = Mapping[str, object]

_TRUE = ("y", "yes", "true", "1", "on")
_FALSE = ("n", "no", "false", "0", "off")
_FORMATS: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(r"[^@\s]+@[^@\s]+"),
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "date": re.compile(r"\d{4}-\d{2}-\d{2}"),
    "date-time": re.compile(
        r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2})"
    ),
}


class Field(Struct, frozen=True, kw_only=True):
    """One value of a form. The numbers bound a number, the length of a text, or how many choices are made."""

    name: str
    kind: FieldKind
    title: str = ""
    description: str = ""
    choices: tuple[tuple[str, str], ...] = ()  # the value, and how it is shown
    format: str = ""
    least: float | None = None
    most: float | None = None
    default: object = None
    is_required: bool = False


class Form(Struct, frozen=True, kw_only=True):
    """Values that a server asks for."""

    message: str
    fields: tuple[Field, ...]


class Link(Struct, frozen=True, kw_only=True):
    """An address that a server asks the person to visit. What happens there is between the two of them."""

    message: str
    url: str


class Answer(Struct, frozen=True, kw_only=True):
    """`decline`: the person said no. `cancel`: they said nothing. `values`: of an accepted form."""

    action: Literal["accept", "decline", "cancel"]
    values: Mapping[str, object] = {}


class Host(Protocol):
    async def open_login(self, server: str, url: str) -> None:
        """Show the person where to log in for the server. Does not wait for the login."""
        ...

    async def elicit(self, server: str, question: Form | Link) -> Answer:
        """Ask the person what the server wants to know. May take as long as they need."""
        ...


def form_from_schema(message: str, schema: _Schema) -> Form:
    """The form that a `requestedSchema` describes: one object of plain values.

    Raises:
        ValueError: it asks for something else.
    """
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise ValueError("expected `properties`, an object")  # noqa: TRY004 - of a stranger's document, not of a call
    listed = schema.get("required", [])
    required = (
        set(map(str, cast("list[object]", listed))) if isinstance(listed, list) else set[str]()
    )
    named = cast("dict[str, object]", properties)
    if len(named) > MAX_FIELDS:
        raise ValueError(f"expected at most {MAX_FIELDS} fields, got {len(named)}")
    fields = tuple(_field(name, each, is_required=name in required) for name, each in named.items())
    return Form(message=message[:MAX_WORDS], fields=fields)


def _field(name: str, value: object, *, is_required: bool) -> Field:
    if not isinstance(value, dict):
        raise ValueError(f"expected a schema for {name!r}")  # noqa: TRY004 - the same
    schema = cast("_Schema", value)
    kind = schema.get("type")
    items = schema.get("items")
    choices = _choices(schema)
    if kind == "array" and isinstance(items, dict):
        choices = _choices(cast("_Schema", items))
        if not choices:
            raise ValueError(f"expected a list of choices for {name!r}")
        kind, bounds = "choices", ("minItems", "maxItems")
    elif choices:
        kind, bounds = "choice", ("", "")
    else:
        bounds = ("minLength", "maxLength") if kind == "string" else ("minimum", "maximum")
    if kind not in ("string", "integer", "number", "boolean", "choice", "choices"):
        raise ValueError(f"expected a plain value for {name!r}, got a schema of type {kind!r}")
    return Field(
        name=name,
        kind=kind,
        title=_text(schema, "title"),
        description=_text(schema, "description"),
        choices=choices,
        format=_text(schema, "format"),
        least=_bound(schema.get(bounds[0])),
        most=_bound(schema.get(bounds[1])),
        default=schema.get("default"),
        is_required=is_required,
    )


def _choices(schema: _Schema) -> tuple[tuple[str, str], ...]:
    """`enum`, with or without `enumNames`; or alternatives with a `const` and a `title`."""
    values = schema.get("enum")
    if isinstance(values, list):
        names = schema.get("enumNames")
        told = cast("list[object]", names) if isinstance(names, list) else []
        known = [str(each) for each in cast("list[object]", values)]
        return tuple(
            (value, str(told[index]) if index < len(told) else value)
            for index, value in enumerate(known)
        )
    alternatives = schema.get("oneOf", schema.get("anyOf"))
    if not isinstance(alternatives, list):
        return ()
    pairs = [
        cast("_Schema", each)
        for each in cast("list[object]", alternatives)
        if isinstance(each, dict)
    ]
    return tuple(
        (str(each["const"]), str(each.get("title", each["const"])))
        for each in pairs
        if "const" in each
    )


def _text(schema: _Schema, key: str) -> str:
    value = schema.get(key)
    return value[:MAX_WORDS] if isinstance(value, str) else ""


def _bound(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_value(field: Field, text: str) -> object:
    """What a person typed, as the value of a field. Nothing typed: its default, or None where it may be left out.

    Raises:
        ValueError: it is no such value; in words for the person.
    """
    typed = text.strip()
    if not typed:
        if field.default is not None:
            return field.default
        if field.is_required:
            raise ValueError("expected a value: it is required")
        return None
    match field.kind:
        case "boolean":
            return _truth(typed)
        case "integer" | "number":
            return _number(field, typed)
        case "choice":
            return _choice(field, typed)
        case "choices":
            chosen = [_choice(field, each.strip()) for each in typed.split(",") if each.strip()]
            _check_size(field, len(chosen), "choices")
            return list(dict.fromkeys(chosen))
        case "string":
            return _string(field, typed)


def _truth(typed: str) -> bool:
    if typed.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(f"expected yes or no, got {typed!r}")
    return typed.lower() in _TRUE


def _number(field: Field, typed: str) -> int | float:
    try:
        value: int | float = int(typed) if field.kind == "integer" else float(typed)
    except ValueError:
        wanted = "a whole number" if field.kind == "integer" else "a number"
        raise ValueError(f"expected {wanted}, got {typed!r}") from None
    if not isfinite(value):
        raise ValueError(f"expected a number, got {typed!r}")
    _check_size(field, value, "")
    return value


def _choice(field: Field, typed: str) -> str:
    values = [value for value, _ in field.choices]
    if typed in values:
        return typed
    for value, shown in field.choices:
        if typed.lower() in (value.lower(), shown.lower()):
            return value
    if typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(values):
        return values[int(typed) - 1]
    known = ", ".join(shown for _, shown in field.choices)
    raise ValueError(f"expected one of {known}, got {typed!r}")


def _string(field: Field, typed: str) -> str:
    pattern = _FORMATS.get(field.format)
    if pattern is not None and not pattern.fullmatch(typed):
        raise ValueError(f"expected a text of the form {field.format}, got {typed!r}")
    _check_size(field, len(typed), "characters")
    return typed


def _check_size(field: Field, size: float, of_what: str) -> None:
    if field.least is not None and size < field.least:
        raise ValueError(
            f"expected at least {field.least:g} {of_what}".rstrip() + f", got {size:g}"
        )
    if field.most is not None and size > field.most:
        raise ValueError(f"expected at most {field.most:g} {of_what}".rstrip() + f", got {size:g}")
