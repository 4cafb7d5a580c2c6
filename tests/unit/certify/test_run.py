"""Upstreams with one defect each: the settings that are found for it, and that they make up for it."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec import structs

from certified_model import CertifiedModel, hermes, payloads
from dragoman.certify.report import CertifyReport, section, value_of
from dragoman.certify.run import certify
from dragoman.config.read import load_settings
from dragoman.config.settings import UpstreamSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from vendor_errors import error_body

Json = dict[str, Any]
Refusal = Callable[[Json], str | None]
PATIENCE = 60.0


def run(model: CertifiedModel, settings: UpstreamSettings | None = None) -> CertifyReport:
    """A whole run; with the address of the upstream in `settings`, if they are given."""
    with ScriptedUpstream.in_thread(model) as upstream:
        own = UpstreamSettings(kind="chat", base_url=f"{upstream.url}/v1")
        if settings is not None:
            own = replaced(settings, base_url=own.base_url)
        elif model.dialect != "chat":
            own = replaced(own, kind=model.dialect)
        report = asyncio.run(certify("it", own, model.model, {}, patience=PATIENCE))
        assert upstream.failures == []
    assert report.stopped is None
    if settings is None:
        check_section(report)
    return report


def check_section(report: CertifyReport) -> None:
    """The section, read back, is the settings of the run."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "dragoman.toml"
        file.write_text(section("it", report), encoding="utf-8")
        read = load_settings(file, {}).upstreams["it"]
    assert read == report.settings


def replaced(settings: UpstreamSettings, **changes: object) -> UpstreamSettings:
    return structs.replace(settings, **changes)


def found(report: CertifyReport) -> dict[str, object]:
    """The settings of a run, by key."""
    return {key: value_of(report.settings, key) for key in report.reasons}


def status(report: CertifyReport) -> dict[str, str]:
    return {finding.name: finding.status for finding in report.findings}


# --- defects of requests ----------------------------------------------------------------------------------------------


def functions(body: Json) -> Iterator[Json]:
    for tool in body.get("tools") or ():
        yield tool.get("function", tool)


def schemas(body: Json) -> str:
    return json.dumps([each.get("parameters") for each in functions(body)])


def refuse_long_names(most: int) -> Refusal:
    def rule(body: Json) -> str | None:
        names = [each["name"] for each in functions(body)]
        return next((f"name {name} is too long" for name in names if len(name) > most), None)

    return rule


def refuse_dashes(body: Json) -> str | None:
    return "bad name" if any("-" in each["name"] for each in functions(body)) else None


def refuse_late_system(body: Json) -> str | None:
    roles = [message["role"] for message in body["messages"]]
    return "System message must be at the beginning." if "system" in roles[1:] else None


def refuse_empty_tools(body: Json) -> str | None:
    return "[] is too short - 'tools'" if body.get("tools") == [] else None


def refuse_strict(body: Json) -> str | None:
    return (
        "strict is not supported" if any(each.get("strict") for each in functions(body)) else None
    )


def refuse_references(body: Json) -> str | None:
    return "$ref is not supported" if "$ref" in schemas(body) else None


def refuse_keywords(*words: str) -> Refusal:
    def rule(body: Json) -> str | None:
        text = schemas(body)
        return "Invalid schema" if any(f'"{word}":' in text for word in words) else None

    return rule


def refuse_many(most: int) -> Refusal:
    return lambda body: "too many tools" if len(body.get("tools") or ()) > most else None


def refuse_streamed_tools(body: Json) -> str | None:
    return (
        "tools are not supported in a stream" if body.get("stream") and body.get("tools") else None
    )


def refuse_tools(body: Json) -> str | None:
    return "this model does not support tools" if body.get("tools") else None


def refuse_max_tokens(body: Json) -> str | None:
    return "'max_tokens' is not supported with this model" if "max_tokens" in body else None


def refuse_assistant_first(body: Json) -> str | None:
    roles = [message["role"] for message in body["messages"] if message["role"] != "system"]
    return "Conversation roles must begin with user" if roles[:1] == ["assistant"] else None


def refuse_fields(*names: str, is_named: bool = True) -> Refusal:
    def rule(body: Json) -> str | None:
        extra = [name for name in names if name in body]
        return (
            (f"Extra inputs are not permitted: {extra[0]}" if is_named else "no") if extra else None
        )

    return rule


