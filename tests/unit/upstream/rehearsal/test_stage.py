"""Whole answers, in every dialect, streamed and not: what our own decoders make of the bytes."""

import json
from typing import cast

import pytest

from dragoman.core.fold import fold
from dragoman.dialects.registry import codec
from dragoman.model.events import Failed
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Dialect, Reasoning, Refusal, Seal
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.rehearsal.scenarios import SCENARIOS
from dragoman.upstream.rehearsal.tasks import NOTICE
from dragoman.upstream.rehearsal.tools import LARGE
from dragoman.upstream.rehearsal.upstream import perform
from rehearsal_asking import (
    CLOCK,
    DIALECTS,
    WEATHER,
    Json,
    answer,
    ask,
    body,
    calls,
    loads,
    only_choice,
    parts,
    read_stream,
    said_by,
    text,
    thoughts,
    with_results,
)

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])

END = f"\n\n({NOTICE})"
WHOLE = (
    "rehearsal",
    "rehearsal-parallel",
    "rehearsal-steps",
    "rehearsal-text-then-call",
    "rehearsal-empty-arguments",
    "rehearsal-large-arguments",
    "rehearsal-text-calls",
    "rehearsal-use-tool",
    "rehearsal-reasoning",
    "rehearsal-refusal",
    "rehearsal-length",
    "rehearsal-strict",
    "rehearsal-slow",
)
BROKEN = ("rehearsal-cut", "rehearsal-no-end", "rehearsal-stall")


def content(outcome: Outcome) -> Outcome:
    """An answer less what only a stream or only a body says."""
    return Outcome(model=outcome.model, choices=outcome.choices, usage=outcome.usage)


# --- calls, results, words --------------------------------------------------------------------------------------------


@every_dialect
@both_ways
def test_mentioned_tool_is_called_with_the_name_the_user_gave(
    dialect: Dialect, stream: bool
) -> None:
    outcome, problems = answer(
        dialect, body(dialect, tools=(CLOCK, WEATHER), stream=stream), stream=stream
    )
    [call] = calls(outcome)
    assert (call.name, call.input, call.status) == ("get_weather", '{"city":"Paris"}', "completed")
    assert call.call_id.startswith("toolu_" if dialect == "messages" else "call_")
    assert only_choice(outcome).finish == "tool_calls"
    assert outcome.completed
    assert problems == []


@every_dialect
@both_ways
def test_results_are_quoted_all_of_them(dialect: Dialect, stream: bool) -> None:
    data = with_results(dialect, ("21C sunny", "18C rain"))
    outcome, problems = answer(dialect, data, stream=stream)
    assert text(outcome) == "get_weather returned: 21C sunny\nget_weather returned: 18C rain"
    assert only_choice(outcome).finish == "stop"
    assert problems == []


@every_dialect
@both_ways
def test_without_tools_the_user_is_quoted(dialect: Dialect, stream: bool) -> None:
    outcome, problems = answer(dialect, body(dialect, "Guten Tag, 世界 🌍"), stream=stream)
    assert text(outcome) == f"You said: Guten Tag, 世界 🌍{END}"
    assert problems == []


@every_dialect
@pytest.mark.parametrize("model", WHOLE)
@pytest.mark.parametrize("tools", [(), (CLOCK, WEATHER)], ids=["no tools", "tools"])
def test_stream_and_body_say_the_same(
    dialect: Dialect, model: str, tools: tuple[Json, ...]
) -> None:
    data = body(dialect, model=model, tools=tools)
    streamed, stream_problems = answer(dialect, data)
    whole, body_problems = answer(dialect, data, stream=False)
    assert content(streamed) == content(whole)
    assert streamed.completed
    assert whole.completed
    assert (stream_problems, body_problems) == ([], [])


