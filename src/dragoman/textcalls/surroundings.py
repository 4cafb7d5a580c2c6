"""Tracks what surrounds a place in the text: a code fence, inline code, reasoning, the beginning of a line."""

import re
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

_FENCE = 3
_MAX_INDENT = 3  # by how much a fence may be closed further right than it was opened
_MAX_LEAD = 64  # characters before a fence in its line: more than lists and quotations nest
# A fence may be in a quotation or a list, however deep, and begin in the line of the list's own mark.
_LEAD = re.compile(r"[ \t>]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t][ \t>]*)*")
_INDENT = re.compile(r"[ \t>]*")


class Surroundings:
    """Whether the end of the text so far is in a code fence, in inline code, in reasoning, or at the start of a line.

    Follows Markdown where it matters: a fence is a run of three or more backticks or tildes at the beginning of a line,
    of a quotation or of an item of a list, and ends with a run of the same character, at least as long and alone on its
    line; inline code is between two equally long runs of backticks within a line, or within a paragraph if it begins with an
    opener: so models quote blocks of several lines. A fence that never closes stays a fence.

    All text passes through this class, in order. The finder decides what an opener means in these surroundings.
    """

    __slots__ = (
        "_fence",
        "_fence_lead",
        "_fence_size",
        "_inline",
        "_is_after_run",
        "_is_block_quoted",
        "_lead",
        "_run",
        "_run_lead",
        "_run_size",
        "_thinking",
        "has_kept_block",
        "is_fresh",
        "is_in_word",
    )

    def __init__(self) -> None:
        self.is_fresh = True  # nothing but white space so far
        self.is_in_word = False  # a letter, a digit or an underscore came last
        self.has_kept_block = False  # something that began like a call stayed text
        self._fence = ""  # the character of the run that opened the fence
        self._fence_size = 0
        self._fence_lead = 0  # how many characters its line had before it
        self._inline = 0  # the length of the run that opened inline code
        self._is_after_run = False  # the run that opened inline code came last
        self._is_block_quoted = False  # the inline code began with an opener
        self._thinking = ""  # the tag that will end the reasoning
        self._lead: str | None = ""  # the line so far; None: too long to be the lead of a fence
        self._run = ""  # the character of the run at the end of the text, a backtick or a tilde
        self._run_size = 0
        self._run_lead: str | None = ""  # the line before the run

    @property
    def region(self) -> Region:
        if self._thinking:
            return "think"
        if self._fence:
            return "fence"
        return "inline" if self._inline else "plain"

    @property
    def is_line_start(self) -> bool:
        return self._lead is not None and not self._lead.strip()

    @property
    def is_line_empty(self) -> bool:
        """Whether nothing came in this line, and it is not in a fence or in reasoning."""
        return self._lead == "" and not (self._run or self._fence or self._thinking)

    def pass_text(self, text: str) -> None:
        """Pass text without runs and without tags around reasoning."""
        if not text:
            return
        if self._run:
            self._end_run(text[0])
        self._is_after_run = False
        last = text[-1]
        self.is_in_word = last.isalnum() or last == "_"
        line = text.rfind("\n")
        tail = text[line + 1 :]
        if line >= 0:
            if not self._is_block_quoted or self._has_blank_line(text):
                self._inline = 0
            self._lead = ""
        if self._lead is not None:
            is_short = len(self._lead) + len(tail) <= _MAX_LEAD
            self._lead = self._lead + tail if is_short else None
        if self.is_fresh and not text.isspace():
            self.is_fresh = False

    def _has_blank_line(self, text: str) -> bool:
        first, *others = text.split("\n")
        is_first_blank = self._lead is not None and not (self._lead + first).strip()
        return is_first_blank or any(not line.strip() for line in others[:-1])

    def quote_opener(self) -> None:
        """Note that an opener comes here, which is not a call: if inline code begins with it, the code may have several lines."""
        if self._inline and self._is_after_run:
            self._is_block_quoted = True

    def pass_run(self, run: str) -> None:
        """Pass backticks or tildes. The next call may continue the same run."""
        self.is_fresh = self.is_in_word = False
        if self._run and self._run != run[0]:
            self._end_run(run[0])
        if not self._run:
            self._run = run[0]
            self._run_size = 0
            self._run_lead, self._lead = self._lead, None
        self._run_size += len(run)

    def pass_word(self, word: str) -> None:
        """Pass a tag that begins or ends reasoning."""
        if self._run:
            self._end_run(word[0])
        self._lead = None
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
        lead = self._run_lead
        if self._fence:
            is_alone = (
                lead is not None
                and len(lead) <= self._fence_lead + _MAX_INDENT
                and _INDENT.fullmatch(lead)
            )
            if is_alone and run == self._fence and size >= self._fence_size:
                self._fence = "" if after in "\r\n \t" else self._fence
        elif size >= _FENCE and lead is not None and _LEAD.fullmatch(lead) and not self._inline:
            self._fence, self._fence_size, self._fence_lead = run, size, len(lead)
        elif run == "`":
            self._is_after_run = not self._inline
            self._is_block_quoted = self._is_block_quoted and self._inline not in (0, size)
            self._inline = {0: size, size: 0}.get(self._inline, self._inline)
