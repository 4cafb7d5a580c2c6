"""Receipts, recordings and replay, through real HTTP and real commands."""

import json
import os
import signal
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commands import run_command
from dragoman.config.settings import InspectSettings, Settings, StoreSettings, UpstreamSettings
from dragoman.errors import ConfigError
from dragoman.recordings import read_recording, read_recordings
from dragoman.server.app import create_app
from dragoman.testing import ScriptedReply, ScriptedUpstream, json_reply, sse
from gateway_harness import DIALECTS, RunningGateway, one_upstream, running_gateway, wait_until
from sample_exchanges import PATHS, ask, call
from served import serving
from vendor_wire import Answer, Said, Tool, body_bytes, stream

CALL = Tool("call_1", "get_weather", ('{"city":', ' "Paris"}'))
ANSWER = Answer((Said(("Let me look.",)), CALL))
OTHER = Answer((Said(("I look.",)), Tool("call_9", "get_weather", ('{"city": "Oslo"}',))))
SPELT = Answer((Tool("call_7", "get_weather", ('{"city":"Paris"}',)),))
SECRET = "sk-proj-abcdefgh12345678"
NO_STORE = StoreSettings(url="memory:", policy="off")

PAIRS = [
    (door, kind, streams) for door in DIALECTS for kind in DIALECTS for streams in (True, False)
]
every_pair = pytest.mark.parametrize(("door", "kind", "streams"), PAIRS)


def reply(kind: str, *, streams: bool = True, answer: Answer = ANSWER) -> ScriptedReply:
    if streams:
        return sse(stream(kind, answer), cut_into=97)
    return json_reply(body_bytes(kind, answer))


@contextmanager
def recording_gateway(
    folder: Path, kind: str, *replies: ScriptedReply, **more: Any
) -> Generator[RunningGateway]:
    with ScriptedUpstream.in_thread(replies) as upstream:
        inspect = InspectSettings(record=str(folder), **more)
        settings = one_upstream(upstream.url, kind, inspect=inspect, store=NO_STORE)
        with running_gateway(settings) as gateway:
            yield gateway


def recorded(folder: Path, count: int = 1) -> list[Path]:
    def names() -> list[Path]:
        found = folder.iterdir() if folder.exists() else iter(())
        return sorted(each for each in found if not each.name.startswith("."))

    wait_until(lambda: len(names()) >= count)
    assert len(names()) == count
    return names()


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, cwd=cwd, env={"HOME": str(cwd)})


def weather(
    door: str, *, streams: bool = True, text: str = "How is the weather?"
) -> dict[str, Any]:
    return ask(door, text, "get_weather", stream=streams)


# --- recordings -------------------------------------------------------------------------------------------------------


@every_pair
def test_an_exchange_is_recorded_as_two_corpus_cases_and_plays_again(
    door: str, kind: str, streams: bool, tmp_path: Path
) -> None:
    asked = weather(door, streams=streams)
    fixed = {"x-request-id": "req_fixed"}
    with recording_gateway(tmp_path / "r", kind, reply(kind, streams=streams)) as gateway:
        first = call(gateway.url, "POST", PATHS[door], asked, fixed)
        [folder] = recorded(tmp_path / "r")
    name = "stream.sse" if streams else "body.json"
    assert (folder / "client" / name).read_bytes() == first[2]
    scripted = stream(kind, ANSWER) if streams else body_bytes(kind, ANSWER)
    assert (folder / "upstream-1" / name).read_bytes() == scripted
    assert json.loads((folder / "client" / "request.json").read_bytes()) == asked
    replay = UpstreamSettings(kind="replay", recordings=str(tmp_path / "r"))
    settings = Settings(upstreams={"scripted": replay}, store=NO_STORE)
    with running_gateway(settings) as gateway:
        again = call(gateway.url, "POST", PATHS[door], asked, fixed)
        other = call(gateway.url, "POST", PATHS[door], weather(door, text="And in Oslo?"))
    assert again[0] == first[0] == 200
    assert names_and_arguments(again[2]) == names_and_arguments(first[2])
    assert other[0] == 400
    message = json.loads(other[2])["error"]["message"]
    assert "no recording matches" in message
    assert "How is the weather?" in message
    assert "And in Oslo?" in message


