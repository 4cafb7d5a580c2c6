"""Law 12: what an encoder writes validates against the vendor's own schema; the request's settings are echoed as they were.

Read are the bodies and every event of every stream that the three encoders write: for the corpus, for the answers of
`vendor_answers` and for generated answers. The schemas are those of `vendor_schemas`; `LISTED` has what they refuse and is
right all the same, with the reason. What a Responses stream writes beyond Open Responses is validated against the types of
OpenAI's SDK instead (`doors`, and here for bodies).
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from openai.types.responses import Response

from corpus_cases import DIALECTS, folder_cases, stream_cases
from doors import payloads
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator, stream_body, translate_body
from dragoman.model.events import Event
from echoed_settings import STATED, repeated
from projections import without_the_unheard_of, write
from strategies import events
from vendor_answers import BODIES, STREAMS, frames
from vendor_schemas import event_schemas, violations

ROUNDS = int(os.environ.get("DRAGOMAN_LAW_ROUNDS", "1"))
SHARE = 4 if ROUNDS == 1 else 1
"""One in so many of the snapshots that repeat settings, others for each: `make laws` reads all of them."""
law = settings(max_examples=50 * ROUNDS, deadline=None, derandomize=True, database=None)

Payload = dict[str, Any]

BEYOND = "OpenAI's own: Codex and the SDKs need it, and Open Responses, which has the common part of all servers, lacks it"
LISTED: Mapping[str, Mapping[str, str]] = {
    "chat": {
        'custom.type: "custom"': "OpenAI has custom tools, and its SDK has their types; this copy of its schema is older",
        "custom: lacks function": "the same",
    },
    "responses": {
        **{
            f"{kind}: unknown type": BEYOND
            for kind in (
                *("code_interpreter_call", "custom_tool_call", "file_search_call", "mcp_call"),
                *("image_generation_call", "mcp_list_tools", "web_search_call", "computer_call"),
                *("local_shell_call", "mcp_approval_request"),
                *("file_citation", "web_search"),
            )
        },
        **{
            f"{event}: unknown event": BEYOND
            for event in (
                "response.audio.delta",
                "response.audio.done",
                "response.audio.transcript.delta",
                "response.audio.transcript.done",
                "response.code_interpreter_call.completed",
                "response.code_interpreter_call.in_progress",
                "response.code_interpreter_call.interpreting",
                "response.code_interpreter_call_code.delta",
                "response.code_interpreter_call_code.done",
                "response.custom_tool_call_input.delta",
                "response.custom_tool_call_input.done",
                "response.file_search_call.completed",
                "response.file_search_call.in_progress",
                "response.file_search_call.searching",
                "response.image_generation_call.completed",
                "response.image_generation_call.generating",
                "response.image_generation_call.in_progress",
                "response.image_generation_call.partial_image",
                "response.mcp_call.completed",
                "response.mcp_call.in_progress",
                "response.mcp_call_arguments.delta",
                "response.mcp_call_arguments.done",
                "response.mcp_list_tools.completed",
                "response.mcp_list_tools.in_progress",
                "response.web_search_call.completed",
                "response.web_search_call.in_progress",
                "response.web_search_call.searching",
            )
        },
        "response.reasoning_text.delta: unknown event": "OpenAI's name; Open Responses has `response.reasoning.delta`",
        "response.reasoning_text.done: unknown event": "OpenAI's name; Open Responses has `response.reasoning.done`",
        "keepalive: unknown event": "keeps a silent connection open; every known client ignores it",
    },
    "messages": {
        "ping: unknown event": "Anthropic sends it and documents it; its schema lacks it",
        "mcp_tool_use: unknown type": "in the beta of Anthropic's API, as MCP servers are",
        "mcp_tool_result: unknown type": "the same",
        "server_tool_use.id: pattern": "the id of another provider's call, which pairs it with its result",
    },
}
"""What the schemas refuse, and why it is written."""

# --- what is violated ------------------------------------------------------------------------------------------------


def of_stream(dialect: str, data: bytes) -> set[str]:
    return {line for _, payload in payloads(data) for line in _EVENTS[dialect](payload)}


def _of_chat_chunk(payload: Payload | str) -> set[str]:
    if isinstance(payload, str):
        return set()  # [DONE]
    name = "ErrorResponse" if "error" in payload else "CreateChatCompletionStreamResponse"
    return violations("OpenAI", name, payload)


def _of_event(vendor: str, payload: Payload) -> set[str]:
    name = event_schemas(vendor).get(payload["type"])
    if name is None:
        return {f"{payload['type']}: unknown event"}
    return violations(vendor, name, payload)


def _of_messages_event(payload: Payload) -> set[str]:
    if payload["type"] == "error":
        return violations("Anthropic", "ErrorResponse", payload)
    return _of_event("Anthropic", payload)


_EVENTS: Mapping[str, Callable[[Any], set[str]]] = {
    "chat": _of_chat_chunk,
    "responses": lambda payload: _of_event("Open Responses", payload),
    "messages": _of_messages_event,
}


def of_body(dialect: str, data: bytes) -> set[str]:
    body: Payload = json.loads(data)
    vendor = {"chat": "OpenAI", "responses": "OpenAI", "messages": "Anthropic"}[dialect]
    if body.get("error") is not None and body.get("object") != "response":
        return violations(vendor, "ErrorResponse", body)
    match dialect:
        case "chat":
            return violations("OpenAI", "CreateChatCompletionResponse", body)
        case "messages":
            return violations("Anthropic", "Message", body)
        case _:
            Response.model_validate_json(data, strict=True)
            return violations("Open Responses", "ResponseResource", body)


# --- what is written -------------------------------------------------------------------------------------------------


def written(dialect: str) -> Iterator[tuple[str, set[str]]]:
    """What is violated by the answers of the corpus and of the vendors, written in this dialect: (case, lines)."""
    streams = [(case.dialect, case.name, case.stream) for case in stream_cases()]
    streams += [
        (source, f"{source}: {name}", frames(source, said))
        for source in DIALECTS
        for name, said in STREAMS[source].items()
    ]
    for source, name, data in streams:
        translator = StreamTranslator(source, dialect)
        yield name, of_stream(dialect, translator.feed(data) + translator.close())
    bodies = [(case.dialect, case.name, case.body) for case in stream_cases() if case.body]
    bodies += [
        (case.meta["dialect"], case.name, case.read("body.json")) for case in folder_cases("bodies")
    ]
    bodies += [
        (source, f"{source}: {name}", json.dumps(body).encode())
        for source in DIALECTS
        for name, body in BODIES[source].items()
    ]
    for source, name, data in bodies:
        yield name, of_body(dialect, translate_body(data, source, dialect).body)
        made, _ = stream_body(data, source, dialect, decode=DecodeContext(), encode=EncodeContext())
        yield name, of_stream(dialect, made.body)


def generated(dialect: str) -> set[str]:
    found: set[str] = set()

    @law
    @given(sequence=events())
    def write_all(sequence: tuple[Event, ...]) -> None:
        known = without_the_unheard_of(dialect, sequence)
        found.update(of_stream(dialect, write(dialect, known).data))
        found.update(of_body(dialect, codec(dialect).encode_body(known)))

    write_all()
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_written_validates_against_the_vendors_schema_but_for_what_is_listed(
    dialect: str,
) -> None:
    allowed = LISTED[dialect].keys()
    found = {line: case for case, lines in written(dialect) for line in lines}
    found |= dict.fromkeys(generated(dialect) - found.keys(), "generated")
    assert {line: case for line, case in found.items() if line not in allowed} == {}
    assert allowed - found.keys() == set(), "listed, and no longer needed"


# --- what is repeated ------------------------------------------------------------------------------------------------


def snapshots(request: Payload) -> Iterator[Payload]:
    asked = codec("responses").decode_request(json.dumps(request).encode())
    context = EncodeContext(request=asked, clock=lambda: 1757000009.9, created=1757000000)
    for source in ("chat", "messages"):
        for body in BODIES[source].values():
            data = json.dumps(body).encode()
            yield json.loads(translate_body(data, source, "responses", encode=context).body)
        for said in STREAMS[source].values():
            translator = StreamTranslator(source, "responses", encode=context)
            out = translator.feed(frames(source, said)) + translator.close()
            yield from (
                payload["response"] for _, payload in payloads(out) if "response" in payload
            )


REPEATED_LISTED = {
    "object: unknown type": "the schema of a format: Open Responses allows only null; OpenAI repeats the schema",
    "custom: unknown type": BEYOND,
    "namespace: unknown type": BEYOND,
    "web_search: unknown type": BEYOND,
    **LISTED["responses"],
}


@pytest.mark.parametrize("stated", STATED, ids=lambda stated: "-".join(stated)[:40] or "nothing")
def test_the_settings_of_a_request_are_repeated_as_they_were_sent(stated: Payload) -> None:
    request = {"model": "m", "input": "hello", **stated}
    expected = repeated(request)
    for response in islice(snapshots(request), STATED.index(stated) % SHARE, None, SHARE):
        assert {name: response[name] for name in expected} == expected
        assert violations("Open Responses", "ResponseResource", response) <= REPEATED_LISTED.keys()
        assert (response["completed_at"] == 1757000009) == (response["status"] == "completed")
        is_running = response["status"] in ("in_progress", "queued")
        assert response["usage"] is None or not is_running


def test_each_reason_for_an_exception_of_a_repeated_setting_still_holds() -> None:
    found = {
        line
        for stated in STATED
        for line in violations(
            "Open Responses",
            "ResponseResource",
            next(snapshots({"model": "m", "input": "hello", **stated})),
        )
    }
    assert REPEATED_LISTED.keys() - LISTED["responses"].keys() <= found
