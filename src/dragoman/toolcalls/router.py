"""From payloads to events: each payload goes to the reader of its dialect, one reader per choice and stream.

All tolerance for what servers send lives in those readers. A reader whose stream is over is replaced by a fresh one
when more comes. Nothing a caller hands over raises: what cannot be read is a problem, counted by payload from 1.

From a piece of a stream that cannot be read, nobody knows what it said of the calls: every stream fails, and until the next turn
only whole messages are read.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import as_object
from dragoman.dialects.base import DecodeContext, FrameReader
from dragoman.dialects.codex import CodexReader
from dragoman.dialects.registry import CODECS
from dragoman.errors import GatewayError, MalformedJson
from dragoman.model.events import Event, Failed
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.model.parts import Dialect
from dragoman.sse import Frame
from dragoman.toolcalls.payloads import DONE, is_empty, to_documents
from dragoman.toolcalls.shapes import Place, Shape, shapes_of, source_of

__all__ = ("Reading", "Router")

MAX_PROBLEMS = 1000
"""Problems kept, the newest: a long turn over a broken server must not grow without bound."""

_SHOWN_FIELDS = 8

_READERS: Mapping[str, Callable[[DecodeContext], FrameReader]] = {
    **{name: codec.reader for name, codec in CODECS.items()},
    "codex": CodexReader,
}


class Reading(Struct, frozen=True):
    """What a payload meant in one choice. `channel` numbers the readers; `seed` is what that reader mints ids from."""

    dialect: Dialect
    choice: int
    channel: int
    events: tuple[Event, ...]
    problems: tuple[tuple[str, str], ...]
    seed: str
    is_whole: bool = False


class _Channel(Struct):
    number: int
    reader: FrameReader
    seed: str


_Key = tuple[int, Dialect, str]


class Router:
    """`dialect`: what every payload speaks, where the caller knows; None to recognise each by its shape.

    failure: why nothing but whole messages is read any more in this turn.
    """

    def __init__(self, context: DecodeContext, dialect: Dialect | None = None) -> None:
        self.problems: deque[Problem] = deque(maxlen=MAX_PROBLEMS)
        self._context = context
        self._dialect: Dialect | None = dialect
        self._channels: dict[_Key, _Channel] = {}
        self._channel_count = 0
        self._payload_count = 0
        self.failure: ErrorInfo | None = None
        self._turn = 0

    def route(self, payload: object, place: Place) -> list[Reading]:
        """The meaning of one payload."""
        if is_empty(payload):
            return []
        self._payload_count += 1
        readings: list[Reading] = []
        try:
            for document in to_documents(payload):
                readings.extend(self._read_document(document, place))
        except GatewayError as error:
            self.note("unknown_payload", error.message)
            if not place.is_final:
                readings.extend(self.fail(error.message))
        return readings

    def fail(self, message: str) -> list[Reading]:
        """A piece of a stream cannot be read: what is open stays unfinished."""
        message = f"payload {self._payload_count}: {message}"
        info = self.failure = ErrorInfo(kind="protocol", message=message)
        return [
            self._reading(key, channel, channel.reader.fail(info))
            for key, channel in tuple(self._channels.items())
            if not channel.reader.over
        ]

    def end(self, choice: int | None) -> list[Reading]:
        """Nothing more comes, in one choice or in all."""
        readings: list[Reading] = []
        for key in self._keys(choice):
            channel = self._channels.pop(key)
            if not channel.reader.over:
                readings.append(self._reading(key, channel, channel.reader.end()))
        return readings

    def reset(self, choice: int | None) -> None:
        """Forget the streams of one choice, or of all."""
        for key in self._keys(choice):
            del self._channels[key]
        self.failure = None
        self._turn += 1
        if choice is None:
            self.problems.clear()

    def note(self, kind: str, message: str) -> None:
        self.problems.append(Problem(self._payload_count, kind, message))

    def _read_document(self, document: bytes, place: Place) -> Iterable[Reading]:
        if document == DONE:
            # The marker names no choice: it ends every stream that could have sent it.
            return [
                self._read_frame(key, channel, DONE)
                for key, channel in tuple(self._channels.items())
                if key[1] != "codex" and not channel.reader.over
            ]
        try:
            shapes = shapes_of(document, place)
        except MalformedJson:
            # Not its words: they quote the payload.
            size = len(document)
            raise MalformedJson(f"expected a JSON object, got {size} other bytes") from None
        if self._dialect is not None:
            shapes = self._insist(self._dialect, shapes, document, place)
        if shapes is None:
            self.note("unknown_payload", _describe(document))
            return []
        return [
            reading
            for shape in shapes
            for reading in (self._read_body(shape) if shape.is_whole else self._read(shape))
        ]

    def _insist(
        self,
        dialect: Dialect,
        shapes: tuple[Shape, ...] | None,
        document: bytes,
        place: Place,
    ) -> tuple[Shape, ...]:
        own = tuple(shape for shape in shapes or () if shape.dialect == dialect)
        if own or shapes == ():
            return own
        return (Shape(dialect, document, place.choice, place.is_final and dialect in CODECS),)

    def _read(self, shape: Shape) -> list[Reading]:
        if self.failure is not None:
            return []
        choice = 0 if shape.dialect == "chat" and self._context.choices == 1 else shape.choice
        key = (choice, shape.dialect, shape.stream)
        channel = self._channels.get(key)
        if channel is None or channel.reader.over:
            seed = self._seed(shape, choice)
            reader = _READERS[shape.dialect](replace(self._context, seed=seed))
            channel = self._channels[key] = _Channel(self._next_channel(), reader, seed)
        return [self._read_frame(key, channel, shape.data, shape.event)]

    def _read_frame(self, key: _Key, channel: _Channel, data: bytes, event: str = "") -> Reading:
        raw = b"event: %b\n" % event.encode() if event else b""
        channel.reader.frame += 1
        return self._reading(key, channel, channel.reader.read(Frame(raw, data)))

    def _read_body(self, shape: Shape) -> list[Reading]:
        seed = self._seed(shape, shape.choice)
        step = CODECS[shape.dialect].read_body(shape.data, replace(self._context, seed=seed))
        problems = self._note_all(
            [(problem.kind, problem.message) for problem in step.problems], step.events
        )
        channel = self._next_channel()
        reading = Reading(shape.dialect, shape.choice, channel, step.events, problems, seed)
        return [replace(reading, is_whole=True)]

    def _reading(self, key: _Key, channel: _Channel, events: tuple[Event, ...]) -> Reading:
        problems = self._note_all(channel.reader.found, events)
        channel.reader.found.clear()
        return Reading(key[1], key[0], channel.number, events, problems, channel.seed)

    def _note_all(
        self, found: list[tuple[str, str]], events: tuple[Event, ...]
    ) -> tuple[tuple[str, str], ...]:
        problems = tuple(found)
        for kind, message in problems:
            self.note(kind, message)
        if events and isinstance(failed := events[-1], Failed):
            self.note("failed", f"{failed.error.kind}: {failed.error.message}")
        return problems

    def _next_channel(self) -> int:
        self._channel_count += 1
        return self._channel_count

    def _seed(self, shape: Shape, choice: int) -> str:
        """Ids that are minted must differ between choices, turns and, where the answer has an id, answers."""
        origin = self._context.seed or source_of(shape.data) or shape.stream
        return f"{origin}#{self._turn}.{choice}"

    def _keys(self, choice: int | None) -> list[_Key]:
        return [key for key in self._channels if choice is None or key[0] == choice]


def _describe(document: bytes) -> str:
    names = sorted(as_object(document))
    shown = ", ".join(repr(name) for name in names[:_SHOWN_FIELDS])
    more = ", …" if len(names) > _SHOWN_FIELDS else ""
    return f"expected a payload of a known dialect, got an object with the fields {shown}{more}"
