"""What a request continues: found in the store, and put before what it asks.

    Responses   `previous_response_id`: a branch, as many as wanted; and `submit_tool_outputs`: by a claim, once
    Messages    `thread: create`, and `thread: continue`, by a claim

The request is then whole, and goes to any upstream; what is kept of it is only what was new.
"""

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct, structs

from dragoman._json import as_object, loads
from dragoman.core.ids import RESPONSE_PREFIX
from dragoman.dialects.responses import read_submitted
from dragoman.errors import MalformedJson, RequestRefused, StoreError, StoreMissing
from dragoman.model.parts import Call, Dialect, Extra
from dragoman.model.request import Request
from dragoman.server.planning import Asked
from dragoman.server.refusals import Refusal
from dragoman.server.state.holding import StoreHolder
from dragoman.server.state.keeping import Keeper, Kept
from dragoman.server.state.referring import references, resolve
from dragoman.server.state.refusing import (
    already_continued,
    background_refused,
    previous_missing,
    still_running,
    thread_missing,
    thread_refused,
)
from dragoman.store.history import continued, settings_of
from dragoman.store.records import Link
from dragoman.store.working import beside

__all__ = (
    "MINTED",
    "Asking",
    "Recalled",
    "is_new",
    "keep",
    "recall",
    "recall_submitted",
    "thread_of",
)

MINTED: dict[Dialect, str] = {"responses": RESPONSE_PREFIX, "messages": "msg_dgm"}
"""How the ids begin that are ours. No vendor's do: theirs go on with digits or other words."""


class Asking(Struct, frozen=True):
    """Who asks, and what an answer to them needs.

    number: for the id of the answer (`core.ids.number_of`). keeper: makes what keeps the answer.
    """

    owner: str
    number: str
    keeper: Callable[[Kept], Keeper]


class Recalled(Struct, frozen=True, kw_only=True):
    """What is to be asked, with what went before it.

    keeper: what keeps the answer; None: nothing does.
    native: as the client asked it, for `upstream`, which gave the earlier response its id and knows it.
    missing: the ids of items that it refers to and that are not known here.
    """

    asked: Asked
    keeper: Keeper | None = None
    native: Asked | None = None
    upstream: str = ""
    missing: tuple[str, ...] = ()


def is_new(request: Request) -> bool:
    """Whether a Responses request continues nothing and refers to nothing, as the first of every conversation."""
    return (
        request.previous_id is None
        and (request.extra is None or "background" not in request.extra.fields)
        and not references(request)
    )


def keep(
    holder: StoreHolder, request: Request, asking: Callable[[], Asking], parent: str | None = None
) -> Keeper | None:
    """What keeps the answer to a Responses request; None: nothing does, and nobody is asked who it is."""
    if not _is_kept(holder, request):
        return None
    caller = asking()
    return caller.keeper(_kept("responses", caller, request, parent))


async def recall(holder: StoreHolder, door: Dialect, asked: Asked, caller: Asking) -> Recalled:
    """What a request at a door continues, if it continues anything.

    Raises:
        Refusal: it cannot be continued. StoreError: the store did not answer.
    """
    if door == "messages":
        return await _recall_thread(holder, asked, caller)
    request = asked.request
    _check_background(request)
    links: tuple[Link, ...] = ()
    previous = request.previous_id
    if previous is not None:
        links = await _known(holder, caller.owner, previous)
    wanted = references(request)
    referred = None
    if wanted and (links or previous is None):
        referred = await resolve(holder, caller.owner, request, wanted)
        request = referred.request
    keeper = keep(holder, request, lambda: caller, previous if links else None)
    missing = () if referred is None else referred.missing
    known = (*links[-1:], *(() if referred is None else referred.links))
    if not known:
        return Recalled(asked=asked, keeper=keeper, missing=missing)
    if links:
        request = continued(links, request)
    upstreams = {link.head.upstream for link in known}
    is_native = len(upstreams) == 1 and not any(
        link.head.id.startswith(MINTED["responses"]) for link in known
    )
    return Recalled(
        asked=Asked(b"", request, is_rebuilt=True),
        keeper=keeper,
        native=asked if is_native else None,
        upstream=known[0].head.upstream,
        missing=missing,
    )


def _check_background(request: Request) -> None:
    """Raises BackgroundRefused."""
    raw = None if request.extra is None else request.extra.fields.get("background")
    if raw is not None and bytes(raw).strip() == b"true":
        raise background_refused()


async def recall_submitted(
    holder: StoreHolder, response_id: str, body: bytes, caller: Asking
) -> Recalled:
    """What a response is asked that gets the outputs of its calls.

    Raises:
        StoreMissing: there is no such response. Refusal: it runs, or was continued. RequestRefused: the outputs do not fit.
    """
    owner = caller.owner
    links = await _chain(holder, owner, response_id)
    head = links[-1].head
    if head.door != "responses":
        raise StoreMissing(f"expected a stored response, {response_id!r} is none")
    if head.status == "in_progress":
        raise still_running(response_id)
    if head.is_settled:
        raise already_continued(response_id)
    calls = _open_calls(links[-1])
    if not calls:
        raise RequestRefused(
            f"expected a response that waits for the outputs of its calls, {response_id!r} waits for none",
            param="tool_outputs",
        )
    submitted = await beside(len(body), read_submitted, body, calls)
    request = structs.replace(submitted, model=settings_of(links).model)
    kept = _kept("responses", caller, request, response_id, claims=True)
    keeper = await _claim(holder, kept, caller, _refuse_response)
    return Recalled(
        asked=Asked(b"", continued(links, request, inherits=True), is_rebuilt=True), keeper=keeper
    )


