"""Finds the events that every client can use unchanged.

A usable stream begins with `response.created` and an empty output, announces every item and every content part before
its deltas, sends the input of calls as deltas, ends every item, and repeats all items in `response.completed`. Items have
ids that OpenAI accepts on replay, a place in the output, and a status. No client needs `event:` lines, sequence numbers,
the `.done` events of parts or the details of usage.
"""

from collections.abc import Sequence

from dragoman._json import FAST_FAILURES, dumps_text
from dragoman.core.credentials import credentials_of
from dragoman.dialects.codec import EncodeContext, FrameVerdict
from dragoman.dialects.responses.events import HANDLERS
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    KEEPALIVE_EVENTS,
    OPENING_EVENTS,
    PREFIXES,
    REASONING_DELTAS,
    REFUSAL_DELTA,
    STRICT_PREFIXES,
    TERMINAL_EVENTS,
    TEXT_DELTA,
    UsableEvent,
    UsableItem,
    UsableResponse,
    decode_named_item,
    decode_string,
    decode_usable_body,
    decode_usable_event,
    decode_usable_item,
    decode_usable_response,
)
from dragoman.model.events import (
    Event,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.sse import Frame, encode_comment

_KNOWN_EVENTS = HANDLERS.keys() | OPENING_EVENTS | TERMINAL_EVENTS
_WITH_INPUT = frozenset({"function_call", "custom_tool_call"})
_WITH_STATUS = frozenset({"message", *_WITH_INPUT})
_WITH_DELTAS = frozenset({"message", "reasoning", *_WITH_INPUT})
_SUMMARY_EVENTS = frozenset({"response.reasoning_summary_part.added", REASONING_DELTAS["summary"]})
_INPUT_DELTAS = frozenset(f"{CALL_ITEMS[kind].events}.delta" for kind in _WITH_INPUT)
_INDEXED_DELTAS = frozenset({TEXT_DELTA, REFUSAL_DELTA, *REASONING_DELTAS.values()})
_REPETITIONS = frozenset(
    {
        "response.content_part.done",
        *(name.removesuffix("delta") + "done" for name in _INPUT_DELTAS | _INDEXED_DELTAS),
    }
)
"""Events that repeat what deltas have sent; clients do not read them. The same holds for the end of an item, except an
item of a tool that the provider runs: such items have no deltas."""


class ResponsesCheck:
    """A `codec.FrameCheck` for Responses."""

    harmless: frozenset[str] = frozenset()
    ending = b""  # no fixed bytes can replace the last event, which repeats the whole output
    model_path: tuple[str, ...] = ("response", "model")
    has_default_input = False
    choices = 1

    def __init__(self, context: EncodeContext) -> None:
        self._context = context
        # No upstream sends the end of this profile.
        self._waits = context.profile == "required_action"
        self._id = ""
        self._items: list[tuple[str, str]] = []  # type and id of the announced items
        self._ids: set[str] = set()  # of the announced items
        self._is_open = False  # the last item
        self._call: tuple[str | None, ...] = ()  # call id, name and namespace of the last item
        self._parts = {False: 0, True: 0}  # parts of the open item: False content, True summary
        # An item or part was announced, and the reader has not emitted its event yet.
        self._awaits_part = False
        self._awaits_thought = False

    @property
    def is_ahead(self) -> bool:
        return self._awaits_part or self._awaits_thought

    def look(self, frame: Frame, data: bytes, events: Sequence[Event]) -> FrameVerdict:
        try:
            event = decode_usable_event(data)
            name = frame.name
            if name and name != event.type.encode("utf-8", "replace"):
                return FrameVerdict(
                    problem=f"expected the event name {event.type}, got {name[:40]!r}"
                )
            look = self._look(event)
        except FAST_FAILURES as error:
            return FrameVerdict(problem=str(error))
        if not look.problem and self._is_repetition(event) and any(map(_is_delta, events)):
            look = FrameVerdict(problem=f"expected the whole content in deltas before {event.type}")
        self.take(events)
        return look

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, PartStarted):
                self._awaits_part = False
            elif isinstance(event, (ReasoningDelta, PartEnded)):
                self._awaits_thought = False

    def plain(self, raw: bytes, count: int) -> bytes | None:  # noqa: ARG002 -- other dialects need it
        return raw

    def keep_alive(self) -> bytes:
        # Without a number: the upstream assigns the next one.
        frame = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'
        return frame if self._id else encode_comment("keep-alive")

    def _look(self, event: UsableEvent) -> FrameVerdict:
        match event.type:
            case "response.created":
                return self._look_at_start(event)
            case "response.in_progress" | "response.queued":
                response = decode_usable_response(event.response)
                return FrameVerdict(self._expect_id(response.id), model=response.model)
            case "response.output_item.added":
                return FrameVerdict(problem=self._look_at_item(event))
            case "response.output_item.done":
                return FrameVerdict(problem=self._look_at_item_end(event))
            case "response.content_part.added" | "response.reasoning_summary_part.added":
                return FrameVerdict(problem=self._look_at_part(event))
            case "response.completed" | "response.incomplete":
                return self._look_at_end(event)
            case "response.failed":
                return _look_at_failure(event)
            case "keepalive":
                return FrameVerdict()
            case "error" | "response.cancelled" | "response.done":
                return FrameVerdict(problem=f"expected response.completed, got {event.type}")
            case name if name in KEEPALIVE_EVENTS or name not in _KNOWN_EVENTS:
                return FrameVerdict(is_stray=True)
            case name if name.endswith(".delta") and not name.startswith("response.audio"):
                return self._look_at_delta(event)
            case _:
                return FrameVerdict()

    def _is_repetition(self, event: UsableEvent) -> bool:
        is_end = event.type == "response.output_item.done" and self._items[-1][0] in _WITH_DELTAS
        return is_end or event.type in _REPETITIONS

    def _expect_id(self, response_id: str) -> str:
        return "" if response_id == self._id else f"expected id {self._id!r}, got {response_id!r}"

    def _look_at_start(self, event: UsableEvent) -> FrameVerdict:
        response = decode_usable_response(event.response)
        if response.output or not response.id.startswith("resp_"):
            return FrameVerdict(problem="expected an id that begins with resp_, and no output yet")
        if _repeats_credentials(response, self._context):
            return FrameVerdict(problem="expected tools without credentials, the answer is stored")
        self._id = response.id
        return FrameVerdict(model=response.model)

    def _look_at_item(self, event: UsableEvent) -> str:
        """Check an announced item."""
        item = decode_usable_item(event.item)
        if event.output_index != len(self._items) or self._is_open:
            return f"expected item {len(self._items)} after the end of the one before it"
        if item.id in self._ids or not _is_usable(item, is_done=False):
            return f"expected every field that clients read in a new {item.type}"
        self._items.append((item.type, item.id))
        self._ids.add(item.id)
        self._is_open = True
        self._call = (item.call_id, item.name, item.namespace)
        self._parts = {False: 0, True: 0}
        self._awaits_part = True
        return ""

    def _look_at_item_end(self, event: UsableEvent) -> str:
        item = decode_usable_item(event.item)
        place = (event.output_index, item.type, item.id)
        if not self._is_open or place != (len(self._items) - 1, *self._items[-1]):
            return "expected the end of the open item"
        if (item.call_id, item.name, item.namespace) != self._call:
            return "expected the same call_id, name and namespace as in output_item.added"
        is_complete = item.type != "message" or item.status == "completed"
        if not is_complete or not _is_usable(item, is_done=True):
            return f"expected every field that clients read in a complete {item.type}"
        self._is_open = False
        return ""

    def _look_at_part(self, event: UsableEvent) -> str:
        is_summary = event.type in _SUMMARY_EVENTS
        index = event.summary_index if is_summary else event.content_index
        if index != self._parts[is_summary] or not self._is_about_open_item(event):
            return f"expected part {self._parts[is_summary]} of the open item"
        self._parts[is_summary] += 1
        if self._items[-1][0] == "reasoning":
            self._awaits_thought = True
        else:
            self._awaits_part = True
        return ""

    def _is_about_open_item(self, event: UsableEvent) -> bool:
        place = (event.output_index, event.item_id)
        return self._is_open and place == (len(self._items) - 1, self._items[-1][1])

    def _look_at_delta(self, event: UsableEvent) -> FrameVerdict:
        is_summary = event.type in _SUMMARY_EVENTS
        index = event.summary_index if is_summary else event.content_index
        if not event.item_id or event.output_index is None:
            return FrameVerdict(problem=f"expected item_id and output_index in {event.type}")
        if event.type in _INDEXED_DELTAS and (index is None or index >= self._parts[is_summary]):
            return FrameVerdict(problem=f"expected the index of an open part in {event.type}")
        is_input = event.type in _INPUT_DELTAS
        return FrameVerdict(input_size=len(decode_string(event.delta)) if is_input else 0)

    def _look_at_end(self, event: UsableEvent) -> FrameVerdict:
        response = decode_usable_response(event.response)
        is_complete = event.type == "response.completed"
        problem = self._expect_id(response.id)
        if self._waits and any(kind in _WITH_INPUT for kind, _ in self._items):
            problem = "expected the end of the required_action profile"
        if is_complete and response.status not in (None, "completed"):
            problem = f"expected the status completed, got {response.status!r}"
        if not is_complete and response.incomplete_details is None:
            problem = "expected incomplete_details"
        named = [decode_named_item(raw) for raw in response.output]
        if self._is_open or [(item.type, item.id) for item in named] != self._items:
            problem = problem or "expected the output again at the end"
        calls = [
            raw
            for raw, item in zip(response.output, named, strict=True)
            if item.type in _WITH_INPUT
        ]
        if is_complete and not all(
            _is_usable(decode_usable_item(raw), is_done=True) for raw in calls
        ):
            problem = problem or "expected the calls again at the end, whole"
        return FrameVerdict(problem, model=response.model)


