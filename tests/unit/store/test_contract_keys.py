"""What every engine does with the usage of named keys."""

import asyncio

from dragoman.store.engine_store import Store
from dragoman.store.key_usage import Counts, KeyChange, KeyLimit, KeyRequest, KeyUsage
from store_help import Bench, bounded

LIMIT = KeyLimit("requests_per_minute", "minute", "requests", 7)
NOTHING = KeyChange()


def test_of_many_requests_at_once_in_two_stores_as_many_pass_as_the_limit_says(
    lasting: Bench,
) -> None:
    async def main() -> int:
        async with lasting.open() as one, lasting.open() as two:
            asked = [
                each.count_key("team", NOTHING, KeyRequest(f"{number}", (LIMIT,)))
                for number in range(20)
                for each in (one, two)
            ]
            return [reached is None for reached in await asyncio.gather(*asked)].count(True)

    assert bounded(main()) == LIMIT.most


def test_streams_are_bounded_across_stores(lasting: Bench) -> None:
    async def main() -> tuple[int, KeyUsage]:
        async with lasting.open() as one, lasting.open() as two:
            asked = [
                each.count_key("team", NOTHING, KeyRequest(f"{name}{number}", max_streams=3))
                for number in range(5)
                for name, each in (("a", one), ("b", two))
            ]
            passed = [reached is None for reached in await asyncio.gather(*asked)].count(True)
            return passed, (await two.read_keys(["team"]))["team"]

    passed, usage = bounded(main())
    assert passed == 3
    assert usage.running == 3


def test_usage_and_the_request_that_asks_are_one_change(bench: Bench) -> None:
    tokens = KeyLimit("tokens_per_day", "day", "tokens", 10)

    async def work(store: Store) -> None:
        used = KeyChange(Counts(input_tokens=8, output_tokens=2, cost=5))
        reached = await store.count_key("team", used, KeyRequest("a", (tokens,)))
        assert reached is not None
        assert reached.setting == "tokens_per_day"
        counts = (await store.read_keys(["team"]))["team"].windows["month"]
        assert counts == Counts(input_tokens=8, output_tokens=2, cost=5)

    bench.run(work)


def test_keys_do_not_share_their_limits(bench: Bench) -> None:
    once = KeyLimit("requests_per_day", "day", "requests", 1)

    async def work(store: Store) -> None:
        for name in ("one", "two"):
            asked = KeyRequest("a", (once,))
            assert await store.count_key(name, NOTHING, asked) is None
            assert await store.count_key(name, NOTHING, asked) is not None

    bench.run(work)


def test_key_that_was_never_used_has_zeros(bench: Bench) -> None:
    async def work(store: Store) -> None:
        usage = (await store.read_keys(["nobody"]))["nobody"]
        assert usage.windows == {"minute": Counts(), "day": Counts(), "month": Counts()}

    bench.run(work)


def test_usage_survives_the_process(lasting: Bench) -> None:
    async def write(store: Store) -> None:
        await store.count_key("team", KeyChange(Counts(output_tokens=3)))

    async def read(store: Store) -> int:
        return (await store.read_keys(["team"]))["team"].windows["day"].output_tokens

    lasting.run(write)
    assert lasting.run(read) == 3


def test_usage_is_not_swept_with_what_expires(bench: Bench) -> None:
    async def work(store: Store) -> int:
        await store.count_key("team", KeyChange(Counts(output_tokens=3)))
        bench.clock.now += 2000.0
        await store.expire()
        return (await store.read_keys(["team"]))["team"].windows["month"].output_tokens

    assert bench.run(work) == 3
