"""Cases for every text format, made of a seed: calls, prose, malformed blocks and calls of other tools, with the right answer.

The answers come from what was written, never from the code under test. `cases_of` makes cases of one kind; `verdict`
says what is wrong with a reading of a case, empty if nothing is. `python tests/support/text_cases.py 2000` prints a table of the share
of cases that are read right, per format and kind.
"""

import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from dragoman.model.outcome import FinishReason
from dragoman.textcalls import PATTERNS, TextScan
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import Found, gather
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import openers_of
from dragoman.textcalls.registry import choose_patterns
from text_formats import FORMATS, NEAR_OPENERS, TextFormat, Written, dump, plain, python

Chance = random.Random
Kind = Literal["calls", "prose", "malformed", "unknown"]
KINDS: tuple[Kind, ...] = ("calls", "prose", "malformed", "unknown")

MODELS = {
    "harmony": "gpt-oss-120b",
    "harmony_channels": "gpt-oss-120b",
    "muse": "muse-glimmer",
    "muse_headed": "muse-glimmer",
    "dots": "dots.llm1.inst",
    "dots_json": "dots.llm1.inst",
    "llama4": "llama-4-scout",
    "pythonic": "llama-4-scout",
    "python_tag": "llama-3.1-8b-instruct",
    "bare_json": "llama-3.1-8b-instruct",
    "granite": "granite-3.1-8b-instruct",
    "bare_json_array": "granite-3.1-8b-instruct",
    "json_fence": "xlam-2-8b-fc-r",
    "command": "command-a-03-2025",
    "kimi_k2": "kimi-k2-instruct",
    "kimi_k3": "kimi-k3",
    "functionary_v32": "functionary-small-v3.2",
    "minimax_m1": "minimax-m1",
    "hermes": "qwen3-8b",
    "qwen3_coder": "qwen3-coder",
    "react": "qwen-7b-chat",
    "tool_tags": "qwen3-cline",
    "anthropic": "claude-opus-4-5",
    "anthropic_leaked": "claude-opus-4-5",
    "invoke": "claude-opus-4-5",
    "invoke_leaked": "claude-opus-4-5",
}
"""A model whose profile adds what its family writes. The other formats need no profile."""

LEAKS = frozenset({"anthropic", "anthropic_leaked", "invoke", "invoke_leaked"})
"""Formats in which a word alone on the line before the call is dropped with it."""
# Values in these formats have no quotes, so a value cannot hold the tags of any parameter.
_NAMED_TAGS = frozenset({"use_tool", "tool_tags"})
_PYTHON = frozenset({"llama4", "lfm2", "olmo3", "tool_code", "pythonic"})


@dataclass(frozen=True)
class Case:
    """calls: what a reading must find, in order; `malformed` allows fewer of them. kept: the text beside the calls."""

    kind: Kind
    form: TextFormat
    text: str
    tools: list[dict[str, Any]]
    calls: list[Written]
    kept: str = ""
    finish: FinishReason = "stop"
    why: str = field(default="", compare=False)


# --- tools and calls ----------------------------------------------------------------------------------------------------

