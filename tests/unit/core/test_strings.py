"""The inside of a JSON string says the same, whole and in pieces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.strings import StringReader


def read_all(source: str, cuts: int) -> tuple[str, bool, str]:
    """The text of a source without its opening quote, fed `cuts` characters at a time; closed; what follows."""
    reader = StringReader()
    told: list[str] = []
    for start in range(0, len(source), cuts):
        piece = source[start : start + cuts]
        text, index, closed = reader.read(piece, 0)
        told.append(text)
        if closed:
            return "".join(told), True, source[start + index :]
    told.append(reader.end())
    return "".join(told), False, ""


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
