"""What the stand-in answers: a request and a scenario in, a whole answer (an Outcome) out. Pure.

The rules in their order:

1. A refusal, if the scenario is one.
2. Calls, if tools may be called and either the tool choice demands it or no results have come back (the scenario says
   how often they must). The tool is the one the user's words mention, else the first that looks harmless.
3. If results have come back: a text that quotes them all.
4. A JSON text if the request wants one.
5. A text that quotes the user.

Then stop sequences cut the text, and the limit of tokens whatever comes last.
"""

from msgspec import Struct

from dragoman._json import dumps
from dragoman.core.ids import Minter
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Choice, FinishReason, Outcome, Usage
from dragoman.model.parts import Call, Dialect, Part, Reasoning, Refusal, Text
from dragoman.model.request import ReasoningSettings, Request, Tool
from dragoman.upstream.rehearsal.arguments import value_for
from dragoman.upstream.rehearsal.calls import call_input, call_kind, call_text, grow
from dragoman.upstream.rehearsal.choose import callable_tools, is_forced, rank
from dragoman.upstream.rehearsal.conversation import Situation, read_situation, text_of_result
from dragoman.upstream.rehearsal.limits import cut_at_stop, cut_at_tokens
from dragoman.upstream.rehearsal.scenarios import Scenario
from dragoman.upstream.rehearsal.seal import sealed_thought
from dragoman.upstream.rehearsal.tokens import count_part, count_request
from dragoman.upstream.rehearsal.words import Words, read_words

__all__ = ("Scene", "compose")

# Quotations are shortened to these many characters: results may be whole files.
MAX_QUOTE = 4000
MAX_THOUGHT = 80
# A constant, because the same request is answered with the same bytes: the first second of 2025, UTC.
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


class Scene(Struct, frozen=True):
    """What an answer depends on."""

    request: Request
    dialect: Dialect
    scenario: Scenario
    seed: str


class _Play:
    """One answer while it is put together."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._request = scene.request
        self.mint = Minter(scene.seed)
        self._situation: Situation = read_situation(scene.request)
        self._words: Words = read_words(self._situation.said)

    def parts(self) -> list[Part]:
        scenario = self._scene.scenario
        thoughts = [self._thought()] if self._thinks() else []
        if scenario.refusal:
            return [*thoughts, Refusal(text=_REFUSAL)]
        tools = callable_tools(self._request, self._scene.dialect)
        has_called = self._situation.rounds >= scenario.steps and bool(self._situation.results)
        if not tools or (has_called and not is_forced(self._request)):
            return [*thoughts, Text(text=self._answer())]
        calls = self._calls(tools)
        if scenario.as_text:
            return [*thoughts, Text(text="\n".join([_PREAMBLE, *map(call_text, calls)]))]
        opening = [Text(text=_PREAMBLE)] if scenario.text_first else []
        return [*thoughts, *opening, *calls]

    def _thinks(self) -> bool:
        settings = self._request.reasoning
        return self._scene.scenario.reasoning or (settings is not None and _is_wanted(settings))

    def _thought(self) -> Reasoning:
        if self._situation.results:
            text = f"There are {len(self._situation.results)} results to tell of."
        else:
            text = f"The user says: {_shorten(self._words.text, MAX_THOUGHT)}"
        return sealed_thought(text, self._scene.dialect)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _calls(self, tools: tuple[Tool, ...]) -> list[Call]:
        scenario = self._scene.scenario
        if scenario.empty:
            # A tool that takes nothing is called as it should be; without one, a tool is called as it should not.
            tools = tuple(tool for tool in tools if not _requires(tool)) or tools
        ranked = rank(tools, self._words)
        mentioned = [tool for tool, score in ranked if score] or [ranked[0][0]]
        count = 1 if self._request.parallel_calls is False else scenario.calls
        first = self._situation.rounds
        numbers = range(first, first + count)
        return [self._call(mentioned[number % len(mentioned)], number) for number in numbers]

    def _call(self, tool: Tool, number: int) -> Call:
        scene = self._scene
        text = call_input(tool, self._words, scene.dialect, number)
        if scene.scenario.empty and tool.kind == "function":
            text = ""
        if scene.scenario.large:
            text = grow(tool, text)
        prefix = "toolu_" if scene.dialect == "messages" else "call_"
        return Call(
            call_id=self.mint(prefix),
            name=tool.name,
            input=text,
            kind=call_kind(tool, scene.dialect),
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
        if results:
            return "\n".join(
                f"{each.name} {'failed' if each.result.is_error else 'returned'}: "
                f"{_shorten(text_of_result(each.result), MAX_QUOTE)}"
                for each in results
            )
        media = self._situation.media
        seen = f" I was shown {media} file{'s' if media > 1 else ''}." if media else ""
        said = self._words.text.strip()
        if not said:
            return f"This is a rehearsal, and nothing was said.{seen}"
        return f"You said: {_shorten(said, MAX_QUOTE)}{seen}"


def compose(scene: Scene) -> Outcome:
    """The whole answer.

    Raises:
        RequestRefused: the tool choice demands a tool that is not there, or there are too many choices.
    """
    request = scene.request
    play = _Play(scene)
    response_id = play.mint(_RESPONSE_PREFIXES[scene.dialect])
    count = _count_choices(scene)
    choices = tuple(_choice(play.parts(), index, scene) for index in range(count))
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


def _count_choices(scene: Scene) -> int:
    count = scene.request.choices if scene.dialect == "chat" else None
    if count is not None and not 1 <= count <= MAX_CHOICES:
        raise RequestRefused(f"n: expected 1 to {MAX_CHOICES}, got {count}", param="n")
    return count or 1


def _choice(parts: list[Part], index: int, scene: Scene) -> Choice:
    request = scene.request
    has_calls = any(isinstance(part, Call) for part in parts)
    finish: FinishReason = "tool_calls" if has_calls else "stop"
    kept, stop = cut_at_stop(parts, request.stop)
    if stop is not None:
        finish = "stop_sequence"
    # Clients that must name a limit name a small one, and would never see large arguments.
    limit = None if scene.scenario.large else request.max_tokens
    if scene.scenario.halved:
        limit = max(1, sum(map(count_part, kept)) // 2)
    if limit is not None:
        shorter = cut_at_tokens(kept, limit)
        if shorter is not None:
            kept, finish, stop = shorter, "length", None
    return Choice(index=index, parts=tuple(kept), finish=finish, stop_sequence=stop)


def _requires(tool: Tool) -> bool:
    """Whether a tool's schema speaks of something that is required, however deep."""
    return tool.kind != "function" or b'"required"' in bytes(tool.schema or b"")


def _is_wanted(settings: ReasoningSettings) -> bool:
    if settings.enabled is False or settings.effort == "none":
        return False
    return bool(settings.enabled or settings.effort or settings.budget or settings.adaptive)


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters in all)"
