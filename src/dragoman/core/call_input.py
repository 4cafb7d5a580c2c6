"""The input of a call: turns the provider's fragments into increments, and decides whether a call may be run.

`InputBuffer` collects one call's input. Most providers send increments; a few resend everything so far in each delta
("cumulative"). The rule, per call: a call is cumulative only if the second fragment strictly extends the first from
character 0. If both fragments joined could still be JSON, the second is held, and the third fragment decides, or the
whole text where the protocol repeats it. Otherwise the call is cumulative from then on, and only new suffixes are
emitted. Partial overlaps are never guessed, and no fragment is dropped because it equals another. Free text (`custom`
tools) is always incremental: a resent beginning looks the same as repeated text, as in `-` and `--`.

    EMPTY --first--> ONE --second does not extend--> INCREMENTAL
                      |--second extends, join impossible--> CUMULATIVE
                      '--second extends, join possible--> UNSURE --third or end--> INCREMENTAL | CUMULATIVE
"""

import re
from enum import Enum, auto
from hashlib import blake2b

from msgspec import Struct

from dragoman._json import (
    canonical_text,
    dumps_ordered,
    is_prefix,
    is_same_json,
    is_strict,
    loads,
)
from dragoman.core.fields import expect_instance
from dragoman.errors import MalformedJson
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


# Globals, because looking up a member of an enum is slow and every fragment needs these.
_EMPTY = _State.EMPTY
_ONE = _State.ONE
_UNSURE = _State.UNSURE
_INCREMENTAL = _State.INCREMENTAL
_CUMULATIVE = _State.CUMULATIVE


def joined(pieces: list[str]) -> str:
    """The pieces as one text, which replaces them in the list: a wire may repeat the whole any number of times."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""


class InputBuffer:
    """The input of one call. `push` and `settle` return the increment to emit. Increments are never retracted."""

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
        return joined(self._pieces)

    @property
    def is_incremental(self) -> bool:
        """Whether it is certain that every fragment is an increment."""
        return self._state is _INCREMENTAL

    def keep(self, fragments: list[str]) -> None:
        """Store fragments of an input that `is_incremental`."""
        self._pieces += fragments

    def push(self, fragment: str) -> str:
        """Take a fragment and return its increment."""
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
        """End the input. `whole`: the complete text, if the protocol repeats it.

        Returns the last increment, and whether `whole` contradicts the emitted text (then `whole` is authoritative).
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
        """Decide an unsure call without a third fragment: by the whole text if given, else by which reading is JSON."""
        joined = self._first + self._held
        is_incremental = is_strict(joined) if whole is None else whole.startswith(joined)
        return self._decide(is_cumulative=not is_incremental)

    def _decide(self, *, is_cumulative: bool) -> str:
        held, self._held = self._held, ""
        self._state = _CUMULATIVE if is_cumulative else _INCREMENTAL
        return self._push_cumulative(held) if is_cumulative else self._keep(held)

    def _push_cumulative(self, fragment: str) -> str:
        # A cumulative provider may repeat its last fragment, which adds nothing. A shorter or different fragment is
        # emitted unchanged as an increment, so that nothing is lost and the result shows what happened.
        if len(fragment) >= self._size and fragment.startswith(self.text()):
            return self._keep(fragment[self._size :])
        return self._keep(fragment)

    def _keep(self, text: str) -> str:
        if text:
            self._pieces.append(text)
            self._size += len(text)
        return text


class Extent:
    """Whether a text that arrives in fragments is already one JSON object, from brace to brace.

    Counts brackets outside strings and reads each character once. It does not prove that the text is JSON.

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


KEPT_CHARACTERS = 4096
"""The longest input of an ended call that its reader keeps as text. Nearly all are shorter; of others it keeps digests."""


class EndedInput(Struct, frozen=True):
    """The input of an ended call, to compare repetitions with. `exact` is the text itself or a digest of it."""

    exact: str | bytes
    canonical: bytes = b""

    def is_equal(self, text: str) -> bool:
        """Whether the text has the same characters."""
        return input_key(text) == self.exact

    def is_same(self, text: str) -> bool:
        """Whether the text is the same input, perhaps in other formatting."""
        if self.is_equal(text):
            return True
        if isinstance(self.exact, str):
            return is_same_json(self.exact, text)
        return is_strict(text) and _digest(canonical_text(text)) == self.canonical


def ended_input(text: str) -> EndedInput:
    key = input_key(text)
    return (
        EndedInput(key) if isinstance(key, str) else EndedInput(key, _digest(canonical_text(text)))
    )


def input_key(text: str) -> str | bytes:
    """The input itself, or a digest if it is too long to be kept."""
    if len(text) <= KEPT_CHARACTERS:
        return text
    return _digest(text.encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def is_same_input(one: str, other: str) -> bool:
    """Whether two texts are the same JSON value with the same numbers: 1 is not 1.0. False if either is not JSON."""
    try:
        first, second = loads(one), loads(other)
        # Python's 1 equals 1.0 and True; and a number beyond a double is written as null.
        return bool(first == second) and dumps_ordered(first) == dumps_ordered(second)
    except (MalformedJson, RecursionError):
        return False


def unquoted(text: str) -> str | None:
    """The JSON object in an input that is a JSON string, with the blanks before it; None if the input is not that.

    Some servers encode the arguments twice. Only one layer is removed, and the object keeps its characters.
    """
    body = text.lstrip(" \t\r\n")
    if not body.startswith('"') or not is_strict(body):
        return None
    found: object = loads(body)
    if not isinstance(found, str) or not found.lstrip().startswith("{") or not is_strict(found):
        return None
    return text[: len(text) - len(body)] + found


class Verdict(Struct, frozen=True):
    """Whether a call may be run, and if not, why."""

    executable: bool
    reason: str


def judge(call: Call) -> Verdict:
    """A call is executable only if the protocol closed it and, for a function, its input is strict JSON.

    Examples:
        >>> judge(Call(call_id="call_1", name="weather", input='{"city":"Os', status="incomplete"))
        Verdict(executable=False, reason='not_closed')

    The reasons: `complete`, or `not_closed`, `no_name`, `invalid_json`, `not_client`.
    """
    expect_instance(call, Call)
    if call.executor != "client":
        return Verdict(executable=False, reason="not_client")
    if call.status != "completed":
        return Verdict(executable=False, reason="not_closed")
    if not call.name:
        return Verdict(executable=False, reason="no_name")
    if call.kind != "custom" and not is_strict(call.input):
        return Verdict(executable=False, reason="invalid_json")
    return Verdict(executable=True, reason="complete")
