"""The sandbox attacked from inside, as whoever runs the tests and, where that is root, as an ordinary user too.

Whether something can be written is asked of the kernel (`test -w`, the flags of mounts); nothing of the machine is written.
"""

import ctypes
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.engine.builtin import Root, ShellTool, find_sandbox
from running_tools import run_tool, said

ENVIRONMENT = {"PATH": os.environ["PATH"]}
NOBODY = 65534
USERS = ("as started", "as nobody")
HOLE = "a hole"
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
ADD_KEY = {"x86_64": 248, "aarch64": 217, "riscv64": 217, "ppc64le": 269, "s390x": 278}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the sandbox does not empty, as it does /tmp, and that any user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-wall-", dir="/var/tmp")).resolve()
    (folder / "root").mkdir()
    for each in (folder, folder / "root"):
        each.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def run_as(user: str, work: Callable[[], str]) -> str:
    """What the work gives back when this user does it. An ordinary user is nobody's better already."""
    if user == "as started" or os.getuid() != 0:
        return work()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            text = work()
        except BaseException as error:
            text = f"the child failed: {error!r}"
        with os.fdopen(writing, "w", encoding="utf-8") as stream:
            stream.write(text)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


def in_sandbox(user: str, root: Path, command: str, *, hidden: tuple[str, ...] = ()) -> str:
    """What the command writes. Where there is no sandbox the reason is what comes back."""

    def work() -> str:
        sandbox = find_sandbox(root, hidden=hidden)
        if not sandbox.is_on:
            return sandbox.summary
        return said(
            run_tool(
                ShellTool(Root(root), sandbox=sandbox, environment=ENVIRONMENT), command=command
            )
        )

    return run_as(user, work)


def python(source: str) -> str:
    return f"python3 - <<'PYTHON'\n{source}\nPYTHON"


WRITABLE = (
    'while read -r file; do test -f "$file" -a -w "$file" && echo "a hole: $file"; done | head -20'
)

ATTACKS = {
    "settings of the kernel": f"find /proc/sys -type f -perm /222 | {WRITABLE}",
    "the machine's own files in /proc": "find /proc -maxdepth 4 -path '/proc/[0-9]*' -prune -o -path /proc/sys -prune -o "
    f"-type f -perm /222 -print | {WRITABLE}",
    "files in /proc for root alone": "for file in $(find /proc -maxdepth 1 -type f -perm 0400); do "
    'test -s "$file" -o -n "$(head -c 1 "$file" 2>/dev/null | tr "\\0" x)" && echo "a hole: $file"; done',
    "devices and settings in /sys": f"find /sys -maxdepth 5 -type f -perm /222 2>/dev/null | {WRITABLE}",
    "a mount of /proc/sys that can be written": "grep ' /proc/sys ' /proc/self/mountinfo | grep -q ' ro,' || echo a hole",
    "capabilities": "grep Cap /proc/self/status | grep -v 0000000000000000 && echo a hole",
    "privileges by setuid programs": "grep -q 'NoNewPrivs:.1' /proc/self/status || echo a hole",
    "a setuid program": "for file in $(find /usr/bin /bin -perm -4000 -type f | head -3); do "
    "findmnt -no OPTIONS -T $file | grep -q nosuid || echo a hole; done",
    "a user namespace of its own": "unshare --user --map-root-user true && echo a hole",
    "mounting /proc/sys anew": "mount -o remount,bind,rw /proc/sys && echo a hole",
    "unmounting what lies above": "umount /proc/sys && echo a hole; umount -l /run && echo a hole",
    "a fresh /proc": "unshare --user --map-root-user --mount --pid --fork mount -t proc proc /proc && echo a hole",
    "device files": "mknod disk b 8 0 && echo a hole; mknod /dev/disk b 8 0 && echo a hole",
    "other devices": "ls /dev | grep -vxE 'console|core|fd|full|null|ptmx|pts|random|shm|stderr|stdin|stdout|tty|urandom|zero' "
    "&& echo a hole",
    "typing into the terminal": "(exec < /dev/tty) 2>/dev/null && echo a hole",
    "another root of processes": "ls -d /proc/[0-9]*/ro?t/oldroot 2>/dev/null && echo a hole",
    "a process of the machine": f"kill -0 {os.getppid()} 2>/dev/null && test -d /proc/{os.getppid()} && echo a hole",
    "passwords of the machine": "test -f /etc/shadow -a -r /etc/shadow && echo a hole",
    "writing to /etc": "test -w /etc/passwd && echo a hole; test -w /etc && echo a hole",
}  # fmt: skip


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_from_inside_finds_a_hole(place: Path, attack: str, user: str) -> None:
    text = in_sandbox(user, place / "root", ATTACKS[attack])
    assert HOLE not in text
    assert "the child failed" not in text
    assert "exit code" in text or "Commands run without a sandbox" in text


