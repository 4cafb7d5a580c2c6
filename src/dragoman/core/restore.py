"""Restores the calls of an answer: undoes the changes that a request encoder made to the client's tools.

Wire names become (namespace, name) again, also names that the model wrote in its own spelling. Calls of custom tools that
were offered as functions become custom calls, and their input is unwrapped while it streams. Other client-run kinds that
were offered as functions get their kind back. A name that no tool has stays unchanged: the client must see it to answer
the call. If the wrapper of a custom call is never closed, the call ends incomplete, and the finish reason is decided
again without it. Events go in and come out in grammatical order; other parts are not changed.
"""

from msgspec import structs

from dragoman.core.aliases import NameMap
from dragoman.core.fold import settle_finish
from dragoman.core.freeform import Unwrapper
from dragoman.model.events import Event, Finished, InputDelta, PartEnded, PartStarted
from dragoman.model.parts import CLIENT_KINDS, Call
from dragoman.model.request import ToolRef

# Kinds that the client runs itself. Providers run the others, and their wires state the kind.
_CLIENT_KINDS = CLIENT_KINDS | {"custom"}

# Events of all other types pass without further checks.
_TOUCHED = frozenset({InputDelta, PartStarted, PartEnded, Finished})


class Restorer:
    """Restores one answer. `feed` takes an event and returns the events for the client."""

    def __init__(self, names: NameMap) -> None:
        self._names = names
        self._refs: dict[int, ToolRef] = {}
        self._wrapped: dict[int, tuple[Unwrapper, list[str]]] = {}
        self._choices: dict[int, int] = {}
        self._complete: set[int] = set()  # choices with a call to run
        self._demoted: set[int] = set()  # choices with a call whose wrapper was cut

    def __call__(self, event: Event) -> tuple[Event, ...]:
        return self.feed(event)

    def passes(self, part: int) -> bool:
        """Whether deltas of this part pass unchanged."""
        return part not in self._wrapped

    def feed(self, event: Event) -> tuple[Event, ...]:
        if type(event) not in _TOUCHED:
            return (event,)
        if isinstance(event, InputDelta):
            return self._unwrap(event) if event.part in self._wrapped else (event,)
        if isinstance(event, PartStarted) and isinstance(event.header, Call):
            return (self._start(event, event.header),)
        if isinstance(event, PartEnded) and isinstance(event.value, Call):
            return self._end(event, event.value)
        if isinstance(event, Finished) and event.choice in self._demoted:
            return (self._finish(event),)
        return (event,)

    def _start(self, event: PartStarted, call: Call) -> PartStarted:
        if call.executor != "client":
            return event
        self._choices[event.part] = event.choice
        ref = self._names.find(call.name, call.namespace)
        if ref is None:
            return event
        self._refs[event.part] = ref
        if ref.kind == "custom" and call.kind == "function":
            self._wrapped[event.part] = (Unwrapper(), [])
        header = _restored(call, ref)
        return event if header is call else structs.replace(event, header=header)

    def _unwrap(self, event: InputDelta) -> tuple[Event, ...]:
        unwrapper, emitted = self._wrapped[event.part]
        text = unwrapper.feed(event.text)
        if not text:
            return ()
        emitted.append(text)
        return (InputDelta(event.part, text),)

    def _end(self, event: PartEnded, call: Call) -> tuple[Event, ...]:
        choice = self._choices.pop(event.part, None)
        if choice is None:
            return (event,)
        ref = self._refs.pop(event.part, None)
        if ref is not None:
            call = _restored(call, ref)
            event = event if call is event.value else structs.replace(event, value=call)
        if event.part not in self._wrapped:
            self._count(call, choice)
            return (event,)

        unwrapper, pieces = self._wrapped.pop(event.part)
        emitted = "".join(pieces)
        if event.amended:
            unwrapper = Unwrapper()
            text = unwrapper.feed(call.input) + unwrapper.finish()
        else:
            text = emitted + unwrapper.finish()
        if unwrapper.is_cut:
            # The call was cut, even if the provider says it is complete, and must not be run.
            call = structs.replace(call, status="incomplete")
            self._demoted.add(choice)
        self._count(call, choice)
        is_amended = not text.startswith(emitted)
        end = PartEnded(event.part, structs.replace(call, input=text), is_amended)
        if is_amended or len(text) == len(emitted):
            return (end,)
        return (InputDelta(event.part, text[len(emitted) :]), end)

    def _count(self, call: Call, choice: int) -> None:
        if call.status == "completed":
            self._complete.add(choice)

    def _finish(self, event: Finished) -> Finished:
        is_complete = event.choice in self._complete
        reason = settle_finish(event.reason, has_complete_client_calls=is_complete)
        return structs.replace(event, reason=reason)


def restore_call(call: Call, names: NameMap) -> Call | None:
    """Restore a whole call; None if its input must be unwrapped. Returns the same object if nothing changes."""
    if call.executor != "client" or (call.name in names.plain and call.namespace is None):
        return call  # nearly always
    ref = names.find(call.name, call.namespace)
    if ref is None:
        return call
    is_wrapped = ref.kind == "custom" and call.kind == "function"
    return None if is_wrapped else _restored(call, ref)


def _restored(call: Call, ref: ToolRef) -> Call:
    kind = ref.kind if call.kind == "function" and ref.kind in _CLIENT_KINDS else call.kind
    if call.name == ref.name and call.namespace == ref.namespace and call.kind == kind:
        return call  # nearly always: most names need no alias
    return structs.replace(call, name=ref.name, namespace=ref.namespace, kind=kind)
