"""Keys that expire: a program prints one, and it is run again before the key has expired.

The output is the key alone, as `gcloud auth print-access-token` prints it, or a JSON object with the key and its end:

    the key   `accessToken`, `access_token` or `token`
    its end   `expires_on` (seconds since 1970), `expires_in` (seconds from now), or `expiry` or `expiration` (a time by RFC 3339)

`az account get-access-token` prints such an object. The program is run without a shell, one run at a time. Requests wait for it
only if there is no valid key: one is renewed beside them, before its end. Whatever the program writes to its standard error is logged. The key never is.
"""

import asyncio
import logging
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import cast

from msgspec import Struct

from dragoman._json import loads
from dragoman.core.secrets import Secrets, clean, redact
from dragoman.errors import MalformedJson, UpstreamError
from dragoman.upstream.rate_limits import moment_of, number_of

logger = logging.getLogger(__name__)

# Seconds. Programs that ask a cloud's login service take one or two, and more on a bad connection.
PATIENCE = 30.0
# Bytes. A token of Entra has some two thousand.
MAX_OUTPUT = 64 * 1024
# Characters of the program's standard error in one log line.
_MAX_LOGGED = 2000
# A key is renewed so many seconds before its end, or after half of its life if that is later.
MARGIN = 300.0
# Seconds after which a key without a known end is renewed. Google's last an hour, and may be some minutes old already.
UNKNOWN_LIFE = 300.0
# Seconds in which a program that failed, or whose new key was refused, is not run again: a burst of requests should not
# start a burst of programs.
PAUSE = 5.0

_KEYS = ("accessToken", "access_token", "token")
_TIMES = ("expiry", "expiration")
_LONGEST_LINE = 16 * 1024


class Token(Struct, frozen=True):
    """A key, the time from which it should be renewed, and its end."""

    value: str
    renew_at: float
    ends_at: float = inf

    def __repr__(self) -> str:
        """Without the key: tracebacks show this text."""
        return "Token(…)"


def read_token(output: bytes, now: float) -> Token:
    """The token in a program's output. `now`: seconds since 1970.

    Raises:
        ValueError: there is none; the message does not quote the output.
    """
    try:
        text = output.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError("expected text") from None
    end: float | None = None
    if text.startswith("{"):
        text, end = _read_object(text.encode(), now)
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(
            "expected a token, without spaces, on one line"
            if text
            else "expected a token, got nothing"
        )
    if len(text) > _LONGEST_LINE:
        raise ValueError(f"expected a token of at most {_LONGEST_LINE} characters")
    if end is None:
        return Token(text, now + UNKNOWN_LIFE)
    if end <= now:
        raise ValueError("expected a token that has not expired")
    return Token(text, max(end - MARGIN, now + (end - now) / 2), end)


