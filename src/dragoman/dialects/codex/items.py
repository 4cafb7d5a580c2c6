"""The items of one Codex turn, as parts: messages, reasoning and calls. `decode` handles threads and turns.

After a broken connection Codex starts the same item again from the beginning of its text. Emitted text cannot be
withdrawn, so the first attempt ends as an incomplete part and the second is a new part. Ids are the upstream's, and a
later item of the turn may have the same id.

Several messages report a call, and it is emitted once. A call of a client's tool comes as the model's own item
(`rawResponseItem/completed`, only when asked for, with the exact argument text), as `item/started`, as the request
`item/tool/call`, and as `item/completed` once it is answered. The first of these messages emits the call, whole and closed:
Codex sends no argument deltas, and no message before the model has finished the call. The messages share a `call_id`.

A model may use an id again later in the turn. So after a call has been answered, a second message of the same kind is
about a new call.

Executor: a call of a tool that the client offered is the client's; if the tools are unknown, every function call is. A
call whose arguments are not JSON never reaches the client (Codex answers the model itself), nor does a freeform call,
which only Codex's own tools have.
"""

from collections.abc import Iterable
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import is_strict, raw
from dragoman.core.aliases import ToolKey
from dragoman.core.fields import (
    Fields,
    read_fragment,
    read_json,
    read_objects,
    read_text,
    read_texts,
)
from dragoman.core.open_parts import OpenCall, OpenReasoning, OpenText, Parts
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.codex.wire import extra_of, input_of, is_phantom
from dragoman.model.events import ReasoningChannel
from dragoman.model.parts import (
    Call,
    CallKind,
    Executor,
    Extra,
    Opaque,
    PartStatus,
    Reasoning,
    Result,
    Seal,
    Text,
)

_KNOWN = frozenset({"type", "id", "text", "summary", "content", "startedAtMs", "completedAtMs"})


class Items:
    """The open items of a turn by id, and the ids of the ended items."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._open: dict[str, OpenText | OpenReasoning] = {}
        self._ended: set[str] = set()

    def start(self, fields: Fields, *, is_message: bool) -> None:
        item_id = read_fragment(fields.get("id")) or ""
        extra = extra_of(fields, _KNOWN)
        if is_message:
            self._begin_message(item_id, extra).add(read_fragment(fields.get("text")) or "")
        else:
            self._begin_reasoning(item_id, extra)

    def add_text(self, item_id: str, text: str) -> None:
        message = self._open.get(item_id)
        if not isinstance(message, OpenText):
            self._report_missing_start(item_id)
            message = self._begin_message(item_id, None)
        message.add(text)

    def add_thought(self, item_id: str, text: str, channel: ReasoningChannel, index: int) -> None:
        reasoning = self._open.get(item_id)
        if not isinstance(reasoning, OpenReasoning):
            self._report_missing_start(item_id)
            reasoning = self._begin_reasoning(item_id, None)
        reasoning.add(text, channel, index)

    def complete(self, fields: Fields, *, is_message: bool) -> None:
        """Read the finished item. Text that the deltas lacked is emitted; where item and deltas differ, the item wins."""
        item_id = read_fragment(fields.get("id")) or ""
        item = self._open.get(item_id)
        if item is None and item_id in self._ended:
            return
        extra = extra_of(fields, _KNOWN)
        if is_message:
            if not isinstance(item, OpenText):
                item = self._begin_message(item_id, extra)
            item.complete(read_text(fields.get("text")) or "")
            item.value = replace(item.header, extra=extra or item.header.extra)
            self._end(item_id, "completed")
            return
        if not isinstance(item, OpenReasoning):
            item = self._begin_reasoning(item_id, extra)
        # Codex streams raw reasoning and then omits it here: an empty list removes nothing.
        channels: tuple[ReasoningChannel, ...] = ("summary", "content")
        for channel in channels:
            for index, entry in enumerate(read_texts(fields.get(channel))):
                item.complete(entry, channel, index)
        self._end(item_id, "completed", extra)

    def raw_message(self, fields: Fields) -> None:
        """Read the model's own message. An item has brought its text before, unless the caller asked for no items."""
        item_id = read_fragment(fields.get("id")) or ""
        is_known = item_id in self._ended or item_id in self._open
        if read_fragment(fields.get("role")) == "assistant" and not is_known:
            contents = read_objects(fields.get("content"))
            texts = [read_fragment(content.get("text")) or "" for content in contents]
            self._begin_message(item_id, None).add("".join(texts))
            self._end(item_id, "completed")

    def raw_reasoning(self, fields: Fields) -> None:
        """Read the seal of the model's own reasoning, which only this item has. A late seal makes a part of its own."""
        data = read_fragment(fields.get("encrypted_content")) or ""
        if not data:
            return
        item_id = read_fragment(fields.get("id")) or ""
        seal = Seal("encrypted", replace_lone(data))
        item = self._open.get(item_id)
        if isinstance(item, OpenReasoning):
            item.seal((seal,))
        else:
            self._begin_reasoning(item_id, None).seal((seal,))
            self._end(item_id, "completed")

    def abandon(self) -> None:
        """End every open item as incomplete."""
        for item_id in tuple(self._open):
            self._end(item_id, "incomplete")

    @property
    def is_idle(self) -> bool:
        return not self._open

    def _begin_message(self, item_id: str, extra: Extra | None) -> OpenText:
        self._end_repeated(item_id)
        message = OpenText(self._parts, Text(item_id=item_id or None, extra=extra))
        self._open[item_id] = message
        return message

    def _begin_reasoning(self, item_id: str, extra: Extra | None) -> OpenReasoning:
        self._end_repeated(item_id)
        reasoning = OpenReasoning(self._parts, Reasoning(item_id=item_id or None, extra=extra))
        self._open[item_id] = reasoning
        return reasoning

    def _end_repeated(self, item_id: str) -> None:
        if item_id in self._open:
            message = f"item {item_id!r} was started again before it was completed"
            self._parts.report("restarted_item", message)
            self._end(item_id, "incomplete")

    def _report_missing_start(self, item_id: str) -> None:
        message = f"expected item/started of {item_id!r} before its text"
        self._parts.report("missing_start", message)

    def _end(self, item_id: str, status: PartStatus, extra: Extra | None = None) -> None:
        """End an item. `extra`: the extra fields of a finished reasoning."""
        item = self._open.pop(item_id)
        if isinstance(item, OpenReasoning):
            item.end(status, replace(item.header, extra=extra or item.header.extra))
        else:
            item.end(status)
        if status == "completed":
            self._ended.add(item_id)


