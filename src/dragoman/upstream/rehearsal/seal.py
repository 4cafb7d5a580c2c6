"""The seal on the stand-in's thoughts, so that a client can be seen to carry them back unchanged. Pure.

It holds the thought and a checksum; there is nothing secret about it. A seal that comes back damaged, or a signature
over other words than it was given for, is refused as a vendor would. Other providers' seals are not looked at.
"""

from base64 import urlsafe_b64encode
from hashlib import blake2b

from dragoman._json import raw
from dragoman.errors import RequestRefused
from dragoman.model.parts import Dialect, Extra, Reasoning, Seal
from dragoman.model.request import Request

__all__ = ("check_seals", "sealed_thought")

MARK = "rehearsal."


def sealed_thought(text: str, dialect: Dialect) -> Reasoning:
    """A thought with its seal, in the way the dialect's servers send one."""
    seal = _seal(text)
    match dialect:
        case "messages":
            return Reasoning(summary=(text,), seals=(Seal("signature", seal),))
        case "chat":
            # Chat has no seals of its own; this is OpenRouter's form, beside the text in `reasoning_content`.
            entry = {"type": "reasoning.text", "text": text, "signature": seal}
            fields = {"reasoning_details": raw([entry])}
            return Reasoning(
                summary=(text,), seals=(Seal("signature", seal),), extra=Extra("chat", fields)
            )
        case _:
            return Reasoning(summary=(text,), seals=(Seal("encrypted", seal),))


def check_seals(request: Request) -> None:
    """Look at the seals that came back.

    Raises:
        RequestRefused: one of ours was damaged, or what it seals was changed.
    """
    for index, turn in enumerate(request.turns):
        for part in turn.parts:
            if isinstance(part, Reasoning):
                _check(part, f"turn {index}")


def _check(thought: Reasoning, where: str) -> None:
    for seal in thought.seals:
        if not seal.data.startswith(MARK):
            continue
        encoded, _, checksum = seal.data.removeprefix(MARK).partition(".")
        if checksum != _checksum(encoded):
            message = f"{where}: expected the seal of a thought as it was given, got a damaged one"
            raise RequestRefused(message, code="invalid_seal")
        # OpenAI does not compare a summary with what is sealed, and clients leave it out; Anthropic does compare.
        text = "".join((*thought.summary, *thought.content))
        if seal.kind == "signature" and text and _encode(text) != encoded:
            message = f"{where}: expected the thought that was signed, got other words"
            raise RequestRefused(message, code="invalid_seal")


def _seal(text: str) -> str:
    encoded = _encode(text)
    return f"{MARK}{encoded}.{_checksum(encoded)}"


def _encode(text: str) -> str:
    return urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def _checksum(encoded: str) -> str:
    return blake2b(encoded.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
