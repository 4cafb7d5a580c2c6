"""The catalogue of text formats: by name, by model, and the formats that an application adds.

Patterns find calls in a text while it streams. Matchers are functions that need the whole text; they are foreign code,
so if a matcher raises, that is reported and the other matchers still run. A scanner copies its patterns when it is
created: later changes of the registry do not reach it.

`auto` looks for every format with a sentinel, and for those that the model's profile adds: formats without a sentinel,
and marks that only this family of models writes. Some models call tools while they reason: for them an opener counts in
`<think>` and in the reasoning channel too. For all other models an opener there is text.
"""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import ConfigError
from dragoman.textcalls.block import MAX_WORD, TextPattern
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import gather
from dragoman.textcalls.formats import BUILT_IN
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers

T = TypeVar("T")


class TextCall(Struct, frozen=True):
    """A call in a text, from `start` to `end`. `arguments` is JSON source text."""

    name: str
    arguments: str
    start: int
    end: int


TextMatcher = Callable[[str], Iterable[TextCall]]
"""A function of yours that finds calls in a whole text."""

# A matcher is foreign code and may raise anything. Only exceptions that end the program are not caught.
_MATCHER_FAILURES = (Exception,)


class PatternRegistry:
    """Patterns in order of rank: if several share an opener, the first that confirms wins. changes: a count of changes."""

    def __init__(self, patterns: Iterable[TextPattern] = ()) -> None:
        self._patterns: dict[str, TextPattern] = {}
        self._matchers: dict[str, TextMatcher] = {}
        self.changes = 0
        for pattern in patterns:
            self.register(pattern)

    def register(
        self,
        pattern: TextPattern | str,
        matcher: TextMatcher | None = None,
        *,
        first: bool = False,
    ) -> Callable[[], None]:
        """Add a pattern, or a matcher under a name, and replace any with the same name. Returns a function that removes it.

        first: before all other patterns, so that it wins if openers are shared.

        Raises:
            ConfigError: the pattern has no name or no opener, or an opener that is empty or too long; the matcher has
                no name or cannot be called.
        """
        if isinstance(pattern, str):
            matcher = _checked_matcher(pattern, matcher)
            self._patterns.pop(pattern, None)
            return self._add(self._matchers, pattern, matcher)
        pattern = _checked_pattern(pattern)
        self._matchers.pop(pattern.name, None)
        if first:
            others = {name: old for name, old in self._patterns.items() if name != pattern.name}
            self._patterns.clear()
            self._patterns.update({pattern.name: pattern, **others})
        return self._add(self._patterns, pattern.name, pattern)

    def _add(self, table: dict[str, T], name: str, entry: T) -> Callable[[], None]:
        table[name] = entry
        self.changes += 1

        def unregister() -> None:
            if table.get(name) is entry:
                del table[name]
                self.changes += 1

        return unregister

    def find(
        self, text: str, tools: Iterable[object] | None = None
    ) -> tuple[tuple[TextCall, ...], tuple[str, ...]]:
        """Return the calls in a whole text, by position and without overlaps, and a message for each matcher that raised.

        Runs the matchers and every pattern with a sentinel. tools: patterns find only calls of these tools; None: of any.
        Of two calls that overlap, the one that starts first is kept; of two that start together, the matcher's.
        """
        found: list[TextCall] = []
        problems: list[str] = []
        for name, matcher in self._matchers.items():
            try:
                found.extend(_checked_calls(matcher(text)))
            except _MATCHER_FAILURES as error:
                # Without the error's message, which may quote the text.
                problems.append(f"text pattern {name!r} raised {type(error).__name__}")
        sentinels = tuple(one for one in self._patterns.values() if one.is_sentinel)
        offers = Offers(tools)
        if sentinels and offers:
            finder = Finder(Openers(sentinels, offers), offers)
            scan = gather([*finder.feed(text), *finder.finish()])
            found += (
                TextCall(call.name, call.arguments, call.start, call.end) for call in scan.calls
            )
        calls: list[TextCall] = []
        for call in sorted(found, key=lambda call: call.start):
            if not calls or call.start >= calls[-1].end:
                calls.append(call)
        return tuple(calls), tuple(problems)

    def conflicts(self, pattern: TextPattern) -> tuple[str, ...]:
        """Return the other patterns with an opener that is a prefix of one of this pattern's openers, or the reverse."""
        return tuple(
            other.name
            for other in self._patterns.values()
            if other.name != pattern.name and _collide(pattern.openers, other.openers)
        )

    def snapshot(self) -> tuple[TextPattern, ...]:
        """Return all patterns, in order of rank."""
        return tuple(self._patterns.values())

    def named(self, names: Iterable[str]) -> tuple[TextPattern, ...]:
        """Return the patterns of these names, in order of rank.

        Raises:
            ConfigError: no pattern has one of the names.
        """
        wanted = set(names)
        unknown = sorted(wanted - self._patterns.keys())
        if unknown:
            raise ConfigError(
                f"expected text formats among {', '.join(sorted(self._patterns))}; got {unknown[0]!r}"
            )
        return tuple(pattern for name, pattern in self._patterns.items() if name in wanted)


