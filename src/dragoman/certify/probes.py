"""The probes: each has a request, the expected answer, and the settings that may help if the answer is wrong. Pure.

An error message alone never decides a setting: it only suggests candidates. A candidate counts only if the same request succeeds
with it. Candidates that change less for clients come first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial

from msgspec import Struct, structs

from dragoman.certify import judgement, requests
from dragoman.certify.asker import ProbeAnswer, ProbeRequest
from dragoman.certify.judgement import Judge
from dragoman.config.settings import UpstreamSettings
from dragoman.dialects.registry import upstream_codec
from dragoman.model.parts import Dialect
from dragoman.model.request import ToolChoice, ToolRef
from dragoman.textcalls import PATTERNS
from dragoman.textcalls.prompting import PROMPT_FORMATS

ALL: tuple[Dialect, ...] = ("chat", "responses", "messages")

# How often a model is asked for something that it may do or not.
TRIES = 3

_NAME_LENGTHS = (63, 60, 48, 40, 32)
_ID_LENGTHS = (40, 36, 32, 24)
# The format that a model was trained on, by globs of its name in lower case: `docs/prompted-tools.md`. The last two suit any model.
_PROMPTS: tuple[tuple[str, str], ...] = (
    ("*qwen3-coder*", "qwen3_coder"),
    ("*qwen*", "hermes"),
    ("*hermes*", "hermes"),
    ("*glm*", "glm"),
    ("*mistral*", "mistral_named"),
    ("*devstral*", "mistral_named"),
    ("*deepseek-v3*", "deepseek_v31"),
    ("*deepseek-r1*", "deepseek_v3"),
    ("*kimi*", "kimi_k2"),
    ("*llama*", "bare_json"),
    ("*gemma*", "tool_code"),
    ("*granite*", "granite"),
    ("*phi*", "functools"),
    ("*gpt-oss*", "harmony"),
    ("*minimax*", "minimax_m2"),
    ("*command*", "command"),
    ("*", "hermes"),
    ("*", "use_tool"),
)
_PROMPTS_TRIED = 3


class Remedy(Struct, frozen=True, kw_only=True):
    """Settings that may help. values: by key, with `limits.` and `losses.` before those of these tables.

    effect: what the gateway does with them. kinds: the upstreams that they can help.
    is_narrowed: the value is a list, and a part of it may be enough.
    needs_answer: it is not enough that the upstream accepts the request; the answer must be right, twice.
    """

    values: Mapping[str, object]
    effect: str
    kinds: tuple[Dialect, ...] = ALL
    is_narrowed: bool = False
    needs_answer: bool = False


class FailedProbe(Struct, frozen=True, kw_only=True):
    """A probe that failed: what was seen, under which settings, and the members of requests that the upstream has accepted."""

    seen: ProbeAnswer
    settings: UpstreamSettings
    model: str
    accepted: frozenset[str] = frozenset()

    @property
    def dialect(self) -> Dialect:
        return kind_of(self.settings)

    def is_named(self, word: str) -> bool:
        """Whether the upstream's message has this word."""
        return self.seen.error is not None and word in self.seen.error.message


Remedies = Remedy | Callable[[FailedProbe], Iterator[Remedy]]
"""One remedy, or a function that finds those for a failure."""


class Probe(Struct, frozen=True):
    """kinds: the upstreams that it concerns. tries: how often the model is asked. remedies: what may help.

    control: an easy form of the same question: if its answer is not right either, a wrong answer says nothing about the upstream.
    may_drop: members of the request that no other probe has may be left out. is_optional: the usual clients do not need it.
    is_large: it has the size of a real client's request. advice: if nothing helps, by the kind of upstream.
    """

    name: str
    title: str
    request: Callable[[Dialect], ProbeRequest]
    judge: Judge
    control: Callable[[Dialect], ProbeRequest] | None = None
    kinds: tuple[Dialect, ...] = ALL
    tries: int = 1
    remedies: tuple[Remedies, ...] = ()
    may_drop: bool = False
    is_optional: bool = False
    is_large: bool = False
    advice: Mapping[Dialect, str] = {}

    def remedies_for(self, failed: FailedProbe) -> Iterator[Remedy]:
        """The remedies that concern the upstream, in their order."""
        for each in self.remedies:
            found = (each,) if isinstance(each, Remedy) else each(failed)
            yield from (remedy for remedy in found if failed.dialect in remedy.kinds)


def kind_of(settings: UpstreamSettings) -> Dialect:
    """The dialect of an upstream over HTTP."""
    return next(dialect for dialect in ALL if dialect == settings.kind)


# --- remedies ---------------------------------------------------------------------------------------------------------


