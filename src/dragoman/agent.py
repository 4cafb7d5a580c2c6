"""An agent in a few lines: a model behind any upstream, tools, and a conversation.

    @tool
    async def weather(city: str) -> str:
        "The weather in a city."
        return "21 degrees and sunny"

    async with open_model() as model:
        agent = Agent(model, [weather])
        print((await agent.ask("What is the weather in Oslo?")).text)

Without arguments `open_model` finds the upstream as `dragoman serve` does: in dragoman.toml, by OPENAI_API_KEY and its
like, else the rehearsal, which needs no key. The `Engine` runs the tools and asks again; an `Agent` keeps the conversation for
it. Programs that need more use the engine itself.
"""

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Self

from msgspec import Struct, structs

from dragoman.config.check import complete
from dragoman.config.read import load_settings
from dragoman.config.settings import Settings, UpstreamKind, UpstreamSettings
from dragoman.engine.events import EngineEvent, RunEnded
from dragoman.engine.function_tool import tool
from dragoman.engine.run import Engine, Model, Observer
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Tool, ToolSource
from dragoman.errors import ConfigError, ToolError
from dragoman.gateway import route
from dragoman.gateway.attempt import AttemptObserver, UpstreamModel
from dragoman.gateway.route import Upstreams
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.events import Event, LimitsReported, Started
from dragoman.model.outcome import Limits
from dragoman.model.parts import Refusal, Text
from dragoman.model.request import Request, Turn
from dragoman.upstream.base import Reply as UpstreamReply
from dragoman.upstream.rate_limits import limits_of

__all__ = (
    "Agent",
    "Engine",
    "EngineEvent",
    "EngineSettings",
    "Model",
    "Observer",
    "Reply",
    "RunEnded",
    "Settings",
    "Tool",
    "ToolError",
    "ToolSource",
    "UpstreamSettings",
    "default_model",
    "open_model",
    "tool",
)


class Reply(Struct, frozen=True):
    """The reply to one question. `text` is the last text of the model; `ended` says how the run ended and has every turn."""

    text: str
    ended: RunEnded

    @property
    def is_answered(self) -> bool:
        """Whether the model answered; false after a limit, an error or an interruption."""
        return self.ended.reason == "answered"


