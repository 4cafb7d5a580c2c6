"""From one dialect to another: decoder, restorer, serializer and encoder in a row. No I/O.

    source bytes → StreamDecoder → [Restorer] → Serializer → StreamEncoder → target bytes

A body takes the same road: it is read to the same events, and the target's body encoder folds them.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from msgspec import Struct

from dragoman.core.aliases import NameMap
from dragoman.core.losses import answer_book
from dragoman.core.restore import Restorer
from dragoman.core.serial import PASSING, Serializer
from dragoman.dialects.base import (
    DecodeContext,
    EncodeContext,
    EncodedRequest,
    StreamDecoder,
    StreamEncoder,
    Target,
)
from dragoman.dialects.registry import codec
from dragoman.model.events import Event, Failed
from dragoman.model.outcome import ErrorInfo, Loss, LossAction, Problem

__all__ = (
    "SerialEncoder",
    "StreamTranslator",
    "TranslatedBody",
    "make_decoder",
    "make_encoder",
    "translate_body",
    "translate_request",
)

_NO_DECODE = DecodeContext()
_NO_ENCODE = EncodeContext()


def make_decoder(dialect: str, context: DecodeContext = _NO_DECODE) -> StreamDecoder:
    """A stream decoder: feed it bytes as they arrive, get steps with events."""
    return StreamDecoder(codec(dialect).reader(context))


class SerialEncoder:
    """A dialect's stream encoder behind a Serializer: takes any grammatical sequence, also one whose parts overlap."""

    def __init__(self, encoder: StreamEncoder) -> None:
        self.dialect = encoder
        self.serializer = Serializer()

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What the dialect could not express, so far."""
        return tuple(self.dialect.losses)

    def encode(self, event: Event) -> bytes:
        """The bytes of one event, and of those that waited for it."""
        return b"".join(map(self.dialect.encode, self.serializer.feed(event)))

    def encode_all(self, events: Iterable[Event]) -> bytes:
        """The same for several events, as one write."""
        serializer = self.serializer
        encode = self.dialect.encode
        out: list[bytes] = []
        for event in events:
            if serializer.is_idle and type(event) in PASSING:
                out.append(encode(event))
            else:
                out.extend(map(encode, serializer.feed(event)))
        return b"".join(out)

    def close(self) -> bytes:
        """Guarantee a terminal: fails the stream if no terminal event was encoded."""
        return self.dialect.close()


def make_encoder(dialect: str, context: EncodeContext = _NO_ENCODE) -> SerialEncoder:
    """A stream encoder: give it events, get the dialect's bytes."""
    return SerialEncoder(codec(dialect).encoder(context))


class StreamTranslator:
    """A stream of one dialect, written in another, event by event.

    `names` is what `translate_request` gave for the request this stream answers: it turns the names and forms the
    upstream was told back into the client's own.
    """

    def __init__(
        self,
        source: str,
        target: str,
        *,
        decode: DecodeContext = _NO_DECODE,
        encode: EncodeContext = _NO_ENCODE,
        names: NameMap | None = None,
    ) -> None:
        self._decoder = make_decoder(source, decode)
        self._restore = Restorer(names).feed if names is not None else None
        self._encoder = make_encoder(target, encode)
        self._encode = self._encoder.dialect.encode
        self._serializer = self._encoder.serializer

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was irregular in the source, so far."""
        return tuple(self._decoder.problems)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What the target could not express, so far."""
        return self._encoder.losses

    def feed(self, data: bytes) -> bytes:
        """The target's bytes for what `data` completes."""
        events = self._decoder.events(data)
        if self._restore is not None:
            events = list(chain.from_iterable(map(self._restore, events)))
        if len(events) == 1 and self._serializer.is_idle:
            event = events[0]
            if type(event) in PASSING:
                return self._encode(event)  # nearly every read of a token stream
        return self._encoder.encode_all(events)

    def close(self) -> bytes:
        """The source has ended: what remains, and always a terminal in the target's own form."""
        events = [event for step in self._decoder.close() for event in step.events]
        if self._restore is not None:
            events = list(chain.from_iterable(map(self._restore, events)))
        return self._encoder.encode_all(events) + self._encoder.close()


class TranslatedBody(Struct, frozen=True):
    """A whole answer in the target's dialect. `error` is set when it is an error body."""

    body: bytes
    problems: tuple[Problem, ...] = ()
    error: ErrorInfo | None = None
    losses: tuple[Loss, ...] = ()


def translate_body(
    data: bytes,
    source: str,
    target: str,
    *,
    decode: DecodeContext = _NO_DECODE,
    encode: EncodeContext = _NO_ENCODE,
    names: NameMap | None = None,
) -> TranslatedBody:
    """A whole answer of one dialect, written in another."""
    step = codec(source).read_body(data, decode)
    events: tuple[Event, ...] = step.events
    if names is not None:
        restore = Restorer(names).feed
        events = tuple(chain.from_iterable(map(restore, events)))
    error = next((event.error for event in events if isinstance(event, Failed)), None)
    encoder = codec(target)
    book = answer_book(encoder.losses, encode.losses)
    body = encoder.encode_body(events, encode, book)
    return TranslatedBody(body, step.problems, error, book.losses)


def translate_request(
    body: bytes,
    source: str,
    target: str,
    *,
    limits: Target | None = None,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """A request of one dialect, written for an upstream of another.

    Raises:
        RequestRefused: it is malformed, or says what the target cannot and the policy refuses to lose.
    """
    request = codec(source).decode_request(body)
    encoder = codec(target)
    return encoder.encode_request(request, limits or encoder.target, policy)
