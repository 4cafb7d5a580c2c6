"""A server of the official SDK, over its pipes and over streamable HTTP, with a handshake and without: what its tools give back, and how they are run.

One server of each kind is held for all the tests here, in a loop of its own: the SDK takes a second to start.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec import structs

from dragoman._json import loads
from dragoman.config.settings import McpServerSettings
from dragoman.engine.mcp.servers import McpServers
from dragoman.errors import ToolError
from dragoman.model.parts import Media, Text
from loops import LOOPS, play
from mcp_help import (
    PATIENCE,
    Served,
    call_tool,
    is_alive,
    played,
    recorded,
    rough,
    said,
    served_workshop,
    tool_named,
    until,
    workshop,
)

T = TypeVar("T")


class Held:
    """Servers in a loop that runs in a thread, and the folder that their records are in."""

    def __init__(self, settings: McpServerSettings, records: Path) -> None:
        self.settings = settings
        self.servers = McpServers([settings])
        self.records = records
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._over = asyncio.Event()
        self._thread.start()
        ready = threading.Event()
        self._owner = asyncio.run_coroutine_threadsafe(self._hold(ready), self._loop)
        assert ready.wait(PATIENCE)

    async def _hold(self, ready: threading.Event) -> None:
        async with self.servers:
            ready.set()
            await self._over.wait()

    def play(self, main: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(main, self._loop).result(PATIENCE)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._owner.result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Served, Path]]:
    records = tmp_path_factory.mktemp("records")
    with served_workshop(records) as server:
        yield server, records


@pytest.fixture(scope="module", params=["pipes", "http", "http of 2025"])
def held(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Held]:
    with ExitStack() as stack:
        records = tmp_path_factory.mktemp("records")
        if request.param == "pipes":
            settings = workshop(records)
        elif request.param == "http":
            server, records = request.getfixturevalue("served")
            settings = server.settings
        else:
            settings = stack.enter_context(served_workshop(records, is_old=True)).settings
        holding = Held(settings, records)
        yield holding
        holding.end()


def test_every_tool_is_offered_with_its_schema_under_the_servers_name(held: Held) -> None:
    assert not held.servers.problems
    offer = tool_named(held.servers, "add").offer
    assert offer.declaration.namespace == "workshop"
    assert offer.declaration.description == "Adds two numbers."
    assert offer.declaration.schema is not None
    schema = loads(bytes(offer.declaration.schema))
    assert schema["required"] == ["a", "b"]
    assert schema["properties"]["a"]["type"] == "integer"
    assert offer.timeout == held.settings.call_timeout


def test_tools_that_only_read_may_run_beside_others(held: Held) -> None:
    parallel = {
        tool.offer.declaration.name for tool in held.servers.tools() if tool.offer.is_parallel
    }
    assert parallel == {"echo", "add"}


def test_text_comes_back_as_it_was_sent(held: Held) -> None:
    text = "naïve \u2028 text\n😀 " + "x" * 100_000
    assert said(held.play(call_tool(held.servers, "echo", text=text))) == text


def test_structured_result_comes_as_text_and_as_json(held: Held) -> None:
    output = held.play(call_tool(held.servers, "add", a=2, b=40))
    assert said(output) == "42"
    assert output.structured is not None
    assert loads(bytes(output.structured)) == {"result": 42}


def test_picture_comes_as_media(held: Held) -> None:
    (picture,) = held.play(call_tool(held.servers, "picture")).content
    assert isinstance(picture, Media)
    assert (picture.kind, picture.media_type) == ("image", "image/png")
    assert picture.data is not None
    assert picture.data.startswith("iVBOR")


def test_links_resources_and_sound_come_in_their_order(held: Held) -> None:
    assert held.play(call_tool(held.servers, "papers")).content == (
        Text(text="two papers"),
        Text(text="plan: file:///plan.txt (text/plain, 12 bytes)"),
        Text(text="file:///note.txt:\na note"),
        Media(kind="file", media_type="application/pdf", data="JVBERi0=", filename="paper.pdf"),
        Media(kind="audio", media_type="audio/wav", data="UklGRg=="),
    )


def test_failure_of_a_tool_is_an_output_that_says_so(held: Held) -> None:
    output = held.play(call_tool(held.servers, "fail"))
    assert output.is_error
    assert "fail" in said(output)


def test_wrong_arguments_are_answered_by_the_server(held: Held) -> None:
    output = held.play(call_tool(held.servers, "echo", text=5))
    assert output.is_error
    assert "string" in said(output)


def test_arguments_that_cannot_be_sent_harm_no_other_call(held: Held) -> None:
    with pytest.raises(ToolError, match="half a surrogate pair"):
        held.play(call_tool(held.servers, "echo", text="\ud83d"))
    assert said(held.play(call_tool(held.servers, "echo", text="there"))) == "there"


def test_progress_is_reported_while_the_tool_runs(held: Held) -> None:
    reports: list[str] = []
    held.play(call_tool(held.servers, "steps", report=reports.append, count=3))
    assert reports == ["step 1 (1/3)", "step 2 (2/3)", "step 3 (3/3)"]


def test_requests_of_the_server_are_refused_and_it_goes_on(
    held: Held, request: pytest.FixtureRequest
) -> None:
    words = said(held.play(call_tool(held.servers, "ask"))).split("; ")
    if "[http]" in request.node.name:
        # without a session there is no way back: the server's own SDK refuses
        assert all("no back-channel" in each for each in words)
    else:
        assert words == [
            "refused: List roots not supported",
            "decline",
            "refused: Sampling not supported",
        ]


def test_cancellation_reaches_the_running_tool(held: Held) -> None:
    async def main() -> None:
        call = asyncio.create_task(call_tool(held.servers, "slow", name="one"))
        await until(lambda: recorded(held.records, "started-one") is not None)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: recorded(held.records, "cancelled-one") is not None)
        assert said(await call_tool(held.servers, "echo", text="still here")) == "still here"

    held.play(main())


def test_calls_run_beside_one_another(held: Held) -> None:
    async def main() -> None:
        slow = [
            asyncio.create_task(call_tool(held.servers, "slow", name=name)) for name in ("a", "b")
        ]
        for name in ("a", "b"):
            await until(lambda name=name: recorded(held.records, f"started-{name}") is not None)  # type: ignore[misc]
        assert said(await call_tool(held.servers, "echo", text="quick")) == "quick"
        for call in slow:
            call.cancel()
        await asyncio.wait(slow)

    held.play(main())


def test_tool_that_a_server_makes_is_offered_and_can_be_called(held: Held) -> None:
    async def main() -> None:
        assert said(await call_tool(held.servers, "grow", name="saw")) == "made"
        await until(lambda: "saw" in {tool.offer.declaration.name for tool in held.servers.tools()})
        assert said(await call_tool(held.servers, "saw")) == "saw"

    held.play(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_servers_of_both_kinds_leave_nothing_behind(
    loop: str, served: tuple[Served, Path], tmp_path: Path
) -> None:
    async def main() -> None:
        async with McpServers([rough("hangs", tmp_path), served[0].settings]) as servers:
            assert not servers.problems
            assert servers.names == ("rough", "workshop")
            only = servers.selected(["workshop"]).tools()
            assert {tool.offer.declaration.namespace for tool in only} == {"workshop"}
            calls = [
                asyncio.create_task(call_tool(servers, "work")),
                asyncio.create_task(call_tool(servers, "slow", name=f"kept-{loop}")),
            ]
            await until(lambda: recorded(tmp_path, "called") is not None)
            await until(lambda: recorded(served[1], f"started-kept-{loop}") is not None)
        # the calls that were running when all was left
        for call in calls:
            with pytest.raises(ToolError, match="gave no result"):
                await call
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(loop, main())
    pid = recorded(tmp_path, "called")
    assert pid is not None
    assert not is_alive(pid)


def test_what_ends_the_block_comes_out_of_it_unchanged(served: tuple[Served, Path]) -> None:
    async def main() -> None:
        with pytest.raises(KeyError, match="mine"):
            async with McpServers([served[0].settings]):
                raise KeyError("mine")

    played(main())


def test_environment_is_only_what_the_settings_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORKSHOP_TOKEN", "from outside")
    monkeypatch.setenv("WORKSHOP_SECRET", "not for it")
    settings = structs.replace(
        workshop(tmp_path), env={"WORKSHOP_COLOUR": "green"}, env_from=("WORKSHOP_TOKEN",)
    )

    async def main() -> None:
        async with McpServers([settings]) as servers:
            for name, value in (
                ("WORKSHOP_TOKEN", "from outside"),
                ("WORKSHOP_COLOUR", "green"),
                ("WORKSHOP_SECRET", "(not set)"),
            ):
                assert said(await call_tool(servers, "setting", name=name)) == value
            await call_tool(servers, "log", text="a word beside the protocol")

    with caplog.at_level(logging.DEBUG, logger="dragoman"):
        played(main())
    words = [each.getMessage() for each in caplog.records]
    assert "MCP server workshop, standard error: a word beside the protocol" in words
    assert "MCP server workshop, info: a word beside the protocol" in words
