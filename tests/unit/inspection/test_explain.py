"""What a person is told about a reason or a problem."""

from dragoman.core.calls import judge
from dragoman.inspection.explain import EFFECTS, REASONS
from dragoman.model.parts import Call


def test_every_reason_of_a_verdict_has_its_words() -> None:
    calls = (
        Call(call_id="a", name="f", input="{}"),
        Call(call_id="a", name="f", input="{"),
        Call(call_id="a", name="f", input="{}", status="incomplete"),
        Call(call_id="a", name="", input="{}"),
        Call(call_id="a", name="f", input="{}", executor="provider"),
    )
    assert {judge(call).reason for call in calls} == set(REASONS)
    assert REASONS["complete"] == "yes"


def test_effects_are_whole_sentences_on_one_line() -> None:
    for kind, effect in EFFECTS.items():
        assert kind.isidentifier()
        assert effect[0].isupper() or effect.startswith("pydantic")
        assert effect.endswith((".", "?"))
        assert "\n" not in effect
