"""`<use_tool>` blocks, read and written."""

import json

import pytest

from dragoman.errors import ConfigError
from dragoman.model.parts import Call
from dragoman.obsidian import extract_use_tool_blocks, is_read_back, to_obsidian_xml
from dragoman.textcalls import FoundCall, scan_text

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "salientTerms": {"type": "array", "items": {"type": "string"}},
        "range": {"type": "object", "properties": {"from": {"type": "integer"}}},
        "limit": {"type": "integer"},
        "exact": {"type": "boolean"},
    },
}
TOOLS = [{"name": "write", "input_schema": SCHEMA}]


def read(inside: str, *, typed: bool = True) -> object:
    text = f"<use_tool>\n<name>write</name>\n{inside}\n</use_tool>"
    scan = scan_text(text, TOOLS if typed else None, formats="use_tool")
    assert scan.text == "", scan
    return json.loads(scan.calls[0].arguments)


def test_block_with_text_around_it() -> None:
    text = "I look.\n<use_tool>\n<name>write</name>\n<path>a.md</path>\n</use_tool>\n"
    scan = scan_text(text, TOOLS)
    assert [(call.name, call.arguments) for call in scan.calls] == [("write", '{"path":"a.md"}')]
    assert scan.text == "I look.\n"


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("<path> a.md </path>", {"path": "a.md"}),
        ("<content>\n# Title\n\n  code\n</content>", {"content": "# Title\n\n  code"}),
        ("<content><h1>Hi</h1><b>x</b></content>", {"content": "<h1>Hi</h1><b>x</b>"}),
        ("<content>a &lt; b</content>", {"content": "a &lt; b"}),
        ("<content><![CDATA[</path> <x>]]></content>", {"content": "</path> <x>"}),
        ("<content>5</content><limit>5</limit>", {"content": "5", "limit": 5}),
        ("<exact>true</exact>", {"exact": True}),
        ('<salientTerms>["a","b"]</salientTerms>', {"salientTerms": ["a", "b"]}),
        ("<salientTerms><item>a</item><item>b</item></salientTerms>", {"salientTerms": ["a", "b"]}),
        ("<salientTerms></salientTerms>", {"salientTerms": []}),
        ("<range><from>3</from></range>", {"range": {"from": 3}}),
        ('<range>{"from": 3}</range>', {"range": {"from": 3}}),
        ("<path>a</path><path>b</path>", {"path": "b"}),
        ("<path/>", {}),
    ],
)
def test_values_are_read_by_the_schema(inside: str, expected: object) -> None:
    assert read(inside) == expected


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("<count>5</count>", {"count": "5"}),
        ("<list>[1, 2]</list>", {"list": [1, 2]}),
        ("<list>[1, </list>", {"list": "[1,"}),
        ("<a><b>1</b><c>2</c></a>", {"a": {"b": "1", "c": "2"}}),
        ("<a><item>1</item>lost<item>2</item></a>", {"a": ["1", "2"]}),
        ("<a>x < y</a>", {"a": "x < y"}),
        ("<salientTerms></salientTerms>", {"salientTerms": []}),
        ("<other></other>", {"other": ""}),
    ],
)
def test_without_a_schema_values_are_read_as_the_reference_reader_does(
    inside: str, expected: object
) -> None:
    assert read(inside, typed=False) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<use_tool >\n<name>write</name>\n</use_tool>",
        "<USE_TOOL>\n<name>write</name>\n</USE_TOOL>",
        '<use_tool>{"name": "write"}</use_tool>',
        "<use_tool/>",
        "an inline `<use_tool>` in prose, and more text",
        "<use_tool>\n<path>a</path>\n</use_tool>",
    ],
)
def test_what_is_no_block_is_text(text: str) -> None:
    scan = scan_text(text, TOOLS)
    assert scan.calls == ()
    assert scan.text == text


def test_closing_tag_quoted_in_a_string_does_not_end_the_block() -> None:
    inside = "<content>a block ends with </use_tool> as you see</content>"
    assert read(inside) == {"content": "a block ends with </use_tool> as you see"}


@pytest.mark.parametrize(
    "inside",
    ["<path>a</path><content>half\n", "<path>a</path><limit>", "<path>a</path>half</content>"],
)
def test_block_with_half_a_parameter_is_text(inside: str) -> None:
    """A call without that parameter would be another call than the one that was written."""
    text = f"<use_tool>\n<name>write</name>\n{inside}</use_tool>" + " more" * 900
    scan = scan_text(text, TOOLS)
    assert (scan.calls, scan.text) == ((), text)
    assert [problem.kind for problem in scan.problems] == ["malformed"]


