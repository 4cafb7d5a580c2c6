"""Encodes a request as the three things that `codex app-server` gets: a thread, a turn, and the earlier conversation.

    {"thread": {…of thread/start…}, "turn": {…of turn/start…}, "items": […of thread/inject_items…]}

No client sends this JSON, and it is not sent as a whole: `upstream.codex` sends the three parts, or finds the turn that
the last items continue. `SWITCHED_OFF` keeps Codex's own tools and prompts out of a thread.

Names: besides its own tools (`losses.BUILTIN_NAMES`) Codex reserves every name that begins with `mcp__` for its MCP servers,
and refuses a whole thread for such a name. Clients use such names for the tools of their own MCP servers: `mcp__files__read`
is offered as `mcp_files__read`, and is `mcp__files__read` again in the answer.

Tools are `dynamicTools` of a thread, fixed for its life, and all are functions: a free-form tool becomes a function with one
string, and a namespace becomes part of the name.

Items are those of the Responses API that Codex knows. They have no ids: Codex assigns its own, and without ids the same
conversation is the same bytes in every request, by which a paused turn recognises the request that continues it. Only
sealed reasoning keeps its id, because the seal is bound to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from msgspec import structs

from dragoman._json import dumps_document
from dragoman.core.aliases import NameLimits, NameMap, ToolKey, alias_id, is_named
from dragoman.core.freeform import wrap_input, wrapper_tool
from dragoman.core.loaded_tools import LoadedTools, in_order_of_loading
from dragoman.core.losses import (
    BUILTIN_FIELDS,
    LossBook,
    instruction_texts,
    note_namespaces,
    note_opaque,
    note_request_fields,
)
from dragoman.core.media import image_url
from dragoman.core.pairing import mark_error, pair_results
from dragoman.core.request_settings import effort_from_budget, note_include, unsaid_noter
from dragoman.core.schemas import fix_schema
from dragoman.core.seals import seal_to_encrypted, split_family
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.codex.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import (
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from dragoman.model.request import (
    CacheSettings,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    Turn,
)

_Item = dict[str, object]

_INSTRUCTING = frozenset({"system", "developer"})


def split_instructions(turns: Sequence[Turn], book: LossBook) -> tuple[str, list[tuple[int, Turn]]]:
    """Return the text before the conversation, and the conversation with the numbers of its turns."""
    texts: list[str] = []
    rest: list[tuple[int, Turn]] = []
    for number, turn in enumerate(turns):
        if not turn.head and (rest or turn.role not in _INSTRUCTING or not _is_text(turn)):
            rest.append((number, turn))
            continue
        where = f"turns[{number}]"
        texts += instruction_texts(turn, where, book, note_foreign)
    return "\n\n".join(texts), rest


def _is_text(turn: Turn) -> bool:
    return all(isinstance(part, Text) for part in turn.parts)


class ThreadItemWriter:
    """Writes the items of one request."""

    def __init__(
        self, names: NameMap, target: Target, book: LossBook, tools: tuple[Tool, ...] = ()
    ) -> None:
        self._loaded = LoadedTools(tools, names, "codex", book, note_foreign)
        self._names = names
        self._ids = target.ids
        self._book = book

    def write(self, turns: Sequence[tuple[int, Turn]]) -> list[_Item]:
        out: list[_Item] = []
        for number, turn in turns:
            where = f"turns[{number}]"
            note_foreign(self._book, turn.extra, where)
            if turn.cache is not None:
                self._book.note("cache_control", where)
            if turn.name is not None:
                self._book.note("message_name", where, turn.name)
            self._write_turn(turn, where, out)
        return out

    def _write_turn(self, turn: Turn, where: str, out: list[_Item]) -> None:
        content: list[_Item] = []
        for part in turn.parts:
            self._inspect(part, where)
            match part:
                case Text() | Refusal():
                    content.append(_text(turn, part.text))
                case Media():
                    content += self._media(turn, part, where)
                case Opaque() if part.text is not None:
                    text = note_opaque(self._book, "opaque_part", where, part)
                    content += [] if text is None else [_text(turn, text.text)]
                case Reasoning() | Call() | Result() | Opaque():
                    item = self._item(part, where)
                    if item is not None:
                        out += _message(turn, content)
                        content = []
                        out.append(item)
                case _:
                    assert_never(part)
        out += _message(turn, content)

    def _inspect(self, part: Part, where: str) -> None:
        if isinstance(part, Opaque):
            return
        note_foreign(self._book, part.extra, where)
        if not isinstance(part, Refusal) and part.cache is not None:
            self._book.note("cache_control", where)
        if isinstance(part, Text):
            if part.annotations:
                self._book.note("annotation", where)
            if part.logprobs is not None:
                self._book.note("logprobs", where)
        if isinstance(part, Result):
            for each in part.content:
                self._inspect(each, where)

    def _media(self, turn: Turn, media: Media, where: str) -> list[_Item]:
        """Return an image. If the policy carries other media, they become text in brackets."""
        image = None if turn.role == "assistant" else _image(media)
        if image is not None:
            return [image]
        code = "audio_input" if media.kind == "audio" else "media_input"
        if turn.role == "assistant":
            code = "assistant_media"
        action = self._book.note(code, where, media.media_type or media.kind)
        return [_text(turn, f"[{media.kind}]")] if action == "carry" else []

    def _item(self, part: Reasoning | Call | Result | Opaque, where: str) -> _Item | None:
        match part:
            case Reasoning():
                return self._reasoning(part, where)
            case Call():
                return self._call(part, where)
            case Result():
                return self._result(part, where)
            case Opaque():
                if part.tools:
                    self._loaded.leave_out(part, where)
                else:
                    note_opaque(self._book, "opaque_part", where, part)
                return None
            case _:
                assert_never(part)

    def _reasoning(self, part: Reasoning, where: str) -> _Item | None:
        own, foreign = split_family(part.seals, "openai")
        if foreign:
            self._book.note("foreign_seal", where)
        if not own:
            if not foreign:
                self._book.note("reasoning_text", where)
            return None
        item: _Item = {"type": "reasoning"}
        bound = next((seal.item_id for seal in own if seal.item_id is not None), part.item_id)
        if bound is not None and bound.startswith("rs_"):
            item["id"] = bound
        item["summary"] = [{"type": "summary_text", "text": text} for text in part.summary]
        item["content"] = None
        item["encrypted_content"] = seal_to_encrypted(own)
        return item

    def _call(self, part: Call, where: str) -> _Item | None:
        if part.executor == "provider":
            self._book.note("provider_call", where, part.name)
            return None
        if part.seals:
            self._book.note("call_seal", where, part.name)
        return {
            "type": "function_call",
            "name": self._names.wire(part.name, part.namespace),
            "arguments": wrap_input(part.input) if part.kind == "custom" else part.input or "{}",
            "call_id": alias_id(part.call_id, self._ids),
        }

    def _result(self, part: Result, where: str) -> _Item | None:
        if part.executor == "provider":
            self._book.note("provider_result", where, part.kind)
            return None
        if part.is_error:
            self._book.note("error_flag", where)
        return {
            "type": "function_call_output",
            "call_id": alias_id(part.call_id, self._ids),
            "output": self._output(part, where),
        }

    def _output(self, result: Result, where: str) -> object:
        """Return a string if the content is a single text, else a list of parts, as Codex writes it."""
        parts: list[_Item] = []
        for part in self._loaded.described(result, where):
            match part:
                case Text():
                    parts.append({"type": "input_text", "text": part.text})
                case Media():
                    image = _image(part)
                    if image is None:
                        self._book.note("media_input", where, part.media_type or part.kind)
                    parts.append(image or {"type": "input_text", "text": f"[{part.kind}]"})
                case Opaque():
                    text = note_opaque(self._book, "opaque_part", where, part)
                    if text is not None:
                        parts.append({"type": "input_text", "text": text.text})
                case _:
                    assert_never(part)
        if result.is_error:
            first = parts[0] if parts and parts[0]["type"] == "input_text" else None
            if first is None:
                parts.insert(0, {"type": "input_text", "text": mark_error("")})
            else:
                first["text"] = mark_error(str(first["text"]))
        if not parts:
            return ""
        is_single = len(parts) == 1 and parts[0]["type"] == "input_text"
        return parts[0]["text"] if is_single else parts


def _message(turn: Turn, content: list[_Item]) -> list[_Item]:
    if not content:
        return []
    # Content of a tool turn that is not a result can only be sent as a user's message.
    roles = {"tool": "user", "system": "developer"}
    role = roles.get(turn.role, turn.role)
    return [{"type": "message", "role": role, "content": content}]


def _text(turn: Turn, text: str) -> _Item:
    return {"type": "output_text" if turn.role == "assistant" else "input_text", "text": text}


def _image(media: Media) -> _Item | None:
    url = image_url(media) if media.kind == "image" else None
    if url is None:
        return None
    out: _Item = {"type": "input_image", "image_url": url}
    if media.detail is not None:
        out["detail"] = media.detail
    return out


RESERVED_PREFIX = "mcp__"
_REPLACEMENT = "mcp_"


def wire_names(tools: tuple[Tool, ...], used: Sequence[ToolKey], limits: NameLimits) -> NameMap:
    """Return a wire name for every tool, and for every (namespace, name) that calls in the history use."""
    names = NameMap.build(tools, used, limits)
    reserved = {key: wire for key, wire in names.wires.items() if wire.startswith(RESERVED_PREFIX)}
    if not reserved:
        return names
    taken = set(names.wires.values())
    changed: dict[ToolKey, str] = {}
    for key, wire in reserved.items():
        changed[key] = _free(wire, taken, limits.max_length)
        taken.add(changed[key])
    wires = names.wires | changed
    return structs.replace(
        names,
        wires=wires,
        origins={
            (None, wires[key]): names.origins[None, wire] for key, wire in names.wires.items()
        },
        plain=names.plain.difference(reserved.values()),
        is_same=False,
    )


def _free(wire: str, taken: set[str], limit: int) -> str:
    """Return the name with one underscore less, and with a number if another tool has that name."""
    plain = _REPLACEMENT + (wire.removeprefix(RESERVED_PREFIX).lstrip("_") or "tool")
    name, number = plain, 1
    while name in taken:
        number += 1
        tail = f"_{number}"
        name = plain[: limit - len(tail)] + tail
    return name


def offer_tools(
    tools: Iterable[Tool], choice: ToolChoice | None, names: NameMap, target: Target, book: LossBook
) -> tuple[list[_Item], list[Repair]]:
    """Return the tools that may be called, each once, and the repairs."""
    allowed = _allowed(choice)
    offered: list[_Item] = []
    repairs: list[Repair] = []
    seen: set[ToolKey] = set()
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        key = (tool.namespace, tool.name)
        if not is_named(tool):
            book.note("builtin_tool", where, tool.variant or tool.kind)
        elif allowed is not None and key not in allowed:
            continue
        elif key in seen:
            repairs.append(Repair("duplicate_tool", where, tool.name))
        else:
            seen.add(key)
            offered.append(_function(tool, where, names, target, book))
    _note_choice(choice, book)
    return offered, repairs


def _allowed(choice: ToolChoice | None) -> set[ToolKey] | None:
    """Return the only tools to offer; None for all."""
    match choice:
        case ToolChoice(mode="none"):
            return set()
        case ToolChoice(mode="tool", tool=ref) if ref is not None:
            return {(ref.namespace, ref.name)}
        case ToolChoice(mode="allowed", allowed=refs):
            return {(ref.namespace, ref.name) for ref in refs}
        case _:
            return None


def _note_choice(choice: ToolChoice | None, book: LossBook) -> None:
    if choice is not None:
        note_foreign(book, choice.extra, "tool_choice", known=("type", "name", "tools"))
    if choice is not None and (choice.mode in ("required", "tool") or choice.required):
        book.note("tool_choice", "tool_choice", choice.mode)


def _function(
    tool: Tool, where: str, names: NameMap, target: Target, book: LossBook
) -> dict[str, object]:
    if tool.namespace is not None:
        book.note("namespace", where, tool.namespace)
    if tool.cache is not None:
        book.note("cache_control", where)
    note_foreign(book, tool.extra, where, BUILTIN_FIELDS if tool.variant else ())
    name = names.wire(tool.name, tool.namespace)
    if tool.kind == "custom":
        book.note("custom_tool", where, tool.name)
        tool = wrapper_tool(tool)
    elif tool.kind != "function":
        book.note("call_kind", where, tool.kind)
    schema, _, notes = fix_schema(tool.schema, target.schemas)
    if tool.strict:
        notes = (*notes, "not strict")
    if notes:
        book.note("schema", where, "; ".join(notes))
    return {
        "type": "function",
        "name": name,
        # Codex requires a description, even an empty one.
        "description": tool.description or "",
        "inputSchema": schema,
    }


CONFIGURED_MODELS = frozenset({"", "codex", "default"})
"""Model names that stand for the model in Codex's configuration."""

