"""A completed response as OpenAI writes it, by its type alone: messages of text, calls of functions, reasoning. Both ways.

Whatever else a response holds does not fit, and is read item by item (`ledger`) and written part by part (`body`). Where
both ways can take an answer they say the same. Fields typed `None` may be null but not more.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, as_object, dumps, is_strict, typed_decoder
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.core.plain import plain_parts
from dragoman.core.seals import seal_to_encrypted, seals_from_encrypted
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.responses.answer import read_end, read_extra, read_usage
from dragoman.dialects.responses.envelope import ECHO, response_id, usage_fields
from dragoman.dialects.responses.items import reasoning_fields
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.wire import LATE_FIELDS, PREFIXES, RegularCall
from dragoman.dialects.responses.writing import JsonObject
from dragoman.model.outcome import Choice, Outcome
from dragoman.model.parts import Call, Part, Reasoning, Text
from dragoman.sse import is_utf8

__all__ = ("read_plain", "write_plain")

_MESSAGE = PREFIXES["message"]
_CALL = PREFIXES["function_call"]
_REASONING = PREFIXES["reasoning"]


class _Text(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["output_text"]  # as a tag it could be left out: only unions demand one
    text: str
    annotations: tuple[()]
    logprobs: tuple[()] | None = None


class _Message(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="message"):
    id: str
    status: Literal["completed"]
    content: list[_Text]
    role: str = ""


class _Summary(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["summary_text"]
    text: str


class _Reasoning(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="reasoning"):
    id: str
    summary: list[_Summary]
    encrypted_content: str | None = None
    content: tuple[()] | None = None
    status: Literal["completed"] | None = None


class _Response(Struct, gc=False):
    """All but what has no home: that is what remains of the object's fields."""

    output: list[_Message | RegularCall | _Reasoning]
    status: Literal["completed"]
    id: str | None = None
    model: str | None = None
    created_at: int | None = None
    incomplete_details: None = None


_decode = typed_decoder(_Response)


def read_plain(data: bytes) -> Outcome | None:
    """What a response amounts to; None if a closer look is needed."""
    try:
        response = _decode(data)
        fields = as_object(data, is_utf8=True)
    except FAST_FAILURES:
        return None
    parts: list[Part] = []
    ids: set[str] = set()
    call_ids: set[str] = set()
    calls = 0
    for item in response.output:
        ids.add(item.id)
        if isinstance(item, RegularCall):
            if not _is_regular(item):
                return None
            call_ids.add(item.call_id)
            calls += 1
            parts.append(
                Call(
                    call_id=item.call_id,
                    name=item.name,
                    input=item.arguments,
                    namespace=item.namespace or None,
                    item_id=item.id,
                )
            )
        elif isinstance(item, _Reasoning):
            if not item.id.startswith(_REASONING):
                return None
            parts.append(
                Reasoning(
                    summary=tuple(entry.text for entry in item.summary),
                    seals=seals_from_encrypted(item.encrypted_content),
                    item_id=item.id,
                )
            )
        else:
            if not item.id.startswith(_MESSAGE) or not all(text.text for text in item.content):
                return None
            parts.extend(Text(text=text.text, item_id=item.id) for text in item.content)
    is_unique = len(ids) == len(response.output) and len(call_ids) == calls
    if not is_unique or not (data.isascii() or is_utf8(data)):
        return None
    usage = read_usage(fields.get("usage"))
    if usage is not None and (usage.input is None or usage.output is None or usage.total is None):
        return None
    extra = read_extra(fields)
    return Outcome(
        response_id=response.id or "",
        model=response.model or "",
        created=response.created_at,
        choices=(Choice(parts=tuple(parts), finish="tool_calls" if calls else "stop"),),
        usage=usage,
        completed=True,
        started_extra=extra,
        completed_extra=None if LATE_FIELDS.isdisjoint(fields) else read_end(fields, extra),
    )


def _is_regular(call: RegularCall) -> bool:
    return (
        call.status == "completed"
        and call.id.startswith(_CALL)
        and call.call_id != ""
        and call.name != ""
        and is_strict(call.arguments)
    )


class _WrittenText(Struct, gc=False):
    type: str
    annotations: tuple[()]
    logprobs: tuple[()]
    text: str


class _WrittenMessage(Struct, gc=False):
    id: str
    type: str
    status: str
    role: str
    content: tuple[_WrittenText]


class _WrittenCall(Struct, gc=False):
    id: str
    type: str
    call_id: str
    name: str
    arguments: str
    status: str


_WrittenItem = _WrittenMessage | _WrittenCall | JsonObject


class _Written(Struct, gc=False):
    """The beginning of a response; `ECHO` is the rest."""

    id: str
    object: str
    created_at: int
    status: str
    error: None
    incomplete_details: dict[str, str] | None
    model: str
    output: list[_WrittenItem]
    usage: JsonObject | None


_CUT = {"reason": "max_output_tokens"}


def write_plain(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes | None:
    """The response of a plain answer; None if it must be written part by part."""
    parts = plain_parts(outcome, "responses")
    if parts is None or context.profile != "default" or context.previous_id is not None:
        return None
    mint = Minter(context.seed or outcome.response_id)
    called = response_id(outcome.response_id, context, mint)
    output: list[_WrittenItem] = []
    for part in parts:
        if part.item_id is not None:
            return None  # of ids from elsewhere not all are taken
        if isinstance(part, Text):
            text = _WrittenText("output_text", (), (), part.text)
            message = (mint("msg_"), "message", "completed", "assistant", (text,))
            output.append(_WrittenMessage(*message))
        elif isinstance(part, Call):
            call = (mint("fc_"), "function_call", part.call_id, part.name, part.input, "completed")
            output.append(_WrittenCall(*call))
        else:
            fields = reasoning_fields(part, seal_to_encrypted(part.seals))
            output.append({"id": mint("rs_"), **fields})
    usage = outcome.usage
    for extra in (outcome.started_extra, outcome.completed_extra):
        if extra is not None:
            note_foreign(book, extra, "response")
    if usage is not None and usage.extra is not None:
        note_foreign(book, usage.extra, "usage")
    is_cut = outcome.choices[0].finish == "length"
    written = _Written(
        called,
        "response",
        context.created if outcome.created is None else outcome.created,
        "incomplete" if is_cut else "completed",
        None,
        _CUT if is_cut else None,
        outcome.model if context.model is None else context.model,
        output,
        None if usage is None else usage_fields(usage),
    )
    return dumps(written)[:-1] + ECHO
