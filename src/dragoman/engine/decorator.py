"""`@tool`: a typed Python function, sync or async, as a tool of the engine.

    @tool(parallel=True)
    async def weather(city: str, days: int = 1) -> str:
        '''The weather forecast for a city.

        Args:
            city: its name, as people write it
            days: how many days ahead
        '''

What it gives back becomes the result: text as it is, `Output` as it is, pictures (`Media`, or the bytes of one), `None` as
the word `done`, and anything else as JSON, which is also kept as structured output. What it raises is a failed call;
`ToolError` says it in words for the model.

A sync function runs in a thread of its own. A thread cannot be stopped: when the call is cancelled or times out, it is let
go and its result forgotten. Whatever may take long is better async.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, update_wrapper
from typing import Generic, ParamSpec, TypeVar, cast, overload

from dragoman._json import Raw, dumps_document
from dragoman.engine.describing import Described, describe
from dragoman.engine.images import image_part
from dragoman.engine.threads import let_go
from dragoman.engine.tools import Invocation, Offer, Output, text_output
from dragoman.errors import ToolError
from dragoman.model.parts import Media, Opaque, Text

__all__ = ("FunctionTool", "output_of", "tool")

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Generic[P, R]):
    """A function as a tool. It can still be called as the function it is."""

    def __init__(
        self,
        function: Callable[P, R],
        described: Described,
        *,
        parallel: bool,
        timeout: float | None,
    ) -> None:
        self._function = function
        self._described = described
        self._offer = Offer(
            declaration=described.arguments.declaration, is_parallel=parallel, timeout=timeout
        )
        update_wrapper(cast("Callable[P, R]", self), function)

    @property
    def offer(self) -> Offer:
        return self._offer

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    async def run(self, invocation: Invocation) -> Output:
        positional, named = self._described.bind(invocation)
        function = cast("Callable[..., object]", self._function)
        call = partial(function, *positional, **named)
        if inspect.iscoroutinefunction(function):
            value = await cast("Awaitable[object]", call())
        else:
            value = await let_go(call, self._offer.declaration.name)
            if inspect.isawaitable(value):
                value = await cast("Awaitable[object]", value)
        return output_of(value)


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
    """Make a tool of a function.

    Args:
        function: the function, where the decorator stands without arguments
        name: instead of the function's own
        description: instead of the docstring's first paragraph
        parallel: it may run beside other tools that say the same
        timeout: seconds it may take

    Raises:
        ConfigError: a parameter cannot be described to a model.
    """

    def make(function: Callable[P, R]) -> FunctionTool[P, R]:
        described = describe(function, name=name, description=description)
        return FunctionTool(function, described, parallel=parallel, timeout=timeout)

    return make if function is None else make(function)


def output_of(value: object) -> Output:
    """What a function gave back, as a tool's output.

    Raises:
        ToolError: it cannot be told: neither text nor a picture, and not to be written as JSON.
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
    return bool(items) and all(isinstance(item, Text | Media | Opaque) for item in items)


def _as_json(value: object) -> Output:
    try:
        written = dumps_document(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolError(
            f"the tool gave back a {type(value).__name__}, which cannot be written as JSON: {error}"
        ) from error
    return Output(content=(Text(text=written.decode("utf-8", "replace")),), structured=Raw(written))
