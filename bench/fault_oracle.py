"""The oracle of `make faults` and `make soak`: which results of an exchange are allowed, given what the upstream sent and which faults happened.

It is a pure function of three records. `Sent` is what the upstream's answer holds; `Received` is what the client read, as
strictly as an SDK reads; `Circumstances` says what the faults allow. Three promises are checked:

1. Every call that was delivered is one that was sent: same id, same name, same bytes of arguments, in the same order.
2. Nothing that was acknowledged is lost: a response whose end the client has seen is read back the same.
3. Every client gets an end: a whole answer, an error in its dialect's own form, or the end of the connection where its own
   connection was broken or the gateway was killed. A success that lacks something is no end.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

Json = dict[str, Any]
End = Literal["success", "incomplete", "error", "closed", "refused", "left", "silence", "malformed"]
"""How an exchange ended for its client.

success, incomplete: a whole answer, the second one cut by the model's own limit.
error: an error in the dialect's own form, before the answer or inside of it.
closed: the connection ended before the answer did. refused: it ended before anything of the answer came.
left: the client itself closed the connection before the end.
silence: nothing came within the bound. malformed: something came that the dialect does not have.
"""


class SentCall(Struct, frozen=True):
    """A call in the upstream's answer. `call_id` is None if the call is written into the text: the gateway gives it an id."""

    name: str
    arguments: str
    call_id: str | None = None


class DeliveredCall(Struct, frozen=True):
    """A call that the client may run: its dialect said that it is complete."""

    call_id: str
    name: str
    arguments: str


class Sent(Struct, frozen=True):
    """What the upstream's answer holds, whole. `text` is None if calls are written into the text."""

    calls: tuple[SentCall, ...]
    text: str | None
    is_cut_by_limit: bool = False


class Received(Struct, kw_only=True):
    """What a client read. `response` is the final response object, in the Responses dialect."""

    end: End
    detail: str = ""
    calls: list[DeliveredCall] = []
    text: str = ""
    response: Json | None = None


class Circumstances(Struct, frozen=True, kw_only=True):
    """What the faults of an exchange allow.

    may_fail: an error is a proper end. may_close: so is the end of the connection.
    may_refuse: so is a connection that ends before anything of the answer came.
    may_succeed: False if the answer's end never reached the gateway.
    """

    may_fail: bool = False
    may_close: bool = False
    may_refuse: bool = False
    may_succeed: bool = True


def broken_promises(sent: Sent, received: Received, circumstances: Circumstances) -> list[str]:
    """Return what is wrong with an exchange, a sentence each; nothing if every promise was kept."""
    found = list(_wrong_calls(sent.calls, received.calls))
    end = received.end
    if end in ("silence", "malformed"):
        found.append(f"the client got no proper end: {end}: {received.detail}")
    elif (end == "closed" and not circumstances.may_close) or (
        end == "refused" and not (circumstances.may_close or circumstances.may_refuse)
    ):
        found.append(f"the connection ended without an end of the answer: {received.detail}")
    elif end == "error" and not circumstances.may_fail:
        found.append(f"nothing was wrong, and the client got an error: {received.detail}")
    elif end in ("success", "incomplete"):
        found += _wrong_successes(sent, received, circumstances)
    return found


def _wrong_calls(sent: Sequence[SentCall], delivered: Sequence[DeliveredCall]) -> Iterable[str]:
    """Each delivered call must be the next one that was sent, or a later one."""
    at = 0
    for call in delivered:
        matching = (number for number in range(at, len(sent)) if _is_same_call(sent[number], call))
        found = next(matching, None)
        if found is None:
            yield f"a call was delivered that was not sent: {_short(call)}"
        else:
            at = found + 1
    ids = [call.call_id for call in delivered]
    if len(set(ids)) != len(ids):
        yield f"two calls have one id: {ids}"


def _is_same_call(sent: SentCall, call: DeliveredCall) -> bool:
    is_same_id = call.call_id == sent.call_id if sent.call_id else bool(call.call_id)
    return is_same_id and (call.name, call.arguments) == (sent.name, sent.arguments)


def _wrong_successes(sent: Sent, received: Received, circumstances: Circumstances) -> Iterable[str]:
    if not circumstances.may_succeed:
        yield "the client was told of a success, but the end of the answer never reached the gateway"
    if (received.end == "incomplete") != sent.is_cut_by_limit:
        yield f"the answer ended as {received.end}, and the model's limit says otherwise"
    if received.end == "success" and len(received.calls) != len(sent.calls):
        yield f"{len(sent.calls)} calls were sent, {len(received.calls)} came with a success"
    if sent.text is not None and received.text != sent.text:
        yield f"the text differs: {sent.text[:80]!r} was sent, {received.text[:80]!r} came"


def unlike_stored(acknowledged: Json, status: int, found: bytes, where: str) -> list[str]:
    """Compare what a store returns with the response that a client saw the end of."""
    name = acknowledged["id"]
    if status != 200:
        return [f"{name} was acknowledged and is lost {where}: {status} {found[:200]!r}"]
    try:
        stored: Json = json.loads(found)
    except ValueError:
        return [f"{name} was acknowledged and cannot be read {where}: {found[:200]!r}"]
    differing = [key for key in acknowledged if stored.get(key) != acknowledged[key]]
    return [f"{name} was acknowledged and is not the same {where}: {differing}"] * bool(differing)


def leaked_secrets(log: str, secrets: Iterable[str]) -> list[str]:
    """Return the secrets that a log contains, without writing them out again."""
    return [f"the log contains a secret: {secret[:4]}…" for secret in secrets if secret in log]


def _short(call: DeliveredCall) -> str:
    arguments = call.arguments
    if len(arguments) > 120:
        arguments = f"{arguments[:60]} … {arguments[-40:]} ({len(arguments)} characters)"
    return f"{call.call_id} {call.name} {arguments}"
