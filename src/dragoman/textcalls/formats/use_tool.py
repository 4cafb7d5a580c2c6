"""Blocks whose tags are named after the parameters: Obsidian Copilot's `<use_tool>`, and tags named after the tool.

    <use_tool> <name>f</name> <k>v</k> … </use_tool>
    <f> <k>v</k> … </f>

A block ends at the first closing tag that leaves no declared parameter open, because notes quote markup; where no such
tag comes soon, at the first. Values are read when the block is whole: which closing tag ends a string shows only then.
"""

import re

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.tag_values import as_arguments, read_parameters
from dragoman.textcalls.tape import SPACE, Malformed, Wait
from dragoman.textcalls.words import Words, words

__all__ = ("USE_TOOL", "TagNamedBody", "find_name")

_OPENER, _CLOSER = "<use_tool>", "</use_tool>"
_NAME = re.compile(r"<name>(.*?)</name>", re.DOTALL)
_LAST_TAG = re.compile(r"</([^<>]+)>\s*\Z")
# How far behind a closing tag inside an open parameter the real one is looked for.
_MAX_BEYOND = 4096


def find_name(text: str) -> str:
    """The name a `<use_tool>` block gives, empty if it gives none."""
    found = _NAME.search(text)
    return found[1].strip() if found is not None else ""


class UseToolBody(Struct, frozen=True):
    """`<name>` and parameters up to `</use_tool>`."""

    def parse(self, block: Block) -> Wait[None]:
        if (yield from block.skip(SPACE)) != "<":
            block.malformed("expected a tag")
        start = block.at
        block.at += 1
        tag, _ = yield from block.read(words(">"), block.limits.max_key, forbid=f"<{SPACE}")
        if not tag:
            block.malformed("expected a tag")
        yield from block.confirm()
        watch = _Watch(block, "")
        text = yield from _gather(block, words(_CLOSER), watch, f"<{tag}>", eos_ok=True)
        whole = f"<{tag}>{text}"
        name = find_name(whole)
        if not name:
            block.malformed("expected a name", at=start)
        block.begin(name, at=block.start)
        block.input(as_arguments(read_parameters(whole, name, block.offers)))
        block.end(at=block.at if block.stop is None else block.stop)
        if block.stop is None:
            block.stop = block.at


class TagNamedBody(Struct, frozen=True):
    """Parameters up to the closing tag of the tool."""

    def parse(self, block: Block) -> Wait[None]:
        name = block.opener[1:-1]
        closer = f"</{name}>"
        keys = block.offers.parameters(name)
        yield from block.skip(SPACE)
        first = yield from block.expect(words(closer, *(f"<{key}>" for key in keys)))
        yield from block.confirm()
        text = (
            ""
            if first == closer
            else (
                yield from _gather(block, words(closer), _Watch(block, name), first, eos_ok=False)
            )
        )
        block.begin(name, at=block.start)
        block.input(as_arguments(read_parameters(first + text, name, block.offers)))
        block.end(at=block.at if block.stop is None else block.stop)
        if block.stop is None:
            block.stop = block.at


def _gather(block: Block, closer: Words, watch: "_Watch", first: str, *, eos_ok: bool) -> Wait[str]:
    """The text of the block up to the closing tag that ends it. The end of the text ends it only if nothing is open."""
    parts: list[str] = []
    earliest: tuple[int, int] | None = (
        None  # where the first closing tag stood, and how many parts came before it
    )
    while True:
        limit = block.limits.max_block if earliest is None else earliest[0] + _MAX_BEYOND - block.at
        pieces: list[str] = []
        try:
            stop = yield from block.until(closer, pieces.append, max(limit, 0))
        except Malformed:
            if earliest is None:
                raise
            stop = ""
        part = "".join(pieces)
        if stop or earliest is None:
            watch.see(part if parts else first + part)
            parts.append(part)
        if not stop and earliest is None:
            if watch.is_open or not eos_ok or not watch.is_whole(first + part):
                block.malformed("the text ended inside a block")
            return "".join(parts)
        if stop and not watch.is_open:
            return "".join(parts)
        if not stop and earliest is not None:
            block.stop = earliest[0]
            return "".join(parts[: earliest[1]])
        if earliest is None:
            earliest = (block.at, len(parts))
        parts.append(stop)


class _Watch:
    """Whether a declared parameter is open. Sees each part of a block once; no part begins or ends within a tag."""

    __slots__ = ("_block", "_name", "_open", "_tags")

    def __init__(self, block: Block, name: str) -> None:
        self._block = block
        self._name = name
        self._open = ""
        self._tags: re.Pattern[str] | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def is_whole(self, text: str) -> bool:
        """Whether a block that nothing ends may end here: behind the closing tag of a parameter, with none open or due."""
        last = _LAST_TAG.search(text, text.rfind("</"))
        keys = self._block.offers.parameters(self._name)
        if last is None or (keys and last[1] not in (*keys, "name")):
            return False
        needed = self._block.offers.required(self._name)
        is_given = last[1] != "name" or "name" in keys or not keys
        return (
            is_given
            and all(f"</{key}>" in text for key in needed)
            and all(text.rfind(f"<{key}>") <= text.rfind(f"</{key}>") for key in keys)
        )

    def see(self, part: str) -> None:
        if not self._name:
            self._name = find_name(part)
        if self._tags is None and self._name:
            self._tags = self._compile()
        position = 0
        while self._tags is not None:
            if self._open:
                end = part.find(f"</{self._open}>", position)
                if end < 0:
                    return
                self._open, position = "", end
            found = self._tags.search(part, position)
            if found is None:
                return
            self._open, position = found[1], found.end()

    def _compile(self) -> re.Pattern[str]:
        keys = self._block.offers.parameters(self._name)
        return re.compile(f"<({'|'.join(map(re.escape, keys))})>" if keys else r"(?!)")


USE_TOOL = (
    TextPattern(name="use_tool", openers=(_OPENER,), body=UseToolBody(), closers=(_CLOSER,)),
)
"""The patterns, in order of rank."""
