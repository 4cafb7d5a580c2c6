"""The scenarios: behaviours of the stand-in that a model name selects. Pure.

`rehearsal`, and every name that does not begin with `rehearsal-`, selects the ordinary scenario.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from dragoman.errors import RequestRefused
from dragoman.model.outcome import ErrorKind

Ending = Literal["whole", "cut", "silent", "stall", "error"]
"""How an answer ends: normally; by a cut connection; without its last events; never; by an error in the stream."""

PREFIX = "rehearsal-"
# Slow enough to watch, and to be interrupted between two deltas; an answer of twenty deltas takes two seconds.
SLOW = 0.1


class Scenario(Struct, frozen=True):
    """One scenario: its differences from the ordinary one.

    calls: the number of calls at once. steps: rounds of calls before the answer. empty: calls without any argument.
    large: arguments of 300 KB. as_text: the tag in which calls are written as text. halved: the limit is reached half-way.
    delay: seconds before each piece. starts: False: no byte is sent. error: the whole answer, as status and kind.
    """

    name: str
    about: str
    calls: int = 1
    steps: int = 1
    interleaved: bool = False
    text_first: bool = False
    empty: bool = False
    large: bool = False
    as_text: Literal["", "tool_call", "use_tool"] = ""
    reasoning: bool = False
    refusal: bool = False
    halved: bool = False
    strict: bool = False
    delay: float = 0.0
    starts: bool = True
    ending: Ending = "whole"
    error: tuple[int, ErrorKind] | None = None


ORDINARY = Scenario("rehearsal", "calls the tool the user's words mention, then quotes its results")

_ALL = (
    ORDINARY,
    Scenario("rehearsal-parallel", "two calls in one answer", calls=2),
    Scenario("rehearsal-interleaved", "two calls whose argument deltas alternate, as some servers send them", calls=2, interleaved=True),
    Scenario("rehearsal-steps", "three rounds of calls before the answer, one by one", steps=3),
    Scenario("rehearsal-text-then-call", "some words, then the call", text_first=True),
    Scenario("rehearsal-empty-arguments", "a call without any argument", empty=True),
    Scenario("rehearsal-large-arguments", "a call with 300 KB of arguments", large=True),
    Scenario("rehearsal-text-calls", "the call written as text, in `<tool_call>` tags with JSON inside; the gateway [reports it as a call](text-calls.md)", as_text="tool_call"),
    Scenario("rehearsal-use-tool", "the call written as text, in a `<use_tool>` block of [Obsidian Copilot](obsidian.md)", as_text="use_tool"),
    Scenario("rehearsal-reasoning", "thinks before it answers, even if the request does not ask for it", reasoning=True),
    Scenario("rehearsal-refusal", "declines to answer", refusal=True),
    Scenario("rehearsal-length", "reaches the limit of tokens half-way through its answer or call", halved=True),
    Scenario("rehearsal-strict", "400 for calls without results and results without calls, as strict vendors do", strict=True),
    Scenario("rehearsal-slow", "a tenth of a second between deltas", delay=SLOW),
    Scenario("rehearsal-hang", "a 200, then no bytes at all", starts=False, ending="stall"),
    Scenario("rehearsal-stall", "half an answer, then silence", ending="stall"),
    Scenario("rehearsal-cut", "the connection is cut half-way", ending="cut"),
    Scenario("rehearsal-no-end", "the stream ends half-way, cleanly, without its last events", ending="silent"),
    Scenario("rehearsal-error-midstream", "half an answer, then an error in the dialect's own form (503 if not streamed)", ending="error"),
    Scenario("rehearsal-error-400", "HTTP 400, an invalid request", error=(400, "invalid_request")),
    Scenario("rehearsal-error-401", "HTTP 401, a wrong key", error=(401, "authentication")),
    Scenario("rehearsal-error-403", "HTTP 403, no permission", error=(403, "permission")),
    Scenario("rehearsal-error-404", "HTTP 404, no such model", error=(404, "not_found")),
    Scenario("rehearsal-error-429", "HTTP 429, a rate limit, with Retry-After", error=(429, "rate_limit")),
    Scenario("rehearsal-error-500", "HTTP 500, a server error", error=(500, "server")),
    Scenario("rehearsal-error-503", "HTTP 503, unavailable", error=(503, "overloaded")),
    Scenario("rehearsal-error-529", "HTTP 529, Anthropic's overload", error=(529, "overloaded")),
    Scenario("rehearsal-error-context", "HTTP 400, the conversation is too long for the model", error=(400, "context_length")),
)  # fmt: skip
_BY_NAME: Mapping[str, Scenario] = {scenario.name: scenario for scenario in _ALL}

SCENARIOS: Mapping[str, str] = {scenario.name: scenario.about for scenario in _ALL}
"""The description of every scenario, by the model name that selects it."""


def find_scenario(model: str) -> Scenario:
    """The scenario that a model name selects.

    Raises:
        RequestRefused: the name begins with `rehearsal-`, but there is no such scenario (kind `not_found`, status 404).
    """
    found = _BY_NAME.get(model)
    if found is not None or not model.startswith(PREFIX):
        return found or ORDINARY
    error = RequestRefused(
        f"model: expected one of {', '.join(SCENARIOS)}, got {model!r}",
        param="model",
        code="model_not_found",
    )
    error.kind = "not_found"
    error.status = 404
    raise error
