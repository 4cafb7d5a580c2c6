"""Measures the cost of translating a stream: `make bench-core`.

Prints µs per source event for each of the nine pairs, fed one event per read and in 64 KB reads, beside a baseline
measured in the same run: split the frames, decode each with untyped msgspec, encode the dict again. Rounds of all
candidates are interleaved and the best of each is taken, so that a busy machine affects all equally; only ratios count.

Then the scaling checks: ten times the argument deltas must cost ten times as much, and a 10 MB argument must pass in
bounded memory. Then the cost that scanning for calls in the text adds to the translation of plain text, how the cost of a
call in the text grows with its argument, and the turn engine's cost per event of an answer. Figures over their limits are
marked, and make the exit code 1.
"""

import argparse
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
from bench_engine import engine_runs, side_by_side, start_times
from bench_streams import Story, dialect_stream

from dragoman._json import Raw
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.translate import StreamInterpreter, StreamTranslator
from dragoman.model.request import Request, Tool
from dragoman.textcalls import TextScanner, stage_for

DIALECTS = ("chat", "responses", "messages")
READ_BYTES = 64 * 1024
MAX_RATIO = 1.6
"""The bar for Responses→Chat through the whole hub, against the untyped baseline."""

MAX_SCAN = 0.15
"""The bar for what scanning adds to the translation of plain text."""

MAX_ENGINE = 2.0
"""The bar for a watched run: an event may cost twice what the baseline takes for a frame."""

MAX_GROWTH = 4.0
"""The bar for a 32 KB string argument in 4-character deltas against an 8 KB one: linear."""

SEARCH = Tool(
    name="search", schema=Raw(b'{"type":"object","properties":{"query":{"type":"string"}}}')
)
WRITTEN = {
    "hermes": '<tool_call>{"name": "search", "arguments": {"query": "%s"}}</tool_call>',
    "use_tool": "<use_tool>\n<name>search</name>\n<query>%s</query>\n</use_tool>",
    "qwen3_coder": "<tool_call>\n<function=search>\n<parameter=query>\n%s\n</parameter>\n</function>\n</tool_call>",
    "mistral_named": '[TOOL_CALLS]search[ARGS]{"query": "%s"}',
    "lfm2": '<|tool_call_start|>[search(query="%s")]<|tool_call_end|>',
    "gemma4": '<|tool_call>call:search{query:<|"|>%s<|"|>}<tool_call|>',
}
"""A call in one format of each kind of body."""

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


def interpretation(source: str, target: str, reads: Sequence[bytes], *, scans: bool) -> Run:
    """A stream on the way it takes through the gateway, with or without a look for calls in its text."""
    request = Request(model="m", tools=(SEARCH,))

    def run() -> bytes:
        interpreter = StreamInterpreter(
            source,
            target,
            decode=DecodeContext(),
            encode=EncodeContext(),
            scan=stage_for(request) if scans else None,
        )
        out = [interpreter.feed(read) for read in reads]
        out.append(interpreter.close())
        return b"".join(out)

    return run


def scanning(rounds: int) -> float:
    """Prints what scanning adds to each pair, text only; returns the most."""
    print(f"\n{'scanning plain text':<26}{'one event':>12}{'64 KB reads':>12}   bar {MAX_SCAN:.0%}")
    worst = 0.0
    for source in DIALECTS:
        frames = dialect_stream(source, Story(texts=2_000, calls=0))
        for target in DIALECTS:
            added: list[float] = []
            for size in (None, READ_BYTES):
                reads = reads_of(frames, size)
                runs = {
                    "plain": interpretation(source, target, reads, scans=False),
                    "scanned": interpretation(source, target, reads, scans=True),
                }
                best = best_times(runs, rounds)
                added.append(best["scanned"] / best["plain"] - 1)
            worst = max(worst, *added)
            mark = "  OVER" if max(added) > MAX_SCAN else ""
            print(f"{source + ' → ' + target:<26}{added[0]:>12.1%}{added[1]:>12.1%}{mark}")
    return worst


def written_call(name: str, size: int, *, streams: bool) -> Run:
    text = WRITTEN[name] % ("word " * (size // 5))
    pieces = [text[start : start + 4] for start in range(0, len(text), 4)]

    def run() -> int:
        scanner = TextScanner([SEARCH], formats=name, stream=[name] if streams else ())
        for piece in pieces:
            scanner.feed(piece)
        scanner.finish()
        assert scanner.calls == 1
        return scanner.calls

    return run


def long_calls(rounds: int) -> float:
    """Prints the cost of a 32 KB argument in the text over that of an 8 KB one, per format; returns the most."""
    print(f"\n{'32 KB argument ÷ 8 KB':<26}{'complete':>12}{'streamed':>12}   bar {MAX_GROWTH:g} ×")
    worst = 0.0
    for name in WRITTEN:
        grown: list[float] = []
        for streams in (False, True):
            runs = {
                "small": written_call(name, 8 * 1024, streams=streams),
                "large": written_call(name, 32 * 1024, streams=streams),
            }
            best = best_times(runs, rounds)
            grown.append(best["large"] / best["small"])
        worst = max(worst, *grown)
        mark = "  OVER" if max(grown) > MAX_GROWTH else ""
        print(f"{name:<26}{grown[0]:>12.2f}{grown[1]:>12.2f}{mark}")
    return worst


def engine(rounds: int) -> float:
    """Prints what the engine costs for each event; returns that of a watched run over the untyped baseline of a frame."""
    frames = dialect_stream("responses", Story())
    worst = 0.0
    print(f"\n{'engine':<26}{'µs/event':>12}{'× baseline':>12}   bar {MAX_ENGINE:g}")
    for label, per_read in (("one event per read", 1), ("many together", 64)):
        size = None if per_read == 1 else READ_BYTES
        runs, count = engine_runs(per_read)
        best = best_times({"baseline": baseline(reads_of(frames, size)), **runs}, rounds)
        unit = best["baseline"] / len(frames)
        for name in runs:
            cost = best[name] / count
            print(f"{name + ', ' + label:<34}{cost * 1e6:>8.2f}{cost / unit:>12.2f}")
        worst = max(worst, best["watched run"] / count / unit)
    waits, leads = zip(*(start_times() for _ in range(rounds)), strict=True)
    print(
        f"a tool starts {min(waits) * 1e6:.0f} µs after its call was complete, "
        f"{min(leads) * 1e6:,.0f} µs before the answer's end"
    )
    print(f"two calls of one second each, side by side: {side_by_side():.3f} s")
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description="What translating a stream costs.")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    worst = pairs(rounds)
    scaling(max(2, rounds // 5))
    big_argument()
    added = scanning(rounds * 4)  # a small difference of two figures: it takes more rounds to see
    grown = long_calls(rounds)
    engined = engine(rounds)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak RSS {rss:.0f} MiB")
    figures = (
        ("responses → chat, × baseline", worst, MAX_RATIO),
        ("scanning plain text, share", added, MAX_SCAN),
        ("32 KB argument ÷ 8 KB", grown, MAX_GROWTH),
        ("engine, × baseline", engined, MAX_ENGINE),
    )
    for title, figure, bar in figures:
        print(f"{title:<30}{figure:>8.2f}   bar {bar:g}{'  OVER' if figure > bar else ''}")
    return 0 if all(figure <= bar for _, figure, bar in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
