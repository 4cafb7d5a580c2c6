"""The Obsidian contract at its edges: who decides the mode, what a cut does, old and new clients, logs and metrics."""

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from dragoman.config.settings import LogSettings
from dragoman.obsidian.settings import ChatSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, Wait, sse
from gateway_harness import one_upstream, running_gateway, wait_until
from obsidian_cases import BLOCKS, CASES, DECLARED, SEARCH, read_stream
from plain_http import ask
from sdk_clients import Offered, conversation, openai_client
from stage import Scene, Stage, deliver, running_stage
from vendor_wire import Answer, Said, Tool, stream

ONE = Answer((Said(("I look.",)), Tool("call_1", "search", (SEARCH,))))
PLAIN = Answer((Said(("Hello ", "there.")),))
WRITTEN = "<use_tool>\n<name>now</name>\n</use_tool>"


@pytest.fixture(scope="module")
def plain() -> Iterator[Stage]:
    """A gateway whose operator said nothing, but of one upstream."""
    upstreams: dict[str, dict[str, object]] = {
        "obsidian": {"kind": "chat", "output_mode": "obsidian_xml"}
    }
    with running_stage(upstreams=upstreams) as stage:
        yield stage


@pytest.fixture(scope="module")
def finishing() -> Iterator[Stage]:
    upstreams = {"gathered": {"kind": "messages", "always_stream": True}}
    with running_stage(upstreams=upstreams, chat=ChatSettings(error_after_calls="finish")) as stage:
        yield stage


def post(stage: Stage, scene: Scene, headers: dict[str, str] | None = None, **more: object) -> Any:
    body: dict[str, object] = {
        "model": scene.model,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": DECLARED,
        **more,
    }
    return ask(stage.url, "chat", body, headers)


# --- who decides ------------------------------------------------------------------------------------------------------


def test_without_any_wish_the_upstreams_bytes_pass_untouched(plain: Stage) -> None:
    usage = {"include_usage": True}
    answer = post(plain, plain.scene("chat", ONE), stream=True, stream_options=usage)
    assert answer.content == stream("chat", ONE)
    assert "x-proxy-output-mode" not in answer.headers
    assert not [name for name in answer.headers if name.startswith("x-codex-")]


@pytest.mark.requirement("S003-54")
@pytest.mark.parametrize("word", ["obsidian-xml", "OBSIDIAN_XML", "obsidian"])
@pytest.mark.parametrize("streamed", [False, True])
def test_the_header_decides_and_the_effective_mode_is_echoed(
    plain: Stage, word: str, streamed: bool
) -> None:
    scene = plain.scene("chat", ONE)
    answer = post(plain, scene, {"x-proxy-output-mode": word}, stream=streamed)
    assert answer.headers["x-proxy-output-mode"] == "obsidian-xml"
    assert "<use_tool>" in json.loads(json.dumps(answer.text))


@pytest.mark.parametrize("word", ["openai-json", "openai_json", "openai"])
def test_the_header_wins_over_the_upstreams_setting(plain: Stage, word: str) -> None:
    scene = plain.scene("chat", ONE, route="obsidian")
    answer = post(plain, scene, {"x-proxy-output-mode": word})
    assert answer.headers["x-proxy-output-mode"] == "openai-json"
    assert answer.json()["choices"][0]["message"]["content"] == "I look."


def test_the_upstreams_setting_decides_where_nobody_else_does(plain: Stage) -> None:
    answer = post(plain, plain.scene("chat", ONE, route="obsidian"))
    assert answer.headers["x-proxy-output-mode"] == "obsidian-xml"
    message = answer.json()["choices"][0]["message"]
    assert message["content"] == f"I look.\n{BLOCKS['search']}"
    assert message["tool_calls"][0]["function"]["arguments"] == SEARCH


