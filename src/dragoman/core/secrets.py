"""Secret values, and the functions that hide them in texts.

    credentials   keys, tokens, passwords: hidden if they have at least `MIN_CREDENTIAL` characters
    others        values of headers, variables, arguments and queries, which may be secret: at least `MIN_OTHER`

`Secrets` finds a value unescaped and escaped, character by character: JSON (`\\u0026`, `\\/`), HTML (`&amp;`), addresses
(`%26`). It also finds a credential in base64, the form of HTTP's basic authentication. A short value is hidden only
as a whole word: `test` is not hidden in `latest`.

`redact` hides text that looks like a credential or a seal, by names and by shapes. It is for log lines and debug output
only, never for answers, and may hide too much.

The search takes linear time but scans the whole text: use it for errors and log lines, not for answers.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import structs

from dragoman._json import Raw
from dragoman.model.outcome import ErrorInfo

HIDDEN = "[redacted]"

# Keys of local servers are words such as `none`; shorter keys protect nothing, and hiding them would garble every text.
MIN_CREDENTIAL = 4
# `true`, `debug`, `json` and other words that settings consist of are shorter.
MIN_OTHER = 8
# Characters. A shorter value may be part of an ordinary word.
_LONG = 16

_NAMED = {'"': "&quot;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "'": "'",
    "\n": "n",
    "\r": "r",
    "\t": "t",
    "\b": "b",
    "\f": "f",
}


class Secrets:
    """Values to hide. Built once per configuration and used for every error."""

    __slots__ = ("_compiled", "credentials", "others")

    def __init__(self, credentials: Iterable[str] = (), others: Iterable[str] = ()) -> None:
        self.credentials = frozenset(each for each in credentials if len(each) >= MIN_CREDENTIAL)
        self.others = frozenset(each for each in others if len(each) >= MIN_OTHER)
        self._compiled: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.credentials or self.others)

    def __or__(self, more: "Secrets") -> "Secrets":
        return Secrets(self.credentials | more.credentials, self.others | more.others)

    def hide(self, text: str) -> str:
        """The text with every secret replaced by `HIDDEN`."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def hide_bytes(self, data: bytes) -> bytes:
        """`hide` for bytes that are mostly text; bytes that are not UTF-8 stay unchanged."""
        if self._pattern is None:
            return data
        text = data.decode("utf-8", "surrogateescape")
        hidden = self._pattern.sub(HIDDEN, text)
        return data if hidden == text else hidden.encode("utf-8", "surrogateescape")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the text has secrets."""
        if self._pattern is not None:
            for match in _search(self._pattern, text):
                yield match.span()

    def hide_error(self, error: ErrorInfo) -> ErrorInfo:
        """The error without secrets; `raw` is still JSON."""
        if self._pattern is None:
            return error
        raw = None if error.raw is None else Raw(self.hide_bytes(bytes(error.raw)))
        return structs.replace(
            error,
            message=self.hide(error.message),
            code=None if error.code is None else self.hide(error.code),
            param=None if error.param is None else self.hide(error.param),
            raw=raw,
        )

    @property
    def _pattern(self) -> re.Pattern[str] | None:
        """Made when it is first needed: it takes milliseconds, and most values are only united with others."""
        if self._compiled is None and self:
            # The longest first: one value may be the beginning of another.
            forms = sorted(self._forms(), key=len, reverse=True)
            self._compiled = re.compile("|".join(map(_pattern_of, forms)))
        return self._compiled

    def _forms(self) -> set[str]:
        found = {*self.credentials, *self.others}
        for value in self.credentials:
            for text in (value, f"{value}:", f":{value}"):
                encoded = b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")
                found.add(encoded)
        return found


NO_SECRETS = Secrets()


def header_credentials(value: str) -> Iterator[str]:
    """The credentials in a header's value: `x` for `Bearer x`; for `Basic …` also the decoded pair and its password."""
    scheme, space, rest = value.partition(" ")
    if not space:
        return
    yield rest.strip()
    if scheme.lower() == "basic":
        try:
            pair = b64decode(rest.strip() + "==").decode("utf-8", "replace")
        except (BadBase64, ValueError):
            return
        yield pair
        yield pair.partition(":")[2]


