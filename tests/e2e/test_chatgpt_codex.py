"""The vendors' SDKs in front of a scripted ChatGPT Codex backend, which refuses what the real one refuses."""

import json
from pathlib import Path

import anthropic
import openai
import pytest

from codex_backend import Reaction, backend_stage, bare_stream, odd_stream
from codex_logins import chatgpt_login, make_token
from dragoman.testing import ReceivedRequest, ScriptedReply, json_reply, sse
from plain_http import ask, plain_body
from sdk_clients import CLIENT_KEY, DOORS, MODES, Offered, SeenCall, conversation
from vendor_wire import Answer, Said, Thought, Tool, stream

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Offered("get_weather", SCHEMA, strict=True)
ARGUMENTS = '{"city": "Paris",  "days": 1.0}'
CALLS = Answer(
    (
        Said(("Let me ", "look.")),
        Tool("call_1", "get_weather", ('{"city": ', '"Paris",  "days": 1.0}')),
        Tool("call_2", "get_weather", ('{"city":', '"Rome"}')),
    )
)
SUNNY = Answer((Said(("Sunny",)),))
AUTHENTICATION = (openai.AuthenticationError, anthropic.AuthenticationError)

doors = pytest.mark.parametrize("door", DOORS)
every_mode = pytest.mark.parametrize(
    ("door", "mode"), [(door, mode) for door in DOORS for mode in MODES[door]]
)


def arguments_of(call: SeenCall) -> object:
    """Anthropic's SDK keeps the object alone, but for its raw events."""
    return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


@every_mode
def test_calls_and_their_results_make_the_round(door: str, mode: str, tmp_path: Path) -> None:
    replies = [bare_stream(stream("responses", CALLS)), bare_stream(stream("responses", SUNNY))]
    with backend_stage(tmp_path, replies) as stage:
        talk = conversation(door, stage.url, "gpt-5.5", tools=[WEATHER], system="Be brief.")
        talk.say("How is the weather?")
        got = talk.ask(mode)
        assert got.text == "Let me look."
        assert [(call.call_id, call.name) for call in got.calls] == [
            ("call_1", "get_weather"),
            ("call_2", "get_weather"),
        ]
        for call in got.calls:
            talk.answer(call, f"{call.call_id}: sunny")
        assert talk.ask(mode).text == "Sunny"
        heard = stage.heard
        assert heard["instructions"] == "Be brief."
        results = [item for item in heard["input"] if item.get("type") == "function_call_output"]
        assert [(item["call_id"], item["output"]) for item in results] == [
            ("call_1", "call_1: sunny"),
            ("call_2", "call_2: sunny"),
        ]
        first, *_ = (item for item in heard["input"] if item.get("type") == "function_call")
        if door != "messages":  # whose SDK parses them
            assert first["arguments"] == ARGUMENTS


@every_mode
def test_arguments_sent_once_and_an_empty_last_event_lose_nothing(
    door: str, mode: str, tmp_path: Path
) -> None:
    with backend_stage(tmp_path, [bare_stream(odd_stream(CALLS))]) as stage:
        talk = conversation(door, stage.url, "gpt-5.5", tools=[WEATHER])
        talk.say("How is the weather?")
        got = talk.ask(mode)
        assert got.text == "Let me look."
        expected = [{"city": "Paris", "days": 1.0}, {"city": "Rome"}]
        assert [arguments_of(call) for call in got.calls] == expected
        if door != "messages":
            assert got.calls[0].arguments == ARGUMENTS


