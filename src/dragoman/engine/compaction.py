"""Compaction: when a conversation has grown too long, the model's own summary replaces its older turns.

A policy decides when to compact, and which turns; the runner asks the model and inserts the summary. The default policy:

- the head (system texts at the beginning) stays as it is;
- the newest turns stay, and so does every call that has no result yet;
- calls are never separated from their results: the cut is before a user's turn, or before an assistant's turn that
  follows results;
- the turns in between are sent to the model with a request for a summary, and the summary becomes a user's turn.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Turn

DEFAULT_THRESHOLD = 100_000
"""Tokens of one exchange. Models for agents take 128,000 and more; this leaves room for one more long answer."""

INSTRUCTION = (
    "The conversation has become too long to continue as a whole. Write a summary of everything above that allows "
    "the work to be continued without it: the task in the user's words, what was done and found, names of files and "
    "values that will be needed again, decisions and their reasons, what failed, and what remains to be done. "
    "Answer with the summary alone, and call no tools."
)
PREFACE = "Summary of the conversation so far, which it replaces:\n\n"


class Compaction(Struct, frozen=True, kw_only=True):
    """A plan: send `asked` to get a summary, then put the summary between `head` and `tail`.

    tokens: the count that exceeded the threshold; None: the model refused the request as too long.
    """

    tokens: int | None
    asked: tuple[Turn, ...]
    head: tuple[Turn, ...]
    tail: tuple[Turn, ...]

    def turns(self, summary: str) -> tuple[Turn, ...]:
        """The conversation afterwards."""
        summary_turn = Turn(role="user", parts=(Text(text=PREFACE + summary),))
        return (*self.head, summary_turn, *self.tail)


class CompactionPolicy(Protocol):
    """Decides when to compact a conversation, and how."""

    def plan(self, turns: Sequence[Turn], tokens: int | None) -> Compaction | None:
        """The plan; None: not now. `tokens`: of the last request and its answer; None: more than the model accepts."""
        ...


class SummaryCompaction(Struct, frozen=True, kw_only=True):
    """The default policy. `keep`: the least number of newest turns that stay as they are."""

    threshold: int = DEFAULT_THRESHOLD
    keep: int = 6

    def plan(self, turns: Sequence[Turn], tokens: int | None) -> Compaction | None:
        if tokens is not None and tokens < self.threshold:
            return None
        start = _head_length(turns)
        cut = _find_cut(turns, start, len(turns) - self.keep)
        if cut is None:
            return None
        ask = Turn(role="user", parts=(Text(text=INSTRUCTION),))
        return Compaction(
            tokens=tokens,
            asked=(*turns[:cut], ask),
            head=tuple(turns[:start]),
            tail=tuple(turns[cut:]),
        )


def _head_length(turns: Sequence[Turn]) -> int:
    for number, turn in enumerate(turns):
        if turn.role not in {"system", "developer"}:
            return number
    return len(turns)


def _find_cut(turns: Sequence[Turn], start: int, latest: int) -> int | None:
    """The last place up to `latest` where the conversation may be cut, with at least one turn between it and `start`."""
    open_from = _first_open(turns)
    for cut in range(min(latest, open_from), start + 1, -1):
        if _is_seam(turns[cut - 1], turns[cut] if cut < len(turns) else None):
            return cut
    return None


def _is_seam(before: Turn, after: Turn | None) -> bool:
    if after is None or after.role == "user":
        return not _has_calls(before)
    return after.role == "assistant" and before.role in {"tool", "user"}


def _has_calls(turn: Turn) -> bool:
    return any(isinstance(part, Call) and part.executor == "client" for part in turn.parts)


def _first_open(turns: Sequence[Turn]) -> int:
    """The index of the first turn with a call that has no result; the number of turns if every call has one."""
    answered = {part.call_id for turn in turns for part in turn.parts if isinstance(part, Result)}
    for number, turn in enumerate(turns):
        for part in turn.parts:
            if (
                isinstance(part, Call)
                and part.executor == "client"
                and part.call_id not in answered
            ):
                return number
    return len(turns)
