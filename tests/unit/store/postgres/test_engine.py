"""What is PostgreSQL's own: a server that goes away and comes back, connections, tables, nodes that start together."""

import asyncio
import time
from collections.abc import Iterator
from random import Random

import psycopg
import pytest
from msgspec import structs
from psycopg import errors

from dragoman.config.settings import StoreSettings
from dragoman.errors import ConfigError, StoreDamaged, StoreTooLarge, StoreUnavailable
from dragoman.store.engine_store import Store, open_store
from dragoman.store.postgres import pool as pool_module
from dragoman.store.postgres.pool import PostgresPool, translated
from dragoman.store.postgres.schema import MIGRATIONS
from dragoman.store.records import Escrowed
from postgres_server import PostgresServer, run_postgres
from store_help import OWNER, Bench, bounded, draft, ending

NEWEST = len(MIGRATIONS)


@pytest.fixture
def bench(postgres: PostgresServer) -> Bench:
    return Bench(postgres.fresh())


async def until_one(bench: Bench, query: str) -> None:
    """Wait until a question to the server about itself has an answer."""
    url = bench.settings.url
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for _ in range(2000):
            if await (await connection.execute(query.encode())).fetchone() is not None:
                return
            await asyncio.sleep(0.01)
    raise AssertionError(f"nothing is found by {query}")


@pytest.fixture(scope="module")
def frail() -> Iterator[PostgresServer]:
    """A server for tests that stop it."""
    with run_postgres() as server:
        yield server


def test_database_that_was_away_is_used_again(
    frail: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(frail.fresh())

    async def main() -> None:
        async with bench.open() as store:
            await asyncio.gather(*(store.put(draft(f"r{n}"), ending()) for n in range(10)))
            await asyncio.to_thread(frail.stop)
            # at once, and not when something has timed out
            monkeypatch.setattr(pool_module, "CONNECT_SECONDS", 600.0)
            monkeypatch.setattr(pool_module, "_SILENCE_SECONDS", 600.0)
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="expected the database"):
                    await store.put(draft("lost"), ending())
                with pytest.raises(StoreUnavailable):
                    await store.head(OWNER, "r1")
            await asyncio.to_thread(frail.start)
            await asyncio.gather(*(store.put(draft(f"s{n}"), ending()) for n in range(10)))
            assert (await store.stats()).responses == 20

    bounded(main())


def test_restart_between_requests_is_not_noticed(frail: PostgresServer) -> None:
    bench = Bench(frail.fresh())

    async def main() -> None:
        async with bench.open() as store:
            await asyncio.gather(*(store.put(draft(f"r{n}"), ending()) for n in range(10)))
            await frail.pause(0.0)
            await asyncio.gather(*(store.put(draft(f"s{n}"), ending()) for n in range(10)))
            assert (await store.stats()).responses == 20

    bounded(main())


def test_silent_server_is_given_up_and_used_again(
    frail: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(frail.fresh())

    async def main() -> None:
        async with bench.open() as store:
            await store.put(draft("a"), ending())
            monkeypatch.setattr(pool_module, "_SILENCE_SECONDS", 0.3)
            with frail.silent():
                # on the connection there is, and on one that would have to be made
                for _ in range(2):
                    with pytest.raises(StoreUnavailable, match=r"answer within 0\.3 seconds"):
                        await store.head(OWNER, "a")
            monkeypatch.undo()
            assert (await store.head(OWNER, "a")).status == "completed"

    bounded(main())


def test_server_that_is_not_there_is_named_without_the_password() -> None:
    url = "postgresql://user:hush@127.0.0.1:1/name"
    with pytest.raises(StoreUnavailable) as caught:
        bounded(open_store(StoreSettings(url=url)))
    assert "hush" not in caught.value.whole
    assert "127.0.0.1" not in caught.value.message  # which clients read
    assert "127.0.0.1" in caught.value.detail


def test_url_that_libpq_cannot_read_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="libpq") as caught:
        bounded(open_store(StoreSettings(url="postgresql://user:hush@host/name?no_such=1")))
    assert "hush" not in caught.value.message
    assert caught.value.__cause__ is None


def test_operators_own_options_count(postgres: PostgresServer) -> None:
    url = postgres.fresh() + "&application_name=mine&options=-c%20statement_timeout%3D77s"

    async def main() -> tuple[object, ...]:
        pool = PostgresPool(url, 1)
        async with pool.lend() as connection:
            row = await (
                await connection.execute(
                    "SELECT current_setting('application_name'), current_setting('statement_timeout')"
                )
            ).fetchone()
        await pool.close()
        assert row is not None
        return row

    assert bounded(main()) == ("mine", "77s")


