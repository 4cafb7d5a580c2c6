"""Where the cache breakpoints of a request stand: the client's, and those that are added for clients that cannot set any."""

import json
from collections.abc import Iterator
from typing import Any, Literal, cast

import pytest
from msgspec.structs import replace

from dragoman.dialects.codec import EncodedRequest
from dragoman.dialects.messages.losses import DEFAULT_TARGET
from dragoman.dialects.translate import translate_request

Json = dict[str, Any]

EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
EXPLICIT = {"mode": "explicit"}
SCHEMA: Json = {"type": "object", "properties": {}}
SYSTEM = {"role": "system", "content": "Be brief."}


def translated(
    body: Json,
    source: str = "chat",
    *,
    cache: bool = True,
    ttl: Literal["5m", "1h"] = "5m",
    tools: bool = True,
) -> EncodedRequest:
    limits = replace(DEFAULT_TARGET, cache=cache, cache_ttl=ttl, cached_tools=tools)
    data = json.dumps({"model": "m", **body}).encode()
    return translate_request(data, source, "messages", limits=limits)


def marks(encoded: EncodedRequest) -> dict[str, Json]:
    """The breakpoints of a request by their places."""
    return dict(_marks(json.loads(encoded.body), ""))


def _marks(value: object, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        for name, inner in cast("Json", value).items():
            if name == "cache_control":
                yield path, inner
            else:
                yield from _marks(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from _marks(inner, f"{path}.{index}")


def places(body: Json, source: str = "chat", **more: Any) -> list[str]:
    return list(marks(translated(body, source, **more)))


def losses(encoded: EncodedRequest) -> list[tuple[str, str]]:
    return [(loss.code, loss.where) for loss in encoded.losses]


def user(text: str = "hi", **more: Any) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text, **more}] if more else text}


def marked(text: str = "hi") -> Json:
    return user(text, prompt_cache_breakpoint=EXPLICIT)


def answer(text: str = "yes") -> Json:
    return {"role": "assistant", "content": text}


def called(number: int) -> list[Json]:
    function = {"name": "f", "arguments": "{}"}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "done"},
    ]


def tool(name: str = "f", **more: Any) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}, **more}


# --- added ------------------------------------------------------------------------------------------------------------


def test_each_turn_of_a_tool_loop_reads_what_the_turn_before_wrote() -> None:
    ends: list[str] = []
    for turns in range(4):
        history = [message for number in range(turns) for message in called(number)]
        found = places({"messages": [SYSTEM, user(), *history], "tools": [tool()]})
        last = f"messages.{2 * turns}.content.0"
        assert found == ["system.0", *ends[-1:], last]
        ends.append(last)


def test_what_is_added_lasts_for_the_vendors_usual_time_unless_it_is_configured() -> None:
    body: Json = {"messages": [SYSTEM, user()]}
    assert list(marks(translated(body)).values()) == [EPHEMERAL, EPHEMERAL]
    assert list(marks(translated(body, ttl="1h")).values()) == [HOUR, HOUR]


def test_without_a_system_text_the_last_tool_has_the_breakpoint() -> None:
    body: Json = {"messages": [user()], "tools": [tool("f"), tool("g")]}
    assert places(body) == ["messages.0.content.0", "tools.1"]
    assert places(body, tools=False) == ["messages.0.content.0"]
    assert list(marks(translated(body, ttl="1h")).values()) == [HOUR, HOUR]
    # The list of tools is encoded once for each form that it has.
    assert places(body, cache=False) == []
    assert places(body) == ["messages.0.content.0", "tools.1"]


def test_a_tool_that_the_vendor_hides_has_no_breakpoint() -> None:
    tools: list[Json] = [{"name": name, "input_schema": SCHEMA} for name in ("f", "g")]
    tools[1]["defer_loading"] = True
    body: Json = {"max_tokens": 9, "messages": [user()], "tools": tools}
    assert places(body, "messages") == ["messages.0.content.0", "tools.0"]
    body["tools"] = tools[1:]
    assert places(body, "messages") == ["messages.0.content.0"]


