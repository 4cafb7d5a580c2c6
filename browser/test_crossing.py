"""One exchange: the wires, the events between them, calls, notes, the change, the clipboard."""

import json
import shlex
import threading
from hashlib import sha256
from typing import Any

import pytest

from browser.conftest import OpenPage
from browser.scenes import INPUTS, MODELS, WORDS, Scene, chat_stream, request_of
from corpus_cases import CORPUS
from dragoman.testing import sse

DIALECTS = ("chat", "responses", "messages")
TALL = {"width": 1440, "height": 2800}
"""A window in which every row of the crossing is in the document."""
QUESTION = "What is the weather in Oslo and Bergen?"


def spelt(piece: str) -> str:
    """What a piece of a JSON string says."""
    return str(json.loads(f'"{piece}"', strict=False))


def open_latest(stage: Scene, open_page: OpenPage, count: int = 1, **options: Any) -> Any:
    page = open_page(f"{stage.url}/#/requests/{stage.latest(count)['id']}", **options)
    page.wait_for_selector(".lanes-row")
    return page


def lit_texts(page: Any, side: str) -> str:
    """What is lit in the panel below the lanes, on one side."""
    marks = page.locator(f".lens-side.{side} mark.lit").all_text_contents()
    return "".join(spelt(mark) for mark in marks)


@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_live_tool_call_is_seen_on_both_wires(
    stage: Scene, open_page: OpenPage, upstream: str, door: str
) -> None:
    stage.gate = threading.Event()
    page = open_page(stage.url, viewport=TALL)
    page.wait_for_selector(".connection.live")
    asking = threading.Thread(target=stage.post, args=(door, request_of(door, QUESTION), upstream))
    asking.start()
    try:
        page.locator(".request.live").click()
        page.wait_for_selector(".facts dd:text('live')")
        page.wait_for_selector(".lanes-row[data-topic=text]")
    finally:
        stage.gate.set()
        asking.join()
    page.wait_for_selector(".calls tbody tr:nth-child(3)")
    page.wait_for_selector(".facts dd:text('200')")

    hashes = [sha256("".join(pieces).encode()).hexdigest() for pieces in INPUTS]
    shown = page.locator(".calls .hash").evaluate_all("all => all.map(each => each.title)")
    assert shown == [f"SHA-256 {each}" for each in hashes for _ in range(2)]
    assert page.locator(".calls .mark").all_text_contents() == ["=", "="]
    assert page.locator(".calls td.good").all_text_contents() == ["yes", "yes"]

    deltas = page.locator(".lanes-row[data-topic=input]")
    texts: list[str] = []
    for index in range(deltas.count()):
        delta = deltas.nth(index).locator(".delta").text_content()
        deltas.nth(index).locator(".event").hover()
        page.wait_for_selector(
            f".lanes-row.lit[data-index='{deltas.nth(index).get_attribute('data-index')}']"
        )
        assert lit_texts(page, "upstream") == delta
        assert delta in lit_texts(page, "client")
        texts.append(delta)
    assert "".join(texts) == "".join("".join(pieces) for pieces in INPUTS)


def test_pointing_at_the_bytes_lights_the_event(stage: Scene, open_page: OpenPage) -> None:
    stage.post("messages", request_of("messages", QUESTION))
    page = open_latest(stage, open_page)
    page.locator(".frame.upstream mark", has_text="look").hover()
    page.wait_for_selector(".lanes-row.lit .event .delta:text('look')")
    page.wait_for_selector(".frame.client mark.lit:text('look')")


def test_marks_are_right_where_characters_have_two_code_units(
    stage: Scene, open_page: OpenPage
) -> None:
    stage.streams = [chat_stream(["🙂🙂", " ok 🙂 then", " end"], [])]
    stage.post("messages", request_of("messages", QUESTION))
    page = open_latest(stage, open_page)
    for side in ("client", "upstream"):
        marks = page.locator(f".frame.{side} mark").all_text_contents()
        assert [spelt(mark) for mark in marks] == ["🙂🙂", " ok 🙂 then", " end"]


