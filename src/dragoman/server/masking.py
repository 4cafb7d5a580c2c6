"""Settings that may be shown: every secret in them replaced by `***`.

Keys are masked wherever they have a field of their own. Headers, queries and addresses are free text, so there a value
is masked if its name or its shape says credential; one masked needlessly does no harm.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from msgspec import structs

from dragoman.engine.mcp.settings import McpServerSettings
from dragoman.server.settings import Settings
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("MASK", "PASS_ON", "mask_url", "masked")

MASK = "***"
PASS_ON = "client"  # noqa: S105 - the word for having none
"""The `api_key` that is none: the caller's is passed on."""

_SECRET_NAME = re.compile(
    r"auth|key|token|secret|pass|credential|cookie|session|sig(?:nature)?\b|\bcode\b|jwt",
    re.IGNORECASE,
)
# Key prefixes of the vendors and forges, an HTTP scheme, or a token: long, unbroken, letters and digits mixed.
_SECRET_VALUE = re.compile(
    r"(?:bearer|basic|token)\s|(?:sk|pk|rk|xai|gsk|hf|ghp|gho|ghs|glpat|xox[abp])[-_]|AIza|eyJ"
    r"|(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9+/=_.~-]{24,}$",
    re.IGNORECASE,
)
# All before the last `@`: a password may hold anything, and an address that is not valid is shown too, in complaints.
_USER = re.compile(r"^([^/?#]*//)?.*@", re.DOTALL)


def masked(settings: Settings) -> Settings:
    """The same settings without their secrets, for logs and screens. They are no use to a server."""
    server = structs.replace(
        settings.server, api_keys=tuple(MASK for _ in settings.server.api_keys)
    )
    upstreams = {name: _masked_upstream(each) for name, each in settings.upstreams.items()}
    store = settings.store
    if store is not None:
        store = structs.replace(store, url=mask_url(store.url))
    mcp = tuple(_masked_mcp(each) for each in settings.mcp)
    return structs.replace(settings, server=server, upstreams=upstreams, store=store, mcp=mcp)


def mask_url(url: str) -> str:
    """The address without user, password and query values that look secret. It need not be a valid one."""
    bare = _USER.sub(rf"\1{MASK}@", url)
    address, sign, query = bare.partition("?")
    fields = (field.partition("=") for field in query.split("&"))
    return (
        address
        + sign
        + "&".join(
            name + equals + (MASK if value and _is_secret(unquote(name), unquote(value)) else value)
            for name, equals, value in fields
        )
    )


def _masked_upstream(settings: UpstreamSettings) -> UpstreamSettings:
    key = settings.api_key
    return structs.replace(
        settings,
        api_key=key if key in (None, PASS_ON) else MASK,
        base_url=mask_url(settings.base_url),
        proxy=None if settings.proxy is None else mask_url(settings.proxy),
        headers=_masked_values(settings.headers),
        query=_masked_values(settings.query),
    )


def _masked_mcp(settings: McpServerSettings) -> McpServerSettings:
    return structs.replace(
        settings,
        command=tuple(_masked_arguments(settings.command)),
        env=_masked_values(settings.env),
        url=mask_url(settings.url),
        headers=_masked_values(settings.headers),
    )


def _masked_arguments(command: Sequence[str]) -> Iterator[str]:
    """A command without what looks secret: by itself, or by the option that it is given to."""
    option = ""
    for word in command:
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            option = word
            yield f"{name}={MASK}" if equals and _is_secret(name, value) else word
        else:
            yield MASK if _is_secret(option, word) else mask_url(word)
            option = ""


def _masked_values(values: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if _is_secret(name, value) else value for name, value in values.items()}


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.match(value))
