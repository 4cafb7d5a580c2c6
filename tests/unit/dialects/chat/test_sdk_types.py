"""Every field of the vendor's SDK types has a home here, or is named as one that rides along as it came."""

from typing import get_args, get_origin, get_type_hints

import pytest
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionAssistantMessageParam,
    ChatCompletionAudio,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
    chat_completion,
    chat_completion_chunk,
)
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.completion_usage import (
    CompletionTokensDetails,
    CompletionUsage,
    PromptTokensDetails,
)
from pydantic import BaseModel

from dragoman.dialects.chat import request, usage, wire

ENVELOPE = {"service_tier", "system_fingerprint", "moderation", "metadata"}
"""Kept with the start of the answer, or noticed where they come later."""

REQUEST = {
    "audio",
    "max_completion_tokens",
    "modalities",
    "moderation",
    "prediction",
    "prompt_cache_options",
    "prompt_cache_retention",
    "web_search_options",
}
"""Kept in the request's extra; `max_completion_tokens` is read as well."""

MODELS: list[tuple[type[BaseModel], frozenset[str], set[str]]] = [
    (ChatCompletionChunk, wire.CHUNK_FIELDS, ENVELOPE),
    (ChatCompletion, wire.CHUNK_FIELDS, ENVELOPE),
    (chat_completion_chunk.Choice, wire.CHOICE_FIELDS, set()),
    (chat_completion.Choice, wire.CHOICE_FIELDS, set()),
    (chat_completion_chunk.ChoiceDelta, wire.DELTA_FIELDS, set()),
    (ChatCompletionMessage, wire.DELTA_FIELDS, set()),
    (chat_completion_chunk.ChoiceDeltaToolCall, wire.CALL_FIELDS, set()),
    (ChatCompletionMessageFunctionToolCall, wire.CALL_FIELDS, set()),
    (chat_completion_chunk.ChoiceDeltaFunctionCall, wire.CALL_FIELDS, set()),
    (chat_completion_chunk.ChoiceDeltaAudio, wire.AUDIO_FIELDS, {"expires_at"}),
    (ChatCompletionAudio, wire.AUDIO_FIELDS, {"expires_at"}),
    (CompletionUsage, usage.KNOWN, set()),
    (PromptTokensDetails, usage.KNOWN_INPUT, {"image_tokens", "text_tokens"}),
    (
        CompletionTokensDetails,
        usage.KNOWN_OUTPUT,
        {"accepted_prediction_tokens", "rejected_prediction_tokens", "text_tokens"},
    ),
]


@pytest.mark.parametrize(
    ("model", "known", "kept"), MODELS, ids=lambda each: getattr(each, "__name__", "")
)
def test_every_field_of_an_answer_has_a_home(
    model: type[BaseModel], known: frozenset[str], kept: set[str]
) -> None:
    assert set(model.model_fields) <= known | kept


@pytest.mark.parametrize(
    "params", [CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming]
)
def test_every_field_of_a_request_has_a_home(params: type) -> None:
    assert set(get_type_hints(params)) <= request.SETTINGS.fields | REQUEST


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ("assistant", ChatCompletionAssistantMessageParam),
        ("tool", ChatCompletionToolMessageParam),
        ("user", ChatCompletionUserMessageParam),
    ],
)
def test_every_field_of_a_message_has_a_home(role: str, message: type) -> None:
    assert set(get_type_hints(message)) <= wire.MESSAGE_FIELDS[role]


def test_every_finish_reason_of_the_sdk_is_known() -> None:
    annotation = chat_completion_chunk.Choice.model_fields["finish_reason"].annotation
    literal = next(each for each in get_args(annotation) if get_origin(each) is not None)
    assert set(get_args(literal)) <= set(wire.FINISHES)
