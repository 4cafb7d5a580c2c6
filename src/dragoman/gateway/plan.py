"""Plans the request of one attempt, and how its answer is read and encoded. Pure.

The plan depends on the client's request, and on the upstream's settings and limits (`targets`). Callers carry it out.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Literal

from msgspec import Struct, structs

from dragoman._json import as_object, dumps
from dragoman.config.settings import MODEL_PLACE, UpstreamSettings
from dragoman.core.aliases import NameMap
from dragoman.core.fields import set_members
from dragoman.dialects.chat import is_legacy
from dragoman.dialects.codec import DecodeContext, EncodeContext, EncodedRequest
from dragoman.dialects.registry import upstream_codec
from dragoman.dialects.relay_request import relay_request
from dragoman.dialects.responses.conversations import conversation_of
from dragoman.dialects.stop_sequences import StopStage, stop_stage
from dragoman.dialects.translate import Change, change_of
from dragoman.errors import RequestRefused
from dragoman.gateway.early_end import EndingStage
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.outcome import Loss, Problem, Repair
from dragoman.model.parts import Dialect
from dragoman.model.request import Request, Tool
from dragoman.obsidian.answer import ObsidianAnswer, formats_for, stage_without_tools
from dragoman.obsidian.policy import ObsidianPolicy
from dragoman.obsidian.request import apply_to_request
from dragoman.state.continuation import Continuation, previous_missing, references
from dragoman.state.escrow import FAMILIES, Escrow, seen_by
from dragoman.state.held_conversation import conversation_missing, item_missing
from dragoman.state.keeper import Keeper
from dragoman.state.managed_store import ManagedStore
from dragoman.store.codec import weigh_request
from dragoman.textcalls.history import repair_history
from dragoman.textcalls.prompting import needs_prompting, prompt_tools
from dragoman.textcalls.stage import TextCallStage, stage_for
from dragoman.textcalls.tail import TailPolicy
from dragoman.upstream.chatgpt_codex.request import shape_request

_NO_REPAIRS: tuple[Repair, ...] = ()
_AUTO = ("auto",)
_PLAIN_TAIL = TailPolicy()

MAX_CHAT_STOPS = 4
"""The stop sequences of a Chat request that the gateway handles itself: OpenAI's limit. Other servers have others."""

Profile = Literal["default", "required_action"]
Relay = Literal["none", "repair", "exact"]


class ClientRequest(Struct, frozen=True, gc=False):
    """A client's request: the body as received, and the request decoded from it.

    is_rebuilt: the request differs from the body (the store added history, for example), so it is encoded for every upstream.
    """

    body: bytes
    request: Request
    is_rebuilt: bool = False

    @property
    def size(self) -> int:
        """The approximate size in bytes. A large request should be encoded in a thread."""
        return len(self.body) or weigh_request(self.request)


class PlannedRequest(Struct, frozen=True):
    """The request for the upstream, and the names under which the upstream knows the tools, in the request or in the prompt.

    structured: names of tools whose calls are never searched for in text.
    """

    encoded: EncodedRequest
    names: NameMap
    tools: tuple[Tool, ...]
    losses: tuple[Loss, ...]
    structured: frozenset[str] = frozenset()


