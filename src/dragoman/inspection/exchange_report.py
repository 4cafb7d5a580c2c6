"""The description of one exchange: both wires frame by frame, the events between them, its calls and its problems. Pure.

An upstream's answer is decoded by the upstream's dialect, the client's answer by the client's (`wire_reading`). `call_rows`
compares the calls of both, `event_links` finds what each event became.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import Match, SequenceMatcher
from typing import cast

from msgspec import structs

from dragoman._json import Raw, dumps, dumps_document, loads
from dragoman.errors import MalformedJson
from dragoman.inspection.call_rows import ExchangeReading, call_rows, with_hashes
from dragoman.inspection.event_links import common_prefix, link_events
from dragoman.inspection.exchange import RecordedAnswer, RecordedAttempt, RecordedExchange
from dragoman.inspection.exchange_form import (
    AnswerReport,
    AttemptReport,
    CallRow,
    ChangedLine,
    ChangeReport,
    ClientReport,
    ErrorReport,
    ExchangeReport,
    FrameReport,
    Note,
    RequestSummary,
    Side,
    UsageReport,
)
from dragoman.inspection.wire_reading import WireReading
from dragoman.model.events import Finished, PartStarted
from dragoman.model.outcome import Loss

# Lines of a change that are sent: a page cannot show more, and `common_prefix_bytes` says where the change begins.
_MAX_LINES = 400
_CONTEXT_LINES = 3
# Lines that are compared one by one beyond the common beginning and end; difflib's work grows with their product.
_MAX_COMPARED = 2000
_MAX_LINE = 2000  # characters
_WHERE = re.compile(r"(part|choice|content|output)[ \[](\d{1,9})")
_BLOCKS = ("content", "output")
_SLICE = 256  # entries of a list that are encoded at once


def summarize(exchange: RecordedExchange, previous: str | None = None) -> RequestSummary:
    """The row of an exchange in a list."""
    facts = exchange.facts
    counts = (facts.input_tokens, facts.cached_tokens, facts.output_tokens)
    is_counted = any(count is not None for count in counts)
    has_error = facts.error_kind is not None
    return RequestSummary(
        id=exchange.id,
        at=exchange.at,
        door=exchange.dialect,
        model=facts.model,
        upstream=facts.upstream,
        upstream_dialect=facts.upstream_dialect,
        stream=facts.stream,
        live=exchange.is_live,
        status=facts.status,
        finish=facts.finish,
        error=ErrorReport(facts.error_kind or "", facts.error or "") if has_error else None,
        first_byte_ms=facts.first_byte_ms,
        total_ms=facts.total_ms,
        usage=UsageReport(*counts) if is_counted else None,
        calls=facts.calls,
        losses=len(facts.losses),
        repairs=len(facts.repairs),
        problems=len(facts.problems),
        previous=previous,
    )


# --- the whole report -------------------------------------------------------------------------------------------------


def report_exchange(
    exchange: RecordedExchange,
    *,
    previous: RecordedExchange | None = None,
    following: Sequence[RecordedExchange] = (),
    calls: Sequence[CallRow] | None = None,
) -> ExchangeReport:
    """Describe an exchange.

    previous: the request before it in the conversation. following: later requests of the conversation, which have the results.
    calls: the rows of the exchange before its secrets were taken out; their hashes are reported.
    """
    reading = ExchangeReading(exchange)
    rows = call_rows(exchange, following, reading)
    if calls is not None:
        rows = tuple(with_hashes(row, whole) for row, whole in zip(rows, calls, strict=False))
    return ExchangeReport(
        summary=summarize(exchange, None if previous is None else previous.id),
        client=ClientReport(
            dialect=exchange.dialect,
            method=exchange.method,
            path=exchange.path,
            headers=exchange.headers,
            body=_text(exchange.body),
            answer=_report_answer(exchange.answer, reading.client),
        ),
        attempts=tuple(
            _report_attempt(attempt, wire)
            for attempt, wire in zip(exchange.attempts, reading.attempts, strict=True)
        ),
        events=tuple(link_events(reading)),
        calls=rows,
        notes=tuple(_notes(exchange, reading)),
        change=None if previous is None else _change(exchange, previous),
        truncated=exchange.is_truncated,
    )


def _report_answer(answer: RecordedAnswer, wire: WireReading | None) -> AnswerReport:
    frames = () if wire is None else wire.frames
    return AnswerReport(
        status=answer.status,
        headers=answer.headers,
        stream=answer.is_stream,
        frames=tuple(
            FrameReport(frame.number, round(frame.at, 3), len(frame.raw), frame.text)
            for frame in frames
        ),
    )


def _report_attempt(attempt: RecordedAttempt, wire: WireReading | None) -> AttemptReport:
    return AttemptReport(
        upstream=attempt.upstream,
        dialect=attempt.dialect,
        model=attempt.model,
        address=attempt.address,
        at=round(attempt.at, 3),
        headers=attempt.headers,
        body=_text(attempt.body),
        answer=None if attempt.answer is None else _report_answer(attempt.answer, wire),
        error=attempt.error,
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def to_json(report: ExchangeReport) -> bytes:
    """The report as JSON. Long lists are encoded in slices: one call would keep the interpreter's lock for too long."""
    client = {**structs.asdict(report.client), "answer": _answer_json(report.client.answer)}
    attempts = [
        {
            **structs.asdict(attempt),
            "answer": None if attempt.answer is None else _answer_json(attempt.answer),
        }
        for attempt in report.attempts
    ]
    lists = {"events": _list_json(report.events), "calls": _list_json(report.calls)}
    members = {**structs.asdict(report), "client": client, "attempts": attempts, **lists}
    return dumps_document(members)


