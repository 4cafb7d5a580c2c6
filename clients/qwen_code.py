"""The real Qwen Code CLI, in a home of its own; it can call only the gateway. It speaks every dialect."""

import json
import os
from pathlib import Path

from clients.program import StreamJsonRun, run_program
from clients.script import Dialect
from clients.stack import KEY
from clients.worker import NODE

__all__ = ("QwenCode",)

HERE = Path(__file__).parent
PROGRAM = HERE / "node_modules" / "@qwen-code" / "qwen-code" / "cli-entry.js"
PROTOCOLS: dict[Dialect, str] = {
    "chat": "openai",
    "responses": "openai-responses",
    "messages": "anthropic",
}
SETTINGS = {
    "general": {"enableAutoUpdate": False, "preventSystemSleep": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}


class QwenCode:
    """An installation: its home and a folder to work in."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        (self.home / ".qwen").mkdir(parents=True)
        self.work.mkdir()
        settings = self.home / ".qwen" / "settings.json"
        settings.write_text(json.dumps(SETTINGS), encoding="utf-8")
        self.url = url

    def run(self, door: Dialect, model: str, prompt: str, *options: str) -> StreamJsonRun:
        command = [NODE, str(PROGRAM), "--yolo", "--output-format", "stream-json"]
        command += ["--auth-type", PROTOCOLS[door], "--model", model, *options, prompt]
        ran = run_program(command, self._environment(), self.work)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
        return StreamJsonRun(ran.code, events, ran.stderr)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "QWEN_CODE_MAX_OUTPUT_TOKENS": "64000",  # it may think for 32,000, which must be less
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        }
