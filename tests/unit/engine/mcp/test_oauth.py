"""Logging in at servers: by a person with a browser, by credentials, not at all; and what becomes of the tokens."""

import asyncio
import logging
import socket
import stat
from pathlib import Path
from typing import cast

import pytest
from msgspec import structs

from dragoman._json import loads
from dragoman.config.settings import OAuthSettings
from dragoman.engine.mcp.servers import McpServers
from dragoman.errors import ToolError
from mcp_help import PATIENCE, call_tool, played, said, until
from oauth_server import Browser, Guarded, guarded

CREDENTIALS = OAuthSettings(
    grant="client_credentials", client_id="robot", client_secret_from="ROBOT_SECRET"
)


def kept(folder: Path) -> dict[str, object]:
    (file,) = folder.iterdir()
    return cast("dict[str, object]", loads(file.read_bytes()))


def spoil(folder: Path) -> None:
    (file,) = folder.iterdir()
    file.write_bytes(b'{"version":1,"tokens":5')


async def log_in(far: Guarded, folder: Path) -> None:
    """Somebody logs in, and the token is kept."""
    async with McpServers([far.settings()], host=Browser(), tokens=folder) as servers:
        assert servers.problems == {}


def test_person_logs_in_once_and_the_token_is_kept_for_its_owner_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = tmp_path / "tokens"

    async def main() -> None:
        person = Browser()
        async with guarded() as far:
            async with McpServers([far.settings()], host=person, tokens=folder) as servers:
                assert said(await call_tool(servers, "work")) == "secret-token-1"
            # another program of the same user, with nobody to ask
            async with McpServers([far.settings()], tokens=folder) as servers:
                assert said(await call_tool(servers, "work")) == "secret-token-1"
        assert len(person.visited) == 1
        assert person.pages == [200]
        assert far.paths().count("/tenant/token") == 1

    played(main())
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for secret in ("secret-token", "secret-refresh", "sesame"):
        assert secret not in caplog.text