class Agent:
    """A conversation with a model that may use tools. One question at a time.

    observer: awaited with every event, in order; see `engine.events`.
    turns: a conversation to continue, such as the `turns` of another agent.
    """

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool | ToolSource] = (),
        *,
        instructions: str = "",
        settings: EngineSettings | None = None,
        observer: Observer | None = None,
        turns: Sequence[Turn] = (),
    ) -> None:
        self._model = model
        self._tools = tuple(tools)
        self._head = _head(instructions)
        self._settings = EngineSettings() if settings is None else settings
        self._observer = observer
        self._turns = tuple(turns)
        self._engine: Engine | None = None

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation so far without the instructions, also while a question is being answered."""
        return self._turns if self._engine is None else _without_head(self._engine.turns)

    async def ask(self, question: str | Turn) -> Reply:
        """Ask the model, run the tools that it calls, and return its answer. After a cancellation `turns` can be continued.

        Raises:
            RuntimeError: the previous question is not answered yet.
        """
        if self._engine is not None:
            raise RuntimeError(
                "expected one question at a time, the previous one is not answered yet"
            )
        asked = _turn(question) if isinstance(question, str) else question
        request = Request(turns=(*self._head, *self._turns, asked), stream=True, include_usage=True)
        self._engine = Engine(
            self._model, self._tools, settings=self._settings, observer=self._observer
        )
        try:
            ended = await self._engine.run(request)
            return Reply(_last_words(ended.turns), ended)
        finally:
            self._turns = _without_head(self._engine.turns) or (*self._turns, asked)
            self._engine = None

    def interrupt(self) -> None:
        """Interrupt the current answer: tools are stopped, and `ask` returns. Without a current answer it does nothing."""
        if self._engine is not None:
            self._engine.interrupt()


def open_model(
    model: str | None = None,
    *,
    kind: UpstreamKind = "chat",
    base_url: str | None = None,
    api_key_env: str | None = None,
    settings: Settings | Path | str | None = None,
) -> AbstractAsyncContextManager[Model]:
    """A model for the time of the context, which closes its connections.

    model: the model of requests that name none; None: one that the upstream is known to have.
    kind, base_url, api_key_env: one upstream, such as `kind="chat", base_url="http://127.0.0.1:8000/v1"`.
    settings: those of a gateway, or the path of a dragoman.toml. Without this and `base_url` they are found as
        `dragoman serve` finds them, else the rehearsal answers.

    Raises:
        ConfigError: the settings cannot work, or name no model.
    """
    return _opened(_settings(kind, base_url, api_key_env, settings), model)


def default_model(settings: Settings) -> str:
    """The name of a model that the upstreams of these settings are known to have.

    Raises:
        ConfigError: none is known.
    """
    found = route.default_model(settings)
    if found is None:
        raise ConfigError(
            "expected the name of a model: the upstream has no model that is known here"
        )
    return found


@asynccontextmanager
async def _opened(settings: Settings, model: str | None) -> AsyncGenerator[Model]:
    name = model or default_model(settings)
    observer = _LimitObserver()
    async with UpstreamModel(Upstreams(settings), observer=observer) as upstream:
        yield _Named(upstream, name, observer)


class _LimitObserver(AttemptObserver):
    """Remembers the rate limits in the headers of the last reply."""

    def __init__(self) -> None:
        self.limits: Limits | None = None

    def replied(self, target: AttemptTarget, reply: UpstreamReply) -> None:
        del target
        self.limits = limits_of(reply.headers, time.time())


class _Named:
    """A model with a default name for requests that name none. Its answers report the limits from headers."""

    def __init__(self, model: Model, name: str, observer: _LimitObserver) -> None:
        self._model = model
        self._name = name
        self._observer = observer

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator[AsyncIterator[Sequence[Event]]]:
        named = request if request.model else structs.replace(request, model=self._name)
        async with self._model.ask(named) as answer:
            limits = self._observer.limits
            yield answer if limits is None else _Limited(answer, limits)


class _Limited:
    """An answer that reports limits when it has begun."""

    def __init__(self, answer: AsyncIterator[Sequence[Event]], limits: Limits) -> None:
        self._answer = answer
        self._limits: Limits | None = limits

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Event]:
        events = await anext(self._answer)
        if self._limits is None:
            return events
        for place, event in enumerate(events, 1):
            if isinstance(event, Started):
                reported, self._limits = LimitsReported(self._limits), None
                return [*events[:place], reported, *events[place:]]
        return events


def _settings(
    kind: UpstreamKind,
    base_url: str | None,
    api_key_env: str | None,
    settings: Settings | Path | str | None,
) -> Settings:
    if isinstance(settings, Settings):
        return complete(settings)
    if settings is not None or base_url is None:
        return load_settings(settings, os.environ)
    upstream = UpstreamSettings(kind=kind, base_url=base_url, api_key_env=api_key_env)
    return complete(Settings(upstreams={kind: upstream}))


def _head(instructions: str) -> tuple[Turn, ...]:
    if not instructions:
        return ()
    return (Turn(role="system", parts=(Text(text=instructions),), head=True),)


def _turn(text: str) -> Turn:
    return Turn(role="user", parts=(Text(text=text),))


def _without_head(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    return tuple(turn for turn in turns if not turn.head)


def _last_words(turns: Sequence[Turn]) -> str:
    """The text of the model's last turn."""
    for turn in reversed(turns):
        if turn.role == "assistant":
            return "".join(part.text for part in turn.parts if isinstance(part, Text | Refusal))
        if turn.role == "user":
            break
    return ""
