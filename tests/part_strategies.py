"""Strategies for values: texts, JSON, errors, counts, and whole parts. `strategies` makes answers of them."""

import json
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.model.outcome import ErrorInfo, ErrorKind, Limits, LimitWindow, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    CallKind,
    Dialect,
    Extra,
    Media,
    MediaKind,
    Opaque,
    Part,
    PartStatus,
    Reasoning,
    Refusal,
    Result,
    Seal,
    SealKind,
    Text,
)

__all__ = (
    "ALL_KINDS",
    "Kind",
    "annotations",
    "custom_calls",
    "dialects",
    "errors",
    "extras",
    "function_calls",
    "identifiers",
    "json_texts",
    "json_values",
    "limits",
    "logprobs",
    "maybe",
    "media",
    "names",
    "opaques",
    "parts",
    "provider_calls",
    "raws",
    "reasonings",
    "refusals",
    "results",
    "seals",
    "statuses",
    "text_parts",
    "texts",
    "usages",
)

T = TypeVar("T")
Kind = Literal[
    "text", "refusal", "reasoning", "function", "custom", "provider", "result", "media", "opaque"
]
ALL_KINDS: tuple[Kind, ...] = (
    "text",
    "refusal",
    "reasoning",
    "function",
    "custom",
    "provider",
    "result",
    "media",
    "opaque",
)

# Line separators that line iterators split at, a BOM, an astral character, a combining mark, JSON's own characters,
# SSE's own characters and XML's.
_SPECIALS = '\u2028\u2029\u0085\ufeff\U0001f600\u0301"\\\n\r\t\x00\x7f:{}[]<>&é漢'


def texts(min_size: int = 0, max_size: int = 24) -> st.SearchStrategy[str]:
    """Any text that has a UTF-8, with the characters that break naive code much more often than chance."""
    characters = st.sampled_from(_SPECIALS) | st.characters(codec="utf-8")
    return st.text(characters, min_size=min_size, max_size=max_size)


def names() -> st.SearchStrategy[str]:
    """Tool names that every vendor accepts."""
    return st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,19}", fullmatch=True)


def identifiers(prefix: str) -> st.SearchStrategy[str]:
    return st.from_regex(prefix + r"[a-zA-Z0-9]{1,12}", fullmatch=True)


def json_values() -> st.SearchStrategy[object]:
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts(max_size=8)
    )
    nested: st.SearchStrategy[object] = st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(texts(max_size=6), inner, max_size=3)
        ),
        max_leaves=6,
    )
    return nested


# Source texts that a parse and a re-serialisation would change.
_DELICATE = (
    "{}",
    '{ "a" : 1 }',
    '{"a":1,"a":2}',
    '{"n":1.0,"m":1e2,"big":123456789012345678901234567890,"small":-0.0}',
    '{"u":"\\u00e9\\ud83d\\ude00","slash":"\\/"}',
    '{"cmd":"ll -l"}',
    '\n{"a":[ ]}\n',
)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON objects as source text, in several spellings."""
    if draw(st.booleans()):
        return draw(st.sampled_from(_DELICATE))
    value = draw(st.dictionaries(texts(max_size=6), json_values(), max_size=3))
    separators = draw(st.sampled_from(((",", ":"), (", ", ": "), (" , ", " : "))))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)


def raws() -> st.SearchStrategy[Raw]:
    return json_values().map(_as_raw)


def _as_raw(value: object) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":")).encode())


def dialects() -> st.SearchStrategy[Dialect]:
    known: tuple[Dialect, ...] = ("chat", "responses", "messages", "codex")
    return st.sampled_from(known)


def extras() -> st.SearchStrategy[Extra]:
    fields = st.dictionaries(names().map(lambda name: "x_" + name), raws(), min_size=1, max_size=2)
    return st.builds(Extra, dialects(), fields)


def maybe(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


def seals(*kinds: SealKind) -> st.SearchStrategy[Seal]:
    known: tuple[SealKind, ...] = kinds or ("signature", "redacted", "encrypted", "thought")
    return st.builds(
        Seal, st.sampled_from(known), st.from_regex(r"[A-Za-z0-9+/]{4,20}=?", fullmatch=True)
    )


def annotations() -> st.SearchStrategy[Annotation]:
    return st.builds(
        Annotation,
        dialects(),
        raws(),
        url=maybe(st.just("https://example.org/a")),
        title=maybe(texts(max_size=8)),
        quote=maybe(texts(max_size=8)),
        start=maybe(st.integers(0, 50)),
        end=maybe(st.integers(50, 99)),
    )


def usages() -> st.SearchStrategy[Usage]:
    count = maybe(st.integers(0, 10**6))
    return st.builds(
        Usage,
        input=count,
        output=count,
        cached=count,
        cache_write=count,
        reasoning=count,
        input_audio=count,
        output_audio=count,
        total=count,
        extra=maybe(extras()),
    )


def limits() -> st.SearchStrategy[Limits]:
    window = st.builds(
        LimitWindow,
        name=names(),
        used_percent=maybe(st.floats(0, 100)),
        window_minutes=maybe(st.integers(1, 10000)),
        resets_at=maybe(st.integers(0, 2**31)),
    )
    return st.builds(
        Limits,
        windows=st.lists(window, max_size=2).map(tuple),
        has_credits=maybe(st.booleans()),
        balance=maybe(st.just("12.50")),
    )


def errors() -> st.SearchStrategy[ErrorInfo]:
    kinds: tuple[ErrorKind, ...] = (
        "invalid_request",
        "rate_limit",
        "overloaded",
        "truncated",
        "protocol",
        "upstream",
        "server",
    )
    return st.builds(
        ErrorInfo,
        kind=st.sampled_from(kinds),
        message=texts(min_size=1),
        status=maybe(st.sampled_from((400, 429, 500, 502, 503, 529))),
        code=maybe(names()),
    )


# --- parts, whole ----------------------------------------------------------------------------------------------------


def statuses(*extra: PartStatus) -> st.SearchStrategy[PartStatus]:
    known: tuple[PartStatus, ...] = ("completed", *extra)
    return st.sampled_from(known)


def logprobs() -> st.SearchStrategy[Raw]:
    entry = st.tuples(texts(max_size=4), st.floats(-10, 0)).map(_logprob)
    return st.lists(entry, min_size=1, max_size=2).map(_as_raw)


def _logprob(pair: tuple[str, float]) -> dict[str, object]:
    return {"token": pair[0], "logprob": pair[1], "bytes": None, "top_logprobs": []}


def text_parts() -> st.SearchStrategy[Text]:
    return st.builds(
        Text,
        text=texts(),
        annotations=st.lists(annotations(), max_size=2).map(tuple),
        logprobs=maybe(logprobs()),
        item_id=maybe(identifiers("msg_")),
        extra=maybe(extras()),
    )


def refusals() -> st.SearchStrategy[Refusal]:
    return st.builds(
        Refusal,
        text=texts(min_size=1),
        item_id=maybe(identifiers("msg_")),
        extra=maybe(extras()),
    )


def reasonings() -> st.SearchStrategy[Reasoning]:
    entries = st.lists(texts(min_size=1), max_size=3).map(tuple)
    return st.builds(
        Reasoning,
        summary=entries,
        content=entries,
        seals=st.lists(seals("signature", "redacted", "encrypted"), max_size=2).map(tuple),
        item_id=maybe(identifiers("rs_")),
        extra=maybe(extras()),
    )


def function_calls() -> st.SearchStrategy[Call]:
    """Complete client calls. Unique ids are the caller's affair (`events` sees to it)."""
    return st.builds(
        Call,
        call_id=identifiers("call_"),
        name=names(),
        input=json_texts(),
        namespace=maybe(names()),
        seals=st.lists(seals("thought"), max_size=1).map(tuple),
        item_id=maybe(identifiers("fc_")),
        extra=maybe(extras()),
    )