_ALWAYS_STREAM = Remedy(
    values={"always_stream": True}, effect="the gateway asks for a stream and collects the body"
)
_ALWAYS_STREAM_FOR_CALLS = structs.replace(_ALWAYS_STREAM, needs_answer=True)
_NEVER_STREAM = Remedy(
    values={"never_stream": True},
    effect="the gateway asks for bodies, and clients get a stream at the end",
    needs_answer=True,
)
_OTHER_LIMIT_FIELD = Remedy(
    values={"limits.max_tokens_field": "max_completion_tokens"},
    effect="the token limit is sent under its newer name",
    kinds=("chat",),
)
_ONE_SYSTEM = Remedy(
    values={"limits.system_messages": False},
    effect="later system messages become reminders in the user's turn",
    kinds=("chat", "messages"),
)
_USER_FIRST = Remedy(
    values={"limits.user_first": True},
    effect="an empty turn of the user is put first",
    kinds=("chat",),
)
_NOT_STRICT = Remedy(
    values={"limits.strict_tools": False}, effect="functions are sent as not strict"
)
_NO_REFERENCES = Remedy(
    values={"limits.inline_schema_refs": True}, effect="references in schemas are resolved"
)
_NO_BUILTIN_TOOLS = Remedy(
    values={"limits.builtin_tools": ()},
    effect="tools that the provider would run are left out",
    kinds=("responses",),
)
_NO_OLD_THOUGHTS = Remedy(
    values={"losses.reasoning_history": "drop"},
    effect="earlier reasoning is not sent back",
    kinds=("chat",),
)


def text_formats(failed: FailedProbe) -> Iterator[Remedy]:
    """Formats without a sentinel that find the expected call in the answer's text."""
    seen = failed.seen
    plain = {pattern.name for pattern in PATTERNS.snapshot() if not pattern.is_sentinel}
    for name in judgement.formats_in(seen.text, seen.tools):
        if name in plain and name not in failed.settings.text_calls:
            yield Remedy(
                values={"text_calls": (*(failed.settings.text_calls or ("auto",)), name)},
                effect="the gateway looks for calls in this format too",
                needs_answer=True,
            )


def prompted_tools(failed: FailedProbe) -> Iterator[Remedy]:
    if failed.settings.prompted_tools is not None:
        return
    name = failed.model.lower()
    fitting = (prompt for glob, prompt in _PROMPTS if fnmatchcase(name, glob))
    formats = [each for each in dict.fromkeys(fitting) if each in PROMPT_FORMATS]
    for each in formats[:_PROMPTS_TRIED]:
        yield Remedy(
            values={"prompted_tools": each},
            effect="the gateway writes the tools into the prompt, and finds the calls in the text",
            needs_answer=True,
        )


def unwanted_fields(failed: FailedProbe) -> Iterator[Remedy]:
    """Members of the request that no accepted request had."""
    new = sorted(failed.seen.fields - failed.accepted)
    old = failed.settings.drop_fields
    return _without(failed, "drop_fields", old, new, "the gateway leaves them out")


def _unwanted_keywords(*words: str) -> Callable[[FailedProbe], Iterator[Remedy]]:
    """These keywords of schemas."""

    def offered(failed: FailedProbe) -> Iterator[Remedy]:
        stated = failed.settings.limits.drop_schema_keywords
        default = upstream_codec(failed.dialect).target.schemas.drop
        old = tuple(sorted(default)) if stated is None else stated
        new = [word for word in words if word not in old]
        key = "limits.drop_schema_keywords"
        return _without(failed, key, old, new, "they are removed from schemas")

    return offered


def _without(
    failed: FailedProbe, key: str, old: Sequence[str], new: Sequence[str], effect: str
) -> Iterator[Remedy]:
    """A longer list of what is left out: first with those that the message names, then with all."""
    for names in ([name for name in new if failed.is_named(name)], new):
        if names:
            yield Remedy(values={key: (*old, *names)}, effect=effect, is_narrowed=True)


def narrower_names(_failed: FailedProbe) -> Iterator[Remedy]:
    words = {"limits.name_pattern": "[a-zA-Z0-9_]"}
    effect = "other names are replaced on the way there and restored on the way back"
    yield Remedy(values=words, effect=effect)
    for length in _NAME_LENGTHS:
        yield Remedy(values={"limits.max_name_length": length}, effect=effect)
    for length in _NAME_LENGTHS[::2]:
        yield Remedy(values={**words, "limits.max_name_length": length}, effect=effect)


def narrower_ids(_failed: FailedProbe) -> Iterator[Remedy]:
    effect = "other ids are replaced on the way there"
    words = {"limits.id_pattern": "[a-zA-Z0-9_-]"}
    yield Remedy(values=words, effect=effect)
    for length in _ID_LENGTHS:
        yield Remedy(values={"limits.max_id_length": length}, effect=effect)
    yield Remedy(values={**words, "limits.max_id_length": _ID_LENGTHS[0]}, effect=effect)
    letters = {"limits.id_pattern": "[a-zA-Z0-9]"}
    # Mistral's ids: exactly nine letters and digits.
    yield Remedy(values={**letters, "limits.max_id_length": 9}, effect=effect)