@every_dialect
@pytest.mark.parametrize("model", sorted(SCENARIOS))
@both_ways
def test_the_same_request_is_answered_with_the_same_bytes(
    dialect: Dialect, model: str, stream: bool
) -> None:
    data = body(dialect, model=model, tools=(WEATHER,))
    assert ask(dialect, data, stream=stream) == ask(dialect, data, stream=stream)


@every_dialect
def test_another_request_gets_other_ids(dialect: Dialect) -> None:
    one, _ = answer(dialect, body(dialect, "Weather in Paris?", tools=(WEATHER,)))
    other, _ = answer(dialect, body(dialect, "Weather in Paris!", tools=(WEATHER,)))
    assert one.response_id != other.response_id
    assert calls(one)[0].call_id != calls(other)[0].call_id


@every_dialect
def test_arguments_come_in_small_deltas(dialect: Dialect) -> None:
    delivery = ask(dialect, body(dialect, tools=(WEATHER,)))
    assert len(delivery.pieces) > 4
    assert all(piece.endswith(b"\n\n") for piece in delivery.pieces)


@every_dialect
@both_ways
def test_usage_counts_four_characters_as_a_token(dialect: Dialect, stream: bool) -> None:
    outcome, _ = answer(dialect, body(dialect, "x" * 400), stream=stream)
    assert outcome.usage is not None
    said = len("You said: ") + 400 + len(END)
    assert (outcome.usage.input, outcome.usage.output) == (100, -(-said // 4))


def test_chat_streams_usage_only_when_asked() -> None:
    data = body("chat", more={"stream_options": None})
    outcome, problems = answer("chat", data)
    assert outcome.usage is None
    assert problems == []


# --- scenarios --------------------------------------------------------------------------------------------------------


@every_dialect
@both_ways
def test_parallel_calls_take_the_names_one_by_one(dialect: Dialect, stream: bool) -> None:
    data = body(dialect, model="rehearsal-parallel", tools=(WEATHER,))
    outcome, problems = answer(dialect, data, stream=stream)
    assert [call.input for call in calls(outcome)] == ['{"city":"Paris"}', '{"city":"Tokyo"}']
    assert len({call.call_id for call in calls(outcome)}) == 2
    assert problems == []


@every_dialect
def test_parallel_calls_of_two_mentioned_tools(dialect: Dialect) -> None:
    data = body(
        dialect,
        "What is the weather in Paris, and what time is it in Rome?",
        model="rehearsal-parallel",
        tools=(CLOCK, WEATHER),
    )
    outcome, _ = answer(dialect, data)
    assert {call.name for call in calls(outcome)} == {"get_weather", "get_time"}


@pytest.mark.parametrize(
    ("dialect", "more"),
    [
        ("chat", {"parallel_tool_calls": False}),
        ("responses", {"parallel_tool_calls": False}),
        ("messages", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ],
)
def test_parallel_calls_can_be_forbidden(dialect: Dialect, more: Json) -> None:
    data = body(dialect, model="rehearsal-parallel", tools=(WEATHER,), more=more)
    outcome, _ = answer(dialect, data)
    assert len(calls(outcome)) == 1


@every_dialect
def test_interleaved_deltas_alternate_and_mean_the_same(dialect: Dialect) -> None:
    data = body(dialect, model="rehearsal-interleaved", tools=(WEATHER,))
    wire = said_by(ask(dialect, data))
    events, _ = read_stream(dialect, wire)
    outcome = fold(events)
    assert [call.input for call in calls(outcome)] == ['{"city":"Paris"}', '{"city":"Tokyo"}']
    assert outcome.completed
    serial = said_by(ask(dialect, body(dialect, model="rehearsal-parallel", tools=(WEATHER,))))
    assert wire.count(b"\n\n") == serial.count(b"\n\n")
    paris, tokyo = wire.index(b"Par"), wire.index(b"Tok")
    first_end = wire.index(b'is\\"')
    assert paris < tokyo < first_end


def test_interleaved_frames_keep_rising_numbers() -> None:
    data = body("responses", model="rehearsal-interleaved", tools=(WEATHER,))
    frames = said_by(ask("responses", data)).split(b"\n\n")[:-1]
    numbers = [loads(frame.partition(b"data: ")[2])["sequence_number"] for frame in frames]
    assert numbers == list(range(len(frames)))


@every_dialect
def test_steps_call_three_times_before_the_answer(dialect: Dialect) -> None:
    model = "rehearsal-steps"
    first, _ = answer(dialect, body(dialect, model=model, tools=(WEATHER,)))
    second, _ = answer(dialect, with_results(dialect, ("21C",), model=model))
    assert len(calls(first)) == len(calls(second)) == 1


@every_dialect
@both_ways
def test_words_come_before_the_call(dialect: Dialect, stream: bool) -> None:
    data = body(dialect, model="rehearsal-text-then-call", tools=(WEATHER,))
    outcome, _ = answer(dialect, data, stream=stream)
    assert text(outcome) == "Let me look that up."
    assert [type(part) for part in parts(outcome)][-1] is Call


@every_dialect
@both_ways
def test_call_without_arguments_is_read_as_an_empty_object(dialect: Dialect, stream: bool) -> None:
    data = body(dialect, model="rehearsal-empty-arguments", tools=(WEATHER,))
    outcome, problems = answer(dialect, data, stream=stream)
    assert [call.input for call in calls(outcome)] == ["{}"]
    assert problems == []


def test_tool_that_requires_nothing_is_preferred_for_a_call_without_arguments() -> None:
    ping: Json = {"name": "ping", "schema": {"type": "object", "properties": {}}}
    data = body("chat", model="rehearsal-empty-arguments", tools=(WEATHER, ping))
    outcome, _ = answer("chat", data)
    assert [call.name for call in calls(outcome)] == ["ping"]


@every_dialect
@both_ways
def test_large_arguments_are_whole(dialect: Dialect, stream: bool) -> None:
    data = body(dialect, model="rehearsal-large-arguments", tools=(WEATHER,))
    delivery = ask(dialect, data, stream=stream)
    outcome, problems = answer(dialect, data, stream=stream)
    [call] = calls(outcome)
    city = loads(call.input)["city"]
    assert isinstance(city, str)
    assert len(city) >= LARGE
    assert '“été” 🎭 \\ "quoted"' in city
    assert 1 < len(delivery.pieces) < 600
    assert problems == []


@every_dialect
def test_call_as_text_is_text(dialect: Dialect) -> None:
    data = body(dialect, model="rehearsal-text-calls", tools=(WEATHER,))
    outcome, _ = answer(dialect, data)
    assert calls(outcome) == []
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city":"Paris"}}\n</tool_call>'
    assert text(outcome).endswith(written)
    assert only_choice(outcome).finish == "stop"
    data = body(dialect, model="rehearsal-use-tool", tools=(WEATHER,))
    outcome, _ = answer(dialect, data)
    written = "<use_tool>\n  <name>get_weather</name>\n  <city>Paris</city>\n</use_tool>"
    assert text(outcome).endswith(written)


@every_dialect
@both_ways
def test_refusal_is_emitted_in_the_dialects_own_way(dialect: Dialect, stream: bool) -> None:
    outcome, _ = answer(dialect, body(dialect, model="rehearsal-refusal"), stream=stream)
    assert text(outcome).startswith("I rehearse a refusal")
    if dialect == "messages":
        assert only_choice(outcome).finish == "refusal"
    else:
        assert any(isinstance(part, Refusal) for part in parts(outcome))


@every_dialect
@both_ways
def test_length_cuts_a_call_that_is_then_not_complete(dialect: Dialect, stream: bool) -> None:
    data = body(dialect, model="rehearsal-length", tools=(WEATHER,))
    outcome, _ = answer(dialect, data, stream=stream)
    assert only_choice(outcome).finish == "length"
    assert [call.status for call in calls(outcome)] in ([], ["incomplete"])


@every_dialect
def test_length_cuts_words(dialect: Dialect) -> None:
    said = "abcdefghijklmnop" * 10
    outcome, _ = answer(dialect, body(dialect, said, model="rehearsal-length"))
    whole = f"You said: {said}{END}"
    assert whole.startswith(text(outcome))
    assert 0 < len(text(outcome)) <= len(whole) // 2 + 4
    assert only_choice(outcome).finish == "length"


@pytest.mark.parametrize(
    ("dialect", "field"),
    [
        ("chat", "max_completion_tokens"),
        ("responses", "max_output_tokens"),
        ("messages", "max_tokens"),
    ],
)
def test_limit_of_tokens_is_kept(dialect: Dialect, field: str) -> None:
    outcome, _ = answer(dialect, body(dialect, "abcdefgh", more={field: 3}))
    assert text(outcome) == "You said: ab"
    assert only_choice(outcome).finish == "length"
    assert outcome.usage is not None
    assert outcome.usage.output == 3


@pytest.mark.parametrize(("dialect", "field"), [("chat", "stop"), ("messages", "stop_sequences")])
@both_ways
def test_stop_sequence_ends_the_text(dialect: Dialect, field: str, stream: bool) -> None:
    data = body(dialect, "one two three", more={field: ["three", "two"]})
    outcome, _ = answer(dialect, data, stream=stream)
    assert text(outcome) == "You said: one "
    if dialect == "messages":
        assert only_choice(outcome).stop_sequence == "two"


# --- broken answers ---------------------------------------------------------------------------------------------------


@every_dialect
@pytest.mark.parametrize("model", BROKEN)
def test_broken_stream_stops_inside_the_call(dialect: Dialect, model: str) -> None:
    delivery = ask(dialect, body(dialect, model=model, tools=(WEATHER,)))
    events, _ = read_stream(dialect, said_by(delivery))
    outcome = fold(events)
    assert delivery.ending == {"rehearsal-cut": "cut", "rehearsal-stall": "stall"}.get(
        model, "silent"
    )
    assert outcome.error is not None
    assert outcome.error.kind == "truncated"
    [call] = [part for choice in outcome.choices for part in choice.parts]
    assert isinstance(call, Call)
    assert call.status == "incomplete"
    assert '{"city":"Paris"}'.startswith(call.input)
    assert call.input not in ("", '{"city":"Paris"}')


@every_dialect
@pytest.mark.parametrize("model", BROKEN)
def test_broken_body_is_half_a_body(dialect: Dialect, model: str) -> None:
    data = body(dialect, model=model, tools=(WEATHER,))
    half = said_by(ask(dialect, data, stream=False))
    with pytest.raises(json.JSONDecodeError):
        loads(half)


@every_dialect
def test_hanging_answer_has_a_status_and_no_bytes(dialect: Dialect) -> None:
    for stream in (True, False):
        delivery = ask(dialect, body(dialect, model="rehearsal-hang"), stream=stream)
        assert (delivery.status, delivery.pieces, delivery.ending) == (200, (), "stall")


@every_dialect
@pytest.mark.parametrize("tools", [(), (WEATHER,)], ids=["text", "call"])
def test_error_in_the_stream_is_the_dialects_own(dialect: Dialect, tools: tuple[Json, ...]) -> None:
    delivery = ask(dialect, body(dialect, model="rehearsal-error-midstream", tools=tools))
    events, _ = read_stream(dialect, said_by(delivery))
    assert delivery.status == 200
    assert isinstance(events[-1], Failed)
    assert "half-way" in events[-1].error.message
    assert len(events) > 3


@every_dialect
def test_error_instead_of_a_body_is_a_status(dialect: Dialect) -> None:
    delivery = ask(dialect, body(dialect, model="rehearsal-error-midstream"), stream=False)
    assert delivery.status == 503
    assert codec(dialect).decode_error(said_by(delivery), 503).kind == "overloaded"


@every_dialect
@pytest.mark.parametrize(
    ("word", "status", "kind"),
    [
        ("400", 400, "invalid_request"),
        ("401", 401, "authentication"),
        ("403", 403, "permission"),
        ("404", 404, "not_found"),
        ("429", 429, "rate_limit"),
        ("500", 500, "server"),
        ("503", 503, "overloaded"),
        ("529", 529, "overloaded"),
        ("context", 400, "context_length"),
    ],
)
def test_http_error_has_its_status_and_the_dialects_body(
    dialect: Dialect, word: str, status: int, kind: str
) -> None:
    delivery = ask(dialect, body(dialect, model=f"rehearsal-error-{word}"))
    assert delivery.status == status
    assert delivery.headers["content-type"] == "application/json"
    assert delivery.headers.get("retry-after") == ("1" if status == 429 else None)
    assert codec(dialect).decode_error(said_by(delivery), status).kind == kind


@every_dialect
def test_unknown_scenario_is_not_found_and_lists_the_others(dialect: Dialect) -> None:
    delivery = ask(dialect, body(dialect, model="rehearsal-nonsense"))
    assert delivery.status == 404
    message = codec(dialect).decode_error(said_by(delivery), 404).message
    assert "'rehearsal-nonsense'" in message
    assert all(name in message for name in SCENARIOS)


@every_dialect
@pytest.mark.parametrize("model", ["gpt-5.5", "claude-sonnet-4-5", "rehearsal"])
def test_any_other_model_name_is_the_ordinary_one(dialect: Dialect, model: str) -> None:
    outcome, _ = answer(dialect, body(dialect, model=model))
    assert text(outcome) == f"You said: Weather in Paris and Tokyo?{END}"
    assert outcome.model == model


@every_dialect
def test_name_the_gateway_gives_decides_before_that_of_the_body(dialect: Dialect) -> None:
    data = body(dialect, model="gpt-5.5", tools=(WEATHER,))
    outcome, _ = answer(dialect, data, model="rehearsal-parallel")
    assert len(calls(outcome)) == 2


# --- requests that cannot be served -----------------------------------------------------------------------------------


@every_dialect
def test_unusable_request_is_refused_in_the_dialect(dialect: Dialect) -> None:
    delivery = ask(dialect, b'{"model": 3}')
    assert delivery.status == 400
    assert codec(dialect).decode_error(said_by(delivery), 400).kind == "invalid_request"


@pytest.mark.parametrize(
    ("dialect", "choice"),
    [
        ("chat", {"type": "function", "function": {"name": "nope"}}),
        ("responses", {"type": "function", "name": "nope"}),
        ("messages", {"type": "tool", "name": "nope"}),
    ],
)
def test_choice_of_a_tool_that_is_not_there_is_refused(dialect: Dialect, choice: Json) -> None:
    data = body(dialect, tools=(WEATHER,), more={"tool_choice": choice})
    delivery = ask(dialect, data)
    assert delivery.status == 400
    message = codec(dialect).decode_error(said_by(delivery), 400).message
    assert "get_weather" in message
    assert "'nope'" in message


def test_unknown_operation_is_refused() -> None:
    request = UpstreamRequest(
        dialect="chat", body=body("chat"), stream=False, model="", operation="embed"
    )
    assert perform(request).status == 400


@every_dialect
def test_strict_rehearsal_refuses_a_call_without_a_result(dialect: Dialect) -> None:
    lonely: dict[Dialect, list[Json]] = {
        "chat": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "user", "content": "well?"},
        ],
        "responses": [
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "message", "role": "user", "content": "well?"},
        ],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
            },
            {"role": "user", "content": "well?"},
        ],
    }
    key = "input" if dialect == "responses" else "messages"
    data = body(dialect, model="rehearsal-strict", more={key: lonely[dialect]})
    delivery = ask(dialect, data)
    assert delivery.status == 400
    assert "missing_result" in codec(dialect).decode_error(said_by(delivery), 400).message
    assert ask(dialect, data, model="rehearsal").status == 200


