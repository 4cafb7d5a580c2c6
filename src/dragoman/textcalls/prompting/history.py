"""The conversation with its calls and results as text: calls in the turn that made them, results in a user's turn.

Calls and results are paired and in order before anything is written, so that formats without ids lose nothing by it.
Calls that a provider ran, and what they gave, stay as they are: the upstream's dialect has rules for them.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from dragoman._json import Raw, as_object
from dragoman.core.aliases import NameMap
from dragoman.core.freeform import wrap_input
from dragoman.core.losses import LossBook
from dragoman.core.merging import merge_turns
from dragoman.core.pairing import pair_results
from dragoman.errors import MalformedJson
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, Extra, Media, Opaque, Part, Result, Text
from dragoman.model.request import Turn
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.prompting.base import LEGACY_MARKS, GivenResult, SaidCall, Sheet, ToolPrompt
from dragoman.textcalls.prompting.offering import call_key

__all__ = ("BETWEEN", "Retold", "add_text", "is_told", "retell")

# Between texts of one turn.
BETWEEN = "\n\n"


class Retold(Struct, frozen=True):
    turns: tuple[Turn, ...]
    repairs: tuple[Repair, ...]


def retell(
    turns: Sequence[Turn],
    prompt: ToolPrompt,
    names: NameMap,
    offers: Offers,
    book: LossBook,
    *,
    continues: bool = False,
) -> Retold:
    """The conversation without a client-run call or result. Without any, it is the one that came.

    continues: the upstream holds earlier turns, so results may answer calls that are not here.
    """
    if not any(is_told(part) for turn in turns for part in turn.parts):
        return Retold(tuple(turns), ())
    paired, pairing = pair_results(turns, continues=continues)
    merged, merging = merge_turns(paired)
    teller = _Teller(prompt, names, offers, book)
    told: list[Turn] = []
    for index, turn in enumerate(merged):
        where = f"turns[{index}]"
        if turn.role == "assistant":
            told.append(teller.assistant(turn, where))
        elif turn.role == "tool":
            told.append(teller.results(turn, where))
        elif turn.role == "user" and index and merged[index - 1].role == "tool":
            _join(told, turn)
        else:
            told.append(turn)
    return Retold(tuple(told), (*pairing, *merging))


def add_text(
    parts: tuple[Part, ...], text: str, between: str, cache: Raw | None = None
) -> tuple[Part, ...]:
    """The parts with a text after them: in the last one where that is text, as many servers take one only."""
    last = parts[-1] if parts else None
    if isinstance(last, Text):
        # What a model wrote before its call keeps its own line break: the prompt stays what the upstream has cached.
        is_apart = not last.text or last.text.endswith(between)
        joined = last.text + text if is_apart else f"{last.text}{between}{text}"
        return (*parts[:-1], structs.replace(last, text=joined, cache=cache or last.cache))
    return (*parts, Text(text=text, cache=cache))


def _join(told: list[Turn], turn: Turn) -> None:
    """What a user says right after results goes into their turn: many chat templates want the roles to alternate."""
    before = told[-1]
    if turn.name is not None or before.role != "user":
        told.append(turn)
        return
    first = turn.parts[0] if turn.parts else None
    if isinstance(first, Text) and first.text and isinstance(before.parts[-1], Text):
        earlier = before.parts[-1].text
        first = structs.replace(first, text=f"{earlier}{BETWEEN}{first.text}")
        parts: tuple[Part, ...] = (*before.parts[:-1], first, *turn.parts[1:])
    else:
        parts = (*before.parts, *turn.parts)
    told[-1] = structs.replace(turn, parts=parts)


def is_told(part: Part) -> bool:
    """Whether a part is a call or a result that becomes text."""
    return isinstance(part, Call | Result) and part.executor == "client"


class _Teller:
    """Writes the calls and results of one conversation, and remembers which call has which number and name."""

    def __init__(self, prompt: ToolPrompt, names: NameMap, offers: Offers, book: LossBook) -> None:
        self._prompt = prompt
        self._names = names
        self._offers = offers
        self._book = book
        self._calls: dict[str, SaidCall] = {}
        self._count = 0

    def assistant(self, turn: Turn, where: str) -> Turn:
        calls = [
            part for part in turn.parts if isinstance(part, Call) and part.executor == "client"
        ]
        if not calls:
            return turn
        said = [self._said(call, where) for call in calls]
        sheet = Sheet(self._offers)
        text = self._prompt.say(said, sheet)
        if sheet.doubts:
            self._book.note("call_form", where, "; ".join(sheet.doubts))
        rest = tuple(part for part in turn.parts if not is_told(part))
        cache = next((call.cache for call in reversed(calls) if call.cache is not None), None)
        parts = add_text(rest, text, self._prompt.between, cache)
        return structs.replace(turn, parts=parts)

    def _said(self, call: Call, where: str) -> SaidCall:
        namespace, name = call_key(call)
        if call.seals:
            self._book.note("seal", where, call.seals[0].kind)
        self._note_fields(call.extra, where)
        arguments = call.input.strip() or "{}"
        if call.kind == "custom":
            arguments = wrap_input(call.input)
        elif not _is_object(arguments):
            self._book.note("call_input", where, name)
            arguments = wrap_input(call.input)
        wire = self._names.wire(name, namespace)
        said = SaidCall(wire, arguments, call.call_id, self._count)
        self._calls[call.call_id] = said
        self._count += 1
        return said

    def results(self, turn: Turn, where: str) -> Turn:
        """One user turn: all results as one text, then their media, then whatever else stood there."""
        given: list[GivenResult] = []
        media: list[Part] = []
        others: list[Part] = []
        cache = turn.cache
        for index, part in enumerate(turn.parts):
            if isinstance(part, Result) and part.executor == "client":
                given.append(self._given(part, media, f"{where}.parts[{index}]"))
                cache = part.cache or cache
            else:
                others.append(part)
        if not given:
            return turn
        self._note_fields(turn.extra, where)
        text = Text(text=self._prompt.give(given), cache=cache)
        return Turn(role="user", parts=(text, *media, *others))

    def _given(self, result: Result, media: list[Part], where: str) -> GivenResult:
        self._note_fields(result.extra, where)
        pieces: list[str] = []
        for part in result.content:
            if isinstance(part, Text):
                pieces.append(part.text)
            else:
                media.append(part)
                self._book.note("result_media", where, _kind(part))
                pieces.append(f"[{_kind(part)} {len(media)} below]")
        text = BETWEEN.join(pieces)
        found = next((end for end in self._prompt.ends if end in text), None)
        if found is not None:
            self._book.note("result_form", where, found)
        call = self._calls.get(result.call_id)
        name = call.name if call is not None else result.name or ""
        number = call.number if call is not None else self._count
        return GivenResult(name, text, result.call_id, number, result.is_error)

    def _note_fields(self, extra: Extra | None, where: str) -> None:
        fields = set(extra.fields) - LEGACY_MARKS if extra is not None else set[str]()
        if fields:
            self._book.note("call_fields", where, ", ".join(sorted(fields)))


def _kind(part: Media | Opaque) -> str:
    return part.kind if isinstance(part, Media) else "attachment"


def _is_object(text: str) -> bool:
    try:
        as_object(text)
    except MalformedJson:
        return False
    return True