_SMALLER_LIMITS = tuple(
    Remedy(
        values={"limits.default_max_tokens": limit},
        effect="clients that state no limit get this one",
        kinds=("messages",),
    )
    for limit in (4096, 2048, 1024)
)


# --- the list ---------------------------------------------------------------------------------------------------------

_LOST_PROMPT = (
    "the call lacks a word from the beginning of the prompt, which it has in a short prompt: the context of the server is too small for "
    "this client (Ollama: OLLAMA_CONTEXT_LENGTH, llama.cpp: --ctx-size, vLLM: --max-model-len)"
)
_OTHER_KIND: Mapping[Dialect, str] = {
    "responses": 'if it speaks Chat Completions too, use kind = "chat": the gateway then translates what this dialect of it lacks'
}

_OLD_TURNS = (_ONE_SYSTEM, _NO_OLD_THOUGHTS, _NO_BUILTIN_TOOLS)
_FIRST_TURNS = (_ONE_SYSTEM, _NO_BUILTIN_TOOLS)

BASIC: tuple[Probe, ...] = (
    Probe(
        "text_body",
        "a text, not streamed",
        partial(requests.one_word, stream=False),
        judgement.answers,
        tries=2,
        remedies=(_OTHER_LIMIT_FIELD, _ALWAYS_STREAM),
    ),
    Probe(
        "text_stream",
        "a text, streamed",
        requests.one_word,
        judgement.answers,
        tries=2,
        remedies=(_NEVER_STREAM,),
        may_drop=True,
    ),
)
"""What every use needs. If one of these fails and nothing helps, nothing else is asked."""

CALL = Probe(
    "call_stream",
    "a tool call, streamed",
    partial(requests.one_call, stream=True),
    judgement.one_call,
    tries=TRIES,
    remedies=(text_formats, _NEVER_STREAM, prompted_tools),
    advice=dict.fromkeys(ALL, "the model or its server has no usable tool calls"),
)


def _chosen(name: str, title: str, choice: ToolChoice, judge: Judge) -> Probe:
    asked = partial(requests.chosen, choice=choice)
    return Probe(name, title, asked, judge, tries=2, is_optional=True)


TOOLS: tuple[Probe, ...] = (
    Probe(
        "call_body",
        "a tool call, not streamed",
        partial(requests.one_call, stream=False),
        judgement.one_call,
        tries=TRIES,
        remedies=(_ALWAYS_STREAM_FOR_CALLS,),
    ),
    Probe(
        "two_calls",
        "two calls in one answer",
        requests.two_calls,
        judgement.two_calls,
        tries=TRIES,
        may_drop=True,
    ),
    Probe(
        "round_trip",
        "a result that goes back and is used",
        lambda dialect: requests.round_trip(dialect, "call_1"),
        judgement.uses_result,
        tries=TRIES,
        remedies=(narrower_ids, prompted_tools),
    ),
    Probe(
        "foreign_ids",
        "call ids of other vendors",
        requests.foreign_ids,
        judgement.accepts,
        remedies=(narrower_ids,),
    ),
    Probe(
        "unpaired",
        "a call without its result, a result without its call",
        requests.unpaired,
        judgement.accepts,
        remedies=(narrower_ids,),
    ),
    Probe(
        "one_at_a_time",
        "one call at a time",
        requests.one_at_a_time,
        judgement.calls_at_most_once,
        may_drop=True,
        is_optional=True,
    ),
    _chosen(
        "choice_required",
        "a call that is required",
        ToolChoice(mode="required"),
        judgement.calls_something,
    ),
    _chosen(
        "choice_named",
        "a call of a named tool",
        ToolChoice(mode="tool", tool=ToolRef(requests.LOOKUP)),
        judgement.calls_only(requests.LOOKUP),
    ),
    _chosen(
        "choice_none",
        "tools that must not be called",
        ToolChoice(mode="none"),
        judgement.calls_nothing,
    ),
    Probe(
        "nested_schema",
        "a schema with lists, alternatives and null",
        requests.nested_schema,
        judgement.one_call,
        tries=2,
        remedies=(_unwanted_keywords("additionalProperties", "anyOf"),),
    ),
    Probe(
        "strict_schema",
        "a strict function",
        requests.strict_schema,
        judgement.one_call,
        tries=2,
        remedies=(_NOT_STRICT,),
    ),
    Probe(
        "referring_schema",
        "a schema with $ref",
        requests.referring_schema,
        judgement.one_call,
        tries=2,
        remedies=(_NO_REFERENCES,),
    ),
    Probe(
        "keyword_schema",
        "a schema with rare keywords",
        requests.keyword_schema,
        judgement.one_call,
        tries=2,
        remedies=(_unwanted_keywords(*requests.KEYWORDS),),
    ),
    Probe(
        "names",
        "tool names of 64 characters, with dashes",
        requests.names,
        judgement.calls(requests.LONG_NAME, judgement.has_city(requests.CITY)),
        tries=2,
        remedies=(narrower_names,),
    ),
    Probe(
        "custom_tool",
        "Codex: a free-form tool (apply_patch)",
        lambda _: requests.custom_tool(),
        judgement.calls(requests.APPLY_PATCH, lambda call: "*** Begin Patch" in call.input),
        tries=2,
        may_drop=True,
        advice=_OTHER_KIND,
    ),
    Probe(
        "namespace",
        "Codex: a tool in a namespace (MCP)",
        lambda _: requests.namespaced(),
        judgement.calls(requests.LOOKUP, judgement.has_city(requests.CITY), space=requests.SPACE),
        tries=2,
        may_drop=True,
        advice=_OTHER_KIND,
    ),
)
"""What needs tools."""

