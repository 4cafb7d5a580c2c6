"""Shapes a Responses request for the ChatGPT Codex backend. Pure.

The backend is not the public API. It answers 400 to every parameter outside its own list, before it generates a token, so
this module has a list of allowed parameters: those that Codex sends, and others that were tested one by one. It demands:

    stream       true, whatever the client wants; the answer is folded for clients that want a body
    store        false; nothing is stored, so references to stored objects are refused here with a clear message
    instructions present and not empty: from the first system message, else a default sentence
    input        a list, without system messages (`developer` replaces them)
    include      sealed reasoning, or the next request could not send it back

Members that need no change keep their bytes.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps, dumps_text, typed_decoder
from dragoman.core.fields import Fields, read_json, read_list, read_object, read_text, set_members
from dragoman.core.losses import (
    LossBook,
    request_field_code,
)
from dragoman.dialects.responses.losses import CHATGPT_CODEX_LOSSES
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss, LossAction, Repair
from dragoman.model.parts import Dialect

DEFAULT_INSTRUCTIONS = "You are a helpful assistant."

_ACCEPTED = frozenset(
    {
        *("model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls"),
        *("reasoning", "text", "include", "store", "stream", "prompt_cache_key", "client_metadata"),
    }
)
_STATE = frozenset({"previous_response_id", "conversation", "prompt", "background"})
# Parameters with these values request the default behaviour.
_IDLE: Mapping[str, tuple[object, ...]] = {
    "background": (False,),
    "metadata": ({},),
    "service_tier": ("auto", "default"),
    "truncation": ("disabled",),
}
# The only tier that Codex requests from this backend; others were refused.
_TIER = "priority"
_SEALED = "reasoning.encrypted_content"
_INSTRUCTING = ("system", "developer")

# Names of Responses parameters in the other dialects, for messages to the client.
_CLIENT_NAMES: Mapping[Dialect, Mapping[str, str]] = {
    "chat": {"max_output_tokens": "max_tokens"},
    "messages": {"max_output_tokens": "max_tokens", "user": "metadata.user_id"},
}

_NULL = b"null"
_LONGEST_WORD = 64  # types, roles and default values are short
_decode_texts = typed_decoder(list[str])


class PreparedRequest(Struct, frozen=True):
    """The request to send, and its losses and repairs."""

    body: bytes
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()


def shape_request(
    body: bytes, *, door: Dialect, policy: Mapping[str, LossAction] | None = None
) -> PreparedRequest:
    """The request for the backend, from any Responses request. `door`: the client's dialect.

    Raises:
        RequestRefused: the backend cannot express the request, or the policy refuses a loss.
    """
    fields = as_object(body)
    shaping = _Shaping(LossBook(CHATGPT_CODEX_LOSSES, policy), door)
    changes = shaping.parameters(fields)
    changes |= shaping.conversation(fields)
    changes |= {"stream": b"true", "store": b"false"}
    changes |= _sealed_reasoning(fields, door)
    changes = {key: value for key, value in changes.items() if not _stands(fields, key, value)}
    shaped = set_members(body, changes) if changes else body
    return PreparedRequest(shaped, shaping.book.losses, tuple(shaping.repairs))


class _Shaping:
    """The changes to one request, with their losses and repairs."""

    def __init__(self, book: LossBook, door: Dialect) -> None:
        self.book = book
        self.repairs: list[Repair] = []
        self._names = _CLIENT_NAMES.get(door, {})

    def parameters(self, fields: Fields) -> dict[str, bytes | None]:
        """The parameters to remove. A null is removed without a loss."""
        changes: dict[str, bytes | None] = {}
        for name, raw in fields.items():
            if name in _ACCEPTED or (name == "service_tier" and _is(raw, _TIER)):
                continue
            changes[name] = None
            if not _is(raw, None, *_IDLE.get(name, ())):
                self.book.note(_code_of(name, raw), self._names.get(name, name))
        if bytes(fields.get("store", b"")) == b"true":
            self.book.note("unsupported_parameter", "store", "nothing is kept")
        return changes

    def conversation(self, fields: Fields) -> dict[str, bytes | None]:
        """`instructions` and `input`, as the backend demands them."""
        items, is_changed = _items(fields.get("input"))
        first = 0
        changes: dict[str, bytes | None] = {}
        if not _has_text(fields, "instructions"):
            text = _leading_text(items)
            if text is not None:
                items, first, is_changed = items[1:], 1, True
                self.repairs.append(Repair("leading_instructions", "input[0]"))
            else:
                self.repairs.append(Repair("default_instructions", "instructions"))
            changes["instructions"] = dumps_text(text or DEFAULT_INSTRUCTIONS)
        kept: list[Raw] = []
        for number, item in enumerate(items, first):
            fixed = self._fixed(item, f"input[{number}]")
            is_changed = is_changed or fixed is not item
            kept += [] if fixed is None else [fixed]
        if is_changed:
            changes["input"] = b"[" + b",".join(map(bytes, kept)) + b"]"
        return changes

    def _fixed(self, item: Raw, where: str) -> Raw | None:
        text = bytes(item)
        if not any(word in text for word in (b'"system"', b'"reasoning"', b'"item_reference"')):
            return item
        fields = as_object(text)
        kind = read_text(fields.get("type"))
        if kind == "item_reference":
            self.book.note("server_state", where, "item_reference")
            return None
        if kind == "reasoning" and "id" in fields and not _has_text(fields, "encrypted_content"):
            # The backend would look up the id, and it stores nothing.
            self.repairs.append(Repair("reasoning_without_id", where))
            return Raw(set_members(text, {"id": None}))
        if kind in (None, "message") and read_text(fields.get("role")) == "system":
            self.repairs.append(Repair("developer_role", where))
            return Raw(set_members(text, {"role": b'"developer"'}))
        return item


def _code_of(name: str, raw: Raw) -> str:
    if name in _STATE:
        return "server_state"
    code = request_field_code(name, raw)
    return code if code == "moderation_block" else "unsupported_parameter"


def _stands(fields: Fields, key: str, value: bytes | None) -> bool:
    """Whether the member already has this value."""
    return value is not None and key in fields and bytes(fields[key]) == value


def _sealed_reasoning(fields: Fields, door: Dialect) -> dict[str, bytes | None]:
    """`include` for sealed reasoning. Responses clients send it back; for others it is added if they want reasoning."""
    asks = door == "responses" or not _is(fields.get("reasoning"), None)
    raw = fields.get("include")
    try:
        listed = [] if _is(raw, None) or raw is None else _decode_texts(raw)
    except FAST_FAILURES:
        return {}  # wrong type: the backend refuses it
    if not asks or _SEALED in listed:
        return {}
    return {"include": dumps([*listed, _SEALED])}


def _items(raw: Raw | None) -> tuple[list[Raw], bool]:
    """The items of the input, and whether they were made here: a string stands for one user message."""
    if raw is None or bytes(raw) == _NULL:
        return [], True
    text = bytes(raw)
    if text.startswith(b'"'):
        content = [{"type": "input_text", "text": raw}]
        message = {"type": "message", "role": "user", "content": content}
        return [Raw(dumps(message))], True
    listed = read_list(raw)
    if listed is None:
        raise RequestRefused("input: expected a string or a list of items", param="input")
    return listed, False


def _leading_text(items: list[Raw]) -> str | None:
    """The text of the first item, if it is an instruction with only text."""
    if not items:
        return None
    first = read_object(items[0])
    if read_text(first.get("role")) not in _INSTRUCTING:
        return None
    text = read_text(first.get("content"))
    if text is None:
        parts = read_list(first.get("content")) or []
        texts = [_part_text(part) for part in parts]
        text = None if None in texts else "\n\n".join(filter(None, texts))
    return text if text is not None and text.strip() else None


def _part_text(raw: Raw) -> str | None:
    part = read_object(raw)
    return (
        read_text(part.get("text"))
        if read_text(part.get("type")) in ("input_text", "text")
        else None
    )


def _is(raw: Raw | None, *values: object) -> bool:
    """Whether it has one of these values. An absent value counts as null."""
    if raw is None:
        return None in values
    if len(bytes(raw)) > _LONGEST_WORD:
        return False
    said = read_json(raw)
    return any(type(said) is type(value) and said == value for value in values)


def _has_text(fields: Fields, key: str) -> bool:
    """Whether the member is a non-empty string."""
    return bool((read_text(fields.get(key)) or "").strip())
