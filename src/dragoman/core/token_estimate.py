"""Estimates the tokens of a request, where no provider counts them."""

from collections.abc import Iterable
from math import ceil
from typing import assert_never

from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Request, Tool

# English and code have 3.5 to 4.5 characters per token with the vendors' current tokenizers.
CHARACTERS_PER_TOKEN = 4
# Other scripts: from half a token per character (Cyrillic) to one and a half (rare ideographs).
TOKENS_PER_FOREIGN_CHARACTER = 1
# Role, separators, and the ids of calls.
TOKENS_PER_TURN = 4
TOKENS_PER_CALL = 12
# The text that Anthropic and OpenAI add to each tool, and before the first.
TOKENS_PER_TOOL = 8
TOKENS_FOR_TOOLS = 300
# The largest image that Anthropic does not scale down, by Anthropic's count.
TOKENS_PER_IMAGE = 1600
# A PDF page has some 50 KB and counts 1,500 to 3,000 tokens.
BASE64_PER_TOKEN = 25


def estimate_tokens(request: Request) -> int:
    """An estimate of the tokens in a request's conversation, tools and answer schema. At least 1."""
    total = float(sum(TOKENS_PER_TURN + _parts(turn.parts) for turn in request.turns))
    if request.tools:
        total += TOKENS_FOR_TOOLS + sum(map(_tool, request.tools))
    if request.response_format is not None and request.response_format.schema is not None:
        total += _bytes(bytes(request.response_format.schema))
    return max(1, ceil(total))


def _parts(parts: Iterable[Part]) -> float:
    return sum(map(estimate_part, parts))


def estimate_part(part: Part) -> float:
    """An estimate of the tokens in a part."""
    match part:
        case Text() | Refusal():
            return _text(part.text)
        case Reasoning():
            return sum(map(_text, (*part.summary, *part.content)))
        case Call():
            return TOKENS_PER_CALL + _text(part.name) + _text(part.input)
        case Result():
            return TOKENS_PER_CALL + _parts(part.content)
        case Media():
            return _media(part)
        case Opaque():
            return _bytes(bytes(part.raw))
        case _:
            assert_never(part)


def _media(media: Media) -> float:
    if media.kind == "image" or media.data is None:
        return TOKENS_PER_IMAGE
    return max(TOKENS_PER_IMAGE, len(media.data) / BASE64_PER_TOKEN)


def _tool(tool: Tool) -> float:
    total = TOKENS_PER_TOOL + _text(tool.name) + _text(tool.description or "")
    if tool.schema is not None:
        total += _bytes(bytes(tool.schema))
    if tool.grammar is not None:
        total += _text(tool.grammar.definition)
    return total


def _text(text: str) -> float:
    if text.isascii():
        return len(text) / CHARACTERS_PER_TOKEN
    plain = len(text.encode("ascii", "ignore"))
    return plain / CHARACTERS_PER_TOKEN + (len(text) - plain) * TOKENS_PER_FOREIGN_CHARACTER


def _bytes(data: bytes) -> float:
    return _text(data.decode("utf-8", "replace"))
