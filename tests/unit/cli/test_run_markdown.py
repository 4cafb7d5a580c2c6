"""Markdown on a terminal: styles in place of marks, streamed in any pieces; what is no markup stays as it was written."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.run.markdown import MarkdownText
from dragoman.inspection.layout import Span

WIDTH = 60


def rendered(text: str, *cuts: int, width: int = WIDTH) -> list[Span]:
    """The pieces, with neighbours of one style joined."""
    markdown = MarkdownText()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces: list[Span] = []
    for start, end in pairwise(places):
        pieces += markdown.feed(text[start:end], width)
    pieces += markdown.close(width)
    joined: list[Span] = []
    for piece in pieces:
        if joined and joined[-1].style == piece.style:
            joined[-1] = Span(joined[-1].text + piece.text, piece.style)
        else:
            joined.append(piece)
    return joined


def words(text: str, width: int = WIDTH) -> str:
    return "".join(piece.text for piece in rendered(text, width=width))


def test_marks_become_styles() -> None:
    assert rendered("Some **bold**, *thin*, _thin_ and `code`.") == [
        Span("Some "),
        Span("bold", "strong"),
        Span(", "),
        Span("thin", "emphasis"),
        Span(", "),
        Span("thin", "emphasis"),
        Span(" and "),
        Span("code", "code"),
        Span("."),
    ]
    assert rendered("**a `b` c**") == [
        Span("a ", "strong"),
        Span("b", "code"),
        Span(" c", "strong"),
    ]
    assert rendered("see [the page](https://a.b/c)!") == [
        Span("see "),
        Span("the page", "link"),
        Span(" (https://a.b/c)", "faint"),
        Span("!"),
    ]


def test_blocks_are_shown_as_what_they_are() -> None:
    text = "## The **heading**\n\n- one\n  * two\n1. first\n> said\n---\nend"
    assert rendered(text)[0] == Span("The ", "title")
    assert words(text) == f"The heading\n\n• one\n  • two\n1. first\n│ said\n{'─' * 40}\nend"


def test_code_keeps_every_character() -> None:
    code = "def f(*args):\n    # no heading\n    return `x` | **y**\n\n- no item\n"
    pieces = rendered(f"so:\n```python\n{code}```\n**after**")
    assert pieces[:3] == [Span("so:\n"), Span("```python", "faint"), Span("\n")]
    assert "".join(piece.text for piece in pieces) == f"so:\n```python\n{code}```\nafter"
    assert Span("def f(*args):", "code") in pieces
    assert pieces[-1] == Span("after", "strong")


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3 * 4, snake_case_name and **kwargs",
        "a lone ` and a [bracket] and [x](not an address)",
        "*",
        "__init__.py is no word in bold",
        "C:\\new and 5 > 3",
        "#hashtag and 12.5 %",
        "| a lone row |",
        "** spaces **",
        "``` not closed\n**code**",
    ],
)
def test_what_is_no_markup_stays(text: str) -> None:
    assert words(text) == text


def test_a_table_has_columns_unless_it_is_too_wide() -> None:
    table = "| name | size |\n|---|--:|\n| `a` | 1 |\n| longer | **2** |\n"
    assert words(table + "after") == "name   │ size\na      │ 1\nlonger │ 2\nafter"
    assert words(table, width=12) == words(table.replace("`", "").replace("**", ""), width=12)
    assert words(table, width=12).startswith("| name | size |\n|---|--:|\n")


def test_text_goes_out_as_it_arrives() -> None:
    markdown = MarkdownText()
    shown = [
        "".join(piece.text for piece in markdown.feed(text, WIDTH))
        for text in ("A word", " and **bo", "ld** end", " [note] goes", " some_name goes ")
    ]
    assert shown == ["A", " word and", " bold", " end [note]", " goes some_name goes"]


def test_lines_are_broken_between_words() -> None:
    assert words("one two three four five", width=20) == "one two three four\nfive"
    assert words("- one two three four five", width=20) == "• one two three four\n  five"
    assert words("one two three **four and five**", width=20) == "one two three four\nand five"
    long = "x" * 50
    assert words(f"one {long} two", width=20) == f"one\n{long} two"
    assert words("漢字" * 12, width=20) == "漢字" * 5 + "\n" + "漢字" * 5 + "\n" + "漢字" * 2


def test_lines_of_code_are_not_broken() -> None:
    code = "```\none two three four five six\n```"
    assert words(code, width=20) == code


def test_text_of_a_script_without_spaces_goes_out_as_it_arrives() -> None:
    markdown = MarkdownText()
    assert "".join(piece.text for piece in markdown.feed("漢字漢", WIDTH)) == "漢字漢"


def test_a_mark_that_is_not_closed_is_not_waited_for_without_end() -> None:
    markdown = MarkdownText()
    shown = "".join(piece.text for _ in range(300) for piece in markdown.feed("`word ", WIDTH))
    assert len(shown) > 300


@pytest.mark.parametrize(
    "pieces",
    [
        ["-"] * 100_000,
        ["| "] + ["word "] * 100_000,
        ["".join("`" * count + " " for count in range(1, 300))],
        ["```" + " x" * 100_000],
    ],
    ids=["rule", "row", "backquotes", "fence"],
)
def test_a_line_without_end_is_shown_in_time_and_whole(pieces: list[str]) -> None:
    markdown = MarkdownText()
    began = time.process_time()
    shown = "".join(span.text for piece in pieces for span in markdown.feed(piece, WIDTH))
    assert len("".join(shown.split())) > 0.8 * len("".join("".join(pieces).split()))
    # Work that grows with the square would take minutes.
    assert time.process_time() - began < 20


@given(
    st.text("ab漢*_`[]()\\#->|. 1\n~", max_size=80),
    st.lists(st.integers(0, 80), max_size=6),
)
def test_the_cuts_of_a_stream_change_nothing(text: str, cuts: list[int]) -> None:
    assert rendered(text, *cuts) == rendered(text)


@given(st.text("ab漢-> \n", max_size=200), st.integers(20, 40))
def test_only_spaces_are_replaced_by_line_feeds(text: str, width: int) -> None:
    whole = "".join(piece.text for piece in rendered(text, width=1_000))
    broken = "".join(piece.text for piece in rendered(text, width=width))
    assert "".join(broken.split()) == "".join(whole.split())


@given(st.text("ab漢*_`[]()\\#->|. \n", max_size=80))
def test_only_marks_disappear(text: str) -> None:
    """Every letter is shown, in its order, and every line feed is outside of styles."""
    kept = [char for char in text if char in "ab漢\n"]
    pieces = rendered(text, width=1_000)
    assert [c for piece in pieces for c in piece.text if c in "ab漢\n"] == kept or "|" in text
    assert all("\n" not in piece.text for piece in pieces if piece.style != "plain")
