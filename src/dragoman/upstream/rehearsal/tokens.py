"""How many tokens something is, by a rule of thumb: four characters are one. Pure.

The numbers are for looking at and for testing limits; no vendor's tokenizer gives the same ones.
"""

from collections.abc import Iterable
from typing import assert_never

from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Request, Tool

__all__ = ("CHARACTERS", "count_part", "count_request", "tokens_in")

CHARACTERS = 4
# Between a small and a large picture by the vendors' own tables.
MEDIA_TOKENS = 1000


def tokens_in(length: int) -> int:
    """Tokens in so many characters."""
    return -(-length // CHARACTERS)


def count_request(request: Request) -> int:
    """Tokens that a model would read; at least one."""
    turns = sum(count_part(part) for turn in request.turns for part in turn.parts)
    return max(1, turns + sum(map(_count_tool, request.tools)))


def count_part(part: Part) -> int:
    match part:
        case Text() | Refusal():
            return tokens_in(len(part.text))
        case Reasoning():
            return tokens_in(_length(part.summary) + _length(part.content))
        case Call():
            return tokens_in(len(part.name) + len(part.input))
        case Result():
            return sum(map(count_part, part.content))
        case Media():
            return MEDIA_TOKENS
        case Opaque():
            return tokens_in(len(bytes(part.raw)))
        case _:
            assert_never(part)


def _count_tool(tool: Tool) -> int:
    schema = b"" if tool.schema is None else bytes(tool.schema)
    grammar = "" if tool.grammar is None else tool.grammar.definition
    return tokens_in(len(tool.name) + len(tool.description or "") + len(schema) + len(grammar))


def _length(texts: Iterable[str]) -> int:
    return sum(map(len, texts))
