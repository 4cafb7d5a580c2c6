"""Everything that can be stored comes back as it was, and what cannot be read is said to be so."""

import sys
import threading
import zlib
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, msgpack, structs

from corpus_cases import FolderCase, folder_cases
from dragoman._json import Raw, dumps_each
from dragoman.core.journal import Deltas, Form, Piece, join_pieces
from dragoman.core.tool_cache import Kept
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
from dragoman.store import codec as store_codec
from dragoman.store.codec import (
    PACK_BYTES,
    StreamBuffer,
    pack_bytes,
    pack_ending,
    pack_escrowed,
    pack_names,
    pack_request,
    reader,
    unpack_answer,
    unpack_bytes,
    unpack_escrowed,
    unpack_names,
    unpack_request,
    unpack_stream,
    weigh_ending,
    weigh_request,
)
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
    buffer = StreamBuffer()
    buffer.add(b"data: 12")
    assert weigh_ending(Ending(status="completed", answer=None, stream=buffer)) == 8
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


@given(st.lists(st.binary(max_size=400), max_size=8), st.integers(0, 2000))
def test_what_came_in_pieces_comes_back(pieces: list[bytes], start: int) -> None:
    buffer = StreamBuffer()
    for piece in pieces:
        buffer.add(piece * 300)
    whole = b"".join(piece * 300 for piece in pieces)
    assert buffer.size == len(whole)
    assert buffer.read() == whole
    assert buffer.read(start * 100) == whole[start * 100 :]
    assert unpack_bytes(buffer.packed()) == whole
    buffer.add_last(b"the end")
    assert buffer.loose >= len(b"the end")
    assert unpack_bytes(buffer.packed()) == whole + b"the end"
    assert buffer.read(start) == (whole + b"the end")[start:]


def test_a_small_pack_behind_a_large_one_is_read_from_the_middle_of_that_one() -> None:
    buffer = StreamBuffer()
    reads = [b"a" * 3 * PACK_BYTES, b"b" * PACK_BYTES, b"c" * PACK_BYTES, b"d"]
    for read in reads:
        buffer.add(read)
    whole = b"".join(reads)
    for start in range(0, len(whole) + PACK_BYTES, PACK_BYTES // 2):
        assert buffer.read(start) == whole[start:]


def test_a_pile_takes_little_room() -> None:
    buffer = StreamBuffer()
    frames = [b'data: {"type":"delta","number":%d}\n\n' % number for number in range(2000)]
    for frame in frames:
        buffer.add(frame)
    assert buffer.size > 2 * PACK_BYTES
    assert buffer.read() == b"".join(frames)
    assert len(buffer.packed()) < buffer.size / 5


def test_a_stream_that_is_packed_is_kept_as_it_is() -> None:
    buffer = StreamBuffer()
    buffer.add(b"x" * 500)
    assert pack_ending(Ending(status="completed", answer=None, stream=buffer))[2] == buffer.packed()


FORM = Form(b'data: {"50 %":', b',"n":', b"}\n\n")
TEXTS = st.lists(
    st.text(max_size=12) | st.sampled_from(["%b", "\n", "\ud800", "\u2028"]), min_size=1, max_size=9
)


@st.composite
def told_pieces(draw: st.DrawFn) -> list[Piece]:
    """Frames of a stream, some of which were made alike."""
    pieces: list[Piece] = []
    number = 0
    for some in draw(st.lists(TEXTS, max_size=5)):
        lines = dumps_each(some)[1]
        pieces.append(Deltas(FORM, number, lines))
        pieces.append(draw(st.binary(max_size=20)))
        number += len(some)
    return pieces


@given(st.lists(told_pieces(), max_size=4), st.integers(0, 400), st.integers(1, 3000))
def test_what_was_made_alike_is_made_again(
    reads: list[list[Piece]], start: int, pack_bytes_at: int
) -> None:
    whole = b"".join(map(join_pieces, reads))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_codec, "PACK_BYTES", pack_bytes_at)
        buffer = StreamBuffer()
        for pieces in reads:
            buffer.add(join_pieces(pieces), pieces)
        buffer.add_last(b"the end")
    whole += b"the end"
    assert buffer.size == len(whole)
    assert buffer.read() == whole
    assert buffer.read(start) == whole[start:]
    assert unpack_bytes(buffer.packed()) == whole


@given(
    told_pieces(),
    st.binary(max_size=20),
    st.binary(min_size=1, max_size=2000),
    st.binary(max_size=20),
)
def test_a_stream_and_the_body_that_it_ends_in_are_one_value(
    pieces: list[Piece], before: bytes, body: bytes, after: bytes
) -> None:
    buffer = StreamBuffer()
    last = before + body + after
    buffer.add(join_pieces(pieces), pieces)
    buffer.add_last(last)
    answer, packed, apart = pack_ending(
        Ending(status="completed", answer=None, body=body, stream=buffer)
    )
    assert not answer
    assert unpack_bytes(packed) == body
    assert unpack_stream(packed, apart) == join_pieces(pieces) + last


@pytest.mark.parametrize("body", [b"", b"another body", b"x" * 400])
def test_a_body_that_the_end_does_not_tell_stands_apart(body: bytes) -> None:
    buffer = StreamBuffer()
    buffer.add(b"x" * 399)
    ended = pack_ending(Ending(status="completed", answer=None, body=body, stream=buffer))
    assert ended[1:] == (pack_bytes(body), buffer.packed())
    assert unpack_stream(*ended[1:]) == buffer.read()
    assert unpack_stream(pack_bytes(body), None) is None


def test_the_end_of_a_long_stream_stands_apart_from_its_body() -> None:
    buffer = StreamBuffer()
    buffer.add(b"x" * PACK_BYTES)
    buffer.add_last(b'data: {"id":"a"}\n\n')
    ended = pack_ending(Ending(status="completed", answer=None, body=b'{"id":"a"}', stream=buffer))
    assert ended[1:] == (pack_bytes(b'{"id":"a"}'), buffer.packed())


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\x04\x00", "pieces"),
        (b"\x04\x00not", "pieces"),
        (b"\x04\x03\x00\x00\x00\x00", "otherwise"),
        (b"\x04\x04\x00\x90", "otherwise"),
        (b"\x05\x05\x00\x90", "otherwise"),
        (b"\x05\x00\x92\x01\x02", "pieces"),
        (b"\x03\x00\x00\x00\x02\x05\x00", "lengths"),
        (
            b"\x04\x00"
            + msgpack.encode([Deltas(Form(b"h" * 2000, b"", b""), 0, b"\n" * 1_000_000)]),
            "at most",
        ),
    ],
)
def test_pieces_that_make_no_stream_are_reported(data: bytes, match: str) -> None:
    with pytest.raises(StoreDamaged, match=match):
        unpack_bytes(data)


def test_a_body_that_is_said_to_stand_where_nothing_is_told_is_empty() -> None:
    deltas = Deltas(Form(b"a", b"b", b"c"), 1, b'"x"')
    for pieces in ([], [deltas]):
        data = b"\x05\x00" + msgpack.encode([0, 9, pieces])
        assert unpack_bytes(data) == b""
    assert unpack_stream(data, None) == b'a"x"b1c'
