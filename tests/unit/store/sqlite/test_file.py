"""The file of a SQLite store: nothing but SQLite opens it, and nothing is acknowledged that others would not find."""

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dragoman.config.settings import StoreSettings
from dragoman.errors import StoreDamaged, StoreError, StoreMissing, StoreUnavailable
from dragoman.store.engine_store import Store, open_store
from store_help import OWNER, Bench, bounded, draft, ending

SUPPORT = Path(__file__).parents[3] / "support"
COUNT = 12

# What is refused must be refused before it is done: whoever asks the interpreter to open one of the files is stopped.
WATCHED = """
import asyncio, sys
from dragoman.store.engine_store import open_store
from dragoman.config.settings import StoreSettings
from store_help import OWNER, draft, ending

path = sys.argv[1]
opened = []

def watch(event, args):
    if event == "open" and str(args[0]).startswith(path):
        opened.append(args[0])

async def main():
    for name in ("a", "b"):
        store = await open_store(StoreSettings(url="sqlite://" + path))
        await store.put(draft(name), ending())
        await store.read(OWNER, name, stream=True)
        await store.expire()
        await store.stats()
        await store.ping()
        await store.close()

sys.addaudithook(watch)
asyncio.run(main())
print(opened)
"""

VISITOR = """
import asyncio, sys
from dragoman.store.engine_store import open_store
from dragoman.config.settings import StoreSettings

async def main():
    store = await open_store(StoreSettings(url=sys.argv[1]))
    await store.stats()
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def bench(path: Path) -> Bench:
    return Bench(f"sqlite://{path}")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with conversations, to be damaged."""
    path = tmp_path_factory.mktemp("whole") / "store.db"

    async def work(store: Store) -> None:
        for number in range(COUNT):
            made = draft(
                f"r{number}", "hello " * 50, parent=f"r{number - 1}" if number % 3 else None
            )
            await store.put(made, ending("x" * 100 * number, stream=b'data: {"a":1}\n\n' * number))

    Bench(f"sqlite://{path}").run(work)
    return path


def run_python(code: str, argument: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def remove(path: Path) -> None:
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        file.unlink(missing_ok=True)


def overwrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)  # as another process would: it has no locks to lose


def move(path: Path, place: Path) -> None:
    path.replace(place)


def test_nothing_but_sqlite_opens_a_file_of_the_store(path: Path) -> None:
    assert run_python(WATCHED, str(path)) == "[]\n"


def test_what_follows_the_visit_of_another_process_survives_a_crash(
    bench: Bench, path: Path
) -> None:
    log = path.with_name("store.db-wal")

    async def work(store: Store) -> None:
        await store.put(draft("before"), ending())
        await store.head(OWNER, "before")  # the reader has a connection too
        before = log.stat().st_ino
        run_python(VISITOR, bench.settings.url)
        await store.put(draft("after"), ending())
        assert log.stat().st_ino == before
        # What a crash would leave.
        for file in path.parent.glob("store.db*"):
            shutil.copy(file, crashed / file.name)

    crashed = path.parent / "crashed"
    crashed.mkdir()
    bench.run(work)
    after = Bench(f"sqlite://{crashed / 'store.db'}")
    assert after.run(lambda store: store.head(OWNER, "after")).id == "after"


@pytest.mark.parametrize("is_link", [False, True])
def test_new_file_is_its_owners_alone_whatever_the_umask(path: Path, is_link: bool) -> None:
    place = path.parent / "elsewhere?#%41 ü.db"
    if is_link:
        path.symlink_to(place)

    async def work(store: Store) -> None:
        await store.put(draft(), ending())
        modes = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
        assert modes == [0o600] * (4 if is_link else 3)

    before = os.umask(0)
    try:
        Bench(f"sqlite://{path}").run(work)
    finally:
        os.umask(before)
    assert place.exists() is is_link


