"""Builds and tries the image, and checks the deployment files: see `scripts/image`.

What is tried is what an operator relies on: the image does not serve strangers without a key, runs as a user without rights on
a file system that it cannot write, is healthy by its own check, answers with a key, keeps its store in its volume, and ends
on SIGTERM with exit code 0.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEY = "a-key-for-this-test-alone"
STATE = "/var/lib/dragoman"
START_SECONDS = 30.0
# What Debian and Python need to run; everything else of the machine stays out of sight.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")


# Of the Compose specification: what this project uses. A key that is misspelt would be ignored or refused by an engine.
COMPOSE_KEYS = frozenset(
    (
        *(
            "build",
            "image",
            "command",
            "environment",
            "env_file",
            "volumes",
            "ports",
            "depends_on",
            "restart",
        ),
        *("stop_grace_period", "read_only", "tmpfs", "cap_drop", "security_opt", "healthcheck"),
    )
)


def say(text: str) -> None:
    print(f"image: {text}", file=sys.stderr, flush=True)


def expect(what: str, *, holds: bool, details: object = "") -> None:
    if not holds:
        raise SystemExit(f"image: expected {what}\n{details}")
    say(f"ok   {what}")


def run(
    command: list[str], *, env: Mapping[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=env, timeout=timeout
    )


# --- the Dockerfile ---------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """One FROM, with the folder that holds what its steps wrote, and what its last steps set."""

    folder: Path
    name: str
    environ: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list[str])
    command: list[str] = field(default_factory=list[str])
    health: list[str] = field(default_factory=list[str])

    def sandbox(self, *, writable: bool, user: str = "0:0") -> list[str]:
        """A command that runs another as this stage sees the machine. `writable`: the whole stage, else state and /tmp alone."""
        python = Path(sys.base_prefix)
        words = ["bwrap", "--die-with-parent", "--unshare-pid", "--proc", "/proc", "--dev", "/dev"]
        for place in (*SYSTEM, str(python)):
            if Path(place).exists():
                words += ["--ro-bind", place, place]
        if Path("/run/systemd/resolve").exists():  # where /etc/resolv.conf may lead
            words += ["--ro-bind", "/run/systemd/resolve", "/run/systemd/resolve"]
        for inner in sorted(self.folder.iterdir()):
            is_state = STATE.startswith(f"/{inner.name}")
            words += [
                "--bind" if writable or is_state else "--ro-bind",
                str(inner),
                f"/{inner.name}",
            ]
        words += ["--tmpfs", "/tmp"]
        if not writable:
            words += ["--remount-ro", "/"]
        words += ["--chdir", self.workdir, "--clearenv"]
        path = f"{python}/bin:/usr/local/bin:/usr/bin:/bin"
        for name, value in {"PATH": path, **self.environ}.items():
            words += ["--setenv", name, value.replace("$PATH", path)]
        uid, gid = user.split(":")
        if uid != "0":
            words += ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        return words

    def make(self, place: str) -> Path:
        folder = self.folder / place.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, with lines that are continued joined."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def build(scratch: Path) -> Stage:
    """Run the steps of the Dockerfile. Returns its last stage."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for word, rest in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        if word == "FROM":
            name = rest.rsplit(" AS ", 1)[1] if " AS " in rest else "image"
            stage = stages[name] = Stage(scratch / name, name)
            stage.make("/opt")
        elif stage is not None:
            say(f"{stage.name}: {word} {rest[:90]}")
            step(stage, word, rest, stages)
    if stage is None:
        raise SystemExit("image: expected a FROM in the Dockerfile, found none")
    return stage


