"""Fixtures of the browser tests: Chromium, one per process; a gateway, one per test; and pages that may not fail quietly."""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from browser.scenes import Scene, scene

# By name, because the project's own environment, in which types are checked, does not have it.
sync_api: Any = import_module("playwright.sync_api")

PATIENCE_MS = 60_000
DESK = {"width": 1440, "height": 960}

OpenPage = Callable[..., Any]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    # Chromium refuses to run its sandbox as root, as in a container.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=os.environ["CHROMIUM"], args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def stage() -> Iterator[Scene]:
    with scene() as made:
        yield made


@pytest.fixture
def open_page(chromium: Any) -> Iterator[OpenPage]:
    """Opens pages. The test fails if one of them logs an error, throws, breaks its policy or asks another host."""
    found: list[str] = []
    contexts: list[Any] = []

    def open_one(url: str, *, expected_errors: tuple[str, ...] = (), **options: Any) -> Any:
        context = chromium.new_context(
            **{"viewport": DESK, "reduced_motion": "reduce", "accept_downloads": True, **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)

        def note(text: str) -> None:
            # A test may stop its gateway before its page.
            if not any(each in text for each in (*expected_errors, "ERR_CONNECTION_REFUSED")):
                found.append(text)

        def on_request(request: Any) -> None:
            own = (
                url.split("#", maxsplit=1)[0]
                if url.startswith("file:")
                else "/".join(url.split("/")[:3])
            )
            if not request.url.startswith((own, "data:", "blob:")):
                note(f"asked {request.url}")

        def on_line(line: Any) -> None:
            if line.type in ("error", "warning"):
                note(line.text)

        page.on("console", on_line)

        def on_error(error: Any) -> None:
            note(str(error))

        page.on("pageerror", on_error)
        page.on("request", on_request)
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert found == []
