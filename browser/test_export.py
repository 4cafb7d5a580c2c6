"""The exported file, and the page that `dragoman inspect --html` draws: opened from a disk, without a network."""

import json
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import OpenPage
from browser.scenes import Scene, chat_stream, request_of
from browser.test_crossing import QUESTION, lit_texts, open_latest
from browser.test_hostile import MARKUP, assert_harmless, hostile_answers
from dragoman.cli import main


def exported(page: Any, folder: Path, *, contents: bool = True) -> Path:
    page.get_by_role("button", name="Export…").click()
    if not contents:
        page.get_by_role("checkbox", name="with the contents").uncheck()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save file").click()
    path = folder / "exported.html"
    download.value.save_as(path)
    return path


def test_an_exported_exchange_opens_without_a_network(
    stage: Scene, open_page: OpenPage, tmp_path: Path
) -> None:
    stage.post("messages", request_of("messages", QUESTION))
    path = exported(open_latest(stage, open_page), tmp_path)
    assert b"sk-not-a-real-key" not in path.read_bytes()
    assert b"upstream-key" not in path.read_bytes()
    page = open_page(path.as_uri(), offline=True)
    page.wait_for_selector(".lanes-row")
    assert page.locator(".calls .mark").all_text_contents() == ["=", "="]
    page.locator(".lanes-row[data-topic=text] .event").first.hover()
    assert lit_texts(page, "client") == lit_texts(page, "upstream") == "I"
    assert page.get_by_role("button", name="Replay…").count() == 0
    assert page.get_by_role("switch").count() == 0


def test_without_contents_nothing_that_was_said_is_in_the_file(
    stage: Scene, open_page: OpenPage, tmp_path: Path
) -> None:
    stage.post("messages", request_of("messages", "What about Ouagadougou?"))
    path = exported(open_latest(stage, open_page), tmp_path, contents=False)
    text = path.read_text(encoding="utf-8")
    for said in ("Ouagadougou", "Bergen", "celsius", "look up", "The weather in a city"):
        assert said not in text
    page = open_page(path.as_uri(), offline=True)
    page.wait_for_selector(".lanes-row")
    assert page.locator(".calls .mark").all_text_contents() == ["=", "="]
    assert page.locator(".frame.upstream .wire").first.text_content().endswith(" B")


@pytest.mark.parametrize("text", [MARKUP, "<!--<script>", "]]>\u2028\u2029</style>"])
def test_no_text_breaks_out_of_the_file(
    stage: Scene, open_page: OpenPage, tmp_path: Path, text: str
) -> None:
    hostile_answers(stage, text)
    path = exported(open_latest(stage, open_page), tmp_path)
    page = open_page(path.as_uri(), offline=True)
    page.wait_for_selector(".lanes-row")
    assert page.evaluate("window.hacked") is None
    assert page.locator("script").count() == 2
    data = json.loads(page.locator("#exported").text_content())
    assert text in json.loads(data["exchanges"][0]["client"]["body"])["system"]


def test_a_policy_in_the_file_forbids_what_is_not_its_own(
    stage: Scene, open_page: OpenPage, tmp_path: Path
) -> None:
    stage.post("chat", request_of("chat", QUESTION))
    path = exported(open_latest(stage, open_page), tmp_path)
    page = open_page(
        path.as_uri(), expected_errors=("Content Security Policy", "Trusted", "Refused")
    )
    page.wait_for_selector(".lanes-row")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          try { script.text = "window.hacked = 1"; } catch {}
          document.body.append(script);
        }"""
    )
    assert_harmless_beside_own(page)


def assert_harmless_beside_own(page: Any) -> None:
    assert page.evaluate("window.hacked") is None
    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")


def test_the_page_itself_cannot_parse_markup(stage: Scene, open_page: OpenPage) -> None:
    page = open_page(stage.url, expected_errors=("Trusted",))
    page.wait_for_selector(".bar")
    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    assert_harmless(page)


def test_the_page_of_a_recording_shows_the_answer_and_its_translation(
    open_page: OpenPage, tmp_path: Path
) -> None:
    recording, path = tmp_path / "answer.sse", tmp_path / "answer.html"
    recording.write_bytes(chat_stream())
    assert main(["inspect", str(recording), "--to", "messages", "--html", str(path)]) == 0
    page = open_page(path.as_uri(), offline=True)
    page.wait_for_selector(".lanes-row")
    assert page.locator(".timeline").count() == 0  # it has no times
    assert page.locator(".calls .mark").all_text_contents() == ["=", "="]
    page.locator(".frame.upstream mark", has_text="look").hover()
    page.wait_for_selector(".frame.client mark.lit:text('look')")


def test_the_page_of_a_dump_lists_its_answers(open_page: OpenPage, tmp_path: Path) -> None:
    event = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}  # fmt: skip
    shared = {"upstream": "u", "dialect": "chat", "answer": 0, "frame": 1, "event": event}
    lines = [{"at": 1000.0, "request_id": f"req_{number}", **shared} for number in range(30)]
    dump, path = tmp_path / "dump.jsonl", tmp_path / "dump.html"
    dump.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    main(["inspect", str(dump), "--html", str(path)])
    page = open_page(path.as_uri(), offline=True)
    page.wait_for_selector(".tally:text('30 requests')")
    page.locator(".request[data-id=req_7]").click()
    page.wait_for_selector(".route .id-text:text('req_7')")
    page.go_back()
    page.wait_for_selector(".route .id-text:text('req_0')")
