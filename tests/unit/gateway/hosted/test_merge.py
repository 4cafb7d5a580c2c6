"""Several answers of a model and what was run between them, merged into one answer that every encoder accepts."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from disagreements import find_disagreements
from doors import check_chat, check_messages, check_responses
from dragoman._json import Raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses.mcp_calls import ServerTool, mcp_result
from dragoman.dialects.translate import make_encoder
from dragoman.engine.events import (
    CallSettled,
    EngineEvent,
    ModelSpoke,
    RunEnd,
    RunEnded,
    TurnStarted,
)
from dragoman.gateway.hosted.merge import AnswerMerger, MergeRules, Style
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Call, Extra, Result, Text

CHECKS = {"chat": check_chat, "responses": check_responses, "messages": check_messages}
STYLES: dict[str, tuple[Style, ...]] = {
    "chat": ("hidden", "note"),
    "messages": ("hidden", "note"),
    "responses": ("items",),
}
USAGE = Usage(input=3, output=2)


def whose(call: Call) -> ServerTool | None:
    server, _, name = call.name.partition("__")
    return None if server == "own" else ServerTool("" if server == "none" else server, name)


def merger_of(style: Style, *, breaks: bool = False) -> AnswerMerger:
    numbers = count(1)
    rules = MergeRules(
        style=style, whose=whose, mint=lambda: f"mcp_dgm{next(numbers)}", breaks=breaks
    )
    return AnswerMerger(rules)


class Piece(Struct, frozen=True):
    """A part of an answer. `is_error`: what became of a call."""

    kind: str  # text, own__f, files__f, none__f
    pieces: tuple[str, ...]
    is_error: bool = False


class Script(Struct, frozen=True):
    turns: tuple[tuple[Piece, ...], ...]
    order: tuple[int, ...]
    reason: RunEnd
    cut: int


PIECES = st.builds(
    Piece,
    kind=st.sampled_from(["text", "text", "own__f", "files__f", "files__g", "none__f"]),
    pieces=st.lists(st.text("ab ", min_size=1, max_size=3), min_size=1, max_size=3).map(tuple),
    is_error=st.booleans(),
)
SCRIPTS = st.builds(
    Script,
    turns=st.lists(st.lists(PIECES, max_size=4).map(tuple), min_size=1, max_size=3).map(tuple),
    order=st.lists(st.integers(0, 1000), min_size=1, max_size=30).map(tuple),
    reason=st.sampled_from(["answered", "max_turns", "no_progress", "max_time", "failed"]),
    cut=st.integers(0, 60),
)


def part_events(part: int, piece: Piece, turn: int) -> list[Event]:
    if piece.kind == "text":
        return [
            PartStarted(part, Text(status="in_progress")),
            *(TextDelta(part, text) for text in piece.pieces),
            PartEnded(part, Text(text="".join(piece.pieces))),
        ]
    call = Call(call_id=f"call_{turn}_{part}", name=piece.kind, status="in_progress")
    text = '{"x":"' + "".join(piece.pieces) + '"}'
    return [
        PartStarted(part, call),
        *(InputDelta(part, letter) for letter in text),
        PartEnded(part, structs.replace(call, input=text, status="completed")),
    ]


def settled(turn: int, call: Call, *, is_error: bool) -> CallSettled:
    result = Result(
        call_id=call.call_id, content=(Text(text="words"),), is_error=is_error, name=call.name
    )
    return CallSettled(turn, call, result, "failed" if is_error else "done")


def played(script: Script) -> tuple[list[EngineEvent], RunEnded]:
    """Return the script as the engine emits it: parts of one answer overlap, results come when they come."""
    events: list[EngineEvent] = []
    picks = iter(script.order * 200)
    for number, turn in enumerate(script.turns, start=1):
        events += [TurnStarted(number), ModelSpoke(Started(f"r{number}", "m", 1))]
        waiting = [(piece, part_events(part, piece, number)) for part, piece in enumerate(turn)]
        # They begin in order; after that any may go on.
        events += [ModelSpoke(rest.pop(0)) for _, rest in waiting]
        running: list[CallSettled] = []
        while waiting or running:
            index = next(picks) % (len(waiting) + len(running))
            if index >= len(waiting):
                events.append(running.pop(index - len(waiting)))
                continue
            piece, rest = waiting[index]
            event = rest.pop(0)
            events.append(ModelSpoke(event))
            if not rest:
                waiting.pop(index)
                is_ours = piece.kind not in ("text", "own__f")
                if is_ours and isinstance(event, PartEnded) and isinstance(event.value, Call):
                    running.append(settled(number, event.value, is_error=piece.is_error))
        has_calls = any(piece.kind != "text" for piece in turn)
        finish = Finished("tool_calls" if has_calls else "stop")
        events += [ModelSpoke(finish), ModelSpoke(UsageReported(USAGE)), ModelSpoke(Completed())]
    owed = any(piece.kind == "own__f" for piece in script.turns[-1])
    reason: RunEnd = "handed_over" if owed and script.reason == "answered" else script.reason
    error = ErrorInfo(kind="upstream", message="broken") if reason == "failed" else None
    total = Usage(input=3 * len(script.turns), output=2 * len(script.turns))
    ended = RunEnded(
        reason=reason, turns=(), total=total, turn_count=len(script.turns), error=error
    )
    if reason in ("max_time", "failed"):
        del events[max(2, script.cut) :]
    return events, ended


def merged_by(merger: AnswerMerger, events: list[EngineEvent], ended: RunEnded) -> list[Event]:
    found = [each for event in events for each in merger.feed(event)]
    return [*found, *merger.end(ended)]


@pytest.mark.parametrize("door", CHECKS)
@settings(max_examples=75, deadline=None, derandomize=True)
@given(script=SCRIPTS)
def test_whatever_happens_is_one_answer(door: str, script: Script) -> None:
    for style in STYLES[door]:
        events, ended = played(script)
        merger = merger_of(style, breaks=door == "chat")
        found = merged_by(merger, events, ended)
        assert is_grammatical(found)
        assert not find_disagreements(found)
        encoder = make_encoder(door, EncodeContext(model="m", created=1, seed="s"))
        if door == "responses":
            stream = b"".join(map(encoder.dialect.encode, found))
        else:
            stream = encoder.encode_all(found)
        CHECKS[door](stream + encoder.close())


@settings(max_examples=75, deadline=None, derandomize=True)
@given(script=SCRIPTS)
def test_every_call_that_was_run_is_reported_once_with_its_result(script: Script) -> None:
    script = structs.replace(script, reason="answered")
    events, ended = played(script)
    outcome = fold(merged_by(merger_of("items"), events, ended))
    pieces = [piece for turn in script.turns for piece in turn]
    calls = [part for part in outcome.choices[0].parts if isinstance(part, Call)]
    wanted = [piece.kind for piece in pieces if piece.kind.startswith(("own", "files"))]
    assert sorted(call.name for call in calls) == sorted(
        name if name == "own__f" else name.partition("__")[2] for name in wanted
    )
    hosted = [call for call in calls if call.executor == "gateway"]
    errors = [piece.is_error for piece in pieces if piece.kind.startswith("files")]
    assert sorted(call.status == "failed" for call in hosted) == sorted(errors)
    for call in hosted:
        found = mcp_result(call, "x")
        assert found is not None
        assert found.content == (Text(text="words"),)
    assert outcome.usage == ended.total
    assert outcome.completed


def speak(merger: AnswerMerger, *events: Event) -> list[Event]:
    return [each for event in events for each in merger.feed(ModelSpoke(event))]


def test_an_answer_that_fails_closes_what_is_open() -> None:
    merger = merger_of("items")
    merger.feed(TurnStarted(1))
    call = Call(call_id="call_1", name="files__f", status="in_progress")
    sequence = speak(merger, Started(), PartStarted(0, call), InputDelta(0, "{}"))
    ended = PartEnded(0, structs.replace(call, input="{}", status="completed"))
    sequence += speak(merger, ended, PartStarted(1, Text(status="in_progress")), TextDelta(1, "Hm"))
    sequence += merger.fail(ErrorInfo(kind="overloaded", message="stopping"))
    assert is_grammatical(sequence)
    assert isinstance(sequence[-1], Failed)
    cut = [event.value for event in sequence if isinstance(event, PartEnded)]
    assert [part.status for part in cut if isinstance(part, Call | Text)] == ["incomplete"] * 2
    assert merger.fail(ErrorInfo(kind="server", message="again")) == []


def test_a_call_whose_id_was_used_before_is_known_by_what_it_says() -> None:
    merger = merger_of("items")
    merger.feed(TurnStarted(1))
    call = Call(call_id="call_1", name="files__f", status="in_progress")
    whole = structs.replace(call, input="{}", status="completed")
    sequence = speak(merger, Started(), PartStarted(0, call), PartEnded(0, whole))
    sequence += merger.feed(settled(1, structs.replace(whole, call_id="call_1_2"), is_error=False))
    assert isinstance(sequence[-1], PartEnded)
    assert [hosted.name for hosted in merger.calls] == ["files.f"]


def test_what_an_upstream_says_of_its_request_is_not_reported() -> None:
    merger = merger_of("items")
    fields = {"tools": Raw(b"[1]"), "service_tier": Raw(b'"default"')}
    (started,) = speak(merger, Started(extra=Extra("responses", fields)))
    assert isinstance(started, Started)
    assert started.extra == Extra("responses", {"service_tier": Raw(b'"default"')})
