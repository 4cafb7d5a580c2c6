"""Rate limits inside a Responses stream."""

import json

from dragoman._json import Raw
from dragoman.dialects.responses.answer import read_limits
from dragoman.dialects.translate import make_decoder
from dragoman.model.events import Event, LimitsReported, Started
from dragoman.model.outcome import Limits, LimitWindow

REPORT = {
    "type": "codex.rate_limits",
    "plan_type": "plus",
    "rate_limits": {
        "allowed": True,
        "primary": {"used_percent": 42.5, "window_minutes": 300, "reset_at": 1700000000},
        "secondary": None,
    },
    "credits": {"has_credits": True, "unlimited": False, "balance": "5.39"},
}
LIMITS = Limits(
    windows=(
        LimitWindow(name="primary", used_percent=42.5, window_minutes=300, resets_at=1700000000),
    ),
    has_credits=True,
    unlimited=False,
    balance="5.39",
)
CREATED: dict[str, object] = {
    "type": "response.created",
    "response": {"id": "resp_1", "output": []},
}
COMPLETED: dict[str, object] = {
    "type": "response.completed",
    "response": {"id": "resp_1", "output": []},
}


def read(*events: object) -> list[Event]:
    decoder = make_decoder("responses")
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    steps = [*decoder.feed(data), *decoder.close()]
    assert not any(step.problems for step in steps)
    return [event for step in steps for event in step.events]


def test_limits_are_reported_where_they_stand() -> None:
    events = read(CREATED, REPORT, COMPLETED)
    assert isinstance(events[0], Started)
    assert events[1] == LimitsReported(LIMITS)


def test_limits_that_come_first_wait_for_the_answer_to_begin() -> None:
    events = read(REPORT, CREATED, COMPLETED)
    assert isinstance(events[0], Started)
    assert events[1] == LimitsReported(LIMITS)
    assert sum(isinstance(event, LimitsReported) for event in events) == 1


def test_a_report_without_content_says_nothing() -> None:
    events = read(CREATED, {"type": "codex.rate_limits", "rate_limits": {}}, COMPLETED)
    assert not any(isinstance(event, LimitsReported) for event in events)


def test_windows_of_other_limits_carry_its_name() -> None:
    fields = {
        "metered_limit_name": Raw(b'"Codex-Other"'),
        "rate_limits": Raw(b'{"primary":{"used_percent":1},"secondary":{"window_minutes":5}}'),
    }
    limits = read_limits(fields)
    assert limits is not None
    assert [window.name for window in limits.windows] == ["codex_other/primary"]
