"""Parts of a conversation as the blocks of a request. What the vendor would refuse is repaired or declared lost here.

Thinking goes back only with the vendor's own seal on it, byte for byte. Calls and results of provider-run tools go back
only if they are this vendor's own.
"""

from typing import Literal, assert_never

from dragoman._json import Raw
from dragoman.core.aliases import NameMap, alias_id
from dragoman.core.freeform import wrap_input
from dragoman.core.losses import LossBook
from dragoman.core.seals import split_family
from dragoman.dialects.base import Target
from dragoman.dialects.messages.fields import object_of, string_of
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.media import media_block
from dragoman.dialects.messages.render import (
    NATIVE_KINDS,
    REASONING_JOIN,
    Block,
    block_from_part,
    input_object,
    own_extra,
)
from dragoman.model.parts import (
    Annotation,
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)

__all__ = ("Place", "Reteller")

Place = Literal["system", "user", "assistant"]


class Reteller:
    """Writes the parts of one request."""

    def __init__(self, names: NameMap, target: Target, book: LossBook) -> None:
        self._names = names
        self._target = target
        self._book = book

    def tell(self, part: Part, place: Place, where: str) -> list[Block]:
        """The blocks of a part in a message of that role. Empty text gives none: the vendor refuses it."""
        match part:
            case Text():
                return _cached(self._text(part, where), part.cache)
            case Refusal():
                note_foreign(self._book, part.extra, where)
                return [{"type": "text", "text": part.text}] if part.text.strip() else []
            case Reasoning() if place == "assistant":
                return self._reasoning(part, where)
            case Call() if place == "assistant":
                return _cached(self._call(part, where), part.cache)
            case Result():
                return _cached(self._result(part, place, where), part.cache)
            case Media():
                return _cached(self._media(part, place, where), part.cache)
            case Opaque():
                blocks = block_from_part(part, self._book, where)
                return [] if blocks is None else [blocks]
            case Reasoning() | Call():
                self._book.note("foreign_part", where, f"a {type(part).__name__} in a {place} turn")
                return []
            case _:
                assert_never(part)

    def _text(self, part: Text, where: str) -> list[Block]:
        note_foreign(self._book, part.extra, where)
        note_foreign(self._book, part.item_extra, where)
        if part.logprobs is not None:
            self._book.note("logprobs", where)
        if not part.text.strip():
            return []
        block: Block = {"type": "text", "text": part.text}
        citations = [each.raw for each in part.annotations if self._is_citable(each, where)]
        if citations:
            block["citations"] = citations
        return [{**block, **own_extra(part.extra)}]

    def _is_citable(self, annotation: Annotation, where: str) -> bool:
        """Whether the vendor would recognise a citation as its own."""
        is_own = annotation.dialect == "messages"
        fields = (object_of(annotation.raw) or {}) if is_own else {}
        # A web citation that `render` made of another provider's has no proof in it.
        is_made = "encrypted_index" in fields and not string_of(fields["encrypted_index"])
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
            blocks[0].update(own_extra(part.extra))
            return blocks
        if text and self._book.note("unsigned_reasoning", where) == "carry":
            return [{"type": "text", "text": f"<thinking>\n{text}\n</thinking>"}]
        return []

    def _call(self, call: Call, where: str) -> list[Block]:
        if call.executor != "client":
            if call.extra is None or call.extra.dialect != "messages":
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
                **own_extra(call.extra),
            }
        ]

    def _result(self, result: Result, place: Place, where: str) -> list[Block]:
        if result.executor != "client":
            is_own = result.extra is not None and result.extra.dialect == "messages"
            if not is_own or place != "assistant":
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
        return [{**block, **own_extra(result.extra)}]

    def _result_content(self, result: Result, where: str) -> str | list[Block]:
        blocks: list[Block] = []
        for index, part in enumerate(result.content):
            blocks.extend(self.tell(part, "user", f"{where}.content[{index}]"))
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            return str(blocks[0]["text"])
        return blocks

    def _media(self, media: Media, place: Place, where: str) -> list[Block]:
        if place != "user":
            self._book.note("system_media" if place == "system" else "assistant_media", where)
            return []
        block = media_block(media, self._book, where)
        return [] if block is None else [block]


def _cached(blocks: list[Block], cache: Raw | None) -> list[Block]:
    """A cache breakpoint on the last block."""
    if blocks and cache is not None:
        blocks[-1]["cache_control"] = cache
    return blocks
