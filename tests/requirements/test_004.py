"""The event sequence of a tool call in the Responses interface."""

import pytest

from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.translate import StreamTranslator
from seed_wires import (
    CHAT_CALL,
    CHAT_TEXT,
    MESSAGES_CALL,
    Payload,
    as_sse,
    chat_chunk,
    event_names,
    message_block,
    messages_stream,
    payloads,
    tool_delta,
    translate,
)

ACTING = EncodeContext(profile="required_action")
ARGUMENTS = '{"command": ["echo","hello"]}'
TWO_CALLS: list[Payload | str] = [
    chat_chunk({"role": "assistant", "content": "Wait."}),
    chat_chunk(tool_delta(0, "{}", "call_1", "f")),
    chat_chunk(tool_delta(1, "{}", "call_2", "g")),
    chat_chunk({}, "tool_calls"),
]


def written(items: list[Payload | str], context: EncodeContext | None = None) -> list[Payload]:
    return payloads(translate("chat", "responses", items, encode=context))


def one(events: list[Payload], kind: str) -> Payload:
    found = [event for event in events if event["type"] == kind]
    assert len(found) == 1
    return found[0]


def of_call(events: list[Payload]) -> list[Payload]:
    """The events about the only call, with those of a text item left out."""
    added = next(
        event
        for event in events
        if event["type"].endswith("item.added") and event["item"]["type"] == "function_call"
    )
    place = added["output_index"]
    return [event for event in events if event.get("output_index") == place]


@pytest.mark.requirement("S004-01", "S004-14")
def test_required_action_profile_has_the_seven_kinds_of_events_in_order() -> None:
    kinds = list(dict.fromkeys(event["type"] for event in written(CHAT_CALL, ACTING)))
    kinds.remove("response.in_progress")
    assert kinds == [
        "response.created",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.required_action",
        "response.completed",
    ]


@pytest.mark.requirement("S004-01")
def test_required_action_profile_has_each_event_once_but_for_the_argument_pieces() -> None:
    chunks: list[Payload | str] = [
        chat_chunk({"role": "assistant"}),
        chat_chunk(tool_delta(0, '{"a":', "call_1", "f")),
        chat_chunk(tool_delta(0, "1}")),
        chat_chunk({}, "tool_calls"),
        "[DONE]",
    ]
    assert [event["type"] for event in written(chunks, ACTING)] == [
        "response.created",
        "response.in_progress",  # OpenAI's own, which the document leaves out
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.required_action",
        "response.completed",
    ]


@pytest.mark.requirement("S004-02", "S004-18")
def test_without_the_profile_sequence_and_status_are_the_vendors() -> None:
    events = written(CHAT_CALL)
    assert "response.required_action" not in [event["type"] for event in events]
    final = one(events, "response.completed")["response"]
    assert final["status"] == "completed"
    assert final.get("required_action") is None


@pytest.mark.requirement("S004-18")
def test_with_the_profile_the_final_status_is_incomplete_only_while_the_client_must_act() -> None:
    assert (
        one(written(CHAT_CALL, ACTING), "response.completed")["response"]["status"] == "incomplete"
    )
    assert (
        one(written(CHAT_TEXT, ACTING), "response.completed")["response"]["status"] == "completed"
    )


@pytest.mark.requirement("S004-03", "S004-25")
@pytest.mark.parametrize(("context", "kind"), [(EncodeContext(), "keepalive"), (ACTING, "ping")])
def test_ping_between_events_counts_in_the_sequence(context: EncodeContext, kind: str) -> None:
    translator = StreamTranslator("messages", "responses", encode=context)
    items = list(MESSAGES_CALL)
    items[2:2] = [{"type": "ping"}]
    items[6:6] = [{"type": "ping"}]
    events = payloads(translator.feed(as_sse(items)) + translator.close())
    assert [event["type"] for event in events].count(kind) == 2
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.requirement("S004-04")
def test_stream_opens_with_the_created_response() -> None:
    first = written(CHAT_CALL)[0]
    assert first["type"] == "response.created"
    assert first["sequence_number"] == 0
    response = first["response"]
    assert response["object"] == "response"
    assert response["id"]
    assert response["created_at"] == 1
    assert response["status"] == "in_progress"


@pytest.mark.requirement("S004-05", "S004-26")
def test_name_of_each_event_is_its_type() -> None:
    stream = translate("chat", "responses", CHAT_CALL, encode=ACTING)
    assert event_names(stream) == [event["type"] for event in payloads(stream)]


