"""Searches deferred tools in place of a provider that has no such search.

A client may send many deferred tools and a search that the provider runs (`tool_search`). An upstream of another dialect gets all the
tools, and no search, as long as it takes so many (`max_tools`). If it does not, the model gets a function that searches, the tools that
are not deferred, and those that were found. The gateway answers calls of the function inside the answer; the client sees them in the
form of its own dialect, and sends them back with later requests.

    regex          the query is a regular expression, as Python reads it. A process matches it, which is ended if it takes too long.
    everything     the tools with the words of the query, ranked by BM25: rare words count more, and words of a name count most
    else
"""

import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from math import log
from random import getrandbits

from msgspec import Struct, structs

from dragoman._json import Raw, as_object, dumps
from dragoman.core.aliases import ToolKey, flat_name
from dragoman.core.fields import read_object, read_text
from dragoman.dialects.messages import tools as messages
from dragoman.dialects.responses import tools as responses
from dragoman.engine.builtin.search import Matcher
from dragoman.engine.threads import run_to_end
from dragoman.engine.toolbox import spoken_name
from dragoman.engine.tools import Invocation, Offer, Output, Tool, text_output
from dragoman.errors import ToolError
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.parts import Call, Dialect, Opaque, Part, Result
from dragoman.model.request import Request, Turn
from dragoman.model.request import Tool as Declaration

MAX_FOUND = 5
"""Tools that one search finds. Anthropic's search returns three to five."""
MAX_SEARCHED = 4096
"""Characters of a tool that are searched: its name comes first. Descriptions of tools have a few hundred."""
MAX_QUERY = 1000
"""Characters of a query of words."""
MAX_SECONDS = 2.0
"""For one regular expression. One that does not backtrack takes milliseconds."""

MAX_MATCHING = 4
"""Regular expressions that are matched at once in this process: each may use a processor for `MAX_SECONDS`."""

_MATCHING = threading.BoundedSemaphore(MAX_MATCHING)
_LOOK_SECONDS = 0.05  # how often a stop is noticed while a search waits
_NOTHING = "No tool matches. Search again with other words, or answer without a further tool."
_QUERY_SCHEMA = Raw(
    b'{"type":"object","properties":{"query":{"type":"string","description":'
    b'"What to look for in the names, descriptions and arguments of the tools"}},"required":["query"]}'
)
_SAFE_ID = re.compile(r"[A-Za-z0-9_]{1,200}")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
# The usual constants of BM25: how fast repeated words stop to count, and how much long texts count less.
_SATURATION = 1.2
_LENGTH = 0.75
_SHORT = 3  # letters of words that are not plural, such as `gas`
# How many words of a description one word of a name is worth.
_NAME_WEIGHT = 3


def is_provider_search(tool: Declaration) -> bool:
    """Whether a tool is a search for tools that the provider runs."""
    return tool.kind == "tool_search" and tool.schema is None


def has_own_search(target: AttemptTarget) -> bool:
    """Whether the upstream searches deferred tools itself: where it speaks the client's dialect, unless the operator denies it."""
    return target.is_same_dialect and target.accepts.deferred_tools is not False


