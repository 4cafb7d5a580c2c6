"""From one dialect to another: decoder, restorer, serializer and encoder in a row. No I/O.

    source bytes → StreamDecoder → [Stage] → [Restorer] → Serializer → StreamEncoder → target bytes

    StreamInterpreter   stream to stream; also counts tokens, calls and errors
    BodyCollector       stream to body: for clients that did not ask for a stream and upstreams that only stream
    stream_body         body to stream: for upstreams that ignored the request for a stream
    read_answer         and `write_answer`: body to body

All decode to the same events. A stream is always written in whole frames. A regular body is read to the whole answer
at once. `StreamTranslator` and `translate_body` are for programs that use this package.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.aliases import NameMap
from dragoman.core.fields import expect_instance
from dragoman.core.fold import fold, unfold
from dragoman.core.losses import answer_book
from dragoman.core.restore import Restorer, restore_call
from dragoman.core.serialize import PASSING, Serializer
from dragoman.core.usage import NOTED, Tally, make_tally, tally_of
from dragoman.dialects.codec import (
    DecodeContext,
    EncodeContext,
    EncodedRequest,
    StreamEncoder,
    Target,
)
from dragoman.dialects.registry import CODECS, codec, upstream_codec
from dragoman.dialects.shapes import DialectName, Form, Shape, shape_of_body, shape_of_frame
from dragoman.dialects.staging import Scanning, Stage
from dragoman.dialects.stop_sequences import stop_stage
from dragoman.dialects.stream_decoder import OTHER_DIALECT, Deltas, FrameReader, Step, StreamDecoder
from dragoman.errors import ConfigError
from dragoman.model.events import Event, InputDelta, Noticed, Started, TextDelta
from dragoman.model.outcome import ErrorInfo, Loss, LossAction, Outcome, Problem
from dragoman.model.parts import Call, Dialect, Part, Reasoning, Text
from dragoman.sse import Frame

Change = Callable[[Event], Iterable[Event]]
"""A stage between decoder and encoder: returns the events to encode in place of one event."""

_NO_DECODE = DecodeContext()
_NO_ENCODE = EncodeContext()
_UNTALLIED = PASSING - NOTED
_PING = Noticed("ping")


def make_decoder(dialect: Dialect | str, context: DecodeContext = _NO_DECODE) -> StreamDecoder:
    """Return a stream decoder: it takes bytes as they arrive and returns steps with events.

    Examples:
        >>> decoder = make_decoder("chat")
        >>> [step] = decoder.feed(b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Hi"}}]}\\n\\n')
        >>> step.events[-1]
        TextDelta(part=0, text='Hi', logprobs=None)

    A stream that turns out to be in another dialect is read by its shape, and this is a problem (`other_dialect`).

    Raises:
        ConfigError: there is no such dialect.
    """

    expect_instance(context, DecodeContext)

    def find_reader(frame: Frame) -> tuple[FrameReader, str] | None:
        found = _other_dialect(shape_of_frame(frame), dialect, "stream")
        return None if found is None else (CODECS[found].reader(context), _message(dialect, found))

    reader = upstream_codec(dialect).reader(context)
    return StreamDecoder(reader, find_reader=find_reader if dialect in CODECS else None)


def read_body(data: bytes, dialect: Dialect | str, context: DecodeContext = _NO_DECODE) -> Step:
    """Read a whole body. One that turns out to be in another dialect is read by its shape, and this is a problem."""
    step = upstream_codec(dialect).read_body(data, context)
    if dialect not in CODECS or any(isinstance(event, Started) for event in step.events):
        return step
    found = _other_dialect(shape_of_body(data), dialect, "body")
    if found is None:
        return step
    step = CODECS[found].read_body(data, context)
    problem = Problem(1, OTHER_DIALECT, _message(dialect, found))
    return replace(step, problems=(problem, *step.problems))


def _other_dialect(shape: Shape | None, dialect: str, form: Form) -> DialectName | None:
    """The dialect of a payload, if it surely is another."""
    if shape is None or not shape.is_sure or shape.form != form or shape.dialect == dialect:
        return None
    return shape.dialect


def _message(dialect: str, found: DialectName) -> str:
    return f"expected an answer of the dialect {dialect}, got one of {found}: it was read as such"


class SerialEncoder:
    """A dialect's stream encoder behind a Serializer: takes any grammatical sequence, also with overlapping parts."""

    def __init__(self, encoder: StreamEncoder) -> None:
        self.dialect = encoder
        self.serializer = Serializer()

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What the dialect could not express, so far."""
        return tuple(self.dialect.losses)

    def encode(self, event: Event) -> bytes:
        """Encode one event, and the events that waited for it."""
        return b"".join(map(self.dialect.encode, self.serializer.feed(event)))

    def encode_all(self, events: Sequence[Event]) -> bytes:
        """Encode several events as one write."""
        serializer = self.serializer
        encode = self.dialect.encode
        out: list[bytes] = []
        at = 0
        while at < len(events):
            event = events[at]
            at += 1
            if serializer.is_idle and type(event) in PASSING:
                out.append(encode(event))
                if isinstance(event, (TextDelta, InputDelta)):
                    at = self._encode_alike(event, events, at, out)
            else:
                out.extend(map(encode, serializer.feed(event)))
        return b"".join(out)

    def _encode_alike(
        self, first: TextDelta | InputDelta, events: Sequence[Event], at: int, out: list[bytes]
    ) -> int:
        """Encode the deltas from `at` on with the kind and part of `first`. Returns the index of the first other event."""
        part = first.part
        texts: list[str] = []
        if type(first) is InputDelta:
            for event in islice(events, at, None):
                if type(event) is not InputDelta or event.part != part:
                    break
                texts.append(event.text)
        else:
            for event in islice(events, at, None):
                if type(event) is not TextDelta or event.part != part or event.logprobs is not None:
                    break
                texts.append(event.text)
        if not texts:
            return at
        end = at + len(texts)
        together = self.dialect.deltas(type(first), part, texts)
        if together is None:
            out.extend(map(self.dialect.encode, events[at:end]))
        else:
            out.append(together)
        return end

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:
        """See `codec.StreamEncoder`."""
        events = [each for event in seen for each in self.serializer.feed(event)]
        self.dialect.resume(events, last, choices)

    def close(self) -> bytes:
        """Guarantee a terminal: fails the stream if no terminal event was encoded."""
        return self.dialect.close()


def make_encoder(dialect: DialectName | str, context: EncodeContext = _NO_ENCODE) -> SerialEncoder:
    """Return a stream encoder: it takes events and returns the dialect's bytes.

    Examples:
        >>> encoder = make_encoder("messages")
        >>> steps = make_decoder("chat").feed(b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Hi"}}]}\\n\\n')
        >>> print(encoder.encode_all(steps[0].events).decode().splitlines()[-2])
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

    Raises:
        ConfigError: there is no such dialect.
    """
    encoder = codec(dialect).encoder
    expect_instance(context, EncodeContext)
    return SerialEncoder(encoder(context))


class TranslatedBody(Struct, frozen=True, gc=False):
    """A whole answer in the target's dialect. `error` is set if `body` is an error body."""

    body: bytes
    problems: tuple[Problem, ...] = ()
    error: ErrorInfo | None = None
    losses: tuple[Loss, ...] = ()


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


class AnswerReader:
    """Decodes one streamed answer, and tallies it."""

    def __init__(self, source: Dialect | str, decode: DecodeContext) -> None:
        self.tally = make_tally(hashes=decode.hashes_inputs)
        self._decoder = make_decoder(source, decode)

    @property
    def is_over(self) -> bool:
        return self._decoder.is_over

    @property
    def waiting(self) -> int:
        return self._decoder.waiting

    @property
    def problems(self) -> Sequence[Problem]:
        return self._decoder.problems


class StreamInterpreter(AnswerReader):
    """Writes a stream of one dialect in another, or anew in the same dialect. `scan` runs before `change`."""

    def __init__(
        self,
        source: Dialect | str,
        target: DialectName | str,
        *,
        decode: DecodeContext,
        encode: EncodeContext,
        change: Change | None = None,
        scan: Stage | None = None,
    ) -> None:
        super().__init__(source, decode)
        self._change = change.feed if isinstance(change, Restorer) else change
        self._passes = change.passes if isinstance(change, Restorer) else None
        self._scanning = None if scan is None else Scanning(scan, change)
        self._encoder = make_encoder(target, encode)
        self._encode = self._encoder.dialect.encode
        self._serializer = self._encoder.serializer

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


class BodyCollector(AnswerReader):
    """Collects a stream until it can be written as a body. `feed`, `close` and `fail` return nothing to send."""

    def __init__(self, source: str, *, decode: DecodeContext, change: Change | None = None) -> None:
        super().__init__(source, decode)
        self._change = change
        self._events: list[Event] = []

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
        answer = Answer(
            fold(self._events), tuple(self.problems), self.tally, is_changed=True, is_typed=False
        )
        return write_answer(answer, target, encode)

    def _take(self, events: Iterable[Event]) -> None:
        if self._change is not None:
            events = chain.from_iterable(map(self._change, events))
        for event in events:
            if type(event) in NOTED:
                self.tally.note(event)
            # A body contains no comments and pings, and an upstream may send millions of them.
            if type(event) is not Noticed:
                self._events.append(event)


class StreamTranslator:
    """Writes a stream of one dialect in another, event by event.

    Examples:
        >>> translator = StreamTranslator("chat", "messages")
        >>> start = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Hi"}}]}\\n\\n'
        >>> print(translator.feed(start).decode().splitlines()[-2])
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}
        >>> b"message_stop" in translator.feed(
        ...     b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\\n\\ndata: [DONE]\\n\\n'
        ... ) + translator.close()
        True

    source: the dialect of the bytes that you feed. target: the dialect of the bytes that you get.
    `names` and `stop` come from `translate_request` for the request that this stream answers. `names` maps the names and
    forms that the upstream got back to the client's own. The answer is cut at the first of the sequences `stop`; then
    `is_over` becomes true, and the source need not be read any further.

    Raises:
        ConfigError: there is no such dialect.
    """

    def __init__(
        self,
        source: Dialect | str,
        target: DialectName | str,
        *,
        decode: DecodeContext = _NO_DECODE,
        encode: EncodeContext = _NO_ENCODE,
        names: NameMap | None = None,
        stop: Sequence[str] = (),
    ) -> None:
        self._stops = stops = stop_stage(stop)
        change = change_of(names, None if stops is None else stops.feed)
        self._interpreter = StreamInterpreter(
            source, target, decode=decode, encode=encode, change=change
        )

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended: what the source still has is not a part of it."""
        return self._interpreter.is_over or (self._stops is not None and self._stops.is_over)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems found in the source, so far."""
        return tuple(self._interpreter.problems)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What the target could not express, so far."""
        return tuple(self._interpreter.losses)

    def feed(self, data: bytes) -> bytes:
        """Return the target's bytes for the frames that end in `data`."""
        return self._interpreter.feed(data)

    def close(self) -> bytes:
        """The source has ended: return the remaining bytes, so that the stream has a terminal of the target's form."""
        is_cut = self._stops is not None and self._stops.is_over
        return b"" if is_cut else self._interpreter.close()


def translate_body(  # noqa: PLR0913 -- a body, its two dialects, and the context of both
    data: bytes,
    source: DialectName | str,
    target: DialectName | str,
    *,
    decode: DecodeContext = _NO_DECODE,
    encode: EncodeContext = _NO_ENCODE,
    names: NameMap | None = None,
    stop: Sequence[str] = (),
) -> TranslatedBody:
    """Write a whole answer of one dialect in another. `names` and `stop`: see `StreamTranslator`.

    Examples:
        >>> call = b'{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\\\\"city\\\\":\\\\"Oslo\\\\"}"}}'
        >>> message = b'{"role":"assistant","tool_calls":[' + call + b"]}"
        >>> choice = b'{"index":0,"message":' + message + b',"finish_reason":"tool_calls"}'
        >>> answer = translate_body(b'{"id":"c1","choices":[' + choice + b"]}", "chat", "messages")
        >>> b'"name":"weather","input":{"city":"Oslo"}' in answer.body
        True

    Raises:
        ConfigError: there is no such dialect, or `data` is not bytes.
    """
    data = _as_bytes(data, "an answer")
    stops = stop_stage(stop)
    if stops is not None:
        stops.expect_complete()
    stage = None if stops is None else stops.feed
    return write_answer(read_answer(data, source, decode, names, stage), target, encode)


class Answer(Struct, frozen=True):
    """A decoded answer with its problems and its tally.

    is_changed: the outcome differs from the upstream's answer. is_typed: the dialect's `read_typed` has read it.
    """

    outcome: Outcome
    problems: tuple[Problem, ...]
    tally: Tally
    is_changed: bool
    is_typed: bool


def read_answer(
    data: bytes,
    source: DialectName | str,
    decode: DecodeContext,
    names: NameMap | None = None,
    stage: Change | None = None,
    scan: Stage | None = None,
) -> Answer:
    """Read a body in the client's names. `stage` changes events before the names are restored.

    scan: a stage that is skipped where nothing begins in the text; passed in place of `stage`.
    """
    dialect = codec(source)
    outcome = dialect.read_typed(data)
    if outcome is not None and stage is None:
        whole = read_whole(outcome, names, scan, hashes=decode.hashes_inputs)
        if whole is not None:
            restored, tally = whole
            return Answer(restored, (), tally, restored is not outcome, is_typed=True)
    step = Step(data, unfold(outcome)) if outcome is not None else read_body(data, source, decode)
    staged = step.events
    if scan is not None:
        staged = tuple(chain.from_iterable(map(scan.feed, staged)))
    change = change_of(names, stage)
    events = staged
    if change is not None:
        events = tuple(chain.from_iterable(map(change, staged)))
    # `scan` may emit the same text in other pieces, so its events are not compared with the decoder's.
    is_changed = events != staged or (scan is not None and scan.has_changed)
    is_typed = outcome is not None
    tally = tally_of(events, hashes=decode.hashes_inputs)
    return Answer(fold(events), step.problems, tally, is_changed, is_typed)


def read_whole(
    outcome: Outcome, names: NameMap | None, scan: Stage | None = None, *, hashes: bool = False
) -> tuple[Outcome, Tally] | None:
    """A whole answer in the client's names, and its tally; None if it must be read event by event.

    That is so if `scan` must read one of its texts, or if the input of a call must be unwrapped. The outcome is the same
    object if no name changes.
    """
    tally = Tally(True, outcome.response_id, outcome.model, outcome.usage, outcome.limits)  # noqa: FBT003
    if hashes:
        tally.hashes = []
    begins_in = None if scan is None else scan.begins_in
    changed: dict[int, list[Part]] = {}  # the parts of choices that change, by their places
    for place, choice in enumerate(outcome.choices):
        tally.finish = choice.finish
        for number, part in enumerate(choice.parts):
            if type(part) is Text:
                if begins_in is not None and begins_in(part.text) is not None:
                    return None
            elif type(part) is Call:
                call = part if names is None else restore_call(part, names)
                if call is None:
                    return None
                if call is not part:
                    changed.setdefault(place, list(choice.parts))[number] = call
                tally.note_call(call)
            elif type(part) is Reasoning and scan is not None and scan.is_thinking:
                return None
    if changed:
        choices = list(outcome.choices)
        for place, parts in changed.items():
            choices[place] = replace(choices[place], parts=tuple(parts))
        outcome = replace(outcome, choices=tuple(choices))
    return outcome, tally


def write_answer(
    answer: Answer, target: DialectName | str, encode: EncodeContext
) -> TranslatedBody:
    """Write the answer as a body of `target`; as an error body if it failed."""
    encoder = codec(target)
    book = answer_book(encoder.losses, encode.losses)
    body = encoder.write_body(answer.outcome, encode, book)
    losses = book.losses if book.noted else ()
    return TranslatedBody(body, answer.problems, answer.tally.error, losses)


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


def change_of(names: NameMap | None, stage: Change | None = None) -> Change | None:
    """Return the change to each event between decoder and encoder: first `stage`, then the client's names.

    The change keeps state, so it serves one answer only.
    """
    if names is None:
        return stage
    restore = Restorer(names)
    if stage is None:
        return restore
    return lambda event: chain.from_iterable(map(restore.feed, stage(event)))


def translate_request(
    body: bytes,
    source: DialectName | str,
    target: Dialect | str,
    *,
    limits: Target | None = None,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """Write a request of one dialect for an upstream of another.

    Examples:
        >>> chat = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":50}'
        >>> translate_request(chat, "chat", "messages").body
        b'{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"Hi"}]}'

    limits: what the upstream accepts, if it differs from the dialect's own `codec(target).target`.
    policy: for each code of a loss, whether to `refuse`, `carry` or `drop` it.

    Raises:
        ConfigError: there is no such dialect, or `body` is not bytes.
        RequestRefused: it is malformed, or contains what the target cannot express and the policy refuses to lose.
    """
    request = codec(source).decode_request(_as_bytes(body, "a request"))
    encoder = upstream_codec(target)
    return encoder.encode_request(request, limits or encoder.target, policy)


def _as_bytes(data: object, what: str) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(cast("bytearray", data))
    raise ConfigError(f"expected {what} as bytes, got {type(data).__name__}")
