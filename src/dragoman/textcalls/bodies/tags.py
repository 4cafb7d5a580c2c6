"""Bodies made of tags: one around each call and one around each parameter.

    <function=f> <parameter=k>v</parameter> … </function>             TaggedBody: the name is in the tag
    <invoke name="f"> <parameter name="k">v</parameter> … </invoke>    the name is an attribute; `<invoke name="f"/>` too
    f <arg_key>k</arg_key> <arg_value>v</arg_value> …                 PairBody: a tag for the key and one for the value
    <invoke name="f"> <k>v</k> …                                      NestedTagsBody: tags named after the parameters

Values are typed by the tool's schema, or else by the markup (`Tag.type_of`). `TaggedArguments` writes them as one JSON
object, append-only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import as_object, is_strict, loads
from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.json_objects import read_json
from dragoman.textcalls.cursor import SPACE, LiteralSet, Wait, words
from dragoman.textcalls.offers import UNTYPED, Types, types_within
from dragoman.textcalls.values import (
    Untyped,
    coerce,
    json_string,
    json_string_inside,
    literal_as_json,
    object_source,
)


def trim_newlines(text: str) -> str:
    """Return the text without one line break at its beginning and one at its end, if it has both: those are the markup's.

    A break on one side only is the value's: the line break at the end of a file, for example.
    """
    is_between = text[:1] in ("\n", "\r") and text[-1:] == "\n"
    return trim_each_newline(text) if is_between else text


def trim_each_newline(text: str) -> str:
    """Return the text without a line break at its beginning, and without one at its end."""
    start = 1 if text.startswith("\n") else 2 if text.startswith("\r\n") else 0
    end = len(text)
    if text.endswith("\n") and end > start:
        end -= 2 if text.endswith("\r\n") and end - start > 1 else 1
    return text[start:end]


Trim = Literal["none", "pair", "each"]
"""The line breaks of a value that are the markup's: none; one on either side if there are two; one on each side that has one."""


def _trimmed(text: str, trim: Trim) -> str:
    if trim == "none":
        return text
    return trim_newlines(text) if trim == "pair" else trim_each_newline(text)


class TaggedArguments(Struct, eq=False):
    """The arguments of one call of `name`."""

    _block: Block
    _name: str
    _untyped: Untyped = "string"
    _values: dict[str, str] = {}
    _count: int = 0

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def types(self, key: str, hint: Types = UNTYPED) -> Types:
        """Return the types of a parameter: by its schema, else by its markup."""
        declared = self._block.offers.types(self._name, key)
        return declared if declared.names else hint

    def read(
        self, key: str, stops: LiteralSet, *, hint: Types = UNTYPED, trim: Trim = "pair"
    ) -> Wait[str]:
        """Read the value up to a stop; return the stop, or an empty string at the end of the text."""
        types = self.types(key, hint)
        if self._block.streams and types.is_text:
            return (yield from self._stream(key, stops, trim))
        pieces: list[str] = []
        stop = yield from self._block.until(stops, pieces.append)
        if stop:
            text = "".join(pieces)
            self.add(key, _trimmed(text, trim), types)
        return stop

    def add(self, key: str, text: str, types: Types) -> None:
        """Add a parameter by its text."""
        self.put(key, coerce(text, types, self._untyped))

    def put(self, key: str, source: str) -> None:
        """Add a parameter by its JSON source."""
        self._values[key] = source
        if self._block.streams:
            self._block.input(f"{self._lead(key)}{source}")

    def finish(self, wrappers: tuple[str, ...] = ()) -> frozenset[str]:
        """End the parameters and return the names of all of them."""
        if self._block.streams:
            self._block.input("}" if self._count else "{}")
            return frozenset(self._values)
        whole = self._unwrapped(wrappers)
        if whole is not None:
            self._block.input(whole)
            return frozenset(as_object(whole))
        self._block.input(object_source(self._values.items()))
        return frozenset(self._values)

    def _lead(self, key: str) -> str:
        self._count += 1
        return f"{',' if self._count > 1 else '{'}{json_string(key)}:"

    def _unwrapped(self, wrappers: tuple[str, ...]) -> str | None:
        if len(self._values) != 1:
            return None
        key, source = next(iter(self._values.items()))
        if key not in wrappers or key in self._block.offers.parameters(self._name):
            return None
        text = source
        if source.startswith('"'):
            text = cast("str", loads(source)).strip()
        if not text.startswith("{"):
            return None
        return text if is_strict(text) else literal_as_json(text)

    def _stream(self, key: str, stops: LiteralSet, trim: Trim) -> Wait[str]:
        """Report a string as it streams. A line break that may belong to the markup is held."""
        block = self._block
        self._values[key] = '""'
        block.input(f'{self._lead(key)}"')
        trimmer = _Trimmer(block.input, trim)
        stop = yield from block.until(stops, trimmer.take)
        if stop:
            trimmer.finish()
            block.input('"')
        return stop


