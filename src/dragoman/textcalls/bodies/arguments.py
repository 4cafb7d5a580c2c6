"""A call's arguments while its parameters come one by one: one JSON object, written append-only.

While arguments stream, a string is told as it comes and everything else when its text is whole. Otherwise all of them
are told together at the end, and then the last of two values for one parameter counts, and a parameter that wraps the
whole object (`arguments`, `input`) is unwrapped.
"""

from collections.abc import Callable
from typing import cast

from dragoman._json import as_object, is_strict, loads
from dragoman.textcalls.block import Block
from dragoman.textcalls.coerce import Untyped, coerce
from dragoman.textcalls.json_text import json_string, json_string_inside
from dragoman.textcalls.literals import literal_as_json
from dragoman.textcalls.offers import UNTYPED, Types
from dragoman.textcalls.tape import Wait
from dragoman.textcalls.words import Words

__all__ = ("TEXT", "Arguments", "trim_newlines")

TEXT = Types(frozenset({"string"}))


def trim_newlines(text: str) -> str:
    """The text without one line break at its beginning and one at its end, which belong to the markup."""
    start = 1 if text.startswith("\n") else 2 if text.startswith("\r\n") else 0
    end = len(text)
    if text.endswith("\n") and end > start:
        end -= 2 if text.endswith("\r\n") and end - start > 1 else 1
    return text[start:end]


class Arguments:
    """The arguments of one call of `name`."""

    __slots__ = ("_block", "_count", "_name", "_untyped", "_values")

    def __init__(self, block: Block, name: str, untyped: Untyped = "string") -> None:
        self._block = block
        self._name = name
        self._untyped: Untyped = untyped
        self._values: dict[str, str] = {}
        self._count = 0

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def types(self, key: str, hint: Types = UNTYPED) -> Types:
        """How a parameter is typed: by its schema, else as its markup says."""
        declared = self._block.offers.types(self._name, key)
        return declared if declared.names else hint

    def read(
        self, key: str, stops: Words, *, hint: Types = UNTYPED, trims: bool = True
    ) -> Wait[str]:
        """The value up to a stop; gives the stop, or nothing at the end of the text."""
        types = self.types(key, hint)
        if self._block.streams and types.is_text:
            return (yield from self._stream(key, stops, trims=trims))
        pieces: list[str] = []
        stop = yield from self._block.until(stops, pieces.append)
        if stop:
            text = "".join(pieces)
            self.add(key, trim_newlines(text) if trims else text, types)
        return stop

    def add(self, key: str, text: str, types: Types) -> None:
        """A parameter by its text."""
        self.put(key, coerce(text, types, self._untyped))

    def put(self, key: str, source: str) -> None:
        """A parameter by its JSON source."""
        self._values[key] = source
        if self._block.streams:
            self._block.input(f"{self._lead(key)}{source}")

    def finish(self, wrappers: tuple[str, ...] = ()) -> frozenset[str]:
        """No more parameters. Gives the names of all of them."""
        if self._block.streams:
            self._block.input("}" if self._count else "{}")
            return frozenset(self._values)
        whole = self._unwrapped(wrappers)
        if whole is not None:
            self._block.input(whole)
            return frozenset(as_object(whole))
        pairs = (f"{json_string(key)}:{source}" for key, source in self._values.items())
        self._block.input("{" + ",".join(pairs) + "}")
        return frozenset(self._values)

    def _lead(self, key: str) -> str:
        self._count += 1
        return f"{',' if self._count > 1 else '{'}{json_string(key)}:"

    def _unwrapped(self, wrappers: tuple[str, ...]) -> str | None:
        if len(self._values) != 1:
            return None
        key, source = next(iter(self._values.items()))
        if key not in wrappers or key in self._block.offers.parameters(self._name):
            return None
        text = source
        if source.startswith('"'):
            text = cast("str", loads(source)).strip()
        if not text.startswith("{"):
            return None
        return text if is_strict(text) else literal_as_json(text)

    def _stream(self, key: str, stops: Words, *, trims: bool) -> Wait[str]:
        """A string told as it comes. Its last line break is held: it may belong to the markup."""
        block = self._block
        self._values[key] = '""'
        block.input(f'{self._lead(key)}"')
        trimmer = _Trimmer(block.input, trims=trims)
        stop = yield from block.until(stops, trimmer.take)
        if stop:
            trimmer.finish()
            block.input('"')
        return stop


class _Trimmer:
    """Tells a string as it comes, less one line break at its beginning and one at its end."""

    __slots__ = ("_held", "_is_first", "_tell", "_trims")

    def __init__(self, tell: Callable[[str], None], *, trims: bool) -> None:
        self._tell = tell
        self._trims = trims
        self._is_first = trims
        self._held = ""

    def take(self, piece: str) -> None:
        text = self._held + piece
        self._held = ""
        if self._is_first:
            if text == "\r":
                self._held = text
                return
            text = text[1:] if text.startswith("\n") else text.removeprefix("\r\n")
            self._is_first = False
        if self._trims:
            body = text.removesuffix("\n").removesuffix("\r")
            text, self._held = body, text[len(body) :]
        if text:
            self._tell(json_string_inside(text))

    def finish(self) -> None:
        if self._held == "\r":
            self._tell(json_string_inside(self._held))