_VERBS = ("get", "search", "write", "run", "list", "set", "ask", "mcp__github__create", "fetch")
_NOUNS = ("weather", "file", "issue", "command", "user", "items", "note", "v2")
_KEYS = (
    "query", "path", "content", "city", "count", "limit", "is_open", "tags", "options", "items", "config", "text", "value",
    "url", "line", "id", "type", "name", "recursive", "new_string", "camelCase", "x1",
)  # fmt: skip
_TYPES: tuple[dict[str, Any], ...] = (
    {"type": "string"}, {"type": "string"}, {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"},
    {"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}},
    {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, "label": {"type": "string"}}}},
    {"type": "object", "properties": {"deep": {"type": "object", "properties": {"k": {"type": "string"}}}, "n": {"type": "number"}}},
    {"type": "string", "enum": ["asc", "desc"]}, {"anyOf": [{"type": "integer"}, {"type": "null"}]},
)  # fmt: skip
_STRINGS = (
    "", "Paris", "two words", "été 🌍 日本語", 'say "hi"', "it's", "back\\slash", "\\n", "\\u0041", "two\nlines", "tab\there",
    "line one\nline two\n", "\nindented", "  wide  ", "\n\n", "{", "}}", "]", ")]", "a=1, b=2)", "'); f(", "[1, 2]", "null", "true", "None",
    "42", "-1.5", "a < b && c > d", "<b>bold</b>", "<div class=\"x\">\n  <p>hi</p>\n</div>", "&lt;&amp;", "`tick`",
    "```py\nprint('x')\n```", "~~~", "[1](x)", "# title\n\n- item\n", "#!/bin/sh\nset -e\nls | grep \"a\"\n",
    "SELECT * FROM t WHERE a = 'b';", "{\"name\": \"now\", \"arguments\": {}}", "<think>hm</think>", "C:\\temp\\new", "$HOME/${x}",
    "<?xml version=\"1.0\"?>", "if a<b: pass", "for (i=0;i<n;i++) {}", "100%", "a\r\nb", "\u2028", "😀" * 3,
)  # fmt: skip
_MARKUP = (
    *(word for word in NEAR_OPENERS if not word.startswith(("`", "~"))),
    "</tool_call>", "</use_tool>", "<|call|>", "</s>", "<|eom|>", "<|message|>", "</invoke>", "</function>", "[/TOOL_CALLS]",
)  # fmt: skip
_ALPHABET = "<>{}[]()\"'\\/|=,:;`~ \n\tabcéß｜▁🌍0"


def some_tools(chance: Chance) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(_name(chance) for _ in range(chance.randint(1, 4))))
    tools: list[dict[str, Any]] = []
    for name in names:
        keys = chance.sample(_KEYS, chance.choice((0, 1, 2, 3, 4, 6)))
        properties = {key: chance.choice(_TYPES) for key in keys}
        required = [key for key in keys if chance.random() < 0.4]
        schema = {"type": "object", "properties": properties, "required": required}
        tools.append({"name": name, "description": "d", "input_schema": schema})
    return tools


def _name(chance: Chance) -> str:
    verb, noun = chance.choice(_VERBS), chance.choice(_NOUNS)
    return chance.choice((f"{verb}_{noun}", f"{verb}_{noun}", f"{verb}{noun.title()}", verb))


def _can_hold(form: TextFormat, text: str, keys: Sequence[str]) -> bool:
    """Whether the format has a way to write this string."""
    if form.name in _NAMED_TAGS:
        tags = ("</use_tool>", "<use_tool>", "<![CDATA[", *(f"<{key}>" for key in ("name", *keys)))
        closers = tuple(f"</{key}>" for key in ("name", *keys))
        if any(word in text for word in (*tags, *closers)):
            return False
        # White space at the edges of a value in one line is the markup's, and a line break at those of a longer one.
        return text == text.strip() or ("\n" in text.strip() and text == text.strip("\n"))
    if form.trims and _is_trimmed(form, text):
        return False
    return not any(word in text for word in form.avoid)


def _is_trimmed(form: TextFormat, text: str) -> bool:
    """Whether the line breaks of a string cannot be distinguished from those around it."""
    if form.wraps:
        return False  # the writer puts its own line breaks around every value
    return text[:1] in "\r\n" and text[-1:] in "\r\n"


def _string(form: TextFormat, chance: Chance, keys: Sequence[str]) -> str:
    while True:
        kind = chance.random()
        if kind < 0.6:
            text = chance.choice(_STRINGS)
        elif kind < 0.8:
            text = "".join(chance.choices(_ALPHABET, k=chance.randint(1, 30)))
        else:
            text = (
                chance.choice(("", "see "))
                + chance.choice(_MARKUP)
                + chance.choice(("", " x", "\n"))
            )
        if _can_hold(form, text, keys):
            return text


def _value(form: TextFormat, chance: Chance, schema: dict[str, Any], keys: Sequence[str]) -> object:
    if "enum" in schema:
        return chance.choice(cast("list[str]", schema["enum"]))
    if "anyOf" in schema:
        return chance.choice((None, 5, -3))
    match schema["type"]:
        case "string":
            return _string(form, chance, keys)
        case "integer":
            return chance.choice(
                (0, 1, -1, 42, 10**15, -(10**12), 2**63, chance.randint(-999, 999))
            )
        case "number":
            return chance.choice((0.5, -1.25, 1e-7, 3.0, 1.5e300, 12, 0.1 + 0.2))
        case "boolean":
            return chance.random() < 0.5
        case "array":
            inner = [
                _value(form, chance, schema["items"], keys) for _ in range(chance.randint(0, 3))
            ]
            return [_calm(form, one) for one in inner]
        case _:
            members = cast("dict[str, dict[str, Any]]", schema["properties"])
            return {
                key: _calm(form, _value(form, chance, inner, keys))
                for key, inner in members.items()
                if chance.random() < 0.7
            }


