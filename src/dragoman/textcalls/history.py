"""Calls in the text of a conversation that is sent back: the model reads them as an example, and writes the next one as text too.

A client that ran without the gateway has recorded them as the model wrote them. `repair_history` puts the call in place of its
markup, by the rules for answers: the format has a sentinel, the tool is offered, the block is whole and not in a code fence. The
call gets the result that the client sent for it, if there is one without a call; otherwise `core.pairing` supplies one. Each
is reported as a Repair, `written_call`.

The same conversation is always repaired in the same way, and a turn in the same way whatever follows its results, so that
a provider's cache of the conversation's beginning stays valid.
"""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import count

from msgspec.structs import replace

from dragoman.model.events import PartEnded
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, Part, Result, Text
from dragoman.model.request import Request, Turn
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import CallFound
from dragoman.textcalls.offers import Offers, offers_of
from dragoman.textcalls.openers import Openers, openers_of
from dragoman.textcalls.registry import patterns_for
from dragoman.textcalls.scanner import CallIds, FindingWriter

_NO_REPAIRS: tuple[Repair, ...] = ()


def repair_history(
    request: Request, *, formats: str | Iterable[str] = "auto", model: str | None = None
) -> tuple[Request, tuple[Repair, ...]]:
    """Return the request with calls in place of those that the assistant wrote as text, and the repairs.

    The request itself is returned if it has none. formats, model: as for an answer; only formats with a sentinel are looked for.

    Raises:
        ConfigError: `formats` has an unknown name.
    """
    # The last turn is not history: where it is the assistant's, the model continues it.
    history = request.turns[:-1]
    for turn in history:
        if turn.role == "assistant":
            break
    else:
        return request, _NO_REPAIRS  # the first request of a conversation
    turns = [(n, turn) for n, turn in enumerate(history) if turn.role == "assistant"]
    offers = offers_of(request.tools)
    if not offers:
        return request, _NO_REPAIRS
    patterns = patterns_for(formats, model or request.model, leaks=True).sentinels
    openers = openers_of(patterns, offers)
    found = [number for number, turn in turns if _may_have_calls(turn, openers)]
    if not found:
        return request, _NO_REPAIRS
    repairing = _HistoryRepair(request, openers, offers)
    for number in found:
        repairing.repair(number)
    if not repairing.repairs:
        return request, _NO_REPAIRS
    return replace(request, turns=tuple(repairing.turns)), tuple(repairing.repairs)


def _may_have_calls(turn: Turn, openers: Openers) -> bool:
    """Return whether a turn may have a written call. One with a structured call is left alone: that call may be the same."""
    has_opener = False
    for part in turn.parts:
        if isinstance(part, Call):
            return False
        if type(part) is Text and not has_opener and not part.annotations:
            has_opener = openers.occur_in(part.text)
    return has_opener


class _HistoryRepair:
    """The repair of one conversation. turns: the conversation, as far as it is repaired."""

    def __init__(self, request: Request, openers: Openers, offers: Offers) -> None:
        self.turns: list[Turn] = list(request.turns)
        self.repairs: list[Repair] = []
        self._openers = openers
        self._offers = offers
        self._texts: Counter[str] = Counter()
        self._used: set[str] = set()
        # Results without a call may be those of written calls, unless the provider has earlier turns with their calls.
        parts = [part for turn in request.turns for part in turn.parts]
        self._known = {part.call_id for part in parts if isinstance(part, Call)}
        self._is_whole = request.previous_id is None

    def repair(self, number: int) -> None:
        """Put calls into a turn."""
        turn = self.turns[number]
        read = [self._read(part) for part in turn.parts]
        calls = [each for written in read for each in written if isinstance(each, Call)]
        answered = _answered(calls, self._stray_results(number))
        parts: list[Part] = []
        for index, written in enumerate(read):
            for each in written:
                if isinstance(each, Call):
                    parts.append(replace(each, call_id=answered.get(each.call_id, each.call_id)))
                    where = f"turns[{number}].parts[{index}]"
                    self.repairs.append(Repair("written_call", where, each.name))
                else:
                    parts.append(each)
        self.turns[number] = replace(turn, parts=tuple(parts))

    def _read(self, part: Part) -> list[Part]:
        """Return a text with calls as several parts; any other part alone."""
        if type(part) is not Text or part.annotations:
            return [part]
        finder = Finder(self._openers, self._offers)
        found = [*finder.feed(part.text), *finder.finish("stop")]
        if not any(isinstance(one, CallFound) for one in found):
            return [part]
        self._texts[part.text] += 1
        # The same text gets the same ids in every request, and other ids each time it occurs.
        seed = f"{self._texts[part.text]} {part.text}"
        writer = FindingWriter(count().__next__, self._offers, CallIds(seed, self._used))
        events = writer.write(found)
        writer.end_all(events)
        values = [event.value for event in events if isinstance(event, PartEnded)]
        parts: list[Part] = [
            replace(part, text=value.text, cache=None) if isinstance(value, Text) else value
            for value in values
            if not isinstance(value, Text) or value.text.strip()
        ]
        last = parts[-1]
        if part.cache is not None and isinstance(last, (Text, Call)):
            parts[-1] = replace(last, cache=part.cache)
        return parts

    def _stray_results(self, number: int) -> dict[str, Result]:
        """Return the results after a turn and before the next turn of the assistant that have no call, by their ids."""
        found: dict[str, Result] = {}
        for later in range(number + 1, len(self.turns) if self._is_whole else 0):
            turn = self.turns[later]
            if turn.role == "assistant":
                break
            for part in turn.parts:
                if isinstance(part, Result) and part.call_id and part.call_id not in self._known:
                    found.setdefault(part.call_id, part)
        return found


def _answered(calls: list[Call], results: dict[str, Result]) -> dict[str, str]:
    """Return the id of each call's result, by the id of the call: the result with its id, else with its name, else the next."""
    answered = {call.call_id: call.call_id for call in calls if results.pop(call.call_id, None)}
    named: dict[str | None, deque[str]] = {}
    for call_id, result in results.items():
        named.setdefault(result.name, deque()).append(call_id)
    for call in calls:
        if call.call_id not in answered and named.get(call.name):
            answered[call.call_id] = named[call.name].popleft()
            del results[answered[call.call_id]]
    others = [call.call_id for call in calls if call.call_id not in answered]
    return {**answered, **dict(zip(others, results, strict=False))}