class AnswerPlan(Struct, frozen=True, kw_only=True):
    """How an answer is read, and encoded for the client.

    `stage`: what changes the events, besides restoring names; `written`: the stage that finds calls in text, if there is one.
    `relay`: `none` where the dialects differ, or where a stage needs more than the text. `exact` promises the answer unchanged, so
    its text is not searched for calls.
    `obsidian`: the Obsidian policy, which may end the answer early.
    `ending`: the stage that may end the answer before the upstream does: `obsidian`, or the one that cuts at a stop sequence.
    `keeper`: stores the answer, or only the seals for which the client's dialect has no field; `escrow`: the latter, if it sees events.
    `renamed`: returns the plan that gives the answer our id, for an answer that would be relayed with the upstream's id.
    """

    client_dialect: Dialect
    dialect: Dialect
    wants_stream: bool
    decode: DecodeContext
    encode: EncodeContext
    names: NameMap | None
    stage: Change | None
    written: TextCallStage | None = None
    relay: Relay
    obsidian: ObsidianAnswer | None = None
    ending: EndingStage | None = None
    keeper: Keeper | Escrow | None = None
    escrow: Escrow | None = None
    renamed: "Callable[[], AnswerPlan] | None" = None

    @property
    def scan(self) -> TextCallStage | None:
        """The stage, if it only finds calls in text: such a stage need not see every event."""
        return self.written if self.ending is None else None

    def change(self, *, is_scanned: bool = False) -> Change | None:
        """The function that changes each event. `is_scanned`: the stage has already seen the text."""
        change = change_of(self.names, None if is_scanned else self.stage)
        return change if self.escrow is None else seen_by(self.escrow, change)

    def with_written(self, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
        """These problems, and the problems of calls that the model wrote as text."""
        found = () if self.written is None else self.written.problems
        if not found:
            return problems
        return (
            *problems,
            *(Problem(each.frame, f"text_{each.kind}", each.message) for each in found),
        )


def plan_request(asked: ClientRequest, target: AttemptTarget, *, stream: bool) -> PlannedRequest:
    """The request for this upstream.

    Raises:
        RequestRefused: the upstream's dialect cannot express the request, and the policy refuses the loss; or the gateway
            cannot stop at its stop sequences.
    """
    planned = _encoded(asked, target, stream=stream)
    if planned.encoded.stop:
        _check_stops(planned.encoded.stop, target)
    settings = target.settings
    if settings.drop_fields:
        planned = _without_fields(planned, settings.drop_fields)
    return (
        planned if settings.path is None and not settings.add_fields else _placed(planned, settings)
    )


def _placed(planned: PlannedRequest, settings: UpstreamSettings) -> PlannedRequest:
    """The request with the operator's further members, and without the model if the path names it."""
    changed: dict[str, bytes | None] = {
        name: dumps(value) for name, value in settings.add_fields.items()
    }
    if MODEL_PLACE in (settings.path or ""):
        changed["model"] = None
    body = set_members(planned.encoded.body, changed)
    return structs.replace(planned, encoded=structs.replace(planned.encoded, body=body))


def _without_fields(planned: PlannedRequest, names: tuple[str, ...]) -> PlannedRequest:
    """The request without the members that the upstream refuses, by the operator's list."""
    body = planned.encoded.body
    unwanted = [name for name in dict.fromkeys(names) if name in as_object(body)]
    if not unwanted:
        return planned
    encoded = structs.replace(planned.encoded, body=set_members(body, dict.fromkeys(unwanted)))
    dropped = (Loss("unknown_field", name, "drop", "drop_fields") for name in unwanted)
    return structs.replace(planned, encoded=encoded, losses=(*planned.losses, *dropped))


def _encoded(asked: ClientRequest, target: AttemptTarget, *, stream: bool) -> PlannedRequest:
    model = target.model
    settings = target.settings
    wanted, repairs, is_repaired = asked.request, _NO_REPAIRS, False
    if target.obsidian is not None:
        wanted, repairs = apply_to_request(wanted, target.obsidian)
    elif target.repairs_history:
        wanted, repairs = repair_history(wanted, formats=settings.text_calls, model=model)
        is_repaired = bool(repairs)
    if settings.prompted_tools is not None and needs_prompting(wanted):
        prompted = prompt_tools(wanted, settings.prompted_tools, settings.losses)
        request = structs.replace(prompted.request, model=model, stream=stream)
        encoded = upstream_codec(target.dialect).encode_request(
            request, target.accepts, settings.losses
        )
        encoded = _shaped(encoded, target, (*repairs, *prompted.repairs))
        losses = (*prompted.losses, *encoded.losses)
        return PlannedRequest(encoded, prompted.names, prompted.tools, losses)
    is_own = is_repaired or wanted is asked.request
    if target.is_same_dialect and is_own and not asked.is_rebuilt:
        encoded = relay_request(
            asked.body,
            wanted,
            dialect=target.dialect,
            target=target.accepts,
            model=model,
            stream=stream,
            policy=settings.losses,
            is_repaired=is_repaired,
        )
    else:
        if wanted.model != model or wanted.stream is not stream:
            wanted = structs.replace(wanted, model=model, stream=stream)
        encoded = upstream_codec(target.dialect).encode_request(
            wanted, target.accepts, settings.losses
        )
    if repairs or settings.kind == "chatgpt-codex":
        encoded = _shaped(encoded, target, repairs)
    names, tools = encoded.names, asked.request.tools
    # Where no name changes, the tools stay the same object, so that results cached for it are found.
    tools = tools if names.is_same else _offered(tools, names)
    return PlannedRequest(encoded, names, tools, encoded.losses)


def without_hosted_text(
    planned: PlannedRequest,
    request: Request,
    target: AttemptTarget,
    is_hosted: Callable[[Tool], bool],
) -> PlannedRequest:
    """The planned request, changed so that no text calls a hosted tool: text that only looks like a call must run nothing.

    Unchanged if the operator says that the upstream writes its calls as text.
    """
    settings = target.settings
    if settings.text_calls != _AUTO or settings.prompted_tools is not None:
        return planned
    pairs = zip(request.tools, planned.tools, strict=True)  # the same tools under both names
    names = frozenset(tool.name for own, tool in pairs if is_hosted(own))
    return structs.replace(planned, structured=names)


def _shaped(
    encoded: EncodedRequest, target: AttemptTarget, repairs: tuple[Repair, ...]
) -> EncodedRequest:
    """The request for a kind of upstream that accepts only a part of its dialect."""
    if repairs:
        encoded = structs.replace(encoded, repairs=(*repairs, *encoded.repairs))
    if target.settings.kind != "chatgpt-codex":
        return encoded
    shaped = shape_request(encoded.body, door=target.client_dialect, policy=target.settings.losses)
    return structs.replace(
        encoded,
        body=shaped.body,
        losses=(*encoded.losses, *shaped.losses),
        repairs=(*encoded.repairs, *shaped.repairs),
    )


def plan_answer(  # noqa: PLR0913 -- the request and what was sent for it, and what the encoder needs to know of the client
    request: Request,
    planned: PlannedRequest,
    target: AttemptTarget,
    *,
    seed: str,
    clock: Callable[[], float],
    asked_at: float | None = None,
    request_id: str | None = None,
    profile: Profile = "default",
    repeated: Request | None = None,
    hashes_inputs: bool = False,
) -> AnswerPlan:
    """How the answer is read, and how it is encoded for the client.

    seed: for minted ids. request_id: for error events. asked_at: when the request was sent, if that was not just now.
    repeated: see `settings_of_client`. hashes_inputs: see `DecodeContext`.
    """
    relay = _relay(request, target, repeated, profile)
    obsidian = None
    stops = stop_stage(planned.encoded.stop) if planned.encoded.stop else None
    written = None if relay == "exact" else _stage(request, planned, target, seed)
    change = _joined(written, stops)
    if target.obsidian is not None:
        obsidian = _obsidian_answer(target.obsidian, request, planned, target, written, stops)
        change = obsidian.feed
    return AnswerPlan(
        client_dialect=target.client_dialect,
        dialect=target.dialect,
        wants_stream=request.stream is True,
        decode=DecodeContext(
            tools=planned.tools,
            choices=request.choices or 1,
            name_fallback=target.settings.name_fallback,
            seed=seed,
            hashes_inputs=hashes_inputs,
        ),
        encode=EncodeContext(
            model=request.model if target.model != request.model else None,
            created=int(clock() if asked_at is None else asked_at),
            seed=seed,
            asked_model=request.model,
            mints_id=not target.is_same_dialect,
            request_id=request_id,
            service_tier=request.service_tier,
            include_usage=request.include_usage is True or target.client_dialect != "chat",
            profile=profile,
            legacy_functions=bool(request.tools) and is_legacy(request.tools[0]),
            losses=target.settings.losses,
            last_comment=None if obsidian is None else obsidian.comment,
            request=repeated,
            clock=clock,
        ),
        names=planned.names if obsidian is None else None,  # `obsidian` restores them itself
        stage=change,
        written=written,
        obsidian=obsidian,
        ending=stops if obsidian is None else obsidian,
        relay=relay,
    )


def _relay(
    request: Request, target: AttemptTarget, repeated: Request | None, profile: Profile
) -> Relay:
    """How an answer in the client's dialect is passed on."""
    if not target.is_same_dialect or profile != "default":
        return "none"
    if target.obsidian is not None or target.settings.prompted_tools is not None:
        return "none"
    # An upstream that gets the history in place of the id of a response names no previous response, or another one.
    is_rebuilt = repeated is not None and repeated.previous_id != request.previous_id
    return "none" if is_rebuilt else target.settings.passthrough


def settings_of_client(request: Request, *, is_stored: bool) -> Request:
    """The part of a client's request that the answer repeats: it stays in memory as long as the answer lasts.

    is_stored: what the answer says if the request does not state whether it wants to be stored.
    """
    heads = 0
    for turn in request.turns:
        if not turn.head:
            break
        heads += 1
    store = is_stored if request.store is None else request.store
    return structs.replace(request, turns=request.turns[:heads], store=store)


def _obsidian_answer(
    policy: ObsidianPolicy,
    request: Request,
    planned: PlannedRequest,
    target: AttemptTarget,
    stage: TextCallStage | None,
    stops: StopStage | None,
) -> ObsidianAnswer:
    return ObsidianAnswer(
        policy,
        tools=request.tools,
        names=planned.names,
        text_calls=stage,
        stops=stops,
        losses=target.settings.losses,
        choices=request.choices or 1,
    )


def _check_stops(sequences: tuple[str, ...], target: AttemptTarget) -> None:
    """Check the stop sequences that the upstream's dialect has no field for.

    Raises:
        RequestRefused: there are too many of them, or they are too long.
    """
    if target.client_dialect == "chat" and len(sequences) > MAX_CHAT_STOPS:
        raise RequestRefused(
            f"expected at most {MAX_CHAT_STOPS} stop sequences, got {len(sequences)}", param="stop"
        )
    stop_stage(sequences)


def _joined(written: TextCallStage | None, stops: StopStage | None) -> Change | None:
    """The stages in a row: stop sequences are searched for in the text that remains when the calls in it were found."""
    if written is None or stops is None:
        first = written or stops
        return None if first is None else first.feed
    return lambda event: chain.from_iterable(map(stops.feed, written.feed(event)))


def _stage(
    request: Request, planned: PlannedRequest, target: AttemptTarget, seed: str
) -> TextCallStage | None:
    """The stage that finds calls written as text, unless the operator says that the model writes none."""
    settings = target.settings
    formats = settings.text_calls
    if settings.prompted_tools is not None:
        formats = (settings.prompted_tools, *formats)
    if target.obsidian is not None:
        formats = formats_for(target.obsidian, formats)
        if not request.tools:
            return stage_without_tools(target.obsidian, request, seed)
    if not formats:
        return None
    choice = request.tool_choice
    tools = planned.tools
    if choice is not None and choice.mode == "allowed":
        if len(tools) == len(request.tools):
            # The allowed tools have the client's names; the model writes the upstream's names.
            allowed = {(ref.name, ref.namespace) for ref in choice.allowed}
            pairs = zip(request.tools, tools, strict=True)
            tools = tuple(tool for own, tool in pairs if (own.name, own.namespace) in allowed)
        choice = None
    if planned.structured:
        tools = tuple(tool for tool in tools if tool.name not in planned.structured)
    if tools is not request.tools or choice is not request.tool_choice:
        request = structs.replace(request, tools=tools, tool_choice=choice)
    return stage_for(
        request,
        formats="auto" if formats == _AUTO else formats,
        model=target.model,
        policy=_PLAIN_TAIL if target.obsidian is None else target.obsidian.tail,
        seed=seed,
        # Messages is the dialect of one vendor, whose models leak their calls.
        leaks=target.dialect == "messages",
        # A provider may wait for results under its own ids. Under the Obsidian policy the next call must be seen within the
        # grace period, so there only Codex, which holds its turns, and bodies wait.
        holds_calls=target.obsidian is None
        or settings.kind == "codex"
        or request.stream is not True,
    )


def _offered(tools: tuple[Tool, ...], names: NameMap) -> tuple[Tool, ...]:
    """The tools under the upstream's names for them."""
    offered: list[Tool] = []
    for tool in tools:
        wire = names.wire(tool.name, tool.namespace)
        same = wire == tool.name and tool.namespace is None
        offered.append(tool if same else structs.replace(tool, name=wire, namespace=None))
    return tuple(offered)


def knows_previous(continuation: Continuation, request: Request, target: AttemptTarget) -> bool:
    """Whether the upstream knows the response that the request continues, and so gets the request as the client sent it.

    Raises:
        RequestRefused: neither the gateway nor the upstream can know what the request continues.
    """
    if continuation.missing and not _may_keep(target):
        raise item_missing(continuation.missing[0])
    if continuation.request is None:
        check_previous(request, target)
        return False
    is_known = continuation.upstream == target.upstream and target.settings.keeps_responses
    return is_known and target.is_same_dialect


def check_previous(request: Request, target: AttemptTarget) -> None:
    """Check that a response, a conversation or an item that we did not store may be one of the upstream's.

    Raises:
        RequestRefused: the upstream stores none, or also those of callers with other keys.
    """
    if _may_keep(target):
        return
    if request.previous_id is not None:
        raise previous_missing(request.previous_id)
    conversation_id = conversation_of(request)
    if conversation_id is not None and target.settings.losses.get("conversation") in (
        None,
        "refuse",
    ):
        raise conversation_missing(conversation_id)
    unknown = references(request)
    if unknown:
        raise item_missing(unknown[0])


def plan_kept(
    plan: AnswerPlan, keeper: Keeper, target: AttemptTarget, *, is_native: bool
) -> AnswerPlan:
    """The plan for an answer that is stored.

    The answer has our id where we encode it. We must encode it where it continues a response that the upstream does not know,
    because the upstream would name another previous response; where the upstream repeats its ids; and where the client has got
    our id before any upstream was asked.
    """
    notes = keeper.expect(target.upstream, FAMILIES.get(target.dialect, ""))
    plan = structs.replace(plan, keeper=keeper, encode=structs.replace(plan.encode, notes=notes))
    named = partial(_plan_named, plan, keeper)
    if plan.relay == "none" or keeper.draft.background or (keeper.names_itself and not is_native):
        return named()
    if target.settings.keeps_responses:  # and clients continue them by the upstream's ids
        return plan
    return named() if keeper.is_repeating else structs.replace(plan, renamed=named)


def _plan_named(plan: AnswerPlan, keeper: Keeper) -> AnswerPlan:
    """The plan for an answer that has our id."""
    own = keeper.draft.id
    encode = structs.replace(plan.encode, response_id=own, seed=own)
    if keeper.draft.background:
        encode = structs.replace(encode, created=int(keeper.draft.created), is_queued=True)
    return structs.replace(plan, encode=encode, relay="none")


def plan_escrow(plan: AnswerPlan, managed: ManagedStore, owner: str) -> AnswerPlan:
    """The plan for an answer in a client's dialect without a field for seals, if the upstream may send seals."""
    family = FAMILIES.get(plan.dialect)
    if family is None:
        return plan
    escrow = Escrow(managed, owner, family)
    losses = {"seal": "carry", **plan.encode.losses}
    encode = structs.replace(plan.encode, losses=losses)
    return structs.replace(plan, keeper=escrow, escrow=escrow, encode=encode)


def _may_keep(target: AttemptTarget) -> bool:
    """Whether the upstream may store what a request refers to and the gateway does not, and it can only be the caller's."""
    settings = target.settings
    stores = settings.kind == "responses" or "responses" in settings.also
    return stores and not target.is_shared
