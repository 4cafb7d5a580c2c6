"""Compaction: the model's own summary replaces a conversation that has become too long. Pure.

A client asks for it with an item (`compaction_trigger`), at an endpoint of its own (`/responses/compact`), or with a field of a Messages
request. An upstream that compacts by itself gets the request as it is. Any other upstream is asked for a summary: `prepare` makes
an ordinary request of the client's, without tools, and `plan_summary` makes the one compaction of the answer's text.

In later requests the client sends the compaction back. `expand` writes the summary as a message in its place, except where the
upstream made the compaction itself. A compaction that an upstream of another dialect made is packed into one of the client's dialect,
with its text, and unpacked on its way back.

A client may also ask the provider to compact in the middle of an answer (`context_management`). `plan_inline` is for the answer.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, filterfalse
from operator import is_

from msgspec import Struct, structs

from dragoman.core.ids import Minter
from dragoman.core.summaries import Packed, refusal
from dragoman.dialects.messages.context_management import (
    COMPACTED,
    asks_for_summary,
    compaction_block,
    is_compaction_block,
    native_block,
    pack_native,
    unpack_block,
    with_summary_field,
    without_summary_field,
)
from dragoman.dialects.responses.compaction import (
    TRIGGER_TURN,
    compaction_item,
    is_compaction,
    is_trigger,
    native_item,
    unpack_item,
)
from dragoman.engine.compaction import INSTRUCTION, PREFACE
from dragoman.errors import RequestRefused
from dragoman.gateway.plan import AnswerPlan, ClientRequest
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    Started,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Dialect, Extra, Opaque, Part, Text, part_size
from dragoman.model.request import Request, ToolChoice, Turn

MAX_RETAINED = 256_000
"""Characters of user messages that stay beside a summary, the newest first: about the 64,000 tokens that Codex keeps."""

FAILED_CODE = "compaction_failed"

_NO_TOOLS = ToolChoice(mode="none")
_INSTRUCTING = ("system", "developer")
# Settings of a Responses request that make no sense for its summary.
_NOT_FOR_SUMMARY = frozenset({"background", "context_management", "max_tool_calls", "text"})


class SummaryPlan(Struct, frozen=True):
    """The answer is a compaction.

    retained: the messages that precede it, for an answer of `/responses/compact`; None for any other.
    native: the dialect of the upstream, if it makes the compaction.
    """

    retained: tuple[Turn, ...] | None = None
    native: Dialect | None = None


def prepare(
    asked: ClientRequest, target: AttemptTarget, *, is_compact: bool = False
) -> tuple[ClientRequest, SummaryPlan | None]:
    """Return the request for this upstream, and how its answer becomes a compaction; None: it is written as it is.

    is_compact: the client asked at `/responses/compact`.

    Raises:
        RequestRefused: a compaction cannot be read, or there is nothing to summarise.
    """
    request = asked.request
    if not (is_compact or _has_compactions(request) or asks_for_summary(request)):
        return asked, None  # nearly every request
    request = expand(request, target)
    same = asked if request is asked.request else _rebuilt(request)
    if not (is_compact or wants_summary(request)):
        return same, None
    if not any(map(_is_said, request.turns)) and request.previous_id is None:
        raise RequestRefused("input: expected a conversation to compact, got none", param="input")
    is_native = _compacts_itself(target)
    if is_native and not is_compact:
        return same, None
    # Earlier summaries are not retained: the new one contains them.
    kept = retained(asked.request.turns) if is_compact else None
    if not is_native and _packs_block(target):
        request = with_summary_field(_settled(structs.replace(request, turns=_spoken(request))))
        return _rebuilt(request), SummaryPlan(kept, "messages")
    if is_native:
        request = structs.replace(request, turns=(*_spoken(request), TRIGGER_TURN))
    else:
        request = summary_request(request, target)
    return _rebuilt(request), SummaryPlan(kept, "responses" if is_native else None)


def wants_summary(request: Request) -> bool:
    """Whether the client asks for a summary in place of an answer."""
    last = request.turns[-1] if request.turns else None
    if last is not None and last.parts and is_trigger(last.parts[-1]):
        return True
    return asks_for_summary(request)


def _rebuilt(request: Request) -> ClientRequest:
    return ClientRequest(b"", request, is_rebuilt=True)


def _is_said(turn: Turn) -> bool:
    return not turn.head and not any(map(is_trigger, turn.parts))


def _compacts_itself(target: AttemptTarget) -> bool:
    """Whether the upstream compacts on request: a Messages upstream unless it is denied, and a Responses upstream that is known to."""
    if not target.is_same_dialect or target.settings.kind == "rehearsal":
        return False
    return _has_blocks(target) or target.accepts.compacts


def _has_blocks(target: AttemptTarget) -> bool:
    """Whether the upstream is a Messages upstream that knows compactions."""
    return target.dialect == "messages" and target.settings.compaction != "gateway"


def _packs_block(target: AttemptTarget) -> bool:
    """Whether the upstream makes Messages blocks for a Responses client."""
    return (
        target.dialect == "messages"
        and target.client_dialect == "responses"
        and target.accepts.compacts
    )


def _spoken(request: Request) -> tuple[Turn, ...]:
    return tuple(turn for turn in request.turns if not any(map(is_trigger, turn.parts)))


# --- the request -----------------------------------------------------------------------------------------------------


def summary_request(request: Request, target: AttemptTarget) -> Request:
    """Return the request for a summary of the conversation, as text.

    It offers no tools. Only where a conversation with calls is refused without them, the tools stay and may not be called.
    """
    request, wish = without_summary_field(request) if asks_for_summary(request) else (request, None)
    instruction = INSTRUCTION if wish is None else f"{INSTRUCTION}\n\n{wish}"
    keeps_tools = _needs_tools(request, target)
    return structs.replace(
        _settled(request),
        turns=(*_spoken(request), _message(instruction)),
        tools=request.tools if keeps_tools else (),
        namespaces=request.namespaces if keeps_tools else (),
        tool_choice=_NO_TOOLS if keeps_tools else None,
        extra=_settings_for_summary(request.extra),
    )


def _settled(request: Request) -> Request:
    """The request without settings that make no sense for a summary."""
    return structs.replace(
        request,
        tool_choice=None,
        parallel_calls=None,
        compact_at=None,
        choices=None,
        logprobs=None,
        top_logprobs=None,
        stop=(),
        response_format=None,
        verbosity=None,
    )


def _needs_tools(request: Request, target: AttemptTarget) -> bool:
    """Whether the upstream would refuse the conversation without its tools, or reads them in the conversation."""
    # Anthropic refuses calls of tools that the request does not declare.
    if target.dialect == "messages":
        return any(isinstance(part, Call) for turn in request.turns for part in turn.parts)
    return target.dialect == "responses" and any(tool.place == "input" for tool in request.tools)


def _settings_for_summary(extra: Extra | None) -> Extra | None:
    if extra is None or extra.dialect != "responses" or _NOT_FOR_SUMMARY.isdisjoint(extra.fields):
        return extra
    kept = {name: extra.fields[name] for name in extra.fields if name not in _NOT_FOR_SUMMARY}
    return Extra(extra.dialect, kept)


def _message(text: str) -> Turn:
    return Turn(role="user", parts=(Text(text=text),))


# --- compactions of earlier requests ------------------------------------------------------------------------------------


def expand(request: Request, target: AttemptTarget) -> Request:
    """Return the request with summaries as messages; the same object if it has no compaction that must be changed.

    Raises:
        RequestRefused: neither the gateway nor the upstream can read a compaction, or a trigger is not the last item.
    """
    if not _has_compactions(request):
        return request
    whole = request.turns
    turns = _since_trigger(whole)
    turns = _since_block(turns, target)
    turns = _since_item(turns, target)
    turns = tuple(each for turn in turns for each in _expanded(turn, target))
    is_same = len(turns) == len(whole) and all(map(is_, turns, whole))
    return request if is_same else structs.replace(request, turns=turns)


def _has_compactions(request: Request) -> bool:
    """Whether the conversation contains a compaction, or an item that asks for one."""
    for turn in request.turns:
        for part in turn.parts:
            if type(part) is Opaque and _is_ours(part):
                return True
    return False


def _is_ours(part: Part) -> bool:
    return is_compaction(part) or is_trigger(part) or is_compaction_block(part)


def _since_trigger(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The conversation since the last trigger that was answered: the compaction after it replaces what precedes it.

    Stored conversations have such triggers. The messages of the user stay, as they do in an answer of `/responses/compact`.
    """
    for number in range(len(turns) - 2, -1, -1):
        if not any(map(is_trigger, turns[number].parts)):
            continue
        if not any(is_compaction(part) for turn in turns[number + 1 :] for part in turn.parts):
            raise RequestRefused(
                "input: expected compaction_trigger as the last item, got items after it",
                param="input",
            )
        heads = tuple(turn for turn in turns[:number] if turn.head)
        return (*heads, *retained(turns[:number]), *turns[number + 1 :])
    return turns


