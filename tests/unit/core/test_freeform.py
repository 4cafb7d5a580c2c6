"""The text of a custom call goes into a function's arguments and comes out as it streams."""

import json
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.freeform import (
    WRAPPER_SCHEMA,
    StringReader,
    Unwrapper,
    wrap_input,
    wrapper_tool,
)
from dragoman.core.schemas import satisfies
from dragoman.model.parts import Breakpoint
from dragoman.model.request import Grammar, Tool
from unwrapped import unwrap_input

TEXTS = st.text() | st.text(alphabet='"\\/{}[]:,\b\f\n\r\t\x00\x1f\u0085\u2028\u2029😀é u0d8input')
OTHERS: list[object] = [None, 1.5, "x", 'a"}', {"input": "no"}, [["]"], {"": 0}], True]
BLANKS = st.sampled_from(["", " ", "\n\t ", "\r\n"])


def is_wrapped(text: str) -> bool:
    """The one shape of text that is taken for its inside."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return False
    members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return list(members) == ["input"] and isinstance(members["input"], str)


PLAIN_TEXTS = TEXTS.filter(lambda text: not is_wrapped(text))


@st.composite
def wrappers(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and arguments that wrap it: any escaping, any blanks, other keys before and after."""
    text = draw(PLAIN_TEXTS)
    others = st.lists(
        st.tuples(
            st.text(max_size=5).filter(lambda key: key != "input"),
            st.sampled_from(OTHERS),
        ),
        max_size=2,
    )
    members: list[tuple[str, object]] = [*draw(others), ("input", text), *draw(others)]
    blank = draw(BLANKS)
    ascii_only = draw(st.booleans())
    joined = f"{blank},{blank}".join(
        f"{json.dumps(key, ensure_ascii=ascii_only)}{blank}:{blank}"
        f"{json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in members
    )
    return text, f"{blank}{{{blank}{joined}{blank}}}{blank}"


@st.composite
def cuts(draw: st.DrawFn, source: str) -> list[str]:
    edges = draw(st.lists(st.integers(0, len(source)), max_size=8))
    return [source[a:b] for a, b in pairwise(sorted({0, len(source), *edges}))]


def run(fragments: list[str]) -> tuple[str, Unwrapper]:
    unwrapper = Unwrapper()
    found = [unwrapper.feed(fragment) for fragment in fragments]
    return "".join([*found, unwrapper.finish()]), unwrapper


@given(wrappers(), st.data())
def test_any_wrapper_cut_anywhere_gives_the_text(
    wrapped: tuple[str, str], data: st.DataObject
) -> None:
    text, source = wrapped
    found, unwrapper = run(data.draw(cuts(source)))
    assert found == text
    assert not unwrapper.is_cut


@given(wrappers())
def test_character_by_character_gives_the_text(wrapped: tuple[str, str]) -> None:
    text, source = wrapped
    assert run(list(source))[0] == text


@given(PLAIN_TEXTS)
def test_what_is_wrapped_is_a_valid_call_and_comes_back(text: str) -> None:
    wrapped = wrap_input(text)
    assert satisfies(json.loads(bytes(WRAPPER_SCHEMA)), json.loads(wrapped))
    assert unwrap_input(wrapped) == text


def test_text_is_emitted_while_it_comes() -> None:
    """M123"""
    unwrapper = Unwrapper()
    assert unwrapper.feed('{"input":"*** Begin') == "*** Begin"
    assert unwrapper.feed(" Patch\\n") == " Patch\n"
    assert unwrapper.feed("plain") == "plain"
    assert unwrapper.feed("\\ud83d") == ""
    assert unwrapper.feed("\\ude00") == "😀"
    assert unwrapper.is_cut
    assert unwrapper.feed('"}') == ""
    assert unwrapper.finish() == ""
    assert not unwrapper.is_cut


@given(st.text(alphabet="abc é😀", min_size=1))
def test_every_character_is_emitted_when_it_comes(text: str) -> None:
    unwrapper = Unwrapper()
    unwrapper.feed('{"input": "')
    assert [unwrapper.feed(character) for character in text] == list(text)


