"""Exchanges as values: reports, rows, redaction, conversations, files, receipts and comparisons, without a gateway."""

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dragoman._json import dumps
from dragoman.core.secrets import HIDDEN, Secrets, find_hidden, hide_found
from dragoman.dialects.translate import StreamTranslator
from dragoman.errors import RequestRefused
from dragoman.inspection.call_rows import call_rows, decoded_request
from dragoman.inspection.conversations import marks_of
from dragoman.inspection.exchange import (
    ExchangeFacts,
    RecordedAnswer,
    RecordedAttempt,
    RecordedExchange,
    TimedBytes,
)
from dragoman.inspection.exchange_files import from_files, to_files
from dragoman.inspection.exchange_report import report_exchange, to_json
from dragoman.inspection.receipt import read_receipt, receipt_of, receipt_words, verify
from dragoman.inspection.redaction import redact_exchange, redact_source
from dragoman.inspection.replay import (
    compare_answers,
    count_differences,
    describe_difference,
    request_again,
)
from dragoman.model.outcome import Loss, Problem, Repair
from dragoman.model.parts import Dialect
from vendor_wire import Answer, Said, Thought, Tool, body_bytes, stream

ANSWER = Answer(
    (Thought("hm", "SEAL"), Said(("Let me ", "look.")), Tool("c1", "f", ('{"x":', "1}")))
)
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def cut(data: bytes, size: int = 1000) -> tuple[TimedBytes, ...]:
    return tuple(TimedBytes(float(at), data[at : at + size]) for at in range(0, len(data), size))


def exchange_of(
    answer: Answer = ANSWER,
    *,
    door: Dialect = "messages",
    kind: Dialect = "chat",
    size: int = 1000,
    **more: Any,
) -> RecordedExchange:
    sent = stream(kind, answer)
    translator = StreamTranslator(kind, door)
    got = translator.feed(sent) + translator.close()
    attempt = RecordedAttempt(
        upstream="u",
        dialect=kind,
        body=CHAT,
        answer=RecordedAnswer(status=200, pieces=cut(sent, size)),
    )
    exchange = RecordedExchange(
        id="e1",
        at=1.0,
        dialect=door,
        answer=RecordedAnswer(status=200, pieces=cut(got, size)),
        attempts=(attempt,),
    )
    return structs.replace(exchange, **more)


# --- reports ----------------------------------------------------------------------------------------------------------


def report_of(exchange: RecordedExchange, **more: Any) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(to_json(report_exchange(exchange, **more)))
    return report


@given(st.integers(1, 300))
def test_frames_join_to_the_bytes_however_they_were_cut(size: int) -> None:
    exchange = exchange_of(size=size)
    report = report_exchange(exchange)
    assert exchange.attempts[0].answer is not None
    texts = [frame.text for frame in report.client.answer.frames]
    assert "".join(texts).encode() == exchange.answer.data
    [attempt] = report.attempts
    assert attempt.answer is not None
    frames = "".join(frame.text for frame in attempt.answer.frames)
    assert frames.encode() == exchange.attempts[0].answer.data


@pytest.mark.parametrize("where", ["part", "content"])
def test_the_work_for_the_losses_of_an_answer_is_linear(where: str) -> None:
    count = 4_000
    answer = Answer(tuple(Tool(f"c{number}", "f", ("{}",)) for number in range(count)))
    losses = tuple(Loss("x", f"{where} {number}", "drop") for number in range(count))
    plain = exchange_of(answer, door="chat", size=1_000_000)
    began = process_time()
    report_exchange(plain)
    without = process_time()
    notes = report_exchange(structs.replace(plain, facts=ExchangeFacts(losses=losses))).notes
    added = (process_time() - without) - (without - began)
    assert [note.frame for note in notes if note.type == "loss"][-1] is not None
    assert added < 1


arguments = st.text(st.characters(codec="utf-8"), max_size=20)