class ToolSearch:
    """The search for the deferred tools of one request. `tools`: the functions that the model calls."""

    def __init__(self, request: Request, dialect: Dialect, mint: Callable[[], str]) -> None:
        """`mint`: returns a part of an id, where the model's own id cannot be used."""
        self._dialect: Dialect = dialect
        self._mint = mint
        self._request = request
        searches = [tool for tool in request.tools if is_provider_search(tool)]
        self._deferred: dict[ToolKey, Declaration] = {}
        for tool in filter(_is_deferred, request.tools):
            self._deferred.setdefault(_key(tool), tool)
        self._names: dict[str, ToolKey] = {
            flat_name(name, space): (space, name) for space, name in self._deferred
        }
        self._index: _Index | None = None
        self._errors: dict[str, str] = {}  # by the id of the call
        self._was_called = False
        self._searches = _free_names(searches, request.tools)
        self.tools: tuple[Tool, ...] = tuple(
            [
                _SearchFunction(_offer(search, name), partial(self._run, search))
                for name, search in self._searches.items()
            ]
        )
        self.request = structs.replace(
            request, tools=tuple([tool for tool in request.tools if not is_provider_search(tool)])
        )
        """The request for the engine: without the provider's search."""

    def is_needed(self, target: AttemptTarget) -> bool:
        """Whether the gateway must search in place of this upstream."""
        most = target.accepts.max_tools
        if most is None or has_own_search(target) or not self._searches:
            return False
        return bool(self._deferred) and len(self.request.tools) > most

    def fit(self, request: Request, target: AttemptTarget) -> Request:
        """The request of the engine as this upstream gets it.

        An upstream that needs no search gets the client's own tools, unless the model has already called the function.
        """
        others = tuple([tool for tool in request.tools if tool.name not in self._searches])
        if not self._was_called and not self.is_needed(target):
            return structs.replace(
                request, tools=(*self._request.tools, *others[len(self.request.tools) :])
            )
        turns = tuple(_with_functions(request.turns, self._dialect, self._function_name))
        shown = [tool for tool in others if _key(tool) not in self._deferred]
        functions = [tool for tool in request.tools if tool.name in self._searches]
        room = None
        if target.accepts.max_tools is not None:
            # At least one, or a search would be of no use; the upstream refuses what it cannot take.
            room = max(1, target.accepts.max_tools - len(shown) - len(functions))
        loaded = self._loaded(turns, request, room)
        tools = (*shown, *functions, *(self._deferred[key] for key in loaded))
        spaces = {tool.namespace for tool in tools}
        tools = tuple(
            [
                structs.replace(tool, place="request") if tool.place == "input" else tool
                for tool in tools
            ]
        )
        return structs.replace(
            request,
            turns=turns,
            tools=tools,
            namespaces=tuple([each for each in request.namespaces if each.name in spaces]),
        )

    def first_request(self, target: AttemptTarget) -> Request:
        """The client's request as this upstream gets it before the model searches."""
        functions = [tool.offer.declaration for tool in self.tools]
        tools = (*self.request.tools, *functions)
        return self.fit(structs.replace(self.request, tools=tools), target)

    def parts(self, call: Call, result: Result) -> tuple[Part, ...]:
        """A call of the function and its result as the client sees them. Empty for any other call."""
        search = self._searches.get(call.name)
        if search is None:
            return ()
        call = structs.replace(call, name=search.name)
        call_id = call.call_id if _SAFE_ID.fullmatch(call.call_id) else self._mint()
        keys = [key for part in result.content if isinstance(part, Opaque) for key in part.tools]
        if self._dialect == "responses":
            found = [self._deferred[key] for key in keys]
            return responses.search_items(call, call_id, found, self._request.namespaces)
        error = self._errors.get(call.call_id, "unavailable") if result.is_error else None
        return messages.search_blocks(call, call_id, [name for _, name in keys], error)

    def _function_name(self, name: str) -> str:
        """The function for a search of this name; one that the client no longer sends keeps its name."""
        return next((own for own, search in self._searches.items() if search.name == name), name)

    def _loaded(self, turns: Iterable[Turn], request: Request, room: int | None) -> list[ToolKey]:
        """The deferred tools that the model may call, in the order in which they were first found.

        If there are too many: those that were found or called last, and of one search the best.
        """
        # How long ago, and the place among those found together.
        ranks: dict[ToolKey, tuple[int, int]] = {}
        for number, keys in enumerate(_named(turns, request)):
            for place, key in enumerate(keys):
                known = key if key in self._deferred else self._names.get(flat_name(key[1], key[0]))
                if known is not None:
                    ranks[known] = (-number, place)
        kept = set(sorted(ranks, key=ranks.__getitem__)[:room])
        return [key for key in ranks if key in kept]

    async def _run(self, search: Declaration, invocation: Invocation) -> Output:
        self._was_called = True
        query = read_text(as_object(invocation.call.input).get("query")) or ""
        is_pattern = messages.takes_patterns(search)
        most = messages.MAX_PATTERN if is_pattern else MAX_QUERY
        if len(query) > most:
            self._errors[invocation.call.call_id] = "pattern_too_long"
            raise ToolError(f"query: expected at most {most} characters, got {len(query)}")
        stop = threading.Event()
        try:
            keys = await run_to_end(
                partial(self._find, query, stop, is_pattern=is_pattern), "tool-search", stop.set
            )
        except _InvalidPattern as error:
            self._errors[invocation.call.call_id] = "invalid_pattern"
            raise ToolError(str(error)) from error
        if not keys:
            return text_output(_NOTHING)
        raw = Raw(dumps([flat_name(name, space) for space, name in keys]))
        found = Opaque(dialect=self._dialect, type="tool_reference", raw=raw, tools=tuple(keys))
        return Output(content=(found,))

    def _find(self, query: str, stop: threading.Event, *, is_pattern: bool) -> list[ToolKey]:
        if is_pattern:
            return _matching(query, list(self._deferred.values()), stop)
        if self._index is None:
            self._index = _Index(list(self._deferred.values()))
        return self._index.best(query)


