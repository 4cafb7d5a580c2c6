"""A request's conversation, written: turns to `system` and `messages`, by the rules the vendor enforces with a 400.

- Leading system and developer texts are `system`. Later ones are user text in `<system>` tags (repair
  `system_as_user`), unless they came as system messages of this dialect.
- Roles alternate: neighbours of one role are one message. In a user message results stand first.
- The first message is the user's (repair `user_first`), no message is empty (repair `empty_turn`; a user turn without
  content says `.`), no text is empty, and a final assistant text has no white space at its end (repair
  `trailing_whitespace`).
- A call the provider ran and its result need each other (repairs `unanswered_server_call`, `orphan_server_result`);
  only in the last assistant message may a call still wait.

Calls and results of the client have been paired before (`core.pairing`); how parts are written is in `retelling`.
"""

from collections.abc import Sequence
from typing import Literal

from dragoman._json import Raw
from dragoman.core.losses import LossBook
from dragoman.dialects.messages.history import is_native_system
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import Block, own_extra
from dragoman.dialects.messages.retelling import Reteller
from dragoman.dialects.messages.wire import RESULT_SUFFIX
from dragoman.model.outcome import Repair
from dragoman.model.request import Turn

__all__ = ("PLACEHOLDER", "Conversation")

PLACEHOLDER = "."
"""What a user says where the vendor demands a user message and there is none: the least that is not empty."""

_Role = Literal["user", "assistant", "system"]
_THINKING = frozenset({"thinking", "redacted_thinking"})
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})


class _Message:
    __slots__ = ("blocks", "extra", "role", "where")

    def __init__(self, role: _Role, where: str) -> None:
        self.role = role
        self.where = where
        self.blocks: list[Block] = []
        self.extra: dict[str, Raw] = {}

    def types(self) -> list[object]:
        return [block.get("type") for block in self.blocks]


