"""Results as the formats give them back to their models, in the order of their calls.

The text of a result is never changed. An error is marked in front of its text, the way wires without a field for it do,
unless the format has a tag for errors.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from dragoman._json import dumps_text
from dragoman.core.results import mark_error
from dragoman.textcalls.prompting.base import GivenResult
from dragoman.textcalls.prompting.in_json import kimi_id, mistral_id

__all__ = (
    "COHERE_RESULTS",
    "DEEPSEEK_OUTPUTS",
    "DSML_RESULTS",
    "FUNCTION_RESULTS",
    "KIMI_RETURNS",
    "MISTRAL_RESULTS",
    "OBSERVATIONS",
    "TOOL_RESPONSES",
    "ResultForm",
)

_NEXT = "The results come in the next message, "


class ResultForm(Struct, frozen=True):
    """How results are written. ends: what a result must not contain. follow: tells a model what it will see."""

    give: Callable[[Sequence[GivenResult]], str]
    ends: tuple[str, ...]
    follow: str


def _shown(result: GivenResult) -> str:
    return mark_error(result.text) if result.is_error else result.text


def _quoted(result: GivenResult) -> str:
    return dumps_text(_shown(result)).decode("utf-8")


def _each(
    opening: str, closing: str, *, around: tuple[str, str] = ("", ""), between: str = "\n"
) -> Callable[[Sequence[GivenResult]], str]:
    """Each result between two literals, and all of them between two more."""

    def give(results: Sequence[GivenResult]) -> str:
        told = between.join(opening + _shown(result) + closing for result in results)
        return around[0] + told + around[1]

    return give


def _function_results(results: Sequence[GivenResult]) -> str:
    told: list[str] = []
    for result in results:
        tag = "stderr" if result.is_error else "stdout"
        name = f"<tool_name>{result.name}</tool_name>"
        told.append(f"<result>\n{name}\n<{tag}>\n{result.text}\n</{tag}>\n</result>")
    return "<function_results>\n" + "\n".join(told) + "\n</function_results>"


def _mistral_results(results: Sequence[GivenResult]) -> str:
    return "".join(
        f'[TOOL_RESULTS] {{"content": {_quoted(result)}, '
        f'"call_id": "{mistral_id(result.call_id)}"}}[/TOOL_RESULTS]'
        for result in results
    )


def _kimi_returns(results: Sequence[GivenResult]) -> str:
    return "\n\n".join(
        f"## Return of {kimi_id(result.name, result.number)}\n{_shown(result)}"
        for result in results
    )


def _cohere_results(results: Sequence[GivenResult]) -> str:
    told = ",\n".join(
        f'{{"tool_call_id": "{result.number}", "results": {{"0": {_quoted(result)}}}, '
        f'"is_error": {"true" if result.is_error else "null"}}}'
        for result in results
    )
    return f"<|START_TOOL_RESULT|>[\n{told}\n]<|END_TOOL_RESULT|>"


def _observations(results: Sequence[GivenResult]) -> str:
    return "\n".join(f"Observation: {_shown(result)}" for result in results)


TOOL_RESPONSES = ResultForm(
    _each("<tool_response>\n", "\n</tool_response>"),
    ("</tool_response>",),
    f"{_NEXT}one for each call and in the order of the calls, within <tool_response></tool_response> tags.",
)
FUNCTION_RESULTS = ResultForm(
    _function_results,
    ("</function_results>", "</result>", "</stdout>", "</stderr>"),
    f"{_NEXT}within <function_results></function_results> tags.",
)
DSML_RESULTS = ResultForm(
    _each("<result>", "</result>", around=("<function_results>\n", "\n</function_results>")),
    ("</function_results>", "</result>"),
    f"{_NEXT}within <function_results></function_results> tags, in the order of the calls.",
)
DEEPSEEK_OUTPUTS = ResultForm(
    _each("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", between=""),
    ("<｜tool▁output▁end｜>",),
    f"{_NEXT}one for each call and in the order of the calls.",
)
MISTRAL_RESULTS = ResultForm(
    _mistral_results,
    (),  # JSON strings keep to themselves what they contain
    _NEXT + 'each as [TOOL_RESULTS] {"content": ..., "call_id": ...}[/TOOL_RESULTS].',
)
KIMI_RETURNS = ResultForm(
    _kimi_returns, ("## Return of ",), f"{_NEXT}each under a line with the id of its call."
)
COHERE_RESULTS = ResultForm(
    _cohere_results,
    (),
    f"{_NEXT}within <|START_TOOL_RESULT|><|END_TOOL_RESULT|>, each with the tool_call_id of its call.",
)
OBSERVATIONS = ResultForm(_observations, ("\nObservation:",), f"{_NEXT}after `Observation:`.")