class _Trimmer(Struct, eq=False):
    """Passes a string on as it streams, without the line breaks of the markup.

    With `pair`, a string that begins with a line break is held: only its end shows whose break that is.
    """

    _take: Callable[[str], None]
    _trim: Trim
    _is_first: bool = True
    _held: str = ""
    _pieces: list[str] | None = None  # the whole string, while it is held

    def take(self, piece: str) -> None:
        if self._pieces is not None:
            self._pieces.append(piece)
            return
        if self._is_first and self._trim == "pair" and piece[0] in "\r\n":
            self._pieces = [piece]
            return
        text = self._held + piece
        self._held = ""
        if self._trim == "each":
            if self._is_first and text == "\r":
                self._held = text
                return
            if self._is_first:
                text = text[1:] if text.startswith("\n") else text.removeprefix("\r\n")
            body = text.removesuffix("\n").removesuffix("\r")
            text, self._held = body, text[len(body) :]
        self._is_first = False
        if text:
            self._take(json_string_inside(text))

    def finish(self) -> None:
        if self._pieces is not None:
            self._take(json_string_inside(_trimmed("".join(self._pieces), self._trim)))
        elif self._held == "\r":
            self._take(json_string_inside(self._held))


# A value without quotes is never given back: otherwise `a=aa=aa=…` would be read in exponentially many ways.
_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]++))""")
_ATTRIBUTES = re.compile(rf"(?:\s*{_ATTRIBUTE.pattern})*\s*/?")
_QUOTES = "\"'"
_CDATA = LiteralSet(("<![CDATA[", "\n<![CDATA["))
_CDATA_END = LiteralSet(("]]>",))


def untyped(_: Mapping[str, str]) -> Types:
    """Return `UNTYPED`: the markup declares no types."""
    return UNTYPED


class Tag(Struct, frozen=True, kw_only=True):
    """How a call or a parameter begins.

    opens: the literals that begin the tag (`<function=`, `<invoke`). ends: the literals that end the tag. attribute: the
    attribute that holds the name; None: the name is the text in the tag. closes: the literals that end the element.
    forbid: characters that the tag cannot contain. type_of: the type that the tag's attributes declare.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    ends: tuple[str, ...] = (">",)
    attribute: str | None = None
    forbid: str = "<\n"
    type_of: Callable[[Mapping[str, str]], Types] = untyped


class _Head(Struct, frozen=True):
    """A tag that was read. `is_void`: the tag closed itself."""

    name: str
    types: Types
    is_void: bool