@given(arguments, arguments)
def test_the_mark_of_equality_is_true_exactly_if_the_bytes_are_equal(one: str, other: str) -> None:
    texts = [json.dumps({"x": each}, ensure_ascii=False) for each in (one, other)]
    sent, got = (stream("chat", Answer((Tool("c1", "f", (text,)),))) for text in texts)
    exchange = exchange_of(door="chat")
    answer = RecordedAnswer(status=200, pieces=cut(sent))
    attempt = structs.replace(exchange.attempts[0], answer=answer)
    whole = structs.replace(
        exchange, attempts=(attempt,), answer=RecordedAnswer(status=200, pieces=cut(got))
    )
    [row] = call_rows(whole)
    assert row.input.equal is (texts[0] == texts[1])


def test_a_call_whose_id_has_another_alias_is_paired_by_its_name() -> None:
    exchange = exchange_of(door="chat")
    got = stream("chat", Answer((Tool("other", "f", ('{"x":1}',)), Tool("c9", "g", ("{}",)))))
    shown = structs.replace(exchange, answer=RecordedAnswer(status=200, pieces=cut(got)))
    first, second = call_rows(shown)
    assert (first.id.upstream, first.id.client) == ("c1", "other")
    assert (second.id.upstream, second.id.client, second.input.equal) == (None, "c9", None)
    kinds = [(event.type, event.upstream_frame) for event in report_exchange(shown).events]
    assert ("InputDelta", None) in kinds


def test_what_the_client_never_got_is_not_executable() -> None:
    [row] = call_rows(structs.replace(exchange_of(), answer=RecordedAnswer()))
    assert (row.executable, row.why, row.input.client) == (False, "not_sent", None)
    [live] = call_rows(structs.replace(exchange_of(), answer=RecordedAnswer(), is_live=True))
    assert live.why is None


def test_losses_of_an_answer_are_pinned_to_what_they_are_about() -> None:
    losses = (
        Loss("seal", "part 0", "drop", "x"),
        Loss("finish", "choice 0", "carry"),
        Loss("logprobs", "content[0]", "drop"),
        Loss("far", "part 99", "drop"),
        Loss("further", "content[99]", "drop"),
        Loss("rate_limits", "", "drop"),
    )
    facts = ExchangeFacts(losses=losses, repairs=(Repair("user_first", "messages[0]", "x"),))
    report = report_of(exchange_of(facts=facts))
    found = {note["code"]: (note["side"], note["frame"], note["field"]) for note in report["notes"]}
    assert found["seal"][0] == "upstream"
    assert found["seal"][1] is not None
    assert found["finish"][1] > found["seal"][1]
    assert found["logprobs"][0] == "client"
    assert found["logprobs"][1] is not None
    assert found["far"][1] is None
    assert found["further"][1] is None
    assert found["rate_limits"] == ("upstream", None, None)
    assert found["user_first"] == ("client", None, "messages[0]")


def test_an_error_and_an_exchange_without_an_attempt_are_described() -> None:
    error = RecordedAnswer(status=400, pieces=cut(b'{"error":{"message":"no","type":"x"}}'))
    losses = ExchangeFacts(losses=(Loss("x", "part 0", "drop"),))
    report = report_of(
        RecordedExchange(id="e", at=0.0, dialect="chat", body=CHAT, answer=error, facts=losses)
    )
    assert [event["type"] for event in report["events"]] == ["Failed"]
    assert report["events"][0]["text"] == "no"
    assert report["attempts"] == []


def test_a_body_that_the_capture_cut_is_one_frame_without_events() -> None:
    answer = RecordedAnswer(status=200, pieces=cut(body_bytes("chat", ANSWER)[:50]), is_whole=False)
    report = report_of(RecordedExchange(id="e", at=0.0, dialect="chat", answer=answer))
    assert len(report["client"]["answer"]["frames"]) == 1
    assert report["events"] == []


