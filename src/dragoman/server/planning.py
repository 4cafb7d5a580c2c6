"""What one attempt sends and how its answer is read: decided from the request, the upstream's settings and its limits.

Pure; the exchange does what is planned here.
"""

from msgspec import Struct, structs

from dragoman.core.aliases import NameMap
from dragoman.dialects.base import DecodeContext, EncodeContext, EncodedRequest
from dragoman.dialects.registry import codec
from dragoman.dialects.relay_request import relay_request
from dragoman.model.parts import Dialect
from dragoman.model.request import Request, Tool
from dragoman.server.answers import AnswerPlan, Profile
from dragoman.server.doors import Door
from dragoman.server.routing import Attempt
from dragoman.server.targets import target_of
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("Asked", "Way", "encode_request", "plan_answer")


class Asked(Struct, frozen=True, gc=False):
    """What a client asked for: as it came, and as it was understood."""

    body: bytes
    request: Request


class Way(Struct, frozen=True, gc=False):
    """The way of one attempt: through which door, to which upstream, in which dialect."""

    door: Door
    dialect: Dialect
    attempt: Attempt
    settings: UpstreamSettings

    @property
    def is_same(self) -> bool:
        """Whether both sides speak the same dialect."""
        return self.dialect == self.door.dialect


def encode_request(asked: Asked, way: Way, *, stream: bool) -> EncodedRequest:
    """The request for this upstream.

    Raises:
        RequestRefused: it says what the upstream's dialect cannot, and the policy refuses to lose it.
    """
    model = way.attempt.model
    settings = way.settings
    target = target_of(settings, way.dialect, model)
    if way.is_same:
        return relay_request(
            asked.body,
            asked.request,
            dialect=way.dialect,
            target=target,
            model=model,
            stream=stream,
            policy=settings.losses,
        )
    request = structs.replace(asked.request, model=model, stream=stream)
    return codec(way.dialect).encode_request(request, target, settings.losses)


def plan_answer(
    request: Request, names: NameMap, way: Way, *, profile: Profile, seed: str, now: float
) -> AnswerPlan:
    """How the answer is to be read and told."""
    settings = way.settings
    model = request.model
    return AnswerPlan(
        door=way.door,
        dialect=way.dialect,
        wants_stream=request.stream is True,
        decode=DecodeContext(
            tools=_offered(request.tools, names),
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
            legacy_functions=_is_legacy(request.tools),
            losses=settings.losses,
        ),
        names=names,
        relay=settings.passthrough if way.is_same and profile == "default" else "none",
    )


def _offered(tools: tuple[Tool, ...], names: NameMap) -> tuple[Tool, ...]:
    """The tools by the names the upstream knows them by."""
    if not names.wires:
        return tools
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
