"""Formats of tags around each call and each parameter."""

from collections.abc import Mapping

from dragoman.textcalls.bodies.led_body import LedBody
from dragoman.textcalls.bodies.tagged_body import Tag, TaggedBody
from dragoman.textcalls.offers import UNTYPED, Types
from dragoman.textcalls.patterns import TextPattern

__all__ = ("TAGGED",)

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
    """What `string="…"` says, where the schema says nothing."""
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