@doors
def test_a_request_is_sent_to_the_backend_with_the_login(door: str, tmp_path: Path) -> None:
    token = make_token()
    with backend_stage(
        tmp_path, [sse(stream("responses", SUNNY))], login=chatgpt_login(token)
    ) as stage:
        talk = conversation(door, stage.url, "gpt-5.5")
        talk.say("hi")
        assert talk.ask("create").text == "Sunny"
        [request] = stage.backend.requests
        assert (request.method, request.path) == ("POST", "/backend-api/codex/responses")
        assert request.headers["authorization"] == f"Bearer {token}"
        assert request.headers["chatgpt-account-id"] == "acct-1"
        assert request.headers["openai-beta"] == "responses=experimental"
        assert request.headers["originator"] == "dragoman"
        assert request.headers["accept"] == "text/event-stream"
        assert CLIENT_KEY not in str(request.headers)
        assert "session-id" not in request.headers


def test_codex_itself_keeps_its_name_and_session(tmp_path: Path) -> None:
    with backend_stage(tmp_path, [sse(stream("responses", SUNNY))]) as stage:
        body = plain_body("responses", "gpt-5.5", stream=True, prompt_cache_key="key-1")
        headers = {
            "originator": "codex_exec",
            "session-id": "thread-1",
            "authorization": "Bearer x",
        }
        assert ask(stage.url, "responses", body, headers).status_code == 200
        sent = stage.backend.requests[0].headers
        assert (sent["originator"], sent["session-id"]) == ("codex_exec", "thread-1")
        assert sent["authorization"] != "Bearer x"


def test_a_cache_key_names_the_session_where_nothing_else_does(tmp_path: Path) -> None:
    with backend_stage(tmp_path, [sse(stream("responses", SUNNY))]) as stage:
        ask(stage.url, "responses", plain_body("responses", "m", prompt_cache_key="key-1"))
        assert stage.backend.requests[0].headers["session-id"] == "key-1"
        assert stage.heard["prompt_cache_key"] == "key-1"


def test_headers_that_an_operator_sets_win_but_for_the_login(tmp_path: Path) -> None:
    headers = {"originator": "ours", "OpenAI-Beta": "other", "session-id": "s"}
    with backend_stage(tmp_path, [sse(stream("responses", SUNNY))], headers=headers) as stage:
        ask(stage.url, "responses", plain_body("responses", "m", prompt_cache_key="key-1"))
        sent = stage.backend.requests[0].headers
        assert (sent["originator"], sent["openai-beta"], sent["session-id"]) == (
            "ours",
            "other",
            "s",
        )


@doors
def test_what_the_backend_refuses_is_left_out_and_reported(door: str, tmp_path: Path) -> None:
    limit = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[door]
    with backend_stage(tmp_path, [sse(stream("responses", SUNNY))]) as stage:
        body = plain_body(door, "m", temperature=0.5, **{limit: 99})
        answer = ask(stage.url, door, body)
        assert answer.status_code == 200
        found = answer.headers["x-dragoman-loss"]
        assert "unsupported_parameter;at=temperature;drop" in found
        assert f"unsupported_parameter;at={limit};drop" in found


