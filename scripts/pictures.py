"""Draw the pictures of the README from what the code does: `.venv/bin/python scripts/pictures.py` writes docs/pictures/.

call.svg      a tool call that an upstream streams as Chat Completions, and what a client of Anthropic Messages gets
terminal.svg  `dragoman inspect` on a recorded stream
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from dragoman import StreamTranslator
from dragoman.inspection.layout import lay_out
from dragoman.inspection.recording import recognise
from dragoman.inspection.report import examine
from dragoman.inspection.terminal_text import Style

PROJECT = Path(__file__).parents[1]
PICTURES = PROJECT / "docs" / "pictures"
RECORDING = PROJECT / "tests" / "e2e" / "samples" / "chat" / "no_ids_repeated_names.sse"

CHARACTER, LINE, MARGIN = 6.65, 18, 16
"""Pixels: the width of a character of 11 px, the height of a line, the space around a panel's text."""
COLUMNS = 88
LONGEST = 138  # characters: the end of the longest frame is usage without a meaning here

# The colours are readable on both backgrounds of a page: the panels have a background of their own.
STYLE = """text { font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328; white-space: pre }
.panel { fill: #ffffff; stroke: #8c959f } .caption { font-weight: bold; fill: #6e7781 } .arrow { fill: none; stroke: #8c959f; stroke-width: 2 }
.id { fill: #8250df } .name { fill: #0550ae; font-weight: bold } .input { fill: #116329 }
.title { fill: #0969da; font-weight: bold } .faint { fill: #6e7781 } .good { fill: #1a7f37; font-weight: bold }
.warning { fill: #9a6700 } .bad { fill: #cf222e; font-weight: bold } .strong { font-weight: bold }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .panel { fill: #161b22; stroke: #6e7681 } .caption, .faint { fill: #8b949e } .id { fill: #d2a8ff } .name { fill: #79c0ff }
.input { fill: #7ee787 } .title { fill: #58a6ff } .good { fill: #3fb950 } .warning { fill: #d29922 } .bad { fill: #ff7b72 } }"""

UPSTREAM = (
    '{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_7","function":{"name":"weather","arguments":""}}]}}]}',
    '{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"city\\":"}}]}}]}',
    '{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"Oslo\\"}"}}]}}]}',
    '{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}',
)
COLOURED = re.compile(
    r'(?P<id>call_7)|(?P<name>"weather")|(?P<input>"\{\\"city\\":"|"\\"Oslo\\"\}")'
)

Span = tuple[str, str]
"""A text and its class; the class is empty for ordinary text."""


def coloured(line: str) -> list[Span]:
    """The line in pieces: the call's id, name and input have their colours."""
    spans: list[Span] = []
    at = 0
    for found in COLOURED.finditer(line):
        spans += [(line[at : found.start()], ""), (found[0], found.lastgroup or "")]
        at = found.end()
    return [*spans, (line[at:], "")]


def cut(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def drawn_line(spans: Iterable[Span], x: float, y: float) -> str:
    pieces = "".join(
        f'<tspan class="{kind}">{escape(text, quote=False)}</tspan>'
        if kind
        else escape(text, quote=False)
        for text, kind in spans
        if text
    )
    return f'<text x="{x:g}" y="{y:g}" xml:space="preserve">{pieces}</text>'


def drawn_panel(lines: Sequence[Sequence[Span]], y: float, width: float) -> tuple[list[str], float]:
    """A box with lines, and where it ends."""
    height = len(lines) * LINE + MARGIN
    drawn = [
        f'<rect class="panel" x="1" y="{y:g}" width="{width - 2:g}" height="{height}" rx="6"/>'
    ]
    for number, spans in enumerate(lines):
        drawn.append(drawn_line(spans, MARGIN, y + MARGIN + 5 + number * LINE))
    return drawn, y + height


def picture(title: str, drawn: Iterable[str], width: float, height: float) -> str:
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            *drawn,
            "</svg>\n",
        )
    )


def call_picture() -> str:
    """The frames of an upstream, and the frames that the translator makes of them."""
    translator = StreamTranslator("chat", "messages")
    frames = [*(f"data: {data}\n\n" for data in UPSTREAM), "data: [DONE]\n\n"]
    made = b"".join(translator.feed(frame.encode()) for frame in frames) + translator.close()
    client = [line for line in made.decode().splitlines() if line.startswith("data: ")]
    above = [coloured(f"data: {data}") for data in UPSTREAM]
    below = [coloured(cut(line)) for line in client if "message_start" not in line]
    longest = max(sum(len(text) for text, _ in spans) for spans in (*above, *below))
    width = round(longest * CHARACTER + 2 * MARGIN)
    drawn = [drawn_line([("the upstream speaks OpenAI Chat Completions", "caption")], 4, 14)]
    panel, end = drawn_panel(above, 22, width)
    middle = width / 2
    drawn += panel
    drawn += [
        f'<path class="arrow" d="M {middle:g} {end + 6:g} v 30 m -6 -8 l 6 8 l 6 -8"/>',
        drawn_line([("Dragoman, event by event", "caption")], middle + 16, end + 26),
        drawn_line([("the client gets Anthropic Messages", "caption")], 4, end + 40),
    ]
    panel, end = drawn_panel(below, end + 48, width)
    return picture("A tool call crosses dialects", [*drawn, *panel], width, end + 2)


CLASSES: dict[Style, str] = {"plain": ""}


def terminal_picture() -> str:
    """The screen of `dragoman inspect`."""
    report = examine(recognise(RECORDING.read_bytes(), None))
    lines: list[list[Span]] = [[("$ dragoman inspect recorded.sse", "strong")]]
    lines += (
        [(span.text, CLASSES.get(span.style, span.style)) for span in line]
        for line in lay_out(report, "recorded.sse", COLUMNS)
    )
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    drawn, end = drawn_panel(lines, 1, width)
    return picture("dragoman inspect shows what is wrong with a stream", drawn, width, end + 2)


def main() -> None:
    """Write the pictures."""
    for name, text in (("call.svg", call_picture()), ("terminal.svg", terminal_picture())):
        (PICTURES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
