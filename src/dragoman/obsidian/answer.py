"""One answer under the Obsidian policy: find calls in the text, restore the client's names, then apply the policy.

By default a turn ends with calls that came as text, because a model that writes calls as text goes on and invents their
results. Once such a text is over, the answer is finished here and `is_over` says that the rest of the upstream's answer
is not needed.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from dragoman.core.aliases import NameMap
from dragoman.core.restore import Restorer
from dragoman.model.events import Event, Finished
from dragoman.model.outcome import Loss, LossAction, Problem
from dragoman.model.request import Request, Tool
from dragoman.obsidian.policy import ObsidianPolicy
from dragoman.obsidian.stage import ObsidianReport, ObsidianStage
from dragoman.textcalls.formats import USE_TOOL
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.stage import StageSettings, TextCallStage

_BLOCKS = "use_tool"
_PATTERNS = (USE_TOOL,)  # one object: its openers are prepared once


def formats_for(policy: ObsidianPolicy, formats: tuple[str, ...]) -> tuple[str, ...]:
    """The text formats to look for. A client that reads `<use_tool>` has a model that may write it."""
    if policy.mode != "obsidian-xml" or formats == ("auto",) or _BLOCKS in formats:
        return formats
    return (*formats, _BLOCKS)


def stage_without_tools(
    policy: ObsidianPolicy, request: Request, seed: str
) -> TextCallStage | None:
    """The stage that finds `<use_tool>` blocks if the client declares no tools, but describes them in its prompt.

    Obsidian Copilot up to 3.1.5 does that. Then every name is accepted and values have no types.
    """
    choice = request.tool_choice
    if policy.mode != "obsidian-xml" or (choice is not None and choice.mode == "none"):
        return None
    return TextCallStage(
        StageSettings(offers=Offers(None), patterns=_PATTERNS, policy=policy.tail, seed=seed)
    )


class ObsidianAnswer:
    """One answer. `feed` takes an event of the upstream and returns the events for the client.

    text_calls: finds calls in the text, with the policy `policy.tail`; None: text is text.
    names: the client's names for the tools; None if the events have them already.
    """

    def __init__(
        self,
        policy: ObsidianPolicy,
        *,
        tools: Iterable[Tool] = (),
        names: NameMap | None = None,
        text_calls: TextCallStage | None = None,
        losses: Mapping[str, LossAction] | None = None,
        choices: int = 1,
    ) -> None:
        self._stage = ObsidianStage(policy, tools, losses=losses, choices=choices)
        self._text_calls = text_calls
        self._restore: Callable[[Event], Iterable[Event]] | None = (
            None if names is None else Restorer(names).feed
        )
        tail = policy.tail
        # One of several choices may be over before another has begun. Then the upstream is read to its end.
        self._cuts_text = tail.stop != "never" and tail.suppress_tail and choices == 1
        self._is_finishing = False
        self._is_complete = False

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended. What the upstream still sends is dropped."""
        return self._stage.is_over

    @property
    def is_stopped(self) -> bool:
        """Whether the grace period ran out."""
        return self._stage.is_stopped

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended before the upstream's did, so that the upstream is not read to its end."""
        return self._stage.is_cut

    @property
    def awaits_calls(self) -> bool:
        """Whether only further calls can still change the answer. The caller decides how long to wait for them."""
        text_calls = self._text_calls
        return self._stage.awaits_calls and (text_calls is None or not text_calls.is_holding)

    @property
    def sent_calls(self) -> int:
        return self._stage.sent_calls

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._stage.losses

    @property
    def problems(self) -> tuple[Problem, ...]:
        in_text = () if self._text_calls is None else self._text_calls.problems
        return (*in_text, *self._stage.problems)

    def report(self) -> ObsidianReport:
        text_calls = self._text_calls
        return self._stage.report(withheld=text_calls is not None and text_calls.is_truncated)

    def comment(self) -> str:
        """The last comment of a stream."""
        return self.report().comment

    def expect_complete(self) -> None:
        """The upstream's answer is there as a whole: read it to its end, which has the usage, instead of cutting it."""
        self._is_complete = True
        self._stage.expect_complete()

    def feed(self, event: Event) -> tuple[Event, ...]:
        """The events for the client."""
        if self._stage.is_over:
            return ()
        if self._text_calls is None:
            return self._apply((event,))
        events = self._apply(self._text_calls.feed(event))
        self._is_finishing = self._is_finishing or isinstance(event, Finished)
        if not self._cuts_text or self._is_finishing or self._stage.is_over:
            return events
        if not (self._text_calls.calls and self._text_calls.is_done):
            return events
        if self._is_complete:
            self._stage.end_choices()
            return events
        self._stage.is_cut = True
        return (*events, *self._apply(self._text_calls.finish_now()))

    def stop(self) -> None:
        """The grace period ran out: an answer that is failed now ends with its calls instead."""
        self._stage.stop()

    def _apply(self, events: Iterable[Event]) -> tuple[Event, ...]:
        if self._restore is not None:
            events = chain.from_iterable(map(self._restore, events))
        return tuple(chain.from_iterable(map(self._stage.feed, events)))
