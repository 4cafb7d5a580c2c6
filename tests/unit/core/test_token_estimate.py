"""Token counts, about."""

import pytest

from dragoman._json import Raw
from dragoman.core.token_estimate import (
    TOKENS_FOR_TOOLS,
    TOKENS_PER_CALL,
    TOKENS_PER_IMAGE,
    TOKENS_PER_TOOL,
    TOKENS_PER_TURN,
    estimate_tokens,
)
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Grammar, Request, ResponseFormat, Tool, Turn


def asked(*parts: Part) -> int:
    return estimate_tokens(Request(turns=(Turn(role="user", parts=parts),))) - TOKENS_PER_TURN


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (Text(text="x" * 400), 100),
        (Refusal(text="x" * 400), 100),
        (Text(text="日本語" * 10), 30),
        (Text(text="абв" + "x" * 40), 13),
        (Reasoning(summary=("x" * 40,), content=("x" * 40,)), 20),
        (Call(call_id="c" * 400, name="f" * 40, input="x" * 400), TOKENS_PER_CALL + 110),
        (Result(call_id="c", content=(Text(text="x" * 40),)), TOKENS_PER_CALL + 10),
        (Media(kind="image", data="A" * 10_000_000), TOKENS_PER_IMAGE),
        (Media(kind="file", data="A" * 100_000), 4000),
        (Media(kind="file", url="https://x"), TOKENS_PER_IMAGE),
        (Opaque(dialect="messages", type="x", raw=Raw(b'"' + b"x" * 38 + b'"')), 10),
    ],
)
def test_each_part_has_its_share(part: Part, tokens: int) -> None:
    assert asked(part) == tokens


def test_tools_and_schemas_count() -> None:
    schema = Raw(b'{"type":"object","properties":{}}' + b" " * 7)
    tool = Tool(name="f" * 4, description="d" * 40, schema=schema)
    custom = Tool(name="f" * 4, kind="custom", grammar=Grammar("lark", "g" * 40))
    request = Request(
        tools=(tool, custom), response_format=ResponseFormat(kind="json_schema", schema=schema)
    )
    expected = TOKENS_FOR_TOOLS + 2 * TOKENS_PER_TOOL + (1 + 10 + 10) + (1 + 10) + 10
    assert estimate_tokens(request) == expected


def test_nothing_is_at_least_one_token() -> None:
    assert estimate_tokens(Request()) == 1