_OFF = (
    *("features.shell_tool", "features.unified_exec", "features.view_image", "features.goals"),
    *("features.multi_agent", "features.apps", "features.plugins", "features.tool_suggest"),
    *("features.skill_search", "features.sleep_tool", "features.image_generation", "features.hooks"),
    *("tools.experimental_request_user_input.enabled", "tools.update_plan.enabled"),
    *("include_environment_context", "include_permissions_instructions", "include_apps_instructions"),
    *("include_collaboration_mode_instructions", "skills.include_instructions", "skills.bundled.enabled"),
)  # fmt: skip

SWITCHED_OFF: Mapping[str, object] = {
    **dict.fromkeys(_OFF, False),
    "web_search": "disabled",
    "project_doc_max_bytes": 0,
    # A program that Codex would start at the end of each turn.
    "notify": [],
    # The client shortens a history that is too long; Codex would compact it unasked, with a request of its own.
    "model_auto_compact_token_limit": 9_000_000_000,
    # A thread without a listener is unloaded at once, not after half an hour.
    "thread_unload_delay_secs": 0,
}
"""Settings of a thread, by their dotted names, that let only the client's tools and texts reach the model."""

_TIERS = frozenset({"priority", "flex", "fast"})
# Tiers that ask for the default behaviour.
_IDLE_TIERS = frozenset({None, "auto", "default"})
_SUMMARIES = frozenset({"auto", "concise", "detailed", "none"})
_VERBOSITIES = frozenset({"low", "medium", "high"})
# Codex requests it itself and sends it in its raw items.
_INCLUDED = frozenset({"reasoning.encrypted_content"})


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """Encode the request for an app-server.

    Raises:
        RequestRefused: the policy refuses to drop something.
    """
    book = LossBook(LOSSES, policy)
    note_request_fields(book, request.extra)
    note_namespaces(book, request.namespaces, note_foreign)
    request = in_order_of_loading(request)
    turns, pairing = pair_results(request.turns)
    used = [
        (part.namespace, part.name)
        for turn in turns
        for part in turn.parts
        if isinstance(part, Call) and part.executor == "client"
    ]
    names = wire_names(tuple(filter(is_named, request.tools)), used, target.names)
    instructions, conversation = split_instructions(turns, book)
    tools, repairs = offer_tools(request.tools, request.tool_choice, names, target, book)
    thread: dict[str, object] = {"baseInstructions": instructions, "dynamicTools": tools}
    if request.model not in CONFIGURED_MODELS:
        thread["model"] = request.model
    if request.verbosity in _VERBOSITIES:
        thread["config"] = {"model_verbosity": request.verbosity}
    elif request.verbosity is not None:
        book.note("verbosity", "verbosity", request.verbosity)
    body: dict[str, object] = {
        "thread": thread,
        "turn": _turn(request, book),
        "items": ThreadItemWriter(names, target, book, request.tools).write(conversation),
    }
    if request.parallel_calls is False:
        body["serial"] = True
    _note_unsaid(request, book)
    return EncodedRequest(
        dumps_document(body), names, book.losses, (*pairing, *repairs), request.stop
    )


