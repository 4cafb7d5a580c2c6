"""Requests, both ways.

Reading refuses what cannot be used and keeps what it does not know. Writing says everything the Responses API has a word
for; the rest is a Loss. A request that came in this dialect goes out as it came but for `NORMALISED`.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman._json import Raw, as_object, dumps
from dragoman.core.aliases import NameMap
from dragoman.core.losses import LossBook, note_request_fields
from dragoman.core.pairing import is_paired, pair_results
from dragoman.core.plain import has_seldom_settings
from dragoman.dialects.base import EncodedRequest, Target
from dragoman.dialects.responses.conversation import Conversation, instructions_of
from dragoman.dialects.responses.expect import (
    expect_bool,
    expect_int,
    expect_list,
    expect_number,
    expect_object,
    expect_text,
)
from dragoman.dialects.responses.fields import (
    Fields,
    is_present,
    own_fields,
    read_texts,
    without,
)
from dragoman.dialects.responses.history import read_history
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.responses.plain_request import PLAIN_FIELDS, read_plain
from dragoman.dialects.responses.settings import (
    LOGPROBS,
    read_format,
    read_reasoning,
    write_settings,
    write_usual,
)
from dragoman.dialects.responses.tool_choice import read_choice, write_choice
from dragoman.dialects.responses.tools import read_declared, write_tools
from dragoman.dialects.responses.writing import JsonObject
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra, Opaque, Result, Text
from dragoman.model.request import Request, Turn

__all__ = ("DEFAULT_TARGET", "NORMALISED", "decode_request", "encode_request", "pair_turns")

NORMALISED: Mapping[str, str] = {
    # what a request that came in this dialect does not keep
    "input": "a string becomes one user message",
    "message.type": "written although it may be left out",
    "message.content": "one plain text is a string, except in an assistant's message with an id, where it is a list",
    "message.id": "left out where it does not begin with msg_",
    "output_text.annotations": "written although empty",
    "output_text.logprobs": "left out when empty",
    "input_image.detail": "auto where it was left out",
    "output": "one plain text is a string",
    "null": "a field that is null is left out",
    "tools": "an empty list is left out",
    "namespace": "members of one namespace stand together, an empty one comes last; the description is never left out",
    "parameters": "null where a function has none",
}

_FIELDS = frozenset(
    {
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
    }
)
# OpenAI's other API has them too, and here they may say all that they may say there.
_SHARED = ("moderation", "prompt_cache_options", "prompt_cache_retention")


# --- reading ---------------------------------------------------------------------------------------------------------


def decode_request(body: bytes) -> Request:
    """What a client asks for.

    Raises:
        RequestRefused: it cannot be used; `param` is the path of the field.
    """
    try:
        fields = as_object(body)
    except MalformedJson as error:
        raise RequestRefused(f"body: {error.message}") from error
    plain = read_plain(body) if PLAIN_FIELDS.issuperset(fields) else None
    return _read_fields(fields) if plain is None else plain


def _read_fields(fields: Fields) -> Request:
    history = read_history(fields.get("input"))
    declared = read_declared(fields.get("tools"))
    include = _include(fields)
    text = expect_object(fields.get("text"), "text")
    return Request(
        model=expect_text(fields, "model") or "",
        turns=(*_instructions(fields), *history.turns),
        # The very list that was read, where nothing is added: it may be one that is remembered.
        tools=(*declared.tools, *history.tools) if history.tools else declared.tools,
        namespaces=(*declared.namespaces, *history.namespaces),
        tool_choice=read_choice(fields.get("tool_choice")),
        parallel_calls=expect_bool(fields, "parallel_tool_calls"),
        stream=expect_bool(fields, "stream"),
        max_tokens=expect_int(fields, "max_output_tokens"),
        temperature=expect_number(fields, "temperature"),
        top_p=expect_number(fields, "top_p"),
        logprobs=True if LOGPROBS in include else None,
        top_logprobs=expect_int(fields, "top_logprobs"),
        response_format=read_format(text.get("format")),
        reasoning=read_reasoning(fields),
        verbosity=expect_text(text, "verbosity", "text"),
        user=expect_text(fields, "user"),
        safety_id=expect_text(fields, "safety_identifier"),
        cache_key=expect_text(fields, "prompt_cache_key"),
        metadata=_metadata(fields),
        service_tier=expect_text(fields, "service_tier"),
        store=expect_bool(fields, "store"),
        previous_id=expect_text(fields, "previous_response_id"),
        include=include,
        extra=_extra(fields, text),
    )


def _extra(fields: Fields, text: Fields) -> Extra:
    """Never None, so that a request shows which dialect it came in."""
    extra = without(fields, _FIELDS)
    rest = without(text, ("format", "verbosity"))
    if rest:
        extra["text"] = Raw(dumps(rest))
    return Extra("responses", extra)


def _instructions(fields: Fields) -> tuple[Turn, ...]:
    text = expect_text(fields, "instructions")
    if text is None:
        return ()
    return (Turn(role="system", parts=(Text(text=text),), head=True),)


def _include(fields: Fields) -> tuple[str, ...]:
    expect_list(fields.get("include"), "include")
    return read_texts(fields.get("include"))


def _metadata(fields: Fields) -> Raw | None:
    value = fields.get("metadata")
    expect_object(value, "metadata")
    return value if is_present(value) else None


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """The request for a Responses upstream.

    Raises:
        RequestRefused: the policy refuses to leave something out.
    """
    book = LossBook(LOSSES, policy)
    is_native = request.extra is not None and request.extra.dialect == "responses"
    shared: Fields = {} if is_native else _shared_fields(request.extra)
    if not is_native:
        note_request_fields(book, request.extra, shared)
    turns, repairs = pair_turns(request)
    names = NameMap.build(request.tools, _used(turns), target.names, flatten=False)
    body: JsonObject = {"model": request.model}
    instructions = instructions_of(turns, book)
    if instructions is not None:
        body["instructions"] = instructions
    body["input"] = Conversation(names, target, book, is_native=is_native).write(turns)
    tools = write_tools(request, names, target, book, is_native=is_native)
    if tools is not None:
        body["tools"] = tools
    if request.tool_choice is not None:
        body["tool_choice"] = write_choice(request.tool_choice, names, book)
    is_seldom = has_seldom_settings(request) or is_native
    body |= (
        write_settings(request, book, is_native=is_native)
        if is_seldom
        else write_usual(request, book)
    )
    if is_seldom:
        _note_absent(request, book)
    body |= shared
    own = own_fields(request.extra)
    if own:
        body |= {key: own[key] for key in own if key not in body and key != "text"}
    return EncodedRequest(dumps(body), names, book.losses, repairs)


def pair_turns(request: Request) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """The conversation with its calls and results paired, and what was done to it."""
    is_native = request.extra is not None and request.extra.dialect == "responses"
    turns = _settled(request.turns) if is_native else request.turns
    if is_paired(turns):
        return turns, ()
    return pair_results(turns, continues=_continues(request))


def _settled(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Outputs that name their tool and no call (Codex sends them) answer nothing and stay where they are."""
    return tuple(
        replace(
            turn,
            parts=tuple(
                replace(part, executor="gateway")
                if isinstance(part, Result) and not part.call_id and part.name is not None
                else part
                for part in turn.parts
            ),
        )
        if turn.role == "tool"
        else turn
        for turn in turns
    )


