"""Bubblewrap around commands: the file system read-only but for the root, no network, no other processes, a /tmp of its own.

Whether it works is determined by running it once, with a script that checks the isolation from inside: bubblewrap may be
missing or too old, and the kernel or a container may not permit it. If it does not work, commands run without a sandbox, with
approval only, and the summary says so.

The user that runs the agent may be root, and root can access root's files without any capability: the machine's settings in
/proc/sys, the sockets of its daemons. So the isolation uses mounts and namespaces, not permissions.

The sandbox does not hide readable files, except the usual places of secrets and the files of Dragoman itself. Sockets are
hidden by the kernel's list, if they were bound by their absolute path. It is not a virtual machine: it relies on the kernel.
"""

import os
import pwd
import shutil
import stat
import struct
import subprocess
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

PROBE_SECONDS = 10.0

# Below the home folder: files that a command need not read, and could send away if it has a network.
_SECRET_PLACES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/op", ".config/rclone",
    ".config/containers", ".password-store", ".local/share/keyrings", ".codex", ".claude", ".claude.json", ".mozilla",
    ".config/google-chrome", ".config/chromium", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".config/git/credentials",
    ".pgpass", ".my.cnf", ".vault-token", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".terraform.d/credentials.tfrc.json", ".config/dragoman", ".gemini", ".qwen", ".local/share/opencode", ".config/github-copilot",
    ".cache/huggingface/token", ".kaggle", ".databrickscfg", ".s3cfg", ".boto", ".bash_history", ".zsh_history",
)  # fmt: skip
# Files that only root can read.
_SYSTEM_SECRETS = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-"),
    *("/etc/ssl/private", "/etc/krb5.keytab"),
)
# Needed to resolve names if there is a network.
_RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
# Replaced by private, empty folders: they hold sockets and files of other programs.
_EMPTIED = ("/tmp", "/run", "/var/run")  # noqa: S108 -- the sandbox's own
# The kernel's own file systems: a root in one of them would be the machine's settings.
_KERNEL = ("/proc", "/sys", "/dev")
_SOCKETS = "/proc/net/unix"

# Runs once in the sandbox. It uses only the shell, and a property that it cannot determine counts as a failure.
_LOOK = """
fail() { echo "it leaves $1" >&2; exit 1; }
caps=0 privileges=0
while read -r name value rest; do
  case $name in
    Cap*:) caps=$((caps + 1)); case $value in *[!0]*) fail "capabilities";; esac;;
    NoNewPrivs:) privileges=$value;;
  esac
done < /proc/self/status
[ "$caps" -ge 4 ] || fail "capabilities unknown"
[ "$privileges" = 1 ] || fail "setuid programs their privileges"
settings=0
while read -r id parent device top point flags rest; do
  if [ "$point" = /proc/sys ]; then case $flags in ro,*) settings=1;; *) settings=0;; esac; fi
done < /proc/self/mountinfo
[ "$settings" = 1 ] || fail "the kernel's settings writable"
[ -w /proc/sys/kernel/core_pattern ] && fail "the kernel's settings writable"
[ "$$" -le 16 ] || fail "other processes in sight"
exit 0
"""


class Wrapped(Struct, frozen=True):
    """A command as it is started: its words, its folder, and its open descriptors (none without a sandbox)."""

    argv: Sequence[str]
    folder: str
    descriptors: tuple[int, ...] = ()