def test_parameter_called_name_is_not_the_name_of_the_tool() -> None:
    tools = [
        {
            "name": "add",
            "input_schema": {"properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
        }
    ]
    text = "<use_tool><name>add</name><n>1</n></use_tool><use_tool><name>add</name><name>Ada</name></use_tool>"
    assert [call.arguments for call in scan_text(text, tools).calls] == [
        '{"n":1}',
        '{"name":"Ada"}',
    ]


def test_block_without_its_end_is_a_call_only_if_all_its_parameters_are_closed() -> None:
    whole = "<use_tool>\n<name>write</name>\n<path>a</path>\n"
    assert len(scan_text(whole, TOOLS).calls) == 1
    assert scan_text(f"{whole}<content>ha", TOOLS).calls == ()
    assert scan_text(whole, TOOLS, finish="length").calls == ()


def test_blocks_are_extracted_without_knowing_the_tools() -> None:
    text = "<use_tool><name>a</name><x>1</x></use_tool> and <use_tool><name>b</name></use_tool>"
    found = extract_use_tool_blocks(text)
    assert [(call.name, call.arguments) for call in found] == [("a", '{"x":"1"}'), ("b", "{}")]
    assert text[found[0].start : found[0].end].endswith("</use_tool>")


def test_call_is_written_as_the_client_reads_it() -> None:
    source = '{"limit":3,"path":"a.md","salientTerms":["x"],"content":"one\\ntwo"}'
    call = Call(call_id="c", name="write", input=source)
    assert to_obsidian_xml(call, schema=SCHEMA) == (
        "<use_tool>\n  <name>write</name>\n  <path>a.md</path>\n  <content>\none\ntwo\n</content>\n"
        '  <salientTerms>["x"]</salientTerms>\n  <limit>3</limit>\n</use_tool>'
    )
    assert is_read_back(to_obsidian_xml(call, schema=SCHEMA), call, schema=SCHEMA)


def test_entities_are_written_only_where_asked_for() -> None:
    call = Call(call_id="c", name="write", input='{"content":"a < b & c"}')
    assert "<content>a < b & c</content>" in to_obsidian_xml(call)
    assert "<content>a &lt; b &amp; c</content>" in to_obsidian_xml(call, escape="entities")


@pytest.mark.parametrize(
    ("source", "is_read"),
    [
        ('{"content":"plain"}', True),
        ('{"content":"</content> inside <path>x</path>"}', False),
        ('{"content":"  spaces  "}', False),
        ('{"limit":3}', True),
        ("", True),
    ],
)
def test_block_that_cannot_be_read_back_is_known(source: str, is_read: bool) -> None:
    call = Call(call_id="c", name="write", input=source)
    assert is_read_back(to_obsidian_xml(call, schema=SCHEMA), call, schema=SCHEMA) is is_read


def test_input_that_is_no_object_is_one_parameter() -> None:
    custom = Call(call_id="c", name="note", input="free <b>text</b>", kind="custom")
    assert "<input>free <b>text</b></input>" in to_obsidian_xml(custom)
    broken = Call(call_id="c", name="note", input="{half")
    assert "<input>{half</input>" in to_obsidian_xml(broken)


def test_block_of_another_call_is_not_this_one() -> None:
    call = Call(call_id="c", name="write", input="{}")
    assert not is_read_back("no block", call)
    assert not is_read_back("<use_tool><name>other</name></use_tool>", call)


@pytest.mark.parametrize(
    "call",
    [
        Call(call_id="c", name="f", input='{"a": "x", "n": [1]}'),
        {"name": "f", "arguments": '{"a": "x", "n": [1]}'},
        {"name": "f", "arguments": {"a": "x", "n": [1]}},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "x", "n": [1]}},
        {
            "id": "c",
            "type": "function",
            "function": {"name": "f", "arguments": '{"a":"x","n":[1]}'},
        },
        FoundCall("f", '{"a": "x", "n": [1]}'),
    ],
)
def test_call_of_any_shape_is_written_as_a_block(call: object) -> None:
    block = to_obsidian_xml(call)
    assert block.split() == [
        "<use_tool>",
        "<name>f</name>",
        "<a>x</a>",
        "<n>[1]</n>",
        "</use_tool>",
    ]
    assert json.loads(extract_use_tool_blocks(block)[0].arguments) == {"a": "x", "n": [1]}


@pytest.mark.parametrize("call", [None, 7, {}, {"name": 1}, "f"])
def test_what_is_no_call_is_refused(call: object) -> None:
    with pytest.raises(ConfigError, match="expected a call"):
        to_obsidian_xml(call)
