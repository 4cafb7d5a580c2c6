"""The calls of an exchange on both wires: ids, names, hashes of their inputs, whether they may be run, and their results. Pure.

The source text of the input is compared: the text of a JSON string if the dialect sends one, and the bytes of the JSON object if
it sends an object. The input is never parsed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import structs

from dragoman.core.aliases import original_id
from dragoman.core.call_input import judge
from dragoman.core.usage import hash_input
from dragoman.dialects.registry import CODECS
from dragoman.errors import GatewayError
from dragoman.inspection.exchange import RecordedExchange
from dragoman.inspection.exchange_form import (
    BothSides,
    CallRow,
    InputReport,
    InputsReport,
    ResultReport,
)
from dragoman.inspection.wire_reading import EndedCall, WireReading, read_answer
from dragoman.model.parts import Call, Result
from dragoman.model.request import Request


class ExchangeReading:
    """The wires of an exchange, read. `answered`: the indices of the attempts that the client's answer was made from."""

    def __init__(self, exchange: RecordedExchange) -> None:
        self.client = read_answer(exchange.answer, exchange.dialect)
        self.attempts = tuple(
            None if attempt.answer is None else read_answer(attempt.answer, attempt.dialect)
            for attempt in exchange.attempts
        )
        self.answered = [
            index for index, attempt in enumerate(exchange.attempts) if attempt.is_answered
        ]

    @property
    def wires(self) -> list[WireReading]:
        """The answers of the upstreams that the client's answer was made from."""
        found = (self.attempts[index] for index in self.answered)
        return [wire for wire in found if wire is not None]

    def upstream_calls(self) -> list[tuple[int, EndedCall]]:
        """The calls of the upstreams' answers, each with the index of its attempt."""
        pairs = zip(self.answered, self.wires, strict=True)
        return [(index, call) for index, wire in pairs for call in wire.calls]


def call_rows(
    exchange: RecordedExchange,
    following: Sequence[RecordedExchange] = (),
    reading: ExchangeReading | None = None,
) -> tuple[CallRow, ...]:
    """The calls of the answer, and those of the conversation that was sent, on both wires."""
    reading = ExchangeReading(exchange) if reading is None else reading
    upstream = reading.upstream_calls()
    pairs = pair_calls([call for _, call in upstream], reading.client.calls)
    results = _results(following)
    rows = [_answer_row(pair, results, is_live=exchange.is_live) for pair in pairs]
    return (*rows, *_history_rows(exchange))


Pair = tuple[EndedCall | None, EndedCall | None]


def pair_calls(upstream: Sequence[EndedCall], client: Sequence[EndedCall]) -> list[Pair]:
    """Pair the same calls of both wires: by id, by the id that an alias stands for, otherwise by name and order."""
    free = {id(call): call for call in client}
    matches: list[EndedCall | None] = [None] * len(upstream)
    for key in (_original_id, _name):
        same: dict[str, list[EndedCall]] = defaultdict(list)
        for call in reversed(free.values()):
            same[key(call)].append(call)
        for index, call in enumerate(upstream):
            if matches[index] is None and same[key(call)]:
                matches[index] = match = same[key(call)].pop()
                del free[id(match)]
    return [*zip(upstream, matches, strict=True), *((None, call) for call in free.values())]


def _original_id(call: EndedCall) -> str:
    return original_id(call.call.call_id)


def _name(call: EndedCall) -> str:
    return call.call.name


def _answer_row(pair: Pair, results: Mapping[str, str], *, is_live: bool) -> CallRow:
    row = _row(pair)
    client = pair[1]
    if client is None:
        return structs.replace(row, executable=False, why=row.why if is_live else "not_sent")
    if not row.executable:
        return row
    request = results.get(original_id(client.call.call_id))
    return structs.replace(
        row, result=ResultReport("waiting" if request is None else "paired", request)
    )


