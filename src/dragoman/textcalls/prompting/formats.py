"""The formats that tools can be prompted in, by the names that the scanner knows them by."""

from collections.abc import Mapping

from dragoman.core.aliases import NameLimits
from dragoman.textcalls.prompting import families
from dragoman.textcalls.prompting.base import SaidCall, ToolPrompt
from dragoman.textcalls.prompting.in_json import (
    cohere_call,
    enclosed,
    flat_call,
    kimi_id,
    mistral_call,
    object_call,
    parameters_call,
)
from dragoman.textcalls.prompting.in_python import marked_calls, python_calls
from dragoman.textcalls.prompting.in_tags import Tags
from dragoman.textcalls.prompting.results import (
    Give,
    anthropic_results,
    cohere_results,
    each,
    kimi_results,
    mistral_results,
    react_results,
    tool_responses,
)
from dragoman.textcalls.prompting.wordings import Offer, Say, plainly

__all__ = ("PROMPTS",)

# Names that are written bare, where a hyphen would end or split them.
_WORDS = NameLimits(pattern="[a-zA-Z0-9_]")

_RESPONSE_END = ("</tool_response>",)


def _prompt(
    name: str,
    say: Say,
    *,
    offer: Offer | None = None,
    give: Give = tool_responses,
    ends: tuple[str, ...] = _RESPONSE_END,
    names: NameLimits = NameLimits(),
) -> ToolPrompt:
    """One row. Without a wording of its own a format is explained in plain words."""
    wording = plainly(say, families.RESPONSES_FOLLOW) if offer is None else offer
    return ToolPrompt(name=name, offer=wording, say=say, give=give, ends=ends, names=names)


def _invokes(opening: str, closing: str, prefix: str = "") -> Tags:
    """Blocks of `<invoke name=…>` with `<parameter name=…>`, whose tags may have a prefix."""
    return Tags(
        opening=f"{opening}\n",
        head=lambda name: f'<{prefix}invoke name="{name}">\n',
        parameter=lambda key, _: f'<{prefix}parameter name="{key}">',
        end=f"</{prefix}parameter>\n",
        tail=f"</{prefix}invoke>",
        closing=f"\n{closing}",
        marks=(f"</{prefix}parameter>", f"<{prefix}parameter", f"{prefix}invoke", opening, closing),
    )


def _functions(opening: str, closing: str) -> Tags:
    """Qwen3-Coder's blocks, under any outer tag."""
    return Tags(
        head=lambda name: f"{opening}\n<function={name}>\n",
        parameter=lambda key, _: f"<parameter={key}>",
        end="</parameter>\n",
        tail=f"</function>\n{closing}",
        room="\n",
        marks=("</parameter>", "<parameter=", "</function>", "<function=", closing),
    )


_GLM = Tags(
    head=lambda name: f"<tool_call>{name}\n",
    parameter=lambda key, _: f"<arg_key>{key}</arg_key>\n<arg_value>",
    end="</arg_value>\n",
    tail="</tool_call>",
    marks=("</arg_value>", "<arg_key>", "<arg_value>", "</tool_call>"),
)

_HUNYUAN = Tags(
    opening="<tool_calls>\n",
    head=lambda name: f"<tool_call>{name}<tool_sep>\n",
    parameter=lambda key, _: f"<arg_key>{key}</arg_key>\n<arg_value>",
    end="</arg_value>\n",
    tail="</tool_call>",
    closing="\n</tool_calls>",
    marks=("</arg_value>", "<arg_key>", "<arg_value>", "</tool_call>", "</tool_calls>"),
)

_OBSIDIAN = Tags(
    head=lambda name: f"<use_tool>\n<name>{name}</name>\n",
    parameter=lambda key, _: f"<{key}>",
    end="",  # written by `parameter_end`, as it has the key in it
    tail="</use_tool>",
    marks=("<use_tool>", "</use_tool>"),
)

_DSML = Tags(
    opening="<｜DSML｜function_calls>\n",
    head=lambda name: f'<｜DSML｜invoke name="{name}">\n',
    parameter=lambda key, kind: (
        f'<｜DSML｜parameter name="{key}" string="{"true" if kind == "string" else "false"}">'
    ),
    end="</｜DSML｜parameter>\n",
    tail="</｜DSML｜invoke>",
    closing="\n</｜DSML｜function_calls>",
    marks=("｜DSML｜",),
    has_types=True,
)

_MINICPM = Tags(
    head=lambda name: f'<function name="{name}">',
    parameter=lambda key, _: f'<param name="{key}">',
    end="</param>",
    tail="</function>",
    marks=("</param>", "<param", "</function>", "<![CDATA["),
)

_STEP3 = Tags(
    opening="<｜tool_calls_begin｜>",
    head=lambda name: (
        f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">'
    ),
    parameter=lambda key, _: f'<steptml:parameter name="{key}">',
    end="</steptml:parameter>",
    tail="</steptml:invoke><｜tool_call_end｜>",
    closing="<｜tool_calls_end｜>",
    between="",
    marks=("steptml:", "<｜tool_call"),
)
