"""What translating a stream costs: `make bench-core`.

Prints µs per source event for each of the nine pairs, fed one event per read and in 64 KB reads, beside a baseline
measured in the same run: split the frames, decode each with untyped msgspec, encode the dict again. Rounds of all
candidates are interleaved and the best of each is taken, so that a busy machine disturbs all alike; only ratios count.

Then the scaling checks: ten times the argument deltas must cost ten times as much, and a 10 MB argument must pass in
bounded memory.
"""

import argparse
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
from bench_streams import Story, dialect_stream

from dragoman.dialects.translate import StreamTranslator

DIALECTS = ("chat", "responses", "messages")
READ_BYTES = 64 * 1024
MAX_RATIO = 1.6
"""The bar for Responses→Chat through the whole hub, against the untyped baseline."""

Run = Callable[[], object]


def reads_of(frames: Sequence[bytes], size: int | None) -> list[bytes]:
    if size is None:
        return list(frames)
    data = b"".join(frames)
    return [data[start : start + size] for start in range(0, len(data), size)]


def baseline(reads: Sequence[bytes]) -> Run:
    decode = msgspec.json.Decoder().decode
    encode = msgspec.json.Encoder().encode

    def run() -> bytes:
        out: list[bytes] = []
        rest = b""
        for read in reads:
            *pieces, rest = (rest + read).split(b"\n\n")
            for piece in pieces:
                data = piece[piece.find(b"data: ") + 6 :]
                if data != b"[DONE]":
                    out.append(b"data: " + encode(decode(data)) + b"\n\n")
        return b"".join(out)

    return run


def translation(source: str, target: str, reads: Sequence[bytes]) -> Run:
    def run() -> bytes:
        translator = StreamTranslator(source, target)
        out = [translator.feed(read) for read in reads]
        out.append(translator.close())
        return b"".join(out)

    return run


def best_times(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def pairs(rounds: int) -> float:
    """Prints the table; returns the worse ratio of Responses→Chat to the baseline over both read sizes."""
    worst = 0.0
    for label, size in (("one event per read", None), ("64 KB reads", READ_BYTES)):
        print(f"\n{label:<22}{'µs/event':>10}{'events/s':>12}{'× baseline':>12}")
        for source in DIALECTS:
            frames = dialect_stream(source, Story())
            reads = reads_of(frames, size)
            runs: dict[str, Run] = {"baseline": baseline(reads)}
            runs |= {target: translation(source, target, reads) for target in DIALECTS}
            best = best_times(runs, rounds)
            for name, seconds in best.items():
                ratio = seconds / best["baseline"]
                title = f"{source} → {name}" if name != "baseline" else f"{source} baseline"
                micros = seconds / len(frames) * 1e6
                print(f"{title:<22}{micros:>10.2f}{1e6 / micros:>12,.0f}{ratio:>12.2f}")
                if (source, name) == ("responses", "chat"):
                    worst = max(worst, ratio)
    return worst


def scaling(rounds: int) -> dict[str, float]:
    """Cost of 100,000 one-character argument deltas over that of 10,000, per pair."""
    print(f"\n{'100,000 deltas ÷ 10,000':<26}{'× cost':>8}")
    ratios: dict[str, float] = {}
    for source in DIALECTS:
        small, large = (
            dialect_stream(source, Story(texts=0, calls=1, arguments=count))
            for count in (10_000, 100_000)
        )
        for target in DIALECTS:
            runs = {
                "small": translation(source, target, small),
                "large": translation(source, target, large),
            }
            best = best_times(runs, rounds)
            ratios[f"{source} → {target}"] = best["large"] / best["small"]
            print(f"{source + ' → ' + target:<26}{ratios[f'{source} → {target}']:>8.1f}")
    return ratios


def big_argument() -> dict[str, float]:
    """Peak memory, in multiples of the argument, while 10 MB of arguments pass in 1 KB deltas."""
    size = 10 * 1024 * 1024
    print(f"\n{'10 MB argument':<26}{'peak ÷ size':>12}")
    peaks: dict[str, float] = {}
    for source in DIALECTS:
        frames = dialect_stream(source, Story(texts=0, calls=1, arguments=12))
        needle = b'"x"'
        wide = b'"' + b"x" * 1024 + b'"'
        narrow = [frame for frame in frames if needle in frame][:1]
        start = next(index for index, frame in enumerate(frames) if needle in frame)
        tail = [frame for frame in frames[start:] if needle not in frame]
        # The repeats of the whole argument in Responses' closing events would contradict the longer stream.
        head = frames[:start]
        for target in DIALECTS:
            translator = StreamTranslator(source, target)
            tracemalloc.start()
            for frame in head:
                translator.feed(frame)
            for _ in range(size // 1024):
                translator.feed(narrow[0].replace(needle, wide))
            for frame in tail if source != "responses" else tail[:1]:
                translator.feed(frame)
            translator.close()
            peaks[f"{source} → {target}"] = tracemalloc.get_traced_memory()[1] / size
            tracemalloc.stop()
            print(f"{source + ' → ' + target:<26}{peaks[f'{source} → {target}']:>12.1f}")
    return peaks


def main() -> int:
    parser = argparse.ArgumentParser(description="What translating a stream costs.")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    worst = pairs(rounds)
    scaling(max(2, rounds // 5))
    big_argument()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nresponses → chat: {worst:.2f} × baseline (bar {MAX_RATIO}); peak RSS {rss:.0f} MiB")
    return 0 if worst <= MAX_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
