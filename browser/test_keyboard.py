"""The page without a pointer, for a screen reader, in both colour schemes, and on a phone."""

from pathlib import Path
from typing import Any

import pytest

from browser.conftest import OpenPage
from browser.scenes import Scene, chat_stream, request_of, scene
from browser.test_crossing import QUESTION, open_latest

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"width": 390, "height": 844}


def focused(page: Any, what: str) -> Any:
    return page.evaluate(f"document.activeElement.{what}")


def test_a_request_is_found_opened_read_and_left_by_keys_alone(
    stage: Scene, open_page: OpenPage
) -> None:
    for door in ("chat", "responses", "messages"):
        stage.post(door, request_of(door, QUESTION))
    stage.latest(3)
    page = open_page(stage.url)
    page.wait_for_selector(".tally:text('3 requests')")
    rows = page.locator(".request").evaluate_all("all => all.map(each => each.dataset.id)")
    for key, expected in (
        ("j", rows[0]),
        ("j", rows[1]),
        ("j", rows[2]),
        ("j", rows[2]),
        ("k", rows[1]),
    ):
        page.keyboard.press(key)
        assert focused(page, "dataset.id") == expected
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector(f".request[aria-current][data-id='{rows[1]}']")
    assert page.url.endswith(rows[1])
    page.wait_for_selector(".lanes-row")
    page.locator(".lanes-row").first.focus()
    for _ in range(6):
        page.keyboard.press("j")
    page.keyboard.press("k")
    assert focused(page, "dataset.index") == "5"
    page.wait_for_selector(".lanes-row.lit[data-index='5']")
    page.keyboard.press("Escape")
    page.wait_for_selector(".overview")
    page.keyboard.press("/")
    assert focused(page, "type") == "search"
    page.keyboard.type("responses")
    page.wait_for_selector(".tally:text('1 of 3')")
    page.keyboard.press("Enter")
    assert focused(page, "dataset.id") == rows[1]
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    page.wait_for_selector(".tally:text('3 requests')")
    page.go_back()
    page.wait_for_selector(".exchange")


def test_a_walk_through_hundreds_of_frames_keeps_the_focus(open_page: OpenPage) -> None:
    with scene() as stage:
        words = [f"w{number} " for number in range(400)]
        stage.streams = [chat_stream(words, [])]
        stage.post("messages", request_of("messages", QUESTION))
        page = open_latest(stage, open_page)
        page.locator(".lanes-row").first.focus()
        for _ in range(60):
            page.keyboard.press("j")
        assert focused(page, "dataset.index") == "60"
        assert page.locator(".lanes-row").count() < 80


def test_the_colours_follow_the_system_and_the_button(stage: Scene, open_page: OpenPage) -> None:
    page = open_page(stage.url, color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    button = page.get_by_role("button", name="Colours")
    button.click()
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    page.wait_for_selector(".bar")
    assert page.evaluate(paper) == light
    button.click()
    assert page.evaluate(paper) == dark


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_axe_finds_nothing_serious(
    stage: Scene, open_page: OpenPage, colours: str, size: str
) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    stage.post("messages", request_of("messages", QUESTION, thinking=thinking))
    viewport: dict[str, Any] = {"viewport": PHONE} if size == "phone" else {}
    page = open_latest(stage, open_page, color_scheme=colours, bypass_csp=True, **viewport)
    page.add_script_tag(path=AXE)
    page.locator("summary", has_text="Request").click()
    page.locator(".lanes-row .event").nth(3).hover()
    serious = _serious(page)
    page.evaluate("location.hash = '#/gateway'")
    page.wait_for_selector(".overview")
    assert serious + _serious(page) == []


def _serious(page: Any) -> list[str]:
    found = page.evaluate("axe.run()")["violations"]
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def test_on_a_phone_nothing_is_wider_than_the_screen(stage: Scene, open_page: OpenPage) -> None:
    stage.post("messages", request_of("messages", QUESTION))
    page = open_latest(stage, open_page, viewport=PHONE)
    for place in ("#/", "#/gateway", page.url.partition("/#")[2].join(("#", ""))):
        page.evaluate("place => { location.hash = place }", place)
        page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.locator("a.back").click()
    page.wait_for_selector(".request")
