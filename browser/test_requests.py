"""The list of requests: live, long, filtered; and the gateway beside it."""

from typing import Any

from browser.conftest import OpenPage
from browser.scenes import Scene, request_of, scene
from dragoman.server.doors import DOORS
from dragoman.server.observe.record import RequestRecord
from gateway_harness import wait_until

MANY = 10_000
# What is in the document for one screen of rows, the overview included, with room; ten thousand rows would have 80,000.
MOST_ELEMENTS = 1_500


def capture_many(stage: Scene, count: int) -> None:
    """Put so many captured exchanges into the gateway's ring, on its own event loop."""
    assert stage.gateway is not None
    gateway = stage.gateway.app.gateway
    inspector = gateway.inspector
    door = DOORS["/v1/chat/completions"]

    def add() -> None:
        for number in range(count):
            capture = inspector.begin(door, [], {}, "POST")
            assert capture is not None
            inspector.admit(capture, f"req_{number}", "")
            record = RequestRecord(request_id=f"req_{number}", door="chat")
            record.model = f"model-{number}"
            capture.end(record)

    stage.on_loop(add)


def test_ten_thousand_requests_are_listed_with_few_elements(open_page: OpenPage) -> None:
    with scene(max_bytes=256 * 1024 * 1024) as stage:
        capture_many(stage, MANY)
        page = open_page(stage.url)
        page.wait_for_selector(".tally:text('10,000 requests')")
        scroller = page.locator(".requests-scroll")
        height = scroller.evaluate("each => each.scrollHeight")
        for part in (0, 0.25, 0.5, 0.999, 0.1, 1):
            scroller.evaluate("(each, top) => { each.scrollTop = top }", part * height)
            wanted = min(max(1, round(part * MANY)), MANY)
            near = range(wanted - 19, wanted + 20)
            rows = ", ".join(f".request-item[aria-posinset='{number}']" for number in near)
            page.wait_for_selector(rows, state="attached")
            assert page.locator("*").count() < MOST_ELEMENTS
        page.locator(".filter").fill("model-777")
        page.wait_for_selector(".tally:text('11 of 10,000')")
        assert page.locator("*").count() < MOST_ELEMENTS


def test_a_request_that_comes_does_not_move_what_is_read(open_page: OpenPage) -> None:
    with scene(max_bytes=256 * 1024 * 1024) as stage:
        capture_many(stage, 200)
        page = open_page(stage.url)
        page.wait_for_selector(".tally:text('200 requests')")
        page.locator(".requests-scroll").evaluate("each => { each.scrollTop = 3000 }")
        row = page.locator(".request", has_text="model-140")
        row.wait_for()
        before = row.bounding_box()
        stage.post("chat", request_of("chat", "hello"))
        page.wait_for_selector(".tally:text('201 requests')")
        assert row.bounding_box() == before


def test_the_filter_finds_calls_errors_and_models(stage: Scene, open_page: OpenPage) -> None:
    stage.post("messages", request_of("messages", "hello"), "responses")
    stage.post("chat", {"messages": "no list"})
    page = open_page(stage.url)
    for words, found in (("get_weather", 1), ("error", 1), ("gpt-5 messages", 1), ("nothing", 0)):
        page.locator(".filter").fill(words)
        page.wait_for_selector(f".tally:text('{found} of 2')")
        assert page.locator(".request").count() == found


def test_nothing_is_captured_until_the_switch_is_on(open_page: OpenPage) -> None:
    with scene(capture="ask") as stage:
        page = open_page(stage.url)
        page.wait_for_selector(".connection.live")
        switch = page.get_by_role("switch").first
        assert switch.get_attribute("aria-checked") == "false"
        stage.post("chat", request_of("chat", "hello"))
        page.wait_for_selector(".request")
        assert stage.latest()["captured"] is False
        switch.click()
        page.wait_for_selector(".bar [role=switch][aria-checked=true]")
        stage.post("chat", request_of("chat", "hello again"))
        wait_until(lambda: bool(stage.get("/v1/inspect/requests")["data"][0]["captured"]))


def test_the_gateway_is_described(stage: Scene, open_page: OpenPage) -> None:
    stage.post("chat", request_of("chat", "hello"))
    stage.latest()
    page = open_page(stage.url, permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_selector(".overview")
    text = page.locator(".overview").inner_text()
    for words in ("local", "openai", "anthropic", "answers", "not used yet", "claude-*", stage.url):
        assert words in text
    page.get_by_role("tab", name="Claude Code").click()
    page.locator(".snippet .copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert f"export ANTHROPIC_BASE_URL={stage.url}" in copied


def test_the_page_finds_the_gateway_again_after_a_lost_connection(open_page: OpenPage) -> None:
    with scene() as stage:
        page = open_page(stage.url, expected_errors=("ERR_", "Failed to load"))
        page.wait_for_selector(".connection.live")
        context: Any = page.context
        stage.on_loop(stage.inspector.stop)
        page.wait_for_selector(".connection.lost")
        page.wait_for_selector(".connection.live")
        stage.post("chat", request_of("chat", "hello"))
        page.wait_for_selector(".request")
        assert len(context.pages) == 1