# --- reasoning and its seal -------------------------------------------------------------------------------------------

WANTED: dict[Dialect, Json] = {
    "chat": {"reasoning_effort": "low"},
    "responses": {"reasoning": {"effort": "low", "summary": "auto"}},
    "messages": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
}


@every_dialect
@both_ways
def test_thoughts_come_when_asked_for_and_are_sealed(dialect: Dialect, stream: bool) -> None:
    data = body(dialect, tools=(WEATHER,), more=WANTED[dialect])
    outcome, problems = answer(dialect, data, stream=stream)
    [thought] = thoughts(outcome)
    assert "".join(thought.summary + thought.content).startswith("The user says: Weather")
    assert len(thought.seals) == 1
    assert isinstance(parts(outcome)[0], Reasoning)
    assert len(calls(outcome)) == 1
    assert outcome.usage is not None
    assert outcome.usage.reasoning
    assert problems == []


def test_thought_about_results_counts_them() -> None:
    data = with_results("messages", ("a", "b"), model="rehearsal-reasoning")
    outcome, _ = answer("messages", data)
    assert thoughts(outcome)[0].summary == ("There are 2 results to report.",)


@pytest.mark.parametrize(
    ("dialect", "more"),
    [
        ("chat", {"reasoning_effort": "none"}),
        ("messages", {"thinking": {"type": "disabled"}}),
        ("responses", {"reasoning": {"effort": "none"}}),
    ],
)
def test_thoughts_can_be_declined(dialect: Dialect, more: Json) -> None:
    outcome, _ = answer(dialect, body(dialect, more=more))
    assert thoughts(outcome) == []


