"""Keys from a program: what is read, when it is run again, and what a failure does. The programs are real."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import UpstreamError
from dragoman.upstream.http import token_command
from dragoman.upstream.http.token_command import (
    MARGIN,
    MAX_OUTPUT,
    UNKNOWN_LIFE,
    Token,
    TokenCommand,
    read_token,
)

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("output", "token"),
    [
        (b"ya29.plain\n", Token("ya29.plain", NOW + UNKNOWN_LIFE)),
        (b"  ya29.plain \r\n", Token("ya29.plain", NOW + UNKNOWN_LIFE)),
        (
            b'{"accessToken":"eyJ","expiresOn":"2023-11-14 23:13:20.0","expires_on":1700003600,"tokenType":"Bearer"}',
            Token("eyJ", NOW + 3600 - MARGIN, NOW + 3600),
        ),
        (b'{"access_token":"t","expires_in":"3600"}', Token("t", NOW + 3600 - MARGIN, NOW + 3600)),
        (b'{"token":"t","expiry":"2023-11-14T23:13:20Z"}', Token("t", NOW + 3300, NOW + 3600)),
        (b'{"token":"t","expiration":"2023-11-14T23:13:20Z"}', Token("t", NOW + 3300, NOW + 3600)),
        # A short life: it is renewed after half of it.
        (b'{"token":"t","expires_in":60}', Token("t", NOW + 30, NOW + 60)),
        (b'{"token":"t","expires_in":true}', Token("t", NOW + UNKNOWN_LIFE)),
        (b'{"token":"t","expiry":"soon"}', Token("t", NOW + UNKNOWN_LIFE)),
    ],
)
def test_what_is_read(output: bytes, token: Token) -> None:
    assert read_token(output, NOW) == token


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (b"", "got nothing"),
        (b"\n", "got nothing"),
        (b"two words", "without spaces"),
        (b"two\nlines", "on one line"),
        ("geheim-ü".encode(), "on one line"),
        (b"\xff", "expected text"),
        (b'{"token":', "broken JSON"),
        (b'{"secret":"hush"}', "expected one of accessToken"),
        (b'{"token":""}', "expected one of accessToken"),
        (b'{"token":"hush\\r\\nx-evil: 1"}', "on one line"),
        (b'{"token":"hush","expires_in":-1}', "has not expired"),
        (b'{"token":"hush","expires_on":1}', "has not expired"),
        (b"h" * 20000, "at most 16384"),
    ],
)
def test_what_is_no_token_is_refused_without_being_quoted(output: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        read_token(output, NOW)
    assert "hush" not in str(refused.value)


@given(st.binary(max_size=200))
def test_any_output_is_a_token_for_one_header_line_or_an_error(output: bytes) -> None:
    try:
        token = read_token(output, NOW)
    except ValueError:
        return
    assert token.value.isascii()
    assert token.value.isprintable()
    assert NOW < token.renew_at <= token.ends_at


class Program:
    """A program that prints what the test has written, and counts its runs. The clock is the test's."""

    def __init__(self, folder: Path, source: str = "") -> None:
        self.runs_file = folder / "runs"
        self.output_file = folder / "output"
        self.now = NOW
        source = source or "print(open(sys.argv[2], encoding='utf-8').read())"
        self.code = f"import sys, os, time\nopen(sys.argv[1], 'a').write('x')\n{source}\n"
        command = (sys.executable, "-c", self.code, str(self.runs_file), str(self.output_file))
        self.token = TokenCommand("up", command, lambda: self.now)

    @property
    def runs(self) -> int:
        return len(self.runs_file.read_bytes()) if self.runs_file.exists() else 0

    def print(self, text: str) -> None:
        self.output_file.write_text(text, encoding="utf-8")


