"""What `dragoman connect` prints for the SDKs, run as it is: the request must arrive where the gateway's doors are."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, ClassVar

import pytest

from http_servers import QuietHandler, running_server

COMMAND = str(Path(sysconfig.get_path("scripts")) / "dragoman")
WAIT = 60

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hello there.", "annotations": []}],
        }
    ],
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hello there."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ANSWERS = {"/v1/responses": RESPONSE, "/v1/messages": MESSAGE}


class Doors(QuietHandler):
    """Answers at two doors and remembers what came: path, key, model."""

    seen: ClassVar[list[tuple[str, str, str]]]

    def respond(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = bearer or self.headers.get("x-api-key", "")
        self.seen.append((self.path, key, body["model"]))
        answer = ANSWERS.get(self.path)
        self.answer(200 if answer else 404, json.dumps(answer or {}).encode())


@pytest.mark.parametrize(
    ("client", "path"), [("openai", "/v1/responses"), ("anthropic", "/v1/messages")]
)
def test_the_printed_program_reaches_its_door(client: str, path: str, tmp_path: Path) -> None:
    class Watched(Doors):
        seen: ClassVar[list[tuple[str, str, str]]] = []

    ours = ("DRAGOMAN_", "OPENAI_", "ANTHROPIC_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ["DRAGOMAN_API_KEYS"] = "some-key"

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            encoding="utf-8",
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with running_server(Watched) as address:
        url = f"http://{address}"
        program = run(COMMAND, "connect", client, "--url", url, "--model", "some-model")
        printed = run(sys.executable, "-c", program)
    assert "Hello there." in printed
    assert Watched.seen == [(path, "YOUR-GATEWAY-KEY", "some-model")]