def _since_block(turns: tuple[Turn, ...], target: AttemptTarget) -> tuple[Turn, ...]:
    """A Messages conversation since its last compaction block: the vendor ignores what precedes such a block."""
    for number in range(len(turns) - 1, -1, -1):
        turn = turns[number]
        for place in range(len(turn.parts) - 1, -1, -1):
            part = turn.parts[place]
            if (
                isinstance(part, Opaque)
                and is_compaction_block(part)
                and _is_read(_readable(part, target), target)
            ):
                heads = tuple(each for each in turns[:number] if each.head)
                rest = turn if place == 0 else structs.replace(turn, parts=turn.parts[place:])
                return (*heads, rest, *turns[number + 1 :])
    return turns


def _is_read(given: str | Opaque | None, target: AttemptTarget) -> bool:
    """Whether the upstream reads what it is given in place of a compaction."""
    return isinstance(given, str) or (given is not None and given.dialect == target.dialect)


def _since_item(turns: tuple[Turn, ...], target: AttemptTarget) -> tuple[Turn, ...]:
    """A Responses conversation with the last compaction of a Messages upstream where the upstream of this request needs it.

    Clients do not leave out what precedes a compaction that was made in the middle of an answer, so it is done here; instructions
    stay. The vendor wants a block that it made on request before everything that the client retained beside it.
    """
    for number in range(len(turns) - 1, -1, -1):
        for part in turns[number].parts:
            if not isinstance(part, Opaque) or not is_compaction(part):
                continue
            packed = unpack_item(part)
            if packed is None or packed.native is None:
                continue
            before, since = turns[:number], turns[number:]
            if packed.is_inline:
                return (*filter(_is_instructing, before), *since)
            if isinstance(_readable(part, target), Opaque):
                others = tuple(filterfalse(_is_instructing, before))
                return (*filter(_is_instructing, before), since[0], *others, *since[1:])
    return turns