def test_a_mode_that_there_is_not_is_refused(plain: Stage) -> None:
    scene = plain.scene("chat", ONE)
    answer = post(plain, scene, {"x-proxy-output-mode": "yaml"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "unknown_output_mode"
    assert 'expected "obsidian-xml" or "openai-json", got \'yaml\'' in error["message"]
    assert scene.requests == []


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_other_doors_know_nothing_of_it(plain: Stage, door: str) -> None:
    scene = plain.scene("chat", ONE, route="obsidian")
    turn = [{"role": "user", "content": "hi"}]
    body: dict[str, Any] = {
        "model": scene.model,
        "input" if door == "responses" else "messages": turn,
    }
    answer = ask(plain.url, door, body | {"max_tokens": 9}, {"x-proxy-output-mode": "obsidian-xml"})  # fmt: skip
    assert answer.status_code == 200
    assert "<use_tool>" not in answer.text
    assert "x-proxy-output-mode" not in answer.headers


# --- what a cut does --------------------------------------------------------------------------------------------------


def held(dialect: str, answer: Answer, never: threading.Event, *, keep: int) -> ScriptedReply:
    """All but the last frames of a stream, and then silence."""
    frames = [frame + b"\n\n" for frame in stream(dialect, answer).split(b"\n\n") if frame]
    return ScriptedReply(
        content_type="text/event-stream", chunks=[*frames[: len(frames) - keep], Wait(never)]
    )


SILENT = {
    "first": ("messages", ONE, 2, ChatSettings(stop_after_tools=True, stop_after_tools_mode="first")),
    "grace": ("messages", ONE, 2, ChatSettings(stop_after_tools=True, stop_after_tools_grace_ms=20)),
    "written": ("chat", Answer((Said((f"I look.\n{WRITTEN}\n", "It is five.", " And")),)), 3, ChatSettings(tool_block_max=9)),
    "written first": ("chat", Answer((Said((f"I look.\n{WRITTEN}\n", "It")),)), 4, ChatSettings(stop_after_tools_mode="first")),
}  # fmt: skip


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("mode", ["obsidian-xml", "openai-json"])
@pytest.mark.parametrize("case", SILENT)
def test_a_cut_ends_the_answer_and_closes_the_upstream(
    case: str, mode: str, streamed: bool
) -> None:
    dialect, answer, keep, chat = SILENT[case]
    never = threading.Event()
    upstreams = {"held": {"kind": dialect, "always_stream": True}}
    with running_stage(upstreams=upstreams, chat=chat) as stage:
        scene = stage.scene(dialect, held(dialect, answer, never, keep=keep), route="held")
        got = post(stage, scene, {"x-proxy-output-mode": mode}, stream=streamed)
        if streamed:
            read = read_stream(got.text)
            assert read.finishes == ["tool_calls"]
            assert read.frames[-1] == "data: [DONE]"
            assert len(read.calls) == 1
            content = read.content
        else:
            (choice,) = got.json()["choices"]
            assert choice["finish_reason"] == "tool_calls"
            content = choice["message"]["content"]
        assert content.strip() == ("I look." if mode == "openai-json" else content.strip())
        assert content.count("</use_tool>") == (mode == "obsidian-xml")
        wait_until(lambda: scene.requests[0].closed_at is not None)
        assert scene.requests[0].was_abandoned
        never.set()


def test_a_slow_second_call_is_waited_for_where_stopping_was_not_asked_for(plain: Stage) -> None:
    answer = Answer((Said(("I look.",)), Tool("c1", "now", ("{}",)), Tool("c2", "now", ("{}",))))
    frames = [frame + b"\n\n" for frame in stream("messages", answer).split(b"\n\n") if frame]
    go = threading.Event()
    middle = next(at for at, frame in enumerate(frames) if b'"c2"' in frame)
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[*frames[:middle], Wait(go), *frames[middle:]]
    )
    scene = plain.scene("messages", reply)
    threading.Timer(0.4, go.set).start()
    got = post(plain, scene, {"x-proxy-output-mode": "obsidian-xml"}, stream=True)
    assert len(read_stream(got.text).calls) == 2


@pytest.mark.requirement("S003-60")
def test_frames_after_the_end_are_dropped(plain: Stage) -> None:
    whole = stream("chat", ONE)
    late = whole.partition(b"\n\n")[0] + b"\n\n"
    scene = plain.scene("chat", sse(whole + late + late))
    got = post(plain, scene, {"x-proxy-output-mode": "obsidian-xml"}, stream=True)
    read = read_stream(got.text)
    assert read.frames[-1] == "data: [DONE]"
    assert read.finishes == ["tool_calls"]


# --- failures after calls ---------------------------------------------------------------------------------------------


def broken(request: ReceivedRequest) -> ScriptedReply:
    """A stream that is cut after a complete call."""
    assert request.body
    whole = stream("messages", ONE)
    return structs.replace(sse(whole[: whole.index(b"event: message_delta")]), cut=True)


@pytest.mark.requirement("S003-63")
def test_a_failure_after_complete_calls_finishes_where_the_operator_says_so(
    finishing: Stage,
) -> None:
    got = post(finishing, finishing.scene("messages", broken), stream=True)
    read = read_stream(got.text)
    assert (read.error, read.finishes) == (None, ["tool_calls"])
    assert read.frames[-1] == "data: [DONE]"
    body = post(finishing, finishing.scene("messages", broken, route="gathered"))
    assert body.json()["choices"][0]["finish_reason"] == "tool_calls"


def test_a_failure_within_a_call_fails_all_the_same(finishing: Stage) -> None:
    whole = stream("messages", ONE)
    half = structs.replace(sse(whole[: whole.index(b"input_json_delta")]), cut=True)
    read = read_stream(post(finishing, finishing.scene("messages", half), stream=True).text)
    assert read.error is not None
    assert read.finishes == []


def test_a_failure_after_complete_calls_fails_by_default(plain: Stage) -> None:
    headers = {"x-proxy-output-mode": "obsidian-xml"}
    read = read_stream(post(plain, plain.scene("messages", broken), headers, stream=True).text)
    assert read.error is not None
    assert "data: [DONE]" not in read.frames


# --- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["obsidian-xml", "openai-json"])
@pytest.mark.parametrize("case", ["three calls", "written"])
def test_the_openai_sdk_understands_both_modes(plain: Stage, mode: str, case: str) -> None:
    dialect, answer = CASES[case]
    client = openai_client(plain.url)
    given: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": DECLARED,
        "extra_headers": {"x-proxy-output-mode": mode},
    }
    whole = client.chat.completions.create(model=plain.scene(dialect, answer).model, **given)
    calls: dict[int, list[str]] = {}
    content = ""
    finishes: list[str] = []
    for chunk in client.chat.completions.create(
        model=plain.scene(dialect, answer).model, stream=True, **given
    ):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finishes += [choice.finish_reason] if choice.finish_reason else []
            for call in choice.delta.tool_calls or ():
                calls.setdefault(call.index, []).append(call.function.arguments or "")
    message = whole.choices[0].message
    assert content == message.content
    assert finishes == [whole.choices[0].finish_reason] == ["tool_calls"]
    found = [call.function.arguments for call in message.tool_calls]
    assert ["".join(pieces) for pieces in calls.values()] == found


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_declares_no_tools_has_its_blocks_found_all_the_same(
    plain: Stage, streamed: bool
) -> None:
    text = "I look.\n<use_tool>\n<name>localSearch</name>\n<query>piano</query>\n</use_tool>\nThen"
    scene = plain.scene("chat", Answer((Said(tuple(text)),)), route="obsidian")
    body: dict[str, Any] = {"model": scene.model, "messages": [{"role": "user", "content": "hi"}]}
    got = ask(plain.url, "chat", body | {"stream": streamed})
    if streamed:
        read = read_stream(got.text)
        content, names, finish = read.content, [call["name"] for call in read.calls], read.finishes[0]  # fmt: skip
    else:
        (choice,) = got.json()["choices"]
        content, finish = choice["message"]["content"], choice["finish_reason"]
        names = [call["function"]["name"] for call in choice["message"]["tool_calls"]]
    assert content == (
        "I look.\n<use_tool>\n  <name>localSearch</name>\n  <query>piano</query>\n</use_tool>"
    )
    assert (names, finish) == (["localSearch"], "tool_calls")