def test_a_kept_conversation_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with backend_stage(tmp_path, []) as stage:
        body = plain_body("responses", "m", previous_response_id="resp_1")
        answer = ask(stage.url, "responses", body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "previous_response_id"
        assert stage.backend.requests == []


def test_sealed_reasoning_comes_and_goes_at_the_responses_door(tmp_path: Path) -> None:
    thinking = Answer((Thought("hm", "SEAL"), Tool("call_1", "get_weather", ('{"city":"Rome"}',))))
    replies = [sse(stream("responses", thinking)), sse(stream("responses", SUNNY))]
    with backend_stage(tmp_path, replies) as stage:
        talk = conversation("responses", stage.url, "m", tools=[WEATHER])
        talk.say("hi")
        got = talk.ask("stream")
        assert stage.heard["include"] == ["reasoning.encrypted_content"]
        talk.answer(got.calls[0], "sunny")
        assert talk.ask("stream").text == "Sunny"
        [replayed] = [item for item in stage.heard["input"] if item.get("type") == "reasoning"]
        assert (replayed["id"], replayed["encrypted_content"]) == ("rs_vendor0", "SEAL")


@doors
@pytest.mark.parametrize(
    ("login", "problem"),
    [
        (b"", "does not exist"),
        (b"{", "is not Codex's auth.json"),
        (b"{}", "holds neither"),
        (chatgpt_login(make_token(1000)), "has expired"),
    ],
    ids=["absent", "malformed", "empty", "expired"],
)
def test_without_a_login_the_error_names_the_login_command(
    door: str, login: bytes, problem: str, tmp_path: Path
) -> None:
    with backend_stage(tmp_path, [], login=login) as stage:
        talk = conversation(door, stage.url, "m")
        talk.say("hi")
        for mode in ("create", "stream"):
            with pytest.raises(AUTHENTICATION, match="codex login") as caught:
                talk.ask(mode)
            assert problem in str(caught.value)
        assert stage.backend.requests == []


def test_a_login_that_comes_later_is_used(tmp_path: Path) -> None:
    with backend_stage(tmp_path, [sse(stream("responses", SUNNY))], login=b"") as stage:
        assert ask(stage.url, "chat", plain_body("chat", "m")).status_code == 401
        stage.auth_file.write_bytes(chatgpt_login())
        assert ask(stage.url, "chat", plain_body("chat", "m")).status_code == 200


@doors
def test_a_refused_login_is_asked_to_be_renewed(door: str, tmp_path: Path) -> None:
    with backend_stage(tmp_path, [json_reply({"detail": "Unauthorized"}, 401)]) as stage:
        answer = ask(stage.url, door, plain_body(door, "m"))
        assert answer.status_code == 401
        assert "was refused; run `codex login`" in answer.text
        assert len(stage.backend.requests) == 1


def test_a_login_that_was_renewed_meanwhile_is_tried_once(tmp_path: Path) -> None:
    def renewed(token: str) -> Reaction:
        def refuse(_request: ReceivedRequest) -> ScriptedReply:
            (tmp_path / "auth.json").write_bytes(chatgpt_login(token))
            return json_reply({"detail": "Unauthorized"}, 401)

        return refuse

    replies: list[ScriptedReply | Reaction] = [
        renewed("b"),
        sse(stream("responses", SUNNY)),
        renewed("c"),
        renewed("d"),
    ]
    with backend_stage(tmp_path, replies, login=chatgpt_login("a")) as stage:
        assert ask(stage.url, "chat", plain_body("chat", "m")).status_code == 200
        assert ask(stage.url, "chat", plain_body("chat", "m")).status_code == 401
        tokens = [request.headers["authorization"] for request in stage.backend.requests]
        assert tokens == ["Bearer a", "Bearer b", "Bearer b", "Bearer c"]


def test_a_login_with_an_api_key_has_no_account(tmp_path: Path) -> None:
    login = b'{"auth_mode": "apikey", "OPENAI_API_KEY": "sk-from-the-file"}'
    with backend_stage(tmp_path, [sse(stream("responses", SUNNY))], login=login) as stage:
        assert ask(stage.url, "chat", plain_body("chat", "m")).status_code == 200
        sent = stage.backend.requests[0].headers
        assert sent["authorization"] == "Bearer sk-from-the-file"
        assert "chatgpt-account-id" not in sent
        assert "openai-beta" not in sent


@doors
def test_an_error_of_the_backend_keeps_its_words(door: str, tmp_path: Path) -> None:
    with backend_stage(tmp_path, [json_reply({"detail": "Model is not supported"}, 400)]) as stage:
        answer = ask(stage.url, door, plain_body(door, "m"))
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "Model is not supported"


def test_nothing_of_the_login_is_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    token = make_token()
    replies = [sse(stream("responses", SUNNY)), json_reply({"detail": "Unauthorized"}, 401)]
    with backend_stage(tmp_path, replies, login=chatgpt_login(token)) as stage:
        found = [ask(stage.url, "chat", plain_body("chat", "m")).text for _ in range(2)]
    out, err = capfd.readouterr()
    for secret in (token, "refresh-me-not", "acct-1"):
        assert secret not in out + err + str(found)