@pytest.mark.parametrize("user", USERS)
def test_files_outside_cannot_be_linked_or_written(place: Path, user: str) -> None:
    outside = place / "outside"
    outside.write_text("kept", encoding="utf-8")
    outside.chmod(0o666)
    text = in_sandbox(
        user, place / "root", f"ln {outside} link && echo x >> link; echo x >> {outside}; ls"
    )
    assert outside.read_text(encoding="utf-8") == "kept" or "without a sandbox" in text
    assert not (place / "root/link").exists()


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("kind", ["stream", "datagram"])
@pytest.mark.parametrize("name", ["agent.sock", "root/agent.sock", "root/a folder/agent.sock"])
def test_sockets_of_the_machine_cannot_be_reached(
    place: Path, user: str, kind: str, name: str
) -> None:
    """Those of agents and daemons that lie elsewhere than in /run: of Docker's Desktop, of databases."""
    form = socket.SOCK_STREAM if kind == "stream" else socket.SOCK_DGRAM
    path = place / name
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o777)
    with socket.socket(socket.AF_UNIX, form) as server:
        server.bind(str(path))
        if form == socket.SOCK_STREAM:
            server.listen()
        path.chmod(0o777)
        source = (
            f"import socket\nsocket.socket(socket.AF_UNIX, {int(form)}).connect({str(path)!r})\n"
            "print('a', 'hole')"
        )
        text = in_sandbox(user, place / "root", python(source))
    assert HOLE not in text
    assert "Error" in text or "without a sandbox" in text


@pytest.mark.parametrize("user", USERS)
def test_abstract_sockets_of_the_machine_cannot_be_reached(place: Path, user: str) -> None:
    name = f"\0dragoman-wall-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        source = (
            f"import socket\nsocket.socket(socket.AF_UNIX).connect({name!r})\nprint('a', 'hole')"
        )
        text = in_sandbox(user, place / "root", python(source))
    assert HOLE not in text
    assert "ConnectionRefused" in text or "without a sandbox" in text


@pytest.mark.parametrize("user", USERS)
def test_descriptors_of_the_agent_are_not_inherited(place: Path, user: str) -> None:
    secret = place / "secret"
    secret.write_text("the secret", encoding="utf-8")
    with secret.open(encoding="utf-8") as stream:
        os.set_inheritable(stream.fileno(), True)
        text = in_sandbox(
            user,
            place / "root",
            "for each in /proc/self/fd/*; do readlink $each; done; cat <&3 2>&1",
        )
    assert str(secret) not in text
    assert "the secret" not in text


@pytest.mark.parametrize("user", USERS)
def test_keys_in_the_kernels_keyring_cannot_be_seen(place: Path, user: str) -> None:
    machine = platform.machine()
    source = (
        "import ctypes\n"
        f"call = ctypes.CDLL(None, use_errno=True).syscall\n"
        # KEYCTL_SEARCH in the keyring of the session
        f"if call({KEYCTL[machine]}, 10, -3, b'user', b'dragoman-wall', 0) > 0: print('a', 'hole')\n"
        "print('looked')"
    )

    def work() -> str:
        call = ctypes.CDLL(None, use_errno=True).syscall
        # A keyring of this process alone, so that nobody else's is changed.
        assert call(KEYCTL[machine], 1, None) > 0
        assert call(ADD_KEY[machine], b"user", b"dragoman-wall", b"secret", 6, -3) > 0
        return in_sandbox("as started", place / "root", python(source))

    text = run_as("as nobody" if user == "as nobody" else "as started", work)
    assert HOLE not in text
    assert "looked" in text or "without a sandbox" in text


