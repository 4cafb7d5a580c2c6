"""The same dialect on both sides: what passes as it came, and what is put right from where on."""

import json
from typing import Any

import pytest

import doors
from corpus_checks import CHECKS, calls_of, cuts, text_of
from dragoman.core.aliases import NameMap
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.translate import make_decoder
from dragoman.model.outcome import ErrorInfo, Outcome
from dragoman.model.request import Tool
from relay_streams import CALL, HARMFUL, HARMLESS, STRAYS, TEXT, base, wire

DIALECTS = ("chat", "responses", "messages")
TOO_SLOW = ErrorInfo(kind="timeout", message="the upstream was silent for too long")

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def relay(
    dialect: str, encode: EncodeContext | None = None, names: NameMap | None = None, **more: Any
) -> StreamRelay:
    return StreamRelay(
        dialect, decode=DecodeContext(), encode=encode or EncodeContext(), names=names, **more
    )


def passed(machine: StreamRelay, data: bytes) -> bytes:
    return machine.feed(data) + machine.close()


def outcome(dialect: str, data: bytes) -> Outcome:
    decoder = make_decoder(dialect)
    events = [*decoder.events(data)]
    return fold([*events, *(event for step in decoder.close() for event in step.events)])


def deviated(key: tuple[str, str]) -> bytes:
    change = HARMFUL[key] if key in HARMFUL else HARMLESS[key]
    result = change(base(key[0]))
    return result if isinstance(result, bytes) else wire(key[0], result)


def frames_of(data: bytes) -> list[bytes]:
    return [piece + b"\n\n" for piece in data.split(b"\n\n")[:-1]]


# --- what passes --------------------------------------------------------------------------------------


@each_dialect
def test_regular_stream_passes_byte_for_byte_however_it_is_cut(dialect: str) -> None:
    data = wire(dialect, base(dialect))
    CHECKS[dialect](data)
    for reads in cuts(data).values():
        machine = relay(dialect)
        out = b"".join([machine.feed(read) for read in reads])
        assert out + machine.close() == data
        assert machine.is_passing
        assert machine.is_over
        assert machine.tally.names == [CALL[0]]
        assert machine.tally.finish == "tool_calls"
        assert machine.tally.usage is not None
        assert machine.tally.usage.output == 7
        assert not machine.losses
        assert machine.tally.error is None


@pytest.mark.parametrize("key", HARMLESS, ids=" ".join)
def test_deviation_that_no_client_minds_passes_byte_for_byte(key: tuple[str, str]) -> None:
    data = deviated(key)
    for reads in cuts(data).values():
        machine = relay(key[0])
        out = b"".join([machine.feed(read) for read in reads]) + machine.close()
        assert out == data, machine.reason
        assert machine.is_passing


@each_dialect
def test_frames_leave_as_they_come_and_are_held_only_until_they_are_certain(dialect: str) -> None:
    data = frames_of(wire(dialect, base(dialect)))
    machine = relay(dialect)
    held = [not machine.feed(frame) for frame in data]
    # Chat: the call whose name may grow, and the finish and the usage until the end.
    # Responses: an item until its first part. Messages: the stop reason until the end.
    assert sum(held) <= 3
    assert not any(held[4:8])


# --- what is put right ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", HARMFUL, ids=" ".join)
def test_deviation_that_breaks_a_client_is_put_right(key: tuple[str, str]) -> None:
    dialect, name = key
    data = deviated(key)
    machine = relay(dialect)
    out = passed(machine, data)
    CHECKS[dialect](out)
    before, after = outcome(dialect, data), outcome(dialect, out)
    output = [(call.name, call.input) for call in calls_of(before)]
    assert [(call.name, call.input) for call in calls_of(after)] == output
    assert text_of(after) == text_of(before)
    assert [choice.finish for choice in after.choices] == [
        choice.finish for choice in before.choices
    ]
    assert (after.error is None) == (before.error is None) == after.completed
    if after.error is None:
        assert text_of(after).startswith(TEXT)
        assert set(output) == {CALL if name != "no arguments at all" else (CALL[0], "{}")}


