"""Forms that servers ask for, and what a person types into them."""

import pytest

from dragoman.engine.mcp.host import (
    MAX_CHOICES,
    MAX_FIELDS,
    Field,
    form_from_schema,
    link_to,
    read_value,
)


def field_of(schema: object, *, required: bool = False) -> Field:
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}
    (field,) = form_from_schema("?", whole).fields
    return field


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, " Ada ", "Ada"),
        ({"type": "string", "default": "Ada"}, "", "Ada"),
        ({"type": "string"}, "", None),
        ({"type": "integer"}, "-3", -3),
        ({"type": "integer", "minimum": -(10**400)}, "4", 4),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "Y", True),
        ({"type": "boolean", "default": True}, "no", False),
        ({"type": "boolean", "default": False}, "", False),
        ({"type": "integer", "default": 0}, "", 0),
        ({"type": "string", "enum": ["a", "b"]}, "b", "b"),
        ({"type": "string", "enum": ["2", "1"]}, "1", "1"),
        ({"type": "string", "enum": ["a", "b"]}, "2", "b"),
        ({"type": "string", "enum": ["a"], "enumNames": ["First"]}, "first", "a"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "First"}]}, "First", "a"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "b, 1,b", ["b", "a"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, "a", ["a"]),
        ({"type": "string", "format": "email"}, "a@b.example", "a@b.example"),
    ],
)
def test_typed_text_is_read_as_the_field_says(schema: object, typed: str, value: object) -> None:
    read = read_value(field_of(schema), typed)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("schema", "typed", "words"),
    [
        ({"type": "integer"}, "1.5", "a whole number"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "integer"}, "9" * 400, "a number"),
        ({"type": "number", "minimum": 2}, "1", "at least 2"),
        ({"type": "integer", "maximum": 2}, "3", "at most 2"),
        ({"type": "boolean"}, "perhaps", "yes or no"),
        ({"type": "string", "maxLength": 2}, "abc", "at most 2 characters"),
        ({"type": "string", "format": "date"}, "tomorrow", "of the form date"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "one of a, b"),
        ({"type": "array", "maxItems": 1, "items": {"enum": ["a", "b"]}}, "a,b", "at most 1"),
    ],
)
def test_text_that_is_no_such_value_is_refused_in_words(
    schema: object, typed: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        read_value(field_of(schema), typed)


@pytest.mark.parametrize(
    "url",
    ["http://[", "http://there.example\\@here.example/", "http://a b/", "http:/x", "https://a\n.b"],
)
def test_address_that_a_browser_reads_differently_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Invalid"):
        link_to(url, "?")
    assert link_to("https://there.example/ü?a=b#c", "?").url == "https://there.example/ü?a=b#c"


def test_required_value_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="required"):
        read_value(field_of({"type": "string"}, required=True), " ")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "object"}}},
        {"properties": {"x": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {"x": True}},
        {"properties": {"x": {"type": "string", "enum": list(range(MAX_CHOICES + 1))}}},
        {"properties": {"x": {"type": "string", "enum": ["a" * 1000]}}},
        {"properties": {"a" * 1000: {"type": "string"}}},
        {"properties": []},
        {"properties": {str(number): {"type": "string"} for number in range(MAX_FIELDS + 1)}},
    ],
)
def test_schema_that_is_no_form_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        form_from_schema("?", schema)
