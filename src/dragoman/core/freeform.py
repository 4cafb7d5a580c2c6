"""Custom (free-form) tools in dialects that only have functions: a function with one string argument, `input`.

The tool is offered as a function (`wrapper_tool`), calls in the history are wrapped (`wrap_input`), and the calls of an
answer are unwrapped while they stream (`Unwrapper`). Models do not always keep to the wrapper, so the unwrapper also
accepts

- the text under another name, if it is the only member of the object;
- text that is not JSON: it is the input itself;
- a wrapper inside the wrapper, which clients that keep arguments as objects send back: a text that is exactly
  `{"input": "…"}` is replaced by its inside. `wrap_input` and the unwrapper change no other text;
- raw line breaks and wrong escapes inside the string, unchanged.

    START --'{'--> KEY --'"'--> NAME --':'--> VALUE --'"', name is input--> TEXT --'"'--> AFTER --'}'--> END
      |             |                           |--'"', another name-----> OTHER --'"'--> AFTER
      |             |                           '--other JSON------------> NESTED -------> AFTER
      '--anything else--> PLAIN <--anything that is not JSON, before any text was emitted--'
"""

import re
from collections.abc import Callable
from enum import Enum, auto
from string import hexdigits
from typing import ClassVar, cast

from msgspec import structs

from dragoman._json import Raw, dumps_text, loads
from dragoman.core.surrogates import join_halves, replace_lone
from dragoman.errors import MalformedJson
from dragoman.model.request import Tool

KEY = "input"

WRAPPER_SCHEMA = Raw(
    b'{"type":"object","properties":{"input":{"type":"string",'
    b'"description":"The whole input of the tool, as plain text."}},'
    b'"required":["input"],"additionalProperties":false}'
)

_BLANK = " \t\n\r"
_STRUCTURE = re.compile(r'["{}\[\],]')
_NESTING = {"{": 1, "[": 1, "}": -1, "]": -1}
# The beginning of a wrapper inside the text; blanks may follow the brace and stand before and after the colon.
_INNER_OPENING = '{"input":"'
_INNER_BLANKS = frozenset({1, 8, 9})


def wrapper_tool(tool: Tool) -> Tool:
    """The function that replaces a custom tool. The grammar of the tool becomes part of the description."""
    lines = [tool.description] if tool.description else []
    if tool.grammar is not None:
        lines.append(
            f"The input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}"
        )
    return structs.replace(
        tool,
        kind="function",
        description="\n\n".join(lines) or None,
        schema=WRAPPER_SCHEMA,
        strict=None,
        grammar=None,
    )


def wrap_input(text: str) -> str:
    """The arguments of the wrapping function for a custom call's input. Text that is a wrapper already stays unchanged."""
    if text.startswith("{") and _inside(text) is not None:
        return text
    return '{"input":' + dumps_text(text).decode("utf-8") + "}"


def _inside(text: str) -> str | None:
    """The text in a wrapper whose only member is the text; None for anything else."""
    try:
        value: object = loads(text)
    except MalformedJson:
        return None
    members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    inner = members.get(KEY)
    return inner if isinstance(inner, str) and len(members) == 1 else None


class _State(Enum):
    START = auto()
    KEY = auto()
    NAME = auto()
    COLON = auto()
    VALUE = auto()
    TEXT = auto()
    OTHER = auto()
    NESTED = auto()
    AFTER = auto()
    END = auto()
    PLAIN = auto()


# The next state at a mark, in the states that take nothing but marks and blanks.
_MARKS = {
    _State.START: {"{": _State.KEY},
    _State.KEY: {'"': _State.NAME, "}": _State.END},
    _State.COLON: {":": _State.VALUE},
    _State.AFTER: {",": _State.KEY, "}": _State.END},
    _State.END: {},
}
_WHOLE = frozenset({_State.START, _State.END, _State.PLAIN})
# States in which blanks are ignored.
_BETWEEN = frozenset(
    {_State.START, _State.KEY, _State.COLON, _State.VALUE, _State.AFTER, _State.END}
)


