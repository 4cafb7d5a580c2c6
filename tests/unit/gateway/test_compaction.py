"""Compaction as functions: the request for a summary, summaries that come back, and the answer that becomes one."""

import pytest
from msgspec import structs

from dragoman._json import Raw, dumps
from dragoman.config.settings import UpstreamSettings
from dragoman.core.summaries import Packed, pack_summary
from dragoman.dialects.messages.context_management import COMPACTED, compaction_block
from dragoman.dialects.responses.compaction import TRIGGER_TURN, compaction_item, is_compaction
from dragoman.engine.compaction import INSTRUCTION, PREFACE
from dragoman.errors import RequestRefused
from dragoman.gateway.compaction import (
    FAILED_CODE,
    MAX_RETAINED,
    SummaryStage,
    expand,
    prepare,
    retained,
    summary_request,
)
from dragoman.gateway.plan import ClientRequest
from dragoman.gateway.targets import AttemptTarget, target_of
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    Noticed,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call, Dialect, Extra, Opaque, Part, Result, Text
from dragoman.model.request import Request, ResponseFormat, Role, Tool, ToolChoice, Turn

HEAD = Turn(role="system", parts=(Text(text="Be brief."),), head=True)


def target(dialect: Dialect, door: Dialect = "responses", **settings: object) -> AttemptTarget:
    upstream = structs.replace(UpstreamSettings(kind="chat"), kind=dialect, **settings)
    return AttemptTarget(
        client_dialect=door,
        dialect=dialect,
        upstream="u",
        peer="u",
        weight=1.0,
        model="m",
        settings=upstream,
        accepts=target_of(upstream, dialect, "m", dialect),
        is_same_dialect=dialect == door,
        is_obsidian=False,
    )


def said(role: Role, *parts: str | Part) -> Turn:
    made = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return Turn(role=role, parts=made)


def item(summary: str = "S") -> Turn:
    return said("assistant", compaction_item(Packed(summary=summary), "cmp_1"))


def summary(text: str = "S") -> Turn:
    return said("user", PREFACE + text)


# --- the request -----------------------------------------------------------------------------------------------------


def test_a_summary_is_asked_for_without_tools_and_formats() -> None:
    extra = Extra("responses", {"context_management": Raw(b"[]"), "other": Raw(b"1")})
    request = Request(
        model="m",
        turns=(HEAD, said("user", "hi"), TRIGGER_TURN),
        tools=(Tool(name="f"),),
        tool_choice=ToolChoice(mode="required"),
        parallel_calls=True,
        response_format=ResponseFormat(kind="json_object"),
        temperature=0.5,
        extra=extra,
    )
    assert summary_request(request, target("chat")) == Request(
        model="m",
        turns=(HEAD, said("user", "hi"), said("user", INSTRUCTION)),
        temperature=0.5,
        extra=Extra("responses", {"other": Raw(b"1")}),
    )


@pytest.mark.parametrize(("dialect", "keeps"), [("chat", False), ("messages", True)])
def test_tools_stay_where_a_conversation_with_calls_needs_them(
    dialect: Dialect, keeps: bool
) -> None:
    call, result = Call(call_id="c", name="f", input="{}"), Result(call_id="c")
    turns = (said("user", "hi"), said("assistant", call), said("tool", result), TRIGGER_TURN)
    asked = summary_request(Request(turns=turns, tools=(Tool(name="f"),)), target(dialect))
    assert bool(asked.tools) is keeps
    assert asked.tool_choice == (ToolChoice(mode="none") if keeps else None)


def test_tools_among_the_items_stay_for_a_responses_upstream() -> None:
    request = Request(turns=(said("user", "hi"),), tools=(Tool(name="f", place="input"),))
    asked = summary_request(request, target("responses"))
    assert asked.tool_choice == ToolChoice(mode="none")


def test_a_client_may_add_instructions() -> None:
    wish = Extra("messages", {"compaction": Raw(b'{"type":"summarize","instructions":"Short."}')})
    request = Request(turns=(said("user", "hi"),), extra=wish)
    asked = summary_request(request, target("chat", "messages"))
    assert asked.turns[-1] == said("user", f"{INSTRUCTION}\n\nShort.")
    assert asked.extra == Extra("messages", {})


def test_an_ordinary_request_is_the_same_object() -> None:
    asked = ClientRequest(b"{}", Request(turns=(said("user", "hi"),)))
    assert prepare(asked, target("chat")) == (asked, None)
    assert prepare(asked, target("chat"))[0] is asked


@pytest.mark.parametrize(
    ("settings", "is_native"),
    [
        ({}, False),
        ({"base_url": "http://127.0.0.1:1/v1"}, False),
        ({"base_url": "https://api.openai.com/v1"}, True),
        ({"base_url": "https://api.openai.com/v1", "compaction": "gateway"}, False),
        ({"base_url": "http://127.0.0.1:1/v1", "compaction": "native"}, True),
        ({"kind": "chatgpt-codex"}, True),
        ({"kind": "rehearsal", "compaction": "native"}, False),
    ],
)
def test_who_compacts_is_configured_or_known_of_the_host(
    settings: dict[str, object], is_native: bool
) -> None:
    upstream = target("responses")
    changed = structs.replace(upstream.settings, **settings)
    accepts = target_of(changed, "responses", "m", "responses")
    upstream = structs.replace(upstream, settings=changed, accepts=accepts)
    asked = ClientRequest(b"{}", Request(turns=(said("user", "hi"), TRIGGER_TURN)))
    request, made = prepare(asked, upstream)
    assert (request is asked) is is_native
    assert (made is None) is is_native
    request, made = prepare(asked, upstream, is_compact=True)
    assert made is not None
    assert made.native == ("responses" if is_native else None)
    assert made.retained == (said("user", "hi"),)