def names_and_arguments(answer: bytes) -> tuple[int, int]:
    return answer.count(b"get_weather"), answer.count(b"Paris")


def test_recordings_are_private_and_atomic(tmp_path: Path) -> None:
    with recording_gateway(tmp_path / "r", "chat", reply("chat")) as gateway:
        call(
            gateway.url, "POST", PATHS["chat"], weather("chat"), {"x-request-id": "../../up\u00b7x"}
        )
        [folder] = recorded(tmp_path / "r")
    assert folder.parent == tmp_path / "r"
    assert ".." not in folder.name
    for place in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0
    assert [each for each in (tmp_path / "r").iterdir() if each.name.startswith(".")] == []


def test_secrets_are_not_recorded(tmp_path: Path) -> None:
    arguments = f'{{"key": "{SECRET}"}}'
    answer = Answer((Tool("c1", "get_weather", tuple(arguments)),))
    with recording_gateway(tmp_path / "r", "chat", reply("chat", answer=answer)) as gateway:
        headers = {"x-api-key": "the-callers-own-key", "cookie": "session=abcdef"}
        asked = weather("messages", text=f"use {SECRET}")
        call(gateway.url, "POST", PATHS["messages"], asked, headers)
        [folder] = recorded(tmp_path / "r")
    everything = b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())
    for hidden in (SECRET, "the-callers-own-key", "session=abcdef", "upstream-key"):
        assert hidden.encode() not in everything
    assert b"[redacted]" in everything


def test_recording_stops_at_its_limit_and_requests_go_on(tmp_path: Path) -> None:
    replies = [reply("chat")] * 4
    with recording_gateway(tmp_path / "r", "chat", *replies, record_max_bytes=12_000) as gateway:
        for _ in range(4):
            assert call(gateway.url, "POST", PATHS["chat"], weather("chat"))[0] == 200
    used = sum(each.stat().st_size for each in (tmp_path / "r").rglob("*") if each.is_file())
    assert 0 < used <= 12_000


