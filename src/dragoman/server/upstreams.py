"""The upstreams of a configuration: made from what an operator said of each."""

import os

from dragoman.errors import ConfigError
from dragoman.upstream.base import Upstream
from dragoman.upstream.chatgpt_codex.credentials import auth_path
from dragoman.upstream.chatgpt_codex.upstream import ChatGptCodexUpstream
from dragoman.upstream.codex.upstream import CodexUpstream
from dragoman.upstream.http import HttpUpstream
from dragoman.upstream.rehearsal import RehearsalUpstream
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("make_upstream",)


def make_upstream(name: str, settings: UpstreamSettings) -> Upstream:
    """The upstream an operator described.

    Raises:
        ConfigError: the environment variable that should hold its key is not set.
    """
    if settings.kind == "rehearsal":
        return RehearsalUpstream(name)
    if settings.kind == "codex":
        return CodexUpstream(name, settings)
    if settings.kind == "chatgpt-codex":
        auth_file = auth_path(settings.auth_file, os.environ)
        return ChatGptCodexUpstream(name, settings, auth_file=auth_file)
    key = settings.api_key
    if settings.api_key_env is not None:
        key = os.environ.get(settings.api_key_env)
        if not key:
            raise ConfigError(
                f"upstreams.{name}.api_key_env: expected a key in the environment variable "
                f"{settings.api_key_env}, which is not set"
            )
    return HttpUpstream(name, settings, key=key)
