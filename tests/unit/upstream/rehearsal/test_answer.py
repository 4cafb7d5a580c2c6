"""What is answered, by the rules in their order."""

import pytest
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Outcome
from dragoman.model.parts import (
    Call,
    Dialect,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import Grammar, Request, Role, Tool, ToolChoice, ToolRef, Turn
from dragoman.upstream.rehearsal.answer import (
    MAX_QUOTE,
    MEDIA_TOKENS,
    ConversationState,
    check_seals,
    compose,
    count_part,
    count_request,
    cut_at_stop,
    cut_at_tokens,
    read_situation,
    sealed_thought,
    text_of_result,
    tokens_in,
)
from dragoman.upstream.rehearsal.scenarios import find_scenario
from dragoman.upstream.rehearsal.tasks import NOTICE
from rehearsal_asking import DIALECTS

CITY = Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')
WEATHER = Tool(name="get_weather", schema=CITY)
TIME = Tool(name="get_time", schema=CITY)


def user(*parts: Part) -> Turn:
    return Turn(role="user", parts=parts)


def says(text: str) -> Turn:
    return user(Text(text=text))


def play(request: Request, model: str = "rehearsal") -> Outcome:
    return compose(request, "chat", find_scenario(model), "seed")


def spoken(outcome: Outcome) -> str:
    [choice] = outcome.choices
    [part] = choice.parts
    assert isinstance(part, Text)
    return part.text


def called(outcome: Outcome) -> list[str]:
    return [part.name for part in outcome.choices[0].parts if isinstance(part, Call)]


def round_of(count: int) -> tuple[Turn, ...]:
    """So many rounds of a call and its result."""
    pairs = [
        (
            Turn(role="assistant", parts=(Call(call_id=f"c{n}", name="get_weather", input="{}"),)),
            Turn(role="tool", parts=(Result(call_id=f"c{n}", content=(Text(text=f"r{n}"),)),)),
        )
        for n in range(count)
    ]
    return tuple(turn for pair in pairs for turn in pair)


def test_nothing_said() -> None:
    assert spoken(play(Request())) == f"{NOTICE} Nothing was said."


def test_media_is_mentioned() -> None:
    pictures = [Media(kind="image", url="https://example.com/")] * 2
    assert spoken(play(Request(turns=(user(Text(text="see"), pictures[0]),)))) == (
        f"You said: see I was shown 1 file.\n\n({NOTICE})"
    )
    assert spoken(play(Request(turns=(user(*pictures),)))).endswith("I was shown 2 files.")


def test_long_words_are_shortened() -> None:
    output = spoken(play(Request(turns=(says("x" * (MAX_QUOTE + 1)),))))
    assert (
        output == f"You said: {'x' * MAX_QUOTE}… ({MAX_QUOTE + 1} characters in all)\n\n({NOTICE})"
    )


def test_failed_result_is_emitted_as_failed() -> None:
    result = Result(call_id="c0", content=(Text(text="boom"),), is_error=True)
    turns = (says("go"), round_of(1)[0], Turn(role="tool", parts=(result,)))
    assert spoken(play(Request(turns=turns, tools=(WEATHER,)))) == "get_weather failed: boom"


def test_choice_of_no_tool_gives_words() -> None:
    request = Request(
        turns=(says("weather"),), tools=(WEATHER,), tool_choice=ToolChoice(mode="none")
    )
    assert spoken(play(request)) == f"You said: weather\n\n({NOTICE})"


def test_demanded_tool_is_called_whatever_was_said() -> None:
    choice = ToolChoice(mode="tool", tool=ToolRef("get_time"))
    request = Request(turns=(says("weather"),), tools=(WEATHER, TIME), tool_choice=choice)
    assert called(play(request)) == ["get_time"]


def test_demand_for_a_call_outlives_the_results() -> None:
    turns = (says("weather"), *round_of(1))
    free = Request(turns=turns, tools=(WEATHER,))
    assert called(play(free)) == []
    forced = Request(turns=turns, tools=(WEATHER,), tool_choice=ToolChoice(mode="required"))
    assert called(play(forced)) == ["get_weather"]


@pytest.mark.parametrize(("rounds", "is_call"), [(0, True), (1, True), (2, True), (3, False)])
def test_steps_are_three(rounds: int, is_call: bool) -> None:
    request = Request(turns=(says("weather"), *round_of(rounds)), tools=(WEATHER,))
    outcome = play(request, "rehearsal-steps")
    assert bool(called(outcome)) is is_call


def test_steps_go_through_the_tools_and_names_that_were_mentioned() -> None:
    said = says("The weather and the time in Paris, then in Rome")
    for rounds, wanted in ((0, '{"city":"Paris"}'), (1, '{"city":"Rome"}')):
        request = Request(turns=(said, *round_of(rounds)), tools=(WEATHER, TIME))
        [call] = play(request, "rehearsal-steps").choices[0].parts
        assert isinstance(call, Call)
        assert (call.name, call.input) == (["get_weather", "get_time"][rounds], wanted)


def test_large_arguments_are_not_cut_by_a_limit() -> None:
    request = Request(turns=(says("weather"),), tools=(WEATHER,), max_tokens=10)
    [choice] = play(request, "rehearsal-large-arguments").choices
    assert choice.finish == "tool_calls"


def turn(role: Role, *parts: Part) -> Turn:
    return Turn(role=role, parts=parts)


def user_turn(*texts: str) -> Turn:
    return turn("user", *(Text(text=text) for text in texts))


def call(call_id: str = "c", name: str = "f") -> Turn:
    return turn("assistant", Call(call_id=call_id, name=name, input="{}"))


def result(call_id: str = "c", text: str = "ok") -> Turn:
    return turn("tool", Result(call_id=call_id, content=(Text(text=text),)))


def situation(*turns: Turn) -> ConversationState:
    return read_situation(Request(turns=turns))


def test_last_words_of_the_user_count() -> None:
    assert (
        situation(user_turn("one"), turn("assistant", Text(text="x")), user_turn("two")).said
        == "two"
    )
    assert situation(user_turn("one", "two")).said == "one\ntwo"
    assert situation().said == ""
    assert situation(turn("system", Text(text="be kind"))).said == ""


def test_context_that_a_client_adds_is_not_what_the_user_said() -> None:
    reminder = "<system-reminder>\nbe brief\n</system-reminder>"
    assert situation(user_turn(reminder, "hello")).said == "hello"
    assert situation(user_turn("hello"), user_turn(reminder)).said == "hello"
    assert situation(
        user_turn("<environment_context a='b'>x</environment_context>")
    ).said.startswith("<env")
    assert situation(user_turn("<b>bold</b> words")).said == "<b>bold</b> words"
    assert situation(user_turn("  ")).said == "  "


def test_results_after_the_last_answer_are_fresh() -> None:
    found = situation(user_turn("go"), call(), result(text="21C"))
    assert [(each.tool, each.text) for each in found.results] == [("f", "21C")]
    assert (found.said, found.rounds) == ("go", 1)


def test_results_that_were_answered_are_not_fresh() -> None:
    answered = turn("assistant", Text(text="done"))
    assert situation(user_turn("go"), call(), result(), answered, user_turn("more")).results == ()


def test_words_beside_results_do_not_make_them_old() -> None:
    found = situation(user_turn("go"), call(), result(), user_turn("by the way"))
    assert len(found.results) == 1
    assert (found.said, found.rounds) == ("go", 1)


def test_results_without_a_call_are_reported_too() -> None:
    found = situation(result("unknown"))
    assert [each.tool for each in found.results] == ["the tool"]
    assert situation(result("unknown"), user_turn("well?")).said == "well?"


def test_rounds_are_counted_since_the_user_spoke() -> None:
    rounds = (call("a"), result("a"), result("b"), call("c"), result("c"))
    assert situation(user_turn("go"), *rounds).rounds == 2
    assert situation(*rounds, user_turn("again"), call("d"), result("d")).rounds == 1


def test_results_of_providers_are_not_the_clients() -> None:
    search = turn("assistant", Result(call_id="s", executor="provider"))
    assert situation(user_turn("go"), search).results == ()
    assert situation(turn("tool", Result(call_id="s", executor="provider"))).results == ()


def test_media_is_counted_and_named() -> None:
    picture = Media(kind="image", media_type="image/png", data="aGk=")
    assert situation(turn("user", picture, Text(text="see"))).media == 1
    opaque = Opaque(dialect="messages", type="x", raw=Raw(b"{}"))
    output = text_of_result(Result(call_id="c", content=(Text(text="a"), picture, opaque)))
    assert output == "a\n[image image/png]\n[something that is no text]"
    assert text_of_result(Result(call_id="c", content=(Media(kind="file"),))) == "[file]"


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


CALL = Call(call_id="c", name="call", input="0123456789")


def test_first_stop_sequence_ends_the_text_and_what_follows() -> None:
    parts: list[Part] = [Text(text="one two"), Text(text="three"), CALL]
    assert cut_at_stop(parts, ("hree", "", "two")) == ([Text(text="one ")], "two")
    assert cut_at_stop([CALL, Text(text="aXb")], ("X",)) == ([CALL, Text(text="a")], "X")
    assert cut_at_stop(parts, ("nowhere",)) == (parts, None)


def test_what_fits_is_not_cut() -> None:
    assert cut_at_tokens([Text(text="12345678")], 2) is None


def test_text_is_cut_where_the_tokens_end() -> None:
    parts: list[Part] = [Text(text="12345678"), Refusal(text="12345678")]
    cut = Text(text="1234", status="incomplete")
    assert cut_at_tokens(parts, 1) == [cut]
    assert cut_at_tokens(parts, 2) == [parts[0]]
    assert cut_at_tokens(parts, 3) == [parts[0], Refusal(text="1234", status="incomplete")]


def test_call_is_cut_inside_its_input() -> None:
    assert cut_at_tokens([CALL], 2) == [
        Call(call_id="c", name="call", input="0123", status="incomplete")
    ]
    assert cut_at_tokens([CALL], 1) == [Call(call_id="c", name="call", status="incomplete")]


def test_thought_that_is_cut_has_no_seal() -> None:
    thought = Reasoning(summary=("12345678",), seals=(Seal("signature", "x"),))
    assert cut_at_tokens([thought], 1) == [Reasoning(summary=("1234",), status="incomplete")]


def test_what_cannot_be_cut_is_kept() -> None:
    opaque = Opaque(dialect="chat", type="x", raw=Raw(b'"12345678"'))
    media = Media(kind="image", url="https://example.com/")
    result = Result(call_id="c", content=(Text(text="12345678"),))
    for part in (opaque, media, result):
        assert cut_at_tokens([part], 1) == [part]


def check(thought: Reasoning) -> None:
    turns = (Turn(role="user", parts=(Text(text="hi"),)), Turn(role="assistant", parts=(thought,)))
    check_seals(Request(turns=turns))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_thought_that_comes_back_is_accepted(dialect: Dialect) -> None:
    check(sealed_thought("What is meant? 🤔", dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_damaged_seal_is_refused_and_says_where(dialect: Dialect) -> None:
    thought = sealed_thought("hm", dialect)
    [seal] = thought.seals
    with pytest.raises(RequestRefused, match=r"turn 1: expected .* damaged"):
        check(replace(thought, seals=(Seal(seal.kind, seal.data.replace(".a", ".b") + "x"),)))


def test_signature_over_other_words_is_refused() -> None:
    with pytest.raises(RequestRefused, match="other words"):
        check(replace(sealed_thought("hm", "messages"), summary=("ha",)))


def test_signature_without_the_words_is_accepted() -> None:
    check(replace(sealed_thought("hm", "messages"), summary=()))


def test_summary_beside_encrypted_thought_may_differ() -> None:
    check(replace(sealed_thought("hm", "responses"), summary=("shorter",)))


def test_other_providers_seals_are_not_looked_at() -> None:
    check(Reasoning(summary=("x",), seals=(Seal("signature", "EqQB"), Seal("encrypted", "gAAA"))))
