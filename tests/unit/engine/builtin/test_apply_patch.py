"""Patches: read, applied to real files, all or none, and refused in words that help to write a better one."""

import stat
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.engine.builtin import Root, apply_patch_tool, freeform_patch_tool
from dragoman.engine.builtin.apply_patch import PatchChunk, apply_chunks, read_patch
from dragoman.errors import ToolError
from running_tools import call_of, error_of, run_tool, said

CODE = """\
class Greeter:
    def greet(self):
        return "hi"

    def leave(self):
        return "bye"
"""


def patch(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_bytes().decode()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "gone.txt").write_text("gone\n", encoding="utf-8")
    return tmp_path


def test_files_are_added_updated_moved_and_deleted_at_once(root: Path) -> None:
    text = patch(
        "*** Add File: new/notes.txt",
        "+first",
        "+",
        "+third",
        "*** Delete File: gone.txt",
        "*** Update File: code.py",
        "*** Move to: src/code.py",
        "@@ class Greeter:",
        "@@     def leave(self):",
        '-        return "bye"',
        '+        return "good bye"',
    )
    answer = said(run_tool(apply_patch_tool(Root(root)), input=text))
    assert answer.splitlines() == [
        "added new/notes.txt", "deleted gone.txt", "updated code.py and moved it to src/code.py",
    ]  # fmt: skip
    assert files(root) == {
        "new/notes.txt": "first\n\nthird\n",
        "src/code.py": CODE.replace('"bye"', '"good bye"'),
    }


def test_the_freeform_tool_takes_the_patch_itself(root: Path) -> None:
    tool = freeform_patch_tool(Root(root))
    assert tool.offer.declaration.kind == "custom"
    assert tool.offer.declaration.grammar is not None
    assert tool.offer.declaration.grammar.syntax == "lark"
    run_tool(tool, input=patch("*** Delete File: gone.txt"))
    assert "gone.txt" not in files(root)


def test_what_a_patch_is_about_are_all_its_paths(root: Path) -> None:
    (root / "link").symlink_to("code.py")
    tool = freeform_patch_tool(Root(root))
    text = patch("*** Update File: link", "*** Move to: b.py", "@@", "-class Greeter:", "+class G:")
    subjects = tool.subjects(call_of(tool, text))
    assert [subject.text for subject in subjects] == ["link", "code.py", "b.py"]


BROKEN = [
    ("nothing", "first line"),
    ("", "first line"),
    ("*** Begin Patch", "last line"),
    ("*** Begin Patch\n*** Add File: a\n+x", "last line"),
    (patch(), "changes nothing"),
    (patch("*** Rename File: a"), "line 2 of the patch"),
    (patch("*** Add File: "), "line 2 of the patch"),
    (patch("*** Add File: a", "x"), "line 3 of the patch: expected '+'"),
    (patch("*** Update File: code.py"), "expected changes of code.py"),
    (patch("*** Update File: code.py", "@@", "*bad"), "line 4 of the patch"),
    (patch("*** Update File: code.py", "@@", "-not there", "+x"), "not found after line 0"),
    (patch("*** Update File: code.py", "@@ def nowhere", "+x"), "no line reads 'def nowhere'"),
    (patch("*** Update File: none.py", "@@", "-x", "+y"), "does not exist"),
    (patch("*** Delete File: none.py"), "does not exist"),
    (patch("*** Add File: code.py", "+x"), "exists already"),
    (patch("*** Update File: code.py", "*** Move to: gone.txt", "@@", "-class Greeter:", "+x"), "exists already"),
    (patch("*** Add File: ../out.txt", "+x"), "leads out"),
    (patch("*** Add File: /etc/out.txt", "+x"), "outside"),
    (patch("*** Update File: code.py", "*** Move to: ../out.py", "@@", "-class Greeter:", "+x"), "leads out"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), BROKEN)
def test_a_patch_that_cannot_be_applied_changes_nothing(root: Path, text: str, words: str) -> None:
    before = files(root)
    # A sound change first: it must not be made either.
    whole = text.replace("*** Begin Patch\n", "*** Begin Patch\n*** Add File: sound.txt\n+x\n", 1)
    tool = apply_patch_tool(Root(root))
    assert words in error_of(tool, input=text)
    if "changes nothing" not in words:
        assert error_of(tool, input=whole)
    assert files(root) == before


def test_a_write_that_fails_puts_the_others_back(root: Path) -> None:
    (root / "gone.txt").chmod(0o755)
    (root / "blocker").write_text("a file where a folder is needed\n", encoding="utf-8")
    before = files(root)
    text = patch(
        "*** Update File: code.py",
        "@@",
        "-class Greeter:",
        "+class G:",
        "*** Delete File: gone.txt",
        "*** Add File: other/new.txt",
        "+x",
        "*** Add File: other/new.txt/below.txt",
        "+x",
    )
    assert error_of(apply_patch_tool(Root(root)), input=text)
    assert files(root) == before
    assert stat.S_IMODE((root / "gone.txt").stat().st_mode) == 0o755


