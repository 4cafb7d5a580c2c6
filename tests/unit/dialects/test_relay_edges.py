"""Corners of the relay: what seldom comes, and must not be missed when it does."""

import json
from collections.abc import Callable
from time import process_time

import pytest

from corpus_checks import CHECKS, calls_of, reasoning_of, text_of
from dragoman.core.fold import fold
from dragoman.core.store_notes import StoreNotes
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.relay import StreamRelay, relay_body
from dragoman.dialects.responses.request import MAX_ECHO
from dragoman.dialects.translate import make_decoder
from dragoman.model.outcome import ErrorInfo, Outcome
from relay_streams import CALL, Payload, Payloads, base, wire

TOO_SLOW = ErrorInfo(kind="timeout", message="the upstream was silent for too long")
Change = Callable[[Payloads], object]


def relay(dialect: str, *, exact: bool = False) -> StreamRelay:
    return StreamRelay(dialect, decode=DecodeContext(), encode=EncodeContext(), exact=exact)


def outcome(dialect: str, data: bytes) -> Outcome:
    decoder = make_decoder(dialect)
    events = [*decoder.events(data)]
    return fold([*events, *(event for step in decoder.close() for event in step.events)])


def changed(dialect: str, change: Change) -> bytes:
    payloads = base(dialect)
    change(payloads)
    return wire(dialect, payloads)


def cut_last_call(payloads: Payloads, name: str) -> None:
    """Remove a field of the call in the last event alone: other events have the same object."""
    output = payloads[-1]["response"]["output"]
    output[1] = {key: value for key, value in output[1].items() if key != name}


IRREGULAR: dict[tuple[str, str], tuple[Change, str]] = {
    ("chat", "usage of another answer"): (
        lambda payloads: payloads[-1].update(id="chatcmpl-2"),
        "unusable_frame",
    ),
    ("chat", "a delta of another answer"): (
        lambda payloads: payloads[6].update(id="chatcmpl-2"),
        "unusable_frame",
    ),
    ("chat", "a choice that is not the first"): (
        lambda payloads: [payload["choices"][0].update(index=1) for payload in payloads[:-1]],
        "unusable_frame",
    ),
    ("chat", "a call inside another"): (
        lambda payloads: payloads.insert(5, second_call()),
        "overlapping_parts",
    ),
    ("chat", "data on two lines"): (
        lambda payloads: None,
        "unusable_frame",
    ),
    ("messages", "a role that is not the assistant's"): (
        lambda payloads: payloads[0]["message"].update(role="user"),
        "unusable_frame",
    ),
    ("messages", "text in a block's start"): (
        lambda payloads: payloads[1]["content_block"].update(text="So. "),
        "unusable_frame",
    ),
    ("responses", "an event under another name"): (
        lambda payloads: None,
        "unusable_frame",
    ),
    ("responses", "an id that is none of OpenAI's"): (
        lambda payloads: payloads[0]["response"].update(id="abc"),
        "unusable_frame",
    ),
    ("responses", "another id at the end"): (
        lambda payloads: payloads[-1]["response"].update(id="resp_2"),
        "unusable_frame",
    ),
    ("responses", "a call without arguments at the end"): (
        lambda payloads: cut_last_call(payloads, "arguments"),
        "unusable_frame",
    ),
    ("responses", "a call without status at the end"): (
        lambda payloads: cut_last_call(payloads, "status"),
        "unusable_frame",
    ),
    ("responses", "incomplete without a reason"): (
        lambda payloads: payloads[-1].update(type="response.incomplete"),
        "missing_finish",
    ),
    ("responses", "a delta without its content_index"): (
        lambda payloads: payloads[4].pop("content_index"),
        "unusable_frame",
    ),
}


def second_call() -> dict[str, object]:
    entry = {
        "index": 1,
        "id": "call_2",
        "type": "function",
        "function": {"name": "g", "arguments": "{}"},
    }
    payload = base("chat")[3]
    payload["choices"][0]["delta"] = {"tool_calls": [entry]}
    return payload


