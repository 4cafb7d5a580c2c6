"""Peers: who cools down for how long, who is probed, who is asked next, and which peer a conversation keeps."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dragoman.config.settings import PeerSettings, RetrySettings, Route, Settings, UpstreamSettings
from dragoman.gateway.peers import (
    FAILURE_WINDOW,
    PeerHealth,
    PeerOrder,
    PeerState,
    conversation_key,
    score_of,
)
from dragoman.gateway.route import Upstreams
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.outcome import ErrorKind
from dragoman.model.parts import Media, Text
from dragoman.model.request import Request, Role, Turn
from dragoman.upstream.retry import Failure

SETTINGS = RetrySettings(failures=3, cooldown=10.0, max_cooldown=60.0)
DOWN = Failure(kind="server", status=500)
GONE = Failure(kind="upstream")


class Peer:
    """A peer at a time that the test sets."""

    def __init__(self, settings: RetrySettings = SETTINGS) -> None:
        self.health = PeerHealth()
        self.now = 1000.0
        self.settings = settings

    def fail(
        self, failure: Failure = DOWN, model: str = "m", *, has_own_key: bool = True
    ) -> float | None:
        return self.health.failed(
            failure, model, settings=self.settings, now=self.now, has_own_key=has_own_key
        )

    @property
    def state(self) -> PeerState:
        return self.health.report(self.now).state

    def is_ready(self, model: str = "m") -> bool:
        return self.health.is_ready(model, self.now)


def cooling() -> Peer:
    peer = Peer()
    assert [peer.fail() for _ in range(3)] == [None, None, 10.0]
    return peer


def test_a_peer_cools_down_after_failures_in_a_row() -> None:
    peer = Peer()
    assert peer.fail() is None
    assert peer.fail() is None
    assert peer.is_ready()
    assert peer.fail() == 10.0
    assert (peer.state, peer.is_ready()) == (PeerState.COOLING, False)
    assert peer.health.report(peer.now).text == (
        "cools down for 10 s more, after 3 failures, the last: status 500"
    )


def test_an_answer_between_two_failures_begins_the_count_again() -> None:
    peer = Peer()
    peer.fail()
    peer.fail()
    peer.health.succeeded("m")
    assert [peer.fail() for _ in range(3)] == [None, None, 10.0]


def test_failures_that_are_far_apart_are_not_in_a_row() -> None:
    peer = Peer()
    for _ in range(10):
        assert peer.fail() is None
        peer.now += FAILURE_WINDOW + 1


def test_after_the_cooldown_one_attempt_at_a_time_probes() -> None:
    peer = cooling()
    peer.now += 9.9
    assert not peer.is_ready()
    assert peer.health.begin(peer.now) == 0, "the last resort is no probe"
    peer.now += 0.1
    assert (peer.state, peer.is_ready()) == (PeerState.DUE, True)
    probe = peer.health.begin(peer.now)
    assert probe
    assert (peer.state, peer.is_ready()) == (PeerState.PROBING, False)
    assert peer.health.begin(peer.now) == 0
    peer.health.end(probe)
    assert (peer.state, peer.is_ready()) == (PeerState.DUE, True)


def test_a_probe_that_ended_does_not_end_a_later_one() -> None:
    peer = cooling()
    peer.now += 10
    first = peer.health.begin(peer.now)
    peer.health.end(first)
    second = peer.health.begin(peer.now)
    assert second not in (0, first)
    peer.health.end(first)
    assert not peer.is_ready()


def test_a_probe_that_was_answered_hinders_no_later_one_while_its_answer_runs() -> None:
    peer = cooling()
    peer.now += 10
    first = peer.health.begin(peer.now)
    assert peer.health.replied(200)
    for _ in range(3):
        peer.fail()
    assert (peer.state, peer.is_ready()) == (PeerState.COOLING, False)
    peer.now += 60
    assert (peer.state, peer.is_ready()) == (PeerState.DUE, True)
    second = peer.health.begin(peer.now)
    assert second not in (0, first)
    peer.health.end(first)
    assert (peer.state, peer.is_ready()) == (PeerState.PROBING, False)


def test_a_failed_probe_doubles_the_cooldown_up_to_the_limit() -> None:
    peer = cooling()
    lengths: list[float | None] = []
    for _ in range(5):
        peer.now = peer.health.due("m")
        probe = peer.health.begin(peer.now)
        lengths.append(peer.fail())
        peer.health.end(probe)
    assert lengths == [20.0, 40.0, 60.0, 60.0, 60.0]


def test_an_answer_ends_the_cooldown_and_its_length() -> None:
    peer = cooling()
    peer.now += 10
    peer.health.end(peer.health.begin(peer.now))
    assert peer.health.replied(200)
    assert not peer.health.replied(200), "it was back already"
    assert peer.state is PeerState.UP
    peer.health.succeeded("m")
    assert [peer.fail() for _ in range(3)] == [None, None, 10.0]


def test_a_reply_that_becomes_a_failure_continues_the_count() -> None:
    """A server that answers 200, and then an error in place of the stream, is not well."""
    peer = cooling()
    peer.now += 10
    peer.health.replied(200)
    assert peer.fail(GONE) == 20.0


def test_failures_of_attempts_that_began_before_do_not_prolong_a_cooldown() -> None:
    peer = cooling()
    due = peer.health.due("m")
    for _ in range(20):
        assert peer.fail() is None
    assert peer.health.due("m") == due


@pytest.mark.parametrize("status", [200, 400, 404, 422])
def test_a_reply_that_says_nothing_bad_about_the_peer_brings_it_back(status: int) -> None:
    peer = cooling()
    assert peer.health.replied(status)


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 503, 529])
def test_a_reply_of_a_peer_that_does_not_serve_does_not_bring_it_back(status: int) -> None:
    peer = cooling()
    assert not peer.health.replied(status)
    assert peer.health.is_out


@pytest.mark.parametrize(
    ("kind", "status", "own", "clients"),
    [
        ("invalid_request", 400, False, False),
        ("not_found", 404, False, False),
        ("context_length", 400, False, False),
        ("content_policy", 400, False, False),
        ("conflict", 409, False, False),
        ("timeout", 408, True, True),
        ("server", 500, True, True),
        ("overloaded", 529, True, True),
        ("upstream", None, True, True),
        ("timeout", None, True, True),
        ("truncated", None, True, True),
        ("protocol", None, True, True),
        ("invalid_request", None, False, False),
        # With the caller's key, these are about the caller: nobody else must lose the peer for it.
        ("authentication", 401, True, False),
        ("permission", 403, True, False),
        ("quota", 429, True, False),
        ("rate_limit", 429, True, False),
        ("rate_limit", None, True, False),
    ],
)
def test_which_failures_count(
    kind: ErrorKind, status: int | None, *, own: bool, clients: bool
) -> None:
    failure = Failure(kind=kind, status=status)
    for has_own_key, counts in ((True, own), (False, clients)):
        peer = Peer(structs.replace(SETTINGS, failures=1))
        assert (peer.fail(failure, has_own_key=has_own_key) is not None) is counts


def test_a_limit_of_the_gateway_itself_is_no_failure_of_the_peer() -> None:
    peer = Peer(structs.replace(SETTINGS, failures=1))
    assert peer.fail(Failure(kind="overloaded", is_local=True)) is None


def test_retry_after_of_a_503_is_the_cooldown_within_its_bound() -> None:
    peer = Peer()
    assert peer.fail(Failure(kind="overloaded", status=503, retry_after=7.0)) == 7.0
    assert peer.health.due("any") == peer.now + 7
    longer = Peer()
    assert longer.fail(Failure(kind="overloaded", status=503, retry_after=1e9)) == 60.0
    again = Failure(kind="overloaded", status=503, retry_after=30.0)
    assert peer.fail(again) is None, "it cools down already, and is reported once"
    assert peer.health.due("any") == peer.now + 30


def test_retry_after_of_a_429_rests_the_model_alone() -> None:
    peer = Peer()
    assert peer.fail(Failure(kind="rate_limit", status=429, retry_after=20.0), "busy") is None
    assert not peer.is_ready("busy")
    assert peer.is_ready("other")
    report = peer.health.report(peer.now)
    assert (report.state, report.models, report.is_well) == (PeerState.UP, 1, False)
    assert report.text == "1 model rests after a rate limit"
    peer.now += 20
    assert peer.is_ready("busy")
    assert peer.health.report(peer.now).is_well


def test_an_answer_for_a_model_ends_its_rest() -> None:
    peer = Peer()
    peer.fail(Failure(kind="rate_limit", status=429, retry_after=20.0), "busy")
    peer.health.succeeded("busy")
    assert peer.is_ready("busy")


def test_models_with_names_that_clients_invent_do_not_fill_the_memory() -> None:
    peer = Peer()
    for number in range(2000):
        wait = 30.0 + number / 1000
        peer.fail(Failure(kind="rate_limit", status=429, retry_after=wait), f"m{number}")
    assert peer.health.report(peer.now).models == 256
    assert not peer.is_ready("m1999")
    assert peer.is_ready("m0"), "it was due first"


def test_a_zero_cooldown_switches_all_of_it_off() -> None:
    peer = Peer(structs.replace(SETTINGS, cooldown=0.0))
    for failure in (DOWN, Failure(kind="rate_limit", status=429, retry_after=20.0)):
        assert [peer.fail(failure) for _ in range(9)] == [None] * 9
    assert peer.is_ready()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), st.sampled_from([500, 503, 429, None])),
        st.tuples(st.just("reply"), st.sampled_from([200, 404, 500])),
        st.tuples(st.just("wait"), st.floats(0, 100)),
        st.tuples(st.just("begin"), st.none()),
        st.tuples(st.just("end"), st.none()),
    ),
    max_size=60,
)


@given(STEPS, st.floats(0, 1e6))
def test_whatever_happens_a_peer_is_asked_again_within_the_longest_cooldown(
    steps: Sequence[tuple[str, float | None]], wait: float
) -> None:
    peer = Peer()
    probes: list[int] = []
    for what, value in steps:
        match what:
            case "fail":
                status = None if value is None else int(value)
                kind: ErrorKind = "rate_limit" if status == 429 else "upstream"
                peer.fail(Failure(kind=kind, status=status, retry_after=wait if status else None))
            case "reply":
                peer.health.replied(int(value or 0))
            case "wait":
                peer.now += value or 0.0
            case "begin":
                probes.append(peer.health.begin(peer.now))
            case _:
                peer.health.end(probes.pop() if probes else 0)
        assert peer.health.due("m") <= peer.now + 60.0 + 1e-6
        assert peer.health.report(peer.now).text
    for probe in probes:
        peer.health.end(probe)
    peer.now += 61
    assert peer.is_ready()


# --- the order of one request -----------------------------------------------------------------------------------------


def upstreams_of(weights: Sequence[float], *, fallback: bool = True) -> Upstreams:
    url = "http://127.0.0.1:1/v1"
    peers = [
        PeerSettings(name=f"p{number}", base_url=url, weight=weight)
        for number, weight in enumerate(weights)
    ]
    one = UpstreamSettings(kind="chat", peers=tuple(peers))
    spare = UpstreamSettings(kind="chat", base_url=url)
    route = Route(model="*", upstream="one", fallback=("spare",) if fallback else ())
    return Upstreams(Settings(upstreams={"one": one, "spare": spare}, routes=(route,)))


def order_of(upstreams: Upstreams, key: bytes, now: float = 0.0) -> list[str]:
    """The peers in the order in which a request would try them."""
    order = PeerOrder(upstreams.targets("chat", "m"), upstreams.health, lambda: key)
    found: list[AttemptTarget] = []
    while (target := order.next(now)) is not None:
        found.append(order.take(target, now))
    return [target.peer for target in found]


def rest(upstreams: Upstreams, peer: str, seconds: float) -> None:
    failure = Failure(kind="overloaded", status=503, retry_after=seconds)
    settings = RetrySettings(max_cooldown=3600.0)
    upstreams.health[peer].failed(failure, "m", settings=settings, now=0.0, has_own_key=True)


@given(st.binary(max_size=16))
def test_every_peer_comes_before_the_fallback_and_each_once(key: bytes) -> None:
    found = order_of(upstreams_of([1.0, 2.0, 0.5]), key)
    assert sorted(found[:3]) == ["one/p0", "one/p1", "one/p2"]
    assert found[3:] == ["spare"]
    assert order_of(upstreams_of([1.0, 2.0, 0.5]), key) == found


@given(st.binary(max_size=16), st.sampled_from(["one/p0", "one/p1", "one/p2"]))
def test_a_peer_that_rests_moves_only_its_own_conversations(key: bytes, resting: str) -> None:
    before = order_of(upstreams_of([1.0, 1.0, 1.0], fallback=False), key)
    upstreams = upstreams_of([1.0, 1.0, 1.0], fallback=False)
    rest(upstreams, resting, 100.0)
    after = order_of(upstreams, key)
    assert after == [peer for peer in before if peer != resting] + [resting]


def test_of_targets_that_all_rest_only_the_one_that_is_due_first_is_tried() -> None:
    upstreams = upstreams_of([1.0, 1.0])
    for peer, seconds in (("one/p0", 50.0), ("one/p1", 40.0), ("spare", 30.0)):
        rest(upstreams, peer, seconds)
    assert order_of(upstreams, b"k") == ["spare"]


def test_a_target_that_rests_is_the_last_resort_after_those_that_are_up() -> None:
    upstreams = upstreams_of([1.0, 1.0])
    rest(upstreams, "one/p0", 50.0)
    rest(upstreams, "one/p1", 40.0)
    assert order_of(upstreams, b"k") == ["spare", "one/p1"]


def test_a_peer_without_weight_is_asked_after_all_others() -> None:
    upstreams = upstreams_of([0.0, 1.0, 1.0], fallback=False)
    for number in range(200):
        assert order_of(upstreams, f"{number}".encode())[-1] == "one/p0"


def test_conversations_are_divided_by_weight() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    count = 8000
    found = Counter(
        max(weights, key=lambda peer: score_of(peer, weights[peer], f"{number}".encode()))
        for number in range(count)
    )
    for peer, weight in weights.items():
        assert found[peer] / count == pytest.approx(weight / 8, abs=0.02)


def test_a_new_peer_takes_conversations_and_moves_none_between_the_others() -> None:
    for number in range(500):
        key = f"{number}".encode()
        old = max("ab", key=lambda peer: score_of(peer, 1.0, key))
        new = max("abc", key=lambda peer: score_of(peer, 1.0, key))
        assert new in (old, "c")


# --- what identifies a conversation -----------------------------------------------------------------------------------


def said(role: Role, text: str, *, head: bool = False) -> Turn:
    return Turn(role=role, parts=(Text(text=text),), head=head)


SYSTEM = said("system", "You help.", head=True)
FIRST = (SYSTEM, said("user", "What is up?"))
LATER = (*FIRST, said("assistant", "Much."), said("user", "Tell me."))


def test_a_conversation_has_the_same_key_at_each_turn() -> None:
    assert conversation_key(Request(turns=FIRST)) == conversation_key(Request(turns=LATER))


def test_conversations_that_begin_otherwise_have_other_keys() -> None:
    picture = Turn(role="user", parts=(Media(kind="image", data="aGk="),))
    other = Turn(role="user", parts=(Media(kind="image", data="aG8="),))
    requests = [
        Request(turns=FIRST),
        Request(turns=(SYSTEM, said("user", "What is down?"))),
        Request(turns=(said("system", "You hinder."), FIRST[1])),
        Request(turns=(picture,)),
        Request(turns=(other,)),
        Request(turns=FIRST, cache_key="one"),
        Request(turns=FIRST, cache_key="two"),
        Request(turns=FIRST, session="three"),
    ]
    assert len({conversation_key(request) for request in requests}) == len(requests)


def test_the_clients_own_key_wins_over_how_the_conversation_begins() -> None:
    one = Request(turns=FIRST, cache_key="k")
    two = Request(turns=(said("user", "Something else"),), cache_key="k", session="s")
    assert conversation_key(one) == conversation_key(two)


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    long = "x" * 100_000
    requests = [Request(turns=(said("user", long + end),)) for end in "ab"]
    assert conversation_key(requests[0]) == conversation_key(requests[1])
