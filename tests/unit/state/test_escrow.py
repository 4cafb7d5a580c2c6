"""Seals are put back before the call they led to, and nowhere else."""

from dragoman.model.parts import Call, Part, Reasoning, Result, Seal, Text
from dragoman.model.request import Request, Turn
from dragoman.state.escrow import escrow_key, put_back
from dragoman.store.records import Escrowed

SEALED = Reasoning(content=("Hm.",), seals=(Seal("signature", "s1"),))
LATER = Reasoning(content=("Now.",), seals=(Seal("signature", "s2"),))
ONE = Call(call_id="c1", name="f", input='{"a": 1, "b": [{"d": 2, "c": 3}]}')
TWO = Call(call_id="c2", name="f", input="not json")


def filled(*parts: Part, kept: dict[Call, Escrowed]) -> tuple[Part, ...]:
    turns = (
        Turn(role="user", parts=(Text(text="hi"),)),
        Turn(role="assistant", parts=parts),
        Turn(role="tool", parts=(Result(call_id="c1"),)),
    )
    by_key = {escrow_key(call): escrowed for call, escrowed in kept.items()}
    changed = put_back(Request(turns=turns), by_key)
    assert (changed.turns[0], changed.turns[2]) == (turns[0], turns[2])
    return changed.turns[1].parts


def test_thoughts_stand_before_the_words_that_came_with_the_first_call() -> None:
    kept = {ONE: Escrowed(before=(SEALED,)), TWO: Escrowed(before=(LATER,))}
    said = Text(text="So.")
    assert filled(said, ONE, TWO, kept=kept) == (SEALED, said, ONE, LATER, TWO)


def test_thoughts_that_the_client_kept_as_text_are_not_said_twice() -> None:
    unsealed = Reasoning(content=("Hm.",))
    assert filled(unsealed, ONE, kept={ONE: Escrowed(before=(SEALED,))}) == (SEALED, ONE)
    assert filled(unsealed, ONE, kept={TWO: Escrowed(before=(SEALED,))}) == (unsealed, ONE)


def test_a_calls_own_seals_are_added_once() -> None:
    seal = Seal("thought", "{}")
    (call,) = filled(ONE, kept={ONE: Escrowed(seals=(seal,))})
    assert isinstance(call, Call)
    assert call.seals == (seal,)
    sealed = Call(call_id="c1", name="f", input=ONE.input, seals=(seal,))
    assert filled(sealed, kept={ONE: Escrowed(seals=(seal,))}) == (sealed,)


def test_a_call_is_known_by_its_id_and_by_what_it_says_in_any_order() -> None:
    same = Call(call_id="c1", name="f", input='{"b":[{"c":3,"d":2}],"a":1}')
    assert escrow_key(same) == escrow_key(ONE)
    for other in (
        Call(call_id="c1", name="f", input='{"a":2}'),
        Call(call_id="c1", name="g", input=ONE.input),
        Call(call_id="c3", name="f", input=ONE.input),
    ):
        assert escrow_key(other) != escrow_key(ONE)


def test_a_call_whose_input_nests_too_deep_to_be_compared_is_known_by_its_text() -> None:
    deep = Call(call_id="c1", name="f", input="[" * 600 + "]" * 600)
    other = Call(call_id="c1", name="f", input="[" * 601 + "]" * 601)
    assert escrow_key(deep) != escrow_key(other)
    assert filled(deep, kept={deep: Escrowed(before=(SEALED,))}) == (SEALED, deep)
