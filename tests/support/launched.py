"""A stand-in for a client that `dragoman launch` starts: a program that reports what it was given, and does what the test asks."""

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python} -S
import json, os, signal, sys, urllib.error, urllib.request

names = ("ANTHROPIC_", "CLAUDE_", "CODEX_", "DRAGOMAN_", "ENABLE_", "NO_PROXY", "no_proxy", "OPENAI_")
said = {{
    "arguments": sys.argv[1:],
    "environ": {{name: value for name, value in os.environ.items() if name.startswith(names)}},
    "files": {{word: open(word).read() for word in sys.argv[1:] if os.path.isfile(word)}},
}}

def ask(key):
    body = {{"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 9, "messages": [{{"role": "user", "content": "hi"}}]}}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    headers = {{"content-type": "application/json"}}
    if key:
        headers["authorization"] = "Bearer " + key
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
    try:
        with opener.open(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {{"status": error.code, "error": error.read().decode()}}
    except OSError as error:
        return {{"refused": str(error)}}

def show():
    print(json.dumps(said), flush=True)

if "debug" in sys.argv:
    sys.exit(1)
if "ask" in sys.argv:
    said["answer"] = ask(os.environ.get("ANTHROPIC_AUTH_TOKEN"))
if "ask-without-key" in sys.argv:
    said["answer"] = ask(None)
if "listen" in sys.argv:
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\\n"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
if "die" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
show()
if "wait" in sys.argv or "listen" in sys.argv:
    os.write(1, b"waiting\\n")
    for line in sys.stdin:
        if line.strip() == "ask":
            print(json.dumps(ask(os.environ.get("ANTHROPIC_AUTH_TOKEN"))), flush=True)
        if line.strip() == "end":
            break
    if "listen" in sys.argv and not line.strip() == "end":
        signal.pause()
sys.exit(int(next((word[5:] for word in sys.argv if word.startswith("code=")), "0")))
"""


def install_client(folder: Path, name: str = "claude") -> Path:
    """Put the program into a folder for the PATH."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / name
    program.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return programs


def client_environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """No key of ours, a home of its own, and the program on the PATH."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        "PATH": f"{folder / 'programs'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(home),
        "XDG_STATE_HOME": str(folder / "state"),
        "LANG": "C.UTF-8",
        "DRAGOMAN_STORE_URL": "memory:",
        "DRAGOMAN_PORT": "1",  # nobody listens there: a gateway of this machine must not be found
        **(more or {}),
    }


def said(output: str) -> dict[str, Any]:
    """What the program said it was given: its first line."""
    found: dict[str, Any] = json.loads(output.splitlines()[0])
    return found
