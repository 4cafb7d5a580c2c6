"""What is known of one choice of an answer under the contract: its calls so far, and what was told last."""

from dragoman._json import dumps_canonical, loads
from dragoman.errors import MalformedJson
from dragoman.model.parts import Call

__all__ = ("Turn", "key_of")


class Turn:
    """One choice."""

    __slots__ = (
        "broken",
        "complete",
        "follows_block",
        "index",
        "is_done",
        "is_finished",
        "needs_break",
        "seen",
        "told",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.told = 0  # calls the client was told of
        self.complete = 0  # those of them that may be run
        self.broken = 0  # those that may not
        self.seen: set[tuple[str, str, bytes]] = set()
        self.is_done = False  # the policy has ended it: nothing more is told
        self.is_finished = False  # the upstream has
        self.follows_block = False  # a block was the last that was told
        self.needs_break = False  # text was, and its line has not ended

    def note_text(self, text: str) -> None:
        """Text was told."""
        if text:
            self.follows_block = False
            self.needs_break = not text.endswith("\n")

    def lead(self, delimiter: str) -> str:
        """What stands before the next block."""
        if self.follows_block:
            return delimiter
        return "\n" if self.needs_break else ""


def key_of(call: Call) -> tuple[str, str, bytes]:
    """Name and canonical arguments: by what calls are the same. Input that is no JSON is compared as it is."""
    name = f"{call.namespace or ''}/{call.name}"
    if call.kind == "function":
        try:
            value: object = loads(call.input or "{}")
        except MalformedJson:
            pass
        else:
            return name, "json", dumps_canonical(value)
    return name, "text", call.input.encode("utf-8", "surrogatepass")