# --- calls -----------------------------------------------------------------------------------------------------------

Sighting = Literal["raw", "started", "request", "completed"]

# The namespace that Codex gives its plain tools; it means no namespace.
_PLAIN_NAMESPACE = "functions"


class KnownCall(Struct):
    """A call that was emitted in this answer or in an earlier answer of the same turn."""

    executor: Executor
    kind: CallKind
    sightings: set[Sighting] = set()
    answered: bool = False


class Calls:
    """The calls of one answer."""

    def __init__(self, parts: Parts, context: DecodeContext) -> None:
        self._parts = parts
        self._offered: set[ToolKey] = {(tool.namespace, tool.name) for tool in context.tools}
        self._is_offer_known = bool(self._offered)
        self._is_private = False
        self._known: dict[str, KnownCall] = {}
        self._numbers: dict[str, int] = {}

    @property
    def is_pending(self) -> bool:
        """Whether a client's call waits for its result."""
        return any(
            known.executor == "client" and not known.answered for known in self._known.values()
        )

    def offer(self, names: Iterable[str]) -> None:
        """Set the only tools that were offered. From now on calls of Codex's own tools are emitted as Opaque, not as calls,
        because some clients run every call they receive."""
        self._offered = {(None, name) for name in names}
        self._is_offer_known = self._is_private = True

    def note_earlier(self, call_ids: Iterable[str]) -> None:
        """Note the calls that an earlier answer of this turn has emitted."""
        for call_id in call_ids:
            self._known[call_id] = KnownCall("client", "function", {"raw", "started", "request"})

    def part_of(self, call_id: str) -> int | None:
        """Return the number of the call's part in this answer."""
        return self._numbers.get(call_id)

    def see(self, sighting: Sighting, fields: Fields, seed: str) -> bool:
        """Read a call of a client's tool, from an item or from the request to run it. False: it has no name."""
        call = Call(
            call_id=read_text(fields.get("callId")) or read_text(fields.get("id")) or "",
            name=read_text(fields.get("tool")) or "",
            namespace=_namespace(fields),
            input=input_of(fields, "arguments"),
        )
        has_name = self._take(sighting, call, seed)
        known = self._known.get(call.call_id)
        if sighting == "completed" and known is not None:
            known.answered = True
        return has_name

    def see_raw(self, fields: Fields, seed: str) -> bool:
        """Read the model's own item, with the text that the model wrote. False: it has no name."""
        is_function = read_fragment(fields.get("type")) == "function_call"
        call = Call(
            call_id=read_text(fields.get("call_id")) or read_text(fields.get("id")) or "",
            name=read_text(fields.get("name")) or "",
            namespace=_namespace(fields),
            input=_raw_arguments(fields) if is_function else read_text(fields.get("input")) or "",
            kind="function" if is_function else "custom",
            item_id=read_text(fields.get("id")) or None,
        )
        call = replace(call, executor=self._executor(call))
        if self._is_private and call.executor == "provider":
            self._hide(call.call_id, fields)
            return True
        return self._take("raw", call, seed)

    def see_output(self, fields: Fields) -> None:
        """Read a tool's output. An output of Codex's own tools becomes a Result; the client knows its tools' outputs."""
        output = read_json(fields.get("output"))
        call_id = read_text(fields.get("call_id")) or ""
        known = self._known.get(call_id)
        if known is None or is_phantom(output):
            return
        if self._is_private and known.executor == "provider":
            self._hide(call_id, fields)
            return
        is_news = known.executor == "provider" and not known.answered
        known.answered = True
        if is_news:
            self._parts.add_whole(
                Result(
                    call_id=call_id,
                    content=_content(output),
                    kind=known.kind,
                    executor="provider",
                    item_id=read_text(fields.get("id")) or None,
                )
            )

    def _hide(self, call_id: str, item: Fields) -> None:
        """Emit a call or output of Codex's own tools as an Opaque."""
        self._known[call_id] = KnownCall("provider", "other")
        kind, item_id = read_text(item.get("type")) or "", read_text(item.get("id")) or None
        whole = raw(dict(item))
        self._parts.add_whole(Opaque(dialect="codex", type=kind, raw=whole, item_id=item_id))

    def _executor(self, call: Call) -> Executor:
        if call.kind == "custom":
            return "provider"
        if self._is_offer_known and (call.namespace, call.name) not in self._offered:
            return "provider"
        if not is_strict(call.input):
            self._parts.report(
                "invalid_arguments", f"call {call.call_id!r}: its arguments are not JSON"
            )
            return "provider"
        return "client"

    def _take(self, sighting: Sighting, call: Call, seed: str) -> bool:
        known = self._known.get(call.call_id) if call.call_id else None
        if known is not None and not (known.answered and sighting in known.sightings):
            known.sightings.add(sighting)
            return True
        if known is not None:
            self._parts.report("repeated_id", f"call id {call.call_id!r} is used a second time")
        self._parts.seed = self._parts.seed or seed
        opened = OpenCall(self._parts, call, empty="")
        opened.add(call.input)
        if call.name:
            opened.announce()
        elif opened.find_name(len(self._known)):
            message = f"call {call.call_id!r} had no name; took {opened.header.name!r}"
            self._parts.report("missing_name", message)
        else:
            opened.drop(is_fault=True)
            return False
        opened.end("completed", replace(call, name=opened.header.name))
        self._known[opened.header.call_id] = KnownCall(call.executor, call.kind, {sighting})
        self._numbers[opened.header.call_id] = opened.part
        return True


def _namespace(fields: Fields) -> str | None:
    namespace = read_text(fields.get("namespace")) or ""
    return namespace if namespace and namespace != _PLAIN_NAMESPACE else None


def _raw_arguments(fields: Fields) -> str:
    value = read_json(fields.get("arguments"))
    if isinstance(value, str):
        # Codex treats empty arguments as a mistake and answers the model itself.
        return replace_lone(value)
    return input_of(fields, "arguments")


def _content(output: object) -> tuple[Text | Opaque, ...]:
    if isinstance(output, str):
        return (Text(text=replace_lone(output)),)
    if not isinstance(output, list):
        return ()
    return tuple(_content_part(entry) for entry in cast("list[object]", output))


def _content_part(entry: object) -> Text | Opaque:
    if isinstance(entry, dict):
        fields = cast("dict[str, object]", entry)
        text = fields.get("text")
        if isinstance(text, str):
            return Text(text=replace_lone(text))
        return Opaque(dialect="codex", type=str(fields.get("type", "")), raw=raw(fields))
    return Opaque(dialect="codex", type="", raw=raw(entry))
