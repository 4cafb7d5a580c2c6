"""Reads one entry of `tool_calls` (or the legacy `function_call`), wherever its server put the fields.

OpenAI nests name and arguments in `function`, a custom tool's name and input in `custom`. Others put them beside
`function`, call the name `function_name`, or send the arguments as an object instead of a string.
"""

from msgspec import Struct

from dragoman._json import Raw, dumps, loads
from dragoman.core.fields import (
    expect_int,
    expect_present,
    expect_text,
    first_text,
    is_object,
    read_fragment,
)
from dragoman.dialects.chat.wire import CALL_FIELDS, ChunkCall
from dragoman.model.parts import CallKind

_NAMES = ("name", "function_name", "tool_name", "call_name")


class CallEntry(Struct, frozen=True, kw_only=True):
    """`text` is a fragment of input, `value` an input that is not a string. `problems` are (kind, message)."""

    index: int | None = None
    id: str = ""
    name: str = ""
    kind: CallKind | None = None
    text: str = ""
    value: Raw | None = None
    is_legacy: bool = False
    extra_content: Raw | None = None
    extra: dict[str, Raw] = {}
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def has_input(self) -> bool:
        return bool(self.text) or self.value is not None


def read_entry(raw: Raw) -> CallEntry:
    """Read one entry of `tool_calls`.

    Raises:
        MalformedJson: the entry, its name, id, index or input has a type that no server uses for it.
    """
    fields = expect_present(raw, "a tool call")
    is_custom = "custom" in fields or read_fragment(fields.get("type")) == "custom"
    kind: CallKind = "custom" if is_custom else "function"
    inner = expect_present(fields.get(kind), kind)
    expect_text(inner.get("name"), "a call's name")
    expect_text(fields.get("id"), "a call's id")
    is_known = is_custom or "function" in fields or "type" in fields
    problems: list[tuple[str, str]] = []
    given, place = _input(fields, inner, "input" if is_custom else "arguments")
    if place == "beside" and given is not None and bytes(given) != b'""':
        problems.append(
            (
                "misplaced_input",
                "expected a call's input inside `function`, got it beside `function`",
            )
        )
    text = _text_of_input(given)
    call_id = first_text(fields, ("id", "call_id"))
    if not call_id and read_fragment(fields.get("id")) == "":
        problems.append(
            ("empty_id", "expected later deltas of a call without an id, got an empty one")
        )
    name = first_text(inner, _NAMES) or first_text(fields, _NAMES)
    if not name and read_fragment(inner.get("name")) == "":
        problems.append(
            ("empty_name", "expected later deltas of a call without a name, got an empty one")
        )
    return CallEntry(
        index=expect_int(fields.get("index"), "a call's index"),
        id=call_id,
        name=name,
        kind=kind if is_known else None,
        text=text or "",
        value=given if text is None else None,
        extra_content=fields.get("extra_content"),
        extra={key: value for key, value in fields.items() if key not in CALL_FIELDS},
        problems=tuple(problems),
    )


def typed_entry(call: ChunkCall) -> CallEntry:
    """As `read_entry`, for an entry that fits `wire.ChunkCall`."""
    function = call.function
    return CallEntry(
        index=call.index,
        id=call.id or "",
        name=function.name or "",
        kind="function",
        text=function.arguments or "",
    )


def legacy_entry(raw: Raw) -> CallEntry:
    """Read `function_call`: one call per choice, without index and id. Raises as `read_entry`."""
    fields = expect_present(raw, "function_call")
    given = fields.get("arguments")
    text = _text_of_input(given)
    return CallEntry(
        name=expect_text(fields.get("name"), "a call's name") or "",
        kind="function",
        text=text or "",
        value=given if text is None else None,
        is_legacy=True,
        extra={key: value for key, value in fields.items() if key not in CALL_FIELDS},
    )


def _text_of_input(given: Raw | None) -> str | None:
    """Return a fragment of input as text; None for an object, which some servers send instead, and for no input."""
    return None if is_object(given) else expect_text(given, "a call's input")


def _input(fields: dict[str, Raw], inner: dict[str, Raw], field: str) -> tuple[Raw | None, str]:
    """Return the input and where it was found. Where both places have an input, the one inside `function` counts."""
    within = inner.get(field)
    beside = fields.get(field)
    if within is not None and (bytes(within) != b'""' or beside is None):
        return within, "within"
    return beside, "beside"


def merge_objects(values: list[Raw]) -> str:
    """Return the input of a call whose arguments came as objects.

    One object keeps its bytes. Several are merged by key and written once: a text that begins with the old text of its key
    replaces it, any other text is appended, and any other value replaces the old value.
    """
    if len(values) == 1:
        return bytes(values[0]).decode("utf-8")
    merged: dict[str, object] = {}
    for value in values:
        fields: dict[str, object] = loads(bytes(value))
        for key, new in fields.items():
            old = merged.get(key)
            if isinstance(old, str) and isinstance(new, str) and not new.startswith(old):
                merged[key] = old + new
            else:
                merged[key] = new
    return dumps(merged).decode("utf-8")
