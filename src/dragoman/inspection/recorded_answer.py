"""A recorded answer as an exchange: it is the upstream's wire, and the answer that the gateway would send is the client's. Pure.

A recording has the bytes of one side and rarely their times. The client's side is the answer in regular form, in its own dialect or
in another, written frame by frame as the gateway writes it.
"""

from collections.abc import Sequence
from itertools import chain, repeat

from dragoman.dialects.shapes import DialectName
from dragoman.dialects.translate import StreamTranslator, translate_body
from dragoman.inspection.call_rows import call_rows
from dragoman.inspection.exchange import (
    ExchangeFacts,
    RecordedAnswer,
    RecordedAttempt,
    RecordedExchange,
    TimedBytes,
)
from dragoman.inspection.exchange_form import ExchangeReport
from dragoman.inspection.exchange_report import report_exchange
from dragoman.inspection.recording import Recognised
from dragoman.inspection.redaction import redact_exchange
from dragoman.inspection.report import Report
from dragoman.model.outcome import Loss, Problem


def exchange_of(
    recognised: Recognised,
    report: Report,
    id_: str,
    upstream: str,
    *,
    target: DialectName | None = None,
    times: Sequence[float] = (),
) -> RecordedExchange:
    """The exchange that a recorded answer of an upstream belongs to, under this id.

    target: the client's dialect; None: that of the answer. times: of each frame, in seconds since 1970; empty if not recorded.
    """
    client = target or recognised.dialect
    start = times[0] if times else 0.0
    answer, sent, losses = _wires(recognised, client, [(at - start) * 1000 for at in times])
    status = recognised.recording.status or 200
    attempt = RecordedAttempt(
        upstream=upstream,
        dialect=recognised.dialect,
        model=report.model,
        # The client's wire is made from the answer, whatever its status.
        answer=RecordedAnswer(status=200, pieces=tuple(answer)),
    )
    return RecordedExchange(
        id=id_,
        at=start,
        dialect=client,
        path="",
        answer=RecordedAnswer(status=status, pieces=tuple(sent)),
        attempts=(attempt,),
        facts=_facts(report, status, losses, upstream),
    )


def report_recorded(exchange: RecordedExchange) -> ExchangeReport:
    """The description of an exchange on its own, without secrets."""
    return report_exchange(redact_exchange(exchange), calls=call_rows(exchange))


def _wires(
    recognised: Recognised, client: DialectName, times: Sequence[float]
) -> tuple[list[TimedBytes], list[TimedBytes], tuple[Loss, ...]]:
    recording = recognised.recording
    if recognised.form == "body":
        body = recording.body
        sent = translate_body(body, recognised.dialect, client).body
        return [TimedBytes(0.0, body)], [TimedBytes(0.0, sent)], ()
    translator = StreamTranslator(recognised.dialect, client)
    answer: list[TimedBytes] = []
    written: list[TimedBytes] = []
    last = times[-1] if times else 0.0
    for at, (_, frame) in zip(chain(times, repeat(last)), recording.frames(), strict=False):
        answer.append(TimedBytes(at, frame))
        written.append(TimedBytes(at, translator.feed(frame)))
    end = answer[-1].at if answer else 0.0
    written.append(TimedBytes(end, translator.close()))
    return answer, [piece for piece in written if piece.data], translator.losses


def _facts(report: Report, status: int, losses: tuple[Loss, ...], upstream: str) -> ExchangeFacts:
    usage, error = report.usage, report.error
    return ExchangeFacts(
        model=report.model,
        upstream=upstream,
        upstream_dialect=report.dialect,
        stream=report.form == "stream",
        status=status,
        finish=report.choices[0].finish if report.choices else None,
        error_kind=None if error is None else error.kind,
        error=None if error is None else error.message,
        total_ms=None if report.timing is None else report.timing.total_ms,
        first_byte_ms=None if report.timing is None else report.timing.first_ms,
        input_tokens=None if usage is None else usage.input,
        cached_tokens=None if usage is None else usage.cached,
        output_tokens=None if usage is None else usage.output,
        calls=tuple(call.name for call in report.calls),
        losses=losses,
        problems=tuple(Problem(each.frame, each.kind, each.message) for each in report.problems),
    )
