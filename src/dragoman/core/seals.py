"""Packs seals (signatures, encrypted reasoning) into the one opaque string that a dialect has for them, and unpacks them.

A single seal of the dialect's own kind is sent as the string that was received. Seals of another family, or several at
once, are sent in an envelope, `dgm1.` + base64url of JSON, which any client sends back unchanged. Each seal goes only to
the provider family that made it (`split_family`).

No function here raises, and no message ever shows a seal.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from typing import Literal, cast

from dragoman._json import dumps, loads
from dragoman.errors import MalformedJson
from dragoman.model.parts import Seal, SealKind

Family = Literal["openai", "anthropic", "google"]

ENVELOPE = "dgm1."

_FAMILIES: dict[SealKind, Family] = {
    "signature": "anthropic",
    "redacted": "anthropic",
    "encrypted": "openai",
    "thought": "google",
}


def seal_to_encrypted(seals: Iterable[Seal]) -> str | None:
    """The string for OpenAI's `encrypted_content`; None without seals."""
    return _pack(tuple(seals), "encrypted")


def seals_from_encrypted(text: str | None) -> tuple[Seal, ...]:
    return _unpack(text, "encrypted")


def seal_to_signature(seals: Iterable[Seal], item_id: str | None = None) -> str | None:
    """The string for Anthropic's `signature`; None without seals.

    `item_id` is the id of the sealed item: a Messages block has no field for it, and OpenAI requires it with the seal.
    """
    bound = [
        Seal(seal.kind, seal.data, seal.item_id or item_id) if seal.kind == "encrypted" else seal
        for seal in seals
    ]
    return _pack(tuple(bound), "signature")


def seals_from_signature(text: str | None) -> tuple[Seal, ...]:
    return _unpack(text, "signature")


def split_family(
    seals: Iterable[Seal], family: Family
) -> tuple[tuple[Seal, ...], tuple[Seal, ...]]:
    """The seals that may go to this provider family, and those that may not."""
    kept = tuple(seals)
    own = tuple(seal for seal in kept if _FAMILIES[seal.kind] == family)
    foreign = tuple(seal for seal in kept if _FAMILIES[seal.kind] != family)
    return own, foreign


def _pack(seals: tuple[Seal, ...], native: SealKind) -> str | None:
    if not seals:
        return None
    only = seals[0]
    # A native seal that is empty or begins like the envelope would not be unpacked as itself.
    if len(seals) == 1 and only.kind == native and only.data and not only.data.startswith(ENVELOPE):
        return only.data
    content = dumps(
        [
            [seal.kind, seal.data] if seal.item_id is None else [seal.kind, seal.data, seal.item_id]
            for seal in seals
        ]
    )
    return ENVELOPE + urlsafe_b64encode(content).decode("ascii").rstrip("=")


def _unpack(text: str | None, native: SealKind) -> tuple[Seal, ...]:
    if not text:
        return ()
    if text.startswith(ENVELOPE):
        seals = _open(text[len(ENVELOPE) :])
        if seals is not None:
            return seals
    return (Seal(native, text),)


def _open(encoded: str) -> tuple[Seal, ...] | None:
    try:
        content: object = loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (Base64Error, ValueError, MalformedJson):
        return None
    if not isinstance(content, list):
        return None
    seals: list[Seal] = []
    for entry in cast("list[object]", content):
        seal = _seal_from(cast("list[object]", entry) if isinstance(entry, list) else [])
        if seal is None:
            return None
        seals.append(seal)
    return tuple(seals)


def _seal_from(entry: list[object]) -> Seal | None:
    if len(entry) not in (2, 3) or not all(isinstance(each, str) for each in entry):
        return None
    texts = cast("list[str]", entry)
    for kind in _FAMILIES:
        if texts[0] == kind:
            return Seal(kind, texts[1], texts[2] if len(texts) == 3 else None)
    return None