def test_mode_of_a_file_that_is_there_is_left_to_its_owner(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    Bench(f"sqlite://{path}").run(lambda store: store.put(draft(), ending()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_removed_file_is_not_acknowledged_into_nor_made_anew(bench: Bench, path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("old"), ending())
        remove(path)
        with pytest.raises(StoreUnavailable, match="removed, replaced or overwritten") as caught:
            await store.put(draft("new"), ending())
        assert caught.value.detail == str(path)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="it is gone; put it back") as caught:
                await store.put(draft("new"), ending())
            assert caught.value.detail == str(path)
        with pytest.raises(StoreUnavailable, match="it is gone"):
            await store.head(OWNER, "old")
        with pytest.raises(StoreUnavailable, match="it is gone"):
            await store.ping()

    bench.run(work)
    assert not path.exists()


def test_file_that_comes_back_is_used_again(bench: Bench, path: Path) -> None:
    saved = path.with_name("saved.db")

    async def work(store: Store) -> None:
        move(path, saved)
        with pytest.raises(StoreUnavailable):
            await store.put(draft("meanwhile"), ending())
        with pytest.raises(StoreUnavailable):
            await store.ping()
        move(saved, path)
        await store.put(draft("new"), ending())
        assert (await store.head(OWNER, "old")).id == "old"

    bench.run(lambda store: store.put(draft("old"), ending()))
    bench.run(work)
    assert bench.run(lambda store: store.head(OWNER, "new")).id == "new"


def test_log_of_a_file_that_was_replaced_is_not_written_into_the_new_one(
    bench: Bench, path: Path
) -> None:
    """A backup is moved over the file of a store that is open in two processes; SQLite alone would mix the two."""
    backup = path.with_name("backup.db")

    async def work(store: Store) -> None:
        other = await open_store(bench.settings, clock=bench.clock)
        await other.head(OWNER, "old")
        for number in range(50):
            await store.put(draft(f"{number}"), ending())
        move(backup, path)
        with pytest.raises(StoreUnavailable):
            await store.put(draft("lost"), ending())
        await store.put(draft("new"), ending())
        assert (await store.head(OWNER, "old")).id == "old"
        with pytest.raises(StoreMissing):
            await store.head(OWNER, "0")
        assert (await other.head(OWNER, "new")).id == "new"
        await other.close()

    bench.run(lambda store: store.put(draft("old"), ending()))
    shutil.copy(path, backup)
    bench.run(work)
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_link_that_leads_to_another_file_is_followed(bench: Bench, path: Path) -> None:
    """As whoever opens the store from then on does."""
    one, two = path.with_name("one.db"), path.with_name("two.db")
    path.symlink_to(one)
    link = path.with_name("link")
    link.symlink_to(two)

    async def work(store: Store) -> None:
        await store.put(draft("old"), ending())
        sqlite3.connect(two).close()
        move(link, path)
        with pytest.raises(StoreUnavailable, match="replaced"):
            await store.put(draft("new"), ending())
        await store.put(draft("new"), ending())

    bench.run(work)
    assert Bench(f"sqlite://{two}").run(lambda store: store.head(OWNER, "new")).id == "new"
    assert Bench(f"sqlite://{one}").run(lambda store: store.head(OWNER, "old")).id == "old"


def test_log_that_is_removed_is_noticed_before_a_commit_is_acknowledged(
    bench: Bench, path: Path
) -> None:
    log = path.with_name("store.db-wal")

    async def work(store: Store) -> None:
        await store.put(draft("old"), ending())
        await store.head(OWNER, "old")
        log.unlink()
        with pytest.raises(StoreUnavailable, match="removed, replaced"):
            await store.put(draft("new"), ending())
        await store.put(draft("newer"), ending())
        assert (await store.head(OWNER, "newer")).id == "newer"

    bench.run(work)
    assert bench.run(lambda store: store.head(OWNER, "newer")).id == "newer"


def test_file_of_another_program_in_the_place_of_ours_is_refused_and_not_changed(
    bench: Bench, path: Path
) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("old"), ending())
        remove(path)
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE theirs (x)")
        other.commit()
        other.close()
        with pytest.raises(StoreUnavailable, match="removed, replaced"):
            await store.put(draft("new"), ending())
        for _ in range(2):
            with pytest.raises(StoreDamaged, match="another program") as caught:
                await store.put(draft("new"), ending())
            assert caught.value.detail == str(path)
        with pytest.raises(StoreDamaged, match="another program"):
            await store.head(OWNER, "old")

    bench.run(work)
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    other.close()


def test_empty_file_in_the_place_of_ours_is_begun(bench: Bench, path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("old"), ending())
        remove(path)
        sqlite3.connect(path).close()
        with pytest.raises(StoreMissing):
            await store.head(OWNER, "old")
        await store.put(draft("new"), ending())
        assert (await store.head(OWNER, "new")).id == "new"

    bench.run(work)


@pytest.mark.parametrize("content", [b"", b"a letter, and no database"])
def test_file_that_is_overwritten_is_not_acknowledged_into(
    content: bytes, bench: Bench, path: Path
) -> None:
    async def work(store: Store) -> None:
        await store.put(draft("old"), ending())
        overwrite(path, content)
        with pytest.raises(StoreUnavailable, match="overwritten"):
            await store.put(draft("new"), ending())

    bench.run(work)


async def _read_everything(store: Store) -> None:
    """Whatever is wrong with the file, only a StoreError is raised."""
    for number in range(COUNT):
        with suppress(StoreError):
            await store.read(OWNER, f"r{number}", stream=True)
        with suppress(StoreError):
            await store.chain(OWNER, f"r{number}")
        with suppress(StoreError):
            await store.head(OWNER, f"r{number}")
    with suppress(StoreError):
        await store.put(draft("new"), ending())
    with suppress(StoreError):
        await store.claim(OWNER, "r1", by="x")
    with suppress(StoreError):
        await store.expire()
    with suppress(StoreError):
        await store.stats()


@pytest.mark.parametrize("seed", range(30))
def test_any_damage_to_the_file_is_a_store_error(seed: int, tmp_path: Path, damaged: Path) -> None:
    dice = random.Random(seed)
    data = bytearray(damaged.read_bytes())
    for _ in range(dice.choice((1, 20, 500))):
        data[dice.randrange(16, len(data))] = dice.randrange(256)
    path = tmp_path / "damaged.db"
    path.write_bytes(data)
    with suppress(StoreError):
        Bench(f"sqlite://{path}").run(_read_everything)


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("x", encoding="ascii")

    async def main() -> None:
        await open_store(StoreSettings(url=f"sqlite://{folder / 'store.db'}"))

    with pytest.raises(StoreUnavailable, match="can be written") as caught:
        bounded(main())
    assert caught.value.detail == str(folder / "store.db")