class _InnerWrapper:
    """Passes text on, but holds a text that begins like a wrapper until its end shows whether it is a wrapper."""

    __slots__ = ("_held", "_is_open", "_matched", "_scanned")

    def __init__(self) -> None:
        self._held: list[str] = []
        self._is_open = False
        self._matched = 0
        self._scanned = 0  # characters up to and including the inner text's opening quote

    @property
    def is_open(self) -> bool:
        """Whether all further text passes at once."""
        return self._is_open

    def push(self, text: str) -> str:
        if self._is_open:
            return text
        self._held.append(text)
        for character in text:
            if self._matched == len(_INNER_OPENING):
                break
            self._scanned += 1
            if character == _INNER_OPENING[self._matched]:
                self._matched += 1
            elif character not in _BLANK or self._matched not in _INNER_BLANKS:
                self._is_open = True
                return "".join(self._held)
        return ""

    def end(self, *, is_cut: bool) -> str:
        """The held text: the inside if it is a wrapper, also a cut one, else the text unchanged."""
        if self._is_open:
            return ""
        text = "".join(self._held)
        if self._matched < len(_INNER_OPENING):
            return text
        if is_cut:
            reader = StringReader()
            return reader.read(text, self._scanned)[0] + reader.end()
        inside = _inside(text)
        return text if inside is None else inside


class Unwrapper:
    """Extracts the input of one call from argument fragments cut anywhere. `feed` and `finish` return increments."""

    __slots__ = (
        "_depth",
        "_has_input",
        "_in_string",
        "_inner",
        "_is_input",
        "_keys",
        "_name",
        "_nested",
        "_other",
        "_reader",
        "_seen",
        "_state",
    )

    def __init__(self) -> None:
        self._state = _State.START
        self._seen: list[str] = []  # all fragments, until it is certain whether they are a wrapper
        self._has_input = False  # the input was found; later members are ignored
        self._reader = StringReader()
        self._inner = _InnerWrapper()
        self._name: list[str] = []
        self._other: list[str] = []
        self._nested: list[str] = []
        self._keys = 0
        self._is_input = False
        self._depth = 0
        self._in_string = False

    @property
    def is_cut(self) -> bool:
        """Whether the arguments began as a wrapper that is not closed."""
        return self._state not in _WHOLE

    def feed(self, fragment: str) -> str:
        """Take a fragment of the arguments and return the new text."""
        state = self._state
        if state is _State.PLAIN:
            return fragment
        if state is _State.TEXT and self._inner.is_open and self._reader.is_idle:
            # Most fragments of a long text have nothing to decode.
            if '"' not in fragment and "\\" not in fragment:
                return fragment
        elif not self._has_input:
            self._seen.append(fragment)
        texts: list[str] = []
        index, size = 0, len(fragment)
        while index < size:
            if fragment[index] in _BLANK and self._state in _BETWEEN:
                index += 1
            else:
                index = self._HANDLERS[self._state](self, fragment, index, texts)
        return "".join(texts)

    def finish(self) -> str:
        """End the arguments and return the rest of the text. `is_cut` then says whether the wrapper was left open."""
        match self._state:
            case _State.TEXT:
                rest = self._inner.push(self._reader.end())
                return rest + self._inner.end(is_cut=True)
            case _State.OTHER if self._keys == 1:
                return "".join(self._other) + self._reader.end()
            case _State.END if not self._has_input and self._keys:
                is_single = self._keys == 1 and bool(self._other)
                return "".join(self._other if is_single else self._seen)
            case _:
                return ""

    def _read_mark(self, text: str, index: int, texts: list[str]) -> int:
        state = _MARKS[self._state].get(text[index])
        if state is None:
            return self._give_up(text, texts)
        if state is _State.NAME:
            self._keys += 1
            self._name = []
        self._state = state
        return index + 1

    def _read_name(self, text: str, index: int, _: list[str]) -> int:
        piece, index, closed = self._reader.read(text, index)
        self._name.append(piece)
        if closed:
            self._state = _State.COLON
        return index

    def _read_value(self, text: str, index: int, _: list[str]) -> int:
        self._is_input = not self._has_input and "".join(self._name) == KEY
        if text[index] != '"':
            self._state = _State.NESTED
            self._depth = 0
            return index
        if self._is_input:
            self._state = _State.TEXT
            self._has_input = True
            self._seen = []
        else:
            self._state = _State.OTHER
        return index + 1

    def _read_text(self, text: str, index: int, texts: list[str]) -> int:
        piece, index, closed = self._reader.read(text, index)
        texts.append(self._inner.push(piece))
        if closed:
            texts.append(self._inner.end(is_cut=False))
            self._state = _State.AFTER
        return index

    def _read_other(self, text: str, index: int, _: list[str]) -> int:
        piece, index, closed = self._reader.read(text, index)
        if self._keys == 1:
            self._other.append(piece)
        if closed:
            self._state = _State.AFTER
        return index

    def _read_nested(self, text: str, index: int, texts: list[str]) -> int:
        """Read a value that is not a string. If it is the input, its source text is the text."""
        start, size, is_over = index, len(text), False
        while index < size and not is_over:
            if self._in_string:
                _, index, closed = self._reader.read(text, index)
                self._in_string = not closed
                continue
            stop = _STRUCTURE.search(text, index)
            if stop is None:
                index = size
                continue
            mark = stop.group()
            is_over = self._depth == 0 and mark in ",}]"
            index = stop.start() if is_over else stop.end()
            self._in_string = mark == '"'
            self._depth += _NESTING.get(mark, 0)
        if self._is_input:
            self._nested.append(text[start:index])
        if is_over:
            self._state = _State.AFTER
            self._emit_nested(texts)
        return index

    def _emit_nested(self, texts: list[str]) -> None:
        if self._is_input:
            source = "".join(self._nested).strip(_BLANK)
            texts.append("" if source == "null" else source)
            self._has_input = True
            self._seen = []

    def _give_up(self, text: str, texts: list[str]) -> int:
        """The arguments are not a wrapper. If no text was emitted yet, all arguments so far are the text."""
        if self._has_input:
            self._state = _State.END
        else:
            self._state = _State.PLAIN
            texts.append("".join(self._seen))
            self._seen = []
        return len(text)

    _HANDLERS: ClassVar[dict[_State, Callable[["Unwrapper", str, int, list[str]], int]]] = {
        _State.START: _read_mark,
        _State.KEY: _read_mark,
        _State.NAME: _read_name,
        _State.COLON: _read_mark,
        _State.VALUE: _read_value,
        _State.TEXT: _read_text,
        _State.OTHER: _read_other,
        _State.NESTED: _read_nested,
        _State.AFTER: _read_mark,
        _State.END: _read_mark,
    }


