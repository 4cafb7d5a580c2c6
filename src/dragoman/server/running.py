"""Which gateways run on this machine: records that `dragoman serve` keeps of itself, and questions to an address.

A record is a file of the user's state directory, `STATE/dragoman/gateways/PID.json`, that lives as long as the process. It has
the address and no secret. Records of processes that are gone are ignored. The process holds a lock on its record: its id may
belong to another process by the time that a signal is sent. Beside it, `PID.outcome` has what came of its last reload.

Questions use plain sockets: no proxy of the environment is asked for an address of this machine. Each has a time limit for
the whole exchange, so that a server that sends a byte a second delays nobody.
"""

import http.client
import os
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import quote, urlsplit

from msgspec import Struct

from dragoman._json import dumps_document, loads
from dragoman.config.environment import state_folder, write_private
from dragoman.errors import MalformedJson
from dragoman.upstream.http.model_list import OfferedModel, read_model_list

if sys.platform != "win32":
    import fcntl

# Seconds. A gateway on this machine answers within milliseconds, one that has just woken up within half a second.
PATIENCE = 1.5
# Bytes. The list of a reseller has some hundred kilobytes.
_MAX_BODY = 4 * 1024 * 1024
_MAX_RECORD = 4096
# Bytes. The problems of a configuration, each of a line.
_MAX_OUTCOME = 1024 * 1024
_OUTCOME = ".outcome"  # the ending of the file with what came of the last reload


class Page(Struct, frozen=True):
    """What an address answered."""

    status: int
    body: bytes


class RunningGateway(Struct, frozen=True):
    """A gateway that answers. models: those that it lists; None if it wants a key that was not given. needs_key: it wants one."""

    url: str
    models: tuple[OfferedModel, ...] | None
    needs_key: bool


def find_gateway(url: str, key: str | None = None) -> RunningGateway | None:
    """The gateway at an address (without `/v1`); None if nothing answers there, or something else than a gateway.

    The key is sent only to a gateway that wants one.
    """
    health_url, models_url = f"{url}/healthz", f"{url}/v1/models"
    pages = fetch_all((health_url, models_url))
    health, listed = pages[health_url], pages[models_url]
    if health is None or listed is None or _fields(health.body).get("server") != "dragoman":
        return None
    needs_key = listed.status == 401
    if needs_key and key is not None:
        listed = fetch_all((models_url,), {"authorization": f"Bearer {key}"})[models_url]
    models = None if listed is None or listed.status != 200 else read_model_list(listed.body)
    return RunningGateway(url, models, needs_key)


