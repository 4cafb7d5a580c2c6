"""Other gateways, to be measured beside ours: installed by name from the registries that pip and npm are set up for.

Each has an environment of its own under `.peers/` in the project's root, made once and ignored by git. A gateway that
cannot be installed or started is reported and left out. They get less load than ours: at full load LiteLLM alone would
take an hour.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from gateway_processes import Service, free_port
from gateway_targets import Contestant

_HOME = Path(__file__).parents[1] / ".peers"
_LITELLM = "litellm[proxy]==1.106.2"
_PORTKEY: dict[str, object] = {
    "private": True,
    "dependencies": {"@portkey-ai/gateway": "1.15.2"},
    # With 1.14 every streamed answer is a 500, "TypeError: immutable" (Portkey-AI/gateway issue 1389).
    "overrides": {"@hono/node-server": "1.13.8"},
}
# From 3.0 on it needs packages that not every registry has.
_ROUTER: dict[str, object] = {
    "private": True,
    "dependencies": {"@musistudio/claude-code-router": "2.0.0"},
}
_INSTALL_SECONDS = 1200
_KEY = "sk-bench-0123456789abcdef"
_PACED = "mock-p10-x200"


def start_peers(home: Path, mock: int) -> dict[str, Contestant]:
    """Those that run, by name."""
    starts: Mapping[str, Callable[[Path, int], Contestant]] = {
        "Portkey": _portkey,
        "LiteLLM": _litellm,
        "claude-code-router": _claude_code_router,
    }
    started: dict[str, Contestant] = {}
    for name, start in starts.items():
        try:
            started[name] = start(home, mock)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"bench: {name} is left out: {error}", file=sys.stderr)
    return started


def _install(done: Path, *commands: list[str]) -> None:
    if done.exists():
        return
    _HOME.mkdir(exist_ok=True)
    (_HOME / ".gitignore").write_text("*\n", encoding="utf-8")
    print(f"bench: installing {done.parent.name}", file=sys.stderr, flush=True)
    for command in commands:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {result.stderr[-500:]}")
    done.touch()


def _install_npm(name: str, package: dict[str, object]) -> Path:
    folder = _HOME / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_bytes(msgspec.json.encode(package))
    quiet = ("--no-audit", "--no-fund", "--loglevel=error")
    _install(folder / ".done", ["npm", "install", "--prefix", str(folder), *quiet])
    return folder


def _portkey(home: Path, mock: int) -> Contestant:
    """Chat to Chat: it does not translate between the OpenAI dialects. Request headers name its upstream."""
    folder = _install_npm("portkey", _PORTKEY)
    port = free_port()
    program = folder / "node_modules/@portkey-ai/gateway/build/start-server.js"
    command = ["node", str(program), f"--port={port}", "--headless"]
    environment = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}
    service = Service(command, port, home / "portkey.log", environment=environment)
    service.wait_ready()
    return Contestant(
        label="Portkey 1.15.2 chat → chat",
        door="chat",
        upstream="chat",
        service=service,
        headers=(
            f"authorization: Bearer {_KEY}",
            "x-portkey-provider: openai",
            f"x-portkey-custom-host: http://127.0.0.1:{mock}/v1",
        ),
        share=0.2,
    )


def _litellm(home: Path, mock: int) -> Contestant:
    """Chat to Responses, through its bridge; paced at a tenth of the rate, which is what it keeps up with."""
    folder = _HOME / "litellm"
    _install(
        folder / ".done",
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", _LITELLM],
    )
    config = home / "litellm.json"  # JSON is YAML
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/responses/{name}",
                "api_base": f"http://127.0.0.1:{mock}/v1",
                "api_key": "sk-upstream",
            },
        }
        for name in ("mock", _PACED)
    ]
    settings = {"model_list": models, "general_settings": {"master_key": _KEY}}
    config.write_bytes(msgspec.json.encode(settings))
    port = free_port()
    command = [str(folder / "bin/litellm"), "--config", str(config), "--port", str(port)]
    environment = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '')}",
    }
    command += ["--host", "127.0.0.1", "--num_workers", "1", "--telemetry", "False"]
    service = Service(command, port, home / "litellm.log", environment=environment)
    service.wait_ready(180.0)
    return Contestant(
        label="LiteLLM 1.106.2 chat → responses",
        door="chat",
        upstream="responses",
        service=service,
        headers=(f"authorization: Bearer {_KEY}",),
        share=0.03,
        paced_streams=3,
    )


def _claude_code_router(home: Path, mock: int) -> Contestant:
    """Messages to Chat, the only pair it has. It reads its configuration from the home folder; a model is `provider,name`."""
    folder = _install_npm("claude-code-router", _ROUTER)
    port = free_port()
    provider = {
        "name": "mock",
        "api_base_url": f"http://127.0.0.1:{mock}/v1/chat/completions",
        "api_key": "sk-upstream",
        "models": ["mock", _PACED],
    }
    config: dict[str, object] = {
        "HOST": "127.0.0.1",
        "PORT": port,
        "APIKEY": _KEY,
        "LOG": False,
        "NON_INTERACTIVE_MODE": True,
        "Providers": [provider],
        "Router": {"default": "mock,mock"},
    }
    file = home / "router" / ".claude-code-router" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(msgspec.json.encode(config))
    program = folder / "node_modules/@musistudio/claude-code-router/dist/cli.js"
    environment = {"HOME": str(home / "router"), "NODE_ENV": "production"}
    service = Service(
        ["node", str(program), "start"], port, home / "router.log", environment=environment
    )
    service.wait_ready()
    return Contestant(
        label="claude-code-router 2.0.0 messages → chat",
        door="messages",
        upstream="chat",
        service=service,
        model="mock,mock",
        headers=(f"x-api-key: {_KEY}", "anthropic-version: 2023-06-01"),
        share=0.1,
        paced_streams=8,
    )
