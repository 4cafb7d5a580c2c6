"""Everything the vendor's own client knows has a home here: walked type by type, field by field."""

import json
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import anthropic.types as plain
import anthropic.types.beta as beta
import pytest
from anthropic.types import message_create_params as plain_params
from anthropic.types import raw_message_delta_event as plain_delta
from anthropic.types import tool_result_block_param as plain_result
from anthropic.types.beta import beta_raw_message_delta_event as beta_delta
from anthropic.types.beta import beta_system_message_param as beta_system
from anthropic.types.beta import beta_tool_result_block_param as beta_result
from anthropic.types.beta import message_create_params as beta_params
from anthropic.types.shared import ErrorObject
from pydantic import BaseModel

from dragoman.dialects.messages import decode_error
from dragoman.dialects.messages.request import SETTINGS
from dragoman.dialects.messages.wire import (
    DELTA_FIELDS,
    EVENTS,
    MAPPED_BLOCKS,
    MAPPED_FIELDS,
    NOTICED_DELTAS,
    OPAQUE_BLOCKS,
    RESULT_KINDS,
    RESULT_SUFFIX,
    SERVER_TOOL_KINDS,
    STOP_REASONS,
    THINKING_TYPES,
    TOOL_CHOICES,
    TOOL_FAMILIES,
)

MAPPED_DELTAS: Mapping[str, str] = {
    "text_delta": "TextDelta",
    "input_json_delta": "InputDelta",
    "thinking_delta": "ReasoningDelta",
    "signature_delta": "SealAdded",
    "citations_delta": "AnnotationAdded",
}

CITATIONS = frozenset(
    {
        "char_location",
        "page_location",
        "content_block_location",
        "web_search_result_location",
        "search_result_location",
    }
)
"""Citations are kept raw whatever their type; url, title and quotation are read where they have them."""

EXTRA_FIELDS: Mapping[str, frozenset[str]] = {
    "request": frozenset(
        {
            "betas",
            "cache_control",
            "compaction",
            "container",
            "context_management",
            "diagnostics",
            "fallback_credit_token",
            "fallbacks",
            "inference_geo",
            "mcp_servers",
            "speed",
            "thread",
            "user_profile_id",
            "workspace_id",
        }
    ),
    "request.message": frozenset({"clear_at", "output_config"}),
    "output_config": frozenset({"task_budget"}),
    "thinking": frozenset({"display", "block_binding"}),
    "tool": frozenset(
        {"allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"}
    ),
    "message": frozenset(
        {
            "container",
            "context_management",
            "diagnostics",
            "input_transformations",
            "stop_details",
        }
    ),
    "message_delta": frozenset(
        {"container", "stop_details", "context_management", "input_transformations"}
    ),
    "usage": frozenset(
        {
            "cache_creation",
            "fallback_credit",
            "inference_geo",
            "iterations",
            "output_tokens_details",
            "server_tool_use",
            "service_tier",
            "speed",
        }
    ),
    "thinking_delta": frozenset({"estimated_tokens"}),
    "tool_use": frozenset({"caller", "toolset_name"}),
    "server_tool_use": frozenset({"caller"}),
    "tool_result": frozenset({"toolset_name"}),
    "server_tool_result": frozenset({"caller"}),
    "image": frozenset({"transformations"}),
    "document": frozenset({"citations", "context"}),
}
"""Fields that are known and carried in `extra` (of a delta: Noticed). Fields nobody knows yet are carried alike."""


def members(union: Any) -> Iterator[Any]:
    """The types of a union, however it is nested and annotated."""
    origin = get_origin(union)
    if origin is Annotated:
        yield from members(get_args(union)[0])
    elif origin in (Union, UnionType):
        for each in get_args(union):
            yield from members(each)
    elif union is not type(None):
        yield union


def literals(annotation: Any) -> Iterator[str]:
    origin = get_origin(annotation)
    if origin is Literal:
        yield from get_args(annotation)
    else:
        for each in get_args(annotation):
            yield from literals(each)


def fields_of(kind: Any) -> dict[str, Any]:
    """The wire names of a model's or a parameter's fields, and their types."""
    if not hasattr(kind, "model_fields"):
        return get_type_hints(kind)
    model = cast("type[BaseModel]", kind)
    return {
        field.alias or name.rstrip("_"): field.annotation
        for name, field in model.model_fields.items()
    }


def types_of(union: Any) -> dict[str, list[Any]]:
    """The members of a union by their `type`."""
    found: dict[str, list[Any]] = {}
    for kind in members(union):
        for name in literals(fields_of(kind)["type"]):
            found.setdefault(name, []).append(kind)
    return found


def unknown_fields(kind: Any, table: str) -> set[str]:
    mapped = SETTINGS.fields if table == "request" else MAPPED_FIELDS.get(table, frozenset())
    known = mapped | EXTRA_FIELDS.get(table, frozenset())
    return set(fields_of(kind)) - known


def table_of(block: str) -> str:
    if block == "thinking":
        return "thinking_block"
    if block in MAPPED_FIELDS:
        return block
    assert block.endswith(RESULT_SUFFIX), block
    return "server_tool_result"


BLOCK_UNIONS = [
    plain.ContentBlock,
    plain.ContentBlockParam,
    plain_result.Content,
    beta.BetaContentBlock,
    beta.BetaContentBlockParam,
    beta_result.Content,
    beta_system.ContentBlock,
]


