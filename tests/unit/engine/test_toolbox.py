"""Which tool a name means, in all the ways models and agents write it."""

import pytest

from dragoman.engine.toolbox import Toolbox, gather
from dragoman.engine.tools import Invocation, Offer, Output, Tool, text_output
from dragoman.errors import ConfigError
from dragoman.model.parts import Call, CallKind
from dragoman.model.request import Namespace
from dragoman.model.request import Tool as Declaration


class Named:
    def __init__(
        self, name: str, namespace: str | None = None, kind: CallKind = "function"
    ) -> None:
        self.offer = Offer(declaration=Declaration(name=name, namespace=namespace, kind=kind))

    async def run(self, invocation: Invocation) -> Output:
        return text_output(self.offer.declaration.name)


def made(name: str, namespace: str | None = None, kind: CallKind = "function") -> Call:
    return Call(call_id="c", name=name, namespace=namespace, kind=kind)


@pytest.mark.parametrize(
    "call",
    [
        made("get", "files"),
        made("get", "mcp__files__"),
        made("get", "mcp__files"),
        made("files__get"),
        made("mcp__files__get"),
    ],
)
@pytest.mark.parametrize(
    "tool", [Named("get", "files"), Named("files__get"), Named("get", "mcp__files__")]
)
def test_tool_of_a_server_is_found_however_it_is_written(tool: Named, call: Call) -> None:
    entry = Toolbox([tool, Named("get")]).find(call)
    assert entry is not None
    assert entry.tool is tool


def test_bare_name_is_not_taken_for_a_server_s_tool() -> None:
    assert Toolbox([Named("get", "files")]).find(made("get")) is None


def test_built_in_kind_finds_the_tool_of_that_kind_whatever_its_name() -> None:
    shell = Named("shell", kind="local_shell")
    toolbox = Toolbox([Named("local_shell"), shell])
    entry = toolbox.find(made("local_shell", kind="local_shell"))
    assert entry is not None
    assert entry.tool is shell
    assert toolbox.find(made("shell", kind="local_shell")) is not None
    assert toolbox.find(made("computer", kind="computer")) is None


def test_two_tools_that_read_the_same_are_refused() -> None:
    with pytest.raises(ConfigError, match="'files__get' twice"):
        Toolbox([Named("get", "files"), Named("files__get")])
    with pytest.raises(ConfigError, match="without"):
        Toolbox([Named("")])


def test_near_names_are_suggested() -> None:
    toolbox = Toolbox([Named("read_file"), Named("get", "files"), Named("write")])
    assert toolbox.near("readfile") == ("read_file",)
    assert toolbox.near("READ_FILE") == ("read_file",)
    assert toolbox.near("get") == ("files__get",)
    assert toolbox.near("zzz") == ()


def test_request_s_tools_may_not_read_like_the_engine_s() -> None:
    toolbox = Toolbox([Named("get", "files")])
    toolbox.check_apart([Declaration(name="get")])
    with pytest.raises(ConfigError, match="in both"):
        toolbox.check_apart([Declaration(name="files__get")])


def test_namespaces_are_declared_once() -> None:
    toolbox = Toolbox([Named("a", "x"), Named("b", "x"), Named("c", "y"), Named("d")])
    assert toolbox.namespaces([Namespace("y")]) == (Namespace("x"),)


def test_sources_are_asked_for_what_they_have_now() -> None:
    class Source:
        def __init__(self, *tools: Tool) -> None:
            self._tools = tools

        def tools(self) -> tuple[Tool, ...]:
            return self._tools

    toolbox = gather([Named("a"), Source(Named("b"), Named("c")), Source()])
    assert [declaration.name for declaration in toolbox.declarations] == ["a", "b", "c"]
