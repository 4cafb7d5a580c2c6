"""Finds the stored conversation that a request continues, and prepends it to the request.

    Responses   `previous_response_id`: a branch, any number; and `submit_tool_outputs`: by a claim, once;
                `conversation`: one response at a time, which holds the conversation
    Messages    `thread: create`, and `thread: continue`, by a claim

The completed request can go to any upstream; only its new turns are stored.

Items that a request only refers to (`item_reference`) come from the store too; the AI SDK repeats the output of a response
only this way. If the gateway wrote the answer, an item's id contains the id of its response; if the upstream's ids passed
through, the store has noted the response of each item.

Each refusal uses the words of its vendor.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct, structs

from dragoman._json import as_object, loads
from dragoman.core.ids import CONVERSATION_PREFIX, RESPONSE_PREFIX
from dragoman.dialects.responses.compaction import is_trigger
from dragoman.dialects.responses.conversations import (
    conversation_of,
    items_of_turns,
    read_input,
    with_conversation,
)
from dragoman.dialects.responses.request import asks_for_background
from dragoman.dialects.responses.turns import read_submitted
from dragoman.errors import MalformedJson, RequestRefused, StoreError, StoreMissing
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Dialect, Extra, Opaque, Part, Result, part_size
from dragoman.model.request import Request, Turn
from dragoman.offload import offload
from dragoman.state.conversation import continued, prepended, settings_of
from dragoman.state.held_conversation import (
    HeldConversation,
    Missing,
    check_referred,
    conversation_missing,
    decode_items,
    responses_of,
)
from dragoman.state.keeper import Keeper, forget
from dragoman.state.managed_store import ManagedStore
from dragoman.store.codec import weigh_request
from dragoman.store.contract import waiting_owner
from dragoman.store.records import Draft, Link, StoredHead

MINTED: dict[Dialect, str] = {"responses": RESPONSE_PREFIX, "messages": "msg_dgm"}
"""The prefixes of the ids that the gateway makes. No vendor's ids begin so: digits or other words follow `resp_` and `msg_`."""

_REFERENCE = "item_reference"
# Bytes that a part takes besides its text.
_AROUND = 32


class Conflict(RequestRefused):
    """A response is not in the state that the request needs."""

    kind = "conflict"
    status = 409


class StorageCaller(Struct, frozen=True):
    """Who sent a request, and how its answer is stored.

    number: for the id of the answer (`core.ids.number_of`). created: seconds since the epoch.
    stop: ends the exchange with an error. only_waiting: see `Draft`.
    body: the request as received, whose items a conversation stores. only_reads: the answer adds nothing to a conversation.
    """

    owner: str
    number: str
    created: float
    stop: Callable[[ErrorInfo], None]
    only_waiting: bool = False
    body: bytes = b""
    only_reads: bool = False


class ConnectionMemory(Protocol):
    """The responses of one WebSocket connection that are not stored, as one request on it sees them.

    generates: False: the request only adds its input to the conversation.
    """

    generates: bool

    def recall(self, response_id: str) -> Link | None:
        """A response with the whole conversation before it. The size in its head is that of both."""
        ...

    def remember(self, link: Link) -> None:
        """Remember the response to the request. The size in its head leaves out the input of the request."""
        ...


class Continuation(Struct, frozen=True, kw_only=True):
    """The conversation that a request continues.

    request: the request with the conversation prepended; None if the client's request needs no change.
    keeper: stores the answer; None if the answer is not stored.
    upstream: the upstream that made the ids the request refers to, and so accepts the client's request unchanged; else empty.
    missing: the ids of items that the request refers to and the store does not have.
    conversation: the stored conversation that submitted outputs belong to.
    """

    request: Request | None = None
    keeper: Keeper | None = None
    upstream: str = ""
    missing: tuple[str, ...] = ()
    conversation: str | None = None


def is_new(request: Request) -> bool:
    """Whether a Responses request continues nothing and refers to nothing, like the first of every conversation."""
    return (
        request.previous_id is None
        and (request.extra is None or "conversation" not in request.extra.fields)
        and not references(request)
    )