def _turn(request: Request, book: LossBook) -> dict[str, object]:
    turn: dict[str, object] = {}
    if request.service_tier in _TIERS:
        turn["serviceTier"] = request.service_tier
    elif request.service_tier not in _IDLE_TIERS:
        book.note("service_tier", "service_tier", request.service_tier or "")
    if request.reasoning is not None:
        turn |= _reasoning(request.reasoning, book)
    if request.response_format is not None:
        turn |= _format(request.response_format, book)
    return turn


def _reasoning(settings: ReasoningSettings, book: LossBook) -> dict[str, object]:
    turn: dict[str, object] = {}
    effort = settings.effort
    if effort is None and settings.budget is not None:
        book.note("reasoning_settings", "reasoning", f"{settings.budget} tokens")
        effort = effort_from_budget(settings.budget)
    if effort is None and settings.enabled is False:
        effort = "none"
    if effort is not None:
        turn["effort"] = effort
    if settings.summary in _SUMMARIES:
        turn["summary"] = settings.summary
    elif settings.summary is not None:
        book.note("reasoning_settings", "reasoning.summary", settings.summary)
    note_foreign(book, settings.extra, "reasoning")
    return turn


def _format(form: ResponseFormat, book: LossBook) -> dict[str, object]:
    note_foreign(book, form.extra, "response_format")
    if form.kind == "json_schema" and form.schema is not None:
        unsaid = [
            name for name in ("name", "description", "strict") if getattr(form, name) is not None
        ]
        if unsaid:
            book.note("response_format", "response_format", ", ".join(unsaid))
        return {"outputSchema": form.schema}
    if form.kind != "text":
        book.note("response_format", "response_format", form.kind)
    return {}


