"""Reads an answer in the upstream's dialect, writes it in the client's, and counts its tokens, calls and errors.

    StreamInterpreter   stream to stream
    BodyCollector       stream to body: for clients that did not ask for a stream and upstreams that only stream
    stream_body         body to stream: for upstreams that ignored the request for a stream

`translate` reads and writes bodies. All decode to the same events. A stream is always written in whole frames. No I/O.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol

from dragoman.core.losses import answer_book
from dragoman.core.restore import Restorer
from dragoman.core.serialize import PASSING
from dragoman.core.usage import NOTED, Tally, make_tally, tally_of
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.staging import Scanning, Stage
from dragoman.dialects.stream_decoder import Deltas, Step
from dragoman.dialects.translate import (
    Change,
    TranslatedBody,
    make_decoder,
    make_encoder,
    read_body,
)
from dragoman.model.events import Event, Noticed
from dragoman.model.outcome import ErrorInfo, Loss, Problem

_UNTALLIED = PASSING - NOTED
_PING = Noticed("ping")


def _same(event: Event) -> tuple[Event]:
    return (event,)


class Interpreter(Protocol):
    """What a gateway needs of a stream. `tally` is what is known so far."""

    @property
    def tally(self) -> Tally: ...

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended: later frames of the upstream have no meaning."""
        ...

    @property
    def waiting(self) -> int:
        """How many bytes wait for the end of their frame."""
        ...

    @property
    def problems(self) -> Sequence[Problem]: ...

    @property
    def losses(self) -> Sequence[Loss]: ...

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes:
        """The upstream has ended: return the remaining bytes; they always end with a terminal unless one was sent."""
        ...

    def fail(self, error: ErrorInfo) -> bytes:
        """End the answer here: return bytes that close the open parts and report the failure. Nothing if it was over."""
        ...

    def keep_alive(self) -> bytes:
        """Return bytes that keep a silent connection open at this point, in the client's dialect."""
        ...


class StreamInterpreter:
    """Writes a stream of one dialect in another, or anew in the same dialect. `scan` runs before `change`."""

    def __init__(
        self,
        source: str,
        target: str,
        *,
        decode: DecodeContext,
        encode: EncodeContext,
        change: Change | None = None,
        scan: Stage | None = None,
    ) -> None:
        self.tally = make_tally(hashes=decode.hashes_inputs)
        self._decoder = make_decoder(source, decode)
        self._change = change.feed if isinstance(change, Restorer) else change
        self._passes = change.passes if isinstance(change, Restorer) else None
        self._scanning = None if scan is None else Scanning(scan, change or _same)
        self._encoder = make_encoder(target, encode)
        self._encode = self._encoder.dialect.encode
        self._serializer = self._encoder.serializer

    @property
    def is_over(self) -> bool:
        return self._decoder.is_over

    @property
    def waiting(self) -> int:
        return self._decoder.waiting

    @property
    def problems(self) -> Sequence[Problem]:
        return self._decoder.problems

    @property
    def losses(self) -> Sequence[Loss]:
        return self._encoder.losses

    def feed(self, data: bytes) -> bytes:
        read = self._decoder.decode(data)
        step = read[0] if len(read) == 1 else None
        if step is None or type(step) is Deltas or len(step.events) != 1:
            return self._encode_together(read)
        event = step.events[0]
        scanning = self._scanning
        is_same = scanning.passes(event) if scanning is not None else self._change is None
        events = (event,) if is_same else self._changed((event,))
        if len(events) == 1 and self._serializer.is_idle and type(events[0]) in _UNTALLIED:
            return self._encode(events[0])  # nearly every read of a token stream
        return self._encode_events(events)

    def close(self) -> bytes:
        events = [event for step in self._decoder.close() for event in step.events]
        return self._encode_events(self._changed(events)) + self._encoder.close()

    def fail(self, error: ErrorInfo) -> bytes:
        return self._encode_events(self._changed(self._decoder.fail(error)))

    def keep_alive(self) -> bytes:
        return b"" if self.is_over else self._encode(_PING)

    def _changed(self, events: Sequence[Event]) -> Sequence[Event]:
        if self._scanning is not None:
            return self._scanning.feed(events)
        if self._change is None:
            return events
        return list(chain.from_iterable(map(self._change, events)))

    def _encode_together(self, read: Sequence[Step | Deltas]) -> bytes:
        """Encode the steps of one read."""
        out: list[bytes] = []
        events: list[Event] = []
        for one in read:
            if type(one) is not Deltas:
                events += one.events
                continue
            # The first delta is encoded by itself: the encoder's state after it decides how the others are encoded.
            events.append(one.kind(one.part, one.texts[0]))
            out += (self._encode_events(self._changed(events)), self._encode_deltas(one))
            events = []
        out.append(self._encode_events(self._changed(events)))
        return b"".join(out)

    def _encode_deltas(self, deltas: Deltas) -> bytes:
        """Encode all deltas but the first, which was encoded just before."""
        kind, part, texts = deltas.kind, deltas.part, deltas.texts[1:]
        if self._scanning is not None:
            is_same = self._scanning.passes_all(kind, part, texts)
        elif self._passes is not None:
            is_same = self._passes(part)
        else:
            is_same = self._change is None
        if is_same and self._serializer.is_idle:
            together = self._encoder.dialect.deltas(kind, part, texts)
            if together is not None:
                return together
        events = [kind(part, text) for text in texts]
        return self._encode_events(events if is_same else self._changed(events))

    def _encode_events(self, events: Sequence[Event]) -> bytes:
        for event in events:
            if type(event) in NOTED:
                self.tally.note(event)
        return self._encoder.encode_all(events)


class BodyCollector:
    """Collects a stream until it can be written as a body. `feed`, `close` and `fail` return nothing to send."""

    def __init__(
        self,
        source: str,
        *,
        decode: DecodeContext,
        change: Change | None = None,
    ) -> None:
        self.tally = make_tally(hashes=decode.hashes_inputs)
        self._decoder = make_decoder(source, decode)
        self._change = change
        self._events: list[Event] = []

    @property
    def is_over(self) -> bool:
        return self._decoder.is_over

    @property
    def waiting(self) -> int:
        return self._decoder.waiting

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
        """Return the answer as a body of `target`; its `error` is set if the answer failed."""
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
            # A body contains no comments and pings, and an upstream may send millions of them.
            if type(event) is not Noticed:
                self._events.append(event)


def stream_body(
    data: bytes,
    source: str,
    target: str,
    *,
    decode: DecodeContext,
    encode: EncodeContext,
    change: Change | None = None,
) -> tuple[TranslatedBody, Tally]:
    """Write a body as a stream of `target`. `TranslatedBody.body` holds the whole stream."""
    step = read_body(data, source, decode)
    events = step.events
    if change is not None:
        events = tuple(chain.from_iterable(map(change, events)))
    encoder = make_encoder(target, encode)
    stream = encoder.encode_all(events) + encoder.close()
    tally = tally_of(events, hashes=decode.hashes_inputs)
    return TranslatedBody(stream, step.problems, tally.error, encoder.losses), tally