def test_a_moved_file_keeps_its_permissions(root: Path) -> None:
    (root / "code.py").chmod(0o755)
    text = patch(
        "*** Update File: code.py", "*** Move to: run.py", "@@", "-class Greeter:", "+class G:"
    )
    run_tool(apply_patch_tool(Root(root)), input=text)
    assert stat.S_IMODE((root / "run.py").stat().st_mode) == 0o755


def test_a_move_alone_is_a_patch(root: Path) -> None:
    run_tool(
        apply_patch_tool(Root(root)), input=patch("*** Update File: code.py", "*** Move to: c.py")
    )
    assert files(root) == {"c.py": CODE, "gone.txt": "gone\n"}


def applied(text: str, *lines: str) -> str:
    (operation,) = read_patch(patch("*** Update File: f", *lines))
    return apply_chunks(text, operation.chunks, "f")


def test_chunks_follow_one_another() -> None:
    assert applied("a\nb\na\nb\n", "@@", " a", "-b", "+1", "@@", " a", "-b", "+2") == "a\n1\na\n2\n"


def test_the_first_chunk_needs_no_sign() -> None:
    assert applied("a\nb\n", "-a", "+c") == "c\nb\n"


def test_lines_are_found_despite_white_space_and_typography() -> None:
    assert applied("a  \nb\n", "@@", "-a", "+c") == "c\nb\n"
    assert applied("    a\nb\n", "@@", " a", "-b", "+c") == "    a\nc\n"
    assert applied("it\u2019s \u2014 so\n", "@@", "-it's - so", "+x") == "x\n"


def test_an_exact_place_is_preferred() -> None:
    assert applied(" a\na\n", "@@", "-a", "+c") == " a\nc\n"


def test_the_end_of_the_file_is_looked_at_first_where_it_is_named() -> None:
    assert applied("a\nb\na\n", "@@", "-a", "+c", "*** End of File") == "a\nb\nc\n"


def test_a_kept_line_that_reads_like_the_mark_of_the_end_is_a_kept_line() -> None:
    text = "x\n*** End of File\nx\n"
    assert applied(text, " *** End of File", "-x", "+c") == "x\n*** End of File\nc\n"


def test_lines_without_a_place_are_added_at_the_end_or_after_their_heading() -> None:
    assert applied("a\nb\n", "@@", "+c") == "a\nb\nc\n"
    assert applied("a\nb\n", "@@ a", "+c") == "a\nc\nb\n"


def test_the_ends_of_lines_are_kept() -> None:
    assert applied("a\r\nb\r\n", "@@", " a", "-b", "+c") == "a\r\nc\r\n"


def test_an_empty_line_of_a_patch_is_an_empty_line() -> None:
    assert applied("a\n\nb\n", "@@", " a", "", "-b", "+c") == "a\n\nc\n"


def test_a_patch_wrapped_as_for_a_shell_is_taken() -> None:
    (operation,) = read_patch(f"<<'EOF'\n{patch('*** Delete File: x')}\nEOF\n")
    assert operation.path == "x"


def test_a_file_that_was_empty_gets_its_lines() -> None:
    assert applied("", "@@", "+a") == "a\n"


def test_a_patch_that_fits_too_often_is_refused_in_time() -> None:
    began = time.process_time()
    chunk = PatchChunk([], [*[("-", "x")] * 5000, ("-", "y")])
    with pytest.raises(ToolError, match="too many places"):
        apply_chunks("x\n" * 200_000, [chunk], "f")
    assert time.process_time() - began < 10


def test_a_patch_that_is_too_large_is_refused() -> None:
    with pytest.raises(ToolError, match="at most"):
        read_patch("x" * 5_000_000)
    with pytest.raises(ToolError, match="at most 500 files"):
        read_patch(patch(*(f"*** Delete File: f{n}" for n in range(600))))


texts = st.lists(st.sampled_from(["a", "b", "", " c", "d "]), max_size=12)


@settings(max_examples=300, deadline=None)
@given(texts, st.data())
def test_a_patch_made_from_two_texts_makes_the_one_of_the_other(
    before: list[str], data: st.DataObject
) -> None:
    lines: list[tuple[str, str]] = []
    for line in before:
        sign = data.draw(st.sampled_from(" -+"))
        lines += [("+", "new"), (" ", line)] if sign == "+" else [(sign, line)]
    after = [text for sign, text in lines if sign != "-"]
    text = "".join(f"{line}\n" for line in before)
    if not lines:
        return
    assert apply_chunks(text, [PatchChunk([], lines)], "f") == "".join(
        f"{line}\n" for line in after
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["*** Add File: a", "*** Update File: b", "*** Delete File: c", "@@", "@@ x", "+x", "-x",
                                 " x", "", "*** End of File", "*** Move to: d", "junk", "*** Begin Patch", "*** End Patch"])))  # fmt: skip
def test_any_lines_are_a_patch_or_an_error(lines: list[str]) -> None:
    try:
        operations = read_patch(patch(*lines))
    except ToolError:
        return
    assert operations