def thread_of(request: Request) -> dict[str, object] | None:
    """The `thread` of a Messages request; None if it has none.

    Raises:
        RequestRefused: it is none that is known.
    """
    raw = None if request.extra is None else request.extra.fields.get("thread")
    if raw is None or bytes(raw).strip() == b"null":
        return None
    try:
        as_object(bytes(raw))
        thread: dict[str, object] = loads(bytes(raw))
    except MalformedJson as error:
        raise RequestRefused(f"thread: {error.message}", param="thread") from error
    kind = thread.get("type")
    if kind not in ("create", "continue"):
        raise RequestRefused(
            f"thread.type: expected create or continue, got {kind!r}", param="thread.type"
        )
    if kind == "continue" and not isinstance(thread.get("previous_message_id"), str):
        raise RequestRefused(
            "thread.previous_message_id: expected the id of a message, got none",
            param="thread.previous_message_id",
        )
    return thread


async def _recall_thread(holder: StoreHolder, asked: Asked, caller: Asking) -> Recalled:
    thread = thread_of(asked.request)
    if thread is None:
        return Recalled(asked=asked)
    request = _without_thread(asked.request)
    if thread["type"] == "create":
        keeper = caller.keeper(_kept("messages", caller, request))
        return Recalled(asked=Asked(b"", request, is_rebuilt=True), keeper=keeper)
    previous = str(thread["previous_message_id"])
    try:
        links = await _chain(holder, caller.owner, previous)
    except StoreMissing as error:
        raise thread_missing(previous) from error
    if links[-1].answer is None or links[-1].head.door != "messages":
        raise thread_missing(previous)
    _check_same(request, settings_of(links))
    kept = _kept("messages", caller, request, previous, claims=True)
    keeper = await _claim(holder, kept, caller, _refuse_thread)
    whole = continued(links, request, inherits=True)
    return Recalled(asked=Asked(b"", whole, is_rebuilt=True), keeper=keeper)


def _check_same(request: Request, settings: Request) -> None:
    """Tools and system belong to the thread: they may be left out or repeated, not changed."""
    heads = tuple(turn for turn in request.turns if turn.head)
    changed = [
        name
        for name, ours, theirs in (
            ("tools", request.tools, settings.tools),
            ("system", heads, settings.turns),
        )
        if ours and ours != theirs
    ]
    if changed:
        raise thread_refused(
            f"{' and '.join(changed)}: expected those of the thread, or none; send the whole conversation with "
            '`thread: {"type": "create"}` to change them',
            "thread_fingerprint_mismatch",
        )


async def _known(holder: StoreHolder, owner: str, response_id: str) -> tuple[Link, ...]:
    """The conversation up to a response; nothing if it is not ours."""
    try:
        links = await _chain(holder, owner, response_id)
    except StoreMissing as error:
        if error.response_id not in (None, response_id):
            # It is ours, and what it continued is gone: no upstream could make up for that.
            raise previous_missing(str(error.response_id)) from error
        return ()
    if links[-1].head.door != "responses":
        return ()
    if links[-1].head.status == "in_progress":
        raise still_running(response_id)
    return links


async def _chain(holder: StoreHolder, owner: str, response_id: str) -> tuple[Link, ...]:
    running = holder.find((owner, response_id))
    if running is not None and not running.is_begun:
        await running.begin_now()
    return await holder.ask("chain", lambda store: store.chain(owner, response_id))


async def _claim(
    holder: StoreHolder, kept: Kept, caller: Asking, refuse: Callable[[str, str], Refusal]
) -> Keeper:
    """Take the right to continue, and begin the response that does."""
    parent = kept.parent or ""
    result = await holder.ask(
        "claim", lambda store: store.claim(kept.owner, parent, by=kept.response_id)
    )
    if result == "taken":
        head = await holder.ask("head", lambda store: store.head(kept.owner, parent))
        raise refuse(parent, "continued" if head.is_settled else "taken")
    if result == "running":
        raise refuse(parent, result)
    keeper = caller.keeper(kept)
    try:
        await keeper.claim()
    except StoreError:
        with suppress(StoreError):
            await holder.ask(
                "release", lambda store: store.release(kept.owner, parent, by=kept.response_id)
            )
        raise
    return keeper


def _refuse_response(response_id: str, why: str) -> Refusal:
    return still_running(response_id) if why == "running" else already_continued(response_id)


def _refuse_thread(message_id: str, why: str) -> Refusal:
    if why == "continued":
        return thread_refused(
            f"thread.previous_message_id: {message_id!r} has already been continued; continue from the last message",
            "thread_already_continued",
        )
    return thread_refused(
        f"thread.previous_message_id: another request is continuing from {message_id!r}",
        "thread_continue_in_flight",
    )


def _is_kept(holder: StoreHolder, request: Request) -> bool:
    if holder.settings.policy == "asked":
        return request.store is True
    return request.store is not False


def _kept(
    door: Dialect,
    caller: Asking,
    request: Request,
    parent: str | None = None,
    *,
    claims: bool = False,
) -> Kept:
    return Kept(
        owner=caller.owner,
        door=door,
        request=request,
        response_id=MINTED[door] + caller.number,
        parent=parent,
        inherits=claims,
        claims=claims,
    )


def _open_calls(link: Link) -> list[Call]:
    parts = () if link.answer is None else link.answer.parts
    waiting = frozenset(link.head.open_calls)
    return [part for part in parts if isinstance(part, Call) and part.call_id in waiting]


def _without_thread(request: Request) -> Request:
    extra = request.extra
    if extra is None:
        return request
    fields = {name: value for name, value in extra.fields.items() if name != "thread"}
    return structs.replace(request, extra=Extra(extra.dialect, fields))