def _calm(form: TextFormat, value: object) -> object:
    """A value inside a list or object. In tags it is JSON text, whose escapes have no tags to fear but these."""
    if isinstance(value, str) and (form.name in _NAMED_TAGS or form.name == "minimax_m3"):
        return value.replace("<", "")
    return value


def some_call(form: TextFormat, chance: Chance, tools: Sequence[dict[str, Any]]) -> Written:
    tool = chance.choice(tools)
    schema = tool["input_schema"]
    keys = list(schema["properties"])
    given = [key for key in keys if key in schema["required"] or chance.random() < 0.6]
    chance.shuffle(given)
    values = {key: _value(form, chance, schema["properties"][key], keys) for key in given}
    return tool["name"], values


# --- text around calls, and prose -----------------------------------------------------------------------------------------

_BEFORE = (
    "", "", "Let me look.\n", "Sure!\n\n", "I'll use the `tool` for that: ", "a < b, (c) and [d].\n", "<think>hm</think>\n",
    "```\ncode\n```\n\n", "Ich prüfe das – 🌍\n", "1. First\n2. Then\n\n", "The <b>plan</b>:\n", "Use {x} and \"y\".\n",
)  # fmt: skip
_AFTER = ("", "", "\n", "\n\nThat was it.", " Done.", "\nNow I wait for the result.\n")
_PROSE = (
    "Here is the answer.", "It costs 5 < 6 and a > b.", "See [1] and [the docs](https://example.com/a_b).",
    'The record is {"id": 7, "tags": ["a", "b"]}.', '```json\n{"name": "Ada", "age": 36}\n```',
    "| column | value |\n|---|---|\n| a | 1 |", "```python\nfunctools.partial(f, x)\nprint(f(a=1))\n```",
    "Call it with `f(x=1)`.", "<div>\n<p>Hello</p>\n</div>", "- one\n- two", "Action: we should rest.\nAction items follow.",
    ">>> quoted\n>>> again", "court", "one\ntwo\n\nthree", "yes\n<b>no</b>", 'He said "stop" and left.', "x = {'a': [1, 2]}", "def invoke(name): ...", "use_tool = True",
    "[x for x in range(3)]", "[a, b](c)", "{}", "[]", "[Draft] write it", "to=somebody is a field.", "E-mail to=you or to=self?",
)  # fmt: skip
_ABOUT = (
    "The tag {o} begins a call.", "Write {o} and then the name.", "It ends with {c}.", "Between {o} and {c} stands the call.",
    "{o} is only a word here", "Use {o}...{c} for that.", "the literal `{o}`", "``{o}`` and ``{c}``", '"{o}" is a string.',
    "{h} is not whole", "{h}", "- {o}\n- {c}", "| {o} | {c} |", "({o})", "{o} {o} {o}", "{c}", "{o}\n\nIs that clear?",
    "What does {o} mean?", "**{o}** is bold.", "{o} ... {c}", "It says {o}; I would not.",
)  # fmt: skip


def _quoted(block: str, chance: Chance) -> str:
    """A block as documentation quotes it: in a fence, or in inline code where it is one line."""
    block = block.strip()
    style = chance.randint(0, 6)
    if style == 0 and "`" not in block and not re.search(r"\n\s*\n", block):
        return f"Models write `{block}` for that."
    mark = "`````" if "```" in block else "```"
    mark = chance.choice((mark, "~~~~~~"))
    lead = chance.choice(("", "xml", "text", "json"))
    if style == 1:
        inner = "\n".join(f"    {line}" for line in f"{mark}{lead}\n{block}\n{mark}".split("\n"))
        return f"1.  An example:\n\n{inner}\n\n2.  Another"
    if style == 2:
        inner = "\n".join(f"> {line}" for line in f"{mark}{lead}\n{block}\n{mark}".split("\n"))
        return f"{inner}\n\nsaid the manual"
    if style == 3:
        return f"- {mark}{lead}\n  " + block.replace("\n", "\n  ") + f"\n  {mark}\n- next"
    return f"An example:\n\n{mark}{lead}\n{block}\n{mark}\n\nThat is all."


