"""Edits of a Messages conversation that the gateway makes for upstreams of other dialects."""

import json
from typing import Any

import pytest

from dragoman._json import Raw
from dragoman.config.settings import UpstreamSettings
from dragoman.dialects.registry import codec
from dragoman.gateway.context_edits import CLEARED, apply_edits
from dragoman.gateway.targets import AttemptTarget, target_of
from dragoman.model.parts import Call, Dialect, Reasoning, Result, Text
from dragoman.model.request import Request

Json = dict[str, Any]


def target(
    dialect: Dialect = "chat", client: Dialect = "messages", **settings: Any
) -> AttemptTarget:
    made = UpstreamSettings(kind=dialect, **settings)
    return AttemptTarget(
        client_dialect=client,
        dialect=dialect,
        upstream="u",
        peer="u",
        weight=1.0,
        model="m",
        settings=made,
        accepts=target_of(made, dialect, "m", client),
        is_same_dialect=dialect == client,
        is_obsidian=False,
    )


def request(count: int, *edits: Json, **more: Any) -> Request:
    messages: list[Json] = [{"role": "user", "content": "Go."}]
    for number in range(count):
        thinking = {"type": "thinking", "thinking": f"thought {number}", "signature": "s"}
        use = {"type": "tool_use", "id": f"c{number}", "name": "saw", "input": {"n": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "wood " * 40}
        messages += [
            {"role": "assistant", "content": [thinking, use]},
            {"role": "user", "content": [result]},
        ]
    body = {"model": "m", "max_tokens": 9, "messages": messages, **more}
    if edits:
        body["context_management"] = {"edits": list(edits)}
    return codec("messages").decode_request(json.dumps(body).encode())


def uses(value: int, keep: int = 1, **more: Any) -> Json:
    trigger = {"type": "tool_uses", "value": value}
    kept = {"type": "tool_uses", "value": keep}
    return {"type": "clear_tool_uses_20250919", "trigger": trigger, "keep": kept, **more}


def cleared(edited: Request) -> list[bool]:
    return [
        part.content == (Text(text=CLEARED),)
        for turn in edited.turns
        for part in turn.parts
        if isinstance(part, Result)
    ]


def applied(report: Raw | None) -> list[Json]:
    assert report is not None
    found: list[Json] = json.loads(bytes(report))["applied_edits"]
    return found


@pytest.mark.parametrize(
    ("asked", "to"),
    [
        (request(3), target()),
        (request(3, uses(1)), target("messages")),
        (request(3, uses(1)), target("chat", "responses")),
    ],
)
def test_nothing_is_changed_where_nothing_is_asked_for_or_another_does_it(
    asked: Request, to: AttemptTarget
) -> None:
    edited, report = apply_edits(asked, to)
    assert edited is asked
    assert report is None


@pytest.mark.parametrize(
    ("count", "edit", "expected"),
    [
        (3, uses(3), [False] * 3),
        (4, uses(3), [True, True, True, False]),
        (4, uses(3, keep=2), [True, True, False, False]),
        (5, uses(3, keep=2), [True, True, False, False, False]),
        (4, uses(3, keep=0), [True] * 4),
        (4, uses(3, keep=9), [False] * 4),
        (4, uses(3, clear_at_least={"type": "input_tokens", "value": 100}), [True] * 3 + [False]),
        (4, uses(3, clear_at_least={"type": "input_tokens", "value": 500}), [False] * 4),
        (4, uses(3, exclude_tools=["saw"]), [False] * 4),
        (4, uses(3, exclude_tools=["drill"]), [True] * 3 + [False]),
    ],
)
def test_results_are_cleared_by_the_rules_of_the_client(
    count: int, edit: Json, expected: list[bool]
) -> None:
    edited, report = apply_edits(request(count, edit), target())
    assert cleared(edited) == expected
    found = applied(report)
    assert [each["cleared_tool_uses"] for each in found] == (
        [sum(expected)] if any(expected) else []
    )


def test_tokens_trigger_by_the_estimate() -> None:
    def edit(value: int) -> Json:
        trigger = {"type": "input_tokens", "value": value}
        return {"type": "clear_tool_uses_20250919", "trigger": trigger}

    # Six results of some fifty tokens; three stay by default.
    assert any(cleared(apply_edits(request(6, edit(300)), target())[0]))
    assert not any(cleared(apply_edits(request(6, edit(3000)), target())[0]))
    assert not any(cleared(apply_edits(request(6, {"type": edit(0)["type"]}), target())[0]))


def test_inputs_are_cleared_with_their_results() -> None:
    edited, _ = apply_edits(request(3, uses(1, clear_tool_inputs=True)), target())
    inputs = [part.input for turn in edited.turns for part in turn.parts if isinstance(part, Call)]
    assert inputs == ["{}", "{}", '{"n": 2}']


def test_thinking_of_the_calls_that_are_being_answered_stays() -> None:
    """The user's only message comes before all of it."""
    edit = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    edited, report = apply_edits(request(3, edit), target())
    thoughts = [part for turn in edited.turns for part in turn.parts if isinstance(part, Reasoning)]
    assert len(thoughts) == 3
    assert applied(report) == []


def test_a_turn_of_nothing_but_thinking_is_left_out() -> None:
    edit = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 0}}
    thinking = {"type": "thinking", "thinking": "thought", "signature": "s"}
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [thinking]},
        {"role": "user", "content": "Well?"},
    ]
    edited, report = apply_edits(request(0, edit, messages=messages), target())
    assert [turn.role for turn in edited.turns] == ["user", "user"]
    assert [each["cleared_thinking_turns"] for each in applied(report)] == [1]


@pytest.mark.parametrize("keep", ["all", {"type": "all"}])
def test_all_thinking_may_stay(keep: object) -> None:
    edited, report = apply_edits(
        request(2, {"type": "clear_thinking_20251015", "keep": keep}), target()
    )
    assert edited.extra is not None
    assert "context_management" not in edited.extra.fields
    assert applied(report) == []


def test_what_cannot_be_done_stays_in_the_request_and_becomes_a_loss() -> None:
    compact = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 60_000}}
    later = {"type": "later_20300101"}
    asked = request(1, compact, later, uses(9))
    edited, _ = apply_edits(asked, target())
    assert edited.extra is not None
    assert json.loads(bytes(edited.extra.fields["context_management"]))["edits"] == [compact, later]
    native = target("responses", compaction="native")
    edited, _ = apply_edits(asked, native)
    assert edited.extra is not None
    assert json.loads(bytes(edited.extra.fields["context_management"]))["edits"] == [later]
    assert edited.compact_at == 60_000


@pytest.mark.parametrize(
    "more", [{"pause_after_compaction": True}, {"instructions": "Mention the hull."}]
)
def test_a_compaction_with_conditions_is_not_asked_of_another_vendor(more: Json) -> None:
    asked = request(1, {"type": "compact_20260112", **more})
    assert asked.compact_at is None
    edited, _ = apply_edits(asked, target("responses", compaction="native"))
    encoded = codec("responses").encode_request(
        edited, target("responses", compaction="native").accepts, None
    )
    assert "context_management" not in json.loads(encoded.body)
    assert "context_management" in {loss.where for loss in encoded.losses}
