"""Formats of one's own: registration, conflicts, and the helper that runs them through the laws."""

import pytest
from msgspec import Struct

from dragoman.errors import ConfigError, LocalProtocolError
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
)
from dragoman.textcalls.words import words

TOOLS = [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}]
MINE = TextPattern(name="mine", openers=("@@call ",), body=JsonBody(), closers=("@@",))
SAMPLES = ['Hm. @@call {"name": "f", "arguments": {"a": "@@"}}@@ done', "@@call nothing", "@@call"]


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
        arrived = block.tape.end
        yield from block.read(words("!"), 100)
        block.begin("f")
        block.input(f'{{"a":"{arrived}"}}')
        block.end()


class _Liar(Struct, frozen=True):
    """Tells arguments that are no JSON."""

    def parse(self, block: Block) -> Wait[None]:
        yield from block.confirm()
        block.begin("f")
        block.input("{a: 1")
        block.end()


@pytest.mark.parametrize(
    ("body", "fault"),
    [(_Peeker(), "give something else than the whole"), (_Liar(), "are no JSON object")],
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
    told = [
        type(event).__name__ for event in scanner.feed('<x>{"name": "f", "arguments": {"a": "par')
    ]
    assert told == ["PartStarted", "InputDelta"]
    told = [type(event).__name__ for event in scanner.finish("length")]
    assert told[-1] == "PartEnded"
    assert scanner.calls == 0
    assert [problem.kind for problem in scanner.problems] == ["truncated"]


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
