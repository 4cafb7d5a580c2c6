"""`--json`: everything that happens in a run, one JSON object a line, on standard output when it happens.

Lines are the engine's events (`engine.events`) and, before them, what the run is. Everything else, such as questions and
notes, goes to standard error.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from dragoman._json import dumps
from dragoman.cli.screen import complain, write
from dragoman.engine.events import EngineEvent, RunEnded
from dragoman.inspection.layout import Style

__all__ = ("EventLines", "SessionStarted")

# JSON escapes the other control characters. These may stand bare, and a terminal may obey them.
_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class SessionStarted(Struct, frozen=True, kw_only=True, tag_field="type", tag="session_started"):
    """The first line.

    turns: how many are known from the runs before. sandbox: a sentence on how commands are run.
    approval: what becomes of calls that need it: `asked`, `granted`, `refused`.
    """

    session: str
    root: str
    model: str
    upstreams: Sequence[str]
    tools: Sequence[str]
    turns: int = 0
    sandbox: str = ""
    approval: str = ""


class EventLines:
    """A watcher that is a program."""

    def start(self, started: SessionStarted) -> None:
        _write_line(started)

    async def observe(self, event: EngineEvent) -> None:
        _write_line(event)

    def note(self, text: str, style: Style = "faint") -> None:
        del style
        complain([text])

    def warn(self, text: str) -> None:
        complain([text])

    def end(self, ended: RunEnded, session_id: str) -> None:
        del ended, session_id  # the last event has said so

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


def _write_line(value: Struct) -> None:
    data = dumps(value)
    if not data.isascii():
        # Only strings hold such characters, and there an escape means the same.
        data = _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()
    write(data + b"\n")