def needed_search(
    request: Request, dialect: Dialect, targets: Sequence[AttemptTarget]
) -> ToolSearch | None:
    """The search for deferred tools, if one of the upstreams takes fewer tools than the request has, and has no search."""
    count = len(request.tools)
    for target in targets:
        most = target.accepts.max_tools
        if most is not None and count > most:
            break
    else:
        return None
    search = ToolSearch(request, dialect, lambda: f"dgm{getrandbits(96):024x}")
    return search if any(map(search.is_needed, targets)) else None


class _SearchFunction(Struct, frozen=True):
    """The function that the model calls in place of a provider's search."""

    offer: Offer
    answer: Callable[[Invocation], Awaitable[Output]]

    def run(self, invocation: Invocation) -> Awaitable[Output]:
        return self.answer(invocation)


def _offer(search: Declaration, name: str) -> Offer:
    """What the model is offered in place of a provider's search."""
    how = (
        "The query is a Python regular expression, searched for with re.search."
        if messages.takes_patterns(search)
        else "The query is a few words."
    )
    description = search.description or (
        "Searches for tools that are not shown yet. The tools that it finds can be called from then on."
    )
    return Offer(
        declaration=Declaration(name=name, description=f"{description} {how}", schema=_QUERY_SCHEMA)
    )


def _free_names(
    searches: Iterable[Declaration], tools: Iterable[Declaration]
) -> dict[str, Declaration]:
    """The searches by the names of their functions: their own, unless the client has another tool of that name."""
    taken = {
        spoken_name(tool.name, tool.namespace) for tool in tools if not is_provider_search(tool)
    }
    names: dict[str, Declaration] = {}
    for search in searches:
        name, number = search.name, 1
        while spoken_name(name, None) in taken:
            number += 1
            name = f"{search.name}_{number}"
        taken.add(spoken_name(name, None))
        names[name] = search
    return names


def _key(tool: Declaration) -> ToolKey:
    return tool.namespace or None, tool.name


def _is_deferred(tool: Declaration) -> bool:
    return tool.deferred is True and tool.place == "request"


def _named(turns: Iterable[Turn], request: Request) -> Iterator[Sequence[ToolKey]]:
    """The tools that the conversation has found or called, together or one by one, and those that the choice names."""
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Result):
                yield [
                    key
                    for piece in part.content
                    if isinstance(piece, Opaque)
                    for key in piece.tools
                ]
            elif isinstance(part, Opaque):
                yield part.tools
            elif isinstance(part, Call) and part.executor == "client":
                yield ((part.namespace or None, part.name),)
    choice = request.tool_choice
    if choice is not None:
        named = choice.allowed if choice.tool is None else (*choice.allowed, choice.tool)
        yield [(ref.namespace or None, ref.name) for ref in named]


# --- searches of earlier requests ---------------------------------------------------------------------------------------


def _is_provider_call(part: Part) -> bool:
    return (
        isinstance(part, (Call, Result))
        and part.kind == "tool_search"
        and part.executor != "client"
    )


def _with_functions(
    turns: Iterable[Turn], dialect: Dialect, function_name: Callable[[str], str]
) -> Iterator[Turn]:
    """The turns, with a call of the function and its result in place of each search that the client sent back."""
    waiting: list[str] = []  # ids of calls without their result
    for turn in turns:
        if not any(map(_is_provider_call, turn.parts)):
            yield turn
            continue
        parts: list[Part] = []
        results: list[Part] = []
        for part in turn.parts:
            if isinstance(part, Result) and _is_provider_call(part):
                if waiting:
                    results.append(_function_result(part, waiting.pop(0)))
                continue
            if results:
                yield from _said(turn, parts, results)
                parts, results = [], []
            if isinstance(part, Call) and _is_provider_call(part):
                waiting.append(_searched_id(part, dialect))
                name = function_name(part.name)
                parts.append(Call(call_id=waiting[-1], name=name, input=part.input or "{}"))
            else:
                parts.append(part)
        yield from _said(turn, parts, results)


