"""Composes the stand-in's answer: takes a request and a scenario, returns a whole answer (an Outcome). Pure.

The rules, in order:

1. A refusal, if the scenario is one.
2. Calls, if tools may be called and either the tool choice demands a call or too few results have come back (the scenario
   says how many rounds). A tool whose name the user's words mention is called; else what does the task of a coding agent
   (`tasks`); else a tool whose description they mention, or the first that looks harmless. A greeting demands no call.
3. If results have come back: a text that quotes them all.
4. A JSON text if the request wants one.
5. A text that quotes the user.

Then stop sequences cut the text, and the token limit cuts the last part.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import groupby

from msgspec import Struct, structs

from dragoman._json import dumps, raw
from dragoman.core.ids import Minter
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Choice, FinishReason, Outcome, Usage
from dragoman.model.parts import (
    Call,
    Dialect,
    Extra,
    Media,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
    part_size,
)
from dragoman.model.request import ReasoningSettings, Request, Tool, Turn
from dragoman.obsidian.blocks import to_obsidian_xml
from dragoman.upstream.rehearsal.arguments import value_for
from dragoman.upstream.rehearsal.scenarios import Scenario
from dragoman.upstream.rehearsal.tasks import (
    GREETING,
    NOTICE,
    PlannedCall,
    Task,
    ToolResult,
    find_task,
    first_call,
    second_call,
    summary,
)
from dragoman.upstream.rehearsal.tools import (
    NAME_WORD,
    call_input,
    call_kind,
    call_text,
    callable_tools,
    grow,
    is_forced,
    rank,
)
from dragoman.upstream.rehearsal.words import UserWords, read_words

# Quotations are cut to this many characters: results may be whole files.
MAX_QUOTE = 4000
MAX_THOUGHT = 80
# Constant, so that equal requests get equal bytes: the first second of 2025, UTC.
CREATED = 1_735_689_600

# OpenAI's own limit on `n`.
MAX_CHOICES = 128

_RESPONSE_PREFIXES: dict[Dialect, str] = {
    "chat": "chatcmpl-",
    "responses": "resp_",
    "messages": "msg_",
}
_REFUSAL = "I rehearse a refusal: I will not help with that."
_PREAMBLE = "Let me look that up."


class _Composer:
    """Composes one answer."""

    def __init__(self, request: Request, dialect: Dialect, scenario: Scenario, seed: str) -> None:
        self._request = request
        self._dialect: Dialect = dialect
        self._scenario = scenario
        self.mint = Minter(seed)
        self._situation: ConversationState = read_situation(request)
        self._words: UserWords = read_words(self._situation.said)
        self._tools = callable_tools(request, dialect)
        self._task: Task | None = self._find_task()

    def _find_task(self) -> Task | None:
        task = find_task(self._words)
        if task.kind == "greeting":
            return task
        is_named = any(score >= NAME_WORD for _, score in rank(self._tools, self._words))
        if (task.kind == "look" and is_named) or not self._words.text.strip():
            return None
        begun = first_call(task, self._tools, self._dialect)
        return None if begun is None else task

    def choice(self, index: int) -> Choice:
        kept, stop = cut_at_stop(self._parts(), self._request.stop)
        has_calls = any(isinstance(part, Call) for part in kept)
        finish: FinishReason = "tool_calls" if has_calls else "stop"
        if stop is not None:
            finish = "stop_sequence"
        # Clients that must set a limit often set a small one, and would never see large arguments.
        limit = None if self._scenario.large else self._request.max_tokens
        if self._scenario.halved:
            limit = max(1, sum(map(count_part, kept)) // 2)
        shorter = None if limit is None else cut_at_tokens(kept, limit)
        if shorter is not None:
            kept, finish, stop = shorter, "length", None
        return Choice(index=index, parts=tuple(kept), finish=finish, stop_sequence=stop)

    def _parts(self) -> list[Part]:
        scenario = self._scenario
        thoughts = [self._thought()] if self._thinks() else []
        if scenario.refusal:
            return [*thoughts, Refusal(text=_REFUSAL)]
        calls = self._calls() if self._tools else []
        if not calls:
            return [*thoughts, Text(text=self._answer())]
        if scenario.as_text:
            write = call_text if scenario.as_text == "tool_call" else to_obsidian_xml
            return [*thoughts, Text(text="\n".join([_PREAMBLE, *map(write, calls)]))]
        opening = [Text(text=_PREAMBLE)] if scenario.text_first else []
        return [*thoughts, *opening, *calls]

    def _thinks(self) -> bool:
        settings = self._request.reasoning
        return self._scenario.reasoning or (settings is not None and _is_wanted(settings))

    def _thought(self) -> Reasoning:
        if self._situation.results:
            text = f"There are {len(self._situation.results)} results to report."
        else:
            text = f"The user says: {_shorten(self._words.text, MAX_THOUGHT)}"
        return sealed_thought(text, self._dialect)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _calls(self) -> list[Call]:
        """The calls to make now; none if the task is done."""
        scenario = self._scenario
        done = self._situation.rounds
        count = 1 if self._request.parallel_calls is False else scenario.calls
        if self._task is not None:
            planned = self._next_of(self._task)
            if planned is not None:
                return [self._call(*planned) for _ in range(count)]
        is_done = done >= scenario.steps and bool(self._situation.results)
        if (self._task is not None or is_done) and not is_forced(self._request):
            return []
        tools = self._tools
        if scenario.empty:
            # A tool that requires nothing is called correctly; if there is none, another is called incorrectly.
            tools = tuple(tool for tool in tools if not _requires(tool)) or tools
        ranked = rank(tools, self._words)
        mentioned = [tool for tool, score in ranked if score] or [ranked[0][0]]
        chosen = [(mentioned[n % len(mentioned)], n) for n in range(done, done + count)]
        return [
            self._call(tool, call_input(tool, self._words, self._dialect, n)) for tool, n in chosen
        ]

    def _next_of(self, task: Task) -> PlannedCall | None:
        rounds, seen = self._situation.rounds, self._situation.results
        if rounds < self._scenario.steps:
            return first_call(task, self._tools, self._dialect)
        if rounds > self._scenario.steps or not seen:
            return None
        return second_call(task, seen[-1], self._tools, self._dialect)

    def _call(self, tool: Tool, text: str) -> Call:
        if self._scenario.empty and tool.kind == "function":
            text = ""
        if self._scenario.large:
            text = grow(tool, text)
        prefix = "toolu_" if self._dialect == "messages" else "call_"
        return Call(
            call_id=self.mint(prefix),
            name=tool.name,
            input=text,
            kind=call_kind(tool, self._dialect),
            namespace=tool.namespace,
        )

    # --- words --------------------------------------------------------------------------------------------------------

    def _answer(self) -> str:
        form = self._request.response_format
        if form is not None and form.kind in ("json_schema", "json_object"):
            if form.kind == "json_schema":
                return dumps(value_for(form.schema, self._words)).decode("utf-8")
            return dumps({"answer": self._prose()}).decode("utf-8")
        return self._prose()

    def _prose(self) -> str:
        results = self._situation.results
        if self._task is not None and self._task.kind == "greeting":
            return GREETING
        if self._task is not None and results:
            return summary(self._task, self._situation.rounds, results)
        if results:
            return "\n".join(
                f"{each.tool} {'failed' if each.failed else 'returned'}: "
                f"{_shorten(each.text, MAX_QUOTE)}"
                for each in results
            )
        media = self._situation.media
        seen = f" I was shown {media} file{'s' if media > 1 else ''}." if media else ""
        said = self._words.text.strip()
        if not said:
            return f"{NOTICE} Nothing was said.{seen}"
        return f"You said: {_shorten(said, MAX_QUOTE)}{seen}\n\n({NOTICE})"


def compose(request: Request, dialect: Dialect, scenario: Scenario, seed: str) -> Outcome:
    """The whole answer.

    Raises:
        RequestRefused: the tool choice demands a tool that was not offered, or there are too many choices.
    """
    composer = _Composer(request, dialect, scenario, seed)
    response_id = composer.mint(_RESPONSE_PREFIXES[dialect])
    count = request.choices if dialect == "chat" else None
    if count is not None and not 1 <= count <= MAX_CHOICES:
        raise RequestRefused(f"n: expected 1 to {MAX_CHOICES}, got {count}", param="n")
    choices = tuple(map(composer.choice, range(count or 1)))
    parts = [part for choice in choices for part in choice.parts]
    thoughts = sum(count_part(part) for part in parts if isinstance(part, Reasoning))
    spoken = max(1, sum(map(count_part, parts)))
    read = count_request(request)
    usage = Usage(input=read, output=spoken, reasoning=thoughts or None, total=read + spoken)
    return Outcome(
        response_id=response_id,
        model=request.model,
        created=CREATED,
        choices=choices,
        usage=usage,
        completed=True,
    )


def _requires(tool: Tool) -> bool:
    """Whether a tool's schema requires anything, at any depth."""
    return tool.kind != "function" or b'"required"' in bytes(tool.schema or b"")