@pytest.mark.parametrize("union", [plain.RawMessageStreamEvent, beta.BetaRawMessageStreamEvent])
def test_every_event_is_known(union: Any) -> None:
    assert set(types_of(union)) <= EVENTS


@pytest.mark.parametrize("union", BLOCK_UNIONS)
def test_every_block_is_mapped_or_opaque(union: Any) -> None:
    found = types_of(union)
    assert found
    assert set(found) <= MAPPED_BLOCKS.keys() | OPAQUE_BLOCKS
    for name in found.keys() & MAPPED_BLOCKS.keys():
        for kind in found[name]:
            assert unknown_fields(kind, table_of(name)) == set(), kind


def test_no_block_is_both_mapped_and_opaque() -> None:
    assert not MAPPED_BLOCKS.keys() & OPAQUE_BLOCKS


@pytest.mark.parametrize("union", [plain.RawContentBlockDelta, beta.BetaRawContentBlockDelta])
def test_every_delta_is_mapped_or_noticed(union: Any) -> None:
    found = types_of(union)
    assert set(found) <= MAPPED_DELTAS.keys() | NOTICED_DELTAS
    assert MAPPED_DELTAS.keys() == DELTA_FIELDS.keys()
    for name in found.keys() & MAPPED_DELTAS.keys():
        for kind in found[name]:
            known = {"type", DELTA_FIELDS[name]} | EXTRA_FIELDS.get(name, frozenset())
            assert set(fields_of(kind)) <= known, kind


@pytest.mark.parametrize(
    "union",
    [
        plain.TextCitation,
        plain.TextCitationParam,
        beta.BetaTextCitation,
        beta.BetaTextCitationParam,
    ],
)
def test_every_citation_is_known(union: Any) -> None:
    assert set(types_of(union)) <= CITATIONS


@pytest.mark.parametrize("union", [plain.ToolUnionParam, beta.BetaToolUnionParam])
def test_every_tool_has_a_family(union: Any) -> None:
    found = types_of(union)
    for name, kinds in found.items():
        if name == "custom":
            assert all(unknown_fields(kind, "tool") == set() for kind in kinds)
        else:
            assert any(name.startswith(family) for family in TOOL_FAMILIES), name


@pytest.mark.parametrize("union", [plain.ToolChoiceParam, beta.BetaToolChoiceParam])
def test_every_tool_choice_is_known(union: Any) -> None:
    found = types_of(union)
    assert set(found) == TOOL_CHOICES
    for kinds in found.values():
        assert all(unknown_fields(kind, "tool_choice") == set() for kind in kinds)


@pytest.mark.parametrize("union", [plain.ThinkingConfigParam, beta.BetaThinkingConfigParam])
def test_every_way_of_thinking_is_known(union: Any) -> None:
    found = types_of(union)
    assert set(found) == THINKING_TYPES
    for kinds in found.values():
        assert all(unknown_fields(kind, "thinking") == set() for kind in kinds)


def test_every_stop_reason_is_mapped() -> None:
    assert set(literals(beta.BetaStopReason)) | set(literals(plain.StopReason)) == set(STOP_REASONS)


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (plain_params.MessageCreateParamsStreaming, "request"),
        (beta_params.MessageCreateParamsStreaming, "request"),
        (plain.MetadataParam, "metadata"),
        (beta.BetaMetadataParam, "metadata"),
        (plain.OutputConfigParam, "output_config"),
        (beta.BetaOutputConfigParam, "output_config"),
        (plain.Message, "message"),
        (beta.BetaMessage, "message"),
        (plain_delta.Delta, "message_delta"),
        (beta_delta.Delta, "message_delta"),
        (plain.Usage, "usage"),
        (beta.BetaUsage, "usage"),
        (plain.MessageDeltaUsage, "usage"),
        (beta.BetaMessageDeltaUsage, "usage"),
    ],
)
def test_every_field_is_mapped_or_carried(kind: Any, table: str) -> None:
    assert unknown_fields(kind, table) == set()


@pytest.mark.parametrize("union", [plain.MessageParam, beta.BetaMessageParam])
def test_every_field_of_a_message_is_mapped_or_carried(union: Any) -> None:
    for kind in members(union):
        assert unknown_fields(kind, "request.message") == set()


@pytest.mark.parametrize("kind", [plain.RawMessageDeltaEvent, beta.BetaRawMessageDeltaEvent])
def test_every_field_beside_the_end_is_carried(kind: Any) -> None:
    rest = set(fields_of(kind)) - {"type", "delta", "usage"}
    assert rest <= EXTRA_FIELDS["message_delta"]


@pytest.mark.parametrize("block", [plain.ServerToolUseBlock, beta.BetaServerToolUseBlock])
def test_every_server_tool_has_a_kind(block: Any) -> None:
    assert set(literals(fields_of(block)["name"])) <= SERVER_TOOL_KINDS.keys()


def test_every_result_block_has_a_kind_or_is_other() -> None:
    blocks = [name for union in BLOCK_UNIONS for name in types_of(union)]
    names = {name.removesuffix(RESULT_SUFFIX) for name in blocks if name.endswith(RESULT_SUFFIX)}
    assert names - RESULT_KINDS.keys() == {"advisor"}


def test_every_error_type_has_a_kind() -> None:
    for name in types_of(ErrorObject):
        body = json.dumps({"type": "error", "error": {"type": name, "message": "m"}}).encode()
        assert decode_error(body).status is not None, name
