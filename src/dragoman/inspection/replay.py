"""Recorded requests sent again: the body to send, which recording a request matches, and what differs in the calls. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import cast

from msgspec import Struct, structs

from dragoman._json import as_object, dumps, dumps_document, is_same_json, is_same_value, loads
from dragoman.dialects.registry import codec
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.inspection.exchange import RecordedAnswer, RecordedExchange
from dragoman.inspection.wire_reading import WireReading, read_answer
from dragoman.model.parts import Call, Dialect

# Differences that a message lists; more would not help a person.
_MAX_NAMED = 5
_MAX_VALUE = 80  # characters of a value in a message


def request_again(exchange: RecordedExchange, dialect: Dialect, model: str | None = None) -> bytes:
    """The body of a recorded request, in another dialect or for another model if these are given.

    Raises:
        RequestRefused: it is not a request, or the dialect cannot express it.
    """
    if dialect == exchange.dialect:
        if model is None:
            return exchange.body
        try:
            fields: dict[str, object] = {**as_object(exchange.body), "model": model}
        except MalformedJson as error:
            raise RequestRefused(f"expected a request: {error.message}") from error
        return dumps_document(fields)
    request = codec(exchange.dialect).decode_request(exchange.body)
    if model is not None:
        request = structs.replace(request, model=model)
    return codec(dialect).encode_request(request).body


# --- finding the recording of a request ---------------------------------------------------------------------------------


def describe_difference(wanted: bytes, recorded: bytes) -> list[str]:
    """Where a request differs from a recorded one: a line for each of the first differences."""
    try:
        lines = list(islice(_places(wanted, recorded), _MAX_NAMED + 1))
    except MalformedJson:
        return ["one of the two is not JSON"]
    except RecursionError:
        return ["they nest too deep to be compared"]
    return [*lines[:_MAX_NAMED], "and more"] if len(lines) > _MAX_NAMED else lines


def count_differences(wanted: bytes, recorded: bytes, limit: int) -> int:
    """How many places differ; `limit` if there are more."""
    try:
        return sum(1 for _ in islice(_places(wanted, recorded), limit))
    except (MalformedJson, RecursionError):
        return limit


def _places(wanted: bytes, recorded: bytes) -> Iterator[str]:
    return _differences("", cast("object", loads(wanted)), cast("object", loads(recorded)))


def _differences(path: str, one: object, other: object) -> Iterator[str]:
    pair = (one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        first: dict[str, object] = cast("dict[str, object]", one)
        yield from _of_objects(path, first, cast("dict[str, object]", other))
    elif isinstance(one, list) and isinstance(other, list):
        entries: list[object] = cast("list[object]", one)
        yield from _of_lists(path, entries, cast("list[object]", other))
    elif not is_same_value(*pair):
        yield f"{path or 'the body'}: expected {_shown(other)}, got {_shown(pair[0])}"


def _of_lists(path: str, one: list[object], other: list[object]) -> Iterator[str]:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        yield from _differences(f"{path}[{index}]", left, right)
    if len(one) != len(other):
        yield f"{path or 'the body'}: expected {len(other)} entries, got {len(one)}"


def _of_objects(path: str, one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    for name in {**other, **one}:
        place = f"{path}.{name}" if path else name
        if name not in one:
            yield f"{place}: expected {_shown(other[name])}, it is missing"
        elif name not in other:
            yield f"{place}: expected nothing, got {_shown(one[name])}"
        else:
            yield from _differences(place, one[name], other[name])


def _shown(value: object) -> str:
    text = dumps(value).decode("utf-8", "replace")
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


# --- comparing answers --------------------------------------------------------------------------------------------------


class CallDifference(Struct, frozen=True):
    """A difference between two answers: `what`, in the recorded one, in the new one. `is_spelling`: the JSON is the same."""

    what: str
    recorded: str
    now: str
    is_spelling: bool = False


def compare_answers(
    recorded: RecordedAnswer, now: RecordedAnswer, dialect: Dialect
) -> list[CallDifference]:
    """What differs in the calls of two answers, and in how they ended. Prose, ids and usage may differ."""
    first, second = read_answer(recorded, dialect), read_answer(now, dialect)
    found = list(_compare_calls(_calls(first), _calls(second)))
    before, after = _finishes(first), _finishes(second)
    if before != after:
        found.append(CallDifference("finish", before, after))
    return found


def _calls(wire: WireReading) -> list[Call]:
    return [ended.call for ended in sorted(wire.calls, key=lambda each: (each.choice, each.part))]


def _compare_calls(recorded: Sequence[Call], now: Sequence[Call]) -> Iterator[CallDifference]:
    names, others = [call.name for call in recorded], [call.name for call in now]
    if len(names) != len(others):
        yield CallDifference("number of calls", str(len(names)), str(len(others)))
    if names != others:
        what = "order of calls" if sorted(names) == sorted(others) else "names of calls"
        yield CallDifference(what, ", ".join(names), ", ".join(others))
        return
    for number, (one, other) in enumerate(zip(recorded, now, strict=True), 1):
        where = f"call {number} ({one.name})"
        if one.input != other.input:
            is_same = is_same_json(one.input, other.input)
            what = f"{where} bytes of the arguments" if is_same else f"{where} arguments"
            yield CallDifference(what, one.input, other.input, is_spelling=is_same)
        if one.status != other.status:
            yield CallDifference(f"{where} status", one.status, other.status)


def _finishes(wire: WireReading) -> str:
    if wire.outcome.error is not None:
        return f"error {wire.outcome.error.kind}"
    return ", ".join(choice.finish or "none" for choice in wire.outcome.choices) or "none"
