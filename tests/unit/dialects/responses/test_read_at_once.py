"""What is read at once because it is regular means what it means when it is read field by field."""

import pytest
from msgspec.structs import replace

from dragoman._json import Raw, as_object
from dragoman.dialects.responses.answer import read_usage
from dragoman.dialects.responses.items import read_call, read_regular_call
from dragoman.dialects.responses.wire import CALL_ITEMS
from dragoman.model.outcome import Usage

REGULAR_CALLS = (
    b'{"id":"fc_1","type":"function_call","status":"completed","arguments":"{}","call_id":"call_1","name":"f"}',
    b'{"type":"function_call","call_id":"call_1","name":"","arguments":"\xc3\xa9","status":"in_progress"}',
    b'{"type":"function_call","id":"fc_1","call_id":"","name":"f","arguments":"","status":"incomplete"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"","status":"failed","namespace":"n"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"","status":"failed","namespace":""}',
)
ODD_CALLS = (
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"","status":"searching"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":{},"status":"completed"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"\\ud83d","status":"completed"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"","status":"completed","more":1}',
    b'{"type":"function_call","call_id":"c","tool_name":"f","arguments":"","status":"completed"}',
    b'{"type":"tool_use","call_id":"c","name":"f","arguments":"","status":"completed"}',
)


@pytest.mark.parametrize("item", REGULAR_CALLS)
def test_a_regular_call_read_at_once_is_the_same_call(item: bytes) -> None:
    assert read_regular_call(Raw(item)) == read_call(CALL_ITEMS["function_call"], as_object(item))


@pytest.mark.parametrize("item", ODD_CALLS)
def test_an_odd_call_is_not_read_at_once(item: bytes) -> None:
    assert read_regular_call(Raw(item)) is None


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (
            b'"input_tokens":5,"output_tokens":6,"total_tokens":11',
            Usage(input=5, output=6, total=11),
        ),
        (
            (
                b'"input_tokens":5,"input_tokens_details":{"cached_tokens":1,"cache_write_tokens":2,"audio_tokens":3},'
                b'"output_tokens":6,"output_tokens_details":{"reasoning_tokens":4,"audio_tokens":null},"total_tokens":11'
            ),
            Usage(input=5, output=6, total=11, cached=1, cache_write=2, input_audio=3, reasoning=4),
        ),
    ],
)
def test_a_regular_usage_read_at_once_has_the_same_counts(counts: bytes, expected: Usage) -> None:
    assert read_usage(Raw(b"{" + counts + b"}")) == expected
    odd = read_usage(Raw(b"{" + counts + b',"price":1}'))
    assert odd is not None
    assert odd.extra is not None
    assert replace(odd, extra=None) == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (b'{"input_tokens":5,"output_tokens":6.0,"total_tokens":true}', Usage(input=5, output=6)),
        (b'{"input_tokens":5,"input_tokens_details":null}', Usage(input=5)),
        (b"{}", None),
        (b"null", None),
        (b'"none"', None),
    ],
)
def test_an_irregular_usage_gives_what_can_be_read(usage: bytes, expected: Usage | None) -> None:
    assert read_usage(Raw(usage)) == expected
