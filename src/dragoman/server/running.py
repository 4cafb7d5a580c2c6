"""Which gateways run on this machine: records that `dragoman serve` keeps of itself, and questions to an address.

A record is a file of the user's state directory, `STATE/dragoman/gateways/PID.json`, that lives as long as the process. It has
the address and no secret. Records of processes that are gone are ignored.

Questions use plain sockets: no proxy of the environment is asked for an address of this machine. Each has a time limit for
the whole exchange, so that a server that sends a byte a second holds nobody up.
"""

import http.client
import os
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import quote, urlsplit

from msgspec import Struct

from dragoman._json import dumps_document, loads
from dragoman.config.environment import state_folder, write_private
from dragoman.errors import MalformedJson
from dragoman.upstream.http.model_list import OfferedModel, read_model_list

# Seconds. A gateway on this machine answers within milliseconds, one that has just woken up within half a second.
PATIENCE = 1.5
# Bytes. The list of a reseller has some hundred kilobytes.
_MAX_BODY = 4 * 1024 * 1024
_MAX_RECORD = 4096


class Page(Struct, frozen=True):
    """What an address answered."""

    status: int
    body: bytes


class RunningGateway(Struct, frozen=True):
    """A gateway that answers. models: those that it lists; None if it wants a key that was not given."""

    url: str
    models: tuple[OfferedModel, ...] | None


def find_gateway(url: str, key: str | None = None) -> RunningGateway | None:
    """The gateway at an address (without `/v1`); None if nothing answers there, or something else than a gateway."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    pages = fetch_all((f"{url}/healthz", f"{url}/v1/models"), headers)
    health, listed = pages[f"{url}/healthz"], pages[f"{url}/v1/models"]
    if health is None or listed is None or _fields(health.body).get("server") != "dragoman":
        return None
    models = read_model_list(listed.body) if listed.status == 200 else None
    return RunningGateway(url, models)


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


@contextmanager
def recorded(url: str, environ: Mapping[str, str]) -> Generator[None]:
    """Keep a record of a gateway in this process. A record that cannot be written is no reason not to serve."""
    file = None
    with suppress(OSError, RuntimeError):  # RuntimeError: no home directory
        file = _folder(environ) / f"{os.getpid()}.json"
        write_private(file, dumps_document({"url": url}))
    try:
        yield
    finally:
        if file is not None:
            with suppress(OSError):
                file.unlink(missing_ok=True)


def recorded_urls(environ: Mapping[str, str]) -> list[str]:
    """The addresses of the recorded gateways whose process exists, the newest first."""
    try:
        files = [(each.stat().st_mtime, each) for each in _folder(environ).glob("*.json")]
    except (OSError, RuntimeError):
        return []
    urls = [_recorded_url(file) for _, file in sorted(files, reverse=True)]
    return [url for url in urls if url is not None]


def _recorded_url(file: Path) -> str | None:
    if not file.stem.isdecimal() or not _exists(int(file.stem)):
        with suppress(OSError):
            file.unlink()
        return None
    try:
        with file.open("rb") as stream:
            url = _fields(stream.read(_MAX_RECORD)).get("url")
    except OSError:
        return None
    return url if isinstance(url, str) else None


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
