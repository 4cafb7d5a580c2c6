"""What a response says of its request, beside what its upstream says of the same settings."""

import json
from typing import Any

import pytest

from dragoman._json import Raw
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses import ResponsesEncoder, decode_request
from dragoman.dialects.responses.envelope import bare_response
from dragoman.dialects.responses.request import MAX_ECHO
from dragoman.model.events import Completed, Event, Finished, Started
from dragoman.model.parts import Extra
from echoed_settings import DEFAULTS, SETTINGS, repeated
from responses_help import payloads
from vendor_schemas import violations

Json = dict[str, Any]
END: tuple[Event, ...] = (Finished("stop"), Completed())


def context(**stated: Any) -> EncodeContext:
    body = {"model": "asked", "input": "hi", **stated}
    return EncodeContext(request=decode_request(json.dumps(body).encode()))


def own(**fields: Any) -> Started:
    raws = {name: Raw(json.dumps(value).encode()) for name, value in fields.items()}
    return Started("resp_1", "theirs", 1, Extra("responses", raws))


def write(started: Started, given: EncodeContext) -> tuple[list[Json], set[str]]:
    encoder = ResponsesEncoder(given)
    data = b"".join(encoder.encode(event) for event in (started, *END))
    responses = [event["response"] for event in payloads(data)]
    return responses, {f"{loss.code} {loss.where}" for loss in encoder.losses}


def test_what_the_client_stated_prevails_over_what_the_upstream_says() -> None:
    started = own(temperature=0.5, top_p=0.5, previous_response_id=None, tools=[], unheard_of=1)
    responses, _ = write(started, context(temperature=0.2, previous_response_id="resp_0"))
    for response in responses:
        assert (response["temperature"], response["top_p"]) == (0.2, 0.5)
        assert response["previous_response_id"] == "resp_0"
        assert response["unheard_of"] == 1
        assert response["model"] == "asked"


def test_the_tier_is_the_one_that_was_used() -> None:
    responses, _ = write(own(service_tier="flex"), context(service_tier="priority"))
    assert [response["service_tier"] for response in responses] == ["flex"] * 3
    responses, _ = write(Started("resp_1"), context(service_tier="auto"))
    assert [response["service_tier"] for response in responses] == ["default"] * 3


def test_what_an_upstream_leaves_null_has_its_default() -> None:
    started = own(**dict.fromkeys(DEFAULTS))
    for given in (EncodeContext(), context()):
        responses, _ = write(started, given)
        for response in responses:
            assert violations("Open Responses", "ResponseResource", response) == set()


def test_model_is_the_upstreams_if_the_request_names_none() -> None:
    given = context(model=None, prompt={"id": "pmpt_1"})
    responses, _ = write(Started("resp_1", "theirs"), given)
    assert {response["model"] for response in responses} == {"theirs"}


@pytest.mark.parametrize(
    "large",
    [
        {"instructions": "x" * (MAX_ECHO + 1)},
        {"user": "x" * (MAX_ECHO + 1)},
        {"metadata": {"a": "x" * MAX_ECHO}},
        {"text": {"format": {"type": "text", "more": "x" * MAX_ECHO}}},
        {"tools": [{"type": "function", "name": "f", "parameters": {"a": "x" * MAX_ECHO}}]},
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"name": "f", "description": "x" * (MAX_ECHO + 1)}]}]},
    ],
    ids="".join,
)  # fmt: skip
def test_large_setting_is_not_repeated_and_that_is_a_loss(large: Json) -> None:
    (name,) = large
    responses, losses = write(Started("resp_1"), context(temperature=0.2, **large))
    assert losses == {f"echo {name}"}
    for response in responses:
        assert response.get(name) == DEFAULTS.get(name)
        assert response["temperature"] == 0.2


def test_setting_of_the_largest_size_is_repeated() -> None:
    text = "x" * MAX_ECHO
    responses, losses = write(Started("resp_1"), context(instructions=text))
    assert [response["instructions"] for response in responses] == [text] * 3
    assert losses == set()


@pytest.mark.parametrize("status", ["in_progress", "cancelled", "queued"])
def test_response_of_which_nothing_was_sent_repeats_its_request(status: str) -> None:
    request = {**SETTINGS, "input": "hi"}
    decoded = decode_request(json.dumps(request).encode())
    given = EncodeContext(response_id="resp_1", created=7, request=decoded)
    response = json.loads(bare_response(status, given))
    assert violations("Open Responses", "ResponseResource", response) == set()
    expected = repeated(request)
    assert {name: response[name] for name in expected} == expected
    assert (response["id"], response["created_at"], response["status"]) == ("resp_1", 7, status)
    assert (response["output"], response["completed_at"]) == ([], None)


def test_requests_that_differ_in_one_setting_get_their_own_back() -> None:
    for _ in range(2):  # the second time what was written before may be used again
        for name, value in SETTINGS.items():
            for stated in ({}, {name: value}, {name: value, "instructions": "Be brief."}):
                response = write(Started("resp_1"), context(**stated))[0][0]
                assert response == {**response, **repeated(stated)}


def test_any_number_of_settings_is_repeated() -> None:
    for number in range(300):
        stated = {"instructions": f"Rule {number}.", "metadata": None, "max_output_tokens": number}
        response = write(Started("resp_1"), context(**stated))[0][0]
        assert response["instructions"] == f"Rule {number}."
        assert response["max_output_tokens"] == number


def test_loss_of_a_large_setting_is_reported_each_time() -> None:
    for _ in range(2):
        response, losses = write(Started("resp_1"), context(user="x" * (MAX_ECHO + 1)))
        assert "user" not in response[0]
        assert losses == {"echo user"}
