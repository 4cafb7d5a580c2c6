"""A message of a request as nearly all are, read by its type alone: text, calls of functions, results that are text.

Whatever else a message says does not fit, and `read_turns` reads it field by field. Where both can read it they say the
same. Fields typed `None` may be null but not more.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.model.parts import Call, Text

__all__ = ("PlainMessage", "read_plain")


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

    def texts(self) -> tuple[Text, ...]:
        content = self.content
        if isinstance(content, str):
            return (Text(text=content),) if content else ()
        return tuple(Text(text=part.text) for part in content or ())

    def calls(self) -> list[Call]:
        return [
            Call(call_id=call.id, name=call.function.name, input=call.function.arguments)
            for call in self.tool_calls or ()
        ]


_decode = typed_decoder(PlainMessage)


def read_plain(message: Raw) -> PlainMessage | None:
    """The message; None if a closer look is needed."""
    try:
        plain = _decode(message)
    except FAST_FAILURES:
        return None
    calls = plain.tool_calls
    # Elsewhere these fields have no meaning and are kept as they came; a call needs a name.
    is_misplaced = (calls is not None and plain.role != "assistant") or (
        plain.tool_call_id is not None and plain.role != "tool"
    )
    return None if is_misplaced or not all(call.function.name for call in calls or ()) else plain
