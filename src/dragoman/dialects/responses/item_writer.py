"""Writes parts as finished items of an answer, and chooses their ids. The stream and the body share this module.

An item keeps the upstream's id if OpenAI would accept the id on replay and no other item has it; other items get a new
id with the vendor's prefix.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from msgspec import Struct

from dragoman._json import Raw
from dragoman.core.fields import own_fields, read_object
from dragoman.core.losses import LossBook
from dragoman.core.seals import seal_to_encrypted
from dragoman.dialects.responses.content import annotation_fields, output_text_fields
from dragoman.dialects.responses.items import (
    call_fields,
    call_spec,
    is_input_lost,
    reasoning_fields,
    result_fields,
    result_spec,
)
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    OPAQUE_PART,
    PREFIXES,
    STRICT_PREFIXES,
    CallSpec,
    ResultSpec,
)
from dragoman.model.parts import (
    Annotation,
    Call,
    Extra,
    Opaque,
    Part,
    PartStatus,
    Reasoning,
    Refusal,
    Result,
    Text,
)

JsonObject = dict[str, object]
MessagePart = Text | Refusal | Opaque


def as_message_part(part: Part) -> MessagePart | None:
    """Return the part if it is content of a message, None if it is an item."""
    match part:
        case Text() | Refusal():
            return part
        case Opaque(dialect="responses", type=kind) if kind.startswith(OPAQUE_PART):
            return part
        case _:
            return None


class ItemWriter(Struct, eq=False):
    """Writes the items of one answer and notes losses."""

    _mint: Callable[[str], str]
    _book: LossBook
    _used: set[str] = set()

    def item_id(self, kind: str, given: str | None) -> str:
        """Return an id for an item: the upstream's, or a new one."""
        prefix = PREFIXES.get(kind, "item_")
        is_fine = bool(given) and (kind not in STRICT_PREFIXES or (given or "").startswith(prefix))
        item_id = given if given and is_fine and given not in self._used else self._mint(prefix)
        self._used.add(item_id)
        return item_id

    # --- messages ----------------------------------------------------------------------------------------------------

    def message(
        self, item_id: str, status: PartStatus, content: Sequence[object], extra: Extra | None
    ) -> JsonObject:
        return {
            "id": item_id,
            "type": "message",
            "status": _status(status),
            "role": "assistant",
            "content": list(content),
            **own_fields("responses", extra),
        }

    def content(self, part: MessagePart) -> object:
        """Return a whole content part."""
        match part:
            case Text():
                self._note_foreign(part, "output_text")
                fields = output_text_fields(part.text, self.annotations(part), part.logprobs)
                return {**fields, **own_fields("responses", part.extra)}
            case Refusal():
                self._note_foreign(part, "refusal")
                if part.logprobs is not None:
                    self._book.note("logprobs", "refusal")
                return {
                    "type": "refusal",
                    "refusal": part.text,
                    **own_fields("responses", part.extra),
                }
            case Opaque():
                return part.raw
            case _:
                assert_never(part)

    def empty_content(self, part: MessagePart) -> object:
        """Return a content part as `content_part.added` has it."""
        match part:
            case Text():
                return output_text_fields("")
            case Refusal():
                return {"type": "refusal", "refusal": ""}
            case Opaque():
                return part.raw
            case _:
                assert_never(part)

    def annotations(self, part: Text) -> list[Raw]:
        return [fields for one in part.annotations if (fields := self.annotation(one)) is not None]

    def annotation(self, annotation: Annotation) -> Raw | None:
        fields = annotation_fields(annotation)
        if fields is None:
            self._book.note("annotation", "output_text", f"from {annotation.dialect}")
        elif annotation.quote is not None and annotation.dialect != "responses":
            self._book.note("annotation", "output_text", "its quotation")
        return fields

    def _note_foreign(self, part: Text | Refusal, where: str) -> None:
        note_foreign(self._book, part.extra, where)
        note_foreign(self._book, part.item_extra, "message")

    # --- other items -------------------------------------------------------------------------------------------------

    def reasoning(self, part: Reasoning, item_id: str) -> JsonObject:
        note_foreign(self._book, part.extra, "reasoning")
        item = reasoning_fields(part, seal_to_encrypted(part.seals))
        # A reasoning item of OpenAI has a status only if it was cut.
        is_cut = part.status in ("incomplete", "failed")
        return {"id": item_id, **item, **({"status": "incomplete"} if is_cut else {})}

    def call_spec(self, call: Call) -> CallSpec | None:
        """Return the item type of a call; None, with a loss, if the call cannot be written."""
        spec = call_spec(call)
        if spec is None:
            self._book.note("provider_call", call.kind, call.name)
        return spec

    def call(self, call: Call, spec: CallSpec, item_id: str) -> JsonObject:
        if call.seals:
            self._book.note("call_seal", spec.type, call.name)
        note_foreign(self._book, call.extra, spec.type)
        if is_input_lost(call, spec):
            self._book.note("provider_call", spec.type, f"the input of {call.name}")
        item: JsonObject = {"id": item_id, **call_fields(call, spec)}
        if spec.has_status:
            item["status"] = call_status(spec, call.status)
        return item

    def result_spec(self, result: Result) -> ResultSpec | None:
        """Return the item type of a result; None, with a loss, if the result cannot be written."""
        spec = result_spec(result)
        if spec is None:
            self._book.note("provider_result", result.kind, result.call_id)
        return spec

    def result(self, result: Result, spec: ResultSpec, item_id: str) -> JsonObject:
        note_foreign(self._book, result.extra, spec.type)
        item: JsonObject = {"id": item_id, **result_fields(result, spec)}
        if spec.kind == "apply_patch":
            item["status"] = "failed" if result.is_error else "completed"
        elif spec.has_status:
            item["status"] = "incomplete" if result.is_error else _status(result.status)
        return item

    def opaque(self, part: Opaque) -> Raw | None:
        if part.dialect != "responses" or not read_object(part.raw):
            self._book.note("opaque_part", part.type, f"from {part.dialect}")
            return None
        return part.raw


def _status(status: PartStatus) -> str:
    """Return the status for the wire, where only provider calls may have `failed`."""
    return "incomplete" if status == "failed" else status


_NO_INCOMPLETE = {"apply_patch_call": "in_progress", "image_generation_call": "generating"}
_MAY_FAIL = frozenset(spec.type for spec in CALL_ITEMS.values() if spec.executor == "provider") - {
    "tool_search_call"
}


def call_status(spec: CallSpec, status: PartStatus) -> str:
    """Return the status of a call item for the wire."""
    if status == "failed" and spec.type in _MAY_FAIL:
        return "failed"
    word = _status(status)
    return _NO_INCOMPLETE.get(spec.type, word) if word == "incomplete" else word
