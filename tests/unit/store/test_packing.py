"""Everything that can be stored comes back as it was, and what cannot be read is said to be so."""

import sys
import threading
import zlib
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, structs

from corpus_cases import FolderCase, folder_cases
from dragoman._json import Raw
from dragoman.core.memo import Kept
from dragoman.dialects.registry import codec
from dragoman.errors import StoreDamaged
from dragoman.model.parts import Call, Extra, Media, Opaque, Reasoning, Refusal, Result, Seal, Text
from dragoman.model.request import (
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
from dragoman.store.packing import (
    pack_bytes,
    pack_ending,
    pack_escrowed,
    pack_names,
    pack_request,
    unpack_answer,
    unpack_bytes,
    unpack_escrowed,
    unpack_names,
    unpack_request,
    weigh_ending,
    weigh_request,
)
from dragoman.store.piling import Pile
from dragoman.store.reading import reader
from dragoman.store.records import Answer, Ending, Escrowed
from part_strategies import (
    errors,
    extras,
    maybe,
    names,
    parts,
    raws,
    reasonings,
    seals,
    texts,
    usages,
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


def tools() -> st.SearchStrategy[Tool]:
    return st.builds(
        Tool,
        name=names(),
        description=maybe(texts()),
        schema=maybe(raws()),
        strict=maybe(st.booleans()),
        grammar=maybe(st.builds(Grammar, texts(), texts())),
        place=st.sampled_from(("request", "input")),
        cache=maybe(raws()),
        extra=maybe(extras()),
    )


def turns() -> st.SearchStrategy[Turn]:
    return st.builds(
        Turn,
        role=st.sampled_from(("user", "assistant", "tool", "system", "developer")),
        parts=st.lists(parts(), max_size=3).map(tuple),
        head=st.booleans(),
        cache=maybe(raws()),
        extra=maybe(extras()),
    )


def requests() -> st.SearchStrategy[Request]:
    return st.builds(
        Request,
        model=texts(),
        turns=st.lists(turns(), max_size=3).map(tuple),
        tools=st.lists(tools(), max_size=3).map(Kept),
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
        metadata=maybe(raws()),
        extra=maybe(extras()),
    )


@given(requests())
def test_any_request_comes_back(request: Request) -> None:
    assert tidy(unpack_request(pack_request(request))) == tidy(request)


@given(
    st.builds(
        Answer,
        parts=st.lists(parts(), max_size=4).map(tuple),
        finish=st.sampled_from((None, "stop", "tool_calls")),
        usage=maybe(usages()),
        error=maybe(errors()),
    )
)
def test_any_answer_comes_back(answer: Answer) -> None:
    packed = pack_ending(Ending(status="completed", answer=answer))
    assert tidy(unpack_answer(packed[0])) == tidy(answer)


@given(
    st.builds(
        Escrowed, before=st.lists(reasonings()).map(tuple), seals=st.lists(seals()).map(tuple)
    )
)
def test_any_escrow_comes_back(escrowed: Escrowed) -> None:
    assert tidy(unpack_escrowed(pack_escrowed(escrowed))) == tidy(escrowed)


@given(st.binary(max_size=600), st.integers(1, 40))
def test_any_bytes_come_back(data: bytes, times: int) -> None:
    assert unpack_bytes(pack_bytes(data * times)) == data * times


@given(st.lists(texts(), max_size=4).map(tuple))
def test_any_names_come_back(given_names: tuple[str, ...]) -> None:
    assert unpack_names(pack_names(given_names)) == given_names


@pytest.mark.parametrize("case", folder_cases("requests"), ids=lambda case: case.name)
def test_real_request_comes_back(case: FolderCase) -> None:
    request = codec(case.meta["source"]).decode_request(case.read("request.json"))
    assert tidy(unpack_request(pack_request(request))) == tidy(request)


def test_repetition_is_compressed_and_noise_is_not() -> None:
    assert len(pack_bytes(b"data: x\n\n" * 1000)) < 200
    noise = zlib.compress(bytes(range(256)) * 3, 9) * 1
    assert len(pack_bytes(noise)) == len(noise) + 1
    incompressible = bytes((n * n * 31 + n * 7) % 251 for n in range(251)) + bytes(range(100))
    assert len(pack_bytes(incompressible)) <= len(incompressible) + 1


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
    stored = unpack_request(pack_request(Request(turns=(turn,))))
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
    assert unpack_request(pack_request(request)) == request


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
    over = Ending(status="completed", answer=Answer(parts=kinds), body=b"{}", stream=b"data: 1")
    assert weigh_ending(over) == 79 + around * (8 + 2)
    pile = Pile()
    pile.add(b"data: 12")
    assert weigh_ending(Ending(status="completed", answer=None, stream=pile)) == 8
    assert weigh_request(structs.replace(request, turns=())) == 10


def test_what_zlib_packed_is_read_and_written_where_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"the same again, " * 100
    assert unpack_bytes(b"\x01" + zlib.compress(data)) == data
    packed = pack_bytes(data)
    assert packed[:1] == b"\x02"
    monkeypatch.setitem(sys.modules, "zstandard", None)
    found: list[bytes] = []
    # Compressors are remembered by thread: another has not asked yet.
    thread = threading.Thread(target=lambda: found.append(pack_bytes(data)))
    thread.start()
    thread.join()
    assert found[0][:1] == b"\x01"
    assert unpack_bytes(found[0]) == data
    with pytest.raises(StoreDamaged, match=r"dragoman\[server\]"):
        unpack_bytes(packed)


@pytest.mark.parametrize(
    "data",
    [
        b"\x03\x00",
        b"\x03\x00\x00\x00\x09\x00ab",
        b"\x03\x00\x00\x00\x00",
        b"\x03\x00\x00\x00\x05\x03\x00\x00\x00\x00",
    ],
)
def test_pieces_whose_lengths_do_not_fit_are_reported(data: bytes) -> None:
    with pytest.raises(StoreDamaged, match="lengths"):
        unpack_bytes(data)
