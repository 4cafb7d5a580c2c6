"""The stage for a whole answer: it finds what one that is made at once finds, and costs nothing where nothing begins."""

from dragoman.core.tool_cache import Kept
from dragoman.gateway.plan import LazyTextCallStage, search_for
from dragoman.model.events import Event, Finished, PartEnded, PartStarted, Started, TextDelta
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request, Tool
from dragoman.textcalls.stage import stage_for

TOOLS = Kept([Tool(kind="function", name="get_weather")])
WRITTEN = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'


def late(seed: str = "s") -> LazyTextCallStage:
    sought = search_for(TOOLS, "auto", "some-model")
    assert sought is not None
    return LazyTextCallStage(sought, seed)


def answer(text: str) -> tuple[Event, ...]:
    return (
        Started(),
        PartStarted(0, Text(text="")),
        TextDelta(0, text),
        PartEnded(0, Text(text=text)),
        Finished("stop"),
    )


def test_it_tells_what_a_stage_that_is_made_at_once_tells() -> None:
    request = Request(model="some-model", tools=TOOLS)
    at_once = stage_for(request, model="some-model", seed="s")
    assert at_once is not None
    made_late = late()
    told = [one for event in answer(WRITTEN) for one in made_late.feed(event)]
    assert told == [one for event in answer(WRITTEN) for one in at_once.feed(event)]
    calls = [one for one in told if isinstance(one, PartEnded) and isinstance(one.value, Call)]
    assert len(calls) == 1
    assert made_late.has_changed


def test_plain_text_begins_nothing_and_leaves_no_problem() -> None:
    stage = late()
    assert stage.begins_in("It is sunny in Oslo.") is None
    assert stage.begins_in(WRITTEN) is not None
    assert not stage.problems
    assert not stage.has_changed


def test_what_is_sought_is_found_once_for_the_same_tools_and_model() -> None:
    assert search_for(TOOLS, "auto", "a-model") is search_for(TOOLS, "auto", "a-model")


def test_without_tools_nothing_is_sought() -> None:
    assert search_for((), "auto", "some-model") is None