def is_usable_body(data: bytes, context: EncodeContext, _is_typed: bool) -> bool:  # noqa: FBT001 -- see `Codec`
    """Return whether every client can use a whole answer unchanged. The reader checks the rest of the answer."""
    try:
        response = decode_usable_body(data)
        items = [decode_usable_item(raw) for raw in response.output]
    except FAST_FAILURES:
        return False
    for item in items:
        is_message = item.type == "message"
        if is_message and item.role != "assistant":
            return False
        if not _is_usable(item, is_done=is_message or item.status == "completed"):
            return False
    return bool(response.id) and not _repeats_credentials(response, context)


def _repeats_credentials(response: UsableResponse, context: EncodeContext) -> bool:
    """Return whether an answer that is stored has the credentials of the client's tools, as the upstream got them."""
    if context.notes is None or context.request is None or not response.tools:
        return False
    tools = bytes(response.tools)
    return any(dumps_text(each)[1:-1] in tools for each in credentials_of(context.request))


def _is_usable(item: UsableItem, *, is_done: bool) -> bool:
    """Return whether an item has every field that clients read and send back."""
    if not item.id or (item.type in _WITH_STATUS and item.status is None):
        return False
    if item.type in STRICT_PREFIXES and not item.id.startswith(PREFIXES[item.type]):
        return False
    match item.type:
        case "function_call" | "custom_tool_call":
            given = bytes(item.arguments if item.type == "function_call" else item.input)
            if is_done and item.type == "function_call" and given == b'""':
                # Clients parse it; the arguments of a closed call without any are `{}`.
                return False
            is_named = bool(item.call_id) and bool(item.name)
            is_text = given[:1] == b'"'
            return is_named and is_text and (not is_done or item.status == "completed")
        case "message":
            if item.content is None or (item.content and not is_done):
                return False
            for part in item.content:
                if part.type == "output_text" and part.annotations is None:
                    return False
            return True
        case "reasoning":
            return item.summary is not None
        case _:
            return True


def _is_delta(event: Event) -> bool:
    return isinstance(event, (TextDelta, ReasoningDelta, InputDelta))


def _look_at_failure(event: UsableEvent) -> FrameVerdict:
    response = decode_usable_response(event.response)
    if response.error is None or not response.error.message:
        return FrameVerdict(problem="expected an error with a message in the failed response")
    return FrameVerdict(is_error=True, model=response.model)
