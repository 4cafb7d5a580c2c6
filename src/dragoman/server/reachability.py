"""Checks that the upstreams answer and accept their keys (`question.py` asks them), and that the store and the MCP servers can be reached."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct, structs

from dragoman.config.environment import default_store_path
from dragoman.config.secrets import upstream_secrets
from dragoman.config.settings import (
    McpServerSettings,
    Settings,
    StoreSettings,
    UpstreamSettings,
    peers_of,
    split_fallback,
)
from dragoman.core.secrets import Secrets, url_credentials
from dragoman.engine.mcp.servers import McpServers
from dragoman.errors import ConfigError, StoreError, UpstreamError
from dragoman.gateway.hosted.servers import tokens_folder
from dragoman.gateway.route import make_upstream
from dragoman.server.question import QuestionResult, ask_models, ask_upstream, can_be_asked
from dragoman.store.engine_store import open_store
from dragoman.upstream.http.model_list import OfferedModel

# A person waits for the result; servers that wake up for a list of models take a few seconds.
PATIENCE = 15.0
# A server for local models loads the model first.
ASK_PATIENCE = 90.0
# A launcher may download the MCP server first.
MCP_PATIENCE = 30.0
_TOOLS_SHOWN = 12


class CheckFinding(Struct, frozen=True):
    """The result of one check. `detail` contains no key."""

    upstream: str
    is_ok: bool
    detail: str


async def check_upstreams(
    settings: Settings, environ: Mapping[str, str], *, ask: bool = True
) -> list[CheckFinding]:
    """Check all upstreams and peers concurrently; one finding each, in their order. `ask`: also ask each for a few tokens."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_check_upstream(peer, whole, environ, ask=ask))
            for name in settings.upstreams
            for peer, whole in _peers_alone(settings, name)
        ]
    return [task.result() for task in tasks]


def _peers_alone(settings: Settings, name: str) -> Iterator[tuple[str, Settings]]:
    """The settings for each peer of an upstream, in which the peer stands for the upstream."""
    for peer, own in peers_of(name, settings.upstreams[name]).items():
        if peer == name:
            yield name, settings
            continue
        routes = [
            structs.replace(
                route,
                upstream=peer if route.upstream == name else route.upstream,
                fallback=tuple(
                    peer + entry.removeprefix(name) if split_fallback(entry)[0] == name else entry
                    for entry in route.fallback
                ),
            )
            for route in settings.routes
        ]
        upstreams = {**settings.upstreams, peer: own}
        yield peer, structs.replace(settings, upstreams=upstreams, routes=tuple(routes))


async def offered_models(
    upstreams: Mapping[str, UpstreamSettings], environ: Mapping[str, str], patience: float
) -> dict[str, tuple[OfferedModel, ...] | str]:
    """Ask all upstreams for their models, concurrently. A text in place of the models says why there are none."""
    async with asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(_offered(name, settings, environ, patience))
            for name, settings in upstreams.items()
        }
    return {name: task.result() for name, task in tasks.items()}


async def check_store(
    settings: StoreSettings | None, environ: Mapping[str, str]
) -> CheckFinding | None:
    """Open the store and close it again; None if nothing is stored. The default file is not created for the check."""
    if settings is None or settings.policy == "off":
        return None
    file = default_store_path(environ)
    if settings.url == "sqlite:" and not file.exists():
        folder = next(each for each in file.parents if each.exists())
        if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            detail = f"{file} cannot be made: {folder} is not a folder that can be written"
            return CheckFinding("store", is_ok=False, detail=detail)
        where = f"sqlite, in {file}, created when it is first needed"
        return CheckFinding("store", is_ok=True, detail=where)
    try:
        async with asyncio.timeout(PATIENCE):
            store = await open_store(settings)
            engine = store.engine
            await store.close()
    except TimeoutError:
        return CheckFinding("store", is_ok=False, detail=f"no answer within {PATIENCE:g} s")
    except (ConfigError, StoreError) as error:
        # The database's message names the user that it refuses.
        parts = urlsplit(settings.url)
        hidden = Secrets((*url_credentials(settings.url), parts.username or ""))
        return CheckFinding("store", is_ok=False, detail=hidden.hide(error.whole))
    return CheckFinding("store", is_ok=True, detail=engine)


