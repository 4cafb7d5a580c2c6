"""What must not be read of an upstream's settings: what lets in, and, by clients, where it is. Pure.

By place, not by the look of a name: every value of a header, a query, a variable and an argument counts.
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

from dragoman.core.secrets import Secrets, header_credentials, url_credentials, url_others
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("hidden_from_clients", "upstream_secrets")

# Their addresses are no secret, and their own errors point to pages there.
_PUBLIC = frozenset(("api.openai.com", "api.anthropic.com", "chatgpt.com"))
# The word for what is started, not an argument that somebody chose.
_APP_SERVER = "app-server"


def upstream_secrets(settings: UpstreamSettings, key: str | None = None) -> Secrets:
    """What the operator may not read in a log either. `key`: the upstream's own, already looked up."""
    own = None if settings.api_key == "client" else settings.api_key
    credentials = {each for each in (key, own) if each}
    for value in settings.headers.values():
        credentials.update(header_credentials(value))
    for url in (settings.base_url, settings.proxy or ""):
        credentials.update(url_credentials(url))
    others = {
        *url_others(settings.base_url),
        *url_others(settings.proxy or ""),
        *settings.headers.values(),
        *settings.query.values(),
        *settings.env.values(),
        *(word for word in settings.command[1:] if word != _APP_SERVER),
    }
    return Secrets(credentials, others)


def hidden_from_clients(settings: UpstreamSettings, key: str | None = None) -> Secrets:
    """The same, and the addresses of the upstream and of the proxy to it."""
    return upstream_secrets(settings, key) | Secrets(
        place for url in (settings.base_url, settings.proxy or "") for place in _places(url)
    )


def _places(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # such an address is refused elsewhere
        return
    if not host or host in _PUBLIC:
        return
    yield url
    if port is not None:
        yield f"{host}:{port}"
        yield f"[{host}]:{port}"
    if "." in host or ":" in host:  # a word such as `localhost` says nothing
        yield host
