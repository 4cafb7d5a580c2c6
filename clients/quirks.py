"""Deviations of real servers from their dialects: each was observed, and breaks some client that gets it unchanged.

A quirk changes the frames of a regular stream with calls into the frames of a server with this deviation.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from clients.script import Dialect

__all__ = ("QUIRKS",)

Events = list[dict[str, Any]]
Change = Callable[[Events], Events]
Quirk = Callable[[Sequence[Any]], list[bytes]]


def _read(frames: Iterable[bytes]) -> Events:
    data = (frame.split(b"data: ", 1)[1] for frame in frames)
    return [json.loads(each) for each in data if not each.startswith(b"[DONE]")]


def _write(events: Events, *, named: bool) -> list[bytes]:
    """`named`: with `event:` lines."""
    return [
        (f"event: {event['type']}\n" if named else "").encode()
        + b"data: "
        + json.dumps(event).encode()
        + b"\n\n"
        for event in events
    ]


def _quirk(change: Change, *, named: bool) -> Quirk:
    def apply(frames: Sequence[Any]) -> list[bytes]:
        ended = [frame for frame in frames if b"[DONE]" in frame]
        return [*_write(change(_read(frames)), named=named), *ended]

    return apply


# Chat Completions


def _deltas(events: Events) -> Iterator[dict[str, Any]]:
    """The entries of `tool_calls`, each with what it is part of."""
    for event in events:
        for choice in event["choices"]:
            yield from choice["delta"].get("tool_calls", ())


def _first(delta: dict[str, Any]) -> bool:
    return "id" in delta


def _name_in_each(events: Events) -> Events:
    names: dict[int, str] = {}
    for delta in _deltas(events):
        name = names.setdefault(delta["index"], delta["function"].get("name", ""))
        delta["function"]["name"] = name
    return events


def _id_in_each(events: Events) -> Events:
    ids: dict[int, str] = {}
    for delta in _deltas(events):
        delta["id"] = ids.setdefault(delta["index"], delta.get("id", ""))
    return events


def _empty_id_later(events: Events) -> Events:
    for delta in _deltas(events):
        delta.setdefault("id", "")
        delta["function"].setdefault("name", "")
    return events


def _without_type(events: Events) -> Events:
    for delta in _deltas(events):
        delta.pop("type", None)
    return events


def _is_call(event: dict[str, Any]) -> bool:
    return any(choice["delta"].get("tool_calls") for choice in event["choices"])


def _whole_calls(events: Events) -> Events:
    """Ollama and many others: a call comes in one piece."""
    whole: dict[int, dict[str, Any]] = {}
    kept: Events = []
    for event in events:
        if not _is_call(event):
            kept.append(event)
            continue
        (delta,) = _deltas([event])
        if _first(delta):
            whole[delta["index"]] = delta
            kept.append(event)
        else:
            whole[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return kept


def _object_arguments(events: Events) -> Events:
    events = _whole_calls(events)
    for delta in _deltas(events):
        delta["function"]["arguments"] = json.loads(delta["function"]["arguments"])
    return events


def _without_index(events: Events) -> Events:
    events = _whole_calls(events)
    for delta in _deltas(events):
        del delta["index"]
    return events


def _all_calls_in_one(events: Events) -> Events:
    events = _whole_calls(events)
    first = next(event for event in events if _is_call(event))
    first["choices"][0]["delta"]["tool_calls"] = list(_deltas(events))
    return [event for event in events if event is first or not _is_call(event)]


def _interleaved_chat(events: Events) -> Events:
    calls = [event for event in events if _is_call(event)]
    (before, after) = (events.index(calls[0]), events.index(calls[-1]) + 1)
    lanes: dict[int, Events] = {}
    for event in calls:
        (delta,) = _deltas([event])
        lanes.setdefault(delta["index"], []).append(event)
    return [*events[:before], *_in_turns(list(lanes.values())), *events[after:]]


def _in_turns(lanes: list[Events]) -> Events:
    length = max(map(len, lanes))
    return [lane[step] for step in range(length) for lane in lanes if step < len(lane)]


def _finish(reason: str | None) -> Change:
    def change(events: Events) -> Events:
        for event in events:
            for choice in event["choices"]:
                if choice["finish_reason"]:
                    choice["finish_reason"] = reason
        return events

    return change


def _finish_in_last_delta(events: Events) -> Events:
    last = [event for event in events if _is_call(event)][-1]
    last["choices"][0]["finish_reason"] = "tool_calls"
    return [event for event in events if event is last or not _finishes(event)]


def _finishes(event: dict[str, Any]) -> bool:
    return any(choice["finish_reason"] for choice in event["choices"])


def _without_role(events: Events) -> Events:
    return [event for event in events if "role" not in str(event)]


def _bare(events: Events) -> Events:
    wanted = ("choices", "usage")
    return [{key: event[key] for key in wanted if key in event} for event in events]


def _filter_first(events: Events) -> Events:
    """Azure: a first chunk about the prompt, without choices."""
    return [{**events[0], "choices": [], "prompt_filter_results": []}, *events]


def _usage_in_each(events: Events) -> Events:
    usage = events[-1]["usage"]
    return [{**event, "usage": usage} for event in events]


CHAT: dict[str, Change] = {
    "name-in-each": _name_in_each,
    "id-in-each": _id_in_each,
    "empty-id-later": _empty_id_later,
    "no-type": _without_type,
    "whole-calls": _whole_calls,
    "object-arguments": _object_arguments,
    "no-index": _without_index,
    "all-calls-in-one": _all_calls_in_one,
    "interleaved": _interleaved_chat,
    "finish-stop": _finish("stop"),
    "finish-function_call": _finish("function_call"),
    "finish-in-last-delta": _finish_in_last_delta,
    "no-role": _without_role,
    "choices-only": _bare,
    "azure-first": _filter_first,
    "usage-in-each": _usage_in_each,
}


# Responses


def _without(*kinds: str) -> Change:
    def change(events: Events) -> Events:
        return [event for event in events if not event["type"].endswith(kinds)]

    return change


def _without_key(*keys: str) -> Change:
    def change(events: Events) -> Events:
        return [{key: value for key, value in event.items() if key not in keys} for event in events]

    return change


def _items(change: Callable[[dict[str, Any]], None]) -> Change:
    def apply(events: Events) -> Events:
        for event in events:
            for item in (event.get("item"), *event.get("response", {}).get("output", ())):
                if item is not None and item["type"] == "function_call":
                    change(item)
        return events

    return apply


def _call_id_as_item_id(events: Events) -> Events:
    events = _items(lambda item: item.update(id=item["call_id"]))(events)
    for event in events:
        if "item_id" in event:
            event["item_id"] = event["item_id"].removeprefix("fc_")
    return events


def _arguments_in_added(events: Events) -> Events:
    whole = {event["output_index"]: event["item"] for event in events if _ends(event)}
    for event in events:
        if event["type"] == "response.output_item.added":
            event["item"] = {**whole[event["output_index"]], "status": "in_progress"}
    return events


def _ends(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "response.output_item.done")


def _empty_end(events: Events) -> Events:
    """The Codex backend: the last event has no output."""
    events[-1]["response"]["output"] = []
    return events


def _interleaved_items(events: Events) -> Events:
    lanes: dict[int, Events] = {}
    for event in events:
        if "output_index" in event:
            lanes.setdefault(event["output_index"], []).append(event)
    opened = [lane.pop(0) for lane in lanes.values()]
    return [*events[:2], *opened, *_in_turns(list(lanes.values())), events[-1]]


def _unknown_between(events: Events) -> Events:
    note: dict[str, Any] = {"type": "response.gateway.note", "x": 1}
    return [each for event in events for each in (event, note)][:-1]


RESPONSES: dict[str, Change] = {
    "no-created": _without("response.created", "response.in_progress"),
    "no-added": _without("output_item.added"),
    "no-item-done": _without("output_item.done"),
    "no-content-part": _without("content_part.added", "content_part.done"),
    "no-arguments-delta": _without("arguments.delta"),
    "no-arguments-done": _without("arguments.done"),
    "items-only": _without("arguments.delta", "arguments.done", "text.delta", "text.done"),
    "last-event-only": lambda events: events[-1:],
    "no-sequence": _without_key("sequence_number"),
    "no-item-id": _without_key("item_id"),
    "no-output-index": _without_key("output_index"),
    "no-id-of-item": _items(lambda item: item.update(id=None)),
    "call-id-as-item-id": _call_id_as_item_id,
    "no-status": _items(lambda item: item.pop("status")),
    "arguments-in-added": _arguments_in_added,
    "empty-end": _empty_end,
    "interleaved": _interleaved_items,
    "unknown-event": _unknown_between,
}


# Messages


def _whole_input_in_start(events: Events) -> Events:
    inputs: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_delta" and "partial_json" in event["delta"]:
            inputs.setdefault(event["index"], "")
            inputs[event["index"]] += event["delta"]["partial_json"]
    for event in events:
        if event["type"] == "content_block_start" and event["index"] in inputs:
            event["content_block"]["input"] = json.loads(inputs[event["index"]])
    return [event for event in events if "partial_json" not in str(event)]


def _blocks(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(events: Events) -> Events:
        for event in events:
            if event.get("content_block", {}).get("type") == "tool_use":
                change(event["content_block"])
        return events

    return apply


def _end_turn(events: Events) -> Events:
    for event in events:
        if event["type"] == "message_delta":
            event["delta"]["stop_reason"] = "end_turn"
    return events


def _gaps(events: Events) -> Events:
    for event in events:
        if "index" in event:
            event["index"] = 2 * event["index"] + 1
    return events


def _without_usage(kind: str) -> Change:
    def change(events: Events) -> Events:
        for event in events:
            if event["type"] == kind:
                event.pop("usage", None)
                event.get("message", {}).pop("usage", None)
        return events

    return change


def _interleaved_blocks(events: Events) -> Events:
    lanes: dict[int, Events] = {}
    for event in events:
        if "index" in event:
            lanes.setdefault(event["index"], []).append(event)
    starts = [event for event in events if event["type"] in ("message_start", "ping")]
    ends = [event for event in events if event["type"] in ("message_delta", "message_stop")]
    opened = [lane.pop(0) for lane in lanes.values()]
    return [*starts, *opened, *_in_turns(list(lanes.values())), *ends]


def _unknown_event(events: Events) -> Events:
    return [events[0], {"type": "gateway_note", "x": 1}, *events[1:]]


MESSAGES: dict[str, Change] = {
    "no-ping": _without("ping"),
    "unknown-event": _unknown_event,
    "no-message-stop": _without("message_stop"),
    "no-usage-at-start": _without_usage("message_start"),
    "no-usage-at-end": _without_usage("message_delta"),
    "whole-input-in-start": _whole_input_in_start,
    "empty-string-in-start": _blocks(lambda block: block.update(input="")),
    "no-input-in-start": _blocks(lambda block: block.pop("input")),
    "end-turn": _end_turn,
    "index-gaps": _gaps,
    "interleaved": _interleaved_blocks,
    "no-block-stop": _without("content_block_stop"),
}


# All dialects: how the bytes are cut and lines ended


def _crlf(frames: Sequence[Any]) -> list[bytes]:
    return [frame.replace(b"\n", b"\r\n") for frame in frames]


def _bytes(frames: Sequence[Any]) -> list[bytes]:
    whole = b"".join(frames)
    return [whole[place : place + 1] for place in range(len(whole))]


def _comments(frames: Sequence[Any]) -> list[bytes]:
    return [each for frame in frames for each in (b": keep-alive\n\n", frame)]


def _without_end_mark(frames: Sequence[Any]) -> list[bytes]:
    return [frame for frame in frames if b"[DONE]" not in frame]


def _with_end_mark(frames: Sequence[Any]) -> list[bytes]:
    return [*frames, b"data: [DONE]\n\n"]


def _without_event_lines(frames: Sequence[Any]) -> list[bytes]:
    return _write(_read(frames), named=False)


ANY: dict[str, Quirk] = {"crlf": _crlf, "one-byte": _bytes, "comments": _comments}

QUIRKS: dict[tuple[Dialect, str], Quirk] = {
    **{("chat", name): _quirk(change, named=False) for name, change in CHAT.items()},
    **{("responses", name): _quirk(change, named=True) for name, change in RESPONSES.items()},
    **{("messages", name): _quirk(change, named=True) for name, change in MESSAGES.items()},
    **{("chat", name): quirk for name, quirk in ANY.items()},
    **{("responses", name): quirk for name, quirk in ANY.items()},
    **{("messages", name): quirk for name, quirk in ANY.items()},
    ("chat", "no-end-mark"): _without_end_mark,
    ("responses", "end-mark"): _with_end_mark,
    ("responses", "no-event-lines"): _without_event_lines,
    ("messages", "end-mark"): _with_end_mark,
    ("messages", "no-event-lines"): _without_event_lines,
}
