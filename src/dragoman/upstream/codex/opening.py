"""What a thread is started with, beyond what the client asked for: nothing of Codex's own, and nothing of this machine.

Pure: the child's configuration in, the parameters of `thread/start` out. MCP servers that the operator's Codex has would
offer their tools to the model and run them here, so each is switched off by its name. Codex's own retries are switched
off too where that is allowed: it begins an answer anew after parts of it have been told, and the gateway has a policy of
its own.
"""

from collections.abc import Mapping
from typing import cast

from dragoman._json import Raw, as_object, loads
from dragoman.dialects.codex import SWITCHED_OFF

__all__ = ("overrides_of", "thread_params", "tool_names")

_Json = dict[str, object]


def overrides_of(config: Mapping[str, Raw]) -> _Json:
    """The settings of every thread of a child, by their dotted names. `config`: what `config/read` tells."""
    overrides: _Json = dict(SWITCHED_OFF)
    # As tables, which are merged with the operator's: a name may have dots.
    overrides["mcp_servers"] = {name: {"enabled": False} for name in _object(config, "mcp_servers")}
    provider = cast("object", loads(bytes(config.get("model_provider", b"null"))))
    # Only providers that the operator has described may be changed; the one for OpenAI itself may not.
    if isinstance(provider, str) and provider in _object(config, "model_providers"):
        off = {"request_max_retries": 0, "stream_max_retries": 0}
        overrides["model_providers"] = {provider: off}
    return overrides


def thread_params(thread: Raw, overrides: Mapping[str, object], folder: str) -> _Json:
    """What `thread/start` is told. `thread`: what the request asks for; `folder`: an empty one."""
    asked = as_object(bytes(thread))
    own = _object(asked, "config")
    return {
        **asked,
        "cwd": folder,
        "ephemeral": True,
        "approvalPolicy": "never",
        "sandbox": "read-only",
        # Without an environment nothing can run, not even a tool of Codex's that is still there.
        "environments": [],
        "experimentalRawEvents": True,
        "config": {**overrides, **own},
    }


def tool_names(thread: Raw) -> list[str]:
    """The names under which a request offers its tools."""
    tools = as_object(bytes(thread)).get("dynamicTools")
    entries = cast("list[_Json]", loads(bytes(tools)) if tools is not None else [])
    return [str(entry["name"]) for entry in entries]


def _object(fields: Mapping[str, Raw], key: str) -> dict[str, Raw]:
    data = bytes(fields.get(key, b""))
    return as_object(data) if data.startswith(b"{") else {}
