"""What a dialect is: the functions that read and write it, and their arguments.

A dialect package has

    decode.py    a FrameReader, which decodes SSE frames to events, and `read_body`, which decodes a whole body to events
    encode.py    a StreamEncoder, which encodes events as SSE bytes
    body.py      `write_body`, which writes a whole answer as a body
    request.py   `decode_request`, `encode_request`
    usable.py    a FrameCheck, which finds relayed frames that some client cannot use
    errors.py    reads and writes error bodies
    losses.py    what this dialect cannot express
    wire.py      the vendor's names for fields and values; no other module has them

This module does no I/O and knows no vendor.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct, field

from dragoman._json import Raw
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
    """What a decoder may know about the request that its stream answers.

    tools: the tools that were offered, under the upstream's names. A call whose name never arrives gets the name of one.
    choices: how many choices the client asked for (None: unknown). With 1, a stream that spreads one answer over several
        choices (Copilot does) is merged.
    name_fallback: which one. `schema`: the only tool whose schema the arguments satisfy; `positional`: the n-th tool.
    seed: for minted ids; empty means the response's own id.
    hashes_inputs: the tally of the answer gets the hashes of its calls' inputs.
    """

    tools: tuple[Tool, ...] = ()
    choices: int | None = None
    name_fallback: Literal["schema", "positional"] = "schema"
    seed: str = ""
    hashes_inputs: bool = False


class EncodeContext(Struct, frozen=True, kw_only=True):
    """What an encoder must know that events do not contain.

    model: the name the client asked for, if a route renamed it; replaces the upstream's. created: used when the upstream sent no time.
    asked_model: Chat and Messages: the same name, for an upstream that reports none.
    service_tier: Chat only: the tier the client asked for, which the answer repeats.
    include_usage: Chat sends usage only on request. profile: Responses' `required_action` variant.
    mints_id: Chat only: the client gets a minted id even if the upstream sent an id, because it is another dialect's.
    request_id: Messages only: the id of the client's request, which error events show.
    legacy_functions: Chat's `function_call` instead of `tool_calls`, for clients that sent `functions`.
    last_comment: Chat only: called when a stream is complete; returns a comment to send just before `[DONE]`.
    response_id: the id that the client gets; empty: the upstream's id, or a minted id.
    request: Responses only: the client's request; its answer repeats the settings and the instructions. The turns after the
        instructions are not needed. None: the answer has the vendor's defaults.
    clock: Responses only: the time in seconds, for the moment at which the answer was completed. None: it is not written.
    retained: Responses only: the answer is the body of a compaction (`/responses/compact`), in which these messages precede it.
        None: any other answer.
    is_queued: Responses only: the client has the beginning of the answer already, from when it was queued (`queue_response`).
    edits: Messages only: the value of `context_management` in the answer, which reports what was cleared; None: the upstream's.
    notes: where the encoder notes for the store what it writes.
    """

    model: str | None = None
    asked_model: str = ""
    created: int = 0
    seed: str = ""
    mints_id: bool = False
    request_id: str | None = None
    service_tier: str | None = None
    include_usage: bool = True
    profile: Literal["default", "required_action"] = "default"
    legacy_functions: bool = False
    losses: Mapping[str, LossAction] = field(default_factory=dict[str, LossAction])
    last_comment: Callable[[], str] | None = None
    response_id: str = ""
    request: Request | None = None
    clock: Callable[[], float] | None = None
    retained: tuple[Turn, ...] | None = None
    is_queued: bool = False
    edits: Raw | None = None
    notes: StoreNotes | None = None


class Target(Struct, frozen=True, kw_only=True, cache_hash=True):
    """What one upstream accepts. Each dialect has a default; an operator's table may override it per model.

    default_max_tokens: sent where the dialect requires a limit and the client sent none.
    max_tokens_field: Chat only: which of Chat's two names for the limit the upstream reads.
    builtin: the kinds of provider-run tools this upstream has. strict: whether it supports strict functions.
    user_first: whether a conversation must open with a user turn (some Chat servers answer 400 otherwise).
    system_messages: Messages and Chat: whether the upstream accepts system messages inside the conversation, and in Chat several of them.
    max_tools: the most tools that it takes. If a request has more, and a search for the deferred ones, the gateway searches.
    deferred_tools: Messages and Responses: whether it has deferred tools. True: tools that a client of another dialect has loaded are
        written in this form too; False: no tool is, not even those of a client of the same dialect.
    compacts: Messages and Responses: whether it summarises a conversation by itself, for clients of other dialects too.
    cache: whether the encoder helps the upstream to cache prompts: in Messages it adds cache breakpoints, in Chat and Responses a
        cache key from the client's session. cache_ttl: how long breakpoints last; cached_tools: whether a tool may have one.
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
    system_messages: bool = True
    max_tools: int | None = None
    deferred_tools: bool | None = None
    compacts: bool = False
    cache: bool = False
    cache_ttl: Literal["5m", "1h"] = "5m"
    cached_tools: bool = True


