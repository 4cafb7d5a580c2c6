"""Run the public compliance suite llm-comply at every door, over the rehearsal and over an upstream of each dialect.

    run.py LLM_COMPLY [TEST …]

Every test must pass without warnings, except those in `not_applicable.toml`, which must not.
"""

import json
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from clients.gateway import serve_gateway
from clients.model import DIALECTS, PATHS, WIRES
from clients.script import Conversation, Dialect, ModelTurn, SpokenCall

from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream

HERE = Path(__file__).parent
REHEARSAL = "rehearsal"
# What the suite calls the doors, and names of models that it knows to think: it skips tests for others.
DOORS: dict[Dialect, tuple[str, str]] = {
    "responses": ("open-responses", "gpt-5.5"),
    "chat": ("openai-chat", "gpt-5.5"),
    "messages": ("anthropic", "claude-opus-4-5"),
}
THINKING_FIELDS = {"responses": "reasoning", "chat": "reasoning_effort", "messages": "thinking"}
SECONDS = 120.0


@dataclass(frozen=True)
class Result:
    """One test at one door, over one upstream."""

    door: Dialect
    upstream: str
    test: str
    status: str
    said: tuple[str, ...]

    @property
    def has_passed(self) -> bool:
        return self.status == "passed" and not self.said


def answer(request: ReceivedRequest) -> ScriptedReply:
    """The scripted upstream: calls a tool if there is one, thinks if it is asked to, and refuses what the vendors refuse."""
    dialect = PATHS[request.path]
    wire = WIRES[dialect]
    value = json.loads(request.body)
    conversation: Conversation = wire.read(value)
    if conversation.objections:
        body = wire.error_body("invalid_request_error", "; ".join(conversation.objections))
        return ScriptedReply(status=400, content_type="application/json", body=body)
    thinking = "15 * 37 is 555." if THINKING_FIELDS[dialect] in value else ""
    turn = ModelTurn(text="" if conversation.tools else "One two three.", thinking=thinking)
    calls = [
        SpokenCall(f"{wire.ID_PREFIX}1", tool, '{"location": "San Francisco"}')
        for tool in conversation.tools
    ]
    if not conversation.stream:
        body = wire.body(turn, calls, conversation.model)
        return ScriptedReply(content_type="application/json", body=body)
    frames = [frame for _, frame in wire.stream(turn, calls, conversation.model)]
    return ScriptedReply(content_type="text/event-stream", chunks=frames)


def run_suite(
    suite: str, url: str, door: Dialect, upstream: str, wanted: list[str]
) -> list[Result]:
    form, model = DOORS[door]
    name = model if upstream == REHEARSAL else f"to-{upstream}-{model}"
    options = ["--filter", ",".join(wanted)] if wanted else []
    done = subprocess.run(
        [
            suite,
            "-u",
            f"{url}/v1",
            "-k",
            "sk-any",
            "-m",
            name,
            "--format",
            form,
            "--json",
            *options,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    try:
        report: Any = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode("utf-8", "replace")[-4000:]
        raise SystemExit(f"conformance: expected a report of llm-comply, got:\n{said}") from None
    return [
        Result(
            door,
            upstream,
            each["id"],
            each["status"],
            (*each.get("errors", ()), *(f"warning: {text}" for text in each.get("warnings", ()))),
        )
        for each in report["results"]
    ]


def run_all(suite: str, wanted: list[str]) -> list[Result]:
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory() as bare,
        tempfile.TemporaryDirectory() as folder,
        ScriptedUpstream.in_thread(answer) as scripted,
        serve_gateway(Path(bare)) as rehearsing,
        serve_gateway(Path(folder), scripted.url) as translating,
    ):
        for door in DOORS:
            results += run_suite(suite, rehearsing, door, REHEARSAL, wanted)
            for upstream in DIALECTS:
                results += run_suite(suite, translating, door, upstream, wanted)
    return results


def excuse(result: Result, excused: dict[str, str]) -> str | None:
    """The reason why a test does not apply: over this upstream, or over any."""
    return excused.get(f"{result.test} over {result.upstream}") or excused.get(result.test)


def judge(results: list[Result], excused: dict[str, str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for result in results:
        where = f"{result.test} over {result.upstream}"
        reason = excuse(result, excused)
        if (reason is None) is result.has_passed:
            counts["passed" if reason is None else "excused"] += 1
            note = "passed" if reason is None else f"does not apply ({reason})"
            print(f"✓ {where}: {note}")
            continue
        counts["unexpected"] += 1
        if reason is not None:
            print(f"✗ {where}: it passes: take it out of not_applicable.toml")
            continue
        print(f"✗ {where}: {result.status}")
        print("\n".join(f"    {line[:400]}" for line in result.said[:40]))
    return counts


def unknown_entries(results: list[Result], excused: dict[str, str]) -> list[str]:
    known = {name for each in results for name in (each.test, f"{each.test} over {each.upstream}")}
    return sorted(set(excused) - known)


def main(suite: str, wanted: list[str]) -> int:
    text = (HERE / "not_applicable.toml").read_text("utf-8")
    excused = cast("dict[str, str]", tomllib.loads(text)["tests"])
    began = time.monotonic()
    results = run_all(suite, wanted)
    counts = judge(results, excused)
    unknown = [] if wanted else unknown_entries(results, excused)
    for name in unknown:
        print(f"✗ {name}: in not_applicable.toml, and not in the suite")
    upstreams = {each.upstream for each in results}
    print(
        f"llm-comply: {len(results)} tests at {len(DOORS)} doors over {len(upstreams)} upstreams:"
        f" {counts['passed']} passed without warnings, {counts['excused']} do not apply,"
        f" {counts['unexpected']} are not as expected; {time.monotonic() - began:.0f} s"
    )
    return 1 if counts["unexpected"] or unknown or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
