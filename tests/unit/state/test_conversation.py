"""Conversations put together again."""

from msgspec import structs

from dragoman._json import Raw
from dragoman.model.parts import Call, Extra, Result, Text
from dragoman.model.request import Namespace, Request, Tool, ToolChoice, Turn
from dragoman.state.conversation import continued, settings_of
from dragoman.store.engine import Row, head_of
from dragoman.store.records import Draft, Link, StoredHead


def head(*, inherits: bool = False) -> StoredHead:
    row = Row(
        "r", "o", None, 0.0, 9.0, "completed", 0.0, "responses", "m", "", "", inherits, False, "", None, None, 0
    )  # fmt: skip
    return head_of(row, 1.0)


def user(text: str) -> Turn:
    return Turn(role="user", parts=(Text(text=text),))


def instructions(text: str) -> Turn:
    return Turn(role="system", parts=(Text(text=text),), head=True)


def link(request: Request, *said: str, inherits: bool = False) -> Link:
    parts = tuple(Text(text=text) for text in said) or None
    return Link(head(inherits=inherits), request, parts)


CALL = Call(call_id="c", name="f", input="{}")
RESULT = Turn(role="tool", parts=(Result(call_id="c", content=(Text(text="21"),)),))
TOOL = Tool(name="f", schema=Raw(b"{}"))


def test_history_is_what_was_asked_and_answered_in_order() -> None:
    first = Request(
        model="a", turns=(instructions("old"), user("1")), tools=(TOOL,), temperature=0.5
    )
    chain = (link(first, "one"), link(Request(turns=(user("2"),)), "two", "and more"))
    new = Request(model="b", turns=(instructions("new"), user("3")), previous_id="resp_2")
    whole = continued(chain, new)
    assert whole == Request(
        model="b",
        turns=(
            instructions("new"),
            user("1"),
            Turn(role="assistant", parts=(Text(text="one"),)),
            user("2"),
            Turn(role="assistant", parts=(Text(text="two"), Text(text="and more"))),
            user("3"),
        ),
    )


def test_without_history_only_the_reference_goes() -> None:
    new = Request(model="b", turns=(user("3"),), previous_id="resp_2")
    assert continued((), new, inherits=True) == structs.replace(new, previous_id=None)


def test_answer_that_is_missing_or_empty_adds_no_turn() -> None:
    chain = (link(Request(turns=(user("1"),))), Link(head(), Request(turns=(user("2"),)), ()))
    assert continued(chain, Request(turns=(user("3"),))).turns == (user("1"), user("2"), user("3"))


def test_settings_go_on_where_the_request_is_silent() -> None:
    first = Request(
        model="a",
        turns=(instructions("be brief"), user("1")),
        tools=(TOOL,),
        tool_choice=ToolChoice(mode="required"),
        temperature=0.5,
        max_tokens=100,
        stream=True,
        store=True,
        stop=("x",),
        extra=Extra("messages", {"one": Raw(b"1"), "two": Raw(b"2")}),
    )
    calls = Link(head(), first, (CALL,))
    new = Request(
        model="a", turns=(RESULT,), max_tokens=50, extra=Extra("messages", {"two": Raw(b"3")})
    )
    whole = continued((calls,), new, inherits=True)
    assert whole == Request(
        model="a",
        turns=(instructions("be brief"), user("1"), Turn(role="assistant", parts=(CALL,)), RESULT),
        tools=(TOOL,),
        tool_choice=ToolChoice(mode="required"),
        temperature=0.5,
        max_tokens=50,
        stop=("x",),
        extra=Extra("messages", {"one": Raw(b"1"), "two": Raw(b"3")}),
    )


def test_settings_are_found_behind_those_that_inherit() -> None:
    chain = (
        link(Request(model="ignored", tools=(TOOL,), temperature=1.0), "0"),
        link(Request(model="a", turns=(instructions("i"), user("1")), temperature=0.5), "1"),
        link(Request(turns=(user("2"),), max_tokens=7), "2", inherits=True),
        link(Request(turns=(user("3"),), top_p=0.1), "3", inherits=True),
    )
    settings = settings_of(chain)
    assert settings == Request(
        model="a", turns=(instructions("i"),), temperature=0.5, max_tokens=7, top_p=0.1
    )
    later = continued(chain, Request(turns=(instructions("other"), user("4"))), inherits=True)
    assert later.turns[0] == instructions("other")
    assert later.temperature == 0.5
    # a chain whose beginning inherits from what is not there
    assert settings_of(chain[2:]) == Request(max_tokens=7, top_p=0.1)


def test_fields_of_another_dialect_are_not_mixed() -> None:
    below = link(Request(extra=Extra("chat", {"a": Raw(b"1")})))
    above = Request(extra=Extra("messages", {"b": Raw(b"2")}))
    assert continued((below,), above, inherits=True).extra == above.extra
    assert continued((below,), Request(), inherits=True).extra == below.request.extra


def test_tools_declared_in_the_conversation_stay_declared() -> None:
    early = Tool(name="early", place="input", description="old")
    again = Tool(name="early", place="input", description="new")
    known = Tool(name="known", place="input")
    group, other = Namespace("g", place="input"), Namespace("h", place="input")
    chain = (
        link(Request(tools=(early, known, TOOL), namespaces=(group, other))),
        link(Request(tools=(again,), namespaces=(group, Namespace("outer")))),
    )
    new = Request(tools=(Tool(name="known"),), namespaces=(Namespace("h"),))
    whole = continued(chain, new)
    assert whole.tools == (again, Tool(name="known"))
    assert whole.namespaces == (group, Namespace("h"))


def test_draft_says_by_default_that_nothing_goes_on() -> None:
    draft = Draft(id="r", owner="o", created=0.0, door="chat", request=Request())
    assert (draft.inherits, draft.claims, draft.parent) == (False, False, None)
