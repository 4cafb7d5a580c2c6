"""What is SQLite's own: its file, its threads, and the processes that share it."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec import msgpack

from dragoman.config.settings import StoreSettings
from dragoman.errors import (
    StoreDamaged,
    StoreError,
    StoreTooLarge,
    StoreUnavailable,
)
from dragoman.model.parts import Text
from dragoman.store.engine_store import Store, open_store
from dragoman.store.records import Escrowed
from dragoman.store.sqlite import thread as thread_module
from dragoman.store.sqlite.file import SqliteFile, translated
from dragoman.store.sqlite.schema import APPLICATION_ID, MIGRATIONS, check_version, migrate
from dragoman.store.sqlite.thread import SqliteThread
from store_help import OWNER, Bench, bounded, draft, ending, said

SUPPORT = Path(__file__).parents[3] / "support"
NEWEST = len(MIGRATIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def bench(path: Path) -> Bench:
    return Bench(f"sqlite://{path}")


def open_once(path: Path) -> None:
    async def main() -> None:
        await (await open_store(StoreSettings(url=f"sqlite://{path}"))).close()

    bounded(main())


def writing(path: Path, name: str = "test-writer") -> SqliteThread:
    return SqliteThread(SqliteFile(path, "full"), name=name, writes=True)


def gated(gate: asyncio.Event) -> Callable[[sqlite3.Connection], None]:
    """A job that lasts until the gate opens."""
    loop = asyncio.get_running_loop()

    def wait(_: sqlite3.Connection) -> None:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(10)

    return wait


def test_file_is_in_wal_mode_and_every_commit_on_disk(path: Path) -> None:
    connection = SqliteFile(path, "full").connect().connection
    names = ("journal_mode", "synchronous", "auto_vacuum", "busy_timeout")
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    connection.close()
    assert found == ["wal", 2, 2, 5000]


def test_last_to_close_leaves_one_file(path: Path) -> None:
    open_once(path)
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


def test_file_of_the_version_before_is_brought_up(bench: Bench, path: Path) -> None:
    old = sqlite3.connect(path)
    for statements in MIGRATIONS[: NEWEST - 1]:
        for statement in statements:
            old.execute(statement)
    old.execute(
        "INSERT INTO responses VALUES (1, 'old', ?, NULL, 5, 2000000, 'completed', 0, 'chat', 'm', '', '', 0, 0, '',"
        " NULL, NULL, 4, NULL, NULL)",
        (OWNER,),
    )
    old.execute("INSERT INTO requests VALUES (1, ?)", (b"\x00{}",))
    old.execute("INSERT INTO answers VALUES (1, ?, ?, NULL)", (b"\x00{}", b"\x00{}"))
    old.execute(f"PRAGMA user_version = {NEWEST - 1}")
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.commit()
    old.close()

    async def work(store: Store) -> None:
        assert (await store.read(OWNER, "old")).body == b"{}"
        await store.put_seals(OWNER, "openai", {"call_1": Escrowed()})
        await store.put(draft(parent="old"), ending())
        assert len(await store.chain(OWNER, "resp_1")) == 2

    bench.run(work)
    bench.run(lambda store: store.ping())


def test_file_of_a_later_version_is_refused(path: Path) -> None:
    open_once(path)
    later = sqlite3.connect(path)
    later.execute(f"PRAGMA user_version = {NEWEST + 1}")
    later.close()
    with pytest.raises(
        StoreDamaged, match=f"version {NEWEST} or before, it has version {NEWEST + 1}"
    ):
        open_once(path)


def test_file_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    with pytest.raises(StoreDamaged, match="another program"):
        open_once(path)
    with sqlite3.connect(path) as again:
        names = [name for (name,) in again.execute("SELECT name FROM sqlite_schema")]
    again.close()
    assert names == ["theirs"]


def test_file_that_another_process_makes_meanwhile_is_not_another_programs(path: Path) -> None:
    class Slow(sqlite3.Connection):
        """Another process makes the tables while this one looks what the file is."""

        def execute(self, sql: str, *_: object) -> sqlite3.Cursor:
            if "sqlite_schema" in sql:
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    migrate(other)
            return super().execute(sql)

    with closing(sqlite3.connect(path, isolation_level=None, factory=Slow)) as connection:
        assert check_version(connection) == 0


def test_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"a letter, and no database at all. " * 40)
    with pytest.raises(StoreDamaged, match="SQLITE_NOTADB"):
        open_once(path)


def test_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="ascii")
    with pytest.raises(StoreUnavailable, match="can be written") as caught:
        open_once(tmp_path / "file" / "store.db")
    assert caught.value.detail == str(tmp_path / "file" / "store.db")


def test_locked_file_is_waited_for_and_then_refused(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.store.sqlite.file.BUSY_SECONDS", 0.2)

    async def work(store: Store) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.put(draft(), ending())
        # others read on
        await store.ping()
        waiting = asyncio.create_task(store.put(draft(), ending()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        other.execute("COMMIT")
        other.close()
        await waiting
        assert (await store.head(OWNER, "resp_1")).status == "completed"

    bench.run(work)


def test_file_that_is_being_made_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.2, other.execute, ("ROLLBACK",))
    release.start()
    SqliteFile(path, "full").connect().connection.close()
    release.join()
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr("dragoman.store.sqlite.file.BUSY_SECONDS", 0.1)
    with pytest.raises(StoreUnavailable, match="locked"):
        SqliteFile(path, "full").connect()
    other.close()


def test_writes_that_wait_together_are_committed_together(path: Path) -> None:
    async def main() -> int:
        thread = writing(path)
        seen: list[str] = []
        await thread.do(lambda db: db.set_trace_callback(seen.append))
        gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(thread.do(gated(gate)))
            await asyncio.sleep(0)
            jobs = [group.create_task(thread.do(lambda db: db.total_changes)) for _ in range(50)]
            await asyncio.sleep(0)
            gate.set()
        assert [job.result() for job in jobs] == [0] * 50
        await thread.close()
        return seen.count("COMMIT")

    # that of the callback's own job, that of the one they wait for, and one for all fifty
    assert bounded(main()) <= 4


def test_writes_of_one_moment_are_committed_together(path: Path) -> None:
    async def main() -> int:
        thread = writing(path)
        seen: list[str] = []
        await thread.do(lambda db: db.set_trace_callback(seen.append))
        seen.clear()
        await asyncio.sleep(0.1)  # nobody waits for company now
        await asyncio.gather(thread.do(_ask("SELECT 1")), thread.do(_ask("SELECT 2")))
        await thread.close()
        return seen.count("COMMIT")

    assert bounded(main()) == 1


def test_job_that_fails_does_not_fail_its_neighbours(path: Path) -> None:
    async def main() -> list[object]:
        thread = writing(path)
        gate = asyncio.Event()
        blocked = asyncio.create_task(thread.do(gated(gate)))
        await asyncio.sleep(0)
        statements = ("SELECT 1", "INSERT INTO nowhere VALUES (1)", "SELECT 2")
        jobs = [asyncio.create_task(thread.do(_ask(statement))) for statement in statements]
        await asyncio.sleep(0)
        gate.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        await blocked
        await thread.close()
        return list(results)

    first, second, third = bounded(main())
    assert (first, third) == ((1,), (2,))
    assert isinstance(second, StoreUnavailable)
    assert "nowhere" in second.message


def _ask(statement: str) -> Callable[[sqlite3.Connection], object]:
    return lambda db: db.execute(statement).fetchone()


def test_jobs_are_prepared_when_it_is_their_turn_and_fail_alone(path: Path) -> None:
    def group(_: sqlite3.Connection, items: Sequence[int]) -> list[StoreError | None]:
        done.append([*items])
        return [None] * len(items)

    def prepared(number: int) -> int:
        if number % 2:
            raise StoreTooLarge(f"{number} is odd") if number == 1 else ZeroDivisionError
        made.append(number)
        return number

    async def main() -> list[object]:
        thread = writing(path)
        gate = asyncio.Event()
        blocked = asyncio.create_task(thread.do(gated(gate)))
        await asyncio.sleep(0)
        jobs = [
            asyncio.create_task(thread.do_with(group, partial(prepared, number)))
            for number in range(4)
        ]
        await asyncio.sleep(0.05)
        assert not made
        gate.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        await blocked
        # also if there is nothing else to be done, and when the store is closed
        with pytest.raises(ZeroDivisionError):
            await thread.do_with(group, partial(prepared, 5))
        last = asyncio.create_task(thread.do_with(group, partial(prepared, 6)))
        await asyncio.sleep(0)
        await thread.close()
        await last
        return list(results)

    made: list[int] = []
    done: list[list[int]] = []
    results = bounded(main())
    assert [type(result) for result in results] == [
        type(None),
        StoreTooLarge,
        type(None),
        ZeroDivisionError,
    ]
    assert made == [0, 2, 6]
    assert done == [[0, 2], [6]]


def test_too_much_waiting_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_module, "_MAX_WAITING", 5)
    monkeypatch.setattr(thread_module, "_MAX_BATCH", 2)

    async def work(store: Store) -> None:
        results = await asyncio.gather(
            *(store.put(draft(f"r{n}"), ending()) for n in range(8)), return_exceptions=True
        )
        assert [result for result in results if result is None] == [None] * 5
        assert all(isinstance(result, StoreUnavailable) for result in results[5:])

    bench.run(work)


def test_disk_that_does_not_answer_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        thread = writing(path)
        gate = asyncio.Event()
        monkeypatch.setattr(thread_module, "_WAIT_SECONDS", 0.1)
        with pytest.raises(StoreUnavailable, match=r"within 0\.1 seconds"):
            await thread.do(gated(gate))
        gate.set()
        monkeypatch.setattr(thread_module, "_WAIT_SECONDS", 15.0)
        assert await thread.do(_ask("SELECT 1")) == (1,)
        await thread.close()

    bounded(main())


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (
            ZeroDivisionError,
            StoreDamaged,
        ),  # what a bug would do, or a value that nobody has written
        (RecursionError, StoreDamaged),
        (MemoryError, StoreUnavailable),
        (OSError, StoreUnavailable),
    ],
)
def test_job_that_breaks_fails_alone_and_the_thread_goes_on(
    path: Path,
    caplog: pytest.LogCaptureFixture,
    problem: type[Exception],
    kind: type[StoreError],
) -> None:
    def break_thread(_: sqlite3.Connection) -> object:
        raise problem

    async def main() -> None:
        thread = writing(path)
        jobs = [thread.do(break_thread), *(thread.do(_ask("SELECT 1")) for _ in range(3))]
        broken, *others = await asyncio.gather(*jobs, return_exceptions=True)
        assert type(broken) is kind
        assert others == [(1,)] * 3
        assert await thread.do(_ask("SELECT 1")) == (1,)
        await thread.close()

    bounded(main())
    assert problem.__name__ in caplog.text


def test_log_that_cannot_be_removed_does_not_end_the_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    async def main() -> None:
        thread = writing(path)
        with monkeypatch.context() as patch:
            patch.setattr(SqliteFile, "_remove_foreign_log", refuse)
            with pytest.raises(StoreUnavailable, match="PermissionError"):
                await thread.do(_ask("SELECT 1"))
        assert await thread.do(_ask("SELECT 1")) == (1,)
        await thread.close()

    bounded(main())


def test_closed_store_says_so(bench: Bench) -> None:
    async def work(store: Store) -> None:
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.ping()

    bench.run(work)


def test_loop_that_ends_first_leaves_no_thread_behind(path: Path) -> None:
    async def main() -> None:
        writing(path, "forgotten").stop()

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name == "forgotten":
            thread.join(60)
            assert not thread.is_alive()


def test_answer_that_nobody_waits_for_is_dropped(path: Path) -> None:
    async def main() -> None:
        thread = writing(path)
        gate = asyncio.Event()
        waiting = asyncio.create_task(thread.do(gated(gate)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.set()
        assert await thread.do(_ask("SELECT 1")) == (1,)
        await thread.close()

    bounded(main())


def test_errors_are_distinguished() -> None:
    assert isinstance(translated(sqlite3.DatabaseError("odd")), StoreUnavailable)
    own = StoreDamaged("x")
    assert translated(own) is own


CLAIMER = """
import asyncio, sys
from dragoman.store.engine_store import open_store
from dragoman.config.settings import StoreSettings
from store_help import OWNER

