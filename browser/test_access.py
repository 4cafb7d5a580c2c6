"""Who may look: this machine's own page, or a key with the right; no other origin, no other name."""

import http.client
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from browser.conftest import OpenPage
from browser.scenes import Scene, request_of, scene
from dragoman.server.inspector_page import page_files
from dragoman.testing import ScriptedReply, ScriptedUpstream

FOREIGN = b"""<!doctype html><title>elsewhere</title><script>
const target = new URLSearchParams(location.search).get("target");
const tries = {
  read: () => fetch(target + "/v1/inspect").then(r => r.text()),
  list: () => fetch(target + "/v1/inspect/requests", { credentials: "include" }).then(r => r.text()),
  blind: () => fetch(target + "/v1/inspect/requests", { mode: "no-cors" }).then(r => r.text()),
  simple: () => fetch(target + "/v1/inspect/capture", { method: "POST", mode: "no-cors", body: '{"on":true}' }).then(r => r.text()),
  typed: () => fetch(target + "/v1/inspect/capture", { method: "POST", headers: { "content-type": "application/json" }, body: '{"on":true}' }).then(r => r.text()),
  module: () => import(target + "/inspector/main.js").then(() => "loaded"),
};
const found = {};
Promise.all(Object.entries(tries).map(async ([name, attempt]) => {
  found[name] = await attempt().catch(() => "refused");
})).then(() => { window.found = found; });
const frame = document.createElement("iframe");
frame.src = target + "/";
document.documentElement.append(frame);
</script>"""


@contextmanager
def elsewhere() -> Generator[str]:
    """A page of another origin."""
    reply = ScriptedReply(content_type="text/html", body=FOREIGN)
    with ScriptedUpstream.in_thread(lambda _: reply) as server:
        yield server.url


def test_a_page_of_another_origin_reads_and_changes_nothing(chromium: Any) -> None:
    with scene(capture="ask") as stage, elsewhere() as other:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{other}/?target={stage.url}")
        page.wait_for_function("window.found")
        found = page.evaluate("window.found")
        # What is answered without CORS cannot be read by the page: an empty text.
        assert set(found.values()) <= {"refused", ""}
        assert stage.get("/v1/inspect")["capture"]["on"] is False
        frames = [frame for frame in page.frames if frame.parent_frame]
        assert all(frame.locator(".bar").count() == 0 for frame in frames)
        context.close()


@pytest.mark.parametrize("path", ["/", "/v1/inspect", "/v1/inspect/requests", "/inspector/main.js"])
def test_a_name_of_another_site_is_refused(stage: Scene, path: str) -> None:
    """DNS rebinding: the site's own name resolves to this machine."""
    client = http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=30)
    client.request("GET", path, headers={"host": "evil.example"})
    assert client.getresponse().status == 403
    client.close()


@pytest.mark.parametrize("path", ["/", *(f"/inspector/{name}" for name in sorted(page_files()))])
def test_every_file_has_the_strict_policy(stage: Scene, path: str) -> None:
    client = http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=30)
    client.request("GET", path)
    reply = client.getresponse()
    assert reply.status == 200
    policy = dict(each.strip().split(" ", 1) for each in reply.headers["content-security-policy"].split(";"))  # fmt: skip
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    client.close()


@pytest.mark.parametrize(
    "path", ["/inspector/", "/inspector/__init__.py", "/inspector/..%2fapp.py"]
)
def test_no_other_file_is_served(stage: Scene, path: str) -> None:
    client = http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=30)
    client.request("GET", path)
    assert client.getresponse().status == 404
    client.close()


def test_where_the_inspector_is_off_there_is_no_page() -> None:
    with scene(capture="off") as stage:
        client = http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=30)
        client.request("GET", "/")
        assert client.getresponse().status == 404
        client.close()


def test_a_gateway_with_keys_wants_one_that_may_inspect(open_page: OpenPage) -> None:
    keys = ("user-key-1234567890", "operator-key-1234567890")
    with scene(server_keys=keys, api_keys=keys[1:]) as stage:
        page = open_page(stage.url, expected_errors=("401", "403"))
        page.wait_for_selector("form.sign-in")
        assert page.locator(".request").count() == 0
        page.get_by_label("Key").fill(keys[0])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector(".problem-line:text('may not')")
        page.get_by_label("Key").fill(keys[1])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector(".connection.live")
        stage.post("chat", request_of("chat", "hello"), key=keys[0])
        page.locator(".request").click()
        page.wait_for_selector(".lanes-row")
        assert keys[1] not in page.url
        stored = page.evaluate("JSON.stringify([Object.entries(localStorage), document.cookie])")
        assert keys[1] not in stored
        assert keys[0] not in page.content()