def _answer_json(answer: AnswerReport) -> dict[str, object]:
    return {**structs.asdict(answer), "frames": _list_json(answer.frames)}


def _list_json(values: Sequence[object]) -> Raw:
    slices = (values[at : at + _SLICE] for at in range(0, len(values), _SLICE))
    return Raw(b"[" + b",".join([dumps_document(some)[1:-1] for some in slices]) + b"]")


# --- losses, repairs, problems ----------------------------------------------------------------------------------------


def _notes(exchange: RecordedExchange, reading: ExchangeReading) -> Iterator[Note]:
    """The losses, repairs and problems, each with its cause if it is known: a field of the request or a frame of an answer."""
    last = exchange.attempts[-1] if exchange.attempts else None
    target = exchange.facts.upstream_dialect or (last.dialect if last is not None else "")
    asked = set(() if last is None else last.losses)
    places = _places(reading) if exchange.facts.losses else {}
    for loss in exchange.facts.losses:
        # A loss of the request is in the upstream's dialect, one of the answer in the client's.
        is_asked = loss in asked
        side, frame = ("client", None) if is_asked else _place_of_loss(loss, places)
        dialect = target if is_asked else exchange.dialect
        message = f"{loss.code}: {loss.action}" + (f" ({loss.detail})" if loss.detail else "")
        yield Note(
            type="loss",
            code=loss.code,
            message=message,
            side=side,
            docs=f"dialects/{dialect}.md#losses",
            field=loss.where or None,
            frame=frame,
        )
    for repair in exchange.facts.repairs:
        message = repair.rule + (f" ({repair.detail})" if repair.detail else "")
        yield Note(
            type="repair",
            code=repair.rule,
            message=message,
            side="client",
            docs=f"dialects/{target}.md#normalisations",
            field=repair.where or None,
        )
    for wire in (*reading.wires, reading.client):
        for problem in wire.problems:
            yield Note(
                type="problem",
                code=problem.kind,
                message=problem.message,
                side="client" if wire is reading.client else "upstream",
                docs=f"dialects/{wire.dialect}.md#problems",
                frame=problem.frame or None,
            )


