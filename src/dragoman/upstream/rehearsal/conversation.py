"""Where a conversation stands: what the user said last, and which results have come back since. Pure."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from dragoman.model.parts import Call, Media, Part, Result, Text
from dragoman.model.request import Request, Turn

__all__ = ("Answered", "Situation", "read_situation", "text_of_result")

# Clients put context beside the user's words, each piece in an element of its own: `<environment_context>` (Codex),
# `<system-reminder>` (Claude Code).
_ELEMENT = re.compile(r"\s*<([A-Za-z][\w.-]*)[\s>]")


class Answered(Struct, frozen=True):
    """A result, and the name of the tool it came from where that is known."""

    name: str
    result: Result


class Situation(Struct, frozen=True):
    """`rounds` counts the times that results came back since the user last spoke."""

    said: str = ""
    media: int = 0
    results: tuple[Answered, ...] = ()
    rounds: int = 0


def read_situation(request: Request) -> Situation:
    """What the next answer is an answer to."""
    turns = request.turns
    assistants = [index for index, turn in enumerate(turns) if turn.role == "assistant"]
    latest = assistants[-1] + 1 if assistants else 0
    results = tuple(_results(turns[latest:], _called(turns)))
    # Words that come beside results do not make a new task of it: the question is the one before.
    spoken = _last_spoken(turns[:latest] if results and latest else turns)
    turn = turns[spoken] if spoken >= 0 else Turn(role="user")
    return Situation(
        "\n".join(_words_of(turn)),
        sum(isinstance(part, Media) for part in turn.parts),
        results,
        sum(1 for _ in _rounds(turns[spoken + 1 :])),
    )


def text_of_result(result: Result) -> str:
    """A result in words; what is no text is named."""
    return "\n".join(map(_describe, result.content))


def _last_spoken(turns: Sequence[Turn]) -> int:
    """The turn with the user's last words. One that holds only context counts if there is no other."""
    users = [index for index, turn in enumerate(turns) if turn.role == "user"]
    plain = [index for index in users if any(map(_is_plain, turns[index].parts))]
    return (plain or users or [-1])[-1]


def _words_of(turn: Turn) -> list[str]:
    texts = [part.text for part in turn.parts if isinstance(part, Text)]
    plain = [part.text for part in turn.parts if isinstance(part, Text) and _is_plain(part)]
    return plain or texts


def _is_plain(part: Part) -> bool:
    if not isinstance(part, Text) or not part.text.strip():
        return False
    found = _ELEMENT.match(part.text)
    return found is None or not part.text.rstrip().endswith(f"</{found[1]}>")


def _called(turns: Sequence[Turn]) -> dict[str, str]:
    """The names of the calls, by their ids."""
    parts = (part for turn in turns for part in turn.parts)
    return {part.call_id: part.name for part in parts if isinstance(part, Call) and part.call_id}


def _results(turns: Sequence[Turn], names: dict[str, str]) -> Iterator[Answered]:
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Result) and part.executor == "client":
                yield Answered(part.name or names.get(part.call_id) or "the tool", part)


def _rounds(turns: Sequence[Turn]) -> Iterator[Turn]:
    """The first of each run of turns that bring results."""
    before: Turn | None = None
    for turn in turns:
        if turn.role == "tool" and (before is None or before.role != "tool"):
            yield turn
        before = turn


def _describe(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Media():
            return f"[{part.kind}{f' {part.media_type}' if part.media_type else ''}]"
        case _:
            return "[something that is no text]"
