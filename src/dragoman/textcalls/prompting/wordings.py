"""How models are told of their tools: for the families that were trained on a wording, that wording.

The others are told in plain words, with an example that the format's own writer wrote. Schemas are shown as they came,
on one line each.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from dragoman._json import dumps
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.prompting.base import SaidCall, Sheet, Signature

__all__ = (
    "Say",
    "Show",
    "Wording",
    "deepseek_list",
    "flat_lines",
    "function_elements",
    "llama_list",
    "nested_lines",
    "nested_list",
    "plainly",
    "react_list",
)

Show = Callable[[Sequence[Signature]], str]
Say = Callable[[Sequence[SaidCall], Sheet], str]

_EXAMPLE = SaidCall(
    "example_function", '{"example_parameter": "a text", "another_parameter": 2}', "example00"
)
_EXAMPLE_TOOL = {
    "name": _EXAMPLE.name,
    "parameters": {
        "properties": {
            "example_parameter": {"type": "string"},
            "another_parameter": {"type": "integer"},
        }
    },
}


class Wording(Struct, frozen=True):
    """The words before the list of tools, and after it."""

    before: str
    after: str
    show: Show


def _flat(signature: Signature) -> dict[str, object]:
    return {
        "name": signature.name,
        "description": signature.description,
        "parameters": signature.schema,
    }


def _line(value: object) -> str:
    return dumps(value).decode("utf-8")


def flat_lines(signatures: Sequence[Signature]) -> str:
    """One JSON object for each tool."""
    return "\n".join(_line(_flat(signature)) for signature in signatures)


def nested_lines(signatures: Sequence[Signature]) -> str:
    """One JSON object for each tool, in the form of Chat Completions, as most templates show them."""
    return "\n".join(
        _line({"type": "function", "function": _flat(signature)}) for signature in signatures
    )


def nested_list(signatures: Sequence[Signature]) -> str:
    """One JSON array, in the form of Chat Completions."""
    return _line([{"type": "function", "function": _flat(signature)} for signature in signatures])


def deepseek_list(signatures: Sequence[Signature]) -> str:
    return "\n\n".join(
        f"### {each.name}\nDescription: {each.description}\n\nParameters: {_line(each.schema)}"
        for each in signatures
    )


def llama_list(signatures: Sequence[Signature]) -> str:
    return "\n\n".join(
        f"Use the function '{each.name}' to '{each.description}'\n{_line(_flat(each))}"
        for each in signatures
    )


def react_list(signatures: Sequence[Signature]) -> str:
    return "\n".join(
        f"{each.name}: {each.description} Input: a JSON object of this schema: {_line(each.schema)}"
        for each in signatures
    )


def function_elements(signatures: Sequence[Signature]) -> str:
    return "\n".join(f"<function>{_line(_flat(each))}</function>" for each in signatures)


def plainly(say: Say) -> Wording:
    """In plain words, with an example."""
    example = say((_EXAMPLE,), Sheet(Offers([_EXAMPLE_TOOL])))
    # A format that is itself a code block must not be told to stay out of one.
    place = "" if example.startswith("```") else "outside of any code block, "
    return Wording(
        "# Tools\n\nYou can call functions to help you answer. These are the functions you have, one JSON object "
        "each, with the JSON schema of its parameters:\n<tools>\n",
        "\n</tools>\n\nTo call functions, write the calls at the end of your reply in exactly this form, "
        f"{place}and write nothing after them:\n{example}",
        flat_lines,
    )
