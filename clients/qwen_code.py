"""The real Qwen Code CLI, in a home of its own, kept from calling anyone but the gateway. It speaks every dialect."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.program import run_program
from clients.script import Dialect
from clients.stack import KEY
from clients.worker import NODE

__all__ = ("QwenCode", "QwenRun")

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


@dataclass(frozen=True)
class QwenRun:
    """What `qwen --output-format stream-json` printed: every message of the conversation, the last one the result."""

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

    def blocks(self, kind: str) -> list[dict[str, Any]]:
        """What the model said, as Qwen Code understood it."""
        return [
            block
            for event in self.events
            if event.get("type") == "assistant"
            for block in event["message"]["content"]
            if block["type"] == kind
        ]


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

    def run(self, door: Dialect, model: str, prompt: str, *options: str) -> QwenRun:
        command = [NODE, str(PROGRAM), "--yolo", "--output-format", "stream-json"]
        command += ["--auth-type", PROTOCOLS[door], "--model", model, *options, prompt]
        ran = run_program(command, self._environment(), self.work)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
        return QwenRun(ran.code, events, ran.stderr)

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
