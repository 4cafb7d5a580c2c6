"""Files below a root, and no way out of it: names, links, races, things that are no files."""

import os
import shutil
import socket
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.engine.builtin.root import MAX_FILE, Root
from dragoman.errors import ConfigError, ToolError
from running_tools import open_files

SECRET = b"the secret outside"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with a file, a folder and links of all kinds, and a secret beside it."""
    root = tmp_path / "root"
    (root / "inner" / "deep").mkdir(parents=True)
    (root / "file.txt").write_bytes(b"content")
    (root / "inner" / "other.txt").write_bytes(b"other")
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "root-beside").mkdir()
    (tmp_path / "root-beside" / "secret.txt").write_bytes(SECRET)
    (root / "link-in").symlink_to("inner/other.txt")
    (root / "link-up").symlink_to("..")
    (root / "link-out").symlink_to("../secret.txt")
    (root / "link-absolute").symlink_to(tmp_path / "secret.txt")
    (root / "link-absolute-in").symlink_to(root / "inner")
    (root / "inner" / "link-back").symlink_to("../file.txt")
    (root / "link-loop").symlink_to("link-loop")
    (root / "link-gone").symlink_to("nowhere")
    return root


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("file.txt", b"content"),
        ("./file.txt", b"content"),
        ("inner/../file.txt", b"content"),
        ("inner//other.txt", b"other"),
        ("link-in", b"other"),
        ("link-absolute-in/other.txt", b"other"),
        ("inner/link-back", b"content"),
        ("link-absolute-in/link-back", b"content"),
    ],
)
def test_files_below_are_read(place: Path, path: str, content: bytes) -> None:
    assert Root(place).read(path)[0] == content


def test_an_absolute_path_below_is_read(place: Path, tmp_path: Path) -> None:
    assert Root(place).read(str(place / "file.txt"))[0] == b"content"
    alias = tmp_path / "alias"
    alias.symlink_to(place)
    assert Root(alias).read(str(alias / "file.txt"))[0] == b"content"
    assert Root(alias).read(str(place / "file.txt"))[0] == b"content"


ESCAPES = [
    "..",
    "../secret.txt",
    "inner/../../secret.txt",
    "inner/deep/../../../secret.txt",
    "/etc/passwd",
    "/",
    "//etc/passwd",
    "link-out",
    "link-up/secret.txt",
    "link-absolute",
    "link-up",
    "link-absolute-in/../../secret.txt",
    "../root-beside/secret.txt",
    "inner/../../root/file.txt",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_nothing_outside_is_read(place: Path, path: str) -> None:
    with pytest.raises(ToolError):
        Root(place).read(path)
    with pytest.raises(ToolError):
        Root(place).read(f"{place}/{path}")


@pytest.mark.parametrize("path", [*ESCAPES, "link-up/new.txt", "link-up/secret.txt"])
def test_nothing_outside_is_written_or_deleted(place: Path, path: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ToolError):
        Root(place).write(path, b"changed")
    if not path.startswith("link-") or "/" in path:
        with pytest.raises(ToolError):
            Root(place).delete(path)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "secret.txt").read_bytes() == SECRET


def test_the_whole_file_system_can_be_a_root(place: Path) -> None:
    assert Root(Path("/")).read(str(place / "file.txt"))[0] == b"content"
    assert Root(Path("/")).resolved("/") == "."


def test_a_root_whose_name_begins_alike_is_another(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="outside"):
        Root(place).read(str(tmp_path / "root-beside" / "secret.txt"))


@pytest.mark.parametrize(
    "path",
    ["", "a\0b", "x" * 5000, "a/" * 200 + "x", "\ud800", "link-loop", "link-gone", "nowhere"],
)
def test_what_is_no_path_is_refused(place: Path, path: str) -> None:
    with pytest.raises(ToolError):
        Root(place).read(path)


@pytest.mark.parametrize("path", ["pipe", "inner", "socket", "."])
def test_what_is_no_file_is_refused_without_waiting(
    place: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(place / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(place)  # the names of sockets are short
        listener.bind("socket")
        with pytest.raises(ToolError, match="expected a file"):
            Root(place).read(path)
        with pytest.raises(ToolError):
            Root(place).write(path, b"x")


def test_a_device_is_refused() -> None:
    with pytest.raises(ToolError, match="a device"):
        Root(Path("/dev")).read("zero")


def test_a_file_of_the_kernel_that_says_it_is_empty_is_bounded() -> None:
    assert Root(Path("/proc/self")).read("status")[0]
    with pytest.raises(ToolError, match="more than 5 bytes"):
        Root(Path("/proc/self")).read("status", limit=5)


def test_a_file_that_is_too_large_is_refused(place: Path) -> None:
    with (place / "large").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    with pytest.raises(ToolError, match="at most"):
        Root(place).read("large")
    with pytest.raises(ToolError, match="at most"):
        Root(place).write("new", bytes(MAX_FILE + 1))


def test_writing_keeps_permissions_and_leaves_no_other_file(place: Path) -> None:
    (place / "file.txt").chmod(0o750)
    assert Root(place).write("file.txt", b"new")
    assert (place / "file.txt").read_bytes() == b"new"
    assert stat.S_IMODE((place / "file.txt").stat().st_mode) == 0o750
    assert not [path for path in place.rglob("*") if path.name.endswith(".tmp")]


def test_writing_makes_folders(place: Path) -> None:
    assert not Root(place).write("a/b/c.txt", b"new")
    assert (place / "a/b/c.txt").read_bytes() == b"new"


def test_writing_through_a_link_changes_what_it_leads_to(place: Path) -> None:
    Root(place).write("link-in", b"new")
    assert (place / "link-in").is_symlink()
    assert (place / "inner/other.txt").read_bytes() == b"new"


def test_deleting_a_link_leaves_what_it_leads_to(place: Path, tmp_path: Path) -> None:
    Root(place).delete("link-out")
    assert not (place / "link-out").is_symlink()
    assert (tmp_path / "secret.txt").read_bytes() == SECRET


def test_a_file_that_changed_since_is_not_overwritten(place: Path) -> None:
    root = Root(place)
    _, status = root.read("file.txt")
    (place / "file.txt").write_bytes(b"somebody else's")
    with pytest.raises(ToolError, match="changed since"):
        root.write("file.txt", b"mine", expected=status)
    assert (place / "file.txt").read_bytes() == b"somebody else's"


def test_a_failed_write_leaves_all_as_it_was(place: Path) -> None:
    with pytest.raises(ToolError):
        Root(place).write("inner", b"x")
    with pytest.raises(ToolError):
        Root(place).write("file.txt/below", b"x")
    assert (place / "file.txt").read_bytes() == b"content"


def test_a_name_as_long_as_names_can_be_is_written_and_a_longer_one_leaves_nothing(
    place: Path,
) -> None:
    Root(place).write("ä" * 127, b"x")
    with pytest.raises(ToolError, match="too long"):
        Root(place).write("x" * 300, b"x")
    assert not list(place.glob(".dragoman-*"))


def test_only_files_are_deleted(place: Path) -> None:
    for path in ("inner", "none", "none/x", ".", "inner/.."):
        with pytest.raises(ToolError):
            Root(place).delete(path)


def test_a_folder_reached_by_going_back_is_a_folder(place: Path) -> None:
    for path in ("inner/deep/..", "link-absolute-in", "inner/deep/../deep/.."):
        with pytest.raises(ToolError, match="a folder"):
            Root(place).read(path)
        assert Root(place).resolved(path) == "inner"


def test_another_users_file_stays_theirs(place: Path) -> None:
    if os.geteuid() != 0:
        (place / "file.txt").chmod(0o444)
        with pytest.raises(ToolError, match="read-only"):
            Root(place).write("file.txt", b"new")
        return
    os.chown(place / "file.txt", 12345, 12345)
    Root(place).write("file.txt", b"new")
    status = (place / "file.txt").stat()
    assert (status.st_uid, status.st_gid) == (12345, 12345)


def test_a_root_that_was_replaced_is_noticed(place: Path, tmp_path: Path) -> None:
    root = Root(place)
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path)
    with pytest.raises(ToolError, match="no longer the folder"):
        root.read("secret.txt")


@pytest.mark.parametrize("path", ["nowhere", "file.txt"])
def test_a_root_must_be_a_folder(place: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="to be a folder"):
        Root(place / path)


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("file.txt", "file.txt"),
        ("link-in", "inner/other.txt"),
        ("link-absolute-in/new/x.txt", "inner/new/x.txt"),
        ("link-absolute-in/new/../y.txt", "inner/y.txt"),
        ("new/deep/x", "new/deep/x"),
        (".", "."),
        ("inner/..", "."),
        ("link-gone", "nowhere"),
    ],
)
def test_where_a_path_leads_is_reported_without_links(
    place: Path, path: str, resolved: str
) -> None:
    assert Root(place).resolved(path) == resolved


def test_no_file_stays_open(place: Path) -> None:
    before = open_files()
    root = Root(place)
    for path in (
        "file.txt",
        "link-in",
        "link-absolute-in/other.txt",
        *ESCAPES,
        "pipe",
        "link-loop",
    ):
        try:
            root.read(path)
            root.write(path, b"x")
        except ToolError:
            continue
    assert open_files() <= before


def test_a_path_that_goes_up_and_down_holds_few_folders_open(place: Path) -> None:
    (place / "link-far").symlink_to("inner/../" * 400 + "inner")
    before = open_files()
    with Root(place).located("link-far/../link-far/../" * 10 + "inner/other.txt") as found:
        assert found.path == "inner/other.txt"
        assert len(open_files() - before) <= 2
    assert open_files() <= before


names = st.sampled_from(
    ["..", ".", "", "file.txt", "inner", "deep", "link-in", "link-up", "link-out", "link-absolute", "link-absolute-in",
     "link-back", "link-loop", "link-gone", "secret.txt", "root", "root-beside", "new", "~", "*", "\\", "etc", "passwd"]
)  # fmt: skip


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(names, min_size=1, max_size=8), st.sampled_from(["", "/", "root"]))
def test_no_path_of_any_names_leaves_the_root(place: Path, parts: list[str], start: str) -> None:
    path = "/".join(parts)
    path = {"": path, "/": f"/{path}", "root": f"{place}/{path}"}[start]
    root = Root(place)
    try:
        data, status = root.read(path)
    except ToolError:
        return
    assert data != SECRET
    held = {
        (each.stat().st_dev, each.stat().st_ino)
        for each in place.rglob("*")
        if each.is_file() and not each.is_symlink()
    }
    assert (status.st_dev, status.st_ino) in held


def _take_place(one: Path, name: Path) -> None:
    """Rename, also where the tool has made a folder of that name meanwhile."""
    while True:
        try:
            one.rename(name)
        except OSError:
            shutil.rmtree(name, ignore_errors=True)
        else:
            return


def test_a_link_swapped_in_while_the_tool_works_leads_nowhere(place: Path, tmp_path: Path) -> None:
    """A folder and a file change places with links to the outside all the time; nothing outside is ever seen or touched."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_bytes(SECRET)
    swapped, kept, link = place / "swap", place / "kept", place / "lure"
    swapped.mkdir()
    (swapped / "file.txt").write_bytes(b"inside")
    link.symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            swapped.rename(kept)
            _take_place(link, swapped)
            swapped.rename(link)
            _take_place(kept, swapped)

    swapper = threading.Thread(target=swap)
    swapper.start()
    root = Root(place)
    seen: set[bytes] = set()
    try:
        for turn in range(3000):
            try:
                seen.add(root.read("swap/file.txt")[0])
                root.write("swap/file.txt", b"inside")
                root.write(f"swap/new{turn % 3}.txt", b"new")
                root.delete(f"swap/new{turn % 3}.txt")
            except ToolError:
                continue
    finally:
        done.set()
        swapper.join()
    assert seen == {b"inside"}
    assert [each.name for each in outside.iterdir()] == ["file.txt"]
    assert (outside / "file.txt").read_bytes() == SECRET


def test_a_file_swapped_for_a_link_while_it_is_read_is_not_followed(
    place: Path, tmp_path: Path
) -> None:
    target, kept, link = place / "flip", place / "kept", place / "lure"
    target.write_bytes(b"inside")
    link.symlink_to(tmp_path / "secret.txt")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            target.rename(kept)
            link.rename(target)
            target.rename(link)
            kept.rename(target)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[bytes] = set()
    try:
        for _ in range(5000):
            try:
                seen.add(Root(place).read("flip")[0])
            except ToolError:
                continue
    finally:
        done.set()
        swapper.join()
    assert seen == {b"inside"}
