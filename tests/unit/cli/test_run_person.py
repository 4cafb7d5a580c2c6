"""Lines that a person types, and questions that wait for one."""

import asyncio
import io
import json
import os
import pty
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dragoman.cli.run.keyboard import TypedLines
from dragoman.cli.run.live_screen import LiveScreen
from dragoman.cli.run.person import Person, approval_from, question_of
from dragoman.engine.approval import Approval, FileChange, Rule, Subject
from dragoman.engine.builtin.gate import Consent, GateRefusal
from dragoman.inspection.terminal_text import cells, exact
from dragoman.model.parts import Call


class Keyboard:
    """A terminal: what is typed on it, and a person whose screen is written down."""

    def __init__(self, ours: int, theirs: int) -> None:
        self.ours = ours
        self.stream = io.StringIO()
        self.screen = LiveScreen(self.stream, is_live=False, has_colours=False, clock=lambda: 0.0)
        self.lines = TypedLines(theirs, self.screen.prompt)
        self.person = Person(self.screen, self.lines)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    async def until(self, text: str, times: int = 1) -> None:
        """Wait until it is on the screen, so often."""
        async with asyncio.timeout(60):
            while self.stream.getvalue().count(text) < times:  # noqa: ASYNC110 - a screen tells nobody
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
        async with keyboard() as keys, asyncio.timeout(60):
            keys.type("typed before\n")
            reading = asyncio.create_task(keys.lines.read("first: "))
            await keys.until("first: ")
            keys.type("onne\x7f\x7fe\n")
            assert await reading == "one"
            reading = asyncio.create_task(keys.lines.read_question("second: "))
            await keys.until("second: ")
            keys.type("a list:\n- one\n- tw")
            keys.type("o\n")
            assert await reading == "a list:\n- one\n- two"
            reading = asyncio.create_task(keys.lines.read_question("third: "))
            await keys.until("third: ")
            keys.type("on two\\\n")
            keys.type("lines\n")
            assert await reading in ("on two\nlines", "on two\\\nlines")
            for typed, means in (("\x04", None), ("half\x04", "half")):
                reading = asyncio.create_task(keys.lines.read(f"{typed!r}: "))
                await keys.until(f"{typed!r}: ")
                keys.type(typed)
                assert await reading == means

    asyncio.run(read())


def test_terminal_that_is_gone_is_the_end() -> None:
    async def read() -> None:
        async with keyboard() as keys, asyncio.timeout(60):
            reading = asyncio.create_task(keys.lines.read(""))
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
        ("v", "never"),
        ("t", "tool"),
        ("\x04", False),
        ("what?\nno", False),
    ],
)
def test_approval_is_a_word_of_the_persons(typed: str, means: Consent) -> None:
    async def ask() -> None:
        async with keyboard() as keys, asyncio.timeout(60):
            asked = asyncio.create_task(_answer(keys))
            for line in typed.split("\n"):
                await keys.until("always shell: ")
                keys.stream.seek(0)
                keys.stream.truncate()
                keys.type(line if line == "\x04" else f"{line}\n")
            if typed.endswith(("n", "no")):
                await keys.until("no reason): ")
                keys.type("\n")
            assert await asked == means

    asyncio.run(ask())


async def _answer(keys: Keyboard) -> Consent:
    return await approval_from(keys.person)(approval('{"command": "ls"}'))


def test_what_was_typed_before_the_question_is_no_answer_to_it() -> None:
    async def ask() -> None:
        async with keyboard() as keys, asyncio.timeout(60):
            keys.type("y\n")
            asked = asyncio.create_task(_answer(keys))
            await keys.until("always shell: ")
            keys.type("n\n")
            await keys.until("no reason): ")
            keys.type("too early\n")
            assert await asked == GateRefusal("too early")

    asyncio.run(ask())


def shown(asked: Approval, width: int = 80) -> list[str]:
    return ["".join(span.text for span in line) for line in question_of(asked, width)]


