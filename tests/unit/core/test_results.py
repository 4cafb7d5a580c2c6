"""The error mark goes on and comes off."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.results import ERROR_MARK, mark_error, unmark_error


@given(st.text() | st.text().map(mark_error))
def test_a_marked_text_comes_back_as_it_was(text: str) -> None:
    """M100"""
    assert unmark_error(mark_error(text)) == (text, True)


@given(st.text().filter(lambda text: not text.startswith(ERROR_MARK)))
def test_a_text_without_the_mark_is_no_error(text: str) -> None:
    assert unmark_error(text) == (text, False)