def test_caller_beyond_the_pool_waits_and_is_then_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CONNECT_SECONDS", 0.3)

    async def main() -> None:
        pool = PostgresPool(bench.settings.url, 1)
        async with pool.lend() as connection:
            with pytest.raises(StoreUnavailable, match="all were busy"):
                async with pool.lend():
                    raise AssertionError
            assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)
        # the one that was lent is lent again
        async with pool.lend() as again:
            assert again is connection
        await pool.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            async with pool.lend():
                raise AssertionError

    bounded(main())


def test_pool_has_no_more_connections_than_it_may(bench: Bench, postgres: PostgresServer) -> None:
    name = bench.settings.url.partition("/test_")[2].partition("?")[0]

    async def work(store: Store) -> int:
        await asyncio.gather(*(store.put(draft(f"r{n}"), ending()) for n in range(100)))
        with psycopg.connect(postgres.url()) as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            row = connection.execute(query, (f"test_{name}",)).fetchone()
        assert row is not None
        return int(row[0])

    assert bench.run(work, pool_size=3) <= 3


def test_connection_that_is_lent_at_the_end_closes_when_it_comes_back(bench: Bench) -> None:
    async def main() -> None:
        pool = PostgresPool(bench.settings.url, 2)
        async with pool.lend() as connection:
            await pool.close()
        assert connection.closed

    bounded(main())


def test_caller_that_leaves_takes_its_connection_with_it(bench: Bench) -> None:
    async def main() -> None:
        pool = PostgresPool(bench.settings.url, 1)
        lent: list[pool_module.Connection] = []
        started = asyncio.Event()

        async def leave() -> None:
            async with pool.lend() as connection:
                lent.append(connection)
                started.set()
                await connection.execute("SELECT pg_sleep(20)")

        leaving = asyncio.create_task(leave())
        await started.wait()
        await until_one(
            bench,
            "SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(20)'",
        )
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert lent[0].closed
        async with pool.lend() as connection:
            assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)
        await pool.close()

    bounded(main())


def test_connection_left_in_a_transaction_is_not_lent_again(bench: Bench) -> None:
    async def main() -> None:
        pool = PostgresPool(bench.settings.url, 1)
        async with pool.lend() as connection:
            await connection.execute("BEGIN")
        assert connection.closed
        await pool.close()

    bounded(main())


def test_database_of_the_version_before_is_brought_up(bench: Bench) -> None:
    with psycopg.connect(bench.settings.url) as old:
        for statements in MIGRATIONS[: NEWEST - 1]:
            for statement in statements:
                old.execute(statement)
        old.execute("CREATE TABLE dragoman_schema (version int NOT NULL)")
        old.execute("INSERT INTO dragoman_schema VALUES (%s)", (NEWEST - 1,))
        old.execute(
            "INSERT INTO dragoman_responses VALUES ('old', %s, NULL, 5, 2000000, 'completed', 0, 'chat', 'm', '', '',"
            " false, false, '', NULL, NULL, 4, %s, %s, %s, NULL)",
            (OWNER, b"\x00{}", b"\x00{}", b"\x00{}"),
        )

    async def work(store: Store) -> None:
        assert (await store.read(OWNER, "old")).body == b"{}"
        await store.put_seals(OWNER, "openai", {"call_1": Escrowed()})
        await store.put(draft(parent="old"), ending())
        assert len(await store.chain(OWNER, "resp_1")) == 2

    bench.run(work)
    bench.run(lambda store: store.ping())


def test_database_of_a_later_version_is_refused(bench: Bench) -> None:
    bench.run(lambda store: store.ping())
    with psycopg.connect(bench.settings.url) as later:
        later.execute("UPDATE dragoman_schema SET version = %s", (NEWEST + 1,))
    with pytest.raises(
        StoreDamaged, match=f"version {NEWEST} or before, it has version {NEWEST + 1}"
    ):
        bench.run(lambda store: store.ping())


def test_tables_that_are_gone_are_reported(bench: Bench) -> None:
    async def work(store: Store) -> None:
        with psycopg.connect(bench.settings.url) as other:
            other.execute("DROP TABLE dragoman_responses CASCADE")
        with pytest.raises(StoreDamaged, match="42P01"):
            await store.head(OWNER, "a")
        with pytest.raises(StoreDamaged):
            await store.put(draft(), ending())
        # and the connection is none the worse
        await store.ping()

    bench.run(work)


def test_nodes_that_start_together_make_the_tables_once(bench: Bench) -> None:
    async def main() -> None:
        stores = await asyncio.gather(*(open_store(bench.settings) for _ in range(8)))
        await asyncio.gather(
            *(store.put(draft(f"r{n}"), ending()) for n, store in enumerate(stores))
        )
        assert (await stores[0].stats()).responses == 8
        await asyncio.gather(*(store.close() for store in stores))

    bounded(main())


