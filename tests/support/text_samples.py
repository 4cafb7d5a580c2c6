"""Texts with calls in them, made of a format and a seed: what a model of its family might write, and damaged copies.

Made with `random` and a fixed seed rather than by search: a law reads thousands of texts in the time that the search
takes to make hundreds of them, and a text that breaks one is short enough as it is. `DRAGOMAN_FUZZ_ROUNDS` makes more.
"""

import os
import random
from collections.abc import Iterator

from text_formats import NEAR_OPENERS, TextFormat, Written

Chance = random.Random

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
"""How many times the texts of a test run."""

NASTY = "<>{}[]()\"'\\/|=,:;`~ \n\tabcé｜▁🌍"
STRINGS = (
    "", "Paris", "two words", "été 🌍", "say \"hi\"", "it's", "back\\slash", "\\n", "\\u0041", "two\nlines", "tab\there", "  wide  ",
    "{", "}}", "]", ")]", "a=1, b=2)", "'); f(", "{\"name\": \"now\", \"arguments\": {}}", "[1, 2]", "null", "true", "42", "-1.5",
    "a < b && c", "<b>bold</b>", "&lt;&amp;", "<![CDATA[x]]>", "`tick`", "```py\nx\n```", "~~~", "[1](x)", "# title", "<think>",
    "<tool_call>", "</tool_call>", "<use_tool>", "<tool_calls>", "[TOOL_CALLS]", "functools[", "<|call|>", "</s>", "<invoke ",
)  # fmt: skip
WORDS = ("a", "b c", "é", "1", "don't")
PROSE = ("Some words. ", "\n", "  ", "a < b ", "`code` ", "x\n\ny ", "[1] ", "{x} ")


def some_text(form: TextFormat, chance: Chance) -> str:
    """A string that this format can hold."""
    while True:
        if chance.random() < 0.6:
            text = chance.choice(STRINGS)
        else:
            text = "".join(chance.choices(NASTY, k=chance.randint(0, 20)))
        is_bare = not form.strips or (text == text.strip() and "<" not in text)
        is_trimmed = not form.trims or text == text.strip("\r\n")
        if is_bare and is_trimmed and not any(word in text for word in form.avoid):
            return text


def some_value(chance: Chance, depth: int = 0) -> object:
    kind = chance.randint(0, 3 if depth < 2 else 1)
    if kind == 0:
        return chance.choice(WORDS)
    if kind == 1:
        return chance.choice((True, False))
    if kind == 2:
        return [some_value(chance, depth + 1) for _ in range(chance.randint(0, 2))]
    return {"k": some_value(chance, depth + 1)}


def some_call(form: TextFormat, chance: Chance) -> Written:
    if chance.random() < 0.2:
        return "now", {}
    values: dict[str, object] = {
        "query": some_text(form, chance),
        "count": chance.randint(-(10**12), 10**12),
        "ratio": chance.choice((0.5, -1.25, 1e-7, 3.0, 1.5e300)),
        "exact": chance.random() < 0.5,
        "tags": [chance.choice(WORDS) for _ in range(chance.randint(0, 3))],
        "options": {
            key: some_value(chance) for key in chance.sample(("k", "key_2"), chance.randint(0, 2))
        },
    }
    keys = [key for key in values if chance.random() < 0.6]
    return "search", {key: values[key] for key in keys}


def some_calls(form: TextFormat, chance: Chance) -> list[Written]:
    return [some_call(form, chance) for _ in range(1 if form.one else chance.randint(1, 3))]


def damaged(form: TextFormat, chance: Chance) -> str:
    """Calls, prose and near-openers, with pieces cut out of them."""
    parts: list[str] = []
    for _ in range(chance.randint(1, 6)):
        kind = chance.random()
        if kind < 0.5:
            parts.append(form.write(some_calls(form, chance)))
        else:
            parts.append(chance.choice(NEAR_OPENERS if kind < 0.75 else PROSE))
    text = "".join(parts)
    for _ in range(chance.randint(0, 3)):
        start = chance.randint(0, len(text))
        text = text[:start] + text[start + chance.randint(1, 6) :]
    return text


def texts_of(form: TextFormat, count: int) -> Iterator[tuple[Chance, str]]:
    """Damaged texts of a format, each with the chance that goes on from it."""
    for number in range(count * ROUNDS):
        chance = Chance(f"{form.name} {number}")
        yield chance, damaged(form, chance)


def cut(text: str, chance: Chance, most: int = 12) -> list[str]:
    """The text in pieces of random length."""
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = start + chance.randint(1, most)
        pieces.append(text[start:end])
        start = end
    return pieces
