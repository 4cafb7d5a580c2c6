"""Who may import whom, over every file of the package; and proof that the checker sees each kind of violation."""

import pytest

from import_rules import ORDER, ROOT, layer_of, module_name, modules, violations

KNOWN = frozenset(modules())
# The synthetic sources below import modules that need not exist yet.
IMAGINED = KNOWN | {
    *("errors", "_json", "sse", "model", "model.parts", "core", "core.fold", "toolcalls", "inspection", "server.app"),
    *("dialects", "dialects.codec", "dialects.registry", "dialects.translate", "dialects.chat", "dialects.messages"),
    *("dialects.chat.wire", "textcalls", "engine.turn", "engine.run", "upstream.http", "upstream.retry", "cli"),
}  # fmt: skip


def check(module: str, source: str, *, is_package: bool = False) -> list[str]:
    return violations(module, source, IMAGINED, is_package=is_package)


def test_every_module_keeps_the_rules() -> None:
    found = [
        violation
        for module, path in modules().items()
        for violation in violations(
            module,
            path.read_text(encoding="utf-8"),
            KNOWN,
            is_package=path.name == "__init__.py",
        )
    ]
    assert not found, "\n".join(found)


def test_the_checker_reads_the_whole_package() -> None:
    assert {"errors", "_json", "sse", "model.events", "core.call_input", "dialects.codec"} <= KNOWN
    assert module_name(ROOT / "__init__.py") == ""


def test_every_group_of_layers_is_below_the_next() -> None:
    names = [layer for group in ORDER for layer in group]
    assert len(names) == len(set(names))
    assert names.index("errors") < names.index("model") < names.index("core") < names.index("cli")


def test_layer_is_the_longest_prefix() -> None:
    assert layer_of("engine.turn") == "engine"
    assert layer_of("engine.run") == "engine.run"
    assert layer_of("engine.builtin.shell") == "engine.run"
    assert layer_of("engine.mcp") == "engine.run"
    assert layer_of("dialects.chat.decode") == "dialects"
    assert layer_of("") == ""
    assert layer_of("nowhere") is None
    assert layer_of("nowhere.app") is None


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.fold", "from dragoman.dialects import base"),
        ("core.fold", "import dragoman.dialects.codec"),
        ("core.fold", "def f():\n    from dragoman.toolcalls import x"),
        ("core.fold", "if TYPE_CHECKING:\n    from dragoman.textcalls import x"),
        ("core.fold", "from ..dialects import base"),
        ("model.parts", "from dragoman.core.fold import fold"),
        ("errors", "from dragoman._json import loads"),
        ("sse", "from dragoman._json import loads"),
        ("_json", "from dragoman.sse import Frame"),
        ("dialects.codec", "from dragoman.textcalls import x"),
        ("textcalls.hermes", "from dragoman.dialects.stream_decoder import Step"),
        ("engine.turn", "from dragoman.dialects.stream_decoder import Step"),
        ("engine.turn", "from dragoman.engine.run import run"),
        ("dialects.codec", "from dragoman.toolcalls import x"),
        ("toolcalls.aggregator", "from dragoman.inspection import x"),
        ("upstream.http", "from dragoman.engine.run import run"),
        ("upstream.http", "from dragoman.server.app import app"),
        ("gateway.attempt", "from dragoman.server.app import app"),
        ("state.keeper", "from dragoman.gateway.plan import AnswerPlan"),
        ("inspection.report", "from dragoman.cli import main"),
        ("core.fold", "from dragoman import ToolCallAggregator"),
    ],
)  # fmt: skip
def test_import_against_the_direction_is_found(module: str, source: str) -> None:
    assert len(check(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.fold", "from dragoman.model.parts import Call\nfrom dragoman.core import fold\nfrom . import fold"),
        ("core.fold", "from dragoman import _json\nfrom msgspec import UNSET, Struct, field, structs\nfrom msgspec.structs import replace"),
        ("dialects.registry", "from dragoman.dialects import chat, messages\nfrom dragoman.dialects.stream_decoder import Step"),
        ("dialects.translate", "from dragoman.dialects.registry import codec"),
        ("dialects.chat.decode", "from dragoman.dialects.chat.wire import Chunk\nfrom dragoman.dialects.codec import S"),
        ("dialects.chat.decode", "from . import wire\nfrom .wire import Chunk\nfrom ..stream_decoder import Step"),
        ("toolcalls.aggregator", "from dragoman.dialects.translate import make_decoder\nfrom dragoman import textcalls"),
        ("engine.run", "import asyncio\nfrom dragoman.engine.turn import plan"),
        ("cli", "import os\nfrom dragoman import __version__\nfrom dragoman.server.app import app"),
        ("upstream.http", "import socket\nimport aiohttp\nfrom dragoman.errors import UpstreamError"),
        ("core.ids", "import hashlib\nfrom collections.abc import Callable\nfrom urllib.parse import quote"),
        ("core.ids", "from datetime import datetime\nclock: Callable[[], datetime]\nsettings.now"),
    ],
)  # fmt: skip
def test_import_along_the_direction_is_allowed(module: str, source: str) -> None:
    assert check(module, source) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dialects.chat.decode", "from dragoman.dialects.messages import x"),
        ("dialects.chat.decode", "from dragoman.dialects import messages"),
        ("dialects.chat.decode", "from ..messages import x"),
        ("dialects.chat.decode", "from dragoman.dialects.registry import codec"),
        ("dialects.chat.decode", "from dragoman.dialects.translate import make_decoder"),
        ("dialects.codec", "from dragoman.dialects import chat"),
        ("dialects.codec", "from dragoman.dialects.registry import codec"),
    ],
)
def test_dialect_that_imports_another_is_found(module: str, source: str) -> None:
    found = check(module, source)
    assert len(found) == 1
    assert "dialects do not import one another" in found[0]