@pytest.mark.parametrize(
    ("before", "now", "ops"),
    [
        (b'{"m":[1,2]}', b'{"m":[1,2,3]}', ["=", "=", "+"]),
        (
            b'{"a":1,"m":[1,2,3],"z":1}',
            b'{"a":1,"m":[4,2,5],"z":1}',
            ["=", "-", "+", "=", "-", "+", "="],
        ),
        (b"[1]", b"[2]", ["-", "+"]),
        (b"not\njson", b"not\njson {", ["=", "-", "+"]),
    ],
)
def test_the_change_shows_the_lines_that_differ(before: bytes, now: bytes, ops: list[str]) -> None:
    exchange = RecordedExchange(id="b", at=1.0, dialect="chat", body=now)
    previous = RecordedExchange(id="a", at=0.0, dialect="chat", body=before)
    change = report_exchange(exchange, previous=previous).change
    assert change is not None
    assert [line.op for line in change.lines] == ops
    at = change.common_prefix_bytes
    assert before[:at] == now[:at]
    assert before[at : at + 1] != now[at : at + 1]


def test_a_change_of_thousands_of_lines_is_not_compared_line_by_line() -> None:
    bodies = [
        json.dumps({"m": [f"{each}{n}" * 300 for n in range(1500)]}).encode() for each in "ab"
    ]
    exchanges = [
        RecordedExchange(id=str(n), at=0.0, dialect="chat", body=b) for n, b in enumerate(bodies)
    ]
    change = report_exchange(exchanges[1], previous=exchanges[0]).change
    assert change is not None
    assert {line.op for line in change.lines} == {"-"}


def test_what_is_no_request_has_no_calls() -> None:
    assert decoded_request(b"{", "chat") is None
    assert decoded_request(b"", "chat") is None
    assert decoded_request(CHAT, "codex") is None
    odd = structs.replace(exchange_of(), body=CHAT)
    attempt = structs.replace(odd.attempts[0], body=b"{")
    assert len(call_rows(structs.replace(odd, attempts=(attempt,)))) == 1


# --- secrets ----------------------------------------------------------------------------------------------------------

KEY = "sk-abcdefgh12345678"


@given(st.integers(1, 12), st.sampled_from(["chat", "responses", "messages"]))
def test_no_frame_has_a_piece_of_a_secret(size: int, kind: Dialect) -> None:
    text = f'{{"token": "hunter2", "é": "{KEY}\\n", "n": 5}}'
    pieces = tuple(text[at : at + size] for at in range(0, len(text), size))
    exchange = exchange_of(Answer((Tool("c1", "f", pieces),)), kind=kind, size=37)
    shown = redact_exchange(exchange, Secrets(["hunter2"]))
    [row] = call_rows(shown)
    for side in (row.input.upstream, row.input.client):
        assert side is not None
        assert json.loads(side.text)["n"] == 5
        assert KEY not in side.text
        assert "hunter2" not in side.text
    everything = b"".join(to_files(shown).values())
    assert KEY.encode() not in everything
    assert b"hunter2" not in everything


def test_a_key_that_is_sent_as_the_name_of_a_model_is_hidden() -> None:
    attempt = RecordedAttempt(upstream="up", dialect="chat", model=KEY)
    shown = redact_exchange(
        RecordedExchange(
            id="e",
            at=0.0,
            dialect="chat",
            attempts=(attempt,),
            facts=ExchangeFacts(model=KEY),
        )
    )
    assert (shown.facts.model, shown.attempts[0].model) == (HIDDEN, HIDDEN)
    assert KEY.encode() not in b"".join(to_files(shown).values())


def test_what_has_no_secret_keeps_its_bytes() -> None:
    exchange = exchange_of(Answer((Said(("fine é 🜂",)), Tool("c1", "f", ('{"x": 1.0}',)))))
    shown = redact_exchange(exchange)
    assert shown.answer.data == exchange.answer.data
    assert redact_source(CHAT) == CHAT


def test_members_with_secret_names_and_plain_text_are_hidden() -> None:
    shown = json.loads(
        redact_source(
            b'{"password": ["a", "b"], "x": "bad \\u12 escape \\\\", "n": 1}'.replace(
                b"\\u12 ", b""
            )
        )
    )
    assert shown == {"password": [HIDDEN, HIDDEN], "x": "bad escape \\", "n": 1}
    assert redact_source(b"Authorization: Bearer abcdefgh") == b"Authorization: [redacted]"
    broken = redact_source(b'{"x": "\\q", "key": "' + KEY.encode() + b'"}')
    assert KEY.encode() not in broken


