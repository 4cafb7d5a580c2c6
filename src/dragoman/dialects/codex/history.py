"""A conversation as the items that `thread/inject_items` takes: the Responses API's, as far as Codex knows them.

Items have no ids: Codex gives them its own, and without them the same conversation is the same bytes on every request,
which is how a held turn knows that a request continues it. Only sealed reasoning keeps its id, which the seal is bound to.
"""

from collections.abc import Sequence
from typing import assert_never

from dragoman.core.aliases import NameMap, alias_id
from dragoman.core.freeform import wrap_input
from dragoman.core.losses import LossBook, instruction_texts, note_opaque
from dragoman.core.results import mark_error
from dragoman.core.seals import seal_to_encrypted, split_family
from dragoman.dialects.base import Target
from dragoman.dialects.codex.losses import note_foreign
from dragoman.model.parts import (
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from dragoman.model.request import Turn

__all__ = ("History", "split_instructions")

_Item = dict[str, object]

_INSTRUCTING = frozenset({"system", "developer"})


def split_instructions(turns: Sequence[Turn], book: LossBook) -> tuple[str, list[tuple[int, Turn]]]:
    """The text that stands before the conversation, and the conversation with the numbers of its turns."""
    texts: list[str] = []
    rest: list[tuple[int, Turn]] = []
    for number, turn in enumerate(turns):
        if not turn.head and (rest or turn.role not in _INSTRUCTING or not _is_text(turn)):
            rest.append((number, turn))
            continue
        where = f"turns[{number}]"
        texts += instruction_texts(turn, where, book, note_foreign)
    return "\n\n".join(texts), rest


def _is_text(turn: Turn) -> bool:
    return all(isinstance(part, Text) for part in turn.parts)


class History:
    """Writes the items of one request."""

    def __init__(self, names: NameMap, target: Target, book: LossBook) -> None:
        self._names = names
        self._ids = target.ids
        self._book = book

    def write(self, turns: Sequence[tuple[int, Turn]]) -> list[_Item]:
        out: list[_Item] = []
        for number, turn in turns:
            where = f"turns[{number}]"
            note_foreign(self._book, turn.extra, where)
            if turn.cache is not None:
                self._book.note("cache_control", where)
            if turn.name is not None:
                self._book.note("message_name", where, turn.name)
            self._write_turn(turn, where, out)
        return out

    def _write_turn(self, turn: Turn, where: str, out: list[_Item]) -> None:
        content: list[_Item] = []
        for part in turn.parts:
            self._inspect(part, where)
            match part:
                case Text() | Refusal():
                    content.append(_text(turn, part.text))
                case Media():
                    content += self._media(turn, part, where)
                case Reasoning() | Call() | Result() | Opaque():
                    item = self._item(part, where)
                    if item is not None:
                        out += _message(turn, content)
                        content = []
                        out.append(item)
                case _:
                    assert_never(part)
        out += _message(turn, content)

    def _inspect(self, part: Part, where: str) -> None:
        if isinstance(part, Opaque):
            return
        note_foreign(self._book, part.extra, where)
        if not isinstance(part, Refusal) and part.cache is not None:
            self._book.note("cache_control", where)
        if isinstance(part, Text):
            if part.annotations:
                self._book.note("annotation", where)
            if part.logprobs is not None:
                self._book.note("logprobs", where)
        if isinstance(part, Result):
            for each in part.content:
                self._inspect(each, where)

    def _media(self, turn: Turn, media: Media, where: str) -> list[_Item]:
        """An image; other media become a word about them where the policy says to carry on."""
        image = None if turn.role == "assistant" else _image(media)
        if image is not None:
            return [image]
        code = "audio_input" if media.kind == "audio" else "media_input"
        if turn.role == "assistant":
            code = "assistant_media"
        action = self._book.note(code, where, media.media_type or media.kind)
        return [_text(turn, f"[{media.kind}]")] if action == "carry" else []

    def _item(self, part: Reasoning | Call | Result | Opaque, where: str) -> _Item | None:
        match part:
            case Reasoning():
                return self._reasoning(part, where)
            case Call():
                return self._call(part, where)
            case Result():
                return self._result(part, where)
            case Opaque():
                note_opaque(self._book, "opaque_part", where, part)
                return None
            case _:
                assert_never(part)

    def _reasoning(self, part: Reasoning, where: str) -> _Item | None:
        own, foreign = split_family(part.seals, "openai")
        if foreign:
            self._book.note("foreign_seal", where)
        if not own:
            if not foreign:
                self._book.note("reasoning_text", where)
            return None
        item: _Item = {"type": "reasoning"}
        bound = next((seal.item_id for seal in own if seal.item_id is not None), part.item_id)
        if bound is not None and bound.startswith("rs_"):
            item["id"] = bound
        item["summary"] = [{"type": "summary_text", "text": text} for text in part.summary]
        item["content"] = None
        item["encrypted_content"] = seal_to_encrypted(own)
        return item

    def _call(self, part: Call, where: str) -> _Item | None:
        if part.executor == "provider":
            self._book.note("provider_call", where, part.name)
            return None
        if part.seals:
            self._book.note("call_seal", where, part.name)
        return {
            "type": "function_call",
            "name": self._names.wire(part.name, part.namespace),
            "arguments": wrap_input(part.input) if part.kind == "custom" else part.input or "{}",
            "call_id": alias_id(part.call_id, self._ids),
        }

    def _result(self, part: Result, where: str) -> _Item | None:
        if part.executor == "provider":
            self._book.note("provider_result", where, part.kind)
            return None
        if part.is_error:
            self._book.note("error_flag", where)
        return {
            "type": "function_call_output",
            "call_id": alias_id(part.call_id, self._ids),
            "output": self._output(part, where),
        }

    def _output(self, result: Result, where: str) -> object:
        """A string where one text is all there is, else a list of parts: as Codex itself writes it."""
        parts: list[_Item] = []
        for part in result.content:
            match part:
                case Text():
                    parts.append({"type": "input_text", "text": part.text})
                case Media():
                    image = _image(part)
                    if image is None:
                        self._book.note("media_input", where, part.media_type or part.kind)
                    parts.append(image or {"type": "input_text", "text": f"[{part.kind}]"})
                case Opaque():
                    note_opaque(self._book, "opaque_part", where, part)
                case _:
                    assert_never(part)
        if result.is_error:
            first = parts[0] if parts and parts[0]["type"] == "input_text" else None
            if first is None:
                parts.insert(0, {"type": "input_text", "text": mark_error("")})
            else:
                first["text"] = mark_error(str(first["text"]))
        if not parts:
            return ""
        is_single = len(parts) == 1 and parts[0]["type"] == "input_text"
        return parts[0]["text"] if is_single else parts


def _message(turn: Turn, content: list[_Item]) -> list[_Item]:
    if not content:
        return []
    # Content of a tool turn that is no result has no other place than the user's side.
    roles = {"tool": "user", "system": "developer"}
    role = roles.get(turn.role, turn.role)
    return [{"type": "message", "role": role, "content": content}]


def _text(turn: Turn, text: str) -> _Item:
    return {"type": "output_text" if turn.role == "assistant" else "input_text", "text": text}


def _image(media: Media) -> _Item | None:
    if media.kind != "image":
        return None
    if media.data is not None:
        url = f"data:{media.media_type or 'image/png'};base64,{media.data}"
    elif media.url is not None:
        url = media.url
    else:
        return None
    out: _Item = {"type": "input_image", "image_url": url}
    if media.detail is not None:
        out["detail"] = media.detail
    return out
