"""Compaction: the item that asks for a summary of the conversation, and the item that contains one.

A client sends `compaction_trigger` as its last item, or the conversation to `/responses/compact`. The answer's `compaction` item
replaces what it summarises in the client's next requests. `gateway/compaction.py` makes the summary.
"""

from collections.abc import Callable, Sequence

from dragoman._json import Raw, dumps
from dragoman.core.fields import read_int, read_object, read_objects, read_text
from dragoman.core.summaries import COMPACTIONS, Packed, pack_summary, unpack_summary
from dragoman.dialects.codec import Target
from dragoman.dialects.responses.content import media_fields
from dragoman.model.parts import Media, Opaque, Part, Text
from dragoman.model.request import Request, Turn

TRIGGER = "compaction_trigger"
CONTEXT_FIELD = "context_management"

TRIGGER_TURN = Turn(
    role="developer",
    parts=(Opaque(dialect="responses", type=TRIGGER, raw=Raw(b'{"type":"compaction_trigger"}')),),
)


def is_trigger(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type == TRIGGER and part.dialect == "responses"


def is_compaction(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type in COMPACTIONS and part.dialect == "responses"


def with_trigger(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Return the turns of a stored conversation with a trigger before the last compaction.

    A conversation has no item for a trigger, and a compaction in it stands for all that precedes it.
    """
    for number in range(len(turns) - 1, -1, -1):
        if any(map(is_compaction, turns[number].parts)):
            return (*turns[:number], TRIGGER_TURN, *turns[number:])
    return turns


def compaction_item(packed: Packed, item_id: str) -> Opaque:
    """Return the item that contains a summary."""
    fields = {"id": item_id, "type": "compaction", "encrypted_content": pack_summary(packed)}
    return Opaque(dialect="responses", type="compaction", raw=Raw(dumps(fields)), item_id=item_id)


def native_item(raw: Raw) -> Opaque:
    """Return a provider's own compaction item."""
    item_id = read_text(read_object(raw).get("id")) or None
    return Opaque(dialect="responses", type="compaction", raw=raw, item_id=item_id)


def unpack_item(item: Opaque) -> Packed | None:
    """Return what a compaction item contains; None if another provider made the item.

    Raises:
        RequestRefused: a gateway made the item, and its content was damaged since.
    """
    content = read_text(read_object(item.raw).get("encrypted_content"))
    return None if content is None else unpack_summary(content)


def retained_items(turns: Sequence[Turn], mint: Callable[[str], str]) -> list[object]:
    """Return messages as items of the output of `/responses/compact`, where each needs an id and a status."""
    return [
        {
            "id": mint("msg_"),
            "type": "message",
            "status": "completed",
            "role": turn.role,
            "content": [content for part in turn.parts for content in _content(part)],
        }
        for turn in turns
    ]


def _content(part: Part) -> list[object]:
    match part:
        case Text():
            return [{"type": "input_text", "text": part.text}]
        case Media():
            fields = media_fields(part)
            return [] if fields is None else [fields]
        case _:
            return []


def read_compact_at(value: Raw) -> int | None:
    """Return the tokens at which the provider should compact, from `context_management`; None if it says anything else."""
    entries = read_objects(value)
    if len(entries) != 1 or read_text(entries[0].get("type")) != "compaction":
        return None
    return read_int(entries[0].get("compact_threshold"))


def write_context(request: Request, target: Target) -> dict[str, Raw]:
    """Return the field that asks the provider to compact, for a request of another dialect; empty if it does not ask for that."""
    if request.compact_at is None or not target.compacts:
        return {}
    entry = {"type": "compaction", "compact_threshold": request.compact_at}
    return {CONTEXT_FIELD: Raw(dumps([entry]))}
