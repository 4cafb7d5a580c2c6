"""ReAct: `Action: f`, `Action Input: …` on the next line, up to `Observation:` or the end.

The input is a JSON object, or text for the only parameter of the tool (`input` where there is not exactly one).
"""

from msgspec import Struct

from dragoman._json import is_strict
from dragoman.textcalls.block import Block
from dragoman.textcalls.json_text import json_string
from dragoman.textcalls.literals import literal_as_json
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import words

__all__ = ("ReactBody",)


def as_object_source(key: str, text: str) -> str:
    """An object with one string in it."""
    return "{" + f"{json_string(key)}:{json_string(text)}" + "}"


class ReactBody(Struct, frozen=True, kw_only=True):
    name_end: str = "\n"
    lead: str = "Action Input:"
    end: str = "\nObservation:"

    def parse(self, block: Block) -> Wait[None]:
        name, _ = yield from block.read(words(self.name_end), block.limits.max_name)
        name = name.strip()
        if block.offers.resolve(name) is None:
            block.malformed("expected a tool that was offered")
        yield from block.skip(SPACE)
        yield from block.expect(words(self.lead))
        yield from block.confirm()
        block.begin(name, at=block.start)
        pieces: list[str] = []
        stop = yield from block.until(words(self.end), pieces.append)
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
        parameters = block.offers.parameters(name)
        key = parameters[0] if len(parameters) == 1 else "input"
        return as_object_source(key, text.strip("\"'"))
