"""Whole conversations: what an SDK replays on the next turn is what the upstream hears, call by call and result by result."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import ModelLimits
from heard import CHOICES, HeardCall, HeardResult, HeardTool, Spoken, hear
from sdk_clients import DOORS, Image, Offered, SeenCall, conversation
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
WEATHER = Offered("get_weather", SCHEMA, "the weather in a city")
TIME = Offered("get_time", EMPTY, "the time")
PIXEL = Image(
    "image/png",
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
)
DONE = Answer((Said(("That is ", "all.")),))
MODES = ("create", "stream", "helper")

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    customs = {"kind": "chat", "limits": ModelLimits(builtin_tools=("custom",))}
    upstreams = {"chat-with-customs": customs}
    with running_stage(upstreams=upstreams) as running:
        yield running


def weather(call_id: str, city: str) -> Tool:
    text = json.dumps({"city": city})
    return Tool(call_id, "get_weather", (text[:5], text[5:9], text[9:]))


def as_heard(call: Tool, door: str, dialect: str) -> HeardCall:
    """How the upstream should hear of a call it made. Anthropic's SDK holds an object and writes its text anew."""
    value = json.loads(call.arguments)
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = compact if door == "messages" else call.arguments
    return HeardCall(call.call_id, call.name, value if dialect == "messages" else text)


def last_heard(scene: Scene) -> Any:
    return hear(scene.dialect, scene.requests[-1].body)


# --- many turns -------------------------------------------------------------------------------------------------------

LONG = (
    Answer((Said(("I will ", "look.")), weather("call_a1", "Paris"))),
    Answer((weather("call_b1", "Rome"), weather("call_b2", "Zürich"))),
    Answer((Said(("Mild ", "everywhere.")),)),
    Answer((Tool("call_c1", "get_time", ("{}",)),)),
    Answer((weather("call_d1", "Oslo"), weather("call_d2", "Łódź")), interleaved=True),
    DONE,
)


@modes
@dialects
@doors
def test_many_turns_keep_every_call_and_its_result(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    scene = stage.scene(dialect, *LONG)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER, TIME), system="Be brief.")
    expected: list[Any] = [Spoken("system", "Be brief.")]
    found = "How is the weather?"
    for answer in LONG:
        if found:
            asking.say(found)
            expected.append(Spoken("user", found))
        got = asking.ask(mode)
        heard = last_heard(scene)
        assert heard.turns == expected
        assert heard.tools == [
            HeardTool(tool.name, tool.schema, tool.description) for tool in (WEATHER, TIME)
        ]
        expected += [
            as_heard(part, door, dialect)
            if isinstance(part, Tool)
            else Spoken("assistant", part.text)
            for part in answer.parts
            if isinstance(part, Tool | Said)
        ]
        for call in got.calls:
            asking.answer(call, f"the result of {call.call_id}")
            expected.append(HeardResult(call.call_id, f"the result of {call.call_id}"))
        found = "" if got.calls else "And later?"
    assert len(scene.requests) == len(LONG)


