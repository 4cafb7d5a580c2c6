"""Who is served: the operator's keys, wherever a client puts them."""

from hashlib import sha256

import pytest

from dragoman.config.settings import KeySettings
from dragoman.core.failures import error_info, status_of
from dragoman.server.access import Caller, KeyRing

Headers = list[tuple[bytes, bytes]]
HOST = (b"host", b"127.0.0.1")


def ring() -> KeyRing:
    return KeyRing(("first-key", "second-key"))


def bearer(key: bytes) -> Headers:
    return [HOST, (b"authorization", b"Bearer " + key)]


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer second-key")],
        [(b"authorization", b"bearer   second-key ")],
        [(b"x-api-key", b"second-key")],
        [(b"api-key", b" second-key")],
    ],
)
def test_known_key_is_found_wherever_clients_put_it(headers: Headers) -> None:
    caller = ring().identify([HOST, *headers])
    assert caller is not None
    assert caller.id == ring().identify(bearer(b"second-key")).id  # type: ignore[union-attr]
    assert caller.key is None  # a key of the gateway is not passed on


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Basic second-key")],
        [(b"authorization", b"second-key")],
        [(b"x-api-key", b"")],
        [(b"x-api-key", b"second-ke")],
        [(b"x-api-key", b"second-key2")],
        [(b"x-api-key", b"SECOND-KEY")],
        [(b"x-other", b"second-key")],
    ],
)
def test_anything_but_a_known_key_is_nobody(headers: Headers) -> None:
    assert ring().identify([HOST, *headers]) is None


def test_refusal_says_where_the_key_belongs_and_not_which_came() -> None:
    missing = ring().refusal([HOST])
    wrong = ring().refusal(bearer(b"hunter2"))
    assert "Authorization: Bearer" in missing.message
    assert "x-api-key" in missing.message
    assert missing.message.endswith("none came")
    assert wrong.message.endswith("the key in the request is not one of them")
    assert "hunter2" not in wrong.message
    assert wrong.headers == ((b"www-authenticate", b"Bearer"),)
    info = error_info(wrong)
    assert (info.kind, status_of(info), info.code) == ("authentication", 401, "invalid_api_key")


def test_without_keys_everyone_is_served() -> None:
    open_ring = KeyRing(())
    assert open_ring.is_open
    assert open_ring.identify([HOST]) == Caller(None, "")


def test_without_keys_the_callers_own_is_kept_for_the_upstream() -> None:
    caller = KeyRing(()).identify(bearer(b"sk-mine"))
    assert caller is not None
    assert caller.key == "sk-mine"


def test_bearer_token_comes_first_whatever_the_order() -> None:
    headers = [(b"x-api-key", b"one"), (b"authorization", b"Bearer two")]
    caller = KeyRing(()).identify(headers)
    assert caller is not None
    assert caller.key == "two"


@pytest.mark.parametrize("is_swapped", [False, True])
def test_key_of_another_provider_beside_ours_is_the_one_passed_on(*, is_swapped: bool) -> None:
    ours, theirs = b"first-key", b"sk-provider"
    if is_swapped:
        ours, theirs = theirs, ours
    caller = ring().identify([(b"authorization", b"Bearer " + ours), (b"x-api-key", theirs)])
    alone = ring().identify(bearer(b"first-key"))
    assert caller is not None
    assert alone is not None
    assert caller.key == "sk-provider"
    assert caller.id == alone.id
    assert not ring().is_open


def test_id_distinguishes_callers_and_holds_nothing_of_the_key() -> None:
    first, second = ring().identify(bearer(b"first-key")), ring().identify(bearer(b"second-key"))
    assert first is not None
    assert second is not None
    assert first.id != second.id
    assert len(first.id) == 8
    assert first.id == KeyRing(("first-key",)).identify(bearer(b"first-key")).id  # type: ignore[union-attr]


def test_key_beyond_ascii_is_compared_as_the_bytes_it_is_sent_in() -> None:
    assert KeyRing(("schlüssel",)).identify(bearer("schlüssel".encode())) is not None


def test_a_key_that_was_accepted_is_known_again_and_a_near_miss_is_not() -> None:
    keys = ring()
    first = keys.identify(bearer(b"second-key"))
    assert first is not None
    assert keys.identify([(b"x-api-key", b"second-key")]) == first
    assert keys.identify(bearer(b"second-kez")) is None
    assert keys.identify(bearer(b"first-key")) != first


def test_a_key_that_was_accepted_alone_still_leaves_room_for_the_providers() -> None:
    keys = ring()
    keys.identify(bearer(b"second-key"))
    both = keys.identify([*bearer(b"second-key"), (b"x-api-key", b"sk-provider")])
    assert both is not None
    assert both.key == "sk-provider"


def named(**keys: str) -> dict[str, KeySettings]:
    return {
        name: KeySettings(
            digest=f"sha256:{sha256(key.encode()).hexdigest()}", inspect=name == "boss"
        )
        for name, key in keys.items()
    }


def test_named_key_is_found_by_its_digest_and_stays_here() -> None:
    ring = KeyRing((), named(team="the-key", boss="another"))
    assert not ring.is_open
    found = [ring.identify(bearer(b"the-key")) for _ in range(2)]  # compared, then remembered
    team, boss = found[0], ring.identify(bearer(b"another"))
    assert found[0] == found[1]
    assert team is not None
    assert (team.named, team.key, team.may_inspect, team.is_operator) == (
        "team",
        None,
        False,
        False,
    )
    assert boss is not None
    assert (boss.named, boss.may_inspect, boss.is_operator) == ("boss", True, True)
    assert boss.owner != team.owner


def test_digest_of_a_named_key_is_no_key() -> None:
    keys = named(team="the-key")
    ring = KeyRing((), keys)
    digest = keys["team"].digest
    for shown in (digest, digest.removeprefix("sha256:"), digest.upper()):
        assert ring.identify(bearer(shown.encode())) is None
    assert ring.identify(bearer(bytes.fromhex(digest.removeprefix("sha256:")))) is None


def test_named_key_may_come_beside_the_key_for_the_upstream() -> None:
    ring = KeyRing((), named(team="the-key"))
    caller = ring.identify([*bearer(b"sk-provider"), (b"x-api-key", b"the-key")])
    assert caller is not None
    assert (caller.named, caller.key) == ("team", "sk-provider")


def test_key_of_the_server_has_no_name_and_inspects_only_if_it_may() -> None:
    ring = KeyRing(("first-key", "second-key"), named(team="the-key"), ("second-key",))
    found = [ring.identify(bearer(key)) for key in (b"first-key", b"second-key")]
    assert [(each.named, each.may_inspect, each.is_operator) for each in found if each] == [
        ("", False, True),
        ("", True, True),
    ]
