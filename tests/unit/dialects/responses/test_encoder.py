"""The stream an encoder writes: OpenAI's own sequence, checked against what real clients enforce."""

import json
from typing import Any

import pytest

import doors
from dragoman._json import Raw, raw
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses import ResponsesEncoder
from dragoman.model.events import (
    AnnotationAdded,
    Event,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import (
    Annotation,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from responses_events import (
    CALLED,
    START,
    STOP,
    begun,
    call_events,
    checked,
    names,
    text_events,
    whole,
)
from responses_help import Json, payloads, write


def test_text_is_written_in_the_vendors_sequence() -> None:
    written = checked([START, *text_events(item_id="msg_9"), *STOP])
    assert names(written) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    part: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": "hello"}
    item: Json = {
        "id": "msg_9",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    assert written[3]["part"] == {**part, "text": ""}
    assert written[4] == {
        "type": "response.output_text.delta",
        "delta": "hello",
        "content_index": 0,
        "item_id": "msg_9",
        "output_index": 0,
        "logprobs": [],
        "sequence_number": 4,
    }
    assert written[7]["item"] == item
    assert written[8]["response"]["output"] == [item]
    assert written[8]["response"]["status"] == "completed"


def test_call_is_written_with_its_namespace() -> None:
    written = checked([START, *call_events(namespace="mcp__x", item_id="fc_7"), *CALLED])
    assert names(written)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert written[2]["item"] == {
        "id": "fc_7",
        "type": "function_call",
        "call_id": "call_0",
        "name": "f",
        "namespace": "mcp__x",
        "arguments": "",
        "status": "in_progress",
    }
    assert written[5]["item"]["arguments"] == '{"x":1}'


def test_m123_custom_call_is_written_as_plain_text() -> None:
    written = checked([START, *call_events(kind="custom", text="*** Begin\n"), *CALLED])
    assert names(written)[2:6] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert written[5]["item"]["input"] == "*** Begin\n"
    assert written[5]["item"]["id"].startswith("ctc_")


def test_m013_m015_indices_are_dense_over_all_items() -> None:
    reasoning = Reasoning(summary=("hm",))
    events: list[Event] = [
        START,
        PartStarted(0, Reasoning(status="in_progress")),
        ReasoningDelta(0, "hm"),
        PartEnded(0, reasoning),
        *text_events(1),
        *call_events(2),
        *call_events(3, "g"),
        *CALLED,
    ]
    written = checked(events)
    added = [one for one in written if one["type"] == "response.output_item.added"]
    assert [one["output_index"] for one in added] == [0, 1, 2, 3]
    kinds = [item["type"] for item in written[-1]["response"]["output"]]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]


def test_m132_content_index_moves_only_with_a_new_part() -> None:
    events: list[Event] = [
        START,
        PartStarted(0, Text(status="in_progress")),
        *(TextDelta(0, "a") for _ in range(5)),
        PartEnded(0, Text(text="aaaaa")),
        *STOP,
    ]
    deltas = [one for one in checked(events) if one["type"] == "response.output_text.delta"]
    assert {one["content_index"] for one in deltas} == {0}


def test_texts_that_share_an_item_are_one_message() -> None:
    extra = Extra("responses", {"phase": Raw(b'"commentary"')})
    events: list[Event] = [
        START,
        *text_events(0, "a", item_id="msg_1", item_extra=extra),
        *text_events(1, "b", item_id="msg_1", item_extra=extra),
        *text_events(2, "c", item_id="msg_2"),
        *STOP,
    ]
    output = checked(events)[-1]["response"]["output"]
    assert [(item["id"], len(item["content"])) for item in output] == [("msg_1", 2), ("msg_2", 1)]
    assert output[0]["phase"] == "commentary"


def test_texts_without_an_item_are_a_message_each() -> None:
    output = checked([START, *text_events(0, "a"), *text_events(1, "b"), *STOP])[-1]["response"][
        "output"
    ]
    assert len(output) == 2
    assert len({item["id"] for item in output}) == 2
    assert all(item["id"].startswith("msg_") for item in output)


def test_message_that_comes_back_after_another_item_is_a_new_message() -> None:
    events: list[Event] = [
        START,
        *text_events(0, "a", item_id="msg_1"),
        *call_events(1),
        *text_events(2, "b", item_id="msg_1"),
        *CALLED,
    ]
    output = checked(events)[-1]["response"]["output"]
    assert output[0]["id"] == "msg_1"
    assert output[2]["id"] not in ("msg_1", "")


@pytest.mark.parametrize("given", ["call_0", "toolu_1", "msg_1", None])
def test_item_ids_that_the_vendor_would_reject_are_replaced(given: str | None) -> None:
    written = checked([START, *call_events(item_id=given), *CALLED])
    assert written[2]["item"]["id"].startswith("fc_")
    assert written[2]["item"]["id"] != given


def test_minted_ids_depend_on_the_seed_alone() -> None:
    events: list[Event] = [START, *call_events(), *CALLED]
    assert write(events) == write(events)
    assert write(events) != write(events, EncodeContext(seed="other"))


def test_refusal_has_events_of_its_own() -> None:
    value = Refusal(text="no", logprobs=Raw(b"[1]"))
    encoder = ResponsesEncoder()
    header = Refusal(status="in_progress")
    events: list[Event] = [
        START,
        PartStarted(0, header),
        TextDelta(0, "no", Raw(b"[1]")),
        PartEnded(0, value),
        *STOP,
    ]
    data = b"".join(encoder.encode(event) for event in events)
    doors.check_responses(data)
    assert names(payloads(data))[3:7] == [
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
    ]
    assert [loss.code for loss in encoder.losses] == ["logprobs"]


def test_reasoning_is_written_entry_by_entry() -> None:
    value = Reasoning(
        summary=("ab", "", "c"),
        content=("deep",),
        seals=(Seal("signature", "sig"),),
        item_id="rs_1",
    )
    events: list[Event] = [
        START,
        PartStarted(0, Reasoning(status="in_progress", item_id="rs_1")),
        ReasoningDelta(0, "a"),
        ReasoningDelta(0, "b"),
        ReasoningDelta(0, "deep", "content"),
        ReasoningDelta(0, "c", "summary", 1),
        SealAdded(0, Seal("signature", "sig")),
        PartEnded(0, value),
        *STOP,
    ]
    written = checked(events)
    assert names(written)[2:-2] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    item = written[-1]["response"]["output"][0]
    assert [entry["text"] for entry in item["summary"]] == ["ab", "", "c"]
    # Another provider's seal rides in an envelope of ours, for the client to carry back.
    assert item["encrypted_content"].startswith("dgm1.")


def test_delta_for_a_closed_reasoning_entry_is_still_written() -> None:
    events: list[Event] = [
        START,
        PartStarted(0, Reasoning(status="in_progress")),
        ReasoningDelta(0, "a"),
        ReasoningDelta(0, "b", "summary", 1),
        ReasoningDelta(0, "c"),
        PartEnded(0, Reasoning(summary=("ac", "b"))),
        *STOP,
    ]
    written = payloads(write(events))
    deltas = [one for one in written if one["type"].endswith("summary_text.delta")]
    assert [(one["summary_index"], one["delta"]) for one in deltas] == [
        (0, "a"),
        (1, "b"),
        (0, "c"),
    ]


def test_annotations_and_logprobs_are_written() -> None:
    own = Annotation("responses", raw({"type": "file_path", "file_id": "f", "index": 1}))
    cited = Annotation("messages", Raw(b"{}"), url="https://example.com", title="T", start=3)
    lost = Annotation("messages", Raw(b"{}"), quote="q")
    one = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    value = Text(text="ab", annotations=(own, cited, lost), logprobs=raw([one]))
    encoder = ResponsesEncoder()
    events: list[Event] = [
        START,
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "a", raw([one])),
        TextDelta(0, "b"),
        *(AnnotationAdded(0, each) for each in value.annotations),
        PartEnded(0, value),
        *STOP,
    ]
    data = b"".join(encoder.encode(event) for event in events)
    doors.check_responses(data)
    written = payloads(data)
    assert written[4]["logprobs"] == [one]
    answer = [each for each in written if each["type"].endswith("annotation.added")]
    assert [each["annotation_index"] for each in answer] == [0, 1]
    part = written[-1]["response"]["output"][0]["content"][0]
    assert part["annotations"][1] == {
        "type": "url_citation",
        "start_index": 3,
        "end_index": 3,
        "title": "T",
        "url": "https://example.com",
    }
    assert part["logprobs"] == [one]
    assert {loss.code for loss in encoder.losses} == {"annotation"}


def test_structured_calls_come_whole_with_their_end() -> None:
    action = '{"type": "exec", "command": ["ls"], "env": {}}'
    written = checked([START, *call_events(kind="local_shell", text=action), *CALLED])
    assert names(written)[2:4] == ["output_item.added", "output_item.done"]
    assert written[3]["item"]["action"] == json.loads(action)


def test_progress_is_emitted_by_the_vendors_names() -> None:
    call = Call(call_id="ws_1", name="web_search", kind="web_search", executor="provider")
    header = begun(call)
    output = Result(call_id="c", kind="shell", executor="provider")
    events: list[Event] = [
        START,
        Progress("in_progress"),
        Progress("queued"),
        PartStarted(0, header),
        Progress("searching", 0),
        Progress("unheard_of", 0),
        PartEnded(0, call),
        Progress("completed", 0),
        *text_events(1),
        PartStarted(2, output),
        OutputDelta(2, "out"),
        PartEnded(2, output),
        *STOP,
    ]
    found = names(checked(events))
    assert "queued" in found
    assert "web_search_call.searching" in found
    assert "web_search_call.completed" not in found
    assert "shell_call_output_content.delta" in found


def test_output_of_other_tools_cannot_be_streamed() -> None:
    encoder = ResponsesEncoder()
    call = Call(call_id="m", name="ask", kind="mcp", executor="provider", status="in_progress")
    for event in (START, PartStarted(0, call), OutputDelta(0, "x")):
        encoder.encode(event)
    assert [loss.code for loss in encoder.losses] == ["tool_output"]


def test_image_previews_are_written() -> None:
    call = Call(
        call_id="ig_1", name="image_generation", kind="image_generation", executor="provider"
    )
    header = begun(call)
    extra = Extra("responses", {"partial_image_index": Raw(b"2")})
    events: list[Event] = [
        START,
        PartStarted(0, header),
        MediaDelta(0, "AAAA", "", extra),
        PartEnded(0, call),
        *STOP,
    ]
    preview = checked(events)[3]
    assert preview["partial_image_b64"] == "AAAA"
    assert preview["partial_image_index"] == 2


def test_previews_of_another_call_have_no_event() -> None:
    events = call_events()
    written = payloads(write([START, events[0], MediaDelta(0, "AAAA"), *events[1:], *CALLED]))
    assert "image_generation_call.partial_image" not in names(written)


def test_sound_has_events_and_no_item() -> None:
    sound = Media(kind="audio", data="AAAA", transcript="hi")
    streamed: list[Event] = [
        START,
        PartStarted(0, Media(kind="audio", status="in_progress")),
        MediaDelta(0, "AAAA"),
        MediaDelta(0, "", "hi"),
        PartEnded(0, sound),
        *STOP,
    ]
    found = names(checked(streamed))
    assert found[2:6] == [
        "audio.delta",
        "audio.transcript.delta",
        "audio.done",
        "audio.transcript.done",
    ]
    assert names(checked([START, *whole(0, sound), *STOP]))[2:6] == found[2:6]
    cut = Media(kind="audio", status="incomplete")
    assert names(checked([START, *whole(0, cut), *STOP]))[2:] == ["completed"]


def test_other_media_are_left_out_and_noted() -> None:
    encoder = ResponsesEncoder()
    image = Media(kind="image", data="AAAA")
    events: list[Event] = [
        START,
        PartStarted(0, image),
        MediaDelta(0, "AAAA"),
        PartEnded(0, image),
        *STOP,
    ]
    data = b"".join(encoder.encode(event) for event in events)
    assert payloads(data)[-1]["response"]["output"] == []
    assert [loss.code for loss in encoder.losses] == ["media_output"]


def test_results_of_the_provider_are_items() -> None:
    result = Result(call_id="c", content=(Text(text="2"),), executor="gateway", is_error=True)
    item = checked([START, *whole(0, result), *STOP])[-1]["response"]["output"][0]
    assert item["type"] == "function_call_output"
    assert item["output"] == "[tool error] 2"
    assert item["status"] == "incomplete"
    assert item["id"].startswith("fco_")


def test_failed_patch_says_so_by_its_status() -> None:
    result = Result(call_id="c", content=(Text(text="no"),), kind="apply_patch", is_error=True)
    item = checked([START, *whole(0, result), *STOP])[-1]["response"]["output"][0]
    assert (item["status"], item["output"]) == ("failed", "no")


def test_own_opaque_items_and_parts_are_written_back() -> None:
    item: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    opaque = Opaque(dialect="responses", type="compaction", raw=raw(item), item_id="cmp_1")
    part = Opaque(dialect="responses", type="content/x", raw=raw({"type": "x"}), item_id="msg_1")
    events: list[Event] = [
        START,
        *whole(0, opaque),
        *text_events(1, item_id="msg_1"),
        *whole(2, part),
        *STOP,
    ]
    output = payloads(write(events))[-1]["response"]["output"]
    assert output[0] == item
    assert output[1]["content"][1] == {"type": "x"}


def test_message_may_begin_with_an_opaque_part() -> None:
    part = Opaque(dialect="responses", type="content/x", raw=raw({"type": "x"}), item_id="msg_1")
    output = payloads(write([START, *whole(0, part), *STOP]))[-1]["response"]["output"]
    assert output[0]["content"] == [{"type": "x"}]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (Opaque(dialect="messages", type="x", raw=Raw(b"{}")), "opaque_part"),
        (Opaque(dialect="responses", type="x", raw=Raw(b"[]")), "opaque_part"),
        (Result(call_id="c", kind="web_search", executor="provider"), "provider_result"),
        (
            Call(call_id="c", name="x", kind="other", executor="provider", status="in_progress"),
            "provider_call",
        ),
    ],
)
def test_what_has_no_form_here_is_left_out_and_noted(value: Part, code: str) -> None:
    encoder = ResponsesEncoder()
    events: list[Event] = [START, PartStarted(0, value)]
    if isinstance(value, Call):
        events.append(InputDelta(0, "{}"))
    data = b"".join(encoder.encode(event) for event in [*events, PartEnded(0, value), *STOP])
    doors.check_responses(data)
    assert payloads(data)[-1]["response"]["output"] == []
    assert [loss.code for loss in encoder.losses] == [code]