def refuse_foreign_ids(body: Json) -> str | None:
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
    bad = [each for each in ids if not re.fullmatch("[a-zA-Z0-9]{9}", each)]
    return (
        f"Tool call id was {bad[0]} but must be a-z, A-Z, 0-9, with a length of 9" if bad else None
    )


def refuse_thoughts(body: Json) -> str | None:
    return "unknown field reasoning_content" if "reasoning_content" in json.dumps(body) else None


REQUESTS: dict[str, tuple[tuple[Refusal, ...], dict[str, object]]] = {
    "empty tools": ((refuse_empty_tools,), {}),
    "late system": ((refuse_late_system,), {"limits.system_messages": False}),
    "strict": ((refuse_strict,), {"limits.strict_tools": False}),
    "$ref": ((refuse_references,), {"limits.inline_schema_refs": True}),
    "names of 64": ((refuse_long_names(63),), {"limits.max_name_length": 63}),
    "names of 40": ((refuse_long_names(40),), {"limits.max_name_length": 40}),
    "dashes": ((refuse_dashes,), {"limits.name_pattern": "[a-zA-Z0-9_]"}),
    "dashes and length": (
        (refuse_dashes, refuse_long_names(48)),
        {"limits.name_pattern": "[a-zA-Z0-9_]", "limits.max_name_length": 48},
    ),
    "ids of nine": (
        (refuse_foreign_ids,),
        {"limits.id_pattern": "[a-zA-Z0-9]", "limits.max_id_length": 9},
    ),
    "sixteen tools": ((refuse_many(16),), {"limits.max_tools": 16}),
    "keywords": (
        (refuse_keywords("const", "not"),),
        {"limits.drop_schema_keywords": ("const", "not")},
    ),
    "closed objects": (
        (refuse_keywords("additionalProperties"),),
        {"limits.drop_schema_keywords": ("additionalProperties",)},
    ),
    "max_tokens": ((refuse_max_tokens,), {"limits.max_tokens_field": "max_completion_tokens"}),
    "assistant first": ((refuse_assistant_first,), {"limits.user_first": True}),
    "no streamed tools": ((refuse_streamed_tools,), {"never_stream": True}),
    "no stream options": ((refuse_fields("stream_options"),), {"never_stream": True}),
    "no tools": ((refuse_tools,), {"prompted_tools": "hermes"}),
    "unknown fields": (
        (refuse_fields("verbosity", "reasoning_effort"),),
        {"drop_fields": ("reasoning_effort", "verbosity")},
    ),
    "fields without a name": (
        (refuse_fields("parallel_tool_calls", is_named=False),),
        {"drop_fields": ("parallel_tool_calls",)},
    ),
    "thoughts": ((refuse_thoughts,), {"losses.reasoning_history": "drop"}),
}


@pytest.mark.parametrize("defect", REQUESTS)
def test_what_a_chat_server_refuses_is_made_up_for(defect: str) -> None:
    rules, expected = REQUESTS[defect]
    report = run(CertifiedModel(refuses=rules))
    assert found(report) == expected
    unhelped = [name for name, each in status(report).items() if each == "unhelped"]
    # A client that offers more tools than a server takes cannot be helped: it does not defer them.
    assert unhelped == (["claude_code"] if defect == "sixteen tools" else [])
    again = run(CertifiedModel(refuses=rules), report.settings)
    assert found(again) == {}
    assert again.is_clean is (not unhelped)


def test_the_requests_of_a_run_are_few_and_counted() -> None:
    report = run(CertifiedModel())
    assert report.asked == sum(1 for finding in report.findings if finding.name != "usage") + 1
    assert report.asked < 45


# --- defects of answers -----------------------------------------------------------------------------------------------


def calls(chunk: Json) -> list[Json]:
    delta: Json = chunk["choices"][0]["delta"] if chunk["choices"] else {}
    return delta.get("tool_calls") or []


def without_ids(chunk: Json) -> Iterator[Json]:
    for call in calls(chunk):
        call.pop("id", None)
    yield chunk