def make_keeper(
    managed: ManagedStore,
    request: Request,
    caller_of: Callable[[], StorageCaller],
    *,
    links: tuple[Link, ...] = (),
    waits: bool = False,
) -> Keeper | None:
    """Return the keeper for the answer to a Responses request; None, without calling `caller_of`, if it is not stored.

    links: the conversation that the request continues. waits: the answer asks for the outputs of its calls, so what they
    continue must be stored even if the client wants nothing stored.
    """
    if _is_kept(managed, request):
        caller = caller_of()
        parent = links[-1].head.id if links else None
        return Keeper(managed, _draft("responses", caller, request, parent), caller.stop)
    if not waits:
        return None
    # It has another owner than the responses that it continues, so it takes their turns along.
    caller = _waiting(caller_of())
    return Keeper(managed, _draft("responses", caller, continued(links, request)), caller.stop)


async def find_continuation(
    managed: ManagedStore,
    door: Dialect,
    request: Request,
    caller: StorageCaller,
    *,
    waits: bool = False,
    memory: ConnectionMemory | None = None,
) -> Continuation:
    """Return the conversation that a request at a door continues, if any. `waits`: see `make_keeper`.

    memory: of the WebSocket connection that the request came over. A response that it has is not looked for in the store; one
    that neither has is refused; and a response that is not stored is remembered.

    Raises:
        RequestRefused: the conversation cannot be continued. StoreError: the store did not answer.
    """
    if door == "messages":
        return await _continue_thread(managed, request, caller)
    asked = _Asked(request, caller, waits=waits, memory=memory)
    conversation_id = conversation_of(request)
    if conversation_id is not None and managed.is_on:
        found = await _continue_conversation(managed, conversation_id, asked)
        if found is not None:
            return found
    if memory is not None:
        return await _continue_on_connection(managed, asked, memory)
    links: tuple[Link, ...] = ()
    previous = request.previous_id
    if previous is not None:
        links = await _known(managed, caller.owner, previous)
    return await _continue_response(managed, asked, links)


class _Asked(Struct, frozen=True):
    """A Responses request that may continue something. `waits`, `memory`: see `find_continuation`."""

    request: Request
    caller: StorageCaller
    waits: bool = False
    memory: ConnectionMemory | None = None


async def _continue_conversation(
    managed: ManagedStore, conversation_id: str, asked: _Asked
) -> Continuation | None:
    """Return the continuation of a stored conversation; None if it is not stored here, and may be the upstream's.

    Raises:
        RequestRefused: another response holds the conversation, or the request does not fit it.
    """
    request, caller = asked.request, asked.caller
    if request.previous_id is not None:
        raise RequestRefused(
            "Mutually exclusive parameters. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.",
            code="mutually_exclusive_parameters",
        )
    held = HeldConversation(
        managed, (caller.owner, conversation_id), MINTED["responses"] + caller.number
    )
    try:
        with held.given_back():
            if caller.only_reads:
                await held.read()
                return await _read_conversation(managed, request, caller, held)
            await held.take()
            return await _keep_conversation(managed, asked, held)
    except StoreMissing as error:
        if conversation_id.startswith(CONVERSATION_PREFIX):
            raise conversation_missing(conversation_id) from error
        return None


async def _read_conversation(
    managed: ManagedStore, request: Request, caller: StorageCaller, held: HeldConversation
) -> Continuation:
    """Return the continuation of a request whose answer is not stored: a count, a summary."""
    wanted = references(request)
    missing: tuple[str, ...] = ()
    if wanted:
        referred = await _resolve(managed, caller.owner, request, wanted)
        request, missing = referred.request, referred.missing
    return Continuation(
        request=prepended(held.past, with_conversation(request, None)), missing=missing
    )


async def _keep_conversation(
    managed: ManagedStore, asked: _Asked, held: HeldConversation
) -> Continuation:
    """Return the continuation of a request whose input and answer are added to the conversation."""
    request, caller = asked.request, asked.caller
    new = await held.add_input(read_input(caller.body))
    if new is not None:
        request = _renamed(request, new)
    whole = prepended(held.past, with_conversation(request, None))
    is_kept = _is_kept(managed, request)
    if is_kept:
        draft = structs.replace(
            _draft("responses", caller, request), conversation=held.id, position=held.position
        )
    elif asked.waits:
        draft = _draft("responses", _waiting(caller), with_conversation(whole, held.id))
    else:
        draft = _draft("responses", caller, whole)
    keeper = Keeper(managed, draft, caller.stop)
    if not (is_kept or asked.waits):
        keeper.only_add()
    if asked.memory is not None and not is_kept:
        keeper.remember_by(asked.memory.remember, held.past_bytes)
    keeper.hold(held)
    return Continuation(request=whole, keeper=keeper)


