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

`ask` returns an answer or raises `RunFailed`. `stream` yields the events of a run as they happen; the last one is `RunEnded`.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from types import NoneType
from typing import cast

from msgspec import Struct, structs

from dragoman.config.check import complete, config_error
from dragoman.config.read import load_settings
from dragoman.config.settings import Settings, UpstreamKind, UpstreamSettings
from dragoman.config.values import read_struct
from dragoman.core.fields import is_a
from dragoman.engine.events import EngineEvent, RunEnd, RunEnded
from dragoman.engine.function_tool import tool
from dragoman.engine.run import Engine, Model, Observer
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Tool, ToolSource
from dragoman.errors import ConfigError, GatewayError, ToolError
from dragoman.gateway import route
from dragoman.gateway.attempt import AttemptObserver, UpstreamModel
from dragoman.gateway.route import Upstreams
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.events import Event, LimitsReported, Started
from dragoman.model.outcome import Limits
from dragoman.model.parts import Refusal, Text
from dragoman.model.request import Request, Turn
from dragoman.upstream.base import UpstreamReply
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
    "RunFailed",
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


_REASONS: dict[RunEnd, str] = {
    "handed_over": "the model called a tool that is not run here",
    "max_turns": "the limit of turns is reached",
    "max_tokens": "the limit of tokens is reached",
    "max_time": "the limit of time is reached",
    "no_progress": "the same call was repeated without progress",
    "cancelled": "it was interrupted",
    "failed": "the model or its upstream failed",
}


class RunFailed(GatewayError):
    """The model did not answer: a failure, a limit or an interruption. The conversation can be continued with `ask`.

    reply: what there is of the answer; `reply.ended` has the conversation so far and the upstream's error.
    """

    def __init__(self, reply: Reply) -> None:
        ended = reply.ended
        why = "" if ended.error is None else f": {ended.error.message}"
        super().__init__(f"the model did not answer: {_REASONS.get(ended.reason, '')}{why}")
        self.reply = reply
        self.kind = "server" if ended.error is None else ended.error.kind

    @property
    def reason(self) -> RunEnd:
        return self.reply.ended.reason


