"""Nothing that a client asks for vanishes: every field of a request's schema is carried, mapped, declared or refused.

The list of fields comes from the vendors' SDKs (`request_schemas`), in every variant and every place, and is translated for
every upstream. A field is *carried* (or mapped) if another value makes another request for the upstream; *declared* if a
loss names it or an object around it, or if nothing is left of an object around it and a loss or a repair is reported for
that; *refused* if the request is refused by a rule of the target's loss table. Of the words that a field can say, one may mean
the same as saying nothing: the default.
"""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

import pytest

from dragoman.dialects.registry import UPSTREAM_CODECS, codec, upstream_codec
from dragoman.dialects.responses.losses import CHATGPT_CODEX_LOSSES
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss, Repair
from dragoman.model.parts import Dialect
from dragoman.upstream.chatgpt_codex.request import shape_request
from request_schemas import SCHEMAS, Json, Spot, nullable, spots

BACKEND = "chatgpt-codex"
"""An upstream that speaks Responses, and takes less of it."""

TARGETS = (*UPSTREAM_CODECS, BACKEND)
SOURCES: tuple[Dialect, ...] = ("chat", "responses", "messages")
PAIRS = [(source, target) for source in SOURCES for target in TARGETS]


class Unsaid(NamedTuple):
    """A field, or words of it, that a target may leave out without a word, and why."""

    pattern: str
    targets: tuple[str, ...]
    reason: str
    words: tuple[str, ...] = ()


_OTHERS = ("chat", "messages", "codex")
UNSAID = (
    Unsaid("input:*.id", _OTHERS, "calls and results pair by call_id; no other id means anything"),
    Unsaid("input:*.status", _OTHERS, "how far an item had come when it was first told"),
    Unsaid("stream", ("codex",), "Codex always streams; the gateway gathers what is wanted whole"),
    Unsaid(
        "stream_options.include_usage",
        ("responses", "messages", "codex", BACKEND),
        "the gateway asks for usage always and gives it to the client that asked",
    ),
    Unsaid("*format:text", ("messages", "codex"), "what a model writes anyway"),
    Unsaid("tool_choice:auto", ("codex",), "what a model may do anyway"),
    Unsaid(
        "service_tier",
        ("codex", BACKEND),
        "what is used anyway",
        ("auto", "default", "standard_only"),
    ),
    Unsaid(
        "messages:*.caller:direct*",
        ("chat", "responses", "messages", "codex", BACKEND),
        "the model itself made the call, as it does where nothing is said",
    ),
    Unsaid(
        "*.defer_loading",
        ("chat", "responses", "messages", "codex", BACKEND),
        "nothing hides a tool from the model: where no search would find it, it is declared like any other",
    ),
    Unsaid("*tools:web_search*.type", ("messages",), "the version of a search that is not used"),
    Unsaid(
        "*cache_control*",
        ("chat", "responses", "codex", BACKEND),
        "these cache by themselves, and no client misses a breakpoint",
    ),
    Unsaid("*.prompt_cache_breakpoint*", ("codex",), "it caches by itself"),
    Unsaid(
        "prompt_cache_options.mode",
        ("messages",),
        "says whether breakpoints are added, which only the gateway's target asks for",
    ),
)

NOT_CARRIED = {
    "messages:assistant.content:image*": "the vendor refuses pictures in its own messages",
    "messages:assistant.content:document*": "and files",
    "messages:assistant.content:refusal.x_later": "a refusal becomes a field of its message",
    "messages:*.caller:direct*": "what a call without a caller means",
}
"""Fields that do not survive in their own dialect, where a request is written anew."""


# --- the judgement ---------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What became of a request. `stop`: the sequences at which the gateway cuts the answer."""

    body: bytes = b""
    losses: frozenset[Loss] = frozenset()
    repairs: frozenset[Repair] = frozenset()
    is_refused: bool = False
    stop: tuple[str, ...] = ()


def translate(body: Json, source: Dialect, target: str) -> Outcome:
    return translate_data(json.dumps(body).encode(), source, target)


@cache
def translate_data(data: bytes, source: Dialect, target: str) -> Outcome:
    """As the gateway does it. A request that its own dialect refuses is no example, and fails here.

    Fields of one object share the requests without it: four of five requests of Messages come again.
    """
    encoder = upstream_codec("responses" if target == BACKEND else target)
    request = codec(source).decode_request(data)
    try:
        sent = encoder.encode_request(request, encoder.target, None)
        losses, repairs, body = sent.losses, sent.repairs, sent.body
        if target == BACKEND:
            shaped = shape_request(body, door=source)
            losses, repairs = (*losses, *shaped.losses), (*repairs, *shaped.repairs)
            body = shaped.body
    except RequestRefused as refused:
        if refused.code not in {**encoder.losses, **CHATGPT_CODEX_LOSSES}:
            raise
        return Outcome(is_refused=True)
    return Outcome(body, frozenset(losses), frozenset(repairs), stop=sent.stop)


