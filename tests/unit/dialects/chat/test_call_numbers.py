"""Which call a delta belongs to: every row of the table in `call_numbers`, and the bad servers that made it necessary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.call_input import Extent
from dragoman.dialects.chat.calls import CallName, CallNumbers
from dragoman.errors import RemoteProtocolError

Entry = tuple[int | None, str, str]


def place(
    *chunks: list[Entry],
    whole: bool = False,
    declared: tuple[str, ...] = (),
    has_input: bool = True,
) -> tuple[list[list[int]], list[str], CallNumbers]:
    """The numbers of each chunk's entries, and the kinds of what was irregular."""
    numbers = CallNumbers(lambda _: whole, declared)
    placed: list[list[int]] = []
    odd: list[str] = []
    for chunk in chunks:
        numbers.begin(len(chunk))
        row: list[int] = []
        for index, call_id, name in chunk:
            found = numbers.place(index, call_id, name, has_input=has_input)
            row.append(found.number)
            odd += [kind for kind, _ in found.problems]
        placed.append(row)
    return placed, odd, numbers


def test_regular_deltas_go_by_index_and_nothing_is_odd() -> None:
    placed, odd, numbers = place(
        [(0, "a", "f")], [(0, "", "")], [(1, "b", "g")], [(1, "", "")], [(0, "", "")]
    )
    assert placed == [[0], [0], [1], [1], [0]]
    assert odd == []
    assert [numbers.id_of(0), numbers.id_of(1)] == ["a", "b"]
    assert (numbers.number_at(1), numbers.number_at(2)) == (1, None)


def test_every_entry_of_a_chunk_is_placed() -> None:  # M017
    assert place([(0, "a", "f"), (1, "b", "g")], [(1, "", ""), (0, "", "")])[0] == [[0, 1], [1, 0]]


def test_new_id_with_a_name_takes_an_occupied_index_over() -> None:  # M005
    placed, odd, numbers = place([(0, "a", "f")], [(0, "b", "g")], [(0, "", "")])
    assert placed == [[0], [1], [1]]
    assert odd == ["index_reused"]
    assert numbers.number_at(0) == 1


def test_known_id_is_found_at_an_index_taken_over() -> None:
    assert place([(0, "a", "f")], [(0, "b", "g")], [(0, "a", "")])[0] == [[0], [1], [0]]


def test_fresh_id_without_a_name_continues_and_the_first_id_wins() -> None:  # M009
    placed, odd, numbers = place([(0, "id0", "write")], [(0, "id1", "")], [(0, "id2", "")])
    assert placed == [[0], [0], [0]]
    assert odd == ["id_mismatch", "id_mismatch"]
    assert numbers.id_of(0) == "id0"


def test_repeated_id_continues_its_call() -> None:  # M030
    placed, odd, _ = place([(0, "a", "f")], [(0, "a", "")], [(0, "a", "")])
    assert placed == [[0], [0], [0]]
    assert odd == ["repeated_id", "repeated_id"]


def test_empty_id_and_name_overwrite_nothing() -> None:  # M026
    _, odd, numbers = place([(0, "a", "f")], [(0, "", "")])
    assert (numbers.id_of(0), numbers.name_of(0).text, odd) == ("a", "f", [])


def test_late_id_is_adopted_and_reported() -> None:  # M029
    placed, odd, numbers = place([(0, "", "f")], [(0, "a", "")])
    assert placed == [[0], [0]]
    assert odd == ["late_id"]
    assert numbers.id_of(0) == "a"


def test_late_id_beside_the_same_name_is_no_new_call() -> None:
    assert place([(0, "", "f")], [(0, "a", "f")])[0] == [[0], [0]]


def test_id_beside_another_name_is_a_new_call_even_after_one_without_id() -> None:
    assert place([(0, "", "f")], [(0, "a", "g")])[0] == [[0], [1]]


def test_late_name_is_reported_once() -> None:  # M038
    placed, odd, numbers = place([(0, "a", "")], [(0, "", "f")], [(0, "", "")])
    assert placed == [[0], [0], [0]]
    assert odd == ["late_name"]
    assert numbers.name_of(0).text == "f"