def _continues(request: Request) -> bool:
    """Whether the provider holds earlier turns, so that a result may answer a call that is not here."""
    stored = {"conversation", "prompt"} & set(own_fields(request.extra))
    references = any(
        isinstance(part, Opaque) and part.type in ("item_reference", "compaction")
        for turn in request.turns
        for part in turn.parts
    )
    return request.previous_id is not None or bool(stored) or references


def _shared_fields(extra: Extra | None) -> Fields:
    """What a Chat request says in the very words of this API."""
    if extra is None or extra.dialect != "chat" or not extra.fields:
        return {}
    return {name: extra.fields[name] for name in _SHARED if name in extra.fields}


def _used(turns: tuple[Turn, ...]) -> list[tuple[str | None, str]]:
    return [
        (part.namespace, part.name)
        for turn in turns
        for part in turn.parts
        if isinstance(part, Call)
    ]


def _note_absent(request: Request, book: LossBook) -> None:
    absent: dict[str, object] = {
        "frequency_penalty": request.frequency_penalty,
        "logit_bias": request.logit_bias,
        "presence_penalty": request.presence_penalty,
        "seed": request.seed,
        "top_k": request.top_k,
    }
    for code, value in absent.items():
        if value is not None:
            book.note(code, code)
    if request.stop:
        book.note("stop_sequences", "stop", f"{len(request.stop)} of them")
    if request.choices is not None and request.choices > 1:
        book.note("choices", "n", str(request.choices))