def test_deadlock_is_resolved_by_doing_it_again(bench: Bench) -> None:
    """Two who renew conversations that hang together, in opposite orders, as fast as they can."""

    async def main() -> None:
        async with bench.open() as store, bench.open() as other:
            for name in "ab":
                await store.put(draft(name), ending())

            async def lock(first: str, second: str, node: Store) -> None:
                # Each renews both conversations; a child of each at once.
                for number in range(20):
                    bench.clock.now += 20
                    await asyncio.gather(
                        node.put(draft(f"{first}{second}{number}", parent=first), ending()),
                        node.put(
                            draft(f"{second}{first}{number}x{first}", parent=second), ending()
                        ),
                    )

            await asyncio.gather(lock("a", "b", store), lock("b", "a", other))
            assert (await store.stats()).responses == 82

    bounded(main())


def test_statement_is_tried_again_after_a_deadlock(bench: Bench) -> None:
    """A real one: each of two transactions holds the row that the other wants."""

    async def main() -> None:
        async with bench.open() as store:
            await store.put(draft("a"), ending(status="completed"))
            await store.claim(OWNER, "a", by="b")
            await store.begin(draft("b", parent="a", claims=True))
            connection = await psycopg.AsyncConnection.connect(bench.settings.url)
            async with connection:
                await connection.execute("SET deadlock_timeout = '5s'")
                await connection.execute("SELECT FROM dragoman_responses WHERE id = 'a' FOR UPDATE")
                # It locks `b`, then wants `a`; we hold `a` and want `b`. The store's side notices first.
                finishing = asyncio.create_task(store.finish(OWNER, "b", ending()))
                await until_one(bench, "SELECT FROM pg_locks WHERE NOT granted")
                await connection.execute("SELECT FROM dragoman_responses WHERE id = 'b' FOR UPDATE")
                await connection.commit()
            assert await finishing == "completed"
            assert (await store.head(OWNER, "a")).is_settled

    bounded(main())


def test_deadlock_without_end_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise errors.DeadlockDetected("deadlock detected")

    async def work(store: Store) -> None:
        monkeypatch.setattr("dragoman.store.postgres.pool.Connection.one", fail)
        with pytest.raises(StoreUnavailable, match="DeadlockDetected"):
            await store.read(OWNER, "a")

    bench.run(work)


def test_id_that_no_index_takes_is_refused_and_the_store_works_on(bench: Bench) -> None:
    name = "".join(Random(7).choices("abcdefghijklmnop", k=9000))

    async def work(store: Store) -> None:
        with pytest.raises(StoreTooLarge, match="ids that the database can index") as caught:
            await store.put(draft(name), ending())
        assert caught.value.status == 500
        await store.put(draft(), ending())

    bench.run(work)


def test_two_sweepers_remove_each_row_once(bench: Bench) -> None:
    async def main() -> None:
        async with bench.open() as store, bench.open() as other:
            await asyncio.gather(*(store.put(draft(f"r{n}"), ending()) for n in range(200)))
            bench.clock.now += 5000
            swept = await asyncio.gather(store.expire(), other.expire(), store.expire())
            assert sum(found.responses for found in swept) == 200

    bounded(main())


def test_empty_store_over_its_cap_has_nothing_to_sweep(bench: Bench) -> None:
    assert not bench.run(lambda store: store.expire(), max_bytes=-1).more


def test_errors_are_reported_in_one_line() -> None:
    assert translated(OSError("no route\nhint")).detail == "no route"
    assert translated(psycopg.OperationalError()).message.endswith("(OperationalError)")
    assert isinstance(translated(errors.UndefinedColumn("x")), StoreDamaged)
    assert structs.replace(StoreSettings(), pool_size=1).pool_size == 1


def test_statements_planned_for_empty_tables_do_not_read_what_is_stored_since(
    postgres: PostgresServer,
) -> None:
    url = postgres.fresh()
    count = 400

    async def work(store: Store) -> None:
        for number in range(count):
            parent = f"r{number - 1}" if number % 4 else None
            await store.put(draft(f"r{number}", parent=parent), ending())
            await store.head(OWNER, f"r{number}")
            await store.chain(OWNER, f"r{number}", depth=2)
            await store.lost([(OWNER, f"r{number}")])

    Bench(url).run(work)
    asked = "SELECT n_tup_ins, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'dragoman_responses'"
    read = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'dragoman_responses'"
    with psycopg.connect(url, autocommit=True) as connection:
        # A server reports the statistics of a connection when the connection has ended.
        until = time.monotonic() + 60
        while (found := connection.execute(asked).fetchone()) and found[0] < count:
            assert time.monotonic() < until
            time.sleep(0.05)
        rows = connection.execute(read).fetchone()
    assert found is not None
    assert rows is not None
    # Some ten rows for each turn of the loop; a plan that reads all of an owner's rows makes it two hundred.
    assert found[1] + rows[0] < 30 * count
