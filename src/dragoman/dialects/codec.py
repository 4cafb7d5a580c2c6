"""What a dialect is: the functions that read and write it, and what they are given.

A dialect package has

    decode.py    a FrameReader: what one SSE frame means; and `read_body`, the same meaning for a whole body
    encode.py    a StreamEncoder: events to SSE bytes
    body.py      `write_body`: a whole answer as a body
    request.py   `decode_request`, `encode_request`
    usable.py    a FrameCheck: what some client cannot use in a frame that is relayed
    errors.py    error bodies, both ways
    losses.py    what this dialect cannot express
    wire.py      the vendor's spellings; no other module sees them

This module does no I/O and knows no vendor.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct, field

from dragoman.core.aliases import IdLimits, NameLimits, NameMap
from dragoman.core.fold import fold
from dragoman.core.losses import LossBook, LossTable, answer_book
from dragoman.core.schemas import SchemaRules
from dragoman.core.store_notes import StoreNotes
from dragoman.dialects.stream_decoder import FrameReader, Step
from dragoman.model.events import Event, InputDelta, TextDelta
from dragoman.model.outcome import ErrorInfo, Loss, LossAction, Outcome, Repair
from dragoman.model.parts import CallKind, Dialect
from dragoman.model.request import Request, Tool, Turn
from dragoman.sse import Frame


class DecodeContext(Struct, frozen=True, gc=False, kw_only=True):
    """What a decoder may know of the request its stream answers.

    tools: the tools that were offered, by the names the upstream knows them by; they settle names that never come.
    choices: how many choices were asked for (None: unknown). With 1, a stream that spreads one answer over several
        choices (Copilot does) is merged.
    name_fallback: `schema`: the only tool whose schema the arguments satisfy; `positional`: the n-th tool.
    seed: for minted ids; empty means the response's own id.
    """

    tools: tuple[Tool, ...] = ()
    choices: int | None = None
    name_fallback: Literal["schema", "positional"] = "schema"
    seed: str = ""


class EncodeContext(Struct, frozen=True, kw_only=True):
    """What an encoder must know that events do not say.

    model: the name the client asked for; replaces the upstream's. created: used when the upstream gave none.
    include_usage: Chat only sends usage when asked. profile: Responses' `required_action` variant.
    legacy_functions: Chat's `function_call` instead of `tool_calls`, for clients that sent `functions`.
    last_comment: Chat only: asked when a stream is complete for a comment to stand just before its `[DONE]`.
    response_id: the answer's own id, whatever the upstream calls it; empty: the upstream's, or a minted one.
    previous_id: Responses only: the response that this one continues, written beside it.
    notes: what is written is noted there, for the store.
    """

    model: str | None = None
    created: int = 0
    seed: str = ""
    include_usage: bool = True
    profile: Literal["default", "required_action"] = "default"
    legacy_functions: bool = False
    losses: Mapping[str, LossAction] = field(default_factory=dict[str, LossAction])
    last_comment: Callable[[], str] | None = None
    response_id: str = ""
    previous_id: str | None = None
    notes: StoreNotes | None = None


class Target(Struct, frozen=True, kw_only=True, cache_hash=True):
    """What one upstream accepts. Each dialect has a default; an operator's table may override it per model.

    default_max_tokens: sent where the dialect demands a limit and the client gave none.
    max_tokens_field: Chat only, which of its two names for that limit the upstream reads.
    builtin: the kinds of provider-run tools this upstream has. strict: whether it knows strict functions.
    user_first: whether a conversation must open with a user turn (some Chat servers answer 400 otherwise).
    """

    dialect: Dialect
    names: NameLimits
    ids: IdLimits
    schemas: SchemaRules
    default_max_tokens: int = 8192
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    builtin: frozenset[CallKind] = frozenset()
    strict: bool = True
    user_first: bool = False


class EncodedRequest(Struct, frozen=True, gc=False):
    """A request in a target's dialect, and what is needed to read the answer back in the client's terms."""

    body: bytes
    names: NameMap
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()


class StreamEncoder(Protocol):
    """Events to bytes. `losses` grows as things turn up that the dialect cannot say."""

    @property
    def losses(self) -> Sequence[Loss]: ...

    def encode(self, event: Event) -> bytes: ...

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """Several deltas of one part that go on after one of the same kind; None if they must be encoded one by one."""
        ...

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:
        """Take up a stream in the middle: the client has seen these events, in the upstream's own frames.

        last: the last of the frames, for those that are numbered. choices: how many have begun.
        """
        ...

    def close(self) -> bytes:
        """Guarantee a terminal: fails the stream if no terminal event was encoded."""
        ...


class FrameVerdict(Struct, frozen=True, gc=False):
    """What a frame that is no plain delta is to a client that gets it as it came.

    problem: what some client cannot use about it; "" for nothing. input_size: how many characters of tool input it brings.
    model: the model it names. is_stray: it means nothing, and there are clients that stumble over it. is_error: it is
    the dialect's own failure.
    """

    problem: str = ""
    input_size: int = 0
    model: str | None = None
    is_stray: bool = False
    is_error: bool = False


class FrameCheck(Protocol):
    """Finds what some known client cannot use in the frames of one stream of its own dialect. See `relay`.

    `harmless` are the kinds of the reader's problems that no client minds. `ending`: the terminal frame, where one stands
    for all. `model_path`: where a frame has the name of its model. `has_default_input`: a call without input means `{}`.
    `choices`: how many have begun. `is_ahead`: the frames have begun or ended something that the encoder, given the events so far, would write again.
    """

    harmless: frozenset[str]
    ending: bytes
    model_path: tuple[str, ...]
    has_default_input: bool

    @property
    def choices(self) -> int: ...

    @property
    def is_ahead(self) -> bool: ...

    def look(self, frame: Frame, data: bytes, events: Sequence[Event]) -> FrameVerdict:
        """Check the next frame that is no plain delta. `events`: what the reader made of it."""
        ...

    def take(self, events: Sequence[Event]) -> None:
        """Note events that came without such a frame."""
        ...

    def plain(self, raw: bytes, count: int) -> bytes | None:
        """What to send for so many frames that are plain deltas of one part: the same, but for the model's name.

        None if a client cannot use one of them.
        """
        ...

    def keep_alive(self) -> bytes:
        """What keeps a silent connection open between the upstream's own frames."""
        ...


