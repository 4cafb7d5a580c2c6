"""Stored responses over HTTP: one function for each endpoint.

    GET    /v1/responses/{id}                the response; with `stream=true` its stream, from `starting_after` on
    GET    /v1/responses/{id}/input_items    the input of the response, in pages: all that the model saw
    POST   /v1/responses/{id}/cancel         stops the response
    DELETE /v1/responses/{id}                removes the response

`POST /v1/responses/{id}/submit_tool_outputs` continues a conversation; the server handles it as an exchange.

A replayed stream has the bytes that the first client got. Events are counted by their `sequence_number`; comments and
keep-alives, which only kept the first client's connection open, are left out. The node that runs a response sends its
stream to followers as it comes, a moment after the first client got it; the end comes from the store, once it is stored.
Another node sends what that node appends to the store, which it does for background responses. Of other responses it knows
nothing before the end: it keeps the connection open, and then sends everything at once.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import structs
from starlette.responses import Response, StreamingResponse

from dragoman._json import dumps, dumps_document
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.responses import terminal
from dragoman.dialects.responses.envelope import bare_response
from dragoman.dialects.responses.turns import list_items
from dragoman.dialects.translate import stream_body
from dragoman.errors import RequestRefused, StoreError, StoreMissing
from dragoman.model.outcome import ErrorInfo
from dragoman.sse import Frame, FrameParser, encode_comment
from dragoman.state.continuation import with_beginning
from dragoman.state.conversation import continued, settings_of
from dragoman.state.keeper import cancelled_error
from dragoman.state.managed_store import ManagedStore
from dragoman.store.contract import MAX_PAGE, Key
from dragoman.store.engine_store import Store
from dragoman.store.records import Link, Stored, StreamProgress

SUBMITTED = re.compile(r"(?:/v1)?/responses/([^/]+)/submit_tool_outputs/?")

_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"
_STREAM = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
_DIED = ErrorInfo(
    kind="server", message="the gateway that made this response ended before the response did"
)


# Items per page: OpenAI's default.
DEFAULT_PAGE = 20

POLL_SECONDS = 0.5
"""How often a follower on another node checks whether the response has ended."""

KEEP_ALIVE_SECONDS = 10.0
"""Proxies and clients drop a silent connection, usually after a minute."""


def find_submitted(path: str) -> str | None:
    """Return the id in a `submit_tool_outputs` path; None for other paths."""
    found = SUBMITTED.fullmatch(path)
    return None if found is None else found[1]


async def read_response(
    managed: ManagedStore, owner: str, response_id: str, query: Mapping[str, str]
) -> Response:
    """Raises StoreMissing, RequestRefused."""
    is_stream = _flag(query, "stream")
    after = _number(query, "starting_after")
    if after is not None and not is_stream:
        raise RequestRefused(
            "starting_after: expected it with stream=true only", param="starting_after"
        )
    stored = await _read_stored(managed, owner, response_id, stream=is_stream)
    if not is_stream:
        return Response(await _read_body(managed, stored), media_type=_JSON)
    if not _has_ended(stored):
        live = follow(managed, (owner, response_id), after)
        return StreamingResponse(live, media_type=_EVENTS, headers=_STREAM)
    stream = Replay(after).rest(_stream(stored))
    return Response(stream, media_type=_EVENTS, headers=_STREAM)


async def list_input(
    managed: ManagedStore, owner: str, response_id: str, query: Mapping[str, str]
) -> Response:
    """Raises StoreMissing, RequestRefused."""
    await _settle(managed, owner, response_id)
    links = await managed.call("chain", lambda store: store.chain(owner, response_id))
    _check_door(links[-1].head.door, response_id)
    with suppress(StoreMissing):  # the conversation that it belonged to was deleted
        links = await with_beginning(managed, owner, links)
    return Response(page_of_items(links, query), media_type=_JSON)


async def delete_response(managed: ManagedStore, owner: str, response_id: str) -> Response:
    """Raises StoreMissing."""
    running = await _settle(managed, owner, response_id)
    await managed.call("delete", lambda store: store.delete(owner, response_id))
    if running:
        _stop(managed, owner, response_id)
    return Response(
        dumps({"id": response_id, "object": "response", "deleted": True}), media_type=_JSON
    )


async def cancel_response(managed: ManagedStore, owner: str, response_id: str) -> Response:
    """Cancel a response and return it; a response that has ended is returned unchanged. Raises StoreMissing."""
    running = await _settle(managed, owner, response_id)
    await managed.call("cancel", lambda store: store.cancel(owner, response_id))
    if running:
        _stop(managed, owner, response_id)
    stored = await _read_stored(managed, owner, response_id)
    return Response(await _read_body(managed, stored), media_type=_JSON)


async def _settle(managed: ManagedStore, owner: str, response_id: str) -> bool:
    """Return whether the response runs on this node; if it does, store its beginning first."""
    running = managed.find((owner, response_id))
    if running is not None and not running.is_begun:
        await running.begin_now()
    return running is not None


def _stop(managed: ManagedStore, owner: str, response_id: str) -> None:
    running = managed.find((owner, response_id))
    if running is not None:
        running.lose()


async def _read_stored(
    managed: ManagedStore, owner: str, response_id: str, *, stream: bool = False
) -> Stored:
    await _settle(managed, owner, response_id)
    stored = await managed.call("read", lambda store: store.read(owner, response_id, stream=stream))
    _check_door(stored.head.door, response_id)
    return stored


def _check_door(door: str, response_id: str) -> None:
    """Raises StoreMissing for a message of a thread: the store has both kinds, these endpoints serve responses only."""
    if door != "responses":
        raise StoreMissing(
            f"expected a stored response, {response_id!r} is none", response_id=response_id
        )


def _has_ended(stored: Stored) -> bool:
    """Whether the response has an end, which is stored. Others still run, were cancelled, or died with their gateway."""
    match stored.head.status:
        case "in_progress":
            return False
        case "cancelled":
            return stored.stream is not None
        case "failed":
            return terminal.has_failed(stored.body)
        case _:
            return True


async def _read_body(managed: ManagedStore, stored: Stored) -> bytes:
    """Return the response object with its current status: it may have been cancelled, continued or abandoned since."""
    head = stored.head
    body = stored.body
    if not body:
        links = await managed.call("chain", lambda store: store.chain(head.owner, head.id))
        body = _bare(links)
    match head.status:
        case "cancelled":
            return terminal.change_status(body, "cancelled", cancelled_error())
        case "failed" if not terminal.has_failed(body):
            return terminal.change_status(body, "failed", _DIED)
        case _ if head.is_settled and terminal.is_waiting(body):
            return terminal.change_status(body, "completed")
        case _:
            return body


def _bare(links: Sequence[Link]) -> bytes:
    """Return the response object of a response that has sent nothing yet."""
    head = links[-1].head
    request = structs.replace(settings_of(links), model=head.model, previous_id=head.parent)
    context = EncodeContext(response_id=head.id, created=int(head.created), request=request)
    return bare_response(head.status, context)


def _stream(stored: Stored) -> bytes:
    """Return the stream as it was sent; for a response that was not streamed, encode one from its body."""
    if stored.stream is not None:
        return stored.stream
    encode = EncodeContext(response_id=stored.head.id, created=int(stored.head.created))
    made, _ = stream_body(
        stored.body, "responses", "responses", decode=DecodeContext(), encode=encode
    )
    return made.body


def _flag(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise RequestRefused(f"{name}: expected true or false, got {value!r}", param=name)
    return value == "true"


def _number(query: Mapping[str, str], name: str) -> int | None:
    value = query.get(name)
    if value is None:
        return None
    if not value.isdecimal() or len(value) > 18:
        raise RequestRefused(f"{name}: expected a number from 0 on, got {value!r}", param=name)
    return int(value)


def page_of_items(links: Sequence[Link], query: Mapping[str, str]) -> bytes:
    """Return a page of the input items of the last response. `query`: `limit`, `order`, `after`, `before`.

    Raises:
        RequestRefused: the query has an invalid value.
    """
    *earlier, last = links
    turns = continued(earlier, last.request).turns
    items = list_items(turns, f"input of {last.head.id}")
    if page_order(query) == "desc":
        items.reverse()
    ids = [str(item["id"]) for item in items]
    first = _place(ids, query, "after") + 1
    last_place = _place(ids, query, "before") if "before" in query else len(items)
    limit = page_limit(query)
    page = items[first:last_place][:limit]
    page_ids = [str(item["id"]) for item in page]
    return dumps_document(
        {
            "object": "list",
            "data": page,
            "first_id": page_ids[0] if page_ids else None,
            "last_id": page_ids[-1] if page_ids else None,
            "has_more": first + len(page) < last_place,
        }
    )


def _place(ids: list[str], query: Mapping[str, str], name: str) -> int:
    """Return the index of the item that a cursor names; -1 without a cursor."""
    cursor = query.get(name)
    if cursor is None:
        return -1
    if cursor not in ids:
        raise RequestRefused(f"{name}: expected the id of an item, got {cursor!r}", param=name)
    return ids.index(cursor)


def page_order(query: Mapping[str, str]) -> str:
    """Return `asc` or `desc`. Raises RequestRefused."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestRefused(f"order: expected asc or desc, got {order!r}", param="order")
    return order