def _row(pair: Pair) -> CallRow:
    """The row of a call, as far as the call itself decides it."""
    shown = pair[1] or pair[0]
    if shown is None:
        raise AssertionError("a row is for a call")
    first, second = [None if each is None else each.call for each in pair]
    verdict = judge(shown.call)
    return CallRow(
        part=shown.part,
        kind=shown.call.kind,
        id=_sides(first, second, lambda each: each.call_id),
        name=_sides(first, second, _full_name),
        executor=shown.call.executor,
        executable=verdict.executable,
        why=None if verdict.executable else verdict.reason,
        status=shown.call.status,
        input=_inputs(first, second),
        result=ResultReport("none"),
    )


def _sides(upstream: Call | None, client: Call | None, read: Callable[[Call], str]) -> BothSides:
    return BothSides(
        None if upstream is None else read(upstream), None if client is None else read(client)
    )


def _full_name(call: Call) -> str:
    return call.name if call.namespace is None else f"{call.namespace}.{call.name}"


def _inputs(upstream: Call | None, client: Call | None) -> InputsReport:
    first = None if upstream is None else _input(upstream.input)
    second = None if client is None else _input(client.input)
    equal = None if first is None or second is None else first.sha256 == second.sha256
    return InputsReport(first, second, equal)


def _input(text: str) -> InputReport:
    hashed = hash_input(text)
    return InputReport(hashed.bytes, hashed.sha256, text)


def with_hashes(row: CallRow, whole: CallRow) -> CallRow:
    """The row with the sizes, hashes and the equality of the row before its secrets were taken out."""
    inputs = InputsReport(
        _hashed(row.input.upstream, whole.input.upstream),
        _hashed(row.input.client, whole.input.client),
        whole.input.equal,
    )
    return structs.replace(row, input=inputs, executable=whole.executable, why=whole.why)


def _hashed(shown: InputReport | None, whole: InputReport | None) -> InputReport | None:
    if shown is None or whole is None:
        return shown
    return InputReport(whole.bytes, whole.sha256, shown.text)


def _results(following: Sequence[RecordedExchange]) -> dict[str, str]:
    """The request that has the result of each call, by call id."""
    found: dict[str, str] = {}
    for exchange in following:
        request = decoded_request(exchange.body, exchange.dialect)
        for turn in () if request is None else request.turns:
            for part in turn.parts:
                if isinstance(part, Result):
                    found.setdefault(original_id(part.call_id), exchange.id)
    return found


def _history_rows(exchange: RecordedExchange) -> Iterator[CallRow]:
    """The calls of the conversation: as the client sent them, and as the upstream of the last attempt got them."""
    asked = decoded_request(exchange.body, exchange.dialect)
    sent = exchange.attempts[-1] if exchange.attempts else None
    planned = None if sent is None else decoded_request(sent.body, sent.dialect)
    if asked is None or (planned is None and sent is not None):
        return
    theirs = [] if planned is None else _request_calls(planned)
    pairs = pair_calls(theirs, _request_calls(asked))
    answered = {
        original_id(part.call_id)
        for turn in asked.turns
        for part in turn.parts
        if isinstance(part, Result)
    }
    for pair in pairs:
        row = _row(pair)
        shown = pair[1] or pair[0]
        is_paired = shown is not None and original_id(shown.call.call_id) in answered
        result = ResultReport("paired", exchange.id) if is_paired else ResultReport("none")
        yield structs.replace(
            row, part=None, executable=False, why="history", result=result, place="request"
        )


def _request_calls(request: Request) -> list[EndedCall]:
    calls = (part for turn in request.turns for part in turn.parts if isinstance(part, Call))
    return [EndedCall(number, 0, call) for number, call in enumerate(calls)]


def decoded_request(body: bytes, dialect: str) -> Request | None:
    """The request that a body has; None if it cannot be read, or if no client speaks the dialect."""
    known = CODECS.get(dialect)
    if known is None or not body:
        return None
    try:
        return known.decode_request(body)
    except GatewayError:
        return None
