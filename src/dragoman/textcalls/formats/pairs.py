"""Formats of a bare name and pairs of tags."""

from msgspec import Struct
from msgspec.structs import replace

from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.pair_body import PairBody
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.tape import Wait
from dragoman.textcalls.words import words

__all__ = ("PAIRS",)

_MAX_SUFFIX = 32


class SuffixedPairBody(Struct, frozen=True, kw_only=True):
    """Pairs whose every tag carries the suffix of the opener: `<tool_calls:x>`, `<tool_call:x>`, `<arg_key:x>`."""

    body: PairBody
    closer: str

    def parse(self, block: Block) -> Wait[None]:
        suffix, _ = yield from block.read(words(">"), _MAX_SUFFIX, forbid="<\n ")

        def spell(word: str) -> str:
            return f"{word[:-1]}:{suffix}>"

        body = self.body
        suffixed = replace(
            body,
            opens=tuple(map(spell, body.opens)),
            closes=tuple(map(spell, body.closes)),
            key=(spell(body.key[0]), spell(body.key[1])),
            value=(spell(body.value[0]), spell(body.value[1])),
            separators=tuple(map(spell, body.separators)),
        )
        yield from suffixed.parse(block)
        yield from block.close(words(spell(self.closer)), is_needed=False, eos_ok=True)
        if block.stop is None:
            block.stop = block.at


_HUNYUAN = PairBody(opens=("<tool_call>",), closes=("</tool_call>",), separators=("<tool_sep>",))

PAIRS = (
    # GLM 4.5 to 4.7, Poolside, Ling 3
    TextPattern(
        name="glm",
        openers=("<tool_call>",),
        body=PairBody(closes=("</tool_call>",)),
        closers=("</tool_call>",),
    ),
    TextPattern(
        name="hunyuan",
        openers=("<tool_calls>",),
        body=_HUNYUAN,
        closers=("</tool_calls>",),
    ),
    TextPattern(
        name="hunyuan_suffixed",
        openers=("<tool_calls:",),
        body=SuffixedPairBody(body=_HUNYUAN, closer="</tool_calls>"),
        closers=("</tool_calls:",),
    ),
)
"""The patterns, in order of rank."""