def _is_instructing(turn: Turn) -> bool:
    return turn.head or turn.role in _INSTRUCTING


def _expanded(turn: Turn, target: AttemptTarget) -> Iterable[Turn]:
    """The turn, with each summary that the upstream cannot read as a user's message of its own."""
    if not any(type(part) is Opaque and _is_ours(part) for part in turn.parts):
        yield turn
        return
    others: list[Part] = []
    is_changed = False
    for part in turn.parts:
        summary = _readable(part, target) if isinstance(part, Opaque) else None
        if not isinstance(summary, str):
            others.append(part if summary is None else summary)
            is_changed = is_changed or summary is not None
            continue
        is_changed = True
        if others:
            yield structs.replace(turn, parts=tuple(others))
            others = []
        yield _message(PREFACE + summary)
    if not is_changed:
        yield turn
    elif others:
        yield structs.replace(turn, parts=tuple(others))


def _readable(part: Opaque, target: AttemptTarget) -> str | Opaque | None:
    """What the upstream gets in place of a compaction: its summary, or the upstream's own item or block. None: the part itself."""
    if is_compaction_block(part):
        packed = unpack_block(part)
        if packed is None or (packed.dialect == "messages" and _has_blocks(target)):
            return None
        # An item that only OpenAI can read goes back to it; any other encoder reports it as a loss.
        return native_item(packed.native or part.raw) if packed.summary is None else packed.summary
    if not is_compaction(part):
        return None
    packed = unpack_item(part)
    if packed is None:
        if target.dialect != "responses" or target.settings.kind == "rehearsal":
            raise refusal(
                "expected a compaction of this gateway, or an upstream that made it; got the compaction of another provider"
            )
        return None
    if packed.native is not None and packed.dialect == "messages" and _packs_block(target):
        return native_block(packed.native)
    if packed.summary is None:
        raise refusal("expected a compaction with a summary, got one that only its provider reads")
    return packed.summary