def custom_calls() -> st.SearchStrategy[Call]:
    return st.builds(
        Call,
        call_id=identifiers("call_"),
        name=names(),
        input=texts(),
        kind=st.just("custom"),
        namespace=maybe(names()),
        item_id=maybe(identifiers("ctc_")),
    )


def provider_calls() -> st.SearchStrategy[Call]:
    kinds: tuple[CallKind, ...] = ("web_search", "code_interpreter", "mcp", "file_search")
    return st.builds(
        Call,
        call_id=identifiers("srvtoolu_"),
        name=names(),
        input=json_texts(),
        kind=st.sampled_from(kinds),
        executor=st.just("provider"),
        status=statuses("failed"),
        item_id=maybe(identifiers("ws_")),
    )


def media(*kinds: MediaKind) -> st.SearchStrategy[Media]:
    known: tuple[MediaKind, ...] = kinds or ("image", "audio", "video", "file")
    return st.builds(
        Media,
        kind=st.sampled_from(known),
        media_type=maybe(st.just("application/octet-stream")),
        data=st.from_regex(r"([A-Za-z0-9+/]{4}){1,6}", fullmatch=True),
        transcript=maybe(texts(min_size=1)),
        item_id=maybe(identifiers("msg_")),
    )


@st.composite
def opaques(draw: st.DrawFn) -> Opaque:
    kind = "x_" + draw(names())
    fields = draw(st.dictionaries(names().map(lambda name: "y_" + name), json_values(), max_size=2))
    return Opaque(dialect=draw(dialects()), type=kind, raw=_as_raw({"type": kind, **fields}))


def results() -> st.SearchStrategy[Result]:
    """Results of provider-run tools, as they stand in an answer."""
    return st.builds(
        Result,
        call_id=identifiers("srvtoolu_"),
        content=st.lists(
            st.builds(Text, text=texts()) | media("image") | opaques(), max_size=2
        ).map(tuple),
        is_error=st.booleans(),
        kind=st.just("mcp"),
        executor=st.just("provider"),
    )


_STRATEGIES: dict[Kind, Callable[[], st.SearchStrategy[Part]]] = {
    "text": text_parts,
    "refusal": refusals,
    "reasoning": reasonings,
    "function": function_calls,
    "custom": custom_calls,
    "provider": provider_calls,
    "result": results,
    "media": media,
    "opaque": opaques,
}


def parts(kinds: Sequence[Kind] = ALL_KINDS) -> st.SearchStrategy[Part]:
    return st.one_of([_STRATEGIES[kind]() for kind in kinds])
