"""Compaction: the item that asks for a summary of the conversation, and the item that contains one.

A client sends `compaction_trigger` as its last item, or the conversation to `/responses/compact`. The answer's `compaction` item
replaces what it summarises in the client's next requests. `gateway/compaction.py` makes the summary.
"""

from collections.abc import Callable, Sequence

from dragoman._json import Raw, dumps
from dragoman.core.fields import read_object, read_text
from dragoman.core.summaries import pack_summary, unpack_summary
from dragoman.dialects.responses.content import media_fields
from dragoman.model.parts import Media, Opaque, Part, Text
from dragoman.model.request import Turn

TRIGGER = "compaction_trigger"
COMPACTIONS = frozenset({"compaction", "compaction_summary"})
"""The types of the item that contains a summary: the second is an older name."""

JsonObject = dict[str, object]

TRIGGER_TURN = Turn(
    role="developer",
    parts=(Opaque(dialect="responses", type=TRIGGER, raw=Raw(b'{"type":"compaction_trigger"}')),),
)


def is_trigger(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type == TRIGGER and part.dialect == "responses"


def is_compaction(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type in COMPACTIONS and part.dialect == "responses"


def compaction_item(summary: str, item_id: str) -> Opaque:
    """Return the item that contains a summary."""
    fields = {"id": item_id, "type": "compaction", "encrypted_content": pack_summary(summary)}
    return Opaque(dialect="responses", type="compaction", raw=Raw(dumps(fields)), item_id=item_id)


def summary_of_item(item: Opaque) -> str | None:
    """Return the summary in a compaction item; None if another provider made the item.

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
