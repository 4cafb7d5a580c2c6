"""Takes the secrets out of a recorded exchange. Pure.

The bytes stay unchanged, except for strings that hold a secret: a recording is still a stream, and its JSON is still JSON.
A secret may be spread over many deltas, so the text of each part is searched as a whole, and what is found is hidden in every
frame that has a piece of it. Hashes are taken before this (`call_rows`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from msgspec import structs

from dragoman._json import dumps_text, is_strict
from dragoman.core.secrets import (
    HIDDEN,
    NO_SECRETS,
    Hidden,
    Secrets,
    find_hidden,
    hide_found,
    is_secret_header,
    is_secret_name,
    redact,
)
from dragoman.inspection.exchange import (
    ExchangeFacts,
    HeaderPairs,
    RecordedAnswer,
    RecordedExchange,
    TimedBytes,
)
from dragoman.inspection.wire_reading import (
    JSON_STRING,
    PlacedEvent,
    TextEvent,
    WireReading,
    json_text,
    read_answer,
)
from dragoman.model.outcome import Loss, Repair
from dragoman.model.parts import Dialect
from dragoman.sse import parse_lines

# One character of a JSON string, as it is spelled.
_LETTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)


def redact_exchange(exchange: RecordedExchange, secrets: Secrets = NO_SECRETS) -> RecordedExchange:
    """The exchange without known secrets, and without what looks like one."""
    return structs.replace(
        exchange,
        path=secrets.hide(exchange.path),
        headers=_redact_headers(exchange.headers, secrets),
        body=redact_source(exchange.body, secrets),
        answer=redact_answer(exchange.answer, exchange.dialect, secrets),
        attempts=tuple(
            structs.replace(
                attempt,
                model=_hide(attempt.model, secrets),
                address=_hide(attempt.address, secrets),
                headers=_redact_headers(attempt.headers, secrets),
                body=redact_source(attempt.body, secrets),
                answer=None
                if attempt.answer is None
                else redact_answer(attempt.answer, attempt.dialect, secrets),
                error=None if attempt.error is None else _hide(attempt.error, secrets),
                losses=_redact_details(attempt.losses, secrets),
                repairs=_redact_details(attempt.repairs, secrets),
            )
            for attempt in exchange.attempts
        ),
        facts=redact_facts(exchange.facts, secrets),
    )


def _hide(text: str, secrets: Secrets) -> str:
    return redact(secrets.hide(text))


def redact_facts(facts: ExchangeFacts, secrets: Secrets = NO_SECRETS) -> ExchangeFacts:
    return structs.replace(
        facts,
        model=_hide(facts.model, secrets),
        error=None if facts.error is None else _hide(facts.error, secrets),
        losses=_redact_details(facts.losses, secrets),
        repairs=_redact_details(facts.repairs, secrets),
        problems=tuple(
            structs.replace(each, message=_hide(each.message, secrets)) for each in facts.problems
        ),
    )


_Detailed = TypeVar("_Detailed", Loss, Repair)


def _redact_details(entries: tuple[_Detailed, ...], secrets: Secrets) -> tuple[_Detailed, ...]:
    return tuple(
        structs.replace(each, detail=_hide(each.detail, secrets)) if each.detail else each
        for each in entries
    )


def redact_source(data: bytes, secrets: Secrets = NO_SECRETS) -> bytes:
    """JSON, a frame of JSON or other text without secrets; only strings that contain one are written again.

    Known secrets are hidden outside of values too, such as in names and comments, unless JSON would not be JSON any more. Text
    that is not JSON, such as an error page or an answer that was cut in a string, is searched as a whole.
    """
    text = data.decode("utf-8", "surrogateescape")
    shown = _redact_strings(text, secrets) if '"' in text else text
    is_json = _is_json(data)
    if is_json:
        left = [Hidden(start, end, HIDDEN) for start, end in secrets.spans(shown)]
    else:
        left = find_hidden(shown, secrets)
    hidden = hide_found(shown, left)
    if left and (not is_json or _is_json(hidden.encode("utf-8", "surrogateescape"))):
        shown = hidden
    return data if shown == text else shown.encode("utf-8", "surrogateescape")


def _is_json(data: bytes) -> bool:
    """Whether every quote in a body or a frame is one of its JSON."""
    if is_strict(data):
        return True
    payload = parse_lines(data).data
    return payload is not None and is_strict(payload) and data.count(b'"') == payload.count(b'"')


def redact_answer(
    answer: RecordedAnswer, dialect: Dialect, secrets: Secrets = NO_SECRETS
) -> RecordedAnswer:
    """An answer without secrets. Its pieces are its frames, if there were any."""
    wire = read_answer(answer, dialect)
    hidden = _hide_parts(wire, secrets)
    pieces = [
        TimedBytes(frame.at, redact_source(hidden.get(frame.number, frame.raw), secrets))
        for frame in wire.frames
    ]
    headers = _redact_headers(answer.headers, secrets)
    return structs.replace(answer, headers=headers, pieces=tuple(pieces))


def _redact_headers(headers: HeaderPairs, secrets: Secrets) -> HeaderPairs:
    return tuple(
        (name, HIDDEN if is_secret_header(name) else _hide(value, secrets))
        for name, value in headers
    )


def _redact_strings(text: str, secrets: Secrets) -> str:
    """The text with the secret strings of its JSON hidden. The name of a member decides about its value."""
    pieces: list[str] = []
    at = 0
    name = ""
    for match in JSON_STRING.finditer(text):
        if match[2] is not None:
            name = match[1]
            continue
        if not text.startswith('"', match.end(1)):
            break  # it was cut
        value = json_text(match[1])
        if is_secret_name(name) and value:
            shown = HIDDEN
        else:
            found = find_hidden(value, secrets)
            if not found:
                continue
            shown = hide_found(value, found)
        pieces += (text[at : match.start()], dumps_text(shown).decode("utf-8", "replace"))
        at = match.end()
    return "".join((*pieces, text[at:]))


# --- secrets in several deltas ------------------------------------------------------------------------------------------


def _hide_parts(wire: WireReading, secrets: Secrets) -> dict[int, bytes]:
    """The frames that have pieces of secrets, without them."""
    parts: dict[tuple[str, int], list[PlacedEvent]] = defaultdict(list)
    for placed in wire.events:
        event = placed.event
        if isinstance(event, TextEvent):
            parts[type(event).__name__, event.part].append(placed)
    edits: dict[int, list[Hidden]] = defaultdict(list)
    for deltas in parts.values():
        joined = "".join([delta.text for delta in deltas])
        found = find_hidden(joined, secrets)
        if found:
            _hide_in_deltas(wire, deltas, joined, found, edits)
    changed: dict[int, bytes] = {}
    for number, wanted in edits.items():
        changed[number] = _edited(wire.frames[number - 1].text, wanted).encode("utf-8")
    return changed


def _hide_in_deltas(
    wire: WireReading,
    deltas: Iterable[PlacedEvent],
    joined: str,
    found: list[Hidden],
    edits: dict[int, list[Hidden]],
) -> None:
    """Note for each delta that has a piece of a secret what replaces it: the first piece shows that something is hidden."""
    at = next_found = 0
    last_frame = 0
    for delta in deltas:
        start, end = at, at + len(delta.text)
        at = end
        while next_found < len(found) and found[next_found].end <= start:
            next_found += 1
        index = next_found
        touched: list[Hidden] = []
        while index < len(found) and found[index].start < end:
            each = found[index]
            shown = each.shown if each.start >= start else ""
            touched.append(
                Hidden(max(each.start, start) - start, min(each.end, end) - start, shown)
            )
            index += 1
        if touched and delta.frame is not None:
            if delta.start >= 0:
                edits[delta.frame] += _spelt(wire.frames[delta.frame - 1].text, delta, touched)
            else:
                within = found[next_found:index]
                for number in range(last_frame + 1, delta.frame + 1):
                    edits[number] += _any_piece(wire.frames[number - 1].text, joined, within)
        last_frame = delta.frame or last_frame


def _spelt(text: str, delta: PlacedEvent, touched: list[Hidden]) -> list[Hidden]:
    """The edits of a frame's text for these characters of a delta, which the frame may spell with escapes."""
    source = text[delta.start : delta.end]
    is_string = text[delta.start - 1 : delta.start] == '"'
    if source == delta.text:
        places = list(range(len(source) + 1))
    else:
        offsets = [match.start() for match in _LETTER.finditer(source)]
        places = [*offsets, len(source)]
    edits: list[Hidden] = []
    for start, end, shown in touched:
        spelt = shown.replace('"', '\\"') if is_string else shown
        edits.append(Hidden(delta.start + places[start], delta.start + places[end], spelt))
    return edits


def _any_piece(text: str, joined: str, found: Iterable[Hidden]) -> list[Hidden]:
    """The edits that hide every string of a frame that may be a piece of this text with a part of a secret."""
    edits: list[Hidden] = []
    for match in JSON_STRING.finditer(text):
        if match[2] is None and match[1]:
            value = json_text(match[1])
            size = len(value)
            # A string that has a part of a secret lies in this window: the whole text may be long.
            if any(value in joined[max(0, at - size) : end + size] for at, end, _ in found):
                edits.append(Hidden(*match.span(1), HIDDEN))
    return edits


def _edited(text: str, edits: list[Hidden]) -> str:
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda each: each.start):
        if edit.start < at:
            continue
        pieces += (text[at : edit.start], edit.shown)
        at = edit.end
    return "".join((*pieces, text[at:]))