@pytest.mark.parametrize("key", HARMFUL, ids=" ".join)
def test_repair_does_not_depend_on_the_cuts_and_needs_none_itself(key: tuple[str, str]) -> None:
    dialect, _ = key
    data = deviated(key)
    whole = passed(relay(dialect), data)
    for reads in cuts(data).values():
        machine = relay(dialect)
        assert b"".join([machine.feed(read) for read in reads]) + machine.close() == whole
    assert passed(relay(dialect), whole) == whole


@pytest.mark.parametrize("key", HARMFUL, ids=" ".join)
def test_what_has_left_before_the_irregular_frame_is_what_came(key: tuple[str, str]) -> None:
    dialect, _ = key
    data = deviated(key)
    machine = relay(dialect)
    came = b""
    for frame in frames_of(data):
        came += frame
        sent = machine.feed(frame)
        if not machine.is_passing:
            break
        assert came.endswith(sent)


@pytest.mark.parametrize("missing", [0, 1, 2, 4, 6, 7])
def test_every_choice_that_leaves_has_a_finish_reason(missing: int) -> None:
    payloads = base("chat")
    del payloads[missing]["choices"][0]["finish_reason"]
    data = wire("chat", payloads)
    for reads in cuts(data).values():
        machine = relay("chat")
        out = b"".join([machine.feed(read) for read in reads]) + machine.close()
        chunks = [json.loads(frame[6:]) for frame in frames_of(out)[:-1]]
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        assert all("finish_reason" in choice for choice in choices)
        assert machine.reason == "unusable_frame"


def test_ids_and_indices_go_on_where_the_upstream_left_them() -> None:
    payloads = base("responses")
    payloads[-1]["response"]["output"] = []
    out = passed(relay("responses"), wire("responses", payloads))
    assert out.startswith(wire("responses", payloads[:-1]))
    last = json.loads(out.rpartition(b"data: ")[2])
    assert last["sequence_number"] == payloads[-1]["sequence_number"]
    assert last["response"]["id"] == "resp_1"
    assert [item["id"] for item in last["response"]["output"]] == ["msg_1", "fc_1"]


def test_missing_done_is_all_that_is_added() -> None:
    data = wire("chat", base("chat"))
    machine = relay("chat")
    assert passed(machine, data.removesuffix(b"data: [DONE]\n\n")) == data
    assert machine.is_passing


def test_missing_message_stop_is_all_that_is_added() -> None:
    data = wire("messages", base("messages")[:-1])
    ending = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    assert passed(relay("messages"), data) == data + ending


@pytest.mark.parametrize("key", STRAYS, ids=" ".join)
def test_frame_that_means_nothing_and_breaks_a_client_is_left_out(key: tuple[str, str]) -> None:
    dialect, _ = key
    at, payload = STRAYS[key]
    payloads = base(dialect)
    machine = relay(dialect)
    data = wire(dialect, [*payloads[:at], payload, *payloads[at:]])
    assert passed(machine, data) == wire(dialect, payloads)
    assert machine.is_passing
    assert machine.problems


def test_block_of_an_unknown_type_is_kept_for_those_who_asked_for_it() -> None:
    payloads = base("messages")
    block = {"type": "brand_new", "x": 1}
    delta = {"type": "brand_new_delta", "y": 2}
    payloads[1:5] = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    ]
    data = wire("messages", payloads)
    assert passed(relay("messages"), data) == data


