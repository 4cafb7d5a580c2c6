"""The calls of one Codex turn: seen through several messages, told once.

One call of a client's tool comes as the model's own item (`rawResponseItem/completed`, only when asked for, with the
exact argument text), as `item/started`, as the request `item/tool/call`, and as `item/completed` once it is answered.
The first of them tells the call, whole and closed: Codex sends no argument deltas, and nothing at all before the model
has finished the call. `call_id` joins them.

A model may use an id again later in the turn. So: once a call has been answered, a kind of message that has been seen
for it already speaks of a new call.

Who runs it: a call that names a client's tool is the client's; where the tools are not known, every function call is
taken for one. Arguments that are not JSON never reach the client (Codex answers the model itself), nor do freeform
calls, which only Codex's own tools take.
"""

from collections.abc import Iterable
from typing import Literal, cast

from msgspec.structs import replace

from dragoman._json import is_strict, raw
from dragoman.core.ids import Minter
from dragoman.core.names import resolve_name
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.base import DecodeContext
from dragoman.dialects.codex.items import Teller
from dragoman.dialects.codex.wire import Fields, input_of, is_phantom, text_of, value_of
from dragoman.model.events import InputDelta, PartEnded
from dragoman.model.parts import Call, CallKind, Executor, Opaque, Result, Text

__all__ = ("Calls", "KnownCall", "Sighting")

Sighting = Literal["raw", "started", "request", "completed"]

# The namespace Codex gives its plain tools; the same as none.
_PLAIN_NAMESPACE = "functions"


class KnownCall:
    """A call that has been told, in this answer or in an earlier one of the same turn."""

    __slots__ = ("answered", "executor", "kind", "sightings")

    def __init__(self, executor: Executor, kind: CallKind) -> None:
        self.executor: Executor = executor
        self.kind: CallKind = kind
        self.answered = False
        self.sightings: set[Sighting] = set()