def with_wrong_finish(chunk: Json) -> Iterator[Json]:
    if chunk["choices"] and chunk["choices"][0]["finish_reason"]:
        chunk["choices"][0]["finish_reason"] = "stop"
    yield chunk


def with_repeated_names(chunk: Json) -> Iterator[Json]:
    for call in calls(chunk):
        call.setdefault("id", f"call_{call['index']}")
        call["function"].setdefault("name", "get_weather")
    yield chunk


def cumulative(data: bytes) -> bytes:
    whole: dict[int, str] = {}

    def change(chunk: Json) -> Iterator[Json]:
        for call in calls(chunk):
            whole[call["index"]] = whole.get(call["index"], "") + call["function"]["arguments"]
            call["function"]["arguments"] = whole[call["index"]]
        yield chunk

    return payloads(data, change)


def without_usage(chunk: Json) -> Iterator[Json]:
    chunk.pop("usage", None)
    if chunk["choices"]:
        yield chunk


def without_calls(chunk: Json) -> Iterator[Json]:
    if not calls(chunk):
        yield chunk


STREAMS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no ids": (lambda data: payloads(data, without_ids), "missing_id"),
    "wrong finish": (lambda data: payloads(data, with_wrong_finish), "wrong_finish"),
    "cumulative arguments": (cumulative, "cumulative_input"),
    "no end": (lambda data: data.replace(b"data: [DONE]\n\n", b""), ""),
}


@pytest.mark.parametrize("defect", STREAMS)
def test_what_the_gateway_repairs_by_itself_needs_no_setting(defect: str) -> None:
    spoils, kind = STREAMS[defect]
    report = run(CertifiedModel(spoils=spoils))
    assert found(report) == {}
    assert report.is_clean
    if kind:
        [call] = [each for each in report.findings if each.name == "call_stream"]
        assert call.status == "repaired"
        assert call.detail.startswith(f"{kind} (expected ")


def test_streams_that_lose_calls_are_not_asked_for() -> None:
    model = CertifiedModel(spoils=lambda data: payloads(data, without_calls))
    report = run(model)
    assert found(report) == {"never_stream": True}
    assert run(model, report.settings).is_clean


def test_bodies_that_lose_calls_are_not_asked_for() -> None:
    def spoil(body: Json) -> Json:
        body["choices"][0]["message"].pop("tool_calls", None)
        return body

    report = run(CertifiedModel(spoils_body=spoil))
    assert found(report) == {"always_stream": True}
    assert run(CertifiedModel(spoils_body=spoil), report.settings).is_clean


def test_missing_token_counts_cannot_be_helped() -> None:
    model = CertifiedModel(spoils=lambda data: payloads(data, without_usage))
    report = run(model)
    assert found(report) == {}
    assert status(report)["usage"] == "unhelped"
    assert not report.is_clean


def test_calls_in_a_text_format_with_a_sentinel_are_repaired() -> None:
    report = run(CertifiedModel(writes=hermes))
    assert found(report) == {}
    [call] = [each for each in report.findings if each.name == "call_stream"]
    assert call.status == "repaired"
    assert call.detail.startswith("the model writes its calls as text (hermes)")


def pythonic(name: str, arguments: str) -> str:
    values = ", ".join(f"{key}={value!r}" for key, value in json.loads(arguments).items())
    return f"[{name}({values})]"


