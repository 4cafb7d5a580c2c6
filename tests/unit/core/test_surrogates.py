"""Halves of characters are joined wherever they were cut, and never leave alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.surrogates import join_halves, replace_lone

HIGH, LOW, WHOLE = "\ud83d", "\ude00", "\U0001f600"


def reference(text: str) -> str:
    """Unit by unit: a first half and a second half are a character, any other half is U+FFFD."""
    out: list[str] = []
    index = 0
    while index < len(text):
        unit = ord(text[index])
        after = ord(text[index + 1]) if index + 1 < len(text) else 0
        if 0xD800 <= unit <= 0xDBFF and 0xDC00 <= after <= 0xDFFF:
            out.append(chr(0x10000 + ((unit - 0xD800) << 10) + (after - 0xDC00)))
            index += 2
            continue
        out.append("\ufffd" if 0xD800 <= unit <= 0xDFFF else text[index])
        index += 1
    return "".join(out)


def halves() -> st.SearchStrategy[str]:
    units = st.sampled_from([HIGH, LOW, WHOLE, "a", "é", "\udbff", "\udfff", "\ud800", "\udc00"])
    return st.text(units, max_size=12)


@given(halves())
def test_lone_halves_are_replaced_and_pairs_are_characters(text: str) -> None:
    assert replace_lone(text) == reference(text)


@given(st.lists(halves(), max_size=6))
def test_the_cut_between_deltas_changes_nothing(pieces: list[str]) -> None:
    emitted: list[str] = []
    held = ""
    for piece in pieces:
        text, held = join_halves(held, piece)
        emitted.append(text)
        text.encode("utf-8")
    emitted.append(replace_lone(held))
    assert "".join(emitted) == reference("".join(pieces))


@pytest.mark.parametrize(
    ("held", "text", "expected"),
    [
        ("", "plain", ("plain", "")),
        ("", "", ("", "")),
        (HIGH, "", ("", HIGH)),
        ("", "a" + HIGH, ("a", HIGH)),
        (HIGH, LOW + "b", (WHOLE + "b", "")),
        (HIGH, "b", ("\ufffdb", "")),
        (HIGH, HIGH, ("\ufffd", HIGH)),
        ("", LOW, ("\ufffd", "")),
    ],
)
def test_a_first_half_at_the_end_waits_for_its_partner(
    held: str, text: str, expected: tuple[str, str]
) -> None:
    assert join_halves(held, text) == expected


def test_text_without_halves_is_returned_itself() -> None:
    text = "no halves here, " + WHOLE
    assert replace_lone(text) is text


@pytest.mark.parametrize("before", range(65_530, 65_542))
@pytest.mark.parametrize(
    "middle", [HIGH + LOW, HIGH + HIGH + LOW, LOW + HIGH, HIGH + "x", HIGH + LOW + LOW]
)
def test_a_long_text_is_mended_as_a_short_one_is_wherever_it_is_cut(
    before: int, middle: str
) -> None:
    start, end = "x" * before, "y" * 10
    assert replace_lone(start + middle + end) == start + replace_lone(middle) + end
