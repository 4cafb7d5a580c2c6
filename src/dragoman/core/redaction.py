"""Text that may be shown: no credential, no seal, nothing that moves a terminal's cursor.

For log lines and debug output only; what is served is never changed here. Redacting is by names and by shapes, and
errs on the side of hiding.
"""

import re
from typing import cast

from dragoman.core.secrets import HIDDEN

# Members of JSON (or of a Python dict's repr, or of a query) whose values nobody may read: credentials, and the seals
# that providers put around reasoning. A cut value has no closing quote; `<key>` in our own messages is none.
_HIDDEN_NAMES = (
    r"(?:api[_-]?key|x-api-key|authorization|proxy-authorization|access[_-]?token|refresh[_-]?token|id[_-]?token"
    r"|client[_-]?secret|password|secret|token|cookie|signature|thought_?signature|encrypted_content"
    r"|encrypted_function_args|redacted_thinking)"
)
_SECRET_NAME = re.compile(_HIDDEN_NAMES, re.IGNORECASE)
_SECRET_MEMBER = re.compile(
    rf"""({_HIDDEN_NAMES}\\?["']?\s*[:=]\s*)"""
    r"""(\\?["'](?:[^"'\\]|\\.)*(?:["']|$)|(?!(?:bearer\s+)?<)(?:(?:bearer|basic|token)\s+)?[^\s,;&"'}\]]+)""",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"""\\?["']""")
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


def redact_json(value: object, name: str = "") -> object:
    """A value of JSON with the same hidden, still JSON: what is hidden is a string. `name`: of the member it is."""
    if isinstance(value, str):
        return HIDDEN if _SECRET_NAME.fullmatch(name) else _redact_string(value)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: redact_json(each, key) for key, each in fields.items()}
    if isinstance(value, list):
        return [redact_json(each, name) for each in cast("list[object]", value)]
    return value


def _redact_string(text: str) -> str:
    """As `redact`. The text may be JSON itself, such as the arguments of a call, and stays so."""
    return _SECRET_SHAPE.sub(HIDDEN, _SECRET_MEMBER.sub(_hide_member, text))


def _hide_member(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    quote = _QUOTE.match(value)
    if quote is not None:
        return f"{name}{quote[0]}{HIDDEN}{quote[0]}"
    return f'{name}"{HIDDEN}"' if '"' in name else name + HIDDEN
