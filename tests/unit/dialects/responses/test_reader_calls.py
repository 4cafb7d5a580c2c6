"""Regular streams with calls: every kind, and what tools of the provider do."""

import json

import pytest

from dragoman._json import Raw
from dragoman.model.events import (
    Finished,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
)
from dragoman.model.parts import (
    Call,
    Extra,
    Result,
    Text,
)
from responses_help import (
    Json,
    added,
    args_delta,
    args_done,
    completed,
    created,
    decode_events,
    done,
    function_call,
    message,
    parts_in,
    read,
    read_answer,
    text_message,
)


def test_call_streams_as_it_comes() -> None:
    item = function_call(arguments='{"a": 1}', namespace="mcp__x", status="completed")
    events, problems = read(
        [
            created(),
            added(function_call(namespace="mcp__x")),
            args_delta('{"a"'),
            args_delta(": 1}"),
            args_done('{"a": 1}'),
            done(item),
            completed([item]),
        ]
    )
    call = Call(
        call_id="call_a", name="f", namespace="mcp__x", item_id="fc_1", status="in_progress"
    )
    assert events[1:5] == [
        PartStarted(0, call),
        InputDelta(0, '{"a"'),
        InputDelta(0, ": 1}"),
        PartEnded(
            0,
            Call(
                call_id="call_a",
                name="f",
                input='{"a": 1}',
                namespace="mcp__x",
                item_id="fc_1",
            ),
        ),
    ]
    assert events[5] == Finished("tool_calls", native="completed")
    assert problems == []


def test_custom_call_streams_plain_text() -> None:
    item: Json = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_c",
        "name": "apply_patch",
        "input": "*** Begin\n",
        "status": "completed",
    }
    place = {"item_id": "ctc_1", "output_index": 0}
    name = "response.custom_tool_call_input"
    outcome = read_answer(
        [
            created(),
            added({**item, "input": "", "status": "in_progress"}),
            {"type": f"{name}.delta", **place, "delta": "*** "},
            {"type": f"{name}.delta", **place, "delta": "Begin\n"},
            {"type": f"{name}.done", **place, "input": "*** Begin\n"},
            done(item),
            completed([item]),
        ]
    )
    (call,) = parts_in(outcome)
    assert call == Call(
        call_id="call_c", name="apply_patch", input="*** Begin\n", kind="custom", item_id="ctc_1"
    )
    assert outcome.choices[0].finish == "tool_calls"


def test_empty_input_closed_by_the_protocol_is_the_empty_object() -> None:
    """M046, for this wire."""
    item = function_call(status="completed")
    events = decode_events([created(), added(function_call()), done(item), completed([item])])
    assert events[2] == InputDelta(0, "{}")
    assert isinstance(events[3], PartEnded)
    assert isinstance(events[3].value, Call)
    assert events[3].value.input == "{}"


def test_empty_custom_input_stays_empty() -> None:
    item: Json = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c",
        "name": "f",
        "input": "",
    }
    outcome = read_answer([created(), added(item), done(item), completed([item])])
    (call,) = parts_in(outcome)
    assert isinstance(call, Call)
    assert call.input == ""


STRUCTURED = [
    ("local_shell_call", {"action": {"type": "exec", "command": ["ls"]}}, "local_shell", "client"),
    ("shell_call", {"action": {"commands": ["ls"]}}, "shell", "client"),
    (
        "shell_call",
        {"action": {"commands": ["ls"]}, "environment": {"type": "container_reference"}},
        "shell",
        "provider",
    ),
    ("apply_patch_call", {"operation": {"type": "delete_file"}}, "apply_patch", "client"),
    ("computer_call", {"action": {"type": "wait"}}, "computer", "client"),
    ("computer_call", {"actions": [{"type": "wait"}]}, "computer", "client"),
    ("tool_search_call", {"arguments": {"q": 1}, "execution": "client"}, "tool_search", "client"),
    ("tool_search_call", {"arguments": {"q": 1}, "execution": "server"}, "tool_search", "provider"),
    ("web_search_call", {"action": {"type": "search", "query": "x"}}, "web_search", "provider"),
    ("file_search_call", {"queries": ["x"]}, "file_search", "provider"),
]


