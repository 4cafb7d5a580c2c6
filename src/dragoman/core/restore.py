"""An answer in the client's terms: the other end of what a request encoder did to its tools.

Wire names become (namespace, name), also those a model spelled its own way; calls of custom tools that were offered as
functions become custom calls again, their input unwrapped while it streams; other client-run kinds that were offered as
functions get their kind back. A name that no tool has passes unchanged: the client, or its loop, must see it to answer
it. A custom call whose wrapper was never closed ends incomplete, and the finish is settled again without it. Events go
in and come out in grammatical order; parts of other kinds are not touched.
"""

from msgspec import structs

from dragoman.core.aliases import NameMap
from dragoman.core.finish import settle_finish
from dragoman.core.freeform import Unwrapper
from dragoman.model.events import Event, Finished, InputDelta, PartEnded, PartStarted
from dragoman.model.outcome import Choice, Outcome
from dragoman.model.parts import CLIENT_KINDS, Call
from dragoman.model.request import ToolRef

# Kinds that the client runs itself. The others are run by providers, whose wires name the kind.
_CLIENT_KINDS = CLIENT_KINDS | {"custom"}

# Of most events, and there are many, only the type is looked at.
_TOUCHED = frozenset({InputDelta, PartStarted, PartEnded, Finished})


class Restorer:
    """One per answer. `feed` gives what the client is to see of an event."""

    def __init__(self, names: NameMap) -> None:
        self._names = names
        self._refs: dict[int, ToolRef] = {}
        self._wrapped: dict[int, tuple[Unwrapper, list[str]]] = {}
        self._choices: dict[int, int] = {}
        self._complete: set[int] = set()  # choices with a call to run
        self._demoted: set[int] = set()  # choices with a call that only its wrapper shows to be cut

    def __call__(self, event: Event) -> tuple[Event, ...]:
        return self.feed(event)

    def passes(self, part: int) -> bool:
        """Whether deltas of this part are seen as they come."""
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
            # It is a cut call, whatever the provider says of it, and must not be run.
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


def restore_whole(outcome: Outcome, names: NameMap) -> Outcome | None:
    """The same for a whole answer; None if a call of it must be unwrapped. The same object where no name changes."""
    choices: list[Choice] = []
    is_same = True
    for choice in outcome.choices:
        parts = list(choice.parts)
        for number, part in enumerate(choice.parts):
            if isinstance(part, Call) and part.executor == "client":
                ref = names.find(part.name, part.namespace)
                if ref is not None:
                    if ref.kind == "custom" and part.kind == "function":
                        return None
                    parts[number] = _restored(part, ref)
                    is_same = is_same and parts[number] is part
        choices.append(choice if is_same else structs.replace(choice, parts=tuple(parts)))
    return outcome if is_same else structs.replace(outcome, choices=tuple(choices))


def _restored(call: Call, ref: ToolRef) -> Call:
    kind = ref.kind if call.kind == "function" and ref.kind in _CLIENT_KINDS else call.kind
    if call.name == ref.name and call.namespace == ref.namespace and call.kind == kind:
        return call  # nearly always: most names need no alias
    return structs.replace(call, name=ref.name, namespace=ref.namespace, kind=kind)
