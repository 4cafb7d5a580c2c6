"""The engine: a model, tools, and conversations that are run with them, one at a time."""

from collections.abc import Sequence

from dragoman.engine.asking import Model
from dragoman.engine.events import RunEnded
from dragoman.engine.runner.observing import Observer
from dragoman.engine.runner.run import Run
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Tool, ToolSource
from dragoman.errors import ConfigError
from dragoman.model.request import Request, Turn

__all__ = ("Engine",)


class Engine:
    """Runs conversations: asks the model, runs the tools it calls while it still speaks, and asks again.

    tools: what the engine itself runs. Tools that a request declares are its caller's and never run here.
    observer: told of everything that happens, in order, and awaited.
    """

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool | ToolSource] = (),
        *,
        settings: EngineSettings | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._model = model
        self._tools = tuple(tools)
        self._settings = settings or EngineSettings()
        self._observer = observer
        self._run: Run | None = None
        self._turns: tuple[Turn, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation of the run as far as its answers are over; after it, all of it."""
        return self._turns if self._run is None else self._run.turns

    async def run(self, request: Request) -> RunEnded:
        """Go on with a conversation until the model has answered, a limit is reached or it is interrupted.

        Cancelled, it stops what runs, keeps a conversation that can be gone on with in `turns`, and lets the cancellation
        through. An exception of the observer comes out as it is, after the same.

        Raises:
            ConfigError: tools that a model could not tell apart, several choices, or a run that is not over yet.
        """
        if self._run is not None:
            raise ConfigError("expected one run at a time, got a second before the first was over")
        if request.choices is not None and request.choices > 1:
            raise ConfigError(
                f"expected a request for one choice, got one for {request.choices}: "
                "a conversation goes on with one answer"
            )
        run = Run(
            self._model, self._tools, request, settings=self._settings, observer=self._observer
        )
        self._run = run
        try:
            return await run.go()
        finally:
            self._turns = run.turns
            self._run = None

    def interrupt(self) -> None:
        """End the run that is going on, if one is: it returns `cancelled`. To be called on the event loop's thread."""
        if self._run is not None:
            self._run.stop("cancelled")