_Place = tuple[Side, int | None]


def _places(reading: ExchangeReading) -> dict[tuple[str, int], _Place]:
    """The frames that a loss of the answer may be about. Encoders name it by its part, its choice or its block."""
    places: dict[tuple[str, int], _Place] = {}
    last = reading.attempts[reading.answered[-1]] if reading.answered else None
    for placed in () if last is None else last.events:
        event = placed.event
        if isinstance(event, PartStarted):
            places.setdefault(("part", event.part), ("upstream", placed.frame))
        elif isinstance(event, Finished):
            places.setdefault(("choice", event.choice), ("upstream", placed.frame))
    started = (each for each in reading.client.events if isinstance(each.event, PartStarted))
    for number, placed in enumerate(started):
        for block in _BLOCKS:
            places[block, number] = ("client", placed.frame)
    return places


def _place_of_loss(loss: Loss, places: Mapping[tuple[str, int], _Place]) -> _Place:
    match = _WHERE.match(loss.where)
    if match is None:
        return "upstream", None
    unknown: Side = "client" if match[1] in _BLOCKS else "upstream"
    return places.get((match[1], int(match[2])), (unknown, None))


# --- the change against the request before ------------------------------------------------------------------------------


def _change(exchange: RecordedExchange, previous: RecordedExchange) -> ChangeReport:
    now, before = _sent_body(exchange), _sent_body(previous)
    return ChangeReport(
        previous=previous.id,
        common_prefix_bytes=common_prefix(now, before),
        lines=tuple(_changed_lines(_lines(before), _lines(now))),
        cached_tokens=exchange.facts.cached_tokens,
    )


def _sent_body(exchange: RecordedExchange) -> bytes:
    """The body that the upstream got; the client's if none was sent."""
    return exchange.attempts[-1].body if exchange.attempts else exchange.body


def _lines(body: bytes) -> list[str]:
    """The body in lines: one for each member of the request, one for each entry of a list in it."""
    try:
        value: object = loads(body)
    except MalformedJson:
        return [line[:_MAX_LINE] for line in _text(body).splitlines()]
    if not isinstance(value, dict):
        return [_line(value)]
    lines: list[str] = []
    for name, member in cast("dict[str, object]", value).items():
        if isinstance(member, list):
            entries = enumerate(cast("list[object]", member))
            lines += [f"{name}[{index}] {_line(entry)}" for index, entry in entries]
        else:
            lines.append(f"{name} {_line(member)}")
    return lines


def _line(value: object) -> str:
    text = dumps(value).decode("utf-8", "replace")
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]}…"


def _changed_lines(before: list[str], now: list[str]) -> Iterator[ChangedLine]:
    """The lines that differ, with a few that are the same around them."""
    head = 0
    while head < min(len(before), len(now)) and before[head] == now[head]:
        head += 1
    tail = 0
    most = min(len(before), len(now)) - head
    while tail < most and before[-1 - tail] == now[-1 - tail]:
        tail += 1
    removed, added = before[head : len(before) - tail], now[head : len(now) - tail]
    lines: list[ChangedLine] = [
        ChangedLine("=", line) for line in now[max(0, head - _CONTEXT_LINES) : head]
    ]
    same = (
        SequenceMatcher(a=removed, b=added).get_matching_blocks()
        if len(removed) + len(added) <= _MAX_COMPARED
        else [Match(len(removed), len(added), 0)]
    )
    low = start = 0
    for one, other, size in same:
        lines += [ChangedLine("-", line) for line in removed[low:one]]
        lines += [ChangedLine("+", line) for line in added[start:other]]
        lines += [ChangedLine("=", line) for line in removed[one : one + size]]
        low, start = one + size, other + size
    end_of_now = len(now) - tail
    lines += [ChangedLine("=", line) for line in now[end_of_now : end_of_now + _CONTEXT_LINES]]
    return iter(lines[:_MAX_LINES])