def test_id_at_a_new_index_without_a_name_goes_to_its_call() -> None:
    assert place([(0, "a", "f")], [(1, "a", "")])[0] == [[0], [0]]


def test_same_id_with_a_name_at_a_new_index_is_a_call_without_id() -> None:
    placed, odd, numbers = place([(0, "a", "f")], [(1, "a", "f")])
    assert placed == [[0], [1]]
    assert odd == ["duplicate_id"]
    assert numbers.id_of(1) == ""


def test_server_without_ids_that_gives_every_call_index_zero() -> None:
    placed, odd, _ = place([(0, "", "f")], [(0, "", "f")], whole=True)
    assert placed == [[0], [1]]
    assert odd == ["index_reused"]


def test_name_repeated_before_the_input_is_whole_continues() -> None:
    placed, odd, _ = place([(0, "", "f")], [(0, "", "f")], whole=False)
    assert placed == [[0], [0]]
    assert odd == ["repeated_name"]


def test_two_named_entries_with_one_index_in_one_chunk_are_two_calls() -> None:
    assert place([(0, "", "f"), (0, "", "g")])[0] == [[0, 1]]


def test_another_declared_name_without_an_id_is_another_call() -> None:
    placed, _, _ = place([(0, "", "f")], [(0, "", "g")], declared=("f", "g"), has_input=False)
    assert placed == [[0], [1]]


# --- without an index -------------------------------------------------------------------------------------------------


def test_position_in_the_chunk_decides_without_an_index() -> None:  # M007
    placed, odd, _ = place([(None, "a", "f"), (None, "b", "g")], [(None, "", ""), (None, "", "")])
    assert placed == [[0, 1], [0, 1]]
    assert odd == ["missing_index"] * 4


def test_single_entry_without_index_continues_the_call_opened_last() -> None:
    assert place([(None, "a", "f"), (None, "b", "g")], [(None, "", "")])[0] == [[0, 1], [1]]


def test_first_entry_without_index_opens_a_call_whatever_it_lacks() -> None:
    assert place([(None, "", "")], [(None, "", "f")])[0][0] == [0]


def test_calls_opened_one_by_one_are_continued_by_position_too() -> None:
    placed, _, _ = place([(None, "a", "f")], [(None, "b", "g")], [(None, "", ""), (None, "", "")])
    assert placed == [[0], [1], [0, 1]]


def test_positions_count_from_the_last_chunk_that_opened_calls() -> None:
    placed, _, _ = place(
        [(None, "a", "f")],
        [(None, "b", "g"), (None, "c", "h")],
        [(None, "", ""), (None, "", "")],
    )
    assert placed[2] == [1, 2]


def test_more_entries_than_calls_end_at_the_last_call() -> None:
    assert place([(None, "a", "f")], [(None, "", ""), (None, "", "")])[0] == [[0], [0, 0]]


def test_known_id_without_index_continues_its_call() -> None:
    assert place([(None, "a", "f")], [(None, "b", "g")], [(None, "a", "")])[0] == [[0], [1], [0]]


def test_new_id_without_name_or_index_continues() -> None:
    placed, odd, _ = place([(None, "a", "f")], [(None, "b", "")])
    assert placed == [[0], [0]]
    assert "id_mismatch" in odd


def test_whole_calls_without_id_and_index_are_calls_of_their_own() -> None:
    assert place([(None, "", "f")], [(None, "", "f")], whole=True)[0] == [[0], [1]]
    assert place([(None, "", "f")], [(None, "", "g")])[0] == [[0], [1]]


def test_name_repeated_without_id_and_index_continues() -> None:
    assert place([(None, "", "f")], [(None, "", "f")])[0] == [[0], [0]]


def test_piece_of_a_declared_name_without_id_and_index_continues() -> None:
    placed, _, numbers = place(
        [(None, "", "edit_ex")], [(None, "", "isting")], declared=("edit_existing",)
    )
    assert placed == [[0], [0]]
    assert numbers.name_of(0).text == "edit_existing"


# --- names ------------------------------------------------------------------------------------------------------------


