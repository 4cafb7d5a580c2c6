"""The oracle of `make faults` finds every broken promise that is planted, and none where there is none."""

import json

import pytest
from fault_oracle import (
    Circumstances,
    DeliveredCall,
    End,
    Received,
    Sent,
    SentCall,
    broken_promises,
    leaked_secrets,
    unlike_stored,
)
from msgspec import structs

CALLS = (
    SentCall("read_file", '{"path": "a"}', "call_1"),
    SentCall("search", '{"q":"ä"}', "call_2"),
)
SENT = Sent(calls=CALLS, text="I look.")
FIRST = DeliveredCall("call_1", "read_file", '{"path": "a"}')
SECOND = DeliveredCall("call_2", "search", '{"q":"ä"}')
ALLOWED = Circumstances(may_fail=True, may_close=True)


def success(*calls: DeliveredCall, text: str = "I look.") -> Received:
    return Received(end="success", calls=[*calls], text=text)


def test_whole_answer_breaks_no_promise() -> None:
    assert broken_promises(SENT, success(FIRST, SECOND), Circumstances()) == []


@pytest.mark.parametrize(
    "call",
    [
        structs.replace(FIRST, arguments='{"path":"a"}'),
        structs.replace(FIRST, arguments='{"path": "'),
        structs.replace(FIRST, name="search"),
        structs.replace(FIRST, call_id="call_2"),
        structs.replace(FIRST, call_id="call_9"),
    ],
    ids=["other bytes", "half", "other name", "id of another call", "unknown id"],
)
@pytest.mark.parametrize("end", ["success", "error", "closed", "left"])
def test_call_that_was_not_sent_is_found_whatever_the_end(call: DeliveredCall, end: End) -> None:
    received = Received(end=end, calls=[call], text="I look.")
    found = broken_promises(SENT, received, ALLOWED)
    assert any("was not sent" in problem for problem in found)


def test_calls_in_another_order_or_twice_are_found() -> None:
    for calls in ([SECOND, FIRST], [FIRST, FIRST], [FIRST, SECOND, SECOND]):
        received = Received(end="error", calls=calls)
        assert any("was not sent" in each for each in broken_promises(SENT, received, ALLOWED))


def test_some_of_the_calls_may_come_before_an_error_but_not_with_a_success() -> None:
    assert broken_promises(SENT, Received(end="error", calls=[FIRST]), ALLOWED) == []
    (found,) = broken_promises(SENT, success(FIRST), ALLOWED)
    assert found == "2 calls were sent, 1 came with a success"


def test_written_calls_get_ids_of_the_gateways_own_and_no_two_the_same() -> None:
    sent = Sent(calls=(SentCall("search", "{}"), SentCall("search", "{}")), text=None)
    first, second = DeliveredCall("call_a", "search", "{}"), DeliveredCall("call_b", "search", "{}")
    assert broken_promises(sent, success(first, second, text="any"), Circumstances()) == []
    (found,) = broken_promises(sent, success(first, first, text="any"), Circumstances())
    assert "one id" in found
    nameless = DeliveredCall("", "search", "{}")
    assert broken_promises(sent, success(nameless, second, text="any"), Circumstances())


@pytest.mark.parametrize("end", ["silence", "malformed"])
def test_no_circumstances_allow_silence_or_a_malformed_answer(end: End) -> None:
    (found,) = broken_promises(SENT, Received(end=end, detail="why"), ALLOWED)
    assert "no proper end" in found


@pytest.mark.parametrize(
    ("end", "circumstances"),
    [
        ("error", Circumstances(may_close=True)),
        ("closed", Circumstances(may_fail=True, may_refuse=True)),
        ("refused", Circumstances(may_fail=True)),
    ],
)
def test_end_that_the_faults_do_not_explain_is_found(
    end: End, circumstances: Circumstances
) -> None:
    assert len(broken_promises(SENT, Received(end=end), circumstances)) == 1
    allowed = structs.replace(ALLOWED, may_refuse=True)
    assert broken_promises(SENT, Received(end=end), allowed) == []


def test_success_is_found_where_the_end_of_the_answer_never_came() -> None:
    cut = Circumstances(may_fail=True, may_succeed=False)
    (found,) = broken_promises(SENT, success(FIRST, SECOND), cut)
    assert "never reached the gateway" in found


def test_success_with_another_text_is_found() -> None:
    (found,) = broken_promises(SENT, success(FIRST, SECOND, text="I loo"), Circumstances())
    assert "the text differs" in found


def test_answer_that_a_limit_cut_must_end_as_incomplete() -> None:
    cut = Sent(calls=(), text="I lo", is_cut_by_limit=True)
    incomplete = Received(end="incomplete", text="I lo")
    assert broken_promises(cut, incomplete, Circumstances()) == []
    assert len(broken_promises(cut, success(text="I lo"), Circumstances())) == 1
    whole = Sent(calls=(), text="I lo")
    assert len(broken_promises(whole, incomplete, Circumstances())) == 1


def test_stored_response_that_is_lost_unreadable_or_different_is_found() -> None:
    response = {"id": "resp_1", "status": "completed", "output": [{"id": "fc_1"}]}
    same = json.dumps({**response, "more": 1}).encode()
    assert unlike_stored(response, 200, same, "there") == []
    other = json.dumps({**response, "output": []}).encode()
    (found,) = unlike_stored(response, 200, other, "there")
    assert found == "resp_1 was acknowledged and is not the same there: ['output']"
    assert len(unlike_stored(response, 200, b'{"id":', "there")) == 1
    assert "404" in unlike_stored(response, 404, b"{}", "there")[0]


def test_secret_in_a_log_is_found_and_not_repeated() -> None:
    (found,) = leaked_secrets("authorization: sk-123456789", ["sk-123456789", "sk-other"])
    assert "sk-123456789" not in found
