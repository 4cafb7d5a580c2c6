"""A process that writes to a store and says on stdout what was acknowledged, until it is killed.

    python store_writer.py URL NAME [begin]

Each line is the id of a response that `put` (or `begin` and `finish`) has returned for.
"""

import asyncio
import sys

from dragoman.config.settings import StoreSettings
from dragoman.store.engine_store import open_store
from store_help import draft, ending

CALLERS = 4


async def main(url: str, name: str, *, begins: bool) -> None:
    store = await open_store(StoreSettings(url=url))

    async def write(caller: int) -> None:
        number = 0
        while True:
            made = draft(f"{name}-{caller}-{number}", text=f"{name} {caller} {number}" * 20)
            over = ending(text=f"{name} {caller} {number}" * 50, stream=b"data: x\n\n" * 100)
            if begins:
                await store.begin(made)
                await store.finish(made.owner, made.id, over)
            else:
                await store.put(made, over)
            sys.stdout.write(f"{made.id}\n")
            sys.stdout.flush()
            number += 1

    await asyncio.gather(*(write(caller) for caller in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], begins=len(sys.argv) > 3))