class Sandbox(Struct, frozen=True, kw_only=True):
    """The sandbox of commands. If there is none, `program` is None and `reason` says why.

    hidden: files and folders that commands in the sandbox cannot read, beside the usual places of secrets.
    """

    root: str
    program: str | None = None
    has_network: bool = False
    hidden: tuple[str, ...] = ()
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

    @contextmanager
    def wrapped(self, argv: Sequence[str], folder: str) -> Generator[Wrapped]:
        """The command line that runs a command in the sandbox; its descriptors are open during the context."""
        if self.program is None:
            yield Wrapped(list(argv), folder)
            return
        reading, writing = os.pipe()
        try:
            os.write(writing, _FILTER)  # far smaller than a pipe
        finally:
            os.close(writing)
        try:
            options = [*self._options(), "--seccomp", str(reading), "--chdir", folder]
            yield Wrapped([self.program, *options, "--", *argv], self.root, (reading,))
        finally:
            os.close(reading)

    def _options(self) -> list[str]:
        """The options, in the order of the mounts: a later mount covers earlier ones."""
        root = self.root
        options = ["--ro-bind", "/", "/"]
        for place in _EMPTIED:
            if os.path.isdir(place) and not os.path.islink(place):  # noqa: PTH112, PTH114 -- see `_hidden_places`
                options += ["--tmpfs", place]
        for place in _RESOLVERS if self.has_network else ():
            options += ["--ro-bind-try", place, place]
        # The root is mounted after a hidden folder that contains it, and before hidden places in it.
        hidden = _hidden_places(self.hidden)
        outside = [place for place in hidden if not _is_within(place, root)]
        inside = [place for place in hidden if place != root and _is_within(place, root)]
        options += _masks(outside)
        options += ["--bind", root, root]
        inside += _sockets(root)
        options += _pins(root, inside)
        options += _masks(inside)
        options += ["--dev", "/dev", "--proc", "/proc", *_machine_files()]
        options += [
            *("--unshare-user", "--disable-userns"),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        ]
        if not self.has_network:
            options.append("--unshare-net")
        # Without capabilities, root inside the sandbox cannot mount anything.
        return [*options, "--cap-drop", "ALL", "--die-with-parent", "--new-session"]


def without_sandbox(root: Path, reason: str = "it is turned off") -> Sandbox:
    """No sandbox."""
    return Sandbox(root=str(root.resolve()), reason=reason)


def find_sandbox(
    root: Path, *, network: bool = False, program: str = "bwrap", hidden: Iterable[str] = ()
) -> Sandbox:
    """Bubblewrap if it works here, else no sandbox, with the reason.

    hidden: files and folders that cannot be read inside.
    """
    found = shutil.which(program)
    if found is None:
        return without_sandbox(root, "bubblewrap is not installed")
    place = str(root.resolve())
    if place == "/" or any(_is_within(place, kernel) for kernel in _KERNEL):
        return without_sandbox(root, f"the root {place} cannot be isolated")
    sandbox = Sandbox(root=place, program=found, has_network=network, hidden=tuple(hidden))
    problem = _probe(sandbox)
    return sandbox if problem is None else without_sandbox(root, problem)


@lru_cache(32)
def _probe(sandbox: Sandbox) -> str | None:
    """Why the sandbox does not work; None if it does. Cached: the kernel does not change."""
    with sandbox.wrapped(["/bin/sh", "-c", _LOOK], sandbox.root) as wrapped:
        try:
            done = subprocess.run(  # noqa: S603 -- bubblewrap, to see whether it is permitted
                wrapped.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=PROBE_SECONDS,
                check=False,
                start_new_session=True,
                pass_fds=wrapped.descriptors,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap cannot be run: {error}"
    if done.returncode == 0:
        return None
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1][:200] if lines else f"exit code {done.returncode}"
    if last.startswith("it leaves "):
        return f"bubblewrap does not isolate commands here: {last}"
    if "nknown option" in last:
        return f"bubblewrap 0.8 or later is needed: {last}"
    return f"bubblewrap is not permitted here: {last}"


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _hidden_places(named: Iterable[str]) -> list[str]:
    """The hidden places with links resolved, outer ones first. Places that cannot be read anyway are left out.

    This uses functions of `os.path`: those of `Path` raise if a folder may not be entered.
    """
    environ = os.environ
    homes = [os.path.expanduser("~")]  # noqa: PTH111 -- never raises
    with suppress(KeyError):  # HOME may name another folder
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    places = [f"{home}/{name}" for home in homes for name in _SECRET_PLACES]
    states = [f"{home}/.local/state" for home in homes]
    for variable, names in (("XDG_CONFIG_HOME", _SECRET_PLACES), ("CODEX_HOME", ("",))):
        base = environ.get(variable, "")
        if base.startswith("/"):
            places += [f"{base}/{name.removeprefix('.config/')}" for name in names]
    # The store and the sessions of `dragoman run`.
    places += [f"{state}/dragoman" for state in (*states, environ.get("XDG_STATE_HOME", ""))]
    places += [*_SYSTEM_SECRETS, *_host_keys(), *named]
    real = {os.path.realpath(place) for place in places if place.startswith("/")}
    return sorted(place for place in real if os.access(place, os.R_OK))


