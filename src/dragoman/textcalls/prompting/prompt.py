"""Offers tools in the prompt to models without tool calls, in a format that the scanner reads back.

A request with tools becomes one without: the tools are described in the system text, and calls and results of the
conversation become text. The scanner of the same format, given `tools`, finds the calls that the model then writes, and
`names` restores the client's names. This module does not know the upstream, its dialect or its limits.

Calls and results are paired and in order before they are written, so formats without ids lose nothing. Calls that a
provider ran, and their results, stay unchanged: the upstream's dialect has rules for them. A tool that only a provider
can run, or one without a schema, cannot be described as a function and stays in the request.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, structs

from dragoman._json import as_object
from dragoman.core.aliases import NameMap, ToolKey, flat_name
from dragoman.core.freeform import wrap_input, wrapper_tool
from dragoman.core.loaded_tools import LoadedTools, in_order_of_loading
from dragoman.core.losses import REQUEST_LOSSES, LossBook, LossRule, LossTable
from dragoman.core.pairing import merge_turns, pair_results
from dragoman.core.schemas import EMPTY_SCHEMA
from dragoman.errors import ConfigError, MalformedJson
from dragoman.model.outcome import Loss, LossAction, Repair
from dragoman.model.parts import (
    CLIENT_KINDS,
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Result,
    Text,
)
from dragoman.model.request import Namespace, Request, Tool, ToolChoice, ToolRef, Turn
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.prompting.formats import PROMPTS
from dragoman.textcalls.prompting.wordings import ToolPrompt
from dragoman.textcalls.prompting.writers import (
    LEGACY_MARKS,
    PromptCall,
    PromptResult,
    WriteContext,
)

LOSSES: LossTable = {
    # --- tools
    "custom_tool": LossRule(
        "a free-text tool is offered as a function with one string, `input`", "carry"
    ),
    "grammar": LossRule(
        "a grammar is described in the tool's description; nothing enforces it", "carry"
    ),
    "strict": LossRule(
        "nothing makes a model that writes its calls as text follow a schema", "drop"
    ),
    "namespace": LossRule("text formats have no namespaces; a tool is namespace__name", "carry"),
    "call_kind": LossRule(
        "text formats have functions only; the tool's action is written as arguments", "carry"
    ),
    "cache_control": LossRule("a cache breakpoint of a tool has no place in a prompt", "drop"),
    "tool_fields": LossRule("a field of a tool that a prompt cannot express", "drop"),
    "tool_choice": LossRule(
        "the prompt asks for the chosen tools; the model may not obey", "carry"
    ),
    "parallel_calls": LossRule(
        "the prompt asks for one call at a time; the model may not obey", "carry"
    ),
    "response_format": LossRule(
        "an upstream that enforces a response format prevents its model from writing calls", "carry"
    ),
    # --- the conversation
    "call_input": LossRule(
        "input that is no JSON object is written as the text of an argument `input`", "carry"
    ),
    "call_form": LossRule("the format has no unambiguous way to write this argument", "carry"),
    "result_form": LossRule(
        "a result contains the text with which the format ends its results", "carry"
    ),
    "result_media": LossRule("media of a result follow its text in the same turn", "carry"),
    "seal": LossRule("a signature of a call has no place in text", "drop"),
    "call_fields": LossRule("a field of a call or a result that text cannot express", "drop"),
    "tool_definition": REQUEST_LOSSES["tool_definition"],
    "stop": LossRule("there is no room for the format's own stop sequence", "drop"),
}


class Offering(Struct, frozen=True, kw_only=True):
    """tools: the tools that the prompt offers, as functions under their names in the text. names: the client's names.

    kept: tools that stay in the request. choice: the tool choice, if it is about a kept tool. text: the instruction; empty
    if no tool is offered.
    """

    tools: tuple[Tool, ...]
    names: NameMap
    kept: tuple[Tool, ...]
    choice: ToolChoice | None
    text: str


def plan_offering(request: Request, prompt: ToolPrompt, book: LossBook) -> Offering:
    named = tuple(tool for tool in request.tools if _is_describable(tool))
    kept = tuple(tool for tool in request.tools if not _is_describable(tool))
    names = NameMap.build(named, _used(request), prompt.names)
    choice = request.tool_choice
    allowed = _allowed(choice)
    offered: dict[str, Tool] = {}
    for index, tool in enumerate(request.tools):
        is_wanted = allowed is None or (tool.namespace, tool.name) in allowed
        if _is_describable(tool) and is_wanted:
            wire = names.wire(tool.name, tool.namespace)
            offered.setdefault(wire, _as_function(tool, wire, book, f"tools[{index}]"))
    tools = tuple(offered.values())
    text = ""
    if tools:
        lines = [prompt.describe_tools(tools)]
        lines += _about_namespaces(request.namespaces, named)
        lines += _about_choice(request, names, offered, book)
        text = "\n\n".join(lines)
    is_about_kept = choice is not None and choice.tool is not None and _is_one_of(choice.tool, kept)
    return Offering(
        tools=tools, names=names, kept=kept, choice=choice if is_about_kept else None, text=text
    )


def call_key(call: Call) -> ToolKey:
    """Return the namespace and name of a call. A call without a name has its kind as name."""
    return call.namespace, call.name or call.kind


def _is_describable(tool: Tool) -> bool:
    if tool.kind in ("function", "custom"):
        return True
    return tool.kind in CLIENT_KINDS and tool.schema is not None


def _used(request: Request) -> list[ToolKey]:
    return [
        call_key(part)
        for turn in request.turns
        for part in turn.parts
        if isinstance(part, Call) and part.executor == "client"
    ]


def _allowed(choice: ToolChoice | None) -> set[ToolKey] | None:
    """Return the only tools to offer; None: all of them."""
    match choice:
        case ToolChoice(mode="none"):
            return set()
        case ToolChoice(mode="allowed"):
            return {(ref.namespace, ref.name) for ref in choice.allowed}
        case _:
            return None


def _as_function(tool: Tool, wire: str, book: LossBook, where: str) -> Tool:
    if tool.kind == "custom":
        book.note("custom_tool", where, tool.name)
        if tool.grammar is not None:
            book.note("grammar", where, tool.grammar.syntax)
        tool = wrapper_tool(tool)
    elif tool.kind != "function":
        book.note("call_kind", where, tool.kind)
    if tool.namespace is not None:
        book.note("namespace", where, tool.namespace)
    if tool.strict:
        book.note("strict", where, tool.name)
    if tool.cache is not None:
        book.note("cache_control", where)
    fields = set(tool.extra.fields) - LEGACY_MARKS if tool.extra is not None else set[str]()
    if fields:
        book.note("tool_fields", where, ", ".join(sorted(fields)))
    return Tool(name=wire, description=tool.description or "", schema=tool.schema or EMPTY_SCHEMA)


def _about_namespaces(groups: Iterable[Namespace], tools: tuple[Tool, ...]) -> list[str]:
    """Return the client's descriptions of its groups of tools."""
    used = {tool.namespace for tool in tools}
    return [
        f"The functions whose names begin with `{flat_name('', group.name)}`: {group.description}"
        for group in groups
        if group.description and group.name in used
    ]