def test_a_folder_that_cannot_be_written_stops_no_request(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("a file", encoding="utf-8")
    with recording_gateway(tmp_path / "r", "chat", reply("chat")) as gateway:
        assert call(gateway.url, "POST", PATHS["chat"], weather("chat"))[0] == 200


def test_a_killed_gateway_leaves_no_half_recording(tmp_path: Path) -> None:
    large = Answer((Said(tuple("word " * 200 for _ in range(300))),))

    def finished() -> list[Path]:
        return [each for each in (tmp_path / "r").glob("*") if not each.name.startswith(".")]

    with ScriptedUpstream.in_thread(lambda _: reply("chat", answer=large)) as upstream:
        options = ("--upstream", f"chat={upstream.url}/v1", "--record", "r")
        with serving(tmp_path, {}, *options) as gateway:
            for _ in range(6):
                call(gateway.url, "POST", PATHS["chat"], weather("chat"))
            gateway.signal(signal.SIGKILL)
            gateway.wait()
    for folder in finished():
        exchange = read_recording(folder)
        assert exchange.answer.data.endswith(b"[DONE]\n\n")


# --- playing ----------------------------------------------------------------------------------------------------------


def replaying(folder: Path, **more: Any) -> Settings:
    upstream = UpstreamSettings(kind="replay", recordings=str(folder), **more)
    return Settings(upstreams={"scripted": upstream}, store=NO_STORE)


def record_two(folder: Path) -> None:
    replies = (reply("chat"), reply("chat", answer=OTHER))
    with recording_gateway(folder, "chat", *replies) as gateway:
        for _ in replies:
            call(gateway.url, "POST", PATHS["chat"], weather("chat"))
        recorded(folder, 2)


def test_recordings_of_the_same_request_are_played_in_order_and_the_last_again(
    tmp_path: Path,
) -> None:
    record_two(tmp_path / "r")
    with running_gateway(replaying(tmp_path / "r")) as gateway:
        got = [call(gateway.url, "POST", PATHS["chat"], weather("chat"))[2] for _ in range(3)]
    assert [b"Oslo" in each for each in got] == [False, True, True]


def test_recordings_in_order_answer_any_request_and_then_say_that_all_were_played(
    tmp_path: Path,
) -> None:
    record_two(tmp_path / "r")
    with running_gateway(replaying(tmp_path / "r", match="order")) as gateway:
        answers = [
            call(gateway.url, "POST", PATHS["messages"], weather("messages", text=str(number)))
            for number in range(3)
        ]
    assert [status for status, _, _ in answers] == [200, 200, 400]
    assert b"all 2 recorded answers" in answers[2][2]


def test_members_that_may_differ_are_ignored(tmp_path: Path) -> None:
    record_two(tmp_path / "r")
    asked = {**weather("chat"), "user": "somebody"}
    for ignore, status in (((), 400), (("user",), 200)):
        with running_gateway(replaying(tmp_path / "r", ignore=ignore)) as gateway:
            assert call(gateway.url, "POST", PATHS["chat"], asked)[0] == status


def test_a_recorded_error_is_played_as_an_error(tmp_path: Path) -> None:
    error = json_reply(
        {"error": {"message": "no such model", "type": "invalid_request_error"}}, 404
    )
    with recording_gateway(tmp_path / "r", "chat", error) as gateway:
        call(gateway.url, "POST", PATHS["chat"], weather("chat"))
        recorded(tmp_path / "r")
    with running_gateway(replaying(tmp_path / "r")) as gateway:
        status, _, data = call(gateway.url, "POST", PATHS["chat"], weather("chat"))
    assert status == 404
    assert b"no such model" in data


def test_a_corpus_case_is_a_recording(tmp_path: Path) -> None:
    case = tmp_path / "r" / "case"
    case.mkdir(parents=True)
    (case / "meta.toml").write_text('title = "t"\ndialect = "messages"\n', encoding="utf-8")
    (case / "stream.sse").write_bytes(stream("messages", ANSWER))
    with running_gateway(replaying(tmp_path / "r", match="order")) as gateway:
        status, _, data = call(gateway.url, "POST", PATHS["chat"], weather("chat"))
    assert status == 200
    assert b"Paris" in data


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "expected recordings"),
        ({"x/meta.toml": b"\xff = ["}, "expected TOML"),
        ({"x/meta.toml": b"a = " + b"[" * 100_000}, "expected TOML"),
        ({"x/meta.toml": b'dialect = "morse"'}, "dialect"),
        ({"x/meta.toml": b'dialect = "chat"'}, "stream.sse"),
        ({"x/exchange.json": b"{"}, "expected the index"),
        ({"x/exchange.json": b"[" * 100_000}, "expected the index"),
        (
            {"x/exchange.json": b'{"version":2,"exchange":{"id":"x","at":0,"dialect":"chat"}}'},
            "version",
        ),
        (
            {"x/exchange.json": b'{"version":1,"exchange":{"id":"x","at":0,"dialect":"chat"}}'},
            "no recording has",
        ),
    ],
)
def test_a_folder_that_is_no_recording_is_refused_with_a_reason(
    files: dict[str, bytes], words: str, tmp_path: Path
) -> None:
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=words):
        create_app(replaying(tmp_path))


def test_links_pipes_and_huge_files_are_not_read(tmp_path: Path) -> None:
    record_two(tmp_path / "r")
    first, second = recorded(tmp_path / "r", 2)
    secret = tmp_path / "secret"
    secret.write_text("{}", encoding="utf-8")
    inside = first / "upstream-1" / "stream.sse"
    inside.unlink()
    inside.symlink_to(secret)
    with pytest.raises(ConfigError, match="a link"):
        create_app(replaying(tmp_path / "r"))
    inside.unlink()
    os.mkfifo(inside)
    with pytest.raises(ConfigError, match="plain file"):
        create_app(replaying(tmp_path / "r"))
    inside.unlink()
    with inside.open("wb") as sparse:
        sparse.truncate(10 * 1024**3)
    with pytest.raises(ConfigError, match="at most"):
        create_app(replaying(tmp_path / "r"))
    inside.unlink()
    (tmp_path / "r" / "linked").symlink_to(second)
    assert [name for name, _ in read_recordings(tmp_path / "r")] == [first.name, second.name]


# --- receipts ---------------------------------------------------------------------------------------------------------