def test_thinking_and_system_messages_have_no_breakpoint() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    use: Json = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a"}
    messages: list[Json] = [
        user("one"),
        {"role": "assistant", "content": [use, thinking]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, thinking]},
        {"role": "system", "content": "remember"},
    ]
    body: Json = {"max_tokens": 9, "messages": messages}
    assert places(body, "messages") == ["messages.2.content.0", "messages.3.content.0"]


def test_blocks_of_a_kind_that_nobody_knows_have_no_breakpoint() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "from_tomorrow"}]
    body: Json = {"max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    assert places(body, "messages") == ["messages.0.content.0"]


def test_an_image_and_a_result_have_the_breakpoint_where_they_are_last() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    seen = {"role": "user", "content": [{"type": "text", "text": "see"}, image]}
    assert places({"messages": [seen]}) == ["messages.0.content.1"]
    assert places({"messages": [user(), *called(1)]}) == [
        "messages.0.content.0",
        "messages.2.content.0",
    ]


def test_the_beginning_of_an_answer_has_the_breakpoint_too() -> None:
    assert places({"messages": [user(), answer("Once upon")]}) == [
        "messages.0.content.0",
        "messages.1.content.0",
    ]


def test_nothing_is_added_where_the_target_does_not_ask_for_it() -> None:
    encoded = translated({"messages": [SYSTEM, user()], "tools": [tool()]}, cache=False)
    assert marks(encoded) == {}
    assert json.loads(encoded.body)["system"] == "Be brief."


# --- the client's -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (0, ["system.0", "messages.6.content.0", "messages.8.content.0"]),
        (1, ["system.0", "messages.0.content.0", "messages.6.content.0", "messages.8.content.0"]),
        (2, ["system.0", "messages.0.content.0", "messages.2.content.0", "messages.8.content.0"]),
        (3, [*(f"messages.{at}.content.0" for at in (0, 2, 4)), "messages.8.content.0"]),
        (4, [*(f"messages.{at}.content.0" for at in (2, 4, 6)), "messages.8.content.0"]),
    ],
)
def test_the_clients_latest_three_stand_beside_those_that_are_added(
    count: int, found: list[str]
) -> None:
    history = [each for at in range(4) for each in (marked() if at < count else user(), answer())]
    encoded = translated({"messages": [SYSTEM, *history, user("last")]})
    assert list(marks(encoded)) == found
    assert losses(encoded) == []


def test_a_breakpoint_at_the_end_is_the_one_that_would_be_added() -> None:
    assert places({"messages": [SYSTEM, marked()]}) == ["system.0", "messages.0.content.0"]


@pytest.mark.parametrize("count", range(6))
def test_explicit_mode_has_the_clients_latest_four_and_no_others(count: int) -> None:
    history = [each for _ in range(count) for each in (marked(), answer())]
    body: Json = {"messages": [SYSTEM, *history, user()], "prompt_cache_options": EXPLICIT}
    expected = [f"messages.{2 * at}.content.0" for at in range(count)][-4:]
    encoded = translated(body)
    assert list(marks(encoded)) == expected
    assert losses(encoded) == []


