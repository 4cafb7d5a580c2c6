"""The built-in formats, one row each. Their order is their rank if openers are shared.

A row has the name, the openers, the body and the closers; `TextPattern` has the other settings.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from dragoman.textcalls.block import Body, Place, TextPattern
from dragoman.textcalls.bodies.headed import (
    HarmonyBody,
    LedBody,
    MarkBody,
    NamedBody,
    ReactBody,
    ThoughtBody,
)
from dragoman.textcalls.bodies.json_objects import JsonBody
from dragoman.textcalls.bodies.named_tags import TagNamedBody, UseToolBody
from dragoman.textcalls.bodies.notations import LooseBody, PythonBody
from dragoman.textcalls.bodies.tags import (
    NestedTagsBody,
    PairBody,
    SuffixedPairBody,
    Tag,
    TaggedBody,
)
from dragoman.textcalls.offers import ANY_TYPE, STRING, UNTYPED, Types

_Words = str | tuple[str, ...]


def _row(
    name: str, opens: _Words, body: Body, closes: _Words = (), place: Place = "anywhere"
) -> TextPattern:
    openers = (opens,) if isinstance(opens, str) else opens
    closers = (closes,) if isinstance(closes, str) else closes
    return TextPattern(name=name, openers=openers, body=body, closers=closers, place=place)


def _bare(
    name: str, opens: _Words, body: Body, closes: _Words = (), place: Place = "anywhere"
) -> TextPattern:
    """Return a format whose opener may occur in any prose: used only if its name or a model's profile asks for it."""
    return replace(_row(name, opens, body, closes, place), is_sentinel=False)


# --- JSON objects between markers, and a name in a header before JSON ---------------------------------------------------

_OBJECT = JsonBody(shape="object")
_ARRAY = JsonBody(shape="array")
_INKLING = JsonBody(shape="object", argument_keys=("args", "arguments"))
_GIGACHAT = (
    "<|message_sep|>\n\nfunction call<|role_sep|>\n",
    "<|message_sep|>\r\n\r\nfunction call<|role_sep|>\r\n",
    "<|function_call|>",
)
_COMMAND_R = ("Action: ```json", "Action:```json", "Action:\n```json", "Action:\r\n```json")

_KIMI_HEADER = re.compile(r"(?:functions?\.)?(.+?)(?::[0-9]+)?")
_KIMI_NAMELESS = re.compile(r"(?:functions?\.?)?:?[0-9]+")
_KIMI_INDEX = re.compile(r".+:[0-9]+")


def _kimi_name(header: str) -> tuple[str, str]:
    """Return the name in `functions.f:0`, and the whole as id: its number counts over the conversation. `:0` has no name."""
    if _KIMI_NAMELESS.fullmatch(header):
        return "", ""
    found = _KIMI_HEADER.fullmatch(header)
    call_id = header if _KIMI_INDEX.fullmatch(header) else ""
    return ("", "") if found is None else (found[1], call_id)


def _mistral_name(header: str) -> tuple[str, str]:
    """`f`, or `f[CALL_ID]id`."""
    name, _, call_id = header.partition("[CALL_ID]")
    return name.strip(), call_id.strip()


_KIMI_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_KIMI_BARE = NamedBody(
    name_ends=("<|tool_call_argument_begin|>",),
    closes=("<|tool_call_end|>",),
    needs_close=True,
    ends=_KIMI_ENDS,
    forbid="<>()\"'`,;",  # white space may follow the header
    guesses=True,
    read_name=_kimi_name,
)
_KIMI = replace(_KIMI_BARE, opens=("<|tool_call_begin|>",), many=True)

