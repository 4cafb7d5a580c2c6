"""A null for a member that may be left out means that it is left out: it is never an error, and nothing else is lost."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import dumps, raw
from dragoman.core.schemas import satisfies, without_nulls
from dragoman.engine.validation import check_arguments
from dragoman.model.request import Tool

Value = dict[str, object]

# A member's schema, a value that satisfies it, and whether null does.
_PLAIN: list[tuple[object, object, bool]] = [
    ({"type": "string"}, "x", False),
    ({"type": "integer"}, 1, False),
    ({"type": ["number", "null"]}, 1.5, True),
    ({"type": "string", "nullable": True}, "x", True),
    ({"enum": ["a", "b"]}, "a", False),
    ({"enum": ["a", None]}, "a", True),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "x", True),
    ({"$ref": "#/$defs/number"}, 2, False),
    ({"$ref": "#/$defs/maybe"}, 2, True),
    (True, "x", True),
    ({}, "x", True),
]
_DEFS = {"number": {"type": "number"}, "maybe": {"type": ["number", "null"]}}


@st.composite
def _object(draw: st.DrawFn, depth: int = 2) -> tuple[Value, Value, Value]:
    """A schema, arguments with nulls, and the same as they should be understood."""
    properties: Value = {}
    required: list[str] = []
    written: Value = {}
    meant: Value = {}
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)):
        member: object
        value: object
        kept: object
        if depth and draw(st.booleans()):
            member, value, kept = draw(_object(depth - 1))
            nullable = False
        else:
            member, value, nullable = draw(st.sampled_from(_PLAIN))
            kept = value
        properties[name] = member
        is_required = draw(st.booleans())
        is_null = draw(st.booleans()) and (nullable or not is_required)
        if is_required:
            required.append(name)
        written[name] = None if is_null else value
        if not is_null or nullable:
            meant[name] = None if is_null else kept
    schema = {"type": "object", "properties": properties, "required": required}
    return {**schema, "additionalProperties": False}, written, meant


@given(_object())
def test_null_of_an_option_is_no_error_and_nothing_else_is_lost(
    drawn: tuple[Value, Value, Value],
) -> None:
    schema, written, meant = drawn
    schema = {**schema, "$defs": _DEFS}
    assert without_nulls(schema, written) == meant
    assert satisfies(schema, meant)
    if "nullable" not in str(schema):  # which is OpenAPI's, and not JSON Schema's
        tool = Tool(name="probe", schema=raw(schema))
        assert check_arguments(tool, dumps(written).decode()) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda below: (
            st.lists(below, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "properties", "required", "items", "$ref", "anyOf", "a"]),
                below | st.just("#"),
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_schema_at_all_is_survived_and_what_it_requires_stays(schema: object) -> None:
    value: Value = {"a": None, "b": [None, {"a": None}]}
    kept = without_nulls(schema, value)
    assert isinstance(kept, dict)
    assert kept["b"] is not None
