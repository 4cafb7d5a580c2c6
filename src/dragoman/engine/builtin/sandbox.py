"""Bubblewrap around commands: the file system read-only but for the root, no network, no other processes, a /tmp of its own.

Whether it works is found out by running it once: it may not be installed, and where it is, the kernel or a container may not
permit it. Where it does not work commands run without it, under approval alone, and that is said wherever it matters.

The sandbox does not hide files that can be read, but for the places where secrets usually are. It is no virtual machine: it
relies on the kernel.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

__all__ = ("Sandbox", "find_sandbox", "without_sandbox")

PROBE_SECONDS = 10.0

# Below the home folder: what a command has no business to read, and could send away where it has a network.
_SECRET_FOLDERS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".password-store", ".codex", ".claude",
)  # fmt: skip
_SECRET_FILES = (".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass")
# Names are looked up through these where there is a network.
_RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")


class Sandbox(Struct, frozen=True, kw_only=True):
    """What surrounds commands. `program` is None where there is nothing; `reason` says why."""

    root: str
    program: str | None = None
    has_network: bool = False
    reason: str = ""

    @property
    def is_on(self) -> bool:
        return self.program is not None

    @property
    def summary(self) -> str:
        """One sentence for people and models."""
        if self.program is None:
            return f"Commands run without a sandbox ({self.reason})."
        network = "with" if self.has_network else "without"
        return f"Commands run in a sandbox: only {self.root} and a private /tmp can be written, {network} network."

    def wrap(self, argv: Sequence[str], folder: str) -> list[str]:
        """The command that runs this one inside."""
        if self.program is None:
            return list(argv)
        return [
            self.program,
            *_arguments(self.root, self.has_network),
            "--chdir",
            folder,
            "--",
            *argv,
        ]


def without_sandbox(root: Path, reason: str = "it is turned off") -> Sandbox:
    """Nothing around commands."""
    return Sandbox(root=str(root.resolve()), reason=reason)


def find_sandbox(root: Path, *, network: bool = False, program: str = "bwrap") -> Sandbox:
    """Bubblewrap if it works here, else nothing, with the reason."""
    found = shutil.which(program)
    if found is None:
        return without_sandbox(root, "bubblewrap is not installed")
    sandbox = Sandbox(root=str(root.resolve()), program=found, has_network=network)
    problem = _probe(tuple(sandbox.wrap(["/bin/sh", "-c", "exit 0"], sandbox.root)))
    return sandbox if problem is None else without_sandbox(root, problem)


@lru_cache(32)
def _probe(argv: tuple[str, ...]) -> str | None:
    """Why a command cannot be run; None if it can. Asked once: kernels do not change their mind."""
    try:
        done = subprocess.run(  # noqa: S603 -- bubblewrap, to see whether it is permitted
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PROBE_SECONDS,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be run: {error}"
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"bubblewrap is not permitted here: {said[-1][:200] if said else f'exit code {done.returncode}'}"


def _arguments(root: str, has_network: bool) -> list[str]:  # noqa: FBT001 -- a member of the value above
    options = ["--ro-bind", "/", "/"]
    for place in ("/tmp", "/run"):  # noqa: S108 -- the sandbox's own
        if Path(place).is_dir():
            options += ["--tmpfs", place]
    for place in _RESOLVERS if has_network else ():
        options += ["--ro-bind-try", place, place]
    # The root after what it may lie in, then what may lie in the root.
    options += ["--bind", root, root, *_masks(root), "--dev", "/dev", "--proc", "/proc"]
    options += [
        "--unshare-user-try",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if not has_network:
        options.append("--unshare-net")
    # Without capabilities the user that is root inside cannot mount anything anew.
    options += ["--cap-drop", "ALL", "--die-with-parent", "--new-session"]
    return options


def _masks(root: str) -> list[str]:
    """Empty folders over those with secrets, unless the root is in one of them."""
    options: list[str] = []
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 -- never raises
    for name in _SECRET_FOLDERS:
        place = home / name
        if place.is_dir() and not place.is_symlink() and not Path(root).is_relative_to(place):
            options += ["--tmpfs", str(place)]
    for name in _SECRET_FILES:
        place = home / name
        if place.is_file() and not place.is_symlink():
            options += ["--ro-bind", "/dev/null", str(place)]
    return options
