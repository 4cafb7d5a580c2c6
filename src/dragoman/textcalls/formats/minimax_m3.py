"""MiniMax M3: tags named after the parameters, nested, each behind a token that no text contains."""

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.arguments import Arguments, trim_newlines
from dragoman.textcalls.coerce import coerce
from dragoman.textcalls.json_text import json_string
from dragoman.textcalls.offers import Types, types_within
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import words

__all__ = ("MINIMAX_M3",)

_NAMESPACE = "]<]minimax[>["
_CLOSER = f"{_NAMESPACE}</tool_call>"
_INVOKE = f'{_NAMESPACE}<invoke name="'
_INVOKE_END = f"{_NAMESPACE}</invoke>"


class NestedTagsBody(Struct, frozen=True):
    """Elements within elements; a value is an array where its schema says so or its tags repeat."""

    def parse(self, block: Block) -> Wait[None]:
        is_first = True
        while True:
            start = block.at
            yield from block.skip(SPACE)
            if not (yield from block.match(words(_INVOKE))):
                if is_first:
                    block.malformed("expected a call")
                return
            yield from self._call(block, block.start if is_first else start)
            is_first = False

    def _call(self, block: Block, start: int) -> Wait[None]:
        name, _ = yield from block.read(words('">'), block.limits.max_name, forbid="<\n")
        yield from block.confirm()
        block.begin(name, at=start)
        arguments = Arguments(block, name)
        while True:
            yield from block.skip(SPACE)
            if (yield from block.expect(words(_INVOKE_END, f"{_NAMESPACE}<"))) == _INVOKE_END:
                break
            key, _ = yield from block.read(words(">"), block.limits.max_key)
            types = block.offers.types(name, key)
            schema = block.offers.schema(name)
            arguments.put(key, (yield from self._element(block, key, types, schema, 1)))
        arguments.finish()
        block.close_call()

    def _element(self, block: Block, tag: str, types: Types, root: object, depth: int) -> Wait[str]:
        """What stands in an element, and its end; as JSON."""
        if depth > block.limits.max_depth:
            block.malformed(f"expected at most {block.limits.max_depth} levels", is_limit=True)
        pieces: list[str] = []
        children: list[tuple[str, str]] = []
        end = f"{tag}>"
        while True:
            if not (yield from block.until(words(f"{_NAMESPACE}<"), pieces.append)):
                block.malformed("the text ended inside a value")
            inner, _ = yield from block.read(words(">"), block.limits.max_key)
            if inner.startswith("/"):
                if inner[1:] + ">" != end:
                    block.malformed(f"expected the end of {tag!r}")
                break
            within = types_within(types, inner, root)
            child = yield from self._element(block, inner, within, root, depth + 1)
            children.append((inner, child))
        if not children:
            return coerce(trim_newlines("".join(pieces)), types)
        return _gather(children, types)


def _gather(children: list[tuple[str, str]], types: Types) -> str:
    names = [name for name, _ in children]
    is_array = (
        "array" in types.names if types.names else len(set(names)) < len(names) or names == ["item"]
    )
    if is_array:
        return "[" + ",".join(source for _, source in children) + "]"
    return "{" + ",".join(f"{json_string(name)}:{source}" for name, source in children) + "}"


MINIMAX_M3 = (
    TextPattern(
        name="minimax_m3",
        openers=(f"{_NAMESPACE}<tool_call>",),
        body=NestedTagsBody(),
        closers=(_CLOSER,),
    ),
)
"""The patterns, in order of rank."""
