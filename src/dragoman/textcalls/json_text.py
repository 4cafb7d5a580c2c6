"""JSON source made of text: strings, and what stands between their quotes."""

from dragoman._json import dumps_text

__all__ = ("json_string", "json_string_inside")


def json_string(text: str) -> str:
    """The text as a JSON string."""
    return dumps_text(text).decode("utf-8")


def json_string_inside(text: str) -> str:
    """The text as it stands between the quotes of a JSON string."""
    return json_string(text)[1:-1]