@pytest.mark.requirement("S004-06", "S004-07")
def test_added_call_has_ids_name_and_empty_arguments_and_nothing_of_a_message() -> None:
    item = one(written(CHAT_CALL), "response.output_item.added")["item"]
    assert item["type"] == "function_call"
    assert item["status"] == "in_progress"
    assert (item["name"], item["call_id"], item["arguments"]) == ("shell", "call_1", "")
    assert item["id"]
    assert "role" not in item
    assert "content" not in item


@pytest.mark.requirement("S004-08", "S004-19")
def test_item_id_is_the_same_from_the_first_event_to_the_output() -> None:
    events = written(CHAT_CALL)
    item_id = one(events, "response.output_item.added")["item"]["id"]
    about = [event for event in events if "function_call_arguments" in event["type"]]
    assert {event["item_id"] for event in about} == {item_id}
    assert one(events, "response.output_item.done")["item"]["id"] == item_id
    assert one(events, "response.completed")["response"]["output"][0]["id"] == item_id


@pytest.mark.requirement("S004-20", "S004-24", "S004-23")
def test_call_id_name_and_type_are_the_same_wherever_they_stand() -> None:
    events = written(CHAT_CALL)
    items = [
        one(events, "response.output_item.added")["item"],
        one(events, "response.output_item.done")["item"],
        one(events, "response.completed")["response"]["output"][0],
    ]
    seen = {(item["call_id"], item["name"], item["type"]) for item in items}
    assert seen == {("call_1", "shell", "function_call")}


@pytest.mark.requirement("S004-09")
def test_argument_pieces_are_increments_that_join_to_the_whole() -> None:
    deltas = [
        event
        for event in written(CHAT_CALL)
        if event["type"] == "response.function_call_arguments.delta"
    ]
    assert [event["delta"] for event in deltas] == ['{"command": ', '["echo","hello"]}']
    assert {event["output_index"] for event in deltas} == {0}
    assert all(event["item_id"] for event in deltas)


@pytest.mark.requirement("S004-10")
def test_places_in_the_output_are_dense_over_all_items() -> None:
    events = written([*TWO_CALLS, "[DONE]"])
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2]
    assert [event["item"]["type"] for event in added] == [
        "message",
        "function_call",
        "function_call",
    ]
    assert one(written(CHAT_CALL), "response.output_item.added")["output_index"] == 0


@pytest.mark.requirement("S004-11", "S004-12", "S004-22")
def test_arguments_go_from_empty_through_pieces_to_the_same_whole_three_times() -> None:
    events = written(CHAT_CALL)
    assert one(events, "response.output_item.added")["item"]["arguments"] == ""
    assert one(events, "response.function_call_arguments.done")["arguments"] == ARGUMENTS
    assert one(events, "response.output_item.done")["item"]["arguments"] == ARGUMENTS
    assert one(events, "response.completed")["response"]["output"][0]["arguments"] == ARGUMENTS


@pytest.mark.requirement("S004-12", "S004-21")
def test_status_goes_from_in_progress_to_completed() -> None:
    events = written(CHAT_CALL)
    assert one(events, "response.output_item.added")["item"]["status"] == "in_progress"
    assert one(events, "response.output_item.done")["item"]["status"] == "completed"
    assert one(events, "response.completed")["response"]["output"][0]["status"] == "completed"


