"""Text that may be shown: no credential, no seal, nothing that moves a terminal's cursor.

For log lines and debug output only; what is served is never changed here. Redacting is by names and by shapes, and
errs on the side of hiding.
"""

import re
from collections.abc import Iterable

__all__ = ("HIDDEN", "clean", "redact", "redact_headers")

HIDDEN = "[redacted]"

_SECRET_HEADER = re.compile(
    r"auth|key|token|secret|cookie|passw|credential|signature|session|turn-state"
)

# Members of JSON (or of a Python dict's repr, or of a query) whose values nobody may read: credentials, and the seals
# that providers put around reasoning. A cut value has no closing quote; `<key>` in our own messages is none.
_SECRET_MEMBER = re.compile(
    r"""((?:api[_-]?key|x-api-key|authorization|proxy-authorization|access[_-]?token|refresh[_-]?token|id[_-]?token"""
    r"""|client[_-]?secret|password|secret|token|cookie|signature|thought_?signature|encrypted_content"""
    r"""|encrypted_function_args|redacted_thinking)\\?["']?\s*[:=]\s*)"""
    r"""(\\?["'](?:[^"'\\]|\\.)*(?:["']|$)|(?!(?:bearer\s+)?<)(?:(?:bearer|basic|token)\s+)?[^\s,;&"'}\]]+)""",
    re.IGNORECASE,
)
_SECRET_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|ghp|gho|ghs|glpat|xox[abp])[-_][A-Za-z0-9_-]{6,}"
    r"|\bAIza[A-Za-z0-9_-]{10,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}"
    r"|\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{4,}",
    re.IGNORECASE,
)


def clean(text: str, limit: int) -> str:
    """One line of printable text of at most `limit` characters: what is not printable is escaped, what is too long cut."""
    if len(text) > limit:
        text = text[:limit] + "…"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


def redact(text: str) -> str:
    """The text with everything hidden that looks like a credential or a seal."""
    return _SECRET_SHAPE.sub(HIDDEN, _SECRET_MEMBER.sub(rf"\1{HIDDEN}", text))


def redact_headers(headers: Iterable[tuple[bytes, bytes]], limit: int = 200) -> dict[str, str]:
    """Headers for a debug line: values of telling names hidden, the others redacted, cut and made printable."""
    shown: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = clean(raw_name.decode("latin-1").lower(), limit)
        is_secret = _SECRET_HEADER.search(name) is not None
        shown[name] = HIDDEN if is_secret else clean(redact(raw_value.decode("latin-1")), limit)
    return shown