@pytest.mark.parametrize("door", ["chat", "responses", "messages"])
def test_a_secret_in_the_string_in_which_an_answer_was_cut_is_hidden(door: Dialect) -> None:
    body = body_bytes(door, Answer((Said((f"the key is {KEY}, keep it",)),)))
    frames = stream(door, Answer((Said((f"the key is {KEY}, keep it",)),)))
    for data in (body, frames):
        cut_at = data.index(KEY.encode()) + len(KEY)
        answer = RecordedAnswer(status=200, pieces=cut(data[:cut_at], 64), is_whole=False)
        shown = redact_exchange(RecordedExchange(id="e", at=0.0, dialect=door, answer=answer))
        assert KEY.encode() not in shown.answer.data
        assert shown.answer.data.endswith(HIDDEN.encode())


def test_a_secret_outside_the_quotes_of_a_page_is_hidden() -> None:
    page = f'<p class="error">key {KEY}</p><pre id="k">hunter2</pre>'.encode()
    answer = RecordedAnswer(status=502, pieces=cut(page))
    shown = redact_exchange(
        RecordedExchange(id="e", at=0.0, dialect="chat", answer=answer), Secrets(["hunter2"])
    )
    assert shown.answer.data.decode() == (
        f'<p class="error">key {HIDDEN}</p><pre id="k">{HIDDEN}</pre>'
    )


def test_a_quote_in_a_comment_does_not_turn_strings_inside_out() -> None:
    frame = b': 5" wide\ndata: {"type":"x","note":"' + KEY.encode() + b'"}\n\n'
    assert KEY.encode() not in redact_source(frame)


@pytest.mark.parametrize("unit", [b'"\\', b'"token": "', b'\\"', b'"a', b"token=\\"])
def test_the_work_for_text_that_is_not_json_is_linear(unit: bytes) -> None:
    began = process_time()
    redact_source(unit * 50_000)
    assert process_time() - began < 4


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (b': hunter2\ndata: {"x":1}\n\n', b': [redacted]\ndata: {"x":1}\n\n'),
        (b'event: hunter2\ndata: {"x":"y"}\n\n', b'event: [redacted]\ndata: {"x":"y"}\n\n'),
        (b'data: {"hunter2":1}\n\n', b'data: {"[redacted]":1}\n\n'),
        (b'data: {"x":12345678}\n\n', b'data: {"x":12345678}\n\n'),  # it would not be JSON any more
    ],
)
def test_a_known_secret_is_hidden_outside_of_values_too(frame: bytes, shown: bytes) -> None:
    assert redact_source(frame, Secrets(["hunter2", "12345678"])) == shown


def test_a_secret_in_a_problem_or_a_detail_is_hidden() -> None:
    loss, repair = Loss("x", "tools", "drop", f"was {KEY}"), Repair("y", "input", f"was {KEY}")
    problem = Problem(1, "late_input", f"expected nothing more, got '{KEY}'")
    attempt = RecordedAttempt(upstream="u", dialect="chat", losses=(loss,), repairs=(repair,))
    facts = ExchangeFacts(losses=(loss,), repairs=(repair,), problems=(problem,))
    shown = redact_exchange(
        RecordedExchange(id="e", at=0.0, dialect="chat", attempts=(attempt,), facts=facts)
    )
    assert KEY.encode() not in b"".join(to_files(shown).values())
    assert (
        shown.facts.losses
        == shown.attempts[0].losses
        == (Loss("x", "tools", "drop", f"was {HIDDEN}"),)
    )


