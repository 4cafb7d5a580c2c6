"""Strategies for values: texts, JSON, errors, counts, and whole parts. `strategies` makes answers of them.

Every strategy is made once (`cache`): making one costs Hypothesis far more than drawing from it.
"""

import json
from collections.abc import Callable
from functools import cache
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

# Texts that break naive code: line separators that line iterators split at, a BOM, astral and combining characters, the
# characters of JSON, SSE and XML, and repetitions that overlap guessing would eat.
_TEXTS = (
    "a",
    "Hello, world.",
    "ll -l",
    "aaaa",
    " ",
    "\n",
    "\r\n\r\n",
    "\u2028\u2029\u0085",
    "\ufeffx",
    "\U0001f600\U0001f468\u200d\U0001f469",
    "e\u0301é漢字",
    '"\\"{}[],:',
    "data: [DONE]\n\n",
    "<tool_call>&lt;</tool_call>",
    "\x00\x1f\x7f",
    "\\u2028 \\ud83d",
)
_NAMES = ("f", "get_weather", "run-it", "mcp__server__tool", "A1", "data", "type", "_")
_JSON_TEXTS = (
    "{}",
    '{ "a" : 1 }',
    '{"a":1,"a":2}',
    '{"n":1.0,"m":1e2,"big":123456789012345678901234567890,"small":-0.0}',
    '{"u":"\\u00e9\\ud83d\\ude00","slash":"\\/"}',
    '{"cmd":"ll -l"}',
    '{"lines":"a\\u2028b\u2028c\u0085"}',
    '\n{"a":[ ]}\n',
    '{"city":"Paris","unit":"celsius","nested":{"deep":[1,2,{"x":null}]}}',
)


@cache
def texts(min_size: int = 0, max_size: int = 24) -> st.SearchStrategy[str]:
    """Any text that has a UTF-8, delicate ones far more often than chance would give."""
    pool = [text for text in ("", *_TEXTS) if min_size <= len(text) <= max_size]
    return st.sampled_from(pool) | st.text(min_size=min_size, max_size=min(max_size, 8))


@cache
def names() -> st.SearchStrategy[str]:
    """Tool names that every vendor accepts."""
    return st.sampled_from(_NAMES)


@cache
def json_values() -> st.SearchStrategy[object]:
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts()
    )
    nested: st.SearchStrategy[object] = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=6,
    )
    return nested


@st.composite
def _spelled(draw: st.DrawFn) -> str:
    value = draw(st.dictionaries(texts(), json_values(), max_size=2))
    separators = draw(st.sampled_from(((",", ":"), (", ", ": "), (" , ", " : "))))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)


@cache
def json_texts() -> st.SearchStrategy[str]:
    """JSON objects as source text, most of them such that a parse and a re-serialisation would change them."""
    pool, spelled = st.sampled_from(_JSON_TEXTS), _spelled()
    return st.integers(0, 7).flatmap(lambda chance: pool if chance else spelled)


@cache
def raws() -> st.SearchStrategy[Raw]:
    """JSON of any type, as opaque bytes."""
    return st.sampled_from([Raw(text.encode()) for text in (*_JSON_TEXTS, "null", "1.0", '"a"')])


@cache
def dialects() -> st.SearchStrategy[Dialect]:
    known: tuple[Dialect, ...] = ("chat", "responses", "messages", "codex")
    return st.sampled_from(known)


@cache
def extras() -> st.SearchStrategy[Extra]:
    return st.builds(
        Extra,
        dialects(),
        raws().map(lambda raw: {"x_one": raw, "x_two": Raw(b"[1]")}),
    )