def _about_choice(
    request: Request, names: NameMap, offered: dict[str, Tool], book: LossBook
) -> list[str]:
    lines: list[str] = []
    choice = request.tool_choice
    if choice is not None:
        demand = _demand(choice, names, offered)
        if demand:
            book.note("tool_choice", "tool_choice", choice.mode)
            lines.append(demand)
    if request.parallel_calls is False:
        book.note("parallel_calls", "parallel_calls")
        lines.append("Make at most one function call in a reply.")
    return lines


def _demand(choice: ToolChoice, names: NameMap, offered: dict[str, Tool]) -> str:
    if choice.mode == "required" or (choice.mode == "allowed" and choice.required):
        return "This time you must call at least one function: do not reply without a call."
    if choice.mode != "tool" or choice.tool is None:
        return ""
    wire = names.wire(choice.tool.name, choice.tool.namespace)
    if wire not in offered:
        return ""
    return f"This time you must call the function `{wire}`, and no other: do not reply without that call."


def _is_one_of(ref: ToolRef, tools: tuple[Tool, ...]) -> bool:
    return any((tool.namespace, tool.name) == (ref.namespace, ref.name) for tool in tools)


# The separator of texts in one turn.
BETWEEN = "\n\n"


def write_turns(
    request: Request, prompt: ToolPrompt, names: NameMap, offers: Offers, book: LossBook
) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """Return the conversation with the client's calls and results as text, and the repairs. Without any, it is unchanged."""
    turns = request.turns
    if not any(becomes_text(part) for turn in turns for part in turn.parts):
        return turns, ()
    # If the upstream stores earlier turns, results may answer calls that are not here.
    paired, pairing = pair_results(turns, continues=request.previous_id is not None)
    merged, merging = merge_turns(paired)
    writer = _TurnWriter(prompt, names, offers, request.tools, book)
    result: list[Turn] = []
    for index, turn in enumerate(merged):
        where = f"turns[{index}]"
        if turn.role == "assistant":
            result.append(writer.assistant(turn, where))
        elif turn.role == "tool":
            result.append(writer.results(turn, where))
        elif turn.role == "user" and index and merged[index - 1].role == "tool":
            _join(result, turn)
        else:
            result.append(turn)
    return tuple(result), (*pairing, *merging)