async def check_mcp(settings: Sequence[McpServerSettings]) -> list[CheckFinding]:
    """Start all MCP servers, list their tools, and end the servers; one finding each, in their order."""
    if not settings:
        return []
    found: list[CheckFinding] = []
    try:
        tokens = tokens_folder(os.environ)
        async with McpServers(settings, patience=MCP_PATIENCE, tokens=tokens) as servers:
            for server in settings:
                names = [
                    tool.offer.declaration.name for tool in servers.selected((server.name,)).tools()
                ]
                problem = servers.problems.get(server.name)
                found.append(_mcp_finding(server.name, names, problem))
    except ConfigError as error:
        return [
            CheckFinding(f"mcp {server.name}", is_ok=False, detail=error.message)
            for server in settings
        ]
    return found


def _mcp_finding(server: str, names: list[str], problem: str | None) -> CheckFinding:
    name = f"mcp {server}"
    if problem is not None:
        return CheckFinding(name, is_ok=False, detail=problem)
    if not names:
        return CheckFinding(name, is_ok=False, detail=f"no tools within {MCP_PATIENCE:g} s")
    shown = ", ".join(names[:_TOOLS_SHOWN])
    more = f" and {len(names) - _TOOLS_SHOWN} more" if len(names) > _TOOLS_SHOWN else ""
    return CheckFinding(
        name, is_ok=True, detail=f"{len(names)} tool{'s'[: len(names) > 1]}: {shown}{more}"
    )


async def _check_upstream(
    name: str, whole: Settings, environ: Mapping[str, str], *, ask: bool
) -> CheckFinding:
    settings = whole.upstreams[name]
    try:
        upstream = make_upstream(name, settings, environ)
    except ConfigError as error:
        return CheckFinding(name, is_ok=False, detail=error.message)
    try:
        async with asyncio.timeout(PATIENCE):
            found = await upstream.check()
    except TimeoutError:
        return CheckFinding(name, is_ok=False, detail=f"no answer within {PATIENCE:g} s")
    finally:
        await upstream.close()
    is_ok, detail = found.ok, found.detail
    # A refused key may be one in the wrong header, which the question shows.
    may_ask = found.ok or found.status in (401, 403)
    if ask and may_ask and can_be_asked(settings):
        verdict = await _ask(name, whole, environ)
        if found.ok:
            is_ok = verdict.is_ok
            seen = "" if found.detail == "reached" else f"{found.detail}; "
            detail = seen + verdict.detail
        elif verdict.has_advice:
            detail = verdict.detail
    # The server's message about a refused key may quote the key, and so may the error of a program that cannot start.
    secrets = upstream_secrets(settings, environ.get(settings.api_key_env or ""))
    return CheckFinding(name, is_ok, secrets.hide(detail))


async def _ask(name: str, settings: Settings, environ: Mapping[str, str]) -> QuestionResult:
    try:
        async with asyncio.timeout(ASK_PATIENCE):
            return await ask_upstream(name, settings, environ)
    except TimeoutError:
        detail = f"reached, but no answer to a question within {ASK_PATIENCE:g} s"
        return QuestionResult(is_ok=False, detail=detail)


async def _offered(
    name: str, settings: UpstreamSettings, environ: Mapping[str, str], patience: float
) -> tuple[OfferedModel, ...] | str:
    name, settings = next(iter(peers_of(name, settings).items()))
    try:
        async with asyncio.timeout(patience):
            return await ask_models(name, settings, environ)
    except ConfigError as error:
        return error.message
    except TimeoutError:
        return f"no answer within {patience:g} s"
    except UpstreamError as error:
        secrets = upstream_secrets(settings, environ.get(settings.api_key_env or ""))
        return secrets.hide(error.whole)