class Calls:
    """`known` is shared by the answers of one turn, so that the second does not tell the calls of the first again."""

    def __init__(
        self,
        teller: Teller,
        found: list[tuple[str, str]],
        context: DecodeContext,
        known: dict[str, KnownCall],
    ) -> None:
        self._teller = teller
        self._found = found
        self._context = context
        self._offered: set[tuple[str | None, str]] = {
            (tool.namespace, tool.name) for tool in context.tools
        }
        self._is_offer_known = bool(self._offered)
        self._is_private = False
        self._known = known
        self._parts: dict[str, int] = {}
        self._mint: Minter | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a client's call waits for its answer."""
        return any(
            known.executor == "client" and not known.answered for known in self._known.values()
        )

    def offer(self, names: Iterable[str]) -> None:
        """These tools were offered, and no others. Calls of Codex's own tools are nothing that a client could see as
        calls from now on: there are clients that run whatever they are shown."""
        self._offered = {(None, name) for name in names}
        self._is_offer_known = self._is_private = True

    def part_of(self, call_id: str) -> int | None:
        """The part this answer told the call as."""
        return self._parts.get(call_id)

    def see(self, sighting: Sighting, fields: Fields, seed: str) -> bool:
        """A call of a client's tool, as an item or as the request to run it. False: it has no name."""
        call = Call(
            call_id=replace_lone(text_of(fields, "callId") or text_of(fields, "id")),
            name=replace_lone(text_of(fields, "tool")),
            namespace=_namespace(fields),
            input=input_of(fields, "arguments"),
        )
        is_told = self._take(sighting, call, seed)
        known = self._known.get(call.call_id)
        if sighting == "completed" and known is not None:
            known.answered = True
        return is_told

    def see_raw(self, fields: Fields, seed: str) -> bool:
        """The model's own item, with the text it wrote. False: it has no name."""
        is_function = text_of(fields, "type") == "function_call"
        call = Call(
            call_id=replace_lone(text_of(fields, "call_id") or text_of(fields, "id")),
            name=replace_lone(text_of(fields, "name")),
            namespace=_namespace(fields),
            input=_raw_arguments(fields) if is_function else replace_lone(text_of(fields, "input")),
            kind="function" if is_function else "custom",
            item_id=replace_lone(text_of(fields, "id")) or None,
        )
        call = replace(call, executor=self._executor(call))
        if self._is_private and call.executor == "provider":
            self._hide(call.call_id, fields)
            return True
        return self._take("raw", call, seed)

    def see_output(self, fields: Fields) -> None:
        """What a tool gave back. The client knows what its own tools said; Codex's own tools make a Result."""
        output = value_of(fields, "output")
        known = self._known.get(replace_lone(text_of(fields, "call_id")))
        if known is None or is_phantom(output):
            return
        if self._is_private and known.executor == "provider":
            self._hide(replace_lone(text_of(fields, "call_id")), fields)
            return
        is_news = known.executor == "provider" and not known.answered
        known.answered = True
        if is_news:
            self._teller.whole(
                Result(
                    call_id=replace_lone(text_of(fields, "call_id")),
                    content=_content(output),
                    kind=known.kind,
                    executor="provider",
                    item_id=replace_lone(text_of(fields, "id")) or None,
                )
            )

    def _hide(self, call_id: str, item: Fields) -> None:
        """What Codex did by itself, as something that has no meaning elsewhere."""
        self._known[call_id] = KnownCall("provider", "other")
        kind, item_id = replace_lone(text_of(item, "type")), replace_lone(text_of(item, "id"))
        raw_item = raw(dict(item))
        self._teller.whole(
            Opaque(dialect="codex", type=kind, raw=raw_item, item_id=item_id or None)
        )

    def _executor(self, call: Call) -> Executor:
        if call.kind == "custom":
            return "provider"
        if self._is_offer_known and (call.namespace, call.name) not in self._offered:
            return "provider"
        if not is_strict(call.input):
            self._found.append(
                ("invalid_arguments", f"call {call.call_id!r}: its arguments are not JSON")
            )
            return "provider"
        return "client"

    def _take(self, sighting: Sighting, call: Call, seed: str) -> bool:
        known = self._known.get(call.call_id) if call.call_id else None
        if known is not None and not (known.answered and sighting in known.sightings):
            known.sightings.add(sighting)
            return True
        if known is not None:
            self._found.append(("repeated_id", f"call id {call.call_id!r} is used a second time"))
        named = self._complete(call, seed)
        if named is None:
            return False
        part = self._teller.open(replace(named, input="", status="in_progress"))
        if named.input:
            self._teller.tell(InputDelta(part, named.input))
        self._teller.tell(PartEnded(part, named))
        told = KnownCall(named.executor, named.kind)
        told.sightings.add(sighting)
        self._known[named.call_id] = told
        self._parts[named.call_id] = part
        return True

    def _complete(self, call: Call, seed: str) -> Call | None:
        """The call with an id and a name."""
        if not call.call_id:
            self._found.append(("missing_id", "expected a call id, got none; one was made"))
            if self._mint is None:
                self._mint = Minter(self._context.seed or seed)
            call = replace(call, call_id=self._mint("call_"))
        if call.name:
            return call
        context = self._context
        name = resolve_name(call.input, context.tools, len(self._known), context.name_fallback)
        if name is None:
            self._found.append(("nameless_call", f"call {call.call_id!r} never got a name"))
            return None
        self._found.append(("missing_name", f"call {call.call_id!r} had no name; took {name!r}"))
        return replace(call, name=name)


def _namespace(fields: Fields) -> str | None:
    namespace = replace_lone(text_of(fields, "namespace"))
    return namespace if namespace and namespace != _PLAIN_NAMESPACE else None


def _raw_arguments(fields: Fields) -> str:
    value = value_of(fields, "arguments")
    if isinstance(value, str):
        # Codex takes nothing at all for a mistake, and answers it itself.
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
