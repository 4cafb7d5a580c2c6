"""How much of a text one block may take. Every limit has the same outcome: the block is text, and a problem says why."""

from msgspec import Struct

__all__ = ("DEFAULT_LIMITS", "MAX_FAILED", "MAX_WORD", "Limits")

# The longest opener, closer or other literal of a format. Real ones end at 34 characters; the number bounds how much of
# a text can be held because it may yet become one.
MAX_WORD = 64

# Openers of one text that turned out to begin no call. Each is tried by its formats, which takes some ten times as long as
# passing as much text; an answer that is all about such formats has hundreds. After so many what comes is text.
MAX_FAILED = 10_000


class Limits(Struct, frozen=True, kw_only=True):
    """max_block: characters of one call's markup; a model that writes a file into an argument needs hundreds of
    thousands. max_depth: nesting of values, far from Python's recursion limit. max_calls: calls of one text; agents
    send tens. max_name: OpenAI takes 64, Anthropic 128. max_key: one parameter's name. confirm: characters after
    an opener within which its format must show itself, so that prose about `<tool_call>` is not held for long.
    """

    max_block: int = 4 * 1024 * 1024
    max_depth: int = 100
    max_calls: int = 128
    max_name: int = 128
    max_key: int = 256
    confirm: int = 256


DEFAULT_LIMITS = Limits()
