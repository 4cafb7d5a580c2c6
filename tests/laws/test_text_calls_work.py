"""The cost of scanning is linear in the text; the scanner holds no more than it must, and passes prose at once."""

import time
import tracemalloc

import pytest
from msgspec.structs import replace

from dragoman.textcalls import PATTERNS, JsonBody, TextPattern
from dragoman.textcalls.block import MAX_FAILED, MAX_WORD
from dragoman.textcalls.conformance import run_finder
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import ProblemFound, TextFound, gather
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers
from text_formats import FORMATS, NEAR_OPENERS, TOOLS, TextFormat, Written

OFFERS = Offers(TOOLS)
AUTO = tuple(pattern for pattern in PATTERNS.snapshot() if pattern.is_sentinel)
BY_NAME = {pattern.name: pattern for pattern in PATTERNS.snapshot()}
MEGABYTE = 1024 * 1024

PROSE = (
    "A model writes about <tool_call> and `<use_tool>` here, a < b, [1] (see [TOOL_CALLS] below), "
    "<function=f, <invoke of it, functools[0], {braces}, <|tool_call, <｜tool▁calls▁begin｜> and the like.\n\n"
)


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("size", [4, 4096, 2 * MEGABYTE])
def test_a_megabyte_of_near_openers_passes_unchanged(size: int) -> None:
    text = PROSE * (MEGABYTE // len(PROSE) + 1)
    run = run_finder(AUTO, pieces(text, size), OFFERS)
    assert "".join(one.text for one in run.found if isinstance(one, TextFound)) == text
    # So much of it is nearly a call that the rest is not looked at any more, which is reported once.
    [noted] = [one for one in run.found if not isinstance(one, TextFound)]
    assert isinstance(noted, ProblemFound)
    assert f"at most {MAX_FAILED} openers" in noted.message
    assert run.examined <= 12 * len(text)


def test_prose_is_emitted_without_delay() -> None:
    """Only a suffix that may still become an opener is held, and what follows an opener only to its confirmation."""
    finder = Finder(Openers(AUTO, OFFERS), OFFERS)
    longest = 0
    for character in PROSE * 20:
        finder.feed(character)
        longest = max(longest, len(finder.held))
    assert longest <= MAX_WORD
    assert finder.feed("plain words") == [TextFound("plain words")]
    assert finder.held == ""


def grown(form: TextFormat, size: int) -> str:
    return form.write([("search", {"query": "word " * (size // 5)})])


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_long_argument_in_small_pieces_costs_what_it_is_long(form: TextFormat) -> None:
    patterns = (BY_NAME[form.name],)
    small, large = (
        run_finder(patterns, pieces(grown(form, size), 4), OFFERS) for size in (8_000, 32_000)
    )
    assert len(gather(large.found).calls) == 1
    assert large.examined <= 4.4 * small.examined


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", ["hermes", "use_tool", "qwen3_coder", "glm", "lfm2", "gemma4"])
def test_time_for_a_long_argument_grows_about_as_it_does(name: str, streams: bool) -> None:
    """A 32 KB string in pieces of four characters against an 8 KB one: 4 if linear, 16 if quadratic.

    `make bench-core` measures it closely; here the machine may be busy.
    """
    form = next(form for form in FORMATS if form.name == name)
    pattern = replace(BY_NAME[name], stream_args=streams)
    parts = {size: pieces(grown(form, size), 4) for size in (8_000, 32_000)}
    fastest = dict.fromkeys(parts, float("inf"))
    for _ in range(10):
        for size, some in parts.items():
            start = time.process_time()
            run_finder((pattern,), some, OFFERS)
            fastest[size] = min(fastest[size], time.process_time() - start)
        if fastest[32_000] <= 8 * fastest[8_000]:
            break
    assert fastest[32_000] <= 8 * fastest[8_000]


@pytest.mark.parametrize(
    "text",
    [
        "<" * 20_000,
        "<use_tool" * 3_000,
        "<tool_call>" * 3_000,
        '<tool_call>{"name":"search","arguments":{"query":"' * 1_000,
        "<tool_call>{" + '"arguments":{"a":[' * 2_000,
        "<use_tool><name>search</name><query>" * 1_000,
        "<use_tool><name>search</name><query></use_tool>" * 1_000,
        "<function=search><parameter=query>" * 1_000,
        "<|tool_call_start|>[search(query='" + "a' " * 10_000,
        "<|tool_call>call:search{" + "a:[" * 3_000,
        "`" * 20_000,
        "```\n" * 5_000,
        "<think>" * 3_000,
        " " * 20_000,
        "<tool_call>" + " " * 20_000,
        "<tool_calls>[" + '{"name":"now","arguments":{}},' * 1_000,
        "<|channel|>" * 2_000,
        '<tool_call>{"name":"search","arguments":{"query":"' + "\\u0041" * 5_000,
        '<tool_call>{"name":"search","arguments":{"ratio":' + "1" * 20_000,
    ],
    ids=lambda text: str(text)[:24],
)
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_hostile_text_is_read_in_linear_work(text: str, size: int) -> None:
    patterns = PATTERNS.snapshot()
    assert run_finder(patterns, pieces(text, size), OFFERS).examined <= 100 * (len(text) + MAX_WORD)


@pytest.mark.parametrize(
    "text",
    [
        # in expressions: a place to cut the text in two that may be anywhere
        '<invoke name="search" ' + "aa=a" * 16 + '">',
        ("-   " * 15 + "x```\n") * 6,
        "<|tool_call_start|>[search(query='a'b' " + " " * 40_000 + "c')]<|tool_call_end|>",
        # in blocks: the end of something that has no end
        "<use_tool>" + "<name>" * 20_000 + "</use_tool>",
        "<use_tool><name>search</name>" + "".join(f"<t{n}>" for n in range(60_000)) + "</use_tool>",
    ],
    ids=lambda text: str(text)[:24],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    """Each of these took several seconds or had no end, in work that `examined` does not count."""
    start = time.process_time()
    run_finder(PATTERNS.snapshot(), [text], OFFERS)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("use_tool", "<use_tool><name>search</name>" + "<key" * 50_000 + "</use_tool>"),
        ("use_tool", "<use_tool><name>search</name><key_1>x</key_1>" + "<key" * 50_000),
        ("use_tool", f"<use_tool><name>search</name>{'<key_1>x</key_1><z>' * 10_000}</use_tool>"),
        ("lfm2", f"<|tool_call_start|>[search(key_1='a'b'{', k' * 50_000}c')]<|tool_call_end|>"),
        ("tool_tags", "<search>" + "<key" * 50_000 + "</search>"),
        ("tool_tags", "<search><key_1>a</key_1>" + "<key" * 50_000 + "</search>"),
    ],
)
def test_many_declared_parameters_take_no_time(name: str, text: str) -> None:
    """Most of these took the number of parameters times the length of the text."""
    properties = {f"key_{number}": {"type": "string"} for number in range(10_000)}
    offers = Offers([{"name": "search", "input_schema": {"properties": properties}}])
    start = time.process_time()
    run_finder((BY_NAME[name],), [text], offers)
    assert time.process_time() - start < 2


def test_long_name_of_a_parameter_takes_little_memory() -> None:
    """It took the square of its length."""
    schema = {"properties": {"k" * 20_000: {"type": "string"}}}
    offers = Offers([{"name": "search", "input_schema": schema}])
    text = "<search><a>b</a></search><use_tool><name>search</name><a>b</a></use_tool>"
    tracemalloc.start()
    try:
        run_finder((BY_NAME["tool_tags"], BY_NAME["use_tool"]), [text], offers)
        assert tracemalloc.get_traced_memory()[1] < 2 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "name", ["hermes", "qwen3_coder", "glm", "use_tool", "kimi_k2", "lfm2", "gemma4"]
)
@pytest.mark.parametrize("size", [1, 10, 1_000_000])
def test_block_beyond_its_limit_is_text_and_a_problem(name: str, size: int) -> None:
    form = next(form for form in FORMATS if form.name == name)
    limits = replace(BY_NAME[name].limits, max_block=300)
    pattern = replace(BY_NAME[name], limits=limits)
    text = f"a {form.write([('search', {'query': 'x' * 400})])} b {form.write([('now', {})])} c"
    scan = gather(run_finder((pattern,), pieces(text, size), OFFERS).found)
    assert [call.name for call in scan.calls] == ["now"]
    assert scan.text.startswith("a ")
    assert "x" * 400 in scan.text
    assert [problem.kind for problem in scan.problems] == ["limit"]


def test_more_calls_than_allowed_are_text_and_a_problem() -> None:
    form = next(form for form in FORMATS if form.name == "hermes")
    limits = replace(BY_NAME["hermes"].limits, max_calls=2)
    pattern = replace(BY_NAME["hermes"], limits=limits)
    once: Written = ("now", {})
    text = form.write([once] * 4)
    for size in (1, 5, 10_000):
        scan = gather(run_finder((pattern,), pieces(text, size), OFFERS).found)
        assert len(scan.calls) == 2
        assert scan.text.count("<tool_call>") == 2
        assert {problem.kind for problem in scan.problems} == {"limit"}


def test_near_openers_are_openers_or_nearly() -> None:
    assert any(word in pattern.openers for word in NEAR_OPENERS for pattern in AUTO)


def test_text_after_a_malformed_block_whose_closer_is_one_character_is_looked_at_once() -> None:
    pattern = TextPattern(name="run", openers=("[[run",), closers=("]",), body=JsonBody())
    text = '[[run{"name":1}' + " words" * 4000
    run = run_finder((pattern,), pieces(text, 6), OFFERS)
    assert run.examined < 10 * len(text)