def spoilt(key: tuple[str, str]) -> bytes:
    dialect, name = key
    data = changed(dialect, IRREGULAR[key][0])
    if name == "data on two lines":
        data = data.replace(
            b'"model": "gpt-x", "choices": [{"index": 0, "delta": {"content": "Let',
            b'"model": "gpt-x",\ndata: "choices": [{"index": 0, "delta": {"content": "Let',
        )
    if name == "an event under another name":
        data = data.replace(b"event: response.content_part.done", b"event: response.other")
    return data


@pytest.mark.parametrize("key", IRREGULAR, ids=" ".join)
def test_odd_stream_is_encoded_again_and_means_the_same(key: tuple[str, str]) -> None:
    dialect, _ = key
    data = spoilt(key)
    machine = relay(dialect)
    out = machine.feed(data) + machine.close()
    assert machine.reason == IRREGULAR[key][1]
    CHECKS[dialect](out)
    before, after = outcome(dialect, data), outcome(dialect, out)
    assert text_of(after) == text_of(before)
    found = [(call.name, call.input, call.status) for call in calls_of(before)]
    assert [(call.name, call.input, call.status) for call in calls_of(after)] == found
    assert (after.error is None) == (before.error is None)


def test_failure_after_the_encoder_took_over_is_encoded_by_it() -> None:
    data = changed("chat", lambda payloads: payloads[0]["choices"][0]["delta"].pop("role"))
    frames = [piece + b"\n\n" for piece in data.split(b"\n\n")[:-1]]
    machine = relay("chat")
    out = b"".join(map(machine.feed, frames[:5]))
    assert not machine.is_passing
    out += machine.keep_alive() + machine.fail(TOO_SLOW)
    CHECKS["chat"](out)
    assert machine.reason == "unusable_frame"


def test_failed_response_that_does_not_say_why_is_encoded_again() -> None:
    payloads = base("responses")
    failed = {**payloads[0]["response"], "status": "failed"}
    data = wire("responses", [*payloads[:5], {"type": "response.failed", "response": failed}])
    machine = relay("responses")
    out = machine.feed(data) + machine.close()
    CHECKS["responses"](out)
    assert machine.tally.error is not None


def test_thoughts_are_whole_when_the_encoder_takes_over() -> None:
    payloads = base("responses")[:2]
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    item: dict[str, object] = {"id": "rs_1", "type": "reasoning", "summary": []}
    payloads += [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {
            "type": "response.reasoning_summary_part.added",
            **place,
            "part": {"type": "summary_text", "text": ""},
        },
    ]
    delta = {"type": "response.reasoning_summary_text.delta", **place, "delta": "hm é "}
    payloads += [{**delta} for _ in range(2000)]
    for number, payload in enumerate(payloads):
        payload["sequence_number"] = number
    data = wire("responses", payloads)
    machine = relay("responses")
    assert machine.feed(data) == data
    # The end of the summary comes without what clients need.
    done = {"id": "rs_1", "type": "reasoning"}
    out = machine.feed(
        wire("responses", [{"type": "response.output_item.done", "output_index": 0, "item": done}])
    )
    assert not machine.is_passing
    text = json.loads(out.partition(b"data: ")[2].partition(b"\n")[0])
    assert text["type"] == "response.reasoning_summary_text.done"
    assert text["text"] == "hm é " * 2000
    assert text["sequence_number"] == len(payloads)
    whole = data + out + machine.fail(TOO_SLOW)
    CHECKS["responses"](whole)
    assert reasoning_of(outcome("responses", whole)) == "hm é " * 2000


def test_text_of_one_choice_while_another_calls_passes() -> None:
    payloads = base("chat")[:-2]
    first = payloads[:3]
    second = payloads[0], *payloads[3:]
    opened = [*first[:2]]
    for payload in json.loads(json.dumps(second)):
        payload["choices"][0]["index"] = 1
        opened.append(payload)
        opened.append(json.loads(json.dumps(first[1])))
    for index, reason in ((0, "stop"), (1, "tool_calls")):
        end = base("chat")[-2]
        end["choices"][0] |= {"index": index, "finish_reason": reason}
        opened.append(end)
    data = wire("chat", opened)
    machine = relay("chat")
    assert machine.feed(data) + machine.close() == data, machine.reason
    assert machine.tally.names == [CALL[0]]