def test_frames_stand_in_the_order_of_time(stage: Scene, open_page: OpenPage) -> None:
    stage.pause = 0.002
    stage.post("responses", request_of("responses", QUESTION))
    page = open_latest(stage, open_page)
    for side in ("client", "upstream"):
        numbers = page.locator(f".frame.{side} .number").all_text_contents()
        assert numbers == sorted(numbers, key=int)
        assert len(numbers) > len(WORDS)


def test_a_loss_is_pinned_to_its_field(stage: Scene, open_page: OpenPage) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    stage.post("messages", request_of("messages", QUESTION, thinking=thinking))
    page = open_latest(stage, open_page)
    loss = page.locator(".notes .loss").first
    assert loss.locator(".code").text_content() == "reasoning_settings"
    assert loss.locator(".field-name").text_content().startswith("reasoning.")
    assert loss.locator(".where").text_content() == "client’s request"
    with page.expect_popup() as opened:
        loss.locator("a.docs", has_text="dialects/chat.md#losses").click()
    assert "# OpenAI Chat Completions" in opened.value.locator("body").inner_text()


def test_a_problem_is_pinned_to_its_frame_and_leads_there(
    stage: Scene, open_page: OpenPage
) -> None:
    stage.replies = [sse((CORPUS / "chat/no-id/stream.sse").read_bytes(), cut_into="frames")]
    stage.post("messages", request_of("messages", QUESTION))
    page = open_latest(stage, open_page)
    problem = page.locator(".notes .problem").first
    code = problem.locator(".code").text_content()
    frame = problem.locator("button.where").text_content().removeprefix("upstream frame ")
    problem.locator("button.where").click()
    row = page.locator(".lanes-row:focus")
    assert row.locator(".frame.upstream .number").text_content() == frame
    assert code in row.locator(".frame.upstream .pin").all_text_contents()


def test_the_difference_to_the_request_before_is_shown_with_the_end_of_the_prefix(
    stage: Scene, open_page: OpenPage
) -> None:
    said = [{"role": "user", "content": QUESTION}]
    stage.post("chat", request_of("chat", "", messages=said))
    first = stage.latest()["id"]
    call = stage.get(f"/v1/inspect/requests/{first}")["calls"][0]
    function = {"name": "get_weather", "arguments": call["input"]["client"]["text"]}
    told = {
        "role": "assistant",
        "tool_calls": [{"id": call["id"]["client"], "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": call["id"]["client"], "content": "12 °C, rain"}
    stage.streams = [chat_stream(["It rains."], [])]
    stage.post("chat", request_of("chat", "", messages=[*said, told, result]))
    page = open_latest(stage, open_page, 2)
    change = page.locator("details", has_text="Change since the request before")
    assert "1,024 tokens from the provider’s cache" in change.locator("summary").text_content()
    change.locator("summary").click()
    change.locator(".prefix-end").wait_for()
    assert "12 °C, rain" in "".join(change.locator(".added").all_text_contents())
    change.locator(f"a[href='#/requests/{first}']").click()
    page.wait_for_selector(".calls .result.paired")
    page.go_back()
    page.wait_for_selector(f".request[aria-current][data-id='{stage.latest(2)['id']}']")


def test_copied_as_curl_the_request_is_whole_and_has_no_secret(
    stage: Scene, open_page: OpenPage
) -> None:
    text = "it's\nall\u202e 'quoted' $HOME `id` \\ \"end\""
    stage.post("messages", request_of("messages", text))
    page = open_latest(stage, open_page, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as curl").click()
    page.get_by_role("button", name="Copied").wait_for()
    command = page.evaluate("navigator.clipboard.readText()")
    assert "sk-not-a-real-key" not in command
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:5] == ["curl", "-N", "-X", "POST", f"{stage.url}/v1/messages"]
    assert "authorization: Bearer $DRAGOMAN_API_KEY" in words
    body = json.loads(words[words.index("--data-binary") + 1])
    assert body["messages"][0]["content"] == text
    assert body["model"] == MODELS["chat"]
    assert "\u202e" not in command or json.dumps(text) in command


def test_a_request_that_failed_says_why(stage: Scene, open_page: OpenPage) -> None:
    page = open_page(stage.url)
    body = {"model": "m", "messages": "no list"}
    stage.post("chat", body)
    page.locator(".request.failed").click()
    assert "messages" in page.wait_for_selector(".banner.problem").text_content()
