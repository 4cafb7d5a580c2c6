"""What a stage knows of one choice and of one text while it is scanned."""

from dragoman.model.events import PartEnded
from dragoman.model.parts import Call
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.found import Found
from dragoman.textcalls.openers import Openers
from dragoman.textcalls.tail import Tail, TailPolicy
from dragoman.textcalls.weaving import CallIds, Weaver

__all__ = ("Debt", "ScannedChoice", "ScannedText")


Debt = tuple[int, int, bool]
"""What of a text was not told: its part, how many of its characters had come, and whether it had ended."""


class ScannedChoice:
    """What is known of one choice."""

    __slots__ = ("calls", "identify", "is_closed", "is_finished", "tail", "texts", "written")

    def __init__(self, policy: TailPolicy, seed: str) -> None:
        self.tail = Tail(policy)
        self.identify = CallIds(seed)
        self.calls = 0  # complete calls of the client, structured or written
        self.is_closed = False  # a structured call came: text is text
        self.is_finished = False
        self.texts: list[ScannedText] = []
        self.written: list[Call] = []  # calls that were told and came as text


class ScannedText:
    """A text of the upstream while it is scanned. `found` keeps what a reasoning holds until it is over.

    `came` and `told` count its characters, but for those that passed unseen.
    """

    __slots__ = (
        "begins_in",
        "came",
        "choice",
        "ended",
        "finder",
        "found",
        "is_plain",
        "is_quick",
        "late",
        "mark",
        "number",
        "told",
        "weaver",
    )

    def __init__(
        self, number: int, choice: ScannedChoice, openers: Openers, weaver: Weaver
    ) -> None:
        finder = Finder(openers, weaver.offers)
        self.begins_in = openers.begins_in
        self.is_quick = False  # text in which nothing begins may pass as it is
        self.late: list[str] = []  # text that passed so
        self.came = 0
        self.told = 0
        self.mark = ""  # an opener that was left out because a structured call came instead of what it opens
        self.number = number
        self.choice = choice
        self.finder = finder
        self.weaver = weaver
        self.is_plain = True  # nothing was found in it, nothing withheld
        self.ended: PartEnded | None = None
        self.found: list[Found] = []

    def catch_up(self) -> None:
        """Account for the text that passed as it was."""
        if self.late:
            late = ("".join(self.late),)
            self.late.clear()
            self.finder.catch_up(late)
            self.weaver.note(late)

    def rest(self) -> None:
        """Note whether text may pass as it is: nothing is held, and its part is open under its own number."""
        self.is_quick = self.is_calm and self.weaver.text_part == self.number

    @property
    def is_still(self) -> bool:
        """Whether nothing was found and nothing is held: then its end is its end, whatever the reason."""
        return self.is_plain and self.finder.is_quiet

    @property
    def is_calm(self) -> bool:
        """Whether text in which nothing begins would be told as it comes."""
        is_open = self.weaver.text_part is not None and self.ended is None
        return is_open and self.finder.is_quiet and not self.choice.tail.told

    @property
    def is_settled(self) -> bool:
        """Whether all that came was told."""
        is_open = self.weaver.text_part is not None and self.ended is None
        return is_open and self.told == self.came