@pytest.mark.requirement("S004-13")
def test_required_action_lists_each_call_by_its_call_id() -> None:
    event = one(written([*TWO_CALLS, "[DONE]"], ACTING), "response.required_action")
    assert event["response"]["status"] == "incomplete"
    assert event["response"]["model"] == "m"
    action = event["required_action"]
    assert action["type"] == "submit_tool_outputs"
    assert action["submit_tool_outputs"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


@pytest.mark.requirement("S004-15")
def test_final_response_repeats_the_required_action() -> None:
    events = written(CHAT_CALL, ACTING)
    announced = one(events, "response.required_action")["required_action"]
    assert one(events, "response.completed")["response"]["required_action"] == announced


@pytest.mark.requirement("S004-16")
def test_final_output_has_every_item_whole() -> None:
    output = one(written([*TWO_CALLS, "[DONE]"]), "response.completed")["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "function_call"]
    assert output[0]["content"][0]["text"] == "Wait."
    assert [(item["call_id"], item["arguments"]) for item in output[1:]] == [
        ("call_1", "{}"),
        ("call_2", "{}"),
    ]


@pytest.mark.requirement("S004-17")
@pytest.mark.parametrize("context", [EncodeContext(), ACTING])
def test_final_response_has_a_reasoning_member(context: EncodeContext) -> None:
    assert "reasoning" in one(written(CHAT_CALL, context), "response.completed")["response"]


@pytest.mark.requirement("S004-25")
@pytest.mark.parametrize("context", [EncodeContext(), ACTING])
def test_sequence_numbers_rise_by_one_from_zero(context: EncodeContext) -> None:
    events = written([*TWO_CALLS, "[DONE]"], context)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.requirement("S004-27")
def test_text_is_a_message_item_with_its_own_events() -> None:
    events = written(CHAT_TEXT)
    item = one(events, "response.output_item.added")["item"]
    assert (item["type"], item["role"], item["content"]) == ("message", "assistant", [])
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == ["Hel", "lo"]
    assert one(events, "response.output_text.done")["text"] == "Hello"
    assert one(events, "response.content_part.added")["part"]["type"] == "output_text"
    assert one(events, "response.content_part.done")["part"]["text"] == "Hello"


@pytest.mark.requirement("S004-28")
def test_call_has_no_content_part_events() -> None:
    kinds = {
        event["type"]
        for event in of_call(written([*TWO_CALLS[:2], chat_chunk({}, "tool_calls"), "[DONE]"]))
    }
    assert kinds == {
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    }


@pytest.mark.requirement("S004-29")
def test_minted_ids_are_unique_and_carry_the_vendors_prefixes() -> None:
    nameless: list[Payload | str] = [
        chat_chunk({"role": "assistant"}),
        chat_chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
        chat_chunk({"tool_calls": [{"index": 1, "function": {"name": "g", "arguments": "{}"}}]}),
        chat_chunk({}, "tool_calls"),
        "[DONE]",
    ]
    output = one(written(nameless), "response.completed")["response"]["output"]
    assert all(item["id"].startswith("fc_") for item in output)
    assert all(item["call_id"].startswith("call_") for item in output)
    assert len({item["id"] for item in output} | {item["call_id"] for item in output}) == 4


@pytest.mark.requirement("S004-29")
def test_ids_minted_for_two_answers_differ() -> None:
    nameless: list[Payload | str] = [
        chat_chunk({"role": "assistant"}),
        chat_chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
        chat_chunk({}, "tool_calls"),
        "[DONE]",
    ]
    ids: set[str] = set()
    for seed in ("req_1", "req_2", "req_3"):
        stream = translate(
            "chat",
            "responses",
            nameless,
            decode=DecodeContext(seed=seed),
            encode=EncodeContext(seed=seed),
        )
        (item,) = one(payloads(stream), "response.completed")["response"]["output"]
        ids |= {item["id"], item["call_id"]}
    assert len(ids) == 6


@pytest.mark.requirement("S004-30", "S004-31", "S004-33", "S004-34", "S004-35")
def test_anthropic_block_becomes_a_call_item_with_its_id_name_and_input() -> None:
    events = of_call(payloads(translate("messages", "responses", MESSAGES_CALL)))
    added = one(events, "response.output_item.added")["item"]
    assert (added["type"], added["call_id"], added["name"]) == ("function_call", "toolu_1", "shell")
    deltas = [
        event["delta"]
        for event in events
        if event["type"] == "response.function_call_arguments.delta"
    ]
    assert deltas == ['{"command": ', '["echo","hello"]}']
    assert one(events, "response.output_item.done")["item"]["arguments"] == ARGUMENTS


@pytest.mark.requirement("S004-35")
def test_input_that_came_whole_keeps_its_bytes() -> None:
    block: Payload = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    stream = as_sse(messages_stream(message_block(0, block, [])))
    # A number that a round trip would rewrite, spaces, and a key that stands twice.
    stream = stream.replace(b'"input": {}', b'"input": {"n":  1.0e2, "n": 2}')
    translator = StreamTranslator("messages", "responses")
    events = payloads(translator.feed(stream) + translator.close())
    assert one(events, "response.output_item.done")["item"]["arguments"] == '{"n":  1.0e2, "n": 2}'


@pytest.mark.requirement("S004-32")
def test_calls_are_closed_when_the_message_says_it_stopped_for_tools() -> None:
    translator = StreamTranslator("messages", "responses")
    at_stop = next(n for n, item in enumerate(MESSAGES_CALL) if "message_delta" in str(item))
    so_far = payloads(translator.feed(as_sse(MESSAGES_CALL[: at_stop + 1])))
    assert one(so_far, "response.function_call_arguments.done")["arguments"] == ARGUMENTS
    done = [
        event["item"]["type"] for event in so_far if event["type"] == "response.output_item.done"
    ]
    assert done == ["message", "function_call"]
