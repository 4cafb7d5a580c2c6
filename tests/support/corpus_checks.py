"""What the corpus runners share: cuts of a stream, what of an answer every dialect can say, checks on JSON."""

import json
import random
import re
from itertools import pairwise
from typing import Any

import doors
from dragoman._json import is_strict
from dragoman.core.call_input import judge
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Reasoning, Refusal, Text

MISSING = object()
CHECKS = {
    "chat": doors.check_chat,
    "responses": doors.check_responses,
    "messages": doors.check_messages,
}


def cuts(data: bytes) -> dict[str, list[bytes]]:
    """The stream whole, in random cuts, and byte by byte (large ones in pieces of 997 bytes instead)."""
    rng = random.Random(len(data))
    points = sorted(rng.randrange(len(data) + 1) for _ in range(40))
    bounds = [0, *points, len(data)]
    size = 1 if len(data) < 20_000 else 997
    return {
        "whole": [data],
        "random": [data[a:b] for a, b in pairwise(bounds)],
        "bytes": [data[at : at + size] for at in range(0, len(data), size)],
    }


def text_of(outcome: Outcome) -> str:
    parts = outcome.choices[0].parts if outcome.choices else ()
    return "".join(part.text for part in parts if isinstance(part, Text | Refusal))


def reasoning_of(outcome: Outcome) -> str:
    parts = outcome.choices[0].parts if outcome.choices else ()
    return "".join(
        "".join(part.summary) + "".join(part.content)
        for part in parts
        if isinstance(part, Reasoning)
    )


def calls_of(outcome: Outcome) -> list[Call]:
    return [
        part
        for choice in outcome.choices
        for part in choice.parts
        if isinstance(part, Call) and part.executor == "client"
    ]


def check_calls(calls: list[Call], expect: dict[str, Any]) -> None:
    wanted = expect.get("calls", [])
    assert len(calls) == len(wanted), calls
    if expect.get("unordered"):
        calls = sorted(calls, key=lambda call: call.name)
    for call, want in zip(calls, wanted, strict=True):
        assert call.call_id
        assert call.call_id == want.get("call_id", call.call_id)
        assert (call.name, call.input) == (want["name"], want["input"])
        assert want["status"] in ("*", call.status)
        assert call.kind == want.get("kind", "function")
        assert call.namespace == want.get("namespace")


def same_calls(found: list[Call], source: list[Call], target: str) -> None:
    """The calls are those of the source, in what the target can say without the names of a request.

    Where the target has no namespaces or no custom tools, their names and free text come back only through the names
    that the request was sent with; Messages maps ids of foreign charset.
    """
    assert len(found) == len(source)
    for call, wanted in zip(found, source, strict=True):
        is_plain = wanted.namespace is None and wanted.kind == "function"
        if is_plain or target == "responses":
            assert (call.name, call.namespace, call.kind) == (
                wanted.name,
                wanted.namespace,
                wanted.kind,
            )
        if wanted.kind == "function" or target != "messages":
            assert call.input == wanted.input
        if target == "messages" and wanted.kind == "function" and not is_strict(wanted.input):
            assert not judge(call).executable
        else:
            assert call.status == wanted.status
        if target != "messages":
            assert call.call_id == wanted.call_id


def same_finish(found: str | None, source: str | None) -> None:
    # Only Messages, and Chat servers that add a field of their own, distinguish a stop sequence from a stop.
    if source == "stop_sequence":
        assert found in ("stop", "stop_sequence")
    else:
        assert found == source


def at(value: Any, path: str) -> Any:
    for step in path.split("."):
        try:
            value = value[int(step) if isinstance(value, list) else step]
        except (KeyError, IndexError, TypeError, ValueError):
            return MISSING
    return value


def check(body: bytes, rule: dict[str, Any]) -> None:
    if "raw_contains" in rule:
        assert rule["raw_contains"].encode() in body
        return
    value = json.loads(body)
    found = at(value, rule["path"])
    where = f"{rule['path']} in {body.decode()}"
    if rule.get("absent") or (rule.get("or_absent") and found in (MISSING, None)):
        assert found in (MISSING, None), where
    elif "equals" in rule:
        assert found == rule["equals"], where
    elif "equals_any" in rule:
        assert found in rule["equals_any"], where
    elif "matches" in rule:
        assert isinstance(found, str), where
        assert re.search(rule["matches"], found, re.DOTALL), where
    elif "length" in rule:
        assert found is not MISSING, where
        assert len(found) == rule["length"], where
    elif "contains" in rule:
        assert rule["contains"] in json.dumps(found), where
    elif "same_as" in rule:
        assert found == at(value, rule["same_as"]) is not MISSING, where
    elif "differs_from" in rule:
        assert found is not MISSING, where
        assert found != at(value, rule["differs_from"]), where
    elif rule.get("every_named"):
        assert found, where
        assert all(tool["name"] for tool in found), where
    else:
        raise AssertionError(f"a check that checks nothing: {rule}")
