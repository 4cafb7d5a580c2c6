"""Reads the list of models that a server returns for `GET /models`: their names, and their context windows if it says them.

OpenAI and Anthropic list `data` with an `id` each. The context window is no part of either format; local servers and
resellers add it under names of their own.
"""

from collections.abc import Iterator
from typing import cast

from msgspec import Struct

from dragoman._json import loads
from dragoman.errors import MalformedJson

# vLLM, OpenRouter, LM Studio, Groq and Anthropic, in this order.
_WINDOW_NAMES = (
    "max_model_len",
    "context_length",
    "max_context_length",
    "context_window",
    "max_input_tokens",
)
# llama.cpp has it one level below.
_NESTED = ("meta", "n_ctx")
# A name has some tens of characters. A longer one, or one with control characters, is not the name of a model.
_LONGEST_NAME = 256
# Resellers list some hundreds.
_MOST_MODELS = 2000


class OfferedModel(Struct, frozen=True):
    """A model of a server. `context_window`: in tokens; None if the server does not say it."""

    name: str
    context_window: int | None = None


def read_model_list(body: bytes) -> tuple[OfferedModel, ...]:
    """The models in the body of an answer, in its order; none if the body has another format."""
    try:
        document: object = loads(body)
    except MalformedJson:
        return ()
    found = {each.name: each for each in _models(document)}
    return tuple(found.values())[:_MOST_MODELS]


def _models(document: object) -> Iterator[OfferedModel]:
    listed = cast("dict[str, object]", document).get("data") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return
    for entry in cast("list[object]", listed):
        if not isinstance(entry, dict):
            continue
        fields = cast("dict[str, object]", entry)
        name = fields.get("id")
        if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable():
            yield OfferedModel(name, _window(fields))


def _window(fields: dict[str, object]) -> int | None:
    outer, inner = _NESTED
    nested = fields.get(outer)
    values = [fields.get(name) for name in _WINDOW_NAMES]
    if isinstance(nested, dict):
        values.append(cast("dict[str, object]", nested).get(inner))
    return next((each for each in values if type(each) is int and each > 0), None)