def page_limit(query: Mapping[str, str]) -> int:
    """Return how many items a page has at most. Raises RequestRefused."""
    text = query.get("limit")
    if text is None:
        return DEFAULT_PAGE
    if not text.isdecimal() or not 1 <= int(text[:4]) <= MAX_PAGE or len(text) > len(str(MAX_PAGE)):
        raise RequestRefused(f"limit: expected 1 to {MAX_PAGE}, got {text!r}", param="limit")
    return int(text)


async def follow(managed: ManagedStore, key: Key, after: int | None) -> AsyncIterator[bytes]:
    """Yield the events of a running response whose number is greater than `after`, until the response ends."""
    replay = Replay(after)
    spoke = time.monotonic()
    place = 0
    running = managed.find(key)
    while running is not None and running in managed.running:
        data = running.sent_from(place)
        place += len(data)
        frames = replay.feed(data)
        if frames:
            spoke = time.monotonic()
            yield frames
        elif not data:
            more = running.more()
            await asyncio.wait((more,), timeout=KEEP_ALIVE_SECONDS)
            if not more.done():
                yield encode_comment("keep-alive")
    try:
        while True:
            progress = await managed.call("progress", partial(_progress, key, place))
            place += len(progress.sent)
            frames = replay.feed(progress.sent)
            if not frames and time.monotonic() - spoke > KEEP_ALIVE_SECONDS:
                frames = encode_comment("keep-alive")
            if frames:
                spoke = time.monotonic()
                yield frames
            if progress.head.status != "in_progress":
                break
            await asyncio.sleep(POLL_SECONDS)
        stored = await managed.call("read", lambda store: store.read(*key, stream=True))
    except StoreError:
        return  # clients recognize a stream without a terminal event as cut
    if _has_ended(stored) and (stored.stream is not None or place == 0):
        yield replay.rest(_stream(stored))
    else:  # the response did not reach its end, or its stream is too large to be stored
        if place == 0 and stored.body:
            yield replay.rest(terminal.created_event(stored.body))
        yield terminal.terminal_event(await _read_body(managed, stored), replay.last + 1)


def _progress(key: Key, start: int, store: Store) -> Awaitable[StreamProgress]:
    return store.progress(*key, start=start)


class Replay:
    """The frames of a stream whose number is greater than `after`; all frames if `after` is None.

    The stream may come in pieces. `last`: the number of the last frame that was returned or skipped.
    """

    __slots__ = ("_parser", "last")

    def __init__(self, after: int | None) -> None:
        self.last = -1 if after is None else after
        self._parser = FrameParser()

    def feed(self, data: bytes) -> bytes:
        """Return the new frames that `data` completes."""
        return self._due(self._parser.feed(data)) if data else b""

    def rest(self, stream: bytes) -> bytes:
        """Return the frames of a whole stream that were not returned yet."""
        parser = FrameParser(max(len(stream), 1))
        return self._due([*parser.feed(stream), *parser.close()])

    def _due(self, frames: list[Frame]) -> bytes:
        due: list[bytes] = []
        for frame in frames:
            number = terminal.sequence_number(frame.data)
            if number is not None and number > self.last:
                self.last = number
                due.append(frame.raw)
        return b"".join(due)
