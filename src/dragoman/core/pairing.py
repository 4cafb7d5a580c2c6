"""Pairs the calls and results of a conversation: strict upstreams demand a result for each call and a call for each result.

In received histories results may be missing (a run was interrupted), out of order, duplicated, separated from their call
by another message, or without a call, and ids may repeat or be empty. `pair_results` repairs this by named rules and
reports each use as a Repair:

    missing_result    a call without a result gets an error result: the call was interrupted
    orphan_result     a result without a call becomes text of a user turn
    duplicate_result  a second result of one call: dropped if equal, else text of a user turn
    moved_result      a result is put directly after the run of assistant turns that holds its call, in call order
    repeated_id       a later call with an id already used gets a new id, and so does its result
    empty_id          a call, or its result, without an id gets one

Only calls that the client runs need results. Calls and results of providers keep their position. Nothing is lost: parts
between a call and its result follow the results, in their old order. Turns that need no change are the same objects.

A *window* is a run of assistant turns with calls and everything after it, up to the next assistant turn with calls.
A result is first matched within its window, by id and, if an id repeats, by occurrence. A result whose id has no call
there goes to the latest earlier call of that id that has no result yet.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, is_, itemgetter

from msgspec import Struct, structs

from dragoman._json import Raw
from dragoman.core.fold import is_settled_text
from dragoman.core.ids import Minter
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, Extra, Part, Result, Text
from dragoman.model.request import Role, Turn

INTERRUPTED = "The call was interrupted before it gave a result."
ORPHAN = "Result of a tool call that is not part of this conversation:"
EXTRA = "Another result of an earlier tool call:"

# How many earlier results of the same id a further result is compared with: an id may repeat without limit.
MAX_COMPARED = 16

_Place = tuple[int, int]


class _Slot(Struct, eq=False):
    """A call with the id that it keeps or gets, and its result."""

    call: Call
    call_id: str
    place: _Place
    result: Result | None = None
    source: _Place | None = None


class _Window(Struct, eq=False):
    """A run of assistant turns (by number) with its calls, and the turns after it."""

    run: list[int] = []
    rest: list[int] = []
    slots: list[_Slot] = []


def pair_results(
    turns: Sequence[Turn], *, continues: bool = False
) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """The conversation with calls and results paired, and the repairs.

    continues: the provider has earlier turns (`previous_response_id`, item references), so a result whose call is not
        here answers a call in those turns and keeps its position.
    """
    if is_paired(turns):
        return tuple(turns), ()
    pairing = _Pairing(turns, continues=continues)
    return pairing.run(), pairing.repairs()


def is_paired(turns: Sequence[Turn]) -> bool:
    """Whether each run of calls is followed by its results in order, as in most conversations: nothing needs repair.

    Returns False for cases that need the full check: providers' calls, results outside tool turns.
    """
    calls: list[Call] = []  # of the last run of assistant turns
    answered = 0
    ids: set[str] = set()
    for turn in turns:
        if turn.role == "tool":
            for part in turn.parts or (None,):
                if answered == len(calls) or not _answers(part, calls[answered]):
                    return False
                answered += 1
            continue
        if calls and answered == len(calls):
            calls, answered = [], 0
        elif calls and (answered or turn.role != "assistant"):
            return False
        for part in turn.parts:
            if type(part) is Text:
                continue
            if isinstance(part, Call) and turn.role == "assistant" and part.executor == "client":
                if not part.call_id or part.call_id in ids:
                    return False
                ids.add(part.call_id)
                calls.append(part)
            elif isinstance(part, (Call, Result)):
                return False
    return answered == len(calls)


def _answers(part: Part | None, call: Call) -> bool:
    return (
        isinstance(part, Result)
        and part.executor == "client"
        and part.call_id == call.call_id
        and part.kind == call.kind
    )


class _Pairing:
    """Pairs one conversation. Results are identified by their place (turn, part)."""

    def __init__(self, turns: Sequence[Turn], *, continues: bool) -> None:
        self._turns = turns
        self._continues = continues
        self._repairs: list[tuple[_Place, Repair]] = []
        self._client_ids: set[str] = set()
        self._provider_ids: set[str] = set()
        self._ids: set[str] = set()
        for turn in turns:
            self._note_ids(turn)
        self._gone: set[_Place] = set()  # results that were given to a call, or dropped
        self._texts: dict[_Place, tuple[Part, ...]] = {}  # results that become parts of a user turn
        self._answers: dict[str, list[Result]] = {}
        self._open: dict[str, list[_Slot]] = {}  # calls of earlier windows without a result

    def run(self) -> tuple[Turn, ...]:
        windows = self._find_windows()
        for window in windows:
            self._match(window)
        self._name_calls([slot for window in windows for slot in window.slots])
        out: list[Turn] = []
        for window in windows:
            self._note_moves(window)
            out.extend(self._write_run(window))
            out.extend(self._write_results(window))
            for number in window.run:
                out.extend(self._write_texts(number))
            for number in window.rest:
                out.extend(self._write_rest(number))
        return tuple(out)

    def repairs(self) -> tuple[Repair, ...]:
        """The repairs, in the order of the received conversation."""
        return tuple(repair for _, repair in sorted(self._repairs, key=itemgetter(0)))

    def _note_ids(self, turn: Turn) -> None:
        for part in turn.parts:
            if isinstance(part, Result):
                self._ids.add(part.call_id)
            elif isinstance(part, Call) and turn.role == "assistant":
                self._ids.add(part.call_id)
                is_client = part.executor == "client"
                (self._client_ids if is_client else self._provider_ids).add(part.call_id)

    def _find_windows(self) -> list[_Window]:
        windows = [_Window()]
        in_run = False
        for number, turn in enumerate(self._turns):
            slots = [
                _Slot(part, part.call_id, (number, index))
                for index, part in enumerate(turn.parts)
                if turn.role == "assistant" and isinstance(part, Call) and part.executor == "client"
            ]
            if slots and not in_run:
                windows.append(_Window())
                in_run = True
            in_run = in_run and turn.role == "assistant"
            if in_run:
                windows[-1].run.append(number)
                windows[-1].slots.extend(slots)
            else:
                windows[-1].rest.append(number)
        return windows

    def _match(self, window: _Window) -> None:
        waiting: dict[str, deque[_Slot]] = {}
        for slot in window.slots:
            waiting.setdefault(slot.call_id, deque()).append(slot)
        strays: list[tuple[_Place, Result]] = []
        for place, result in self._results(window):
            queue = waiting.get(result.call_id)
            if queue:
                self._give(queue.popleft(), place, result)
            elif queue is None:
                strays.append((place, result))
            else:
                self._leave(place, result)
        unanswered = [slot for slot in window.slots if slot.result is None]
        if len(unanswered) == 1 and len(strays) == 1:
            strays = self._pair_nameless(unanswered[0], *strays[0])
        for place, result in strays:
            earlier = self._open.get(result.call_id)
            if earlier:
                self._give(earlier.pop(), place, result)
            else:
                self._leave(place, result)
        for slot in unanswered:
            if slot.result is None and slot.call_id:
                self._open.setdefault(slot.call_id, []).append(slot)

    def _results(self, window: _Window) -> Iterator[tuple[_Place, Result]]:
        for number in (*window.run, *window.rest):
            for index, part in enumerate(self._turns[number].parts):
                if isinstance(part, Result) and self._is_active(part):
                    yield (number, index), part

    def _is_active(self, result: Result) -> bool:
        """Whether the result should answer a client's call. If the wire does not say who ran the tool, the call decides."""
        if result.executor != "client":
            return False
        is_elsewhere = self._continues or result.call_id in self._provider_ids
        return not (is_elsewhere and result.call_id and result.call_id not in self._client_ids)

    def _pair_nameless(
        self, slot: _Slot, place: _Place, result: Result
    ) -> list[tuple[_Place, Result]]:
        """Pair the one call and the one result that are left, if one of them has no id."""
        if slot.call_id and result.call_id:
            return [(place, result)]
        self._give(slot, place, result)
        if slot.call_id:
            self._note("empty_id", place, f"result of {slot.call_id}")
        return []

    def _give(self, slot: _Slot, place: _Place, result: Result) -> None:
        slot.result = result
        slot.source = place
        self._gone.add(place)
        self._answers.setdefault(result.call_id, []).append(result)

    def _leave(self, place: _Place, result: Result) -> None:
        """Handle a result for which no call is left."""
        earlier = self._answers.get(result.call_id) if result.call_id else None
        if not earlier:
            self._texts[place] = _as_text(ORPHAN, result)
            self._note("orphan_result", place, result.call_id)
        elif any(_is_equal(result, other) for other in earlier[-MAX_COMPARED:]):
            self._gone.add(place)
            self._note("duplicate_result", place, f"{result.call_id} dropped")
        else:
            self._texts[place] = _as_text(EXTRA, result)
            self._note("duplicate_result", place, result.call_id)

    def _name_calls(self, slots: Iterable[_Slot]) -> None:
        used = set(self._provider_ids)
        counts: dict[str, int] = {}
        minter = Minter("pairing")
        for slot in slots:
            old = new = slot.call_id
            while not new or new in used or (new != old and new in self._ids):
                if old:
                    counts[old] = counts.get(old, 1) + 1
                    new = f"{old}_{counts[old]}"
                else:
                    new = minter("call_")
            if new != old:
                self._note(
                    "repeated_id" if old else "empty_id",
                    slot.place,
                    f"{old or 'none'} is now {new}",
                )
            used.add(new)
            slot.call_id = new

    def _note_moves(self, window: _Window) -> None:
        numbers = {slot.source: number for number, slot in enumerate(window.slots)}
        in_place: set[_Place] = set()
        highest = -1
        for place in self._leading_places(window):
            number = numbers.get(place, -1)
            if number > highest:
                highest = number
                in_place.add(place)
        for slot in window.slots:
            if slot.source is not None and slot.source not in in_place:
                self._note("moved_result", slot.source, slot.call_id)

    def _leading_places(self, window: _Window) -> Iterator[_Place]:
        """The places after the run, up to the first part that is not a result of the run."""
        for number in window.rest:
            turn = self._turns[number]
            if not turn.parts and turn.role != "tool":
                return
            for index in range(len(turn.parts)):
                if (number, index) not in self._gone:
                    return
                yield number, index

    def _write_run(self, window: _Window) -> Iterator[Turn]:
        renamed = {slot.place: slot.call_id for slot in window.slots}
        for number in window.run:
            turn = self._turns[number]
            parts: list[Part] = []
            for index, part in enumerate(turn.parts):
                place = (number, index)
                if isinstance(part, Call) and place in renamed:
                    is_same = part.call_id == renamed[place]
                    parts.append(part if is_same else structs.replace(part, call_id=renamed[place]))
                elif place not in self._gone and place not in self._texts:
                    parts.append(part)
            if parts or not turn.parts:
                yield _with_parts(turn, parts)

    def _write_results(self, window: _Window) -> Iterator[Turn]:
        """The results in call order; results of one turn stay together as far as the order allows."""
        written: set[int] = set()
        for number, group in groupby(window.slots, key=_source_turn):
            parts = [self._result_of(slot) for slot in group]
            if number in written or not self._may_carry(number):
                yield Turn(role="tool", parts=tuple(parts))
            else:
                yield _with_parts(self._turns[number], parts, "tool")
            written.add(number)

    def _may_carry(self, number: int) -> bool:
        """Whether the results take the fields of their turn: not if other parts of the turn remain as a turn."""
        return number >= 0 and (self._turns[number].role == "tool" or self._is_used_up(number))

    def _result_of(self, slot: _Slot) -> Result:
        result = slot.result
        if result is None:
            self._note("missing_result", slot.place, slot.call_id)
            return Result(
                call_id=slot.call_id,
                content=(Text(text=INTERRUPTED),),
                is_error=True,
                kind=slot.call.kind,
            )
        # A dialect with only one kind of result does not state the kind of the call.
        kind = slot.call.kind if result.kind == "function" else result.kind
        if result.call_id == slot.call_id and result.kind == kind:
            return result
        return structs.replace(result, call_id=slot.call_id, kind=kind)

    def _is_used_up(self, number: int) -> bool:
        return all((number, index) in self._gone for index in range(len(self._turns[number].parts)))

    def _write_rest(self, number: int) -> Iterator[Turn]:
        turn = self._turns[number]
        if turn.parts and self._is_used_up(number):
            return
        parts: list[Part] = []
        for index, part in enumerate(turn.parts):
            place = (number, index)
            if place in self._texts and turn.role == "user":
                parts.extend(self._texts[place])
            elif place not in self._gone and place not in self._texts:
                parts.append(part)
        if turn.role != "tool" or any(isinstance(part, Result) for part in parts):
            if parts or not turn.parts:
                yield _with_parts(turn, parts)
        elif parts or not turn.parts:
            self._note("orphan_result", (number, 0), "a tool turn without a result")
            if parts:
                yield Turn(role="user", parts=tuple(parts))
        if turn.role != "user":
            yield from self._write_texts(number)

    def _write_texts(self, number: int) -> Iterator[Turn]:
        places = ((number, index) for index in range(len(self._turns[number].parts)))
        parts = [part for place in places if place in self._texts for part in self._texts[place]]
        if parts:
            yield Turn(role="user", parts=tuple(parts))

    def _note(self, rule: str, place: _Place, detail: str) -> None:
        repair = Repair(rule, f"turns[{place[0]}].parts[{place[1]}]", detail)
        self._repairs.append((place, repair))