def _checked_matcher(name: str, matcher: TextMatcher | None) -> TextMatcher:
    if not name.strip():
        raise ConfigError("expected a name for the text pattern, got an empty one")
    if matcher is None or not callable(matcher):
        raise ConfigError(f"expected a callable for text pattern {name!r}, got {matcher!r}")
    return matcher


def _checked_calls(found: Iterable[object]) -> list[TextCall]:
    calls = list(found)
    wrong = [type(call).__name__ for call in calls if not isinstance(call, TextCall)]
    if wrong:
        raise ConfigError(f"expected TextCall values, got {wrong[0]}")
    return cast("list[TextCall]", calls)


def _checked_pattern(pattern: object) -> TextPattern:
    if not isinstance(pattern, TextPattern):
        raise ConfigError(
            f"expected a TextPattern, or the name of a matcher; got {type(pattern).__name__}"
        )
    if not pattern.name.strip():
        raise ConfigError("expected a name for the text pattern, got an empty one")
    if not pattern.openers:
        raise ConfigError(f"expected openers in text pattern {pattern.name!r}, got none")
    for word in (*pattern.openers, *pattern.closers):
        if not word.strip() or len(word) > MAX_WORD:
            raise ConfigError(
                f"expected openers and closers of 1 to {MAX_WORD} characters in text pattern {pattern.name!r}, got {word!r}"
            )
    return pattern


