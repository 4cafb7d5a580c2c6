"""Formats of one's own: registration, conflicts, and the helper that runs them through the laws."""

import sys

import pytest
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.tool_cache import CachedTools
from dragoman.errors import ConfigError, LocalProtocolError
from dragoman.model.request import Request, Tool
from dragoman.textcalls import (
    PATTERNS,
    Block,
    JsonBody,
    NamedBody,
    PatternRegistry,
    TextPattern,
    TextScanner,
    Wait,
    check_pattern,
    register_text_pattern,
    scan_text,
    stage_for,
)
from dragoman.textcalls.cursor import words

TOOLS = [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}]
MINE = TextPattern(name="mine", openers=("@@call ",), body=JsonBody(), closers=("@@",))
SAMPLES = ['Hm. @@call {"name": "f", "arguments": {"a": "@@"}}@@ done', "@@call nothing", "@@call"]


def test_long_names_of_models_are_not_kept() -> None:
    """Clients choose them: hundreds of names of some megabytes each would fill the memory."""
    model = "x" * 100_000
    tools = CachedTools((Tool(name="f"),))
    before = sys.getrefcount(model)
    scan_text("words", None, model=model)
    assert stage_for(Request(model=model, tools=tools)) is not None
    assert sys.getrefcount(model) == before


def test_registered_pattern_is_found_and_taken_out_again() -> None:
    unregister = register_text_pattern(MINE)
    try:
        assert [call.pattern for call in scan_text(SAMPLES[0], TOOLS).calls] == ["mine"]
    finally:
        unregister()
    unregister()
    assert scan_text(SAMPLES[0], TOOLS).calls == ()


def test_scanner_keeps_the_patterns_it_was_made_with() -> None:
    registry = PatternRegistry((MINE,))
    scanner = TextScanner(TOOLS, registry=registry)
    registry.register(TextPattern(name="late", openers=("%%",), body=JsonBody()))
    scanner.feed('%%{"name": "f", "arguments": {}}')
    scanner.finish()
    assert scanner.calls == 0
    assert len(registry.snapshot()) == 2


def test_pattern_registered_first_is_asked_first() -> None:
    registry = PatternRegistry((TextPattern(name="a", openers=("<x>",), body=JsonBody()),))
    registry.register(TextPattern(name="b", openers=("<x>",), body=JsonBody()), first=True)
    assert (
        scan_text('<x>{"name":"f","arguments":{}}', TOOLS, registry=registry).calls[0].pattern
        == "b"
    )


@pytest.mark.parametrize(
    "pattern",
    [
        TextPattern(name=" ", openers=("<x>",), body=JsonBody()),
        TextPattern(name="x", openers=(), body=JsonBody()),
        TextPattern(name="x", openers=("",), body=JsonBody()),
        TextPattern(name="x", openers=("  ",), body=JsonBody()),
        TextPattern(name="x", openers=("y" * 65,), body=JsonBody()),
        TextPattern(name="x", openers=("<x>",), body=JsonBody(), closers=("",)),
    ],
)
def test_pattern_that_cannot_work_is_refused(pattern: TextPattern) -> None:
    with pytest.raises(ConfigError, match="expected"):
        PatternRegistry().register(pattern)


def test_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"hermes.*got 'nope'"):
        scan_text("", TOOLS, formats="nope")


def test_conflicts_are_reported() -> None:
    bare = next(pattern for pattern in PATTERNS.snapshot() if pattern.name == "hermes")
    assert {"glm", "qwen3_coder"} <= set(PATTERNS.conflicts(bare))
    assert PATTERNS.conflicts(MINE) == ()


def test_helper_finds_no_fault_with_a_sound_pattern() -> None:
    report = check_pattern(MINE, SAMPLES, TOOLS, others=PATTERNS.snapshot()[:5])
    assert report.faults == ()
    assert (report.samples, report.calls) == (3, 1)


class _Peeker(Struct, frozen=True):
    """Looks at how much has arrived, which depends on the cuts."""

    def parse(self, block: Block) -> Wait[None]:
        yield from block.confirm()
        arrived = block.buffer.end
        yield from block.read(words("!"), 100)
        block.begin("f")
        block.input(f'{{"a":"{arrived}"}}')
        block.end()


class _Liar(Struct, frozen=True):
    """Emits arguments that are no JSON."""

    def parse(self, block: Block) -> Wait[None]:
        yield from block.confirm()
        block.begin("f")
        block.input("{a: 1")
        block.end()


@pytest.mark.parametrize(
    ("body", "fault"),
    [(_Peeker(), "give other findings than the whole"), (_Liar(), "are no JSON object")],
)
def test_helper_names_the_law_that_is_broken(body: _Peeker | _Liar, fault: str) -> None:
    pattern = TextPattern(name="bad", openers=("@@",), body=body)
    faults = check_pattern(pattern, ["x @@ y ! z"], TOOLS).faults
    assert any(fault in one for one in faults)