def _source_turn(slot: _Slot) -> int:
    return -1 if slot.source is None else slot.source[0]


def _with_parts(turn: Turn, parts: Sequence[Part], role: Role | None = None) -> Turn:
    """The turn with these parts; the turn itself if they are the same."""
    role = role or turn.role
    is_same = len(parts) == len(turn.parts) and all(map(is_, parts, turn.parts))
    return (
        turn
        if is_same and role == turn.role
        else structs.replace(turn, role=role, parts=tuple(parts))
    )


def _as_text(heading: str, result: Result) -> tuple[Part, ...]:
    return (Text(text=mark_error(heading) if result.is_error else heading), *result.content)


def _is_equal(one: Result, other: Result) -> bool:
    return one.content == other.content and one.is_error == other.is_error


_RUNS = frozenset({"assistant", "tool"})
"""The roles of which several turns in a row are one."""


def merge_turns(turns: Sequence[Turn]) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """Merge each run of assistant turns and of tool turns into one turn, and move an assistant's calls to its end.

    Dialects of messages require the results directly after the calls, so text that follows a call moves before it
    (rule `text_before_calls`). Merging itself is not a repair.
    """
    if _is_merged(turns):
        return tuple(turns), ()
    merged: list[Turn] = []
    repairs: list[Repair] = []
    start = 0
    while start < len(turns):
        role = turns[start].role
        end = start + 1
        if role in _RUNS:
            while end < len(turns) and turns[end].role == role:
                end += 1
        turn = turns[start] if end == start + 1 else _join(turns[start:end])
        if role == "assistant":
            parts = _calls_last(turn.parts)
            if parts != turn.parts:
                turn = structs.replace(turn, parts=parts)
                repairs.append(Repair("text_before_calls", f"turns[{start}]"))
        merged.append(turn)
        start = end
    return tuple(merged), tuple(repairs)


