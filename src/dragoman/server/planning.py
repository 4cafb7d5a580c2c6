"""What one attempt sends and how its answer is read: decided from the request, the upstream's settings and its limits.

Pure; the exchange does what is planned here.
"""

from collections.abc import Callable

from msgspec import Struct, structs

from dragoman.core.aliases import NameMap
from dragoman.dialects.base import DecodeContext, EncodeContext, EncodedRequest
from dragoman.dialects.registry import upstream_codec
from dragoman.dialects.relay_request import relay_request
from dragoman.model.outcome import Loss, Repair
from dragoman.model.request import Request, Tool
from dragoman.server.answers import AnswerPlan, Profile
from dragoman.server.contract import (
    contract_request,
    formats_under,
    make_contract,
    stage_without_tools,
)
from dragoman.server.late_stage import LateStage, sought_in
from dragoman.server.ways import Way
from dragoman.store.packing import weigh_request
from dragoman.textcalls.prompting import needs_prompting, prompt_tools
from dragoman.textcalls.stage import TextCallStage, stage_for
from dragoman.textcalls.tail import TailPolicy
from dragoman.upstream.chatgpt_codex.shaping import shape_request

__all__ = ("Asked", "Sending", "Way", "plan_answer", "plan_sending", "without_hosted_text")

_NO_REPAIRS: tuple[Repair, ...] = ()
_AUTO = ("auto",)


