"""`@tool`: a typed Python function, sync or async, as a tool of the engine.

    @tool(parallel=True)
    async def weather(city: str, days: int = 1) -> str:
        '''The weather forecast for a city.

        Args:
            city: its name, as people write it
            days: how many days ahead
        '''

The schema comes from the annotations, the description from the docstring's first paragraph. The descriptions of the arguments
come from `Annotated[..., "words"]` or from the section `Args:` in Google's style. A function that cannot be described to a
model is a mistake in the program: `ConfigError`, at once and with the parameter's name.

What the function returns becomes the result: text as it is, `Output` as it is, images (`Media`, or the bytes of one), `None`
as the word `done`, and anything else as JSON, which is also kept as structured output. An exception is a failed call;
`ToolError` carries words for the model.

A sync function runs in a thread of its own. A thread cannot be stopped: when the call is cancelled or times out, the thread
runs on and its result is dropped. A function that may take long is better async.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, update_wrapper
from typing import (
    Annotated,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

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
from dragoman.engine.results import image_part
from dragoman.engine.threads import run_detached
from dragoman.engine.tools import Declaration, Invocation, Offer, Output, text_output
from dragoman.engine.validation import given_arguments
from dragoman.errors import ConfigError, MalformedJson, ToolError
from dragoman.model.parts import Media, Opaque, Text

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # every provider accepts these names
_SECTION = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")

_Function = Callable[..., object]
S = TypeVar("S", bound=Struct)


class ToolArguments(Struct, Generic[S], frozen=True):
    """The declaration of a tool, and the decoder of the arguments of its calls."""

    declaration: Declaration
    decode: Callable[[bytes], S]

    def read(self, text: str) -> S:
        """Decode the arguments of one call. No text at all is an empty object.

        Raises:
            ToolError: the arguments do not fit the tool.
        """
        try:
            return self.decode(
                (self._without_nulls(text) if text.strip() else "{}").encode("utf-8", "replace")
            )
        except FAST_FAILURES as error:
            name = self.declaration.name
            raise ToolError(f"{name} cannot take these arguments: {error}") from error

    def _without_nulls(self, text: str) -> str:
        """The arguments without nulls for members that have a default, so that the default applies."""
        if "null" not in text:
            return text
        try:
            value: dict[str, object] = loads(text)
        except MalformedJson:
            return text
        given = given_arguments(self.declaration, text, value)
        return text if given == value else dumps_document(given).decode()


def describe_record(name: str, description: str, kind: type[S]) -> ToolArguments[S]:
    """A tool whose arguments are the fields of a struct. `Annotated[..., "words"]` describes a field."""
    schema = cast("dict[str, object]", schema_of(kind))
    fields = [
        (each, annotation, REQUIRED)
        for each, annotation in get_type_hints(kind, include_extras=True).items()
    ]
    declaration = Declaration(
        name=name, description=description, schema=_schema(schema, fields, {})
    )
    return ToolArguments(declaration, decoder_of(kind))


def _describe(
    function: _Function, called: str, description: str | None
) -> tuple[ToolArguments[Struct], str | None]:
    """The arguments of a function, and the parameter that gets the invocation itself, if there is one."""
    if not _NAME.fullmatch(called):
        raise ConfigError(
            f"expected a tool name of up to 64 letters, digits, _ and -, got {called!r}"
        )
    hints = _hints(function, called)
    about, descriptions = _docstring(function)
    invocation_name: str | None = None
    fields: list[tuple[str, object, object]] = []
    for parameter in inspect.signature(function).parameters.values():
        _refuse_unfit(parameter, hints, called)
        kind = hints[parameter.name]
        if kind is Invocation and invocation_name is None:
            invocation_name = parameter.name
        else:
            _check_parameter_type(parameter, kind, called)
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            fields.append((parameter.name, kind, default))
    try:
        record = record_type(called.replace("-", "_"), fields)
        decode = decoder_of(record)
        schema = _schema(schema_of(record), fields, descriptions)
    except TypeError as error:
        raise ConfigError(f"the tool {called} cannot be described: {error}") from error
    declaration = Declaration(name=called, description=description or about or None, schema=schema)
    return ToolArguments(declaration, decode), invocation_name


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
            f"the tool {called} has the parameter {parameter}: it cannot be described to a model; give each parameter a name"
        )
    if name not in hints:
        raise ConfigError(f"the parameter {name} of the tool {called} has no annotation")


def _check_parameter_type(parameter: inspect.Parameter, kind: object, called: str) -> None:
    """Check one parameter by itself, so that the error names it."""
    try:
        schema_of(kind)
        decoder_of(record_type("one", [(parameter.name, kind, REQUIRED)]))
    except TypeError as error:
        first = str(error).splitlines()[-1]
        raise ConfigError(
            f"the parameter {parameter.name} of the tool {called} has a type that JSON does not have: {first}"
        ) from error


def _schema(
    schema: dict[str, object],
    fields: Sequence[tuple[str, object, object]],
    descriptions: dict[str, str],
) -> Raw:
    """The schema with descriptions and defaults; defaults that JSON cannot express are left out."""
    schema.pop("title", None)
    members = cast("dict[str, dict[str, object]]", schema["properties"])
    for name, kind, default in fields:
        words = _annotated(kind) or descriptions.get(name)
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
    """The first paragraph, and the description of each argument."""
    lines = (inspect.getdoc(function) or "").splitlines()
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line):
            break
        paragraph.append(line.strip())
    start = next((at for at, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    return " ".join(paragraph), _arguments(lines[start + 1 :])


def _arguments(lines: Sequence[str]) -> dict[str, str]:
    descriptions: dict[str, list[str]] = {}
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
            current = descriptions.setdefault(found[1], [])
            current.append(found[2].strip())
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, words)) for name, words in descriptions.items()}


P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Generic[P, R]):
    """A function as a tool. It can still be called as a function.

    Raises:
        ConfigError: the function cannot be described to a model.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parallel: bool = False,
        timeout: float | None = None,
    ) -> None:
        if not callable(function):
            raise ConfigError(f"expected a function, got {type(function).__name__}")
        called = name or str(getattr(function, "__name__", "")).strip("_")
        self._function = cast("_Function", function)
        self._arguments, self._invocation_name = _describe(self._function, called, description)
        self._parameters = tuple(inspect.signature(function).parameters.values())
        self.offer = Offer(
            declaration=self._arguments.declaration, is_parallel=parallel, timeout=timeout
        )
        update_wrapper(cast("Callable[P, R]", self), function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("Callable[P, R]", self._function)(*args, **kwargs)

    async def run(self, invocation: Invocation) -> Output:
        call = self._bind(invocation)
        if inspect.iscoroutinefunction(self._function):
            value = await cast("Awaitable[object]", call())
        else:
            value = await run_detached(call, self.offer.declaration.name)
            if inspect.isawaitable(value):
                value = await cast("Awaitable[object]", value)
        return output_of(value)

    def _bind(self, invocation: Invocation) -> Callable[[], object]:
        """The function with the arguments of one call.

        Raises:
            ToolError: the arguments do not fit the function.
        """
        values = self._arguments.read(invocation.call.input)
        positional: list[object] = []
        named: dict[str, object] = {}
        for parameter in self._parameters:
            is_invocation = parameter.name == self._invocation_name
            value = invocation if is_invocation else cast("object", getattr(values, parameter.name))
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return partial(self._function, *positional, **named)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    timeout: float | None = None,
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Turn a function into a tool.

    Args:
        function: the function, if the decorator is used without arguments
        name: replaces the function's name
        description: replaces the docstring's first paragraph
        parallel: whether the tool may run beside other parallel tools
        timeout: seconds a call may take

    Raises:
        ConfigError: it is no function, or a parameter cannot be described to a model.

    Examples:
        >>> @tool
        ... async def weather(city: str) -> str:
        ...     "The weather in a city."
        ...     return f"It is sunny in {city}."
        >>> weather.offer.declaration.name
        'weather'
    """

    def make(function: Callable[P, R]) -> FunctionTool[P, R]:
        return FunctionTool(
            function, name=name, description=description, parallel=parallel, timeout=timeout
        )

    return make if function is None else make(function)


def output_of(value: object) -> Output:
    """The return value of a function as a tool's output.

    Raises:
        ToolError: the value is neither text nor an image, and JSON cannot express it.
    """
    match value:
        case Output():
            return value
        case None:
            return text_output("done")
        case str():
            return text_output(value)
        case Text() | Media() | Opaque():
            return Output(content=(value,))
        case bytes() if (image := image_part(value)) is not None:
            return Output(content=(image,))
        case list() | tuple() if _are_parts(items := cast("Sequence[object]", value)):
            return Output(content=tuple(cast("Sequence[Text | Media | Opaque]", items)))
        case _:
            return _as_json(value)


def _are_parts(items: Sequence[object]) -> bool:
    return bool(items) and all(isinstance(item, (Text, Media, Opaque)) for item in items)


def _as_json(value: object) -> Output:
    try:
        written = dumps_document(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolError(
            f"the tool returned a {type(value).__name__}, which cannot be written as JSON: {error}"
        ) from error
    return Output(content=(Text(text=written.decode("utf-8", "replace")),), structured=Raw(written))
