"""JSON pointers into one document, as `$ref` writes them (`#`, `#/$defs/Name`)."""

from typing import cast
from urllib.parse import unquote

__all__ = ("resolve",)


def resolve(document: object, reference: str) -> object:
    """What a local reference points at; None if it points outside the document or at nothing."""
    if not reference.startswith("#"):
        return None
    path = reference[1:]
    if path and not path.startswith("/"):
        return None
    here = document
    for step in path.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = cast("dict[str, object]", here).get(name)
        elif isinstance(here, list) and name.isdecimal() and len(name) < 10:
            items = cast("list[object]", here)
            here = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return here
