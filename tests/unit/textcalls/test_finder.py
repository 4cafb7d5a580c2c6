"""Words that a model writes alone on a line before a call that leaks into its text."""

import pytest

from dragoman.model.events import TextDelta
from dragoman.textcalls import TextScanner, scan_text

TOOLS = [
    {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
]  # fmt: skip
PREFIX = "antml" + ":"
CALL = '<invoke name="Bash">\n<parameter name="command">ls -l</parameter>\n</invoke>'
LEAKED = CALL.replace("invoke", f"{PREFIX}invoke").replace("parameter", f"{PREFIX}parameter")
MODEL = "claude-opus-4-5"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"court\n{CALL}", ""),
        (f"count\n{CALL}\n</function_calls>", ""),
        (f"court\n\n{LEAKED}", ""),
        (f"court\r\n{LEAKED}\n</{PREFIX}function_calls>", ""),
        (f"court\n<function_calls>\n{CALL}\n</function_calls>", ""),
        (f"Let me look.\n\ncourt\n{CALL}", "Let me look.\n\n"),
        (f"{CALL}\ncourt\n{CALL}", ""),
    ],
)
def test_stray_word_before_a_leaked_call_is_dropped(text: str, kept: str) -> None:
    scan = scan_text(text, TOOLS, model=MODEL)
    assert {call.arguments for call in scan.calls} == {'{"command":"ls -l"}'}
    assert scan.text == kept
    assert [problem.kind for problem in scan.problems] == ["repaired"]


@pytest.mark.parametrize(
    "before",
    [
        "the court\n",
        "Court\n",
        "court ",
        "court.\n",
        "- court\n",
        "co-urt\n",
        "  court\n",
        "incomprehensibilities\n",
        "court\n\n\n\n\n",
    ],
)
def test_any_other_text_before_a_call_is_kept(before: str) -> None:
    scan = scan_text(before + CALL, TOOLS, model=MODEL)
    assert (len(scan.calls), scan.text) == (1, before)


@pytest.mark.parametrize(
    "text",
    [
        "court",
        "court\n",
        "court\nis where it was",
        "court\n<invoke is only a word",
        f"court\n```xml\n{CALL}\n```\n",
        f"court\n{CALL.replace('Bash', 'Other')}",
        f"court\n{CALL[:-20]}",
    ],
)
def test_stray_word_without_a_call_is_text(text: str) -> None:
    scan = scan_text(text, TOOLS, model=MODEL)
    assert (scan.calls, scan.text) == ((), text)


def test_word_before_a_call_is_kept_where_calls_are_not_known_to_leak() -> None:
    assert scan_text(f"court\n{CALL}", TOOLS, model="minimax-m2").text == "court\n"
    call = '<tool_call>{"name": "Bash", "arguments": {}}</tool_call>'
    assert scan_text(f"court\n{call}", TOOLS, model=MODEL).text == "court\n"


def test_only_a_word_that_is_alone_in_its_line_waits_for_the_next_piece() -> None:
    scanner = TextScanner(TOOLS, model=MODEL)
    held: list[str] = []
    for piece in (
        "the",
        " court",
        " is",
        " here\n",
        "next",
        " to",
        " it.\n",
        "Yes",
        "\n",
        "x",
        "\n",
        "\n",
        "Yes",
    ):
        scanner.feed(piece)
        held.append(scanner.held)
    assert held == ["the", "", "", "", "next", "", "", "", "", "x", "x\n", "x\n\n", ""]


def test_text_comes_in_full_however_it_is_cut() -> None:
    text = f"one\ntwo\nthree four\n<invoke now\ncourt\n{CALL}\nand\nthen\n"
    whole = scan_text(text, TOOLS, model=MODEL)
    for size in range(1, 12):
        scanner = TextScanner(TOOLS, model=MODEL)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        events = [event for piece in pieces for event in scanner.feed(piece)]
        events += scanner.finish()
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == whole.text
    assert whole.text == "one\ntwo\nthree four\n<invoke now\n\nand\nthen\n"