class TaggedBody(Struct, frozen=True, kw_only=True):
    """call, parameter: their tags. wraps: the block's opener surrounds the calls; otherwise it begins the call.
    many: several calls in one block. untyped: the meaning of a value without a declared type. wrappers: parameters that
    hold all arguments. forgives: a parameter may lack its closing tag if another tag follows, and a call may lack its
    closing tag if the block's closer follows. is_strict: a repeated or a missing required parameter is malformed.
    takes_json: a call may hold one JSON object instead of parameters. takes_cdata: a value may be in `<![CDATA[…]]>`.
    between: markers around each call that mean nothing. trim: the line breaks of a value that are the markup's.
    """

    call: Tag
    parameter: Tag
    wraps: bool = True
    many: bool = True
    untyped: Untyped = "string"
    wrappers: tuple[str, ...] = ()
    forgives: bool = False
    is_strict: bool = False
    takes_json: bool = False
    takes_cdata: bool = False
    between: tuple[str, ...] = ()
    trim: Trim = "pair"

    @property
    def _heads(self) -> tuple[str, ...]:
        """The beginnings of the tags of a call and of a parameter, with the name of their attribute."""
        return tuple(
            f"{opener} {tag.attribute}=" if tag.attribute else opener
            for tag in (self.call, self.parameter)
            for opener in tag.opens
        )

    def parse(self, block: Block) -> Wait[None]:
        yield from block.read_calls(
            words(*self.call.opens),
            self._call,
            between=words(*self.between),
            is_opened=not self.wraps,
            many=self.many,
        )

    def _call(self, block: Block, _opener: str, start: int) -> Wait[None]:
        head = yield from self._head(block, self.call)
        if not head.name or any(character in SPACE for character in head.name):
            block.malformed("expected a name")
        if not self.wraps:
            yield from self._peek_parameter(block, head)
        yield from block.confirm()
        block.begin(head.name, at=start)
        if head.is_void:
            block.input("{}")
            block.close_call()
            return
        arguments = TaggedArguments(block, head.name, self.untyped)
        if self.takes_json and (yield from block.skip(SPACE)) == "{":
            yield from read_json(block, block.input)
            yield from block.skip(SPACE)
            yield from block.expect(words(*self.call.closes))
        else:
            stop = yield from self._parameters(block, arguments)
            keys = arguments.finish(self.wrappers)
            missing = [key for key in block.offers.required(head.name) if key not in keys]
            if self.is_strict and missing:
                reason = f"expected the parameter {missing[0]!r}"
                block.malformed(reason, at=block.at - len(stop))
        block.close_call()

    def _peek_parameter(self, block: Block, head: _Head) -> Wait[None]:
        """Check that a parameter or a closing tag follows: without a wrapper, the call's tag alone is not enough."""
        if not head.is_void and (yield from block.skip(SPACE)) not in ("<", "]"):
            block.malformed("expected a parameter")

    def _parameters(self, block: Block, arguments: TaggedArguments) -> Wait[str]:
        """Read all parameters; return the literal that closed the call."""
        inside = words(*self.parameter.opens, *self.call.closes)
        stop = ""
        while True:
            if not stop:
                yield from block.skip(SPACE)
                if self.forgives and (yield from block.closes_here()):
                    return ""
                stop = yield from block.expect(inside)
            if stop in self.call.closes:
                return stop
            head = yield from self._head(block, self.parameter)
            if not head.name or (self.is_strict and head.name in arguments):
                block.malformed("expected a parameter with a name of its own")
            if head.is_void:
                arguments.put(head.name, '""')
                stop = ""
                continue
            stop = yield from self._value(block, arguments, head)
            if stop in self.parameter.closes:
                stop = ""

    def _value(self, block: Block, arguments: TaggedArguments, head: _Head) -> Wait[str]:
        """Read the value of a parameter; return the literal that ended it."""
        closes = self.parameter.closes
        # Another tag before the closing tag: it is missing, or a value quotes this format, which has no escapes.
        others = (*self.parameter.opens, *self.call.closes) if self.forgives else self._heads
        is_cdata = self.takes_cdata and bool((yield from block.match(_CDATA)))
        stops = _CDATA_END if is_cdata else words(*closes, *others)
        trim = "none" if is_cdata else self.trim
        stop = yield from arguments.read(head.name, stops, hint=head.types, trim=trim)
        if not stop:
            block.malformed("the text ended inside a parameter")
        if stop in others and not self.forgives:
            block.malformed(f"expected {closes[0]}", at=block.at - len(stop))
        if is_cdata:
            yield from block.skip(SPACE)
            stop = yield from block.expect(words(*closes))
        return stop

    def _head(self, block: Block, tag: Tag) -> Wait[_Head]:
        text, _ = yield from block.read(words(*tag.ends), block.limits.max_key, forbid=tag.forbid)
        is_void = text.endswith("/")
        if tag.attribute is None:
            return _Head(text.rstrip("/").strip().strip(_QUOTES), UNTYPED, is_void)
        if _ATTRIBUTES.fullmatch(text) is None:
            block.malformed("expected attributes")
        attributes = {
            found[1]: next((value for value in found.groups()[1:] if value is not None), "")
            for found in _ATTRIBUTE.finditer(text)
        }
        return _Head(attributes.get(tag.attribute, ""), tag.type_of(attributes), is_void)


_NO_PAIR_NAME = "<>{}[]()\"'`,; \t\r"
_ESCAPED_LINE_BREAK = "\\n"  # models write the two characters instead of a line break


