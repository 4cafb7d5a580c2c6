"""The rule of thumb."""

from dragoman._json import Raw
from dragoman.model.parts import Call, Media, Opaque, Reasoning, Refusal, Result, Text
from dragoman.model.request import Grammar, Request, Tool, Turn
from dragoman.upstream.rehearsal.tokens import MEDIA_TOKENS, count_part, count_request, tokens_in


def test_four_characters_are_a_token_and_a_rest_is_one_more() -> None:
    assert [tokens_in(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_every_part_is_counted() -> None:
    assert count_part(Text(text="x" * 8)) == 2
    assert count_part(Refusal(text="x" * 8)) == 2
    assert count_part(Reasoning(summary=("xx", "xx"), content=("xxxx",))) == 2
    assert count_part(Call(call_id="c", name="name", input="{}{}")) == 2
    result = Result(call_id="c", content=(Text(text="x" * 8), Media(kind="image")))
    assert count_part(result) == 2 + MEDIA_TOKENS
    assert count_part(Opaque(dialect="chat", type="x", raw=Raw(b"[1, 2]  "))) == 2


def test_request_is_its_turns_and_its_tools() -> None:
    turn = Turn(role="user", parts=(Text(text="x" * 8),))
    tools = (
        Tool(name="name", description="text", schema=Raw(b'{"a":{} }')),
        Tool(name="name", kind="custom", grammar=Grammar("lark", "xxxx")),
    )
    assert count_request(Request(turns=(turn,), tools=tools)) == 2 + 5 + 2
    assert count_request(Request()) == 1
