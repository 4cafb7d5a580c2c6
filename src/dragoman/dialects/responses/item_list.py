"""The items of a conversation as `input_items` lists them: each with an id, messages with their content in parts."""

from collections.abc import Sequence
from typing import cast

from dragoman.core.aliases import NameMap
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.dialects.responses.conversation import Conversation
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.responses.wire import PREFIXES
from dragoman.model.request import Turn

__all__ = ("list_items",)

_OTHER_PREFIX = "item_"


def list_items(turns: Sequence[Turn], seed: str) -> list[dict[str, object]]:
    """Every item that stands for a turn. Ids that none had come from `seed` and their place: the same each time."""
    mint = Minter(seed)
    book = LossBook(LOSSES)
    names = NameMap.build((), (), DEFAULT_TARGET.names, flatten=False)
    items: list[dict[str, object]] = []
    for entry in Conversation(names, DEFAULT_TARGET, book, is_native=True).write(turns):
        if not isinstance(entry, dict):
            continue  # an item of another vendor's, which has no place in this list
        fields = cast("dict[str, object]", entry)
        kind = str(fields.get("type", ""))
        minted = mint(PREFIXES.get(kind, _OTHER_PREFIX))
        item: dict[str, object] = {"id": minted, **fields}
        if kind == "message" and isinstance(fields.get("content"), str):
            part = "output_text" if fields.get("role") == "assistant" else "input_text"
            item["content"] = [{"type": part, "text": fields["content"]}]
        item.setdefault("status", "completed")
        items.append(item)
    return items
