"""Checks a text pattern against the laws of this package, on samples: for authors of formats, and for the tests.

    for fault in check_pattern(MY_PATTERN, samples, tools).faults: print(fault)

Each sample is read whole, character by character, cut in two at every position, and in pieces of several sizes. Then
each prefix is read as an answer that was cut off there. A fault names the law that a sample broke.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from msgspec import Struct

from dragoman._json import is_strict, loads
from dragoman.model.outcome import FinishReason
from dragoman.textcalls.block import MAX_WORD, TextPattern
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import (
    CallEnded,
    Found,
    InputFound,
    TextFound,
    ThoughtFound,
    gather,
)
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers

# Characters examined for each character of the text. A format that looks far ahead in one-character pieces needs tens;
# a format that reads its block again and again needs hundreds.
MAX_STEPS = 100
_PIECES = (2, 3, 5, 7, 13, 64)


class Report(Struct, frozen=True):
    """samples: how many were run. calls: how many calls they hold. faults: the broken laws, with the sample."""

    samples: int
    calls: int
    faults: tuple[str, ...]


class FinderRun(Struct, frozen=True):
    """One reading of a text. examined: characters examined. most_held: the most characters of unconfirmed text held."""

    found: tuple[Found, ...]
    examined: int
    most_held: int


def run_finder(
    patterns: Sequence[TextPattern],
    pieces: Iterable[str],
    offers: Offers,
    finish: FinishReason = "stop",
) -> FinderRun:
    """Read a text in these pieces and return the findings and the counts."""
    finder = Finder(Openers(patterns, offers), offers)
    found: list[Found] = []
    most_held = 0
    for piece in pieces:
        found += finder.feed(piece)
        if not finder.is_confirmed:
            most_held = max(most_held, len(finder.held.strip()))
    found += finder.finish(finish)
    return FinderRun(tuple(found), finder.examined, most_held)


def coalesce(found: Iterable[Found]) -> list[Found]:
    """Return the findings with neighbouring pieces of one text, thought or input joined."""
    joined: list[Found] = []
    for one in found:
        last = joined[-1] if joined else None
        match last, one:
            case TextFound(), TextFound():
                joined[-1] = TextFound(last.text + one.text)
            case ThoughtFound(), ThoughtFound():
                joined[-1] = ThoughtFound(last.text + one.text)
            case InputFound(), InputFound() if last.index == one.index:
                joined[-1] = InputFound(one.index, last.text + one.text)
            case _:
                joined.append(one)
    return joined


def check_pattern(
    pattern: TextPattern,
    samples: Iterable[str],
    tools: Iterable[object] | None = None,
    *,
    others: Sequence[TextPattern] = (),
) -> Report:
    """Run samples of a pattern through all laws. `others`: patterns scanned beside it, as in a real scanner."""
    patterns, offers = (pattern, *others), Offers(tools)
    faults: list[str] = []
    number = calls = 0
    for number, sample in enumerate(samples, 1):
        whole = run_finder(patterns, (sample,), offers)
        calls += sum(isinstance(one, CallEnded) for one in whole.found)
        faults += (
            f"sample {number}: {fault}" for fault in _check(pattern, patterns, sample, offers)
        )
    return Report(number, calls, tuple(faults))


def _check(
    pattern: TextPattern, patterns: Sequence[TextPattern], sample: str, offers: Offers
) -> Iterator[str]:
    expected = coalesce(run_finder(patterns, (sample,), offers).found)
    yield from _check_found(sample, expected)
    longest = max(len(opener) for opener in pattern.openers)
    for pieces in _cuts(sample):
        run = run_finder(patterns, pieces, offers)
        if coalesce(run.found) != expected:
            yield f"pieces of {len(pieces[0])} characters and more give other findings than the whole"
        if run.examined > MAX_STEPS * (len(sample) + MAX_WORD):
            yield f"{run.examined} characters were examined for a text of {len(sample)}"
        if run.most_held > pattern.limits.confirm + longest + MAX_WORD:
            yield f"{run.most_held} characters were held before the format was confirmed"
    for end in range(len(sample)):
        cut = run_finder(patterns, (sample[:end],), offers, "length")
        yield from _check_found(sample[:end], coalesce(cut.found))
        whole_calls = sum(isinstance(one, CallEnded) for one in expected)
        if sum(isinstance(one, CallEnded) for one in cut.found) > whole_calls:
            yield f"cut off after {end} characters it has more calls than whole"


def _cuts(sample: str) -> Iterator[list[str]]:
    if sample:
        yield list(sample)
        for size in _PIECES:
            yield [sample[start : start + size] for start in range(0, len(sample), size)]
        for end in range(1, len(sample)):
            yield [sample[:end], sample[end:]]


def _check_found(sample: str, found: Sequence[Found]) -> Iterator[str]:
    """Check that text and markup together are the sample, in order, and that arguments are JSON objects."""
    for number, call in enumerate(gather(found).calls):
        source = call.arguments
        if not is_strict(source) or not isinstance(cast("object", loads(source)), dict):
            yield f"the arguments of call {number} are no JSON object"
    place = 0
    for one in found:
        match one:
            case TextFound() | ThoughtFound():
                start = sample.find(one.text, place)
                if start < 0:
                    yield f"{one.text[:40]!r} is reported but is not in the sample at that place"
                    return
                place = start + len(one.text)
            case CallEnded():
                if not place <= one.end <= len(sample):
                    yield f"a call ends at {one.end}, before the end of what was reported before it"
                place = max(place, one.end)
            case _:
                pass