class EncodedRequest(Struct, frozen=True):
    """A request in a target's dialect, and what is needed to read the answer back in the client's terms.

    stop: the stop sequences that the dialect has no field for; `stop_sequences.StopStage` cuts the answer at them.
    betas: Messages only: betas of the vendor that the request needs, besides those that the client asks for.
    """

    body: bytes
    names: NameMap
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()
    stop: tuple[str, ...] = ()
    betas: tuple[str, ...] = ()


class StreamEncoder(Protocol):
    """Encodes events as bytes. `losses` grows as events arrive that the dialect cannot express."""

    @property
    def losses(self) -> Sequence[Loss]: ...

    def encode(self, event: Event) -> bytes: ...

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """Encode several deltas that follow a delta of the same kind and part; None if they must be encoded one by one."""
        ...

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:
        """Continue a stream of which the client has seen these events, in the upstream's own frames.

        last: the last of these frames, for dialects that number them. choices: how many have begun.
        """
        ...

    def close(self) -> bytes:
        """Guarantee a terminal: fails the stream if no terminal event was encoded."""
        ...


class FrameVerdict(Struct, frozen=True, gc=False):
    """What a `FrameCheck` finds in a frame that is not a plain delta, if the client gets the frame unchanged.

    problem: why some client cannot use the frame; "" if every client can. input_size: how many characters of tool input it
    contains. model: the model it names. is_stray: it has no meaning, and some clients fail on it. is_error: it is
    the dialect's error frame.
    """

    problem: str = ""
    input_size: int = 0
    model: str | None = None
    is_stray: bool = False
    is_error: bool = False


class FrameCheck(Protocol):
    """Finds frames of one stream that some known client cannot use. See `relay`.

    `harmless`: kinds of the reader's problems that no client objects to. `ending`: the terminal frame, in dialects where it is
    always the same. `model_path`: where a frame has its model's name. `has_default_input`: a call without input means `{}`.
    `choices`: how many have begun. `is_ahead`: the frames have begun or ended something that the encoder, given the events
    so far, would write again.
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
        """Check the next frame that is not a plain delta. `events`: the events that the reader decoded from it."""
        ...

    def take(self, events: Sequence[Event]) -> None:
        """Note events that came without a frame for `look`."""
        ...

    def plain(self, raw: bytes, count: int) -> bytes | None:
        """Return the bytes to send for `count` frames that are plain deltas of one part: `raw` with the client's model name.

        None if a client cannot use one of the frames.
        """
        ...

    def keep_alive(self) -> bytes:
        """Return bytes that keep a silent connection open between the upstream's own frames."""
        ...


class RequestEncoder(Protocol):
    def __call__(
        self, request: Request, target: Target = ..., policy: Mapping[str, LossAction] | None = None
    ) -> EncodedRequest: ...


_NO_CONTEXT = EncodeContext()


class UpstreamCodec(Struct, frozen=True, kw_only=True):
    """A dialect as upstreams speak it: writes requests, reads answers and errors; with its default target and its losses.

    `read_typed` reads a regular body, as nearly all are, at once, and returns None for any other. `read_body` reads every body.
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
    """A dialect that clients speak too: also reads requests, and writes answers and errors.

    `check_request` refuses a request that lacks what only an answer needs; other operations take the same request without.
    `find_repairs`: what servers refuse in a request that was decoded from this dialect, and `encode_request` repairs.
    `is_usable_body`: whether every client can use a body unchanged, provided that its reader reported no problem; the last
    argument says whether `read_typed` has read it.
    `aliases_ids`: the client gets aliases in place of call ids that the dialect forbids, and `decode_request` undoes them.
    """

    encoder: Callable[[EncodeContext], StreamEncoder]
    check: Callable[[EncodeContext], FrameCheck]
    write_body: Callable[[Outcome, EncodeContext, LossBook], bytes]
    is_usable_body: Callable[[bytes, EncodeContext, bool], bool]
    decode_request: Callable[[bytes], Request]
    check_request: Callable[[Request], None] | None = None
    find_repairs: Callable[[Request], tuple[Repair, ...]]
    encode_error: Callable[[ErrorInfo], bytes]
    aliases_ids: bool = False

    def encode_body(
        self,
        events: Iterable[Event],
        context: EncodeContext = _NO_CONTEXT,
        book: LossBook | None = None,
    ) -> bytes:
        """Encode the events of an answer as a body; as an error body if it failed or never ended. Note losses in `book`."""
        book = answer_book(self.losses, context.losses) if book is None else book
        return self.write_body(fold(events), context, book)
