"""Rate limits reported in the words of the client's vendor."""

import pytest

from dragoman.model.parts import Dialect
from dragoman.server.rate_limits import limit_headers

NOW = 1_700_000_000.5  # 2023-11-14T22:13:20.5Z

OPENAI = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-limit-tokens": "30000",
    "x-ratelimit-remaining-requests": "499",
    "x-ratelimit-remaining-tokens": "29000",
    "x-ratelimit-reset-requests": "120ms",
    "x-ratelimit-reset-tokens": "1m2.5s",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:21Z",
    "anthropic-ratelimit-tokens-limit": "40000",
    "anthropic-ratelimit-tokens-remaining": "39000",
    "anthropic-ratelimit-tokens-reset": "2023-11-14T22:14:23Z",
    "anthropic-ratelimit-input-tokens-limit": "1",
    "anthropic-ratelimit-input-tokens-remaining": "1",
    "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:14:23Z",
}
NOISE = {
    "content-type": "text/event-stream",
    "date": "today",
    "x-request-id": "req_1",
    "server": "x",
}
CODEX = {
    "x-codex-primary-used-percent": "42.5",
    "x-codex-secondary-reset-at": "1700000100",
    "x-codex-credits-balance": "3",
    "x-gpt-special-primary-used-percent": "7",
}


def mapped(door: Dialect, dialect: Dialect, headers: dict[str, str]) -> dict[str, str]:
    pairs = limit_headers(door, dialect, {**NOISE, **headers}, NOW)
    assert len(dict(pairs)) == len(pairs)
    return {name.decode(): value.decode() for name, value in pairs}


@pytest.mark.parametrize("door", ["chat", "responses", "messages"])
@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_answer_without_limits_has_no_limit_headers(door: Dialect, dialect: Dialect) -> None:
    assert mapped(door, dialect, {}) == {}


@pytest.mark.parametrize("door", ["chat", "responses"])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_between_doors_of_one_vendor_limits_pass_as_they_are(
    door: Dialect, dialect: Dialect
) -> None:
    own = {**OPENAI, "x-ratelimit-limit-project-tokens": "9"}
    assert mapped(door, dialect, own) == own


def test_anthropic_limits_pass_to_anthropic_clients_with_every_family() -> None:
    own = {**ANTHROPIC, "anthropic-ratelimit-unified-5h-status": "allowed"}
    assert mapped("messages", "messages", own) == own


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_openai_limits_become_anthropics(dialect: Dialect) -> None:
    assert mapped("messages", dialect, OPENAI) == {
        "anthropic-ratelimit-requests-limit": "500",
        "anthropic-ratelimit-requests-remaining": "499",
        "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:21Z",
        "anthropic-ratelimit-tokens-limit": "30000",
        "anthropic-ratelimit-tokens-remaining": "29000",
        "anthropic-ratelimit-tokens-reset": "2023-11-14T22:14:23Z",
    }


@pytest.mark.parametrize("door", ["chat", "responses"])
def test_anthropic_limits_become_openais(door: Dialect) -> None:
    assert mapped(door, "messages", ANTHROPIC) == {
        "x-ratelimit-limit-requests": "50",
        "x-ratelimit-remaining-requests": "49",
        "x-ratelimit-reset-requests": "500ms",
        "x-ratelimit-limit-tokens": "40000",
        "x-ratelimit-remaining-tokens": "39000",
        "x-ratelimit-reset-tokens": "1m2.5s",
    }


def test_input_tokens_stand_in_where_tokens_are_not_counted_together() -> None:
    apart = {
        "anthropic-ratelimit-input-tokens-remaining": "10",
        "anthropic-ratelimit-output-tokens-remaining": "5",
    }
    assert mapped("chat", "messages", apart) == {"x-ratelimit-remaining-tokens": "10"}


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("6ms", "22:13:21"),
        ("0s", "22:13:21"),
        ("59.5s", "22:14:20"),
        ("6m0s", "22:19:21"),
        ("1h0m0s", "23:13:21"),
        ("1d", "22:13:21"),
        ("30", "22:13:51"),
    ],
)
def test_durations_become_times(written: str, at: str) -> None:
    reset = mapped("messages", "chat", {"x-ratelimit-reset-tokens": written})
    assert reset["anthropic-ratelimit-tokens-reset"][11:] == f"{at}Z"


@pytest.mark.parametrize(
    ("at", "written"),
    [
        ("2023-11-14T22:13:20Z", "0ms"),
        ("2023-11-14T22:13:20.512Z", "12ms"),
        ("2023-11-14T22:13:22+00:00", "1.5s"),
        ("2023-11-14T23:13:21", "1h0m0.5s"),
        ("2023-11-14T22:19:20.5Z", "6m0s"),
    ],
)
def test_times_become_durations(at: str, written: str) -> None:
    reset = mapped("chat", "messages", {"anthropic-ratelimit-requests-reset": at})
    assert reset == {"x-ratelimit-reset-requests": written}


