"""Which protocol is spoken with a server, what its results may leave out, and the questions that it may ask."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.engine.mcp.host import ElicitationAnswer, ElicitationForm, ElicitationLink
from dragoman.engine.mcp.servers import McpServers
from dragoman.engine.validation import check_arguments
from dragoman.errors import ToolError
from mcp_help import call_tool, played, rough, said, tool_named, workshop


class Person:
    """Answers every question alike, and keeps what was asked."""

    def __init__(self, action: str = "accept", values: Mapping[str, object] | None = None) -> None:
        self._answer = ElicitationAnswer(action=action, values=values or {})  # type: ignore[arg-type]
        self.asked: list[tuple[str, ElicitationForm | ElicitationLink]] = []

    async def open_login(self, server: str, url: str) -> None:
        raise AssertionError(url)

    async def elicit(
        self, server: str, question: ElicitationForm | ElicitationLink
    ) -> ElicitationAnswer:
        self.asked.append((server, question))
        return self._answer


@pytest.mark.parametrize("kind", ["modern", "echoes_version", "bare"])
def test_server_that_knows_only_the_protocol_without_a_handshake_is_met_by_discovery(
    kind: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with McpServers([rough(kind, tmp_path)]) as servers:
            assert servers.problems == {}
            assert said(await call_tool(servers, "work")) == "worked"

    played(main())


def test_question_of_a_server_goes_to_the_person_and_the_call_is_sent_again_with_the_answer(
    tmp_path: Path,
) -> None:
    person = Person(values={"name": "Grace", "sure": True})

    async def main() -> None:
        async with McpServers([rough("asks_first", tmp_path)], host=person) as servers:
            body = json.loads(said(await call_tool(servers, "ask")))
            given = {"action": "accept", "content": {"name": "Grace", "sure": True}}
            assert body == {"inputResponses": {"who": given}, "requestState": "état 1"}
            body = json.loads(said(await call_tool(servers, "stateless")))
            assert body["requestState"] is None

    played(main())
    server, form = person.asked[0]
    assert server == "rough"
    assert isinstance(form, ElicitationForm)
    assert form.message == "Who is it for?"
    assert [(each.name, each.kind, each.default) for each in form.fields] == [
        ("name", "string", "Ada"),
        ("sure", "boolean", None),
    ]


def test_question_is_declined_where_there_is_nobody_to_ask(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("asks_first", tmp_path)]) as servers:
            body = json.loads(said(await call_tool(servers, "ask")))
            assert body["inputResponses"] == {"who": {"action": "decline"}}

    played(main())


def test_question_within_a_session_goes_to_the_person_too(tmp_path: Path) -> None:
    person = Person()

    async def main() -> None:
        async with McpServers([workshop(tmp_path)], host=person) as servers:
            assert said(await call_tool(servers, "ask")).split("; ")[1] == "accept"

    played(main())
    assert [server for server, _ in person.asked] == ["workshop"]


def test_server_that_asks_without_end_fails_its_call(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("asks_first", tmp_path)], host=Person()) as servers:
            with pytest.raises(ToolError, match="asked for more input 10 times"):
                await call_tool(servers, "endless")
            assert said(await call_tool(servers, "ask"))

    played(main())


def test_time_that_a_person_takes_is_not_that_of_the_call(tmp_path: Path) -> None:
    class Slow(Person):
        async def elicit(
            self, server: str, question: ElicitationForm | ElicitationLink
        ) -> ElicitationAnswer:
            await asyncio.sleep(0.5)  # longer than the call may take
            return await super().elicit(server, question)

    async def main() -> None:
        hasty = structs.replace(rough("asks_first", tmp_path), call_timeout=0.2)
        async with McpServers([hasty], host=Slow()) as servers:
            # the limit itself has a second more; what counts is that it stood still
            for _ in range(4):
                assert said(await call_tool(servers, "ask"))

    played(main())


def test_request_for_what_we_do_not_offer_fails_the_call_in_words(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("wants_a_model", tmp_path)], host=Person()) as servers:
            with pytest.raises(ToolError, match="Sampling not supported"):
                await call_tool(servers, "work")

    played(main())


def test_refusal_with_the_number_of_a_lost_connection_keeps_its_words(tmp_path: Path) -> None:
    async def main() -> None:
        async with McpServers([rough("own_codes", tmp_path)]) as servers:
            with pytest.raises(ToolError, match="the saw is out of order"):
                await call_tool(servers, "work")
            assert servers.problems == {}

    played(main())


def test_null_for_an_optional_argument_is_left_out_and_no_error(tmp_path: Path) -> None:
    inner: dict[str, object] = {"depth": None}

    async def main() -> None:
        async with McpServers([rough("repeats", tmp_path)]) as servers:
            declaration = tool_named(servers, "repeat").offer.declaration
            given = {"needed": None, "days": None, "note": None, "inner": inner}
            assert check_arguments(declaration, json.dumps(given)) is None
            output = await call_tool(
                servers, "repeat", needed=None, days=None, note=None, inner=inner
            )
            got = json.loads(said(output))
            assert got == {"needed": None, "note": None, "inner": {}}

    played(main())
