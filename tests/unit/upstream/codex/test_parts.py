"""The small decisions: what a thread is started with, when a child is started again, what is logged of it."""

import json

import pytest

from dragoman._json import Raw, as_object
from dragoman.config.settings import UpstreamSettings
from dragoman.upstream.codex.child import (
    has_limits,
    limit_headers,
    overrides_of,
    thread_params,
    tool_names,
)
from dragoman.upstream.codex.process import LINES_PER_PERIOD, MAX_LINE, PERIOD_SECONDS, StderrLog
from dragoman.upstream.codex.upstream import LONGEST_WAIT, child_environment, wait_before


def test_retries_of_a_provider_that_may_not_be_changed_stay() -> None:
    overrides = overrides_of(as_object(b'{"model_provider":"openai","model_providers":{}}'))
    assert "model_providers" not in overrides
    assert overrides_of({})["mcp_servers"] == {}


@pytest.mark.requirement("S003-06")
def test_the_tools_of_codex_itself_are_off() -> None:
    off = overrides_of({})
    for feature in ("shell_tool", "unified_exec", "view_image", "image_generation"):
        assert off[f"features.{feature}"] is False
    assert off["web_search"] == "disabled"


def test_what_the_request_wants_of_a_thread_stands_beside_our_own() -> None:
    thread = Raw(b'{"baseInstructions":"x","config":{"model_verbosity":"low"}}')
    params = thread_params(thread, {"web_search": "disabled"}, "/nowhere")
    assert params["config"] == {"web_search": "disabled", "model_verbosity": Raw(b'"low"')}
    assert (params["cwd"], params["environments"]) == ("/nowhere", [])
    assert tool_names(thread) == []
    assert tool_names(Raw(b'{"dynamicTools":[{"name":"a"},{"name":"b"}]}')) == ["a", "b"]


def test_waits_grow_and_end() -> None:
    assert [wait_before(failures) for failures in range(6)] == [0.0, 0.0, 0.5, 1.0, 2.0, 4.0]
    assert wait_before(1000) == LONGEST_WAIT


def test_murmur_is_cut_counted_and_remembered() -> None:
    murmur = StderrLog()
    assert murmur.feed(b"one\ntw", 0.0) == ["one"]
    assert murmur.feed(b"o\n\n \n", 0.0) == ["two"]
    assert murmur.feed(b"x" * 5000, 0.0) == []
    assert murmur.feed(b"y" * 5000 + b"\n", 0.0) == ["x" * MAX_LINE]
    assert list(murmur.last) == ["one", "two", "x" * MAX_LINE]
    said = murmur.feed(b"more\n" * LINES_PER_PERIOD, 0.1)
    assert len(said) == LINES_PER_PERIOD - 3
    assert murmur.feed(b"again\n", PERIOD_SECONDS) == ["(3 lines are not shown)", "again"]
    assert murmur.feed(b"\xff\n", PERIOD_SECONDS) == ["\ufffd"]


def line(limits: object) -> bytes:
    message = {"method": "account/rateLimits/updated", "params": {"rateLimits": limits}}
    return json.dumps(message).encode()


def test_limits_become_the_headers_of_the_backend() -> None:
    limits = {
        "primary": {"usedPercent": 42.5, "windowDurationMins": 300, "resetsAt": 1800000000},
        "secondary": None,
        "credits": {"hasCredits": True, "unlimited": False, "balance": "9.5"},
    }
    assert limit_headers(line(limits)) == {
        "x-codex-primary-used-percent": "42.5",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "1800000000",
        "x-codex-credits-has-credits": "True",
        "x-codex-credits-unlimited": "False",
        "x-codex-credits-balance": "9.5",
    }
    assert limit_headers(None) == {}


@pytest.mark.parametrize(
    "nothing",
    [
        line({"primary": None, "credits": None}),
        line(None),
        line({"primary": {"x": 1}}),
        b"{",
        b"[]",
    ],
)
def test_report_of_nothing_is_none(nothing: bytes) -> None:
    assert not has_limits(nothing)


def test_environment_of_a_child_is_ours_without_our_callers_keys() -> None:
    settings = UpstreamSettings(kind="codex", codex_home="/home/codex", env={"A": "2"})
    environ = {"PATH": "/bin", "DRAGOMAN_API_KEYS": "secret", "A": "1"}
    assert child_environment(settings, environ) == {
        "PATH": "/bin",
        "A": "2",
        "NO_COLOR": "1",
        "CODEX_HOME": "/home/codex",
    }
    assert "CODEX_HOME" not in child_environment(UpstreamSettings(kind="codex"), {})