PLACES = frozenset({"messages", "input", "tools", "content", "system"})
"""Fields that are places: a loss at `messages[1]` says nothing about a field of that message."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "annotations": ("annotation", "citation"),
    "citations": ("annotation", "citation"),
    "detail": ("image_detail",),
    "disable_parallel_tool_use": ("parallel_tool_calls",),
    "encrypted_content": ("seal", "foreign_seal"),
    "format": ("response_format",),
    "max_completion_tokens": ("max_tokens",),
    "max_output_tokens": ("max_tokens",),
    "name": ("message_name", "turn_name"),
    "signature": ("seal", "foreign_seal"),
    "thinking": ("reasoning",),
    "user_id": ("user",),
}
"""What losses call a field for which the vocabulary has another word."""


LEFT_OUT = frozenset({"opaque_part", "opaque_text", "foreign_part"})
"""Losses of whole parts, which name the kind."""


def speaks_of(loss: Loss, spot: Spot) -> bool:
    """Whether a loss names the field, or an object that it stands in."""
    said = set(re.findall(r"\w+", f"{loss.code} {loss.where} {loss.detail}"))
    if loss.code in LEFT_OUT and any(
        step.startswith(":") and step[1:] in said for step in spot.path
    ):
        return True
    fields = [
        field for field in spot.fields if field not in PLACES or loss.where.endswith(f".{field}")
    ]
    return any(not said.isdisjoint((field, *WORDS.get(field, ()))) for field in fields)


def judge_value(spot: Spot, number: int, outcomes: list[Outcome], unsaid: list[Outcome]) -> str:
    """What became of one value of a field."""
    found = outcomes[number]
    if found.is_refused:
        return "gone" if unsaid[0].is_refused else "refused"
    is_optional_word = bool(spot.words) and not (spot.is_required and len(outcomes) > 1)
    other = unsaid[0] if is_optional_word else outcomes[number - 1]
    if (other.body, other.stop) != (found.body, found.stop):
        return "carried"
    if any(speaks_of(loss, spot) for loss in found.losses) or found.repairs - unsaid[0].repairs:
        return "declared"
    for less in unsaid if spot.is_object or spot.is_required else unsaid[1:]:
        is_new = found.losses - less.losses or found.repairs - less.repairs
        if is_new and less.body == found.body:
            return "declared"
    return "silent"


class Example(NamedTuple):
    """A field, and its requests as clients send them."""

    spot: Spot
    said: tuple[bytes, ...]
    unsaid: tuple[bytes, ...]


@cache
def examples(source: Dialect) -> list[Example]:
    return [
        Example(
            spot,
            tuple(json.dumps(body).encode() for body in spot.said),
            tuple(json.dumps(body).encode() for body in spot.unsaid),
        )
        for spot in spots(source)
    ]


def judge(example: Example, source: Dialect, target: str) -> tuple[str, ...]:
    """What became of each value of a field. One word may be the default."""
    spot = example.spot
    unsaid = [translate_data(data, source, target) for data in example.unsaid]
    outcomes = [translate_data(data, source, target) for data in example.said]
    found = [judge_value(spot, number, outcomes, unsaid) for number in range(len(outcomes))]
    if len(spot.words) > 1 and found.count("silent") == 1:
        found[found.index("silent")] = "default"
    return tuple(found)


@cache
def judged(source: Dialect, target: str) -> list[tuple[Example, tuple[str, ...]]]:
    return [(example, judge(example, source, target)) for example in examples(source)]


def silent_in(source: Dialect, target: str) -> Iterator[tuple[str, object]]:
    """The fields that vanish, each with its value where it is a word."""
    for (spot, _, _), found in judged(source, target):
        for number, each in enumerate(found):
            if each == "silent":
                yield spot.name, spot.words[number] if spot.words else ""


def is_excused(name: str, word: object, target: str, excuse: Unsaid) -> bool:
    is_meant = fnmatchcase(name, excuse.pattern) and target in excuse.targets
    return is_meant and (not excuse.words or word in excuse.words)


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_field_of_a_request_is_carried_declared_or_refused(
    source: Dialect, target: str
) -> None:
    silent = {
        f"{name} {word}".rstrip()
        for name, word in silent_in(source, target)
        if not any(is_excused(name, word, target, excuse) for excuse in UNSAID)
    }
    assert sorted(silent) == []


@pytest.mark.parametrize("excuse", UNSAID, ids=lambda excuse: excuse.pattern)
def test_every_exception_is_needed_for_each_of_its_targets(excuse: Unsaid) -> None:
    for target in excuse.targets:
        found = [each for source in SOURCES for each in silent_in(source, target)]
        assert any(is_excused(name, word, target, excuse) for name, word in found), target


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_field_that_is_null_says_nothing(source: Dialect, target: str) -> None:
    least = SCHEMAS[source].least
    plain = translate(least, source, target)
    names = nullable(source)
    assert "metadata" in names or source == "messages"
    for name in names:
        found = translate({**least, name: None}, source, target)
        # In its own dialect it may stand as it came.
        assert found == plain or (source == target and not found.losses), name


ALWAYS_SENT: Mapping[Dialect, tuple[Json, ...]] = {
    # The openai SDK as LangChain, Obsidian Copilot and others use it.
    "chat": (
        {"n": 1, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.7},
        {"modalities": ["text"], "max_completion_tokens": 100, "logprobs": False, "user": "u"},
        {"response_format": {"type": "text"}, "tool_choice": "auto", "parallel_tool_calls": True},
    ),
    "responses": (
        # Codex CLI
        {
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "prompt_cache_key": "k",
            "reasoning": {"effort": "medium", "summary": "auto", "context": "all_turns"},
            "text": {"verbosity": "low"},
            "client_metadata": {"session_id": "s", "x-codex-window-id": "w"},
            "tools": [
                {"type": "custom", "name": "apply_patch", "description": "d"},
                {"type": "web_search", "external_web_access": True},
                {
                    "type": "namespace",
                    "name": "mcp__docs",
                    "description": "d",
                    "tools": [{"type": "function", "name": "find", "defer_loading": True}],
                },
            ],
        },
        # openai-agents and the Vercel AI SDK
        {"truncation": "disabled", "background": False, "conversation": None, "prompt": None},
        {"metadata": {}, "service_tier": "auto", "max_tool_calls": None, "top_logprobs": 0},
    ),
    # Claude Code
    "messages": (
        {
            "stream": True,
            "metadata": {"user_id": "u"},
            "temperature": 1,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "thinking": {"type": "enabled", "budget_tokens": 31999},
            "context_management": {
                "edits": [{"type": "clear_thinking_20251015", "keep": "all"}],
            },
            "output_config": {"effort": "high"},
        },
        {"thinking": {"type": "disabled"}, "tools": []},
    ),
}
"""What clients send in every request, whatever the upstream speaks."""


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_clients_always_send_is_never_refused(source: Dialect, target: str) -> None:
    for more in ALWAYS_SENT[source]:
        found = translate({**SCHEMAS[source].least, **more}, source, target)
        assert not found.is_refused, more


@pytest.mark.parametrize("source", SOURCES)
def test_what_one_upstream_refuses_no_other_leaves_out(source: Dialect) -> None:
    """Every upstream that lacks something treats it alike."""
    kinds: dict[tuple[str, bytes], set[str]] = {}
    for target in TARGETS:
        for (spot, said, _), found in judged(source, target):
            for data, each in zip(said, found, strict=True):
                kinds.setdefault((spot.name, data), set()).add(each)
    mixed = {name for (name, _), found in kinds.items() if {"declared", "refused"} <= found}
    assert sorted(mixed) == []


def lost_in(dialect: Dialect) -> set[str]:
    """The fields that do not survive in their own dialect."""
    found = judged(dialect, dialect)
    return {
        example.spot.name for example, each in found if not {"carried", "default"}.issuperset(each)
    }


@pytest.mark.parametrize("dialect", SOURCES)
def test_every_field_survives_in_its_own_dialect(dialect: Dialect) -> None:
    lost = lost_in(dialect)
    excused = {name for name in lost for pattern in NOT_CARRIED if fnmatchcase(name, pattern)}
    assert sorted(lost - excused) == []


@pytest.mark.parametrize("pattern", NOT_CARRIED)
def test_every_field_that_is_said_not_to_survive_does_not(pattern: str) -> None:
    lost = {name for dialect in SOURCES for name in lost_in(dialect)}
    assert any(fnmatchcase(name, pattern) for name in lost)


def test_the_schemas_are_walked_to_their_leaves() -> None:
    """What the lists of fields must contain, if they are what the vendors' types say."""
    assert set(SOURCES) == set(SCHEMAS)
    names = {dialect: {each.spot.name for each in examples(dialect)} for dialect in SOURCES}
    assert {
        "n",
        "messages:user.content:input_audio.input_audio.format",
        "response_format:json_schema.json_schema.strict",
        "tools:custom.custom.format:grammar.grammar.syntax",
    } <= names["chat"]
    assert {
        *("conversation.id", "max_tool_calls", "truncation", "moderation.policy.input.mode"),
        "input:computer_call_output.acknowledged_safety_checks.code",
        "tools:mcp.require_approval.always.tool_names",
    } <= names["responses"]
    assert {
        *("thinking:enabled.budget_tokens", "mcp_servers.tool_configuration.allowed_tools"),
        *("container.skills.skill_id", "output_config.format.schema", "tools:ToolParam.strict"),
        "messages:user.content:tool_result.content:image.cache_control.ttl",
    } <= names["messages"]
