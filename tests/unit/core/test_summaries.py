"""The string in which a client carries a summary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.core.summaries import TAG, Packed, pack_summary, unpack_summary
from dragoman.errors import RequestRefused


@given(st.text())
def test_a_summary_comes_back(summary: str) -> None:
    packed = pack_summary(Packed(summary=summary))
    assert packed.startswith(TAG)
    assert packed.isascii()
    assert unpack_summary(packed) == Packed(summary=summary)


@pytest.mark.parametrize("packed", ["", "gAAAAAB", "dgm1.e30=", "dgmc2.x"])
def test_the_string_of_another_is_not_read(packed: str) -> None:
    assert unpack_summary(packed) is None


@pytest.mark.parametrize("at", [len(TAG), len(TAG) + 17, -3])
def test_a_changed_string_is_refused(at: int) -> None:
    packed = pack_summary(Packed(summary="The hull is done."))
    changed = "A" if packed[at] != "A" else "B"
    damaged = packed[:at] + changed + packed[at:][1:]
    with pytest.raises(RequestRefused) as refused:
        unpack_summary(damaged)
    assert refused.value.code == "invalid_encrypted_content"


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_shortened_string_is_refused(cut: int) -> None:
    with pytest.raises(RequestRefused):
        unpack_summary(pack_summary(Packed(summary="The hull is done."))[:-cut])


@pytest.mark.parametrize(
    "packed",
    [
        Packed(summary="S", native=Raw(b'{"type":"compaction","content":"S"}'), dialect="messages"),
        Packed(native=Raw(b'{"type":"compaction"}'), dialect="responses", is_inline=True),
    ],
)
def test_the_compaction_of_a_provider_is_carried_whole(packed: Packed) -> None:
    assert unpack_summary(pack_summary(packed)) == packed


def test_a_string_with_nothing_in_it_is_damaged() -> None:
    with pytest.raises(RequestRefused):
        unpack_summary(pack_summary(Packed()))
