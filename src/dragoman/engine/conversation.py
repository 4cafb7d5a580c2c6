"""A run from answer to answer: the next request, what all answers came to, and whether there is to be another. Pure."""

from msgspec.structs import replace

from dragoman.engine.answer import Answer
from dragoman.engine.compaction import Compaction
from dragoman.engine.events import Compacted, RunEnd
from dragoman.engine.limits import Repeats, add_usage, exceeded, token_count
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import Toolbox
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call
from dragoman.model.request import Request, ToolChoice, Turn

__all__ = ("Conversation",)

_FREE = ToolChoice(mode="auto")


class Conversation:
    """The turns so far. What came with the request stays as it came; what is added is always fit to be sent again."""

    def __init__(self, request: Request, settings: EngineSettings) -> None:
        self.turns = request.turns
        self.total = Usage()
        self.turn_count = 0
        self.call_ids = {
            part.call_id for turn in request.turns for part in turn.parts if isinstance(part, Call)
        }
        self._request = request
        self._settings = settings
        self._repeats = Repeats()
        self._tokens = 0  # of the last exchange

    def next_request(self, toolbox: Toolbox) -> Request:
        """The conversation so far, with the caller's tools and the engine's."""
        request = self._request
        return replace(
            request,
            turns=self.turns,
            tools=(*request.tools, *toolbox.declarations),
            namespaces=(*request.namespaces, *toolbox.namespaces(request.namespaces)),
            include_usage=True if request.include_usage is None else request.include_usage,
        )

    def spend(self, usage: Usage | None) -> None:
        """Tokens that brought no turn: of an answer that is asked for again, of a summary."""
        self.total = add_usage(self.total, usage)

    def take(self, answer: Answer) -> RunEnd | None:
        """Add an answer; why the run ends with it, or None."""
        self._add(answer.turns)
        self.spend(answer.usage)
        self._tokens = token_count(answer.usage)
        repeats = self._repeats.note(answer.calls)
        if answer.end is not None:
            return answer.end
        if answer.calls:
            self._release_choice()
        elif answer.finish != "pause":
            # A provider that pauses has more to say and wants to be asked with what it said so far.
            return "answered"
        return exceeded(
            self._settings,
            turns=self.turn_count,
            tokens=token_count(self.total),
            repeats=repeats,
        )

    def plan_compaction(self, *, is_full: bool = False) -> Compaction | None:
        """What to do if the conversation has become too long. Not asked again before another answer.

        is_full: the model has said that it is.
        """
        policy = self._settings.compaction
        tokens, self._tokens = self._tokens, 0
        if policy is None or not (tokens or is_full):
            return None
        return policy.plan(self.turns, None if is_full else tokens)

    def compact(self, plan: Compaction, summary: str) -> Compacted:
        """Put the summary in place of what it sums up."""
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

    def _release_choice(self) -> None:
        """A choice that forces a call has been obeyed; kept up, the model could never come to an end."""
        choice = self._request.tool_choice
        if choice is None:
            return
        if choice.mode in {"required", "tool"}:
            self._request = replace(self._request, tool_choice=_FREE)
        elif choice.required:
            self._request = replace(self._request, tool_choice=replace(choice, required=False))
