"""What a message leaves out because the server has it, and how frames are read as answers to a POST."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.responses.websocket_client import (
    LIMIT_REACHED,
    MAX_ITEM_BYTES,
    MAX_REASONING,
    AnswerState,
    ErrorFrame,
    SocketRequest,
    create_message,
    event_type,
    find_continued,
    is_of_request,
    read_error_frame,
    read_request,
    sse_frame,
)

Json = dict[str, Any]

OWNER = b"o" * 20
SETTINGS: Json = {"model": "m", "tools": [{"type": "function", "name": "f"}], "store": False}
USER: Json = {"type": "message", "role": "user", "content": "Weather?"}
SAID: Json = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}],
}
CALL: Json = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"city": "Paris", "days": 2}',
}
CUSTOM: Json = {"type": "custom_tool_call", "id": "c", "call_id": "x", "name": "g", "input": "{ a"}
THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
PATCH: Json = {"type": "apply_patch_call", "id": "p", "call_id": "y", "operation": {"path": "a"}}


class Kept:
    """A connection that has carried an answer."""

    def __init__(self, answer: AnswerState) -> None:
        self.answer = answer


def request(items: object, owner: bytes = OWNER, **settings: object) -> SocketRequest:
    body = {**SETTINGS, "stream": True, "input": items, **settings}
    read = read_request(json.dumps(body).encode(), owner)
    assert read is not None
    return read


def answered(asked: SocketRequest, *output: Json, previous: str | None = None) -> AnswerState:
    """The state after an answer with these items."""
    answer = AnswerState(asked, previous)
    for item in output:
        event = {"type": "response.output_item.done", "item": item}
        answer.take("response.output_item.done", json.dumps(event).encode())
    done = {"type": "response.completed", "response": {"id": "resp_1", "output": list(output)}}
    answer.take("response.completed", json.dumps(done).encode())
    return answer


def known_by(next_request: SocketRequest, answer: AnswerState) -> int | None:
    """How many items the server has; None if the request continues nothing."""
    state = answer.state
    found = find_continued(next_request, {} if state is None else {state: Kept(answer)})
    return None if found is None else found[0]


def message(asked: SocketRequest, **more: Any) -> Json:
    read: Json = json.loads(create_message(asked, more.pop("headers", {}), **more))
    return read


# --- the decision -------------------------------------------------------------------------------------------------


def test_input_that_goes_on_after_the_output_is_continued() -> None:
    answer = answered(request([USER]), SAID, CALL)
    following = request([USER, SAID, CALL, OUTPUT])
    assert known_by(following, answer) == 3
    sent = message(following, known=3, previous="resp_1")
    assert sent == {
        "type": "response.create",
        **SETTINGS,
        "previous_response_id": "resp_1",
        "input": [OUTPUT],
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "n"},
        {"tools": []},
        {"instructions": "Be brief."},
        {"reasoning": {"effort": "low"}},
        {"store": True},
        {"max_output_tokens": 5},
        {"something_new": 1},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_another_setting_starts_anew(settings: Json) -> None:
    answer = answered(request([USER]), SAID)
    following = request([USER, SAID, USER], **settings)
    assert known_by(following, answer) is None
    assert message(following)["input"] == [USER, SAID, USER]
    assert "previous_response_id" not in message(following)


def test_what_names_a_turn_and_what_is_null_are_no_settings() -> None:
    answer = answered(request([USER], client_metadata={"turn": "1"}, text=None), SAID)
    following = request([USER, SAID, USER], client_metadata={"turn": "2"})
    assert known_by(following, answer) == 2
    assert message(following)["client_metadata"] == {"turn": "2"}


def test_another_owner_starts_anew() -> None:
    answer = answered(request([USER]), SAID)
    assert known_by(request([USER, SAID, USER], owner=b"p" * 20), answer) is None


def test_order_of_members_does_not_matter() -> None:
    turned: Json = dict(reversed(CALL.items()))
    answer = answered(request([dict(reversed(USER.items()))]), CALL)
    assert known_by(request([USER, turned, OUTPUT]), answer) == 2


@pytest.mark.parametrize("item", [SAID, CALL, CUSTOM, PATCH], ids=lambda item: item["type"])
def test_ids_status_and_unknown_members_of_output_may_be_missing(item: Json) -> None:
    answer = answered(request([USER]), {**item, "status": "completed"})
    without = {name: value for name, value in item.items() if name not in ("id", "status")}
    for sent in (item, without, {**without, "id": "another"}):
        assert known_by(request([USER, sent, OUTPUT]), answer) == 2
    if item is not PATCH:
        result = answered(request([USER]), {**item, "unknown": {"a": 1}})
        assert known_by(request([USER, without, OUTPUT]), result) == 2


@pytest.mark.parametrize(
    ("item", "change"),
    [
        (SAID, {"content": [{"type": "output_text", "text": "Let me look"}]}),
        (SAID, {"role": "user"}),
        (CALL, {"arguments": '{"city": "Paris", "days": 3}'}),
        (CALL, {"arguments": '{"city": "Paris"'}),
        (CALL, {"name": "h"}),
        (CALL, {"call_id": "call_2"}),
        (CALL, {"namespace": "n"}),
        (CUSTOM, {"input": "{a"}),
        (PATCH, {"operation": {"path": "b"}}),
        (PATCH, {"unknown": 1}),
        (THOUGHT, {"encrypted_content": "other"}),
    ],
)
def test_other_content_of_output_starts_anew(item: Json, change: Json) -> None:
    answer = answered(request([USER]), item)
    assert known_by(request([USER, item, OUTPUT]), answer) == 2
    assert known_by(request([USER, {**item, **change}, OUTPUT]), answer) is None


def test_a_message_as_a_string_equals_one_with_one_text() -> None:
    answer = answered(request([USER]), SAID)
    text: Json = {"role": "assistant", "content": "Let me look."}
    parts: Json = {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}
    assert known_by(request([parts, text, OUTPUT]), answer) == 2


def test_a_string_as_input_is_one_message() -> None:
    asked = request("Weather?")
    assert message(asked)["input"] == "Weather?"
    assert known_by(request([USER, SAID, USER]), answered(asked, SAID)) == 2


def test_arguments_are_compared_as_json() -> None:
    answer = answered(request([USER]), CALL)
    other = {**CALL, "arguments": '{"days":2,"city":"Paris"}'}
    assert known_by(request([USER, other, OUTPUT]), answer) == 2


def test_members_of_what_the_client_wrote_are_all_compared() -> None:
    answer = answered(request([{**USER, "unknown": 1}]), SAID)
    assert known_by(request([USER, SAID, USER]), answer) is None
    assert known_by(request([{**USER, "unknown": 1, "id": "msg_9"}, SAID, USER]), answer) == 2


def test_reasoning_may_be_missing_and_must_be_its_own_where_it_is_there() -> None:
    first = answered(request([USER]), THOUGHT, CALL)
    assert known_by(request([USER, THOUGHT, CALL, OUTPUT]), first) == 3
    assert known_by(request([USER, CALL, OUTPUT]), first) == 2
    other = {**THOUGHT, "encrypted_content": "of another"}
    assert known_by(request([USER, other, CALL, OUTPUT]), first) is None
    assert known_by(request([USER, CALL, THOUGHT, OUTPUT]), first) is None  # at another place
    assert known_by(request([USER, CALL, OUTPUT, other, SAID, USER]), first) == 2  # it is new
    second = answered(request([USER, THOUGHT, CALL, OUTPUT]), {**THOUGHT, "id": "rs_2"}, SAID)
    assert known_by(request([USER, THOUGHT, CALL, OUTPUT, SAID, USER]), second) == 5


def test_reasoning_that_was_not_sealed_is_compared_by_its_text() -> None:
    open_: Json = {"type": "reasoning", "id": "r", "summary": [{"type": "s", "text": "a"}]}
    answer = answered(request([USER]), open_, SAID)
    assert known_by(request([USER, {**open_, "id": "q"}, SAID, USER]), answer) == 3
    changed = {**open_, "summary": [{"type": "s", "text": "b"}]}
    assert known_by(request([USER, changed, SAID, USER]), answer) is None


def test_too_much_reasoning_is_not_remembered() -> None:
    thoughts = [{**THOUGHT, "encrypted_content": str(number)} for number in range(MAX_REASONING)]
    assert answered(request([USER, *thoughts]), SAID).state is not None
    assert answered(request([USER, *thoughts]), THOUGHT, SAID).state is None


def test_the_same_input_again_is_not_a_continuation() -> None:
    answer = answered(request([USER]), SAID)
    assert known_by(request([USER, SAID]), answer) is None
    assert known_by(request([USER]), answer) is None


@pytest.mark.parametrize(
    "fields",
    [{"input": None}, {"previous_response_id": "resp_0"}, {"conversation": "conv_1"}],
)
def test_a_request_that_stands_alone_is_sent_as_it_is(fields: Json) -> None:
    asked = request(fields.get("input", [USER]), **fields)
    sent = message(asked)
    assert sent["input"] == fields.get("input", [USER])
    assert sent.get("previous_response_id") == fields.get("previous_response_id")
    assert answered(asked, SAID).state is None
    before = answered(request([USER]), SAID)
    following = request(fields.get("input", [USER, SAID, USER]), **fields)
    assert known_by(following, before) is None


def test_an_answer_without_end_id_or_item_is_not_continued() -> None:
    completed: Json = {"type": "response.completed", "response": {"id": "r"}}
    sequences: list[list[Json]] = [
        [{"type": "response.output_item.done", "item": SAID}],
        [{"type": "response.completed", "response": {}}],
        [{"type": "response.output_item.done"}, completed],
        [{"type": "response.incomplete", "response": {"id": "r"}}],
    ]
    for events in sequences:
        answer = AnswerState(request([USER]))
        for event in events:
            answer.take(str(event["type"]), json.dumps(event).encode())
        assert answer.state is None


def conversation(random: Random, *, thinks: bool) -> list[Json]:
    """Items that all differ, of any kind, with or without reasoning between them."""
    items: list[Json] = []
    for number in range(random.randrange(2, 14)):
        if thinks and random.random() < 0.4:
            items.append({**THOUGHT, "id": f"rs_{number}", "encrypted_content": f"seal {number}"})
        kind = random.choice([USER, SAID, CALL, CUSTOM, OUTPUT, PATCH])
        content = {"content": f"text {number}"} if kind["type"] == "message" else {}
        items.append({**kind, "call_id": f"call_{number}", **content})
    return items


@given(st.integers(0, 2**32))
def test_a_conversation_is_continued_exactly_where_it_was_left(seed: int) -> None:
    random = Random(seed)
    history = conversation(random, thinks=False)
    upto = random.randrange(1, len(history))
    before = random.randrange(upto + 1)
    answer = answered(request(history[:before]), *history[before:upto])
    assert known_by(request(history), answer) == upto
    at = random.randrange(upto)
    changed = {"role": "user", "content": "changed"}
    for other in (
        [*history[:at], changed, *history[at + 1 :]],
        [*history[:at], changed, *history[at:]],
        [*history[:at], *history[at + 1 :]],
        history[:upto],
    ):
        assert known_by(request(other), answer) is None


@given(st.integers(0, 2**32))
def test_any_reasoning_may_be_missing_and_none_may_differ(seed: int) -> None:
    random = Random(seed)
    history = conversation(random, thinks=True)
    upto = random.randrange(1, len(history))
    before = random.randrange(upto + 1)
    answer = answered(request(history[:before]), *history[before:upto])
    rest = [item for item in history[upto:] if item["type"] != "reasoning"]
    sent = [item for item in history[:upto] if item["type"] != "reasoning" or random.random() < 0.5]
    if any(item["type"] != "reasoning" for item in sent):
        assert known_by(request([*sent, *rest]), answer) == len(sent)
    thoughts = [number for number, item in enumerate(sent) if item["type"] == "reasoning"]
    if thoughts:
        at = random.choice(thoughts)
        sent[at] = {**sent[at], "encrypted_content": "of another"}
        assert known_by(request([*sent, *rest]), answer) is None


def test_the_longest_conversation_wins() -> None:
    short = Kept(answered(request([USER]), SAID))
    long = Kept(answered(request([USER, SAID, USER]), CALL))
    kept = {kept.answer.state: kept for kept in (short, long)}
    answers = {state: one for state, one in kept.items() if state is not None}
    found = find_continued(request([USER, SAID, USER, CALL, OUTPUT]), answers)
    assert found == (4, long)
    assert find_continued(request([USER, SAID, OUTPUT]), answers) == (2, short)


# --- messages -----------------------------------------------------------------------------------------------------


def test_members_that_only_a_post_has_are_left_out() -> None:
    asked = request([USER], stream_options={"include_obfuscation": False}, background=False)
    assert message(asked) == {"type": "response.create", **SETTINGS, "input": [USER]}


@pytest.mark.parametrize(
    "body", [b'{"model":"m","background":true}', b"[]", b"{", b'{"input":["\xff"]}']
)
def test_a_request_that_only_a_post_can_make_is_none(body: bytes) -> None:
    assert read_request(body, OWNER) is None


def test_values_keep_their_bytes() -> None:
    body = b'{"model":"m","seed":1.0e2,"input":[{"role":"user","content":"\\u00e4"}]}'
    asked = read_request(body, OWNER)
    assert asked is not None
    sent = create_message(asked, {})
    assert b'"seed":1.0e2' in sent
    assert b'[{"role":"user","content":"\\u00e4"}]' in sent


def test_headers_of_a_request_move_into_the_message() -> None:
    headers = {
        "x-codex-turn-metadata": '{"turn":1}',
        "x-openai-internal-codex-responses-lite": "true",
        "authorization": "Bearer secret",
        "session-id": "s",
    }
    assert message(request([USER]), headers=headers)["client_metadata"] == {
        "x-codex-turn-metadata": '{"turn":1}',
        "ws_request_header_x_openai_internal_codex_responses_lite": "true",
    }
    own = request([USER], client_metadata={"x-codex-turn-metadata": "own"})
    assert message(own, headers=headers)["client_metadata"]["x-codex-turn-metadata"] == "own"
    assert message(request([USER], client_metadata=[1]))["client_metadata"] == [1]
    assert [name for name in headers if is_of_request(name)] == list(headers)[:2]


# --- frames -------------------------------------------------------------------------------------------------------


def test_the_client_does_not_see_which_response_was_continued() -> None:
    answer = AnswerState(request([USER, SAID, USER]), "resp_0")
    event = b'{"type":"response.created","response":{"id":"resp_1", "previous_response_id" : "resp_0","x":1}}'
    seen = answer.take("response.created", event)
    assert (
        seen
        == b'{"type":"response.created","response":{"id":"resp_1", "previous_response_id" : null,"x":1}}'
    )
    without = AnswerState(request([USER]))
    assert without.take("response.created", event) is event


def test_what_only_looks_like_the_previous_response_stays() -> None:
    answer = AnswerState(request([USER, SAID, USER]), "resp_0")
    text = json.dumps('"previous_response_id":"resp_0"').encode()
    event = b'{"response":{"a":%b,"previous_response_id":"resp_9"},"previous_response_id":1}' % text
    assert answer.take("response.completed", event) == event


def test_the_id_is_that_of_the_first_event_that_has_one() -> None:
    answer = AnswerState(request([USER]))
    answer.take("response.created", b'{"response":{"id":"resp_1"}}')
    assert answer.state is None
    answer.take("response.completed", b'{"response":{"x":"%b"}}' % (b"x" * MAX_ITEM_BYTES))
    assert answer.response_id == "resp_1"
    assert answer.state is not None


def test_an_answer_with_a_large_item_is_not_continued() -> None:
    image: Json = {"type": "image_generation_call", "result": "x" * (MAX_ITEM_BYTES // 2)}
    assert answered(request([USER]), image).state is not None
    assert answered(request([USER]), {**image, "result": "x" * MAX_ITEM_BYTES}).state is None


@pytest.mark.parametrize(
    ("frame", "read"),
    [
        (
            {
                "type": "error",
                "status": 429,
                "error": {"code": "rate_limit_exceeded", "message": "slow"},
                "headers": {"Retry-After": "2", "x-n": 3},
            },
            ErrorFrame(
                429,
                ((b"retry-after", b"2"), (b"x-n", b"3")),
                b'{"error":{"code":"rate_limit_exceeded","message":"slow"}}',
                "rate_limit_exceeded",
            ),
        ),
        (
            {"type": "error", "status_code": 400, "error": {"code": LIMIT_REACHED}},
            ErrorFrame(400, (), b'{"error":{"code":"%b"}}' % LIMIT_REACHED.encode(), LIMIT_REACHED),
        ),
        (
            {"type": "error", "code": "x", "message": "flat"},
            ErrorFrame(500, (), b'{"error":{"code":"x","message":"flat"}}', "x"),
        ),
        ({"type": "error", "status": 200}, ErrorFrame(500, (), b'{"error":{"status":200}}', None)),
    ],
)
def test_an_error_frame_is_the_answer_to_a_post(frame: Json, read: ErrorFrame) -> None:
    assert read_error_frame(json.dumps(frame).encode()) == read


def test_headers_of_an_error_frame_that_no_http_server_could_send_are_left_out() -> None:
    headers = {
        "x-ratelimit-a\r\nset-cookie: b": "1",
        "x-ratelimit-b": "1\r\nset-cookie: b",
        "x ratelimit": "1",
        "": "1",
        "é": "1",
        "x-ratelimit-limit-requests": "é",
    }
    frame = json.dumps({"type": "error", "status": 429, "headers": headers})
    assert read_error_frame(frame.encode()).headers == ((b"x-ratelimit-limit-requests", b"\xe9"),)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b'{"type":"response.created"}', "response.created"),
        (b' { "type" : "keepalive" }', "keepalive"),
        (b'{"sequence_number":1,"type":"error"}', "error"),
        (b'{"a":1,"type":"evil\\ndata: x"}', ""),
        (b'{"a":1}', ""),
        (b"nonsense", ""),
        (b"[1]", ""),
    ],
)
def test_the_type_of_a_frame(frame: bytes, kind: str) -> None:
    assert event_type(frame) == kind


def test_a_frame_as_an_event_has_one_data_line() -> None:
    assert sse_frame("a.b", b'{\r\n"x":1\n}') == b'event: a.b\ndata: {  "x":1 }\n\n'
    assert sse_frame("", b"{}") == b"data: {}\n\n"
