"""Records and deltas."""

from msgspec.structs import replace
from openai.types.chat import (
    ChatCompletionMessageCustomToolCall,
    ChatCompletionMessageFunctionToolCall,
)
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from dragoman.toolcalls.records import IngestResult, Pieces, ToolCallDelta, ToolCallRecord

DELTA = ToolCallDelta(1, "call_1", "function", "f", '{"a"', Pieces(['{"a"', ":1}"], 1))
RECORD = ToolCallRecord("call_1", "function", "f", '{"a":1}', True, "complete")


def test_cumulative_arguments_are_those_up_to_the_delta() -> None:
    assert DELTA.arguments == '{"a"'
    assert replace(DELTA, pieces=Pieces(['{"a"', ":1}"], 2)).arguments == '{"a":1}'


def test_pieces_are_not_printed() -> None:
    assert repr(DELTA.pieces) == "<1 pieces>"


def test_first_chat_delta_has_id_type_and_name_and_later_ones_only_arguments() -> None:
    first = replace(DELTA, is_first=True).as_chat_delta()
    assert first == {
        "index": 1,
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a"'},
    }
    assert DELTA.as_chat_delta() == {"index": 1, "function": {"arguments": '{"a"'}}
    ChoiceDeltaToolCall.model_validate(first, strict=True)
    ChoiceDeltaToolCall.model_validate(DELTA.as_chat_delta(), strict=True)


def test_custom_chat_delta_has_input() -> None:
    custom = replace(DELTA, type="custom", is_first=True)
    assert custom.as_chat_delta() == {
        "index": 1,
        "id": "call_1",
        "type": "custom",
        "custom": {"name": "f", "input": '{"a"'},
    }


def test_record_is_a_call_of_a_chat_message() -> None:
    function = RECORD.as_chat()
    assert function == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a":1}'},
    }
    ChatCompletionMessageFunctionToolCall.model_validate(function, strict=True)
    custom = replace(RECORD, type="custom", arguments="text").as_chat()
    assert custom["custom"] == {"name": "f", "input": "text"}
    ChatCompletionMessageCustomToolCall.model_validate(custom, strict=True)


def test_empty_result_says_that_nothing_happened() -> None:
    assert IngestResult() == IngestResult(False, (), ())
