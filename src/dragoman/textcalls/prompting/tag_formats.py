"""The formats that write parameters in tags."""

from dragoman.textcalls.coerce import Untyped
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.prompting.in_tags import Tags
from dragoman.textcalls.tag_values import read_parameters

__all__ = (
    "ANTHROPIC",
    "DOTS",
    "DSML",
    "DSML_V4",
    "GLM",
    "HUNYUAN",
    "KIMI_K3",
    "MINICPM",
    "MINIMAX",
    "MUSE",
    "QWEN_CODER",
    "SEED",
    "STEP3",
    "TOOL_TAGS",
    "USE_TOOL",
)


def _functions(opening: str, closing: str) -> Tags:
    """Qwen3-Coder's blocks, under any outer tag."""
    return Tags(
        head=lambda name, _: f"{opening}\n<function={name}>\n",
        parameter=lambda key, _: f"<parameter={key}>",
        end=lambda _: "</parameter>\n",
        tail=lambda _: f"</function>\n{closing}",
        room="\n",
        marks=("</parameter>", "<parameter=", "</function>", "<function=", closing),
    )


def _invokes(opening: str, closing: str, prefix: str = "", untyped: Untyped = "string") -> Tags:
    """Blocks of `<invoke name=…>` with `<parameter name=…>`, whose tags may have a prefix."""
    return Tags(
        opening=f"{opening}\n",
        head=lambda name, _: f'<{prefix}invoke name="{name}">\n',
        parameter=lambda key, _: f'<{prefix}parameter name="{key}">',
        end=lambda _: f"</{prefix}parameter>\n",
        tail=lambda _: f"</{prefix}invoke>",
        closing=f"\n{closing}",
        marks=(
            f"</{prefix}parameter>",
            f"<{prefix}parameter",
            f"</{prefix}invoke>",
            f"<{prefix}invoke",
            closing,
        ),
        untyped=untyped,
    )


QWEN_CODER = _functions("<tool_call>", "</tool_call>")
SEED = _functions("<seed:tool_call>", "</seed:tool_call>")
ANTHROPIC = _invokes("<function_calls>", "</function_calls>")
MINIMAX = _invokes("<minimax:tool_call>", "</minimax:tool_call>")
MUSE = _invokes("<atem:function_calls>", "</atem:function_calls>", "atem:", "json")
DOTS = _invokes("<dots_function_call>", "</dots_function_call>")

GLM = Tags(
    head=lambda name, _: f"<tool_call>{name}\n",
    parameter=lambda key, _: f"<arg_key>{key}</arg_key>\n<arg_value>",
    end=lambda _: "</arg_value>\n",
    tail=lambda _: "</tool_call>",
    marks=("</arg_value>", "<arg_key>", "<arg_value>", "</tool_call>"),
    trims="nothing",
)

HUNYUAN = Tags(
    opening="<tool_calls>\n",
    head=lambda name, _: f"<tool_call>{name}<tool_sep>\n",
    parameter=lambda key, _: f"<arg_key>{key}</arg_key>\n<arg_value>",
    end=lambda _: "</arg_value>\n",
    tail=lambda _: "</tool_call>",
    closing="\n</tool_calls>",
    marks=("</arg_value>", "<arg_key>", "<arg_value>", "</tool_call>"),
    trims="nothing",
)


def _dsml(wrapper: str) -> Tags:
    return Tags(
        opening=f"<｜DSML｜{wrapper}>\n",
        head=lambda name, _: f'<｜DSML｜invoke name="{name}">\n',
        parameter=lambda key, kind: (
            f'<｜DSML｜parameter name="{key}" string="{"true" if kind == "string" else "false"}">'
        ),
        end=lambda _: "</｜DSML｜parameter>\n",
        tail=lambda _: "</｜DSML｜invoke>",
        closing=f"\n</｜DSML｜{wrapper}>",
        marks=("｜DSML｜",),
        trims="nothing",
        untyped="markup",
        wrappers=("arguments", "input"),
    )


DSML = _dsml("function_calls")
DSML_V4 = _dsml("tool_calls")

KIMI_K3 = Tags(
    opening="<|open|>tools<|sep|>",
    head=lambda name, number: f'<|open|>call tool="{name}" index="{number}"<|sep|>',
    parameter=lambda key, kind: (
        f'<|open|>argument key="{key}" type="{"number" if kind == "integer" else kind}"<|sep|>'
    ),
    end=lambda _: "<|close|>argument<|sep|>",
    tail=lambda _: "<|close|>call<|sep|>",
    closing="<|close|>tools<|sep|>",
    between="",
    marks=("<|close|>", "<|open|>", "<|sep|>"),
    trims="nothing",
    untyped="markup",
)

MINICPM = Tags(
    head=lambda name, _: f'<function name="{name}">',
    parameter=lambda key, _: f'<param name="{key}">',
    end=lambda _: "</param>",
    tail=lambda _: "</function>",
    marks=("</param>", "<param", "</function>", "<![CDATA["),
    wrappers=("properties", "arguments", "parameters"),
    needs_required=True,
)

STEP3 = Tags(
    opening="<｜tool_calls_begin｜>",
    head=lambda name, _: (
        f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">'
    ),
    parameter=lambda key, _: f'<steptml:parameter name="{key}">',
    end=lambda _: "</steptml:parameter>",
    tail=lambda _: "</steptml:invoke><｜tool_call_end｜>",
    closing="<｜tool_calls_end｜>",
    between="",
    marks=("steptml:", "<｜tool_call"),
)


def _read_named_tags(text: str, name: str, offers: Offers) -> dict[str, str]:
    """The parameters within the outermost tag."""
    return read_parameters(text[text.index(">") + 1 : text.rindex("</")], name, offers)


USE_TOOL = Tags(
    head=lambda name, _: f"<use_tool>\n<name>{name}</name>\n",
    parameter=lambda key, _: f"<{key}>",
    end=lambda key: f"</{key}>\n",
    tail=lambda _: "</use_tool>",
    marks=("<use_tool>", "</use_tool>"),
    read=_read_named_tags,
)


TOOL_TAGS = Tags(
    head=lambda name, _: f"<{name}>\n",
    parameter=lambda key, _: f"<{key}>",
    end=lambda key: f"</{key}>\n",
    tail=lambda name: f"</{name}>",
    marks=("</{name}>",),
    only_declared=True,
    read=_read_named_tags,
)
