"""Formats whose openers may occur in any prose, so they are used only where asked for by name or by a model's profile.

BARE     calls: JSON, Python calls, ReAct, tags named after the tool
MARKS    marks of channels and turns that some models write around their text: no calls, and nothing for a reader

ReAct is `Action: f`, then `Action Input: …` on the next line, up to `Observation:` or the end. The input is a JSON object,
or text for the only parameter of the tool (`input` if there is not exactly one).
"""

from msgspec import Struct

from dragoman._json import is_strict
from dragoman.textcalls.block import Block, TextPattern
from dragoman.textcalls.bodies.json_objects import JsonBody
from dragoman.textcalls.cursor import SPACE, Wait, words
from dragoman.textcalls.formats.notations import PythonBody
from dragoman.textcalls.formats.use_tool import TagNamedBody
from dragoman.textcalls.values import json_string, literal_as_json


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


class MarkBody(Struct, frozen=True, kw_only=True):
    """The opener is a mark, up to one of `ends` where it has any: it is taken out of the text."""

    ends: tuple[str, ...] = ()

    def parse(self, block: Block) -> Wait[None]:
        if self.ends:
            yield from block.read(words(*self.ends), block.limits.max_name, forbid="\n")
        yield from block.confirm()
        block.stop = block.at


class ThoughtBody(Struct, frozen=True, kw_only=True):
    """The opener begins thinking, which goes on to one of `ends` or to the end of the text."""

    ends: tuple[str, ...]

    def parse(self, block: Block) -> Wait[None]:
        yield from block.confirm()
        yield from block.until(words(*self.ends), block.thought)
        block.stop = block.at


BARE = (
    # Llama 3.x: `{"name": …, "parameters": {…}}; {…}`
    TextPattern(
        name="bare_json",
        openers=("{",),
        body=JsonBody(shape="object", is_opened=True, separators=(";",), needs_arguments=True),
        is_sentinel=False,
    ),
    # xLAM, Granite: `[{"name": …, "arguments": {…}}]`
    TextPattern(
        name="bare_json_array",
        openers=("[",),
        body=JsonBody(is_opened=True, needs_arguments=True),
        is_sentinel=False,
    ),
    # xLAM: the one format where a fence is the call
    TextPattern(
        name="json_fence",
        openers=("```json", "```"),
        body=JsonBody(needs_arguments=True),
        closers=("```",),
        place="line",
        is_sentinel=False,
    ),
    # Llama 4, ToolACE: `[f(a=1), g()]`
    TextPattern(
        name="pythonic",
        openers=("[",),
        body=PythonBody(is_opened=True, offered_only=True),
        is_sentinel=False,
    ),
    TextPattern(
        name="react",
        openers=("Action:",),
        body=ReactBody(),
        closers=("Observation:",),
        place="line",
        is_sentinel=False,
    ),
    # Cline, Roo: the tag is the name of the tool
    TextPattern(
        name="tool_tags",
        openers=("<{name}>",),
        body=TagNamedBody(),
        closers=("</{name}>",),
        is_sentinel=False,
    ),
)
"""The patterns, in order of rank."""


_K3_CHANNELS = ("response", "message", "think")
_K3_MARKS = tuple(
    f"<|{verb}|>{space}{channel}{space}<|sep|>"
    for verb in ("open", "close")
    for channel in _K3_CHANNELS
    for space in ("", " ")
)


def _marks(name: str, *openers: str, ends: tuple[str, ...] = ()) -> TextPattern:
    return TextPattern(name=name, openers=openers, body=MarkBody(ends=ends), is_sentinel=False)


def _thoughts(name: str, *openers: str, ends: tuple[str, ...]) -> TextPattern:
    return TextPattern(name=name, openers=openers, body=ThoughtBody(ends=ends), is_sentinel=False)


MARKS = (
    _marks("kimi_k3_marks", *_K3_MARKS),
    _marks("harmony_marks", "<|end|>", "<|return|>", "<|call|>", "<|message|>"),
    _thoughts("command_thoughts", "<|START_THINKING|>", ends=("<|END_THINKING|>",)),
    _marks(
        "command_marks",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        "<co>",
    ),
    _marks("command_citations", "</co: ", ends=(">",)),
    _thoughts(
        "muse_thoughts",
        *(f"{lead}to=self<|message|>" for lead in ("", " ", "<|start|>assistant ")),
        ends=("<|eom|>", "<|eot|>"),
    ),
    _marks("muse_headers", "<|start|>assistant to=", " to=", "to=", ends=("<|message|>",)),
    _marks("muse_marks", "<|eom|>", "<|eot|>"),
    _marks("dots_marks", "</dots_function_call>"),
    _marks("functionary_v32_content", ">>>all\n"),
)
"""The patterns, in order of rank."""
