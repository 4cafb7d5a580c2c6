"""A Codex upstream and its child: turns that are held, replayed, steered, interrupted; and children that misbehave."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from codex_app_server import (
    Json,
    answers,
    app_server,
    call,
    custom,
    heard,
    params_of,
    pids,
    reasoning,
    text,
)
from codex_asking import (
    answer_of,
    asked,
    calls_of,
    read_all,
    reasoning_of,
    request,
    running,
    text_of,
    until,
    with_results,
)
from dragoman.errors import UpstreamError
from dragoman.model.events import Started
from dragoman.model.parts import Text
from dragoman.model.request import Request, Tool, ToolChoice, Turn
from dragoman.upstream.codex.child import Child
from dragoman.upstream.codex.turn import CodexReply
from dragoman.upstream.codex.upstream import CodexUpstream
from loops import LOOPS, play

ONE_CALL = [[text("Let me look."), call("call_1", "get", '{"x":  1.0}')], [text("It is 1.")]]
TWO_CALLS = [
    [call("call_1", "get", '{"x": 1}'), call("call_2", "get", '{"x": 2}')],
    [text("Both are in.")],
]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_held_turn_goes_on_with_its_results(tmp_path: Path, loop: str) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL), tmp_path) as upstream:
            before = request("How many?")
            first = await answer_of(upstream, before)
            assert text_of(first) == "Let me look."
            assert [(each.call_id, each.name, each.input) for each in calls_of(first)] == [
                ("call_1", "get", '{"x":  1.0}')
            ]
            assert (first.choices[0].finish, first.completed) == ("tool_calls", True)
            second = await answer_of(upstream, with_results(before, first, result="one"))
            assert (text_of(second), second.choices[0].finish) == ("It is 1.", "stop")
            assert calls_of(second) == ()
            assert second.response_id != first.response_id
        assert len(heard(tmp_path, "thread/start")) == 1
        (answer,) = answers(tmp_path)
        assert answer["result"] == {
            "contentItems": [{"type": "inputText", "text": "one"}],
            "success": True,
        }

    play(loop, main())


def test_results_without_a_held_turn_are_replayed_and_give_the_same_answer(tmp_path: Path) -> None:
    async def main() -> None:
        before = request("How many?")
        async with running(app_server(tmp_path / "a", ONE_CALL), tmp_path / "a") as upstream:
            first = await answer_of(upstream, before)
            held = await answer_of(upstream, with_results(before, first, result="one"))
        async with running(app_server(tmp_path / "b", ONE_CALL), tmp_path / "b") as upstream:
            replayed = await answer_of(upstream, with_results(before, first, result="one"))
        # When it began is the turn's own, and the second answer's is the gateway's to say.
        bare = [replace(each, response_id="", created=None) for each in (held, replayed)]
        assert bare[0] == bare[1]
        (injected,) = params_of(tmp_path / "b", "thread/inject_items")
        assert injected["items"][-2:] == [
            {
                "type": "function_call",
                "name": "get",
                "arguments": '{"x":  1.0}',
                "call_id": "call_1",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "one"},
        ]

    asyncio.run(main())


@pytest.mark.parametrize("behaviour", [{}, {"late_call": True}])
def test_parallel_calls_come_together_and_are_answered_by_their_ids(
    tmp_path: Path, behaviour: Json
) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, TWO_CALLS, behaviour), tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            assert [each.call_id for each in calls_of(first)] == ["call_1", "call_2"]
            assert first.usage is not None
            assert (first.usage.input, first.usage.output) == (10, 5)
            second = await answer_of(upstream, with_results(before, first))
            assert text_of(second) == "Both are in."
            assert second.usage is not None
            assert (second.usage.input, second.usage.total) == (10, 15)
        assert sorted(each["id"] for each in answers(tmp_path)) == [0, 1]

    asyncio.run(main())


THREE_CALLS = [
    [
        text("Let me look."),
        call("call_1", "get", '{"x": 1}'),
        call("call_2", "get", '{"x": 2}'),
        call("call_3", "get", '{"x": 3}'),
    ],
    [text("All are in.")],
]


@pytest.mark.parametrize("behaviour", [{}, {"late_call": True}])
def test_serial_calls_come_one_by_one_in_the_same_turn(tmp_path: Path, behaviour: Json) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, THREE_CALLS, behaviour), tmp_path) as upstream:
            asked_next = replace(request(), parallel_calls=False)
            for number in (1, 2, 3):
                answer = await answer_of(upstream, asked_next)
                assert [(each.call_id, each.input) for each in calls_of(answer)] == [
                    (f"call_{number}", f'{{"x": {number}}}')
                ]
                assert (answer.choices[0].finish, answer.completed) == ("tool_calls", True)
                assert text_of(answer) == ("Let me look." if number == 1 else "")
                asked_next = with_results(asked_next, answer, result=f"result {number}")
            last = await answer_of(upstream, asked_next)
            assert (text_of(last), calls_of(last)) == ("All are in.", ())
        # One turn of Codex: nothing was asked of the model again.
        assert len(heard(tmp_path, "turn/start")) == 1
        found = [each["result"]["contentItems"][0]["text"] for each in answers(tmp_path)]
        assert found == ["result 1", "result 2", "result 3"]

    asyncio.run(main())


def test_serial_call_that_codex_answers_itself_does_not_hold_up_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        calls = [call("call_1", "get", '{"x": '), call("call_2", "get", '{"x": 2}')]
        script = [calls, [text("Both are in.")]]
        async with running(app_server(tmp_path, script), tmp_path) as upstream:
            before = replace(request(), parallel_calls=False)
            first = await answer_of(upstream, before)
            assert [each.call_id for each in calls_of(first) if each.status == "completed"] == [
                "call_2"
            ]
            second = await answer_of(upstream, with_results(before, first))
            assert text_of(second) == "Both are in."

    asyncio.run(main())


def test_user_text_beside_the_results_is_steered_in_before_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL), tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            after = await answer_of(upstream, with_results(before, first, "in words please"))
            assert text_of(after) == "It is 1."
        (steered,) = params_of(tmp_path, "turn/steer")
        assert steered["input"] == [
            {"type": "text", "text": "in words please", "text_elements": []}
        ]
        assert steered["expectedTurnId"] == "turn-1"
        order = [each.get("method", "answer") for each in heard(tmp_path)]
        assert order.index("turn/steer") < order.index("answer")

    asyncio.run(main())


def test_steering_that_is_refused_is_replayed(tmp_path: Path) -> None:
    async def main() -> None:
        behaviour = {"refuse": {"turn/steer": [-32600, "no active turn"]}}
        async with running(app_server(tmp_path, ONE_CALL, behaviour), tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            after = await answer_of(upstream, with_results(before, first, "and now?"))
            assert text_of(after) == "It is 1."
        assert len(heard(tmp_path, "thread/start")) == 2
        assert len(heard(tmp_path, "turn/interrupt")) == 1

    asyncio.run(main())


def changed_model(wanted: Request) -> Request:
    return replace(wanted, model="another")


def changed_tools(wanted: Request) -> Request:
    return replace(wanted, tools=(*wanted.tools, Tool(name="other")))


def changed_history(wanted: Request) -> Request:
    other = Turn(role="user", parts=(Text(text="something else"),))
    return replace(wanted, turns=(other, *wanted.turns[1:]))


@pytest.mark.parametrize("change", [changed_model, changed_tools, changed_history])
def test_request_that_says_something_else_before_its_results_is_replayed(
    tmp_path: Path, change: Callable[[Request], Request]
) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL), tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            after = await answer_of(upstream, change(with_results(before, first)))
            assert text_of(after) == "It is 1."
        assert len(heard(tmp_path, "thread/start")) == 2
        assert answers(tmp_path) == []

    asyncio.run(main())


def test_held_turn_whose_client_never_returns_is_interrupted_and_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, held_ttl=0.05)
        async with running(settings, tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            await until(lambda: len(heard(tmp_path, "thread/unsubscribe")) == 1)
            assert len(heard(tmp_path, "turn/interrupt")) == 1
            after = await answer_of(upstream, with_results(before, first))
            assert text_of(after) == "It is 1."

    asyncio.run(main())


def test_oldest_held_turn_goes_when_there_are_too_many(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL, held_max=1), tmp_path) as upstream:
            first = await answer_of(upstream, request("one"))
            await answer_of(upstream, request("two"))
            await until(lambda: len(heard(tmp_path, "turn/interrupt")) == 1)
            (stopped,) = params_of(tmp_path, "turn/interrupt")
            assert stopped["turnId"] == "turn-1"
            assert text_of(await answer_of(upstream, with_results(request("one"), first)))

    asyncio.run(main())


def test_turn_that_ends_while_it_is_held_is_replayed(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"complete_held": True})
        async with running(settings, tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            await until(lambda: len(heard(tmp_path, "thread/unsubscribe")) == 1)
            await answer_of(upstream, with_results(before, first))
        assert len(heard(tmp_path, "thread/start")) == 2

    asyncio.run(main())


def test_calls_go_out_alone_when_the_response_that_made_them_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"never_complete": True})
        async with running(settings, tmp_path) as upstream:
            first = await answer_of(upstream, request())
            assert [each.call_id for each in calls_of(first)] == ["call_1"]
            assert first.choices[0].finish == "tool_calls"

    monkeypatch.setattr(CodexUpstream, "settle", 0.1)
    asyncio.run(main())


def test_client_that_leaves_stops_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Ah.")]], {"silent": True})
        async with running(settings, tmp_path) as upstream:
            reply = await upstream.send(asked(request()))
            reading = asyncio.create_task(reply.read())
            await asyncio.sleep(0)
            reading.cancel()
            reply.close()
            reply.close()
            await until(lambda: len(heard(tmp_path, "thread/unsubscribe")) == 1)
            (stopped,) = params_of(tmp_path, "turn/interrupt")
            assert stopped["turnId"] == "turn-1"

    asyncio.run(main())


@pytest.mark.parametrize("method", ["thread/start", "thread/inject_items", "turn/start"])
def test_client_that_leaves_while_a_turn_is_begun_leaves_no_thread(
    tmp_path: Path, method: str
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"slow_answers": {method: 0.1}})
        async with running(settings, tmp_path) as upstream:
            sending = asyncio.create_task(upstream.send(asked(request())))
            await until(lambda: len(heard(tmp_path, method)) == 1)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await until(lambda: len(heard(tmp_path, "thread/unsubscribe")) == 1)
            assert len(heard(tmp_path, "turn/interrupt")) == (method == "turn/start")

    asyncio.run(main())


def test_client_that_leaves_just_as_its_thread_is_started_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending: list[asyncio.Task[CodexReply]] = []
    on_line = Child._on_line  # pyright: ignore[reportPrivateUsage] - between two steps of the event loop

    def read_and_leave(child: Child, line: bytes) -> None:
        on_line(child, line)
        if b'"thread"' in line:
            sending[0].cancel()

    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL), tmp_path) as upstream:
            monkeypatch.setattr(Child, "_on_line", read_and_leave)
            sending.append(asyncio.create_task(upstream.send(asked(request()))))
            with pytest.raises(asyncio.CancelledError):
                await sending[0]
            await until(lambda: len(heard(tmp_path, "thread/unsubscribe")) == 1)

    asyncio.run(main())


def test_two_threads_in_one_child_do_not_mix(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL), tmp_path) as upstream:
            replies = [await upstream.send(asked(request(word))) for word in ("one", "two")]
            assert replies[0] is not replies[1]
            for reply in replies:
                events = await read_all(reply)
                assert sum(isinstance(event, Started) for event in events) == 1
        assert len(pids(tmp_path)) == 1
        first, second = params_of(tmp_path, "thread/inject_items")
        assert first["threadId"] != second["threadId"]

    asyncio.run(main())


def test_children_share_the_turns(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL, children=2), tmp_path) as upstream:
            upstream.start()
            before = [request("one"), request("two")]
            first = [await answer_of(upstream, each) for each in before]
            assert len(set(pids(tmp_path))) == 2
            threads = [each["threadId"] for each in params_of(tmp_path, "turn/start")]
            assert len({name.rpartition("-")[2] for name in threads}) == 2
            after = [
                await answer_of(upstream, with_results(asked_before, outcome))
                for asked_before, outcome in zip(before, first, strict=True)
            ]
            assert list(map(text_of, after)) == ["It is 1."] * 2
        assert len(heard(tmp_path, "thread/start")) == 2

    asyncio.run(main())


def test_approvals_are_declined_and_other_requests_refused(tmp_path: Path) -> None:
    async def main() -> None:
        ask = [
            "item/commandExecution/requestApproval",
            "item/fileChange/requestApproval",
            "mcpServer/elicitation/request",
            "execCommandApproval",
            "item/permissions/requestApproval",
            "item/tool/requestUserInput",
            "something/new",
        ]
        settings = app_server(tmp_path, [[text("Fine.")]], {"ask": ask})
        async with running(settings, tmp_path) as upstream:
            assert text_of(await answer_of(upstream, request())) == "Fine."
            await until(lambda: len(answers(tmp_path)) == len(ask))
        said = [each["result"] if "result" in each else each["error"] for each in answers(tmp_path)]
        assert said[:5] == [
            {"decision": "decline"},
            {"decision": "decline"},
            {"action": "decline", "content": None, "_meta": None},
            {"decision": "denied"},
            {"permissions": {}, "scope": "turn"},
        ]
        assert [each["code"] for each in said[5:]] == [-32601, -32601]

    asyncio.run(main())


@pytest.mark.requirement("S003-06")
def test_thread_has_only_the_clients_tools_and_words(tmp_path: Path) -> None:
    config: Json = {
        "model_provider": "mine",
        "model_providers": {"mine": {}},
        "mcp_servers": {"probe": {"command": "touch"}, "a.b": {}},
    }

    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"config": config})
        async with running(settings, tmp_path) as upstream:
            wanted = replace(
                request(model="codex"),
                turns=(
                    Turn(role="system", head=True, parts=(Text(text="Be brief."),)),
                    Turn(role="user", parts=(Text(text="hi"),)),
                ),
            )
            outcome = await answer_of(upstream, wanted)
            assert outcome.model == "configured"
        (started,) = params_of(tmp_path, "thread/start")
        assert "model" not in started
        assert started["baseInstructions"] == "Be brief."
        assert [each["name"] for each in started["dynamicTools"]] == ["get"]
        assert started["environments"] == []
        assert (started["approvalPolicy"], started["sandbox"]) == ("never", "read-only")
        assert started["ephemeral"] is True
        off = started["config"]
        assert off["features.shell_tool"] is False
        assert off["mcp_servers"] == {"probe": {"enabled": False}, "a.b": {"enabled": False}}
        assert off["model_providers"] == {
            "mine": {"request_max_retries": 0, "stream_max_retries": 0}
        }
        assert list(Path(started["cwd"]).parent.glob(Path(started["cwd"]).name)) == []

    asyncio.run(main())


def test_call_of_a_tool_that_codex_took_for_its_own_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"own_tools": ["get"]})
        async with running(settings, tmp_path) as upstream:
            reply = await upstream.send(asked(request()))
            with pytest.raises(UpstreamError, match="did not offer the tool 'get'"):
                await read_all(reply)
            await until(lambda: len(heard(tmp_path, "turn/interrupt")) == 1)

    asyncio.run(main())


def test_arguments_that_are_no_json_are_codexs_own_affair(tmp_path: Path) -> None:
    responses = [
        [call("call_1", "get", "{"), call("call_2", "get", "{}")],
        [text("Done.")],
    ]

    async def main() -> None:
        async with running(app_server(tmp_path, responses), tmp_path) as upstream:
            outcome = await answer_of(upstream, request())
            assert [each.call_id for each in calls_of(outcome)] == ["call_2"]

    asyncio.run(main())


def test_reasoning_comes_with_its_seal_and_codexs_own_calls_wait_for_nobody(tmp_path: Path) -> None:
    responses = [[reasoning("Hm."), custom("c", "apply_patch", "x"), text("Done.")]]

    async def main() -> None:
        async with running(app_server(tmp_path, responses), tmp_path) as upstream:
            outcome = await answer_of(upstream, request())
            (thought,) = reasoning_of(outcome)
            assert (thought.summary, [seal.data for seal in thought.seals]) == (
                ("Hm.",),
                ["c2VhbA=="],
            )
            assert (text_of(outcome), calls_of(outcome)) == ("Done.", ())

    asyncio.run(main())


def test_limits_are_emitted_in_the_answer_and_in_headers_of_the_next(tmp_path: Path) -> None:
    limits = {"limitId": "codex", "primary": {"usedPercent": 43, "windowDurationMins": 300}}

    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"limits": limits})
        async with running(settings, tmp_path) as upstream:
            outcome = await answer_of(upstream, request())
            assert outcome.limits is not None
            assert outcome.limits.windows[0].used_percent == 43
            reply = await upstream.send(asked(request()))
            assert reply.headers["x-codex-primary-used-percent"] == "43"
            assert reply.headers["x-codex-primary-window-minutes"] == "300"
            await read_all(reply)

    asyncio.run(main())


def test_report_of_no_limits_is_not_emitted(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"limits": {"primary": None}})
        async with running(settings, tmp_path) as upstream:
            assert (await answer_of(upstream, request())).limits is None

    asyncio.run(main())


def test_turn_that_ends_while_it_is_steered_is_replayed(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"complete_on_steer": True})
        async with running(settings, tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            after = await answer_of(upstream, with_results(before, first, "and now?"))
            assert text_of(after) == "It is 1."
        assert len(heard(tmp_path, "thread/start")) == 2

    asyncio.run(main())


def test_child_that_nobody_needs_is_not_started(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], children=3)
        async with running(settings, tmp_path) as upstream:
            await answer_of(upstream, request())
            await answer_of(upstream, request())
        assert len(pids(tmp_path)) == 1

    asyncio.run(main())


def test_turn_that_fails_at_once_has_not_begun(tmp_path: Path) -> None:
    error = {"message": "You've hit your usage limit.", "codexErrorInfo": "usageLimitExceeded"}

    async def main() -> None:
        settings = app_server(tmp_path, [], {"error": error})
        async with running(settings, tmp_path) as upstream:
            outcome = await answer_of(upstream, request())
            assert outcome.error is not None
            assert (outcome.error.kind, outcome.response_id) == ("quota", "")

    asyncio.run(main())


def test_turn_that_fails_after_the_results_has_not_begun_its_second_answer(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"fail_after_results": True})
        async with running(settings, tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            second = await answer_of(upstream, with_results(before, first))
            assert (second.error is not None, second.response_id) == (True, "")
            third = await answer_of(upstream, with_results(before, first))
            assert text_of(third) == "It is 1."

    asyncio.run(main())


def test_retry_of_codexs_own_is_not_seen_unless_text_was_emitted(tmp_path: Path) -> None:
    async def main() -> None:
        quiet = app_server(tmp_path / "a", [[text("Hi.")]], {"retry": "untold"})
        async with running(quiet, tmp_path / "a") as upstream:
            assert text_of(await answer_of(upstream, request())) == "Hi."
        found = app_server(tmp_path / "b", [[text("Hi.")]], {"retry": "told"})
        async with running(found, tmp_path / "b") as upstream:
            reply = await upstream.send(asked(request()))
            with pytest.raises(UpstreamError, match="starts it again"):
                await read_all(reply)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "kind"), [(-32600, "invalid_request"), (-32001, "overloaded"), (-1, "upstream")]
)
def test_thread_that_is_refused_is_an_error_with_codexs_words(
    tmp_path: Path, code: int, kind: str
) -> None:
    async def main() -> None:
        behaviour = {"refuse": {"thread/start": [code, "no such thing"]}}
        async with running(app_server(tmp_path, [], behaviour), tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="no such thing") as caught:
                await upstream.send(asked(request()))
            assert caught.value.kind == kind

    asyncio.run(main())


def test_tools_of_a_forbidden_choice_are_not_offered(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, [[text("Hi.")]]), tmp_path) as upstream:
            wanted = replace(request(), tool_choice=ToolChoice(mode="none"))
            await answer_of(upstream, wanted)
        (started,) = params_of(tmp_path, "thread/start")
        assert started["dynamicTools"] == []

    asyncio.run(main())