def test_question_shows_all_that_would_be_done_and_nothing_raw() -> None:
    source = '{"command": "echo one\\necho \\u001b[2Jtwo", "timeout": 5}'
    assert shown(approval(source)) == [
        "? shell needs approval",
        "    command: 2 lines, 21 characters",
        "    | echo one",
        "    | echo \\x1b[2Jtwo",
        "    timeout: 5",
        "    escapes stand for 1 × escape",
    ]


def test_a_line_end_after_the_last_line_is_no_line_more() -> None:
    source = '{"path": "a.txt", "content": "some text\\n"}'
    assert shown(approval(source))[1:] == [
        "    path: a.txt",
        "    content: 1 line, 10 characters, newline at the end",
        "    | some text",
    ]
    assert shown(approval('{"content": "\\n"}'))[1:] == [
        "    content: 1 line, 1 character, newline at the end",
        "    | ",
    ]


def test_a_diff_has_no_line_after_the_last_but_shows_a_newline_that_is_lost() -> None:
    def diff(before: str, after: str) -> list[str]:
        change = FileChange("a.py", before, after)
        return shown(structs.replace(approval("{}"), changes=(change,)))[1:]

    assert diff("one\ntwo\n", "one\n2\n") == [
        "    a.py",
        "    @@ -1,2 +1,2 @@",
        "      one",
        "    - two",
        "    + 2",
    ]
    assert diff("one\n", "one")[-2:] == ["      one", "    - "]


def test_question_of_many_lines_is_not_cut_and_says_which_rule_asks() -> None:
    rule = Rule("shell", "git push*")
    lines = shown(approval("x\n" * 1000 + "the end", rule))
    assert lines[0] == "? shell needs approval (the policy asks: shell: git push*)"
    assert lines[1] == "    1,001 lines, 2,007 characters"
    assert lines[-1] == "    | the end"
    assert len(lines) == 1003


def test_question_says_what_the_policy_cannot_see() -> None:
    asked = structs.replace(approval('{"command": "$x"}'), unseen="a name is put together")
    assert shown(asked)[0] == (
        "? shell needs approval (the policy cannot see all of it: a name is put together)"
    )


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\tb", "a\\tb"),
        ("good\rbad", "good\\rbad"),
        ("a\u200bb\u200cc\u200dd\ufeff", "a\\u200bb\\u200cc\\u200dd\\ufeff"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("a\u00a0b\u3000c\u2003", "a\\xa0b\\u3000c\\u2003"),
        ("a\u3164b\u2800c\u00adc\ufe0f", "a\\u3164b\\u2800c\\xadc\\ufe0f"),
        ("rm\u0336 x", "rm\\u0336 x"),
        ("नमस्ते 漢字 é", "नमस्ते 漢字 é"),
        ("ends  ", "ends\\x20\\x20"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("\U000e0041\U000e0100", "\\U000e0041\\U000e0100"),
    ],
)
def test_nothing_in_a_question_is_disguised(text: str, seen: str) -> None:
    for source in (text, json.dumps({"command": text})):
        lines = shown(approval(source))
        assert lines[1].removeprefix("    ").removeprefix("command: ") == seen
        assert ("escapes stand for" in lines[-1]) is (text != seen)


def test_arguments_are_shown_as_they_came() -> None:
    source = '{"a": {"b": [1.0, "\\u0041"]}, "c\\u202e": "d", "e": null, "f": 1e2}'
    assert shown(approval(source))[1:] == [
        '    a: {"b": [1.0, "\\u0041"]}',
        "    c\\u202e: d",
        "    e: null",
        "    f: 1e2",
        "    escapes stand for 1 × U+202E",
    ]
    twice = '{"command": "ls", "command": "rm x"}'
    assert shown(approval(twice))[1:] == [f"    {twice}"]
    assert shown(approval("{}"))[1:] == ["    {}"]
    name = "n" * 300
    assert "".join(shown(approval(json.dumps({name: "v"})))).count("n") >= 300


