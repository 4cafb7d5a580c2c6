"""Calls, results, counts and ends in a few words for a person. Values in, safe text out; no terminal.

What a model or a tool wrote is shown, never obeyed: nothing here lets a control character through.
"""

from collections.abc import Iterator
from typing import Literal, cast

from dragoman._json import loads
from dragoman.engine.events import CallSettled, RunEnded, Settlement
from dragoman.errors import MalformedJson
from dragoman.inspection.visible import cells, excerpt, visible_line
from dragoman.model.outcome import Limits, LimitWindow, Usage
from dragoman.model.parts import Call, Media, Opaque, Result, Text

__all__ = (
    "Mark",
    "call_in_words",
    "cut_to",
    "end_in_words",
    "limits_in_words",
    "mark_of",
    "result_lines",
    "seconds",
    "usage_in_words",
)

Mark = Literal["good", "bad"]

_RESULT_LINES = 4  # enough to recognise a result by; --json has it whole
_MAX_PARSED = 1_000_000  # characters of a call's input: a file to be written may be large
_SHOWN = 1000
_VALUE = 60
_MOST_VALUES = 4

_ENDS: dict[str, str] = {
    "max_turns": "stopped: the limit of turns is reached",
    "max_tokens": "stopped: the limit of tokens is reached",
    "max_time": "stopped: the limit of time is reached",
    "no_progress": "stopped: the same call was repeated without progress",
    "cancelled": "interrupted: what ran was stopped, the conversation is kept as far as it came",
    "handed_over": "stopped: the model called a tool that nobody here runs",
}
_SETTLEMENTS: dict[Settlement, str] = {
    "done": "",
    "failed": "failed",
    "refused": "not run",
    "timed_out": "timed out",
    "aborted": "stopped",
}


def call_in_words(call: Call) -> str:
    """The tool and what it is to do, on one line of any length: `read README.md`."""
    name = call.name if call.namespace is None else f"{call.namespace}.{call.name}"
    told = visible_line(" ".join(_input_in_words(call.input)[:_SHOWN].split("\n")))
    return f"{visible_line(name)} {told}".rstrip()


def _input_in_words(text: str) -> str:
    if len(text) > _MAX_PARSED:
        return text
    try:
        value = cast("object", loads(text))
    except MalformedJson:
        return text
    if not isinstance(value, dict):
        return text
    words: list[str] = []
    for name, each in cast("dict[str, object]", value).items():
        shown = each if isinstance(each, str) else str(each)
        shown = shown if len(shown) <= _VALUE else f"{shown[:_VALUE]}…"
        words.append(shown if not words else f"{name}={shown}")
    more = "" if len(words) <= _MOST_VALUES else " …"
    return " ".join(words[:_MOST_VALUES]) + more


def mark_of(settled: CallSettled) -> Mark:
    return "good" if settled.how == "done" and not settled.result.is_error else "bad"


def result_lines(settled: CallSettled, width: int) -> Iterator[str]:
    """The first lines of a result, each of at most `width` cells, and how much there is beside them."""
    word = _SETTLEMENTS[settled.how]
    text = _result_text(settled.result).strip("\n")
    if word:
        text = f"{word}: {text}" if text else word
    if not text:
        return
    shown = excerpt(text, width, _RESULT_LINES)
    yield from shown.lines
    if shown.is_cut:
        yield f"… {text.count(chr(10)) + 1:,} lines, {len(text):,} characters in all"


def _result_text(result: Result) -> str:
    return "\n".join(map(_content, result.content))


def _content(part: Text | Media | Opaque) -> str:
    match part:
        case Text():
            return part.text
        case Media():
            return f"[{part.kind} {part.media_type or ''}]".replace(" ]", "]")
        case Opaque():
            return f"[{part.type}]"


def cut_to(text: str, width: int) -> str:
    """Text of one line, no wider than so many cells."""
    if cells(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while kept and cells(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def seconds(elapsed: float) -> str:
    if elapsed < 60:
        return f"{elapsed:.1f} s"
    minutes, rest = divmod(int(elapsed), 60)
    return f"{minutes} min {rest:02} s"


def usage_in_words(usage: Usage) -> str:
    """`1,234 tokens in (800 cached), 56 out`; nothing where nothing was counted."""
    if usage.input is None and usage.output is None:
        return ""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    return f"{usage.input or 0:,} tokens in{cached}, {usage.output or 0:,} out"


def limits_in_words(limits: Limits) -> str:
    return ", ".join(filter(None, map(_window, limits.windows)))


def _window(window: LimitWindow) -> str:
    name = visible_line(window.name)
    if window.used_percent is not None:
        return f"{name} {window.used_percent:.0f}% used"
    if window.remaining is not None:
        of = "" if window.limit is None else f" of {window.limit:,.0f}"
        return f"{name} {window.remaining:,.0f}{of} left"
    return ""


def end_in_words(ended: RunEnded) -> str:
    """Why it ended, where that is not plain to see; with the error that did it."""
    error = "" if ended.error is None else visible_line(ended.error.message)
    if ended.reason == "failed":
        return f"failed: {error}" if error else "failed"
    told = _ENDS.get(ended.reason, "")
    return f"{told} ({error})" if told and error else told