def receipt_in(answer: tuple[int, dict[str, str], bytes]) -> dict[str, Any]:
    """The receipt that an answer carries."""
    _, headers, data = answer
    text = headers.get("x-dragoman-receipt", "").encode()
    if not text:
        [line] = [line for line in data.split(b"\n") if line.startswith(b": x-dragoman-receipt ")]
        text = line.removeprefix(b": x-dragoman-receipt ")
    receipt: dict[str, Any] = json.loads(text)
    return receipt


@every_pair
def test_an_answer_carries_its_receipt_and_the_receipt_is_true(
    door: str, kind: str, streams: bool, tmp_path: Path
) -> None:
    fixed = {"x-request-id": "req_fixed"}
    asked = weather(door, streams=streams)
    replies = [reply(kind, streams=streams)] * 2
    with recording_gateway(tmp_path / "r", kind, *replies) as gateway:
        answer = call(
            gateway.url, "POST", PATHS[door], asked, {**fixed, "x-dragoman-receipt": "full"}
        )
        path = "/v1/inspect/requests/req_fixed/receipt"
        wait_until(lambda: call(gateway.url, "GET", path)[0] == 200)
        full = call(gateway.url, "GET", path)[2]
        [folder] = recorded(tmp_path / "r")
    carried = receipt_in(answer)
    [row] = carried["calls"]
    assert row["equal"] is True
    assert carried["calls"] == json.loads(full)["calls"]
    assert json.loads(full)["finish"] == "tool_calls"
    file = tmp_path / "receipt.json"
    for data in (json.dumps(carried).encode(), full):
        file.write_bytes(data)
        done = command("verify", str(file), str(folder), cwd=tmp_path)
        assert (done.returncode, "everything in the receipt is true" in done.stdout) == (0, True)
    changed = json.loads(full)
    changed["calls"][0]["client"]["sha256"] = "0" * 64
    file.write_text(json.dumps(changed), encoding="utf-8")
    done = command("verify", str(file), str(folder), cwd=tmp_path)
    assert done.returncode == 1
    assert "call 1 input client" in done.stdout


def test_a_receipt_of_an_input_with_a_secret_can_not_be_checked(tmp_path: Path) -> None:
    answer = Answer((Tool("c1", "get_weather", (f'{{"key": "{SECRET}"}}',)),))
    with recording_gateway(tmp_path / "r", "chat", reply("chat", answer=answer)) as gateway:
        got = call(
            gateway.url, "POST", PATHS["chat"], weather("chat"), {"x-dragoman-receipt": "full"}
        )
        [folder] = recorded(tmp_path / "r")
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt_in(got)), encoding="utf-8")
    done = command("verify", str(file), str(folder), cwd=tmp_path)
    assert done.returncode == 3
    assert "no secrets" in done.stdout


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b'{"version": 9}'])
def test_what_is_no_receipt_is_refused(data: bytes, tmp_path: Path) -> None:
    record_two(tmp_path / "r")
    [folder, _] = recorded(tmp_path / "r", 2)
    (tmp_path / "receipt").write_bytes(data)
    done = command("verify", "receipt", str(folder), cwd=tmp_path)
    assert done.returncode == 2


# --- dragoman replay --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "options", "code", "words"),
    [
        (ANSWER, (), 0, "the same calls"),
        (SPELT, (), 0, "bytes of the arguments"),
        (SPELT, ("--bytes",), 1, "bytes of the arguments"),
        (OTHER, (), 1, "call 1 (get_weather) arguments"),
        (Answer((Said(("no",)),)), (), 1, "number of calls"),
        (Answer((Tool("a", "get_time", ("{}",)),)), (), 1, "names of calls"),
        (Answer((CALL,), finish="length"), (), 1, "finish"),
    ],
)
def test_replay_shows_what_differs_in_calls_and_not_in_prose(
    answer: Answer, options: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    with recording_gateway(tmp_path / "r", "chat", reply("chat")) as gateway:
        call(gateway.url, "POST", PATHS["messages"], weather("messages"))
        recorded(tmp_path / "r")
    with ScriptedUpstream.in_thread([reply("messages", answer=answer)]) as upstream:
        address = f"messages={upstream.url}"
        done = command("replay", "r", "--upstream", address, *options, cwd=tmp_path)
    assert words in done.stdout
    assert done.returncode == code
