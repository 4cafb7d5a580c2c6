"""Results as the formats give them back to their models, in the order of their calls.

The text of a result is never changed. An error is marked in front of its text, the way wires without a field for it do,
unless the format has a tag for errors.
"""

from collections.abc import Callable, Sequence

from dragoman._json import dumps_text
from dragoman.core.results import mark_error
from dragoman.textcalls.prompting.base import GivenResult
from dragoman.textcalls.prompting.in_json import kimi_id, mistral_id

__all__ = (
    "Give",
    "anthropic_results",
    "cohere_results",
    "each",
    "kimi_results",
    "mistral_results",
    "named_results",
    "react_results",
    "tool_responses",
)

Give = Callable[[Sequence[GivenResult]], str]


def shown(result: GivenResult) -> str:
    return mark_error(result.text) if result.is_error else result.text


def quoted(text: str) -> str:
    return dumps_text(text).decode("utf-8")


def each(
    opening: str, closing: str, *, around: tuple[str, str] = ("", ""), between: str = "\n"
) -> Give:
    """Each result between two literals, and all of them between two more."""

    def give(results: Sequence[GivenResult]) -> str:
        told = between.join(opening + shown(result) + closing for result in results)
        return around[0] + told + around[1]

    return give


tool_responses = each("<tool_response>\n", "\n</tool_response>")


def named_results(results: Sequence[GivenResult]) -> str:
    """For formats without a form of their own: said in words which tool gave what."""
    return "\n".join(
        f'<tool_response name="{result.name}">\n{shown(result)}\n</tool_response>'
        for result in results
    )


def anthropic_results(results: Sequence[GivenResult]) -> str:
    told: list[str] = []
    for result in results:
        tag = "stderr" if result.is_error else "stdout"
        told.append(
            f"<result>\n<tool_name>{result.name}</tool_name>\n<{tag}>\n{result.text}\n</{tag}>\n</result>"
        )
    return "<function_results>\n" + "\n".join(told) + "\n</function_results>"


def mistral_results(results: Sequence[GivenResult]) -> str:
    return "".join(
        f'[TOOL_RESULTS] {{"content": {quoted(shown(result))}, '
        f'"call_id": "{mistral_id(result.call_id)}"}}[/TOOL_RESULTS]'
        for result in results
    )


def kimi_results(results: Sequence[GivenResult]) -> str:
    return "\n\n".join(
        f"## Return of {kimi_id(result.name, result.number)}\n{shown(result)}" for result in results
    )


def cohere_results(results: Sequence[GivenResult]) -> str:
    told = ",\n".join(
        f'{{"tool_call_id": "{result.number}", "results": {{"0": {quoted(shown(result))}}}, '
        f'"is_error": {"true" if result.is_error else "null"}}}'
        for result in results
    )
    return f"<|START_TOOL_RESULT|>[\n{told}\n]<|END_TOOL_RESULT|>"


def react_results(results: Sequence[GivenResult]) -> str:
    return "\n".join(f"Observation: {shown(result)}" for result in results)