_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_STOP = re.compile(r'["\\]')
# Well-formed content of a JSON string without bare halves of characters, which the JSON library refuses.
# Possessive quantifiers: a long text must not accumulate backtracking positions.
_REGULAR = re.compile(r'(?:[^"\\\x00-\x1f\ud800-\udfff]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})++')
# Characters. From this length on, the JSON library decodes a stretch faster than we do escape by escape.
_LONG = 64


class StringReader:
    """Decodes the inside of one JSON string from pieces; escapes and surrogate pairs may be cut anywhere."""

    __slots__ = ("_escape", "_half")

    def __init__(self) -> None:
        self._escape = ""
        self._half = ""

    @property
    def is_idle(self) -> bool:
        return not self._escape and not self._half

    def read(self, text: str, start: int) -> tuple[str, int, bool]:
        """Decode the text from `start`; return the decoded text, the position reached, and whether the string ended."""
        pieces: list[str] = []
        index, size, closed = start, len(text), False
        while index < size and not closed:
            if self._escape:
                index = self._continue_escape(text, index, pieces)
                continue
            if size - index >= _LONG:
                index = self._take_stretch(text, index, pieces)
            stop = _STOP.search(text, index)
            if stop is None:
                pieces.append(text[index:])
                index = size
            else:
                pieces.append(text[index : stop.start()])
                index = stop.end()
                closed = stop.group() == '"'
                self._escape = "" if closed else "\\"
        texts, self._half = join_halves(self._half, "".join(pieces))
        return (texts + self.end() if closed else texts), index, closed

    def end(self) -> str:
        """End the string and return the rest: a cut escape is dropped, half a pair becomes U+FFFD."""
        half, self._half, self._escape = self._half, "", ""
        return replace_lone(half)

    def _take_stretch(self, text: str, index: int, pieces: list[str]) -> int:
        stretch = _REGULAR.match(text, index)
        if stretch is None:
            return index
        content = stretch.group()
        pieces.append(str(loads(f'"{content}"')) if "\\" in content else content)
        return stretch.end()

    def _continue_escape(self, text: str, index: int, pieces: list[str]) -> int:
        character = text[index]
        if self._escape == "\\":
            if character == "u":
                self._escape = "\\u"
            else:
                # Keep a backslash that escapes nothing: models forget to double it in patterns and paths.
                pieces.append(_ESCAPES.get(character, "\\" + character))
                self._escape = ""
            return index + 1
        if character not in hexdigits:
            pieces.append(self._escape)
            self._escape = ""
            return index
        self._escape += character
        digits = self._escape[2:]
        if len(digits) == 4:
            pieces.append(chr(int(digits, 16)))
            self._escape = ""
        return index + 1
