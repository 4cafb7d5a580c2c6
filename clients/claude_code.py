"""The real Claude Code CLI, in a home of its own, kept from calling anyone but the gateway."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.program import run_program
from clients.stack import KEY

__all__ = ("ClaudeCode", "ClaudeRun")

HERE = Path(__file__).parent
BINARY = HERE / "node_modules" / ".bin" / "claude"
ALLOWED = ("Agent", "Bash", "Read", "WebSearch", "Write", "mcp__probe__echo_text")


@dataclass(frozen=True)
class ClaudeRun:
    """What `claude -p` printed: every message of the conversation, the last one the result."""

    code: int
    events: list[dict[str, Any]]
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        ends = [event for event in self.events if event.get("type") == "result"]
        return ends[-1] if ends else {"is_error": True, "result": self.stderr}

    @property
    def text(self) -> str:
        return str(self.result.get("result", ""))

    @property
    def is_error(self) -> bool:
        return bool(self.result.get("is_error"))

    def calls(self) -> list[dict[str, Any]]:
        """The tool_use blocks as Claude Code understood them."""
        return [
            block
            for event in self.events
            if event.get("type") == "assistant"
            for block in event["message"]["content"]
            if block["type"] == "tool_use"
        ]


class ClaudeCode:
    """An installation: its home and a folder to work in."""

    def __init__(self, folder: Path, url: str, **more: str) -> None:
        """`more`: further variables of its environment."""
        self.more = more
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        self.url = url

    def run(self, model: str, prompt: str, *options: str) -> ClaudeRun:
        command = [str(BINARY), "-p", prompt, "--output-format", "stream-json", "--verbose"]
        command += ["--model", model, *options, "--allowedTools", *ALLOWED]
        ran = run_program(command, self._environment(model), self.work)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
        return ClaudeRun(ran.code, events, ran.stderr)

    def _environment(self, model: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_AUTH_TOKEN": KEY,
            "ANTHROPIC_SMALL_FAST_MODEL": model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            **self.more,
        }