def _is_merged(turns: Sequence[Turn]) -> bool:
    """Whether no turns follow one another that belong together, and no assistant's turn has parts whose order matters."""
    before = ""
    for turn in turns:
        role = turn.role
        if role in _RUNS and (role == before or (role == "assistant" and len(turn.parts) > 1)):
            return False
        before = role
    return True


def as_reminder(text: str) -> str:
    """A system text inside a conversation as text of the user, in the tags in which Claude Code writes such texts."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def put_system_first(turns: Sequence[Turn]) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """One system turn at the beginning, for servers that accept no other: the leading ones are joined, later ones become
    reminders in a turn of the user (rule `system_as_user`). The texts keep their order.
    """
    ordered = sorted(turns, key=lambda turn: not turn.head)
    count = next((at for at, turn in enumerate(ordered) if not _is_system(turn)), len(ordered))
    leading, rest = ordered[:count], ordered[count:]
    runs = [[_with_one_text(_join(leading))]] if leading else []  # each becomes one turn
    repairs: list[Repair] = []
    has_reminder = False  # the last turn holds a reminder
    for number, turn in enumerate(rest, count):
        is_reminder = _is_system(turn)
        if is_reminder:
            repairs.append(Repair("system_as_user", f"turns[{number}]", turn.role))
            turn = structs.replace(turn, role="user", parts=tuple(map(_reminding, turn.parts)))  # noqa: PLW2901
        is_joined = turn.role == "user" and (is_reminder or has_reminder)
        if is_joined and runs and runs[-1][0].role == "user":
            runs[-1].append(turn)
        else:
            runs.append([turn])
        has_reminder = is_joined
    return tuple([run[0] if len(run) == 1 else _join(run) for run in runs]), tuple(repairs)


def _is_system(turn: Turn) -> bool:
    return turn.role in {"system", "developer"}


def _with_one_text(turn: Turn) -> Turn:
    """The turn with its texts as one, if it has nothing else: not every server takes a list in a system message."""
    texts = [part.text for part in turn.parts if isinstance(part, Text)]
    if len(texts) < len(turn.parts) or len(texts) == 1:
        return turn
    return structs.replace(turn, parts=(Text(text="\n\n".join(texts)),), cache=None)


def _reminding(part: Part) -> Part:
    return structs.replace(part, text=as_reminder(part.text)) if isinstance(part, Text) else part


def _join(turns: Sequence[Turn]) -> Turn:
    return structs.replace(
        turns[0],
        parts=tuple(part for turn in turns for part in turn.parts),
        name=next((turn.name for turn in turns if turn.name is not None), None),
        item_id=next((turn.item_id for turn in turns if turn.item_id is not None), None),
        status=next((turn.status for turn in turns if turn.status is not None), None),
        # A cache breakpoint covers everything before it: of several in one turn only the last has an effect.
        cache=next((turn.cache for turn in reversed(turns) if turn.cache is not None), None),
        extra=_join_extras([turn.extra for turn in turns if turn.extra is not None]),
    )


def _join_extras(extras: Sequence[Extra]) -> Extra | None:
    if not extras:
        return None
    dialect = extras[0].dialect
    fields: dict[str, Raw] = {}
    for extra in reversed(extras):  # of a field that several have, the first counts
        if extra.dialect == dialect:
            fields |= extra.fields
    return Extra(dialect, fields)


def _calls_last(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    calls = tuple(part for part in parts if _is_client_call(part))
    if not calls or parts[-len(calls) :] == calls:
        return parts
    return (*(part for part in parts if not _is_client_call(part)), *calls)


def _is_client_call(part: Part) -> bool:
    return isinstance(part, Call) and part.executor == "client"


_FIELDS_BESIDE = attrgetter("extra", "cache", "name", "item_id", "status")
_NOTHING_BESIDE = (None,) * 5


def bare_text(turn: Turn) -> str | None:
    """The text of a turn that is one plain text and nothing more; None for any other turn, and for results."""
    if len(turn.parts) != 1 or turn.role == "tool":
        return None
    part = turn.parts[0]
    if type(part) is not Text or part.cache is not None or not is_settled_text(part):
        return None
    return part.text or None if _FIELDS_BESIDE(turn) == _NOTHING_BESIDE else None


ERROR_MARK = "[tool error] "


def mark_error(text: str) -> str:
    return ERROR_MARK + text


def unmark_error(text: str) -> tuple[str, bool]:
    """The text without the error mark, and whether it had the mark."""
    if text.startswith(ERROR_MARK):
        return text[len(ERROR_MARK) :], True
    return text, False
