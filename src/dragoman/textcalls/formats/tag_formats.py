"""Formats of tags: around calls and parameters (TAGGED), pairs of tags (PAIRS), nested tags (MINIMAX_M3)."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.textcalls.block import Block, TextPattern
from dragoman.textcalls.bodies.headed import LedBody
from dragoman.textcalls.bodies.tags import Arguments, PairBody, Tag, TaggedBody, trim_newlines
from dragoman.textcalls.cursor import SPACE, Wait, words
from dragoman.textcalls.offers import UNTYPED, Types, types_within
from dragoman.textcalls.values import coerce, json_string

_STRING = Types(frozenset({"string"}))
_JSON = Types(frozenset({"null", "number", "boolean", "object", "array", "string"}))


def _element(name: str, attribute: str = "name") -> Tag:
    return Tag(opens=(f"<{name}",), closes=(f"</{name}>",), attribute=attribute)


_FUNCTION = Tag(opens=("<function=",), closes=("</function>",))
_PARAMETER = Tag(opens=("<parameter=",), closes=("</parameter>",))
_QWEN = TaggedBody(call=_FUNCTION, parameter=_PARAMETER, forgives=True)


def _invokes(prefix: str) -> TaggedBody:
    return TaggedBody(call=_element(f"{prefix}invoke"), parameter=_element(f"{prefix}parameter"))


def _dsml_types(attributes: Mapping[str, str]) -> Types:
    """The type that `string="…"` declares, for a parameter without a schema."""
    match attributes.get("string"):
        case "true":
            return _STRING
        case "false":
            return _JSON
        case _:
            return UNTYPED


def _dsml(bars: str, *, wraps: bool) -> TaggedBody:
    mark = f"{bars}DSML{bars}"
    return TaggedBody(
        call=_element(f"{mark}invoke"),
        parameter=Tag(
            opens=(f"<{mark}parameter",),
            closes=(f"</{mark}parameter>",),
            attribute="name",
            type_of=_dsml_types,
        ),
        wraps=wraps,
        wrappers=("arguments", "input"),
        takes_json=True,
        trims=False,
    )


def _dsml_pattern(name: str, wrapper: str, bars: str = "｜") -> TextPattern:
    mark = f"{bars}DSML{bars}"
    return TextPattern(
        name=name,
        openers=(f"<{mark}{wrapper}>",),
        body=_dsml(bars, wraps=True),
        closers=(f"</{mark}{wrapper}>",),
    )


def _k3_types(attributes: Mapping[str, str]) -> Types:
    return _STRING if attributes.get("type") == "string" else _JSON


_K3 = TaggedBody(
    call=Tag(
        opens=("<|open|>call",),
        ends=("<|sep|>",),
        closes=("<|close|>call<|sep|>",),
        attribute="tool",
        forbid="\n",
    ),
    parameter=Tag(
        opens=("<|open|>argument",),
        ends=("<|sep|>",),
        closes=("<|close|>argument<|sep|>",),
        attribute="key",
        forbid="\n",
        type_of=_k3_types,
    ),
    trims=False,
)
_MUSE = TaggedBody(
    call=_element("atem:invoke"), parameter=_element("atem:parameter"), untyped="json"
)
_STEP_MARKS = ("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "function<｜tool_sep｜>")
_SPACE_MARK = "\u0120"  # how byte-level tokenizers write a space; some servers pass it on
_LEAKED = "antml" + ":"  # the prefix of one vendor's own markup, which its models sometimes leak

TAGGED = (
    # Qwen3-Coder, Qwen 3.5, Nemotron 3, MiMo, Step 3.5
    TextPattern(
        name="qwen3_coder",
        openers=("<tool_call>",),
        body=_QWEN,
        closers=("</tool_call>",),
    ),
    # The same without its wrapper, which models forget.
    TextPattern(
        name="qwen3_coder_bare",
        openers=("<function=",),
        body=TaggedBody(
            call=_FUNCTION, parameter=_PARAMETER, forgives=True, wraps=False, many=False
        ),
        closers=("</tool_call>",),
    ),
    # The same where the first character went into the reasoning channel, as some servers' parsers have it.
    TextPattern(
        name="qwen3_coder_headless",
        openers=("function=",),
        body=TaggedBody(
            call=Tag(opens=("<function=", "function="), closes=("</function>",)),
            parameter=_PARAMETER,
            forgives=True,
            wraps=False,
            many=False,
        ),
        closers=("</tool_call>",),
        place="start",
    ),
    TextPattern(
        name="seed_oss",
        openers=("<seed:tool_call>",),
        body=_QWEN,
        closers=("</seed:tool_call>",),
    ),
    TextPattern(
        name="minimax_m2",
        openers=("<minimax:tool_call>",),
        body=_invokes(""),
        closers=("</minimax:tool_call>",),
    ),
    TextPattern(
        name="anthropic",
        openers=("<function_calls>",),
        body=_invokes(""),
        closers=("</function_calls>",),
    ),
    TextPattern(
        name="anthropic_leaked",
        openers=(f"<{_LEAKED}function_calls>",),
        body=_invokes(_LEAKED),
        closers=(f"</{_LEAKED}function_calls>",),
    ),
    *(
        TextPattern(
            name=name,
            openers=(f"<{prefix}invoke ",),
            body=TaggedBody(
                call=_element(f"{prefix}invoke"),
                parameter=_element(f"{prefix}parameter"),
                wraps=False,
                many=False,
            ),
            closers=(f"</{prefix}function_calls>",),
        )
        for name, prefix in (("invoke", ""), ("invoke_leaked", _LEAKED))
    ),
    TextPattern(
        name="dots",
        openers=("<dots_function_call>",),
        body=_invokes(""),
        closers=("</dots_function_call>",),
    ),
    TextPattern(
        name="muse",
        openers=("<atem:function_calls>",),
        body=_MUSE,
        closers=("</atem:function_calls>",),
    ),
    # The header repeats the name.
    TextPattern(
        name="muse_headed",
        openers=("<|start|>assistant to=",),
        body=LedBody(
            ends=("<|message|><atem:function_calls>", "<|message|>\n<atem:function_calls>"),
            body=_MUSE,
        ),
        closers=("</atem:function_calls>",),
    ),
    _dsml_pattern("deepseek_v32", "function_calls"),
    _dsml_pattern("deepseek_v4", "tool_calls"),
    _dsml_pattern("deepseek_v32_doubled", "function_calls", "｜｜"),
    _dsml_pattern("deepseek_v4_doubled", "tool_calls", "｜｜"),
    TextPattern(
        name="dsml_invoke",
        openers=("<｜DSML｜invoke ",),
        body=_dsml("｜", wraps=False),
        closers=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
    ),
    TextPattern(
        name="kimi_k3",
        openers=("<|open|>tools<|sep|>",),
        body=_K3,
        closers=("<|close|>tools<|sep|>",),
    ),
    TextPattern(
        name="step3",
        openers=("<｜tool_calls_begin｜>",),
        body=TaggedBody(
            call=_element("steptml:invoke"),
            parameter=_element("steptml:parameter"),
            between=_STEP_MARKS,
        ),
        closers=("<｜tool_calls_end｜>",),
    ),
    # Last: its opener begins many others'. Spaces arrive as the tokenizer's marks, or not at all.
    TextPattern(
        name="minicpm",
        openers=("<function", f"<function{_SPACE_MARK}"),
        body=TaggedBody(
            call=_element("function"),
            parameter=Tag(
                opens=("<param", f"<param{_SPACE_MARK}"), closes=("</param>",), attribute="name"
            ),
            wraps=False,
            many=False,
            is_strict=True,
            takes_cdata=True,
            wrappers=("properties", "arguments", "parameters"),
        ),
        closers=("</function>",),
    ),
)
"""The patterns, in order of rank."""


_MAX_SUFFIX = 32


class SuffixedPairBody(Struct, frozen=True, kw_only=True):
    """Pairs whose every tag carries the suffix of the opener: `<tool_calls:x>`, `<tool_call:x>`, `<arg_key:x>`."""

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


_HUNYUAN = PairBody(opens=("<tool_call>",), closes=("</tool_call>",), separators=("<tool_sep>",))

PAIRS = (
    # GLM 4.5 to 4.7, Poolside, Ling 3
    TextPattern(
        name="glm",
        openers=("<tool_call>",),
        body=PairBody(closes=("</tool_call>",)),
        closers=("</tool_call>",),
    ),
    TextPattern(
        name="hunyuan",
        openers=("<tool_calls>",),
        body=_HUNYUAN,
        closers=("</tool_calls>",),
    ),
    TextPattern(
        name="hunyuan_suffixed",
        openers=("<tool_calls:",),
        body=SuffixedPairBody(body=_HUNYUAN, closer="</tool_calls>"),
        closers=("</tool_calls:",),
    ),
)
"""The patterns, in order of rank."""


_NAMESPACE = "]<]minimax[>["
_CLOSER = f"{_NAMESPACE}</tool_call>"
_INVOKE = f'{_NAMESPACE}<invoke name="'
_INVOKE_END = f"{_NAMESPACE}</invoke>"


class NestedTagsBody(Struct, frozen=True):
    """Elements within elements; a value is an array if its schema says so or its tags repeat."""

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
        """The content of an element up to and with its end, as JSON."""
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
