"""The real Claude Code CLI, in a home of its own; it can call only the gateway."""

import json
import os
from pathlib import Path

from clients.program import StreamJsonRun, run_program
from clients.stack import KEY

__all__ = ("ClaudeCode",)

HERE = Path(__file__).parent
BINARY = HERE / "node_modules" / ".bin" / "claude"
ALLOWED = ("Agent", "Bash", "Read", "WebSearch", "Write", "mcp__probe__echo_text")


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

    def run(self, model: str, prompt: str, *options: str) -> StreamJsonRun:
        command = [str(BINARY), "-p", prompt, "--output-format", "stream-json", "--verbose"]
        command += ["--model", model, *options, "--allowedTools", *ALLOWED]
        ran = run_program(command, self._environment(model), self.work)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
        return StreamJsonRun(ran.code, events, ran.stderr)

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
