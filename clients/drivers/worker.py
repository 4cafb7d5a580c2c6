"""Runs jobs with the frameworks of Python: one JSON object per line in, one per line out, as `worker.mjs` does for Node.

It runs in an environment of its own (`clients/.venv/…`) and imports nothing of the project. A framework is loaded by the first
job that names it.
"""

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

from transcript import Transcript

DRIVERS = {
    "langchain": "langchain_client",
    "llama": "llama_index_client",
    "adk": "adk_client",
    "openai": "openai_client",
}


async def run(job: dict[str, Any]) -> dict[str, Any]:
    transcript = Transcript(job)
    driver: Any = import_module(DRIVERS[job["client"].split("-")[0]])
    try:
        await driver.converse(job, transcript)
    except Exception as error:
        transcript.fail(error)
    return transcript.report()


def main() -> None:
    # Whatever a library prints must not get into the channel.
    channel, sys.stdout = sys.stdout, sys.stderr
    # One event loop for all jobs: the frameworks keep connections that belong to it.
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            report = runner.run(run(json.loads(line)))
            print(json.dumps(report), file=channel, flush=True)


if __name__ == "__main__":
    main()