def _searched_id(call: Call, dialect: Dialect) -> str:
    return responses.searched_id(call) if dialect == "responses" else messages.searched_id(call)


def _function_result(result: Result, call_id: str) -> Result:
    content = tuple([part for part in result.content if isinstance(part, Opaque) and part.tools])
    if not content:
        return Result(
            call_id=call_id, content=text_output(_NOTHING).content, is_error=result.is_error
        )
    keys = tuple([key for part in content for key in part.tools])
    found = structs.replace(content[0], type="tool_reference", tools=keys, item_id=None)
    return Result(call_id=call_id, content=(found,))


def _said(turn: Turn, parts: Sequence[Part], results: Sequence[Part]) -> Iterator[Turn]:
    if parts:
        yield Turn(role="assistant", parts=tuple(parts), extra=turn.extra)
    if results:
        yield Turn(role="tool", parts=tuple(results))


# --- searching --------------------------------------------------------------------------------------------------------


class _InvalidPattern(Exception):
    """The query is not a regular expression."""


def _text(tool: Declaration) -> str:
    """What is searched of a tool: its name and description, and the names and descriptions of its arguments. One line."""
    words = [flat_name(tool.name, tool.namespace), tool.description or ""]
    if tool.schema is not None:
        for name, value in read_object(read_object(tool.schema).get("properties")).items():
            words += [name, read_text(read_object(value).get("description")) or ""]
    return " ".join(" ".join(words).split())[:MAX_SEARCHED]


def _matching(pattern: str, tools: Sequence[Declaration], stop: threading.Event) -> list[ToolKey]:
    """The first tools that match: those whose name matches come first."""
    names = [flat_name(tool.name, tool.namespace) for tool in tools]
    texts = ["\n".join(names), "\n".join(map(_text, tools))]
    data = [text.encode("utf-8", "replace") for text in texts]
    while not _MATCHING.acquire(timeout=_LOOK_SECONDS):
        if stop.is_set():
            raise ToolError("the search was stopped")
    try:
        lines = _lines(pattern, data, stop)
    finally:
        _MATCHING.release()
    numbers = dict.fromkeys(number for found in lines for number in found)
    return [_key(tools[number - 1]) for number in numbers][:MAX_FOUND]


def _lines(pattern: str, data: Sequence[bytes], stop: threading.Event) -> list[list[int]]:
    """The numbers of the lines that match, in each text."""
    try:
        matcher = Matcher(pattern, stop, seconds=MAX_SECONDS)
    except ToolError as error:
        raise _InvalidPattern(str(error)) from error
    with matcher:
        return matcher.lines(data)


class _Index:
    """The words of the tools, for queries of words."""

    def __init__(self, tools: Sequence[Declaration]) -> None:
        self._keys = [_key(tool) for tool in tools]
        self._counts = [_counts(tool) for tool in tools]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = sum(self._lengths) / max(1, len(tools)) or 1.0
        self._tools_with = Counter[str]()
        for counts in self._counts:
            self._tools_with.update(counts.keys())

    def best(self, query: str) -> list[ToolKey]:
        wanted = {
            word: self._rarity(word) for word in set(_words(query)) if word in self._tools_with
        }
        scored = [
            (-score, number)
            for number in range(len(self._keys))
            if (score := self._score(number, wanted)) > 0
        ]
        return [self._keys[number] for _, number in sorted(scored)[:MAX_FOUND]]

    def _rarity(self, word: str) -> float:
        count = self._tools_with[word]
        return log(1 + (len(self._keys) - count + 0.5) / (count + 0.5))

    def _score(self, number: int, wanted: dict[str, float]) -> float:
        counts = self._counts[number]
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * self._lengths[number] / self._mean)
        return sum(
            rarity * counts[word] * (_SATURATION + 1) / (counts[word] + norm)
            for word, rarity in wanted.items()
            if word in counts
        )


def _counts(tool: Declaration) -> Counter[str]:
    counts = Counter(_words(_text(tool)))
    for word in _words(flat_name(tool.name, tool.namespace)[:MAX_SEARCHED]):
        counts[word] += _NAME_WEIGHT - 1
    return counts


def _words(text: str) -> list[str]:
    """The words of a text, also those of a name: `readFile2`, `read_file` and `read-file` begin with `read`.

    A plural counts as its singular, by the simplest rule of English.
    """
    return [_singular(word.lower()) for word in _WORD.findall(text)]


def _singular(word: str) -> str:
    is_plural = len(word) > _SHORT and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if is_plural else word
