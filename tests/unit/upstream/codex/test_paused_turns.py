"""Which request goes on with which held turn, and with what."""

from typing import Any

import pytest

from dragoman._json import Raw, raw
from dragoman.dialects.codex import CodexRequest
from dragoman.upstream.codex.paused_turns import (
    PausedTurn,
    PausedTurns,
    TurnContinuation,
    continuation,
    digests,
    settings_digest,
)

Json = dict[str, Any]


def message(role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def call(call_id: str = "c") -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "get", "arguments": "{}"}


def output(call_id: str = "c", value: object = "ok") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def items(*entries: Json) -> list[Raw]:
    return [raw(entry) for entry in entries]


def asked(*entries: Json, thread: str = "{}") -> CodexRequest:
    return CodexRequest(Raw(thread.encode()), Raw(b"{}"), items(*entries))


def waiting(turn: str, before: CodexRequest, *calls: str, since: float = 0.0) -> PausedTurn[str]:
    return PausedTurn(turn, frozenset(calls), settings_digest(before), digests(before.items), since)


HI = message("user", "hi")
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


def continuation_of(*entries: Json, calls: tuple[str, ...] = ("c",)) -> TurnContinuation | None:
    return continuation(items(*entries), calls)


def test_results_answer_their_calls() -> None:
    parts = [{"type": "input_text", "text": "see"}, IMAGE]
    found = continuation_of(message("assistant", "Ah."), call(), output(value=parts))
    assert found == TurnContinuation(
        {
            "c": {
                "contentItems": [
                    {"type": "inputText", "text": "see"},
                    {"type": "inputImage", "imageUrl": "data:image/png;base64,AA=="},
                ],
                "success": True,
            }
        },
        [],
    )


def test_what_the_user_adds_is_steered_in() -> None:
    found = continuation_of(call(), output(), message("user", "and"), message("user", "more"))
    assert found is not None
    assert [entry["text"] for entry in found.steer] == ["and", "more"]


@pytest.mark.parametrize(
    "tail",
    [
        (),
        (call(),),
        (call(), output("d")),
        (call(), output(), output()),
        (call(), output(value=[{**IMAGE, "image_url": "https://example.org/a.png"}])),
        (call(), output(value=[{**IMAGE, "detail": "high"}])),
        (call(), output(value=[{"type": "input_image", "file_id": "f"}])),
        (message("user", "wait"), call(), output()),
        (call(), output(), message("developer", "be careful")),
        (call(), output(), message("assistant", "I went on"), message("user", "fine")),
        (call(), output(), call("d"), output("d")),
        (call(), output(), {"type": "message", "role": "user", "content": [IMAGE]}),
        (call(), output(), message("user", "x"), output("d")),
    ],
)
def test_anything_else_is_no_continuation(tail: tuple[Json, ...]) -> None:
    assert continuation_of(*tail) is None


def test_turn_goes_to_the_request_that_continues_it_and_to_no_other() -> None:
    before = asked(HI)
    held: PausedTurns[str] = PausedTurns(10.0, 8)
    assert held.hold(waiting("turn", before, "c")) == []
    assert held.take(asked(HI)) is None
    assert held.take(asked(message("user", "ho"), call(), output())) is None
    assert held.take(asked(HI, call(), output(), thread='{"model":"m"}')) is None
    assert held.take(asked(HI, call(), output("d"))) is None
    assert held.take(asked(HI, call(), output(), message("developer", "careful"))) is None
    assert len(held) == 1
    found = held.take(asked(HI, call(), output()))
    assert found is not None
    assert found[0] == "turn"
    assert held.take(asked(HI, call(), output())) is None


def test_turns_with_the_same_call_ids_are_distinguished_by_what_was_said() -> None:
    held: PausedTurns[str] = PausedTurns(10.0, 8)
    for word in ("one", "two"):
        held.hold(waiting(word, asked(message("user", word)), "c"))
    for word in ("one", "two"):
        found = held.take(asked(message("user", word), call(), output()))
        assert found is not None
        assert found[0] == word


def test_turns_are_kept_for_a_time_and_among_so_many() -> None:
    held: PausedTurns[str] = PausedTurns(10.0, 2)
    before = asked(HI)
    assert held.hold(waiting("a", before, "a", since=0.0)) == []
    assert held.hold(waiting("b", before, "b", since=5.0)) == []
    assert held.hold(waiting("c", before, "c", since=6.0)) == ["a"]
    assert held.expired(14.9) == []
    assert held.expired(15.0) == ["b"]
    held.drop("b")
    held.drop("c")
    assert len(held) == 0
    held.hold(waiting("d", before, "d"))
    assert held.clear() == ["d"]
