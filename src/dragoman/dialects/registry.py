"""The dialects by name. The only module, with `translate`, that knows all of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from dragoman.core.losses import LossBook, LossTable
from dragoman.dialects import chat, messages, responses
from dragoman.dialects.base import (
    DecodeContext,
    EncodeContext,
    EncodedRequest,
    FrameReader,
    Step,
    StreamEncoder,
    Target,
    Watch,
)
from dragoman.errors import ConfigError
from dragoman.model.events import Event
from dragoman.model.outcome import ErrorInfo, LossAction, Repair
from dragoman.model.request import Request, Turn

__all__ = ("CODECS", "BodyEncoder", "Codec", "RequestEncoder", "codec")


class RequestEncoder(Protocol):
    def __call__(
        self,
        request: Request,
        target: Target = ...,
        policy: Mapping[str, LossAction] | None = None,
    ) -> EncodedRequest: ...


class BodyEncoder(Protocol):
    def __call__(
        self, events: Iterable[Event], context: EncodeContext = ..., book: LossBook | None = None
    ) -> bytes: ...


class Codec(Struct, frozen=True, kw_only=True):
    """One dialect: its four codecs, its errors, its default target and its loss table."""

    name: str
    reader: Callable[[DecodeContext], FrameReader]
    encoder: Callable[[EncodeContext], StreamEncoder]
    watch: Callable[[EncodeContext], Watch]
    read_body: Callable[[bytes, DecodeContext], Step]
    encode_body: BodyEncoder
    is_regular_body: Callable[[bytes, EncodeContext], bool]
    decode_request: Callable[[bytes], Request]
    encode_request: RequestEncoder
    pair_turns: Callable[[Request], tuple[tuple[Turn, ...], tuple[Repair, ...]]]
    decode_error: Callable[[bytes, int | None], ErrorInfo]
    encode_error: Callable[[ErrorInfo], bytes]
    target: Target
    losses: LossTable


CODECS: Mapping[str, Codec] = {
    "chat": Codec(
        name="chat",
        reader=chat.ChatReader,
        encoder=chat.ChatEncoder,
        watch=chat.ChatWatch,
        read_body=chat.read_body,
        encode_body=chat.encode_body,
        is_regular_body=chat.is_regular_body,
        decode_request=chat.decode_request,
        encode_request=chat.encode_request,
        pair_turns=chat.pair_turns,
        decode_error=chat.decode_error,
        encode_error=chat.encode_error,
        target=chat.DEFAULT_TARGET,
        losses=chat.LOSSES,
    ),
    "responses": Codec(
        name="responses",
        reader=responses.ResponsesReader,
        encoder=responses.ResponsesEncoder,
        watch=responses.ResponsesWatch,
        read_body=responses.read_body,
        encode_body=responses.encode_body,
        is_regular_body=responses.is_regular_body,
        decode_request=responses.decode_request,
        encode_request=responses.encode_request,
        pair_turns=responses.pair_turns,
        decode_error=responses.decode_error,
        encode_error=responses.encode_error,
        target=responses.DEFAULT_TARGET,
        losses=responses.LOSSES,
    ),
    "messages": Codec(
        name="messages",
        reader=messages.MessagesReader,
        encoder=messages.MessagesEncoder,
        watch=messages.MessagesWatch,
        read_body=messages.read_body,
        encode_body=messages.encode_body,
        is_regular_body=messages.is_regular_body,
        decode_request=messages.decode_request,
        encode_request=messages.encode_request,
        pair_turns=messages.pair_turns,
        decode_error=messages.decode_error,
        encode_error=messages.encode_error,
        target=messages.DEFAULT_TARGET,
        losses=messages.LOSSES,
    ),
}
"""Every dialect that is both a door and an upstream, by its name."""


def codec(dialect: str) -> Codec:
    """The codecs of a dialect.

    Raises:
        ConfigError: there is no such dialect.
    """
    found = CODECS.get(dialect)
    if found is None:
        raise ConfigError(f"expected a dialect, one of {', '.join(CODECS)}; got {dialect!r}")
    return found