def test_a_held_delta_whose_text_stands_in_an_earlier_frame_is_hidden_there() -> None:
    # The name comes after the arguments, so that the decoder holds them back.
    def chunk(**call: Any) -> bytes:
        choice = {
            "index": 0,
            "delta": {"tool_calls": [{"index": 0, **call}]},
            "finish_reason": None,
        }
        return (
            b"data: "
            + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()
            + b"\n\n"
        )

    data = (
        chunk(id="c1", function={"arguments": f'{{"key": "{KEY[:9]}'})
        + chunk(function={"arguments": f'{KEY[9:]}"}}'})
        + chunk(function={"name": "f"})
        + b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    )
    answer = RecordedAnswer(status=200, pieces=cut(data))
    exchange = RecordedExchange(id="e", at=0.0, dialect="chat", answer=answer)
    shown = redact_exchange(exchange).answer.data
    assert KEY[9:].encode() not in shown
    assert KEY[:9].encode() not in shown


def test_the_work_for_a_long_held_call_with_a_secret_is_linear() -> None:
    def chunk(**call: Any) -> bytes:
        choice = {"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}}
        return (
            b"data: "
            + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()
            + b"\n\n"
        )

    words = (f"word {number} " * 60 for number in range(9_000))
    frames = (
        chunk(id="c1", function={"arguments": f'{{"key": "{KEY}", "t": "'}),
        *(chunk(function={"arguments": word}) for word in words),
        chunk(function={"arguments": '"}'}),
        chunk(function={"name": "f"}),
    )
    answer = RecordedAnswer(status=200, pieces=tuple(TimedBytes(0.0, each) for each in frames))
    began = process_time()
    shown = redact_exchange(RecordedExchange(id="e", at=0.0, dialect="chat", answer=answer))
    assert process_time() - began < 6
    assert KEY.encode() not in shown.answer.data


def test_a_secret_of_a_held_call_is_hidden_beside_one_of_an_open_call() -> None:
    def chunk(*calls: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": None}
        return (
            b"data: "
            + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()
            + b"\n\n"
        )

    first, second = f'{{"key": "{KEY[:9]}', f'{KEY[9:]}"}}'
    data = (
        chunk(
            {"index": 0, "id": "c1", "function": {"name": "f", "arguments": first}},
            {"index": 1, "id": "c2", "function": {"arguments": first}},
        )
        + chunk(
            {"index": 0, "function": {"arguments": second}},
            {"index": 1, "function": {"arguments": second}},
        )
        + chunk({"index": 1, "function": {"name": "g"}})
        + b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    )
    answer = RecordedAnswer(status=200, pieces=cut(data))
    shown = redact_exchange(RecordedExchange(id="e", at=0.0, dialect="chat", answer=answer))
    assert KEY[9:].encode() not in shown.answer.data
    assert KEY[:9].encode() not in shown.answer.data


def test_a_frame_that_was_cut_by_the_capture_is_shown_as_far_as_it_goes() -> None:
    data = stream("chat", ANSWER)[:300]
    answer = RecordedAnswer(status=200, pieces=cut(data, 64), is_whole=False)
    report = report_exchange(RecordedExchange(id="e", at=0.0, dialect="chat", answer=answer))
    assert "".join(frame.text for frame in report.client.answer.frames).encode() == data


def test_texts_that_read_alike_are_found_in_their_order() -> None:
    tools = tuple(Tool(f"c{n}", "f", ('{"x":1}',)) for n in range(12))
    for kind in ("chat", "messages"):
        data = body_bytes(kind, Answer(tools))
        answer = RecordedAnswer(status=200, pieces=cut(data))
        exchange = RecordedExchange(id="e", at=0.0, dialect=kind, answer=answer)
        events = [each for each in report_exchange(exchange).events if each.type == "InputDelta"]
        starts = [each.client_ranges[0][1] for each in events]
        assert starts == sorted(set(starts))
        assert len(starts) == 12


@given(st.integers(0, 40_000), st.integers(0, 3000))
def test_a_secret_is_found_wherever_it_stands_in_a_long_text(before: int, length: int) -> None:
    value = "v" * (length + 1)
    text = "x" * before + f' "password": "{value}" ' + "y" * 20_000
    shown = hide_found(text, find_hidden(text))
    assert value not in shown if length > 200 else f'"{value}"' not in shown
    assert len(shown) == len(text) - len(value) + len(HIDDEN)


def test_secrets_behind_one_another_are_all_found_in_a_long_text() -> None:
    text = f"{KEY} " * 5000
    assert KEY not in hide_found(text, find_hidden(text))


def test_overlapping_secrets_are_hidden_once() -> None:
    found = find_hidden(f"token={KEY} x", Secrets([KEY]))
    assert hide_found(f"token={KEY} x", found) == f"token={HIDDEN} x"


# --- conversations ----------------------------------------------------------------------------------------------------


def asked(
    *texts: Any, answer: bytes = b"", door: Dialect = "chat", **more: Any
) -> RecordedExchange:
    turns = [{"role": "user", "content": text} for text in texts]
    name = "input" if door == "responses" else "messages"
    body = json.dumps({"model": "m", "max_tokens": 5, name: turns, **more}).encode()
    pieces = cut(answer) if answer else ()
    return RecordedExchange(
        id="e", at=0.0, dialect=door, body=body, answer=RecordedAnswer(pieces=pieces)
    )


def continues(later: RecordedExchange, earlier: RecordedExchange) -> bool:
    return not set(marks_of(later).before).isdisjoint(marks_of(earlier).own)


def test_a_request_continues_the_one_whose_turns_it_begins_with() -> None:
    image = [{"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}]
    assert continues(asked("a", "b"), asked("a"))
    assert continues(asked(image, "b"), asked(image))
    assert not continues(asked("x", "b"), asked("a"))
    assert not continues(asked("a"), asked("a"))
    system = {"role": "system", "content": "at noon"}
    turns = [system, {"role": "user", "content": "a"}, {"role": "user", "content": ""}]
    odd = structs.replace(asked(), body=json.dumps({"model": "m", "messages": turns}).encode())
    assert continues(asked("a", "b"), odd)


def test_a_request_continues_the_response_that_it_names() -> None:
    first = asked("a", door="responses", answer=body_bytes("responses", ANSWER))
    named = json.loads(body_bytes("responses", ANSWER))["id"]
    assert continues(asked("b", door="responses", previous_response_id=named), first)
    assert not continues(asked("b", door="responses", previous_response_id="resp_x"), first)


def test_what_cannot_be_read_belongs_to_no_conversation() -> None:
    marks = marks_of(RecordedExchange(id="e", at=0.0, dialect="chat", body=b"{"))
    assert (marks.own, marks.before) == ((), ())


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_recording_is_read_as_it_was_written() -> None:
    failed = RecordedAttempt(upstream="u", dialect="chat", error="gone")
    exchange = exchange_of(facts=ExchangeFacts(model="m\x7f\ud800"))
    exchange = structs.replace(exchange, attempts=(failed, *exchange.attempts), body=b"")
    read = from_files(to_files(exchange))
    assert read.facts.model == "m\x7f\ufffd"
    assert read.attempts == structs.replace(exchange).attempts
    assert read.answer == exchange.answer
    assert b"\x7f" not in to_files(exchange)["client/meta.toml"]


def test_a_recording_may_be_edited() -> None:
    files = to_files(exchange_of())
    files["client/stream.sse"] += b": more\n\n"
    assert from_files(files).answer.data.endswith(b": more\n\n")
    files["client/stream.sse"] = b": less\n\n"
    assert from_files(files).answer.data == b": less\n\n"


def test_an_answer_that_is_not_json_has_a_name_that_says_so() -> None:
    page = RecordedAnswer(status=502, pieces=cut(b"<html>"))
    files = to_files(RecordedExchange(id="e", at=0.0, dialect="chat", answer=page))
    assert files["client/body.txt"] == b"<html>"


def test_too_many_attempts_and_no_files_are_refused() -> None:
    files = to_files(exchange_of())
    index = json.loads(files["exchange.json"])
    index["exchange"]["attempts"] *= 65
    with pytest.raises(RequestRefused, match="at most 64 attempts"):
        from_files({"exchange.json": json.dumps(index).encode()})
    with pytest.raises(RequestRefused, match="expected a recording"):
        from_files({})
    for meta in (b"title", b'title = "\xff"', b"title = " + b"1" * 5000):
        with pytest.raises(RequestRefused, match=r"meta\.toml: expected TOML"):
            from_files({"meta.toml": meta, "body.json": b"{}"})


# --- receipts ---------------------------------------------------------------------------------------------------------


def test_a_receipt_is_true_of_its_exchange_and_of_no_other() -> None:
    exchange = exchange_of(
        body=CHAT, facts=ExchangeFacts(finish="tool_calls", losses=(Loss("x", "y", "drop"),))
    )
    receipt = read_receipt(dumps(receipt_of(exchange)))
    assert verify(receipt, exchange) == []
    assert receipt_words(receipt)[0].endswith(" equal")
    other = exchange_of(Answer((Tool("c1", "f", ('{"x":2}',)), Tool("c2", "g", ("{}",)))), id="e2")
    found = [finding.what.partition(":")[0] for finding in verify(receipt, other)]
    assert found[:2] == ["id", "calls"]
    assert "call 1 input upstream" in found
    assert "finish" in found
    cut_short = structs.replace(exchange, is_truncated=True)
    [finding] = verify(receipt, cut_short)
    assert not finding.is_checked


def test_a_receipt_with_another_model_or_time_is_not_true() -> None:
    exchange = exchange_of(facts=ExchangeFacts(model="asked", finish="tool_calls"))
    attempts = (structs.replace(exchange.attempts[0], model="sent"),)
    exchange = structs.replace(exchange, attempts=attempts)
    receipt = receipt_of(exchange)
    for model in ("asked", "sent"):  # the receipt inside an answer has the upstream's name
        assert verify(structs.replace(receipt, model=model), exchange) == []
    changed = structs.replace(receipt, model="other", at=2.0)
    assert [each.what.partition(":")[0] for each in verify(changed, exchange)] == ["at", "model"]


def test_a_model_that_is_hidden_in_the_recording_cannot_be_checked() -> None:
    exchange = exchange_of(facts=ExchangeFacts(model=KEY))
    [finding] = verify(receipt_of(exchange), redact_exchange(exchange))
    assert finding.what.startswith("model: ")
    assert not finding.is_checked


def test_a_receipt_of_redacted_input_cannot_be_checked() -> None:
    exchange = exchange_of(Answer((Tool("c1", "f", (f'{{"k": "{KEY}"}}',)),)))
    findings = verify(receipt_of(exchange), redact_exchange(exchange))
    assert findings
    assert not any(finding.is_checked for finding in findings)


def test_words_name_both_ids_where_they_differ() -> None:
    exchange = exchange_of(door="chat")
    got = stream("chat", Answer((Tool("other", "f", ('{"x":2}',)),)))
    shown = structs.replace(exchange, answer=RecordedAnswer(status=200, pieces=cut(got)))
    [words] = receipt_words(receipt_of(shown))
    assert "c1=other" in words
    assert words.endswith("differs")
    [alone] = receipt_words(receipt_of(structs.replace(exchange, answer=RecordedAnswer())))
    assert alone.endswith("->- one side")
    assert receipt_of(structs.replace(exchange, attempts=(), is_live=True)).finish is None


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 9}'])
def test_what_is_no_receipt_is_refused(data: bytes) -> None:
    with pytest.raises(RequestRefused, match="expected a receipt"):
        read_receipt(data)


def test_a_receipt_of_another_version_is_refused() -> None:
    receipt = structs.replace(receipt_of(exchange_of()), version=9)
    with pytest.raises(RequestRefused, match="version 1"):
        read_receipt(dumps(receipt))


# --- requests again ---------------------------------------------------------------------------------------------------


def test_a_request_is_sent_again_for_another_model_or_in_another_dialect() -> None:
    exchange = RecordedExchange(id="e", at=0.0, dialect="chat", body=CHAT)
    assert request_again(exchange, "chat") == CHAT
    assert json.loads(request_again(exchange, "chat", "other"))["model"] == "other"
    assert json.loads(request_again(exchange, "messages"))["model"] == "m"
    assert json.loads(request_again(exchange, "responses", "other"))["model"] == "other"
    with pytest.raises(RequestRefused, match="expected a request"):
        request_again(structs.replace(exchange, body=b"["), "chat", "other")


def test_differences_of_requests_are_named_by_their_place() -> None:
    lines = describe_difference(
        b'{"a":1,"b":[1,2],"c":{"d":1},"new":"x","same":true}',
        b'{"a":2,"b":[1],"c":{"d":true},"old":"y","same":true}',
    )
    assert lines == [
        "a: expected 2, got 1",
        "b: expected 1 entries, got 2",
        "c.d: expected true, got 1",
        'old: expected "y", it is missing',
        'new: expected nothing, got "x"',
    ]
    assert describe_difference(b"[1,2,3,4,5,6,7]", b"[7,6,5,0,3,2,1]")[-1] == "and more"
    assert describe_difference(b"1", b"2") == ["the body: expected 2, got 1"]
    assert describe_difference(b"{", b"{}") == ["one of the two is not JSON"]
    deep = [b"[" * 900 + digit + b"]" * 900 for digit in (b"1", b"2")]
    assert describe_difference(deep[0], deep[1]) == ["they nest too deep to be compared"]
    assert count_differences(deep[0], deep[1], 7) == 7
    long = describe_difference(b'"' + b"x" * 200 + b'"', b"1")
    assert long[0].endswith("…")
    assert count_differences(b"[1,2,3]", b"[4,5,6]", 2) == 2
    assert count_differences(b"[1,2,3]", b"[1,2,3]", 2) == 0
    assert count_differences(b"{", b"{}", 7) == 7


def answered(*parts: Said | Tool, **more: Any) -> RecordedAnswer:
    return RecordedAnswer(status=200, pieces=cut(stream("chat", Answer(parts, **more))))


def test_answers_are_compared_by_their_calls() -> None:
    one, two = Tool("a", "f", ('{"x": 1}',)), Tool("b", "g", ("{}",))
    spelt = structs.replace(one, call_id="z", pieces=('{"x":1}',))

    def whats(recorded: RecordedAnswer, now: RecordedAnswer) -> list[str]:
        return [each.what for each in compare_answers(recorded, now, "chat")]

    assert whats(answered(Said(("x",)), one), answered(Said(("y",)), one)) == []
    assert whats(answered(one), answered(spelt)) == ["call 1 (f) bytes of the arguments"]
    assert whats(answered(one, two), answered(two, one)) == ["order of calls"]
    assert whats(answered(one), answered(two)) == ["names of calls"]
    assert whats(answered(one), answered()) == ["number of calls", "names of calls", "finish"]
    other = structs.replace(one, pieces=('{"x": 2}',))
    assert whats(answered(one), answered(other)) == ["call 1 (f) arguments"]
    short = answered(one, finish="length")
    assert "finish" in whats(answered(one), short)
    error = RecordedAnswer(status=400, pieces=cut(b'{"error":{"message":"x"}}'))
    assert whats(answered(), error) == ["finish"]


@pytest.mark.parametrize(
    "name",
    ["authorization", "x-litellm-api-key", "x-goog-api-key", "x-auth-token", "x-amz-security-token", "x-my-secret",
     "set-cookie", "chatgpt-account-id", "sec-websocket-key", "x-hub-signature"],
)  # fmt: skip
def test_headers_with_credentials_are_hidden(name: str) -> None:
    exchange = exchange_of(Answer((Said(("fine",)),)), headers=((name, "plain words"),))
    assert redact_exchange(exchange).headers == ((name, HIDDEN),)


@pytest.mark.parametrize(
    "name",
    ["content-type", "x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-limit", "idempotency-key", "openai-organization"],
)  # fmt: skip
def test_headers_without_credentials_are_shown(name: str) -> None:
    exchange = exchange_of(Answer((Said(("fine",)),)), headers=((name, "plain words"),))
    assert redact_exchange(exchange).headers == ((name, "plain words"),)
