"""Run every client scenario of the public conformance suite of MCP, and judge the results.

    run.py NODE SUITE [SCENARIO …]

The suite starts all scenarios at once when it is asked for all; that many programs would time out on a small machine, so they
are run here, as many at a time as there are processors.
"""

import asyncio
import os
import re
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import cast

from dragoman._json import loads

HERE = Path(__file__).parent
CLIENT = f"{sys.executable} {HERE / 'client.py'}"
# The suite waits so long for our program; a machine with other work takes seconds to start it.
TIMEOUT_MS = 120_000
SECONDS = 180.0

Checks = dict[str, int]


class Result:
    def __init__(self, scenario: str, code: int, checks: Checks, said: str) -> None:
        self.scenario = scenario
        self.has_passed = code == 0 and not checks.get("FAILURE")
        self.checks = checks
        self.said = said

    @property
    def is_empty(self) -> bool:
        """Nothing was checked: the scenario is about something that we do not use at all."""
        return not (self.checks.get("SUCCESS") or self.checks.get("FAILURE"))


async def run_scenario(node: str, suite: str, scenario: str) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            *(node, suite, "client", "--command", CLIENT, "--scenario", scenario),
            *("--timeout", str(TIMEOUT_MS), "-o", folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            said, _ = await process.communicate()
        code = 1 if process.returncode is None else process.returncode
        return read_result(scenario, code, said.decode("utf-8", "replace"), Path(folder))


def read_result(scenario: str, code: int, said: str, folder: Path) -> Result:
    counts: Checks = {}
    words = [said] if code else []
    for file in folder.rglob("checks.json"):
        for check in cast("list[dict[str, object]]", loads(file.read_bytes())):
            status = str(check["status"])
            counts[status] = counts.get(status, 0) + 1
            if status == "FAILURE":
                words.append(f"{check['id']}: {check.get('errorMessage') or check['description']}")
    words += [file.read_text("utf-8") for file in folder.rglob("stderr.txt")]
    return Result(scenario, code, counts, "\n".join(words))


async def scenarios(node: str, suite: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *(node, suite, "list", "--client"), stdout=asyncio.subprocess.PIPE
    )
    listed, _ = await process.communicate()
    return re.findall(r"^\s+- (\S+)", listed.decode(), re.MULTILINE)


async def main(node: str, suite: str, wanted: list[str]) -> int:
    text = (HERE / "not_applicable.toml").read_text("utf-8")
    excused = cast("dict[str, str]", tomllib.loads(text)["scenarios"])
    began = time.monotonic()
    turns = asyncio.Semaphore(os.cpu_count() or 2)

    async def run(scenario: str) -> Result:
        async with turns:
            return await run_scenario(node, suite, scenario)

    known = await scenarios(node, suite)
    results = await asyncio.gather(*(run(each) for each in wanted or known))
    unknown = sorted(set(excused) - set(known))
    bad = 0
    for result in results:
        is_excused = result.scenario in excused
        word = (
            "nothing to check" if result.is_empty else "passed" if result.has_passed else "failed"
        )
        counts = ", ".join(
            f"{count} {status.lower()}" for status, count in sorted(result.checks.items())
        )
        if is_excused:
            word += f", does not apply ({excused[result.scenario]})"
        is_bad = result.has_passed == is_excused
        bad += is_bad
        print(f"{'✗' if is_bad else '✓'} {result.scenario}: {word}; {counts}")
        if is_bad and is_excused:
            print("    it passes: take it out of not_applicable.toml")
        elif is_bad:
            print("\n".join(f"    {line}" for line in result.said.splitlines()[-40:]))
    for scenario in unknown:
        print(f"✗ {scenario}: in not_applicable.toml, and not in the suite")
    passed = sum(each.has_passed and not each.is_empty for each in results)
    empty = sum(each.has_passed and each.is_empty for each in results)
    checks = sum(each.checks.get("SUCCESS", 0) for each in results if each.scenario not in excused)
    seconds = time.monotonic() - began
    print(
        f"{len(results)} scenarios: {passed} passed with {checks} checks, {empty} had nothing to check,"
        f" {sum(each.scenario in excused for each in results)} do not apply, {bad} are not as expected; {seconds:.0f} s"
    )
    return 1 if bad or unknown else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:])))
