"""The end of a gateway."""

import asyncio
import logging

import pytest

from dragoman.config.settings import InspectSettings, Settings
from dragoman.errors import StoreUnavailable
from dragoman.server.gateway import Gateway
from dragoman.server.observe.record import RequestRecord


def test_what_cannot_be_closed_keeps_nothing_else_open_and_loses_no_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        gateway = Gateway(Settings(inspect=InspectSettings(capture="on")))
        gateway.start()

        async def fail() -> None:
            raise StoreUnavailable("the database is gone")

        monkeypatch.setattr(gateway.store, "close", fail)
        follower = gateway.inspector.follow()
        assert follower is not None
        gateway.note(RequestRecord(door="chat", request_id="req_1", status=200))
        await gateway.close()
        assert await follower.queue.get() is None

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    names = [record.name for record in caplog.records]
    assert names.count("dragoman.requests") == 1
    assert "the database is gone" in caplog.text


def test_collector_that_cannot_be_closed_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def close(self) -> None:
            raise RuntimeError("no thread can be started")

    async def run() -> None:
        gateway = Gateway(Settings())
        monkeypatch.setattr(gateway, "tracing", Broken())
        await gateway.close()

    asyncio.run(run())
    assert "no thread can be started" in caplog.text
