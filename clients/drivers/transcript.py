"""What a client saw: the text of each turn, the calls it understood, the error it raised. It also runs the tools."""

import json
from typing import Any

MAX_TURNS = 6


class Transcript:
    """As in `transcript.mjs`."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._failing: list[str] = job.get("failing", [])
        self.texts: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.error: dict[str, Any] | None = None

    def say(self, text: str | None) -> None:
        self.texts.append(text or "")

    def call(self, call_id: str | None, name: str, value: Any) -> str:
        """The tool's result. Raises RuntimeError when it is to fail."""
        self.calls.append({"id": call_id, "name": name, "text": None, "value": value})
        if name in self._failing:
            raise RuntimeError(f"{name} failed: „é“")
        return f"{name} got {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"

    def fail(self, error: Exception) -> None:
        status = getattr(error, "status_code", None)
        self.error = {
            "kind": type(error).__name__,
            "status": status,
            "message": str(error)[:2000],
        }

    def report(self) -> dict[str, Any]:
        return {"texts": self.texts, "calls": self.calls, "error": self.error}