def test_nothing_cannot_be_compacted() -> None:
    asked = ClientRequest(b"{}", Request(turns=(HEAD, TRIGGER_TURN)))
    with pytest.raises(RequestRefused, match="expected a conversation to compact"):
        prepare(asked, target("chat"))


# --- compactions that come back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "codex"])
def test_a_summary_is_a_message_in_its_place(dialect: Dialect) -> None:
    before, after = said("user", "a"), said("user", "b")
    request = Request(turns=(HEAD, before, item("one"), after, item("two")))
    kind: Dialect = "responses" if dialect == "codex" else dialect
    expanded = expand(request, target(kind))
    assert expanded.turns == (HEAD, before, summary("one"), after, summary("two"))


def test_an_older_name_of_the_item_is_read() -> None:
    raw = Raw(
        dumps(
            {"type": "compaction_summary", "encrypted_content": pack_summary(Packed(summary="S"))}
        )
    )
    old = Opaque(dialect="responses", type="compaction_summary", raw=raw)
    assert expand(Request(turns=(said("assistant", old),)), target("chat")).turns == (summary(),)


def test_an_answered_trigger_ends_what_precedes_it() -> None:
    turns = (HEAD, said("developer", "d"), said("user", "u"), said("assistant", "a"), TRIGGER_TURN)
    answer = said("assistant", compaction_item(Packed(summary="S"), "cmp_1"), "and more")
    expanded = expand(Request(turns=(*turns, answer, said("user", "go"))), target("chat"))
    assert expanded.turns == (
        *(HEAD, said("developer", "d"), said("user", "u")),
        *(summary(), said("assistant", "and more"), said("user", "go")),
    )


def test_what_precedes_a_block_is_left_out() -> None:
    block = compaction_block(Packed(summary="S"))
    turns = (HEAD, said("user", "u"), said("assistant", "x", block, "y"), said("user", "go"))
    expanded = expand(Request(turns=turns), target("chat", "messages"))
    assert expanded.turns == (HEAD, summary(), said("assistant", "y"), said("user", "go"))


def test_an_empty_block_of_the_vendor_stays() -> None:
    empty = Opaque(dialect="messages", type="compaction", raw=Raw(b'{"content":null}'))
    request = Request(turns=(said("assistant", empty),))
    assert expand(request, target("chat", "messages")) is request


def test_the_newest_user_messages_are_retained() -> None:
    long = "x" * (MAX_RETAINED - 3)
    call = Call(call_id="c", name="f", input="{}")
    turns = (
        *(HEAD, said("developer", "d"), said("user", "old"), said("assistant", "a", call)),
        *(said("tool", Result(call_id="c")), said("user", long), said("user", "new"), item()),
    )
    assert retained(turns) == (said("developer", "d"), said("user", long), said("user", "new"))


# --- the answer --------------------------------------------------------------------------------------------------------


def answered(*events: Event, native: bool = False) -> list[Event]:
    def make(text: str) -> Opaque:
        return compaction_block(Packed(summary=text))

    stage = SummaryStage(None if native else make, COMPACTED)
    return [each for event in events for each in stage.feed(event)]


def test_text_becomes_one_compaction() -> None:
    started, usage, ping = Started("r"), UsageReported(Usage(input=5)), Noticed("ping")
    block = compaction_block(Packed(summary="one two"))
    found = answered(
        started,
        ping,
        PartStarted(0, Text(text="")),
        TextDelta(0, "one "),
        PartEnded(0, Text(text="one ")),
        PartStarted(1, Text(text="")),
        PartEnded(1, Text(text="two")),
        Noticed("unknown"),
        Finished("stop"),
        usage,
        Completed(),
    )
    parts = (PartStarted(0, block), PartEnded(0, block))
    assert found == [started, ping, usage, *parts, COMPACTED, Completed()]


def test_the_compaction_of_the_upstream_is_passed_on() -> None:
    part = compaction_item(Packed(summary="S"), "cmp_9")
    assert is_compaction(part)
    for native in (True, False):
        found = answered(
            PartEnded(0, Text(text="beside")),
            PartEnded(1, part),
            Finished("stop"),
            Completed(),
            native=native,
        )
        assert found[1] == PartEnded(0, part)


@pytest.mark.parametrize(
    ("events", "native"),
    [
        ((Finished("stop"),), False),
        ((PartEnded(0, Text(text=" ")), Finished("stop")), False),
        ((PartEnded(0, Text(text="cut")), Finished("length")), False),
        ((PartEnded(0, Text(text="a")), Finished("tool_calls")), False),
        ((PartEnded(0, Text(text="a")), Finished("stop")), True),
    ],
)
def test_anything_else_is_a_failure(events: tuple[Event, ...], native: bool) -> None:
    (failed,) = answered(*events, Completed(), native=native)
    assert isinstance(failed, Failed)
    assert (failed.error.kind, failed.error.code) == ("protocol", FAILED_CODE)