async def main(url, name):
    store = await open_store(StoreSettings(url=url))
    print("ready", flush=True)
    sys.stdin.readline()
    results = await asyncio.gather(*(store.claim(OWNER, "a", by=f"{name}{n}") for n in range(25)))
    print(results.count("won"), flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def start_claimers(url: str, count: int) -> list["subprocess.Popen[str]"]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, url, f"p{number}-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        )
        for number in range(count)
    ]


def test_of_claims_by_two_processes_one_wins(lasting: Bench) -> None:
    # The processes go by the real time.
    lasting.clock.now = 4e9
    lasting.run(lambda store: store.put(draft("a"), ending()))
    processes = start_claimers(lasting.settings.url, 2)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    sent = [process.communicate("go\n", timeout=60)[0] for process in processes]
    assert sorted(sent) == ["0\n", "1\n"]


def test_many_processes_may_make_the_file_at_once(path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from dragoman.store.engine_store import open_store\n"
        "from dragoman.config.settings import StoreSettings\n"
        "async def main():\n"
        "    store = await open_store(StoreSettings(url=sys.argv[1]))\n"
        "    await store.ping()\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, f"sqlite://{path}"], stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    ends = [(process.communicate(timeout=60)[1], process.returncode) for process in processes]
    assert ends == [(b"", 0)] * 6


OLD_STREAM = b'data: {"n":0}\n\ndata: {"delta":"a","n":9}\n\ndata: ' + ending().body + b"\n\n"


def test_what_earlier_versions_stored_is_read(path: Path, bench: Bench) -> None:
    """A stream of which only the texts were kept, in one value with its body; and a message with its answer beside it."""

    async def write(store: Store) -> None:
        await store.put(draft("a"), ending())
        await store.put(draft("b", parent="a", door="messages"), ending())

    async def read(store: Store) -> None:
        found = await store.read(OWNER, "a", stream=True)
        assert (found.body, found.stream) == (ending().body, OLD_STREAM)
        links = await store.chain(OWNER, "b")
        assert [link.parts for link in links] == [said(), (Text(text="So."),)]

    bench.run(write)
    end = b"data: " + ending().body + b"\n\n"
    form = [b'data: {"delta":', b',"n":', b"}\n\n"]
    pieces = [b'data: {"n":0}\n\n', [form, 9, b'"a"'], end]
    both = b"\x05\x00" + msgpack.encode([6, len(end) - 2, pieces])
    old = b'\x00{"parts":[{"part":"text","text":"So."}],"finish":"stop","usage":null,"error":null}'
    db = sqlite3.connect(path)
    rows = "SELECT n FROM responses WHERE id = ?"
    db.execute(f"UPDATE answers SET body = ?, stream = NULL WHERE n = ({rows})", (both, "a"))
    db.execute(f"UPDATE answers SET answer = ? WHERE n = ({rows})", (old, "b"))
    db.commit()
    db.close()
    bench.run(read)