def replay(seal: str, thought: str) -> bytes:
    """A Messages conversation whose assistant turn has a thought with a signature."""
    turns = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": thought, "signature": seal},
                {"type": "text", "text": "hello"},
            ],
        },
        {"role": "user", "content": "more"},
    ]
    return body("messages", more={"messages": turns})


def given_seal() -> tuple[str, str]:
    outcome, _ = answer("messages", body("messages", "hi", model="rehearsal-reasoning"))
    [thought] = thoughts(outcome)
    return thought.seals[0].data, "".join(thought.summary)


def test_seal_that_comes_back_unchanged_is_accepted() -> None:
    seal, thought = given_seal()
    assert ask("messages", replay(seal, thought)).status == 200


def test_damaged_seal_is_refused() -> None:
    seal, thought = given_seal()
    assert ask("messages", replay(seal[:-1], thought)).status == 400


def test_changed_thought_is_refused() -> None:
    seal, thought = given_seal()
    assert ask("messages", replay(seal, f"{thought}!")).status == 400


def test_seal_of_another_provider_is_not_looked_at() -> None:
    assert ask("messages", replay("EqQBCgIYAhIM", "anything")).status == 200


def test_seal_kinds_are_the_vendors_own() -> None:
    kinds: list[Seal] = []
    for dialect in DIALECTS:
        outcome, _ = answer(dialect, body(dialect, model="rehearsal-reasoning"))
        kinds.extend(thoughts(outcome)[0].seals)
    assert [seal.kind for seal in kinds] == ["signature", "encrypted", "signature"]