def test_a_responses_client_has_the_same_breakpoints() -> None:
    part = {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": EXPLICIT}
    output = {"type": "function_call_output", "call_id": "a", "output": [part]}
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    body: Json = {"instructions": "Be brief.", "input": [user(), call, output, user("go on")]}
    assert places(body, "responses") == [
        "system.0",
        "messages.0.content.0",
        "messages.2.content.0.content.0",
        "messages.2.content.1",
    ]
    assert places({**body, "prompt_cache_options": EXPLICIT}, "responses") == [
        "messages.2.content.0.content.0"
    ]


def test_a_client_that_uses_the_vendors_own_form_places_all_itself() -> None:
    body: Json = {
        "messages": [SYSTEM, user(cache_control=HOUR), answer(), user()],
        "tools": [tool()],
    }
    assert marks(translated(body)) == {"messages.0.content.0": HOUR}
    on_tool = {"messages": [SYSTEM, user()], "tools": [tool(cache_control=EPHEMERAL)]}
    assert places(on_tool) == ["tools.0"]
    assert marks(translated(body, cache=False)) == {"messages.0.content.0": HOUR}


def test_a_fifth_breakpoint_is_left_out_and_reported_where_the_vendor_would_refuse_it() -> None:
    history = [each for _ in range(4) for each in (user(cache_control=EPHEMERAL), answer())]
    body: Json = {
        "messages": [*history, user()],
        "tools": [tool(cache_control=EPHEMERAL), tool("g")],
    }
    encoded = translated(body)
    assert list(marks(encoded)) == [f"messages.{at}.content.0" for at in (0, 2, 4, 6)]
    assert losses(encoded) == [("cache_breakpoints", "cache_control")]
    body["messages"] = [*history, user(cache_control=EPHEMERAL)]
    body["tools"] = [tool()]
    assert list(marks(translated(body))) == [f"messages.{at}.content.0" for at in (2, 4, 6, 8)]


def test_a_breakpoint_that_the_vendor_places_is_one_of_the_four() -> None:
    history = [each for _ in range(4) for each in (user(cache_control=EPHEMERAL), answer())]
    body: Json = {"max_tokens": 9, "messages": [*history, user()], "cache_control": HOUR}
    assert marks(translated(body, "messages")) == {
        **{f"messages.{at}.content.0": EPHEMERAL for at in (2, 4, 6)},
        "": HOUR,
    }
    alone = {"max_tokens": 9, "messages": [user()], "cache_control": HOUR}
    assert marks(translated(alone, "messages")) == {"": HOUR}


def test_an_unknown_field_of_a_breakpoint_is_kept_in_its_own_form_and_else_reported() -> None:
    odd = {"type": "ephemeral", "scope": "global"}
    assert marks(translated({"messages": [user(cache_control=odd)]})) == {
        "messages.0.content.0": odd
    }
    stranger = user(prompt_cache_breakpoint={**EXPLICIT, "scope": "global"})
    assert losses(translated({"messages": [stranger]})) == [
        ("unknown_field", "turns[0].parts[0].prompt_cache_breakpoint.scope")
    ]


# --- how long ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"prompt_cache_options": {"ttl": "30m"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": "12h"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
    ],
)
def test_a_long_time_is_an_hour_where_that_is_configured_and_else_a_loss(
    more: Json, where: str
) -> None:
    body: Json = {"messages": [user()], **more}
    short = translated(body)
    assert (list(marks(short).values()), losses(short)) == ([EPHEMERAL], [("cache_ttl", where)])
    long = translated(body, ttl="1h")
    assert (list(marks(long).values()), losses(long)) == ([HOUR], [])


def test_a_long_time_of_one_breakpoint_is_reported_at_its_place() -> None:
    point = user(prompt_cache_breakpoint={**EXPLICIT, "ttl": "30m"})
    encoded = translated({"messages": [point]})
    where = "turns[0].parts[0].prompt_cache_breakpoint.ttl"
    assert losses(encoded) == [("cache_ttl", where)]
    assert marks(encoded) == {"messages.0.content.0": EPHEMERAL}


@pytest.mark.parametrize("more", [{"prompt_cache_retention": "in_memory"}, {}])
def test_what_asks_for_no_time_loses_none(more: Json) -> None:
    assert losses(translated({"messages": [user()], **more})) == []


def test_options_that_have_no_meaning_here_are_reported() -> None:
    options = {"mode": "implicit", "comparison_response_id": "resp_1", "prewarm": True}
    encoded = translated({"input": "hi", "prompt_cache_options": options}, "responses")
    assert losses(encoded) == [
        ("unknown_field", "prompt_cache_options.comparison_response_id"),
        ("unknown_field", "prompt_cache_options.prewarm"),
    ]
