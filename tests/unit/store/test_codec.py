"""Everything that can be stored comes back as it was, and what cannot be read is said to be so."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, structs

from corpus_cases import FolderCase, folder_cases
from dragoman._json import Raw, dumps
from dragoman.core.tool_cache import CachedTools
from dragoman.dialects.registry import codec
from dragoman.errors import StoreDamaged
from dragoman.model.parts import (
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import (
    CacheSettings,
    Grammar,
    Namespace,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)
from dragoman.store.codec import (
    pack,
    pack_names,
    reader,
    unpack_escrowed,
    unpack_names,
    unpack_old_answer,
    unpack_request,
    weigh_request,
)
from dragoman.store.records import Escrowed
from part_strategies import (
    extras,
    maybe,
    names,
    parts,
    raws,
    reasonings,
    seals,
    texts,
)


def tidy(value: object) -> object:
    """The value with the white space around opaque JSON taken off: what stands inside a document has none.

    A field that is opaque JSON or nothing may come back as nothing where it was `null`.
    """
    if isinstance(value, Raw):
        return None if bytes(value) == b"null" else bytes(value).strip()
    if isinstance(value, Struct):
        return type(value), {name: tidy(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: tidy(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [tidy(item) for item in cast("tuple[object, ...]", value)]
    return value


def points() -> st.SearchStrategy[Breakpoint]:
    return st.builds(Breakpoint, ttl=maybe(texts()), alone=st.booleans(), extra=maybe(extras()))


def tools() -> st.SearchStrategy[Tool]:
    return st.builds(
        Tool,
        name=names(),
        description=maybe(texts()),
        schema=maybe(raws()),
        strict=maybe(st.booleans()),
        grammar=maybe(st.builds(Grammar, texts(), texts())),
        place=st.sampled_from(("request", "input")),
        cache=maybe(points()),
        extra=maybe(extras()),
    )


def turns() -> st.SearchStrategy[Turn]:
    return st.builds(
        Turn,
        role=st.sampled_from(("user", "assistant", "tool", "system", "developer")),
        parts=st.lists(parts(), max_size=3).map(tuple),
        head=st.booleans(),
        cache=maybe(points()),
        extra=maybe(extras()),
    )


def requests() -> st.SearchStrategy[Request]:
    return st.builds(
        Request,
        model=texts(),
        turns=st.lists(turns(), max_size=3).map(tuple),
        tools=st.lists(tools(), max_size=3).map(CachedTools),
        namespaces=st.just((Namespace("n"),)),
        tool_choice=maybe(
            st.builds(ToolChoice, tool=st.just(ToolRef("f")), allowed=st.just((ToolRef("g"),)))
        ),
        temperature=maybe(st.floats(0, 2)),
        max_tokens=maybe(st.integers(0, 10**6)),
        logit_bias=maybe(raws()),
        stop=st.lists(texts(), max_size=2).map(tuple),
        response_format=maybe(st.builds(ResponseFormat, schema=maybe(raws()))),
        reasoning=maybe(st.builds(ReasoningSettings, effort=maybe(texts()), extra=maybe(extras()))),
        cache=maybe(
            st.builds(
                CacheSettings,
                mode=maybe(texts()),
                ttl=maybe(texts()),
                retention=maybe(texts()),
                last=maybe(points()),
                extra=maybe(extras()),
            )
        ),
        session=maybe(texts()),
        metadata=maybe(raws()),
        extra=maybe(extras()),
    )


@given(requests())
def test_any_request_comes_back(request: Request) -> None:
    assert tidy(unpack_request(pack(request))) == tidy(request)


def test_answers_that_earlier_versions_wrote_beside_a_message_are_read() -> None:
    data = (
        b'\x00{"parts":[{"part":"reasoning","content":["Hm."],"seals":[{"kind":"signature","data":"s"}]},'
        b'{"part":"text","text":"So."},{"part":"call","call_id":"c","name":"f","input":"{}"}],"finish":"tool_calls",'
        b'"usage":{"input":3,"output":null,"cached":null,"cache_write":null,"reasoning":null,"input_audio":null,'
        b'"output_audio":null,"total":null,"extra":null},"error":null}'
    )
    thought = Reasoning(content=("Hm.",), seals=(Seal("signature", "s"),))
    call = Call(call_id="c", name="f", input="{}")
    assert unpack_old_answer(data) == (thought, Text(text="So."), call)
    with pytest.raises(StoreDamaged):
        unpack_old_answer(b"\x00[]")


@given(
    st.builds(
        Escrowed, before=st.lists(reasonings()).map(tuple), seals=st.lists(seals()).map(tuple)
    )
)
def test_any_escrow_comes_back(escrowed: Escrowed) -> None:
    assert tidy(unpack_escrowed(pack(escrowed))) == tidy(escrowed)


@given(st.lists(texts(), max_size=4).map(tuple))
def test_any_names_come_back(given_names: tuple[str, ...]) -> None:
    assert unpack_names(pack_names(given_names)) == given_names


@pytest.mark.parametrize("case", folder_cases("requests"), ids=lambda case: case.name)
def test_real_request_comes_back(case: FolderCase) -> None:
    request = codec(case.meta["source"]).decode_request(case.read("request.json"))
    assert tidy(unpack_request(pack(request))) == tidy(request)


def test_half_a_character_becomes_a_replacement() -> None:
    half = "\ud83d"
    turn = Turn(
        role="assistant",
        parts=(
            Text(text=f"a{half}b \U0001f600", annotations=()),
            Call(call_id="c", name="f", input=f'{{"x":"{half}","y":"\\ud83d\\ude00"}}'),
        ),
        extra=Extra("chat", {f"k{half}": Raw(b'{"a":[1,true,null]}')}),
    )
    stored = unpack_request(pack(Request(turns=(turn,))))
    text, call = stored.turns[0].parts
    assert isinstance(text, Text)
    assert text.text == "a\ufffdb \U0001f600"
    assert isinstance(call, Call)
    assert call.input == '{"x":"\ufffd","y":"\\ud83d\\ude00"}'
    extra = stored.turns[0].extra
    assert extra is not None
    assert extra.fields == {"k\ufffd": Raw(b'{"a":[1,true,null]}')}


def test_escapes_that_are_whole_keep_their_bytes() -> None:
    schema = Raw(b'{"x":"\\ud83d\\ude00","n":1.0}')
    request = Request(tools=(Tool(name="f", schema=schema),))
    assert unpack_request(pack(request)) == request


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02{}",
        b"\x03{}",
        b"\x01no zlib",
        b"\x02no zstandard",
        # A header that promises two gigabytes.
        b"\x02\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x80\x01\x00\x00",
        b"\x00",
        b"\x00[]",
        b"\x00{",
        b'\x00{"turns":[{}]}',
        b'\x00{"turns":[{"role":"user","parts":[{"part":"unheard of"}]}]}',
        b'\x00{"turns":[{"role":"user","parts":[{"text":"no tag"}]}]}',
        b'\x00{"turns":[{"role":"user","parts":[7]}]}',
        b'\x00{"temperature":"warm"}',
        b"\x00\xff",
    ],
)
def test_damage_is_reported(data: bytes) -> None:
    with pytest.raises(StoreDamaged, match="expected"):
        unpack_request(data)


def test_names_that_are_damaged_are_reported() -> None:
    with pytest.raises(StoreDamaged):
        unpack_names("{}")


def test_fields_of_a_later_version_are_left_out() -> None:
    data = b'\x00{"model":"m","later":1,"tools":[{"name":"f","schema":{},"later":2}]}'
    assert unpack_request(data) == Request(model="m", tools=(Tool(name="f", schema=Raw(b"{}")),))


def test_breakpoints_of_an_earlier_version_keep_their_time() -> None:
    cache = b'{"type":"ephemeral","ttl":"1h"}'
    data = (
        b'\x00{"turns":[{"role":"user","parts":[{"part":"text","text":"a","cache":%b}]}]}' % cache
    )
    text = Text(text="a", cache=Breakpoint(ttl="1h"))
    assert unpack_request(data) == Request(turns=(Turn(role="user", parts=(text,)),))


def test_union_of_plain_types_is_read_by_msgspec_alone() -> None:
    assert reader(cast("type[int | str]", int | str))(b'"a"') == "a"


def test_weight_counts_what_is_long() -> None:
    kinds = (
        Text(text="1234567890"),
        Refusal(text="1234567890"),
        Reasoning(summary=("12345",), content=("123",), seals=(Seal("signature", "12"),)),
        Call(call_id="c", name="f", input="1234567890"),
        Media(kind="image", data="1234567890"),
        Media(kind="image", url="u"),
        Result(call_id="c", content=(Text(text="12345"), Text(text="12345"))),
        Opaque(dialect="chat", type="x", raw=Raw(b"1234567890")),
    )
    request = Request(
        turns=(Turn(role="user", parts=kinds),),
        tools=(Tool(name="f", schema=Raw(b"1234567890")), Tool(name="g")),
    )
    around = 32  # bytes that are written around a turn and around each of its parts
    assert weigh_request(request) == 80 + around * (1 + 8 + 2)
    assert weigh_request(structs.replace(request, turns=())) == 10


def test_request_whose_stored_form_has_more_values_than_a_request_may_have_comes_back() -> None:
    """Otherwise its client could have the store reported as damaged."""
    asked = {
        "model": "m",
        "input": [{"role": "user", "content": "a"}] * 90_000,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    }
    request = codec("responses").decode_request(dumps(asked))
    assert unpack_request(pack(request)) == request