class Asked(Struct, frozen=True, gc=False):
    """What a client asked for: as it came, and as it was understood.

    is_rebuilt: the request is more than what came, or other: it is written anew for every upstream.
    """

    body: bytes
    request: Request
    is_rebuilt: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it takes: whether it is better worked on in a thread."""
        return len(self.body) or weigh_request(self.request)


class Sending(Struct, frozen=True, gc=False):
    """What goes to the upstream, and under which names it knows the tools: in the request, or in the prompt.

    structured: names of tools whose calls are looked for in no text.
    """

    encoded: EncodedRequest
    names: NameMap
    tools: tuple[Tool, ...]
    losses: tuple[Loss, ...]
    structured: frozenset[str] = frozenset()

    @property
    def written(self) -> tuple[Tool, ...]:
        """The tools whose calls may be written as text; the very tuple of all where nothing is said."""
        if not self.structured:
            return self.tools
        return tuple(tool for tool in self.tools if tool.name not in self.structured)


def plan_sending(asked: Asked, way: Way, *, stream: bool) -> Sending:
    """The request for this upstream.

    Raises:
        RequestRefused: it says what the upstream's dialect cannot, and the policy refuses to lose it.
    """
    model = way.attempt.model
    settings = way.settings
    target = way.target
    wanted, repairs = asked.request, _NO_REPAIRS
    if way.terms is not None:
        wanted, repairs = contract_request(wanted, way.terms)
    if settings.prompted_tools is not None and needs_prompting(wanted):
        prompted = prompt_tools(wanted, settings.prompted_tools, settings.losses)
        request = structs.replace(prompted.request, model=model, stream=stream)
        encoded = upstream_codec(way.dialect).encode_request(request, target, settings.losses)
        encoded = _shaped(encoded, way, (*repairs, *prompted.repairs))
        losses = (*prompted.losses, *encoded.losses)
        return Sending(encoded, prompted.names, prompted.tools, losses)
    if way.is_same and wanted is asked.request and not asked.is_rebuilt:
        encoded = relay_request(
            asked.body,
            wanted,
            dialect=way.dialect,
            target=target,
            model=model,
            stream=stream,
            policy=settings.losses,
        )
    else:
        request = structs.replace(wanted, model=model, stream=stream)
        encoded = upstream_codec(way.dialect).encode_request(request, target, settings.losses)
    if repairs or settings.kind == "chatgpt-codex":
        encoded = _shaped(encoded, way, repairs)
    tools = _offered(asked.request.tools, encoded.names)
    return Sending(encoded, encoded.names, tools, encoded.losses)


def without_hosted_text(
    sending: Sending, request: Request, way: Way, is_hosted: Callable[[Tool], bool]
) -> Sending:
    """The same where no text calls a tool that is run here: words that merely look like a call must run nothing.

    Unless the operator says of the upstream that it writes its calls as text.
    """
    settings = way.settings
    if settings.text_calls != _AUTO or settings.prompted_tools is not None:
        return sending
    pairs = zip(request.tools, sending.tools, strict=True)  # the same tools by other names
    names = frozenset(tool.name for own, tool in pairs if is_hosted(own))
    return structs.replace(sending, structured=names)


def _shaped(encoded: EncodedRequest, way: Way, repairs: tuple[Repair, ...]) -> EncodedRequest:
    """The request as this kind of upstream takes it, where that is not all of its dialect."""
    if repairs:
        encoded = structs.replace(encoded, repairs=(*repairs, *encoded.repairs))
    if way.settings.kind != "chatgpt-codex":
        return encoded
    shaped = shape_request(encoded.body, door=way.door.dialect, policy=way.settings.losses)
    return structs.replace(
        encoded,
        body=shaped.body,
        losses=(*encoded.losses, *shaped.losses),
        repairs=(*encoded.repairs, *shaped.repairs),
    )


def plan_answer(
    request: Request, sending: Sending, way: Way, *, profile: Profile, seed: str, now: float
) -> AnswerPlan:
    """How the answer is to be read and told."""
    settings = way.settings
    model = request.model
    is_relayed = (
        way.is_same
        and profile == "default"
        and way.terms is None
        and settings.prompted_tools is None
    )
    # Who wants answers exactly as they come wants their text as it comes.
    is_exact = is_relayed and settings.passthrough == "exact"
    names: NameMap | None = sending.names
    wants_stream = request.stream is True
    contract, change = None, None
    written: TextCallStage | LateStage | None = None
    if way.terms is not None:
        written = stage = _stage(request, sending, way, seed)
        contract = make_contract(
            way.terms, request, names=sending.names, written=stage, upstream=settings
        )
        change, names = contract.feed, None  # it sees to the names itself
    elif not is_exact:
        if wants_stream or request.tool_choice is not None or settings.prompted_tools is not None:
            written = _stage(request, sending, way, seed)
        elif sending.tools and settings.text_calls:
            written = _late_stage(sending, way, seed)
        change = None if written is None else written.feed
    return AnswerPlan(
        door=way.door,
        dialect=way.dialect,
        wants_stream=wants_stream,
        decode=DecodeContext(
            tools=sending.tools,
            choices=request.choices or 1,
            name_fallback=settings.name_fallback,
            seed=seed,
        ),
        encode=EncodeContext(
            # A client that asked for a model under another name gets that name back; else the upstream's word counts.
            model=model if way.attempt.model != model else None,
            created=int(now),
            seed=seed,
            include_usage=request.include_usage is True or way.door.dialect != "chat",
            profile=profile,
            legacy_functions=way.door.dialect == "chat" and _is_legacy(request.tools),
            losses=settings.losses,
            last_comment=None if contract is None else contract.comment,
        ),
        names=names,
        stage=change,
        written=written,
        contract=contract,
        grace=0.0 if way.terms is None else way.terms.grace,
        relay=settings.passthrough if is_relayed else "none",
    )


def _late_stage(sending: Sending, way: Way, seed: str) -> LateStage | None:
    """What finds calls in the text of a whole answer, where nothing narrows what may be called."""
    formats = way.settings.text_calls
    sought = sought_in(sending.written, "auto" if formats == _AUTO else formats, way.attempt.model)
    return None if sought is None else LateStage(sought, seed)


def _stage(request: Request, sending: Sending, way: Way, seed: str) -> TextCallStage | None:
    """What finds calls that the model writes as text, unless the operator says that it writes none."""
    settings = way.settings
    formats = settings.text_calls
    if settings.prompted_tools is not None:
        formats = (settings.prompted_tools, *formats)
    if way.terms is not None:
        formats = formats_under(way.terms, formats)
        if not request.tools:
            return stage_without_tools(way.terms, request, seed)
    if not formats:
        return None
    choice = request.tool_choice
    tools = sending.tools
    if choice is not None and choice.mode == "allowed" and len(tools) == len(request.tools):
        # What is allowed is told by the client's names, what the model writes by the upstream's.
        allowed = {(ref.name, ref.namespace) for ref in choice.allowed}
        pairs = zip(request.tools, tools, strict=True)
        tools = tuple(tool for own, tool in pairs if (own.name, own.namespace) in allowed)
    if sending.structured:
        tools = tuple(tool for tool in tools if tool.name not in sending.structured)
    if choice is not None and choice.mode == "allowed":
        choice = None
    return stage_for(
        structs.replace(request, tools=tools, tool_choice=choice),
        formats="auto" if formats == _AUTO else formats,
        model=way.attempt.model,
        policy=TailPolicy() if way.terms is None else way.terms.tail,
        seed=seed,
    )


def _offered(tools: tuple[Tool, ...], names: NameMap) -> tuple[Tool, ...]:
    """The tools by the names the upstream knows them by."""
    for (space, name), wire in names.wires.items():
        if wire != name or space is not None:
            break
    else:
        return tools  # the very tuple: what was made of it is remembered
    offered: list[Tool] = []
    for tool in tools:
        wire = names.wire(tool.name, tool.namespace)
        same = wire == tool.name and tool.namespace is None
        offered.append(tool if same else structs.replace(tool, name=wire, namespace=None))
    return tuple(offered)


def _is_legacy(tools: tuple[Tool, ...]) -> bool:
    """Whether a Chat client offered its tools as `functions` and reads `function_call`."""
    extra = tools[0].extra if tools else None
    return extra is not None and extra.dialect == "chat" and "functions" in extra.fields
