"""What a format writes into the prompt, the scanner reads back as the same calls; or a loss says that it may not."""

import json
import string
from functools import cache
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman._json import Raw, loads
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.textcalls.findings import TextScan
from dragoman.textcalls.formats import BUILT_IN
from dragoman.textcalls.prompting import PROMPT_FORMATS, PromptedRequest, prompt_tools
from dragoman.textcalls.scanner import scan_text

Json = dict[str, object]

TYPES: dict[str, Json] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "thing": {"type": "object"},
    "list": {"type": "array"},
    "anything": {},
    "either": {"type": ["string", "null"]},
    "wide": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
}
TOOLS = (
    Tool(name="do_it", schema=Raw(json.dumps({"type": "object", "properties": TYPES}).encode())),
    Tool(name="other", schema=Raw(b'{"type":"object","properties":{"text":{"type":"string"}}}')),
)
SINGLE = frozenset({"react", "tool_code"})
"""Formats that are read one call at a time, or end with the first."""

MARKUP = (
    "</parameter>", "<parameter=x>", "</function>", "</tool_call>", "<tool_call>", "</arg_value>", "<arg_key>", "<b>hi</b>",
    "</use_tool>", "<name>", "</text>", "<text>", "</invoke>", "<|close|>", '<|"|>', "<escape>", "```", "]", ")", "'", '"',
    "\\", "｜DSML｜", "<![CDATA[x]]>", "</do_it>", "Observation:", "[TOOL_CALLS]", "\n", "\r\n", " ", "null", "5", "{", "é", "😀",
)  # fmt: skip


@cache
def texts() -> st.SearchStrategy[str]:
    words = st.sampled_from(MARKUP) | st.text(string.ascii_letters, max_size=3)
    return st.text(max_size=12) | st.lists(words, max_size=5).map("".join)


@cache
def values() -> st.SearchStrategy[object]:
    leaves = (
        texts()
        | st.integers(-(10**18), 10**18)
        | st.booleans()
        | st.none()
        | st.floats(allow_nan=False, allow_infinity=False, width=32)
    )
    keys = st.text(string.ascii_letters + "_", min_size=1, max_size=5)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=6,
    )


@cache
def arguments() -> st.SearchStrategy[Json]:
    """Mostly as the schema has them, sometimes not."""
    typed = st.fixed_dictionaries(
        {},
        optional={
            "text": texts(),
            "count": st.integers(-(10**18), 10**18),
            "ratio": st.floats(allow_nan=False, allow_infinity=False, width=32),
            "flag": st.booleans(),
            "thing": st.dictionaries(st.text("abc", min_size=1, max_size=3), values(), max_size=2),
            "list": st.lists(values(), max_size=3),
        },
    )
    wrong = st.dictionaries(st.sampled_from([*TYPES, "more", "input", "a-b"]), values(), max_size=3)
    return cast("st.SearchStrategy[Json]", typed | wrong)


@cache
def calls() -> st.SearchStrategy[list[tuple[str, Json]]]:
    names = st.sampled_from(["do_it", "do_it", "other"])
    return st.lists(st.tuples(names, arguments()), min_size=1, max_size=3)


def prompted(name: str, said: list[tuple[str, Json]], *, escapes: bool = False) -> PromptedRequest:
    made = tuple(
        Call(call_id=f"call_{at}", name=tool, input=json.dumps(given, ensure_ascii=escapes))
        for at, (tool, given) in enumerate(said)
    )
    words = Text(text="Let me see.")
    turn = Turn(role="assistant", parts=(words, *made))
    return prompt_tools(Request(model="m", turns=(turn,), tools=TOOLS), name)


def prompt_of(request: PromptedRequest) -> str:
    part = request.request.turns[1].parts[-1]
    assert isinstance(part, Text)
    return part.text


def read(scan: TextScan) -> list[tuple[str, object]]:
    return [(call.name, loads(call.arguments)) for call in scan.calls]


def is_sure(request: PromptedRequest) -> bool:
    return not any(loss.code == "call_form" for loss in request.losses)


def test_every_prompt_has_a_scanner_of_the_same_name() -> None:
    assert set(PROMPT_FORMATS) <= {pattern.name for pattern in BUILT_IN}


@pytest.mark.parametrize("name", PROMPT_FORMATS)
def test_plain_calls_are_read_back_and_the_words_before_them_are_kept(name: str) -> None:
    said: list[tuple[str, Json]] = [
        (
            "do_it",
            {"text": 'two\nlines, "quoted"', "count": 2, "flag": True, "list": [1, {"a": None}]},
        ),
        ("other", {}),
        ("other", {"text": "ünï"}),
    ]
    if name in SINGLE:
        said = said[:1]
    request = prompted(name, said)
    assert is_sure(request)
    scan = scan_text(prompt_of(request), request.tools, formats=name)
    assert read(scan) == said
    assert scan.text.strip() == "Let me see."
    assert not scan.problems


@pytest.mark.parametrize("name", PROMPT_FORMATS)
@settings(max_examples=20)
@given(data=st.data())
def test_calls_are_read_back_as_they_were_or_a_loss_is_noted(
    name: str, data: st.DataObject
) -> None:
    said = data.draw(calls())
    if name in SINGLE:
        said = said[:1]
    request = prompted(name, said, escapes=data.draw(st.booleans()))
    if is_sure(request):
        scan = scan_text(prompt_of(request), request.tools, formats=name)
        assert [(call.name, json.loads(call.arguments)) for call in scan.calls] == said