def _renamed(request: Request, new: Sequence[Turn]) -> Request:
    """The request with the input as the conversation stores it, a turn for each item. A trigger, which is not stored, stays."""
    named = iter(new)
    turns = [
        turn if turn.head or any(map(is_trigger, turn.parts)) else next(named)
        for turn in request.turns
    ]
    return structs.replace(request, turns=tuple(turns))


async def _continue_on_connection(
    managed: ManagedStore, asked: _Asked, memory: ConnectionMemory
) -> Continuation:
    request, caller = asked.request, asked.caller
    links: tuple[Link, ...] = ()
    past_bytes = 0
    previous = request.previous_id
    if previous is not None:
        link = memory.recall(previous)
        if link is not None:
            links = (link,)
        elif managed.is_on:
            links = await _known(managed, caller.owner, previous)
        if not links:
            raise previous_missing(previous)
        # What is stored is compressed; what is remembered is not.
        past_bytes = sum([max(each.head.size, weigh_request(each.request)) for each in links])
        _check_outputs(links, request)
        if link is not None:
            request, links = continued(links, request), ()
    if managed.is_on:
        changed = structs.replace(asked, request=request)
        found = await _continue_response(managed, changed, links)
    else:
        found = Continuation(missing=references(request))
    if found.request is None and previous is not None:
        found = structs.replace(found, request=request)
    keeper = found.keeper
    if keeper is not None and not keeper.draft.only_waiting:
        return found
    if keeper is None:
        draft = _draft("responses", caller, found.request or request, previous)
        keeper = Keeper(managed, draft, caller.stop)
    keeper.remember_by(memory.remember, past_bytes)
    return Continuation(request=found.request, keeper=keeper, missing=found.missing)


def _check_outputs(links: Sequence[Link], request: Request) -> None:
    """Raises RequestRefused: an output of a tool belongs to no call of the conversation."""
    results = [part for turn in request.turns for part in turn.parts if type(part) is Result]
    if not results:
        return
    turns = [turn for link in links for turn in link.request.turns]
    parts = [part for turn in (*turns, *request.turns) for part in turn.parts]
    parts += [part for link in links for part in link.parts or ()]
    calls = {part.call_id for part in parts if type(part) is Call}
    for result in results:
        if result.call_id and result.call_id not in calls:
            raise RequestRefused(
                f"No tool call found for function call output with call_id {result.call_id}.",
                param="input",
            )


async def _continue_response(
    managed: ManagedStore, asked: _Asked, links: tuple[Link, ...]
) -> Continuation:
    """Return the continuation of stored responses, or of none, with the items that the request refers to."""
    request, caller = asked.request, asked.caller
    previous = request.previous_id
    wanted = references(request)
    referred = None
    if wanted and (links or previous is None):
        referred = await _resolve(managed, caller.owner, request, wanted)
        request = referred.request
    keeper = make_keeper(managed, request, lambda: caller, links=links, waits=asked.waits)
    missing = () if referred is None else referred.missing
    known = [link.head for link in links[-1:]]
    if referred is not None:
        known += referred.heads
    if not known and (referred is None or set(missing) == set(wanted)):
        return Continuation(keeper=keeper, missing=missing)
    if links:
        request = continued(links, request)
    upstreams = {head.upstream for head in known}
    is_native = len(upstreams) == 1 and not any(
        head.id.startswith(MINTED["responses"]) for head in known
    )
    return Continuation(
        request=request,
        keeper=keeper,
        upstream=upstreams.pop() if is_native else "",
        missing=missing,
    )


def check_background(managed: ManagedStore, request: Request) -> None:
    """Raises RequestRefused: a background response would not be stored, so no client could read it."""
    if managed.is_on and _is_kept(managed, request):
        return
    if not managed.is_on:
        why = 'this gateway stores nothing (store.policy = "off")'
    elif request.store is False:
        why = "the request has `store: false`"
    else:
        why = 'this gateway stores only responses with `store: true` (store.policy = "asked")'
    raise RequestRefused(
        f"background: expected a response that is stored, because it is polled later; {why}",
        param="background",
        code="background_requires_store",
    )


