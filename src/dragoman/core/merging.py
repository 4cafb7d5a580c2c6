"""Turns merged for wires of messages: one message for what an assistant said in one go, one run of results after it.

Request decoders make one turn per item and never merge; the item wires (Responses) want them that way. What comes here
has its calls and results paired already.
"""

from collections.abc import Sequence

from msgspec import structs

from dragoman._json import Raw
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, Extra, Part
from dragoman.model.request import Turn

__all__ = ("merge_turns",)


def merge_turns(turns: Sequence[Turn]) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """One turn for each run of assistant turns and of tool turns, with an assistant's calls after all else it said.

    Wires of messages want their results directly after the calls: what a model said after a call stands before it
    (rule `text_before_calls`). Merging itself is no repair.
    """
    merged: list[Turn] = []
    repairs: list[Repair] = []
    start = 0
    while start < len(turns):
        role = turns[start].role
        end = start + 1
        if role in {"assistant", "tool"}:
            while end < len(turns) and turns[end].role == role:
                end += 1
        turn = turns[start] if end == start + 1 else _join(turns[start:end])
        if role == "assistant":
            parts = _calls_last(turn.parts)
            if parts != turn.parts:
                turn = structs.replace(turn, parts=parts)
                repairs.append(Repair("text_before_calls", f"turns[{start}]"))
        merged.append(turn)
        start = end
    return tuple(merged), tuple(repairs)


def _join(turns: Sequence[Turn]) -> Turn:
    return structs.replace(
        turns[0],
        parts=tuple(part for turn in turns for part in turn.parts),
        name=next((turn.name for turn in turns if turn.name is not None), None),
        item_id=next((turn.item_id for turn in turns if turn.item_id is not None), None),
        status=next((turn.status for turn in turns if turn.status is not None), None),
        # A cache breakpoint covers all before it: of several in one turn only the last says something.
        cache=next((turn.cache for turn in reversed(turns) if turn.cache is not None), None),
        extra=_join_extras([turn.extra for turn in turns if turn.extra is not None]),
    )


def _join_extras(extras: Sequence[Extra]) -> Extra | None:
    if not extras:
        return None
    dialect = extras[0].dialect
    fields: dict[str, Raw] = {}
    for extra in extras:
        if extra.dialect == dialect:
            fields = {**extra.fields, **fields}
    return Extra(dialect, fields)


def _calls_last(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    calls = tuple(part for part in parts if _is_client_call(part))
    if not calls or parts[-len(calls) :] == calls:
        return parts
    return (*(part for part in parts if not _is_client_call(part)), *calls)


def _is_client_call(part: Part) -> bool:
    return isinstance(part, Call) and part.executor == "client"
