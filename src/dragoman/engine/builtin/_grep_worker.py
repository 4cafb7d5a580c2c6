"""The program that matches lines for `grep`, in a process of its own: Python cannot interrupt a match, but can end a process.

`search.Matcher` runs this file by its path, without the package, so that it starts within a few hundredths of a second.
It reads from its input

    flags, pattern                          one line each, the pattern as the numbers of its characters
    length of each text of a batch          one line; then the texts, joined

and answers each batch with one line per text: the numbers of the lines that match, from 1, as many as the limit allows.
"""

import re
import sys

MAX_MEMORY = 1_073_741_824
# The limit of CPU time ends this process if the parent process is gone.
MAX_SECONDS = 60


def _bound() -> None:
    try:
        import resource  # noqa: PLC0415 -- not everywhere
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))


def main() -> None:
    """Answer until the input ends."""
    _bound()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    flags, limit, longest = map(int, source.readline().split())
    pattern = re.compile("".join(map(chr, map(int, source.readline().split()))), flags)
    while sizes := source.readline().split():
        for data in [source.read(int(size)) for size in sizes]:
            found: list[str] = []
            text = data.decode("utf-8", "replace").removesuffix("\n")
            for number, line in enumerate(text.split("\n"), 1):
                if pattern.search(line[:longest].removesuffix("\r")):
                    found.append(str(number))
                    if len(found) >= limit:
                        break
            target.write(" ".join(found).encode("ascii") + b"\n")
        target.flush()


if __name__ == "__main__":
    main()