async def continue_submitted(
    managed: ManagedStore, response_id: str, body: bytes, caller: StorageCaller
) -> Continuation:
    """Return the continuation of a response by the outputs of its calls.

    Raises:
        StoreMissing: there is no such response.
        RequestRefused: the response runs, or was continued, or the outputs do not match its calls.
    """
    owner = caller.owner
    try:
        links = await _chain(managed, owner, response_id)
    except StoreMissing as error:
        if error.response_id not in (None, response_id):
            raise
        caller = _waiting(caller)
        links = await _chain(managed, caller.owner, response_id)
    head = links[-1].head
    if head.door != "responses":
        raise StoreMissing(f"expected a stored response, {response_id!r} is none")
    if head.status == "in_progress":
        raise _still_running(response_id)
    if head.is_settled:
        raise _already_continued(response_id)
    calls = _open_calls(links[-1])
    if not calls:
        raise RequestRefused(
            f"expected a response that waits for the outputs of its calls, {response_id!r} waits for none",
            param="tool_outputs",
        )
    submitted = await offload(len(body), read_submitted, body, calls)
    request = structs.replace(submitted, model=settings_of(links).model)
    draft = _draft("responses", caller, request, response_id, claims=True)
    whole = continued(links, request, inherits=True)
    conversation_id = conversation_of(whole)
    if conversation_id is None:
        keeper = await _claim(managed, draft, caller, _refuse_response)
        return Continuation(request=whole, keeper=keeper)
    whole = with_conversation(whole, None)
    held = HeldConversation(managed, (owner, conversation_id), draft.id)
    with held.given_back():
        with suppress(StoreMissing):  # it is deleted, or another provider's
            await held.take()
            await held.add_input(items_of_turns(request.turns, f"outputs of {draft.id}"))
            if not caller.only_waiting:
                draft = structs.replace(draft, conversation=held.id, position=held.position)
        keeper = await _claim(managed, draft, caller, _refuse_response)
        if held.is_held:
            keeper.hold(held)
    return Continuation(
        request=whole, keeper=keeper, conversation=held.id if held.is_held else None
    )


def thread_of(request: Request) -> dict[str, object] | None:
    """Return the `thread` of a Messages request; None if it has none.

    Raises:
        RequestRefused: the `thread` is invalid.
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


async def _continue_thread(
    managed: ManagedStore, request: Request, caller: StorageCaller
) -> Continuation:
    thread = thread_of(request)
    if thread is None:
        return Continuation()
    request = _without_thread(request)
    if thread["type"] == "create":
        keeper = Keeper(managed, _draft("messages", caller, request), caller.stop)
        return Continuation(request=request, keeper=keeper)
    previous = str(thread["previous_message_id"])
    try:
        links = await _chain(managed, caller.owner, previous)
    except StoreMissing as error:
        raise _thread_missing(previous) from error
    if links[-1].parts is None or links[-1].head.door != "messages":
        raise _thread_missing(previous)
    _check_same(request, settings_of(links))
    draft = _draft("messages", caller, request, previous, claims=True)
    keeper = await _claim(managed, draft, caller, _refuse_thread)
    return Continuation(request=continued(links, request, inherits=True), keeper=keeper)


def _check_same(request: Request, settings: Request) -> None:
    """Raises RequestRefused if the request changes the thread's tools or system; it may omit or repeat them."""
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
        raise _thread_refused(
            f"{' and '.join(changed)}: expected those of the thread, or none; send the whole conversation with "
            '`thread: {"type": "create"}` to change them',
            "thread_fingerprint_mismatch",
        )


async def _known(managed: ManagedStore, owner: str, response_id: str) -> tuple[Link, ...]:
    """Return the conversation up to a response; empty if the store does not have the response."""
    try:
        links = await _chain(managed, owner, response_id)
    except StoreMissing as error:
        if error.response_id not in (None, response_id):
            # The store has the response but not its ancestor, so no upstream can have the whole conversation either.
            raise previous_missing(str(error.response_id)) from error
        return ()
    if links[-1].head.door != "responses":
        return ()
    if links[-1].head.status == "in_progress":
        raise _still_running(response_id)
    return links


