"""The files of the inspector's page, in the wheel and in one exported file. `browser/` tests the page itself."""

import json
import re
import subprocess
import sys
import zipfile
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dragoman.inspection.exchange import (
    RecordedAnswer,
    RecordedAttempt,
    RecordedExchange,
    TimedBytes,
)
from dragoman.inspection.exchange_form import ExchangeReport
from dragoman.inspection.recorded_answer import report_recorded
from dragoman.server.inspector_page import (
    docs_files,
    export_page,
    page_files,
    without_contents,
)

PROJECT = Path(__file__).parents[3]
ISLAND = re.compile(r'<script type="application/json" id="exported">(.*?)</script>', re.DOTALL)
SECRET_TEXT = "the quick brown fox"


def exchange(text: str = SECRET_TEXT) -> ExchangeReport:
    chunk: dict[str, Any] = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}}],
    }
    end: dict[str, Any] = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    }
    stream = "".join(f"data: {json.dumps(each)}\n\n" for each in (chunk, end)).encode()
    answer = RecordedAnswer(
        status=200,
        headers=(("x-said", text),),
        pieces=(TimedBytes(1.0, stream + b"data: [DONE]\n\n"),),
    )
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    attempt = RecordedAttempt(upstream="u", dialect="chat", body=body, answer=answer)
    return report_recorded(
        RecordedExchange(
            id="req_1", at=0.0, dialect="chat", body=body, answer=answer, attempts=(attempt,)
        )
    )


def island(page: bytes) -> dict[str, Any]:
    found = ISLAND.search(page.decode())
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_every_file_that_the_page_asks_for_is_there() -> None:
    files = page_files()
    index = files["index.html"].data.decode()
    asked = re.findall(r'(?:href|src)="inspector/([^"]+)"', index)
    assert {"main.js", "style.css", "icon.svg"} == set(asked)
    for name, file in files.items():
        if name.endswith(".js"):
            for needed in re.findall(
                r'^import .* from "\./(.*)";$', file.data.decode(), re.MULTILINE
            ):
                assert needed in files


def test_no_module_parses_markup_or_asks_another_host() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setTimeout\(\s*[\"'`]|https?://(?!www\.w3\.org/2000/svg)[a-z]"
    )
    for name, file in page_files().items():
        assert forbidden.findall(file.data.decode()) == [], name


def test_an_exported_page_is_one_file_whose_policy_names_its_own_script_and_style() -> None:
    page = export_page("title", (exchange(),)).decode()
    assert re.search(r'(?:src|href)="', page) is None
    for tag in ("style", 'script type="module"'):
        found = re.search(f"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)
        assert found is not None
        digest = b64encode(sha256(found[1].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page
    assert "import {" not in page
    assert re.search(r"^export ", page, re.MULTILINE) is None


@pytest.mark.parametrize(
    "text",
    ["</script><script>x</script>", "<!--<script>", "\u2028]]>&lt;", '"\\u003c', "\x00\ud800"],
)
def test_a_hostile_text_stays_in_the_data(text: str) -> None:
    report = exchange(text)
    page = export_page(f"<b>{text}", (report,))
    assert page.count(b"</script>") == 2
    assert b"<!--" not in page
    [exported] = island(page)["exchanges"]
    assert exported["events"][2]["text"] == report.events[2].text


def test_without_contents_only_sizes_times_names_and_hashes_stay() -> None:
    report = exchange()
    emptied = without_contents(report)
    page = export_page("title", (emptied,))
    assert SECRET_TEXT.encode() not in page
    assert [event.type for event in emptied.events] == [event.type for event in report.events]
    sizes = [frame.bytes for frame in report.client.answer.frames]
    assert [frame.bytes for frame in emptied.client.answer.frames] == sizes
    assert emptied.client.headers == emptied.client.answer.headers == ()


def test_the_wheel_has_the_page(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    folder = "dragoman/server/inspector_page/"
    inside = {name.removeprefix(folder) for name in names if name.startswith(folder)}
    assert inside >= set(page_files())
    assert inside >= {f"dialects/{name}" for name in docs_files()}
    assert "chat.md" in docs_files()