@pytest.mark.parametrize("odd", ["", "soon", "nan", "-5", "1e99", "9" * 300, "5x"])
def test_what_cannot_be_read_is_not_reported(odd: str) -> None:
    openai = {"x-ratelimit-reset-tokens": odd, "x-ratelimit-limit-tokens": odd + "x"}
    anthropic = {
        "anthropic-ratelimit-requests-reset": odd,
        "anthropic-ratelimit-requests-limit": "²",
    }
    assert mapped("messages", "chat", openai) == {}
    assert mapped("chat", "messages", anthropic) == {}


@pytest.mark.parametrize("door", ["chat", "responses", "messages"])
def test_codex_limits_of_a_responses_server_pass_to_every_client(door: Dialect) -> None:
    heard = mapped(door, "responses", CODEX)
    assert {name: heard[name] for name in CODEX} == CODEX


def test_codex_limits_come_from_responses_servers_only() -> None:
    assert mapped("responses", "chat", CODEX) == {}
    assert mapped("messages", "messages", CODEX) == {}
    assert mapped("responses", "responses", {"x-codex-turn-state": "opaque"}) == {}


WINDOWS = {
    "x-codex-primary-used-percent": "42.5",
    "x-codex-primary-window-minutes": "300",
    "x-codex-primary-reset-at": "1700003600",
    "x-codex-secondary-used-percent": "60",
    "x-codex-secondary-window-minutes": "10080",
    "x-codex-secondary-reset-at": "1700600000",
}


@pytest.mark.parametrize("door", ["chat", "responses"])
def test_openai_clients_hear_of_the_fullest_window_in_hundredths(door: Dialect) -> None:
    heard = mapped(door, "responses", WINDOWS)
    assert {name: value for name, value in heard.items() if name not in WINDOWS} == {
        "x-ratelimit-limit-requests": "100",
        "x-ratelimit-remaining-requests": "40",
        "x-ratelimit-reset-requests": "166h39m59.5s",
    }


def test_anthropic_clients_hear_of_windows_as_subscriptions_have_them() -> None:
    heard = mapped("messages", "responses", WINDOWS)
    unified = "anthropic-ratelimit-unified-"
    assert {name: value for name, value in heard.items() if name not in WINDOWS} == {
        f"{unified}5h-status": "allowed",
        f"{unified}5h-utilization": "0.425",
        f"{unified}5h-reset": "1700003600",
        f"{unified}7d-status": "allowed",
        f"{unified}7d-utilization": "0.6",
        f"{unified}7d-reset": "1700600000",
        f"{unified}status": "allowed",
        f"{unified}representative-claim": "seven_day",
        f"{unified}reset": "1700600000",
    }


@pytest.mark.parametrize("door", ["chat", "responses", "messages"])
def test_a_reset_in_thousands_of_years_is_none(door: Dialect) -> None:
    heard = mapped(door, "responses", {**WINDOWS, "x-codex-secondary-reset-at": "1.7e308"})
    assert "x-ratelimit-reset-requests" not in heard
    assert "anthropic-ratelimit-unified-7d-reset" not in heard


def test_a_window_that_is_used_up_is_reported_as_one() -> None:
    full = {**WINDOWS, "x-codex-primary-used-percent": "100.4"}
    assert mapped("chat", "responses", full)["x-ratelimit-remaining-requests"] == "0"
    heard = mapped("messages", "responses", full)
    assert heard["anthropic-ratelimit-unified-status"] == "rejected"
    assert heard["anthropic-ratelimit-unified-representative-claim"] == "five_hour"


def test_limits_by_the_vendors_own_names_are_not_reported_twice() -> None:
    heard = mapped("chat", "responses", {**WINDOWS, **OPENAI})
    assert heard == {**WINDOWS, **OPENAI}


@pytest.mark.parametrize("door", ["chat", "responses", "messages"])
@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_when_to_come_back_passes_always(door: Dialect, dialect: Dialect) -> None:
    advice = {"retry-after": "3", "retry-after-ms": "2500", "x-should-retry": "false"}
    assert mapped(door, dialect, advice) == advice


@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [("1", "1"), ("2500", "3"), ("2000", "2"), ("0", "0")]
)
def test_whole_seconds_are_made_from_milliseconds_where_they_are_missing(
    milliseconds: str, seconds: str
) -> None:
    advice = {"retry-after-ms": milliseconds}
    assert mapped("responses", "chat", advice) == {**advice, "retry-after": seconds}


@pytest.mark.parametrize("odd", ["soon", "-1", "inf", "9" * 100])
def test_odd_milliseconds_make_no_seconds(odd: str) -> None:
    assert "retry-after" not in mapped("chat", "chat", {"retry-after-ms": odd})


def test_value_that_would_break_a_header_is_left_out() -> None:
    assert mapped("chat", "chat", {"x-ratelimit-limit-requests": "5\r\nset-cookie: a"}) == {}
