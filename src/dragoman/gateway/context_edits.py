"""Clears old results and old thinking from a Messages conversation, for upstreams that do not clear by themselves. Pure.

A Messages client asks for it with `context_management`. The newest results stay. They are cleared in steps, as many at a time as are kept,
so that the conversation's beginning is the same in most consecutive requests, and a provider finds it in its cache.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from msgspec import structs

from dragoman._json import Raw
from dragoman.core.token_estimate import estimate_part, estimate_tokens
from dragoman.dialects.messages.context_management import (
    ClearThinking,
    ClearToolUses,
    cleared_thinking,
    cleared_tool_uses,
    read_edits,
    report_edits,
    with_edits,
    without_compact_edit,
)
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.parts import Call, Part, Reasoning, Result, Text
from dragoman.model.request import Request, Turn

CLEARED = "[This result was cleared to save context.]"

_Place = tuple[int, int]  # turn, part


def apply_edits(request: Request, target: AttemptTarget) -> tuple[Request, Raw | None]:
    """Return the request as this upstream gets it, and the report for the client; None: the upstream reports by itself.

    The same request is returned if it asks for no edit, or the upstream makes them. What remains in the request is a loss.
    """
    if target.is_same_dialect or target.client_dialect != "messages":
        return request, None
    edits = read_edits(request)
    if edits is None:
        return request, None
    applied: list[Mapping[str, object]] = []
    changed = request
    if edits.thinking is not None:
        changed, report = _clear_thinking(changed, edits.thinking)
        applied += report
    if edits.tool_uses is not None:
        changed, report = _clear_tool_uses(changed, edits.tool_uses)
        applied += report
    rest = edits.rest
    if request.compact_at is not None and target.accepts.compacts:
        rest = without_compact_edit(rest)
    return with_edits(changed, rest), report_edits(applied)


def _clear_tool_uses(
    request: Request, wish: ClearToolUses
) -> tuple[Request, Sequence[Mapping[str, object]]]:
    names = {
        part.call_id: part.name
        for turn in request.turns
        for part in turn.parts
        if isinstance(part, Call)
    }
    results: dict[_Place, Result] = {
        (number, index): part
        for number, turn in enumerate(request.turns)
        for index, part in enumerate(turn.parts)
        if isinstance(part, Result) and part.executor == "client"
        if names.get(part.call_id) not in wish.exclude
    }
    count = max(0, len(results) - wish.keep)
    count -= count % max(1, wish.keep)
    if not count or not _is_triggered(request, wish, len(results)):
        return request, ()
    old = dict(list(results.items())[:count])
    calls = {part.call_id for part in old.values()}
    changes: dict[_Place, Part] = {
        place: structs.replace(part, content=(Text(text=CLEARED),)) for place, part in old.items()
    }
    for number, turn in enumerate(request.turns):
        for index, part in enumerate(turn.parts):
            if isinstance(part, Call) and part.call_id in calls and _has_input_cleared(part, wish):
                changes[number, index] = structs.replace(part, input="{}")
    saved = sum(
        estimate_part(request.turns[number].parts[index]) - estimate_part(part)
        for (number, index), part in changes.items()
    )
    tokens = max(0, ceil(saved))
    if tokens < wish.at_least:
        return request, ()
    return _changed(request, changes), (cleared_tool_uses(count, tokens),)


def _is_triggered(request: Request, wish: ClearToolUses, uses: int) -> bool:
    if wish.uses is not None:
        return uses > wish.uses
    return wish.tokens is not None and estimate_tokens(request) > wish.tokens


def _has_input_cleared(call: Call, wish: ClearToolUses) -> bool:
    return wish.inputs if isinstance(wish.inputs, bool) else call.name in wish.inputs


def _changed(request: Request, changes: Mapping[_Place, Part]) -> Request:
    touched = {number for number, _ in changes}
    turns = [
        structs.replace(
            turn,
            parts=tuple(
                [changes.get((number, index), part) for index, part in enumerate(turn.parts)]
            ),
        )
        if number in touched
        else turn
        for number, turn in enumerate(request.turns)
    ]
    return structs.replace(request, turns=tuple(turns))


def _clear_thinking(
    request: Request, wish: ClearThinking
) -> tuple[Request, Sequence[Mapping[str, object]]]:
    """Clear thinking before the last message of the user: what follows it belongs to the calls that are being answered."""
    turns = request.turns
    asked = max((number for number, turn in enumerate(turns) if turn.role == "user"), default=0)
    thought = [number for number, turn in enumerate(turns) if any(map(_is_thinking, turn.parts))]
    old = {number for number in thought[: max(0, len(thought) - wish.keep)] if number < asked}
    if not old:
        return request, ()
    tokens = ceil(
        sum(
            estimate_part(part)
            for number in old
            for part in turns[number].parts
            if _is_thinking(part)
        )
    )
    cleared = tuple(
        [_without_thinking(turn) if number in old else turn for number, turn in enumerate(turns)]
    )
    changed = structs.replace(request, turns=tuple([turn for turn in cleared if turn is not None]))
    return changed, (cleared_thinking(len(old), tokens),)


def _is_thinking(part: Part) -> bool:
    return isinstance(part, Reasoning)


def _without_thinking(turn: Turn) -> Turn | None:
    parts = tuple([part for part in turn.parts if not _is_thinking(part)])
    return structs.replace(turn, parts=parts) if parts else None
