"""Turns written as a conversation's items.

Every part becomes an item of its own, in order, but consecutive texts and media of a turn are one message. Ids that
OpenAI would reject are left out, call ids are aliased where they are too long, and what cannot be said is noted.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.core.aliases import NameMap, alias_id
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook, instruction_texts
from dragoman.core.plain import bare_text
from dragoman.core.seals import seal_to_encrypted, split_family
from dragoman.dialects.base import Target
from dragoman.dialects.responses.content import media_fields
from dragoman.dialects.responses.fields import own_fields
from dragoman.dialects.responses.items import call_fields, call_spec, reasoning_fields
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.results import result_fields, result_spec
from dragoman.dialects.responses.wire import (
    OPAQUE_PART,
    PREFIXES,
    RESULT_OF_KIND,
    STRICT_PREFIXES,
)
from dragoman.dialects.responses.writing import ItemWriter, JsonObject
from dragoman.model.parts import (
    Call,
    CallKind,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from dragoman.model.request import Turn

__all__ = ("Conversation", "instructions_of")

_NAMED = frozenset({"function", "custom"})


def instructions_of(turns: Sequence[Turn], book: LossBook) -> str | None:
    """The text of all turns that stood outside the conversation."""
    texts: list[str] = []
    has_head = False
    for number, turn in enumerate(turns):
        if not turn.head:
            continue
        has_head = True
        where = f"turns[{number}]"
        texts += instruction_texts(turn, where, book, note_foreign)
    return "\n\n".join(texts) if has_head else None


class Conversation:
    """Writes the items of one request."""

    def __init__(
        self, names: NameMap, target: Target, book: LossBook, *, is_native: bool = False
    ) -> None:
        self._is_native = is_native
        self._names = names
        self._ids = target.ids
        self._book = book
        self._mint = Minter("history")
        self._written: dict[str, CallKind] = {}  # call id -> the kind of item its call became

    def write(self, turns: Sequence[Turn]) -> list[object]:
        out: list[object] = []
        for number, turn in enumerate(turns):
            if not turn.head:
                text = bare_text(turn)
                if text is None:
                    self._write_turn(turn, f"turns[{number}]", out)
                else:
                    out.append({"type": "message", "role": turn.role, "content": text})
        return out

    def _inspect(self, turn: Turn, where: str) -> None:
        note_foreign(self._book, turn.extra, where)
        if turn.cache is not None:
            self._book.note("cache_control", where)
        if turn.name is not None:
            self._book.note("message_name", where, turn.name)

    def _write_turn(self, turn: Turn, where: str, out: list[object]) -> None:
        self._inspect(turn, where)
        run: list[object] = []
        for part in turn.parts:
            self._inspect_part(part, turn, where)
            if isinstance(part, Text | Refusal | Media) or _is_content(part):
                content = self._content(turn, part, where)
                if content is not None:
                    run.append(content)
                continue
            if run:
                out.append(self._message(turn, run))
                run = []
            item = self._item(part, turn, where)
            if item is not None:
                out.append(item)
        # A message without content is still a message, but a turn of other items is none.
        if run or not turn.parts:
            out.append(self._message(turn, run))

    def _inspect_part(self, part: Part, turn: Turn, where: str) -> None:
        if isinstance(part, Opaque):
            return
        note_foreign(self._book, part.extra, where)
        if not isinstance(part, Refusal) and part.cache is not None:
            self._book.note("cache_control", where)
        if isinstance(part, Text) and part.annotations and turn.role != "assistant":
            self._book.note("annotation", where, "only an assistant's texts have citations")
        if isinstance(part, Result):
            for each in part.content:
                self._inspect_part(each, turn, where)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _message(self, turn: Turn, content: list[object]) -> JsonObject:
        # Content of a tool turn that is no result has no other place than the user's side.
        role = "user" if turn.role == "tool" else turn.role
        is_own_id = turn.item_id is not None and turn.item_id.startswith(PREFIXES["message"])
        out: JsonObject = {"type": "message", "role": role}
        if is_own_id:
            out["id"] = turn.item_id
        if turn.status is not None:
            out["status"] = turn.status
        if (
            len(content) == 1
            and isinstance(content[0], str)
            and not (is_own_id and role == "assistant")
        ):
            out["content"] = content[0]
        elif role == "assistant":
            out["content"] = [
                _output_text(part) if isinstance(part, str) else part for part in content
            ]
            if not self._is_native and not is_own_id:
                # Content in parts makes this an output item, which has an id and a status.
                out.update({"id": self._mint("msg_"), "status": "completed"})
        else:
            out["content"] = [
                _input_text(part) if isinstance(part, str) else part for part in content
            ]
        return {**out, **own_fields(turn.extra)}

    def _content(self, turn: Turn, part: Part, where: str) -> object:
        match part:
            case Text():
                return self._text(turn, part)
            case Refusal():
                if turn.role == "assistant":
                    return {"type": "refusal", "refusal": part.text, **own_fields(part.extra)}
                return part.text
            case Media():
                return self._media(turn, part, where)
            case Opaque():
                return part.raw
            case _:
                raise AssertionError("other parts are items of their own")

    def _text(self, turn: Turn, part: Text) -> object:
        """A string where there is nothing but text to say."""
        own = own_fields(part.extra)
        if turn.role != "assistant":
            return {**_input_text(part.text), **own} if own else part.text
        if not part.annotations and part.logprobs is None and not own:
            return part.text
        items = ItemWriter(self._mint, self._book)
        out: JsonObject = {**_output_text(part.text), "annotations": items.annotations(part)}
        if part.logprobs is not None:
            out["logprobs"] = part.logprobs
        return {**out, **own}

    def _media(self, turn: Turn, part: Media, where: str) -> object:
        fields = media_fields(part)
        is_known = part.kind in ("image", "file") and turn.role != "assistant"
        if fields is not None and (is_known or self._is_native):
            return fields
        code = "audio_input" if part.kind == "audio" else "media_input"
        if turn.role == "assistant":
            code = "assistant_media"
        action = self._book.note(code, where, part.media_type or part.kind)
        return self._text(turn, Text(text=f"[{part.kind}]")) if action == "carry" else None

    # --- other items -------------------------------------------------------------------------------------------------

    def _item(self, part: Part, turn: Turn, where: str) -> object:
        match part:
            case Reasoning():
                return self._reasoning(part, turn, where)
            case Call():
                return self._call(part, turn, where)
            case Result():
                return self._result(part, turn, where)
            case Opaque():
                return ItemWriter(self._mint, self._book).opaque(part)
            case _:
                raise AssertionError("other parts are content of messages")

    def _reasoning(self, part: Reasoning, turn: Turn, where: str) -> JsonObject | None:
        own, foreign = split_family(part.seals, "openai")
        if foreign:
            self._book.note("foreign_seal", where)
        is_known = (part.item_id or "").startswith(PREFIXES["reasoning"]) and not foreign
        if not own and not is_known:
            # OpenAI takes back only what it sealed or stored itself.
            if not foreign:
                self._book.note("reasoning_text", where)
            return None
        # OpenAI verifies a seal together with the id of its item and refuses another; none at all is better than a wrong one.
        bound = next((seal.item_id for seal in own if seal.item_id is not None), None)
        item_id = part.item_id if is_known or self._is_native else bound
        fields = reasoning_fields(part, seal_to_encrypted(own))
        return self._finish(fields, "reasoning", item_id, turn)

    def _call(self, part: Call, turn: Turn, where: str) -> JsonObject | None:
        spec = call_spec(part, is_native=self._is_native)
        if spec is None or (part.executor == "provider" and not self._is_native):
            # A provider's own call can only be replayed to the provider that made it.
            self._book.note("provider_call", where, part.name)
            return None
        if part.seals:
            self._book.note("call_seal", where, part.name)
        self._written[part.call_id] = spec.kind
        call = replace(
            part,
            call_id=alias_id(part.call_id, self._ids),
            # Names on a server of the provider's are not ours to change.
            name=self._names.wire(part.name, part.namespace) if spec.kind in _NAMED else part.name,
        )
        return self._finish(call_fields(call, spec), spec.type, part.item_id, turn)

    def _result(self, part: Result, turn: Turn, where: str) -> JsonObject | None:
        kind = self._written.get(part.call_id, part.kind)
        spec = RESULT_OF_KIND.get(kind) or result_spec(part)
        if spec is None or (part.executor == "provider" and not self._is_native):
            self._book.note("provider_result", where, part.kind)
            return None
        alias = alias_id(part.call_id, self._ids) if part.call_id else ""
        fields = result_fields(replace(part, call_id=alias), spec)
        if spec.kind == "apply_patch":
            fields["status"] = "failed" if part.is_error else "completed"
            return self._finish(fields, spec.type, part.item_id, replace(turn, status=None))
        if part.is_error and spec.has_status:
            turn = replace(turn, status="incomplete")
        return self._finish(fields, spec.type, part.item_id, turn)

    def _finish(self, fields: JsonObject, kind: str, item_id: str | None, turn: Turn) -> JsonObject:
        is_fine = kind not in STRICT_PREFIXES or (item_id or "").startswith(PREFIXES[kind])
        if item_id is not None and is_fine:
            fields["id"] = item_id
        if turn.status is not None and len(turn.parts) == 1:
            fields["status"] = turn.status
        return fields


def _is_content(part: Part) -> bool:
    return (
        isinstance(part, Opaque)
        and part.dialect == "responses"
        and part.type.startswith(OPAQUE_PART)
    )


def _input_text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": []}