@pytest.mark.parametrize(
    ("kind", "source", "item_type", "field", "expected"),
    [
        (
            "web_search",
            '{"query": "x"}',
            "web_search_call",
            "action",
            {"type": "search", "query": "x"},
        ),
        (
            "web_fetch",
            '{"url": "u"}',
            "web_search_call",
            "action",
            {"type": "open_page", "url": "u"},
        ),
        ("file_search", '{"query": "x"}', "file_search_call", "queries", ["x"]),
        ("code_interpreter", '{"code": "1+1"}', "code_interpreter_call", "code", "1+1"),
        ("mcp", '{"a": 1}', "mcp_call", "arguments", '{"a": 1}'),
        ("tool_search", '{"q": 1}', "tool_search_call", "arguments", {"q": 1}),
    ],
)
def test_tools_that_other_vendors_run_too_have_peers(
    kind: Any, source: str, item_type: str, field: str, expected: Any
) -> None:
    events = call_events(name="x", text=source, kind=kind, executor="provider")
    item = checked([START, *events, *STOP])[-1]["response"]["output"][0]
    assert (item["type"], item[field]) == (item_type, expected)


@pytest.mark.parametrize("kind", ["bash", "text_editor", "memory"])
def test_client_tools_of_other_vendors_are_functions(kind: Any) -> None:
    item = checked([START, *call_events(name=kind, kind=kind), *CALLED])[-1]["response"]["output"][
        0
    ]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", kind, '{"x":1}')


