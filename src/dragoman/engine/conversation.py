"""A run from answer to answer: builds the next request, adds up all answers, and decides whether another request may follow
and when an answer that broke off is requested again.

This module checks the limits on turns, on tokens and on a model that repeats itself. `run` checks the limit on time and
aborts running calls. Pure: random numbers and times are arguments.
"""

from collections.abc import Iterable
from hashlib import blake2b

from msgspec.structs import replace

from dragoman._json import canonical_text
from dragoman.core.usage import add_usage, token_count
from dragoman.engine.compaction import Compaction
from dragoman.engine.events import Compacted, RunEnd
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import Toolbox
from dragoman.engine.turn import TurnOutcome
from dragoman.model.outcome import ErrorInfo, ErrorKind, Usage
from dragoman.model.parts import Call
from dragoman.model.request import Request, ToolChoice, Turn


class CallRepeats:
    """Counts how often a model repeats the same calls.

    Two calls are the same if their names are and their arguments are the same values, whatever their order and spacing. Each
    answer counts a call once. A call that was never made before is progress and resets the counts. So reading the same
    file between different steps is not a repetition, but a cycle of several calls is.
    """

    __slots__ = ("_counts", "_seen")

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._counts: dict[bytes, int] = {}

    def note(self, calls: Iterable[Call]) -> int:
        """Count the calls of one answer. Returns how often the most repeated one came since the last progress."""
        names = {signature(call) for call in calls}
        if not names <= self._seen:
            self._seen |= names
            self._counts.clear()
        for name in names:
            self._counts[name] = self._counts.get(name, 0) + 1
        return max((self._counts[name] for name in names), default=0)


def signature(call: Call) -> bytes:
    """A digest that is equal for the same calls: JSON is compared as values, everything else as text."""
    name = f"{call.kind}\n{call.namespace or ''}\n{call.name}\n".encode("utf-8", "surrogatepass")
    return blake2b(name + canonical_text(call.input), digest_size=16).digest()


def exceeded(settings: EngineSettings, *, turns: int, tokens: int, repeats: int) -> RunEnd | None:
    """The limit that forbids another request; None if another request is allowed."""
    if settings.max_repeats is not None and repeats >= settings.max_repeats:
        return "no_progress"
    if settings.max_tokens is not None and tokens >= settings.max_tokens:
        return "max_tokens"
    if settings.max_turns is not None and turns >= settings.max_turns:
        return "max_turns"
    return None


_FREE = ToolChoice(mode="auto")


class RunConversation:
    """The turns so far. The turns of the request stay unchanged; the turns added here can always be sent again."""

    def __init__(self, request: Request, settings: EngineSettings) -> None:
        self.turns: tuple[Turn, ...] = ()
        self.total = Usage()
        self.turn_count = 0
        self.call_ids: set[str] = set()
        self._add(request.turns)
        self._request = request
        self._settings = settings
        self._repeats = CallRepeats()
        self._tokens = 0  # of the last request and its answer

    def next_request(self, toolbox: Toolbox) -> Request:
        """A request with the conversation so far, the caller's tools and the engine's."""
        request = self._request
        return replace(
            request,
            turns=self.turns,
            tools=(*request.tools, *toolbox.declarations),
            namespaces=(*request.namespaces, *toolbox.namespaces(request.namespaces)),
            include_usage=True if request.include_usage is None else request.include_usage,
        )

    def count_usage(self, usage: Usage | None) -> None:
        """Count tokens that added no turn: those of an answer that is requested again, or of a summary."""
        self.total = add_usage(self.total, usage)

    def add_outcome(self, answer: TurnOutcome) -> RunEnd | None:
        """Add an answer and its calls. Returns why the run ends with this answer, or None."""
        self._add(answer.turns)
        self.count_usage(answer.usage)
        self._tokens = token_count(answer.usage)
        repeats = self._repeats.note(answer.calls)
        if answer.end is not None:
            return answer.end
        if answer.calls:
            self._drop_forced_choice()
        elif answer.finish != "pause":
            # A provider that pauses its answer expects another request that contains the answer so far.
            return "answered"
        return exceeded(
            self._settings,
            turns=self.turn_count,
            tokens=token_count(self.total),
            repeats=repeats,
        )

    def plan_compaction(self, *, is_full: bool = False) -> Compaction | None:
        """The plan to compact a conversation that has become too long, else None. Plans once per answer.

        is_full: the model refused the request as too long.
        """
        policy = self._settings.compaction
        tokens, self._tokens = self._tokens, 0
        if policy is None or not (tokens or is_full):
            return None
        return policy.plan(self.turns, None if is_full else tokens)

    def compact(self, plan: Compaction, summary: str) -> Compacted:
        """Replace the summarised turns with the summary."""
        before = len(self.turns)
        self.turns = plan.turns(summary)
        return Compacted(
            tokens_before=plan.tokens, turns_before=before, turns_after=len(self.turns)
        )

    def _add(self, turns: tuple[Turn, ...]) -> None:
        self.turns = (*self.turns, *turns)
        self.call_ids.update(
            part.call_id for turn in turns for part in turn.parts if isinstance(part, Call)
        )

    def _drop_forced_choice(self) -> None:
        """Reset the tool choice after the forced call: otherwise the model could never give a final answer."""
        choice = self._request.tool_choice
        if choice is None:
            return
        if choice.mode in {"required", "tool"}:
            self._request = replace(self._request, tool_choice=_FREE)
        elif choice.required:
            self._request = replace(self._request, tool_choice=replace(choice, required=False))


# Errors that may pass. After the others (keys, quota, a request that is refused) a retry would fail again.
_PASSING: frozenset[ErrorKind] = frozenset(
    ("rate_limit", "overloaded", "timeout", "truncated", "upstream", "server", "protocol")
)

# Statuses of a request that is itself wrong, whatever the kind of the error.
_FINAL_STATUSES = frozenset((400, 401, 403, 404, 413, 422))


def retry_after(
    settings: EngineSettings, error: ErrorInfo, *, attempt: int, jitter: float
) -> float | None:
    """Seconds to wait before the request is sent again after the `attempt`-th try (from 1); None: not again.

    Only for an answer of which no call was started: the model would repeat a call whose effects have already happened.
    jitter: a random fraction from 0 up to 1; the wait is between half of the computed delay and all of it.
    """
    may_pass = error.kind in _PASSING and error.status not in _FINAL_STATUSES
    if attempt > settings.retries or not may_pass:
        return None
    due = min(settings.retry_max_delay, settings.retry_delay * (1 << min(attempt - 1, 32)))
    after = due * (0.5 + jitter / 2)
    if error.retry_after is None:
        return after
    return max(after, error.retry_after) if error.retry_after <= settings.retry_max_delay else None
