"""A typed Python function as a tool: what the model is told of it, and its arguments read into its own types.

The schema comes from the annotations, the description from the docstring's first paragraph, those of the arguments from
`Annotated[..., "words"]` or from the section `Args:` as Google writes it. A function that cannot be described so that a
model could call it is a mistake of the program: `ConfigError`, at once and by the parameter's name.

Describes and reads; running is `decorator`'s.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from msgspec import Struct

from dragoman._json import (
    FAST_FAILURES,
    REQUIRED,
    Raw,
    dumps_document,
    loads,
    record_type,
    schema_of,
)
from dragoman._json import typed_decoder as decoder_of
from dragoman.core.names import without_nulls
from dragoman.engine.tools import Declaration, Invocation
from dragoman.errors import ConfigError, MalformedJson, ToolError

__all__ = ("Arguments", "Described", "describe", "describe_record")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider takes
_SECTION = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")

_Function = Callable[..., object]
S = TypeVar("S", bound=Struct)


class Arguments(Struct, Generic[S], frozen=True):
    """A tool, and how the arguments of its calls are read."""

    declaration: Declaration
    decode: Callable[[bytes], S]

    def read(self, text: str) -> S:
        """The arguments of one call. No text at all is an empty object.

        Raises:
            ToolError: they are not what the tool takes.
        """
        try:
            return self.decode(
                (self._given(text) if text.strip() else "{}").encode("utf-8", "replace")
            )
        except FAST_FAILURES as error:
            name = self.declaration.name
            raise ToolError(f"{name} cannot take these arguments: {error}") from error

    def _given(self, text: str) -> str:
        """Less what is null for want of a value: its default counts."""
        schema = self.declaration.schema
        if "null" not in text or schema is None:
            return text
        try:
            value: object = loads(text)
        except MalformedJson:
            return text
        given = without_nulls(loads(bytes(schema)), value)
        return text if given == value else dumps_document(given).decode()


def describe_record(name: str, description: str, kind: type[S]) -> Arguments[S]:
    """A tool whose arguments are the members of a type. `Annotated[..., "words"]` says what a member is."""
    schema = cast("dict[str, object]", schema_of(kind))
    fields = [
        (each, annotation, REQUIRED)
        for each, annotation in get_type_hints(kind, include_extras=True).items()
    ]
    declaration = Declaration(
        name=name, description=description, schema=_schema(schema, fields, {})
    )
    return Arguments(declaration, decoder_of(kind))


class Described(Struct, frozen=True):
    """A function and how to call it. `watcher` is the parameter that takes the invocation itself, if there is one."""

    arguments: Arguments[Struct]
    positional: tuple[str, ...]
    named: tuple[str, ...]
    watcher: str | None = None

    def bind(self, invocation: Invocation) -> tuple[list[object], dict[str, object]]:
        """The arguments of one call, as positional and named ones.

        Raises:
            ToolError: they are not what the function takes.
        """
        values = self.arguments.read(invocation.call.input)

        def value(name: str) -> object:
            return invocation if name == self.watcher else cast("object", getattr(values, name))

        return [value(name) for name in self.positional], {name: value(name) for name in self.named}


def describe(
    function: _Function, *, name: str | None = None, description: str | None = None
) -> Described:
    """What a model is told of a function.

    Raises:
        ConfigError: it cannot be described.
    """
    called = name or str(getattr(function, "__name__", "")).strip("_")
    if not _NAME.fullmatch(called):
        raise ConfigError(
            f"expected a tool name of up to 64 letters, digits, _ and -, got {called!r}"
        )
    parameters = list(inspect.signature(function).parameters.values())
    hints = _hints(function, called)
    about, told = _docstring(function)
    watcher = next((p.name for p in parameters if hints.get(p.name) is Invocation), None)
    fields: list[tuple[str, object, object]] = []
    for parameter in parameters:
        _refuse_unfit(parameter, hints, called)
        if parameter.name != watcher:
            kind = hints[parameter.name]
            _schema_of_parameter(parameter, kind, called)
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            fields.append((parameter.name, kind, default))
    try:
        record = record_type(called.replace("-", "_"), fields)
        decode = decoder_of(record)
        schema = _schema(schema_of(record), fields, told)
    except TypeError as error:
        raise ConfigError(f"the tool {called} cannot be described: {error}") from error
    declaration = Declaration(name=called, description=description or about or None, schema=schema)
    return Described(
        Arguments(declaration, decode),
        tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY),
        tuple(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY),
        watcher,
    )


def _hints(function: _Function, called: str) -> dict[str, object]:
    try:
        return dict(get_type_hints(function, include_extras=True))
    except (NameError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the annotations of the tool {called} cannot be resolved: {error}"
        ) from error


def _refuse_unfit(parameter: inspect.Parameter, hints: dict[str, object], called: str) -> None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigError(
            f"the tool {called} has the parameter {parameter}: a model cannot be told what it takes; name each one"
        )
    if name not in hints:
        raise ConfigError(f"the parameter {name} of the tool {called} has no annotation")


def _schema_of_parameter(parameter: inspect.Parameter, kind: object, called: str) -> None:
    """Each by itself first, so that the error names it."""
    try:
        schema_of(kind)
        decoder_of(record_type("one", [(parameter.name, kind, REQUIRED)]))
    except TypeError as error:
        first = str(error).splitlines()[-1]
        raise ConfigError(
            f"the parameter {parameter.name} of the tool {called} has a type that JSON does not have: {first}"
        ) from error


def _schema(
    schema: dict[str, object], fields: Sequence[tuple[str, object, object]], told: dict[str, str]
) -> Raw:
    """The schema with what is known of each parameter; defaults that JSON cannot write are left out."""
    schema.pop("title", None)
    members = cast("dict[str, dict[str, object]]", schema["properties"])
    for name, kind, default in fields:
        words = _annotated(kind) or told.get(name)
        if words:
            members[name].setdefault("description", words)
        if default is not REQUIRED:
            try:
                members[name]["default"] = Raw(dumps_document(default))
            except (TypeError, ValueError, OverflowError):
                members[name].pop("default", None)
    return Raw(dumps_document(schema))


def _annotated(kind: object) -> str | None:
    if get_origin(kind) is not Annotated:
        return None
    return next((note for note in get_args(kind)[1:] if isinstance(note, str)), None)


def _docstring(function: _Function) -> tuple[str, dict[str, str]]:
    """The first paragraph, and what is said of each argument."""
    lines = (inspect.getdoc(function) or "").splitlines()
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line):
            break
        paragraph.append(line.strip())
    start = next((at for at, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    return " ".join(paragraph), _arguments(lines[start + 1 :])


def _arguments(lines: Sequence[str]) -> dict[str, str]:
    told: dict[str, list[str]] = {}
    current: list[str] | None = None
    depth: int | None = None
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            break
        depth = indent if depth is None else depth
        found = _ARGUMENT.fullmatch(line.strip()) if indent <= depth else None
        if found is not None:
            current = told.setdefault(found[1], [])
            current.append(found[2].strip())
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, words)) for name, words in told.items()}
