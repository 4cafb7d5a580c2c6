"""Judges one answer: right, refused, wrong, or absent if the model did not do what was asked (it may do so next time). Pure.

The decoders have reported what is irregular in an answer, and the gateway has repaired it before the client got it. So a judge
looks only at the client's answer; if that is right but had problems, it is right, and repaired.
"""

from collections.abc import Callable, Mapping
from typing import Literal, cast

from msgspec import Struct

from dragoman._json import loads
from dragoman.certify.asker import ProbeAnswer, first_parts, text_of
from dragoman.certify.requests import CITY, LOOKUP, OTHER_CITY, SECRET_WORD
from dragoman.errors import MalformedJson
from dragoman.model.parts import Call
from dragoman.model.request import Tool
from dragoman.textcalls import PATTERNS, scan_text

# Characters of an upstream's message that a report shows.
_LONGEST_MESSAGE = 200
_KINDS_SHOWN = 3

Verdict = Literal["right", "refused", "wrong", "absent"]


class ProbeJudgement(Struct, frozen=True):
    """refused: there is no answer. wrong: the answer breaks a rule. absent: the model did not do what it was asked for.

    detail: why; of a right answer, what the gateway repaired in it, empty if nothing.
    """

    verdict: Verdict
    detail: str = ""


Judge = Callable[[ProbeAnswer], ProbeJudgement | None]
"""What is wrong with a complete answer; None if it is right."""


def examine(judge: Judge, seen: ProbeAnswer) -> ProbeJudgement:
    """The judgement on an exchange. A judge sees complete answers only."""
    return _failure(seen) or judge(seen) or ProbeJudgement("right", "; ".join(_repaired(seen)))


def short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"


def calls_of(seen: ProbeAnswer) -> list[Call]:
    parts = first_parts(seen.outcome)
    return [part for part in parts if isinstance(part, Call) and part.executor == "client"]


def _failure(seen: ProbeAnswer) -> ProbeJudgement | None:
    """The judgement on an exchange without a complete answer; None if there is one."""
    if seen.error is not None:
        return ProbeJudgement("refused", short(seen.error.message))
    outcome = seen.outcome
    if outcome is None or outcome.error is not None:
        message = "" if outcome is None or outcome.error is None else outcome.error.message
        return ProbeJudgement("wrong", f"the answer failed: {short(message)}")
    return None


def _repaired(seen: ProbeAnswer) -> list[str]:
    found: dict[str, str] = {}  # the first problem of each kind
    for each in seen.problems:
        found.setdefault(each.kind, f"{each.kind} ({short(each.message)})")
    more = len(found) - _KINDS_SHOWN
    shown = [*found.values()][:_KINDS_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    if seen.text_calls:
        formats = formats_in(seen.text, seen.tools)
        named = f" ({formats[0]})" if formats else ""
        shown.insert(0, f"the model writes its calls as text{named}")
    return shown


def formats_in(text: str, tools: tuple[Tool, ...]) -> list[str]:
    """The text formats that find a call of one of these tools in a text, those with sentinels first."""
    found = [
        pattern
        for pattern in PATTERNS.snapshot()
        if scan_text(text, tools, formats=(pattern.name,)).calls
    ]
    found.sort(key=lambda pattern: not pattern.is_sentinel)
    return [pattern.name for pattern in found]


def arguments_of(call: Call) -> Mapping[str, object]:
    """The arguments as an object; none if they are not one."""
    try:
        value: object = loads(call.input or "{}")
    except MalformedJson:
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


# --- judges -----------------------------------------------------------------------------------------------------------


def answers(seen: ProbeAnswer) -> ProbeJudgement | None:
    """Any text."""
    if text_of(seen.outcome).strip():
        return None
    finish = None if seen.outcome is None else seen.outcome.choices[0].finish
    if finish == "length":
        return ProbeJudgement("absent", "the answer reached its token limit before its first word")
    return ProbeJudgement("wrong", "the answer is empty")


def accepts(_seen: ProbeAnswer) -> None:
    """Any answer, even an empty one."""


def mentions(word: str, otherwise: str) -> Judge:
    """A text that has this word."""

    def judge(seen: ProbeAnswer) -> ProbeJudgement | None:
        is_there = word.lower() in text_of(seen.outcome).lower()
        return None if is_there else ProbeJudgement("absent", otherwise)

    return judge


uses_result = mentions(SECRET_WORD, "the answer does not have what the result of the tool says")


def calls(name: str, has: Callable[[Call], bool], *, space: str = "", lacking: str = "") -> Judge:
    """A call of this tool with the expected input. lacking: what it means if the input is another."""

    def judge(seen: ProbeAnswer) -> ProbeJudgement | None:
        made = calls_of(seen)
        named = [call for call in made if call.name == name and (call.namespace or "") == space]
        if any(map(has, named)):
            return None
        if named and lacking:
            return ProbeJudgement("wrong", lacking)
        if named:
            why = f"the call has other arguments: {short(named[0].input)}"
        elif made:
            why = f"the model called {short(made[0].name)} instead"
        else:
            why = "the model made no call"
        return ProbeJudgement("absent", why)

    return judge


def has_city(city: str) -> Callable[[Call], bool]:
    return lambda call: city.lower() in str(arguments_of(call).get("city", "")).lower()


def has_argument(key: str, word: str) -> Callable[[Call], bool]:
    return lambda call: word in str(arguments_of(call).get(key, ""))


one_call = calls(LOOKUP, has_city(CITY))


def two_calls(seen: ProbeAnswer) -> ProbeJudgement | None:
    made = calls_of(seen)
    if not any(map(has_city(CITY), made)) or not any(map(has_city(OTHER_CITY), made)):
        return ProbeJudgement("absent", f"the model made {len(made)} of two calls in one answer")
    if len({call.call_id for call in made}) < len(made):
        return ProbeJudgement("wrong", "two calls have the same id")
    return None


def calls_nothing(seen: ProbeAnswer) -> ProbeJudgement | None:
    wrong = ProbeJudgement("wrong", "the model called a tool although it must not")
    return wrong if calls_of(seen) else None


def calls_something(seen: ProbeAnswer) -> ProbeJudgement | None:
    return None if calls_of(seen) else ProbeJudgement("wrong", "the choice is ignored")


def calls_only(name: str) -> Judge:
    def judge(seen: ProbeAnswer) -> ProbeJudgement | None:
        if any(call.name != name for call in calls_of(seen)):
            return ProbeJudgement("wrong", "another tool than the chosen one was called")
        return calls_something(seen)

    return judge


def calls_at_most_once(seen: ProbeAnswer) -> ProbeJudgement | None:
    made = len(calls_of(seen))
    return None if made <= 1 else ProbeJudgement("wrong", f"{made} calls came in one answer")


def stops_before(word: str) -> Judge:
    def judge(seen: ProbeAnswer) -> ProbeJudgement | None:
        is_there = word in text_of(seen.outcome)
        return ProbeJudgement("wrong", "the stop sequence is in the answer") if is_there else None

    return judge


def is_json(seen: ProbeAnswer) -> ProbeJudgement | None:
    try:
        value: object = loads(text_of(seen.outcome))
    except MalformedJson:
        return ProbeJudgement("wrong", "the answer is not the JSON that its schema asks for")
    is_object = isinstance(value, dict)
    return None if is_object else ProbeJudgement("wrong", "the answer is not an object")