class Conversation:
    """Takes the turns of one request. `continues`: the vendor holds the turns before them."""

    def __init__(self, reteller: Reteller, book: LossBook, *, continues: bool = False) -> None:
        self.repairs: list[Repair] = []
        self._reteller = reteller
        self._book = book
        self._continues = continues
        self._system: list[Block] = []
        self._messages: list[_Message] = []

    def take(self, turns: Sequence[Turn]) -> None:
        is_leading = True
        for number, turn in enumerate(turns):
            where = f"turns[{number}]"
            is_system = turn.role in ("system", "developer")
            is_leading = is_leading and is_system
            self._note_turn(turn, where)
            if turn.head or (is_leading and not is_native_system(turn)):
                self._system.extend(self._tell(turn, "system", where))
            elif is_system:
                self._add_system(turn, where)
            else:
                role: _Role = "assistant" if turn.role == "assistant" else "user"
                self._add(role, self._tell(turn, role, where), turn, where)
        if not self._continues:
            self._pair_server_calls()
        self._settle_messages()

    @property
    def system(self) -> str | list[Block] | None:
        return _content(self._system) if self._system else None

    @property
    def messages(self) -> list[Block]:
        return [
            {"role": message.role, "content": _content(message.blocks), **message.extra}
            for message in self._messages
        ]

    @property
    def lacks_thinking(self) -> bool:
        """Whether it ends in calls and their results that no thinking block precedes, back to the user's last word."""
        has_calls = False
        for message in reversed(self._messages):
            types = message.types()
            if message.role == "user" and "tool_result" not in types:
                break
            if message.role == "assistant":
                if types and types[0] in _THINKING:
                    return False
                has_calls = has_calls or "tool_use" in types
        return has_calls

    def _tell(self, turn: Turn, place: _Role, where: str) -> list[Block]:
        blocks: list[Block] = []
        for index, part in enumerate(turn.parts):
            blocks.extend(self._reteller.tell(part, place, f"{where}.parts[{index}]"))
        if turn.cache is not None:
            # A breakpoint on a message stands on its last block and wins over that block's own; thinking takes none.
            for block in reversed(blocks):
                if block.get("type") not in _THINKING:
                    block["cache_control"] = turn.cache
                    break
        return blocks

    def _note_turn(self, turn: Turn, where: str) -> None:
        note_foreign(self._book, turn.extra, where)
        if turn.name is not None and turn.role != "tool":
            self._book.note("turn_name", where, turn.name)

    def _add_system(self, turn: Turn, where: str) -> None:
        blocks = self._tell(turn, "system", where)
        if is_native_system(turn):
            message = _Message("system", where)
            message.blocks = blocks
            message.extra = dict(own_extra(turn.extra))
            self._messages.append(message)
            return
        self._repair("system_as_user", where, turn.role)
        for block in blocks:
            text = block.get("text")
            if isinstance(text, str):
                block["text"] = f"<system>\n{text}\n</system>"
        self._add("user", blocks, turn, where)

    def _add(self, role: _Role, blocks: list[Block], turn: Turn, where: str) -> None:
        if role == "assistant" and not blocks:
            self._repair("empty_turn", where, "an assistant turn without content is left out")
            return
        if not self._messages or self._messages[-1].role != role:
            self._messages.append(_Message(role, where))
        message = self._messages[-1]
        message.blocks.extend(blocks)
        message.extra.update(own_extra(turn.extra))

    def _settle_messages(self) -> None:
        for message in self._messages:
            results = [block for block in message.blocks if block.get("type") == "tool_result"]
            if results:
                rest = [block for block in message.blocks if block.get("type") != "tool_result"]
                message.blocks = [*results, *rest]
            if not message.blocks and message.role == "user":
                self._repair("empty_turn", message.where, "a user turn without content")
                message.blocks = [{"type": "text", "text": PLACEHOLDER}]
        first = next((each for each in self._messages if each.role != "system"), None)
        if (first is None or first.role == "assistant") and not self._continues:
            self._repair("user_first", "messages", "the conversation does not begin with the user")
            opening = _Message("user", "messages")
            opening.blocks = [{"type": "text", "text": PLACEHOLDER}]
            self._messages.insert(0, opening)
        self._trim_last()

    def _trim_last(self) -> None:
        message = self._messages[-1]
        text = message.blocks[-1].get("text") if message.blocks else None
        if message.role != "assistant" or not isinstance(text, str) or text == text.rstrip():
            return
        # What is only white space has been left out, so something remains.
        self._repair("trailing_whitespace", message.where, "at the end of the last assistant turn")
        message.blocks[-1]["text"] = text.rstrip()

    def _pair_server_calls(self) -> None:
        spoken = [message for message in self._messages if message.role == "assistant"]
        calls: set[object] = set()
        answers = {_answer_id(block) for message in spoken for block in message.blocks}
        for message in spoken:
            kept: list[Block] = []
            for block in message.blocks:
                call_id = _call_id(block)
                answer_id = _answer_id(block)
                if call_id is not None and call_id not in answers and message is not spoken[-1]:
                    self._repair("unanswered_server_call", message.where, str(call_id))
                elif answer_id is not None and answer_id not in calls:
                    self._repair("orphan_server_result", message.where, str(answer_id))
                else:
                    kept.append(block)
                    calls.add(call_id)
            message.blocks = kept
        left = [each for each in self._messages if each.blocks or each.role != "assistant"]
        self._messages = []
        for message in left:
            if self._messages and self._messages[-1].role == message.role != "system":
                self._messages[-1].blocks.extend(message.blocks)
                self._messages[-1].extra.update(message.extra)
            else:
                self._messages.append(message)

    def _repair(self, rule: str, where: str, detail: str) -> None:
        self.repairs.append(Repair(rule, where, detail))


def _content(blocks: list[Block]) -> str | list[Block]:
    """A single plain text is a string, as most clients write it."""
    text = blocks[0].get("text") if len(blocks) == 1 else None
    return text if isinstance(text, str) and len(blocks[0]) == 2 else blocks


def _call_id(block: Block) -> object:
    return block.get("id") if block.get("type") in _SERVER_CALLS else None


def _answer_id(block: Block) -> object:
    kind = block.get("type")
    is_answer = isinstance(kind, str) and kind.endswith(RESULT_SUFFIX) and kind != "tool_result"
    return block.get("tool_use_id") if is_answer else None
