"""What the built-in tools share: a name, arguments of a type, work that blocks and so runs in a thread, and what a call is about."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from dragoman.engine.approval import Subject
from dragoman.engine.describing import Arguments, describe_record
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Invocation, Offer, Output
from dragoman.errors import ToolError
from dragoman.model.parts import Call

__all__ = ("BuiltinTool", "Judged", "Spec")

A = TypeVar("A", bound=Struct)


@runtime_checkable
class Judged(Protocol):
    """A tool that knows what a call to it is about, for the policy to judge."""

    def subjects(self, call: Call) -> Sequence[Subject]: ...


class Spec(Struct, Generic[A], frozen=True, kw_only=True):
    """A tool: what the model is told, the type of its arguments, what it does with them and what that is about.

    `work` runs in a thread, and ends soon after its event is set.
    """

    name: str
    description: str
    arguments: type[A]
    work: Callable[[A, threading.Event], Output]
    subjects: Callable[[A], Sequence[Subject]]
    is_parallel: bool = False
    timeout: float | None = None


class BuiltinTool(Generic[A]):
    """A `Spec` as a tool."""

    def __init__(self, spec: Spec[A]) -> None:
        self._spec = spec
        self._arguments: Arguments[A] = describe_record(spec.name, spec.description, spec.arguments)
        self._offer = Offer(
            declaration=self._arguments.declaration,
            is_parallel=spec.is_parallel,
            timeout=spec.timeout,
        )

    @property
    def offer(self) -> Offer:
        return self._offer

    def subjects(self, call: Call) -> Sequence[Subject]:
        return self._spec.subjects(self._arguments.read(call.input))

    async def run(self, invocation: Invocation) -> Output:
        arguments = self._arguments.read(invocation.call.input)
        stop = threading.Event()
        try:
            return await run_to_end(
                partial(self._spec.work, arguments, stop), self._spec.name, stop.set
            )
        except OSError as error:
            raise ToolError(f"{self._spec.name}: {error.strerror or error}") from error