_DEEPSEEK, _DEEPSEEK_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_DEEPSEEK_CALL = "<｜tool▁call▁begin｜>"
_DEEPSEEK_V3 = NamedBody(
    opens=(f"{_DEEPSEEK_CALL}function<｜tool▁sep｜>",),
    name_ends=("\n", "\r\n", "```json"),
    before=("```json", "```"),
    after=("```",),
    closes=("<｜tool▁call▁end｜>",),
    many=True,
)
_DEEPSEEK_V31 = NamedBody(
    opens=(_DEEPSEEK_CALL,),
    name_ends=("<｜tool▁sep｜>",),
    closes=("<｜tool▁call▁end｜>",),
    many=True,
)
# Without the mark around the section, which some servers remove.
_DEEPSEEK_V3_BARE = replace(
    _DEEPSEEK_V3, opens=("function<｜tool▁sep｜>",), many=False, needs_close=True
)
_DEEPSEEK_V31_BARE = replace(_DEEPSEEK_V31, opens=(), many=False, needs_close=True)
_MISTRAL = NamedBody(
    name_ends=("[ARGS]", "{", " [ARGS]", " {"), eos_name=True, read_name=_mistral_name
)
_HARMONY = ("<|channel|>", "<|start|>assistant")
_HARMONY_ENDS = ("<|call|>", "<|end|>")

_IN_JSON = (
    # Hermes, Qwen 2.5 and 3, Ernie 4.5, Granite 4, SmolLM, Trinity; an array after the tag: Granite 3, xLAM.
    _row("hermes", "<tool_call>", JsonBody(separators=()), "</tool_call>"),
    # Jamba, Hunyuan A13B, Apriel
    _row("tool_calls_array", "<tool_calls>", _ARRAY, "</tool_calls>"),
    # One object per line.
    _row("minimax_m1", "<tool_calls>", JsonBody(shape="object", separators=()), "</tool_calls>"),
    _row("nemotron", "<TOOLCALL>", _ARRAY, "</TOOLCALL>"),
    _row("granite", "<|tool_call|>", JsonBody()),
    _row("granite_20b", "<function_call>", _OBJECT),
    _row(
        "internlm",
        ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
        _OBJECT,
        "<|action_end|>",
    ),
    # Phi-4-mini, FireFunction
    _row("functools", "functools[", JsonBody(is_opened=True), place="word"),
    # The ids count from 0 in every turn, so they cannot be kept.
    _row("command", "<|START_ACTION|>", JsonBody(id_keys=()), "<|END_ACTION|>"),
    # Command-R and R+
    _row("command_r", _COMMAND_R, JsonBody(id_keys=(), needs_arguments=True), "```", "line"),
    _row("apertus", "<|tools_prefix|>", JsonBody(shape="array", keyed=True), "<|tools_suffix|>"),
    _row("gigachat", _GIGACHAT, _OBJECT, "</s>"),
    _row("longcat", "<longcat_tool_call>", JsonBody(), "</longcat_tool_call>"),
    _row("dots_json", "<dots_function_call>", JsonBody(), "</dots_function_call>"),
    _row("inkling", "<|content_invoke_tool_json|>", _INKLING, "<|end_message|>"),
    # The header repeats the name, sometimes wrongly: the name in the payload counts.
    _row(
        "inkling_headed",
        "<|message_model|>",
        LedBody(ends=("<|content_invoke_tool_json|>",), body=_INKLING),
        "<|end_message|>",
    ),
    _row("python_tag", "<|python_tag|>", JsonBody(separators=(";",))),
    _row("mistral", "[TOOL_CALLS]", JsonBody()),
    _row(
        "kimi_k2",
        ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
        _KIMI,
        _KIMI_ENDS,
    ),
    _row("kimi_k2_bare", "<|tool_call_begin|>", _KIMI_BARE, _KIMI_ENDS),
    _row("deepseek_v3", _DEEPSEEK, _DEEPSEEK_V3, _DEEPSEEK_END),
    _row("deepseek_v31", _DEEPSEEK, _DEEPSEEK_V31, _DEEPSEEK_END),
    _row("mistral_named", "[TOOL_CALLS]", _MISTRAL),
    # Functionary 3.1, and Llama's custom tools
    _row(
        "functionary_v31",
        "<function=",
        NamedBody(name_ends=(">",), closes=("</function>",)),
        "</function>",
    ),
    _row("deepseek_v3_bare", _DEEPSEEK_CALL, _DEEPSEEK_V3_BARE, _DEEPSEEK_END),
    _row("deepseek_v31_bare", _DEEPSEEK_CALL, _DEEPSEEK_V31_BARE, _DEEPSEEK_END),
    # `>>>` is Python's prompt in any other text.
    _bare("functionary_v32", ">>>", NamedBody(name_ends=("\n", "\r\n")), place="line"),
    _row("harmony", _HARMONY, HarmonyBody(), _HARMONY_ENDS),
    # The marks around the calls; and a header whose beginning a server has removed.
    _bare(
        "harmony_channels",
        (*_HARMONY, "to=functions."),
        HarmonyBody(takes_channels=True),
        _HARMONY_ENDS,
    ),
)

