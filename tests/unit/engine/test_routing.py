"""Whose a call is, and the words for one that cannot be run."""

import pytest

from dragoman.engine.routing import Ours, Refused, Router, Theirs
from dragoman.engine.toolbox import Toolbox
from dragoman.engine.tools import Declaration
from dragoman.model.parts import Call, CallKind
from engine_models import Acting, call, say_ok


def tool(name: str, kind: CallKind = "function") -> Acting:
    made = Acting(say_ok, name)
    made.offer = type(made.offer)(declaration=Declaration(name=name, kind=kind))
    return made


def router(*tools: Acting, theirs: tuple[Declaration, ...] = ()) -> Router:
    return Router(Toolbox(tools), theirs, lambda _, text: "bad" if "bad" in text else None)


def test_complete_call_of_a_known_tool_is_ours() -> None:
    work = tool("work")
    route = router(work).route(call())
    assert isinstance(route, Ours)
    assert route.entry.tool is work


@pytest.mark.parametrize("kind", ["local_shell", "apply_patch"])
def test_built_in_call_goes_to_the_tool_of_its_kind(kind: CallKind) -> None:
    route = router(tool("run", kind)).route(call("local_shell", kind=kind))
    assert isinstance(route, Ours)


def test_built_in_tool_may_be_called_as_a_function() -> None:
    assert isinstance(router(tool("run", "local_shell")).route(call("run")), Ours)


def test_custom_call_goes_to_a_custom_tool_alone() -> None:
    route = router(tool("patch", "custom")).route(call("patch", arguments="*** x", kind="custom"))
    assert isinstance(route, Ours)
    assert router(tool("patch", "custom")).route(call("patch")) == Refused(
        "The tool 'patch' takes plain text as its input, and was called with the other form."
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
    assert isinstance(route, Refused)
    assert words in route.text


def test_calls_of_the_caller_s_tools_are_the_caller_s_whatever_their_input() -> None:
    theirs = (
        Declaration(name="mine", namespace="app"),
        Declaration(name="local_shell", kind="local_shell"),
    )
    route = router(tool("work"), theirs=theirs).route
    assert route(call("mine", namespace="app")) == Theirs()
    assert route(call("app__mine", arguments="{")) == Theirs()
    assert route(call("local_shell", kind="local_shell", status="incomplete")) == Theirs()
    assert isinstance(route(call("mine")), Refused)
    assert isinstance(route(call("work")), Ours)
