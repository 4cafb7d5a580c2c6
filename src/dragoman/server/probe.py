"""Trying the upstreams of a configuration: does each answer, and take its key? And the store and the MCP servers: are they there?"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.config.environment import default_store_path
from dragoman.config.secrets import upstream_secrets
from dragoman.config.settings import PASS_ON, McpServerSettings, StoreSettings, UpstreamSettings
from dragoman.core.secrets import Secrets, url_credentials
from dragoman.engine.mcp.servers import McpServers
from dragoman.errors import ConfigError, StoreError
from dragoman.gateway.hosted.servers import tokens_folder
from dragoman.store.engine_store import open_store
from dragoman.upstream.chatgpt_codex.credentials import auth_path
from dragoman.upstream.chatgpt_codex.upstream import ChatGptCodexUpstream
from dragoman.upstream.codex.upstream import CodexUpstream
from dragoman.upstream.http.upstream import HttpUpstream

# A person waits for it; servers that wake up for a list of models take a few seconds.
PATIENCE = 15.0
# A launcher may download the server first.
MCP_PATIENCE = 30.0
_TOOLS_SHOWN = 12


class Finding(Struct, frozen=True):
    """What one upstream did. `detail` holds no key."""

    upstream: str
    is_ok: bool
    detail: str


async def probe_all(
    upstreams: Mapping[str, UpstreamSettings],
    environ: Mapping[str, str],
    patience: float = PATIENCE,
) -> list[Finding]:
    """Try all of them at once; one finding each, in their order."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_probe(name, settings, environ, patience))
            for name, settings in upstreams.items()
        ]
    return [task.result() for task in tasks]


async def probe_store(
    settings: StoreSettings | None, environ: Mapping[str, str], patience: float = PATIENCE
) -> Finding | None:
    """Open the store and close it again; None if nothing is kept. A file of the user's own is not made for that."""
    if settings is None or settings.policy == "off":
        return None
    if settings.url == "sqlite:" and not default_store_path(environ).exists():
        where = f"sqlite, in {default_store_path(environ)} when there is something to keep"
        return Finding("store", is_ok=True, detail=where)
    try:
        async with asyncio.timeout(patience):
            store = await open_store(settings)
            engine = store.engine
            await store.close()
    except TimeoutError:
        return Finding("store", is_ok=False, detail=f"no answer within {patience:g} s")
    except (ConfigError, StoreError) as error:
        # The database's own words name the user that it refuses.
        parts = urlsplit(settings.url)
        hidden = Secrets((*url_credentials(settings.url), parts.username or ""))
        return Finding("store", is_ok=False, detail=hidden.hide(error.whole))
    return Finding("store", is_ok=True, detail=engine)


async def probe_mcp(
    settings: Sequence[McpServerSettings], patience: float = MCP_PATIENCE
) -> list[Finding]:
    """Start all of the MCP servers, ask for their tools, and end them; one finding each, in their order."""
    if not settings:
        return []
    found: list[Finding] = []
    try:
        tokens = tokens_folder(os.environ)
        async with McpServers(settings, patience=patience, tokens=tokens) as servers:
            for server in settings:
                names = [
                    tool.offer.declaration.name for tool in servers.selected((server.name,)).tools()
                ]
                problem = servers.problems.get(server.name)
                found.append(_mcp_finding(server.name, names, problem, patience))
    except ConfigError as error:
        return [
            Finding(f"mcp {server.name}", is_ok=False, detail=error.message) for server in settings
        ]
    return found


def _mcp_finding(server: str, names: list[str], problem: str | None, patience: float) -> Finding:
    name = f"mcp {server}"
    if problem is not None:
        return Finding(name, is_ok=False, detail=problem)
    if not names:
        return Finding(name, is_ok=False, detail=f"no tools within {patience:g} s")
    shown = ", ".join(names[:_TOOLS_SHOWN])
    more = f" and {len(names) - _TOOLS_SHOWN} more" if len(names) > _TOOLS_SHOWN else ""
    return Finding(
        name, is_ok=True, detail=f"{len(names)} tool{'s'[: len(names) > 1]}: {shown}{more}"
    )


def _key(settings: UpstreamSettings, environ: Mapping[str, str]) -> str | None:
    if settings.api_key_env is not None:
        return environ.get(settings.api_key_env) or None
    return None if settings.api_key == PASS_ON else settings.api_key


def _upstream(
    name: str, settings: UpstreamSettings, key: str | None, environ: Mapping[str, str]
) -> HttpUpstream | ChatGptCodexUpstream | CodexUpstream:
    if settings.kind == "codex":
        return CodexUpstream(name, settings, environ)
    if settings.kind == "chatgpt-codex":
        auth_file = auth_path(settings.auth_file, environ)
        return ChatGptCodexUpstream(name, settings, auth_file=auth_file)
    return HttpUpstream(name, settings, key=key)


async def _probe(
    name: str, settings: UpstreamSettings, environ: Mapping[str, str], patience: float
) -> Finding:
    if settings.kind == "rehearsal":
        return Finding(name, is_ok=True, detail="answers by itself")
    key = _key(settings, environ)
    try:
        upstream = _upstream(name, settings, key, environ)
    except ConfigError as error:
        return Finding(name, is_ok=False, detail=error.message)
    try:
        async with asyncio.timeout(patience):
            found = await upstream.probe()
    except TimeoutError:
        return Finding(name, is_ok=False, detail=f"no answer within {patience:g} s")
    finally:
        await upstream.close()
    # What a server says of a key it refuses may repeat it, and so may what cannot be started.
    return Finding(name, found.ok, upstream_secrets(settings, key).hide(found.detail))