@cache
def maybe(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


@cache
def seldom(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    nothing = st.none()
    return st.integers(0, 4).flatmap(lambda chance: nothing if chance else strategy)


@cache
def several(strategy: st.SearchStrategy[T], most: int = 2) -> st.SearchStrategy[tuple[T, ...]]:
    sizes = [st.tuples(*[strategy] * count) for count in range(most + 1)]
    return st.integers(0, most).flatmap(lambda count: sizes[count])


@cache
def seals(*kinds: SealKind) -> st.SearchStrategy[Seal]:
    known: tuple[SealKind, ...] = kinds or ("signature", "redacted", "encrypted", "thought")
    data = st.sampled_from(("EqQBCgIYAhIM", "gAAAAABo+/=", '{"google":{"thought_signature":"x"}}'))
    return st.builds(Seal, st.sampled_from(known), data)


@cache
def annotations() -> st.SearchStrategy[Annotation]:
    """Citations as each vendor writes them; the fields that cross dialects say what the raw form says."""
    url = "https://example.org/a?b=c"
    file = Annotation(
        "responses",
        Raw(b'{"type":"file_citation","file_id":"file_1","filename":"a.txt","index":3}'),
        title="a.txt",
        start=3,
    )
    stretch = Annotation(
        "responses",
        Raw(
            b'{"type":"url_citation","start_index":1,"end_index":5,"title":"A \\u2028 title",'
            b'"url":"https://example.org/a?b=c"}'
        ),
        url=url,
        title="A \u2028 title",
        start=1,
        end=5,
    )
    nested = Annotation(
        "chat",
        Raw(
            b'{"type":"url_citation","url_citation":{"start_index":0,"end_index":5,"title":"A title",'
            b'"url":"https://example.org/a?b=c"}}'
        ),
        url=url,
        title="A title",
        start=0,
        end=5,
    )
    quoted = Annotation(
        "messages",
        Raw(
            b'{"type":"web_search_result_location","url":"https://example.org/a?b=c","title":"A title",'
            b'"cited_text":"quoted","encrypted_index":"Eo8B"}'
        ),
        url=url,
        title="A title",
        quote="quoted",
    )
    page = Annotation(
        "messages",
        Raw(
            b'{"type":"page_location","cited_text":"quoted","document_index":0,"document_title":"A title",'
            b'"start_page_number":1,"end_page_number":2,"file_id":null}'
        ),
        title="A title",
        quote="quoted",
    )
    return st.sampled_from((file, stretch, nested, quoted, page))


@cache
def usages() -> st.SearchStrategy[Usage]:
    fields = {"x_tier": Raw(b'"a"'), "x_count": Raw(b"1")}
    return st.sampled_from(
        (
            Usage(input=10),
            Usage(output=0),
            Usage(input=12, output=5, total=17),
            Usage(input=3, cached=2, cache_write=1, reasoning=4, extra=Extra("messages", fields)),
            Usage(output=7, extra=Extra("messages", {"x_tier": Raw(b'"b"')})),
            Usage(input_audio=1, output_audio=2, extra=Extra("chat", fields)),
        )
    )


@cache
def limits() -> st.SearchStrategy[Limits]:
    window = LimitWindow(name="primary", used_percent=12.5, window_minutes=300, resets_at=1)
    return st.sampled_from(
        (
            Limits(),
            Limits(windows=(window,), has_credits=True),
            Limits(
                windows=(window, LimitWindow(name="tokens", remaining=1, limit=2)), balance="1.5"
            ),
        )
    )


@cache
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
        status=st.sampled_from((None, 400, 429, 500, 503, 529)),
        code=st.sampled_from((None, "a_code")),
    )


@cache
def logprobs() -> st.SearchStrategy[Raw]:
    entry = b'{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}'
    return st.sampled_from((Raw(b"[" + entry + b"]"), Raw(b"[" + entry + b", " + entry + b"]")))


# Ids here only carry their vendor's prefix; `strategies.events` makes them unique within an answer.


@cache
def text_parts() -> st.SearchStrategy[Text]:
    return st.builds(
        Text,
        text=texts(),
        annotations=several(annotations()),
        logprobs=seldom(logprobs()),
        item_id=st.sampled_from((None, "msg_")),
        extra=seldom(extras()),
    )


@cache
def refusals() -> st.SearchStrategy[Refusal]:
    return st.builds(
        Refusal,
        text=texts(min_size=1),
        item_id=st.sampled_from((None, "msg_")),
        extra=seldom(extras()),
    )


@cache
def reasonings() -> st.SearchStrategy[Reasoning]:
    entries = several(texts(min_size=1), most=3)
    return st.builds(
        Reasoning,
        summary=entries,
        content=entries,
        seals=several(seals("signature", "redacted", "encrypted")),
        item_id=st.sampled_from((None, "rs_")),
        extra=seldom(extras()),
    )


@cache
def function_calls() -> st.SearchStrategy[Call]:
    """Complete client calls."""
    return st.builds(
        Call,
        call_id=st.just("call_"),
        name=names(),
        input=json_texts(),
        namespace=seldom(st.just("mcp__files")),
        seals=several(seals("thought"), most=1),
        item_id=st.sampled_from((None, "fc_")),
        extra=seldom(extras()),
    )


@cache
def custom_calls() -> st.SearchStrategy[Call]:
    return st.builds(
        Call,
        call_id=st.just("call_"),
        name=names(),
        input=texts(),
        kind=st.just("custom"),
        namespace=seldom(st.just("mcp__files")),
        item_id=st.sampled_from((None, "ctc_")),
    )


# What the vendors' own tools are called with; but for MCP, where the input is the server's to define.
_PROVIDER_INPUTS: dict[CallKind, tuple[str, ...]] = {
    "web_search": (
        '{"query":"a \\u2028 b"}',
        '{"type":"search", "query":"a"}',
        '{"query":"a","domains":[]}',
    ),
    "code_interpreter": ('{"code":"print(\\"é\\")\\n"}',),
    "file_search": ('["a", "b"]',),
    "mcp": _JSON_TEXTS,
}


@cache
def provider_calls() -> st.SearchStrategy[Call]:
    states: tuple[PartStatus, ...] = ("completed", "failed")
    return st.one_of(
        [
            st.builds(
                Call,
                call_id=st.just("srvtoolu_"),
                name=names(),
                input=st.sampled_from(inputs),
                kind=st.just(kind),
                executor=st.just("provider"),
                status=st.sampled_from(states),
                item_id=st.sampled_from((None, "ws_")),
            )
            for kind, inputs in _PROVIDER_INPUTS.items()
        ]
    )


@cache
def media(*kinds: MediaKind) -> st.SearchStrategy[Media]:
    known: tuple[MediaKind, ...] = kinds or ("image", "audio", "video", "file")
    return st.builds(
        Media,
        kind=st.sampled_from(known),
        media_type=st.sampled_from((None, "application/octet-stream")),
        data=st.sampled_from(("AAAA", "iVBORw0KGgo+/AAA", "AA==")),
        transcript=seldom(texts(min_size=1)),
        item_id=st.sampled_from((None, "msg_")),
    )


@cache
def opaques() -> st.SearchStrategy[Opaque]:
    return st.builds(
        Opaque,
        dialect=dialects(),
        type=st.just("x_later"),
        raw=st.sampled_from((Raw(b'{"type":"x_later"}'), Raw(b'{"type":"x_later","y":[1, 2]}'))),
    )


@cache
def results() -> st.SearchStrategy[Result]:
    """Results of provider-run tools, as they stand in an answer."""
    return st.builds(
        Result,
        call_id=st.just("srvtoolu_"),
        content=several(st.builds(Text, text=texts()) | media("image") | opaques()),
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


@cache
def parts(kinds: tuple[Kind, ...] = ALL_KINDS) -> st.SearchStrategy[Part]:
    return st.one_of([_STRATEGIES[kind]() for kind in kinds])
