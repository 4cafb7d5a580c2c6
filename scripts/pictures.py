"""Draw the pictures of the documents: `.venv/bin/python scripts/pictures.py` writes docs/pictures/.

call.svg      a tool call that an upstream streams as Chat Completions, and what a client of Anthropic Messages gets
terminal.svg  `dragoman inspect` on a recorded stream
curve.svg     what `make bench-curve` measured (bench/curve.json)
"""

import json
import math
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
CURVE = PROJECT / "bench" / "curve.json"
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


CHART_STYLE = """.grid { stroke: #8c959f; stroke-width: 0.5; stroke-dasharray: 2 3 }
.line { fill: none; stroke: #0969da; stroke-width: 2 } .dot, .label { fill: #0969da }
.line.second { stroke: #bc4c00 } .dot.second, .label.second { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
.line { stroke: #58a6ff } .dot, .label { fill: #58a6ff } .line.second { stroke: #f0883e } .dot.second, .label.second { fill: #f0883e } }"""
CHART, CHART_HEIGHT, GAP = 300, 190, 34
"""Pixels: the width and height of a chart with its labels, and the space between charts."""
LEFT, TOP, BELOW = 44, 30, 22  # of the chart's area for its labels

Line = tuple[str, Sequence[tuple[float, float]]]
"""The name of a line, and its points."""


def ticks_to(most: float) -> list[float]:
    """Three to six round numbers from zero to at least `most`."""
    step = 10.0 ** math.floor(math.log10(max(most, 0.01)))
    for part in (0.2, 0.5, 1.0, 2.0):
        if most / (step * part) <= 5:
            step *= part
            break
    return [step * number for number in range(math.ceil(most / step) + 1)]


def drawn_chart(title: str, lines: Sequence[Line], x: float, y: float) -> list[str]:
    """One or two lines over an axis on which every point is as far from its neighbours as the others: each is twice the last."""
    places = [at for at, _ in lines[0][1]]
    ticks = ticks_to(max(value for _, points in lines for _, value in points))
    width, height = CHART - LEFT - 12, CHART_HEIGHT - TOP - BELOW

    def across(number: int) -> float:
        return x + LEFT + width * number / (len(places) - 1)

    def up(value: float) -> float:
        return y + TOP + height * (1 - value / ticks[-1])

    drawn = [drawn_line([(title, "caption")], x, y + 12)]
    for tick in ticks:
        level = up(tick)
        end = x + LEFT + width
        drawn.append(f'<path class="grid" d="M {x + LEFT:g} {level:.1f} H {end:g}"/>')
        label = f"{tick:,.10g}"
        left = x + LEFT - 6 - len(label) * CHARACTER
        drawn.append(drawn_line([(label, "faint")], round(left, 1), round(level + 4, 1)))
    for number, place in enumerate(places):
        label = f"{place:,.0f}" if place < 10_000 else f"{place / 1000:.0f}k"
        left = across(number) - len(label) * CHARACTER / 2
        drawn.append(drawn_line([(label, "faint")], round(left, 1), y + CHART_HEIGHT - 6))
    for (name, points), kind in zip(lines, ("", " second"), strict=False):
        path = " L ".join(f"{across(n):.1f} {up(value):.1f}" for n, (_, value) in enumerate(points))
        drawn.append(f'<path class="line{kind}" d="M {path}"/>')
        drawn += (
            f'<circle class="dot{kind}" cx="{across(n):.1f}" cy="{up(value):.1f}" r="3"/>'
            for n, (_, value) in enumerate(points)
        )
        if name:
            left = x + LEFT + (8 if not kind else 56)
            drawn.append(drawn_line([(name, f"label{kind}")], left, y + TOP - 4))
    return drawn


def curve_picture() -> str:
    """Two rows of charts: by the number of streams, and by the events of a thousand streams."""
    series = json.loads(CURVE.read_text(encoding="utf-8"))["series"][0]
    drawn: list[str] = []
    rows = (
        ("streams, with 4,000 events a second in all", "by_streams", "streams", ("KiB of memory per stream", "stream_kib", 1.0)),
        ("events a second of 1,000 streams", "by_rate", "delivered", ("% of a processor", "busy", 100.0)),
    )  # fmt: skip
    y = 0.0
    for caption, name, axis, (title, field, factor) in rows:
        points = series[name]

        def values(
            key: str, *less: str, points: Sequence[dict[str, float]] = points, axis: str = axis
        ) -> list[tuple[float, float]]:
            return [
                (point[axis], max(point[key] - sum(point[each] for each in less), 0.0))
                for point in points
            ]  # fmt: skip

        charts: list[tuple[str, list[Line]]] = [
            ("CPU µs per event", [("", values("cpu_us"))]),
            (title, [("", [(at, value * factor) for at, value in values(field)])]),
            (
                "added latency of an event, ms",
                [("p50", values("added_ms")), ("p99", values("added_p99_ms"))],
            ),
        ]  # fmt: skip
        drawn.append(drawn_line([(caption, "strong")], MARGIN, y + 28))
        for number, (head, lines) in enumerate(charts):
            drawn += drawn_chart(head, lines, MARGIN + number * (CHART + GAP), y + 40)
        y += CHART_HEIGHT + 60
    width = 3 * CHART + 2 * GAP + 2 * MARGIN
    panel = f'<rect class="panel" x="1" y="1" width="{width - 2}" height="{y - 2:g}" rx="6"/>'
    style = f"<style>{CHART_STYLE}</style>"
    return picture("One gateway process under load", [style, panel, *drawn], width, y)


def main() -> None:
    """Write the pictures."""
    for name, draw in (("call", call_picture), ("terminal", terminal_picture), ("curve", curve_picture)):  # fmt: skip
        (PICTURES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