def some_prose(form: TextFormat, chance: Chance, tools: Sequence[dict[str, Any]]) -> str:
    parts: list[str] = []
    for _ in range(chance.randint(1, 4)):
        kind = chance.random()
        if kind < 0.3:
            parts.append(chance.choice(_PROSE))
            continue
        other = form if kind < 0.8 else chance.choice(FORMATS)
        pattern = _PATTERNS[other.name]
        block = other.write([some_call(other, chance, tools)])
        if kind < 0.5:
            parts.append(_quoted(block, chance))
            continue
        opener = chance.choice(pattern.openers).replace("{name}", tools[0]["name"])
        closer = chance.choice(pattern.closers or ("</end>",)).replace("{name}", tools[0]["name"])
        if "```" in opener or "```" in closer:
            opener, closer = opener.replace("```", "\\`"), closer.replace("```", "\\`")
        half = opener[: chance.randint(1, len(opener))]
        about = chance.choice(_ABOUT)
        parts.append(about.replace("{o}", opener).replace("{c}", closer).replace("{h}", half))
    # A mark alone at the end of the text is a mark; here it is only mentioned.
    return chance.choice(("\n\n", "\n\n", "\n")).join((*parts, "That is all."))


_PATTERNS = {pattern.name: pattern for pattern in PATTERNS.snapshot()}


# --- the kinds ------------------------------------------------------------------------------------------------------------


def _calls(form: TextFormat, chance: Chance) -> Case:
    tools = some_tools(chance)
    before, after = chance.choice(_BEFORE), chance.choice(_AFTER)
    count = 1 if form.one else chance.choice((1, 1, 2, 3))
    calls = [some_call(form, chance, tools) for _ in range(count)]
    if form.name == "react":
        after = ""
    if form.name in LEAKS and before.endswith(("", "\n")[bool(before)]) and chance.random() < 0.4:
        stray = chance.choice(("court", "count", "x", "call")) + chance.choice(("\n", "\n\n"))
        text = f"{before}{stray}{form.write(calls)}{after}"
        return Case("calls", form, text, tools, calls, before + after)
    if form.one or count == 1 or chance.random() < 0.6:
        return Case(
            "calls", form, f"{before}{form.write(calls)}{after}", tools, calls, before + after
        )
    between = chance.choice(("\n", "\n\nAnd then:\n", ""))
    text = between.join(form.write([call]) for call in calls)
    kept = before + between * (count - 1) + after
    return Case("calls", form, f"{before}{text}{after}", tools, calls, kept)


def _prose(form: TextFormat, chance: Chance) -> Case:
    tools = some_tools(chance)
    text = some_prose(form, chance, tools)
    return Case("prose", form, text, tools, [], text)


def _malformed(form: TextFormat, chance: Chance) -> Case:
    tools = some_tools(chance)
    before, after = chance.choice(_BEFORE), chance.choice(_AFTER)
    calls = [
        some_call(form, chance, tools) for _ in range(1 if form.one else chance.choice((1, 1, 2)))
    ]
    block = form.write(calls)
    kind = chance.random()
    if kind < 0.5:
        size = chance.randint(1, len(block) - 1)
        # Obsidian's reader takes the end of a whole answer for the end of the block.
        finish = "length" if form.name == "use_tool" else chance.choice(("stop", "length"))
        why, text = "cut", before + block[:size]
    else:
        why, damaged = _damage(form, block, calls, chance)
        text, finish = before + damaged + after, "stop"
    return Case("malformed", form, text, tools, calls, text, cast("FinishReason", finish), why)