# --- tags around calls and parameters -----------------------------------------------------------------------------------


def _element(name: str, attribute: str = "name") -> Tag:
    return Tag(opens=(f"<{name}",), closes=(f"</{name}>",), attribute=attribute)


def _invokes(prefix: str = "") -> TaggedBody:
    return TaggedBody(call=_element(f"{prefix}invoke"), parameter=_element(f"{prefix}parameter"))


def _dsml_types(attributes: Mapping[str, str]) -> Types:
    """Return the type that `string="…"` declares, for a parameter without a schema."""
    return {"true": STRING, "false": ANY_TYPE}.get(attributes.get("string", ""), UNTYPED)


def _dsml(bars: str = "｜") -> TaggedBody:
    mark = f"{bars}DSML{bars}"
    return TaggedBody(
        call=_element(f"{mark}invoke"),
        parameter=replace(_element(f"{mark}parameter"), type_of=_dsml_types),
        wrappers=("arguments", "input"),
        takes_json=True,
        trim="none",
    )


def _dsml_row(name: str, wrapper: str, bars: str = "｜") -> TextPattern:
    mark = f"{bars}DSML{bars}{wrapper}"
    return _row(name, f"<{mark}>", _dsml(bars), f"</{mark}>")


def _k3_tag(name: str, attribute: str) -> Tag:
    return Tag(
        opens=(f"<|open|>{name}",),
        ends=("<|sep|>",),
        closes=(f"<|close|>{name}<|sep|>",),
        attribute=attribute,
        forbid="\n",
    )


def _k3_types(attributes: Mapping[str, str]) -> Types:
    return STRING if attributes.get("type") == "string" else ANY_TYPE


