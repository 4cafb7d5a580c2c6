"""What a message is made of: the parts of an answer and of a conversation.

Parts are frozen values without behaviour. A part may carry

- `item_id`, the native id of the item it came from (parts that share one belong to one native item);
- `extra`, the fields of its own dialect that have no home here; only an encoder of that dialect writes them back;
- `cache`, a cache breakpoint (`cache_control`), which crosses dialects.

Opaque JSON is `Raw`, the bytes as they came. As JSON a part leaves out what has its default: a default that changes
changes what was stored before.
"""

from typing import Literal, assert_never

from msgspec import Struct

from dragoman._json import Raw

__all__ = (
    "CLIENT_KINDS",
    "Annotation",
    "Call",
    "CallKind",
    "Dialect",
    "Executor",
    "Extra",
    "Media",
    "MediaKind",
    "Opaque",
    "Part",
    "PartStatus",
    "Reasoning",
    "Refusal",
    "Result",
    "Seal",
    "SealKind",
    "Text",
)

Dialect = Literal["chat", "responses", "messages", "codex"]

CallKind = Literal[
    "function",
    "custom",
    "local_shell",
    "shell",
    "apply_patch",
    "computer",
    "tool_search",
    "web_search",
    "web_fetch",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
    "mcp_approval",
    "mcp_list_tools",
    "text_editor",
    "bash",
    "memory",
    "other",
]

CLIENT_KINDS: frozenset[CallKind] = frozenset(
    {
        "local_shell",
        "shell",
        "apply_patch",
        "computer",
        "tool_search",
        "text_editor",
        "bash",
        "memory",
    }
)
"""Built-in kinds that the client runs itself; with a schema of their own they can be offered as functions."""

Executor = Literal["client", "provider", "gateway"]
PartStatus = Literal["in_progress", "completed", "incomplete", "failed"]
MediaKind = Literal["image", "audio", "video", "file"]
SealKind = Literal["signature", "redacted", "encrypted", "thought"]


class Extra(Struct, frozen=True, gc=False, omit_defaults=True):
    """Fields one dialect has and the vocabulary has not. Other dialects' encoders must not look inside."""

    dialect: Dialect
    fields: dict[str, Raw]


class Seal(Struct, frozen=True, gc=False, omit_defaults=True):
    """An opaque proof that must go back, unchanged, to the provider family that made it. Never logged.

    `signature` and `redacted` are Anthropic's (thinking signature, redacted thinking), `encrypted` is OpenAI's
    encrypted reasoning, `thought` is Google's thought signature as Chat servers carry it (`extra_content`, JSON text).
    `item_id` is the item it was made for, where it travels without that item: OpenAI verifies the two together.
    """

    kind: SealKind
    data: str
    item_id: str | None = None


class Annotation(Struct, frozen=True, gc=False, omit_defaults=True):
    """A citation on text. `raw` is exact in its own dialect; the other fields are what crosses dialects."""

    dialect: Dialect
    raw: Raw
    url: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None


class Text(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part", tag="text"
):
    """Words of the model, or of a message, with their citations."""

    text: str = ""
    annotations: tuple[Annotation, ...] = ()
    logprobs: Raw | None = None
    status: PartStatus = "completed"
    item_id: str | None = None
    item_extra: Extra | None = None
    cache: Raw | None = None
    extra: Extra | None = None


class Refusal(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part", tag="refusal"
):
    """Words of the model where it says that it will not."""

    text: str = ""
    logprobs: Raw | None = None
    status: PartStatus = "completed"
    item_id: str | None = None
    item_extra: Extra | None = None
    extra: Extra | None = None


class Reasoning(
    Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    tag_field="part",
    tag="reasoning",
):
    """A model's thinking. Dialects that do not distinguish summaries from the thoughts themselves use `summary`."""

    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    seals: tuple[Seal, ...] = ()
    status: PartStatus = "completed"
    item_id: str | None = None
    cache: Raw | None = None
    extra: Extra | None = None


class Call(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part", tag="call"
):
    """A request to run a tool.

    `input` is source text, never parsed on the way through: JSON for functions, free text for `custom`, the JSON of
    the native action for the structured kinds (shell, computer, apply_patch, searches). `call_id` pairs it with its
    result; `item_id` is only the item's identity. `status` is `completed` only when the protocol closed the call.
    """

    call_id: str
    name: str
    input: str = ""
    kind: CallKind = "function"
    namespace: str | None = None
    executor: Executor = "client"
    status: PartStatus = "completed"
    seals: tuple[Seal, ...] = ()
    item_id: str | None = None
    cache: Raw | None = None
    extra: Extra | None = None


class Media(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part", tag="media"
):
    """An image, sound or file: exactly one of `data` (base64), `url` and `file_id` in a well-formed value."""

    kind: MediaKind
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    detail: str | None = None
    transcript: str | None = None
    status: PartStatus = "completed"
    item_id: str | None = None
    cache: Raw | None = None
    extra: Extra | None = None


class Opaque(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part", tag="opaque"
):
    """An item, block or content part of one dialect that has no meaning here, whole."""

    dialect: Dialect
    type: str
    raw: Raw
    item_id: str | None = None


class Result(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part", tag="result"
):
    """What a tool returned. `call_id` names the call; `kind` is the kind of that call where the wire says it."""

    call_id: str
    content: "tuple[Text | Media | Opaque, ...]" = ()
    is_error: bool = False
    kind: CallKind = "function"
    name: str | None = None
    executor: Executor = "client"
    status: PartStatus = "completed"
    item_id: str | None = None
    cache: Raw | None = None
    extra: Extra | None = None


Part = Text | Refusal | Reasoning | Call | Result | Media | Opaque


def part_size(part: Part) -> int:
    """About how many characters a part holds, without writing it: its texts, input, data and seals."""
    match part:
        case Text() | Refusal():
            return len(part.text)
        case Call():
            return len(part.input)
        case Result():
            return sum(map(part_size, part.content))
        case Reasoning():
            texts = (*part.summary, *part.content, *(seal.data for seal in part.seals))
            return sum(map(len, texts))
        case Media():
            return len(part.data or "")
        case Opaque():
            return len(bytes(part.raw))
        case _:
            assert_never(part)
