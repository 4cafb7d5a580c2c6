"""The real OpenCode CLI, in a home of its own; it can call only the gateway.

It comes as the package of a platform, which has the whole program; the package that chooses one could not be locked. It speaks every
dialect, by providers of the AI SDK that are part of it.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.model import DIALECTS
from clients.program import run_program
from clients.script import Dialect
from clients.stack import KEY

__all__ = ("BINARY", "OpenCode", "OpenCodeRun")

HERE = Path(__file__).parent
BINARY = HERE / "node_modules" / "opencode-linux-x64-baseline" / "bin" / "opencode"
PROVIDERS: dict[Dialect, str] = {
    "chat": "@ai-sdk/openai-compatible",
    "responses": "@ai-sdk/openai",
    "messages": "@ai-sdk/anthropic",
}


@dataclass(frozen=True)
class OpenCodeRun:
    """What `opencode run --format json` printed."""

    code: int
    events: list[dict[str, Any]]
    stderr: str

    @property
    def texts(self) -> list[str]:
        return [event["part"]["text"] for event in self.events if event["type"] == "text"]

    @property
    def errors(self) -> list[str]:
        return [json.dumps(event["error"]) for event in self.events if event["type"] == "error"]

    def calls(self) -> list[dict[str, Any]]:
        """The calls as OpenCode understood them, in the order in which they ended."""
        return [event["part"] for event in self.events if event["type"] == "tool_use"]


class OpenCode:
    """An installation: its home and a folder to work in."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        self.url = url

    def run(self, door: Dialect, model: str, prompt: str, *options: str) -> OpenCodeRun:
        command = [str(BINARY), "run", "--format", "json", "-m", f"{door}/{model}", *options]
        ran = run_program([*command, prompt], self._environment(), self.work)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
        return OpenCodeRun(ran.code, events, ran.stderr)

    def _environment(self) -> dict[str, str]:
        models = {f"to-{dialect}-m": dict[str, Any]() for dialect in DIALECTS} | {"rehearsal": {}}
        options = {"baseURL": f"{self.url}/v1", "apiKey": KEY}
        providers = {
            door: {"npm": package, "options": options, "models": models}
            for door, package in PROVIDERS.items()
        }
        config = {
            "provider": providers,
            "permission": "allow",
            "share": "disabled",
            "autoupdate": False,
        }
        folders = ("CONFIG", "DATA", "CACHE", "STATE")
        off = (
            "AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE", "CLAUDE_CODE",
        )  # fmt: skip
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            **{f"XDG_{name}_HOME": str(self.home / name.lower()) for name in folders},
            **{f"OPENCODE_DISABLE_{name}": "1" for name in off},
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        }