def test_token_that_ended_is_renewed_after_a_restart_without_the_person(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded() as far:
            far.lifetime = 0
            await log_in(far, tmp_path)
            far.lifetime = 3600
            async with McpServers([far.settings()], tokens=tmp_path) as servers:
                assert servers.problems == {}
            renewal = far.asked("/tenant/token")[-1]
            assert renewal["grant_type"] == "refresh_token"
            assert str(renewal["refresh_token"]).startswith("secret-refresh-")

    played(main())


def test_token_that_the_server_takes_no_more_is_renewed_and_the_call_is_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded() as far:
            await log_in(far, tmp_path)
            async with McpServers([far.settings()], tokens=tmp_path) as servers:
                far.good.clear()
                assert said(await call_tool(servers, "work")) == "secret-token-2"
        assert kept(tmp_path)["tokens"] != {}

    played(main())


def test_token_that_another_process_renewed_is_taken_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded() as far:
            await log_in(far, tmp_path)
            one = McpServers([far.settings()], tokens=tmp_path)
            other = McpServers([far.settings()], tokens=tmp_path)
            async with one, other:
                far.good.clear()
                assert said(await call_tool(one, "work")) == "secret-token-2"
                assert said(await call_tool(other, "work")) == "secret-token-2"

    played(main())


def test_server_that_wants_a_login_where_nobody_is_is_reported_and_sent_nothing(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with guarded() as far:
            async with McpServers([far.settings()], tokens=tmp_path) as servers:
                assert "wants a login, and nobody can log in here" in servers.problems["far"]
                assert "(HTTP status 401)" in servers.problems["far"]
            assert far.paths() == []

    played(main())


def test_login_that_was_refused_is_reported_and_not_asked_for_again(tmp_path: Path) -> None:
    async def main() -> None:
        person = Browser()
        async with guarded() as far:
            far.denies = True
            async with McpServers([far.settings()], host=person, tokens=tmp_path) as servers:
                assert "the login was refused: access_denied" in servers.problems["far"]
                starts = len(far.log)
                await until(lambda: len(far.log) > starts)  # it is tried again, without a browser
            assert len(person.visited) == 1

    played(main())


@pytest.mark.parametrize("before", ["/callback?code=evil&state=other", "/favicon.ico"])
def test_visitor_who_does_not_come_from_the_login_is_sent_away(before: str) -> None:
    async def main() -> None:
        person = Browser(before=before)
        async with guarded() as far, McpServers([far.settings()], host=person) as servers:
            assert said(await call_tool(servers, "work")) == "secret-token-1"
        assert person.pages[0] in (400, 404)
        assert far.asked("/tenant/token")[0]["code"] == "the-code"

    played(main())


def test_time_that_the_login_takes_is_not_that_of_the_start() -> None:
    async def main() -> None:
        async with guarded() as far:
            hasty = structs.replace(far.settings(), start_timeout=4.0)
            async with McpServers([hasty], host=Browser(wait=4.5)) as servers:
                assert servers.problems == {}

    played(main())


def test_call_that_has_a_token_does_not_wait_for_the_answer_of_another() -> None:
    async def main() -> None:
        async with guarded() as far, McpServers([far.settings()], host=Browser()) as servers:
            far.call_gate.clear()
            slow = asyncio.create_task(call_tool(servers, "slow"))
            await until(lambda: any("slow" in str(each) for each in far.asked("/mcp")))
            assert said(await call_tool(servers, "work")) == "secret-token-1"
            far.call_gate.set()
            assert said(await slow) == "secret-token-1"

    asyncio.run(main())


def test_scope_that_is_never_enough_sends_nobody_to_the_browser_again_and_again() -> None:
    async def main() -> None:
        person = Browser()
        async with guarded() as far, McpServers([far.settings()], host=person) as servers:
            far.needs_scope = "everything"
            for _ in range(3):
                with pytest.raises(ToolError, match="refuses the"):
                    await call_tool(servers, "work")
            assert len(person.visited) == 2
            assert "everything" in person.visited[1]

    played(main())


def test_client_that_was_registered_beforehand_is_not_registered_again() -> None:
    async def main() -> None:
        async with guarded() as far:
            oauth = OAuthSettings(client_id="known", issuer=far.issuer, scope="a b")
            async with McpServers([far.settings(oauth)], host=Browser()) as servers:
                assert said(await call_tool(servers, "work")) == "secret-token-1"
            assert "/tenant/register" not in far.paths()
            asked = far.asked("/tenant/authorize")[0]
            assert (asked["client_id"], asked["scope"]) == ("known", "a b")

    played(main())


def test_program_logs_in_by_its_credentials(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ROBOT_SECRET", "open-sesame")

    async def main() -> None:
        async with guarded() as far:
            oauth = structs.replace(CREDENTIALS, issuer=far.issuer)
            async with McpServers([far.settings(oauth)]) as servers:
                assert said(await call_tool(servers, "work")) == "secret-token-1"
            (asked,) = far.asked("/tenant/token")
            assert asked["grant_type"] == "client_credentials"

    played(main())
    assert "open-sesame" not in caplog.text
    assert "secret-token" not in caplog.text


def test_credentials_are_sent_to_no_other_issuer_than_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROBOT_SECRET", "open-sesame")

    async def main() -> None:
        async with guarded() as far:
            oauth = structs.replace(CREDENTIALS, issuer="https://login.example")
            async with McpServers([far.settings(oauth)]) as servers:
                assert "issuer mismatch" in servers.problems["far"]
            assert "/tenant/token" not in far.paths()

    played(main())


def test_variable_of_a_secret_that_is_not_set_is_the_problem_of_its_server_alone() -> None:
    async def main() -> None:
        async with guarded() as far:
            oauth = structs.replace(CREDENTIALS, issuer=far.issuer)
            async with McpServers([far.settings(oauth)]) as servers:
                assert servers.problems == {
                    "far": "the environment variable ROBOT_SECRET is not set"
                }

    played(main())


def test_answer_that_is_no_token_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with guarded() as far:
            far.token_answer = {"refresh_token": "secret-refresh-9", "token_type": "Bearer"}
            async with McpServers([far.settings()], host=Browser()) as servers:
                assert "cannot be logged in to" in servers.problems["far"]
                assert "secret" not in servers.problems["far"]

    played(main())
    assert "secret-refresh-9" not in caplog.text


def test_port_that_is_not_free_is_reported() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with guarded() as far:
                oauth = OAuthSettings(redirect_port=port)
                async with McpServers([far.settings(oauth)], host=Browser()) as servers:
                    assert f"the port {port} of 127.0.0.1 is not free" in servers.problems["far"]

    played(main())


def test_file_of_tokens_that_is_damaged_is_as_good_as_none(tmp_path: Path) -> None:
    async def main() -> None:
        person = Browser()
        async with guarded() as far:
            await log_in(far, tmp_path)
            spoil(tmp_path)
            async with McpServers([far.settings()], host=person, tokens=tmp_path) as servers:
                assert servers.problems == {}
        assert len(person.visited) == 1

    played(main())


def test_person_who_does_not_come_back_holds_up_nothing_but_that_server() -> None:
    class Absent(Browser):
        async def open_login(self, server: str, url: str) -> None:
            self.visited.append(url)

    async def main() -> None:
        person = Absent()
        async with guarded() as far:
            entering = asyncio.create_task(McpServers([far.settings()], host=person).__aenter__())
            await until(lambda: bool(person.visited))
            entering.cancel()
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(asyncio.CancelledError):
                    await entering

    played(main())