def find_owners(url: str, key: str | None, models: Sequence[str]) -> dict[str, str | None]:
    """The upstreams to which the gateway at an address sends requests for these models; None: to none."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    places = {name: f"{url}/v1/models/{quote(name, safe='')}" for name in models}
    pages = fetch_all(tuple(places.values()), headers)
    return {name: _owner(pages[place]) for name, place in places.items()}


def _owner(page: Page | None) -> str | None:
    owner = None if page is None or page.status != 200 else _fields(page.body).get("owned_by")
    return owner if isinstance(owner, str) else None


def fetch_all(
    urls: Sequence[str], headers: Mapping[str, str] | None = None, patience: float = PATIENCE
) -> dict[str, Page | None]:
    """Get all addresses at once; None for those that do not answer in time. Redirects are not followed."""
    found: dict[str, Page | None] = dict.fromkeys(urls)

    def fetch(url: str) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException):
            found[url] = _fetch(url, headers or {}, patience)

    threads = [threading.Thread(target=fetch, args=(url,), daemon=True) for url in found]
    for thread in threads:
        thread.start()
    end = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(found)


def _fetch(url: str, headers: Mapping[str, str], patience: float) -> Page:
    parts = urlsplit(url)
    host = parts.hostname or ""
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connect(host, parts.port, timeout=patience)
    try:
        connection.request("GET", parts.path or "/", headers=dict(headers))
        answer = connection.getresponse()
        return Page(answer.status, answer.read(_MAX_BODY))
    finally:
        connection.close()


def _fields(body: bytes) -> dict[str, object]:
    try:
        document: object = loads(body)
    except MalformedJson:
        return {}
    return cast("dict[str, object]", document) if isinstance(document, dict) else {}


class LastOutcome(Struct, frozen=True):
    """How often a gateway was asked to change, and what came of the last time (`reload.ReloadResult`)."""

    count: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class RecordedGateway(Struct, frozen=True):
    """A gateway of this user that runs. is_reloadable: it takes the signals that ask for a change."""

    process: int
    url: str
    is_reloadable: bool
    file: Path

    @property
    def is_running(self) -> bool:
        return _is_locked(self.file)

    def last_outcome(self) -> LastOutcome:
        try:
            with self.file.with_suffix(_OUTCOME).open("rb") as stream:
                fields = _fields(stream.read(_MAX_OUTCOME))
        except OSError:
            return LastOutcome()
        count = fields.get("count")
        problems, notes = _texts(fields.get("problems")), _texts(fields.get("notes"))
        return LastOutcome(count if isinstance(count, int) else 0, problems, notes)


def _texts(value: object) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else ()
    return tuple(each for each in items if isinstance(each, str))


class GatewayRecord:
    """The record of a gateway in this process."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._count = 0

    def note(self, problems: Sequence[str], notes: Sequence[str]) -> None:
        """Record what came of a reload or a restart."""
        self._count += 1
        if self._file is not None:
            outcome = LastOutcome(self._count, tuple(problems), tuple(notes))
            with suppress(OSError):
                write_private(self._file.with_suffix(_OUTCOME), dumps_document(outcome))


@contextmanager
def recorded(
    url: str, environ: Mapping[str, str], *, is_reloadable: bool = False
) -> Generator[GatewayRecord]:
    """Keep a record of a gateway in this process. The gateway serves even if the record cannot be written."""
    file = None
    with ExitStack() as stack:
        with suppress(OSError, RuntimeError):  # RuntimeError: no home directory
            file = _folder(environ) / f"{os.getpid()}.json"
            file.with_suffix(_OUTCOME).unlink(missing_ok=True)
            write_private(file, dumps_document({"url": url, "reload": is_reloadable}))
            stream = stack.enter_context(file.open("rb"))
            if sys.platform != "win32":
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield GatewayRecord(file)
        finally:
            if file is not None:
                for each in (file, file.with_suffix(_OUTCOME)):
                    with suppress(OSError):
                        each.unlink(missing_ok=True)


def recorded_gateways(environ: Mapping[str, str]) -> list[RecordedGateway]:
    """The recorded gateways that run, the newest first."""
    return [
        RecordedGateway(int(file.stem), url, fields.get("reload") is True, file)
        for file in _files(environ)
        if file.stem.isdecimal()
        and isinstance(url := (fields := _read_record(file)).get("url"), str)
        and _is_locked(file)
    ]


def _is_locked(file: Path) -> bool:
    """Whether the process that wrote a record still runs."""
    if sys.platform == "win32":
        return False
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def recorded_urls(environ: Mapping[str, str]) -> list[str]:
    """The addresses of the recorded gateways whose process exists, the newest first."""
    urls = [_recorded_url(file) for file in _files(environ)]
    return [url for url in urls if url is not None]


def _files(environ: Mapping[str, str]) -> list[Path]:
    """The records, the newest first."""
    try:
        files = [(each.stat().st_mtime, each) for each in _folder(environ).glob("*.json")]
    except (OSError, RuntimeError):
        return []
    return [file for _, file in sorted(files, reverse=True)]


def _recorded_url(file: Path) -> str | None:
    if not file.stem.isdecimal() or not _exists(int(file.stem)):
        with suppress(OSError):
            file.unlink()
        return None
    url = _read_record(file).get("url")
    return url if isinstance(url, str) else None


def _read_record(file: Path) -> dict[str, object]:
    try:
        with file.open("rb") as stream:
            return _fields(stream.read(_MAX_RECORD))
    except OSError:
        return {}


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _folder(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "gateways"
