"""`dragoman keys` on real files: what it prints, what it changes, what it refuses."""

import os
import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from commands import run_command
from dragoman.core.secrets import HIDDEN, redact

FILE = """# ours
[server]
port = 8787 # the usual

[prices."gpt-*"]
input = 1.0
output = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dragoman.toml"
    path.write_text(FILE, encoding="utf-8")
    path.chmod(0o640)
    return path


def keys(file: Path, *arguments: str) -> tuple[int, str, str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(file.parent)}
    done = run_command("keys", *arguments, "--config", str(file), cwd=file.parent, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_new_key_is_printed_once_and_only_its_digest_is_written(file: Path) -> None:
    code, out, _ = keys(
        file,
        *("add", "team", "--allow", "gpt-*", "--allow", "claude-*"),
        *("--limit", "requests_per_minute=60", "--limit", "cost_per_day=2.5", "--inspect"),
    )
    assert code == 0
    key = out.strip()
    assert len(key) >= 40
    text = file.read_text(encoding="utf-8")
    assert text.startswith(FILE)
    assert key not in text
    assert tomllib.loads(text)["keys"]["team"] == {
        "digest": f"sha256:{sha256(key.encode()).hexdigest()}",
        "models": ["gpt-*", "claude-*"],
        "inspect": True,
        "requests_per_minute": 60,
        "cost_per_day": 2.5,
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    code, out, _ = keys(file, "list")
    assert code == 0
    assert "requests_per_minute=60" in out
    assert key not in out


def test_revoked_key_leaves_the_file_as_it_was(file: Path) -> None:
    assert keys(file, "add", "team")[0] == 0
    before = file.read_text(encoding="utf-8")
    assert keys(file, "add", "guest")[0] == 0
    code, _, said = keys(file, "revoke", "guest")
    assert (code, "No named key is left" in said) == (0, False)
    assert file.read_text(encoding="utf-8") == before
    code, _, said = keys(file, "revoke", "team")
    assert (code, "No named key is left" in said) == (0, True)
    assert file.read_text(encoding="utf-8") == FILE


def test_link_to_a_file_stays_a_link(file: Path) -> None:
    link = file.parent / "linked.toml"
    link.symlink_to(file)
    assert keys(link, "add", "team")[0] == 0
    assert link.is_symlink()
    assert "[keys.team]" in file.read_text(encoding="utf-8")


def test_every_key_of_commands_that_run_at_once_is_in_the_file(file: Path) -> None:
    names = [f"key{number}" for number in range(12)]
    with ThreadPoolExecutor(len(names)) as pool:
        runs = [pool.submit(keys, file, "add", name) for name in names]
        made = {name: run.result() for name, run in zip(names, runs, strict=True)}
    written = tomllib.loads(file.read_text(encoding="utf-8"))["keys"]
    assert {name: f"sha256:{sha256(out.strip().encode()).hexdigest()}" for name, (_, out, _) in made.items()} == {
        name: section["digest"] for name, section in written.items()
    }  # fmt: skip


def test_new_key_is_hidden_wherever_credentials_are(file: Path) -> None:
    key = keys(file, "add", "team")[1].strip()
    assert redact(f"no model {key} here") == f"no model {HIDDEN} here"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add",), "expected a NAME"),
        (("add", "a b"), "expected a name"),
        (("add", "team", "--limit", "requests=1"), "expected one of"),
        (("add", "team", "--limit", "requests_per_minute=many"), "expected a number"),
        (("add", "team", "--limit", "requests_per_minute=0"), "more than 0"),
        (("add", "team", "--limit", "cost_per_day=nan"), "expected a number"),
        (("add", "team", "--limit", "max_streams=1001"), "nothing was changed"),
        (("add", "team", "--limit", "max_streams=0"), "more than 0 and at most 1000 streams"),
        (("add", "team", "--allow", ""), "models"),
        (("revoke", "nobody"), "there is no keys.nobody"),
    ],
)
def test_what_cannot_work_changes_nothing(
    file: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, problems = keys(file, *arguments)
    assert (code, out) == (2, "")
    assert message in problems
    assert file.read_text(encoding="utf-8") == FILE
