"""Blocks whose tags are named after the parameters: Obsidian Copilot's `<use_tool>`, and tags named after the tool.

    <use_tool> <name>f</name> <k>v</k> … </use_tool>
    <f> <k>v</k> … </f>

A block ends at the first closing tag that leaves no declared parameter open, because notes quote markup; if no such tag
comes soon, the block ends at the first closing tag. Values are read when the block is complete, because only then is it
known which closing tag ends a string.

The schema determines first how a value is read. A parameter declared as a string is its raw text, up to the last of its
closing tags before the next declared parameter, so that HTML in it survives. Any other value ends at its first closing tag.
JSON, nested tags and `<item>` lists are read only if the schema declares object or array, or no type. Entities are not
decoded: models write raw text, and the reader that these blocks were made for does not decode them.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

from msgspec import Struct

from dragoman._json import is_strict
from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.tags import trim_each_newline
from dragoman.textcalls.cursor import SPACE, LiteralSet, Malformed, Wait, words
from dragoman.textcalls.offers import UNTYPED, Offers, Types, types_within
from dragoman.textcalls.values import coerce, json_string, object_source

_TAG = re.compile(r"<([^<>/\s][^<>/\s]*)>")
_CLOSING_TAG = re.compile(r"</([^<>/\s]+)>")
# Also used to find the tags of a tool's parameters: an expression with their names, which a client chose, would stay in the
# cache of `re`, and would try each of them at each `<`.
_ANY_TAG = re.compile(r"<([^<>]+)>")
_ITEM = "item"
_CDATA = ("<![CDATA[", "]]>")
_MAX_NESTING = 32
# The client's reader returns empty lists for these two, whatever the schema declares.
_LISTS = frozenset({"chatHistory", "salientTerms"})


def read_parameters(
    text: str, name: str, offers: Offers, unclosed: set[str] | None = None
) -> dict[str, str]:
    """Return the parameters of a block as JSON sources. The last of equal names counts.

    unclosed: receives the tags that have no partner, which are not parameters.
    """
    starts = [tag.start() for tag in _ANY_TAG.finditer(text) if offers.declares(name, tag[1])]

    def last_end(key: str, end: int) -> int:
        if not offers.types(name, key).is_text:
            return end
        sibling = bisect_left(starts, end)
        limit = starts[sibling] if sibling < len(starts) else len(text)
        return text.rfind(f"</{key}>", end, limit) if limit > end else end

    found: dict[str, str] = {}
    for key, value in _elements(text, last_end, unclosed):
        if key != "name" or offers.declares(name, "name"):
            found.pop(key, None)
            found[key] = _value(value, key, offers.types(name, key), offers.schema(name))
    return found


def _elements(
    text: str,
    last_end: Callable[[str, int], int] | None = None,
    unclosed: set[str] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield `<key>value</key>`, up to the first closing tag or the one that `last_end` finds. Unclosed tags are skipped."""
    missing: set[str] = set() if unclosed is None else unclosed
    ends: dict[str, list[int]] = {}
    for closing in _CLOSING_TAG.finditer(text):
        ends.setdefault(closing[1], []).append(closing.start())
    position = 0
    while (tag := _TAG.search(text, position)) is not None:
        missing.update(_CLOSING_TAG.findall(text, position, tag.start()))
        key, position = tag[1], tag.end()
        places = ends.get(key, ())
        index = bisect_left(places, position)
        if key in missing or index == len(places):
            missing.add(key)
            continue
        end = places[index] if last_end is None else last_end(key, places[index])
        yield key, text[position:end]
        position = end + len(key) + 3
    missing.update(_CLOSING_TAG.findall(text, position))


def _value(text: str, key: str, types: Types, root: object) -> str:
    stripped = text.strip()
    if stripped.startswith(_CDATA[0]) and stripped.endswith(_CDATA[1]):
        return coerce(stripped[len(_CDATA[0]) : -len(_CDATA[1])], types)
    if types.is_text:
        return json_string(trim_each_newline(text) if "\n" in stripped else stripped)
    if not stripped and ("array" in types.names or (not types.names and key in _LISTS)):
        return "[]"
    if not types.names:
        return _untyped(stripped, 0)
    if types.names & {"array", "object"} and not is_strict(stripped):
        nested = _nested(stripped, types, root, 0)
        if nested is not None:
            return nested
    return coerce(stripped, types)


def _untyped(text: str, depth: int) -> str:
    """Return a value without a schema: nested tags, JSON that is a list or an object, else text."""
    nested = _nested(text, UNTYPED, None, depth)
    if nested is not None:
        return nested
    return text if text[:1] in ("[", "{") and is_strict(text) else json_string(text)


def _nested(text: str, types: Types, root: object, depth: int) -> str | None:
    """Return the tags within a value as a list of items, or as an object; None if there are none."""
    if depth >= _MAX_NESTING or "<" not in text:
        return None
    pairs = [
        (key, _inner(value.strip(), types_within(types, key, root), root, depth))
        for key, value in _elements(text)
    ]
    if not pairs:
        return None
    items = [source for key, source in pairs if key == _ITEM]
    if items:
        return "[" + ",".join(items) + "]"
    if types.names and "object" not in types.names:
        return None
    return object_source(dict(pairs).items())


def _inner(text: str, types: Types, root: object, depth: int) -> str:
    if not types.names:
        return _untyped(text, depth + 1)
    if types.names & {"array", "object"}:
        nested = _nested(text, types, root, depth + 1)
        if nested is not None:
            return nested
    return coerce(text, types)