def names(
    pieces: list[str], declared: tuple[str, ...] = (), *, has_input: bool = False
) -> CallName:
    name = CallName(declared)
    for piece in pieces:
        name.take(piece, has_input=has_input)
    return name


def test_declared_name_is_settled_at_once() -> None:
    assert names(["f"], ("f", "g")).is_settled


def test_name_that_begins_no_declared_tool_is_settled_at_once() -> None:
    assert names(["multi_tool_use.parallel"], ("f",)).is_settled


def test_split_name_is_joined_by_the_declared_tools() -> None:  # M037
    name = CallName(("edit_existing_file", "other"))
    assert name.take("edit_ex", has_input=False) is None
    assert not name.is_settled
    assert name.take("isting_file", has_input=True) == (
        "split_name",
        "expected the whole name in the first delta, got 'isting_file' later",
    )
    assert (name.text, name.is_settled) == ("edit_existing_file", True)


def test_name_that_never_ends_fails_the_answer() -> None:
    pieces: list[list[Entry]] = [[(0, "", f"{number}-")] for number in range(4096)]
    with pytest.raises(RemoteProtocolError, match="expected at most 4096 characters of a name"):
        place(*pieces, has_input=False)


def test_split_name_is_joined_without_a_tool_list_until_input_comes() -> None:
    name = names(["edit_ex", "isting"])
    assert (name.text, name.is_settled) == ("edit_existing", False)
    name.take("", has_input=True)
    assert name.is_settled


def test_name_is_settled_by_input_where_no_tools_are_declared() -> None:
    assert names(["f"], has_input=True).is_settled
    assert not names(["f"]).is_settled


def test_piece_that_repeats_and_extends_the_whole_replaces_it() -> None:
    assert names(["edit", "edit_file"]).text == "edit_file"


def test_declared_piece_replaces_what_it_cannot_join() -> None:
    assert names(["ed", "search"], ("edit", "search")).text == "search"


def test_equal_repeat_is_nothing_and_settles() -> None:
    name = CallName()
    name.take("f", has_input=False)
    problem = name.take("f", has_input=False)
    assert problem is not None
    assert problem[0] == "repeated_name"
    assert (name.text, name.is_settled) == ("f", True)


def test_settled_name_does_not_change() -> None:
    name = names(["f"], ("f",))
    problem = name.take("g", has_input=False)
    assert problem is not None
    assert problem[0] == "changed_name"
    assert name.text == "f"


def test_delta_without_a_name_settles_only_what_has_one() -> None:
    assert not names([""]).is_settled
    assert names(["f", ""]).is_settled


def test_name_found_elsewhere_is_settled() -> None:
    name = CallName()
    name.settle("f")
    assert (name.text, name.is_settled) == ("f", True)
    name.settle("g")
    assert name.text == "f"


# --- extent -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", False),
        (" ", False),
        ("{", False),
        ("{}", True),
        (" {} \n", True),
        ('{"a":{"b":[1,{}]}}', True),
        ('{"a":{"b":[1,{}]}', False),
        ('{"a":"}"', False),
        ('{"a":"}{[\\"}"}', True),
        ('{"a":"\\\\"}', True),
        ("{}{}", False),
        ("{} x", False),
        ("[]", False),
        ('"{}"', False),
        ("x{}", False),
    ],
)
def test_extent_knows_when_an_object_is_whole(text: str, whole: bool) -> None:
    at_once, by_letter = Extent(), Extent()
    at_once.feed(text)
    for letter in text:
        by_letter.feed(letter)
    assert at_once.is_whole == by_letter.is_whole == whole


# --- laws -------------------------------------------------------------------------------------------------------------

entries = st.tuples(
    st.none() | st.integers(0, 2), st.sampled_from(["", "a", "b"]), st.sampled_from(["", "f", "g"])
)


@given(st.lists(st.lists(entries, max_size=3), max_size=6), st.booleans())
def test_slots_are_dense_in_order_of_first_sight(chunks: list[list[Entry]], whole: bool) -> None:
    placed, _, _ = place(*chunks, whole=whole)
    flat = [number for row in placed for number in row]
    seen = list(dict.fromkeys(flat))
    assert seen == list(range(len(seen)))
