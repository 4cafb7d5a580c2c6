"""Children of a Codex upstream that misbehave: they print garbage, hang, exit, flood, will not end, or are not there."""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from codex_app_server import (
    Json,
    alive,
    answers,
    app_server,
    call,
    heard,
    pids,
    text,
)
from codex_asking import (
    answer_of,
    answer_of_restarted,
    asked,
    calls_of,
    kill,
    read_all,
    request,
    running,
    text_of,
    until,
    with_results,
)
from dragoman.errors import UpstreamError
from dragoman.model.request import Request
from dragoman.upstream.codex.child import Child, Launch
from loops import LOOPS, play

ONE_CALL = [[text("Let me look."), call("call_1", "get", '{"x":  1.0}')], [text("It is 1.")]]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_missing_program_is_said_once_with_the_way_to_install_it(tmp_path: Path) -> None:
    async def main() -> None:
        settings = replace(app_server(tmp_path), command=("no-such-codex", "app-server"))
        async with running(settings, tmp_path) as upstream:
            for _ in range(3):
                with pytest.raises(UpstreamError, match="npm install -g @openai/codex") as caught:
                    await upstream.send(asked(request()))
                assert caught.value.status == 503
            assert "no-such-codex" in (upstream.problem or "")
            assert not (await upstream.check()).ok

    asyncio.run(main())


def test_garbage_is_passed_over(tmp_path: Path) -> None:
    garbage = [
        "hello",
        "{",
        "[1]",
        "{}",
        '{"id": null}',
        '{"method": 5}',
        '{"id": 99, "result": 1}',
        '{"id": "x", "result": 1}',
        '{"method": "configWarning", "params": {}}',
        '{"id": %s, "result": 1}' % ("1" * 5000),
        '{"method": "account/rateLimits/updated", "params": {"rateLimits": {"primary": {"usedPercent": %s}}}}'
        % ("1" * 400),
    ]

    async def main() -> None:
        behaviour = {"garbage": garbage * 3}
        settings = app_server(tmp_path, [[text("Hi.")]], behaviour)
        async with running(settings, tmp_path) as upstream:
            assert text_of(await answer_of(upstream, request())) == "Hi."
            assert (await upstream.check()).ok

    asyncio.run(main())


@pytest.mark.parametrize(
    "line", ['{"method": "item/tool/call", "params": {"threa', '{"method": "item/st\x00arted"}']
)
def test_message_that_cannot_be_read_fails_the_turn(tmp_path: Path, line: str) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"broken_line": line})
        async with running(settings, tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="a message that cannot be read") as caught:
                await answer_of(upstream, request())
            assert caught.value.kind == "protocol"
            assert (await upstream.check()).ok

    asyncio.run(main())


def test_message_with_bytes_that_are_no_utf8_fails_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"broken_item": True})
        async with running(settings, tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="a message that cannot be read") as caught:
                await answer_of(upstream, request())
            assert caught.value.kind == "protocol"

    asyncio.run(main())


def test_child_whose_message_the_gateway_fails_to_handle_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_name: str, _headers: Mapping[str, str]) -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        settings = app_server(
            tmp_path, [[text("Hi.")]], {"limits": {"primary": {"usedPercent": 1}}}
        )
        async with running(settings, tmp_path) as upstream:
            upstream.on_limits = fail
            with pytest.raises(UpstreamError):
                await answer_of(upstream, request())
            upstream.on_limits = None
            assert text_of(await answer_of_restarted(upstream, request())) == "Hi."
        assert "a bug" in caplog.text

    asyncio.run(main())


@pytest.mark.parametrize("method", ["initialize", "config/read"])
def test_child_that_does_not_answer_the_handshake_is_ended(tmp_path: Path, method: str) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [], {"mute": [method]}, connect_timeout=0.3)
        async with running(settings, tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="did not answer the handshake"):
                await upstream.send(asked(request()))

    asyncio.run(main())


def test_child_that_hangs_in_a_request_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"mute": ["turn/start"]})
        async with running(settings, tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="did not answer turn/start") as caught:
                await upstream.send(asked(request()))
            assert caught.value.kind == "timeout"
            await until(lambda: not alive(tmp_path) or len(pids(tmp_path)) == 2)
            app_server(tmp_path, [[text("Hi.")]])
            await until(lambda: len(pids(tmp_path)) == 2)

    monkeypatch.setattr("dragoman.upstream.codex.child.RPC_SECONDS", 2.0)
    asyncio.run(main())


def test_silent_turn_times_out_and_is_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [], {"silent": True}, first_byte_timeout=0.2)
        async with running(settings, tmp_path) as upstream:
            reply = await upstream.send(asked(request()))
            with pytest.raises(UpstreamError, match="began no answer within") as caught:
                await read_all(reply)
            assert caught.value.kind == "timeout"
            await until(lambda: len(heard(tmp_path, "turn/interrupt")) == 1)

    asyncio.run(main())


def test_child_that_exits_in_the_middle_fails_the_answer_and_is_started_again(
    tmp_path: Path, loop: str
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"exit_after_items": True})
        async with running(settings, tmp_path) as upstream:
            reply = await upstream.send(asked(request()))
            with pytest.raises(UpstreamError, match="ended with exit code 9") as caught:
                await read_all(reply)
            assert caught.value.kind == "truncated"
            app_server(tmp_path, ONE_CALL)
            first = await answer_of_restarted(upstream, request())
            assert [each.call_id for each in calls_of(first)] == ["call_1"]

    play(loop, main())


