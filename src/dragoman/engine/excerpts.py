"""Values as they are shown in messages that a model reads: as JSON, long ones cut."""

from dragoman._json import dumps_document

__all__ = ("cut", "shown")

# Enough to recognise a value by.
MAX_SHOWN = 200


def shown(value: object) -> str:
    """A value as JSON, its middle left out if it is long. Only as much of a long text is written as is shown."""
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return f"a string of {len(value):,} characters that begins {shown(value[:60])}"
    return cut(dumps_document(value).decode("utf-8", "replace"))


def cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
