"""Every example runs as a reader would run it, and so does the code in the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.config.settings import ServerSettings, Settings
from gateway_harness import running_gateway

PROJECT = Path(__file__).parents[1]
EXAMPLES = sorted(path.name for path in (PROJECT / "examples").glob("*.py"))

SAYS = {
    "agent.py": [
        'started weather {"city":"Oslo"}',
        "done: weather",
        "weather returned: 4 degrees in Oslo",
        "weather returned: 21 degrees in Rome",
        "8 turns, ended: answered",
    ],
    "translate_stream.py": [
        "event: message_start",
        '"name":"weather"',
        '"name":"forecast"',
        "event: message_stop",
    ],
    "gateway_round_trip.py": [
        'Chat Completions: weather {"city":"Oslo"}',
        'Responses:        weather {"city":"Oslo"}',
        'Messages:         weather {"city":"Oslo"}',
    ],
    "hosted_tools.py": [
        "Responses: shop.stock → 3 × saw, 1 × hammer",
        "Messages:  shop__stock returned: 3 × saw, 1 × hammer",
    ],
    "aggregate_calls.py": ["call_1: 42", "call_2: not run, not_closed"],
    "inspect_recording.py": [
        "chat stream, 5 frames, model local-example",
        'weather \'{"city": "Oslo"}\' in 2 pieces',
        "must not be run: not_closed",
        "interleaved_calls",
        "cut_stream",
    ],
}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,  # the SDKs take seconds to import, on a busy machine a minute
        check=False,
        cwd=PROJECT,
        # Whatever keys there are: examples run on the rehearsal.
        env={name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_says_what_it_promises(name: str) -> None:
    done = run(f"examples/{name}")
    assert done.returncode == 0, done.stderr
    assert [line for line in SAYS[name] if line not in done.stdout] == []


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
def test_recorded_stream_translates_to_every_dialect_without_complaint(target: str) -> None:
    done = run("examples/translate_stream.py", "examples/recorded.sse", "responses", target)
    assert (done.returncode, done.stderr) == (0, "")
    assert "weather" in done.stdout


def test_first_program_in_the_readme_gets_its_tool_call_from_a_gateway_without_a_key() -> None:
    text = (PROJECT / "README.md").read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    assert code.count("\n") <= 13
    settings = Settings(server=ServerSettings(shutdown_grace=0.3))
    with running_gateway(settings) as gateway:
        done = run("-c", code.replace("http://127.0.0.1:8787", gateway.url))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[{'city': 'Oslo'}]"
