"""A typed function becomes a tool: its schema, its arguments in its own types, its result, its mistakes by name."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, TypedDict, cast

import pytest
from msgspec import Struct

from dragoman._json import loads
from dragoman.engine.function_tool import FunctionTool, output_of, tool
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Invocation, Output, Tool
from dragoman.engine.validation import check_arguments
from dragoman.errors import ConfigError, ToolError
from dragoman.model.parts import Call, Media, Text

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Place(TypedDict):
    city: str
    country: str


@dataclass
class Window:
    days: int = 1


class Detail(Struct):
    level: int
    notes: list[str] = []


@tool(parallel=True, timeout=3.0)
async def forecast(
    place: Place,
    unit: Unit,
    window: Window,
    detail: Detail | None = None,
    style: Literal["short", "long"] = "short",
    pair: tuple[int, str] = (1, "a"),
    ratio: float = 0.5,
    tags: Annotated[list[str], "words to look for"] = [],  # noqa: B006
    extra: dict[str, object] | None = None,
) -> object:
    """Tell the weather
    of a place.

    A second paragraph is for people.

    Args:
        place: where it is
        unit (Unit): degrees of
            which kind
        tags: not this, the annotation counts

    Returns:
        something
    """
    await asyncio.sleep(0)
    return [place["city"], unit, window, detail, style, pair, ratio, tags, extra]


def invocation(text: str, report: Callable[[str], None] = lambda _: None) -> Invocation:
    return Invocation(Call(call_id="call_1", name="any", input=text), report)


def run(made: Tool, text: str) -> Output:
    async def go() -> Output:
        return await made.run(invocation(text))

    return asyncio.run(go())


def schema_of(made: Tool) -> dict[str, object]:
    schema = made.offer.declaration.schema
    assert schema is not None
    return cast("dict[str, object]", loads(bytes(schema)))


def said(output: Output) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


def test_the_schema_has_every_annotation() -> None:
    schema = schema_of(forecast)
    assert schema["required"] == ["place", "unit", "window"]
    assert schema["additionalProperties"] is False
    members = cast("dict[str, dict[str, object]]", schema["properties"])
    assert members["style"] == {"enum": ["long", "short"], "default": "short"}
    assert members["ratio"] == {"type": "number", "default": 0.5}
    assert members["tags"]["description"] == "words to look for"
    assert members["place"] == {"$ref": "#/$defs/Place", "description": "where it is"}
    assert members["unit"]["description"] == "degrees of which kind"
    assert members["pair"]["default"] == [1, "a"]
    assert members["detail"]["default"] is None
    assert set(cast("dict[str, object]", schema["$defs"])) == {"Place", "Unit", "Window", "Detail"}


def test_the_description_is_the_first_paragraph() -> None:
    assert forecast.offer.declaration.description == "Tell the weather of a place."
    assert forecast.offer.declaration.name == "forecast"
    assert forecast.offer.is_parallel
    assert forecast.offer.timeout == 3.0


ARGUMENTS = (
    '{"place":{"city":"Bern","country":"CH"},"unit":"c","window":{"days":2},"detail":{"level":1}}'
)


def test_arguments_arrive_in_the_annotated_types() -> None:
    got: list[object] = []

    @tool
    def keep(place: Place, unit: Unit, window: Window, detail: Detail | None = None) -> None:
        """Keep them."""
        got.extend((place, unit, window, detail))

    assert said(run(keep, ARGUMENTS)) == "done"
    assert got == [{"city": "Bern", "country": "CH"}, Unit.CELSIUS, Window(2), Detail(1)]
    assert check_arguments(keep.offer.declaration, ARGUMENTS) is None


def test_absent_arguments_have_the_functions_defaults() -> None:
    output = run(forecast, ARGUMENTS)
    assert loads(said(output)) == [
        "Bern", "c", {"days": 2}, {"level": 1, "notes": []}, "short", [1, "a"], 0.5, [], None,
    ]  # fmt: skip
    assert output.structured is not None
    assert bytes(output.structured).decode() == said(output)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"count": "1"}', '{"count": 1, "more": 2}', "{}", '{"count": 1.5}', "null"]
)
def test_arguments_that_do_not_fit_are_refused(text: str) -> None:
    @tool
    def count(count: int) -> int:
        """Count."""
        return count

    with pytest.raises(ToolError, match="count"):
        run(count, text)
    assert said(run(count, '{"count": 3}')) == "3"


def test_a_tool_is_still_the_function_it_was() -> None:
    @tool(name="add-up", description="Other words.")
    def add(one: int, other: int = 2) -> int:
        """Add."""
        return one + other

    assert add(1) == 3
    assert add.__doc__ == "Add."
    assert add.offer.declaration.name == "add-up"
    assert add.offer.declaration.description == "Other words."
    assert not add.offer.is_parallel


def test_positional_only_and_keyword_only_parameters_are_called_so() -> None:
    @tool
    def both(one: int, /, other: int, *, third: int = 3) -> list[int]:
        """All of them."""
        return [one, other, third]

    assert said(run(both, '{"other": 2, "one": 1}')) == "[1,2,3]"


def test_a_function_without_parameters_takes_nothing() -> None:
    @tool
    def nothing() -> str:
        """Say it."""
        return "said"

    assert schema_of(nothing) == {
        "type": "object", "properties": {}, "required": [], "additionalProperties": False,
    }  # fmt: skip
    assert said(run(nothing, "")) == "said"
    assert said(run(nothing, " ")) == "said"


def test_a_sync_function_runs_beside_the_event_loop() -> None:
    gate = threading.Event()

    @tool
    def wait() -> bool:
        """Wait for the gate."""
        return gate.wait(60)

    async def go() -> Output:
        call = asyncio.ensure_future(wait.run(invocation("{}")))
        await asyncio.sleep(0)
        gate.set()  # reached only if the loop is free
        return await call

    assert said(asyncio.run(go())) == "true"


def test_a_sync_function_that_hangs_does_not_hold_up_the_end() -> None:
    gate = threading.Event()

    @tool
    def hang() -> None:
        """Never come back."""
        gate.wait(60)

    async def go() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hang.run(invocation("{}")), 0.05)

    asyncio.run(go())
    gate.set()


def test_a_sync_function_may_give_something_to_await() -> None:
    async def later() -> str:
        return "later"

    @tool
    def soon() -> object:
        """Give a coroutine."""
        return later()

    assert said(run(soon, "{}")) == "later"


def test_the_invocation_is_given_to_a_parameter_of_its_type() -> None:
    reports: list[str] = []

    @tool
    async def far(invocation: Invocation, steps: int) -> str:
        """Report."""
        for step in range(steps):
            invocation.report(f"step {step}")
        return invocation.call.call_id

    assert cast("dict[str, object]", schema_of(far)["properties"]).keys() == {"steps"}
    output = asyncio.run(far.run(invocation('{"steps": 2}', reports.append)))
    assert said(output) == "call_1"
    assert reports == ["step 0", "step 1"]


def test_what_the_function_raises_reaches_the_caller() -> None:
    @tool
    def broken(what: str) -> str:
        """Break."""
        raise StopIteration if what == "stop" else ToolError(what)

    with pytest.raises(ToolError, match="in words"):
        run(broken, '{"what": "in words"}')
    with pytest.raises(RuntimeError, match="StopIteration"):
        run(broken, '{"what": "stop"}')


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", (Text(text="text"),)),
        (None, (Text(text="done"),)),
        (Output(is_error=True), ()),
        (Text(text="t"), (Text(text="t"),)),
        ([Text(text="a"), Media(kind="image", url="u")], (Text(text="a"), Media(kind="image", url="u"))),
        ({"a": [1, True]}, (Text(text='{"a":[1,true]}'),)),
        ([], (Text(text="[]"),)),
        (Detail(2), (Text(text='{"level":2,"notes":[]}'),)),
    ],
)  # fmt: skip
def test_what_comes_back_becomes_the_result(value: object, content: object) -> None:
    assert output_of(value).content == content


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_the_bytes_of_a_picture_are_shown_as_one(data: bytes, kind: str) -> None:
    (part,) = output_of(data).content
    assert isinstance(part, Media)
    assert part.media_type == kind


@pytest.mark.parametrize("value", [object(), {1: object()}, lambda: 1])
def test_what_cannot_be_expressed_is_an_error(value: object) -> None:
    with pytest.raises(ToolError, match="cannot be written as JSON"):
        output_of(value)


def unannotated(place: str, days: int) -> str:
    return f"{place}{days}"


del unannotated.__annotations__["place"]


def starred(*places: str) -> str:
    return "".join(places)


def open_ended(**places: str) -> str:
    return "".join(places)


def foreign(place: Path) -> str:
    return str(place)


def undecidable(place: str | bytes) -> str:
    return str(place)


def unresolved(place: str) -> str:
    return place


unresolved.__annotations__["place"] = "Nowhere"


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (unannotated, "place"),
        (starred, "places"),
        (open_ended, "places"),
        (foreign, "place"),
        (undecidable, "place"),
        (unresolved, "Nowhere"),
    ],
)
def test_a_function_that_cannot_be_described_is_a_mistake_by_name(
    function: Callable[..., str], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        tool(function)


@pytest.mark.parametrize("name", ["", "with space", "ä", "x" * 65, "a.b"])
def test_a_name_that_providers_refuse_is_a_mistake(name: str) -> None:
    with pytest.raises(ConfigError, match="tool name"):
        tool(name=name)(lambda: "x")


def test_a_default_that_json_has_not_is_left_out_of_the_schema() -> None:
    unwritable = object()

    @tool
    def odd(thing: object = unwritable) -> bool:
        """Odd."""
        return thing is unwritable

    members = cast("dict[str, dict[str, object]]", schema_of(odd)["properties"])
    assert "default" not in members["thing"]
    assert said(run(odd, "{}")) == "true"


def test_what_stands_around_the_arguments_of_a_docstring_is_left_out() -> None:
    @tool
    def odd(one: int, other: int) -> int:
        """Add.

        Args:
                stray words
            one: the first

                and more of it
            nobody: not there
        """
        return one + other

    members = cast("dict[str, dict[str, object]]", schema_of(odd)["properties"])
    assert "description" not in members["other"]


def test_a_type_that_refers_to_itself_is_described() -> None:
    @tool
    def walk(tree: "Tree") -> int:
        """Count."""
        return 1 + len(tree.below)

    assert "Tree" in str(schema_of(walk)["$defs"])
    assert said(run(walk, '{"tree":{"below":[{"below":[]}]}}')) == "2"


class Tree(Struct):
    below: "list[Tree]"


def test_work_that_is_run_to_its_end_is_waited_for_when_cancelled() -> None:
    stop, ended = threading.Event(), threading.Event()

    def work() -> None:
        stop.wait(60)
        ended.set()

    async def go() -> None:
        task = asyncio.ensure_future(run_to_end(work, "test", stop.set))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(go())


def test_a_made_tool_is_a_tool() -> None:
    made: Tool = forecast
    assert isinstance(made, FunctionTool)


def test_null_for_a_parameter_with_a_default_is_the_default() -> None:
    @tool
    def count(start: int, step: int = 2, note: str | None = "none said") -> str:
        """Counts."""
        return f"{start} {step} {note}"

    assert said(run(count, '{"start":1,"step":null,"note":null}')) == "1 2 None"