def test_tool_of_a_server_is_named_in_full_and_nothing_in_its_name_is_hidden() -> None:
    name = f"server__{'long_' * 40}\u200bname"
    asked = structs.replace(approval("{}"), tool=name)
    seen = name.replace("\u200b", "\\u200b")
    assert shown(asked)[0].startswith(f"? {seen} needs")


def test_path_that_leads_elsewhere_is_shown() -> None:
    asked = structs.replace(
        approval('{"path": "link/a"}'), subjects=(Subject("path", "link/a"), Subject("path", "b/a"))
    )
    assert shown(asked)[1:] == ["    path: link/a", "    leads to: b/a"]


@given(
    st.text(st.characters(exclude_categories=()))
    | st.text("a \\\n\t|'\u200d\u202ex漢", max_size=300),
    st.integers(25, 120),
)
def test_whole_text_is_in_the_question(text: str, width: int) -> None:
    """Put together again, what is shown is the text: no line of it is missing, none looks like two."""
    lines = shown(approval(text), width)[1:]
    notice = [at for at, line in enumerate(lines) if line.startswith("    escapes stand for ")]
    body = lines[: notice[0]] if notice else lines
    expected = [exact(line, Counter()) for line in text.split("\n")]
    if len(expected) == len(body) == 1:
        assert body[0] == f"    {expected[0]}"
        return
    rebuilt: list[str] = []
    for line in body[1:]:
        if line.startswith("    | "):
            rebuilt.append(line[6:])
        else:
            assert line.startswith("      ")
            rebuilt[-1] += line[6:]
    if body[0].endswith(", newline at the end"):
        rebuilt.append("")
    assert rebuilt == expected
    assert all(cells(line) <= max(width, 26) for line in body[1:])


def test_long_question_is_paged_and_yes_before_its_end_is_no_answer() -> None:
    source = json.dumps({"command": "\n".join(f"echo {number}" for number in range(100))})

    async def ask() -> None:
        async with keyboard() as keys, asyncio.timeout(60):
            asked = asyncio.ensure_future(approval_from(keys.person)(approval(source)))
            await keys.until("page 1 of 5")
            assert "echo 0" in keys.stream.getvalue()
            assert "allow it?" not in keys.stream.getvalue()
            keys.type("y\n")  # not yet
            await keys.until("page 1 of 5", 2)
            keys.screen.say("words of the model that come meanwhile\n")
            keys.type("\n")
            await keys.until("page 2 of 5")
            keys.type("r\n")
            await keys.until("allow it?")
            text = keys.stream.getvalue()
            assert all(f"echo {number}\n" in text for number in range(100))
            assert "words of the model" not in text
            keys.type("y\n")
            assert await asked is True
            assert "words of the model" in keys.stream.getvalue()

    asyncio.run(ask())


@pytest.mark.parametrize(("typed", "means"), [("n", False), ("\x04", False)])
def test_long_question_can_be_refused_on_any_page(typed: str, means: Consent) -> None:
    async def ask() -> None:
        async with keyboard() as keys, asyncio.timeout(60):
            asked = asyncio.ensure_future(approval_from(keys.person)(approval("x\n" * 100)))
            await keys.until("page 1 of 5")
            keys.type(typed if typed == "\x04" else f"{typed}\n")
            if typed == "n":
                await keys.until("no reason): ")
                keys.type("\n")
            assert await asked is means

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("subjects", "words"),
    [
        ([Subject("command", "x")], "[a]lways this command"),
        ([Subject("path", "x")], "[a]lways this path"),
        ([Subject("path", "x"), Subject("path", "y")], "[a]lways these paths"),
        ([Subject("input", "x")], "[a]lways these arguments"),
    ],
)
def test_what_always_means_is_said(subjects: list[Subject], words: str) -> None:
    async def ask() -> None:
        async with keyboard() as keys, asyncio.timeout(60):
            asked = structs.replace(approval("{}"), subjects=tuple(subjects))
            answer = asyncio.ensure_future(approval_from(keys.person)(asked))
            await keys.until(words)
            keys.type("n\n")
            await keys.until("no reason): ")
            keys.type("\n")
            assert await answer is False

    asyncio.run(ask())
