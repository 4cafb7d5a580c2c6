"""Whatever a client, a model or a tool wrote is text: it is neither markup nor code, it hides nothing and holds up nobody."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert, structs

from browser.conftest import OpenPage
from browser.scenes import PATHS, Scene, chat_stream, request_of
from browser.test_crossing import open_latest
from dragoman.inspection.exchange_form import ExchangeReport
from dragoman.server.inspector_page import export_page

MARKUP = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1"><b>bold</b>'
HIDDEN = "safe\u202egnp.exe\u2066\u200b\x1b[31m\x00\x7f\ufeff end"
LARGE = 10 * 1024 * 1024
# Characters in the document. The texts of all rows and panels together have a few ten thousand.
MOST_TEXT = 400_000
DEEP = 30_000


def hostile_answers(stage: Scene, text: str) -> None:
    """An exchange in which everything that somebody else wrote is this text."""
    arguments = json.dumps({"city": text})
    stage.streams = [chat_stream([text, text], [[arguments[:20], arguments[20:]]], name="f")]
    body = request_of("messages", text, system=text, metadata={"user_id": text})
    stage.post("messages", {**body, "stop_sequences": [text[:40]]})


def assert_harmless(page: Any) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator("script:not([src])").count() == 0
    assert page.locator("img, b:text('bold')").count() == 0


def test_markup_is_shown_as_text(stage: Scene, open_page: OpenPage) -> None:
    hostile_answers(stage, MARKUP)
    page = open_latest(stage, open_page)
    page.locator(".lanes-row[data-topic=text] .event").first.hover()
    for summary in page.locator("summary").all():
        summary.click()
    page.locator(".calls button").first.click()
    page.locator(".call-inputs .block", has_text="window.hacked").wait_for()
    assert MARKUP in page.locator(".lens-side.middle pre").inner_text()
    assert json.dumps(MARKUP)[1:-1] in page.locator(".wire-request.client .block").inner_text()
    assert_harmless(page)


def test_a_hostile_model_name_and_request_id_are_text_everywhere(
    stage: Scene, open_page: OpenPage
) -> None:
    request_id = '"><script>window.hacked=1</script>/../../#?%00'
    client = http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=30)
    body = json.dumps({**request_of("chat", "hello"), "model": MARKUP})
    client.request(
        "POST",
        PATHS["chat"],
        body,
        {"x-request-id": request_id, "content-type": "application/json"},
    )
    client.getresponse().read()
    client.close()
    stage.latest()
    page = open_page(stage.url)
    page.locator(".request").click()
    page.wait_for_selector(".exchange")
    assert page.locator(".exchange h1").inner_text() == MARKUP
    assert page.locator(".route .id").inner_text() == request_id
    assert_harmless(page)


def test_what_cannot_be_seen_is_written_as_an_escape(stage: Scene, open_page: OpenPage) -> None:
    hostile_answers(stage, HIDDEN)
    page = open_latest(stage, open_page)
    page.locator(".lanes-row[data-topic=text] .event").first.hover()
    shown = page.locator(".lens-side.middle pre").text_content()
    assert shown == r"safe\u202egnp.exe\u2066\u200b\x1b[31m\x00\x7f\ufeff end"
    raw = page.locator("body").text_content()
    assert not set(raw) & set("\u202e\u2066\u200b\x1b\x00\x7f\ufeff")
    assert "\u202e" not in page.title()


def test_a_megabyte_in_one_frame_is_shown_piece_by_piece(stage: Scene, open_page: OpenPage) -> None:
    stage.streams = [chat_stream(["x" * 1024 * 1024, " end"], [])]
    stage.post("messages", request_of("messages", "hello"))
    page = open_latest(stage, open_page)
    page.locator(".lanes-row[data-topic=text] .event").first.hover()
    assert len(page.locator("body").text_content()) < MOST_TEXT
    page.locator(".frame.client mark", has_text="end").hover()
    assert page.locator(".lens-side.middle pre").text_content() == " end"


def test_ten_megabytes_in_one_frame_do_not_hold_up_the_page(
    stage: Scene, open_page: OpenPage, tmp_path: Path
) -> None:
    """In a file, whose page is the same: a gateway takes many seconds to take secrets out of so much."""
    stage.post("messages", request_of("messages", "hello"))
    row = stage.latest()
    assert stage.gateway is not None
    report = convert(stage.get(f"/v1/inspect/requests/{row['id']}"), ExchangeReport)
    answer = report.client.answer
    frames = tuple(structs.replace(frame, text=MARKUP + "x" * LARGE) for frame in answer.frames[:2])
    answer = structs.replace(answer, frames=frames)
    report = structs.replace(report, client=structs.replace(report.client, answer=answer))
    path = tmp_path / "large.html"
    path.write_bytes(export_page("large", (report,)))
    page = open_page(path.as_uri(), offline=True)
    page.wait_for_selector(".lanes-row").click()
    page.locator(".lens-side.client pre", has_text="</script>").wait_for()
    assert page.evaluate("document.body.textContent.length") < MOST_TEXT
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("nesting", ["[", '{"a":'])
def test_deep_json_is_shown(stage: Scene, open_page: OpenPage, nesting: str) -> None:
    stage.streams = [chat_stream([], [[nesting * DEEP]])]
    stage.post("messages", request_of("messages", nesting * DEEP))
    page = open_latest(stage, open_page)
    page.locator("summary", has_text="Request").click()
    page.locator(".wire-request.client .block").wait_for()
    page.locator(".calls button").first.click()
    page.locator(".call-inputs .more").first.click()
    assert page.locator(".calls td.bad").inner_text().startswith("no")
    assert len(page.locator("body").text_content()) < MOST_TEXT


def test_indenting_changes_white_space_only(stage: Scene, open_page: OpenPage) -> None:
    body = '{"model":"qwen3-coder","messages":[{"role":"user","content":"{\\"a\\": [1, 2]}"}],"a":1e400,"a":12345678901234567890,"b":[],"c":{}}'
    client = http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=30)
    client.request("POST", PATHS["chat"], body, {"content-type": "application/json"})
    client.getresponse().read()
    client.close()
    page = open_page(f"{stage.url}/#/requests/{stage.latest()['id']}")
    page.locator("summary", has_text="Request").click()
    block = page.locator(".wire-request.client .block")
    block.wait_for()
    lines = block.text_content().split("\n")
    assert len(lines) > 8
    joined = "".join(line.strip() for line in lines)
    assert joined.replace(": ", ":") == body.replace(": ", ":")
    page.locator(".wire-request.client input").uncheck()
    assert block.text_content() == body
