"""Which tool a name means, in all the ways models and agents write it; whose a call is; the words for one that cannot be run."""

import pytest

from dragoman.engine.toolbox import (
    MAX_HINTS,
    CallRouter,
    Entry,
    LeftToCaller,
    RefusedCall,
    Toolbox,
    gather,
)
from dragoman.engine.tools import Declaration, Invocation, Offer, Output, Tool, text_output
from dragoman.errors import ConfigError
from dragoman.model.parts import Call, CallKind
from dragoman.model.request import Namespace
from engine_models import Acting, call, say_ok


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
    toolbox.check_names_differ([Declaration(name="get")])
    with pytest.raises(ConfigError, match="in both"):
        toolbox.check_names_differ([Declaration(name="files__get")])


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


def tool(name: str, kind: CallKind = "function") -> Acting:
    made = Acting(say_ok, name)
    made.offer = type(made.offer)(declaration=Declaration(name=name, kind=kind))
    return made


def router(*tools: Acting, theirs: tuple[Declaration, ...] = ()) -> CallRouter:
    return CallRouter(Toolbox(tools), theirs, lambda _, text: "bad" if "bad" in text else None)


def test_complete_call_of_a_known_tool_is_ours() -> None:
    work = tool("work")
    route = router(work).route(call())
    assert isinstance(route, Entry)
    assert route.tool is work


@pytest.mark.parametrize("kind", ["local_shell", "apply_patch"])
def test_built_in_call_goes_to_the_tool_of_its_kind(kind: CallKind) -> None:
    route = router(tool("run", kind)).route(call("local_shell", kind=kind))
    assert isinstance(route, Entry)


def test_built_in_tool_may_be_called_as_a_function() -> None:
    assert isinstance(router(tool("run", "local_shell")).route(call("run")), Entry)


def test_custom_call_goes_to_a_custom_tool_alone() -> None:
    route = router(tool("patch", "custom")).route(call("patch", arguments="*** x", kind="custom"))
    assert isinstance(route, Entry)
    assert router(tool("patch", "custom")).route(call("patch")) == RefusedCall(
        "The tool 'patch' takes plain text as its input, but was called with the other form."
    )


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (call(status="incomplete"), "cut off"),
        (call(arguments="{"), "not valid JSON"),
        (call(""), "names no tool"),
        (call("wrok"), "Did you mean 'work'?"),
        (call("zzz"), "no tool named 'zzz'. Only"),
        (call("zzz", kind="other"), "'other' cannot be run"),
        (call("zzz", kind="memory"), "'memory' cannot be run"),
        (call(arguments='"bad"'), "bad"),
        (call(arguments="text", kind="custom"), "takes a JSON object"),
    ],
)
def test_wrong_call_is_refused(made: Call, words: str) -> None:
    route = router(tool("work")).route(made)
    assert isinstance(route, RefusedCall)
    assert words in route.text


def test_only_the_first_calls_of_unknown_tools_get_suggestions() -> None:
    # Each suggestion compares the name with those of all tools.
    route = router(tool("work")).route
    texts = [str(route(call("wrok"))) for _ in range(MAX_HINTS + 1)]
    assert ["Did you mean 'work'?" in text for text in texts] == [True] * MAX_HINTS + [False]


def test_calls_of_the_caller_s_tools_are_the_caller_s_whatever_their_input() -> None:
    theirs = (
        Declaration(name="mine", namespace="app"),
        Declaration(name="local_shell", kind="local_shell"),
    )
    route = router(tool("work"), theirs=theirs).route
    assert route(call("mine", namespace="app")) == LeftToCaller()
    assert route(call("app__mine", arguments="{")) == LeftToCaller()
    assert route(call("local_shell", kind="local_shell", status="incomplete")) == LeftToCaller()
    assert isinstance(route(call("mine")), RefusedCall)
    assert isinstance(route(call("work")), Entry)
