"""What a result of the protocol becomes, where no server is needed to see it."""

import asyncio
from base64 import b64encode

import pytest
from mcp import types

from dragoman._json import loads
from dragoman.engine.mcp.session import MAX_REPORTS, ProgressReporter, progress_text
from dragoman.engine.mcp.tools import MAX_MEDIA, MAX_TEXT, output_from_result
from dragoman.errors import ToolError
from dragoman.model.parts import Media, Text

PNG = b64encode(b"\x89PNG\r\n\x1a\n....").decode()


def blob(uri: str, media_type: str | None, data: str) -> types.CallToolResult:
    held = types.BlobResourceContents(uri=uri, mime_type=media_type, blob=data)
    return types.CallToolResult(content=[types.EmbeddedResource(resource=held)])


def texts(*each: str) -> list[types.ContentBlock]:
    return [types.TextContent(text=text) for text in each]


def test_bound_on_text_holds_for_all_parts_together() -> None:
    output = output_from_result(
        types.CallToolResult(content=texts("a" * (MAX_TEXT - 1), "bbb", "c"))
    )
    assert output.content[1:] == (
        Text(text="b\n[2 more characters are left out]"),
        Text(text="\n[1 more characters are left out]"),
    )


def test_bound_on_pictures_holds_for_all_of_them_together() -> None:
    half = PNG + "AAAA" * (MAX_MEDIA // 8 - 8)
    picture = types.ImageContent(data=half, mime_type="image/png")
    output = output_from_result(types.CallToolResult(content=[picture] * 3))
    assert [type(part) for part in output.content] == [Media, Media, Text]


def test_structure_that_is_too_large_is_only_text_that_is_cut() -> None:
    result = types.CallToolResult(content=[], structured_content={"a": "x" * MAX_TEXT})
    output = output_from_result(result)
    assert output.structured is None
    (part,) = output.content
    assert isinstance(part, Text)
    assert part.text.endswith("more characters are left out]")


def test_structure_keeps_the_order_and_the_numbers_it_came_with() -> None:
    structure: dict[str, object] = {"z": 1, "a": [1.5, 2**70, None, True], "é": "\u2028"}
    output = output_from_result(
        types.CallToolResult(content=texts("x"), structured_content=structure)
    )
    assert output.structured is not None
    read = loads(bytes(output.structured))
    assert list(read) == ["z", "a", "é"]
    assert read == structure


@pytest.mark.parametrize(
    ("uri", "media_type", "media"),
    [
        ("file:///a/b.png", "image/png", Media(kind="image", media_type="image/png", data=PNG)),
        ("file:///a.wav", "audio/wav", Media(kind="audio", media_type="audio/wav", data="AAAA")),
        (
            "file:///a/b.pdf",
            "application/pdf",
            Media(kind="file", media_type="application/pdf", data="AAAA", filename="b.pdf"),
        ),
        (
            "memo:1",
            None,
            Media(
                kind="file", media_type="application/octet-stream", data="AAAA", filename="memo:1"
            ),
        ),
    ],
)
def test_embedded_bytes_are_media_of_their_kind(
    uri: str, media_type: str | None, media: Media
) -> None:
    assert media.data is not None
    assert output_from_result(blob(uri, media_type, media.data)).content == (media,)


def test_picture_is_of_the_type_that_its_bytes_have() -> None:
    picture = types.ImageContent(data=PNG, mime_type="image/jpeg")
    output = output_from_result(types.CallToolResult(content=[picture]))
    assert output.content == (Media(kind="image", media_type="image/png", data=PNG),)


def test_picture_of_a_type_that_models_do_not_take_is_left_out() -> None:
    picture = types.ImageContent(data="PHN2Zy8+", mime_type="image/svg+xml")
    (part,) = output_from_result(types.CallToolResult(content=[picture])).content
    assert isinstance(part, Text)
    assert "image/svg+xml is left out" in part.text


@pytest.mark.parametrize(("data", "media_type"), [("A", "image/png"), ("é", "a/b"), ("AAAA", "")])
def test_bytes_that_no_provider_would_take_are_an_error(data: str, media_type: str) -> None:
    with pytest.raises(ToolError, match="it sent"):
        output_from_result(
            types.CallToolResult(content=[types.ImageContent(data=data, mime_type=media_type)])
        )


def test_link_shows_all_that_is_known_of_it() -> None:
    link = types.ResourceLink(
        name="n", title="Plan", uri="file:///p", description="how it is done", size=3
    )
    output = output_from_result(types.CallToolResult(content=[link], is_error=True))
    assert output.content == (Text(text="Plan: file:///p (3 bytes)\nhow it is done"),)
    assert output.is_error


@pytest.mark.parametrize(
    ("progress", "total", "message", "text"),
    [
        (1, None, None, "1"),
        (0.5, 1, None, "0.5/1"),
        (2, 10, "two\n of  ten", "two of ten (2/10)"),
        (1, None, "x" * 500, "x" * 200 + " (1)"),
    ],
)
def test_progress_is_one_short_line(
    progress: float, total: float | None, message: str | None, text: str
) -> None:
    assert progress_text(progress, total, message) == text


def test_progress_ends_with_its_call_and_has_a_bound() -> None:
    lines: list[str] = []

    async def main() -> None:
        endless, closed = ProgressReporter(lines.append), ProgressReporter(lines.append)
        for _ in range(MAX_REPORTS + 5):
            await endless.report(1, None, None)
        closed.close()
        await closed.report(1, None, None)

    asyncio.run(main())
    assert len(lines) == MAX_REPORTS
