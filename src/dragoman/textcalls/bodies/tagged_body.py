"""Calls written as tags: one around each call, one around each parameter.

    <function=f> <parameter=k>v</parameter> … </function>            the name stands in the tag
    <invoke name="f"> <parameter name="k">v</parameter> … </invoke>   the name is an attribute; `<invoke name="f"/>` too

Values are typed by the tool's schema, or by the markup where it says (`Tag.type_of`).
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.arguments import Arguments
from dragoman.textcalls.bodies.json_span import read_json
from dragoman.textcalls.coerce import Untyped
from dragoman.textcalls.offers import UNTYPED, Types
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import Words

__all__ = ("Tag", "TaggedBody")

_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]+))""")
_QUOTES = "\"'"
_CDATA = Words(("<![CDATA[", "\n<![CDATA["))
_CDATA_END = Words(("]]>",))


def untyped(_: Mapping[str, str]) -> Types:
    """The markup says nothing about types."""
    return UNTYPED


class Tag(Struct, frozen=True, kw_only=True):
    """How a call or a parameter begins.

    opens: the literal that begins the tag (`<function=`, `<invoke`), in each of its spellings. ends: what ends the
    tag. attribute: the one that holds the name; none: the name is what stands between. closes: what ends the element.
    forbid: what the tag cannot contain. type_of: the type its attributes tell.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    ends: tuple[str, ...] = (">",)
    attribute: str | None = None
    forbid: str = "<\n"
    type_of: Callable[[Mapping[str, str]], Types] = untyped


class _Head(Struct, frozen=True):
    """A tag that was read. `is_void`: it closed itself."""

    name: str
    types: Types
    is_void: bool


class TaggedBody(Struct, frozen=True, kw_only=True):
    """call, parameter: their tags. wraps: the block's opener stands around the calls; otherwise it begins the call.
    many: several calls in one block. untyped: what a value is whose type nothing tells. wrappers: parameters that
    hold all arguments. forgives: a parameter may lack its close, which the next tag ends, and a call its close, where
    that of the block follows. is_strict: a parameter twice, or a required one missing, is malformed. takes_json: a call
    may hold one JSON object instead of parameters. takes_cdata: a value may stand in `<![CDATA[…]]>`. between: what may
    stand around each call and says nothing. trims: one line break on either side of a value is markup.
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
    trims: bool = True

    def parse(self, block: Block) -> Wait[None]:
        words = _compiled(self)
        is_first = True
        while True:
            start = block.at
            if self.wraps or not is_first:
                yield from self._pass(block, words)
                found = yield from block.match(words.call_opens)
                if not found and is_first:
                    block.malformed(f"expected {' or '.join(self.call.opens)}")
                if not found:
                    return
            yield from self._call(block, words, block.start if is_first else start)
            is_first = False
            if not self.many or block.stop is not None:
                return

    def _pass(self, block: Block, words: "_Compiled") -> Wait[None]:
        while True:
            yield from block.skip(SPACE)
            if not (yield from block.match(words.between)):
                return

    def _call(self, block: Block, words: "_Compiled", start: int) -> Wait[None]:
        head = yield from self._head(block, self.call, words.call_ends)
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
        arguments = Arguments(block, head.name, self.untyped)
        if self.takes_json and (yield from block.skip(SPACE)) == "{":
            yield from read_json(block, block.input)
            yield from block.skip(SPACE)
            yield from block.expect(words.call_closes)
        else:
            stop = yield from self._parameters(block, words, arguments)
            keys = arguments.finish(self.wrappers)
            missing = [key for key in block.offers.required(head.name) if key not in keys]
            if self.is_strict and missing:
                reason = f"expected the parameter {missing[0]!r}"
                block.malformed(reason, at=block.at - len(stop))
        block.close_call()

    def _peek_parameter(self, block: Block, head: _Head) -> Wait[None]:
        """Where nothing wraps the call, its tag alone is not enough: a parameter or its close must follow."""
        if not head.is_void and (yield from block.skip(SPACE)) not in ("<", "]"):
            block.malformed("expected a parameter")

    def _parameters(self, block: Block, words: "_Compiled", arguments: Arguments) -> Wait[str]:
        """All parameters; gives what closed the call."""
        stop = ""
        while True:
            if not stop:
                yield from block.skip(SPACE)
                if self.forgives and (yield from block.closes_here()):
                    return ""
                stop = yield from block.expect(words.inside)
            if stop in self.call.closes:
                return stop
            head = yield from self._head(block, self.parameter, words.parameter_ends)
            if not head.name or (self.is_strict and head.name in arguments):
                block.malformed("expected a parameter with a name of its own")
            if head.is_void:
                arguments.put(head.name, '""')
                stop = ""
                continue
            stop = yield from self._value(block, words, arguments, head)
            if stop in self.parameter.closes:
                stop = ""

    def _value(
        self, block: Block, words: "_Compiled", arguments: Arguments, head: _Head
    ) -> Wait[str]:
        """The value of a parameter; gives what ended it."""
        is_cdata = self.takes_cdata and bool((yield from block.match(_CDATA)))
        stops = _CDATA_END if is_cdata else words.value_stops
        trims = self.trims and not is_cdata
        stop = yield from arguments.read(head.name, stops, hint=head.types, trims=trims)
        if not stop:
            block.malformed("the text ended inside a parameter")
        if is_cdata:
            yield from block.skip(SPACE)
            stop = yield from block.expect(words.parameter_closes)
        return stop

    def _head(self, block: Block, tag: Tag, ends: Words) -> Wait[_Head]:
        text, _ = yield from block.read(ends, block.limits.max_key, forbid=tag.forbid)
        is_void = text.endswith("/")
        if tag.attribute is None:
            name = (
                text.rstrip("/").strip().strip(_QUOTES) if is_void else text.strip().strip(_QUOTES)
            )
            return _Head(name, UNTYPED, is_void)
        attributes = {
            found[1]: next((value for value in found.groups()[1:] if value is not None), "")
            for found in _ATTRIBUTE.finditer(text)
        }
        return _Head(attributes.get(tag.attribute, ""), tag.type_of(attributes), is_void)


class _Compiled:
    """The words of one body."""

    __slots__ = (
        "between",
        "call_closes",
        "call_ends",
        "call_opens",
        "inside",
        "parameter_closes",
        "parameter_ends",
        "value_stops",
    )

    def __init__(self, body: TaggedBody) -> None:
        call, parameter = body.call, body.parameter
        self.between = Words(body.between)
        self.call_opens = Words(call.opens)
        self.call_ends = Words(call.ends)
        self.call_closes = Words(call.closes)
        self.parameter_closes = Words(parameter.closes)
        self.parameter_ends = Words(parameter.ends)
        self.inside = Words((*parameter.opens, *call.closes))
        forgiven = (*parameter.opens, *call.closes) if body.forgives else ()
        self.value_stops = Words((*parameter.closes, *forgiven))


@lru_cache(maxsize=256)
def _compiled(body: TaggedBody) -> _Compiled:
    return _Compiled(body)
