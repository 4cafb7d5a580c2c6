"""`scripts/smoke` against gateways on loopback: one that works, one that wants a key, one whose model calls nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.config.settings import ServerSettings, Settings
from dragoman.testing import ScriptedUpstream, json_reply, sse
from gateway_harness import one_upstream, running_gateway
from ports import free_port
from vendor_wire import Answer, Said, body_bytes, stream

SMOKE = Path(__file__).parents[2] / "scripts" / "smoke"
CHECKS = 9


def smoke(*arguments: str, **environment: str) -> tuple[int, list[str]]:
    """The exit code, and a line for each check."""
    done = subprocess.run(
        (str(SMOKE), *arguments),
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.requirement("S003-65")
def test_structured_and_written_calls_pass_streamed_and_whole() -> None:
    with running_gateway(
        Settings(server=ServerSettings(api_keys=("a-key-of-the-smoke-test",)))
    ) as gateway:
        code, lines = smoke(gateway.url, DRAGOMAN_API_KEY="a-key-of-the-smoke-test")
        assert (code, len(lines)) == (0, CHECKS)
        assert all(line.startswith("ok   ") for line in lines)
        for form in ("structured", "written"):
            for way in ("streamed", "whole"):
                assert len([line for line in lines if f"{form} call, {way}" in line]) == 2
        code, lines = smoke(gateway.url)
        assert (code, len(lines)) == (1, CHECKS)
        assert all("401" in line for line in lines)


@pytest.mark.requirement("S003-65")
def test_a_model_that_calls_nothing_fails_each_check() -> None:
    words = Answer((Said(("Sunny, I guess.",)),))
    whole, streamed = json_reply(body_bytes("chat", words)), sse(stream("chat", words))
    with ScriptedUpstream.in_thread(
        lambda request: streamed if b'"stream":true' in request.body.replace(b" ", b"") else whole
    ) as upstream:
        with running_gateway(one_upstream(upstream.url, "chat")) as gateway:
            code, lines = smoke(gateway.url, "--model", "m", "--text-model", "m")
        assert (code, len(lines)) == (1, CHECKS)
        assert all(line.startswith("FAIL ") and "tool_calls" in line for line in lines)


def test_nobody_answers() -> None:
    code, lines = smoke(f"http://127.0.0.1:{free_port()}")
    assert (code, len(lines)) == (2, 1)
