"""What is found in a user's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.upstream.rehearsal.words import MAX_TEXT, read_words, split_name, stems


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Weather in Paris and Tokyo?", ("Paris", "Tokyo")),
        ("What is the weather in New York?", ("New York",)),
        ("Compare Paris with Rome. I like The Hague.", ("Paris", "Rome", "Hague")),
        ("paris weather", ()),
        ("weather for london", ("london",)),
        ("Weather", ("Weather",)),
        ("Say 'hello world' to “Åsa”, «Zoé» and `x`", ("hello world", "Åsa", "Zoé", "x")),
        ("don't say it's John's", ("John's",)),
        ("In Rome", ("Rome",)),
        ("(Paris)", ("Paris",)),
        ("", ()),
    ],
)
def test_names(text: str, names: tuple[str, ...]) -> None:
    assert read_words(text).names == names


def test_numbers_dates_addresses_and_paths() -> None:
    words = read_words(
        "At 3.5 or -2 on 2026-03-04, v1.2.3, see https://a.example/b?c=1, src/x.py, README.md, /etc/hosts. e.g. 7"
    )
    assert words.numbers == (3.5, -2.0, 7.0)
    assert words.dates == ("2026-03-04",)
    assert words.urls == ("https://a.example/b?c=1",)
    assert {"src/x.py", "README.md", "/etc/hosts"} <= set(words.paths)
    assert "see" not in words.paths


def test_names_of_tools_are_split_and_lose_their_plural() -> None:
    assert split_name("getWeather_forCities") == ["get", "weather", "for", "city"]
    assert split_name("list-boxes of glass") == ["list", "boxe", "of", "glass"]
    assert stems("What is the weather of cities?") == {"weather", "city"}


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    assert read_words("x " * MAX_TEXT + '"late"').names == ()


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    words = read_words(text)
    assert words.text == text
    assert all(name in text for name in words.names)