async def _chain(managed: ManagedStore, owner: str, response_id: str) -> tuple[Link, ...]:
    running = managed.find((owner, response_id))
    if running is not None and not running.is_begun:
        await running.begin_now()
    links = await managed.call("chain", lambda store: store.chain(owner, response_id))
    conversation_id = links[0].head.conversation
    if conversation_id is None:
        return links
    try:
        # Its items are the beginning of what is continued here, so it lives as long.
        await managed.call(
            "update", lambda store: store.conversations.update(owner, conversation_id)
        )
        return await with_beginning(managed, owner, links)
    except StoreMissing as error:
        raise previous_missing(response_id) from error


async def with_beginning(
    managed: ManagedStore, owner: str, links: tuple[Link, ...]
) -> tuple[Link, ...]:
    """Return a chain with the items that the first response's conversation had before it. Raises StoreMissing."""
    first, *others = links
    name, position = first.head.conversation, first.head.position
    if name is None:
        return links
    items = await managed.call(
        "items", lambda store: store.conversations.items(owner, name, before=position)
    )
    request = prepended(await decode_items(items), first.request)
    return (structs.replace(first, request=request), *others)


async def _claim(
    managed: ManagedStore,
    draft: Draft,
    caller: StorageCaller,
    refuse: Callable[[str, str], RequestRefused],
) -> Keeper:
    """Take the claim on the parent, and begin the response that continues it."""
    parent = draft.parent or ""
    keeper = Keeper(managed, draft, caller.stop)
    result = None
    try:
        result = await managed.call(
            "claim", lambda store: store.claim(draft.owner, parent, by=draft.id)
        )
        if result == "won":
            await keeper.claim()
            return keeper
    except asyncio.CancelledError:
        # The writes may have happened: the client's next attempt need not wait until the lease has lapsed.
        managed.spawn(_give_back(managed, draft, may_have_begun=True))
        raise
    except StoreError:
        if result == "won":
            await _give_back(managed, draft, may_have_begun=False)
        raise
    if result == "taken":
        head = await managed.call("head", lambda store: store.head(draft.owner, parent))
        raise refuse(parent, "continued" if head.is_settled else "taken")
    raise refuse(parent, result)


async def _give_back(managed: ManagedStore, draft: Draft, *, may_have_begun: bool) -> None:
    """Give back the claim of a response whose client gets no answer. If the store fails, the claim lapses."""
    owner, parent = draft.owner, draft.parent or ""
    with suppress(StoreError):
        await managed.call("release", lambda store: store.release(owner, parent, by=draft.id))
        if may_have_begun:
            await managed.call("forget", lambda store: forget(store, (owner, draft.id)))


def _refuse_response(response_id: str, why: str) -> RequestRefused:
    return _still_running(response_id) if why == "running" else _already_continued(response_id)


def _refuse_thread(message_id: str, why: str) -> RequestRefused:
    if why == "continued":
        return _thread_refused(
            f"thread.previous_message_id: {message_id!r} has already been continued; continue from the last message",
            "thread_already_continued",
        )
    return _thread_refused(
        f"thread.previous_message_id: another request is continuing from {message_id!r}",
        "thread_continue_in_flight",
    )


def _waiting(caller: StorageCaller) -> StorageCaller:
    """The caller as the owner of responses that are stored only while they wait for the outputs of their calls."""
    return structs.replace(caller, owner=waiting_owner(caller.owner), only_waiting=True)


def _is_kept(managed: ManagedStore, request: Request) -> bool:
    if managed.settings.policy == "asked":
        return request.store is True
    return request.store is not False


def _draft(
    door: Dialect,
    caller: StorageCaller,
    request: Request,
    parent: str | None = None,
    *,
    claims: bool = False,
) -> Draft:
    return Draft(
        id=MINTED[door] + caller.number,
        owner=caller.owner,
        created=caller.created,
        door=door,
        request=request,
        model=request.model,
        parent=parent,
        inherits=claims,
        claims=claims,
        only_waiting=caller.only_waiting,
        background=door == "responses" and not claims and asks_for_background(request),
    )


def _open_calls(link: Link) -> list[Call]:
    waiting = frozenset(link.head.open_calls)
    return [part for part in link.parts or () if isinstance(part, Call) and part.call_id in waiting]


