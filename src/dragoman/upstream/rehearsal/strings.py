"""Makes a string that a schema allows, from the user's words where that is harmless. Pure.

Real agents execute the rehearsal's calls: Codex runs commands, Claude Code edits files. So

- a command is always `echo rehearsal`, code is a string, SQL is `SELECT 1`, a formula is `1 + 1`;
- a tool whose name indicates that it changes or runs something never gets the user's words or paths: its strings are
  placeholders, and its paths lie below a device, where nothing can be created, changed or removed;
- such a tool is called only if the user names it, or if there is no other.

Only the name decides: a tool called `lookup` that deletes things is taken for a lookup.

For the `pattern` of a schema a text is generated from the regular expression, never matched against it: a client's pattern
may take a matcher exponential time, while generating takes time linear in the output. Literals, escapes, classes, groups,
alternatives and quantifiers are supported; look-around, back references and flags are not.
"""

import string
from collections.abc import Mapping

from msgspec import Struct

from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.schema import Schema, list_in, number_in
from dragoman.upstream.rehearsal.words import UserWords, split_name, vocabulary

# A schema may demand a string of any length; beyond this limit the string is shorter.
MAX_STRING = 100_000
# How much of the user's text a parameter such as `query` gets.
MAX_PASSAGE = 200

_FORMATS: Mapping[str, str] = {
    "date": "2025-01-15",
    "date-time": "2025-01-15T12:00:00Z",
    "datetime": "2025-01-15T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "rehearsal@example.com",
    "idn-email": "rehearsal@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "iri": "https://example.com/",
    "uri-reference": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/rehearsal",
    "regex": "rehearsal",
    "byte": "cmVoZWFyc2Fs",
    "binary": "rehearsal",
}
"""Names and addresses are reserved for examples by standards, so they belong to nobody."""

_FORMAT_OF_NAME: Mapping[str, str] = {
    "email": "email",
    "mail": "email",
    "url": "uri",
    "uri": "uri",
    "link": "uri",
    "href": "uri",
    "date": "date",
    "uuid": "uuid",
    "hostname": "hostname",
}
_TEXT_OF_NAME: Mapping[str, str] = {
    "timezone": "UTC",
    "language": "en",
    "lang": "en",
    "locale": "en",
}
_PASSAGES = vocabulary(
    "body content input instruction message phrase prompt q query question search sentence text topic"
)


class StringMaker(Struct):
    """Makes the strings of one call: each takes the next of the user's names.

    careful: the tool changes or runs things, so it gets placeholders only.
    """

    words: UserWords
    tool: str = ""
    careful: bool = False
    taken: int = 0

    def make(self, schema: Schema, name: str, nudge: int = 0) -> str:
        """A string for a parameter of this name."""
        pattern = schema.get("pattern")
        least = int(number_in(schema, "minLength") or 0)
        if isinstance(pattern, str):
            text = example(pattern, min(least, MAX_STRING))
            if text is not None:
                return text
        text = self._formatted(schema.get("format"))
        if text is None:
            text = safe_text(name, self.tool)
        if text is None:
            text = _stated(schema.get("default"), schema) or self._named(name, schema)
        return _fit(f"{text} {nudge + 1}" if nudge else text, schema)

    def _formatted(self, form: object) -> str | None:
        if not isinstance(form, str) or form not in _FORMATS:
            return None
        if self.careful:
            return _FORMATS[form]
        if form == "date" and self.words.dates:
            return self.words.dates[0]
        if form in ("uri", "url") and self.words.urls:
            return self.words.urls[0]
        return _FORMATS[form]

    def _named(self, name: str, schema: Schema) -> str:
        words = split_name(name)
        if is_path_name(name):
            if self.careful:
                return NOWHERE
            return self.words.paths[0] if self.words.paths else "README.md"
        if "glob" in {*words, *split_name(self.tool)} and not {*words} - {"glob", "pattern"}:
            return "*"
        for word in words:
            if word in _FORMAT_OF_NAME:
                return self._formatted(_FORMAT_OF_NAME[word]) or PLACEHOLDER
            if word in _TEXT_OF_NAME:
                return _TEXT_OF_NAME[word]
        if self.careful:
            return PLACEHOLDER
        said = self.words.text.strip()
        if said and not _PASSAGES.isdisjoint(words):
            return said[:MAX_PASSAGE]
        examples = (_stated(each, schema) for each in list_in(schema.get("examples")))
        return self._next_name() or next(filter(None, examples), PLACEHOLDER)

    def _next_name(self) -> str | None:
        names = self.words.names
        if not names:
            return None
        text = names[self.taken % len(names)]
        self.taken += 1
        return text


