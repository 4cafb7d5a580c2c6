"""Harmony, the framing of gpt-oss: a header that names channel and recipient, then a message.

    <|channel|>analysis<|message|>…<|end|>                                            thinking
    <|channel|>final<|message|>…                                                      text for the reader
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>      a call

The recipient may stand before or behind the channel; servers sometimes eat the first words of the header. Only calls are
looked for unless the other channels are asked for.
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
_KNOWN = Words(("analysis", "commentary", "final"))
_AFTER_ROLE = Words(("<|channel|>", "to="))
_NO_HEADER = ",;()[]{}\"'`!?\n"  # prose has one of them soon
_RECIPIENT = re.compile(r"to=(?:functions?\.)?([^\s<|]+)")
_CHANNEL = re.compile(r"(?:<\|channel\|>|^)\s*(\w+)")


class HarmonyBody(Struct, frozen=True):
    """One message with its header. takes_channels: thinking and text for the reader are taken out of their marks too."""

    takes_channels: bool = False

    def parse(self, block: Block) -> Wait[None]:
        header = yield from self._header(block)
        recipient = _RECIPIENT.search(header)
        channel = _CHANNEL.search(header)
        if recipient is not None:
            yield from self._call(block, recipient[1])
        elif channel is None or not self.takes_channels:
            block.malformed("expected a recipient")
        elif channel[1] == "analysis":
            yield from block.confirm()
            yield from block.until(_THOUGHT_END, block.thought)
            block.stop = block.at
        else:
            yield from block.confirm()
            block.stop = block.at

    def _header(self, block: Block) -> Wait[str]:
        word = ""
        if block.opener == "<|start|>assistant":
            yield from block.skip(" ")
            word = yield from block.expect(_AFTER_ROLE)
        if "<|channel|>" in (block.opener, word):
            yield from block.skip(" ")
            word += yield from block.expect(_KNOWN)
        rest, _ = yield from block.read(_MESSAGE, block.limits.confirm, forbid=_NO_HEADER)
        return block.opener + word + rest

    def _call(self, block: Block, name: str) -> Wait[None]:
        if (yield from block.skip(SPACE)) not in ("{", '"'):
            block.malformed("expected arguments")
        yield from block.confirm()
        block.begin(name, at=block.start)
        for piece in (yield from read_arguments(block)):
            block.input(piece)
        block.end()
