"""Conversations as files: whole, private, found again, and refused if they are not ours."""

import os
import stat
from pathlib import Path

import pytest
from msgspec import structs

from dragoman._json import Raw
from dragoman.cli.run.sessions import MAX_KEPT, Sessions, StoredSession, is_session_id, new_session
from dragoman.errors import ConfigError
from dragoman.model.outcome import Usage
from dragoman.model.parts import Breakpoint, Call, Opaque, Reasoning, Result, Seal, Text
from dragoman.model.request import Turn

TURNS = (
    Turn(role="user", parts=(Text(text="Read it.\x1b[2J"),)),
    Turn(
        role="assistant",
        parts=(
            Reasoning(summary=("hm",), seals=(Seal(kind="encrypted", data="abc"),)),
            Call(
                call_id="call_1",
                name="read",
                input='{"path": "a"}',
                cache=Breakpoint(ttl="1h", alone=True),
            ),
            Opaque(dialect="responses", type="new", raw=Raw(b'{"type":"new"}')),
        ),
    ),
    Turn(role="tool", parts=(Result(call_id="call_1", content=(Text(text="é"),), is_error=True),)),
)


def sessions_in(folder: Path) -> Sessions:
    return Sessions({"XDG_STATE_HOME": str(folder)})


def session(root: Path, title: str = "") -> StoredSession:
    made = new_session(root, "some-model", 1000.0)
    return structs.replace(made, title=title, turns=TURNS, usage=Usage(input=3))


def file_of(folder: Path, session_id: str) -> Path:
    (path,) = folder.rglob(f"{session_id}.json")
    return path


def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    saved = session(tmp_path, title="Read it.")
    sessions_in(tmp_path).save(saved)
    assert sessions_in(tmp_path).load(saved.id) == saved
    assert sessions_in(tmp_path).latest(tmp_path) == saved


def test_only_the_owner_may_read_it_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    saved = session(tmp_path)
    sessions_in(tmp_path).save(saved)
    sessions_in(tmp_path).save(saved)
    path = file_of(tmp_path, saved.id)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_folders_have_conversations_of_their_own(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    kept = sessions_in(tmp_path)
    one, other = session(here), session(there)
    kept.save(one)
    kept.save(other)
    assert kept.latest(here).id == one.id
    assert [each.id for each in kept.all_of(there) if isinstance(each, StoredSession)] == [other.id]


def test_last_one_saved_is_the_latest(tmp_path: Path) -> None:
    kept = sessions_in(tmp_path)
    one, other = session(tmp_path), session(tmp_path)
    kept.save(one)
    kept.save(other)
    os.utime(file_of(tmp_path, one.id), (1, 1))
    assert kept.latest(tmp_path).id == other.id
    os.utime(file_of(tmp_path, other.id), (0, 0))
    assert kept.latest(tmp_path).id == one.id


def test_half_a_character_does_not_make_it_unreadable(tmp_path: Path) -> None:
    saved = session(tmp_path, title="half \ud83d of it")
    sessions_in(tmp_path).save(saved)
    assert sessions_in(tmp_path).load(saved.id).title == "half \ufffd of it"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"version":2,"id":"x"}', "version 2"),
        (b'{"id":"x","root":"/"}', "version none"),
        (b'{"version":1,"id":"x"', "damaged"),
        (b'{"version":1,"id":"x"}', "damaged"),
        (b'{"version":1,"id":"x","root":"/","turns":[{"role":"nobody"}]}', "damaged"),
        (b"\xff\x00", "damaged"),
        (b"", "damaged"),
    ],
)
def test_file_of_another_version_or_damaged_is_refused_clearly(
    tmp_path: Path, data: bytes, says: str
) -> None:
    kept = sessions_in(tmp_path)
    saved = session(tmp_path)
    kept.save(saved)
    file_of(tmp_path, saved.id).write_bytes(data)
    with pytest.raises(ConfigError, match=says):
        kept.load(saved.id)
    with pytest.raises(ConfigError, match=saved.id):
        kept.latest(tmp_path)
    assert [type(each) for each in kept.all_of(tmp_path)] == [str]


@pytest.mark.parametrize("name", ["../../etc/passwd", "*", "20260101-000000-abcdef", ""])
def test_id_that_there_is_not_is_refused(tmp_path: Path, name: str) -> None:
    kept = sessions_in(tmp_path)
    kept.save(session(tmp_path))
    with pytest.raises(ConfigError, match="--resume"):
        kept.load(name)


def test_folder_without_any_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found none"):
        sessions_in(tmp_path).latest(tmp_path)
    assert sessions_in(tmp_path).all_of(tmp_path) == []


def test_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    kept = sessions_in(tmp_path)
    saved = session(tmp_path)
    kept.save(saved)
    file = file_of(tmp_path, saved.id)
    victim = tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    file.unlink()
    file.symlink_to(victim)
    kept.save(saved)
    assert victim.read_text(encoding="utf-8") == "mine"
    assert not file.is_symlink()
    assert kept.load(saved.id) == saved


def test_oldest_are_forgotten_when_there_are_too_many(tmp_path: Path) -> None:
    kept = sessions_in(tmp_path)
    made = [session(tmp_path) for _ in range(3)]
    kept.save(made[0])
    folder = file_of(tmp_path, made[0].id).parent
    for number in range(MAX_KEPT - 1):
        (folder / f"20250101-000000-{number:06x}.json").write_bytes(b"{}")
    os.utime(file_of(tmp_path, made[0].id), (1, 1))
    kept.save(made[1])
    assert len(list(folder.iterdir())) == MAX_KEPT
    assert not list(tmp_path.rglob(f"{made[0].id}.json"))


def test_file_that_another_run_has_deleted_is_passed_over(tmp_path: Path) -> None:
    kept, gone = session(tmp_path), session(tmp_path)
    sessions_in(tmp_path).save(kept)
    file = file_of(tmp_path, kept.id)
    # A link to nowhere is listed like a file that is deleted a moment later.
    file.with_name(f"{gone.id}.json").symlink_to(tmp_path / "nowhere")
    assert sessions_in(tmp_path).all_of(tmp_path) == [kept]


def test_ids_are_distinguished_from_words() -> None:
    assert is_session_id(new_session(Path("/"), "m", 0.0).id)
    assert not is_session_id("go on")
