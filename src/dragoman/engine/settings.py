"""The limits of a run and how it is run. Every number has its reason beside it; None removes a limit."""

from msgspec import Struct, field

from dragoman.engine.compaction import CompactionPolicy, SummaryCompaction
from dragoman.errors import ConfigError

__all__ = ("EngineSettings",)

MAX_OUTPUT_CHARACTERS = 64_000
"""About 16,000 tokens: a long file, and an eighth of the context of the models that agents use."""


class EngineSettings(Struct, frozen=True, kw_only=True):
    """The limits of a run.

    max_turns: answers of the model.
    max_tokens: input and output of all answers together, checked after each answer.
    max_seconds: wall time of the whole run; calls that are still running then are aborted.
    max_repeats: how many answers may repeat the same call with the same arguments while the model makes no new call.
    max_parallel: calls that run at once, of tools that allow it.
    tool_timeout: seconds for tools that set no time limit of their own.
    stop_grace: seconds a tool has to stop when it is cancelled; a tool that does not stop is left behind and logged.
    idle_timeout: seconds between two reads of an answer.
    retries: how often an answer that broke off before any call was started is requested again.
    retry_delay, retry_max_delay: seconds before the first retry, doubled with each retry, and the longest delay.
    max_output_characters: text of one result that goes back to the model; more is cut out of the middle.
    max_media_characters: base64 of one image, sound or file in a result; a larger one is left out.
    compaction: when and how a long conversation is summarised; None: never.
    """

    max_turns: int | None = 100
    max_tokens: int | None = None
    max_seconds: float | None = None
    # The number that other agents treat as a loop. A model that polls on purpose varies its arguments or waits longer.
    max_repeats: int | None = 5
    max_parallel: int = 8
    # Longer than a build; the shell has its own, shorter limit.
    tool_timeout: float | None = 600.0
    # Time for both SIGTERM and SIGKILL to a process group.
    stop_grace: float = 5.0
    # Reasoning models are silent for minutes; Codex waits as long.
    idle_timeout: float = 300.0
    retries: int = 3
    retry_delay: float = 0.5
    # Rate limits are counted by the minute.
    retry_max_delay: float = 60.0
    max_output_characters: int = MAX_OUTPUT_CHARACTERS
    # Providers take images of up to 5 MB and some requests of 20 MB.
    max_media_characters: int = 8_000_000
    compaction: CompactionPolicy | None = field(default_factory=SummaryCompaction)

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_tokens", "max_repeats", "max_parallel"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"expected {name} to be at least 1, got {value}")
        for name in ("max_seconds", "tool_timeout", "stop_grace", "idle_timeout"):
            seconds: float | None = getattr(self, name)
            if seconds is not None and seconds <= 0:
                raise ConfigError(f"expected {name} to be more than 0 seconds, got {seconds}")
        for name in ("retries", "retry_delay", "retry_max_delay", "max_output_characters"):
            number: float = getattr(self, name)
            if number < 0:
                raise ConfigError(f"expected {name} not to be negative, got {number}")
