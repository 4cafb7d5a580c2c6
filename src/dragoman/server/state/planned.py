"""What state changes in the plan of an attempt: what the upstream is asked, and how its answer is told and kept. Pure."""

from functools import partial

from msgspec import structs

from dragoman.server.answers import AnswerPlan
from dragoman.server.planning import Asked
from dragoman.server.state.escrow import FAMILIES, Escrow
from dragoman.server.state.holding import StoreHolder
from dragoman.server.state.keeping import Keeper
from dragoman.server.state.recalling import Recalled
from dragoman.server.state.referring import references
from dragoman.server.state.refusing import item_missing, previous_missing
from dragoman.server.ways import Way
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("asked_natively", "check_previous", "plan_escrow", "plan_kept")


def asked_natively(recalled: Recalled, way: Way) -> Asked | None:
    """The request as the client sent it, for an upstream that knows what it continues; None for every other.

    Raises:
        PreviousMissing, ItemMissing: it continues what neither we nor the upstream can know.
    """
    if recalled.missing and not _may_keep(way.settings):
        raise item_missing(recalled.missing[0])
    if not recalled.asked.is_rebuilt:
        check_previous(recalled.asked, way)
        return None
    is_known = recalled.upstream == way.attempt.upstream and way.settings.keeps_responses
    return recalled.native if is_known and way.is_same else None


def check_previous(asked: Asked, way: Way) -> None:
    """A response or an item that is not ours may be the upstream's, if it speaks of such.

    Raises:
        PreviousMissing, ItemMissing: it cannot be.
    """
    if asked.is_rebuilt or _may_keep(way.settings):
        return
    previous = asked.request.previous_id
    if previous is not None:
        raise previous_missing(previous)
    unknown = references(asked.request)
    if unknown:
        raise item_missing(unknown[0])


def plan_kept(plan: AnswerPlan, keeper: Keeper, way: Way, *, is_native: bool) -> AnswerPlan:
    """The plan for an answer that is kept whole.

    It has our id where we write it, and must be written where it continues another that the upstream does not know: the
    upstream would tell of another past. And where the upstream repeats its ids.
    """
    keeper.upstream = way.attempt.upstream
    keeper.family = FAMILIES.get(way.dialect, "")
    named = partial(_plan_named, plan, keeper)
    if plan.relay == "none" or (keeper.names_itself and not is_native):
        return named()
    if way.settings.keeps_responses:  # and is asked for them by its own ids
        return structs.replace(plan, keeper=keeper)
    return named() if keeper.is_repeating else structs.replace(plan, keeper=keeper, renamed=named)


def _plan_named(plan: AnswerPlan, keeper: Keeper) -> AnswerPlan:
    """The plan for an answer that has our id."""
    own = keeper.response_id
    encode = structs.replace(
        plan.encode,
        response_id=own,
        previous_id=keeper.parent,
        seed=own,
        journal=keeper.journal,
    )
    return structs.replace(plan, keeper=keeper, encode=encode, relay="none")


def plan_escrow(plan: AnswerPlan, holder: StoreHolder, owner: str) -> AnswerPlan:
    """The plan for an answer whose client cannot carry seals, where the upstream may make some."""
    family = FAMILIES.get(plan.dialect)
    if family is None:
        return plan
    escrow = Escrow(holder, owner, family)
    losses = {"seal": "carry", **plan.encode.losses}
    encode = structs.replace(plan.encode, losses=losses)
    return structs.replace(plan, keeper=escrow, escrow=escrow, encode=encode)


def _may_keep(settings: UpstreamSettings) -> bool:
    return settings.kind == "responses" or "responses" in settings.also