@given(TEXTS.filter(lambda text: not text.startswith("{")), st.booleans(), st.data())
def test_a_cut_wrapper_is_known_as_cut_and_gives_the_beginning(
    text: str, ascii_only: bool, data: st.DataObject
) -> None:
    source = json.dumps({"input": text}, ensure_ascii=ascii_only)
    size = data.draw(st.integers(1, len(source) - 1))
    found, unwrapper = run(data.draw(cuts(source[:size])))
    assert unwrapper.is_cut
    assert text.startswith((found, found.removesuffix("\ufffd")))
    assert size < len(source) - 1 or found == text


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"patch":"*** Begin"}', "*** Begin"),  # another single string
        ('{"patch":""}', ""),
        ('{"patch":"a","more":"b"}', '{"patch":"a","more":"b"}'),
        ('{"count":5}', '{"count":5}'),
        ("*** Begin Patch", "*** Begin Patch"),  # no JSON
        ('  "quoted"', '  "quoted"'),
        ("{ print $1 }", "{ print $1 }"),
        ('{"a" b}', '{"a" b}'),
        ('{"a":"b" c}', '{"a":"b" c}'),
        ('{"a":[}]}', '{"a":[}]}'),
        ('{"a":"b"} and more', '{"a":"b"} and more'),
        ('{"input":"a"} and more', "a"),
        ('{"input":"a", oops', "a"),
        ('{"input":"a" oops', "a"),
        ('{"input":"first","input":"second"}', "first"),
        ('{"input":{"a":[1,"}]\\""]} , "x":1}', '{"a":[1,"}]\\""]}'),  # no string: its source
        ('{"input": 5 }', "5"),
        ('{"input":null}', ""),
        ('{"\\u0069nput":"a"}', "a"),
        ("{}", ""),
        ("", ""),
        (" \n", ""),
        ('{"input":"{\\"input\\": \\"deep\\"}"}', "deep"),  # the wrapper in the wrapper
        ('{"input":"{ \\"input\\" : \\"deep\\" }"}', "deep"),
        ('{"input":"{\\"input\\":\\"a\\",\\"b\\":1}"}', '{"input":"a","b":1}'),
        ('{"input":"{\\"input\\":\\"a"}', '{"input":"a'),
        ('{"input":"{\\"in"}', '{"in'),
        ('{"input":"{\\"other\\":1}"}', '{"other":1}'),
        ('{"input":" {\\"input\\":\\"a\\"}"}', ' {"input":"a"}'),
    ],
)
def test_what_models_write_instead(arguments: str, text: str, chunked: bool) -> None:
    found, unwrapper = run(list(arguments) if chunked else [arguments])
    assert found == text
    assert not unwrapper.is_cut
    assert unwrap_input(arguments) == text


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("{", ""),
        ('{"inp', ""),
        ('{"input"', ""),
        ('{"input":', ""),
        ('{"input":"ab\\', "ab"),
        ('{"input":"ab\\ud83d', "ab\ufffd"),
        ('{"input":"ab"', "ab"),
        ('{"input":"ab",', "ab"),
        ('{"input":"{\\"input\\":\\"de', "de"),
        ('{"input":"{\\"input\\":\\"de\\\\n', "de\n"),
        ('{"input":"{\\"inp', '{"inp'),
        ('{"input":[1,', ""),
        ('{"patch":"*** Be', "*** Be"),
        ('{"a":"b","c":"d', ""),
    ],
)
def test_what_a_cut_call_leaves(arguments: str, text: str, chunked: bool) -> None:
    found, unwrapper = run(list(arguments) if chunked else [arguments])
    assert found == text
    assert unwrapper.is_cut
    assert unwrap_input(arguments) is None


def test_what_a_client_replays_wrapped_is_not_wrapped_again() -> None:
    replayed = '{"input": "text"}'
    assert wrap_input(replayed) == replayed
    assert (
        json.loads(wrap_input('{"input": "text", "x": 1}'))["input"] == '{"input": "text", "x": 1}'
    )
    assert json.loads(wrap_input("{not json"))["input"] == "{not json"
    assert json.loads(wrap_input('{"input": 5}'))["input"] == '{"input": 5}'