def test_pattern_that_does_not_confirm_in_time_is_text() -> None:
    body = NamedBody(name_ends=("(",), closes=(")",), forbid="")
    pattern = TextPattern(name="slow", openers=("$",), body=body)
    text = "$" + " " * 400 + 'f({"a":"1"})'
    for pieces in ([text], list(text)):
        scanner = TextScanner(TOOLS, formats="slow", registry=PatternRegistry((pattern,)))
        for piece in pieces:
            scanner.feed(piece)
        scanner.finish()
        assert scanner.calls == 0


def test_arguments_stream_where_a_pattern_asks_for_it() -> None:
    pattern = TextPattern(name="s", openers=("<x>",), body=JsonBody(), stream_args=True)
    scanner = TextScanner(TOOLS, formats="s", registry=PatternRegistry((pattern,)))
    found = [
        type(event).__name__ for event in scanner.feed('<x>{"name": "f", "arguments": {"a": "par')
    ]
    assert found == ["PartStarted", "InputDelta"]
    found = [type(event).__name__ for event in scanner.finish("length")]
    assert found[-1] == "PartEnded"
    assert scanner.calls == 0
    assert [problem.kind for problem in scanner.problems] == ["truncated"]


def test_arguments_of_a_built_in_format_stream_where_the_scanner_is_set_so() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "par'
    assert TextScanner(TOOLS).feed(text) == ()
    lines = TextScanner(TOOLS, stream=("hermes",)).feed(text)
    assert [type(event).__name__ for event in lines] == ["PartStarted", "InputDelta"]
    with pytest.raises(ConfigError, match="got 'nope'"):
        TextScanner(TOOLS, stream=("nope",))


def test_pattern_of_a_built_in_name_takes_its_place() -> None:
    hermes = next(pattern for pattern in PATTERNS.snapshot() if pattern.name == "hermes")
    registry = PatternRegistry(PATTERNS.snapshot())
    registry.register(replace(hermes, stream_args=True))
    scanner = TextScanner(TOOLS, registry=registry)
    assert len(scanner.feed('<tool_call>{"name": "f", "arguments": {"a": "par')) == 2


def test_change_of_a_registry_reaches_the_next_scanner() -> None:
    registry = PatternRegistry((MINE,))
    text = '%%{"name": "f", "arguments": {}}'
    assert scan_text(text, TOOLS, registry=registry).calls == ()
    take_out = registry.register(TextPattern(name="late", openers=("%%",), body=JsonBody()))
    assert len(scan_text(text, TOOLS, registry=registry).calls) == 1
    take_out()
    assert scan_text(text, TOOLS, registry=registry).calls == ()


def test_opener_of_letters_may_be_kept_out_of_words() -> None:
    pattern = TextPattern(name="w", openers=("call",), body=JsonBody(), place="word")
    registry = PatternRegistry((pattern,))
    call = 'call{"name": "f", "arguments": {}}'
    for text, count in ((call, 1), (f"a {call}", 1), (f"re{call}", 0), (f"_{call}", 0)):
        for pieces in ([text], list(text)):
            scanner = TextScanner(TOOLS, registry=registry)
            for piece in pieces:
                scanner.feed(piece)
            scanner.finish()
            assert scanner.calls == count, text


LONG = "n" * 200


@pytest.mark.parametrize(
    "text",
    [
        f'<tool_call>{{"name": "{LONG}", "arguments": {{}}}}</tool_call>',
        f'[TOOL_CALLS]{LONG}[ARGS]{{"a": "x"}}',
        f"<tool_call>{LONG}\n</tool_call>",
        f"<|tool_call_start|>[{LONG}(a='x')]<|tool_call_end|>",
        f"<|tool_call>call:{LONG}{{}}<tool_call|>",
        f'<invoke name="{LONG}"></invoke>',
        f"<use_tool><name>{LONG}</name></use_tool>",
    ],
)
def test_name_beyond_the_limit_is_text_and_a_problem(text: str) -> None:
    for tools in (None, TOOLS):
        scan = scan_text(text, tools)
        assert (scan.calls, scan.text) == ((), text)
        assert {problem.kind for problem in scan.problems} == {"limit"}


def test_named_body_serves_a_format_of_one_s_own() -> None:
    body = NamedBody(name_ends=("(",), closes=(")",), needs_close=True)
    pattern = TextPattern(name="n", openers=("$",), body=body, is_sentinel=False)
    scan = scan_text('$f({"a":"1"}) $g', TOOLS, formats="n", registry=PatternRegistry((pattern,)))
    assert [call.arguments for call in scan.calls] == ['{"a":"1"}']
    assert scan.text == " $g"


def test_feeding_after_the_end_is_refused() -> None:
    scanner = TextScanner(TOOLS)
    scanner.finish()
    with pytest.raises(LocalProtocolError):
        scanner.feed("more")
