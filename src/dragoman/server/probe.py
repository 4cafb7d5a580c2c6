"""Trying the upstreams of a configuration: does each answer, and take its key?"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from dragoman.errors import ConfigError
from dragoman.server.masking import MASK, PASS_ON
from dragoman.upstream.chatgpt_codex.credentials import auth_path
from dragoman.upstream.chatgpt_codex.upstream import ChatGptCodexUpstream
from dragoman.upstream.codex import CodexUpstream
from dragoman.upstream.http import HttpUpstream
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("Finding", "probe_all")

# A person waits for it; servers that wake up for a list of models take a few seconds.
PATIENCE = 15.0


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
    # What a server says of a key it refuses may repeat it.
    return Finding(name, found.ok, found.detail.replace(key, MASK) if key else found.detail)