class PairBody(Struct, frozen=True, kw_only=True):
    """opens: the literals that begin each call; empty: the block's opener does. separators: literals that may follow the
    name. closes: the literals that end each call.
    """

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...]
    key: tuple[str, str] = ("<arg_key>", "</arg_key>")
    value: tuple[str, str] = ("<arg_value>", "</arg_value>")
    separators: tuple[str, ...] = ()
    untyped: Untyped = "string"

    def parse(self, block: Block) -> Wait[None]:
        opens = words(*self.opens)
        yield from block.read_calls(
            opens, self._call, is_opened=not self.opens, many=bool(self.opens)
        )

    def _call(self, block: Block, _opener: str, start: int) -> Wait[None]:
        key_open = self.key[0]
        stops = words("\n", "\r\n", key_open, *self.separators, *self.closes)
        yield from block.skip(" \t\n")
        name, stop = yield from block.read(stops, block.limits.max_name, forbid=_NO_PAIR_NAME)
        name = name.removesuffix(_ESCAPED_LINE_BREAK)
        if not name:
            block.malformed("expected a name")
        inside = words(key_open, *self.closes)
        if stop in ("\n", "\r\n") or stop in self.separators:
            stop = yield from self._next(block, inside)
        yield from block.confirm()
        block.begin(name, at=start)
        arguments = TaggedArguments(block, name, self.untyped)
        while stop == key_open:
            stop = yield from self._pair(block, arguments, inside)
        arguments.finish()
        block.close_call()

    def _pair(self, block: Block, arguments: TaggedArguments, inside: LiteralSet) -> Wait[str]:
        """Read one pair; return the literal after it. A key without a value is dropped."""
        key, _ = yield from block.read(words(self.key[1]), block.limits.max_key, forbid="<")
        stop = yield from self._next(block, words(*inside.words, self.value[0]))
        if stop != self.value[0]:
            return stop
        stops = words(self.value[1], self.key[0], self.value[0])
        stop = yield from arguments.read(key.strip(), stops, trim="none")
        if stop != self.value[1]:
            block.malformed(f"expected {self.value[1]}", at=block.at - len(stop))
        return (yield from self._next(block, inside))

    def _next(self, block: Block, expected: LiteralSet) -> Wait[str]:
        yield from block.skip(SPACE)
        yield from block.match(words(_ESCAPED_LINE_BREAK))
        yield from block.skip(SPACE)
        return (yield from block.expect(expected))


_MAX_SUFFIX = 32


class SuffixedPairBody(Struct, frozen=True, kw_only=True):
    """Pairs in which every tag carries the suffix of the opener: `<tool_calls:x>`, `<tool_call:x>`, `<arg_key:x>`."""

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


class NestedTagsBody(Struct, frozen=True, kw_only=True):
    """Nested elements, each tag after the `namespace`. A value is an array if its schema says so or its tags repeat."""

    namespace: str

    def parse(self, block: Block) -> Wait[None]:
        yield from block.read_calls(words(f'{self.namespace}<invoke name="'), self._call)

    def _call(self, block: Block, _opener: str, start: int) -> Wait[None]:
        name, _ = yield from block.read(words('">'), block.limits.max_name, forbid="<\n")
        yield from block.confirm()
        block.begin(name, at=start)
        arguments = TaggedArguments(block, name)
        end = f"{self.namespace}</invoke>"
        while True:
            yield from block.skip(SPACE)
            if (yield from block.expect(words(end, f"{self.namespace}<"))) == end:
                break
            key, _ = yield from block.read(words(">"), block.limits.max_key, forbid="<")
            types = block.offers.types(name, key)
            schema = block.offers.schema(name)
            arguments.put(key, (yield from self._element(block, key, types, schema, 1)))
        arguments.finish()
        block.close_call()

    def _element(self, block: Block, tag: str, types: Types, root: object, depth: int) -> Wait[str]:
        """Read the content of an element up to and with its end, and return it as JSON."""
        block.check_depth(depth)
        pieces: list[str] = []
        children: list[tuple[str, str]] = []
        while True:
            if not (yield from block.until(words(f"{self.namespace}<"), pieces.append)):
                block.malformed("the text ended inside a value")
            inner, _ = yield from block.read(words(">"), block.limits.max_key)
            if inner == f"/{tag}":
                break
            if inner.startswith("/"):
                block.malformed(f"expected the end of {tag!r}")
            within = types_within(types, inner, root)
            child = yield from self._element(block, inner, within, root, depth + 1)
            children.append((inner, child))
        if not children:
            return coerce(trim_newlines("".join(pieces)), types)
        names = [name for name, _ in children]
        is_list = len(set(names)) < len(names) or names == ["item"]
        if "array" in types.names if types.names else is_list:
            return "[" + ",".join(source for _, source in children) + "]"
        return object_source(children)