class Agent:
    """A conversation with a model that may use tools. One question at a time.

    observer: awaited with every event, in order; see `engine.events`.
    turns: a conversation to continue, such as the `turns` of another agent.

    `model_name` is the name of the model to ask from now on; None: the one that `open_model` named.

    Raises:
        ConfigError: the model or one of the tools is something else.

    Examples:
        >>> async def greet() -> bool:
        ...     async with open_model(kind="rehearsal") as model:
        ...         reply = await Agent(model).ask("hello")
        ...         return reply.text.startswith("Hello!")
        >>> asyncio.run(greet())
        True
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
        _check_model(model)
        _check_tools(tools)
        self._model = model
        self._tools = tuple(tools)
        self._settings = settings
        self._observer = observer
        self._engine = Engine(model, tools, settings=settings, observer=observer)
        self._head = (
            (Turn(role="system", parts=(Text(text=instructions),), head=True),)
            if instructions
            else ()
        )
        self._turns = tuple(turns)
        self.model_name: str | None = None
        self._is_asking = False

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation so far without the instructions, also while a question is being answered."""
        return _without_head(self._engine.turns) if self._is_asking else self._turns

    async def ask(self, question: str | Turn) -> Reply:
        """Ask the model, run the tools that it calls, and return its answer. After a cancellation `turns` can be continued.

        Raises:
            RunFailed: the model did not answer: it failed, a limit was reached, or `interrupt` was called.
            ConfigError: the question is neither a text nor a turn.
            RuntimeError: the previous question is not answered yet.
        """
        ended = await self._run(self._engine, question)
        reply = Reply(_last_words(ended.turns), ended)
        if ended.reason != "answered":
            raise RunFailed(reply)
        return reply

    async def stream(self, question: str | Turn) -> AsyncGenerator[EngineEvent]:
        """Ask the model and yield every event when it happens. The last is `RunEnded`, which says how the run ended.

        The run waits for the reader. Leaving the loop ends the run; to be sure that it has ended, close the generator
        (`contextlib.aclosing`).

        Raises:
            ConfigError: the question is neither a text nor a turn.
            RuntimeError: the previous question is not answered yet.

        Examples:
            >>> async def last_event() -> str:
            ...     async with open_model(kind="rehearsal") as model:
            ...         names = [type(event).__name__ async for event in Agent(model).stream("hello")]
            ...     return names[-1]
            >>> asyncio.run(last_event())
            'RunEnded'
        """
        events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        observer = self._observer

        async def observe(event: EngineEvent) -> None:
            if observer is not None:
                await observer(event)
            events.put_nowait(event)
            await events.join()

        engine = Engine(self._model, self._tools, settings=self._settings, observer=observe)
        running = asyncio.create_task(self._run(engine, question))
        running.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
                events.task_done()
            await running  # raises what the observer or the engine raised
        finally:
            running.cancel()
            await asyncio.wait((running,))

    async def compact(self) -> bool:
        """Let the model summarise the older part of the conversation, and continue with the summary. Returns whether it did:
        a short conversation, or one whose summary failed, stays as it is.

        Raises:
            RuntimeError: the previous question is not answered yet.
        """
        self._check_idle()
        self._is_asking = True
        try:
            is_compacted = await self._engine.compact(self._request(self._turns))
            if is_compacted:
                self._turns = _without_head(self._engine.turns)
            return is_compacted
        finally:
            self._is_asking = False

    def _check_idle(self) -> None:
        if self._is_asking:
            raise RuntimeError(
                "expected one question at a time, the previous one is not answered yet"
            )

    def _request(self, turns: Sequence[Turn]) -> Request:
        return Request(
            model=self.model_name or "",
            turns=(*self._head, *turns),
            stream=True,
            include_usage=True,
        )

    async def _run(self, engine: Engine, question: str | Turn) -> RunEnded:
        self._check_idle()
        if isinstance(question, str):
            question = Turn(role="user", parts=(Text(text=question),))
        elif not is_a(question, Turn):
            raise ConfigError(
                f"expected a question as text or as a Turn, got {type(question).__name__}"
            )
        asked = (*self._turns, question)
        self._is_asking = True
        usual, self._engine = self._engine, engine
        try:
            return await engine.run(self._request(asked))
        finally:
            self._turns = _without_head(engine.turns) or asked
            self._engine = usual
            self._is_asking = False

    def interrupt(self) -> None:
        """Interrupt the current answer: tools are stopped, and `ask` raises `RunFailed`. Without a current answer it does nothing."""
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
    kind, base_url, api_key_env: one upstream, such as `kind="chat", base_url="http://127.0.0.1:8000/v1"`, or `kind="rehearsal"`.
    settings: those of a gateway, or the path of a dragoman.toml. Without this and an upstream they are found as
        `dragoman serve` finds them, else the rehearsal answers.

    Raises:
        ConfigError: the settings cannot work, or name no model.

    Examples:
        >>> context = open_model("qwen3-coder", kind="chat", base_url="http://127.0.0.1:11434/v1")
    """
    if not is_a(model, (str, NoneType)):
        raise ConfigError(f"expected the name of a model, got {type(model).__name__}")
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
    named = _Named(model or default_model(settings))
    async with UpstreamModel(Upstreams(settings), observer=named) as named.model:
        yield named


class _Named(AttemptObserver):
    """A model with a default name for requests that name none. Its answers report the rate limits in the headers of the reply."""

    model: Model

    def __init__(self, name: str) -> None:
        self._name = name
        self._limits: Limits | None = None

    def replied(self, target: AttemptTarget, reply: UpstreamReply) -> UpstreamReply:
        del target
        self._limits = limits_of(reply.headers, time.time())
        return reply

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator[AsyncIterator[Sequence[Event]]]:
        named = request if request.model else structs.replace(request, model=self._name)
        async with self.model.ask(named) as answer:
            limits = self._limits
            if limits is None:
                yield answer
            else:
                async with aclosing(_with_limits(answer, limits)) as limited:
                    yield limited


async def _with_limits(
    answer: AsyncIterator[Sequence[Event]], limits: Limits
) -> AsyncGenerator[Sequence[Event]]:
    """The answer, which reports the limits when it has begun."""
    async for events in answer:
        begun = [at for at, event in enumerate(events, 1) if isinstance(event, Started)]
        if begun:
            yield [*events[: begun[0]], LimitsReported(limits), *events[begun[0] :]]
            break
        yield events
    async for events in answer:
        yield events


def _settings(
    kind: UpstreamKind,
    base_url: str | None,
    api_key_env: str | None,
    settings: Settings | Path | str | None,
) -> Settings:
    if isinstance(settings, Settings):
        return complete(settings)
    if not is_a(settings, (str, Path, NoneType)):
        raise ConfigError(f"expected Settings or the path of a file, got {type(settings).__name__}")
    # The default kind alone names no upstream.
    if settings is not None or (base_url is None and kind == "chat"):
        return load_settings(settings, os.environ)
    given = {"kind": kind, "base_url": base_url, "api_key_env": api_key_env}
    problems: list[str] = []
    named = {name: value for name, value in given.items() if value is not None}
    upstream = read_struct(UpstreamSettings, named, "", problems)
    if upstream is None:
        raise config_error(problems)
    return complete(Settings(upstreams={kind: upstream}))


def _check_model(model: object) -> None:
    if not callable(getattr(model, "ask", None)):
        raise ConfigError(
            f"expected a model, got {type(model).__name__}: `async with open_model(…) as model` gives one"
        )


def _check_tools(tools: object) -> None:
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Iterable):
        raise ConfigError(f"expected a list of tools, got {type(tools).__name__}")
    for each in cast("Iterable[object]", tools):
        if isinstance(each, ToolSource) or (hasattr(each, "offer") and hasattr(each, "run")):
            continue
        hint = f": put @tool above {getattr(each, '__name__', 'it')}" if callable(each) else ""
        raise ConfigError(f"expected a tool, got {type(each).__name__}{hint}")


def _without_head(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    return tuple(turn for turn in turns if not turn.head)


def _last_words(turns: Sequence[Turn]) -> str:
    """The text of the model's last turn."""
    for turn in reversed(turns):
        if turn.role == "assistant":
            return "".join(part.text for part in turn.parts if isinstance(part, (Text, Refusal)))
        if turn.role == "user":
            break
    return ""