def step(stage: Stage, word: str, rest: str, stages: Mapping[str, Stage]) -> None:
    match word:
        case "WORKDIR":
            stage.workdir = rest
            stage.make(rest)
        case "ENV":
            stage.environ |= dict(each.split("=", 1) for each in shlex.split(rest))
        case "USER":
            stage.user = rest
        case "COPY":
            copy(stage, shlex.split(rest), stages)
        case "RUN":
            for place in ("/var", "/opt"):
                stage.make(place)
            done = run([*stage.sandbox(writable=True), "sh", "-c", rest])
            if done.returncode:
                raise SystemExit(f"image: {rest}\n{done.stdout}{done.stderr}")
        case "HEALTHCHECK":
            stage.health = json.loads(rest[rest.index("CMD") + 3 :])
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        case "CMD":
            stage.command = json.loads(rest)
        case "VOLUME" | "EXPOSE" | "STOPSIGNAL" | "ARG":
            pass
        case _:
            raise SystemExit(
                f"image: expected a known instruction, got {word}: teach scripts/image.py"
            )


def copy(stage: Stage, words: list[str], stages: Mapping[str, Stage]) -> None:
    source = ROOT
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].folder
    *names, target = words
    place = stage.make(target if target.startswith("/") else f"{stage.workdir}/{target}")
    for name in names:
        origin = source / name.lstrip("/")
        if origin.is_dir():
            shutil.copytree(origin, place, dirs_exist_ok=True, symlinks=True, ignore=_compiled)
        else:
            shutil.copy2(origin, place / origin.name)


_compiled = shutil.ignore_patterns("__pycache__")


# --- a running gateway ------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def try_image(stage: Stage, scratch: Path) -> None:
    command = [*stage.entrypoint, *stage.command]
    refused = run(
        [*stage.sandbox(writable=False, user=stage.user), *command], timeout=START_SECONDS
    )
    expect(
        "no gateway for strangers without a key",
        holds=refused.returncode != 0 and "key" in refused.stderr,
        details=refused.stderr,
    )
    port = free_port()
    # Tests listen on loopback alone; in a container the address is that of the container.
    stage.environ |= {
        "DRAGOMAN_HOST": "127.0.0.1",
        "DRAGOMAN_PORT": str(port),
        "DRAGOMAN_API_KEYS": KEY,
    }
    sandbox = stage.sandbox(writable=False, user=stage.user)
    with (scratch / "log").open("w+") as log:
        # A session of its own: SIGTERM goes to the gateway, as a container engine sends it to the first process.
        gateway = subprocess.Popen(
            [*sandbox, *command], stdout=log, stderr=log, start_new_session=True
        )
        try:
            expect(
                f"a healthy gateway within {START_SECONDS:g} s",
                holds=wait_healthy(gateway, [*sandbox, *stage.health]),
                details=(scratch / "log").read_text(encoding="utf-8"),
            )
            expect_answers(port)
            mine = children(gateway.pid)[-1]
            status = Path(f"/proc/{mine}/status").read_text(encoding="utf-8")
            expect("a process of user 10001", holds="\nUid:\t10001\t10001\t" in status)
            store = stage.folder / STATE.lstrip("/") / "store.db"
            expect("the store in its volume", holds=store.is_file())
            os.kill(mine, signal.SIGTERM)
            expect("exit code 0 after SIGTERM", holds=gateway.wait(START_SECONDS) == 0)
        finally:
            if gateway.poll() is None:
                gateway.kill()


def expect_answers(port: int) -> None:
    """Have the smoke test ask the gateway at this port."""
    smoke = [sys.executable, str(ROOT / "scripts/smoke.py"), f"http://127.0.0.1:{port}"]
    asked = run(smoke, env={**os.environ, "DRAGOMAN_API_KEY": KEY})
    expect("tool calls to be answered", holds=asked.returncode == 0, details=asked.stdout)


def children(pid: int) -> list[int]:
    """The process and those below it, each the only child of the one before."""
    found = [pid]
    while True:
        below = (
            Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text(encoding="utf-8").split()
        )
        if not below:
            return found
        found.append(int(below[0]))


def wait_healthy(gateway: "subprocess.Popen[bytes]", check: list[str]) -> bool:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and gateway.poll() is None:
        if run(check).returncode == 0:
            return True
        time.sleep(0.1)
    return False


# --- the other files --------------------------------------------------------------------------------------------------