@pytest.mark.parametrize(("item_type", "fields", "kind", "executor"), STRUCTURED)
def test_structured_calls_have_the_json_of_their_one_field_as_input(
    item_type: str, fields: Json, kind: str, executor: str
) -> None:
    item: Json = {
        "type": item_type,
        "id": "item_1",
        "call_id": "call_1",
        "status": "completed",
        **fields,
    }
    start = {"type": item_type, "id": "item_1", "call_id": "call_1", "status": "in_progress"}
    hidden = {key: value for key, value in fields.items() if key in ("execution", "environment")}
    events, problems = read([created(), added({**start, **hidden}), done(item), completed([item])])
    assert problems == []
    assert isinstance(events[1], PartStarted)
    source = json.dumps(next(iter(fields.values())))
    assert events[2] == InputDelta(0, source)
    end = events[3]
    assert isinstance(end, PartEnded)
    assert isinstance(end.value, Call)
    assert (end.value.kind, end.value.executor) == (kind, executor)
    assert end.value.input == source
    finish = events[4]
    assert isinstance(finish, Finished)
    assert finish.reason == ("tool_calls" if executor == "client" else "stop")


def test_provider_calls_do_not_make_the_answer_wait() -> None:
    """M072."""
    search: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    item = text_message("x")
    outcome = read_answer(
        [
            created(),
            added(search),
            done(search),
            added(message(), 1),
            done(item, 1),
            completed([search, item]),
        ]
    )
    assert outcome.choices[0].finish == "stop"


def test_code_streams_as_input() -> None:
    start = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1", "code": ""}
    item: Json = {**start, "code": "1+1", "outputs": [], "status": "completed"}
    place = {"item_id": "ci_1", "output_index": 0}
    name = "response.code_interpreter_call"
    events, problems = read(
        [
            created(),
            added({**start, "status": "in_progress"}),
            {"type": f"{name}.in_progress", **place},
            {"type": f"{name}_code.delta", **place, "delta": "1+"},
            {"type": f"{name}_code.delta", **place, "delta": "1"},
            {"type": f"{name}_code.done", **place, "code": "1+1"},
            {"type": f"{name}.interpreting", **place},
            {"type": f"{name}.completed", **place},
            done(item),
            completed([item]),
        ]
    )
    assert problems == []
    assert events[2:7] == [
        Progress("in_progress", 0),
        InputDelta(0, "1+"),
        InputDelta(0, "1"),
        Progress("interpreting", 0),
        Progress("completed", 0),
    ]
    end = events[7]
    assert isinstance(end, PartEnded)
    assert isinstance(end.value, Call)
    assert end.value.input == "1+1"
    assert end.value.extra is not None
    assert set(end.value.extra.fields) == {"container_id", "outputs"}


def test_mcp_arguments_stream_and_failures_are_kept() -> None:
    start = {"type": "mcp_call", "id": "mcp_1", "name": "ask", "server_label": "s", "arguments": ""}
    item: Json = {**start, "arguments": "{}", "error": "x", "status": "failed"}
    place = {"item_id": "mcp_1", "output_index": 0}
    outcome = read_answer(
        [
            created(),
            added(start),
            {"type": "response.mcp_call_arguments.delta", **place, "delta": "{}"},
            {"type": "response.mcp_call_arguments.done", **place, "arguments": "{}"},
            {"type": "response.mcp_call.failed", **place},
            done(item),
            completed([item]),
        ]
    )
    (call,) = parts_in(outcome)
    assert isinstance(call, Call)
    assert (call.kind, call.name, call.status, call.call_id) == ("mcp", "ask", "failed", "mcp_1")


