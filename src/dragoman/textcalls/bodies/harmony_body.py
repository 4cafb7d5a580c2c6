"""Harmony, the framing of gpt-oss: a header that names channel and recipient, then a message.

    <|channel|>analysis<|message|>…<|end|>                                            thinking
    <|channel|>final<|message|>…                                                      text for the reader
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>      a call

The recipient may stand before or behind the channel; servers sometimes eat the first words of the header.
"""

import re

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.json_body import read_arguments
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import Words

__all__ = ("HarmonyBody",)

_MESSAGE = Words(("<|message|>",))
_THOUGHT_END = Words(("<|end|>", "<|return|>"))
_CHANNELS = frozenset({"analysis", "commentary", "final"})
_RECIPIENT = re.compile(r"to=(?:functions?\.)?([^\s<|]+)")
_CHANNEL = re.compile(r"(?:<\|channel\|>|^)\s*(\w+)")


class HarmonyBody(Struct, frozen=True):
    """One message with its header. `prefix`: what a recipient that is a tool begins with."""

    prefix: str = "functions."

    def parse(self, block: Block) -> Wait[None]:
        rest, _ = yield from block.read(_MESSAGE, block.limits.confirm, forbid="\n")
        header = block.opener + rest
        recipient = _RECIPIENT.search(header)
        channel = _CHANNEL.search(header)
        if recipient is not None:
            yield from self._call(block, recipient[1])
        elif channel is None or channel[1] not in _CHANNELS:
            block.malformed("expected a channel")
        elif channel[1] == "analysis":
            yield from block.confirm()
            yield from block.until(_THOUGHT_END, block.thought)
            block.stop = block.at
        else:
            yield from block.confirm()
            block.stop = block.at

    def _call(self, block: Block, name: str) -> Wait[None]:
        if (yield from block.skip(SPACE)) not in ("{", '"'):
            block.malformed("expected arguments")
        yield from block.confirm()
        block.begin(name, at=block.start)
        for piece in (yield from read_arguments(block)):
            block.input(piece)
        block.end()