def play(main: Callable[[], Coroutine[object, object, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


def test_one_run_serves_all_requests_until_the_key_must_be_renewed(tmp_path: Path) -> None:
    async def main() -> None:
        program = Program(tmp_path)
        program.print('{"token":"first","expires_in":3600}')
        found = await asyncio.gather(*[program.token.current() for _ in range(20)])
        assert (set(found), program.runs) == ({"first"}, 1)
        program.now += 3600 - MARGIN - 1
        assert (await program.token.current(), program.runs) == ("first", 1)
        program.print('{"token":"second","expires_in":3600}')
        program.now += 2
        found = await asyncio.gather(*[program.token.current() for _ in range(20)])
        assert set(found) == {"first"}, "no request waits while the key is valid"
        await until(program.token, "second")
        assert program.runs == 2
        assert program.token.secrets.credentials == {"first", "second"}

    play(main)


async def until(token: TokenCommand, wanted: str) -> None:
    while await token.current() != wanted:  # noqa: ASYNC110 - a program prints it
        await asyncio.sleep(0.01)


def test_requests_use_the_old_key_while_it_is_renewed(tmp_path: Path) -> None:
    async def main() -> None:
        waits = "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
        program = Program(tmp_path, waits + "print(open(sys.argv[2]).read())")
        program.print('{"token":"first","expires_in":3600}')
        await program.token.current()
        program.output_file.unlink()
        program.now += 3600 - MARGIN + 1
        asking = asyncio.create_task(program.token.current())
        while program.runs < 2:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.01)
        assert asking.done()
        assert asking.result() == await program.token.current() == "first"
        program.now += MARGIN  # now it has expired
        waiting = asyncio.create_task(program.token.current())
        await asyncio.sleep(0)
        (tmp_path / "new").write_text('{"token":"second","expires_in":3600}', encoding="utf-8")
        (tmp_path / "new").rename(program.output_file)
        assert (await waiting, program.runs) == ("second", 2)

    play(main)


def test_a_failed_renewal_leaves_the_key_that_is_still_valid(tmp_path: Path) -> None:
    async def main() -> None:
        program = Program(tmp_path)
        program.print('{"token":"first","expires_in":3600}')
        await program.token.current()
        program.print("")
        program.now += 3600 - MARGIN + 1
        assert await program.token.current() == "first"
        while program.runs < 2:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.01)
        assert await program.token.renewed("first") is None  # waits for that run
        assert await program.token.current() == "first"
        assert program.runs == 2, "a program that failed is not run again at once"
        program.now += MARGIN
        with pytest.raises(UpstreamError, match="printed no token: expected a token, got nothing"):
            await program.token.current()

    play(main)


def test_a_refused_key_is_renewed_once(tmp_path: Path) -> None:
    async def main() -> None:
        program = Program(tmp_path)
        program.print("first")
        assert await program.token.current() == "first"
        assert await program.token.renewed("first") is None, (
            "it is new: another run would print the same"
        )
        program.print("second")
        program.now += 10
        both = await asyncio.gather(program.token.renewed("first"), program.token.renewed("first"))
        assert list(both) == ["second", "second"]
        assert program.runs == 2
        program.now += 10
        assert await program.token.renewed("second") is None, "the program prints the same again"
        assert program.runs == 3

    play(main)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("sys.exit(3)", "ended with status 3"),
        ("print('x' * 100000)", f"wrote more than {MAX_OUTPUT} bytes"),
        ("print()", "printed no token: expected a token, got nothing"),
        ("os.kill(os.getpid(), 9)", "ended with status -9"),
    ],
)
def test_a_program_that_fails_is_an_error_of_authentication(
    tmp_path: Path, source: str, why: str
) -> None:
    async def main() -> None:
        program = Program(tmp_path, source)
        for _ in range(3):
            with pytest.raises(UpstreamError) as failed:
                await program.token.current()
            assert failed.value.kind == "authentication"
            assert failed.value.message == f"upstream 'up': its token_command {why}"
        assert program.runs == 1
        program.now += 6
        with pytest.raises(UpstreamError):
            await program.token.current()
        assert program.runs == 2

    play(main)


def test_a_program_that_is_not_there_is_an_error() -> None:
    async def main() -> None:
        token = TokenCommand("up", ("/no/such/program",))
        with pytest.raises(UpstreamError, match="cannot be started: No such file or directory"):
            await token.current()

    play(main)


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_command, "PATIENCE", 0.5)

    async def main() -> None:
        program = Program(
            tmp_path, "open(sys.argv[2], 'w').write(str(os.getpid()))\ntime.sleep(600)"
        )
        with pytest.raises(UpstreamError, match=r"gave no token within 0\.5 s"):
            await program.token.current()
        if program.output_file.exists() and program.output_file.read_text(encoding="utf-8"):
            with pytest.raises(ProcessLookupError):
                os.kill(int(program.output_file.read_text(encoding="utf-8")), 0)

    play(main)


def test_a_renewal_that_nobody_waits_for_ends_with_its_upstream(tmp_path: Path) -> None:
    async def main() -> None:
        waits = "if os.path.exists(sys.argv[2] + '.hang'): time.sleep(600)\n"
        program = Program(tmp_path, waits + "print(open(sys.argv[2]).read())")
        program.print('{"token":"first","expires_in":3600}')
        await program.token.current()
        (tmp_path / "output.hang").touch()
        program.now += 3600 - MARGIN + 1
        assert await program.token.current() == "first"
        while program.runs < 2:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.01)
        await program.token.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(main)


def test_a_request_that_leaves_ends_its_run_and_the_next_one_runs_again(tmp_path: Path) -> None:
    async def main() -> None:
        waits = "import pathlib\nwhile not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)\n"
        program = Program(tmp_path, waits + "print(open(sys.argv[2]).read())")
        leaving = asyncio.create_task(program.token.current())
        while program.runs < 1:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.01)
        waiting = asyncio.create_task(program.token.current())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        (tmp_path / "new").write_text("token", encoding="utf-8")
        (tmp_path / "new").rename(program.output_file)
        assert await waiting == "token"
        assert program.runs == 2

    play(main)


def test_what_the_program_complains_is_logged_and_the_key_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        program = Program(
            tmp_path, "print('the-secret-key')\nprint('WARNING: old', file=sys.stderr)"
        )
        with caplog.at_level(logging.DEBUG):
            assert await program.token.current() == "the-secret-key"

    play(main)
    assert "token_command of upstream 'up' wrote: WARNING: old" in caplog.text
    assert "the-secret-key" not in caplog.text


def test_a_token_does_not_show_itself() -> None:
    assert "hush" not in repr(Token("hush", 1.0))