def test_shell_commands_show_progress_and_output_streams() -> None:
    call: Json = {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "c",
        "action": {"commands": ["ls"]},
    }
    output: Json = {"type": "shell_call_output", "id": "sho_1", "call_id": "c", "output": []}
    name = "response.shell_call"
    events, problems = read(
        [
            created(),
            added(call),
            {"type": f"{name}_command.added", "output_index": 0, "command_index": 0, "command": ""},
            {"type": f"{name}_command.delta", "output_index": 0, "command_index": 0, "delta": "l"},
            done(call),
            added(output, 1),
            {
                "type": f"{name}_output_content.delta",
                "item_id": "sho_1",
                "output_index": 1,
                "command_index": 0,
                "delta": {"stdout": "a", "stderr": "b"},
            },
            {
                "type": f"{name}_output_content.delta",
                "item_id": "sho_1",
                "output_index": 1,
                "command_index": 0,
                "delta": {},
            },
            {
                "type": f"{name}_output_content.done",
                "item_id": "sho_1",
                "output_index": 1,
                "command_index": 0,
                "output": [],
            },
            done(output, 1),
            completed([call, output]),
        ]
    )
    assert problems == []
    stages = [event.stage for event in events if isinstance(event, Progress)]
    assert stages == ["command.added", "command.delta"]
    assert OutputDelta(1, "ab") in events
    finish = next(event for event in events if isinstance(event, Finished))
    # The provider has answered the call itself.
    assert finish.reason == "stop"


def test_image_previews_are_media_of_the_call() -> None:
    item: Json = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "AAAA",
    }
    events, problems = read(
        [
            created(),
            added({"type": "image_generation_call", "id": "ig_1", "status": "in_progress"}),
            {
                "type": "response.image_generation_call.partial_image",
                "item_id": "ig_1",
                "output_index": 0,
                "partial_image_b64": "AA==",
                "partial_image_index": 0,
            },
            done(item),
            completed([item]),
        ]
    )
    assert problems == []
    preview = events[2]
    assert isinstance(preview, MediaDelta)
    assert preview.data == "AA=="
    assert preview.extra == Extra("responses", {"partial_image_index": Raw(b"0")})


def test_results_in_an_answer_are_the_providers() -> None:
    """M034: joined to their call by `call_id`."""
    call = function_call(arguments='{"code":"1+1"}', status="completed")
    output: Json = {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "call_a",
        "output": "2",
    }
    outcome = read_answer(
        [
            created(),
            added(function_call()),
            args_delta('{"code":"1+1"}'),
            done(call),
            added(output, 1),
            done(output, 1),
            completed([call, output]),
        ]
    )
    assert parts_in(outcome)[1] == Result(
        call_id="call_a", content=(Text(text="2"),), executor="provider", item_id="fco_1"
    )
    assert outcome.choices[0].finish == "stop"


def test_half_of_a_character_in_a_call_waits_for_the_other() -> None:
    def delta(text: bytes) -> bytes:
        return (
            b'data: {"type":"response.function_call_arguments.delta","item_id":"fc_1",'
            b'"output_index":0,"delta":' + text + b"}\n\n"
        )

    item = function_call(arguments='"😀"', status="completed")
    events = decode_events(
        [
            created(),
            added(function_call()),
            delta(b'"\\"\\ud83d"'),
            delta(b'"\\ude00"'),
            delta(b'"\\""'),
            done(item),
            completed([item]),
        ]
    )
    texts = [event.text for event in events if isinstance(event, InputDelta)]
    assert texts == ['"', "😀", '"']


def test_half_a_character_that_ends_the_input_of_a_call_is_replaced() -> None:
    half = b"data: " + json.dumps(args_delta('"\ud83d')).encode("ascii") + b"\n\n"
    cut = function_call(status="incomplete")
    events = decode_events([created(), added(function_call()), half, done(cut), completed([cut])])
    texts = [event.text for event in events if isinstance(event, InputDelta)]
    assert texts == ['"', "\ufffd"]
