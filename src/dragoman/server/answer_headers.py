"""Headers that say of an answer what its body does not: when to come back, and what was lost on the way. Pure."""

from collections.abc import Sequence
from math import ceil

from dragoman.model.outcome import ErrorInfo, Loss
from dragoman.server.line import Headers

__all__ = ("LOSS_HEADER", "error_headers", "loss_header")

LOSS_HEADER = b"x-dragoman-loss"

# Servers refuse header lines beyond 8 KB; the log has all of it.
MAX_LOSS_HEADER = 1024


def error_headers(error: ErrorInfo, present: Headers = ()) -> Headers:
    """When to come back, if the error says so and no header does yet: whole seconds, never too early."""
    if error.retry_after is None or any(name == b"retry-after" for name, _ in present):
        return ()
    return ((b"retry-after", b"%d" % max(0, ceil(error.retry_after))),)


def loss_header(losses: Sequence[Loss]) -> tuple[bytes, bytes]:
    """`code at=where action, …`, printable and of bounded length."""
    text = ", ".join([f"{loss.code};at={loss.where or '-'};{loss.action}" for loss in losses])
    if not (text.isascii() and text.isprintable()):
        text = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return LOSS_HEADER, text[:MAX_LOSS_HEADER].encode("ascii")