@each_dialect
def test_frame_that_cannot_be_read_fails_the_stream_after_what_came_before(dialect: str) -> None:
    frames = frames_of(wire(dialect, base(dialect)))
    for number in range(3, len(frames)):
        machine = relay(dialect)
        damaged = frames[number][: len(frames[number]) // 2] + b"\n\n"
        out = passed(machine, b"".join((*frames[:number], damaged, *frames[number + 1 :])))
        CHECKS[dialect](out)
        output = outcome(dialect, out)
        assert output.error is not None
        assert output.error.message
        assert machine.tally.error is not None
        assert machine.tally.error.kind == "protocol"
        assert b"".join(frames).startswith(machine_prefix := out[: len(b"".join(frames[:2]))])
        assert machine_prefix
        assert [problem.kind for problem in machine.problems][-1] == "malformed_frame"


@each_dialect
def test_bare_line_separators_are_escaped_and_nothing_else(dialect: str) -> None:
    data = wire(dialect, base(dialect))
    escaped = data.replace(b"look", b"look\\u2028\\u2029\\u0085\xc3\xa9")
    bare = data.replace(b"look", "look\u2028\u2029\u0085é".encode())
    machine = relay(dialect)
    assert passed(machine, bare) == escaped
    assert machine.is_passing


def test_halves_of_a_character_are_joined() -> None:
    payloads = base("chat")
    payloads[1]["choices"][0]["delta"]["content"] = "\ud83d"
    payloads[2]["choices"][0]["delta"]["content"] = "\ude00"
    out = passed(relay("chat"), wire("chat", payloads))
    CHECKS["chat"](out)
    assert text_of(outcome("chat", out)) == "\U0001f600"


def test_bytes_that_are_no_utf8_never_reach_the_client() -> None:
    data = wire("chat", base("chat")).replace(b"look", b"lo\xff\xfek")
    out = passed(relay("chat"), data)
    CHECKS["chat"](out)
    assert text_of(outcome("chat", out)) == TEXT[:6]
    assert outcome("chat", out).error is not None


def test_byte_order_mark_is_taken_off() -> None:
    data = wire("chat", base("chat"))
    assert passed(relay("chat"), b"\xef\xbb\xbf" + data) == data


def test_last_frame_without_its_blank_line_gets_it() -> None:
    data = wire("chat", base("chat"))
    assert passed(relay("chat"), data.rstrip()) == data


def test_event_lines_without_data_are_left_out() -> None:
    data = wire("messages", base("messages"))
    assert passed(relay("messages"), b"event: ping\n\n" + data) == data


# --- names, models, usage, profiles -----------------------------------------------------------------------


@each_dialect
def test_model_is_renamed_without_another_change(dialect: str) -> None:
    data = wire(dialect, base(dialect))
    machine = relay(dialect, EncodeContext(model="our-model"))
    renamed = data.replace(b'"gpt-x"', b'"our-model"').replace(b'"claude-x"', b'"our-model"')
    assert passed(machine, data) == renamed
    assert machine.is_passing


def test_model_is_renamed_wherever_the_envelope_stands() -> None:
    payloads = [
        {"choices": payload.pop("choices"), **payload, "system_fingerprint": "fp"}
        for payload in base("chat")
    ]
    data = wire("chat", payloads)
    machine = relay("chat", EncodeContext(model="our-model"))
    assert passed(machine, data) == data.replace(b'"gpt-x"', b'"our-model"')


@each_dialect
def test_renamed_model_stays_renamed_when_the_encoder_speaks(dialect: str) -> None:
    machine = relay(dialect, EncodeContext(model="our-model"))
    out = b"".join(map(machine.feed, frames_of(wire(dialect, base(dialect)))[:5]))
    out += machine.fail(TOO_SLOW)
    CHECKS[dialect](out)
    assert b"gpt-x" not in out
    assert b"claude-x" not in out


def test_call_whose_name_must_be_restored_is_encoded_again() -> None:
    tools = [Tool(name=CALL[0], namespace="weather")]
    names = NameMap.build(tools)
    data = wire("chat", base("chat")).replace(
        CALL[0].encode(), names.wire(CALL[0], "weather").encode()
    )
    machine = relay("chat", names=names)
    out = passed(machine, data)
    assert out.startswith(wire("chat", base("chat")[:3]).removesuffix(b"data: [DONE]\n\n"))
    assert machine.reason == "restored_name"
    assert machine.tally.names == [CALL[0]]


def test_name_that_needs_no_restoring_passes() -> None:
    data = wire("chat", base("chat"))
    machine = relay("chat", names=NameMap.build([Tool(name=CALL[0]), Tool(name="other")]))
    assert passed(machine, data) == data


def test_usage_that_was_not_asked_for_is_left_out() -> None:
    payloads = base("chat")
    machine = relay("chat", EncodeContext(include_usage=False))
    assert passed(machine, wire("chat", payloads)) == wire("chat", payloads[:-1])
    assert machine.tally.usage is not None


def test_profile_with_an_end_of_its_own_gets_it() -> None:
    payloads = base("responses")
    machine = relay("responses", EncodeContext(profile="required_action"))
    out = passed(machine, wire("responses", payloads))
    doors.check_responses(out, profile="required_action")
    assert out.startswith(wire("responses", payloads[:-1]))
    assert b"response.required_action" in out


def test_legacy_client_gets_legacy_calls_as_they_came() -> None:
    data = deviated(("chat", "legacy function_call"))
    machine = relay("chat", EncodeContext(legacy_functions=True))
    assert passed(machine, data) == data, machine.reason


def test_legacy_client_gets_legacy_calls_whatever_came() -> None:
    machine = relay("chat", EncodeContext(legacy_functions=True))
    out = passed(machine, wire("chat", base("chat")))
    assert b'"function_call":{"name":"get_weather"' in out
    assert b"tool_calls" not in out


# --- failures -----------------------------------------------------------------------------------------


@each_dialect
def test_failure_at_any_point_closes_what_is_open_and_is_encoded(dialect: str) -> None:
    frames = frames_of(wire(dialect, base(dialect)))
    for count in range(len(frames)):
        machine = relay(dialect)
        out = b"".join([machine.feed(frame) for frame in frames[:count]])
        assert b"".join(frames).startswith(out)
        out += machine.fail(TOO_SLOW)
        CHECKS[dialect](out)
        assert machine.is_over
        assert machine.tally.error == TOO_SLOW
        assert machine.reason == "timeout"
        assert outcome(dialect, out).error is not None
        assert machine.fail(TOO_SLOW) == b""
        assert machine.feed(frames[-1]) == b""
        assert machine.close() == b""
        assert machine.keep_alive() == b""


@each_dialect
def test_stream_that_is_cut_anywhere_fails(dialect: str) -> None:
    data = wire(dialect, base(dialect))
    for size in range(0, len(data) - 260, 7):
        machine = relay(dialect)
        out = machine.feed(data[:size]) + machine.close()
        CHECKS[dialect](out)
        assert machine.tally.error is not None, size


def test_failure_of_the_upstream_passes_where_every_client_notices_it() -> None:
    chat = wire("chat", base("chat")[:5]).removesuffix(b"data: [DONE]\n\n")
    chat += b'data: {"error": {"message": "it broke", "type": "server_error"}}\n\n'
    messages = wire("messages", base("messages")[:4])
    messages += wire("messages", [{"type": "error", "error": {"type": "x", "message": "it broke"}}])
    responses = wire("responses", base("responses")[:12])
    failed = {**base("responses")[0]["response"], "status": "failed"}
    failed["error"] = {"code": "server_error", "message": "it broke"}
    last = {"type": "response.failed", "response": failed, "sequence_number": 12}
    responses += wire("responses", [last])
    for dialect, data in (("chat", chat), ("messages", messages), ("responses", responses)):
        machine = relay(dialect)
        assert passed(machine, data) == data
        assert machine.tally.error is not None
        assert machine.tally.error.message == "it broke"


def test_error_after_a_held_finish_is_the_only_end() -> None:
    data = wire("chat", base("chat")[:-1]).removesuffix(b"data: [DONE]\n\n")
    data += b'data: {"error": {"message": "it broke"}}\n\n'
    out = passed(relay("chat"), data)
    CHECKS["chat"](out)
    assert b'"finish_reason": "tool_calls"' not in out


@each_dialect
def test_a_failure_is_encoded_wherever_it_comes(dialect: str) -> None:
    """Also while frames are held: an item of a Responses stream is announced before there is anything in it."""
    failures: dict[str, dict[str, Any]] = {
        "chat": {"error": {"message": "it broke", "type": "server_error", "code": None}},
        "messages": {"type": "error", "error": {"type": "api_error", "message": "it broke"}},
        "responses": {
            "type": "response.failed",
            "sequence_number": 99,
            "response": {
                "id": "resp_1",
                "object": "response",
                "created_at": 1,
                "status": "failed",
                "error": {"code": "server_error", "message": "it broke"},
                "model": "m",
                "output": [],
            },
        },
    }
    failure = b"data: " + json.dumps(failures[dialect]).encode() + b"\n\n"
    if dialect != "chat":
        failure = f"event: {failures[dialect]['type']}\n".encode() + failure
    frames = frames_of(wire(dialect, base(dialect)))
    for count in range(len(frames) - 1):
        out = passed(relay(dialect), b"".join(frames[:count]) + failure)
        found = outcome(dialect, out).error
        assert found is not None, count
        assert found.message == "it broke", count


def test_frame_beyond_the_limit_fails_the_stream() -> None:
    machine = relay("chat")
    sent = machine.feed(frames_of(wire("chat", base("chat")))[0])
    huge = b'data: {"x":"' + b"x" * (65 * 1024 * 1024)
    out = sent + machine.feed(huge) + machine.close()
    CHECKS["chat"](out)
    assert machine.tally.error is not None
    assert machine.tally.error.kind == "protocol"


# --- keep-alives, the exact mode ----------------------------------------------------------------------


@each_dialect
def test_keep_alive_disturbs_nothing(dialect: str) -> None:
    data = wire(dialect, base(dialect))
    for irregular in (False, True):
        machine = relay(dialect)
        out = b""
        for number, frame in enumerate(frames_of(data)):
            out += machine.keep_alive()
            out += machine.feed(frame)
            if irregular and number == 4:
                out += machine.fail(TOO_SLOW)
        out += machine.close()
        output = outcome(dialect, out)
        assert (output.error is not None) == irregular
        assert b"keep" in out or b"ping" in out


@each_dialect
def test_exact_relay_fails_at_a_frame_that_cannot_be_read(dialect: str) -> None:
    frames = frames_of(wire(dialect, base(dialect)))
    damaged = frames[5][: len(frames[5]) // 2] + b"\n\n"
    machine = relay(dialect, exact=True)
    sent = b"".join((*frames[:5], damaged))
    out = machine.feed(sent + b"".join(frames[6:8])) + machine.feed(b"".join(frames[8:]))
    out += machine.close()
    assert out.startswith(sent)
    rest = out[len(sent) :]
    assert outcome(dialect, b"".join(frames[:5]) + rest).error is not None
    assert len(frames_of(rest)) == 1
    assert machine.is_over


@each_dialect
def test_exact_relay_passes_anything_on(dialect: str) -> None:
    data = (
        wire(dialect, base(dialect)).replace(b"get_weather", b"") + b"data: more\n\n: and more\n\n"
    )
    for reads in cuts(data).values():
        machine = relay(dialect, exact=True)
        out = b"".join([machine.feed(read) for read in reads]) + machine.close()
        assert out == data
        assert machine.is_passing


@each_dialect
def test_exact_relay_still_encodes_a_failure(dialect: str) -> None:
    frames = frames_of(wire(dialect, base(dialect)))
    for cut in (machine_cut, machine_failed):
        machine = relay(dialect, exact=True)
        out = b"".join(map(machine.feed, frames[:6]))
        assert out == b"".join(frames[:6])
        out += cut(machine)
        CHECKS[dialect](out)
        assert machine.tally.error is not None
        assert machine.tally.finish == "error"
        assert machine.fail(TOO_SLOW) == b""


def machine_cut(machine: StreamRelay) -> bytes:
    return machine.close()


def machine_failed(machine: StreamRelay) -> bytes:
    return machine.fail(TOO_SLOW)


def test_exact_relay_ends_what_is_left_of_a_frame_before_the_failure() -> None:
    frames = frames_of(wire("chat", base("chat")))
    machine = relay("chat", exact=True)
    out = machine.feed(b"".join(frames[:6]) + b'data: {"id": "chat') + machine.close()
    assert out.startswith(b"".join(frames[:6]) + b'data: {"id": "chat\n\ndata: {"error":')


@each_dialect
def test_exact_relay_lets_a_stream_end_as_it_ends(dialect: str) -> None:
    data = wire(dialect, base(dialect))
    machine = relay(dialect, exact=True)
    assert machine.feed(data) == data
    assert machine.close() == b""
    assert machine.keep_alive() == b""