def add_text(
    parts: tuple[Part, ...], text: str, between: str, cache: Breakpoint | None = None
) -> tuple[Part, ...]:
    """Return the parts followed by a text, joined to a last text part, because many servers accept only one."""
    last = parts[-1] if parts else None
    if isinstance(last, Text):
        # The model's text before its call keeps its own line break, so that the prompt matches the upstream's cache.
        is_apart = not last.text or last.text.endswith(between)
        joined = last.text + text if is_apart else f"{last.text}{between}{text}"
        return (*parts[:-1], structs.replace(last, text=joined, cache=cache or last.cache))
    return (*parts, Text(text=text, cache=cache))


def _join(turns: list[Turn], turn: Turn) -> None:
    """Join a user's message that follows results to their turn, because many chat templates expect alternating roles."""
    before = turns[-1]
    if turn.name is not None or before.role != "user":
        turns.append(turn)
        return
    first = turn.parts[0] if turn.parts else None
    if isinstance(first, Text) and first.text and isinstance(before.parts[-1], Text):
        earlier = before.parts[-1].text
        first = structs.replace(first, text=f"{earlier}{BETWEEN}{first.text}")
        parts: tuple[Part, ...] = (*before.parts[:-1], first, *turn.parts[1:])
    else:
        parts = (*before.parts, *turn.parts)
    turns[-1] = structs.replace(turn, parts=parts)


def becomes_text(part: Part) -> bool:
    """Return whether a part is a call or a result that becomes text."""
    return isinstance(part, (Call, Result)) and part.executor == "client"


class _TurnWriter:
    """Writes the calls and results of one conversation, and stores the number and name of each call."""

    def __init__(
        self,
        prompt: ToolPrompt,
        names: NameMap,
        offers: Offers,
        tools: tuple[Tool, ...],
        book: LossBook,
    ) -> None:
        self._prompt = prompt
        self._loaded = LoadedTools(tools, names, None, book, _note_fields)
        self._names = names
        self._offers = offers
        self._book = book
        self._calls: dict[str, PromptCall] = {}
        self._count = 0

    def assistant(self, turn: Turn, where: str) -> Turn:
        calls = [
            part for part in turn.parts if isinstance(part, Call) and part.executor == "client"
        ]
        if not calls:
            return turn
        written = [self._prompt_call(call, where) for call in calls]
        context = WriteContext(self._offers)
        text = self._prompt.write_calls(written, context)
        if context.ambiguities:
            self._book.note("call_form", where, "; ".join(context.ambiguities))
        rest = tuple(part for part in turn.parts if not becomes_text(part))
        cache = next((call.cache for call in reversed(calls) if call.cache is not None), None)
        parts = add_text(rest, text, "\n", cache)
        return structs.replace(turn, parts=parts)

    def _prompt_call(self, call: Call, where: str) -> PromptCall:
        namespace, name = call_key(call)
        if call.seals:
            self._book.note("seal", where, call.seals[0].kind)
        _note_fields(self._book, call.extra, where)
        arguments = call.input.strip() or "{}"
        if call.kind == "custom":
            arguments = wrap_input(call.input)
        elif not _is_object(arguments):
            self._book.note("call_input", where, name)
            arguments = wrap_input(call.input)
        wire = self._names.wire(name, namespace)
        written = PromptCall(wire, arguments, call.call_id, self._count)
        self._calls[call.call_id] = written
        self._count += 1
        return written

    def results(self, turn: Turn, where: str) -> Turn:
        """Return one user turn: all results as one text, then their media, then all other parts."""
        given: list[PromptResult] = []
        media: list[Part] = []
        others: list[Part] = []
        cache = turn.cache
        for index, part in enumerate(turn.parts):
            if isinstance(part, Result) and part.executor == "client":
                given.append(self._prompt_result(part, media, f"{where}.parts[{index}]"))
                cache = part.cache or cache
            else:
                others.append(part)
        if not given:
            return turn
        _note_fields(self._book, turn.extra, where)
        text = Text(text=self._prompt.results.write_results(given), cache=cache)
        return Turn(role="user", parts=(text, *media, *others))

    def _prompt_result(self, result: Result, media: list[Part], where: str) -> PromptResult:
        _note_fields(self._book, result.extra, where)
        pieces: list[str] = []
        for part in self._loaded.described(result, where):
            if isinstance(part, Text):
                pieces.append(part.text)
            else:
                media.append(part)
                self._book.note("result_media", where, _kind(part))
                pieces.append(f"[{_kind(part)} {len(media)} below]")
        text = BETWEEN.join(pieces)
        found = next((end for end in self._prompt.results.ends if end in text), None)
        if found is not None:
            self._book.note("result_form", where, found)
        call = self._calls.get(result.call_id)
        name = call.name if call is not None else result.name or ""
        number = call.number if call is not None else self._count
        return PromptResult(name, text, result.call_id, number, result.is_error)