def retained(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The messages that stay beside a summary: all instructions, and the user's messages up to a limit, the newest first."""
    kept: list[Turn] = []
    room = MAX_RETAINED
    for turn in reversed(turns):
        if turn.head or not turn.parts or any(isinstance(part, Opaque) for part in turn.parts):
            continue
        if turn.role == "user":
            room -= sum(map(part_size, turn.parts))
            if room < 0:
                continue
        elif turn.role not in _INSTRUCTING:
            continue
        kept.append(turn)
    return tuple(reversed(kept))


# --- the answer --------------------------------------------------------------------------------------------------------


def plan_summary(plan: AnswerPlan, summary: SummaryPlan) -> AnswerPlan:
    """The plan for an answer whose text is the summary. `plan` has the id that the answer gets."""
    mint = Minter(plan.encode.seed)
    if plan.client_dialect == "messages":
        stage = SummaryStage(lambda text: compaction_block(Packed(summary=text)), COMPACTED)
    elif summary.native is not None:
        stage = SummaryStage(None, Finished("stop"), partial(_packed_block, mint))
    else:
        stage = SummaryStage(
            lambda text: compaction_item(Packed(summary=text), mint("cmp_")), Finished("stop")
        )
    # The upstream's id would name its own answer, not the compaction.
    own = plan.encode.response_id or mint("resp_")
    encode = structs.replace(plan.encode, response_id=own, retained=summary.retained)
    return structs.replace(
        plan, stage=stage.feed, written=None, ending=None, relay="none", encode=encode
    )


def _packed_block(mint: Minter, part: Opaque, *, is_inline: bool = False) -> Opaque:
    """A compaction of a Messages upstream as the item of a Responses client; any other part unchanged."""
    packed = pack_native(part, is_inline=is_inline) if is_compaction_block(part) else None
    return part if packed is None else compaction_item(packed, mint("cmp_"))


def _packed_item(part: Opaque) -> Opaque:
    """A compaction of a Responses upstream as the block of a Messages client; any other part unchanged."""
    if not is_compaction(part):
        return part
    return compaction_block(Packed(native=part.raw, dialect="responses", is_inline=True))


def plan_inline(plan: AnswerPlan) -> AnswerPlan:
    """The plan for an answer that may contain a compaction of an upstream of another dialect."""
    mint = Minter(plan.encode.seed)
    pack: Callable[[Opaque], Opaque] = _packed_item
    if plan.client_dialect == "responses":
        pack = partial(_packed_block, mint, is_inline=True)
    feed, inner = InlineStage(pack).feed, plan.stage
    if inner is None:
        return structs.replace(plan, stage=feed)

    def both(event: Event) -> Iterable[Event]:
        return chain.from_iterable(map(feed, inner(event)))

    # The stage that finds calls in text stays before this one, which must see every event.
    return structs.replace(plan, stage=both, written=None)


class InlineStage:
    """Packs compactions in an answer for a client of another dialect. A compaction is emitted when it is complete."""

    def __init__(self, pack: Callable[[Opaque], Opaque]) -> None:
        self._pack = pack
        self._open: set[int] = set()

    def feed(self, event: Event) -> Sequence[Event]:
        """Return the events to encode in place of this one."""
        match event:
            case PartStarted(header=Opaque() as part) if is_compaction(part) or is_compaction_block(
                part
            ):
                self._open.add(event.part)
                return ()
            case PartEnded(value=Opaque() as part) if event.part in self._open:
                self._open.discard(event.part)
                packed = self._pack(part)
                return (PartStarted(event.part, packed), PartEnded(event.part, packed))
            case Noticed() | Progress() if event.part in self._open:
                return ()
            case _:
                return (event,)


class SummaryStage:
    """Replaces the parts of an answer by one compaction. An answer that is not a summary becomes a failure.

    make: makes the compaction of the text; None: the answer must contain the upstream's own compaction. pack: changes that one.
    """

    def __init__(
        self,
        make: Callable[[str], Opaque] | None,
        finished: Finished,
        pack: Callable[[Opaque], Opaque] | None = None,
    ) -> None:
        self._make = make
        self._pack = pack
        self._finished = finished
        self._texts: list[str] = []
        self._native: Opaque | None = None
        self._reason = ""

    def feed(self, event: Event) -> Sequence[Event]:
        """Return the events to encode in place of this one."""
        match event:
            case Started() | UsageReported() | LimitsReported() | Failed():
                return (event,)
            case Noticed(kind="ping" | "comment"):
                return (event,)
            case PartEnded(value=Text() as text):
                self._texts.append(text.text)
            case PartEnded(value=Opaque() as part):
                item = part if self._pack is None else self._pack(part)
                self._native = item if is_compaction(item) else self._native
            case Finished(choice=0):
                self._reason = event.reason
            case Completed():
                return self._end(event)
            case _:
                pass
        return ()

    def _end(self, completed: Completed) -> Sequence[Event]:
        part = self._native
        text = "".join(self._texts)
        if part is None and self._make is not None and self._reason == "stop" and text.strip():
            part = self._make(text)
        if part is None:
            return (Failed(_no_summary(self._reason, has_text=bool(text.strip()))),)
        return (PartStarted(0, part), PartEnded(0, part), self._finished, completed)


def _no_summary(reason: str, *, has_text: bool) -> ErrorInfo:
    got = (
        f"a text that ended with {reason!r}" if has_text else f"no text (it ended with {reason!r})"
    )
    message = f"the conversation was not compacted: expected the model's summary, got {got}"
    # Another upstream may do better; the same one would do the same again.
    return ErrorInfo(kind="protocol", message=message, code=FAILED_CODE)
