"""Run pytest quietly and close with one line a person and a machine can read: `test: 812 passed, 0 failed in 61 s`.

An error in a fixture or in collecting counts as a failure, a run that ends badly for any other reason as one too.
"""

import os
import sys
import time

import pytest


class Tally:
    """Counts each test once, whichever of its phases failed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.skipped: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.skipped.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def closing_line(self, exit_code: int, seconds: float) -> str:
        failed = len(self.failed)
        if exit_code and not failed:
            failed = 1
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        passed = len(self.passed - self.failed)
        return f"test: {passed} passed, {failed} failed{skipped} in {seconds:.0f} s"


def main() -> int:
    # pytest rewrites the assertions of 440 files. Workers that may not keep the result do it again in every run, which
    # takes each of them some twelve seconds of CPU time.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    workers = os.environ.get("WORKERS", "4")
    tally = Tally()
    start = time.monotonic()
    # The project's settings already hold one -q; with this second one pytest leaves the closing line to us.
    # With worksteal each worker has neighbouring tests, which share what a module starts, and none waits for a slow one.
    options = ["-q", "--no-header", "-n", workers, "--dist", "worksteal", *sys.argv[1:]]
    code = int(pytest.main(options, plugins=[tally]))
    sys.stdout.flush()
    print(tally.closing_line(code, time.monotonic() - start), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
