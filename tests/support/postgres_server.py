"""A PostgreSQL server of the tests' own: real, on a private socket in a private folder, gone with the tests.

The programs are the distribution's (`scripts/postgres` installs them). PostgreSQL refuses to run as root, so root starts
it as the user `postgres`, or as `nobody` where there is none.
"""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

SCRIPT = Path(__file__).parents[2] / "scripts" / "postgres"
# Nobody listens on it: it only names the socket in the folder.
PORT = 5432


class PostgresServer:
    """A running server. `fresh` gives each test a database of its own."""

    def __init__(self, programs: Path, folder: Path, user: str, *, fsync: bool) -> None:
        self.folder = folder
        self._fsync = fsync
        self._programs = programs
        self._user = user
        self._count = 0

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://tester@/{database}?host={self.folder}&port={PORT}"

    def fresh(self) -> str:
        """The URL of a new database."""
        self._count += 1
        name = f"test_{self._count}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def initialise(self) -> None:
        options = ["-D", str(self.data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C"]
        self._run("initdb", *options, "--no-sync")

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            # The tests end with the folder: what a crash of the machine would lose is no matter to them.
            "fsync": "on" if self._fsync else "off",
            "max_connections": "50",
            "shared_buffers": "32MB",
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-l", log, "-o", f"-p {PORT} {options}", "start"
        )

    def stop(self) -> None:
        """As if it died, but for the files: connections are cut, not ended."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop")

    async def pause(self, seconds: float) -> None:
        """Stopped for a while."""
        await asyncio.to_thread(self.stop)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.start)

    @contextmanager
    def silent(self) -> Generator[None, None, None]:
        """The server's processes are paused: it takes connections and says nothing."""
        main = int((self.data / "postmaster.pid").read_text(encoding="ascii").split()[0])
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True, check=True
        )
        processes = [main, *map(int, listed.stdout.split())]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def _run(self, program: str, *arguments: str) -> None:
        user = self._user if os.geteuid() == 0 else None
        run = subprocess.run(
            [str(self._programs / program), *arguments],
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
            cwd=self.folder,
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
        )
        if run.returncode:
            log = self.folder / "log"
            result = log.read_text(encoding="utf-8") if log.exists() else run.stdout
            raise AssertionError(f"{program} failed with {run.returncode}: {result}")


@contextmanager
def run_postgres(*, fsync: bool = False) -> Generator[PostgresServer, None, None]:
    found = subprocess.run([str(SCRIPT)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"scripts/postgres failed: {found.stderr}"
    known = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in known else "nobody"
    # A socket's path has at most 107 bytes: not below pytest's own folders.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    server = PostgresServer(Path(found.stdout.strip()), folder, user, fsync=fsync)
    try:
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
