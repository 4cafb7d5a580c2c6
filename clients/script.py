"""The model's answers and the contents of requests, as values: no dialect and no HTTP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = (
    "Call",
    "Conversation",
    "Dialect",
    "Fault",
    "MidStream",
    "ModelTurn",
    "Script",
    "SeenCall",
    "SeenResult",
    "SpokenCall",
    "Tool",
)

Dialect = Literal["chat", "responses", "messages"]
MidStream = Literal["error", "cut", "end", "silence"]


@dataclass(frozen=True)
class Call:
    """A call the model makes. `input` is source text: JSON for a function, anything for a custom tool."""

    name: str
    input: str
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True)
class ModelTurn:
    """One answer: text, then calls. Without calls it ends the conversation."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, in the first `times` answers.

    status: an HTTP error instead of an answer. mid_stream: `error` is the dialect's own error event in the middle of the
    last call (or text), `cut` a connection cut there, `end` a clean end there, `silence` nothing more. A body has no middle: a 500.
    """

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    mid_stream: MidStream | None = None
    times: int = 1000


@dataclass(frozen=True)
class Script:
    """Turns with calls, one after the other; when all calls have results the model quotes them.

    quirk: what happens to the frames of a streamed answer with calls.
    """

    turns: tuple[ModelTurn, ...] = ()
    fault: Fault | None = None
    quirk: Callable[[Sequence[Any]], list[bytes]] | None = None
    closing: str = "Results:"


@dataclass(frozen=True)
class Tool:
    """A tool as a request offers it."""

    name: str
    namespace: str | None
    kind: str
    schema: Any


@dataclass(frozen=True)
class SpokenCall:
    """A call as it goes on the wire: the tool as offered, the id given, the input in the form that tool wants."""

    id: str
    tool: Tool
    input: str


@dataclass(frozen=True)
class SeenCall:
    """A call in a request's history. `input` is the text of it; in Messages the value, written again."""

    id: str
    name: str
    input: str


@dataclass(frozen=True)
class SeenResult:
    """A result in a request's history."""

    id: str
    text: str


@dataclass
class Conversation:
    """The contents of a request. `objections`: the reasons for which a vendor would refuse it."""

    model: str
    stream: bool
    tools: list[Tool] = field(default_factory=list[Tool])
    calls: list[SeenCall] = field(default_factory=list[SeenCall])
    results: list[SeenResult] = field(default_factory=list[SeenResult])
    objections: list[str] = field(default_factory=list[str])

    def object_if(self, wrong: object, objection: str) -> None:
        if wrong:
            self.objections.append(objection)

    def check_pairs(self) -> None:
        """Every call one result, every result its call."""
        calls = [call.id for call in self.calls]
        results = [result.id for result in self.results]
        self.object_if(len(set(calls)) != len(calls), f"a call id is used twice: {calls}")
        self.object_if(sorted(calls) != sorted(results), f"calls {calls} and results {results}")
