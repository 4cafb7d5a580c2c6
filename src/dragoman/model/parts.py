"""The parts of an answer and of a conversation.

Parts are frozen values without behaviour. A part may have

- `item_id`, the native id of the item that it was decoded from (parts with the same `item_id` belong to one item);
- `extra`, the fields of its own dialect that the vocabulary lacks; only an encoder of that dialect writes them back;
- `cache`, a cache breakpoint, which crosses dialects.

Opaque JSON is `Raw`: the bytes as received. The JSON of a part omits fields that have their default value; to change
a default would change the meaning of stored parts.
"""

from typing import Literal, assert_never

from msgspec import Struct

from dragoman._json import Raw

__all__ = (
    "CLIENT_KINDS",
    "Annotation",
    "Breakpoint",
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
"""Built-in kinds that the client runs itself; each has a schema and can be offered as a function."""

Executor = Literal["client", "provider", "gateway"]
PartStatus = Literal["in_progress", "completed", "incomplete", "failed"]
MediaKind = Literal["image", "audio", "video", "file"]
SealKind = Literal["signature", "redacted", "encrypted", "thought"]


class Extra(Struct, frozen=True, gc=False, omit_defaults=True):
    """Fields of one dialect that the vocabulary lacks. Encoders of other dialects must not read them."""

    dialect: Dialect
    fields: dict[str, Raw]


class Seal(Struct, frozen=True, gc=False, omit_defaults=True):
    """A signature or encrypted reasoning that must go back, unchanged, to the provider family that made it. Never logged.

    `signature` and `redacted` are Anthropic's (thinking signature, redacted thinking), `encrypted` is OpenAI's
    encrypted reasoning, `thought` is Google's thought signature as Chat servers carry it (`extra_content`, JSON text).
    `item_id` is the id of the sealed item, set where the seal is sent without that item: OpenAI verifies both together.
    """

    kind: SealKind
    data: str
    item_id: str | None = None


class Annotation(Struct, frozen=True, gc=False, omit_defaults=True):
    """A citation on text. `raw` is exact in its own dialect; the other fields cross dialects."""

    dialect: Dialect
    raw: Raw
    url: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None


class Breakpoint(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The end of a part of the prompt that the provider should cache.

    ttl: how long, in the client's words (`5m`, `30m`, `1h`); None: as long as the request or the provider says.
    alone: the client places all breakpoints itself, and none is to be added. extra: the whole object, if it says more.
    """

    ttl: str | None = None
    alone: bool = False
    extra: Extra | None = None


class _Part(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part"):
    pass


class Text(_Part, frozen=True, kw_only=True, tag="text"):
    """Text of the model, or of a message, with its citations."""

    text: str = ""
    annotations: tuple[Annotation, ...] = ()
    logprobs: Raw | None = None
    status: PartStatus = "completed"
    item_id: str | None = None
    item_extra: Extra | None = None
    cache: Breakpoint | None = None
    extra: Extra | None = None


class Refusal(_Part, frozen=True, kw_only=True, tag="refusal"):
    """Text with which the model refuses the request."""

    text: str = ""
    logprobs: Raw | None = None
    status: PartStatus = "completed"
    item_id: str | None = None
    item_extra: Extra | None = None
    extra: Extra | None = None


class Reasoning(_Part, frozen=True, kw_only=True, tag="reasoning"):
    """The reasoning of a model. Dialects that do not distinguish summaries from the reasoning itself use `summary`."""

    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    seals: tuple[Seal, ...] = ()
    status: PartStatus = "completed"
    item_id: str | None = None
    cache: Breakpoint | None = None
    extra: Extra | None = None


class Call(_Part, frozen=True, kw_only=True, tag="call"):
    """A request to run a tool.

    `input` is source text that the gateway passes on without parsing: JSON for functions, free text for `custom`, the
    JSON of the native action for the structured kinds (shell, computer, apply_patch, searches). `call_id` pairs the
    call with its result; `item_id` only identifies the item. `status` is `completed` only if the protocol closed the call.
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
    cache: Breakpoint | None = None
    extra: Extra | None = None


class Media(_Part, frozen=True, kw_only=True, tag="media"):
    """An image, sound or file. A well-formed value has exactly one of `data` (base64), `url` and `file_id`."""

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
    cache: Breakpoint | None = None
    extra: Extra | None = None


class Opaque(_Part, frozen=True, kw_only=True, tag="opaque"):
    """A whole item, block or content part of one dialect that the vocabulary does not cover.

    `tools`: the tools (namespace and name) that it makes available to the model. The request declares them. `extra`: if it
    has tools, its fields beside them. `text`: what it says, for dialects that have no such part; None if that is not text.
    """

    dialect: Dialect
    type: str
    raw: Raw
    item_id: str | None = None
    tools: tuple[tuple[str | None, str], ...] = ()
    extra: Extra | None = None
    text: str | None = None


class Result(_Part, frozen=True, kw_only=True, tag="result"):
    """The result of a tool call. `call_id` names the call; `kind` is the kind of the call where the wire states it."""

    call_id: str
    content: "tuple[Text | Media | Opaque, ...]" = ()
    is_error: bool = False
    kind: CallKind = "function"
    name: str | None = None
    executor: Executor = "client"
    status: PartStatus = "completed"
    item_id: str | None = None
    cache: Breakpoint | None = None
    extra: Extra | None = None


Part = Text | Refusal | Reasoning | Call | Result | Media | Opaque


def part_size(part: Part) -> int:
    """The approximate number of characters in a part (texts, input, data, seals), without encoding it."""
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
