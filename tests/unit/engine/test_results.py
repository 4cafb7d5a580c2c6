"""What goes back to the model of what a tool gave."""

from typing import cast

import pytest

from dragoman._json import Raw
from dragoman.engine.results import MAX_PARTS, check_output, cut_text, fit_content
from dragoman.engine.tools import Output, text_output
from dragoman.errors import ToolError
from dragoman.model.parts import Media, Opaque, Reasoning, Text


def lie(value: object) -> tuple[Text, ...]:
    return cast("tuple[Text, ...]", value)


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (None, "NoneType"),
        ("text", "str"),
        (Output(content=lie([Text()])), "content as list"),
        (Output(content=lie(("text",))), "str as content"),
        (Output(content=lie((Reasoning(),))), "Reasoning as content"),
        (Output(content=(Text(text=cast("str", 5)),)), "int as text"),
    ],
)
def test_what_is_no_output_is_said_to_be_none(value: object, came: str) -> None:
    with pytest.raises(ToolError, match=f"it returned {came}"):
        check_output("work", value)


def test_output_passes() -> None:
    output = Output(
        content=(
            Text(text="a"),
            Media(kind="image"),
            Opaque(dialect="chat", type="x", raw=Raw(b"{}")),
        )
    )
    assert check_output("work", output) is output


def fit(output: Output, characters: int = 10, media: int = 10) -> tuple[object, ...]:
    return fit_content(output, max_characters=characters, max_media=media)


def test_what_fits_is_not_touched() -> None:
    output = text_output("0123456789")
    assert fit(output) == output.content


def test_middle_is_left_out_and_counted() -> None:
    assert cut_text("0123456789abc", 5) == "012\n[… 8 characters left out …]\nbc"
    assert cut_text("0123456789", 10) == "0123456789"
    assert cut_text("0123456789", 0) == "\n[… 10 characters left out …]\n"


def test_several_texts_share_the_room_by_their_length() -> None:
    output = Output(content=(Text(text="a" * 30), Text(text="b" * 10)))
    first, second = fit(output, characters=8)
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert first.text == "aaa\n[… 24 characters left out …]\naaa"
    assert second.text == "b\n[… 8 characters left out …]\nb"


def test_large_media_are_left_out_with_a_note() -> None:
    small = Media(kind="image", data="1234")
    output = Output(
        content=(small, Media(kind="image", data="x" * 11), Media(kind="file", url="y" * 20))
    )
    assert fit(output, characters=1000) == (
        small,
        Text(text="[image of 11 characters left out: too large]"),
        Text(text="[file of 20 characters left out: too large]"),
    )


def test_opaque_content_counts_and_is_left_out_where_there_is_no_room() -> None:
    opaque = Opaque(
        dialect="messages", type="search_result", raw=Raw(b'{"a":"' + b"x" * 20 + b'"}')
    )
    media = Media(kind="image", data="1")
    assert fit(Output(content=(opaque, media)), characters=100) == (opaque, media)
    assert fit(Output(content=(opaque, media))) == (
        Text(text="[search_result of 28 characters left out: too large]"),
        media,
    )


def test_flood_of_pieces_is_cut() -> None:
    output = Output(content=(Text(text="a"),) * (MAX_PARTS + 3))
    fitted = fit(output, characters=10_000)
    assert fitted[:MAX_PARTS] == output.content[:MAX_PARTS]
    assert fitted[MAX_PARTS:] == (Text(text="[… 3 more parts left out …]"),)


def test_what_is_only_structured_goes_back_as_its_json() -> None:
    assert fit(Output(structured=Raw(b'{"a":1}'))) == (Text(text='{"a":1}'),)
    both = Output(content=(Text(text="one"),), structured=Raw(b'{"a":1}'))
    assert fit(both) == (Text(text="one"),)
    assert fit(Output()) == ()
