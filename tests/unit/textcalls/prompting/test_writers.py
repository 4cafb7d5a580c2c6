"""JSON values in other spellings."""

import ast
import json

import pytest
from hypothesis import given

from dragoman._json import Raw
from dragoman.textcalls.prompting.writers import marked_literal, python_literal, text_value
from part_strategies import json_values


@given(json_values())
def test_a_python_literal_is_the_value(value: object) -> None:
    for is_ascii in (True, False):
        text = json.dumps(value, ensure_ascii=is_ascii)
        assert (
            ast.literal_eval(python_literal(Raw(text.encode("utf-8", "backslashreplace")))) == value
        )


def test_numbers_keep_their_spelling() -> None:
    source = Raw(b"[1.50, 1e400, 123456789012345678901234567890, -0.0]")
    assert python_literal(source) == "[1.50, 1e400, 123456789012345678901234567890, -0.0]"


def test_words_of_json_inside_strings_are_not_touched() -> None:
    assert python_literal(Raw(b'{"null": "true and false", "a": null}')) == (
        '{"null": "true and false", "a": None}'
    )


def test_escapes_that_python_does_not_know_are_written_anew() -> None:
    assert python_literal(Raw(rb'"a\/b \ud83d\ude00 \n"')) == '"a/b 😀 \\n"'


@pytest.mark.parametrize(
    ("source", "text"),
    [(b'"a\\nb"', "a\nb"), (b"1.50", "1.50"), (b'{"a": 1}', '{"a": 1}'), (b"null", "null")],
)
def test_a_tag_holds_the_text_of_a_string_and_the_json_of_anything_else(
    source: bytes, text: str
) -> None:
    assert text_value(Raw(source)) == text


def test_strings_stand_between_marks_and_keys_are_bare() -> None:
    doubts: list[str] = []
    source = Raw(b'{ "a" : "x", "b": [true, {"c": "y"}] }')
    assert marked_literal(source, "|", doubts.append) == "{a:|x|,b:[true,{c:|y|}]}"
    assert not doubts


def test_what_marks_and_bare_keys_cannot_say_is_doubtful() -> None:
    doubts: list[str] = []
    marked_literal(Raw(b'{"a b": "x|y", "": 1}'), "|", doubts.append)
    assert len(doubts) == 3
