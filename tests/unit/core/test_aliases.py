"""Aliases of names and ids: valid ones unchanged, all distinct, and restored."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.aliases import (
    IdLimits,
    NameLimits,
    NameMap,
    alias_id,
    original_id,
    with_original_id,
)
from dragoman.core.tool_cache import CachedTools
from dragoman.errors import ConfigError
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Tool, ToolRef

LIMITS = NameLimits()
MISTRAL = IdLimits("[a-zA-Z0-9]", 9, 9)

# Few letters, so that names meet: equal once sanitised, equal to a flattened one, equal but for case.
_CLOSE = st.text(alphabet="aA_.é", min_size=0, max_size=6)
_ANY = st.text(min_size=1, max_size=200)
_VALID = st.from_regex(r"[a-zA-Z0-9_-]{1,200}", fullmatch=True)
NAMES = st.one_of(_CLOSE, _ANY, _VALID)
NAMESPACES = st.one_of(st.none(), st.sampled_from(["a", "a_", "a__", "aa", "é", "x" * 70]))
PAIRS = st.tuples(NAMESPACES, NAMES)


def tools_of(pairs: list[tuple[str | None, str]]) -> list[Tool]:
    return [Tool(name=name, namespace=namespace) for namespace, name in pairs]


def is_valid(name: str, limits: NameLimits = LIMITS) -> bool:
    return re.fullmatch(f"(?:{limits.pattern}){{1,{limits.max_length}}}", name) is not None


@given(st.lists(PAIRS, max_size=20), st.lists(PAIRS, max_size=5))
def test_every_name_is_valid_distinct_and_found_again(
    offered: list[tuple[str | None, str]], used: list[tuple[str | None, str]]
) -> None:
    names = NameMap.build(tools_of(offered), used)
    pairs = set(offered)
    wires = {pair: names.wire(pair[1], pair[0]) for pair in pairs}
    assert len(set(wires.values())) == len(pairs)
    assert all(is_valid(names.wire(name, namespace)) for namespace, name in used)
    for (namespace, name), wire in wires.items():
        assert is_valid(wire)
        assert names.origin(wire) == ToolRef(name, "function", namespace)
        assert names.find(wire) == ToolRef(name, "function", namespace)
        if namespace is None and is_valid(name):
            assert wire == name


@given(st.lists(PAIRS, max_size=10), st.lists(PAIRS, max_size=5))
def test_no_tool_changes_the_name_of_a_call_whose_tool_nobody_declares(
    offered: list[tuple[str | None, str]], used: list[tuple[str | None, str]]
) -> None:
    gone = [pair for pair in used if pair not in offered]
    names = NameMap.build(tools_of(offered), gone)
    for namespace, name in gone:
        alone = NameMap.build((), [(namespace, name)])
        assert names.wire(name, namespace) == alone.wire(name, namespace)


@given(st.lists(PAIRS, max_size=10))
def test_the_same_tools_get_the_same_names(pairs: list[tuple[str | None, str]]) -> None:
    assert NameMap.build(tools_of(pairs)) == NameMap.build(tools_of(pairs))


@given(st.lists(PAIRS, max_size=10), PAIRS)
def test_an_alias_of_one_tool_taken_as_the_name_of_another_stays_that_of_the_other(
    pairs: list[tuple[str | None, str]], pair: tuple[str | None, str]
) -> None:
    alias = NameMap.build(tools_of([pair])).wire(pair[1], pair[0])
    names = NameMap.build(tools_of([pair, *pairs, (None, alias)]))
    assert names.wire(alias) == alias
    assert pair == (None, alias) or names.wire(pair[1], pair[0]) != alias


@given(st.lists(PAIRS, max_size=10), PAIRS)
def test_a_name_nobody_declared_gets_one_that_no_tool_has(
    pairs: list[tuple[str | None, str]], pair: tuple[str | None, str]
) -> None:
    names = NameMap.build(tools_of(pairs))
    wire = names.wire(pair[1], pair[0])
    assert is_valid(wire)
    assert pair in pairs or names.origin(wire) is None


@given(st.lists(PAIRS, max_size=10))
def test_within_native_namespaces_names_are_distinct_per_namespace(
    pairs: list[tuple[str | None, str]],
) -> None:
    names = NameMap.build(tools_of(pairs), flatten=False)
    wires = {(pair[0], names.wire(pair[1], pair[0])) for pair in pairs}
    assert len(wires) == len(set(pairs))
    for namespace, name in pairs:
        wire = names.wire(name, namespace)
        assert is_valid(name) <= (wire == name)
        assert names.find(wire, namespace) == ToolRef(name, "function", namespace)


def test_a_namespace_is_joined_with_two_underscores_once() -> None:
    """M043"""
    names = NameMap.build(
        [Tool(name="search", namespace="mcp__docs__"), Tool(name="list", namespace="files")]
    )
    assert names.wire("search", "mcp__docs__") == "mcp__docs__search"
    assert names.wire("list", "files") == "files__list"


def test_long_names_that_differ_in_the_middle_stay_different() -> None:
    """M040, M041"""
    create = "mcp_atlassian-rovo-mcp-server-cloud_createConfluencePageWithAttachmentsAndPermissions"
    delete = create.replace("create", "delete")
    names = NameMap.build([Tool(name=create), Tool(name=delete)], limits=NameLimits(max_length=63))
    wires = {names.wire(create), names.wire(delete)}
    assert len(wires) == 2
    assert all(len(wire) == 63 and wire.startswith("mcp_atlassian-rovo") for wire in wires)


def test_a_reserved_name_is_renamed_and_found_again() -> None:
    names = NameMap.build(
        [Tool(name="exec_command")], limits=NameLimits(reserved=frozenset({"exec_command"}))
    )
    wire = names.wire("exec_command")
    assert wire.startswith("exec_command_")
    assert names.origin(wire) == ToolRef("exec_command")


def test_customs_are_known_by_their_wire_names() -> None:
    """M124: the kind is that of the source, whatever it is called on the wire."""
    names = NameMap.build([Tool(name="apply.patch", namespace="editor", kind="custom")])
    assert names.origins[None, names.wire("apply.patch", "editor")].kind == "custom"


def test_the_first_of_two_tools_with_one_name_counts() -> None:
    names = NameMap.build([Tool(name="f", kind="custom"), Tool(name="f"), Tool(name="g")])
    assert names.origin("f") == ToolRef("f", "custom")


@pytest.mark.parametrize(
    ("spelling", "namespace"),
    [
        ("mcp__node_repl__js", None),
        ("mcp__node_repl.js", None),
        ("js", None),
        ("functions.js", None),
        ("functions.mcp__node_repl__js", None),
        ("js", "mcp__node_repl"),
        ("js", "functions"),
    ],
)
def test_the_spellings_models_invent_are_found(spelling: str, namespace: str | None) -> None:
    """M044"""
    for own in ("mcp__node_repl", "mcp__node_repl__"):
        for flatten in (True, False):
            names = NameMap.build([Tool(name="js", namespace=own)], flatten=flatten)
            assert names.find(spelling, namespace) == ToolRef("js", "function", own)


def test_the_name_behind_an_alias_is_found_by_itself() -> None:
    names = NameMap.build([Tool(name="docs.search")])
    assert names.find("docs.search") == ToolRef("docs.search")
    assert names.find("functions.docs.search") == ToolRef("docs.search")


@pytest.mark.parametrize("spelling", ["search", "b", "functions.search", "functions."])
def test_a_spelling_of_two_tools_or_of_none_is_not_guessed(spelling: str) -> None:
    names = NameMap.build([Tool(name="search", namespace=space) for space in ("one", "two")])
    assert names.find(spelling) is None
    assert names.find(spelling, "other") is None


def test_a_plain_tool_wins_over_a_member_of_the_same_name() -> None:
    names = NameMap.build([Tool(name="js", namespace="repl"), Tool(name="js")])
    assert names.find("js") == ToolRef("js")
    assert names.find("js", "repl") == ToolRef("js", "function", "repl")
    assert names.find("repl.js") == ToolRef("js", "function", "repl")


def test_history_names_are_not_guessed_at() -> None:
    names = NameMap.build([], [("gone", "old")])
    assert names.find("gone__old") == ToolRef("old", "function", "gone")
    assert names.find("old") is None


def test_limits_too_narrow_for_the_tools_are_the_operators_fault() -> None:
    tools = [Tool(name="x" * (10 + n)) for n in range(30)]
    with pytest.raises(ConfigError, match="no free name"):
        NameMap.build(tools, limits=NameLimits("[ab]", 2))


@pytest.mark.parametrize("pattern", ["[", "[éà]"])
def test_a_pattern_that_cannot_work_is_the_operators_fault(pattern: str) -> None:
    with pytest.raises(ConfigError):
        NameMap.build([Tool(name="f")], limits=NameLimits(pattern))


IDS = st.one_of(st.text(max_size=100), st.from_regex(r"[a-zA-Z0-9_-]{1,100}", fullmatch=True))
ID_LIMITS = st.sampled_from(
    [IdLimits(), IdLimits(max_length=40), IdLimits("[a-zA-Z0-9]", 9, 9), IdLimits("[a-z]", 30, 20)]
)


@given(IDS, ID_LIMITS)
def test_an_id_alias_is_valid_stable_and_kept(call_id: str, limits: IdLimits) -> None:
    alias = alias_id(call_id, limits)
    sizes = f"{{{limits.min_length},{limits.max_length}}}"
    assert re.fullmatch(f"(?:{limits.pattern}){sizes}", alias)
    assert alias_id(call_id, limits) == alias
    assert alias_id(alias, limits) == alias
    if re.fullmatch(f"(?:{limits.pattern}){sizes}", call_id):
        assert alias == call_id


@given(st.sets(st.text(max_size=100).filter(lambda text: not text.startswith("dgm_")), max_size=30))
def test_different_ids_have_different_aliases(ids: set[str]) -> None:
    for limits in (IdLimits(), IdLimits("[a-zA-Z0-9]", 20, 20)):
        assert len({alias_id(call_id, limits) for call_id in ids}) == len(ids)


@given(IDS)
def test_the_reversible_form_is_undone(call_id: str) -> None:
    limits = IdLimits(max_length=1000)
    alias = alias_id(call_id, limits)
    if alias != call_id and call_id:
        assert alias.startswith("dgm_")
        assert original_id(alias) == call_id


def test_an_id_of_half_characters_is_undone() -> None:
    assert original_id(alias_id("\ud83d", IdLimits())) == "\ud83d"


@given(st.text(max_size=80))
def test_a_hashed_id_is_never_taken_for_the_reversible_form(tail: str) -> None:
    alias = alias_id("dgm_dgm_" + tail, MISTRAL)
    assert original_id(alias) == alias
    alias = alias_id("dgm_" + "x" * 70 + tail, IdLimits())
    assert original_id(alias) == alias


@pytest.mark.parametrize(
    "call_id",
    [
        "call_1",
        "dgm_",
        "dgm_a",  # no base64 has this length
        "dgm_Zm9v",  # "foo", which no target forbids
        "dgm_ZnVu!",
        "dgm_Lh",  # not how "." is written
        "dgm_é",
        "dgm_\ud83d",
        "dgm__w",  # no UTF-8
    ],
)
def test_an_id_that_only_looks_like_an_alias_is_left_alone(call_id: str) -> None:
    assert original_id(call_id) == call_id


def test_ids_of_other_providers_fit_the_target() -> None:
    """M019, M021, M023, M024"""
    assert alias_id("functions.Bash:0", IdLimits()) == "dgm_ZnVuY3Rpb25zLkJhc2g6MA"
    assert original_id("dgm_ZnVuY3Rpb25zLkJhc2g6MA") == "functions.Bash:0"
    long = "codex_mcp__hermes-tools__search_exec-0f0e0d0c-1111-2222-3333-444455556666"
    alias = alias_id(long, IdLimits())
    assert len(alias) == 64
    assert alias.startswith("codex_mcp__hermes-tools__")
    assert alias != alias_id(long[:-1] + "7", IdLimits())
    assert re.fullmatch("[a-zA-Z0-9]{9}", alias_id("toolu_01VpEm654HvfMoRcrE3Hgdc6", MISTRAL))


def test_an_empty_id_gets_one() -> None:
    assert re.fullmatch("[a-zA-Z0-9]{16}", alias_id("", IdLimits()))


def test_tools_that_are_kept_are_named_once() -> None:
    tools = CachedTools((Tool(name="f"), Tool(name="g", namespace="n")))
    names = NameMap.build(tools)
    assert names == NameMap.build(tuple(tools))
    assert NameMap.build(tools, [(None, "f"), ("n", "g")]) is names
    assert NameMap.build(tools, limits=NameLimits(max_length=8)) is not names
    assert NameMap.build(tools, flatten=False) is not names


def test_names_of_the_history_that_no_tool_has_are_said() -> None:
    tools = CachedTools((Tool(name="f"),))
    names = NameMap.build(tools, [("", "gone"), (None, "f"), (None, "gone")])
    assert names.others == ((None, "gone"),)
    assert names == NameMap.build([Tool(name="f")], [(None, "gone")])
    assert NameMap.build(tools).others == ()


def test_parts_of_the_client_get_their_original_ids_back() -> None:
    alias = alias_id("functions.f:0", IdLimits())
    assert with_original_id(Call(call_id=alias, name="f")) == Call(
        call_id="functions.f:0", name="f"
    )
    assert with_original_id(Result(call_id=alias)) == Result(call_id="functions.f:0")
    for part in (
        Call(call_id="toolu_1", name="f"),
        Call(call_id=alias, name="f", executor="provider"),
        Text(text=alias),
    ):
        assert with_original_id(part) is part


def test_names_that_a_conversation_adds_change_no_earlier_name() -> None:
    member = Tool(name="f", namespace="ns")
    before = NameMap.build((member,)).wire("f", "ns")
    assert NameMap.build((member,), [(None, "ns__f")]).wire("f", "ns") == before
    late = Tool(name="ns__f", place="input")
    assert NameMap.build((member, late)).wire("f", "ns") == before
    used = [("x", "g"), (None, "x__g")]
    assert NameMap.build((), used).wire("g", "x") == NameMap.build((), used[:1]).wire("g", "x")