def url_credentials(url: str) -> Iterator[str]:
    """The credentials in an address: its password, or its user name if it has no password; percent-encoded and decoded."""
    try:
        parts = urlsplit(url)
    except ValueError:  # such an address is refused elsewhere
        return
    held = parts.password or parts.username
    if held:
        user = f"{parts.username}:{held}" if parts.password else held
        for text in (held, user):
            yield text
            yield unquote(text)


def url_others(url: str, *, has_path: bool = False) -> Iterator[str]:
    """Other parts of an address that may be secret: its user, its fragment, the values of its query, and long path parts.

    Short parts of the path are names that error messages need.
    has_path: the path is a database or a file, and none of it is secret.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    if not has_path:
        yield from (part for part in parts.path.split("/") if len(part) >= _LONG)
    yield parts.username or ""
    yield parts.fragment
    for name, value in parse_qsl(parts.query):
        yield value or name


def _pattern_of(value: str) -> str:
    body = "".join(map(_letter, value))
    if len(value) >= _LONG:
        return body
    return rf"(?<![A-Za-z0-9]){body}(?![A-Za-z0-9])"


def _letter(letter: str) -> str:
    """A pattern for one character in all its escaped forms."""
    code = ord(letter)
    if letter.isascii() and letter.isalnum():
        return letter  # these are never escaped
    forms = [re.escape(letter)]
    if letter in _ESCAPES:
        forms.insert(0, rf"\\{re.escape(_ESCAPES[letter])}")
    if letter == " ":
        forms.append(r"\+")  # in a query
    if letter in _NAMED:
        forms.append(_NAMED[letter])
    if code < 0x80:
        forms.append(rf"%(?i:{code:02x})")
    else:
        forms.append("".join(f"%(?i:{byte:02x})" for byte in letter.encode("utf-8", "replace")))
    forms.append(rf"&\#(?:{code}|[xX]0*(?i:{code:x}));")
    units = letter.encode("utf-16-be", "surrogatepass")
    pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    forms.append("".join(rf"\\u(?i:{unit})" for unit in pairs))
    return f"(?:{'|'.join(forms)})"


# --- by names and shapes -----------------------------------------------------------------------------------------------

# Members of JSON (or of a Python dict's repr, or of a query) whose values are secret: credentials, and the seals of
# reasoning. A cut value has no closing quote; `<key>` in our own messages is not a secret, nor is what was hidden already.
_HIDDEN_NAMES = (
    r"(?:api[_-]?key|x-api-key|authorization|proxy-authorization|access[_-]?token|refresh[_-]?token|id[_-]?token"
    r"|client[_-]?secret|password|secret|token|cookie|signature|thought_?signature|encrypted_content"
    r"|encrypted_function_args|redacted_thinking)"
)
_SECRET_NAME = re.compile(_HIDDEN_NAMES, re.IGNORECASE)
# Headers end with the word, and vendors put their names before it. `x-ratelimit-remaining-tokens` and `idempotency-key` hold no secret.
_SECRET_HEADER = re.compile(
    r"(?:.*[-_])?(?:authorization|api[-_]?key|access[-_]?key|websocket-key|token|secret|password|cookie|signature)|chatgpt-account-id",
    re.IGNORECASE,
)
_SECRET_MEMBER = re.compile(
    rf"""({_HIDDEN_NAMES}\\?["']?\s*[:=]\s*)"""
    r"""(\\?["'][^"'\\]*(?:\\.[^"'\\]*)*(?:["']|$)|(?!(?:bearer\s+)?<|\[redacted\])(?:(?:bearer|basic|token)\s+)?[^\s,;&"'}\]]+)""",
    re.IGNORECASE,
)
_PARTS_OF_NAMES = (
    *("key", "authorization", "token", "secret", "password", "cookie", "signature", "encrypted"),
    "thinking",
)
# Characters that are searched at once: three milliseconds. A name and the beginning of its value fit into the overlap.
_WINDOW = 16 * 1024
_OVERLAP = 1024
_QUOTE = re.compile(r"""\\?["']""")
_SECRET_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|gh[oprsu]|github_pat|glpat|xox[abeprs]|dgk)[-_][A-Za-z0-9_-]{6,}"
    r"|\b(?:AIza|ya29\.|npm_|pypi-AgE)[A-Za-z0-9_-]{10,}"
    r"|\b(?-i:A[KS]IA[A-Z0-9]{12,})"
    r"|\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}"
    r"|\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{4,}",
    re.IGNORECASE,
)


