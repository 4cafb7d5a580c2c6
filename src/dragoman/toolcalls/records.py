"""What the aggregator says: records of calls, and what each payload added to them. Values, no behaviour to speak of.

The cumulative arguments of a delta are joined only when somebody asks: a delta holds the shared list of pieces and how
many of them it stands for, so ten thousand one-character deltas cost ten thousand small steps.
"""

from collections.abc import Sequence

from msgspec import Struct

from dragoman.model.parts import CallKind

__all__ = ("IngestResult", "ToolCallDelta", "ToolCallRecord")


class Pieces(Struct, frozen=True, eq=False):
    """The first `count` of a growing list of pieces. The list only grows; a changed text is another list."""

    shared: Sequence[str]
    count: int

    def join(self) -> str:
        return "".join(self.shared[: self.count])

    def __repr__(self) -> str:
        return f"<{self.count} pieces>"


class ToolCallDelta(Struct, frozen=True):
    """What one payload added to one call.

    `index` counts the calls of a choice from 0 in order of creation, as Chat's `index` does. `is_first`: the call is
    new. `amended`: the text told before was wrong; `arguments` is the right one and `arguments_delta` is empty.
    """

    index: int
    id: str
    type: CallKind
    name: str
    arguments_delta: str
    pieces: Pieces
    namespace: str | None = None
    is_first: bool = False
    amended: bool = False
    choice_index: int = 0

    @property
    def arguments(self) -> str:
        """All arguments up to and with this delta. Joined at each call."""
        return self.pieces.join()

    def as_chat_delta(self) -> dict[str, object]:
        """An entry of `tool_calls` in a Chat Completions delta: an increment, id, type and name in the first only."""
        body: dict[str, object] = {}
        is_custom = self.type == "custom"
        entry: dict[str, object] = {"index": self.index}
        if self.is_first:
            entry |= {"id": self.id, "type": "custom" if is_custom else "function"}
            body["name"] = self.name
        body["input" if is_custom else "arguments"] = self.arguments_delta
        entry["custom" if is_custom else "function"] = body
        return entry


class ToolCallRecord(Struct, frozen=True):
    """One call. `arguments` is the text as it came, never parsed and never rewritten.

    `executable`: the protocol closed the call and its arguments are what its type demands. `reason`: `complete`;
    `amended` (complete, but other than what was streamed before); or why not: `not_closed`, `no_name`, `invalid_json`.
    """

    id: str
    type: CallKind
    name: str
    arguments: str
    executable: bool
    reason: str
    namespace: str | None = None
    index: int = 0

    def as_chat(self) -> dict[str, object]:
        """An entry of `tool_calls` in a Chat Completions message."""
        if self.type == "custom":
            return {
                "id": self.id,
                "type": "custom",
                "custom": {"name": self.name, "input": self.arguments},
            }
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


class IngestResult(Struct, frozen=True):
    """What a payload did. `updated` says that there are deltas; `closed` are the calls that became complete with it."""

    updated: bool = False
    deltas: tuple[ToolCallDelta, ...] = ()
    closed: tuple[ToolCallRecord, ...] = ()
