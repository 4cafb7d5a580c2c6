"""What upstreams say of their limits: read from headers, kept, shown and measured."""

import json

import pytest

from dragoman.config.settings import Settings, UpstreamSettings
from dragoman.model.outcome import Limits, LimitWindow
from dragoman.server.observe.metrics import Telemetry
from dragoman.server.rate_limits import LatestLimits
from dragoman.upstream.rate_limits import limits_of, share_headers

NOW = 1_700_000_000.25
CODEX = {
    "x-codex-primary-used-percent": "42.5",
    "x-codex-primary-window-minutes": "300",
    "x-codex-primary-reset-at": "1700003600",
    "x-codex-secondary-used-percent": "60",
    "x-codex-secondary-window-minutes": "10080",
    "x-codex-secondary-reset-after-seconds": "100",
    "x-codex-credits-has-credits": "True",
    "x-codex-credits-unlimited": "false",
    "x-codex-credits-balance": " 5.39 ",
    "x-codex-limit-name": "gpt-5.5",
}


def test_the_windows_and_credits_of_a_codex_subscription_are_read() -> None:
    assert limits_of(CODEX, NOW) == Limits(
        windows=(
            LimitWindow(
                name="primary", used_percent=42.5, window_minutes=300, resets_at=1700003600
            ),
            LimitWindow(
                name="secondary", used_percent=60.0, window_minutes=10080, resets_at=1700000100
            ),
        ),
        has_credits=True,
        unlimited=False,
        balance="5.39",
    )


def test_another_limit_of_it_is_reported_by_its_name() -> None:
    limits = limits_of({"x-codex-bengal-fox-primary-used-percent": "80"}, NOW)
    assert limits == Limits(
        windows=(LimitWindow(name="codex_bengal_fox/primary", used_percent=80),)
    )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/event-stream"},
        {"x-codex-primary-used-percent": "0", "x-codex-primary-window-minutes": "0"},
        {"x-codex-primary-used-percent": "much"},
        {"x-codex-primary-used-percent": "nan"},
        {"x-codex-primary-window-minutes": "300"},
        {"x-codex-credits-has-credits": "perhaps"},
        {"x-ratelimit-remaining-requests": ""},
        {"x-primary-used-percent": "12"},
        {"retry-after": "5"},
    ],
)
def test_headers_that_say_nothing_are_no_report(headers: dict[str, str]) -> None:
    assert limits_of(headers, NOW) is None


def test_counts_of_openai_are_read() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "250",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-remaining-tokens": "7",
    }
    assert limits_of(headers, NOW) == Limits(
        windows=(
            LimitWindow(
                name="requests",
                used_percent=50.0,
                remaining=250,
                limit=500,
                resets_at=1700000060,
            ),
            LimitWindow(name="tokens", remaining=7),
        )
    )


def test_counts_and_shares_of_anthropic_are_read() -> None:
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "100",
        "anthropic-ratelimit-input-tokens-remaining": "200",
        "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:14:23Z",
        "anthropic-ratelimit-unified-7d-utilization": "0.25",
        "anthropic-ratelimit-unified-7d-reset": "1700600000",
    }
    assert limits_of(headers, NOW) == Limits(
        windows=(
            LimitWindow(
                name="input_tokens", used_percent=0, remaining=200, limit=100, resets_at=1700000063
            ),
            LimitWindow(name="7d", used_percent=25, window_minutes=10080, resets_at=1700600000),
        )
    )


def test_counts_are_not_reported_as_shares() -> None:
    counted = Limits(windows=(LimitWindow(name="tokens", used_percent=5, remaining=95, limit=100),))
    assert share_headers("chat", counted, NOW) == []
    odd = Limits(windows=(LimitWindow(name="primary", used_percent=5, window_minutes=15),))
    assert share_headers("messages", odd, NOW) == []
    assert dict(share_headers("chat", odd, NOW))[b"x-ratelimit-remaining-requests"] == b"95"


def test_the_board_shows_the_newest_of_each_upstream() -> None:
    times = iter((10.0, 20.9, 25.0, 30.0))
    lines: list[tuple[str, Limits]] = []
    board = LatestLimits(lambda: next(times), lambda name, limits: lines.append((name, limits)))
    assert json.loads(board.page()) == {"object": "list", "data": []}
    board.note_headers("b", {"x-codex-primary-used-percent": "1"})
    board.note_headers("b", {"x-codex-primary-used-percent": "2"})
    board.note_headers("b", {"server": "x"})
    assert lines == []
    board.note("a", Limits(unlimited=True))
    assert json.loads(board.page())["data"] == [
        {
            "upstream": "a",
            "at": 30,
            "windows": [],
            "credits": {"has_credits": None, "unlimited": True, "balance": None},
        },
        {
            "upstream": "b",
            "at": 20,
            "windows": [{"name": "primary", "used_percent": 2.0}],
            "credits": None,
        },
    ]
    assert [name for name, _ in lines] == ["b", "b", "a"]


def test_limits_are_gauges() -> None:
    upstreams = {"codex": UpstreamSettings(kind="rehearsal")}
    telemetry = Telemetry(Settings(upstreams=upstreams))
    limits = limits_of(CODEX, NOW)
    assert limits is not None
    telemetry.note_limits("codex", limits)
    telemetry.note_limits("nobody", Limits(balance="lots", windows=(LimitWindow(name="primary"),)))
    text = telemetry.render()[1].decode()
    assert 'dragoman_limit_used_ratio{upstream="codex",window="primary"} 0.425' in text
    reset = (
        'dragoman_limit_reset_timestamp_seconds{upstream="codex",window="secondary"} 1.7000001e+09'
    )
    assert reset in text
    assert 'dragoman_limit_credits{upstream="codex"} 5.39' in text
    assert "nobody" not in text
