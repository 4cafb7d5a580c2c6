"""Reads `system` and `messages` to turns, and writes turns as `system` and `messages`.

The reader makes a tool turn of each run of results in a user message, and user turns of the rest. It marks a `system`
message inside the conversation with an `extra` of this dialect (`is_native_system`), so that the writer keeps its place.

The writer follows the rules that the vendor enforces with a 400:

- Leading system and developer texts are `system`. Later ones are user text in `<system-reminder>` tags (repair
  `system_as_user`), unless they came as system messages of this dialect and the upstream accepts those.
- Roles alternate: neighbours of one role are one message. In a user message results stand first.
- The first message is the user's (repair `user_first`), no message is empty (repair `empty_turn`; a user turn without
  content becomes `.`), no text is empty, and a final assistant text has no white space at its end (repair
  `trailing_whitespace`).
- A provider-run call must have its result, and the result its call (repairs `unanswered_server_call`,
  `orphan_server_result`); only in the last assistant message may a call still wait.
- Thinking is sent only with the vendor's own seal, byte for byte. Calls and results of provider-run tools are sent only if
  they are this vendor's own. Of media the vendor accepts images, PDFs and plain text; the others are losses.

`core.pairing` has already paired the calls and results of the client.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, raw, typed_decoder
from dragoman.core.aliases import NameMap, ToolKey, alias_id, with_original_id
from dragoman.core.fields import (
    Fields,
    ask_list,
    ask_text,
    extra_of,
    is_object,
    is_present,
    need_object,
    own_fields,
    present,
    read_list,
    read_object,
    read_text,
    refuse,
    without,
)
from dragoman.core.freeform import wrap_input
from dragoman.core.loaded_tools import LoadedTools
from dragoman.core.losses import LossBook
from dragoman.core.pairing import as_reminder
from dragoman.core.seals import split_family
from dragoman.dialects.codec import Target
from dragoman.dialects.messages.blocks import (
    added_definition,
    part_from_block,
    part_of,
    read_content,
    type_of,
)
from dragoman.dialects.messages.breakpoints import BreakpointWriter, ToolBreakpoints
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import (
    NATIVE_KINDS,
    REASONING_JOIN,
    Block,
    block_from_part,
    input_object,
    media_block,
)
from dragoman.dialects.messages.wire import (
    CACHE_CONTROL,
    MAPPED_FIELDS,
    RESULT_SUFFIX,
    TypedMessage,
)
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Repair
from dragoman.model.parts import (
    Annotation,
    Breakpoint,
    Call,
    Dialect,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from dragoman.model.request import CacheSettings, Role, Tool, Turn

_KNOWN = MAPPED_FIELDS["request.message"]


def read_turns(request: Fields) -> tuple[Turn, ...]:
    """Read the conversation of a request, the system text first."""
    turns: list[Turn] = []
    system = _without_billing(_read_content(request.get("system"), "system"))
    if system:
        turns.append(Turn(role="system", parts=system, head=True))
    value = request.get("messages")
    typed = None if value is None else read_typed(value)
    if typed is not None:
        return (*turns, *typed)
    messages = ask_list(request, "messages")
    if messages is None:
        refuse("messages", "an array", value)
    for index, message in enumerate(messages):
        turns.extend(_message(message, f"messages.{index}"))
    return tuple(turns)


# Claude Code's first system text, with a hash that differs from request to request.
_BILLING = "x-anthropic-billing-header:"


def _without_billing(system: tuple[Part, ...]) -> tuple[Part, ...]:
    """Keep a billing header apart from the text: it is meant for this vendor, and would spoil the cache of any other."""
    first = system[0] if system else None
    if not isinstance(first, Text) or not first.text.startswith(_BILLING):
        return system
    block: Block = {"type": "text", "text": first.text, **own_fields("messages", first.extra)}
    if first.cache is not None:
        block["cache_control"] = CACHE_CONTROL.write(first.cache)
    return (Opaque(dialect="messages", type="text", raw=raw(block)), *system[1:])


_decode_messages = typed_decoder(list[TypedMessage])


def read_typed(messages: Raw) -> list[Turn] | None:
    """Read a list of regular messages at once, at half the cost of one by one; None if one must be read block by block."""
    try:
        found = _decode_messages(messages)
    except FAST_FAILURES:
        return None
    turns: list[Turn] = []
    for message in found:
        content = message.content
        if isinstance(content, str):
            turns.append(Turn(role=message.role, parts=(Text(text=content),)))
            continue
        parts = tuple([_settled(part_of(block)) for block in content])
        if not all(map(_is_named, parts)):
            return None
        if message.role == "user":
            turns += _split_user(parts)
        else:
            turns.append(Turn(role="assistant", parts=parts))
    return turns


def is_native_system(turn: Turn) -> bool:
    """Whether a system turn stood among the messages of this dialect."""
    return not turn.head and turn.extra is not None and turn.extra.dialect == "messages"


def _message(value: Raw, path: str) -> list[Turn]:
    message = need_object(value, path)
    role = ask_text(message, "role", path)
    parts = _read_content(message.get("content"), f"{path}.content")
    match role:
        case "assistant":
            return [
                Turn(
                    role="assistant",
                    parts=parts,
                    extra=extra_of("messages", present(message), _KNOWN),
                )
            ]
        case "user":
            return _split_user(parts, extra_of("messages", present(message), _KNOWN))
        case "system":
            # The other dialects call a system text inside a conversation the developer's.
            return [
                Turn(
                    role="developer",
                    parts=parts,
                    extra=Extra("messages", without(present(message), _KNOWN)),
                )
            ]
        case _:
            raise RequestRefused(
                f"{path}.role: expected user, assistant or system, got {role or 'nothing'}",
                param=f"{path}.role",
            )


def _split_user(parts: tuple[Part, ...], extra: Extra | None = None) -> list[Turn]:
    """Return the turns of a user message."""
    turns: list[Turn] = []
    run: list[Part] = []
    role: Role = "user"
    for part in parts:
        wanted: Role = "tool" if isinstance(part, Result) else "user"
        if run and wanted != role:
            turns.append(Turn(role=role, parts=tuple(run)))
            run = []
        role = wanted
        run.append(part)
    turns.append(Turn(role=role, parts=tuple(run)))
    if extra is not None:
        turns[0] = replace(turns[0], extra=extra)
    return turns


def _read_content(value: Raw | None, path: str) -> tuple[Part, ...]:
    if value is None or not is_present(value):
        return ()
    plain = read_content(value)
    if plain is not None and len(plain) == 1 and type(plain[0]) is Text:
        return plain  # nearly every system text
    if plain is not None and all(map(_is_named, plain)):
        return tuple(map(_settled, plain))
    text = read_text(value)
    if text is not None:  # a string with a lone surrogate
        return (Text(text=text),)
    blocks = read_list(value)
    if blocks is None:
        refuse(path, "a string or an array of blocks", value)
    return tuple(_block(block, f"{path}.{index}") for index, block in enumerate(blocks))


def _block(value: Raw, path: str) -> Part:
    block = need_object(value, path)
    if not type_of(block):
        refuse(f"{path}.type", "a string", block.get("type"))
    match type_of(block):
        case "text" if read_text(block.get("text")) is None:
            refuse(f"{path}.text", "a string", block.get("text"))
        case "image" | "document" if not is_object(block.get("source")):
            refuse(f"{path}.source", "an object", block.get("source"))
        case "tool_result":
            _check_result(block, f"{path}.content")
        case _:
            pass
    part = part_from_block(block, value)
    if not _is_named(part):
        refuse(f"{path}.name", "the name of a tool", block.get("name"))
    return _settled(part)


def _is_named(part: Part) -> bool:
    return not isinstance(part, Call) or bool(part.name)


def _settled(part: Part) -> Part:
    """Return the part with the original id of its call in place of an alias, and `{}` for the empty input of a call."""
    part = with_original_id(part)
    if isinstance(part, Call) and not part.input.strip():
        return replace(part, input="{}")
    return part


def _check_result(block: Fields, path: str) -> None:
    """Refuse a result whose content is neither a string nor blocks."""
    content = block.get("content")
    if not is_present(content) or read_text(content) is not None:
        return
    entries = read_list(content)
    if entries is None:
        refuse(path, "a string or an array of blocks", content)
    for index, entry in enumerate(entries):
        inner = need_object(entry, f"{path}.{index}")
        if not type_of(inner):
            refuse(f"{path}.{index}.type", "a string", inner.get("type"))


Place = Literal["system", "user", "assistant"]


# Blocks that name a tool, or define one.
_NAMING = frozenset({"tool_reference", "tool_addition", "tool_removal"})


class RequestBlockWriter:
    """Writes the parts of one request."""

    def __init__(
        self,
        names: NameMap,
        target: Target,
        book: LossBook,
        tools: tuple[Tool, ...] = (),
        referred: frozenset[ToolKey] = frozenset(),
    ) -> None:
        """`referred`: tools of another dialect that are declared as deferred, so that results refer to them."""
        self._names = names
        self._target = target
        self._book = book
        self._referred = referred
        self.breakpoints = BreakpointWriter(target, book)
        # An upstream without deferred tools reads the result of a search as text.
        self._is_plain = target.deferred_tools is False
        self._tools = tools

    @cached_property
    def _loaded(self) -> LoadedTools:
        own: Dialect | None = None if self._is_plain else "messages"
        return LoadedTools(self._tools, self._names, own, self._book, note_foreign)

    def write(self, part: Part, place: Place, where: str) -> list[Block]:
        """Return the blocks of a part in a message of this role. Empty text gives no block: the vendor refuses it."""
        match part:
            case Text():
                return self._cached(self._text(part, where), part.cache, where)
            case Refusal():
                note_foreign(self._book, part.extra, where)
                return [] if is_blank(part.text) else [{"type": "text", "text": part.text}]
            case Reasoning() if place == "assistant":
                return self._reasoning(part, where)
            case Call() if place == "assistant":
                return self._cached(self._call(part, where), part.cache, where)
            case Result():
                return self._cached(self._result(part, place, where), part.cache, where)
            case Media():
                return self._cached(self._media(part, place, where), part.cache, where)
            case Opaque() if self._loaded.is_foreign(part):
                self._loaded.leave_out(part, where)
                return []
            case Opaque(dialect="messages") if part.type in _NAMING:
                return [self._reference(part)]
            case Opaque():
                blocks = block_from_part(part, self._book, where)
                return [] if blocks is None else [blocks]
            case Reasoning() | Call():
                self._book.note("foreign_part", where, f"a {type(part).__name__} in a {place} turn")
                return []
            case _:
                assert_never(part)

    def _cached(self, blocks: list[Block], point: Breakpoint | None, where: str) -> list[Block]:
        if point is not None:
            self.breakpoints.put(blocks, point, where)
        return blocks

    def _reference(self, part: Opaque) -> Block:
        """Write a reference to a tool, or its definition, with the name under which the tool is offered."""
        fields = read_object(part.raw)
        block: Block = {**fields, "type": part.type}
        tool = read_object(fields.get("tool"))
        if part.type == "tool_reference":
            return {**block, **self._wire_name(fields, "tool_name")}
        if not tool:
            return block
        definition = added_definition(fields)
        if not definition:
            return {**block, "tool": {**tool, **self._wire_name(tool, "name")}}
        renamed = {**definition, **self._wire_name(definition, "name")}
        return {**block, "tool": {**tool, "definition": renamed}}

    def _wire_name(self, fields: Fields, key: str) -> Block:
        name = read_text(fields.get(key))
        return {key: self._names.wire(name)} if name else {}

    def _text(self, part: Text, where: str) -> list[Block]:
        note_foreign(self._book, part.extra, where)
        note_foreign(self._book, part.item_extra, where)
        if part.logprobs is not None:
            self._book.note("logprobs", where)
        if is_blank(part.text):
            return []
        block: Block = {"type": "text", "text": part.text}
        citations = [each.raw for each in part.annotations if self._is_citable(each, where)]
        if citations:
            block["citations"] = citations
        return [{**block, **own_fields("messages", part.extra)}]

    def _is_citable(self, annotation: Annotation, where: str) -> bool:
        """Whether the vendor would recognise a citation as its own."""
        is_own = annotation.dialect == "messages"
        fields = read_object(annotation.raw) if is_own else {}
        # A web citation that `render` wrote for another provider's has no proof of the source.
        is_made = "encrypted_index" in fields and not read_text(fields["encrypted_index"])
        if is_own and not is_made:
            return True
        self._book.note("citation", where)
        return False

    def _reasoning(self, part: Reasoning, where: str) -> list[Block]:
        note_foreign(self._book, part.extra, where)
        own, foreign = split_family(part.seals, "anthropic")
        if foreign:
            self._book.note("foreign_seal", where)
        text = REASONING_JOIN.join(entry for entry in (*part.summary, *part.content) if entry)
        blocks: list[Block] = []
        for seal in own:
            if seal.kind == "signature":
                blocks.append({"type": "thinking", "thinking": text, "signature": seal.data})
                text = ""
            else:
                blocks.append({"type": "redacted_thinking", "data": seal.data})
        if blocks:
            blocks[0].update(own_fields("messages", part.extra))
            return blocks
        if text and self._book.note("unsigned_reasoning", where) == "carry":
            return [{"type": "text", "text": f"<thinking>\n{text}\n</thinking>"}]
        return []

    def _call(self, call: Call, where: str) -> list[Block]:
        if call.executor != "client":
            is_own = call.extra is not None and call.extra.dialect == "messages"
            if not is_own or (self._is_plain and call.kind == "tool_search"):
                self._book.note("provider_call", where, call.kind)
                return []
            block = block_from_part(call, self._book, where)
            return [] if block is None else [block]
        note_foreign(self._book, call.extra, where)
        if call.seals:
            self._book.note("call_seal", where)
        if call.kind not in NATIVE_KINDS:
            self._book.note("call_kind", where, call.kind)
        is_custom = call.kind == "custom"
        wrapped = Raw(wrap_input(call.input).encode("utf-8", "replace")) if is_custom else None
        return [
            {
                "type": "tool_use",
                "id": alias_id(call.call_id, self._target.ids),
                "name": self._names.wire(call.name or call.kind, call.namespace),
                "input": wrapped or input_object(call, self._book, where),
                **own_fields("messages", call.extra),
            }
        ]

    def _result(self, result: Result, place: Place, where: str) -> list[Block]:
        if result.executor != "client":
            is_own = result.extra is not None and result.extra.dialect == "messages"
            is_search = self._is_plain and result.kind == "tool_search"
            if not is_own or is_search or place != "assistant":
                self._book.note("provider_result", where, result.kind)
                return []
            written = block_from_part(result, self._book, where)
            return [] if written is None else [written]
        note_foreign(self._book, result.extra, where)
        block: Block = {
            "type": "tool_result",
            "tool_use_id": alias_id(result.call_id, self._target.ids),
        }
        content = self._result_content(result, where)
        if content:
            block["content"] = content
        if result.is_error:
            block["is_error"] = True
        return [{**block, **own_fields("messages", result.extra)}]

    def _result_content(self, result: Result, where: str) -> str | list[Block]:
        if self._referred:
            references = self._references(result)
            if references is not None:
                return references
        blocks: list[Block] = []
        for index, part in enumerate(self._loaded.described(result, where)):
            blocks.extend(self.write(part, "user", f"{where}.content[{index}]"))
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            return str(blocks[0]["text"])
        return blocks

    def _references(self, result: Result) -> list[Block] | None:
        """References in place of the definitions in a result; None if it contains anything else."""
        keys: list[ToolKey] = []
        for part in result.content:
            if not isinstance(part, Opaque) or not part.tools or part.dialect == "messages":
                return None
            keys += part.tools
        if not keys or not self._referred.issuperset(keys):
            return None
        return [
            {"type": "tool_reference", "tool_name": self._names.wire(name, space)}
            for space, name in dict.fromkeys(keys)
        ]

    def _media(self, media: Media, place: Place, where: str) -> list[Block]:
        if place != "user":
            self._book.note("system_media" if place == "system" else "assistant_media", where)
            return []
        block = media_block(media, self._book, where)
        return [] if block is None else [block]


def is_blank(text: str) -> bool:
    """Whether the vendor refuses a text block with this text."""
    return not text or text.isspace()


def find_refused(turns: Sequence[Turn]) -> list[Repair]:
    """Return what `MessageListWriter` repairs in the texts of these turns: those that are empty, and those after a call.

    An empty `system` and an empty last message of the assistant are accepted.
    """
    found: list[Repair] = []
    has_calls = False  # in the run of assistant turns so far
    for number, turn in enumerate(turns):
        if turn.role != "assistant":
            has_calls = False
        if not turn.parts and not _may_be_empty(turn, turns):
            found.append(Repair("empty_turn", f"turns[{number}]", "a turn without content"))
        for index, part in enumerate(turn.parts):
            if type(part) is Text:
                if is_blank(part.text) and not _may_be_empty(turn, turns):
                    found.append(_empty_text(f"turns[{number}].parts[{index}]"))
                elif has_calls:
                    found.append(Repair("text_before_calls", f"turns[{number}]"))
            elif type(part) is Call:
                has_calls = has_calls or (turn.role == "assistant" and part.executor == "client")
            elif type(part) is Result and part.executor == "client":
                where = f"turns[{number}].parts[{index}].content"
                found += [_empty_text(where) for piece in part.content if _is_blank_text(piece)]
    return found


def _is_blank_text(part: Part) -> bool:
    return type(part) is Text and is_blank(part.text)


def _may_be_empty(turn: Turn, turns: Sequence[Turn]) -> bool:
    if turn.head or (turn.role == "assistant" and turn is turns[-1]):
        match turn.parts:
            case () | (Text(text="", cache=None),):
                return True
            case _:
                return False
    return False


def _empty_text(where: str) -> Repair:
    return Repair("empty_text", where, "a text without content is left out")


def lacks_thinking(turns: Sequence[Turn]) -> bool:
    """Whether the conversation ends with calls and results that no signed thinking precedes since the last user text."""
    has_calls = False
    is_user_text = False  # whether the user message at hand has text and, so far, no results
    for turn in reversed(turns):
        if turn.role == "tool":
            is_user_text = False
        elif turn.role != "assistant":
            is_user_text = is_user_text or not is_native_system(turn)
        elif is_user_text:
            break
        elif _begins_with_thinking(turn):
            return False
        else:
            has_calls = has_calls or any(
                isinstance(part, Call) and part.executor == "client" for part in turn.parts
            )
    return has_calls


def _begins_with_thinking(turn: Turn) -> bool:
    for part in turn.parts:
        if isinstance(part, Reasoning):
            if split_family(part.seals, "anthropic")[0]:
                return True
        elif not (isinstance(part, (Text, Refusal)) and is_blank(part.text)):
            return False
    return False


PLACEHOLDER = "."
"""The text of a user message where the vendor requires one and there is none: the shortest that is not empty."""

_Role = Literal["user", "assistant", "system"]
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})


class _Message(Struct, eq=False):
    role: _Role
    where: str
    blocks: list[Block] = []
    extra: dict[str, Raw] = {}


class MessageListWriter:
    """Writes the turns of one request.

    continues: the vendor stores the earlier turns. system_messages: it accepts system messages inside the conversation.
    """

    def __init__(
        self,
        parts: RequestBlockWriter,
        book: LossBook,
        *,
        continues: bool = False,
        system_messages: bool = True,
    ) -> None:
        self._system_messages = system_messages
        self.repairs: list[Repair] = []
        self._parts = parts
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
                self._system.extend(self._blocks_of(turn, "system", where))
            elif is_system:
                self._add_system(turn, where)
            else:
                role: _Role = "assistant" if turn.role == "assistant" else "user"
                self._add(role, self._blocks_of(turn, role, where), turn, where)
        if not self._continues:
            self._pair_server_calls()
        self._settle_messages()

    def settle_breakpoints(
        self, settings: CacheSettings | None, tool_count: int, tool_points: int
    ) -> ToolBreakpoints:
        """See `BreakpointWriter.settle`."""
        messages = [(message.role, message.blocks) for message in self._messages]
        return self._parts.breakpoints.settle(
            settings, self._system, messages, tool_count, tool_points
        )

    @property
    def system(self) -> str | list[Block] | None:
        return _content(self._system) if self._system else None

    @property
    def messages(self) -> list[Block]:
        return [
            {"role": message.role, "content": _content(message.blocks), **message.extra}
            for message in self._messages
        ]

    def _blocks_of(self, turn: Turn, place: _Role, where: str) -> list[Block]:
        blocks: list[Block] = []
        for index, part in enumerate(turn.parts):
            blocks.extend(self._parts.write(part, place, f"{where}.parts[{index}]"))
        if turn.cache is not None:
            self._parts.breakpoints.put(blocks, turn.cache, where)
        return blocks

    def _note_turn(self, turn: Turn, where: str) -> None:
        note_foreign(self._book, turn.extra, where)
        if turn.name is not None and turn.role != "tool":
            self._book.note("turn_name", where, turn.name)

    def _add_system(self, turn: Turn, where: str) -> None:
        blocks = self._blocks_of(turn, "system", where)
        if is_native_system(turn) and self._system_messages:
            own = dict(own_fields("messages", turn.extra))
            self._messages.append(_Message("system", where, blocks, own))
            return
        if not blocks:
            return  # for example a turn that only declares tools
        self._repair("system_as_user", where, turn.role)
        for block in blocks:
            text = block.get("text")
            if isinstance(text, str):
                block["text"] = as_reminder(text)
        self._add("user", blocks, replace(turn, extra=None), where)

    def _add(self, role: _Role, blocks: list[Block], turn: Turn, where: str) -> None:
        if role == "assistant" and not blocks:
            self._repair("empty_turn", where, "an assistant turn without content is left out")
            return
        if not self._messages or self._messages[-1].role != role:
            self._messages.append(_Message(role, where))
        message = self._messages[-1]
        message.blocks.extend(blocks)
        message.extra.update(own_fields("messages", turn.extra))

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
        # A compaction stands in place of everything before it, also of the user's first message.
        begins = [] if first is None else [block.get("type") for block in first.blocks[:1]]
        is_assistant = first is None or (first.role == "assistant" and begins != ["compaction"])
        if is_assistant and not self._continues:
            self._repair("user_first", "messages", "the conversation does not begin with the user")
            placeholder: Block = {"type": "text", "text": PLACEHOLDER}
            self._messages.insert(0, _Message("user", "messages", [placeholder]))
        self._trim_last()

    def _trim_last(self) -> None:
        message = self._messages[-1]
        text = message.blocks[-1].get("text") if message.blocks else None
        if message.role != "assistant" or not isinstance(text, str) or text == text.rstrip():
            return
        # Texts of white space only were left out before, so the trimmed text is not empty.
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
    """Return a single plain text as a string, as most clients write it; else the blocks."""
    text = blocks[0].get("text") if len(blocks) == 1 else None
    return text if isinstance(text, str) and len(blocks[0]) == 2 else blocks


def _call_id(block: Block) -> object:
    return block.get("id") if block.get("type") in _SERVER_CALLS else None


def _answer_id(block: Block) -> object:
    kind = block.get("type")
    is_answer = isinstance(kind, str) and kind.endswith(RESULT_SUFFIX) and kind != "tool_result"
    return block.get("tool_use_id") if is_answer else None
