"""What can be done with an exchange besides looking at it, and the pictures of the docs."""

import io
import os
import zipfile
from pathlib import Path

import pytest

from browser.conftest import OpenPage
from browser.scenes import INPUTS, Scene, chat_stream, request_of
from browser.test_crossing import QUESTION, open_latest

SCREEN = {"width": 1400, "height": 1260}
PICTURES = os.environ.get("PICTURES")
"""A folder for the screenshots; without it they are made and thrown away."""


def test_a_request_is_sent_again_to_another_upstream_in_another_dialect(
    stage: Scene, open_page: OpenPage
) -> None:
    stage.post("messages", request_of("messages", QUESTION), "chat")
    first = stage.latest()["id"]
    page = open_latest(stage, open_page)
    page.get_by_role("button", name="Replay…").click()
    page.get_by_label("Upstream").select_option("openai")
    page.get_by_label("Client’s dialect").select_option("chat")
    page.get_by_role("button", name="Send again").click()
    page.wait_for_selector(f".request[aria-current]:not([data-id='{first}'])")
    page.wait_for_selector(".route .client:text('Chat client')")
    page.wait_for_selector(".route .upstream:text('Responses upstream')")
    page.wait_for_selector(".calls .mark.equal")
    row = stage.latest(2)
    assert (row["door"], row["upstream"]) == ("chat", "openai")
    page.go_back()
    page.wait_for_selector(f".request[aria-current][data-id='{first}']")


def test_a_test_case_is_a_folder_of_both_wires(stage: Scene, open_page: OpenPage) -> None:
    stage.post("messages", request_of("messages", QUESTION))
    page = open_latest(stage, open_page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Test case").click()
    archive = zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes()))
    text = b"".join(archive.read(name) for name in archive.namelist())
    assert any(name.endswith("request.json") for name in archive.namelist())
    assert QUESTION.encode() in text
    assert b"sk-not-a-real-key" not in text


def test_a_refusal_is_said_where_it_was_asked_for(stage: Scene, open_page: OpenPage) -> None:
    stage.post("messages", request_of("messages", QUESTION))
    page = open_latest(stage, open_page, expected_errors=("400", "404", "502"))
    page.get_by_role("button", name="Replay…").click()
    page.get_by_label("Model").fill("x" * 5000)
    page.evaluate(
        "document.querySelector('[name=upstream]').append(new Option('no', 'no-such-upstream'))"
    )
    page.get_by_label("Upstream").select_option("no-such-upstream")
    page.get_by_role("button", name="Send again").click()
    page.wait_for_selector("dialog .problem-line:text('upstream')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_pictures_of_the_page(
    stage: Scene, open_page: OpenPage, tmp_path: Path, colours: str
) -> None:
    stage.pause = 0.011
    for upstream, door in (("messages", "responses"), ("responses", "chat"), ("chat", "chat"), ("responses", "messages"), ("messages", "chat")):  # fmt: skip
        stage.post(door, request_of(door, QUESTION), upstream)
    stage.post("chat", {"messages": "no list"})
    thinking = {"type": "enabled", "budget_tokens": 1024}
    stage.streams = [chat_stream(inputs=INPUTS)]
    stage.post("messages", request_of("messages", QUESTION, thinking=thinking))
    page = open_latest(stage, open_page, 7, color_scheme=colours, viewport=SCREEN)
    page.locator(".lanes-row[data-topic=text] .event", has_text="weather").hover()
    page.mouse.move(1400, 500)
    folder = Path(PICTURES) if PICTURES else tmp_path
    page.screenshot(path=folder / f"inspector-{colours}.png")
    assert (folder / f"inspector-{colours}.png").stat().st_size > 10_000