def check_deployment(scratch: Path) -> None:
    programs = Path(sys.executable).parent
    done = run(
        [str(programs / "kubernetes-validate"), "--strict", str(ROOT / "deploy/kubernetes.yaml")]
    )
    said = done.stdout + done.stderr
    expect("a valid Kubernetes manifest", holds=done.returncode == 0, details=said)
    documents = read_yaml(ROOT / "deploy/kubernetes.yaml")
    config = scratch / "dragoman.toml"
    config.write_text(documents[0]["data"]["dragoman.toml"], encoding="utf-8")
    environ = {**os.environ, "OPENAI_API_KEY": KEY, "HOME": str(scratch)}
    done = run(
        [str(ROOT / ".venv/bin/dragoman"), "check", "--offline", "--config", str(config)],
        env=environ,
    )
    expect("a valid configuration in it", holds=done.returncode == 0, details=done.stderr)
    check_compose()
    if shutil.which("systemd-analyze") is None:
        say("left out: systemd-analyze is not on this machine")
        return
    units = [scratch / name for name in ("dragoman.service", "dragoman.socket")]
    for unit in units:
        text = (ROOT / "deploy" / unit.name).read_text(encoding="utf-8")
        # The program is not installed on this machine; what is checked is everything else.
        unit.write_text(text.replace("/opt/dragoman/bin/dragoman", "/bin/true"), encoding="utf-8")
    done = run(["systemd-analyze", "verify", "--man=no", *map(str, units)])
    complaints = [line for line in done.stderr.splitlines() if "dragoman" in line]
    expect("valid systemd units", holds=not complaints, details=complaints)


def read_yaml(path: Path) -> list[dict[str, Any]]:
    """The documents of a file. Read by a process of the tools' own environment, the only one with a reader for YAML."""
    program = (
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    )
    documents: list[dict[str, Any]] = json.loads(
        run([sys.executable, "-c", program, str(path)]).stdout
    )
    return documents


def check_compose() -> None:
    services = read_yaml(ROOT / "compose.yaml")[0]["services"]
    gateway, database = services["gateway"], services["database"]
    unknown = {key for each in (gateway, database) for key in each} - COMPOSE_KEYS
    expect("known keys in compose.yaml", holds=not unknown, details=unknown)
    config = gateway["command"][-1]
    is_mounted = any(volume.split(":")[1] == config for volume in gateway["volumes"])
    expect("the configuration that the gateway reads to be mounted", holds=is_mounted)
    asked = "from dragoman.config.settings import ServerSettings; print(ServerSettings().shutdown_grace)"
    grace = run([str(ROOT / ".venv/bin/python"), "-c", asked]).stdout
    is_longer = float(gateway["stop_grace_period"].removesuffix("s")) > float(grace)
    expect("more time to stop than open streams get", holds=is_longer)


def has_engine() -> bool:
    return shutil.which("docker") is not None and run(["docker", "info"]).returncode == 0


def try_engine() -> None:
    built = run(["docker", "build", "--quiet", "--tag", "dragoman", str(ROOT)])
    expect("docker to build the image", holds=built.returncode == 0, details=built.stderr)
    port = free_port()
    options = ["--rm", "--detach", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    started = run(
        [
            "docker",
            "run",
            *options,
            "-e",
            f"DRAGOMAN_API_KEYS={KEY}",
            "-p",
            f"127.0.0.1:{port}:8787",
            "dragoman",
        ]
    )
    name = started.stdout.strip()
    try:
        state = ["docker", "inspect", "--format", "{{.State.Health.Status}}", name]
        until = time.monotonic() + START_SECONDS
        while run(state).stdout.strip() != "healthy" and time.monotonic() < until:
            time.sleep(0.5)
        expect_answers(port)
    finally:
        run(["docker", "stop", name])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        check_deployment(scratch)
        if has_engine():
            try_engine()
        elif os.geteuid() != 0 or find_spec("ensurepip") is None or shutil.which("bwrap") is None:
            say(
                "left out: the image needs a container engine; or root, bubblewrap and a Python with ensurepip"
            )
        else:
            say("no container engine: the steps of the Dockerfile are run here")
            try_image(build(scratch / "stages"), scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
