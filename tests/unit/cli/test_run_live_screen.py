"""The live screen: text scrolls, rows below it change and go."""

import io
import shutil
import time
from os import terminal_size

import pytest

from dragoman.cli.run.live_screen import LiveScreen
from dragoman.inspection.layout import Span
from vt import Terminal

WIDTH = 40


class Screen:
    """A live screen, and the terminal that it is written to."""

    def __init__(self, *, is_live: bool = True, has_colours: bool = False) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        self._shown = 0
        self.live = LiveScreen(
            self.stream, is_live=is_live, has_colours=has_colours, clock=lambda: self.now
        )
        self._terminal = Terminal(WIDTH)

    def fail(self) -> None:
        """Something else is written to the same terminal."""
        self.stream.write("dragoman: it failed\n")

    @property
    def text(self) -> str:
        whole = self.stream.getvalue()
        self._terminal.feed(whole[self._shown :])
        self._shown = len(whole)
        return self._terminal.text


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    def narrow(_: tuple[int, int]) -> terminal_size:
        return terminal_size((WIDTH, 24))

    monkeypatch.setattr(shutil, "get_terminal_size", narrow)


def test_row_shows_how_long_its_thing_takes_and_goes_with_it() -> None:
    screen = Screen()
    screen.live.say("Let me see.")
    screen.live.set_row("1", "read README.md")
    assert screen.text == "Let me see.\n⠋ read README.md  0.0 s"
    screen.now = 1.25
    screen.live.tick()
    assert screen.text == "Let me see.\n⠙ read README.md  1.2 s"
    screen.live.drop_row("1")
    screen.live.show((Span("done"),))
    assert screen.text == "Let me see.\ndone"


def test_text_that_comes_while_rows_are_drawn_goes_above_them_and_joins() -> None:
    screen = Screen()
    screen.live.set_row("1", "sleep")
    screen.live.say("one")
    screen.live.say(" two\nthr")
    assert screen.text == "one two\nthr\n⠋ sleep  0.0 s"
    screen.live.set_row("2", "wait")
    screen.live.say("ee")
    assert screen.text == "one two\nthree\n⠋ sleep  0.0 s\n⠋ wait  0.0 s"
    screen.live.drop_row("1")
    screen.live.drop_row("2")
    screen.live.say(" four")
    assert screen.text == "one two\nthree four"


def test_lines_shown_while_others_run_stand_above_them() -> None:
    screen = Screen()
    screen.live.set_row("1", "slow")
    screen.live.set_row("2", "quick")
    screen.live.drop_row("2")
    screen.live.show((Span("quick is done"),))
    assert screen.text == "quick is done\n⠋ slow  0.0 s"


def test_long_text_beside_rows_is_wrapped_and_nothing_of_it_is_lost() -> None:
    screen = Screen()
    screen.live.set_row("1", "slow")
    words = " ".join(f"word{number}" for number in range(40))
    for start in range(0, len(words), 7):
        screen.live.say(words[start : start + 7])
        screen.live.tick()
    screen.live.drop_row("1")
    assert screen.text.replace("\n", "") == words


def test_styled_text_beside_rows_is_wrapped_by_what_is_seen() -> None:
    screen = Screen(has_colours=True)
    screen.live.set_row("1", "read README.md")
    for _ in range(30):
        screen.live.say((Span("bold", "strong"), Span(" and ")))
    screen.live.drop_row("1")
    lines = screen.text.split("\n")
    assert "".join(lines).replace(" ", "") == "boldand" * 30
    assert len(lines) == -(-len("bold and " * 30) // (WIDTH - 1))


def test_word_of_any_length_beside_rows_is_wrapped_in_time() -> None:
    screen = Screen(has_colours=True)
    screen.live.set_row("call", "working")
    began = time.process_time()
    screen.live.say((Span("a" * (WIDTH - 1), "strong"), Span("é漢" * 100_000, "code")))
    # Work that grows with the square would take minutes.
    assert time.process_time() - began < 20
    screen.live.clear_rows()
    rows = screen.text.splitlines()
    assert rows[0] == "a" * (WIDTH - 1)
    assert "".join(rows[1:]) == "é漢" * 100_000


def test_long_row_is_cut_to_one_row_of_the_terminal() -> None:
    screen = Screen()
    screen.live.set_row("1", "write " + "x" * 200)
    screen.live.set_detail("1", "detail")
    screen.live.tick()
    assert [len(line) < WIDTH for line in screen.text.split("\n")] == [True]


def test_what_is_said_while_somebody_is_asked_comes_after_the_answer() -> None:
    screen = Screen()
    screen.live.set_row("1", "shell rm x")
    screen.live.ask("Run it? ")
    screen.live.say("meanwhile")
    screen.live.tick()
    assert screen.text == "Run it?"
    screen.stream.write("y\n")  # the terminal's echo
    screen.live.answered()
    assert screen.text == "Run it? y\nmeanwhile\n⠋ shell rm x  0.0 s"
    screen.live.drop_row("1")
    screen.live.say("!")
    assert screen.text == "Run it? y\nmeanwhile!"


def test_no_terminal_gets_lines_and_no_escape_codes() -> None:
    screen = Screen(is_live=False)
    screen.live.set_row("1", "read")
    screen.live.say("words")
    screen.live.tick()
    screen.live.show((Span("read", "strong"),))
    screen.live.drop_row("1")
    assert screen.stream.getvalue() == "words\nread\n"


def test_colours_are_left_out_where_they_are_not_wanted() -> None:
    screen = Screen(has_colours=True)
    screen.live.show((Span("red", "bad"),))
    assert screen.stream.getvalue() == "\x1b[1;31mred\x1b[0m\n"
    plain = Screen()
    plain.live.show((Span("red", "bad"),))
    assert plain.stream.getvalue() == "red\n"


def test_text_that_the_terminal_has_no_letters_for_is_escaped() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    live = LiveScreen(stream, is_live=True, has_colours=False, clock=lambda: 0.0)
    live.say("é")
    live.set_row("1", "x")
    stream.flush()
    assert written.getvalue() == b"\\xe9\n| x  0.0 s"


def test_what_is_written_by_another_way_stands_between_whole_lines_and_the_rows() -> None:
    screen = Screen()
    screen.live.set_row("1", "sleep")
    screen.live.say("one")
    screen.live.aside(screen.fail)
    assert screen.text == "one\ndragoman: it failed\n⠋ sleep  0.0 s"


def test_what_is_written_by_another_way_waits_for_an_answer() -> None:
    screen = Screen()
    screen.live.ask("allow it? ")
    screen.live.aside(screen.fail)
    assert "failed" not in screen.text
    screen.stream.write("y\n")  # as the terminal echoes it
    screen.live.answered()
    assert screen.text == "allow it? y\ndragoman: it failed"


def test_where_there_is_no_terminal_nothing_is_put_between_the_words() -> None:
    screen = Screen(is_live=False)
    screen.live.say("one")
    failures: list[str] = []
    screen.live.aside(lambda: failures.append("it failed"))
    screen.live.say(" two\n")
    assert screen.stream.getvalue() == "one two\n"
    assert failures == ["it failed"]
