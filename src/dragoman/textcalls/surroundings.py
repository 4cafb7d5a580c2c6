"""Tracks what surrounds a place in the text: a code fence, inline code, reasoning, the beginning of a line."""

from typing import Literal

Region = Literal["plain", "fence", "inline", "think"]

THINKING = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "[THINK]": "[/THINK]",
}
"""The tags that begin reasoning in the middle of an answer, and the tags that end it."""

_MAX_INDENT = 3
_FENCE = 3


class Surroundings:
    """Whether the end of the text so far is in a code fence, in inline code, in reasoning, or at the start of a line.

    Follows Markdown where it matters: a fence is a run of three or more backticks or tildes at the beginning of a line
    (with at most three spaces before it), and ends with a run of the same character, at least as long and alone on its
    line; inline code is between two equally long runs of backticks within a line. A fence that never closes stays a fence.

    All text passes through this class, in order. The finder decides what an opener means in these surroundings.
    """

    __slots__ = (
        "_fence",
        "_fence_size",
        "_indent",
        "_inline",
        "_run",
        "_run_indent",
        "_run_size",
        "_thinking",
        "is_fresh",
        "is_in_word",
    )

    def __init__(self) -> None:
        self.is_fresh = True  # nothing but white space so far
        self.is_in_word = False  # a letter, a digit or an underscore came last
        self._fence = ""  # the character of the run that opened the fence
        self._fence_size = 0
        self._inline = 0  # the length of the run that opened inline code
        self._thinking = ""  # the tag that will end the reasoning
        self._indent = 0  # white space since the beginning of the line; -1: other text
        self._run = ""  # the character of the run at the end of the text, a backtick or a tilde
        self._run_size = 0
        self._run_indent = 0

    @property
    def region(self) -> Region:
        if self._thinking:
            return "think"
        if self._fence:
            return "fence"
        return "inline" if self._inline else "plain"

    @property
    def is_line_start(self) -> bool:
        return self._indent >= 0

    def pass_text(self, text: str) -> None:
        """Pass text without runs and without tags around reasoning."""
        if not text:
            return
        if self._run:
            self._end_run(text[0])
        last = text[-1]
        self.is_in_word = last.isalnum() or last == "_"
        line = text.rfind("\n")
        tail = text[line + 1 :]
        if line >= 0:
            self._inline = 0
            self._indent = 0
        if tail.strip():
            self._indent = -1
        elif self._indent >= 0:
            self._indent += len(tail)
        if self.is_fresh and not text.isspace():
            self.is_fresh = False

    def pass_run(self, run: str) -> None:
        """Pass backticks or tildes. The next call may continue the same run."""
        self.is_fresh = self.is_in_word = False
        if self._run and self._run != run[0]:
            self._end_run(run[0])
        if not self._run:
            self._run = run[0]
            self._run_size = 0
            self._run_indent = self._indent
            self._indent = -1
        self._run_size += len(run)

    def pass_word(self, word: str) -> None:
        """Pass a tag that begins or ends reasoning."""
        if self._run:
            self._end_run(word[0])
        self._indent = -1
        self.is_fresh = self.is_in_word = False
        if self._thinking:
            self._thinking = "" if word == self._thinking else self._thinking
        elif not self._fence and not self._inline:
            self._thinking = THINKING.get(word, "")

    def settle_before(self, word: str) -> None:
        """End the run at the end of the text, unless the word continues it."""
        if self._run and not word.startswith(self._run):
            self._end_run(word[:1])

    def _end_run(self, after: str) -> None:
        run, self._run = self._run, ""
        size = self._run_size
        if self._thinking:
            return
        is_fence = size >= _FENCE and 0 <= self._run_indent <= _MAX_INDENT
        if self._fence:
            is_closer = is_fence and run == self._fence and size >= self._fence_size
            if is_closer and after in "\r\n \t":
                self._fence = ""
        elif is_fence and not self._inline:
            self._fence, self._fence_size = run, size
        elif run == "`":
            self._inline = {0: size, size: 0}.get(self._inline, self._inline)
