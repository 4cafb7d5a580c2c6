"""One answer on its way through a gateway: read in the upstream's dialect, told in the client's, and counted.

    StreamInterpreter   a stream as a stream
    BodyCollector       a stream as a body: for clients that did not ask for a stream and upstreams that only stream
    tell_body           a body as a stream: for upstreams that ignored the wish for one
    interpret_body      a body as a body

All four read to the same events. What comes out of a stream is always whole frames. No I/O.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Protocol

from dragoman.core.aliases import NameMap
from dragoman.core.losses import answer_book
from dragoman.core.restore import Restorer
from dragoman.core.serial import PASSING
from dragoman.core.tally import NOTED, Tally
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import TranslatedBody, make_decoder, make_encoder
from dragoman.model.events import Event, Noticed
from dragoman.model.outcome import ErrorInfo, Loss, Problem

__all__ = (
    "BodyCollector",
    "Change",
    "Interpreter",
    "StreamInterpreter",
    "interpret_body",
    "tell_body",
)

Change = Callable[[Event], Iterable[Event]]
"""What a stage between decoder and encoder makes of one event."""

_UNTALLIED = PASSING - NOTED
_PING = Noticed("ping")


class Interpreter(Protocol):
    """What a gateway needs of a stream on its way. `error` and `tally` are what is known so far."""

    @property
    def tally(self) -> Tally: ...

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended: what the upstream sends after that means nothing."""
        ...

    @property
    def problems(self) -> Sequence[Problem]: ...

    @property
    def losses(self) -> Sequence[Loss]: ...

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes:
        """The upstream has ended: what remains to be told, and always a terminal."""
        ...

    def fail(self, error: ErrorInfo) -> bytes:
        """The answer ends here: what is open is closed, and the failure told. Nothing if it was over."""
        ...

    def keep_alive(self) -> bytes:
        """What keeps a silent connection open at this point, in the client's dialect."""
        ...


class StreamInterpreter:
    """A stream of one dialect, told in another (or anew in the same)."""

    def __init__(
        self,
        source: str,
        target: str,
        *,
        decode: DecodeContext,
        encode: EncodeContext,
        change: Change | None = None,
    ) -> None:
        self.tally = Tally()
        self._decoder = make_decoder(source, decode)
        self._change = change
        self._encoder = make_encoder(target, encode)
        self._encode = self._encoder.dialect.encode
        self._serializer = self._encoder.serializer

    @property
    def is_over(self) -> bool:
        return self._decoder.is_over

    @property
    def problems(self) -> Sequence[Problem]:
        return self._decoder.problems

    @property
    def losses(self) -> Sequence[Loss]:
        return self._encoder.losses

    def feed(self, data: bytes) -> bytes:
        events = self._decoder.events(data)
        if self._change is not None:
            events = list(chain.from_iterable(map(self._change, events)))
        if len(events) == 1 and self._serializer.is_idle:
            event = events[0]
            if type(event) in _UNTALLIED:
                return self._encode(event)  # nearly every read of a token stream
        return self._tell(events)

    def close(self) -> bytes:
        events = [event for step in self._decoder.close() for event in step.events]
        return self._tell(self._changed(events)) + self._encoder.close()

    def fail(self, error: ErrorInfo) -> bytes:
        return self._tell(self._changed(self._decoder.fail(error)))

    def keep_alive(self) -> bytes:
        return b"" if self.is_over else self._encode(_PING)

    def _changed(self, events: Iterable[Event]) -> list[Event]:
        if self._change is None:
            return list(events)
        return list(chain.from_iterable(map(self._change, events)))

    def _tell(self, events: Sequence[Event]) -> bytes:
        for event in events:
            if type(event) in NOTED:
                self.tally.note(event)
        return self._encoder.encode_all(events)


class BodyCollector:
    """A stream, gathered until it can be told as a body. Feeding it gives nothing to send."""

    def __init__(
        self,
        source: str,
        *,
        decode: DecodeContext,
        change: Change | None = None,
    ) -> None:
        self.tally = Tally()
        self._decoder = make_decoder(source, decode)
        self._change = change
        self._events: list[Event] = []

    @property
    def is_over(self) -> bool:
        return self._decoder.is_over

    @property
    def problems(self) -> Sequence[Problem]:
        return self._decoder.problems

    @property
    def losses(self) -> Sequence[Loss]:
        return ()

    def feed(self, data: bytes) -> bytes:
        self._take(self._decoder.events(data))
        return b""

    def close(self) -> bytes:
        for step in self._decoder.close():
            self._take(step.events)
        return b""

    def fail(self, error: ErrorInfo) -> bytes:
        self._take(self._decoder.fail(error))
        return b""

    def body(self, target: str, encode: EncodeContext) -> TranslatedBody:
        """The answer as a body of `target`; its `error` is set when it failed."""
        encoder = codec(target)
        book = answer_book(encoder.losses, encode.losses)
        body = encoder.encode_body(self._events, encode, book)
        return TranslatedBody(body, tuple(self.problems), self.tally.error, book.losses)

    def _take(self, events: Iterable[Event]) -> None:
        if self._change is not None:
            events = chain.from_iterable(map(self._change, events))
        for event in events:
            if type(event) in NOTED:
                self.tally.note(event)
            self._events.append(event)


def tell_body(
    data: bytes,
    source: str,
    target: str,
    *,
    decode: DecodeContext,
    encode: EncodeContext,
    change: Change | None = None,
) -> tuple[TranslatedBody, Tally]:
    """A body, told as the stream it would have been. `body` holds the whole stream."""
    events, problems = _read_body(data, source, decode, change)
    encoder = make_encoder(target, encode)
    stream = encoder.encode_all(events) + encoder.close()
    tally = _tally(events)
    return TranslatedBody(stream, problems, tally.error, encoder.losses), tally


def interpret_body(
    data: bytes,
    source: str,
    target: str,
    *,
    decode: DecodeContext,
    encode: EncodeContext,
    change: Change | None = None,
) -> tuple[TranslatedBody, Tally]:
    """A body of one dialect, told in another."""
    events, problems = _read_body(data, source, decode, change)
    encoder = codec(target)
    book = answer_book(encoder.losses, encode.losses)
    body = encoder.encode_body(events, encode, book)
    tally = _tally(events)
    return TranslatedBody(body, problems, tally.error, book.losses), tally


def _read_body(
    data: bytes, source: str, decode: DecodeContext, change: Change | None
) -> tuple[Sequence[Event], tuple[Problem, ...]]:
    step = codec(source).read_body(data, decode)
    if change is None:
        return step.events, step.problems
    return tuple(chain.from_iterable(map(change, step.events))), step.problems


def change_of(names: NameMap | None, stage: Change | None = None) -> Change | None:
    """What happens to each event between decoder and encoder: what stands in the text first, then the names.

    For one answer: it remembers what it has seen.
    """
    if names is None:
        return stage
    restore = Restorer(names).feed
    if stage is None:
        return restore
    return lambda event: chain.from_iterable(map(restore, stage(event)))


def _tally(events: Iterable[Event]) -> Tally:
    tally = Tally()
    for event in events:
        if type(event) in NOTED:
            tally.note(event)
    return tally