def _stated(value: object, schema: Schema) -> str | None:
    """The schema's own default or example, if it is a string that fits."""
    if not isinstance(value, str) or not value:
        return None
    return value if _fit(value, schema) == value else None


def _fit(text: str, schema: Schema) -> str:
    """The text, padded or cut to the schema's lengths."""
    least = min(int(number_in(schema, "minLength") or 0), MAX_STRING)
    most = number_in(schema, "maxLength")
    if len(text) < least:
        text += (f" {PLACEHOLDER}" * (1 + least // (1 + len(PLACEHOLDER))))[: least - len(text)]
    return text if most is None or most < 0 else text[: int(most)]


# Longer than any id or code that a schema describes; a pattern that demands more gets no text.
MAX_EXAMPLE = 4096
# Nested groups: deeper patterns are not supported.
MAX_DEPTH = 32

_WORD = string.ascii_lowercase + string.ascii_uppercase + string.digits + "_"
_CLASSES = {"d": "1" + string.digits, "w": _WORD, "s": " "}
_OUTSIDE = {"D": "a", "W": " ", "S": "a"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_ANCHORS = {"b", "B", "A", "Z", "z"}
_ANY = "a" + string.ascii_letters + string.digits + " -_.,"
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F))


def example(pattern: str, min_length: int = 0) -> str | None:
    """A text that the pattern matches, with `min_length` if the pattern allows; None if the pattern is not supported.

    To reach the length, an unbounded repetition is repeated more often.
    """
    try:
        text = _Writer(pattern, 0).write()
        return text if len(text) >= min_length else _Writer(pattern, min_length).write()
    except _NotUnderstood:
        return None


class _NotUnderstood(Exception):
    """The pattern contains something that is not supported."""


class _Writer:
    """Writes while it parses: each piece of the pattern becomes a text that it matches."""

    def __init__(self, pattern: str, more: int) -> None:
        self._pattern = pattern
        self._at = 0
        self._more = more  # how many characters the first unbounded repetition adds
        self._size = 0

    def write(self) -> str:
        text = self._alternatives(0)
        if self._at < len(self._pattern):
            raise _NotUnderstood
        return text

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        taken = self._peek()
        if not taken:
            raise _NotUnderstood
        self._at += 1
        return taken

    def _alternatives(self, depth: int) -> str:
        """The text of the first alternative; the others are skipped."""
        if depth > MAX_DEPTH:
            raise _NotUnderstood
        text = self._sequence(depth)
        while self._peek() == "|":
            self._at += 1
            more, self._more = self._more, 0
            self._sequence(depth)
            self._more = more
        return text

    def _sequence(self, depth: int) -> str:
        out: list[str] = []
        while self._peek() not in ("", "|", ")"):
            out.append(self._repeated(self._atom(depth)))
        return "".join(out)

    def _atom(self, depth: int) -> str:
        sign = self._take()
        match sign:
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                return self._escape()[:1]
            case "*" | "+" | "?":
                raise _NotUnderstood
            case _:
                return sign

    def _group(self, depth: int) -> str:
        if self._peek() == "?":
            self._at += 1
            sign = self._take()
            if sign == "P" or (sign == "<" and self._peek() not in ("=", "!")):
                name, closing, _ = self._pattern[self._at :].partition(">")
                if not closing or name.startswith(("=", ">")):
                    raise _NotUnderstood
                self._at += len(name) + 1
            elif sign != ":":
                raise _NotUnderstood  # look-around, flags, comments
        text = self._alternatives(depth + 1)
        self._take()  # the closing parenthesis, or the end of the pattern
        return text

    def _escape(self) -> str:
        """The characters that an escape stands for, the likeliest first; empty for an anchor."""
        sign = self._take()
        if sign in _ANCHORS:
            return ""
        if sign in "123456789" or sign in "pPkuxcN":
            raise _NotUnderstood  # back references, properties, character codes
        return _CLASSES.get(sign) or _OUTSIDE.get(sign) or _CONTROLS.get(sign) or sign

    def _class(self) -> str:
        is_negative = self._peek() == "^"
        if is_negative:
            self._at += 1
        members: list[str] = []
        while True:
            sign = self._take()
            if sign == "]" and members:
                break
            chars = self._escape() if sign == "\\" else sign
            members.append(self._until(chars) if self._is_range(chars) else chars)
        if not is_negative:
            return "".join(members)[:1]
        return next((char for char in _ANY + _PRINTABLE if not any(char in m for m in members)), "")

    def _is_range(self, first: str) -> bool:
        after = self._pattern[self._at : self._at + 2]
        return len(first) == 1 and len(after) == 2 and after[0] == "-" and after[1] != "]"

    def _until(self, first: str) -> str:
        self._at += 1
        last = self._take()
        last = self._escape() if last == "\\" else last
        if len(last) != 1 or last < first:
            raise _NotUnderstood
        # Only the first character is ever written, but a negated class needs the printable ones.
        return "".join(map(chr, range(ord(first), min(ord(last), ord(first) + 0x100) + 1)))

    def _repeated(self, text: str) -> str:
        least, is_endless = self._quantifier()
        if is_endless and self._more and text:
            least += -(-self._more // len(text))
            self._more = 0
        self._size += least * len(text)
        if self._size > MAX_EXAMPLE:
            raise _NotUnderstood
        return text * least

    def _quantifier(self) -> tuple[int, bool]:
        """The minimum of repetitions, and whether they are unbounded."""
        least, is_endless = 1, False
        sign = self._peek()
        if sign in ("*", "+", "?"):
            self._at += 1
            # For `*` one repetition reads better than none: `[a-z]*` is a word.
            least, is_endless = (0 if sign == "?" else 1), sign != "?"
        elif sign == "{":
            counts, closing, _ = self._pattern[self._at + 1 :].partition("}")
            first, comma, last = counts.partition(",")
            if not closing or not (first or "0").isdecimal() or (last and not last.isdecimal()):
                return 1, False  # a literal brace
            if len(first) > 6 or len(last) > 6 or not (first or comma):
                raise _NotUnderstood
            self._at += len(counts) + 2
            least, is_endless = int(first or "0"), bool(comma) and not last
        if sign in ("*", "+", "?", "{") and self._peek() == "?":
            self._at += 1  # a lazy quantifier matches the same text
        return least, is_endless


COMMAND = "echo rehearsal"
PLACEHOLDER = "rehearsal"
NOWHERE = "/dev/null/rehearsal"
"""A path that can be neither read nor made nor removed on any Unix: its parent is not a directory."""

_EFFECTS = vocabulary(
    "agent append apply approve ask buy cancel change chmod clear commit copy create cron delete deploy destroy "
    "disable drop edit enable enter exit fork grant insert install kill merge mkdir modify move notify overwrite patch "
    "pay post publish purge push put remove rename replace reset restart revoke rm rmdir save schedule send set "
    "shutdown spawn stop submit task terminate todo transfer truncate uninstall unlink update upload worktree "
    "write"
)
_RUNNERS = vocabulary(
    "bash cmd code command eval exec execute execution javascript js powershell python repl run script shell sql stdin "
    "terminal"
)

_COMMAND_NAMES = vocabulary("argv bash cmd command powershell script shell")
_CODE_NAMES = vocabulary("code javascript js program python snippet")
_SQL_NAMES = vocabulary("sql statement")
_FORMULA_NAMES = vocabulary("expression formula")
# `command_line` and `python_code_to_run` are commands and code; `country_code` is neither.
_FILLERS = vocabulary("body exec execute input line raw run source string text to")
_DATABASE = vocabulary("database db postgre postgres query sql sqlite warehouse")
_PATH_NAMES = vocabulary(
    "cwd dir directory file filename filepath folder notebook path root workdir"
)


def has_effects(tool: Tool) -> bool:
    """Whether a tool's name indicates that it changes something."""
    return tool.kind == "apply_patch" or not _EFFECTS.isdisjoint(split_name(tool.name))


def needs_care(tool: Tool) -> bool:
    """Whether a tool must not get the user's words: it changes something, or runs its input."""
    return has_effects(tool) or not _RUNNERS.isdisjoint(split_name(tool.name))


def is_harmless_word(value: object) -> bool:
    """Whether an enum value names no change: `read` of `read | write`, `GET` of HTTP's methods."""
    return not isinstance(value, str) or _EFFECTS.isdisjoint(split_name(value))


def is_path_name(name: str) -> bool:
    """Whether a parameter of this name takes a path."""
    return not _PATH_NAMES.isdisjoint(split_name(name))


def safe_text(name: str, tool_name: str) -> str | None:
    """The value of a parameter that is executed; None for any other parameter."""
    words = set(split_name(name))
    kinds = (
        (_COMMAND_NAMES, COMMAND),
        (_CODE_NAMES, f'"{PLACEHOLDER}"'),
        (_SQL_NAMES, "SELECT 1"),
        (_FORMULA_NAMES, "1 + 1"),
    )
    for hints, text in kinds:
        if words & hints and words <= hints | _FILLERS | _COMMAND_NAMES | _CODE_NAMES:
            return text
    if words == {"query"} and not _DATABASE.isdisjoint(set(split_name(tool_name)) - {"query"}):
        return "SELECT 1"
    return None


def safe_argv(name: str) -> list[object]:
    """The value of a parameter that is a command as a list; empty for any other parameter."""
    return [*COMMAND.split()] if safe_text(name, "") == COMMAND else []
