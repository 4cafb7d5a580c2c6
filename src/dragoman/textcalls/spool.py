"""The raw text of a block that is not settled yet: what a cursor has passed, kept in case the block proves to be text."""

from dragoman.textcalls.tape import Tape

__all__ = ("Spool",)


class Spool:
    """A tape with a memory that reaches back to `settled`. Each character is kept once and joined once."""

    __slots__ = ("_passed", "settled", "tape")

    def __init__(self) -> None:
        self.tape = Tape()
        self.settled = 0
        self._passed: list[str] = []  # from `settled` to the base of the tape

    def feed(self, text: str, keep: int) -> None:
        """Add a text. The tape keeps what stands from `keep` on, the memory what is not settled."""
        tape = self.tape
        start = max(self.settled, tape.base)
        if keep > start:
            self._passed.append(tape.slice(start, keep))
        tape.feed(text, keep)

    def settle(self, at: int) -> None:
        """Everything before `at` has been told or is markup. What stands behind it is on the tape again."""
        tape = self.tape
        if at < tape.base:
            tape.data = "".join(self._passed)[at - self.settled :] + tape.data
            tape.base = at
        self.settled = at
        self._passed.clear()

    def text(self, stop: int) -> str:
        """The text from `settled` to `stop`."""
        tape = self.tape
        if not self._passed:
            return tape.slice(self.settled, stop)
        return ("".join(self._passed) + tape.data[: max(0, stop - tape.base)])[
            : stop - self.settled
        ]
