"""The probes: each has a request, the expected answer, and the settings that may help if the answer is wrong. Pure.

An error message alone never decides a setting: it only suggests candidates. A candidate counts only if the same request succeeds
with it. Candidates that change less for clients come first.
"""

from collections.abc import Callable, Iterator, Mapping
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

    effect: what the gateway does with them. is_narrowed: the value is a list, and a part of it may be enough.
    needs_answer: it is not enough that the upstream accepts the request; the answer must be right, twice.
    """

    values: Mapping[str, object]
    effect: str
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


Remedies = Callable[[FailedProbe], Iterator[Remedy]]


def _none(_failed: FailedProbe) -> Iterator[Remedy]:
    return iter(())


class Probe(Struct, frozen=True, kw_only=True):
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
    remedies: Remedies = _none
    may_drop: bool = False
    is_optional: bool = False
    is_large: bool = False
    advice: Mapping[Dialect, str] = {}


def kind_of(settings: UpstreamSettings) -> Dialect:
    """The dialect of an upstream over HTTP."""
    return next(dialect for dialect in ALL if dialect == settings.kind)


# --- remedies ---------------------------------------------------------------------------------------------------------


def _if(dialects: tuple[Dialect, ...], *remedies: Remedy) -> Remedies:
    def offered(failed: FailedProbe) -> Iterator[Remedy]:
        return iter(remedies if failed.dialect in dialects else ())

    return offered


def _all_of(*sources: Remedies) -> Remedies:
    def offered(failed: FailedProbe) -> Iterator[Remedy]:
        for source in sources:
            yield from source(failed)

    return offered


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
)
_ONE_SYSTEM = Remedy(
    values={"limits.system_messages": False},
    effect="later system messages become reminders in the user's turn",
)
_USER_FIRST = Remedy(
    values={"limits.user_first": True}, effect="an empty turn of the user is put first"
)
_NOT_STRICT = Remedy(
    values={"limits.strict_tools": False}, effect="functions are sent as not strict"
)
_NO_REFERENCES = Remedy(
    values={"limits.inline_schema_refs": True}, effect="references in schemas are resolved"
)
_NO_BUILTIN_TOOLS = Remedy(
    values={"limits.builtin_tools": ()}, effect="tools that the provider would run are left out"
)
_NO_OLD_THOUGHTS = Remedy(
    values={"losses.reasoning_history": "drop"}, effect="earlier reasoning is not sent back"
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
    """Members of the request that no accepted request had: first those that the message names, then all of them."""
    new = sorted(failed.seen.fields - failed.accepted)
    named = [name for name in new if failed.is_named(name)]
    old = failed.settings.drop_fields
    for names in (named, new):
        if names:
            yield Remedy(
                values={"drop_fields": (*old, *names)},
                effect="the gateway leaves them out",
                is_narrowed=True,
            )


def _unwanted_keywords(*words: str) -> Remedies:
    """These keywords of schemas: first those that the message names, then all of them."""

    def offered(failed: FailedProbe) -> Iterator[Remedy]:
        stated = failed.settings.limits.drop_schema_keywords
        default = upstream_codec(failed.dialect).target.schemas.drop
        old = tuple(sorted(default)) if stated is None else stated
        new = [word for word in words if word not in old]
        named = [word for word in new if failed.is_named(word)]
        for each in (named, new):
            if each:
                yield Remedy(
                    values={"limits.drop_schema_keywords": (*old, *each)},
                    effect="they are removed from schemas",
                    is_narrowed=True,
                )

    return offered


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

_CALLS = _all_of(text_formats, _if(ALL, _NEVER_STREAM), prompted_tools)
_OLD_TURNS = _all_of(
    _if(("chat", "messages"), _ONE_SYSTEM),
    _if(("chat",), _NO_OLD_THOUGHTS),
    _if(("responses",), _NO_BUILTIN_TOOLS),
)
_FIRST_TURNS = _all_of(
    _if(("chat", "messages"), _ONE_SYSTEM), _if(("responses",), _NO_BUILTIN_TOOLS)
)

BASIC: tuple[Probe, ...] = (
    Probe(
        name="text_body",
        title="a text, not streamed",
        request=partial(requests.plain_text, stream=False),
        judge=judgement.answers,
        tries=2,
        remedies=_all_of(_if(("chat",), _OTHER_LIMIT_FIELD), _if(ALL, _ALWAYS_STREAM)),
    ),
    Probe(
        name="text_stream",
        title="a text, streamed",
        request=partial(requests.plain_text, stream=True),
        judge=judgement.answers,
        tries=2,
        remedies=_if(ALL, _NEVER_STREAM),
        may_drop=True,
    ),
)
"""What every use needs. If one of these fails and nothing helps, nothing else is asked."""

CALL = Probe(
    name="call_stream",
    title="a tool call, streamed",
    request=partial(requests.one_call, stream=True),
    judge=judgement.one_call,
    tries=TRIES,
    remedies=_CALLS,
    advice=dict.fromkeys(ALL, "the model or its server has no usable tool calls"),
)


def _chosen(choice: ToolChoice, dialect: Dialect) -> ProbeRequest:
    return requests.chosen(dialect, choice)


_CHOICES = (
    ("choice_required", "a call that is required", ToolChoice(mode="required"), judgement.calls_something),
    (
        "choice_named",
        "a call of a named tool",
        ToolChoice(mode="tool", tool=ToolRef(requests.LOOKUP)),
        judgement.calls_only(requests.LOOKUP),
    ),
    ("choice_none", "tools that must not be called", ToolChoice(mode="none"), judgement.calls_nothing),
)  # fmt: skip

TOOLS: tuple[Probe, ...] = (
    Probe(
        name="call_body",
        title="a tool call, not streamed",
        request=partial(requests.one_call, stream=False),
        judge=judgement.one_call,
        tries=TRIES,
        remedies=_if(ALL, _ALWAYS_STREAM_FOR_CALLS),
    ),
    Probe(
        name="two_calls",
        title="two calls in one answer",
        request=requests.two_calls,
        judge=judgement.two_calls,
        tries=TRIES,
        may_drop=True,
    ),
    Probe(
        name="round_trip",
        title="a result that goes back and is used",
        request=lambda dialect: requests.round_trip(dialect, "call_1"),
        judge=judgement.uses_result,
        tries=TRIES,
        remedies=_all_of(narrower_ids, prompted_tools),
    ),
    Probe(
        name="foreign_ids",
        title="call ids of other vendors",
        request=requests.foreign_ids,
        judge=judgement.accepts,
        remedies=narrower_ids,
    ),
    Probe(
        name="unpaired",
        title="a call without its result, a result without its call",
        request=requests.unpaired,
        judge=judgement.accepts,
        remedies=narrower_ids,
    ),
    Probe(
        name="one_at_a_time",
        title="one call at a time",
        request=requests.one_at_a_time,
        judge=judgement.calls_at_most_once,
        may_drop=True,
        is_optional=True,
    ),
    *(
        Probe(
            name=name,
            title=title,
            request=partial(_chosen, choice),
            judge=judge,
            tries=2,
            is_optional=True,
        )
        for name, title, choice, judge in _CHOICES
    ),
    Probe(
        name="nested_schema",
        title="a schema with lists, alternatives and null",
        request=requests.nested_schema,
        judge=judgement.one_call,
        tries=2,
        remedies=_unwanted_keywords("additionalProperties", "anyOf"),
    ),
    Probe(
        name="strict_schema",
        title="a strict function",
        request=requests.strict_schema,
        judge=judgement.one_call,
        tries=2,
        remedies=_if(ALL, _NOT_STRICT),
    ),
    Probe(
        name="referring_schema",
        title="a schema with $ref",
        request=requests.referring_schema,
        judge=judgement.one_call,
        tries=2,
        remedies=_if(ALL, _NO_REFERENCES),
    ),
    Probe(
        name="keyword_schema",
        title="a schema with rare keywords",
        request=requests.keyword_schema,
        judge=judgement.one_call,
        tries=2,
        remedies=_unwanted_keywords(*requests.KEYWORDS),
    ),
    Probe(
        name="names",
        title="tool names of 64 characters, with dashes",
        request=requests.names,
        judge=judgement.calls(requests.LONG_NAME, judgement.has_city(requests.CITY)),
        tries=2,
        remedies=narrower_names,
    ),
    Probe(
        name="custom_tool",
        title="Codex: a free-form tool (apply_patch)",
        request=lambda _: requests.custom_tool(),
        judge=judgement.calls(requests.APPLY_PATCH, lambda call: "*** Begin Patch" in call.input),
        tries=2,
        may_drop=True,
        advice=_OTHER_KIND,
    ),
    Probe(
        name="namespace",
        title="Codex: a tool in a namespace (MCP)",
        request=lambda _: requests.namespaced(),
        judge=judgement.calls(
            requests.LOOKUP, judgement.has_city(requests.CITY), space=requests.SPACE
        ),
        tries=2,
        may_drop=True,
        advice=_OTHER_KIND,
    ),
)
"""What needs tools."""

CONVERSATION: tuple[Probe, ...] = (
    Probe(
        name="late_system",
        title="several system messages, one inside the conversation",
        request=requests.late_system,
        judge=judgement.answers,
        tries=2,
        remedies=_if(("chat", "messages"), _ONE_SYSTEM),
    ),
    Probe(
        name="developer",
        title="the role developer, from Chat clients",
        request=requests.developer,
        judge=judgement.answers,
        kinds=("chat",),
        is_optional=True,
    ),
    Probe(
        name="assistant_first",
        title="a conversation that the assistant begins",
        request=requests.assistant_first,
        judge=judgement.answers,
        tries=2,
        remedies=_if(("chat",), _USER_FIRST),
    ),
    Probe(
        name="same_role",
        title="turns of the user in a row",
        request=requests.same_role,
        judge=judgement.answers,
        tries=2,
    ),
    Probe(
        name="empty_text",
        title="an empty turn of the assistant",
        request=requests.empty_text,
        judge=judgement.accepts,
    ),
    Probe(
        name="empty_tools",
        title="an empty list of tools",
        request=requests.empty_tools,
        judge=judgement.answers,
        tries=2,
    ),
    Probe(
        name="no_limit",
        title="a request without a token limit",
        request=lambda _: requests.without_limit(),
        judge=judgement.answers,
        tries=2,
        remedies=_if(("messages",), *_SMALLER_LIMITS),
        may_drop=True,
    ),
    Probe(
        name="stop",
        title="a stop sequence",
        request=requests.stopped,
        judge=judgement.stops_before("gamma"),
        is_optional=True,
    ),
    Probe(
        name="structured",
        title="an answer by a JSON schema",
        request=requests.structured,
        judge=judgement.is_json,
        tries=2,
        is_optional=True,
    ),
    Probe(
        name="unknown_field",
        title="a field that it does not know",
        request=requests.unknown_field,
        judge=judgement.accepts,
        is_optional=True,
    ),
    Probe(
        name="image",
        title="an image",
        request=requests.image,
        judge=judgement.mentions("red", "the answer does not name the colour"),
        is_optional=True,
    ),
)

CLIENTS: tuple[Probe, ...] = (
    Probe(
        name="codex_later",
        title="Codex: a conversation with calls and results",
        request=lambda _: requests.codex_later(),
        judge=judgement.uses_result,
        tries=2,
        remedies=_OLD_TURNS,
        may_drop=True,
        advice=_OTHER_KIND,
    ),
    Probe(
        name="claude_code_later",
        title="Claude Code: a conversation with calls and results",
        request=lambda _: requests.claude_code_later(),
        judge=judgement.uses_result,
        tries=2,
        remedies=_OLD_TURNS,
        may_drop=True,
    ),
    Probe(
        name="claude_code_body",
        title="Claude Code: the same, not streamed",
        request=lambda _: requests.claude_code_later(stream=False),
        judge=judgement.uses_result,
        tries=2,
        remedies=_if(ALL, _ALWAYS_STREAM_FOR_CALLS),
    ),
    Probe(
        name="codex",
        title="Codex: the first request, with all its tools",
        request=lambda _: requests.codex(),
        control=lambda _: requests.codex(0),
        judge=judgement.calls(
            requests.SHELL,
            judgement.has_argument("cmd", requests.SECRET_WORD),
            lacking=_LOST_PROMPT,
        ),
        tries=2,
        remedies=_FIRST_TURNS,
        may_drop=True,
        is_large=True,
        advice=_OTHER_KIND,
    ),
    Probe(
        name="claude_code",
        title="Claude Code: the first request, with all its tools",
        request=lambda _: requests.claude_code(),
        control=lambda _: requests.claude_code(0),
        judge=judgement.calls(
            requests.BASH,
            judgement.has_argument("command", requests.SECRET_WORD),
            lacking=_LOST_PROMPT,
        ),
        tries=2,
        remedies=_FIRST_TURNS,
        may_drop=True,
        is_large=True,
    ),
)
"""The requests of real clients, after the small ones have shown which settings the upstream needs."""