CONVERSATION: tuple[Probe, ...] = (
    Probe(
        "late_system",
        "several system messages, one inside the conversation",
        requests.late_system,
        judgement.answers,
        tries=2,
        remedies=(_ONE_SYSTEM,),
    ),
    Probe(
        "developer",
        "the role developer, from Chat clients",
        requests.developer,
        judgement.answers,
        kinds=("chat",),
        is_optional=True,
    ),
    Probe(
        "assistant_first",
        "a conversation that the assistant begins",
        requests.assistant_first,
        judgement.answers,
        tries=2,
        remedies=(_USER_FIRST,),
    ),
    Probe(
        "same_role", "turns of the user in a row", requests.same_role, judgement.answers, tries=2
    ),
    Probe("empty_text", "an empty turn of the assistant", requests.empty_text, judgement.accepts),
    Probe(
        "empty_tools", "an empty list of tools", requests.empty_tools, judgement.answers, tries=2
    ),
    Probe(
        "no_limit",
        "a request without a token limit",
        lambda _: requests.without_limit(),
        judgement.answers,
        tries=2,
        remedies=_SMALLER_LIMITS,
        may_drop=True,
    ),
    Probe(
        "stop",
        "a stop sequence",
        requests.stopped,
        judgement.stops_before("gamma"),
        is_optional=True,
    ),
    Probe(
        "structured",
        "an answer by a JSON schema",
        requests.structured,
        judgement.is_json,
        tries=2,
        is_optional=True,
    ),
    Probe(
        "unknown_field",
        "a field that it does not know",
        requests.unknown_field,
        judgement.accepts,
        is_optional=True,
    ),
    Probe(
        "image",
        "an image",
        requests.image,
        judgement.mentions("red", "the answer does not name the colour"),
        is_optional=True,
    ),
)

CLIENTS: tuple[Probe, ...] = (
    Probe(
        "codex_later",
        "Codex: a conversation with calls and results",
        lambda _: requests.codex_later(),
        judgement.uses_result,
        tries=2,
        remedies=_OLD_TURNS,
        may_drop=True,
        advice=_OTHER_KIND,
    ),
    Probe(
        "claude_code_later",
        "Claude Code: a conversation with calls and results",
        lambda _: requests.claude_code_later(),
        judgement.uses_result,
        tries=2,
        remedies=_OLD_TURNS,
        may_drop=True,
    ),
    Probe(
        "claude_code_body",
        "Claude Code: the same, not streamed",
        lambda _: requests.claude_code_later(stream=False),
        judgement.uses_result,
        tries=2,
        remedies=(_ALWAYS_STREAM_FOR_CALLS,),
    ),
    Probe(
        "codex",
        "Codex: the first request, with all its tools",
        lambda _: requests.codex(),
        judgement.calls(
            requests.SHELL,
            judgement.has_argument("cmd", requests.SECRET_WORD),
            lacking=_LOST_PROMPT,
        ),
        control=lambda _: requests.codex(0),
        tries=2,
        remedies=_FIRST_TURNS,
        may_drop=True,
        is_large=True,
        advice=_OTHER_KIND,
    ),
    Probe(
        "claude_code",
        "Claude Code: the first request, with all its tools",
        lambda _: requests.claude_code(),
        judgement.calls(
            requests.BASH,
            judgement.has_argument("command", requests.SECRET_WORD),
            lacking=_LOST_PROMPT,
        ),
        control=lambda _: requests.claude_code(0),
        tries=2,
        remedies=_FIRST_TURNS,
        may_drop=True,
        is_large=True,
    ),
)
"""The requests of real clients, after the small ones have shown which settings the upstream needs."""
