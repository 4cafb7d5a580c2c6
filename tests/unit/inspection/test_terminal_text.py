"""Text that is safe to show on a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.inspection.terminal_text import cells, excerpt, pad, visible, visible_line


def test_escape_sequences_are_shown_instead_of_sent() -> None:
    assert visible("\x1b[31mred\x1b[0m\x07") == "\\x1b[31mred\\x1b[0m\\x07"


def test_eight_bit_controls_and_delete_are_shown() -> None:
    assert visible("\x9b31m\x7f\x85") == "\\x9b31m\\x7f\\x85"


def test_direction_overrides_and_invisible_tags_are_shown() -> None:
    assert visible("\u202egnp\u2066\U000e0041\ufeff") == "\\u202egnp\\u2066\\U000e0041\\ufeff"


def test_lone_surrogates_are_shown() -> None:
    assert visible("a\ud83db") == "a\\ud83db"


def test_lines_stay_lines_and_tabs_become_spaces() -> None:
    assert visible("a\r\nb\n\tc") == "a\nb\n    c"


def test_a_lone_carriage_return_cannot_overwrite_its_line() -> None:
    assert visible("good\rbad") == "good\\rbad"


def test_one_line_stays_one_line() -> None:
    assert visible_line("a\r\n\tb\x1b") == "a\\r\\n\\tb\\x1b"


def test_ordinary_text_is_untouched() -> None:
    text = "naïve 漢字 👩\u200d💻 é"
    assert visible(text) == text
    assert visible_line(text) == text


@given(st.text(st.characters(exclude_categories=())))
def test_no_control_character_survives(text: str) -> None:
    for shown in (visible(text).replace("\n", ""), visible_line(text)):
        assert not any(
            ord(character) < 32
            or 0x7F <= ord(character) < 0xA0
            or 0xD800 <= ord(character) < 0xE000
            for character in shown
        )


def test_wide_and_combining_characters_are_measured_in_cells() -> None:
    assert cells("abc") == 3
    assert cells("漢字") == 4
    assert cells("e\u0301") == 1
    assert cells("👩\u200d💻") == 4


def test_padding_counts_cells_not_characters() -> None:
    assert pad("漢", 4) == "漢  "
    assert pad("long", 2) == "long"


def test_an_excerpt_wraps_at_spaces() -> None:
    assert excerpt("one two three four", 10, 5).lines == ("one two ", "three four")


def test_an_excerpt_without_spaces_is_cut_at_the_width() -> None:
    found = excerpt("x" * 25, 10, 5)
    assert found.lines == ("x" * 10, "x" * 10, "x" * 5)
    assert not found.is_cut


def test_an_excerpt_wraps_wide_characters_by_cells() -> None:
    assert excerpt("漢字漢字漢", 4, 5).lines == ("漢字", "漢字", "漢")


def test_an_excerpt_keeps_the_texts_own_lines() -> None:
    assert excerpt("a\n\nb", 10, 5).lines == ("a", "", "b")


def test_an_excerpt_says_that_it_is_cut() -> None:
    found = excerpt("a\nb\nc\nd", 10, 2)
    assert found.lines == ("a", "b")
    assert found.is_cut


def test_an_excerpt_of_a_huge_text_looks_at_its_head_only() -> None:
    found = excerpt("y" * 50_000_000, 10, 3)
    assert found.lines == ("y" * 10,) * 3
    assert found.is_cut


def test_an_excerpt_narrower_than_a_wide_character_still_ends() -> None:
    assert excerpt("漢字", 1, 5).lines == ("漢", "字")


@given(st.text(max_size=200), st.integers(1, 30))
def test_an_excerpt_that_is_not_cut_holds_the_whole_text(text: str, width: int) -> None:
    found = excerpt(text, width, 10_000)
    assert not found.is_cut
    assert "".join(found.lines) == visible(text).replace("\n", "")