def clean(text: str, limit: int) -> str:
    """One line of at most `limit` characters: cuts the rest and escapes characters that are not printable."""
    if len(text) > limit:
        text = text[:limit] + "…"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


def begins_secret(text: str) -> bool:
    """Whether a text begins like a credential."""
    return _SECRET_SHAPE.match(text) is not None


def redact(text: str) -> str:
    """The text with everything that looks like a credential or a seal hidden."""
    return _SECRET_SHAPE.sub(HIDDEN, _SECRET_MEMBER.sub(rf"\1{HIDDEN}", text))


def redact_json(value: object, name: str = "") -> object:
    """`redact` for a JSON value; the result is still JSON. `name`: the name of the member that has the value."""
    if isinstance(value, str):
        return HIDDEN if _SECRET_NAME.fullmatch(name) else _redact_string(value)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: redact_json(each, key) for key, each in fields.items()}
    if isinstance(value, list):
        return [redact_json(each, name) for each in cast("list[object]", value)]
    return value


def is_secret_name(name: str) -> bool:
    """Whether a member of this name has a secret value."""
    return _SECRET_NAME.fullmatch(name) is not None


def is_secret_header(name: str) -> bool:
    """Whether a header of this name has a secret value."""
    return _SECRET_HEADER.fullmatch(name) is not None


class Hidden(NamedTuple):
    """Characters of a text to hide, and what is shown in their place."""

    start: int
    end: int
    shown: str


def find_hidden(text: str, secrets: Secrets = NO_SECRETS) -> list[Hidden]:
    """What `secrets` and `redact` hide in a text, in order and without overlaps. Text that is JSON stays JSON.

    For text that stands in several places, such as the deltas of an answer: only these characters may be changed.
    """
    found = [Hidden(start, end, HIDDEN) for start, end in secrets.spans(text)]
    found += map(_hidden_member, _search(_SECRET_MEMBER, text, _PARTS_OF_NAMES))
    found += [Hidden(*match.span(), HIDDEN) for match in _search(_SECRET_SHAPE, text)]
    found.sort()
    merged: list[Hidden] = []
    for each in found:
        if merged and each.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = last._replace(end=max(last.end, each.end))
        elif each.end > each.start:
            merged.append(each)
    return merged


def _search(
    pattern: re.Pattern[str], text: str, words: Iterable[str] = ()
) -> Iterator[re.Match[str]]:
    """All matches in a text, which may be long: a thread that searches must not keep the interpreter's lock for long.

    words: each match has at least one of them, in lower case.
    """
    at, size = 0, len(text)
    while at < size:
        ends = at + _WINDOW  # where matches of this window may begin
        end = min(ends + _OVERLAP, size)
        part = text[at:end].lower() if words else ""
        if words and not any(word in part for word in words):
            at = ends
            continue
        following = ends
        for match in pattern.finditer(text, at, end):
            if match.start() >= ends:
                break
            if match.end() == end < size:
                # The match may continue beyond the window.
                match = pattern.match(text, match.start()) or match  # noqa: PLW2901
            yield match
            following = max(following, match.end())
            if match.end() > end:
                break
        at = following


def hide_found(text: str, found: Iterable[Hidden]) -> str:
    """The text without the characters to hide."""
    pieces: list[str] = []
    at = 0
    for each in found:
        pieces += (text[at : each.start], each.shown)
        at = each.end
    return "".join((*pieces, text[at:]))


def _redact_string(text: str) -> str:
    """Like `redact`, but text that is JSON itself, such as the arguments of a call, stays JSON."""
    return hide_found(text, find_hidden(text))


def _hidden_member(match: re.Match[str]) -> Hidden:
    """The value of a member without its quotes. A value of JSON that has none gets them."""
    name, value = match[1], match[2]
    start, end = match.span(2)
    quote = _QUOTE.match(value)
    if quote is not None:
        size = len(quote[0])
        is_closed = value.endswith(quote[0]) and len(value) >= 2 * size
        return Hidden(start + size, end - size if is_closed else end, HIDDEN)
    return Hidden(start, end, f'"{HIDDEN}"' if '"' in name else HIDDEN)
