"""The ring of captured exchanges."""

import sys
from types import FrameType
from typing import Any

from dragoman.config.settings import InspectSettings, Settings
from dragoman.core.secrets import NO_SECRETS
from dragoman.server.doors import DOORS
from dragoman.server.inspector import Inspector


def test_an_id_that_a_client_repeats_is_made_unique_in_a_few_steps() -> None:
    """Some clients send one `x-request-id` with all their requests."""
    settings = Settings(inspect=InspectSettings(capture="on"))
    inspector = Inspector(settings, NO_SECRETS, lambda: 0.0)
    lines = 0

    def count(_frame: FrameType, event: str, _value: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    most = 0
    before = sys.gettrace()
    for _ in range(1000):
        capture = inspector.begin(DOORS["/v1/chat/completions"], [], {}, "POST")
        assert capture is not None
        lines = 0
        sys.settrace(count)
        try:
            inspector.admit(capture, "same", "owner")
        finally:
            sys.settrace(before)
        most = max(most, lines)
    assert most < 100
    found, _ = inspector.summaries(2000, None)
    assert len({each.id for each in found}) == 1000


def test_request_that_drops_its_own_exchange_is_not_kept() -> None:
    settings = Settings(inspect=InspectSettings(capture="on", max_bytes=100_000))
    inspector = Inspector(settings, NO_SECRETS, lambda: 0.0)
    capture = inspector.begin(DOORS["/v1/chat/completions"], [], {}, "POST")
    assert capture is not None
    inspector.admit(capture, "large", "owner")
    capture.take_request(b" " * 200_000)
    assert inspector.find("large") is None
    assert (inspector.size, capture.exchange.body) == (0, b"")
