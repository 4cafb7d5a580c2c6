"""The seeds of `make faults`: the same scene every time, and in a hundred seeds every kind of fault."""

import re
from functools import cache

from fault_plan import (
    DOORS,
    KINDS,
    UPSTREAMS,
    Scene,
    circumstances_of,
    frames_of,
    kind_of,
    scene_of,
    sent_of,
    soak_scene,
)
from fault_wire import MARK
from msgspec import structs


@cache
def hundred() -> list[Scene]:
    # Not when the module is imported: every process of a test run does that, and one of them needs the scenes.
    return [scene_of(seed) for seed in range(300, 400)]


def test_seed_gives_the_same_scene_every_time() -> None:
    for seed in (307, 350, 380, 399):
        assert scene_of(seed) == scene_of(seed)
    assert soak_scene(5) == soak_scene(5)
    assert soak_scene(5) != soak_scene(6)


def test_hundred_seeds_have_every_kind_and_every_event() -> None:
    assert {scene.kind for scene in hundred()} == set(KINDS)
    assert [scene.kind for scene in hundred()] == [kind_of(scene.seed) for scene in hundred()]
    events = {scene.event for scene in hundred()}
    stores = ("database stopped", "database cut", "database silent", "database garbage")
    assert events == {"none", "kill", "stop", "disk full", "clock", *stores}


def test_hundred_seeds_cut_a_stream_after_every_frame_for_every_pair_and_in_every_way() -> None:
    cuts = {
        (each.door, each.upstream, each.fault.kind, each.fault.frames)
        for scene in hundred()
        for each in scene.exchanges
        if scene.kind == "frames" and each.fault is not None
    }
    sizes = {
        each.upstream: len(frames_of(each.upstream, each.answer))
        for scene in hundred()[:9]
        for each in scene.exchanges
    }
    ways = ("close", "reset", "half-close", "polite end")
    assert cuts == {
        (door, upstream, way, frame)
        for door in DOORS
        for upstream in UPSTREAMS
        for way in ways
        for frame in range(sizes[upstream])
    }


def test_every_exchange_has_a_name_of_its_own_that_the_injector_finds() -> None:
    names = [each.name for scene in hundred() for each in scene.exchanges]
    assert len(set(names)) == len(names)
    for name in names:
        found = MARK.search(f'{{"model":"chat-{name}","stream":true}}'.encode())
        assert found is not None
        assert found[0].decode() == name


def test_written_calls_are_among_what_was_sent() -> None:
    written = [
        each
        for scene in hundred()
        for each in scene.exchanges
        if "<tool_call>" in str(each.answer) and not each.answer.calls
    ]
    assert written
    for exchange in written:
        calls = sent_of(exchange).calls
        assert len(calls) == len(re.findall("<tool_call>", "".join(_pieces(exchange.answer.parts))))
        assert all(call.call_id is None and call.arguments.startswith("{") for call in calls)


def _pieces(parts: tuple[object, ...]) -> list[str]:
    return [getattr(part, "text", "") for part in parts]


def test_stream_that_is_cut_before_its_end_must_not_succeed() -> None:
    scene = hundred()[0]
    exchange = next(each for each in scene.exchanges if each.is_stream)
    assert exchange.fault is not None
    last = len(frames_of(exchange.upstream, exchange.answer))
    early = structs.replace(exchange, fault=structs.replace(exchange.fault, frames=2))
    late = structs.replace(exchange, fault=structs.replace(exchange.fault, frames=last))
    assert not circumstances_of(early, "none").may_succeed
    assert circumstances_of(late, "none").may_succeed
    assert circumstances_of(early, "none").may_fail


def test_without_a_fault_nothing_but_success_is_allowed() -> None:
    exchange = structs.replace(hundred()[0].exchanges[0], fault=None)
    plain = circumstances_of(exchange, "none")
    assert (plain.may_fail, plain.may_close, plain.may_refuse) == (False, False, False)
    assert plain.may_succeed
