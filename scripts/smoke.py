"""The smoke test of a running gateway's Chat endpoint: see `scripts/smoke`. Needs only Python's own library.

Each check asks for one tool call, in structured form or as a `<use_tool>` block, streamed or whole, in both output modes, and
reads the answer as a client does. The last check sends the result of a call back.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

Json = dict[str, Any]

TOOL: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ASKED = "Use get_weather for Paris, please."
WRITTEN = (
    "Answer with exactly this block and nothing else:\n"
    "<use_tool>\n  <name>get_weather</name>\n  <city>Paris</city>\n</use_tool>"
)
PATIENCE = 120.0
MODES = ("openai-json", "obsidian-xml")


class Wrong(Exception):
    """The answer is not as it should be."""


class Read(NamedTuple):
    """What an answer says, streamed or whole."""

    content: str
    calls: list[Json]
    finish: str


class Gateway:
    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._key = key

    def ask(self, body: Json, mode: str) -> tuple[Mapping[str, str], bytes]:
        """Raises Wrong: the status is an error. OSError: nobody answers."""
        headers = {"content-type": "application/json", "x-proxy-output-mode": mode}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(
            f"{self._url}/v1/chat/completions", json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return dict(answer.headers.items()), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise Wrong(
                    f"expected status 200, got {error.code}: {error.read()[:300]!r}"
                ) from error


def expect(is_right: object, what: str, got: object) -> None:
    if not is_right:
        raise Wrong(f"expected {what}, got {str(got)[:200]}")


def read_stream(data: bytes) -> tuple[Read, list[str]]:
    """The answer, and the comments of the stream."""
    lines = data.decode("utf-8").split("\n\n")
    comments = [line for line in lines if line.startswith(":")]
    datas = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    expect(datas and datas[-1] == "[DONE]", "[DONE] at the end", datas[-1:])
    chunks: list[Json] = [json.loads(each) for each in datas[:-1]]
    choices: list[Json] = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    expect(
        choices and choices[0]["delta"].get("role") == "assistant", "the role first", choices[:1]
    )
    finishes = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    expect(len(finishes) == 1, "one finish reason", finishes)
    expect(choices[-1].get("finish_reason"), "the finish in the last chunk", choices[-1])
    calls: dict[int, Json] = {}
    for choice in choices:
        deltas: list[Json] = choice["delta"].get("tool_calls") or []
        for delta in deltas:
            call = calls.setdefault(delta["index"], {"function": {"arguments": ""}})
            call |= {key: delta[key] for key in ("id", "type") if key in delta}
            function: Json = delta.get("function") or {}
            if "name" in function:
                call["function"]["name"] = function["name"]
            call["function"]["arguments"] += function.get("arguments", "")
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    return Read(content, [calls[index] for index in sorted(calls)], finishes[0]), comments


def read_body(data: bytes) -> Read:
    choice: Json = json.loads(data)["choices"][0]
    message: Json = choice["message"]
    return Read(
        message.get("content") or "", message.get("tool_calls") or [], choice["finish_reason"]
    )


def check_call(gateway: Gateway, model: str, words: str, mode: str, *, stream: bool) -> Json:
    """One call comes out, whole and once. Returns it."""
    body: Json = {
        "model": model,
        "messages": [{"role": "user", "content": words}],
        "tools": [TOOL],
        "stream": stream,
    }
    headers, data = gateway.ask(body, mode)
    comments: list[str] = []
    if stream:
        answer, comments = read_stream(data)
    else:
        answer = read_body(data)
    expect(answer.finish == "tool_calls", "the finish reason tool_calls", answer.finish)
    expect(len(answer.calls) == 1, "one call", answer.calls)
    call = answer.calls[0]
    expect(call.get("id") and call.get("type") == "function", "a call with an id and a type", call)
    expect(call["function"]["name"] == "get_weather", "a call of get_weather", call)
    try:
        arguments = json.loads(call["function"]["arguments"])
    except ValueError as error:
        raise Wrong(f"expected JSON as arguments, got {call['function']['arguments']!r}") from error
    expect("city" in arguments, "the argument city", arguments)
    blocks = answer.content.count("<use_tool>")
    expect(blocks == (mode == "obsidian-xml"), "a block only in obsidian-xml", answer.content)
    if stream:
        expect("tool_call_count" in "".join(comments), "a comment with tool_call_count", comments)
    else:
        count = {name.lower(): value for name, value in headers.items()}.get(
            "x-codex-tool-call-count"
        )
        expect(count == "1", "x-codex-tool-call-count: 1", count)
    return call


def check_result(gateway: Gateway, model: str) -> None:
    """The result of a call leads to an answer in words."""
    call = check_call(gateway, model, ASKED, MODES[0], stream=False)
    messages: list[Json] = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"},
    ]
    _, data = gateway.ask({"model": model, "messages": messages, "tools": [TOOL]}, MODES[0])
    answer = read_body(data)
    expect(answer.content, "words", answer)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/smoke", description="Check the tool calls of a running gateway."
    )
    parser.add_argument("url", help="its address, such as http://127.0.0.1:8787")
    parser.add_argument("--model", default="rehearsal", help="calls tools (rehearsal)")
    parser.add_argument(
        "--text-model", default="rehearsal-use-tool", help="writes its calls (rehearsal-use-tool)"
    )
    parser.add_argument(
        "--key-env",
        default="DRAGOMAN_API_KEY",
        help="the environment variable with the gateway's key (DRAGOMAN_API_KEY)",
    )
    options = parser.parse_args()
    gateway = Gateway(options.url, os.environ.get(options.key_env, ""))
    checks: list[tuple[str, Callable[[], object]]] = []
    for mode in MODES:
        for form, model, words in (
            ("structured", options.model, ASKED),
            ("written", options.text_model, WRITTEN),
        ):
            for stream in (True, False):
                name = f"{form} call, {'streamed' if stream else 'whole'}, {mode}"
                check = partial(check_call, gateway, model, words, mode, stream=stream)
                checks.append((name, check))
    checks.append(("result of a call", partial(check_result, gateway, options.model)))
    failed = 0
    for name, run in checks:
        try:
            run()
        except Wrong as error:
            failed += 1
            print(f"FAIL {name}: {error}", flush=True)
        except OSError as error:
            print(f"FAIL {name}: nobody answers at {options.url}: {error}", flush=True)
            return 2
        else:
            print(f"ok   {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
