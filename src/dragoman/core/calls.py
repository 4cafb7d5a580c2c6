"""Tool input as it arrives: increments out, whatever the provider sends; and whether a call may be run.

`InputBuffer` collects one call's input. Providers send increments; a few resend everything so far in each delta
("cumulative"). The rule, per call: only the second fragment can show it, by strictly extending the first from byte 0.
If the join of both could still be JSON the fragment is held for one more step and the third decides; otherwise the
call is latched as cumulative and only new suffixes come out. No overlap is ever guessed, and no fragment is dropped
for being equal to another.

    EMPTY --first--> ONE --second does not extend--> INCREMENTAL
                      |--second extends, join impossible--> CUMULATIVE
                      '--second extends, join possible--> UNSURE --third or end--> INCREMENTAL | CUMULATIVE
"""

from enum import Enum, auto

from msgspec import Struct

from dragoman._json import is_prefix, is_strict
from dragoman.model.parts import Call

__all__ = ("InputBuffer", "Verdict", "judge")


class _State(Enum):
    EMPTY = auto()
    ONE = auto()
    UNSURE = auto()
    INCREMENTAL = auto()
    CUMULATIVE = auto()


class InputBuffer:
    """The input of one call. `push` and `settle` return the increment to tell; nothing told is ever retracted."""

    __slots__ = ("_first", "_held", "_is_json", "_pieces", "_size", "_state", "_told")

    def __init__(self, *, is_json: bool = True) -> None:
        self._state = _State.EMPTY
        self._is_json = is_json
        self._pieces: list[str] = []
        self._told = (
            0  # characters told; for a cumulative call also the length of the last fragment
        )
        self._first = ""
        self._held = ""

    @property
    def is_empty(self) -> bool:
        return not self._pieces and not self._held

    @property
    def is_cumulative(self) -> bool:
        return self._state is _State.CUMULATIVE

    def text(self) -> str:
        """Everything told so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def push(self, fragment: str) -> str:
        """Take a fragment; give the increment it stands for."""
        if self._state is _State.INCREMENTAL:
            self._pieces.append(fragment)
            return fragment
        if not fragment:
            return ""
        match self._state:
            case _State.EMPTY:
                self._state = _State.ONE
                self._first = fragment
                return self._tell(fragment)
            case _State.ONE:
                return self._push_second(fragment)
            case _State.UNSURE:
                return self._decide(fragment) + self.push(fragment)
            case _:
                return self._push_cumulative(fragment)

    def settle(self, whole: str | None = None) -> tuple[str, bool]:
        """The input is over. `whole`: the complete text where the protocol repeats it.

        Returns the last increment, and whether `whole` contradicts what was told (then `whole` is the truth).
        """
        increment = self._decide(None) if self._state is _State.UNSURE else ""
        if whole is None:
            return increment, False
        told = self.text()
        if whole.startswith(told):
            return increment + self._tell(whole[len(told) :]), False
        return increment, True

    def _push_second(self, fragment: str) -> str:
        extends = len(fragment) > len(self._first) and fragment.startswith(self._first)
        if not extends:
            self._state = _State.INCREMENTAL
            return self._tell(fragment)
        if self._is_json and not is_prefix(self._first + fragment):
            self._state = _State.CUMULATIVE
            return self._push_cumulative(fragment)
        self._state = _State.UNSURE
        self._held = fragment
        return ""

    def _decide(self, third: str | None) -> str:
        """Settle an unsure call by its third fragment, or at the end by what is JSON."""
        held, self._held = self._held, ""
        if third is not None:
            cumulative = len(third) > len(held) and third.startswith(held)
        else:
            cumulative = not is_strict(self._first + held) or is_strict(held)
        self._state = _State.CUMULATIVE if cumulative else _State.INCREMENTAL
        return self._push_cumulative(held) if cumulative else self._tell(held)

    def _push_cumulative(self, fragment: str) -> str:
        # A latched provider may repeat its last fragment (nothing new) but a shorter or different one is its own
        # increment again: told as it came, so that nothing is lost and the result shows what happened.
        if len(fragment) >= self._told and fragment.startswith(self.text()):
            return self._tell(fragment[self._told :])
        return self._tell(fragment)

    def _tell(self, text: str) -> str:
        if text:
            self._pieces.append(text)
            self._told += len(text)
        return text


class Verdict(Struct, frozen=True):
    """Whether a call may be run, and if not, why."""

    executable: bool
    reason: str


def judge(call: Call) -> Verdict:
    """A call is executable only if the protocol closed it and, for a function, its input is strict JSON.

    The reasons: `complete`, or `not_closed`, `no_name`, `invalid_json`, `not_client`.
    """
    if call.executor != "client":
        return Verdict(executable=False, reason="not_client")
    if call.status != "completed":
        return Verdict(executable=False, reason="not_closed")
    if not call.name:
        return Verdict(executable=False, reason="no_name")
    if call.kind != "custom" and not is_strict(call.input):
        return Verdict(executable=False, reason="invalid_json")
    return Verdict(executable=True, reason="complete")
