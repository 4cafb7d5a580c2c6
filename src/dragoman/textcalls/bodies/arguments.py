"""A call's arguments while its parameters come one by one: one JSON object, written append-only.

While arguments stream, a string is told as it comes and everything else when its text is whole. Otherwise all of them
are told together at the end, and then the last of two values for one parameter counts, and a parameter that wraps the
whole object (`arguments`, `input`) is unwrapped.
"""

from typing import cast

from dragoman._json import is_strict, loads
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

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._values)

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

    def finish(self, wrappers: tuple[str, ...] = ()) -> None:
        """No more parameters."""
        if self._block.streams:
            self._block.input("}" if self._count else "{}")
            return
        whole = self._unwrapped(wrappers)
        if whole is None:
            pairs = (f"{json_string(key)}:{source}" for key, source in self._values.items())
            whole = "{" + ",".join(pairs) + "}"
        self._block.input(whole)

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
        held = ""
        is_first = trims

        def take(piece: str) -> None:
            nonlocal held, is_first
            piece = held + piece
            if is_first:
                if piece == "\r":
                    held = piece
                    return
                piece = piece[1:] if piece.startswith("\n") else piece.removeprefix("\r\n")
                is_first = False
            held = ""
            if trims:
                body = piece.removesuffix("\n").removesuffix("\r")
                held, piece = piece[len(body) :], body
            block.input(json_string_inside(piece) if piece else "")

        stop = yield from block.until(stops, take)
        rest = held if held not in ("\n", "\r\n") else ""
        block.input((json_string_inside(rest) if rest else "") + ('"' if stop else ""))
        return stop