_CLOSER = "</use_tool>"
_LAST_TAG = re.compile(r"</([^<>]+)>\s*\Z")
# How far after a closing tag inside an open parameter the search for the block's real closing tag goes.
_MAX_BEYOND = 4096


def find_name(text: str) -> str:
    """Return the name in a `<use_tool>` block, empty if there is none."""
    name, is_closed, _ = text.partition("<name>")[2].partition("</name>")
    return name.strip() if is_closed else ""


def without_name(text: str) -> str:
    """Return the text of a `<use_tool>` block without the name of the tool: a parameter may have the same tag."""
    before, _, rest = text.partition("<name>")
    _, is_closed, after = rest.partition("</name>")
    return before + after if is_closed else text


class UseToolBody(Struct, frozen=True):
    """`<name>` and parameters up to `</use_tool>`."""

    def parse(self, block: Block) -> Wait[None]:
        yield from block.skip(SPACE)
        start = block.at
        tag = yield from _read_tag(block)
        if not tag or tag == "use_tool":
            block.malformed("expected a tag")
        yield from block.confirm()
        parameter = _OpenParameter(block, "")
        text = yield from _gather(block, words(_CLOSER), parameter, f"<{tag}>", eos_ok=True)
        whole = f"<{tag}>{text}"
        name = find_name(whole)
        if not name:
            block.malformed("expected a name", at=start)
        _report_call(block, name, without_name(whole))


class TagNamedBody(Struct, frozen=True):
    """Parameters up to the closing tag of the tool."""

    def parse(self, block: Block) -> Wait[None]:
        name = block.opener[1:-1]
        yield from block.skip(SPACE)
        tag = yield from _read_tag(block)
        is_closer = tag == f"/{name}"
        if not is_closer and not block.offers.declares(name, tag):
            block.malformed("expected a parameter")
        yield from block.confirm()
        text = ""
        if not is_closer:
            first, closer = f"<{tag}>", words(f"</{name}>")
            parameter = _OpenParameter(block, name)
            text = first + (yield from _gather(block, closer, parameter, first, eos_ok=False))
        _report_call(block, name, text)


def _read_tag(block: Block) -> Wait[str]:
    """Return what the tag at the cursor has between its brackets."""
    yield from block.expect(words("<"))
    tag, _ = yield from block.read(words(">"), block.limits.max_key, forbid=f"<{SPACE}")
    return tag


def _report_call(block: Block, name: str, text: str) -> None:
    """Report the call of a complete block. text: its parameters."""
    unclosed: set[str] = set()
    parameters = read_parameters(text, name, block.offers, unclosed)
    # Another block that begins within this one: this one's closing tag is missing.
    known = (*block.offers.parameters(name), block.opener[1:-1])
    missing = [key for key in known if key in unclosed]
    if missing:
        block.malformed(
            f"expected <{missing[0]}> and </{missing[0]}>", at=block.start + len(block.opener)
        )
    if block.stop is None:
        block.stop = block.at
    block.begin(name, at=block.start)
    block.input(object_source(parameters.items()))
    block.end(at=block.stop)


def _gather(
    block: Block, closer: LiteralSet, parameter: "_OpenParameter", first: str, *, eos_ok: bool
) -> Wait[str]:
    """Return the text of the block up to the closing tag that ends it. The text's end ends it only if nothing is open."""
    parts: list[str] = []
    # The position of the first closing tag, and how many parts came before it.
    earliest: tuple[int, int] | None = None
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
            parameter.see(part if parts else first + part)
            parts.append(part)
        if not stop and earliest is None:
            if parameter.is_open or not eos_ok or not parameter.is_whole(first + part):
                block.malformed("the text ended inside a block")
            return "".join(parts)
        if stop and not parameter.is_open:
            return "".join(parts)
        if not stop and earliest is not None:
            block.stop = earliest[0]
            return "".join(parts[: earliest[1]])
        if earliest is None:
            earliest = (block.at, len(parts))
        parts.append(stop)


class _OpenParameter(Struct, eq=False):
    """Tracks whether a declared parameter is open. Sees each part of a block once; no part begins or ends within a tag."""

    _block: Block
    _name: str
    _open: str = ""

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def is_whole(self, text: str) -> bool:
        """Return whether a block without a closing tag may end here: after a parameter, with none open and none missing."""
        last = _LAST_TAG.search(text, text.rfind("</"))
        keys = self._block.offers.parameters(self._name)
        if last is None or (keys and last[1] not in (*keys, "name")):
            return False
        needed = self._block.offers.required(self._name)
        is_given = last[1] != "name" or "name" in keys or not keys
        places = {tag[1]: tag.start() for tag in _ANY_TAG.finditer(text)}  # the last of each
        return (
            is_given
            and all(f"/{key}" in places for key in needed)
            and all(places.get(key, -1) <= places.get(f"/{key}", -1) for key in keys)
        )

    def see(self, part: str) -> None:
        if not self._name:
            self._name = find_name(part)
        position = 0
        while self._name:
            if self._open:
                end = part.find(f"</{self._open}>", position)
                if end < 0:
                    return
                self._open, position = "", end
            tags = _ANY_TAG.finditer(part, position)
            found = next((tag for tag in tags if self._declares(tag[1])), None)
            if found is None:
                return
            self._open, position = found[1], found.end()

    def _declares(self, key: str) -> bool:
        return self._block.offers.declares(self._name, key)
