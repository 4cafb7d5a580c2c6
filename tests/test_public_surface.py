"""What a user may import, and what importing it costs.

`public_surface.txt` holds the public names, one a line. After a deliberate change of them, write it anew with

    .venv/bin/python tests/test_public_surface.py

and say in CHANGELOG.md what a user sees of it.
"""

import ast
import doctest
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args, get_type_hints

import msgspec
import pytest

import dragoman
from dragoman import agent
from dragoman.config.check import complete
from dragoman.config.settings import Settings
from dragoman.dialects.registry import UPSTREAM_CODECS
from dragoman.dialects.shapes import DialectName
from dragoman.gateway.attempt import UpstreamModel
from dragoman.gateway.route import Upstreams
from dragoman.model.parts import Dialect
from dragoman.textcalls import JsonBody
from import_rules import ROOT, modules

GOLDEN = Path(__file__).parent / "public_surface.txt"


# Modules that the documentation lets users import.
PUBLIC_MODULES = (
    "",
    "agent",
    "config.check",
    "config.mcp",
    "config.read",
    "config.settings",
    "engine.builtin",
    "engine.events",
    "engine.mcp.host",
    "engine.mcp.servers",
    "engine.run",
    "engine.settings",
    "obsidian",
    "server.app",
    "testing",
    "textcalls",
    "toolcalls",
)


def listing_modules() -> list[str]:
    """The public modules, and every other that says by `__all__` what it exports."""
    found = {
        name
        for name, path in modules().items()
        if re.search(r"^__all__ =", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    return sorted(found | set(PUBLIC_MODULES))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"dragoman.{name}" if name else "dragoman")


def exported(module: ModuleType) -> list[str]:
    names: object = getattr(module, "__all__", None)
    assert isinstance(names, tuple), f"expected {module.__name__} to have a tuple __all__"
    return [str(name) for name in cast("tuple[object, ...]", names)]


def sort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as the linter sorts them."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


@cache
def assigned_docstrings() -> set[str]:
    """Names bound at the top of a module whose assignment is followed by a string that says what they are."""
    found: set[str] = set()
    for path in modules().values():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in pairwise(body):
            match node, after:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str())),
                ):
                    found.add(name)
                case _:
                    pass
    return found


@pytest.mark.parametrize("name", listing_modules(), ids=lambda name: name or "dragoman")
def test_all_is_a_sorted_tuple_of_names_that_exist(name: str) -> None:
    module = load(name)
    names = exported(module)
    assert [item for item in names if not hasattr(module, item)] == []
    assert names == sorted(set(names), key=sort_key)


def test_public_names_are_the_recorded_ones() -> None:
    recorded = GOLDEN.read_text(encoding="utf-8").split()
    assert exported(dragoman) == recorded, f"after a deliberate change: {__doc__}"