def test_a_custom_tool_becomes_a_function_that_says_its_grammar() -> None:
    """M124"""
    tool = Tool(
        name="apply_patch",
        namespace="editor",
        kind="custom",
        description="Edits files.",
        grammar=Grammar("lark", 'start: "x"'),
        cache=Breakpoint(),
    )
    wrapped = wrapper_tool(tool)
    assert wrapped == Tool(
        name="apply_patch",
        namespace="editor",
        description='Edits files.\n\nThe input must match this lark grammar:\nstart: "x"',
        schema=WRAPPER_SCHEMA,
        cache=Breakpoint(),
    )


def test_a_custom_tool_without_words_stays_without() -> None:
    assert wrapper_tool(Tool(name="f", kind="custom")).description is None


def read_all(source: str, cuts: int) -> tuple[str, bool, str]:
    """The text of a source without its opening quote, fed `cuts` characters at a time; closed; what follows."""
    reader = StringReader()
    lines: list[str] = []
    for start in range(0, len(source), cuts):
        piece = source[start : start + cuts]
        text, index, closed = reader.read(piece, 0)
        lines.append(text)
        if closed:
            return "".join(lines), True, source[start + index :]
    lines.append(reader.end())
    return "".join(lines), False, ""


@given(st.text(), st.booleans(), st.integers(1, 8), st.text())
def test_every_text_is_read_back(text: str, ascii_only: bool, cuts: int, tail: str) -> None:
    source = json.dumps(text, ensure_ascii=ascii_only)[1:]
    assert read_all(source + tail, cuts) == (text, True, tail)


@pytest.mark.parametrize("cuts", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a\nb\tc", "a\nb\tc"),
        (r"C:\dir \d+", r"C:\dir \d+"),
        (r"\u12", ""),
        (r"\u12G4", r"\u12G4"),
        (r"\u12\n", "\\u12\n"),
        ("\\", ""),
        (r"\ud83d", "\ufffd"),
        (r"\ud83dx", "\ufffdx"),
        (r"\ude00\ud83d\ude00", "\ufffd😀"),
        (r"\/\b\f\n\r\t\\\"", '/\b\f\n\r\t\\"'),
    ],
)
def test_broken_and_cut_escapes(source: str, text: str, cuts: int) -> None:
    assert read_all(source, cuts) == (text, False, "")


@given(st.text(), st.text(alphabet='a"\\\n\x00😀'), st.integers(1, 500), st.booleans())
def test_long_stretches_are_read_like_short_ones(
    text: str, odd: str, cuts: int, ascii_only: bool
) -> None:
    """`odd` stands between the stretches as a model may write it: raw, but for quotes and backslashes."""
    source = json.dumps(text, ensure_ascii=ascii_only)[1:-1] * 20
    raw = odd.replace("\\", "\\\\").replace('"', '\\"')
    assert read_all(f'{source}{raw}{source}"rest', cuts) == (
        text * 20 + odd + text * 20,
        True,
        "rest",
    )


def test_a_long_stretch_may_end_in_half_a_character() -> None:
    assert read_all("x" * 100 + '\\ud83d\\ude00\\ud83d"', 1000) == (
        "x" * 100 + "😀\ufffd",
        True,
        "",
    )


def test_bare_halves_of_characters_are_joined_or_replaced() -> None:
    assert read_all("x" * 100 + "\ud83d\ude00" + "x" * 100 + '\ud83dx"', 1000) == (
        "x" * 100 + "😀" + "x" * 100 + "\ufffdx",
        True,
        "",
    )


def test_a_long_piece_may_begin_with_what_json_forbids_or_with_the_end() -> None:
    assert read_all("\n" + "x" * 100 + '"', 1000) == ("\n" + "x" * 100, True, "")
    assert read_all('"' + "x" * 100, 1000) == ("", True, "x" * 100)


def test_a_half_character_at_the_closing_quote_is_replaced() -> None:
    assert read_all('\\ud83d"rest', 100) == ("\ufffd", True, "rest")


def test_a_reader_is_idle_when_nothing_is_held() -> None:
    reader = StringReader()
    idle = [reader.is_idle]
    for piece in ("plain", "\\", "ud83d", "\\ude00"):
        reader.read(piece, 0)
        idle.append(reader.is_idle)
    assert idle == [True, True, False, False, True]
