"""What libraries log while an agent runs, as notes beside it rather than across its screen; failures of MCP servers, which no
`--quiet` hides, as warnings.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress

from dragoman.cli.run.display import Watcher
from dragoman.core.secrets import Secrets
from dragoman.server.redaction import redact

__all__ = ("noted_logs",)

_SERVERS = "dragoman.engine.mcp."
_LONGEST = 500  # of a message; a trace has pages


class _Notes(logging.Handler):
    def __init__(self, watcher: Watcher, loop: asyncio.AbstractEventLoop, secrets: Secrets) -> None:
        super().__init__(logging.WARNING)
        self._secrets = secrets
        self._watcher = watcher
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        text = redact(self._secrets.hide(text))
        is_server = record.name.startswith(_SERVERS)
        tell = self._watcher.warn if is_server else self._watcher.note
        with suppress(RuntimeError):  # the loop is closed: there is nobody left to tell
            # Whatever thread logs, and in whatever moment: the screen is the loop's.
            self._loop.call_soon_threadsafe(tell, text[:_LONGEST])


@contextmanager
def noted_logs(watcher: Watcher, secrets: Secrets) -> Generator[None]:
    """Warnings and worse become notes without the secrets. Needs the running loop."""
    handler = _Notes(watcher, asyncio.get_running_loop(), secrets)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
