"""`read`, `write` and `edit` on real files: what they show, what they change, and what they say when they cannot."""

import asyncio
import stat
from pathlib import Path

import pytest

from dragoman.engine.builtin import Root, edit_tool, read_tool, write_tool
from dragoman.engine.builtin.root import MAX_FILE
from dragoman.engine.tools import Invocation
from dragoman.engine.validation import check_arguments
from dragoman.errors import ToolError
from dragoman.model.parts import Call, Media
from running_tools import call_of, error_of, run_tool, said

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_reading_numbers_the_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\r\nthree", encoding="utf-8")
    text = said(run_tool(read_tool(Root(tmp_path)), path="a.txt"))
    assert text == "     1\tone\n     2\ttwo\n     3\tthree"


def test_reading_a_range_says_where_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(1, 11)), encoding="utf-8")
    text = said(run_tool(read_tool(Root(tmp_path)), path="a.txt", offset=3, limit=2))
    assert text == "     3\tline 3\n     4\tline 4\n(6 more lines; read on with offset 5)"


def test_reading_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_text("x" * 100_000 + "\n", encoding="utf-8")
    (tmp_path / "long.txt").write_text("word " * 20 + "\n", encoding="utf-8")
    (tmp_path / "long.txt").write_text(("word " * 20 + "\n") * 5000, encoding="utf-8")
    read = read_tool(Root(tmp_path))
    assert "100,000 characters" in said(run_tool(read, path="wide.txt"))
    text = said(run_tool(read, path="long.txt", limit=5000))
    assert len(text) < 64_000
    assert "read on with offset" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "none"}, "does not exist"),
        ({"path": "folder"}, "a folder, expected a file"),
        ({"path": "binary"}, "binary file of 4 bytes"),
        ({"path": "text", "offset": 9}, "has 2 lines; there is no line 9"),
        ({"path": "text", "offset": 0}, "at least 1"),
        ({"path": "text", "limit": -1}, "at least 1"),
        ({"path": "large"}, "expected at most"),
        ({"path": "text", "lines": 3}, "lines"),
        ({"path": 3}, "path"),
        ({}, "path"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_reported(
    tmp_path: Path, arguments: dict[str, object], words: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"a\0bc")
    (tmp_path / "text").write_text("a\nb\n", encoding="utf-8")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    assert words in error_of(read_tool(Root(tmp_path)), **arguments)


def test_a_picture_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(PNG)
    (part,) = run_tool(read_tool(Root(tmp_path)), path="a.bin").content
    assert isinstance(part, Media)
    assert part.media_type == "image/png"


def test_an_empty_file_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert said(run_tool(read_tool(Root(tmp_path)), path="a")) == "(a is empty)"


def test_bytes_that_are_no_utf8_are_read_nevertheless(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9\n")
    assert "caf\ufffd" in said(run_tool(read_tool(Root(tmp_path)), path="a"))


def test_writing_puts_the_whole_file_there(tmp_path: Path) -> None:
    write = write_tool(Root(tmp_path))
    assert said(run_tool(write, path="a/b.txt", content="ä\n")) == "created a/b.txt (3 bytes)"
    assert said(run_tool(write, path="a/b.txt", content="")) == "replaced a/b.txt (0 bytes)"
    assert (tmp_path / "a/b.txt").read_bytes() == b""


@pytest.mark.parametrize("path", ["../x", "/etc/x", "", "a\0", "folder"])
def test_what_cannot_be_written_is_reported(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    assert error_of(write_tool(Root(tmp_path)), path=path, content="x")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_half_a_surrogate_is_not_written(tmp_path: Path) -> None:
    write = write_tool(Root(tmp_path))
    call = Call(call_id="c", name="write", input='{"path":"a","content":"x\\ud800"}')
    with pytest.raises(ToolError):
        asyncio.run(write.run(Invocation(call, lambda _: None)))
    assert not (tmp_path / "a").exists()


def test_a_cancelled_write_has_happened_or_has_not(tmp_path: Path) -> None:
    write = write_tool(Root(tmp_path))
    (tmp_path / "a").write_text("old", encoding="utf-8")
    call = call_of(write, '{"path":"a","content":"new"}')

    async def go() -> None:
        task = asyncio.ensure_future(write.run(Invocation(call, lambda _: None)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(20):
        asyncio.run(go())
        assert (tmp_path / "a").read_text(encoding="utf-8") in ("old", "new")
        assert [each.name for each in tmp_path.iterdir()] == ["a"]


def edited(tmp_path: Path, before: bytes, **arguments: object) -> bytes:
    (tmp_path / "a").write_bytes(before)
    run_tool(edit_tool(Root(tmp_path)), path="a", **arguments)
    return (tmp_path / "a").read_bytes()


def test_an_edit_replaces_exactly_its_piece(tmp_path: Path) -> None:
    assert edited(tmp_path, b"a b c\n", old_string="b", new_string="\\1 $&") == b"a \\1 $& c\n"
    assert edited(tmp_path, b"x x\n", old_string="x", new_string="", replace_all=True) == b" \n"
    assert (
        edited(tmp_path, b"one\r\ntwo\r\n", old_string="one\ntwo", new_string="1\n2")
        == b"1\r\n2\r\n"
    )
    assert (
        edited(tmp_path, b"\xef\xbb\xbfa\n", old_string="a", new_string="b") == b"\xef\xbb\xbfb\n"
    )


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\r\ntwo\r\n", "two", "2\n3", b"one\r\n2\r\n3\r\n"),
        (b"one\r\ntwo\r\n", "one\ntwo", "1\r\n2", b"1\r\n2\r\n"),
        (b"one\r\ntwo\r\n", "one\r\ntwo", "1\n2", b"1\n2\r\n"),
        (b"one\ntwo\r\n", "two", "2\n3", b"one\n2\n3\r\n"),
    ],
)
def test_an_edit_ends_lines_as_the_file_does(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    assert edited(tmp_path, before, old_string=old, new_string=new) == after


def test_an_edit_keeps_the_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").chmod(0o755)
    run_tool(edit_tool(Root(tmp_path)), path="a", old_string="x", new_string="y")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ("again", "occurs 3 times in a (lines 1, 2, 4)"),
        ("none", "was not found in a, and neither was its first line"),
        ("\tindented", "its first line is like line 3"),
        ("", "expected old_string"),
        ("same", "nothing to change"),
        ("\n\n\n", "was not found"),
    ],
)
def test_an_edit_that_is_not_clear_says_why(tmp_path: Path, old: str, words: str) -> None:
    text = "again\nagain\n    indented\nagain\n"
    (tmp_path / "a").write_text(text, encoding="utf-8")
    assert words in error_of(edit_tool(Root(tmp_path)), path="a", old_string=old, new_string="same")
    assert (tmp_path / "a").read_text(encoding="utf-8") == text


def test_an_edit_of_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9 x")
    edit = edit_tool(Root(tmp_path))
    assert "not UTF-8" in error_of(edit, path="a", old_string="x", new_string="y")


def test_only_reading_is_parallel(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert read_tool(root).offer.is_parallel
    assert not write_tool(root).offer.is_parallel
    assert not edit_tool(root).offer.is_parallel


def test_the_schemas_say_what_each_argument_is(tmp_path: Path) -> None:
    declaration = read_tool(Root(tmp_path)).offer.declaration
    schema = bytes(declaration.schema or b"").decode()
    assert "relative to the working folder" in schema
    assert '"default":2000' in schema
    assert check_arguments(declaration, '{"path":"a","offset":2}') is None
    assert check_arguments(declaration, '{"offset":2}') is not None