def test_relative_import_from_a_package_file_is_resolved() -> None:
    assert check("dialects.chat", "from .wire import Chunk", is_package=True) == []
    assert check("dialects.chat", "from ..messages import x", is_package=True) != []
    assert check("", "from .cli import main", is_package=True) != []
    assert check("", "from .toolcalls import x", is_package=True) == []


def test_wire_types_outside_their_dialect_are_found() -> None:
    assert (
        "wire types"
        in check("toolcalls.aggregator", "from dragoman.dialects.chat.wire import X")[0]
    )
    assert "wire types" in check("dialects.registry", "from dragoman.dialects.chat import wire")[0]


@pytest.mark.parametrize(
    "imported",
    [
        *("asyncio", "socket", "time", "random", "logging", "os", "os.path", "threading", "subprocess"),
        *("http.client", "urllib.request", "uuid", "secrets", "pathlib", "concurrent.futures", "importlib"),
        *("httpx", "aiohttp", "requests", "starlette", "rich", "openai", "anyio"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "module", ["core.fold", "upstream.retry", "dialects.chat.decode", "inspection.report"]
)
def test_impure_import_in_a_pure_layer_is_found(module: str, imported: str) -> None:
    assert len(check(module, f"import {imported}")) == 1
    assert len(check(module, f"def f():\n    from {imported} import x")) == 1


def test_impure_submodule_imported_by_name_is_found() -> None:
    assert len(check("core.fold", "from urllib import request")) == 1
    assert check("core.fold", "from urllib import parse") == []


@pytest.mark.parametrize(
    "call", ["open('x')", "print(1)", "input()", "datetime.now()", "date.today()", "eval('1')"]
)
def test_impure_call_in_a_pure_layer_is_found(call: str) -> None:
    assert len(check("core.fold", f"x = {call}")) == 1
    assert check("cli", f"x = {call}") == []


@pytest.mark.parametrize(
    "source",
    [
        *("import json", "import orjson", "from json import loads", "import msgspec", "import msgspec.json"),
        *("from msgspec import json", "from msgspec.json import decode", "from msgspec import Raw", "import pydantic"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("module", ["core.fold", "cli", "server.app", "model.parts"])
def test_json_library_outside_its_module_is_found(module: str, source: str) -> None:
    assert len(check(module, source)) == 1
    assert check("_json", source) == []


@pytest.mark.parametrize(
    "source",
    ["from typing import Any", "import typing\nx: typing.Any", "from typing import *", "x: t.Any"],
)
def test_any_outside_its_module_is_found(source: str) -> None:
    assert len(check("core.fold", source)) == 1
    assert len(check("server.app", source)) == 1
    assert check("_json", source) == []


@pytest.mark.parametrize("name", ["utils", "helpers", "common"])
def test_module_named_for_no_idea_is_found(name: str) -> None:
    assert len(check(f"core.{name}", "")) == 1
    assert len(check(f"dialects.{name}.text", "")) == 1


def test_module_outside_every_layer_is_found() -> None:
    assert len(check("nowhere", "")) == 1
    assert len(check("core.fold", "import dragoman.gateway")) == 1


@pytest.mark.parametrize(
    "handler",
    [
        *("except:\n    pass", "except Exception:\n    pass", "except BaseException as e:\n    pass"),
        "except (ValueError, Exception):\n    pass",
    ],
)  # fmt: skip
def test_broad_handler_outside_the_shells_is_found(handler: str) -> None:
    source = f"try:\n    f()\n{handler}"
    assert len(check("core.fold", source)) == 1
    assert len(check("upstream.http", source)) == 1
    assert check("server.app", source) == []
    assert check("engine.run", source) == []


def test_suppressing_everything_is_found() -> None:
    assert len(check("core.fold", "with suppress(Exception):\n    f()")) == 1
    assert (
        len(check("core.fold", "with contextlib.suppress(KeyError, BaseException):\n    f()")) == 1
    )
    assert check("core.fold", "with suppress(KeyError):\n    f()") == []
    assert check("core.fold", "try:\n    f()\nexcept (KeyError, ValueError):\n    pass") == []