_FUNCTION = Tag(opens=("<function=",), closes=("</function>",))
_PARAMETER = Tag(opens=("<parameter=",), closes=("</parameter>",))
_QWEN = TaggedBody(call=_FUNCTION, parameter=_PARAMETER, forgives=True, trim="each")
_QWEN_BARE = replace(_QWEN, wraps=False, many=False)
_K3 = TaggedBody(
    call=_k3_tag("call", "tool"),
    parameter=replace(_k3_tag("argument", "key"), type_of=_k3_types),
    trim="none",
)
_MUSE = replace(_invokes("atem:"), untyped="json")
_MUSE_LEAD = ("<|message|><atem:function_calls>", "<|message|>\n<atem:function_calls>")
_MUSE_ENDS = tuple(f"</atem:function_calls>{mark}" for mark in ("", "<|eom|>", "<|eot|>"))
_STEP_MARKS = ("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "function<｜tool_sep｜>")
_SPACE_MARK = "\u0120"  # the space of byte-level tokenizers; some servers do not decode it
_LEAKED = "antml" + ":"  # the prefix of one vendor's own markup, which its models sometimes leak
_MINICPM = TaggedBody(
    call=_element("function"),
    parameter=replace(_element("param"), opens=("<param", f"<param{_SPACE_MARK}")),
    wraps=False,
    many=False,
    is_strict=True,
    takes_cdata=True,
    wrappers=("properties", "arguments", "parameters"),
)
_HUNYUAN = PairBody(opens=("<tool_call>",), closes=("</tool_call>",), separators=("<tool_sep>",))

_IN_TAGS = (
    # Qwen3-Coder, Qwen 3.5, Nemotron 3, MiMo, Step 3.5
    _row("qwen3_coder", "<tool_call>", _QWEN, "</tool_call>"),
    # `qwen3_coder` without its wrapper, which models forget.
    _row("qwen3_coder_bare", "<function=", _QWEN_BARE, "</tool_call>"),
    # `qwen3_coder` whose first character went into the reasoning channel, as some servers' parsers do.
    _row(
        "qwen3_coder_headless",
        "function=",
        replace(_QWEN_BARE, call=replace(_FUNCTION, opens=("<function=", "function="))),
        "</tool_call>",
        "start",
    ),
    _row("seed_oss", "<seed:tool_call>", _QWEN, "</seed:tool_call>"),
    _row("minimax_m2", "<minimax:tool_call>", _invokes(), "</minimax:tool_call>"),
    _row("anthropic", "<function_calls>", _invokes(), "</function_calls>"),
    _row(
        "anthropic_leaked",
        f"<{_LEAKED}function_calls>",
        _invokes(_LEAKED),
        f"</{_LEAKED}function_calls>",
    ),
    *(
        _row(
            name,
            f"<{prefix}invoke ",
            replace(_invokes(prefix), wraps=False, many=False),
            f"</{prefix}function_calls>",
        )
        for name, prefix in (("invoke", ""), ("invoke_leaked", _LEAKED))
    ),
    _row("dots", "<dots_function_call>", _invokes(), "</dots_function_call>"),
    _row("muse", "<atem:function_calls>", _MUSE, _MUSE_ENDS),
    # The header repeats the name.
    _row(
        "muse_headed",
        "<|start|>assistant to=",
        LedBody(ends=_MUSE_LEAD, body=_MUSE),
        _MUSE_ENDS,
    ),
    _dsml_row("deepseek_v32", "function_calls"),
    _dsml_row("deepseek_v4", "tool_calls"),
    _dsml_row("deepseek_v32_doubled", "function_calls", "｜｜"),
    _dsml_row("deepseek_v4_doubled", "tool_calls", "｜｜"),
    _row(
        "dsml_invoke",
        "<｜DSML｜invoke ",
        replace(_dsml(), wraps=False),
        ("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
    ),
    _row("kimi_k3", "<|open|>tools<|sep|>", _K3, "<|close|>tools<|sep|>"),
    _row(
        "step3",
        "<｜tool_calls_begin｜>",
        replace(_invokes("steptml:"), between=_STEP_MARKS),
        "<｜tool_calls_end｜>",
    ),
    # Last of these, because its opener is a prefix of many others. Spaces arrive as the tokenizer's marks, or not at all.
    _row("minicpm", ("<function", f"<function{_SPACE_MARK}"), _MINICPM, "</function>"),
    # GLM 4.5 to 4.7, Poolside, Ling 3
    _row("glm", "<tool_call>", PairBody(closes=("</tool_call>",)), "</tool_call>"),
    _row("hunyuan", "<tool_calls>", _HUNYUAN, "</tool_calls>"),
    _row(
        "hunyuan_suffixed",
        "<tool_calls:",
        SuffixedPairBody(body=_HUNYUAN, closer="</tool_calls>"),
        "</tool_calls:",
    ),
)

# --- notations of their own ---------------------------------------------------------------------------------------------

_MINIMAX_M3 = "]<]minimax[>["

_IN_NOTATIONS = (
    _row("llama4", "<|python_start|>", PythonBody(in_list=None), "<|python_end|>"),
    _row("lfm2", "<|tool_call_start|>", PythonBody(in_list=None), "<|tool_call_end|>"),
    _row("lfm2_json", "<|tool_call_start|>", JsonBody(), "<|tool_call_end|>"),
    replace(
        _row("olmo3", "<function_calls>", PythonBody(in_list=False), "</function_calls>"),
        needs_closer=True,
    ),
    # Gemma 1 to 3, by prompt only.
    _row(
        "tool_code",
        ("```tool_code\n", "```tool_code\r\n"),
        PythonBody(in_list=False, offered_only=True, prints=True),
        "```",
        "line",
    ),
    _row("gemma4", "<|tool_call>", LooseBody(lead="call:", quote='<|"|>'), "<tool_call|>"),
    _row(
        "functiongemma",
        "<start_function_call>",
        LooseBody(lead="call:", quote="<escape>"),
        "<end_function_call>",
    ),
    _row(
        "minimax_m3",
        f"{_MINIMAX_M3}<tool_call>",
        NestedTagsBody(namespace=_MINIMAX_M3),
        f"{_MINIMAX_M3}</tool_call>",
    ),
)

# --- marks of channels and turns that some models write around their text ------------------------------------------------

_K3_MARKS = tuple(
    f"<|{verb}|>{space}{channel}{space}<|sep|>"
    for verb in ("open", "close")
    for channel in ("response", "message", "think")
    for space in ("", " ")
)
_COMMAND_MARKS = (
    *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    "<co>",
)
_MUSE_LEADS = ("to=", " to=")
_MUSE_THOUGHT = ThoughtBody(ends=("<|eom|>", "<|eot|>"))
_HARMONY_NEXT = ("<|start|>", "<|channel|>")


def _mark(name: str, opens: _Words, body: Body, place: Place = "anywhere") -> TextPattern:
    return replace(_bare(name, opens, body, (), place), is_mark=True)


MARKS = (
    _mark("kimi_k3_marks", _K3_MARKS, MarkBody()),
    _mark("harmony_marks", ("<|end|>", "<|return|>", "<|call|>"), MarkBody(before=_HARMONY_NEXT)),
    _mark("harmony_messages", "<|message|>", MarkBody(), "start"),
    _mark("command_thoughts", "<|START_THINKING|>", ThoughtBody(ends=("<|END_THINKING|>",))),
    _mark("command_marks", _COMMAND_MARKS, MarkBody()),
    _mark("command_citations", "</co: ", MarkBody(ends=(">",))),
    _mark("muse_thoughts", "<|start|>assistant to=self<|message|>", _MUSE_THOUGHT),
    _mark("muse_headers", "<|start|>assistant to=user<|message|>", MarkBody()),
    _mark("muse_marks", ("<|eom|>", "<|eot|>"), MarkBody(before=("<|start|>",))),
    # The same at the beginning of the text, where some servers remove the first words.
    _mark(
        "muse_first_thoughts",
        tuple(f"{lead}self<|message|>" for lead in _MUSE_LEADS),
        _MUSE_THOUGHT,
        "start",
    ),
    _mark(
        "muse_first_headers",
        tuple(f"{lead}user<|message|>" for lead in _MUSE_LEADS),
        MarkBody(),
        "start",
    ),
    _mark("dots_marks", "</dots_function_call>", MarkBody(before=())),
    _mark("functionary_v32_content", ">>>all\n", MarkBody()),
)

# --- calls without a sentinel -------------------------------------------------------------------------------------------

_BARE = (
    # Llama 3.x: `{"name": …, "parameters": {…}}; {…}`
    _bare(
        "bare_json",
        "{",
        JsonBody(shape="object", is_opened=True, separators=(";",), needs_arguments=True),
    ),
    # xLAM, Granite: `[{"name": …, "arguments": {…}}]`
    _bare("bare_json_array", "[", JsonBody(is_opened=True, needs_arguments=True)),
    # xLAM: the only format in which a fence is the call
    _bare("json_fence", ("```json", "```"), JsonBody(needs_arguments=True), "```", "line"),
    # Llama 4, ToolACE: `[f(a=1), g()]`
    _bare("pythonic", "[", PythonBody(is_opened=True, offered_only=True)),
    # Muse at the beginning of the text, where some servers remove the first words.
    _bare(
        "muse_first",
        _MUSE_LEADS,
        LedBody(ends=_MUSE_LEAD, body=_MUSE),
        _MUSE_ENDS,
        "start",
    ),
    _bare("react", "Action:", ReactBody(), "Observation:", "line"),
    # Cline, Roo: the tag is the name of the tool
    _bare("tool_tags", "<{name}>", TagNamedBody(), "</{name}>"),
)

USE_TOOL = _row("use_tool", "<use_tool>", UseToolBody(), "</use_tool>")

BUILT_IN = (USE_TOOL, *_IN_JSON, *_IN_TAGS, *_IN_NOTATIONS, *MARKS, *_BARE)
"""All formats, in order of rank."""
