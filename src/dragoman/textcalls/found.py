"""What the finder tells of a text: its own small vocabulary, below the events of an answer.

    TextFound ThoughtFound                     words for the reader, words of the model to itself
    CallFound InputFound* CallEnded            a call, whose inputs join to one JSON object
    CallFound InputFound* CallBroken           one that was told while it streamed and then went wrong
    TroubleFound                               something irregular, for the record

Offsets count characters from the beginning of the text. `index` counts the calls of one text from 0.
"""

from typing import Literal

from msgspec import Struct

__all__ = (
    "CallBroken",
    "CallEnded",
    "CallFound",
    "Found",
    "InputFound",
    "TextFound",
    "ThoughtFound",
    "Trouble",
    "TroubleFound",
)

Trouble = Literal["malformed", "truncated", "unknown_tool", "limit", "repaired"]


class TextFound(Struct, frozen=True, gc=False):
    text: str


class ThoughtFound(Struct, frozen=True, gc=False):
    text: str


class CallFound(Struct, frozen=True, gc=False):
    """A call begins. `call_id` is the model's own, empty if its format has none."""

    index: int
    name: str
    call_id: str
    pattern: str


class InputFound(Struct, frozen=True, gc=False):
    index: int
    text: str


class CallEnded(Struct, frozen=True, gc=False):
    """The call is whole. Its markup stood from `start` to `end`."""

    index: int
    start: int
    end: int


class CallBroken(Struct, frozen=True, gc=False):
    """A call already told cannot be completed, and must not be run."""

    index: int
    reason: str


class TroubleFound(Struct, frozen=True, gc=False):
    kind: Trouble
    message: str
    offset: int


Found = TextFound | ThoughtFound | CallFound | InputFound | CallEnded | CallBroken | TroubleFound
