"""Look into a recorded answer from a program, as `dragoman inspect` does for a person.

    python examples/inspect_recording.py [FILE]

Without a file: a stream that interleaves two calls and breaks off.
"""

import sys
from pathlib import Path

from dragoman.inspection.recording import recognise
from dragoman.inspection.report import examine

BROKEN = Path(__file__).parent / "broken.sse"


def main() -> None:
    file = Path(sys.argv[1]) if sys.argv[1:] else BROKEN
    report = examine(recognise(file.read_bytes()))
    print(f"{report.dialect} {report.form}, {report.frames} frames, model {report.model}")
    for call in report.calls:
        verdict = "may be run" if call.executable else f"must not be run: {call.reason}"
        print(f"{call.name} {call.arguments!r} in {call.deltas} pieces, {verdict}")
    for problem in report.problems:
        print(f"frame {problem.frame}, {problem.kind}: {problem.message}")


if __name__ == "__main__":
    main()
