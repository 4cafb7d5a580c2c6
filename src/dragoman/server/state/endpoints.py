"""Stored responses over HTTP: read, told again, listed, cancelled, deleted. Each is a function from the store to an answer.

    GET    /v1/responses/{id}                the response; with `stream=true` its stream, from `starting_after` on
    GET    /v1/responses/{id}/input_items    what it was asked, in pages
    POST   /v1/responses/{id}/cancel         it runs no more
    DELETE /v1/responses/{id}                it is gone

`POST /v1/responses/{id}/submit_tool_outputs` is a conversation, and an exchange like any other.
"""

import re
from collections.abc import Mapping

from starlette.responses import Response, StreamingResponse

from dragoman._json import dumps
from dragoman.dialects import responses
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.interpret import tell_body
from dragoman.errors import RequestRefused, StoreMissing
from dragoman.model.outcome import ErrorInfo
from dragoman.server.state.following import follow
from dragoman.server.state.holding import StoreHolder
from dragoman.server.state.keeping import cancelled_error
from dragoman.server.state.listing import page_of_items
from dragoman.server.state.replaying import replay
from dragoman.store.records import Told

__all__ = (
    "SUBMITTED",
    "cancel_response",
    "delete_response",
    "find_submitted",
    "list_input",
    "read_response",
)

SUBMITTED = re.compile(r"(?:/v1)?/responses/([^/]+)/submit_tool_outputs/?")

_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"
_STREAM = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
_DIED = ErrorInfo(
    kind="server", message="the gateway that made this response ended before the response did"
)


def find_submitted(path: str) -> str | None:
    """The response whose calls get their outputs by a POST to this path."""
    found = SUBMITTED.fullmatch(path)
    return None if found is None else found[1]


async def read_response(
    holder: StoreHolder, owner: str, response_id: str, query: Mapping[str, str]
) -> Response:
    """Raises StoreMissing, RequestRefused."""
    is_stream = _flag(query, "stream")
    after = _number(query, "starting_after")
    if after is not None and not is_stream:
        raise RequestRefused(
            "starting_after: expected it with stream=true only", param="starting_after"
        )
    told = await _told(holder, owner, response_id, stream=is_stream)
    if not is_stream:
        return Response(_body(told), media_type=_JSON)
    if told.head.status == "in_progress":
        live = follow(holder, (owner, response_id), after, _told_stream)
        return StreamingResponse(live, media_type=_EVENTS, headers=_STREAM)
    stream = replay(_stream(told), after)
    return Response(stream, media_type=_EVENTS, headers=_STREAM)


async def list_input(
    holder: StoreHolder, owner: str, response_id: str, query: Mapping[str, str]
) -> Response:
    """Raises StoreMissing, RequestRefused."""
    await _settle(holder, owner, response_id)
    links = await holder.ask("chain", lambda store: store.chain(owner, response_id))
    _check_door(links[-1].head.door, response_id)
    return Response(page_of_items(links, query), media_type=_JSON)


async def delete_response(holder: StoreHolder, owner: str, response_id: str) -> Response:
    """Raises StoreMissing."""
    running = await _settle(holder, owner, response_id)
    await holder.ask("delete", lambda store: store.delete(owner, response_id))
    if running:
        _stop(holder, owner, response_id)
    return Response(
        dumps({"id": response_id, "object": "response", "deleted": True}), media_type=_JSON
    )


async def cancel_response(holder: StoreHolder, owner: str, response_id: str) -> Response:
    """The response as it is then: one that had ended stays as it was. Raises StoreMissing."""
    running = await _settle(holder, owner, response_id)
    await holder.ask("cancel", lambda store: store.cancel(owner, response_id))
    if running:
        _stop(holder, owner, response_id)
    told = await _told(holder, owner, response_id)
    return Response(_body(told), media_type=_JSON)


async def _settle(holder: StoreHolder, owner: str, response_id: str) -> bool:
    """Whether it runs here; then it is in the store from now on."""
    running = holder.find((owner, response_id))
    if running is not None and not running.is_begun:
        await running.begin_now()
    return running is not None


def _stop(holder: StoreHolder, owner: str, response_id: str) -> None:
    running = holder.find((owner, response_id))
    if running is not None:
        running.lose()


async def _told(holder: StoreHolder, owner: str, response_id: str, *, stream: bool = False) -> Told:
    await _settle(holder, owner, response_id)
    told = await holder.ask("read", lambda store: store.told(owner, response_id, stream=stream))
    _check_door(told.head.door, response_id)
    return told


def _check_door(door: str, response_id: str) -> None:
    """A message of a thread is kept in the same place, and is no response."""
    if door != "responses":
        raise StoreMissing(
            f"expected a stored response, {response_id!r} is none", response_id=response_id
        )


def _body(told: Told) -> bytes:
    """The response object as it is by now: it may have been cancelled, continued, or left alone since it was told."""
    head = told.head
    body = told.body or _bare(told)
    match head.status:
        case "cancelled":
            return responses.change_status(body, "cancelled", cancelled_error())
        case "failed" if not _has_ended(body):
            return responses.change_status(body, "failed", _DIED)
        case _ if head.is_settled and responses.is_waiting(body):
            return responses.change_status(body, "completed")
        case _:
            return body


def _has_ended(body: bytes) -> bool:
    whole = responses.read_whole(body)
    return whole is not None and whole.status == "failed"


def _bare(told: Told) -> bytes:
    """What can be said of a response of which nothing was told yet."""
    head = told.head
    fields: dict[str, object] = {
        "id": head.id,
        "object": "response",
        "created_at": int(head.created),
        "status": head.status,
        "error": None,
        "incomplete_details": None,
        "model": head.model,
        "output": [],
        "previous_response_id": head.parent,
    }
    return dumps(fields)


def _stream(told: Told) -> bytes:
    """The stream as it was told, or as it would have been."""
    if told.stream is not None:
        return told.stream
    encode = EncodeContext(response_id=told.head.id, created=int(told.head.created))
    made, _ = tell_body(told.body, "responses", "responses", decode=DecodeContext(), encode=encode)
    return made.body


def _told_stream(told: Told) -> tuple[bytes | None, bytes]:
    """The stream of what is over, if it got to its end, and the response object."""
    return told.stream, _body(told)


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
