"""Thoughts with their seals, as lists: OpenRouter's `reasoning_details` and LiteLLM's `thinking_blocks`.

Each entry has a type, a text and perhaps a proof that must go back unchanged to the family that made it.
"""

from msgspec import Struct

from dragoman._json import Raw, dumps
from dragoman.dialects.chat.fields import fields_of, text_of
from dragoman.model.parts import Seal

__all__ = ("SealedEntry", "read_sealed")

_TEXTS = {
    "reasoning.text": "text",
    "reasoning.summary": "summary",
    "thinking": "thinking",
}


class SealedEntry(Struct, frozen=True):
    text: str
    seal: Seal | None


def read_sealed(raw: Raw) -> SealedEntry:
    """An entry's text and seal; an entry of another type has neither."""
    fields = fields_of(raw)
    kind = text_of(fields.get("type")) or ""
    text = text_of(fields.get(_TEXTS.get(kind, ""))) or ""
    signature = text_of(fields.get("signature"))
    if signature and kind in _TEXTS:
        return SealedEntry(text, Seal("signature", signature))
    data = text_of(fields.get("data"))
    if not data:
        return SealedEntry(text, None)
    if kind == "redacted_thinking":
        return SealedEntry(text, Seal("redacted", data))
    if kind == "reasoning.encrypted":
        return SealedEntry(text, _encrypted(data, text_of(fields.get("format")) or ""))
    return SealedEntry(text, None)


def _encrypted(data: str, origin: str) -> Seal:
    """One type for three families; `format` (`anthropic-claude-v1`, `google-gemini-v1`, …) tells them apart."""
    if origin.startswith("anthropic"):
        return Seal("redacted", data)
    if origin.startswith("google"):
        return Seal("thought", dumps({"google": {"thought_signature": data}}).decode("utf-8"))
    return Seal("encrypted", data)