# --- other requests ---------------------------------------------------------------------------------------------------


def test_tokens_are_counted_by_the_same_estimate() -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}
    request = UpstreamRequest(
        dialect="messages",
        body=json.dumps(asked).encode(),
        stream=False,
        model="m",
        operation="count_tokens",
    )
    delivery = perform(request)
    assert (delivery.status, loads(said_by(delivery))) == (200, {"input_tokens": 100})


def test_several_choices_each_have_an_answer() -> None:
    data = body("chat", tools=(WEATHER,), more={"n": 3})
    streamed, _ = answer("chat", data)
    whole, _ = answer("chat", data, stream=False)
    assert [choice.index for choice in streamed.choices] == [0, 1, 2]
    assert streamed.choices == whole.choices
    ids = {part.call_id for c in streamed.choices for part in c.parts if isinstance(part, Call)}
    assert len(ids) == 3


@pytest.mark.parametrize("count", [0, 129])
def test_number_of_choices_is_bounded(count: int) -> None:
    assert ask("chat", body("chat", more={"n": count})).status == 400


def test_client_of_functions_gets_a_function_call() -> None:
    function = {"name": "get_weather", "parameters": WEATHER["schema"]}
    data = body("chat", more={"functions": [function]})
    [choice] = [*_choices(said_by(ask("chat", data, stream=False)))]
    assert choice["finish_reason"] == "function_call"