def _is_wanted(settings: ReasoningSettings) -> bool:
    if settings.enabled is False or settings.effort == "none":
        return False
    return bool(settings.enabled or settings.effort or settings.budget or settings.adaptive)


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters in all)"


# Clients add context to the user's words, each piece in its own element: `<environment_context>` (Codex),
# `<system-reminder>` (Claude Code).
_ELEMENT = re.compile(r"\s*<([A-Za-z][\w.-]*)[\s>]")


class ConversationState(Struct, frozen=True):
    """`rounds`: how often results have come back since the user's last words."""

    said: str = ""
    media: int = 0
    results: tuple[ToolResult, ...] = ()
    rounds: int = 0


def read_situation(request: Request) -> ConversationState:
    """The situation that the next answer responds to."""
    turns = request.turns
    assistants = [index for index, turn in enumerate(turns) if turn.role == "assistant"]
    latest = assistants[-1] + 1 if assistants else 0
    results = tuple(_results(turns[latest:], _called(turns)))
    # Text beside results is not a new task: the question is the earlier one.
    spoken = _last_spoken(turns[:latest] if results and latest else turns)
    turn = turns[spoken] if spoken >= 0 else Turn(role="user")
    return ConversationState(
        "\n".join(_words_of(turn)),
        sum(isinstance(part, Media) for part in turn.parts),
        results,
        _rounds(turns[spoken + 1 :]),
    )