def test_a_client_of_functions_gets_its_function_call_and_the_block(plain: Stage) -> None:
    scene = plain.scene("messages", ONE)
    functions = [tool["function"] for tool in DECLARED]
    body = {"model": scene.model, "messages": [{"role": "user", "content": "hi"}], "functions": functions}  # fmt: skip
    got = ask(plain.url, "chat", body, {"x-proxy-output-mode": "obsidian-xml"})
    (choice,) = got.json()["choices"]
    assert choice["message"]["function_call"] == {"name": "search", "arguments": SEARCH}
    assert choice["message"]["content"].endswith(BLOCKS["search"])


HISTORY = [
    {"role": "user", "content": "What time is it?"},
    {"role": "assistant", "content": f"I look.\n{WRITTEN}\n{BLOCKS['search']}"},
    {"role": "user", "content": "Tool 'now' result: five\n\nTool 'search' result: [1]"},
]


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_results_that_came_as_text_are_paired_for_the_upstream(plain: Stage, dialect: str) -> None:
    scene = plain.scene(dialect, PLAIN)
    post(plain, scene, {"x-proxy-output-mode": "obsidian-xml"}, messages=HISTORY, max_tokens=9)
    heard = scene.heard["messages"]
    if dialect == "chat":
        assert [message["role"] for message in heard] == ["user", "assistant", "tool", "tool"]
        called = [call["id"] for call in heard[1]["tool_calls"]]
        assert [message["tool_call_id"] for message in heard[2:]] == called
        assert [message["content"] for message in heard[2:]] == ["five", "[1]"]
    else:
        used = [block["id"] for block in heard[1]["content"] if block["type"] == "tool_use"]
        assert [block["tool_use_id"] for block in heard[2]["content"]] == used
        assert len(used) == 2