class RequestEncoder(Protocol):
    def __call__(
        self,
        request: Request,
        target: Target = ...,
        policy: Mapping[str, LossAction] | None = None,
    ) -> EncodedRequest: ...


_NO_CONTEXT = EncodeContext()


class UpstreamCodec(Struct, frozen=True, kw_only=True):
    """A dialect as upstreams speak it: requests written, answers and errors read, its default target and its losses.

    `read_typed` reads a body as nearly all are, whole; None for any other: it is `read_body` that can read every one.
    """

    name: str
    reader: Callable[[DecodeContext], FrameReader]
    read_body: Callable[[bytes, DecodeContext], Step]
    read_typed: Callable[[bytes], Outcome | None]
    encode_request: RequestEncoder
    decode_error: Callable[[bytes, int | None], ErrorInfo]
    target: Target
    losses: LossTable


class Codec(UpstreamCodec, frozen=True, kw_only=True):
    """A dialect that is spoken on both sides: also requests read, answers and errors written."""

    encoder: Callable[[EncodeContext], StreamEncoder]
    check: Callable[[EncodeContext], FrameCheck]
    write_body: Callable[[Outcome, EncodeContext, LossBook], bytes]
    is_usable_body: Callable[[bytes, EncodeContext], bool]
    decode_request: Callable[[bytes], Request]
    pair_turns: Callable[[Request], tuple[tuple[Turn, ...], tuple[Repair, ...]]]
    encode_error: Callable[[ErrorInfo], bytes]

    def encode_body(
        self,
        events: Iterable[Event],
        context: EncodeContext = _NO_CONTEXT,
        book: LossBook | None = None,
    ) -> bytes:
        """The events of an answer as a body; the error body if it failed or never ended. Losses are noted in `book`."""
        book = answer_book(self.losses, context.losses) if book is None else book
        return self.write_body(fold(events), context, book)