def text_of_result(result: Result) -> str:
    """A result as text; other content is named."""
    return "\n".join(map(_describe, result.content))


def _last_spoken(turns: Sequence[Turn]) -> int:
    """The turn with the user's last words. A turn that has only context counts if there is no other."""
    users = [index for index, turn in enumerate(turns) if turn.role == "user"]
    plain = [index for index in users if any(map(_is_plain, turns[index].parts))]
    return (plain or users or [-1])[-1]


def _words_of(turn: Turn) -> list[str]:
    texts = [part.text for part in turn.parts if isinstance(part, Text)]
    plain = [part.text for part in turn.parts if isinstance(part, Text) and _is_plain(part)]
    return plain or texts


def _is_plain(part: Part) -> bool:
    if not isinstance(part, Text) or not part.text.strip():
        return False
    found = _ELEMENT.match(part.text)
    return found is None or not part.text.rstrip().endswith(f"</{found[1]}>")


def _called(turns: Sequence[Turn]) -> dict[str, str]:
    """The names of the calls, by id."""
    parts = (part for turn in turns for part in turn.parts)
    return {part.call_id: part.name for part in parts if isinstance(part, Call) and part.call_id}


def _results(turns: Sequence[Turn], names: dict[str, str]) -> Iterator[ToolResult]:
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Result) and part.executor == "client":
                name = part.name or names.get(part.call_id) or "the tool"
                yield ToolResult(name, text_of_result(part), part.is_error is True)


def _rounds(turns: Sequence[Turn]) -> int:
    """How many runs of turns with results there are."""
    return sum(role == "tool" for role, _ in groupby(turns, key=lambda turn: turn.role))