def test_child_that_closes_its_output_and_stays_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, ONE_CALL, {"close_after_items": True})
        async with running(settings, tmp_path) as upstream:
            reply = await upstream.send(asked(request()))
            async with asyncio.timeout(10):
                with pytest.raises(UpstreamError, match="was ended by signal 9"):
                    await read_all(reply)

    monkeypatch.setattr("dragoman.upstream.codex.child.GRACE_SECONDS", 0.2)
    asyncio.run(main())


def test_child_that_dies_with_a_held_turn_leaves_the_results_to_a_fresh_thread(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, ONE_CALL), tmp_path) as upstream:
            before = request()
            first = await answer_of(upstream, before)
            (pid,) = pids(tmp_path)
            kill(pid)
            await until(lambda: len(pids(tmp_path)) == 2)
            after = await answer_of_restarted(upstream, with_results(before, first))
            assert text_of(after) == "It is 1."
        assert answers(tmp_path) == []

    asyncio.run(main())


def test_child_is_started_again_although_its_folder_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folders() -> list[Path]:
        return [*tmp_path.glob("dragoman-codex-*")]

    async def main() -> None:
        async with running(
            app_server(tmp_path / "child", ONE_CALL), tmp_path / "child"
        ) as upstream:
            await answer_of(upstream, request())
            (folder,) = folders()
            folder.rmdir()
            (pid,) = pids(tmp_path / "child")
            kill(pid)
            await until(lambda: not alive(tmp_path / "child"))
            await answer_of_restarted(upstream, request())
        assert not folders()

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asyncio.run(main())


def test_child_that_keeps_dying_is_started_ever_more_rarely(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [], {"exit_on": {"initialize": 3}})
        async with running(settings, tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="ended with exit code 3") as raised:
                await upstream.send(asked(request()))
            assert "ended with exit code 3" in (upstream.problem or "")
            # Its last words are the operator's to read.
            assert "it is all too much" in raised.value.detail
            assert "it is all too much" not in raised.value.message + (upstream.problem or "")
            # The second was started at once, the third is half a second away.
            assert len(pids(tmp_path)) == 2

    asyncio.run(main())


def test_flood_on_standard_error_neither_blocks_nor_fills_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"flood": 3_000_000})
        async with running(settings, tmp_path) as upstream:
            assert text_of(await answer_of(upstream, request())) == "Hi."

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert 0 < len(caplog.records) <= 250


@pytest.mark.parametrize("behaviour", [{"stubborn": True}, {"grandchild": True}])
def test_nothing_is_left_of_a_child_that_will_not_end(
    tmp_path: Path, behaviour: Json, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], behaviour)
        async with running(settings, tmp_path) as upstream:
            assert text_of(await answer_of(upstream, request())) == "Hi."

    monkeypatch.setattr("dragoman.upstream.codex.process.GRACE_SECONDS", 0.3)
    monkeypatch.setattr("dragoman.upstream.codex.child.GRACE_SECONDS", 0.3)
    play(loop, main())
    assert alive(tmp_path) == []


def test_program_that_cannot_be_run_is_said_to_be_so(tmp_path: Path) -> None:
    async def main() -> None:
        script = tmp_path / "codex"
        script.write_text("not a program", encoding="utf-8")
        settings = replace(app_server(tmp_path), command=(str(script),))
        async with running(settings, tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="cannot be started: Permission denied"):
                await upstream.send(asked(request()))

    asyncio.run(main())


def test_line_without_an_end_ends_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [], {"garbage": ["x" * 500_000]})
        async with running(settings, tmp_path) as upstream:
            with pytest.raises(UpstreamError, match="signal 9"):
                await upstream.send(asked(request()))

    monkeypatch.setattr("dragoman.upstream.codex.child.MAX_LINE_BYTES", 10_000)
    asyncio.run(main())


def test_child_that_is_gone_takes_no_request(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path)
        launch = Launch(
            name="codex",
            command=settings.command,
            environment=dict(os.environ),
            folder=lambda: str(tmp_path),
            patience=60.0,
        )
        child = await Child.start(launch)
        await child.close()
        with pytest.raises(UpstreamError, match="ended with exit code 0"):
            await child.request("thread/start", {})
        child.interrupt("t", "u")
        child.write(b"x")
        child.release("t")

    asyncio.run(main())


def test_thread_without_an_id_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [], {"nameless": True})
        async with running(settings, tmp_path) as upstream:
            assert upstream.dialect_for("chat") == "codex"
            with pytest.raises(UpstreamError, match="expected a thread's id"):
                await upstream.send(asked(request()))

    asyncio.run(main())


def test_conversation_without_words_injects_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path, [[text("Hi.")]]), tmp_path) as upstream:
            assert text_of(await answer_of(upstream, Request(model="m"))) == "Hi."
        assert heard(tmp_path, "thread/inject_items") == []

    asyncio.run(main())


def test_call_for_a_thread_that_is_forgotten_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [[text("Hi.")]], {"stray_call": True})
        async with running(settings, tmp_path) as upstream:
            assert text_of(await answer_of(upstream, request())) == "Hi."
            await until(lambda: len(answers(tmp_path)) == 1)
        assert answers(tmp_path)[0]["error"]["message"] == "no request waits for this call"

    asyncio.run(main())


def test_request_that_waits_for_a_child_ends_when_the_upstream_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        settings = app_server(tmp_path, [], {"mute": ["initialize"]}, connect_timeout=60)
        async with running(settings, tmp_path) as upstream:
            waiting = asyncio.create_task(upstream.send(asked(request())))
            await until(lambda: len(pids(tmp_path)) == 1)
            await upstream.close()
            async with asyncio.timeout(5):
                with pytest.raises(UpstreamError, match="there is no app-server"):
                    await waiting

    asyncio.run(main())


def test_upstream_that_was_never_asked_starts_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(app_server(tmp_path), tmp_path):
            pass
        assert pids(tmp_path) == []

    asyncio.run(main())