def _choices(data: bytes) -> list[Json]:
    return cast("list[Json]", loads(data)["choices"])


@pytest.mark.parametrize(
    ("dialect", "more"),
    [
        (
            "chat",
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": WEATHER["schema"]},
                }
            },
        ),
        (
            "responses",
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": WEATHER["schema"]}}},
        ),
        (
            "messages",
            {"output_config": {"format": {"type": "json_schema", "schema": WEATHER["schema"]}}},
        ),
    ],
)
def test_answer_has_the_form_that_was_asked_for(dialect: Dialect, more: Json) -> None:
    outcome, _ = answer(dialect, body(dialect, more=more))
    assert loads(text(outcome)) == {"city": "Paris"}


def test_answer_is_json_where_any_json_will_do() -> None:
    data = body("chat", "ab", more={"response_format": {"type": "json_object"}})
    outcome, _ = answer("chat", data)
    assert loads(text(outcome)) == {"answer": f"You said: ab{END}"}


def test_namespaced_tool_is_called_in_its_namespace() -> None:
    tools = [
        {
            "type": "namespace",
            "name": "mcp__probe",
            "description": "probes",
            "tools": [{"type": "function", "name": "echo_text", "parameters": {"type": "object"}}],
        }
    ]
    outcome, problems = answer("responses", body("responses", "echo", more={"tools": tools}))
    assert [(call.namespace, call.name) for call in calls(outcome)] == [("mcp__probe", "echo_text")]
    assert problems == []


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@both_ways
def test_custom_tool_gets_free_text(dialect: Dialect, stream: bool) -> None:
    inner = {"name": "note", "description": "A note."}
    tool = {"type": "custom", "custom": inner} if dialect == "chat" else {"type": "custom", **inner}
    data = body(dialect, "note this", more={"tools": [tool]})
    outcome, problems = answer(dialect, data, stream=stream)
    assert [(call.kind, call.input) for call in calls(outcome)] == [("custom", "note this")]
    assert problems == []


@pytest.mark.parametrize(
    ("variant", "name", "wanted"),
    [
        ("bash_20250124", "bash", {"command": "ls"}),
        ("memory_20250818", "memory", {"command": "view", "path": "/memories"}),
    ],
)
def test_vendors_own_client_tools_are_called_harmlessly(
    variant: str, name: str, wanted: Json
) -> None:
    data = body("messages", more={"tools": [{"type": variant, "name": name}]})
    outcome, problems = answer("messages", data)
    [call] = calls(outcome)
    assert (call.name, loads(call.input)) == (name, wanted)
    assert problems == []


@both_ways
def test_local_shell_is_called_with_a_command_that_only_reads(stream: bool) -> None:
    data = body("responses", more={"tools": [{"type": "local_shell"}]})
    outcome, problems = answer("responses", data, stream=stream)
    [call] = calls(outcome)
    assert call.kind == "local_shell"
    assert loads(call.input)["command"] == ["ls"]
    assert problems == []


def test_provider_run_tools_are_never_called() -> None:
    outcome, _ = answer(
        "responses", body("responses", "search", more={"tools": [{"type": "web_search"}]})
    )
    assert calls(outcome) == []