_note_absent = unsaid_noter(
    {
        "cache_key": ("cache_key", "prompt_cache_key"),
        "frequency_penalty": ("frequency_penalty", "frequency_penalty"),
        "logit_bias": ("logit_bias", "logit_bias"),
        "max_tokens": ("max_tokens", "max_tokens"),
        "metadata": ("metadata", "metadata"),
        "presence_penalty": ("presence_penalty", "presence_penalty"),
        "previous_id": ("previous_response", "previous_response_id"),
        "seed": ("seed", "seed"),
        "store": ("store", "store"),
        "temperature": ("temperature", "temperature"),
        "top_k": ("top_k", "top_k"),
        "top_p": ("top_p", "top_p"),
        "user": ("user", "user"),
        "safety_id": ("user", "safety_identifier"),
        "logprobs": ("logprobs", "logprobs"),
        "top_logprobs": ("logprobs", "top_logprobs"),
    }
)


def _note_cache(settings: CacheSettings, book: LossBook) -> None:
    if settings.mode is not None or settings.ttl is not None or settings.extra is not None:
        book.note("cache_settings", "prompt_cache_options")
    if settings.retention is not None:
        book.note("cache_settings", "prompt_cache_retention")


def _note_unsaid(request: Request, book: LossBook) -> None:
    _note_absent(request, book)
    if request.cache is not None:
        _note_cache(request.cache, book)
    if request.choices is not None and request.choices > 1:
        book.note("choices", "n", str(request.choices))
    note_include(request, book, given=_INCLUDED)
