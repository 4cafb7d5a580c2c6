"""Calls as `<use_tool>` blocks: what is written, and what the client's own reader would make of it."""

import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import raw
from dragoman.model.parts import Call
from dragoman.obsidian.blocks import (
    extract_use_tool_blocks,
    read_block,
    read_value,
    render_block,
    to_obsidian_xml,
)
from obsidian_answers import block

SCHEMA = raw({"type": "object", "properties": {"path": {}, "content": {}, "terms": {}}})


def call(source: str, name: str = "write") -> Call:
    return Call(call_id="c", name=name, input=source)


def test_a_block_looks_as_the_contract_shows_it() -> None:
    rendered = render_block(call('{"id":"42"}', "get_user"))
    assert rendered.text == "<use_tool>\n  <name>get_user</name>\n  <id>42</id>\n</use_tool>"
    assert rendered.misread == ()


def test_a_call_without_arguments_has_a_block_without_parameters() -> None:
    for source in ("", "{}"):
        assert render_block(call(source, "now")).text == block("now")


@pytest.mark.requirement("S003-29")
def test_parameters_come_in_the_order_of_the_schema_then_the_others_by_name() -> None:
    rendered = render_block(call('{"z":1,"terms":[],"path":"a","b":true}'), schema=SCHEMA)
    assert rendered.text == block(
        "write", ("path", "a"), ("terms", "[]"), ("b", "true"), ("z", "1")
    )
    assert rendered.misread == ()


@pytest.mark.requirement("S003-29")
@given(st.permutations(["query", "Zone", "salientTerms", "a", "time_range"]))
def test_without_a_schema_parameters_come_by_name(keys: list[str]) -> None:
    rendered = render_block(call(json.dumps({key: key.upper() for key in keys})))
    wanted = [(key, key.upper()) for key in ("Zone", "a", "query", "salientTerms", "time_range")]
    assert rendered.text == block("write", *wanted)


@pytest.mark.requirement("S003-29")
def test_a_block_that_was_written_is_extracted_as_the_same_call() -> None:
    source = '{"path":"a.md","terms":["x","y"],"content":"two\\nlines"}'
    text = f"First.\n{to_obsidian_xml(call(source), schema=SCHEMA)}\nLast."
    (found,) = extract_use_tool_blocks(text)
    assert found.name == "write"
    assert json.loads(found.arguments) == json.loads(source)


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "two\nlines",
        "a < b && c > d",
        "<unclosed",
        "5",
        "true",
        "",
        ["a", "b"],
        ["<b>bold</b>", "a < b", "\\<"],
        {"from": 1, "to": {"deep": [None, "<item>x</item>"]}},
        5,
        2.5,
        True,
        "{half",
        "ünï \U0001f600",
    ],
)
def test_what_can_be_read_back_is(value: object) -> None:
    rendered = render_block(call(json.dumps({"content": value})), schema=SCHEMA)
    assert rendered.misread == ()
    read = read_block(rendered.text)
    assert read is not None
    got = read_value("content", read[1]["content"])
    assert got == (json.dumps(value) if isinstance(value, bool | int | float) else value)


@pytest.mark.parametrize(
    "value",
    [
        "<p>hi</p>",
        "ends </content> early",
        "closes </use_tool> the block",
        "a line end at the end\n",
        " spaces ",
        '["looks like a list"]',
        '{"looks": "like an object"}',
        "<a>" * 3 + "</a>",
        "".join(f"<t{number}>" for number in range(300)),
    ],
)
def test_what_would_be_read_otherwise_is_known(value: str) -> None:
    rendered = render_block(call(json.dumps({"path": "a", "content": value})), schema=SCHEMA)
    assert rendered.misread == ("content",)
    assert rendered.text.endswith("</use_tool>")


@pytest.mark.parametrize("value", ["<a>" + "<" * 60_000, "a<b;" * 60_000])
def test_a_value_with_many_brackets_takes_no_time(value: str) -> None:
    start = time.process_time()
    assert read_value("query", value) == value
    assert time.process_time() - start < 2


def test_a_value_of_brackets_takes_little_memory() -> None:
    """Each bracket begins a tag that ends at the end of the text."""
    value = "<" * 200_000 + ">"
    tracemalloc.start()
    try:
        read_value("query", value)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(value)
    finally:
        tracemalloc.stop()


def test_what_is_written_with_entities_is_read_back_by_who_decodes_them() -> None:
    source = json.dumps({"content": "<p>a & b</p> </content>", "terms": ["<b>"], "path": "[1]"})
    rendered = render_block(call(source), schema=SCHEMA, escape="entities")
    assert "&lt;p&gt;a &amp; b&lt;/p&gt;" in rendered.text
    assert rendered.misread == ()


def test_a_null_is_left_out_or_written_as_a_word() -> None:
    dropped = render_block(call('{"path":"a","terms":null}'), schema=SCHEMA)
    assert (dropped.text, dropped.nulls) == (block("write", ("path", "a")), ("terms",))
    kept = render_block(call('{"path":"a","terms":null}'), schema=SCHEMA, keep_null=True)
    assert kept.text == block("write", ("path", "a"), ("terms", "null"))


@pytest.mark.parametrize("key", ["name", "use_tool", "a>b", "<x", "/y", ""])
def test_a_parameter_that_no_tag_can_name_is_left_out_and_known(key: str) -> None:
    rendered = render_block(call(json.dumps({key: "v", "path": "a"})))
    assert rendered.text == block("write", ("path", "a"))
    assert rendered.misread == (key,)


def test_an_empty_list_of_two_parameters_is_a_list_whatever_was_meant() -> None:
    assert render_block(call('{"salientTerms":[]}')).misread == ()
    assert render_block(call('{"salientTerms":""}')).misread == ("salientTerms",)


def test_input_that_is_no_object_is_one_parameter() -> None:
    free = Call(call_id="c", name="note", input="free text", kind="custom")
    assert render_block(free).text == block("note", ("input", "free text"))
    assert render_block(call("[1]", "note")).text == block("note", ("input", "[1]"))


def test_a_name_that_would_not_be_read_is_known() -> None:
    assert render_block(call("{}", "a</name>b")).misread == ("name",)


@pytest.mark.parametrize(
    "text",
    [
        "no block",
        "<use_tool><x>1</x></use_tool>",
        "<use_tool><name> </name></use_tool>",
        "<use_tool><name>f</name>",
    ],
)
def test_what_is_no_block_is_not_read(text: str) -> None:
    assert read_block(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<item>a</item>lost<item>[1]</item>", ["a", [1]]),
        ("<x>1</x><y><z>2</z></y>", {"x": "1", "y": {"z": "2"}}),
        ("a <br> b", "a <br> b"),
        ("[1, <b>]", "[1, <b>]"),
        ("[half]", "[half]"),
        ("<a>" * 40 + "x" + "</a>" * 40, {"a": "<a>" * 39 + "x"}),
    ],
)
def test_values_are_read_as_the_client_reads_them(text: str, value: object) -> None:
    read = read_value("k", text)
    assert read == value or (text.startswith("<a>") and isinstance(read, dict))