@pytest.mark.parametrize("mode", ["create", "stream"])
def test_an_sdk_that_sends_blocks_back_with_their_calls_does_not_teach_them_to_the_model(
    plain: Stage, mode: str
) -> None:
    tools = (Offered("search", DECLARED[0]["function"]["parameters"]), Offered("now", {"type": "object"}))  # fmt: skip
    scene = plain.scene("chat", ONE, PLAIN, route="obsidian")
    asking = conversation("chat", plain.url, scene.model, tools=tools)
    asking.say("hi")
    got = asking.ask(mode)
    assert got.text.endswith(BLOCKS["search"])
    asking.answer(got.calls[0], "nothing")
    assert asking.ask(mode).text == "Hello there."
    said, result = scene.heard["messages"][1:]
    assert said["content"] == "I look."
    assert said["tool_calls"][0]["function"] == {"name": "search", "arguments": SEARCH}
    assert result["tool_call_id"] == said["tool_calls"][0]["id"] == "call_1"


def test_results_stay_text_where_the_client_has_calls_of_its_own(plain: Stage) -> None:
    scene = plain.scene("chat", PLAIN)
    post(plain, scene, {"x-proxy-output-mode": "openai-json"}, messages=HISTORY)
    assert scene.heard["messages"] == HISTORY


# --- requests to the upstream, reports -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("enabled", [True, False])
def test_parallel_calls_are_asked_for_where_the_client_says_nothing(
    dialect: str, enabled: bool
) -> None:
    with running_stage(chat=ChatSettings(enable_parallel_tool_calls=enabled)) as stage:
        scene = stage.scene(dialect, PLAIN, PLAIN, PLAIN)
        post(stage, scene)
        assert scene.heard["parallel_tool_calls"] is enabled
        post(stage, scene, parallel_tool_calls=not enabled)
        assert scene.heard["parallel_tool_calls"] is not enabled
        body = {"model": scene.model, "messages": [{"role": "user", "content": "hi"}]}
        ask(stage.url, "chat", body)
        assert "parallel_tool_calls" not in scene.heard


def test_what_the_client_would_misread_is_in_the_loss_header(plain: Stage) -> None:
    html = Answer((Tool("c", "search", ('{"query":"<p>hi</p>"}',)),))
    got = post(plain, plain.scene("chat", html, route="obsidian"))
    assert "use_tool_value;at=search.query;carry" in got.headers["x-dragoman-loss"]


def json_lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    lines = [record.getMessage() for record in caplog.records]
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.requirement("S003-52", "S003-69")
@pytest.mark.parametrize("streamed", [True, False])
def test_the_log_says_what_the_comment_says(
    caplog: pytest.LogCaptureFixture, streamed: bool
) -> None:
    answer = Answer((Tool("c1", "now", ("{}",)), Tool("c2", "now", ("{}",))))
    chat = ChatSettings(output_mode="obsidian-xml", tool_block_max=1)
    with (
        ScriptedUpstream.in_thread(lambda _: deliver("chat", answer, is_stream=streamed)) as upstream,
        caplog.at_level(logging.INFO, logger="dragoman.requests"),
        running_gateway(one_upstream(upstream.url, "chat", chat=chat, log=LogSettings(format="json"))) as gateway,
    ):  # fmt: skip
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": DECLARED}
        ask(gateway.url, "chat", body | {"stream": streamed})
        wait_until(lambda: bool(json_lines(caplog)))
    line = json_lines(caplog)[0]
    assert line["chat_contract"] == {
        "output_mode": "obsidian-xml",
        "has_tool_calls": True,
        "tool_call_count": 1,
        "tool_call_names": ["now"],
        "tool_call_ids": ["c1"],
        "tool_call_truncated": True,
        "stop_after_tools_mode": "burst",
    }
    usage = answer.usage
    assert (line["input_tokens"], line["output_tokens"]) == (usage["input"], usage["output"])


NOISE = {
    "type": "function_call_output",
    "id": "fco_1",
    "call_id": "call_0",
    "output": "resources/list failed: unknown MCP server 'obsidian'",
}


@pytest.mark.requirement("S003-07")
def test_noise_about_servers_that_do_not_exist_reaches_nobody(plain: Stage) -> None:
    added, ended = (
        f"event: {kind}\ndata: {json.dumps({'type': kind, 'output_index': 0, 'item': NOISE})}\n\n"
        for kind in ("response.output_item.added", "response.output_item.done")
    )
    whole = stream("responses", ONE)
    start = whole.index(b"event: response.output_item.added")
    noisy = whole[:start] + (added + ended).encode() + whole[start:]
    got = post(plain, plain.scene("responses", sse(noisy)), {"x-proxy-output-mode": "obsidian-xml"}, stream=True)  # fmt: skip
    assert "resources/list" not in got.text
    read = read_stream(got.text)
    assert [call["name"] for call in read.calls] == ["search"]
    assert read.error is None
