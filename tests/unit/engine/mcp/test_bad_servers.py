"""Servers that hang, die, flood, lie or leave things behind: each fails by itself, clearly, and nothing of it is left."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest
from mcp.shared import jsonrpc_dispatcher
from msgspec import structs

from dragoman.config.settings import McpServerSettings
from dragoman.engine.mcp.servers import McpServers
from dragoman.engine.mcp.tools import MAX_BLOCKS, MAX_TEXT
from dragoman.engine.tools import Invocation
from dragoman.errors import ConfigError, ToolError
from dragoman.model.parts import Call
from mcp_help import (
    PATIENCE,
    QUICK,
    call_tool,
    is_alive,
    played,
    recorded,
    rough,
    said,
    tool_named,
    until,
)


def names(servers: McpServers) -> list[str]:
    return [tool.offer.declaration.name for tool in servers.tools()]


def test_server_that_does_not_exist_is_reported_and_the_others_work(tmp_path: Path) -> None:
    async def main() -> None:
        missing = McpServerSettings(name="missing", command=("no-such-program-anywhere",))
        astray = structs.replace(
            rough("crashes", tmp_path, name="astray"), cwd=str(tmp_path / "no")
        )
        async with McpServers([missing, rough("crashes", tmp_path), astray]) as servers:
            assert servers.problems == {
                "missing": "cannot be started: there is no 'no-such-program-anywhere'",
                "astray": f"cannot be started: there is no '{tmp_path / 'no'}'",
            }
            assert names(servers) == ["crash", "work"]

    played(main())


def test_program_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "text").write_text("no program", encoding="utf-8")
        text = McpServerSettings(name="text", command=(str(tmp_path / "text"),))
        bare = McpServerSettings(name="bare", command=("true",), env_from=("NO_SUCH_VARIABLE",))
        async with McpServers([text, bare]) as servers:
            assert servers.problems == {
                "text": "cannot be started: Permission denied",
                "bare": "the environment variable NO_SUCH_VARIABLE is not set",
            }

    played(main())


def test_server_that_is_started_again_in_vain_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        gone = McpServerSettings(name="gone", command=("/no/such/program",), restart=QUICK)
        async with McpServers([gone]):
            await until(lambda: len(caplog.records) >= QUICK.attempts)

    with caplog.at_level(logging.DEBUG, logger="dragoman.engine.mcp"):
        played(main())
    words = "MCP server gone cannot be started: there is no '/no/such/program'"
    assert {record.getMessage() for record in caplog.records} == {words}
    levels = [record.levelno for record in caplog.records]
    assert levels.count(logging.WARNING) == 1
    assert levels[0] == logging.WARNING


def test_server_that_fails_again_and_again_can_be_stopped_at_any_moment() -> None:
    async def main() -> None:
        restart = structs.replace(QUICK, first_delay=0.001, max_delay=0.001, attempts=1000)
        failing = McpServerSettings(name="failing", command=("false",), restart=restart)
        for moment in range(80):
            async with asyncio.timeout(PATIENCE), McpServers([failing]):
                await asyncio.sleep(moment / 2000)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    played(main())


def test_no_servers_are_no_tools() -> None:
    async def main() -> None:
        async with McpServers([]) as servers:
            assert not servers.tools()
            assert not servers.problems
            with pytest.raises(ConfigError, match=r"\(none\), got 'files'"):
                servers.selected(["files"])

    played(main())


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("", "worked"), ("{}", "worked"), ("[1]", "got one of type list"), ("{", "expected JSON")],
)
def test_arguments_are_an_object_or_nothing(text: str, outcome: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("junk", tmp_path)]) as servers:
            call = Call(call_id="call_1", name="work", input=text)
            try:
                found = said(await tool_named(servers, "work").run(Invocation(call, print)))
            except ToolError as error:
                found = error.message
            assert outcome in found

    played(main())


def test_server_that_dies_while_starting_is_reported_with_its_last_words(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("dies", tmp_path)]) as servers:
            assert servers.problems == {"rough": "ended with exit status 4 (there is no licence)"}
            assert not servers.tools()

    played(main())


def test_server_that_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        settings = structs.replace(rough("silent", tmp_path), start_timeout=0.3)
        async with McpServers([settings]) as servers:
            assert servers.problems == {"rough": "did not start within 0.3 s"}

    played(main())


def test_entering_does_not_wait_longer_than_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("silent", tmp_path)], patience=0.05) as servers:
            assert servers.problems == {"rough": "is being started"}

    played(main())


def test_cancelling_the_start_ends_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        async def enter() -> None:
            async with McpServers([rough("silent", tmp_path)]):
                raise AssertionError("it never starts")

        entering = asyncio.create_task(enter())
        await until(lambda: recorded(tmp_path, "started") is not None)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    played(main())


def test_server_that_starts_only_the_third_time_is_there_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("dies_twice", tmp_path)]) as servers:
            await until(lambda: names(servers) == ["work"])
            assert said(await call_tool(servers, "work")) == "worked"
            assert not servers.problems

    played(main())


def test_crash_fails_its_call_and_the_next_one_meets_a_new_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("crashes", tmp_path)]) as servers:
            first = said(await call_tool(servers, "work"))
            with pytest.raises(ToolError, match=r"'rough' ended with exit status 3.*'crash'"):
                await call_tool(servers, "crash")
            second = said(await call_tool(servers, "work"))
            assert first != second
            assert not is_alive(int(first))

    played(main())


def test_server_that_is_killed_fails_every_call_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("hangs", tmp_path)]) as servers:
            calls = [asyncio.create_task(call_tool(servers, "work")) for _ in range(3)]
            await until(lambda: recorded(tmp_path, "called") is not None)
            pid = recorded(tmp_path, "called")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {str(each) for each in outcomes} == {
                "the MCP server 'rough' was ended by signal 9; its tool 'work' gave no result"
            }

    played(main())


def test_server_that_keeps_crashing_is_down_and_called_for_once_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("crashes", tmp_path)]) as servers:
            tool = tool_named(servers, "crash")
            invocation = Invocation(Call(call_id="call_1", name="crash"), lambda text: None)
            for _ in range(3):
                with pytest.raises(ToolError, match="exit status 3"):
                    await tool.run(invocation)
            await until(lambda: not servers.tools())
            # a call of a tool that the model still remembers
            with pytest.raises(ToolError, match="exit status 3"):
                await tool.run(invocation)

    played(main())


def test_cancelled_call_returns_at_once_and_the_server_is_notified(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("hangs", tmp_path)]) as servers:
            call = asyncio.create_task(call_tool(servers, "work"))
            await until(lambda: recorded(tmp_path, "called") is not None)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: recorded(tmp_path, "cancelled") is not None)

    played(main())


def test_call_that_takes_too_long_fails_and_the_server_is_notified(tmp_path: Path) -> None:
    async def main() -> None:
        settings = structs.replace(rough("hangs", tmp_path), call_timeout=0.01)
        async with McpServers([settings]) as servers:
            with pytest.raises(ToolError, match=r"'work'.*'rough'.*within 0\.01 s"):
                await call_tool(servers, "work")
            await until(lambda: recorded(tmp_path, "cancelled") is not None)

    played(main())


def test_server_that_reads_no_more_holds_up_neither_a_caller_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the SDK waits so long for its last word to be taken
    monkeypatch.setattr(jsonrpc_dispatcher, "_ABANDON_WRITE_TIMEOUT", 600.0)

    async def main() -> None:
        async with McpServers([rough("deaf", tmp_path)]) as servers:
            # more than a pipe holds: the writing of it waits for ever
            call = asyncio.create_task(call_tool(servers, "work", text="x" * 1_000_000))
            done, _ = await asyncio.wait({call}, timeout=0.2)
            assert not done
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    played(main())


def test_server_that_closes_its_output_has_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("mute", tmp_path)]) as servers:
            with pytest.raises(ToolError, match="'rough' closed its output"):
                await call_tool(servers, "work")

    played(main())


def test_stubborn_server_and_what_it_has_started_are_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("stubborn", tmp_path)]) as servers:
            assert said(await call_tool(servers, "work")) == "worked"
            another = recorded(tmp_path, "another")
            assert another is not None
            assert is_alive(another)
        assert not is_alive(another)

    played(main())


def test_process_that_a_quiet_server_leaves_behind_is_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("breeds", tmp_path)]) as servers:
            assert said(await call_tool(servers, "work")) == "worked"
            another = recorded(tmp_path, "another")
            assert another is not None
        assert not is_alive(another)

    played(main())


def test_death_is_noticed_though_another_process_holds_the_pipes(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("leaves_pipes", tmp_path)]) as servers:
            with pytest.raises(ToolError, match="exit status 3"):
                await call_tool(servers, "work")
        another = recorded(tmp_path, "another")
        assert another is not None
        assert not is_alive(another)

    played(main())


def test_server_without_the_handshake_is_asked_what_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("modern", tmp_path)]) as servers:
            assert not servers.problems
            assert said(await call_tool(servers, "work")) == "worked"
            await until(lambda: names(servers) == ["work", "more"])

    played(main())


def test_tools_of_servers_that_were_left_are_refused_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("crashes", tmp_path)]) as servers:
            tool = tool_named(servers, "work")
        assert not servers.tools()
        with pytest.raises(ToolError, match="'rough' is not available: it was stopped"):
            await tool.run(Invocation(Call(call_id="call_1", name="work"), lambda text: None))

    played(main())


def test_only_wanted_tools_are_offered(tmp_path: Path) -> None:
    async def main() -> None:
        settings = structs.replace(
            rough("lies", tmp_path), allow=("picture_*", "long_text"), deny=("*_type",)
        )
        async with McpServers([settings]) as servers:
            assert names(servers) == ["picture_is_no_base64", "long_text"]

    played(main())


def test_endless_line_ends_the_server_and_not_us(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("floods", tmp_path)]) as servers:
            with pytest.raises(ToolError, match="sent a message of more than 16 MiB"):
                await call_tool(servers, "flood")
            assert said(await call_tool(servers, "work")) == "worked"

    played(main())


def test_flood_on_the_standard_error_is_read_and_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with McpServers([rough("floods", tmp_path)]) as servers:
            assert said(await call_tool(servers, "mutter")) == "muttered"

    with caplog.at_level(logging.DEBUG, logger="dragoman"):
        played(main())
    lines = [each.getMessage() for each in caplog.records if "standard error" in each.getMessage()]
    assert lines
    assert max(map(len, lines)) < 600


def test_lines_that_are_no_messages_are_logged_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with McpServers([rough("junk", tmp_path)]) as servers:
            assert said(await call_tool(servers, "work")) == "worked"

    with caplog.at_level(logging.DEBUG, logger="dragoman"):
        played(main())
    assert "Welcome to the junk server!" in caplog.text
    assert all(each.levelno == logging.DEBUG for each in caplog.records)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("not_a_result", "the protocol does not allow"),
        ("no_content", "the protocol does not allow"),
        ("unknown_part", "the protocol does not allow"),
        ("text_is_a_number", "the protocol does not allow"),
        ("structure_does_not_fit", "cannot be used: it does not fit the schema that it promised"),
        ("structure_is_missing", "it promised a structured result and sent none"),
        ("picture_is_no_base64", "cannot be used: it sent image data that is not base64"),
        ("picture_has_no_type", "cannot be used: it sent image data of the media type"),
    ],
)
def test_lie_is_an_error_that_names_the_server(name: str, complaint: str, tmp_path: Path) -> None:
    async def main() -> None:
        settings = structs.replace(rough("lies", tmp_path), call_timeout=PATIENCE)
        async with McpServers([settings]) as servers:
            with pytest.raises(ToolError) as raised:
                await call_tool(servers, name)
            assert complaint in raised.value.message
            assert "'rough'" in raised.value.message
            assert len(raised.value.message) < 2000

    played(main())


def test_pattern_that_takes_for_ever_is_not_tried(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("lies", tmp_path)]) as servers:
            output = await call_tool(servers, "pattern_takes_for_ever")
            assert output.structured is not None

    played(main())


def test_too_much_is_cut_and_said_to_be(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("lies", tmp_path)]) as servers:
            long_text = said(await call_tool(servers, "long_text"))
            many_parts = await call_tool(servers, "many_parts")
            picture = said(await call_tool(servers, "large_picture"))
            structure = await call_tool(servers, "only_structure")
        assert long_text.startswith("x" * MAX_TEXT + "\n[800000 more characters are left out]")
        assert len(many_parts.content) == MAX_BLOCKS + 1
        assert picture == "[image of 9000000 bytes is left out: it is too large]"
        assert said(structure) == '{"é":[1,2.5,null]}'
        assert structure.structured is not None
        assert bytes(structure.structured) == '{"é":[1,2.5,null]}'.encode()

    played(main())


def test_server_whose_list_of_tools_is_none_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("lies_about_tools", tmp_path)]) as servers:
            assert "inputSchema" in servers.problems["rough"]

    played(main())


def test_list_that_does_not_end_is_cut_and_each_name_is_there_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("pages", tmp_path)]) as servers:
            assert names(servers) == ["tool0", "again", "tool1", "tool2", "tool3"]

    played(main())


def test_list_that_is_too_long_is_cut(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("lists_too_many", tmp_path)]) as servers:
            assert names(servers) == [f"tool{number}" for number in range(1_000)]

    played(main())


def test_many_announcements_are_one_change(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("announces", tmp_path)]) as servers:
            assert said(await call_tool(servers, "work")) == "worked"
            await until(lambda: names(servers) == ["work", "tool1"])
            assert servers.tools() == servers.tools()

    played(main())
