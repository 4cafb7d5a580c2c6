"""Lines that a person types, and questions that wait for one."""

import asyncio
import io
import os
import pty
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from dragoman.cli.run.approving import asking, question_of
from dragoman.cli.run.live import LiveScreen
from dragoman.cli.run.questions import Person, TypedLines
from dragoman.engine.approval import Approval, Rule, Subject
from dragoman.engine.builtin.guarding import Answer
from dragoman.model.parts import Call


class Keyboard:
    """A terminal: what is typed on it, and a person whose screen is written down."""

    def __init__(self, ours: int, theirs: int) -> None:
        self.ours = ours
        self.lines = TypedLines(theirs)
        self.stream = io.StringIO()
        screen = LiveScreen(self.stream, is_live=False, has_colours=False, clock=lambda: 0.0)
        self.person = Person(screen, self.lines)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    async def until(self, text: str) -> None:
        """Wait until it is on the screen."""
        async with asyncio.timeout(5):
            while text not in self.stream.getvalue():  # noqa: ASYNC110 - a screen tells nobody
                await asyncio.sleep(0.001)


@asynccontextmanager
async def keyboard() -> AsyncGenerator[Keyboard]:
    ours, theirs = pty.openpty()
    try:
        yield Keyboard(ours, theirs)
    finally:
        for descriptor in (ours, theirs):
            with suppress(OSError):
                os.close(descriptor)


def approval(source: str, rule: Rule | None = None) -> Approval:
    call = Call(call_id="call_1", name="shell", input=source)
    return Approval(tool="shell", call=call, subjects=(Subject("command", "x"),), rule=rule)


def test_lines_are_read_one_by_one_or_as_they_were_pasted() -> None:
    async def read() -> None:
        async with keyboard() as keys, asyncio.timeout(5):
            keys.type("one\ntwo\n")
            assert await keys.lines.read() == "one"
            assert await keys.lines.read() == "two"
            keys.type("a list:\n- one\n- tw")
            reading = asyncio.create_task(keys.lines.read(pasted=True))
            await asyncio.sleep(0)
            keys.type("o\n")
            assert await reading == "a list:\n- one\n- two"
            keys.type("\x04")
            assert await keys.lines.read() is None
            keys.type("half\x04")
            reading = asyncio.create_task(keys.lines.read())
            keys.type("\x04")
            assert await reading == "half"

    asyncio.run(read())


def test_terminal_that_is_gone_is_the_end() -> None:
    async def read() -> None:
        async with keyboard() as keys, asyncio.timeout(5):
            reading = asyncio.create_task(keys.lines.read())
            await asyncio.sleep(0)
            os.close(keys.ours)
            assert await reading is None

    asyncio.run(read())


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("y", True),
        ("YES ", True),
        ("n", False),
        ("a", "always"),
        ("t", "tool"),
        ("\x04", False),
        ("what?\nno", False),
    ],
)
def test_approval_is_a_word_of_the_persons(typed: str, means: Answer) -> None:
    async def ask() -> None:
        async with keyboard() as keys, asyncio.timeout(5):
            asked = asyncio.create_task(_answer(keys))
            for line in typed.split("\n"):
                await keys.until("always shell: ")
                keys.stream.seek(0)
                keys.stream.truncate()
                keys.type(line if line == "\x04" else f"{line}\n")
            assert await asked == means

    asyncio.run(ask())


async def _answer(keys: Keyboard) -> Answer:
    return await asking(keys.person)(approval('{"command": "ls"}'))


def test_what_was_typed_before_the_question_is_no_answer_to_it() -> None:
    async def ask() -> None:
        async with keyboard() as keys, asyncio.timeout(5):
            keys.type("y\n")
            asked = asyncio.create_task(_answer(keys))
            await keys.until("always shell: ")
            keys.type("n\n")
            assert await asked is False

    asyncio.run(ask())


def test_question_shows_all_that_would_be_done_and_nothing_raw() -> None:
    source = '{"command": "echo one\\necho \\u001b[2Jtwo", "timeout": 5}'
    lines = ["".join(span.text for span in line) for line in question_of(approval(source), 80)]
    assert lines == [
        "? shell needs approval",
        "    command: echo one",
        "             echo \\x1b[2Jtwo",
        "    timeout: 5",
    ]


def test_question_says_where_it_is_cut_and_which_rule_asks() -> None:
    source = "x\n" * 100
    rule = Rule("shell", "git push*")
    lines = [
        "".join(span.text for span in line) for line in question_of(approval(source, rule), 80)
    ]
    assert lines[0] == "? shell needs approval (the policy asks: shell: git push*)"
    assert lines[-1] == "    … CUT HERE: it has 200 characters in all"
    assert len(lines) == 42
