"""The contract as a gateway runs it: calls found in the text first, then the client's names, then the policy.

Calls that came as text end the turn by default: a model that writes them goes on and invents their results. So where the
text is over in that sense, the answer is finished here, and `is_over` says that the upstream need not be heard any more.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from dragoman.core.aliases import NameMap
from dragoman.core.restore import Restorer
from dragoman.model.events import Event, Finished
from dragoman.model.outcome import Loss, LossAction, Problem
from dragoman.model.request import Tool
from dragoman.textcalls.contract.policy import ContractPolicy
from dragoman.textcalls.contract.report import ContractReport
from dragoman.textcalls.contract.stage import ContractStage
from dragoman.textcalls.stage import TextCallStage
from dragoman.textcalls.tail import TailPolicy

__all__ = ("Contract", "tail_of")


def tail_of(policy: ContractPolicy) -> TailPolicy:
    """What the policy means for calls that came as text. How many there may be is counted with the others, later."""
    return TailPolicy(
        stop="never" if policy.stop is False else policy.stop_mode,
        suppress_tail=policy.stop is True or policy.suppress_tail is not False,
    )


class Contract:
    """One answer. `feed` is a change of events, from those of the upstream to those for the client.

    written: finds the calls in the text, made with `tail_of(policy)`; None: text is text.
    """

    def __init__(
        self,
        policy: ContractPolicy,
        *,
        tools: Iterable[Tool] = (),
        names: NameMap | None = None,
        written: TextCallStage | None = None,
        losses: Mapping[str, LossAction] | None = None,
        choices: int = 1,
    ) -> None:
        self._stage = ContractStage(policy, tools, losses=losses, choices=choices)
        self._written = written
        self._restore: Callable[[Event], Iterable[Event]] | None = (
            None if names is None else Restorer(names).feed
        )
        tail = tail_of(policy)
        # Of several choices one may be over before another has begun: then the upstream is heard to its end.
        self._cuts_text = tail.stop != "never" and tail.suppress_tail and choices == 1
        self._is_ending = False
        self._hears_end = False

    @property
    def is_over(self) -> bool:
        """Whether the answer has been ended: what the upstream still says is not told."""
        return self._stage.is_over

    @property
    def is_stopped(self) -> bool:
        return self._stage.is_stopped

    @property
    def is_cut(self) -> bool:
        """Whether it was ended before the upstream's answer was: that is not to be heard to its end."""
        return self._stage.is_cut

    @property
    def is_lingering(self) -> bool:
        """Whether only further calls are waited for; who runs this decides how long."""
        written = self._written
        return self._stage.is_lingering and (written is None or not written.is_holding)

    @property
    def told(self) -> int:
        return self._stage.told

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._stage.losses

    @property
    def problems(self) -> tuple[Problem, ...]:
        written = () if self._written is None else self._written.problems
        return (*written, *self._stage.problems)

    def report(self) -> ContractReport:
        written = self._written
        return self._stage.report(withheld=written is not None and written.is_truncated)

    def comment(self) -> str:
        """The last comment of a stream."""
        return self.report().comment

    def hear_end(self) -> None:
        """The answer is there as a whole: nothing is saved by not hearing its end, which says what it cost."""
        self._hears_end = True
        self._stage.hear_end()

    def feed(self, event: Event) -> tuple[Event, ...]:
        """What the client is to see of an event."""
        if self._stage.is_over:
            return ()
        if self._written is None:
            return self._tell((event,))
        told = self._tell(self._written.feed(event))
        self._is_ending = self._is_ending or isinstance(event, Finished)
        if not self._cuts_text or self._is_ending or self._stage.is_over:
            return told
        if not (self._written.calls and self._written.is_done):
            return told
        if self._hears_end:
            self._stage.end_turns()
            return told
        self._stage.is_cut = True
        return (*told, *self._tell(self._written.finish_now()))

    def stop(self) -> None:
        """Nobody waits for the rest: when the answer is failed now, it ends with its calls."""
        self._stage.stop()

    def _tell(self, events: Iterable[Event]) -> tuple[Event, ...]:
        if self._restore is not None:
            events = chain.from_iterable(map(self._restore, events))
        return tuple(chain.from_iterable(map(self._stage.feed, events)))
