"""Reading Codex messages in tests: every sequence is checked against the grammar."""

from collections.abc import Iterable, Mapping

from disagreements import find_disagreements
from dragoman._json import dumps
from dragoman.core.grammar import GrammarChecker
from dragoman.dialects.codex import CodexReader
from dragoman.model.events import Event

Message = Mapping[str, object]


def read_message(reader: CodexReader, message: Message) -> tuple[Event, ...]:
    """The events of one message."""
    return reader.read_line(dumps(dict(message)))


def read_all(reader: CodexReader, messages: Iterable[Message]) -> list[Event]:
    """The events of messages, of a stream that may go on."""
    events: list[Event] = []
    for message in messages:
        events.extend(read_message(reader, message))
    grammar = GrammarChecker()
    for event in events:
        grammar.check(event)
    return events


def read(*messages: Message) -> tuple[list[Event], list[tuple[str, str]]]:
    """The events and problems of a whole stream."""
    reader = CodexReader()
    events = [*read_all(reader, messages), *reader.end()]
    grammar = GrammarChecker()
    for event in events:
        grammar.check(event)
    assert grammar.is_over
    assert find_disagreements(events) == ()
    return events, reader.problems


def note(method: str, **params: object) -> Message:
    return {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}


def started(kind: str, item_id: str, **fields: object) -> Message:
    return note("item/started", item={"type": kind, "id": item_id, **fields})


def completed(kind: str, item_id: str, **fields: object) -> Message:
    return note("item/completed", item={"type": kind, "id": item_id, **fields})


def raw_item(kind: str, **fields: object) -> Message:
    return note("rawResponseItem/completed", item={"type": kind, **fields})


def turn_completed(status: str = "completed", **turn: object) -> Message:
    return note("turn/completed", turn={"id": "u", "status": status, **turn})
