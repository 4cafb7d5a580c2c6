"""The response object around an answer, at the beginning and at the end, with every field that strict clients expect."""

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from dragoman._json import Raw, dumps
from dragoman.core.fields import own_fields, read_object, read_text
from dragoman.core.losses import LossBook
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses.item_writer import JsonObject
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.wire import REASON_OF_FINISH, RESPONSE_FIELDS
from dragoman.model.events import Finished, Started
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call, Extra

_DEFAULTS: Mapping[str, object] = {
    # Fields with which a response repeats its request. Events do not carry them, so they have OpenAI's defaults.
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
ECHO = b"," + dumps(_DEFAULTS)[1:]
"""The defaults as JSON that is appended to the fields of an answer."""

# Only the `required_action` profile may send `required_action`.
_HIDDEN = RESPONSE_FIELDS | {"required_action"}


class Envelope:
    """The response object of one answer. `id`: the response's id."""

    def __init__(
        self, started: Started, context: EncodeContext, mint: Callable[[str], str]
    ) -> None:
        self.id = response_id(started.response_id, context, mint)
        self._created = context.created if started.created is None else started.created
        self._model = started.model if context.model is None else context.model
        self._previous = context.previous_id
        self._own = dict(_echo(started.extra))

    def add(self, extra: Extra | None) -> None:
        """Add the extra fields of the end."""
        self._own.update(_echo(extra))

    def fields(
        self, status: str, output: Sequence[object] = (), usage: Usage | None = None, **more: object
    ) -> JsonObject:
        envelope: JsonObject = {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": list(output),
            "usage": None if usage is None else usage_fields(usage),
            **_DEFAULTS,
            **self._own,
            **more,
        }
        if self._previous is not None:
            envelope["previous_response_id"] = self._previous
        return envelope


def response_id(given: str, context: EncodeContext, mint: Callable[[str], str]) -> str:
    """Return the answer's id: the context's, or the upstream's if it fits, or a new one."""
    if context.response_id:
        return context.response_id
    return given if given.startswith("resp_") else mint("resp_")


def _echo(extra: Extra | None) -> Mapping[str, Raw]:
    return {
        key: value for key, value in own_fields("responses", extra).items() if key not in _HIDDEN
    }


_FILTERED = {"reason": "content_filter"}


class TerminalEvent(Struct, frozen=True):
    """How an answer ends: the event, the status, and the details of an incomplete answer."""

    event: str
    status: str
    details: object = None


def ending_of(finished: Finished, book: LossBook, *, has_refusal: bool) -> TerminalEvent:
    """Return the terminal event for a finish reason. OpenAI ends a truncated answer with `response.incomplete`.

    has_refusal: a part of the answer is a refusal, which shows the reason, so that the answer is complete.
    """
    if finished.stop_sequence is not None:
        book.note("stop_sequence", "finish")
    note_foreign(book, finished.extra, "finish")
    own = own_fields("responses", finished.extra)
    lost = own.keys() - {"status", "incomplete_details"}
    if lost:
        book.note("unknown_field", "finish", ", ".join(sorted(lost)))
    match finished.reason:
        case "length" | "context_window" | "content_filter" | "pause" as reason:
            if "status" in own:
                return TerminalEvent(
                    "response.incomplete", read_text(own.get("status")) or "incomplete"
                )
            if "incomplete_details" not in own and reason in ("context_window", "pause"):
                book.note("finish_detail", "finish", reason)
            details = {"reason": REASON_OF_FINISH[reason]}
            return TerminalEvent(
                "response.incomplete", "incomplete", own.get("incomplete_details", details)
            )
        case "cancelled":
            # The status says `cancelled`; `steered` is the vendor's reason for an interrupted answer.
            return TerminalEvent("response.incomplete", "cancelled", {"reason": "steered"})
        case "error":
            return TerminalEvent("response.failed", "failed")
        case "refusal" if not has_refusal:
            # Another vendor's refusal may come in the middle of a text: as `completed` it would pass for an answer.
            book.note("finish_detail", "finish", "refusal")
            return TerminalEvent("response.incomplete", "incomplete", _FILTERED)
        case "refusal":
            book.note("finish_detail", "finish", "refusal")
            return TerminalEvent("response.completed", "completed")
        case "stop" | "stop_sequence" | "tool_calls":
            return TerminalEvent("response.completed", "completed")
        case _:
            assert_never(finished.reason)


def usage_fields(usage: Usage) -> JsonObject:
    """Return every field that the SDK demands, with 0 for counts that were not reported."""
    spent, made = usage.input or 0, usage.output or 0
    own = own_fields("responses", usage.extra)
    inputs: JsonObject = {
        "cached_tokens": usage.cached or 0,
        "cache_write_tokens": usage.cache_write or 0,
    }
    outputs: JsonObject = {"reasoning_tokens": usage.reasoning or 0}
    if usage.input_audio is not None:
        inputs["audio_tokens"] = usage.input_audio
    if usage.output_audio is not None:
        outputs["audio_tokens"] = usage.output_audio
    if own:
        inputs |= read_object(own.get("input_tokens_details"))
        outputs |= read_object(own.get("output_tokens_details"))
    return {
        **own,
        "input_tokens": spent,
        "input_tokens_details": inputs,
        "output_tokens": made,
        "output_tokens_details": outputs,
        "total_tokens": spent + made if usage.total is None else usage.total,
    }


def required_action(calls: Sequence[Call]) -> JsonObject:
    """Return the calls that wait for the client, as the `required_action` profile lists them."""
    return {
        "type": "submit_tool_outputs",
        "submit_tool_outputs": {"tool_calls": [_waiting(call) for call in calls]},
    }


def _waiting(call: Call) -> JsonObject:
    if call.kind == "custom":
        return {
            "id": call.call_id,
            "type": "custom",
            "custom": {"name": call.name, "input": call.input},
        }
    function: JsonObject = {"name": call.name, "arguments": call.input}
    if call.namespace is not None:
        function["namespace"] = call.namespace
    return {"id": call.call_id, "type": "function", "function": function}
