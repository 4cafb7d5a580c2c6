"""Tool input as it arrives: increments out, whatever the provider sends; and whether a call may be run.

`InputBuffer` collects one call's input. Providers send increments; a few resend everything so far in each delta
("cumulative"). The rule, per call: only the second fragment can show it, by strictly extending the first from byte 0.
If the join of both could still be JSON the fragment is held for one more step and the third decides, or the whole text
where the protocol repeats it; otherwise the call is latched as cumulative and only new suffixes come out. No overlap is
ever guessed, and no fragment is dropped for being equal to another. Free text (`custom` tools) is always incremental:
nothing in it distinguishes a beginning that is sent again from one that is written twice, as in `-` and `--`.

    EMPTY --first--> ONE --second does not extend--> INCREMENTAL
                      |--second extends, join impossible--> CUMULATIVE
                      '--second extends, join possible--> UNSURE --third or end--> INCREMENTAL | CUMULATIVE
"""

import re
from enum import Enum, auto

from msgspec import Struct

from dragoman._json import is_prefix, is_strict
from dragoman.model.parts import Call

_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_MARK = re.compile(r'["{}\[\]]')
_STRING_MARK = re.compile(r'["\\]')


class _State(Enum):
    EMPTY = auto()
    ONE = auto()
    UNSURE = auto()
    INCREMENTAL = auto()
    CUMULATIVE = auto()


# Looked up once: members of an enum are found slowly, and these are asked for with every call and fragment.
_EMPTY = _State.EMPTY
_ONE = _State.ONE
_UNSURE = _State.UNSURE
_INCREMENTAL = _State.INCREMENTAL
_CUMULATIVE = _State.CUMULATIVE


class InputBuffer:
    """The input of one call. `push` and `settle` return the increment to emit; nothing emitted is ever retracted."""

    __slots__ = ("_first", "_held", "_pieces", "_size", "_state")

    def __init__(self, *, is_json: bool = True) -> None:
        self._state = _EMPTY if is_json else _INCREMENTAL
        self._pieces: list[str] = []
        # Characters emitted; for a cumulative call also the length of the last fragment.
        self._size = 0
        self._first = ""
        self._held = ""

    @property
    def is_empty(self) -> bool:
        return not self._pieces and not self._held

    @property
    def is_cumulative(self) -> bool:
        return self._state is _CUMULATIVE

    def text(self) -> str:
        """Everything emitted so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def is_incremental(self) -> bool:
        """Whether every fragment is its own increment beyond doubt."""
        return self._state is _INCREMENTAL

    def keep(self, fragments: list[str]) -> None:
        """Take fragments of an input that `is_incremental`."""
        self._pieces += fragments

    def push(self, fragment: str) -> str:
        """Take a fragment; give the increment it stands for."""
        if not fragment:
            return ""
        if self._state is _INCREMENTAL:
            self._pieces.append(fragment)
            return fragment
        if self._state is _EMPTY:
            self._state = _ONE
            self._first = fragment
            return self._keep(fragment)
        if self._state is _ONE:
            return self._push_second(fragment)
        if self._state is _UNSURE:
            extends = len(fragment) > len(self._held) and fragment.startswith(self._held)
            return self._decide(is_cumulative=extends) + self.push(fragment)
        return self._push_cumulative(fragment)

    def settle(self, whole: str | None = None) -> tuple[str, bool]:
        """The input is over. `whole`: the complete text where the protocol repeats it.

        Returns the last increment, and whether `whole` contradicts what was emitted (then `whole` is the truth).
        """
        increment = self._decide_at_end(whole) if self._state is _UNSURE else ""
        if whole is None:
            return increment, False
        emitted = self.text()
        if whole.startswith(emitted):
            return increment + self._keep(whole[len(emitted) :]), False
        return increment, True

    def _push_second(self, fragment: str) -> str:
        extends = len(fragment) > len(self._first) and fragment.startswith(self._first)
        if not extends:
            self._state = _INCREMENTAL
            return self._keep(fragment)
        if not is_prefix(self._first + fragment):
            self._state = _CUMULATIVE
            return self._push_cumulative(fragment)
        self._state = _UNSURE
        self._held = fragment
        return ""

    def _decide_at_end(self, whole: str | None) -> str:
        """Settle an unsure call without a third fragment: by the whole text if there is one, else by what is JSON."""
        joined = self._first + self._held
        is_incremental = is_strict(joined) if whole is None else whole.startswith(joined)
        return self._decide(is_cumulative=not is_incremental)

    def _decide(self, *, is_cumulative: bool) -> str:
        held, self._held = self._held, ""
        self._state = _CUMULATIVE if is_cumulative else _INCREMENTAL
        return self._push_cumulative(held) if is_cumulative else self._keep(held)

    def _push_cumulative(self, fragment: str) -> str:
        # A latched provider may repeat its last fragment (nothing new) but a shorter or different one is its own
        # increment again: emitted as it came, so that nothing is lost and the result shows what happened.
        if len(fragment) >= self._size and fragment.startswith(self.text()):
            return self._keep(fragment[self._size :])
        return self._keep(fragment)

    def _keep(self, text: str) -> str:
        if text:
            self._pieces.append(text)
            self._size += len(text)
        return text


class Extent:
    """Whether a text that comes in fragments is one JSON object, from brace to brace, by now.

    Counts brackets and knows strings; each character is looked at once. That the text is JSON it does not prove.

        BEFORE --"{"--> INSIDE --the brace that closes it--> WHOLE --anything but blanks--> BROKEN
          '--anything but blanks and "{"------------------------------------------------------^
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "_is_broken", "is_whole")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._is_broken = False
        self.is_whole = False

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text) and not self._is_broken:
            if self._depth == 0:
                at = self._outside(text, at)
            elif self._in_string:
                at = self._inside_string(text, at)
            else:
                at = self._inside(text, at)

    def _outside(self, text: str, at: int) -> int:
        begin = _NOT_BLANK.search(text, at)
        if begin is None:
            return len(text)
        if self.is_whole or begin[0] != "{":
            self._is_broken = True
            self.is_whole = False
        else:
            self._depth = 1
        return begin.end()

    def _inside(self, text: str, at: int) -> int:
        mark = _MARK.search(text, at)
        if mark is None:
            return len(text)
        match mark[0]:
            case '"':
                self._in_string = True
            case "{" | "[":
                self._depth += 1
            case _:
                self._depth -= 1
                self.is_whole = self._depth == 0
        return mark.end()

    def _inside_string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        mark = _STRING_MARK.search(text, at)
        if mark is None:
            return len(text)
        if mark[0] == '"':
            self._in_string = False
        else:
            self._escaped = True
        return mark.end()


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
