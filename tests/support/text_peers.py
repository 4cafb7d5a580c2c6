"""Cases recorded from other engines' own tests, read in place: they lie beside the project and are no part of it.

Each row has a text, the tools, and the calls and content that engine gives. A row agrees if

- names and arguments are the same, as JSON values;
- the content is the same, white space at its ends aside; or ours only goes on longer, with text that stands in the
  input outside of the calls (engines drop what follows a call, some also what precedes it); or no call was expected
  and none found, and our text is the whole input: here what is no call is text, whole.

Where that longer text holds a block that proved to be no call, the row is listed too, as `kept`.

Rows on which the engines or their modes disagree about calls are left out. Rows recorded with `tool_choice: none` are
read with calls taken out of the text and not emitted; rows without tools, or whose engine passes on names that were not
offered, with every name allowed.
"""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from dragoman.textcalls import PATTERNS, TextPattern, TextScan
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import Found, gather
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers

Row = dict[str, object]

PROJECT = Path(__file__).parents[2]
CASES = PROJECT.parent / "shared" / "textformats" / "peer-cases.jsonl"
LIST = Path(__file__).parent / "text_peers.toml"

FORMATS = {
    "apertus": ("apertus",),
    "cohere_command3": ("command", "command_thoughts", "command_marks", "command_citations"),
    "cohere_command4": ("command", "command_thoughts", "command_marks", "command_citations"),
    "deepseek_v3": ("deepseek_v3",),
    "deepseek_v31": ("deepseek_v31",),
    "deepseek_v32_dsml": ("deepseek_v32",),
    "deepseek_v4_dsml": ("deepseek_v4",),
    "dots": ("dots", "dots_json", "dots_marks"),
    "ernie45": ("hermes",),
    "functiongemma": ("functiongemma",),
    "gemma4": ("gemma4",),
    "gigachat3": ("gigachat",),
    "glm45": ("glm",),
    "glm47": ("glm",),
    "granite20b_fc": ("granite_20b",),
    "granite3": ("granite", "hermes"),
    "granite4": ("hermes",),
    "hermes": ("hermes",),
    "hunyuan_a13b": ("tool_calls_array",),
    "hunyuan_v3": ("hunyuan",),
    "inkling": ("inkling", "inkling_headed"),
    "internlm2": ("internlm",),
    "jamba": ("tool_calls_array",),
    "kimi_k2": ("kimi_k2",),
    "kimi_k3": ("kimi_k3", "kimi_k3_marks"),
    "lfm2_pythonic": ("lfm2", "lfm2_json"),
    "ling3": ("glm",),
    "llama3_json": ("python_tag", "bare_json"),
    "llama4_pythonic": ("llama4", "pythonic"),
    "longcat": ("longcat",),
    "minicpm5_xml": ("minicpm",),
    "minimax_m2": ("minimax_m2",),
    "minimax_m3": ("minimax_m3",),
    "mistral": ("mistral", "mistral_named"),
    "muse_glimmer": (
        *("muse", "muse_headed", "muse_thoughts", "muse_headers", "muse_marks"),
        *("muse_first", "muse_first_thoughts", "muse_first_headers"),
    ),
    "nemotron_v3": ("qwen3_coder",),
    "olmo3_pythonic": ("olmo3",),
    "phi4_mini": ("functools",),
    "poolside_v1": ("glm",),
    "pythonic": ("pythonic", "llama4"),
    "qwen3_coder": ("qwen3_coder", "qwen3_coder_bare"),
    "seed_oss": ("seed_oss",),
    "step3": ("step3",),
    "step3p5": ("qwen3_coder",),
    "xlam": ("hermes", "mistral", "bare_json_array", "json_fence"),
}
"""Our formats for each of theirs."""


def load_rows() -> list[Row]:
    """The rows that count; none where the file is not there."""
    if not CASES.exists():
        return []
    rows = [
        cast("Row", json.loads(line)) for line in CASES.read_text(encoding="utf-8").splitlines()
    ]
    return [row for row in rows if "peers_or_modes_disagree_on_calls" not in flags(row)]


def listed(table: str) -> dict[str, str]:
    """The rows of one table of the list, and the reason of each."""
    found = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return {str(key): str(reason) for key, reason in found[table].items()}


def flags(row: Row) -> list[str]:
    return cast("list[str]", row["flags"])


def patterns(row: Row) -> tuple[TextPattern, ...]:
    return PATTERNS.named(FORMATS[str(row["format"])])


def strips(row: Row) -> bool:
    return "tool_choice_none" in str(row["source_path"])


def read_row(row: Row, pieces: Sequence[str]) -> TextScan:
    """What we make of a row's text, fed in these pieces."""
    # One row has the text of a stand-in where its tool should be.
    tools = [tool for tool in cast("list[object]", row["tools"]) if not isinstance(tool, str)]
    offers = Offers(tools)
    offers.any_name = not tools or strips(row) or "unknown_tool_forwarded" in flags(row)
    finder = Finder(Openers(patterns(row), offers), offers)
    found: list[Found] = []
    for piece in pieces:
        found += finder.feed(piece)
    scan = gather([*found, *finder.finish()])
    return replace(scan, calls=()) if strips(row) else scan


def judge(row: Row, scan: TextScan) -> str:
    """`agrees`, `kept` (agrees, and a block that is no call is kept as text), or what differs: `calls`, `content`."""
    calls = [{"name": one.name, "arguments": json.loads(one.arguments)} for one in scan.calls]
    expected = cast("list[object]", row["expected_calls"])
    if calls != expected:
        return "calls"
    if "peers_or_modes_disagree_on_content" in flags(row):
        return "agrees"
    ours, theirs = scan.text.strip(), str(row["expected_content"]).strip()
    if ours == theirs:
        return "agrees"
    if not expected and not strips(row) and scan.text == row["input_text"]:
        return "agrees"
    extra = ours[len(theirs) :].strip()
    if (
        strips(row)
        or not ours.startswith(theirs)
        or extra not in outside(str(row["input_text"]), scan)
    ):
        return "content"
    openers = [opener for pattern in patterns(row) for opener in pattern.openers]
    return "kept" if any(opener in extra for opener in openers) else "agrees"


def outside(text: str, scan: TextScan) -> str:
    """The text without the calls that were found in it."""
    parts: list[str] = []
    place = 0
    for call in scan.calls:
        parts.append(text[place : call.start])
        place = call.end
    return "".join((*parts, text[place:]))
