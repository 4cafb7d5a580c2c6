"""Bodies with a header before the arguments, and marks around text.

NamedBody    open  name  name_end  [fence]  {…}  [fence]  close     repeated if the format has several calls in a block
HarmonyBody  the framing of gpt-oss: a header that names channel and recipient, then a message
LedBody      a header that is skipped, then another body
ReactBody    `Action: f`, then `Action Input: …` on the next line, up to `Observation:` or the end
MarkBody     a mark of a channel or a turn, which is neither a call nor text for a reader
ThoughtBody  reasoning between two marks

Harmony:

    <|channel|>analysis<|message|>…<|end|>                                            reasoning
    <|channel|>final<|message|>…                                                      text for the reader
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>      a call

The recipient may come before or after the channel; servers sometimes drop the first words of the header.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from dragoman._json import is_strict
from dragoman.textcalls.block import Block, Body
from dragoman.textcalls.bodies.json_objects import check_end, pass_arguments, read_arguments
from dragoman.textcalls.cursor import SPACE, LiteralSet, Wait, words
from dragoman.textcalls.values import json_string, literal_as_json, object_source

_MAX_ID = 64  # characters that a header may hold beside the name

NO_NAME = "<>()\"'`,; \t\r\n"
"""Characters that no name contains. Prose soon contains one, which shows that it is no header."""


def plain_name(header: str) -> tuple[str, str]:
    """Return the header as the name, without an id."""
    return header, ""


class NamedBody(Struct, frozen=True, kw_only=True):
    """opens: the literals that begin each call; empty: the block's opener does. name_ends: the literals that end the name;
    `{` is not passed. before, after: literals that may surround the arguments (a code fence). closes: the literals that
    end each call; empty: the brace does. many: further calls may follow in the block, each with its own opener. eos_name:
    a name alone at the end of the text is a call without arguments, if its tool declares none. needs_close: a call without
    a literal of `closes` is malformed, unless one of `ends`, which end the block, follows. forbid: characters that no header
    contains. guesses: if a header has no name, the tool is the only one whose schema accepts the arguments.
    """

    opens: tuple[str, ...] = ()
    name_ends: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    many: bool = False
    eos_name: bool = False
    needs_close: bool = False
    ends: tuple[str, ...] = ()
    forbid: str = NO_NAME
    guesses: bool = False
    read_name: Callable[[str], tuple[str, str]] = plain_name

    def parse(self, block: Block) -> Wait[None]:
        if not self.opens:
            yield from self._call(block, "", block.start)
            return
        opens = words(*self.opens, *self.ends)
        yield from block.read_calls(opens, self._call, many=self.many)

    def _call(self, block: Block, opener: str, start: int) -> Wait[None]:
        if opener in self.ends:
            yield from block.confirm()
            block.stop = block.at
            return
        header, stop = yield from self._header(block)
        name, call_id = self.read_name(header.strip())
        if not name and self.guesses and header.strip():
            yield from self._nameless(block, start)
            return
        if not name or any(character in SPACE for character in name):
            block.malformed("expected a name")
        if not stop:
            if block.offers.parameters(name):
                block.malformed("expected arguments")
            yield from block.confirm()
            block.begin(name, call_id, at=start)
            block.input("{}")
            block.end()
            return
        yield from self._pass(block, self.before)
        if (yield from block.skip(SPACE)) not in ("{", '"'):
            block.malformed("expected arguments")
        yield from block.confirm()
        block.begin(name, call_id, at=start)
        yield from pass_arguments(block)
        yield from check_end(block)
        yield from self._pass(block, self.after)
        yield from self._end(block)

    def _nameless(self, block: Block, start: int) -> Wait[None]:
        """Read a call whose header is only a number."""
        if (yield from block.skip(SPACE)) not in ("{", '"'):
            block.malformed("expected arguments")
        yield from block.confirm()
        source = "".join((yield from read_arguments(block)))
        name = block.offers.fitting(source)
        if name is None:
            block.malformed("expected a name, or arguments that only one tool accepts", at=start)
        block.begin(name, at=start)
        block.input(source)
        yield from self._end(block)

    def _header(self, block: Block) -> Wait[tuple[str, str]]:
        yield from block.skip(SPACE)
        ends, limit = words(*self.name_ends), block.limits.max_name + _MAX_ID
        header, stop = yield from block.read(ends, limit, forbid=self.forbid, eos_ok=self.eos_name)
        if stop.endswith("{"):
            block.at -= 1
        return header, stop

    def _pass(self, block: Block, literals: tuple[str, ...]) -> Wait[None]:
        if literals:
            yield from block.skip(SPACE)
            yield from block.match(words(*literals))

    def _end(self, block: Block) -> Wait[None]:
        if not self.closes:
            block.end()
            return
        end = block.at
        yield from block.skip(SPACE)
        found = yield from block.match(words(*self.closes, *self.ends))
        if found in self.ends:
            block.end(at=end)
            block.stop = block.at
        elif found:
            block.close_call()
        elif self.needs_close:
            block.malformed(f"expected {' or '.join(self.closes)}")
        else:
            block.end(at=end)


_MESSAGE = LiteralSet(("<|message|>",))
_THOUGHT_END = LiteralSet(("<|end|>", "<|return|>"))
_KNOWN = LiteralSet(("analysis", "commentary", "final"))
_AFTER_ROLE = LiteralSet(("<|channel|>", "to="))
_NO_HEADER = ",;()[]{}\"'`!?\n"  # prose soon contains one of them
_RECIPIENT = re.compile(r"to=(?:functions?\.)?([^\s<|]+)")
_CHANNEL = re.compile(r"(?:<\|channel\|>|^)\s*(\w+)")
_ONLY_CHANNEL = re.compile(r"<\|channel\|>\s*\w+\s*(?:<\|constrain\|>\s*\w*\s*)?\Z")


class HarmonyBody(Struct, frozen=True):
    """One message with its header. takes_channels: also remove the marks around reasoning and around text for the reader."""

    takes_channels: bool = False

    def parse(self, block: Block) -> Wait[None]:
        header = yield from self._header(block)
        recipient = _RECIPIENT.search(header)
        channel = _CHANNEL.search(header)
        if recipient is not None:
            yield from self._call(block, recipient[1])
        elif channel is None or not self.takes_channels or not _ONLY_CHANNEL.search(header):
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
        yield from pass_arguments(block)
        yield from check_end(block)
        block.end()


class LedBody(Struct, frozen=True, kw_only=True):
    ends: tuple[str, ...]
    body: Body

    def parse(self, block: Block) -> Wait[None]:
        yield from block.read(words(*self.ends), block.limits.max_name, forbid="\n")
        yield from self.body.parse(block)


class ReactBody(Struct, frozen=True):
    """The input is a JSON object, or text for the tool's only parameter (`input` if there is not exactly one)."""

    def parse(self, block: Block) -> Wait[None]:
        name, _ = yield from block.read(words("\n"), block.limits.max_name)
        name = name.strip()
        if block.offers.resolve(name) is None:
            block.malformed("expected a tool that was offered")
        yield from block.skip(SPACE)
        yield from block.expect(words("Action Input:"))
        yield from block.confirm()
        block.begin(name, at=block.start)
        pieces: list[str] = []
        stop = yield from block.until(words("\nObservation:"), pieces.append)
        text = "".join(pieces).strip()
        if not text and not stop and block.offers.parameters(name):
            block.malformed("the text ended before the arguments")
        block.input(self._arguments(block, name, text))
        block.end()
        block.stop = block.at

    def _arguments(self, block: Block, name: str, text: str) -> str:
        if text.startswith("```") and text.endswith("```"):
            text = text.strip("`").removeprefix("json").strip()
        if not text:
            return "{}"
        if text.startswith("{"):
            source = text if is_strict(text) else literal_as_json(text)
            if source is None:
                block.malformed("expected an object that is JSON", at=block.start)
            return source
        if text[0] in "}],:" or (text.endswith("}") and '":' in text):
            block.malformed("expected an object that is JSON", at=block.start)
        parameters = block.offers.parameters(name)
        key = parameters[0] if len(parameters) == 1 else "input"
        return object_source([(key, json_string(text.strip("\"'")))])


class MarkBody(Struct, frozen=True, kw_only=True):
    """The opener is a mark, up to one of `ends` if there are any: it is removed from the text.

    before: the literals before which a mark that ends something is removed, besides the end of the text; in the middle of a
    sentence it is only mentioned. None: it is removed everywhere.
    """

    ends: tuple[str, ...] = ()
    before: tuple[str, ...] | None = None

    def parse(self, block: Block) -> Wait[None]:
        if self.ends:
            yield from block.read(words(*self.ends), block.limits.max_name, forbid="\n")
        stop = block.at
        if self.before is not None and not (yield from block.match(words(*self.before))):
            yield from block.skip(SPACE)
            if not (yield from block.is_at_end()):
                block.malformed("expected the end of the text")
        yield from block.confirm()
        block.stop = stop


class ThoughtBody(Struct, frozen=True, kw_only=True):
    """The opener begins reasoning, which continues to one of `ends` or to the end of the text."""

    ends: tuple[str, ...]

    def parse(self, block: Block) -> Wait[None]:
        yield from block.confirm()
        yield from block.until(words(*self.ends), block.thought)
        block.stop = block.at
