"""What a text format is: a declarative value, and the protocol of its body.

A pattern says how a block begins (`openers`), what stands in it (`body`) and how it ends (`closers`). Three bodies
cover nearly every format (`bodies.json_body`, `bodies.tagged_body`, `bodies.python_body`); anything else implements
`Body`: one generator that reads a `Block` and tells it the calls. How patterns that share an opener are told apart:
each reads on until its body *confirms*; the first in order of registration that does so wins, and nothing is told
before that.
"""

from typing import Literal, Protocol

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.limits import DEFAULT_LIMITS, Limits
from dragoman.textcalls.tape import Wait

__all__ = ("Body", "Context", "Place", "TextPattern")

Context = Literal["text", "call"]
"""What an opener is in a code fence or in thinking: mere text, or a call all the same."""

Place = Literal["anywhere", "word", "line", "start"]
"""Where an opener may stand: anywhere, not behind a letter or digit, at the beginning of a line, before any other text."""


class Body(Protocol):
    """Reads one block from behind its opener to behind its closer.

    It must call `block.confirm()` once it has seen enough to be sure, tell calls by `block.begin`, `block.input` and
    `block.end`, and give up by raising what `block.malformed(reason)` returns. It reads only through the block's
    methods, so that it cannot see where the text was cut.
    """

    def parse(self, block: Block) -> Wait[None]: ...


class TextPattern(Struct, frozen=True, kw_only=True):
    """One way to write tool calls as text.

    name: what `formats` and profiles call it.
    openers: literals, any of which begins a block. In a `{name}` opener stands each offered tool (`<{name}>`).
    body: what stands behind the opener.
    closers: literals that end the block. After a malformed block, text is passed over up to one of them, so that what
        a broken argument quotes is not taken for a call.
    needs_closer: a block without a closer is malformed. Otherwise the end of its body ends it.
    eos_ok: the end of an answer that stopped by itself may stand for the closer.
    is_sentinel: the opener cannot be mistaken for prose. Patterns without one are used only where asked for by name
        or by a model's profile, and only for tools that are offered.
    in_fence, in_think: what an opener means in a code fence, inline code or thinking.
    place: where an opener may stand.
    stream_args: tell arguments while they come. By default a call is told when it is complete.
    """

    name: str
    openers: tuple[str, ...]
    body: Body
    closers: tuple[str, ...] = ()
    needs_closer: bool = False
    eos_ok: bool = True
    is_sentinel: bool = True
    in_fence: Context = "text"
    in_think: Context = "text"
    place: Place = "anywhere"
    stream_args: bool = False
    limits: Limits = DEFAULT_LIMITS