def _without_thread(request: Request) -> Request:
    extra = request.extra
    if extra is None:
        return request
    fields = {name: value for name, value in extra.fields.items() if name != "thread"}
    return structs.replace(request, extra=Extra(extra.dialect, fields))


class _Referred(Struct, frozen=True, kw_only=True):
    """A request with its item references replaced by the items.

    missing: the ids of items that the store does not have. heads: of the responses that other items belong to; the rest are
    items of conversations.
    """

    request: Request
    missing: tuple[str, ...] = ()
    heads: tuple[StoredHead, ...] = ()


def references(request: Request) -> tuple[str, ...]:
    """Return the ids of the items that a request refers to, each once."""
    found = {
        part.item_id or ""
        for turn in request.turns
        for part in turn.parts
        if type(part) is Opaque and part.type == _REFERENCE
    }
    return tuple(sorted(found)) if found else ()


def _is_reference(part: Part) -> bool:
    return type(part) is Opaque and part.type == _REFERENCE


async def _resolve(
    managed: ManagedStore, owner: str, request: Request, wanted: tuple[str, ...]
) -> _Referred:
    """Raises StoreError: the store did not answer. StoreTooLarge: the items are larger than a request may be."""
    found = (part.item_id for turn in request.turns for part in turn.parts if _is_reference(part))
    times = Counter(found)
    size = 0
    heads: list[StoredHead] = []
    items: dict[str, list[Part]] = {item_id: [] for item_id in wanted}
    for response_id in await responses_of(managed, owner, wanted):
        link = await _link(managed, owner, response_id)
        if link is None:
            continue
        heads.append(link.head)
        for part in link.parts or ():
            if part.item_id in items:  # all parts of a message have the message's id
                items[part.item_id].append(part)
                size += times[part.item_id] * (_AROUND + part_size(part))
        check_referred(size)
    rest = [item_id for item_id, parts in items.items() if not parts]
    added: dict[str, tuple[Turn, ...]] = {}
    if rest:
        stored = await managed.call(
            "items", lambda store: store.conversations.find_items(owner, rest)
        )
        check_referred(size + sum([times[name] * len(each.data) for name, each in stored.items()]))
        added = {name: (await decode_items([item])).turns for name, item in stored.items()}
    turns = [each for turn in request.turns for each in _with_items(turn, items, added)]
    return _Referred(
        request=structs.replace(request, turns=tuple(turns)),
        missing=tuple([item_id for item_id in rest if item_id not in added]),
        heads=tuple(heads),
    )


async def _link(managed: ManagedStore, owner: str, response_id: str) -> Link | None:
    try:
        (link,) = await managed.call(
            "chain", lambda store: store.chain(owner, response_id, depth=1)
        )
    except StoreMissing:
        return None
    return link


def _with_items(
    turn: Turn, items: Mapping[str, list[Part]], added: Mapping[str, tuple[Turn, ...]]
) -> tuple[Turn, ...]:
    """Return a turn with items in place of references. `items`: of answers; `added`: of conversations, from either side."""
    if not any(map(_is_reference, turn.parts)):
        return (turn,)
    whole = added.get(turn.parts[0].item_id or "") if len(turn.parts) == 1 else None
    if whole is not None:
        return whole
    parts: list[Part] = []
    for part in turn.parts:
        found = items.get(part.item_id or "") if _is_reference(part) else None
        parts += found or [part]
    return (structs.replace(turn, parts=tuple(parts)),)


def previous_missing(response_id: str) -> RequestRefused:
    return RequestRefused(
        f"Previous response with id '{response_id}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def _still_running(response_id: str) -> Conflict:
    return Conflict(
        f"Response with id '{response_id}' is still in progress; wait for it to end, or cancel it.",
        code="response_in_progress",
    )


def _already_continued(response_id: str) -> Conflict:
    return Conflict(
        f"Response with id '{response_id}' was already continued: its tool outputs can be submitted once. "
        "Send another request with `previous_response_id` to branch from it.",
        code="response_already_continued",
    )


def _thread_missing(message_id: str) -> Missing:
    return Missing(
        f"thread.previous_message_id: no thread is kept under {message_id!r}; "
        'send the whole conversation with `thread: {"type": "create"}`',
        code="thread_not_found",
    )


def _thread_refused(message: str, code: str) -> RequestRefused:
    return RequestRefused(message, param="thread", code=code)
