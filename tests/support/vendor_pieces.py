"""What the vendors' answers have in common: pieces of text, tokens, payloads."""

from typing import Any

Payload = dict[str, Any]


def token(text: str) -> Payload:
    """One entry of logprobs."""
    entry = {"token": text, "logprob": -0.25, "bytes": list(text.encode())}
    return {**entry, "top_logprobs": [entry]}


def halves(text: str) -> list[str]:
    """The text in two pieces."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