@pytest.mark.parametrize("user", USERS)
def test_what_dragoman_keeps_is_out_of_sight(
    place: Path, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, state, codex = place / "home", place / "state", place / "codex"
    elsewhere = place / "elsewhere"
    secrets = [
        state / "dragoman/store.db",
        state / "dragoman/sessions/ab/one.json",
        codex / "auth.json",
        home / ".codex/auth.json",
        home / ".ssh/id",  # .ssh is a link
        home / ".netrc",  # so is this
        home / ".config/gh/hosts.yml",
        place / "given/config.toml",
        place / "folder/db",
    ]
    for folder in (home, elsewhere / "ssh"):
        folder.mkdir(parents=True)
    (home / ".ssh").symlink_to(elsewhere / "ssh")
    (home / ".netrc").symlink_to(elsewhere / "netrc")
    for secret in secrets:
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("the secret", encoding="utf-8")
        secret.chmod(0o644)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("CODEX_HOME", str(codex))
    hidden = (str(place / "given/config.toml"), str(place / "folder"))
    targets = [*secrets, elsewhere / "ssh/id", elsewhere / "netrc"]
    command = f"cat {' '.join(map(str, targets))}; echo done"
    # Also when the agent works in one of these places, or in a folder above all of them.
    for root in (place / "root", home, state / "dragoman/work", place):
        root.mkdir(exist_ok=True)
        text = in_sandbox(user, root, command, hidden=hidden)
        assert "the secret" not in text
        assert "done" in text or "without a sandbox" in text


@pytest.mark.parametrize("user", USERS)
def test_what_is_hidden_cannot_be_moved_to_another_name(place: Path, user: str) -> None:
    """One command moves the folder away in which something is hidden, the next one reads it there."""
    root = place / "root"
    folder = root / "config/deep/tool"
    folder.mkdir(parents=True)
    (folder / "secret").write_text("the secret", encoding="utf-8")
    (root / "token").write_text("the secret", encoding="utf-8")
    for each in (root / "config", root / "config/deep", folder, folder / "secret", root / "token"):
        each.chmod(0o777)
    hidden = (str(folder), str(root / "token"))
    moves = "mv config a; mv config/deep b; mv config/deep/tool c; mv token d; ln token e; rm -f token; echo moved"
    first = in_sandbox(user, root, moves, hidden=hidden)
    second = in_sandbox(user, root, "find . -type f -exec cat {} +; echo looked", hidden=hidden)
    assert "moved" in first or "without a sandbox" in first
    assert "looked" in second or "without a sandbox" in second
    assert "the secret" not in first + second
    assert (folder / "secret").read_text(encoding="utf-8") == "the secret"


def test_the_folder_itself_is_not_hidden(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = place / "codex"
    root.mkdir()
    (root / "a").write_text("seen", encoding="utf-8")
    monkeypatch.setenv("CODEX_HOME", str(root))
    assert "seen" in in_sandbox("as started", root, "cat a") or not find_sandbox(root).is_on


@pytest.mark.parametrize("root", ["/", "/proc", "/proc/sys", "/sys", "/dev"])
def test_a_root_around_which_there_can_be_no_wall_is_refused(root: str) -> None:
    sandbox = find_sandbox(Path(root))
    assert not sandbox.is_on
    assert shutil.which("bwrap") is None or f"the root {root} cannot be isolated" in sandbox.reason


@pytest.mark.parametrize(
    ("script", "words"),
    [
        # One that surrounds the command with nothing.
        ('while [ "$1" != "--" ]; do shift; done; shift; exec "$@"', "leaves"),
        # One that is too old to know an option.
        ("echo 'bwrap: Unknown option --disable-userns' >&2; exit 1", "Unknown option"),
        ("echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1", "not permitted"),
    ],
)  # fmt: skip
def test_a_bubblewrap_that_makes_no_wall_is_refused(
    tmp_path: Path, script: str, words: str
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    sandbox = find_sandbox(tmp_path, program=str(program))
    assert not sandbox.is_on
    assert words in sandbox.reason


def test_what_programs_need_still_works_inside(place: Path) -> None:
    """A wall that keeps work out as well would be turned off."""
    command = python(
        "import multiprocessing, os, pathlib, socket, subprocess, tempfile\n"
        "one, other = socket.socketpair(); one.sendall(b'x'); assert other.recv(1) == b'x'\n"
        "server = socket.socket(socket.AF_UNIX); server.bind('own.sock'); server.listen()\n"
        "socket.socket(socket.AF_UNIX).connect('own.sock'); os.unlink('own.sock')\n"
        "assert subprocess.run(['true']).returncode == 0\n"
        "multiprocessing.Lock()\n"
        "pathlib.Path('/proc/self/oom_score_adj').read_text(); tempfile.NamedTemporaryFile()\n"
        "pathlib.Path('/proc/sys/kernel/ostype').read_text(); os.cpu_count(); os.getloadavg()\n"
        "os.openpty(); pathlib.Path('/dev/null').write_text('x')\n"
        "print('all of', 'it')"
    )
    text = in_sandbox("as started", place / "root", command)
    assert "all of it" in text or "without a sandbox" in text, text
