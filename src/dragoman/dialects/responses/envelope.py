"""The response object around an answer, at the beginning and at the end, with every field that strict clients expect."""

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from dragoman._json import Raw, dumps
from dragoman.core.credentials import credentials_of
from dragoman.core.fields import is_present, own_fields, read_object, read_text
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook, answer_book
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses.item_writer import JsonObject
from dragoman.dialects.responses.losses import LOSSES, note_foreign
from dragoman.dialects.responses.request import echo_settings, repeated_tools, settings_key
from dragoman.dialects.responses.wire import REASON_OF_FINISH, RESPONSE_FIELDS
from dragoman.model.events import Finished, Started
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call, Extra
from dragoman.model.request import Request

_DEFAULTS: Mapping[str, object] = {
    # Fields with which a response repeats its request, with OpenAI's values for a request that does not state them.
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
_NULLABLE = frozenset({"metadata", "reasoning"})
_NEVER_NULL = {name for name, value in _DEFAULTS.items() if value is not None} - _NULLABLE
_DEFAULT_ECHO = dumps(_DEFAULTS)[1:]
_NO_TOOLS = b"[]"
_DEFAULT_SETTINGS = {name: value for name, value in _DEFAULTS.items() if name != "tools"}
# The settings of clients, which repeat them with every request, as answers repeat them: at most 2 MiB, keys included. They
# save 5 % of a small request.
_CACHED_ECHOES = 128
_LONGEST_CACHED = 8192
_echoes: dict[tuple[object, ...], bytes] = {}

# Only the `required_action` profile may send `required_action`.
_HIDDEN = RESPONSE_FIELDS | {"required_action"}


def echo_of(request: Request | None, book: LossBook) -> bytes:
    """Return what an answer repeats of its request: the members of a JSON object, with the brace that closes it."""
    if request is None:
        return _DEFAULT_ECHO
    tools = repeated_tools(request, book)
    return b'"tools":%b,%b' % (_NO_TOOLS if tools is None else tools, _settings(request, book))


def _settings(request: Request, book: LossBook) -> bytes:
    """Return what an answer repeats of its request, except the tools. What most requests state is cached."""
    key = settings_key(request)
    try:
        found = None if key is None else _echoes.get(key)
    except TypeError:  # a raw value
        key = found = None
    if found is not None:
        return found
    known = len(book.losses)
    settings = dumps(_DEFAULT_SETTINGS | echo_settings(request, book))[1:]
    if key is not None and len(settings) <= _LONGEST_CACHED and len(book.losses) == known:
        if len(_echoes) >= _CACHED_ECHOES:
            _echoes.clear()
        _echoes[key] = settings
    return settings


def _merge(own: Mapping[str, object], request: Request | None, book: LossBook) -> bytes:
    """`own`: the same settings as the upstream reports them. Those that the client stated count, but for the tier that was used."""
    fields = {**_DEFAULTS, **own}
    if request is not None:
        tools = repeated_tools(request, book)
        if tools is not None:
            fields["tools"] = tools
        elif credentials_of(request):  # the upstream's list may have them, and the answer is stored
            fields["tools"] = []
        fields |= echo_settings(request, book)
    if "service_tier" in own:
        fields["service_tier"] = own["service_tier"]
    return dumps(fields)[1:]


def model_of(given: str, context: EncodeContext) -> str:
    """Return the model's name: as the client named it, if that is known; else as the upstream did."""
    if context.model is not None:
        return context.model
    asked = "" if context.request is None else context.request.model
    return asked or given  # a request with a stored prompt may name no model


def completed_at(status: str, context: EncodeContext) -> int | None:
    """Return the time for an answer that is completed now."""
    if status != "completed" or context.clock is None:
        return None
    return int(context.clock())


class Envelope:
    """The response object of one answer. `id`: the response's id.

    The fields that repeat the request are written once, and copied into each snapshot of the object.
    """

    def __init__(
        self,
        started: Started,
        context: EncodeContext,
        mint: Callable[[str], str],
        book: LossBook,
    ) -> None:
        self.id = response_id(started.response_id, context, mint)
        is_ours = started.created is None or context.is_queued
        self._created = context.created if is_ours else started.created
        self._model = model_of(started.model, context)
        self._context = context
        self._book = book
        self._completed: object = None
        self._own: dict[str, Raw] = {}
        self._echo = b""
        self.add(started.extra)
        if not self._echo:
            self._echo = echo_of(context.request, book)

    def add(self, extra: Extra | None) -> None:
        """Add fields of the answer that an upstream of this dialect has reported."""
        own = _own(extra)
        if own:
            self._completed = own.pop("completed_at", self._completed)
            self._own |= own
            self._echo = _merge(self._own, self._context.request, self._book)

    def write(
        self, status: str, output: Sequence[object] = (), usage: Usage | None = None, **more: object
    ) -> bytes:
        """Return the object as JSON for one SSE data line."""
        fields: JsonObject = {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "completed_at": None if status == "failed" else self._done(status),
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": output,
            "usage": None if usage is None else usage_fields(usage),
            **more,
        }
        return b"".join((dumps(fields)[:-1], b",", self._echo))

    def _done(self, status: str) -> object:
        return completed_at(status, self._context) if self._completed is None else self._completed


def bare_response(status: str, context: EncodeContext) -> bytes:
    """Return the response object of an answer of which nothing was sent. `context` has its id and its request."""
    book = answer_book(LOSSES, context.losses)
    return Envelope(Started(), context, Minter(context.seed), book).write(status)


def response_id(given: str, context: EncodeContext, mint: Callable[[str], str]) -> str:
    """Return the answer's id: the context's, or the upstream's if it fits, or a new one."""
    if context.response_id:
        return context.response_id
    return given if given.startswith("resp_") else mint("resp_")


def _own(extra: Extra | None) -> dict[str, Raw]:
    return {
        key: value
        for key, value in own_fields("responses", extra).items()
        if key not in _HIDDEN and (key not in _NEVER_NULL or is_present(value))
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
