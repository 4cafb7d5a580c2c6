"""A request's messages as nearly all are, read by their type alone: text, calls of functions, results that are text.

Whatever else a message says does not fit, and `read_turns` reads it field by field. Where both can read it they say the
same. Fields typed `None` may be null but not more.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.core.results import unmark_error
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Turn

__all__ = ("PlainMessage", "read_plain", "turn_of")


class _Text(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: str


class _Call(Struct, gc=False, forbid_unknown_fields=True):
    id: str
    type: Literal["function"]
    function: _Function


class PlainMessage(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Text] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: None = None
    function_call: None = None
    audio: None = None


_decode = typed_decoder(PlainMessage)


def read_plain(message: Raw) -> Turn | None:
    """The turn of a message; None if a closer look is needed."""
    try:
        return turn_of(_decode(message))
    except FAST_FAILURES:
        return None


def turn_of(message: PlainMessage) -> Turn | None:
    """The same for one that has been read. Elsewhere than here its fields have no meaning and are kept as they came."""
    content = message.content
    texts: tuple[Text, ...]
    if isinstance(content, str):
        texts = (Text(text=content),) if content else ()
    else:
        texts = tuple(Text(text=part.text) for part in content or ())
    calls = message.tool_calls
    if message.role == "tool":
        return _result(message, texts) if calls is None else None
    if message.tool_call_id is not None:
        return None
    if calls is None:
        return Turn(role=message.role, parts=texts, name=message.name)
    if message.role != "assistant" or not all(call.function.name for call in calls):
        return None
    told = (
        Call(call_id=call.id, name=call.function.name, input=call.function.arguments)
        for call in calls
    )
    return Turn(role="assistant", parts=(*texts, *told), name=message.name)


def _result(message: PlainMessage, texts: tuple[Text, ...]) -> Turn:
    is_error = False
    if texts:
        text, is_error = unmark_error(texts[0].text)
        if is_error:
            texts = (Text(text=text), *texts[1:]) if text else texts[1:]
    result = Result(
        call_id=message.tool_call_id or "", content=texts, is_error=is_error, name=message.name
    )
    return Turn(role="tool", parts=(result,))