def _damage(
    form: TextFormat, block: str, calls: Sequence[Written], chance: Chance
) -> tuple[str, str]:
    """The block with something of its own markup missing or wrong. The values are not touched."""
    closers = [word for word in _PATTERNS[form.name].closers if block.rstrip().endswith(word)]
    places = _structure(block, calls)
    if closers and chance.random() < 0.3:
        closer = chance.choice(closers)
        at = block.rindex(closer)
        return "closer", block[:at] + block[at + len(closer) :]
    if not places:
        return "cut", block[: len(block) // 2]
    start, end = chance.choice(places)
    token = block[start:end]
    if chance.random() < 0.5:
        # A model that forgets a tag also leaves out its line.
        is_line = block[start - 1 : start] == "\n" and block[end : end + 1] == "\n"
        return f"without {token!r}", block[:start] + block[end + is_line :]
    if token in "{}[],:":
        # Without a closer, the JSON of a call ends where its brackets say so.
        junk = chance.choice(("{", ",", " oops ", ":", *("}]" if closers else ())))
        return f"{junk!r} before {token!r}", block[:start] + junk + block[start:]
    if token.startswith("</"):
        return f"{token!r} doubled", block[:end] + token + block[end:]
    return f"half of {token!r}", block[: (start + end) // 2] + block[end:]


def _leaves(value: object) -> Iterator[str]:
    """The strings and keys in a value."""
    if isinstance(value, dict):
        for key, inner in cast("dict[str, object]", value).items():
            yield key
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value


_TOKENS = re.compile(r"\]?<?\]?</?[^<>\n]{1,60}>|[{}\[\],:()=]")
_TAGS = re.compile(r"<[^<>\n]{0,60}>|\]<\]minimax\[>\[|\[[A-Z_]+\]|```(?:json)?|[\[\];,]")


def _structure(block: str, calls: Sequence[Written]) -> list[tuple[int, int]]:
    """Where the markup of a block is: its tags, brackets and commas that are in no value."""
    taken: list[tuple[int, int]] = []
    for _, arguments in calls:
        for value in (*arguments.values(), *_leaves(arguments)):
            for spelled in (
                dump(value),
                dump(value)[1:-1],
                plain(value),
                python(value),
                python(value)[1:-1],
            ):
                at = block.find(spelled) if spelled else -1
                while at >= 0:
                    taken.append((at, at + len(spelled)))
                    at = block.find(spelled, at + len(spelled))
    found = [match.span() for match in _TOKENS.finditer(block)]
    return [
        (start, end)
        for start, end in found
        if not any(start < stop and begin < end for begin, stop in taken)
    ]


_OTHERS = ("ghost", "delete_everything", "unknown_tool", "WebSearch", "no_such-tool", "f")


def _unknown(form: TextFormat, chance: Chance) -> Case:
    tools = some_tools(chance)
    before, after = chance.choice(_BEFORE), chance.choice(_AFTER)
    _, arguments = some_call(form, chance, tools)
    name = chance.choice(_OTHERS).replace("-", "_" if form.name in _PYTHON else "-")
    block = form.write([(name, arguments)])
    if form.name == "react":
        after = ""
    text = f"{before}{block}{after}"
    return Case("unknown", form, text, tools, [], text)


_MAKERS: dict[Kind, Callable[[TextFormat, Chance], Case]] = {
    "calls": _calls,
    "prose": _prose,
    "malformed": _malformed,
    "unknown": _unknown,
}


def cases_of(
    form: TextFormat, kind: Kind, count: int, seed: str = ""
) -> Iterator[tuple[Chance, Case]]:
    """Cases of one kind, each with the chance that goes on from it."""
    for number in range(count):
        chance = Chance(f"{seed} {form.name} {kind} {number}")
        write = chance.choice((form.write, *VARIANTS.get(form.name, ())))
        yield chance, _MAKERS[kind](replace(form, write=write), chance)


def _one_by_one(
    before: str, after: str, key: str = "arguments"
) -> Callable[[Sequence[Written]], str]:
    return lambda calls: "".join(
        f"{before}{dump({'name': name, key: arguments})}{after}" for name, arguments in calls
    )


def _headed_muse(end: str, think: str = "") -> Callable[[Sequence[Written]], str]:
    def write(calls: Sequence[Written]) -> str:
        written: list[str] = []
        for name, arguments in calls:
            inside = "".join(
                f'<atem:parameter name="{key}">{plain(value)}</atem:parameter>\n'
                for key, value in arguments.items()
            )
            written.append(
                f"<|start|>assistant to={name}<|message|><atem:function_calls>\n"
                f'<atem:invoke name="{name}">\n{inside}</atem:invoke>\n</atem:function_calls>{end}'
            )
        return think + "".join(written)

    return write


def _invokes(
    before: str, after: str, quote: str = '"', space: str = ""
) -> Callable[[Sequence[Written]], str]:
    def write(calls: Sequence[Written]) -> str:
        written: list[str] = []
        for name, arguments in calls:
            inside = "".join(
                f"<parameter name={quote}{key}{quote}>{plain(value)}</parameter>{space}"
                for key, value in arguments.items()
            )
            written.append(f"<invoke name={quote}{name}{quote}>{space}{inside}</invoke>")
        return before + space + space.join(written) + space + after

    return write


def _harmony(
    head: str, end: str, between: str = "<|start|>assistant"
) -> Callable[[Sequence[Written]], str]:
    return lambda calls: between.join(
        f"{head.format(name)}<|message|>{dump(arguments)}{end}" for name, arguments in calls
    )


def _indented_use_tool(calls: Sequence[Written]) -> str:
    return "\n\n".join(
        f"<use_tool>\n  <name>{name}</name>\n"
        + "".join(f"  <{key}>{plain(value)}</{key}>\n" for key, value in arguments.items())
        + "</use_tool>"
        for name, arguments in calls
    )


def _bare_python(calls: Sequence[Written]) -> str:
    called = [
        f"{name}({', '.join(f'{key}={python(value)}' for key, value in arguments.items())})"
        for name, arguments in calls
    ]
    return "<|python_start|>[" + ",\n".join(called) + "]<|python_end|>"


VARIANTS: dict[str, tuple[Callable[[Sequence[Written]], str], ...]] = {
    "hermes": (
        _one_by_one("<tool_call>", "</tool_call>"),
        _one_by_one("<tool_call>\n", "\n</tool_call>\n"),
    ),
    "gigachat": (
        _one_by_one("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""),
        _one_by_one("<|function_call|>", ""),
        _one_by_one("<|function_call|>", "</s>"),
    ),
    "muse": (_headed_muse("<|eot|>"), _headed_muse("<|eom|>"), _headed_muse("")),
    "muse_headed": (_headed_muse("<|eot|>"), _headed_muse("<|eom|>")),
    "minimax_m2": (
        _invokes("<minimax:tool_call>", "</minimax:tool_call>"),
        _invokes("<minimax:tool_call>", "</minimax:tool_call>", "'"),
        _invokes("<minimax:tool_call>", "</minimax:tool_call>", space="\n"),
    ),
    "anthropic": (
        _invokes("<function_calls>", "</function_calls>"),
        _invokes("<function_calls>", "</function_calls>", space="\n  "),
    ),
    "invoke": (_invokes("", ""), _invokes("", "</function_calls>", space="\n")),
    "dots": (_invokes("<dots_function_call>", "</dots_function_call>", space="\n"),),
    "dots_json": (_one_by_one("<dots_function_call>\n", "\n</dots_function_call>\n"),),
    "harmony": (
        _harmony("<|channel|>commentary to=functions.{} <|constrain|>json", "<|call|>"),
        _harmony("<|channel|>commentary to=functions.{}", "<|call|>"),
        _harmony("<|start|>assistant to=functions.{}<|channel|>commentary json", "<|call|>", ""),
        _harmony("<|channel|>analysis to=functions.{} code", "<|call|>"),
    ),
    "use_tool": (_indented_use_tool,),
    "llama4": (_bare_python,),
}
"""Other ways in which the models of these families write the same calls."""


# --- reading and judging --------------------------------------------------------------------------------------------------


def read_case(case: Case, pieces: Sequence[str], *, profile: bool = True) -> TextScan:
    formats = ("auto",) if _PATTERNS[case.form.name].is_sentinel else ("auto", case.form.name)
    offers = Offers(case.tools)
    patterns = choose_patterns(formats, MODELS.get(case.form.name) if profile else None)
    finder = Finder(openers_of(patterns, offers), offers)
    found: list[Found] = []
    for piece in pieces:
        found += finder.feed(piece)
    return gather([*found, *finder.finish(case.finish)])


def is_same_value(one: object, other: object) -> bool:
    """Equal as JSON values; a number is not a boolean."""
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return left.keys() == right.keys() and all(
            is_same_value(left[key], right[key]) for key in left
        )
    if isinstance(one, list) and isinstance(other, list):
        left_items, right_items = cast("list[object]", one), cast("list[object]", other)
        return len(left_items) == len(right_items) and all(
            map(is_same_value, left_items, right_items)
        )
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def verdict(case: Case, scan: TextScan) -> str:
    """What is wrong with a reading; empty if it is right."""
    found = [(call.name, json.loads(call.arguments)) for call in scan.calls]
    if case.kind == "calls":
        if len(found) != len(case.calls) or not all(
            one[0] == other[0] and is_same_value(one[1], other[1])
            for one, other in zip(found, case.calls, strict=True)
        ):
            return f"calls {found!r}"
        # Arguments that were written as JSON pass byte for byte.
        sources = [dump(arguments) for _, arguments in case.calls]
        if all(f"{source}" in case.text for source in sources) and "<parameter" not in case.text:
            found_sources = [call.arguments for call in scan.calls]
            if found_sources != sources:
                return f"bytes {found_sources!r}"
        if scan.text.split() != case.kept.split():
            return f"text {scan.text!r}"
        return ""
    if case.kind != "malformed":
        return "" if not found and scan.text == case.text else f"calls {found!r} text {scan.text!r}"
    place = 0
    for one in found:
        while place < len(case.calls) and not (
            case.calls[place][0] == one[0] and is_same_value(case.calls[place][1], one[1])
        ):
            place += 1
        if place == len(case.calls):
            return f"calls {one!r}"
        place += 1
    if not found:
        # A mark alone at the end of the text is a mark.
        marks = (*_PATTERNS[case.form.name].closers, "")
        is_kept = any(
            scan.text.rstrip() == case.text.rstrip().removesuffix(mark).rstrip() for mark in marks
        )
        return "" if is_kept else f"text {scan.text!r}"
    kept, at = "", 0
    for call in scan.calls:
        kept, at = kept + case.text[at : call.start], call.end
    kept += case.text[at:]
    # Markup around a call and white space behind it are no text.
    left, right = ("".join(_TAGS.sub("", text).split()) for text in (scan.text, kept))
    return "" if left == right else f"text {scan.text!r} of {kept!r}"


def measure(form: TextFormat, kind: Kind, count: int, seed: str) -> list[tuple[Case, str]]:
    """The cases that are read wrong, and why: whole, by character or in random cuts."""
    wrong: list[tuple[Case, str]] = []
    for chance, case in cases_of(form, kind, count, seed):
        scan = read_case(case, [case.text])
        fault = verdict(case, scan)
        pieces = list(case.text) if chance.random() < 0.3 else _cut(case.text, chance)
        if not fault and read_case(case, pieces) != scan:
            fault = "the cuts change the reading"
        if fault:
            wrong.append((case, fault))
    return wrong


def _cut(text: str, chance: Chance) -> list[str]:
    pieces: list[str] = []
    while text:
        size = chance.randint(1, 12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = sys.argv[2] if len(sys.argv) > 2 else "table"
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    kinds = [sys.argv[4]] if len(sys.argv) > 4 else KINDS
    total = dict.fromkeys(KINDS, 0)
    print(f"{'format':24}" + "".join(f"{kind:>12}" for kind in kinds))
    for form in FORMATS:
        if only not in ("", form.name):
            continue
        row = f"{form.name:24}"
        for kind in kinds:
            wrong = measure(form, cast("Kind", kind), count, seed)
            total[cast("Kind", kind)] += len(wrong)
            row += f"{100 * (1 - len(wrong) / count):11.2f}%"
            if only:
                for case, fault in wrong[:6]:
                    print(
                        kind,
                        case.why,
                        case.finish,
                        repr(case.text),
                        "\n   wrote",
                        case.calls,
                        "\n   got",
                        fault,
                        "\n",
                    )
        print(row, flush=True)
    forms = len(FORMATS) if not only else 1
    print(
        f"{'all':24}"
        + "".join(
            f"{100 * (1 - total[cast('Kind', kind)] / count / forms):11.2f}%" for kind in kinds
        )
    )


if __name__ == "__main__":
    main()
