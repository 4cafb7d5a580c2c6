"""`glob` and `grep` on real trees: what they find, what they pass over, and that nothing makes them hang or leak."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from dragoman.engine.builtin import Root, glob_tool, grep_tool, search
from dragoman.engine.builtin.search import Walk, read_ignore_rules
from dragoman.engine.tools import Invocation
from running_tools import call_of, error_of, open_files, processes_with, run_tool, said


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path, text in {
        "main.py": "import os\nprint('Hello')\n",
        "src/a.py": "def alpha():\n    return 1\n",
        "src/b.js": "function beta() {}\n",
        "src/deep/c.py": "alpha = 2\n",
        ".git/config": "alpha\n",
        ".gitignore": "build/\n*.log\n!keep.log\n",
        "build/out.py": "alpha\n",
        "noise.log": "alpha\n",
        "keep.log": "alpha\n",
        "src/.gitignore": "/local.txt\n",
        "src/local.txt": "alpha\n",
        "src/deep/local.txt": "alpha\n",
        ".hidden/x.py": "alpha\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    (root / "binary").write_bytes(b"alpha\0")
    (tmp_path / "outside.py").write_text("alpha\n", encoding="utf-8")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    (root / "loop").symlink_to(root)
    return root


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "*.py"}, [".hidden/x.py", "main.py", "src/a.py", "src/deep/c.py"]),
        ({"pattern": "src/*.py"}, ["src/a.py"]),
        ({"pattern": "src/**"}, ["src/.gitignore", "src/a.py", "src/b.js", "src/deep/c.py", "src/deep/local.txt"]),
        ({"pattern": "*.{js,log}"}, ["keep.log", "src/b.js"]),
        ({"pattern": "*.py", "path": "src"}, ["src/a.py", "src/deep/c.py"]),
        ({"pattern": "**/[ac].py"}, ["src/a.py", "src/deep/c.py"]),
        ({"pattern": "*.py", "path": "main.py"}, ["main.py"]),
        ({"pattern": "*.log", "ignored": True}, ["keep.log", "noise.log"]),
        ({"pattern": "none*"}, ["no file matches none*"]),
    ],
)  # fmt: skip
def test_glob_finds_files_in_order(
    tree: Path, arguments: dict[str, object], found: list[str]
) -> None:
    assert said(run_tool(glob_tool(Root(tree)), **arguments)).splitlines() == found


def test_glob_takes_an_absolute_pattern_below_the_root(tree: Path) -> None:
    assert said(run_tool(glob_tool(Root(tree)), pattern=f"{tree}/src/*.py")) == "src/a.py"


@pytest.mark.parametrize("pattern", ["", "../*", "/etc/*", "x" * 2000, "{a,b}" * 20])
def test_glob_refuses_patterns_that_lead_nowhere(tree: Path, pattern: str) -> None:
    assert error_of(glob_tool(Root(tree)), pattern=pattern)


@pytest.mark.parametrize("path", ["..", "/etc", "none", "loop/../.."])
def test_nothing_outside_is_searched(tree: Path, path: str) -> None:
    assert error_of(glob_tool(Root(tree)), pattern="*", path=path)
    assert error_of(grep_tool(Root(tree)), pattern="root", path=path)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (
            {"pattern": "alpha"},
            [".hidden/x.py:1:alpha", "keep.log:1:alpha", "src/a.py:1:def alpha():", "src/deep/c.py:1:alpha = 2",
             "src/deep/local.txt:1:alpha"],
        ),
        ({"pattern": "^alpha", "glob": "*.py"}, [".hidden/x.py:1:alpha", "src/deep/c.py:1:alpha = 2"]),
        ({"pattern": "HELLO", "ignore_case": True}, ["main.py:2:print('Hello')"]),
        ({"pattern": "HELLO"}, ["no line matches HELLO"]),
        ({"pattern": "^$", "path": "src"}, ["no line matches ^$"]),
        ({"pattern": "alpha", "mode": "files", "path": "src"}, ["src/a.py", "src/deep/c.py", "src/deep/local.txt"]),
        ({"pattern": "[a-z]", "mode": "count", "path": "main.py"}, ["main.py:2"]),
        ({"pattern": "return", "context": 1}, ["src/a.py-1-def alpha():", "src/a.py:2:    return 1"]),
        ({"pattern": "alpha", "path": "build", "ignored": True}, ["build/out.py:1:alpha"]),
    ],
)  # fmt: skip
def test_grep_finds_lines(tree: Path, arguments: dict[str, object], found: list[str]) -> None:
    assert said(run_tool(grep_tool(Root(tree)), **arguments)).splitlines() == found


@pytest.mark.parametrize("pattern", ["", "(", "*a", "a" * 2000, "(?P<x"])
def test_grep_refuses_what_is_no_expression(tree: Path, pattern: str) -> None:
    assert "expected a" in error_of(grep_tool(Root(tree)), pattern=pattern)


def test_grep_passes_over_what_may_not_be_read(tree: Path) -> None:
    grep = grep_tool(Root(tree), lambda path: not path.startswith("src/"))
    assert "src/" not in said(run_tool(grep, pattern="alpha"))


def test_results_are_bounded(tree: Path) -> None:
    (tree / "many.txt").write_text("match\n" * 5000, encoding="utf-8")
    (tree / "wide.txt").write_text("match" * 10_000 + "\n", encoding="utf-8")
    text = said(run_tool(grep_tool(Root(tree)), pattern="match"))
    assert len(text) < 64_000
    assert "and perhaps more" in text
    for number in range(600):
        (tree / f"file{number}.txt").touch()
    text = said(run_tool(glob_tool(Root(tree)), pattern="*.txt"))
    assert "and perhaps more" in text


def test_many_files_are_searched_in_their_order(tree: Path) -> None:
    for number in range(450):
        (tree / f"many/f{number:03d}.txt").parent.mkdir(exist_ok=True)
        (tree / f"many/f{number:03d}.txt").write_text(
            f"filler\n{'match' if number % 50 == 7 else 'none'}\n" * (1 + 200 * (number % 90 == 7)),
            encoding="utf-8",
        )
    text = said(run_tool(grep_tool(Root(tree)), pattern="match", mode="files"))
    assert text.splitlines() == [f"many/f{number:03d}.txt" for number in range(7, 450, 50)]


def test_pieces_of_context_are_distinguished(tree: Path) -> None:
    (tree / "long.txt").write_text("".join(f"line{n}\n" for n in range(1, 31)), encoding="utf-8")
    text = said(
        run_tool(grep_tool(Root(tree)), pattern="line(5|6|20)$", path="long.txt", context=1)
    )
    assert text.splitlines() == [
        "long.txt-4-line4", "long.txt:5:line5", "long.txt:6:line6", "long.txt-7-line7", "--",
        "long.txt-19-line19", "long.txt:20:line20", "long.txt-21-line21",
    ]  # fmt: skip
    assert "expected context" in error_of(grep_tool(Root(tree)), pattern="x", context=99)


def test_what_is_neither_file_nor_folder_is_refused(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    assert "neither a file nor a folder" in error_of(
        grep_tool(Root(tree)), pattern="x", path="pipe"
    )
    assert "pipe" not in said(run_tool(glob_tool(Root(tree)), pattern="*"))


def test_an_expression_that_needs_too_much_memory_is_reported(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tree / "dies.py"
    program.write_text("raise MemoryError\n", encoding="utf-8")
    monkeypatch.setattr(search, "_PROGRAM", program)
    assert "too much memory" in error_of(grep_tool(Root(tree)), pattern="alpha")


def test_files_that_are_too_large_are_counted(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_FILE", 10)
    assert "larger than 10 bytes" in said(run_tool(grep_tool(Root(tree)), pattern="alpha"))


def test_an_expression_that_never_ends_is_ended(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.5)
    (tree / "trap.txt").write_text("a" * 60 + "!\n", encoding="utf-8")
    assert "took more than 0.5 s" in error_of(grep_tool(Root(tree)), pattern="^(a+)+$")
    assert not processes_with("_grep_worker.py", os.getpid())


def test_a_cancelled_search_leaves_no_process_and_no_file(tree: Path) -> None:
    (tree / "trap.txt").write_text("a" * 60 + "!\n", encoding="utf-8")
    grep = grep_tool(Root(tree))
    before = open_files()

    async def go() -> None:
        invocation = Invocation(call_of(grep, '{"pattern":"^(a+)+$"}'), lambda _: None)
        task = asyncio.ensure_future(grep.run(invocation))
        for _ in range(3000):
            if processes_with("_grep_worker.py", os.getpid()):
                break
            await asyncio.sleep(0.01)
        assert processes_with("_grep_worker.py", os.getpid())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not processes_with("_grep_worker.py", os.getpid())

    asyncio.run(go())
    assert {each for each in open_files() if "socket" not in each} <= before


def test_a_walk_that_is_cut_short_closes_its_folders(tree: Path) -> None:
    before = open_files()
    walk = Walk(Root(tree), threading.Event())
    files = walk.files(".")
    next(files)
    files.close()
    assert open_files() <= before


def test_a_walk_that_is_stopped_says_so(tree: Path) -> None:
    stop = threading.Event()
    stop.set()
    walk = Walk(Root(tree), stop)
    assert list(walk.files(".")) == []
    assert walk.was_cut


def test_a_tree_too_deep_ends_somewhere(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (tmp_path / "top.txt").touch()
    assert said(run_tool(glob_tool(Root(tmp_path)), pattern="*")) == "top.txt"


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "is_out"),
    [
        ("*.log", "a/b.log", False, True),
        ("/top", "top", False, True),
        ("/top", "a/top", False, False),
        ("build/", "a/build", True, True),
        ("build/", "a/build", False, False),
        ("a/*/c", "a/x/c", False, True),
        ("a/*/c", "z/a/x/c", False, False),
        ("a/**", "a/x/y", False, True),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("# comment\n\n", "# comment", False, False),
        ("\\#file", "#file", False, True),
        ("{a,b}", "a", False, False),
        ("{a,b}", "{a,b}", False, True),
        ("/", "x", True, False),
        ("x" * 3000, "x", False, False),
    ],
)
def test_ignore_rules_are_gits(rules: str, path: str, is_folder: bool, is_out: bool) -> None:
    ignored = read_ignore_rules(rules, 0, None)
    assert ignored.excludes(path.split("/"), is_folder=is_folder) is is_out


def test_deeper_rules_count_first() -> None:
    above = read_ignore_rules("*.txt", 0, None)
    below = read_ignore_rules("!a.txt", 1, above)
    assert not below.excludes(["d", "a.txt"], is_folder=False)
    assert below.excludes(["d", "b.txt"], is_folder=False)