def test_thoughts_in_any_language_pass() -> None:
    payloads = base("chat")
    thought = base("chat")[1]
    thought["choices"][0]["delta"] = {"reasoning_content": "hé"}
    data = wire("chat", [payloads[0], *(thought for _ in range(4)), *payloads[1:]])
    data = data.replace(b"h\\u00e9", "hé".encode())
    machine = relay("chat")
    assert machine.feed(data) + machine.close() == data


def test_frames_between_an_announcement_and_its_event_wait_in_linear_work() -> None:
    """If each of them looked at all that wait before it, this took more than a minute."""
    whole = base("responses")
    added = [payload["type"] for payload in whole].index("response.output_item.added") + 1
    before, after = (wire("responses", part) for part in (whole[:added], whole[added:]))
    comments, stray = b":\n\n" * 80_000, wire("responses", [{"type": "gateway.note"}])
    machine = relay("responses")
    start = process_time()
    sent = machine.feed(before + comments + stray * 10_000) + machine.feed(after) + machine.close()
    assert process_time() - start < 20
    assert machine.is_passing
    assert sent == before + comments + after


def test_exact_relay_of_nothing_fails() -> None:
    machine = relay("chat", exact=True)
    out = machine.close()
    CHECKS["chat"](out)
    assert machine.tally.error is not None


def test_stray_frame_is_left_out_while_the_encoder_speaks_too() -> None:
    def change(payloads: Payloads) -> None:
        del payloads[0]["message"]["usage"]
        payloads.insert(3, {"type": "gateway_note", "x": 1})

    machine = relay("messages")
    out = machine.feed(changed("messages", change)) + machine.close()
    CHECKS["messages"](out)
    assert b"gateway_note" not in out


def test_body_that_lacks_what_clients_read_is_encoded_again() -> None:
    response = base("responses")[-1]["response"]
    del response["created_at"]
    data = json.dumps(response).encode()
    sent, _ = relay_body(data, "responses", decode=DecodeContext(), encode=EncodeContext())
    assert sent.body != data


# --- credentials ------------------------------------------------------------------------------------------------------

SERVER = {"type": "mcp", "server_label": "s", "server_url": "https://s", "allowed_tools": ["a"]}
HEADERS = {"Authorization": "Bearer hush-hush"}


def asked_with(tool: Payload, notes: StoreNotes | None) -> EncodeContext:
    body = {"model": "gpt-x", "input": "hi", "tools": [tool]}
    request = codec("responses").decode_request(json.dumps(body).encode())
    return EncodeContext(request=request, notes=notes)


@pytest.mark.parametrize("shown", [HEADERS, {"Authorization": "<redacted>"}, None])
@pytest.mark.parametrize("is_stored", [True, False])
def test_an_answer_that_is_stored_has_no_credentials_of_the_client(
    shown: Payload | None, is_stored: bool
) -> None:
    """Some servers repeat the tools as they got them."""
    payloads = base("responses")
    for payload in (payloads[0], payloads[-1]):
        payload["response"]["tools"] = [{**SERVER, "headers": shown}]
    data = wire("responses", payloads)
    encode = asked_with({**SERVER, "headers": HEADERS}, StoreNotes() if is_stored else None)
    machine = StreamRelay("responses", decode=DecodeContext(), encode=encode)
    out = machine.feed(data) + machine.close()
    body = json.dumps(payloads[-1]["response"]).encode()
    sent, _ = relay_body(body, "responses", decode=DecodeContext(), encode=encode)
    if is_stored and shown is HEADERS:
        assert b"hush-hush" not in out + sent.body
        assert b'"allowed_tools":["a"]' in out
        assert b'"allowed_tools":["a"]' in sent.body
        CHECKS["responses"](out)
    else:
        assert (out, sent.body) == (data, body)


def test_tools_that_are_too_large_to_be_repeated_are_not_repeated_with_credentials() -> None:
    large = {**SERVER, "headers": HEADERS, "server_description": "x" * MAX_ECHO}
    payloads = base("responses")
    payloads[0]["response"]["tools"] = [large]
    machine = StreamRelay(
        "responses", decode=DecodeContext(), encode=asked_with(large, StoreNotes())
    )
    out = machine.feed(wire("responses", payloads)) + machine.close()
    assert b"hush-hush" not in out
    assert machine.reason == "unusable_frame"