def _collide(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    others = tuple(theirs)
    return any(a.startswith(b) or b.startswith(a) for a in ours for b in others)


class Profile(Struct, frozen=True):
    """models: globs, matched against the model's name in lower case, with and without the vendor's prefix
    (`meta-llama/`); every profile that matches counts. formats: the formats without a sentinel that these models write.
    thinking: the formats in which they call tools while they reason. strays: the formats before which they write a stray word.
    """

    models: tuple[str, ...]
    formats: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()


# Characters. Real names have up to a hundred. A longer one, which a client may choose, has no profile and is no key of a cache.
MAX_MODEL = 256

# Before a call that should have been structured, Claude writes a word such as `court` or `count` on a line of its own.
_LEAKS = ("anthropic", "anthropic_leaked", "invoke", "invoke_leaked")

PROFILES = (
    Profile(("*claude*",), strays=_LEAKS),
    Profile(("*llama-3*", "*llama3*", "*llama-3.*"), ("bare_json",)),
    Profile(("*llama-4*", "*llama4*", "*toolace*"), ("pythonic",)),
    Profile(("*xlam*",), ("bare_json_array", "json_fence")),
    Profile(("granite-3*", "granite3*"), ("bare_json_array",)),
    Profile(
        ("command-*", "c4ai-command-*", "*command-a*", "*command-r7b*"),
        ("command_thoughts", "command_marks"),
    ),
    Profile(
        ("gpt-oss*", "*gpt-oss*"),
        ("harmony_channels", "harmony_marks", "harmony_messages"),
    ),
    Profile(("kimi-k3*", "*kimi-k3*"), ("kimi_k3_marks",)),
    Profile(
        ("*functionary*v3.2*", "*functionary-medium-v3*"),
        ("functionary_v32", "functionary_v32_content"),
    ),
    Profile(("*kimi-k2*",), thinking=("kimi_k2", "kimi_k2_bare")),
    Profile(("*minimax-m1*",), thinking=("minimax_m1",)),
    Profile(("*qwen3*", "*qwq*"), thinking=("hermes", "qwen3_coder")),
    Profile(
        ("*muse*", "*glimmer*"),
        (
            "muse_thoughts",
            "muse_headers",
            "muse_marks",
            "muse_first",
            "muse_first_thoughts",
            "muse_first_headers",
        ),
    ),
    Profile(("dots*", "*dots.llm*"), ("dots_marks",)),
    # Models tuned for one agent's prompt, and those that were trained on ReAct.
    Profile(("*cline*", "*roocode*", "*roo-code*"), ("tool_tags",)),
    Profile(("qwen-*-chat*", "*-react*", "*_react*"), ("react",)),
)
"""All profiles."""


def formats_of_model(model: str | None) -> tuple[str, ...]:
    """Return the formats that the profiles of a model add."""
    found = (profile.formats for profile in _profiles_of(model))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def _profiles_of(model: str | None) -> list[Profile]:
    name = (model or "").lower()
    names = (name, name.rpartition("/")[2])
    return [
        profile
        for profile in PROFILES
        if any(fnmatchcase(one, glob) for one in names for glob in profile.models)
    ]


PATTERNS = PatternRegistry(BUILT_IN)
"""The registry that scanners and aggregators use by default."""


def register_text_pattern(
    pattern: TextPattern | str, matcher: TextMatcher | None = None, *, first: bool = True
) -> Callable[[], None]:
    """Add a format to the shared registry. Returns a function that removes it.

    Examples:
        >>> from dragoman.textcalls import JsonBody
        >>> unregister = register_text_pattern(
        ...     TextPattern(name="run", openers=("[[run]]",), closers=("[[/run]]",), body=JsonBody())
        ... )
        >>> scan_text('[[run]]{"name":"f","arguments":{}}[[/run]]', None).calls[0].name
        'f'
        >>> unregister()

    pattern: a `TextPattern`, which every scanner looks for; or the name of a `matcher`, a function from the text of a
        finished message to `TextCall` values, which only the aggregator runs.
    first: place it before the built-in formats that share an opener.

    Raises:
        ConfigError: the pattern cannot work.
    """
    return PATTERNS.register(pattern, matcher, first=first)


def choose_patterns(
    formats: str | Iterable[str],
    model: str | None,
    registry: PatternRegistry | None = None,
    *,
    stream: Iterable[str] = (),
) -> tuple[TextPattern, ...]:
    """Return for `auto` every format with a sentinel and those of the model's profile; otherwise the named formats.

    The profile also decides which formats count in reasoning. stream: the formats whose arguments are reported as they come.

    Raises:
        ConfigError: no format has one of the names.
    """
    patterns = PATTERNS if registry is None else registry
    streaming = frozenset(stream)
    patterns.named(streaming)
    chosen = patterns_for(formats, model, patterns).patterns
    if not streaming:
        return chosen
    return tuple(replace(one, stream_args=True) if one.name in streaming else one for one in chosen)


class ChosenPatterns(Struct, frozen=True):
    """The patterns for the answers of one model. All its requests use the same."""

    patterns: tuple[TextPattern, ...]
    reasoning: tuple[TextPattern, ...]
    sentinels: tuple[TextPattern, ...]


def patterns_for(
    formats: str | Iterable[str],
    model: str | None,
    registry: PatternRegistry = PATTERNS,
    *,
    leaks: bool = False,
) -> ChosenPatterns:
    """Return the patterns for the answers of a model, chosen again only if the registry has changed.

    leaks: the model's own calls are structured, so that a call in its text has leaked, perhaps with a stray word.
    """
    names = (formats,) if isinstance(formats, str) else tuple(formats)
    known = model if model is None or len(model) <= MAX_MODEL else None
    return _chosen(registry, registry.changes, names, known, leaks)


# The number of models in use at a time. Clients choose the model names, so the cache needs a limit.
@lru_cache(maxsize=256)
def _chosen(
    registry: PatternRegistry,
    _changes: int,
    names: tuple[str, ...],
    model: str | None,
    leaks: bool,  # noqa: FBT001 -- a cache's key
) -> ChosenPatterns:
    wanted: set[str] = set()
    for name in names:
        if name == "auto":
            wanted |= {pattern.name for pattern in registry.snapshot() if pattern.is_sentinel}
            wanted |= set(formats_of_model(model))
        else:
            wanted.add(name)
    thinking = {name for profile in _profiles_of(model) for name in profile.thinking}
    strays = {name for profile in _profiles_of(model) for name in profile.strays}
    strays.update(_LEAKS if leaks else ())
    patterns = tuple(
        replace(
            pattern,
            in_think="call" if pattern.name in thinking else pattern.in_think,
            has_stray_word=pattern.name in strays or pattern.has_stray_word,
        )
        if pattern.name in thinking | strays
        else pattern
        for pattern in registry.named(wanted)
    )
    reasoning = tuple(pattern for pattern in patterns if pattern.in_think == "call")
    sentinels = tuple(pattern for pattern in patterns if pattern.is_sentinel)
    return ChosenPatterns(patterns, reasoning, sentinels)