def bare_json(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


@pytest.mark.parametrize(("write", "name"), [(pythonic, "pythonic"), (bare_json, "bare_json")])
def test_calls_in_a_text_format_without_a_sentinel_need_its_name(
    write: Callable[[str, str], str], name: str
) -> None:
    report = run(CertifiedModel(writes=write))
    assert found(report) == {"text_calls": ("auto", name)}
    again = run(CertifiedModel(writes=write), report.settings)
    assert again.is_clean
    assert status(again)["call_stream"] == "repaired"


def test_tools_that_never_reach_the_model_are_written_into_the_prompt() -> None:
    report = run(CertifiedModel(ignores=True, model="qwen-small"))
    assert found(report) == {"prompted_tools": "hermes"}
    again = run(CertifiedModel(ignores=True, model="qwen-small"), report.settings)
    assert again.is_clean
    assert status(again)["round_trip"] == "ok"


def test_a_model_that_does_not_obey_gets_no_settings() -> None:
    report = run(CertifiedModel(obeys=False))
    assert found(report) == {}
    assert status(report)["call_stream"] == "not_shown"
    assert report.is_clean


def test_a_context_that_is_too_small_for_real_clients_is_named() -> None:
    report = run(CertifiedModel(window=8000))
    assert found(report) == {}
    unhelped = {each.name: each.detail for each in report.findings if each.status == "unhelped"}
    assert set(unhelped) == {"codex", "claude_code"}
    assert all("the context of the server is too small" in each for each in unhelped.values())


def test_a_model_that_never_says_the_word_shows_nothing_about_the_context() -> None:
    report = run(CertifiedModel(window=0))
    assert status(report)["codex"] == status(report)["claude_code"] == "not_shown"
    assert report.is_clean


# --- the other dialects -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_perfect_upstream_needs_no_setting(dialect: str) -> None:
    report = run(CertifiedModel(dialect=dialect))
    assert found(report) == {}
    assert report.is_clean
    lacking = {"websocket"} if dialect == "responses" else set[str]()
    assert {name for name, each in status(report).items() if each != "ok"} == lacking
    assert section("it", report).count("\n") == 4


def refuse_system_role(body: Json) -> str | None:
    roles = [message["role"] for message in body["messages"]]
    return "messages: unexpected role system" if "system" in roles else None


def refuse_long_answers(body: Json) -> str | None:
    return "max_tokens: 4096 is the most" if body["max_tokens"] > 4096 else None


def refuse_builtin_tools(body: Json) -> str | None:
    kinds = [tool["type"] for tool in body.get("tools") or ()]
    return "unknown tool type" if "web_search" in kinds else None


OTHERS: dict[str, tuple[str, Refusal, dict[str, object]]] = {
    "system role": ("messages", refuse_system_role, {"limits.system_messages": False}),
    "long answers": ("messages", refuse_long_answers, {"limits.default_max_tokens": 4096}),
    "thinking": (
        "messages",
        refuse_fields("thinking", "context_management"),
        {"drop_fields": ("thinking", "context_management")},
    ),
    "provider tools": ("responses", refuse_builtin_tools, {"limits.builtin_tools": ()}),
    "fields of Codex": (
        "responses",
        refuse_fields("client_metadata", "include"),
        {"drop_fields": ("client_metadata", "include")},
    ),
}


@pytest.mark.parametrize("defect", OTHERS)
def test_what_servers_of_other_dialects_refuse_is_made_up_for(defect: str) -> None:
    dialect, rule, expected = OTHERS[defect]
    report = run(CertifiedModel(dialect=dialect, refuses=(rule,)))
    assert found(report) == expected
    again = run(CertifiedModel(dialect=dialect, refuses=(rule,)), report.settings)
    assert again.is_clean
    assert found(again) == {}


def test_a_server_that_accepts_websockets_gets_a_suggestion() -> None:
    model = CertifiedModel(dialect="responses")
    with ScriptedUpstream.in_thread(model, websocket=True) as upstream:
        settings = UpstreamSettings(kind="responses", base_url=f"{upstream.url}/v1")
        report = asyncio.run(certify("it", settings, model.model, {}, patience=PATIENCE))
    assert status(report)["websocket"] == "ok"
    assert "# websocket = true" in section("it", report)
    assert not report.settings.websocket


@pytest.mark.parametrize("code", [401, 403, 429, 503])
def test_what_other_addresses_answer_does_not_end_the_run(code: int) -> None:
    good = CertifiedModel()

    def script(request: ReceivedRequest) -> ScriptedReply:
        is_own = request.path.endswith("/chat/completions") and b"no-such-model" not in request.body
        return good(request) if is_own else json_reply(error_body("chat", code, "no"), code)

    with ScriptedUpstream.in_thread(script) as upstream:
        settings = UpstreamSettings(kind="chat", base_url=f"{upstream.url}/v1")
        report = asyncio.run(certify("it", settings, good.model, {}, patience=PATIENCE))
    assert report.stopped is None
    assert report.is_clean


def test_other_dialects_are_suggested_and_not_set() -> None:
    report = run(CertifiedModel(also=("messages",)))
    assert report.settings.also == ()
    assert '# also = ["messages"]' in section("it", report)
