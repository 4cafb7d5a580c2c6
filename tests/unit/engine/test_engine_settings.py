"""Settings that cannot work are refused where they are made."""

import pytest
from msgspec.structs import replace

from dragoman.engine.compaction import SummaryCompaction
from dragoman.engine.settings import EngineSettings
from dragoman.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_turns", 0),
        ("max_parallel", 0),
        ("max_repeats", -1),
        ("max_tokens", 0),
        ("max_seconds", 0),
        ("tool_timeout", -1.0),
        ("idle_timeout", 0.0),
        ("stop_grace", 0.0),
        ("retries", -1),
        ("retry_delay", -0.1),
        ("max_output_characters", -1),
    ],
)
def test_setting_that_cannot_work_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        replace(EngineSettings(), **{name: value})


def test_defaults_work_and_silence_is_borne_for_five_minutes() -> None:
    settings = EngineSettings()
    assert settings.idle_timeout == 300.0
    assert isinstance(settings.compaction, SummaryCompaction)