@dialects
@doors
def test_argument_bytes_of_history_reach_the_upstream_unchanged(
    stage: Stage, door: str, dialect: str
) -> None:
    text = '{"city":"\\u00e9\\/", "n": 1e2, "big": 123456789012345678901234567890,"f":1.50}'
    scene = stage.scene(dialect, Answer((Tool("call_1", "get_weather", (text,)),)), DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask("create")
    asking.answer(got.calls[0], "fine")
    asking.ask("create")
    if door == "messages":
        # The SDK holds the object and writes it anew: its value is all that it can keep.
        spoken: Any = last_heard(scene).calls[0].arguments
        assert (spoken if dialect == "messages" else json.loads(spoken)) == json.loads(text)
    elif dialect == "messages":
        assert text.encode() in scene.requests[-1].body
    else:
        assert last_heard(scene).calls[0].arguments == text


# --- ids and names that another dialect does not allow ----------------------------------------------------------------


@modes
@dialects
@doors
def test_foreign_ids_come_back_to_the_upstream_as_they_were(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    call_id = "toolu_ok" if dialect == "messages" else "functions.get_weather:0"
    scene = stage.scene(dialect, Answer((weather(call_id, "Paris"),)), DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    asking.answer(got.calls[0], "sunny")
    asking.ask(mode)
    heard = last_heard(scene)
    assert heard.calls[0].call_id == call_id
    assert heard.results == [HeardResult(call_id, "sunny")]


LONG_NAME = "mcp__a_server_with_a_long_name__a_tool_with_an_even_longer_name_than_the_server_has"


@modes
@dialects
@doors
def test_tool_names_beyond_the_limits_come_back_as_they_were(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    offered = [Offered(name, SCHEMA) for name in (LONG_NAME, "files.read", "files_read")]
    # The upstream calls tools by the names in its request, so the script takes the name from the first request.
    scene = stage.scene(dialect, Answer((Said(("hm",)),)))
    asking = conversation(door, stage.url, scene.model, tools=offered)
    asking.say("hi")
    asking.ask(mode)
    wires = [tool.name for tool in last_heard(scene).tools]
    assert len(set(wires)) == 3
    assert all(
        len(wire) <= 64 and wire.replace("_", "").replace("-", "").isalnum() for wire in wires
    )
    calls = tuple(Tool(f"call_{at}", wire, ('{"city":"x"}',)) for at, wire in enumerate(wires))
    scene.parts += [Answer(calls), DONE]
    asking.say("again")
    got = asking.ask(mode)
    assert [call.name for call in got.calls] == [tool.name for tool in offered]
    for call in got.calls:
        asking.answer(call, "read")
    asking.ask(mode)
    assert [call.name for call in last_heard(scene).calls] == wires


# --- results ----------------------------------------------------------------------------------------------------------


@dialects
@doors
def test_tool_errors_are_errors_at_the_upstream(stage: Stage, door: str, dialect: str) -> None:
    scene = stage.scene(dialect, Answer((weather("call_1", "x"), weather("call_2", "y"))), DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask("create")
    mark = "" if door == "messages" else "[tool error] "  # these doors have no flag but this
    asking.answer(got.calls[0], f"{mark}no such city", is_error=True)
    asking.answer(got.calls[1], "sunny")
    asking.ask("create")
    assert last_heard(scene).results == [
        HeardResult("call_1", "no such city", is_error=True),
        HeardResult("call_2", "sunny"),
    ]


@modes
@dialects
@doors
def test_images_in_results_reach_the_upstream(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    scene = stage.scene(dialect, Answer((weather("call_1", "x"), weather("call_2", "y"))), DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    asking.answer(got.calls[0], "a map", image=PIXEL)
    asking.answer(got.calls[1], "no map")
    asking.ask(mode)
    heard = last_heard(scene)
    first, second = heard.results
    assert first.text.startswith("a map")
    assert second == HeardResult("call_2", "no map")
    if dialect == "chat" and door != "chat":  # tool messages hold text only: the images follow
        assert (first.images, heard.stray_images) == ((), [PIXEL.url])
    else:
        assert (first.images, heard.stray_images) == ((PIXEL.url,), [])


@dialects
@doors
def test_results_in_another_order_are_paired_by_id(stage: Stage, door: str, dialect: str) -> None:
    calls = (weather("call_1", "x"), weather("call_2", "y"), Tool("call_3", "get_time", ()))
    scene = stage.scene(dialect, Answer(calls), DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER, TIME))
    asking.say("hi")
    got = asking.ask("create")
    for call in reversed(got.calls):
        asking.answer(call, f"of {call.call_id}")
    asking.ask("create")
    assert {result.call_id: result.text for result in last_heard(scene).results} == {
        f"call_{number}": f"of call_{number}" for number in (1, 2, 3)
    }


@dialects
@doors
def test_a_call_that_was_never_answered_gets_a_result_that_says_so(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, Answer((weather("call_1", "x"), weather("call_2", "y"))), DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask("create")
    asking.answer(got.calls[1], "sunny")
    asking.say("never mind the other")
    asking.ask("create")
    heard = last_heard(scene)  # which fails on a call without a result
    assert {result.call_id for result in heard.results} == {"call_1", "call_2"}
    assert HeardResult("call_2", "sunny") in heard.results
    assert heard.said("user")[-1] == "never mind the other"


USER_IMAGES: dict[str, Any] = {
    "chat": {"type": "image_url", "image_url": {"url": PIXEL.url}},
    "responses": {"type": "input_image", "image_url": PIXEL.url},
    "messages": {
        "type": "image",
        "source": {"type": "base64", "media_type": PIXEL.media_type, "data": PIXEL.data},
    },
}


@dialects
@doors
def test_an_image_of_the_user_reaches_the_upstream_in_its_own_form(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, DONE)
    asking = conversation(door, stage.url, scene.model)
    text = "input_text" if door == "responses" else "text"
    content = [{"type": text, "text": "What is it?"}, USER_IMAGES[door]]
    asking.history.append({"role": "user", "content": content})
    asking.ask("create")
    turns = scene.heard["input" if dialect == "responses" else "messages"]
    words, picture = turns[0]["content"]
    assert words["text"] == "What is it?"
    assert picture.pop("detail", "auto") == "auto"
    picture.pop("cache_control", None)
    assert picture == USER_IMAGES[dialect]


# --- tool choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["auto", "none", "required", "named"])
@dialects
@doors
def test_every_tool_choice_reaches_the_upstream_in_its_own_words(
    stage: Stage, door: str, dialect: str, choice: str
) -> None:
    scene = stage.scene(dialect, DONE)
    more = {"tool_choice": CHOICES[door][choice]}
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER, TIME), more=more)
    asking.say("hi")
    asking.ask("create")
    heard = last_heard(scene)
    assert heard.choice == CHOICES[dialect][choice]
    assert heard.parallel is None
    assert [tool.name for tool in heard.tools] == ["get_weather", "get_time"]


@pytest.mark.parametrize("choice", ["auto", "required"])
@dialects
@doors
def test_one_call_at_a_time_reaches_the_upstream(
    stage: Stage, door: str, dialect: str, choice: str
) -> None:
    scene = stage.scene(dialect, DONE)
    native = CHOICES[door][choice]
    if door == "messages":
        more: Any = {"tool_choice": {**native, "disable_parallel_tool_use": True}}
    else:
        more = {"tool_choice": native, "parallel_tool_calls": False}
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER, TIME), more=more)
    asking.say("hi")
    asking.ask("stream")
    heard = last_heard(scene)
    assert (heard.choice, heard.parallel) == (CHOICES[dialect][choice], False)


@dialects
@pytest.mark.parametrize("door", ["chat", "responses"])
def test_an_allowed_subset_of_tools_is_all_the_upstream_may_choose(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, DONE)
    entry = {"chat": {"type": "function", "function": {"name": "get_time"}}}.get(
        door, {"type": "function", "name": "get_time"}
    )
    inner = {"mode": "required", "tools": [entry]}
    own: Any = {"type": "allowed_tools", **inner}
    if door == "chat":
        own = {"type": "allowed_tools", "allowed_tools": inner}
    more = {"tool_choice": own}
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER, TIME), more=more)
    asking.say("hi")
    asking.ask("create")
    heard = last_heard(scene)
    if door == dialect:
        assert heard.choice == own
    elif dialect == "messages" or heard.choice == "required":
        assert heard.choice == CHOICES[dialect]["required"]
        assert [tool.name for tool in heard.tools] == ["get_time"]
    else:
        assert "get_time" in json.dumps(heard.choice)
        assert "get_weather" not in json.dumps(heard.choice)


# --- custom tools and namespaces --------------------------------------------------------------------------------------

PATCH = '*** Begin "patch" \\ é\n+\ttab\n'


def custom_answer(dialect: str, call_id: str, name: str, *, is_native: bool) -> Answer:
    """The vendors without free-form tools are offered a function with one string."""
    cut = len(PATCH) // 2
    if is_native:
        return Answer((Tool(call_id, name, (PATCH[:cut], PATCH[cut:]), custom=True),))
    text = json.dumps({"input": PATCH})
    return Answer((Tool(call_id, name, (text[:4], text[4:15], text[15:16], text[16:])),))


# The SDK's helper for Chat cannot read custom calls, whoever sends them.
@pytest.mark.parametrize("route", ["chat", "chat-with-customs", "responses", "messages"])
@pytest.mark.parametrize(
    ("door", "mode"),
    [("chat", "create"), ("chat", "stream"), *(("responses", mode) for mode in MODES)],
)
def test_custom_tools_are_free_text_at_the_client_over_every_upstream(
    stage: Stage, door: str, route: str, mode: str
) -> None:
    dialect = route.removesuffix("-with-customs")
    is_native = route in ("chat-with-customs", "responses")
    first = custom_answer(dialect, "call_1", "apply_patch", is_native=is_native)
    scene = stage.scene(dialect, first, DONE, route=route)
    tools = (Offered("apply_patch", description="edits", custom=True), TIME)
    asking = conversation(door, stage.url, scene.model, tools=tools)
    asking.say("hi")
    got = asking.ask(mode)
    assert got.calls == [SeenCall("call_1", "apply_patch", PATCH, custom=True)]
    offered = last_heard(scene).tools[0]
    assert (offered.name, offered.custom) == ("apply_patch", is_native)
    if not is_native:
        assert list(offered.schema["properties"]) == ["input"]
    asking.answer(got.calls[0], "applied")
    asking.ask(mode)
    heard = last_heard(scene)
    call = heard.calls[0]
    if is_native:
        assert call == HeardCall("call_1", "apply_patch", PATCH, custom=True)
    else:
        value = json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments
        assert (call.call_id, call.name, value) == ("call_1", "apply_patch", {"input": PATCH})
    assert heard.results == [HeardResult("call_1", "applied")]


@modes
@dialects
def test_namespaces_come_back_to_a_responses_client(stage: Stage, dialect: str, mode: str) -> None:
    tools = (
        Offered("find", SCHEMA, namespace="crm"),
        Offered("find", SCHEMA, namespace="mail"),
        Offered("find", SCHEMA),
    )
    is_native = dialect == "responses"
    calls = tuple(
        Tool(
            f"call_{at}",
            tool.name if is_native or tool.namespace is None else f"{tool.namespace}__{tool.name}",
            ('{"city": "x"}',),
            namespace=tool.namespace if is_native else None,
        )
        for at, tool in enumerate(tools)
    )
    scene = stage.scene(dialect, Answer(calls), DONE)
    asking = conversation("responses", stage.url, scene.model, tools=tools)
    asking.say("hi")
    got = asking.ask(mode)
    assert [(call.namespace, call.name) for call in got.calls] == [
        (tool.namespace, tool.name) for tool in tools
    ]
    heard = last_heard(scene)
    assert [(tool.namespace, tool.name) for tool in heard.tools] == [
        (call.namespace, call.name) for call in calls
    ]
    for call in got.calls:
        asking.answer(call, "found")
    asking.ask(mode)
    assert [(call.namespace, call.name) for call in last_heard(scene).calls] == [
        (call.namespace, call.name) for call in calls
    ]
