"""What a server may ask of the person who uses it: a login in a browser, and the questions of `elicitation/create`.

`Host` is the program that can ask the person: `dragoman run` in its terminal. The gateway has no person, and declines
questions. `TimeLimits` pause while a person is asked. Needs no SDK.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Literal, Protocol, cast
from urllib.parse import urlsplit

from msgspec import Struct

__all__ = (
    "ElicitationAnswer",
    "ElicitationForm",
    "ElicitationLink",
    "Field",
    "FieldKind",
    "Host",
    "TimeLimits",
    "form_from_schema",
    "link_to",
    "read_value",
)


MAX_FIELDS = 50
"""Fields of one form. A person would not fill in more at a terminal, and a server that asks for more is broken."""
MAX_CHOICES = 100
"""Choices of one field."""
MAX_NAME = 200
"""Characters of the name of a field or of a choice."""
MAX_WORDS = 4000
"""Characters of a message or a description that are shown."""

# An integer may be too large for a float; no person types such a number.
_LARGEST = 1e300

FieldKind = Literal["string", "integer", "number", "boolean", "choice", "choices"]
"""The type of a value that a server asks for."""
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
    """One value of a form. `least` and `most` bound a number, the length of a text, or the number of choices."""

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


class ElicitationForm(Struct, frozen=True, kw_only=True):
    """A form: values that a server asks for."""

    message: str
    fields: tuple[Field, ...]


class ElicitationLink(Struct, frozen=True, kw_only=True):
    """An address that a server asks the person to visit. Dragoman does not learn what the person does there."""

    message: str
    url: str


class ElicitationAnswer(Struct, frozen=True, kw_only=True):
    """The person's answer. `decline`: no. `cancel`: no answer. `values`: of an accepted form."""

    action: Literal["accept", "decline", "cancel"]
    values: Mapping[str, object] = {}


class Host(Protocol):
    """The person behind the program, as far as MCP servers need one: for logins and for questions."""

    async def open_login(self, server: str, url: str) -> None:
        """Show the person where to log in for the server. Does not wait for the login."""
        ...

    async def elicit(
        self, server: str, question: ElicitationForm | ElicitationLink
    ) -> ElicitationAnswer:
        """Ask the person the server's question, and wait for the answer without a time limit."""
        ...


def link_to(url: str, message: str) -> ElicitationLink:
    """The question to visit an address.

    Raises:
        ValueError: it is no address, or one in which a browser may find another host than the person is shown.
    """
    parts = urlsplit(url)
    is_web = parts.scheme in ("http", "https")
    if "\\" in url or " " in url or not url.isprintable() or (is_web and not parts.hostname):
        raise ValueError("expected `url`, an address without backslashes and blanks")
    return ElicitationLink(message=message, url=url)


def form_from_schema(message: str, schema: _Schema) -> ElicitationForm:
    """The form that a `requestedSchema` describes: one object of plain values.

    Raises:
        ValueError: the schema describes something else.
    """
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise ValueError("expected `properties`, an object")  # noqa: TRY004 - about a foreign document, not an argument
    listed = schema.get("required", [])
    required = (
        set(map(str, cast("list[object]", listed))) if isinstance(listed, list) else set[str]()
    )
    named = cast("dict[str, object]", properties)
    if len(named) > MAX_FIELDS:
        raise ValueError(f"expected at most {MAX_FIELDS} fields, got {len(named)}")
    fields = tuple(_field(name, each, is_required=name in required) for name, each in named.items())
    return ElicitationForm(message=message[:MAX_WORDS], fields=fields)


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
    shown = [name, *(text for pair in choices for text in pair)]
    if len(choices) > MAX_CHOICES or max(map(len, shown)) > MAX_NAME:
        raise ValueError(
            f"expected at most {MAX_CHOICES} choices, and names of {MAX_NAME} characters"
        )
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
        titles = cast("list[object]", names) if isinstance(names, list) else []
        known = [str(each) for each in cast("list[object]", values)]
        return tuple(
            (value, str(titles[index]) if index < len(titles) else value)
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
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < _LARGEST else None


def read_value(field: Field, text: str) -> object:
    """The value of a field from the text that a person typed. For an empty text: the default, or None if optional.

    Raises:
        ValueError: the text is not a value of the field; the message is for the person.
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
    if not abs(value) < _LARGEST:
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


class TimeLimits:
    """`async with limits.within(10):` raises `TimeoutError` after ten seconds, not counting those of `paused()`."""

    def __init__(self) -> None:
        # The seconds that are left of each limit while the limits are paused.
        self._left: dict[asyncio.Timeout, float] = {}
        self._pauses = 0

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncGenerator[None]:
        """Raises:
        TimeoutError: the time is over.
        """
        async with asyncio.timeout(None if self._pauses else seconds) as limit:
            self._left[limit] = seconds
            try:
                yield
            finally:
                del self._left[limit]

    @contextmanager
    def paused(self) -> Generator[None]:
        now = asyncio.get_running_loop().time
        self._pauses += 1
        if self._pauses == 1:
            for limit, end in [(each, each.when()) for each in self._left]:
                if end is not None and not limit.expired():
                    self._left[limit] = end - now()
                    limit.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                for limit, seconds in self._left.items():
                    if not limit.expired():
                        limit.reschedule(now() + seconds)
