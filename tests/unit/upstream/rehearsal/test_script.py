"""What is answered, by the rules in their order."""

import pytest

from dragoman._json import Raw
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Media, Part, Result, Text
from dragoman.model.request import Request, Tool, ToolChoice, ToolRef, Turn
from dragoman.upstream.rehearsal.scenarios import find_scenario
from dragoman.upstream.rehearsal.script import MAX_QUOTE, Scene, compose

CITY = Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')
WEATHER = Tool(name="get_weather", schema=CITY)
TIME = Tool(name="get_time", schema=CITY)


def user(*parts: Part) -> Turn:
    return Turn(role="user", parts=parts)


def says(text: str) -> Turn:
    return user(Text(text=text))


def play(request: Request, model: str = "rehearsal") -> Outcome:
    return compose(Scene(request, "chat", find_scenario(model), "seed"))


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
    assert spoken(play(Request())) == "This is a rehearsal, and nothing was said."


def test_media_is_mentioned() -> None:
    pictures = [Media(kind="image", url="https://example.com/")] * 2
    assert spoken(play(Request(turns=(user(Text(text="see"), pictures[0]),)))) == (
        "You said: see I was shown 1 file."
    )
    assert spoken(play(Request(turns=(user(*pictures),)))).endswith("I was shown 2 files.")


def test_long_words_are_shortened() -> None:
    told = spoken(play(Request(turns=(says("x" * (MAX_QUOTE + 1)),))))
    assert told == f"You said: {'x' * MAX_QUOTE}… ({MAX_QUOTE + 1} characters in all)"


def test_failed_result_is_told_as_failed() -> None:
    result = Result(call_id="c0", content=(Text(text="boom"),), is_error=True)
    turns = (says("go"), round_of(1)[0], Turn(role="tool", parts=(result,)))
    assert spoken(play(Request(turns=turns, tools=(WEATHER,)))) == "get_weather failed: boom"


def test_choice_of_no_tool_gives_words() -> None:
    request = Request(
        turns=(says("weather"),), tools=(WEATHER,), tool_choice=ToolChoice(mode="none")
    )
    assert spoken(play(request)) == "You said: weather"


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