def _note_fields(
    book: LossBook, extra: Extra | None, where: str, known: Collection[str] = ()
) -> None:
    fields = set(extra.fields) - LEGACY_MARKS - set(known) if extra is not None else set[str]()
    if fields:
        book.note("call_fields", where, ", ".join(sorted(fields)))


def _kind(part: Media | Opaque) -> str:
    return part.kind if isinstance(part, Media) else "attachment"


def _is_object(text: str) -> bool:
    try:
        as_object(text)
    except MalformedJson:
        return False
    return True


PROMPT_FORMATS: tuple[str, ...] = tuple(PROMPTS)
"""The formats in which tools can be prompted."""

# OpenAI accepts four stop sequences; other servers are not stricter.
MAX_STOPS = 4


class PromptedRequest(Struct, frozen=True, kw_only=True):
    """A request without tools, and what is needed to read the answer.

    tools: the tools that the prompt offers, as functions under the names in the text: the scanner looks for these.
    names: from the names in the text to the client's own.
    """

    request: Request
    tools: tuple[Tool, ...]
    names: NameMap
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()


def needs_prompting(request: Request) -> bool:
    """Return whether the request has tools, or earlier calls and results, to be written into the prompt."""
    return bool(request.tools) or any(
        becomes_text(part) for turn in request.turns for part in turn.parts
    )


def prompt_tools(
    request: Request, format_name: str, policy: Mapping[str, LossAction] | None = None
) -> PromptedRequest:
    """Return the request with its tools in the prompt.

    Raises:
        ConfigError: there is no such format. RequestRefused: the policy refuses a loss.
    """
    prompt = PROMPTS.get(format_name)
    if prompt is None:
        known = ", ".join(PROMPT_FORMATS)
        raise ConfigError(f"expected prompted_tools to be one of {known}, got {format_name!r}")
    book = LossBook(LOSSES, policy)
    request = in_order_of_loading(request)
    offering = plan_offering(request, prompt, book)
    offers = Offers(offering.tools)
    turns, repairs = write_turns(request, prompt, offering.names, offers, book)
    if offering.text:
        turns = _with_head(turns, offering.text)
    return PromptedRequest(
        request=_without_tools(request, offering, prompt, turns, book),
        tools=offering.tools,
        names=offering.names,
        losses=book.losses,
        repairs=repairs,
    )


def _without_tools(
    request: Request,
    offering: Offering,
    prompt: ToolPrompt,
    turns: tuple[Turn, ...],
    book: LossBook,
) -> Request:
    stops = request.stop
    if offering.text:
        if request.response_format is not None and request.response_format.kind != "text":
            book.note("response_format", "response_format", request.response_format.kind)
        missing = tuple(stop for stop in prompt.stops if stop not in stops)
        if len(stops) + len(missing) <= MAX_STOPS:
            stops += missing
        else:
            book.note("stop", "stop")
    return structs.replace(
        request,
        turns=turns,
        tools=offering.kept,
        namespaces=(),
        tool_choice=offering.choice,
        parallel_calls=request.parallel_calls if offering.kept else None,
        stop=stops,
    )


def _with_head(turns: tuple[Turn, ...], text: str) -> tuple[Turn, ...]:
    """Add the instruction to the end of the first system text, where templates put it, or as a new system text."""
    if turns and turns[0].role in ("system", "developer"):
        parts = add_text(turns[0].parts, text, BETWEEN)
        return (structs.replace(turns[0], parts=parts), *turns[1:])
    return (Turn(role="system", parts=(Text(text=text),), head=True), *turns)
