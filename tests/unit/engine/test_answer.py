"""What is kept of an answer: always something that can be sent again."""

import pytest

from dragoman._json import Raw
from dragoman.engine.answer import compose_turns
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Turn
from engine_models import call

SEARCH = Call(call_id="s", name="web_search", kind="web_search", executor="provider")
FOUND = Result(call_id="s", executor="provider")
THOUGHT = Reasoning(summary=("hm",))
SAID = Text(text="Hi")
NOTE = Opaque(dialect="responses", type="note", raw=Raw(b"{}"))
HALF = Text(text="Hal", status="incomplete")


def kept(*parts: Part, is_cut: bool = True) -> tuple[Part, ...]:
    turns = compose_turns(dict(enumerate(parts)), {}, is_cut=is_cut)
    return turns[0].parts if turns else ()


def test_parts_stand_in_their_order_and_results_in_that_of_the_calls() -> None:
    one, two = Result(call_id="a"), Result(call_id="b")
    turns = compose_turns({2: call(), 0: SAID, 1: call()}, {2: two, 1: one}, is_cut=False)
    assert turns == (
        Turn(role="assistant", parts=(SAID, call(), call())),
        Turn(role="tool", parts=(one, two)),
    )


def test_whole_answer_stays_as_it_is() -> None:
    parts = (THOUGHT, Text(), SEARCH, THOUGHT)
    assert kept(*parts, is_cut=False) == parts


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ((THOUGHT, SAID, HALF), (THOUGHT, SAID, HALF)),
        ((THOUGHT, Text(status="incomplete")), ()),
        ((SAID, THOUGHT, call(status="incomplete")), (SAID,)),
        ((THOUGHT, call(), THOUGHT), (THOUGHT, call())),
        ((SAID, Reasoning(status="incomplete")), (SAID,)),
        ((SAID, SEARCH), (SAID,)),
        ((SAID, SEARCH, FOUND), (SAID, SEARCH, FOUND)),
        ((Refusal(text="No"), Refusal()), (Refusal(text="No"),)),
        ((SAID, Media(kind="image", url="u")), (SAID, Media(kind="image", url="u"))),
        ((SAID, Media(kind="image", status="incomplete")), (SAID,)),
        ((SAID, NOTE), (SAID, NOTE)),
    ],
)
def test_cut_answer_ends_with_something_a_provider_takes(
    parts: tuple[Part, ...], left: tuple[Part, ...]
) -> None:
    assert kept(*parts) == left


def test_nothing_said_is_no_turn() -> None:
    assert compose_turns({}, {}, is_cut=True) == ()
