"""Records exchanges on disk (`serve --record DIR`): one folder for each, without secrets.

A thread takes the secrets out and writes. If it falls behind, exchanges are left out; if the disk is full, or the recordings
have reached their limit, recording stops. Both are logged. No request waits or fails because of a recording.
"""

import logging
import queue
import threading
from pathlib import Path

from dragoman.config.settings import InspectSettings
from dragoman.core.secrets import Secrets
from dragoman.inspection.exchange import RecordedExchange
from dragoman.inspection.exchange_files import to_files
from dragoman.inspection.redaction import redact_exchange
from dragoman.recordings import recording_name, used_bytes, write_recording

logger = logging.getLogger(__name__)

# Exchanges in the thread's queue; each may take `inspect.max_exchange_bytes`.
_MAX_WAITING = 32
# After this many recordings their bytes are counted again: other workers write into the same folder.
_RECOUNT = 64
# How long a stopping gateway waits for the last recordings.
_LAST_SECONDS = 10.0


class Recorder:
    """Writes recordings. Its thread starts with the first exchange and ends with `close`."""

    def __init__(self, settings: InspectSettings) -> None:
        self._root = Path(settings.record or "")
        self._max_bytes = settings.record_max_bytes
        self._waiting: queue.Queue[tuple[RecordedExchange, Secrets] | None] = queue.Queue(
            _MAX_WAITING
        )
        self._thread: threading.Thread | None = None
        self._written = 0
        self._used = 0  # bytes of all recordings
        self._is_full = False
        self._left_out = 0

    def take(self, exchange: RecordedExchange, secrets: Secrets) -> None:
        """Queue an exchange for the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dragoman-record", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait((exchange, secrets))
        except queue.Full:
            self.leave_out()

    def leave_out(self) -> None:
        """Note that an exchange is not recorded. The first is logged."""
        self._left_out += 1
        if self._left_out == 1:
            logger.warning(
                "exchanges come faster than they can be recorded, or are larger than inspect.max_bytes allows; "
                "some are left out"
            )

    def close(self) -> None:
        """Write what is queued, within a time limit."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._waiting.put(None, timeout=_LAST_SECONDS)
        except queue.Full:
            return
        thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while (taken := self._waiting.get()) is not None:
            exchange, secrets = taken
            if self._is_full:
                continue
            try:
                self._write(exchange, secrets)
            except OSError as error:
                self._is_full = True
                logger.warning("recording stops: %s: %s", self._root, error.strerror or error)
            except Exception:
                logger.exception("request %s could not be recorded", exchange.id)

    def _write(self, exchange: RecordedExchange, secrets: Secrets) -> None:
        files = to_files(redact_exchange(exchange, secrets))
        size = sum(map(len, files.values()))
        self._written += 1
        if self._written % _RECOUNT == 1:
            self._used = used_bytes(self._root)
        used = self._used
        if used + size > self._max_bytes:
            self._is_full = True
            logger.warning(
                "recording stops: %s has %d of %d bytes (inspect.record_max_bytes)",
                *(self._root, used, self._max_bytes),
            )
            return
        write_recording(self._root, recording_name(exchange), files)
        self._used = used + size