def _describe(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Media():
            return f"[{part.kind}{f' {part.media_type}' if part.media_type else ''}]"
        case _:
            return "[something that is no text]"


CHARACTERS = 4
# Between a small and a large picture in the vendors' own tables.
MEDIA_TOKENS = 1000


def tokens_in(length: int) -> int:
    """The number of tokens in this many characters."""
    return -(-length // CHARACTERS)


def count_request(request: Request) -> int:
    """The number of tokens that a model would read; at least one."""
    turns = sum(count_part(part) for turn in request.turns for part in turn.parts)
    return max(1, turns + sum(map(_count_tool, request.tools)))


def count_part(part: Part) -> int:
    match part:
        case Reasoning():
            return tokens_in(len("".join((*part.summary, *part.content))))
        case Call():
            return tokens_in(len(part.name) + len(part.input))
        case Result():
            return sum(map(count_part, part.content))
        case Media():
            return MEDIA_TOKENS
        case _:
            return tokens_in(part_size(part))


def _count_tool(tool: Tool) -> int:
    schema = b"" if tool.schema is None else bytes(tool.schema)
    grammar = "" if tool.grammar is None else tool.grammar.definition
    return tokens_in(len(tool.name) + len(tool.description or "") + len(schema) + len(grammar))


def cut_at_stop(parts: Sequence[Part], stops: Sequence[str]) -> tuple[list[Part], str | None]:
    """The parts up to the first stop sequence in a text, and that sequence."""
    for index, part in enumerate(parts):
        if not isinstance(part, Text):
            continue
        found = [(part.text.find(stop), stop) for stop in stops if stop and stop in part.text]
        if found:
            place, stop = min(found)
            return [*parts[:index], structs.replace(part, text=part.text[:place])], stop
    return list(parts), None


def cut_at_tokens(parts: Sequence[Part], limit: int) -> list[Part] | None:
    """The parts that fit into the token limit, the last one cut; None if all fit."""
    left = limit
    for index, part in enumerate(parts):
        size = count_part(part)
        if size > left:
            return [*parts[:index], *([_cut(part, left * CHARACTERS)] if left > 0 else [])]
        left -= size
    return None


def _cut(part: Part, length: int) -> Part:
    match part:
        case Text() | Refusal():
            return structs.replace(part, text=part.text[:length], status="incomplete")
        case Call():
            room = max(0, length - len(part.name))
            return structs.replace(part, input=part.input[:room], status="incomplete")
        case Reasoning():
            # An incomplete thought has no seal.
            thought = "".join(part.summary)[:length]
            return Reasoning(summary=(thought,), status="incomplete")
        case _:
            return part


MARK = "rehearsal."


def sealed_thought(text: str, dialect: Dialect) -> Reasoning:
    """A thought with its seal, in the form that servers of the dialect send."""
    seal = _seal(text)
    match dialect:
        case "messages":
            return Reasoning(summary=(text,), seals=(Seal("signature", seal),))
        case "chat":
            # Chat has no seals of its own; this is OpenRouter's form, beside the text in `reasoning_content`.
            entry = {"type": "reasoning.text", "text": text, "signature": seal}
            fields = {"reasoning_details": raw([entry])}
            return Reasoning(
                summary=(text,), seals=(Seal("signature", seal),), extra=Extra("chat", fields)
            )
        case _:
            return Reasoning(summary=(text,), seals=(Seal("encrypted", seal),))


def check_seals(request: Request) -> None:
    """Check the seals that the client sent back.

    Raises:
        RequestRefused: one of our seals was damaged, or the sealed text was changed.
    """
    for index, turn in enumerate(request.turns):
        for part in turn.parts:
            if isinstance(part, Reasoning):
                _check(part, f"turn {index}")


def _check(thought: Reasoning, where: str) -> None:
    for seal in thought.seals:
        if not seal.data.startswith(MARK):
            continue
        encoded, _, checksum = seal.data.removeprefix(MARK).partition(".")
        if checksum != _checksum(encoded):
            message = f"{where}: expected the seal of a thought as it was given, got a damaged one"
            raise RequestRefused(message, code="invalid_seal")
        # OpenAI does not compare a summary with its seal, and clients leave the summary out; Anthropic does compare.
        text = "".join((*thought.summary, *thought.content))
        if seal.kind == "signature" and text and _encode(text) != encoded:
            message = f"{where}: expected the thought that was signed, got other words"
            raise RequestRefused(message, code="invalid_seal")


def _seal(text: str) -> str:
    encoded = _encode(text)
    return f"{MARK}{encoded}.{_checksum(encoded)}"


def _encode(text: str) -> str:
    return urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def _checksum(encoded: str) -> str:
    return blake2b(encoded.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
