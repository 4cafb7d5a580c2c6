"""What a child says on its standard error, for the log: line by line, cut, and no more than a reader can take.

Pure: the caller reads the clock, and logs what comes out. Secrets are hidden by the log itself.
"""

from collections import deque

__all__ = ("Murmur",)

# A log line of Codex has some 200 characters; a backtrace a few hundred lines.
MAX_LINE = 1000
LINES_PER_SPELL = 100
SPELL_SECONDS = 10.0
# The last words of a child that dies are in the error message.
REMEMBERED = 3


class Murmur:
    """`feed` gives the lines to log."""

    def __init__(self) -> None:
        self.last: deque[str] = deque(maxlen=REMEMBERED)
        self._rest = b""
        self._spell = float("-inf")
        self._count = 0
        self._unsaid = 0

    def feed(self, data: bytes, now: float) -> list[str]:
        *lines, rest = (self._rest + data).split(b"\n")
        # A line without an end is cut here, so that its bytes are not gathered for ever.
        self._rest = rest[:MAX_LINE] if len(rest) > MAX_LINE else rest
        return [said for line in lines if line.strip() for said in self._say(line, now)]

    def _say(self, line: bytes, now: float) -> list[str]:
        text = line[:MAX_LINE].decode("utf-8", "replace").strip()
        self.last.append(text)
        said: list[str] = []
        if now - self._spell >= SPELL_SECONDS:
            if self._unsaid:
                said.append(f"({self._unsaid} lines are not shown)")
            self._spell, self._count, self._unsaid = now, 0, 0
        self._count += 1
        if self._count > LINES_PER_SPELL:
            self._unsaid += 1
            return said
        return [*said, text]