def _read_object(data: bytes, now: float) -> tuple[str, float | None]:
    try:
        fields = cast("object", loads(data))
    except MalformedJson:
        raise ValueError("expected a token or a JSON object, got broken JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("expected a token or a JSON object")  # noqa: TRY004 - one error for all of them
    values = cast("dict[str, object]", fields)
    token = next((value for name in _KEYS if isinstance(value := values.get(name), str)), "")
    if not token:
        raise ValueError(f"expected one of {', '.join(_KEYS)} in the JSON object")
    absolute = _number(values.get("expires_on"))
    relative = _number(values.get("expires_in"))
    if absolute is None and relative is not None:
        absolute = now + relative
    for name in _TIMES:
        value = values.get(name)
        if absolute is None and isinstance(value, str):
            absolute = moment_of(value)
    return token, absolute


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return number_of(str(value))


def _ignore(_secrets: Secrets) -> None:
    pass


class TokenCommand:
    """The key of one upstream, from its program. Used by one event loop."""

    def __init__(
        self, name: str, command: tuple[str, ...], clock: Callable[[], float] = time.time
    ) -> None:
        self._name = name
        self._command = command
        self._clock = clock
        self._token: Token | None = None
        self._lock = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None
        self._pause_until = 0.0
        self._error: UpstreamError | None = None
        self.on_secrets: Callable[[Secrets], None] = _ignore
        """Called with `secrets` when they change."""
        self.secrets = Secrets()
        """The key that is used now, and the one before, which requests may still use. A new object for each new key."""

    async def current(self) -> str:
        """A key that has not expired.

        Raises:
            UpstreamError: kind `authentication`: the program gave none.
        """
        token = self._token
        now = self._clock()
        if token is not None and now < token.ends_at:
            is_renewing = self._renewal is not None and not self._renewal.done()
            if now >= max(token.renew_at, self._pause_until) and not is_renewing:
                self._renewal = asyncio.create_task(self._renew_beside())
            return token.value
        async with self._lock:
            now = self._clock()
            token = self._token
            if token is not None and now < token.ends_at:
                return token.value  # it was renewed meanwhile
            if now >= self._pause_until or self._error is None:
                await self._renew()
            token = self._token
            if self._error is None and token is not None:
                return token.value
            raise self._failed()

    async def _renew_beside(self) -> None:
        """Renew the key, which requests use meanwhile."""
        async with self._lock:
            token = self._token
            if token is None or self._clock() >= token.renew_at:
                await self._renew()

    async def close(self) -> None:
        """End a renewal that no request waits for."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait((self._renewal,))

    async def renewed(self, refused: str) -> str | None:
        """Another key than the one that the server refused; None if there is none now."""
        async with self._lock:
            token = self._token
            if token is not None and token.value != refused:
                return token.value
            if self._clock() < self._pause_until:
                return None
            await self._renew()
            token = self._token
        return None if token is None or token.value == refused else token.value

    def _failed(self) -> UpstreamError:
        why = "" if self._error is None else self._error.message
        return UpstreamError(why, kind="authentication")  # a new one: each has its own traceback

    async def _renew(self) -> None:
        """Run the program. Its failure is kept in `_error`."""
        problem = ""
        try:
            async with asyncio.timeout(PATIENCE):
                output = await self._run()
            before, self._token = self._token, read_token(output, self._clock())
            if before is None or before.value != self._token.value:
                kept = (self._token, before) if before is not None else (self._token,)
                self.secrets = Secrets(token.value for token in kept)
                self.on_secrets(self.secrets)
        except TimeoutError:
            problem = f"gave no token within {PATIENCE:g} s"
        except OSError as error:
            problem = f"cannot be started: {error.strerror or type(error).__name__}"
        except _Failed as error:
            problem = str(error)
        except ValueError as error:
            problem = f"printed no token: {error}"
        self._pause_until = self._clock() + PAUSE
        self._error = None
        if problem:
            self._error = UpstreamError(f"upstream {self._name!r}: its token_command {problem}")
            logger.warning("%s", self._error.message)

    async def _run(self) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        try:
            async with asyncio.TaskGroup() as group:
                output = group.create_task(_read(process.stdout))
                complaint = group.create_task(_read(process.stderr))
            status = await process.wait()
        finally:
            await _end(process)
        said = redact(clean(complaint.result().decode("utf-8", "replace"), _MAX_LOGGED))
        if said:
            logger.info("token_command of upstream %r wrote: %s", self._name, said)
        if status != 0:
            raise _Failed(f"ended with status {status}")
        if len(output.result()) > MAX_OUTPUT:
            raise _Failed(f"wrote more than {MAX_OUTPUT} bytes")
        return output.result()


class _Failed(Exception):
    """The program ended without a token; the message says why."""


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """All of the output, of which one byte more than the limit is kept."""
    kept = bytearray()
    while stream is not None and (data := await stream.read(MAX_OUTPUT)):
        kept += data[: MAX_OUTPUT + 1 - len(kept)]
    return bytes(kept)


async def _end(process: Process) -> None:
    """End the program and what it has started, if it still runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
