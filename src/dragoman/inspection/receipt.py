"""Receipts: for each call of an exchange, what came in and what went out, by hashes. Pure.

A receipt contains no arguments or texts. `verify` makes the receipt of a recording and compares the two: anyone who has both can see
that nothing was changed in between. A receipt is not signed; it does not prove who made it.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from dragoman._json import FAST_FAILURES, dumps, typed_decoder
from dragoman.core.secrets import HIDDEN
from dragoman.core.usage import InputHash
from dragoman.errors import RequestRefused
from dragoman.inspection.call_rows import call_rows
from dragoman.inspection.exchange import RecordedExchange
from dragoman.inspection.exchange_form import BothSides, CallRow, InputReport

VERSION = 1


class CallReceipt(Struct, frozen=True, kw_only=True):
    """One call. `place`: `answer`: the model made it; `request`: it is in the conversation that the client sent.

    paired: whether the request has its result; null for a call of the answer, whose result comes later.
    """

    place: Literal["answer", "request"]
    kind: str
    id: BothSides
    name: BothSides
    executor: str
    executable: bool
    why: str | None
    upstream: InputHash | None
    client: InputHash | None
    equal: bool | None
    paired: bool | None = None


class Receipt(Struct, frozen=True, kw_only=True):
    """The receipt of one exchange.

    finish, losses, repairs, problems: null in the receipt inside an answer, because its end was not known yet.
    truncated: the capture left bytes out, so that the receipt may lack calls.
    """

    version: int
    id: str
    at: float
    door: str
    model: str
    upstream: str | None
    upstream_dialect: str | None
    calls: tuple[CallReceipt, ...]
    finish: str | None = None
    losses: tuple[str, ...] | None = None
    repairs: tuple[str, ...] | None = None
    problems: tuple[str, ...] | None = None
    truncated: bool = False


_read_receipt = typed_decoder(Receipt)


def receipt_of(exchange: RecordedExchange) -> Receipt:
    """The receipt of an exchange that still has its secrets: after redaction the hashes would not be those of the wire."""
    facts = exchange.facts
    last = exchange.attempts[-1] if exchange.attempts else None
    receipt = Receipt(
        version=VERSION,
        id=exchange.id,
        at=exchange.at,
        door=exchange.dialect,
        model=facts.model or ("" if last is None else last.model),
        upstream=None if last is None else last.upstream,
        upstream_dialect=None if last is None else last.dialect,
        calls=tuple(map(_call_receipt, call_rows(exchange))),
        truncated=exchange.is_truncated,
    )
    if exchange.is_live:
        return receipt
    return structs.replace(
        receipt,
        finish=facts.finish,
        losses=tuple(f"{each.code} {each.action} {each.where}".rstrip() for each in facts.losses),
        repairs=tuple(f"{each.rule} {each.where}".rstrip() for each in facts.repairs),
        problems=tuple(each.kind for each in facts.problems),
    )


def _call_receipt(row: CallRow) -> CallReceipt:
    return CallReceipt(
        place=row.place,
        kind=row.kind,
        id=row.id,
        name=row.name,
        executor=row.executor,
        executable=row.executable,
        why=row.why,
        upstream=_input_receipt(row.input.upstream),
        client=_input_receipt(row.input.client),
        equal=row.input.equal,
        paired=row.result.state == "paired" if row.place == "request" else None,
    )


def _input_receipt(report: InputReport | None) -> InputHash | None:
    return None if report is None else InputHash(report.bytes, report.sha256)


def read_receipt(data: bytes) -> Receipt:
    """
    Raises:
        RequestRefused: it is not a receipt of a known version.
    """
    try:
        receipt = _read_receipt(data)
    except (*FAST_FAILURES, RecursionError) as error:
        raise RequestRefused(f"expected a receipt: {error}") from error
    if receipt.version != VERSION:
        raise RequestRefused(f"expected a receipt of version {VERSION}, got {receipt.version}")
    return receipt


def receipt_words(receipt: Receipt) -> list[str]:
    """A line for each call, for a log: both ids, both hashes, and whether they are equal."""
    return [
        f"{call.place} {call.name.client or call.name.upstream} {_short(call.id)} "
        f"{_hash(call.upstream)}->{_hash(call.client)} {_EQUAL[call.equal]}"
        for call in receipt.calls
    ]


_EQUAL = {True: "equal", False: "differs", None: "one side"}


def _short(ids: BothSides) -> str:
    same = ids.upstream == ids.client
    return str(ids.client) if same else f"{ids.upstream or '-'}={ids.client or '-'}"


def _hash(side: InputHash | None) -> str:
    return "-" if side is None else side.sha256[:12]


# --- verification -------------------------------------------------------------------------------------------------------


class Discrepancy(Struct, frozen=True):
    """A statement of a receipt that the recording contradicts, or that cannot be checked: `is_checked` is then False."""

    what: str
    is_checked: bool = True


def verify(receipt: Receipt, recording: RecordedExchange) -> list[Discrepancy]:
    """Compare a receipt with a recording of the same exchange. Nothing is found if every statement is true."""
    found = receipt_of(recording)
    rows = call_rows(recording)
    findings: list[Discrepancy] = []
    if receipt.id != found.id:
        findings.append(
            Discrepancy(f"id: the receipt has {receipt.id!r}, the recording {found.id!r}")
        )
    for name in ("at", "door", "upstream", "upstream_dialect"):
        findings += _compare(name, getattr(receipt, name), getattr(found, name))
    findings += _compare_model(receipt, found, recording)
    if receipt.truncated or found.truncated:
        findings.append(Discrepancy("the capture left bytes out", is_checked=False))
    if len(receipt.calls) != len(found.calls):
        findings.append(
            Discrepancy(
                f"calls: the receipt has {len(receipt.calls)}, the recording {len(found.calls)}"
            )
        )
    for number, (claimed, seen, row) in enumerate(
        zip(receipt.calls, found.calls, rows, strict=False), 1
    ):
        findings += _compare_call(f"call {number}", claimed, seen, row)
    for name in ("finish", "losses", "repairs", "problems"):
        if getattr(receipt, name) is not None:
            findings += _compare(name, getattr(receipt, name), getattr(found, name))
    return findings


def _compare_model(
    receipt: Receipt, found: Receipt, recording: RecordedExchange
) -> Sequence[Discrepancy]:
    """The receipt inside an answer has the upstream's name for the model, a later one the client's."""
    sent = recording.attempts[-1].model if recording.attempts else ""
    if receipt.model in (found.model, sent):
        return ()
    if HIDDEN in (found.model, sent):
        message = "model: the recording has no secrets, so that its name differs"
        return (Discrepancy(message, is_checked=False),)
    return _compare("model", receipt.model, found.model)


def _compare_call(
    where: str, claimed: CallReceipt, seen: CallReceipt, row: CallRow
) -> Iterator[Discrepancy]:
    for name in ("place", "kind", "id", "name", "executor", "paired"):
        yield from _compare(f"{where} {name}", getattr(claimed, name), getattr(seen, name))
    sides = (
        ("upstream", claimed.upstream, seen.upstream, row.input.upstream),
        ("client", claimed.client, seen.client, row.input.client),
    )
    is_hidden = False
    for side, first, second, report in sides:
        if first == second:
            continue
        if report is not None and HIDDEN in report.text:
            is_hidden = True
            message = (
                f"{where} input {side}: the recording has no secrets, so that its hash differs"
            )
            yield Discrepancy(message, is_checked=False)
        else:
            yield from _compare(f"{where} input {side}", first, second)
    if not is_hidden:
        for name in ("equal", "executable", "why"):
            yield from _compare(f"{where} {name}", getattr(claimed, name), getattr(seen, name))


def _compare(what: str, claimed: object, seen: object) -> Sequence[Discrepancy]:
    if claimed == seen:
        return ()
    first, second = (dumps(each).decode("utf-8") for each in (claimed, seen))
    return (Discrepancy(f"{what}: the receipt has {first}, the recording {second}"),)
