"""Measures the cost of storing: `make bench-store` (ROWS=1000000 inserts that many rows first).

For each engine: processor time and wall time of one write and of one read by id, of this process, with one caller and
with fifty; reads among few rows and among many, which must cost alike; and the bytes a response takes. A response is a
streamed answer of 300 deltas (63 KB of SSE) to a question with two tools, after a conversation of ten.

PostgreSQL is started in a folder of its own, with its default fsync.
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from dragoman._json import Raw
from dragoman.config.settings import StoreSettings
from dragoman.model.parts import Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.store.engine_store import Store, open_store
from dragoman.store.packing import StreamBuffer
from dragoman.store.records import Draft, StoredEnd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from postgres_server import run_postgres

OWNER = "0123456789abcdef0123456789abcdef"
WORDS = [
    "the",
    "gateway",
    "stores",
    "what",
    "was",
    "store_some",
    "and",
    "tells",
    "it",
    "again",
    "when",
    "it",
    "is",
    "asked",
    "to",
]
TEXT = " ".join(WORDS[number * 7 % len(WORDS)] for number in range(300))
FRAME = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"%b ","content_index":0,'
    b'"item_id":"msg_0123456789abcdef0123456789","logprobs":[],"output_index":0,"sequence_number":%d}\n\n'
)
STREAM = b"".join(FRAME % (word.encode(), n) for n, word in enumerate(TEXT.split()))
SCHEMA = Raw(
    b'{"type":"object","properties":{"city":{"type":"string","description":"The city, and the country"}},'
    b'"required":["city"],"additionalProperties":false}'
)
TOOLS = (
    Tool(name="get_weather", description="The weather now", schema=SCHEMA),
    Tool(name="get_time", description="The time of day", schema=SCHEMA),
)
BODY_OF = (
    b'{"id":"resp_0","object":"response","status":"completed","model":"m","output":[{"type":"message","id":"msg_1",'
    b'"status":"completed","role":"assistant","content":[{"type":"output_text","text":"%b","annotations":[]}]}]}'
)
BODY = BODY_OF % TEXT.encode()


def draft(name: str, parent: str | None = None) -> Draft:
    turn = Turn(role="user", parts=(Text(text=TEXT[:200]),))
    request = Request(model="m", turns=(turn,), tools=TOOLS, temperature=0.2)
    return Draft(
        id=name,
        owner=OWNER,
        created=time.time(),
        door="responses",
        request=request,
        model="m",
        parent=parent,
    )


ENDING = StoredEnd(
    status="completed",
    body=BODY,
    stream=StreamBuffer(STREAM),
    upstream="u",
)
SMALL = StoredEnd(status="completed", body=BODY_OF % b"yes")


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(
    label: str, count: int, callers: int, work: Callable[[int], Awaitable[object]]
) -> None:
    numbers = iter(range(count))

    async def call() -> None:
        for number in numbers:
            await work(number)

    spent, began = cpu(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call())
    spent, took = cpu() - spent, time.perf_counter() - began
    print(
        f"  {label:<34} {spent / count * 1e6:8.0f} µs cpu {took / count * 1e6:8.0f} µs wall"
        f" {count / took:9.0f} /s"
    )


async def fill(store: Store, start: int, rows: int) -> None:
    numbers = iter(range(start, rows))

    async def call() -> None:
        for number in numbers:
            await store.put(draft(f"row_{number}"), SMALL)

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(call())


async def run(url: str, rows: int) -> None:
    store = await open_store(StoreSettings(url=url, max_bytes=1 << 40))
    print(store.engine if "normal" not in url else "sqlite, synchronous=normal")
    for callers in (1, 50):
        count = 300 if callers == 1 else 2000

        async def put(number: int, callers: int = callers) -> None:
            await store.put(draft(f"p{callers}_{number}"), ENDING)

        async def begin_finish(number: int, callers: int = callers) -> None:
            await store.begin(draft(f"b{callers}_{number}"))
            await store.finish(OWNER, f"b{callers}_{number}", ENDING)

        await measure(f"put, {callers} callers", count, callers, put)
        await measure(f"begin and finish, {callers} callers", count, callers, begin_finish)
    print(
        f"  a response takes {(await store.head(OWNER, 'p1_0')).size:,} bytes, its stream {len(STREAM):,}"
    )
    parent = None
    for number in range(10):
        await store.put(draft(f"chain_{number}", parent), ENDING)
        parent = f"chain_{number}"
    filled = 0
    for amount in sorted({1000, rows}):
        began = time.perf_counter()
        await fill(store, filled, amount)
        filled = amount
        print(f"  with {amount:,} more rows, written in {time.perf_counter() - began:.0f} s:")

        async def head(number: int, amount: int = amount) -> None:
            await store.head(OWNER, f"row_{number * 7919 % amount}")

        async def store_some(number: int, amount: int = amount) -> None:
            await store.read(OWNER, f"row_{number * 7919 % amount}", stream=True)

        async def chain(_: int) -> None:
            await store.chain(OWNER, "chain_9")

        async def claim(number: int) -> None:
            await store.claim(OWNER, f"row_{number}", by="x")

        for callers in (1, 50):
            await measure(f"head, {callers} callers", 2000, callers, head)
            await measure(f"store_some, {callers} callers", 2000, callers, store_some)
        await measure("chain of 10, 50 callers", 1000, 50, chain)
        await measure("claim, 50 callers", 1000, 50, claim)
        await measure("stats", 1, 1, lambda _: store.stats())
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--engines", default="memory,sqlite,sqlite-normal,postgresql")
    given = parser.parse_args()
    engines = given.engines.split(",")
    # On a disk: the usual place may be memory.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for engine in engines:
            if engine == "memory":
                uvloop.run(run("memory:", given.rows))
            elif engine == "postgresql":
                with run_postgres(fsync=True) as server:
                    uvloop.run(run(server.fresh(), given.rows))
            else:
                mode = engine.partition("-")[2] or "full"
                path = Path(folder).resolve() / f"{engine}.db"
                uvloop.run(run(f"sqlite://{path}?synchronous={mode}", given.rows))
                files = sum(file.stat().st_size for file in path.parent.glob(f"{engine}.db*"))
                print(f"  the file has {files / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
