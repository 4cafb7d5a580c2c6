"""A reader or collector holds no more of a call than somebody may still ask for, once the call was handed over."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from dragoman.dialects.translate import make_decoder
from dragoman.toolcalls import ToolCallAggregator, ToolCallParser

CALLS = 10
SIZE = 200_000
PIECE = 4_000
SLACK = 150_000
"""For what readers remember of a call besides its arguments, far less than the arguments of one call."""

Json = dict[str, object]


def arguments(number: int) -> str:
    return json.dumps({"n": number, "text": "x" * SIZE})


def chat(number: int) -> Iterator[Json]:
    text = arguments(number)
    for at in range(0, len(text), PIECE):
        entry: Json = {"index": number, "function": {"arguments": text[at : at + PIECE]}}
        if not at:
            entry |= {"id": f"call_{number}", "type": "function"}
            entry["function"] = {"name": "f", "arguments": text[:PIECE]}
        yield {"choices": [{"index": 0, "delta": {"tool_calls": [entry]}, "finish_reason": None}]}


def responses(number: int) -> Iterator[Json]:
    text = arguments(number)
    place: Json = {"item_id": f"fc_{number}", "output_index": number}
    item: Json = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    item |= {"name": "f", "arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": number, "item": item}
    family = "response.function_call_arguments"
    for at in range(0, len(text), PIECE):
        yield {"type": f"{family}.delta", **place, "delta": text[at : at + PIECE]}
    yield {"type": f"{family}.done", **place, "arguments": text}
    item = {**item, "arguments": text, "status": "completed"}
    yield {"type": "response.output_item.done", "output_index": number, "item": item}


def messages(number: int) -> Iterator[Json]:
    text = arguments(number)
    if not number:
        start: Json = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
        }
        yield {"type": "message_start", "message": start}
    block: Json = {"type": "tool_use", "id": f"call_{number}", "name": "f", "input": {}}
    yield {"type": "content_block_start", "index": number, "content_block": block}
    for at in range(0, len(text), PIECE):
        delta = {"type": "input_json_delta", "partial_json": text[at : at + PIECE]}
        yield {"type": "content_block_delta", "index": number, "delta": delta}
    yield {"type": "content_block_stop", "index": number}


WIRES: dict[str, Callable[[int], Iterator[Json]]] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
}
OPEN = {"chat": 1, "responses": 0, "messages": 0}
"""The calls that are still open after the last event of one: Chat ends a call when the next begins."""


def _feed(events: Iterator[Json], take: Callable[[Json], object]) -> None:
    """A function of its own, so that no variable holds the last event."""
    for event in events:
        take(event)


def held_after_each_call(
    wire: Callable[[int], Iterator[Json]], take: Callable[[Json], object]
) -> Iterator[tuple[int, int]]:
    gc.collect()
    gc.freeze()  # what was there before, thousands of tests, need not be searched again after each call
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(CALLS):
            _feed(wire(number), take)
            gc.collect()
            yield number + 1, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dialect", WIRES)
def test_reader_frees_the_arguments_of_a_call_that_has_ended(dialect: str) -> None:
    decoder = make_decoder(dialect)

    def take(event: Json) -> None:
        name = f"event: {event['type']}\n" if "type" in event else ""
        decoder.feed(f"{name}data: {json.dumps(event)}\n\n".encode())

    for _, held in held_after_each_call(WIRES[dialect], take):
        assert held < OPEN[dialect] * 2 * SIZE + SLACK


@pytest.mark.requirement("S001-12")
@pytest.mark.parametrize("dialect", WIRES)
def test_parser_frees_a_call_that_it_has_returned(dialect: str) -> None:
    parser = ToolCallParser()
    returned = 0

    def take(event: Json) -> None:
        nonlocal returned
        returned += len(parser.feed(event))

    for number, held in held_after_each_call(WIRES[dialect], take):
        assert returned == number - OPEN[dialect]
        assert held < OPEN[dialect] * 2 * SIZE + SLACK


@pytest.mark.parametrize("dialect", WIRES)
def test_aggregator_holds_the_arguments_of_a_complete_call_once(dialect: str) -> None:
    """Once, because `snapshot` returns them until the turn is reset."""
    aggregator = ToolCallAggregator()
    for number, held in held_after_each_call(WIRES[dialect], aggregator.ingest_delta):
        assert held < (number + OPEN[dialect] * 2) * SIZE + SLACK
    assert len(aggregator.snapshot()) == CALLS
    assert aggregator.snapshot()[0].arguments == arguments(0)
