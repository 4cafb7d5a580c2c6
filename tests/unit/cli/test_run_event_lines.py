"""Event lines: one JSON object each, whole, and safe to look at."""

import asyncio
import json

import pytest

from dragoman.cli.run.event_lines import EventLines, SessionStarted
from dragoman.engine.events import ModelSpoke
from dragoman.model.events import TextDelta


def test_lines_are_json_and_hold_no_bare_control_character(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    text = "one\ntwo\x1b[2J\x9b31m\u202e\u2028é\x7f"
    lines = EventLines()
    lines.start(
        SessionStarted(session="s", root="/", model=text, upstreams=("a",), tools=("read",))
    )
    asyncio.run(lines.observe(ModelSpoke(TextDelta(0, text))))
    written = capfdbinary.readouterr().out
    first, second = (json.loads(line) for line in written.splitlines())
    assert (first["type"], first["model"]) == ("session_started", text)
    assert (second["type"], second["event"]["text"]) == ("model_spoke", text)
    assert not set(written.decode()) & set("\x1b\x9b\u202e\u2028\x7f")
    assert "é" in written.decode()


def test_notes_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    EventLines().note("a note\x1b[2J")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "dragoman: a note\\x1b[2J\n")
