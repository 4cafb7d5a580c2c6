"""The policy after a call that came as text: what may follow the call, and how many calls there may be.

A model that writes its calls as text does not stop after them: it continues and invents their results. So by default
such a turn ends with its calls.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from dragoman._json import dumps_canonical, loads
from dragoman.textcalls.findings import (
    CallBroken,
    CallEnded,
    CallFound,
    Found,
    InputFound,
    ProblemFound,
    TextFound,
    ThoughtFound,
)


class TailPolicy(Struct, frozen=True, kw_only=True, cache_hash=True):
    """stop: `burst` lets further calls and white space pass, and the first other text ends the turn; `first` ends the turn
    after the first call; `never` lets it continue. suppress_tail: drop text after a call. max_calls: the most calls that
    pass; 0 lets all pass. dedup: drop a call with the name and arguments of an earlier call; calls then pass only when
    they are complete.
    """

    stop: Literal["burst", "first", "never"] = "burst"
    suppress_tail: bool = True
    max_calls: int = 0
    dedup: bool = False


class Tail(Struct, eq=False):
    """The policy applied to one choice. passed, withheld: numbers of calls. is_over: nothing more may come."""

    _policy: TailPolicy
    is_over: bool = False
    passed: int = 0
    withheld: int = 0
    _seen: set[tuple[str, bytes]] = set()
    _withheld_now: set[int] = set()
    _drafts: dict[int, list[CallFound | InputFound]] = {}

    def filter(self, found: Iterable[Found]) -> list[Found]:
        """Return the findings that may pass."""
        passed: list[Found] = []
        for one in found:
            match one:
                case TextFound() | ThoughtFound():
                    if self._passes_text(one.text):
                        passed.append(one)
                case CallFound():
                    self._begin(one, passed)
                case InputFound():
                    self._grow(one, passed)
                case CallEnded():
                    self._end(one, passed)
                case CallBroken():
                    if one.index not in self._withheld_now:
                        passed.append(one)
                case ProblemFound():
                    passed.append(one)
        return passed

    def _passes_text(self, text: str) -> bool:
        if not self.passed or not text:
            return True
        if not text.isspace() and self._policy.stop == "burst":
            self.is_over = True
        return not self._policy.suppress_tail

    def _begin(self, call: CallFound, passed: list[Found]) -> None:
        most = self._policy.max_calls
        if self.is_over or (most and self.passed >= most):
            self.withheld += 1
            self._withheld_now.add(call.index)
        elif self._policy.dedup:
            self._drafts[call.index] = [call]
        else:
            self.passed += 1
            passed.append(call)

    def _grow(self, grown: InputFound, passed: list[Found]) -> None:
        if grown.index in self._drafts:
            self._drafts[grown.index].append(grown)
        elif grown.index not in self._withheld_now:
            passed.append(grown)

    def _end(self, ended: CallEnded, passed: list[Found]) -> None:
        if ended.index in self._withheld_now:
            return
        draft = self._drafts.pop(ended.index, None)
        if draft is not None:
            key = _key(draft)
            if key in self._seen:
                return
            self._seen.add(key)
            self.passed += 1
            passed.extend(draft)
        passed.append(ended)
        if self._policy.stop == "first":
            self.is_over = True


def _key(draft: list[CallFound | InputFound]) -> tuple[str, bytes]:
    """Return name and canonical arguments."""
    names = [one.name for one in draft if isinstance(one, CallFound)]
    source = "".join(one.text for one in draft if isinstance(one, InputFound))
    return names[0], dumps_canonical(loads(source or "{}"))