def test_computer_actions_of_another_vendor_are_arguments_of_a_function() -> None:
    events = call_events(name="computer", kind="computer", text='{"action": "left_click"}')
    item = checked([START, *events, *CALLED])[-1]["response"]["output"][0]
    assert (item["type"], item["arguments"]) == ("function_call", '{"action": "left_click"}')


@pytest.mark.parametrize(
    ("kind", "source"),
    [("file_search", '{"a": 1}'), ("web_search", '{"a": 1}'), ("web_search", '{"query": 1}')],
)
def test_input_that_has_no_place_in_its_item_is_noted(kind: Any, source: str) -> None:
    encoder = ResponsesEncoder()
    events: list[Event] = [
        START,
        *call_events(name="x", text=source, kind=kind, executor="provider"),
        *STOP,
    ]
    data = b"".join(encoder.encode(event) for event in events)
    doors.check_responses(data)
    assert [loss.code for loss in encoder.losses] == ["provider_call"]


def test_seals_and_quotations_and_types_of_sound_are_noted() -> None:
    encoder = ResponsesEncoder()
    sealed = Call(call_id="c", name="f", input="{}", seals=(Seal("thought", "x"),))
    quoted = Annotation("messages", Raw(b"{}"), url="u", quote="q")
    sound = Media(kind="audio", data="AAAA", media_type="audio/wav")
    events: list[Event] = [
        START,
        PartStarted(0, Call(call_id="c", name="f", status="in_progress")),
        InputDelta(0, "{}"),
        PartEnded(0, sealed),
        *text_events(1, annotations=()),
        PartStarted(2, Text(status="in_progress")),
        AnnotationAdded(2, quoted),
        PartEnded(2, Text(annotations=(quoted,))),
        *whole(3, sound),
        *CALLED,
    ]
    b"".join(encoder.encode(event) for event in events)
    assert {loss.code for loss in encoder.losses} == {"call_seal", "annotation", "media_output"}