def _host_keys() -> list[str]:
    try:
        return [f"/etc/ssh/{name}" for name in os.listdir("/etc/ssh") if name.endswith("_key")]  # noqa: PTH208
    except OSError:
        return []


def _masks(places: Iterable[str]) -> list[str]:
    """Options that cover each folder by an empty one, and anything else by a file that cannot be opened."""
    options: list[str] = []
    for place in places:
        is_folder = os.path.isdir(place)  # noqa: PTH112 -- see `_hidden_places`
        options += ["--tmpfs", place] if is_folder else ["--ro-bind", "/dev/null", place]
    return options


def _pins(root: str, places: Iterable[str]) -> list[str]:
    """Options that mount each folder between the root and a hidden place on itself: a mount point cannot be renamed.

    Otherwise a command could rename the folder, and the next command would find the place under a name that is not hidden.
    """
    folders: set[str] = set()
    for place in places:
        folder = os.path.dirname(place)  # noqa: PTH120 -- text in, text out
        while folder != root and _is_within(folder, root):
            folders.add(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120
    return [option for folder in sorted(folders) for option in ("--bind", folder, folder)]


def _sockets(root: str) -> list[str]:
    """The sockets of this machine's programs: a command can connect to them even on a read-only mount."""
    try:
        with open(_SOCKETS, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123
            lines = stream.read().splitlines()[1:]
    except OSError:
        return []
    found: set[str] = set()
    for line in lines:
        # Num RefCount Protocol Flags Type St Inode Path; a path may hold spaces.
        path = line.split(maxsplit=7)[7:]
        if path and path[0].startswith("/"):
            found.add(os.path.realpath(path[0]))
    return [path for path in sorted(found) if _is_exposed(path, root)]


def _is_exposed(path: str, root: str) -> bool:
    is_covered = any(_is_within(path, place) for place in (*_EMPTIED, *_KERNEL))
    if is_covered and not _is_within(path, root):
        return False
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.W_OK)  # noqa: PTH116
    except OSError:
        return False


def _machine_files() -> list[str]:
    """Options that make the machine's files in /proc read-only, or hide them if only root can read them.

    Bubblewrap protects some of these folders only if the folder itself is writable; in /proc/sys only the files are.
    """
    options: list[str] = []
    try:
        entries = sorted(os.scandir("/proc"), key=lambda entry: entry.name)
    except OSError:
        return []
    for entry in entries:
        if entry.name.isdecimal() or entry.is_symlink():
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) or mode & 0o222:
            options += ["--ro-bind", entry.path, entry.path]
        elif not mode & 0o077:
            options += ["--ro-bind", "/dev/null", entry.path]
    return options


# The kernel's keyrings belong to the session, whatever the namespaces, so their system calls are blocked.
# For each architecture (<linux/audit.h>): the numbers of add_key, request_key and keyctl.
_KEY_CALLS = {
    0xC000003E: (248, 249, 250, 0x400000F8, 0x400000F9, 0x400000FA),  # x86-64, x32
    0x40000003: (286, 287, 288),  # i386
    0xC00000B7: (217, 218, 219),  # aarch64
    0x40000028: (309, 310, 311),  # arm
    0xC00000F3: (217, 218, 219),  # riscv64
    0xC0000015: (269, 270, 271),  # ppc64le
    0x80000016: (278, 279, 280),  # s390x
}
_LOAD, _JUMP_IF, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_ALLOWED, _REFUSED, _UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026  # go on; EPERM; ENOSYS


def _compile_filter() -> bytes:
    """The seccomp filter, eight bytes per instruction: code, two jumps, value (<linux/filter.h>)."""
    steps = [(_LOAD, 0, 0, 4)]  # the architecture
    for architecture, numbers in _KEY_CALLS.items():
        block = [(_LOAD, 0, 0, 0)]  # the number of the call
        for number in numbers:
            block += [(_JUMP_IF, 0, 1, number), (_RETURN, 0, 0, _REFUSED)]
        block.append((_RETURN, 0, 0, _ALLOWED))
        steps += [(_JUMP_IF, 0, len(block), architecture), *block]
    steps.append((_RETURN, 0, 0, _UNKNOWN))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


_FILTER = _compile_filter()
