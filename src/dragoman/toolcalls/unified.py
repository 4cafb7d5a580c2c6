"""A call in no dialect, with its parameters parsed: the value, and how a call becomes one.

A call that cannot be used becomes one all the same, with a `ToolError` in its metadata. Error messages name the call
and say what is wrong; they never quote its arguments, which may hold anything.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, cast

from msgspec import Struct

from dragoman._json import loads
from dragoman.core.ids import Minter
from dragoman.errors import MalformedJson, ToolError
from dragoman.model.parts import Call, Dialect

__all__ = ("PROVIDERS", "Provider", "ToolCall", "ToolCallMetadata", "is_minted", "unify")

Provider = Literal["openai", "anthropic", "codex"]

PROVIDERS: Mapping[Dialect, Provider] = {
    "chat": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "codex": "codex",
}
_MINTED_DIGITS = 24


class ToolCallMetadata(Struct, frozen=True, kw_only=True):
    """Where a call came from. `raw` is the call with its exact argument text; `timestamp` is ISO 8601 in UTC."""

    provider: Provider | None = None
    dialect: Dialect | None = None
    timestamp: str | None = None
    raw: Call | None = None
    error: ToolError | None = None
    choice_index: int = 0


class ToolCall(Struct, frozen=True):
    """A call in no dialect. Where `metadata.error` says that the parameters cannot be had, they are empty.

    The input of a custom (freeform) tool is no JSON; it is the parameter `input`.
    """

    id: str
    name: str
    parameters: dict[str, object]
    metadata: ToolCallMetadata


def unify(
    call: Call, *, dialect: Dialect | None, choice: int, now: datetime | None, lacks_id: bool
) -> ToolCall:
    """A call as its unified value. `lacks_id`: its id is one we made because none came."""
    parameters, fault = _parameters(call)
    if not fault and lacks_id:
        fault = "it came without an id; one was made"
    who = f"call {call.call_id!r} of {call.name!r}"
    return ToolCall(
        call.call_id,
        call.name,
        parameters,
        ToolCallMetadata(
            provider=PROVIDERS[dialect] if dialect is not None else None,
            dialect=dialect,
            timestamp=_stamp(now),
            raw=call,
            error=ToolError(f"{who}: {fault}") if fault else None,
            choice_index=choice,
        ),
    )


def nameless(message: str, *, dialect: Dialect, choice: int, now: datetime | None) -> ToolCall:
    """A call whose name never came: its reader has no part for it, only a problem."""
    return ToolCall(
        "",
        "",
        {},
        ToolCallMetadata(
            provider=PROVIDERS[dialect],
            dialect=dialect,
            timestamp=_stamp(now),
            error=ToolError(message),
            choice_index=choice,
        ),
    )


def is_minted(call_id: str, seed: str, bound: int) -> bool:
    """Whether the id is one of the first `bound` that a reader with this seed makes."""
    mint = Minter(seed)
    tail = call_id[-_MINTED_DIGITS:]
    return any(mint("") == tail for _ in range(bound))


def _parameters(call: Call) -> tuple[dict[str, object], str]:
    """The parsed input, and what is wrong with it."""
    if call.status != "completed":
        return {}, "it was cut off before its end"
    if call.kind == "custom":
        return {"input": call.input}, ""
    if not call.input.strip():
        return {}, ""
    try:
        value = cast("object", loads(call.input))
    except MalformedJson:
        return (
            {},
            f"expected arguments that are JSON, got {len(call.input)} characters that are not",
        )
    if not isinstance(value, dict):
        return {}, f"expected arguments that are a JSON object, got {_kind(value)}"
    return cast("dict[str, object]", value), ""


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "an array"


def _stamp(now: datetime | None) -> str | None:
    if now is None:
        return None
    # A naive time is taken for UTC: guessing the zone of the machine would make the result depend on it.
    aware = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