@pytest.mark.parametrize("name", exported(dragoman))
def test_public_name_has_a_docstring(name: str) -> None:
    """`make docs` demands it of the other public modules too."""
    value: object = getattr(dragoman, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        assert own, f"{name} has no docstring of its own"
    else:
        assert name in assigned_docstrings(), (
            f"no string below the assignment of {name} says what it is"
        )


def test_documentation_site_has_a_page_for_every_public_module() -> None:
    pages = runpy.run_path(str(ROOT.parents[1] / "scripts" / "docs_pages.py"))
    modules = [f"dragoman.{name}".rstrip(".") for name in PUBLIC_MODULES]
    assert sorted(pages["api_modules"]()) == sorted(modules)


def callables() -> list[str]:
    """The public functions, and the classes that are no values and no exceptions: what a program calls."""
    found: list[str] = []
    for name in exported(dragoman):
        value: object = getattr(dragoman, name)
        is_value = inspect.isclass(value) and issubclass(value, (Exception, msgspec.Struct))
        if callable(value) and not is_value:
            found.append(name)
    return found


AGENT = ("Agent", "Agent.stream", "open_model", "tool")


@pytest.mark.parametrize(
    ("module", "name"),
    [*((dragoman, name) for name in callables()), *((agent, name) for name in AGENT)],
)
def test_docstring_of_what_a_program_calls_has_an_example_that_runs(
    module: ModuleType, name: str
) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(attrgetter(name)(module), name, globs=dict(vars(module)))
    output: list[str] = []
    runner = doctest.DocTestRunner()
    attempted = sum(runner.run(test, out=output.append).attempted for test in tests)
    assert output == []
    assert attempted > 0


def _weather(city: str) -> str:
    return city


MODEL = UpstreamModel(Upstreams(complete(Settings())))
PATTERN_WITHOUT_NAME = dragoman.TextPattern(name=" ", openers=("x",), body=JsonBody())
WRONG: dict[str, tuple[Callable[..., object], tuple[object, ...], str]] = {
    "a vendor's name": (
        dragoman.StreamTranslator,
        ("openai", "messages"),
        "expected a dialect, one of chat, responses, messages, codex; got 'openai'",
    ),
    "codex as the client's dialect": (
        dragoman.StreamTranslator,
        ("chat", "codex"),
        "expected a dialect, one of chat, responses, messages; got 'codex'",
    ),
    "a list of dialects": (
        dragoman.make_decoder,
        (["chat"],),
        "expected a dialect, one of chat, responses, messages, codex; got ['chat']",
    ),
    "no dialect": (
        dragoman.make_encoder,
        (None,),
        "expected a dialect, one of chat, responses, messages; got None",
    ),
    "a codec of a number": (
        dragoman.codec,
        (3,),
        "expected a dialect, one of chat, responses, messages; got 3",
    ),
    "a number as an answer": (
        dragoman.translate_body,
        (123, "chat", "messages"),
        "expected an answer as bytes, got int",
    ),
    "parsed JSON as an answer": (
        dragoman.translate_body,
        ({"id": "x"}, "chat", "messages"),
        "expected an answer as bytes, got dict",
    ),
    "text as a request": (
        dragoman.translate_request,
        ("{}", "chat", "messages"),
        "expected a request as bytes, got str",
    ),
    "text as a stream": (
        dragoman.StreamTranslator("chat", "messages").feed,
        ("data: {}",),
        "expected a piece of a stream as bytes, got str",
    ),
    "a number as a stream": (
        dragoman.make_decoder("chat").feed,
        (7,),
        "expected a piece of a stream as bytes, got int",
    ),
    "text as a frame": (
        dragoman.FrameParser().feed,
        ("data: {}",),
        "expected a piece of a stream as bytes, got str",
    ),
    "tools as the context of a decoder": (
        dragoman.make_decoder,
        ("chat", ["weather"]),
        "expected a DecodeContext, got list",
    ),
    "a name as the context of an encoder": (
        dragoman.make_encoder,
        ("chat", "a-model"),
        "expected an EncodeContext, got str",
    ),
    "a dialect as the context of an aggregator": (
        dragoman.ToolCallAggregator,
        ("chat",),
        "expected a DecodeContext, got str",
    ),
    "a number as events": (
        dragoman.fold,
        (5,),
        "expected a sequence of events, got int",
    ),
    "a name as the model of an agent": (
        agent.Agent,
        ("gpt-5",),
        "expected a model, got str: `async with open_model(…) as model` gives one",
    ),
    "a name as the tools of an agent": (
        agent.Agent,
        (MODEL, "read"),
        "expected a list of tools, got str",
    ),
    "a plain function as a tool": (
        agent.Agent,
        (MODEL, [_weather]),
        "expected a tool, got function: put @tool above _weather",
    ),
    "a number as a function": (
        agent.tool,
        (5,),
        "expected a function, got int",
    ),
    "a number as the name of a model": (
        agent.open_model,
        (5,),
        "expected the name of a model, got int",
    ),
    "a number as settings": (
        partial(agent.open_model, settings=cast("Any", 5)),
        (),
        "expected Settings or the path of a file, got int",
    ),
    "the name of a vendor as the kind of an upstream": (
        partial(agent.open_model, kind=cast("Any", "openai"), base_url="http://127.0.0.1:1"),
        (),
        (
            'kind: expected one of "chat", "responses", "messages", "codex", "chatgpt-codex", "rehearsal", "replay", got "openai"; '
            'OpenAI itself is `kind = "responses"`, a server that imitates it is `kind = "chat"`'
        ),
    ),
    "a mapping as a call": (
        dragoman.judge,
        ({"name": "weather"},),
        "expected a Call, got dict",
    ),
    "bytes as text": (
        dragoman.scan_text,
        (b"<tool_call>", None),
        "expected the text as a string, got bytes",
    ),
    "bytes as a piece of text": (
        dragoman.TextScanner(None).feed,
        (b"x",),
        "expected the text as a string, got bytes",
    ),
    "a name as tools": (
        dragoman.TextScanner,
        ("weather",),
        "expected a list of tools, or None to accept every name; got str",
    ),
    "a number as tools": (
        dragoman.extract_use_tool_blocks,
        ("", 5),
        "expected a list of tools, or None to accept every name; got int",
    ),
    "a number as a pattern": (
        dragoman.register_text_pattern,
        (5,),
        "expected a TextPattern, or the name of a matcher; got int",
    ),
    "a pattern without a name": (
        dragoman.register_text_pattern,
        (PATTERN_WITHOUT_NAME,),
        "expected a name for the text pattern, got an empty one",
    ),
    "a number as a call": (
        dragoman.to_obsidian_xml,
        (5,),
        "expected a call with a name and arguments, got int",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_argument_gets_a_message_that_says_what_was_expected(case: str) -> None:
    function, arguments, message = WRONG[case]
    with pytest.raises(dragoman.ConfigError) as caught:
        function(*arguments)
    assert caught.value.message == message


def test_unknown_dialect_of_a_parser_is_refused_whatever_its_type() -> None:
    wrong = cast("Dialect", ["chat"])
    with pytest.raises(dragoman.ConfigError, match="one of auto, chat, responses, messages, codex"):
        dragoman.ToolCallParser(dialect=wrong)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_buffers_are_read_as_bytes(kind: Callable[[bytes], bytes]) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    expected = dragoman.translate_request(body, "chat", "responses").body
    assert dragoman.translate_request(kind(body), "chat", "responses").body == expected


@pytest.mark.parametrize(
    ("name", "parameter", "dialects"),
    [
        ("codec", "dialect", DialectName),
        ("make_decoder", "dialect", Dialect),
        ("make_encoder", "dialect", DialectName),
        ("translate_body", "source", DialectName),
        ("translate_body", "target", DialectName),
        ("translate_request", "source", DialectName),
        ("translate_request", "target", Dialect),
        ("StreamTranslator", "source", Dialect),
        ("StreamTranslator", "target", DialectName),
    ],
)
def test_editor_can_offer_the_dialects_and_a_string_is_accepted(
    name: str, parameter: str, dialects: object
) -> None:
    function = getattr(dragoman, name)
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    assert get_args(hints[parameter]) == (dialects, str)


def test_literals_name_every_dialect() -> None:
    assert get_args(DialectName) == tuple(dragoman.CODECS)
    assert get_args(Dialect) == tuple(UPSTREAM_CODECS)


IMPORT_ALONE = """
import sys
from importlib.abc import MetaPathFinder

class OnlyMsgspec(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "dragoman", "msgspec"}:
            raise ImportError(f"dragoman must not need {name}")

sys.meta_path.insert(0, OnlyMsgspec())
sys.path[:0] = sys.argv[1:]
import dragoman
for name in dragoman.__all__:
    getattr(dragoman, name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported_by_dragoman() -> set[str]:
    """The top-level modules in memory after `import dragoman` in a bare interpreter."""
    places = [str(ROOT.parent), str(Path(msgspec.__file__).parents[1])]
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT_ALONE, *places],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_needs_msgspec_only() -> None:
    third_party = imported_by_dragoman() - sys.stdlib_module_names - {"__main__", "_distutils_hack"}
    assert third_party <= {"dragoman", "msgspec"}


def test_importing_starts_no_event_loop_and_no_terminal_library() -> None:
    assert not imported_by_dragoman() & {"asyncio", "rich", "socket", "logging", "http"}


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{name}\n" for name in exported(dragoman)), encoding="utf-8")
