"""Which policy applies to a request, and how the settings are read."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.config.read import load_settings
from dragoman.config.settings import UpstreamSettings
from dragoman.errors import ConfigError, RequestRefused
from dragoman.model.request import Request, Tool, ToolChoice
from dragoman.obsidian.answer import formats_for, stage_without_tools
from dragoman.obsidian.policy import ObsidianPolicy, policy_for
from dragoman.obsidian.request import apply_to_request
from dragoman.obsidian.settings import PROXY_VARIABLES, ChatSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "obsidian.md").read_text(encoding="utf-8")
HTTP = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1")
CODEX = structs.replace(HTTP, kind="codex")
XML = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1", output_mode="obsidian_xml")
HEADER = b"x-proxy-output-mode"


def found_policy(
    chat: ChatSettings, upstream: UpstreamSettings, headers: dict[bytes, bytes]
) -> ObsidianPolicy | None:
    return policy_for(chat, headers, kind=str(upstream.kind), upstream_mode=upstream.output_mode)


def policy(
    chat: ChatSettings | None = None,
    upstream: UpstreamSettings = HTTP,
    header: bytes | None = b"openai",
) -> ObsidianPolicy:
    headers = {} if header is None else {HEADER: header}
    found = found_policy(chat or ChatSettings(), upstream, headers)
    assert found is not None
    return found


def load(tmp_path: Path, environ: dict[str, str], text: str = "") -> ChatSettings:
    file = tmp_path / "dragoman.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environ).chat


# --- the mode ---------------------------------------------------------------------------------------------------------


def test_without_any_wish_there_is_no_policy() -> None:
    assert found_policy(ChatSettings(), HTTP, {}) is None


@pytest.mark.parametrize(
    ("header", "gateway", "upstream", "mode"),
    [
        (b"openai-json", "obsidian-xml", XML, "openai-json"),
        (b"Obsidian_XML", "openai-json", HTTP, "obsidian-xml"),
        (b" obsidian ", None, HTTP, "obsidian-xml"),
        (b"openai", None, CODEX, "openai-json"),
        (None, "openai_json", XML, "openai-json"),
        (None, "openai-json", CODEX, "openai-json"),
        (None, "obsidian_xml", HTTP, "obsidian-xml"),
        (None, None, XML, "obsidian-xml"),
        (None, None, CODEX, "obsidian-xml"),
        (None, None, structs.replace(CODEX, output_mode="openai-json"), "openai-json"),
    ],
)
def test_the_header_is_first_then_the_gateway_the_upstream_and_its_kind(
    header: bytes | None, gateway: str | None, upstream: UpstreamSettings, mode: str
) -> None:
    chat = structs.replace(ChatSettings(), output_mode=gateway)
    found = policy(chat, upstream, header)
    assert found.mode == mode
    assert found.header == (HEADER, mode.encode())


def test_any_other_setting_makes_a_policy_in_openai_json() -> None:
    assert policy(ChatSettings(tool_block_max=1), header=None).mode == "openai-json"


@pytest.mark.parametrize("value", [b"", b"yaml", b"obsidian xml", b"\xff" * 100])
def test_a_header_that_names_no_mode_is_refused(value: bytes) -> None:
    with pytest.raises(RequestRefused, match='expected "obsidian-xml" or "openai-json"') as error:
        found_policy(ChatSettings(), HTTP, {HEADER: value})
    assert error.value.code == "unknown_output_mode"


def test_a_failure_after_calls_finishes_for_codex_or_where_the_operator_says_so() -> None:
    assert not policy().finish_failed
    assert policy(ChatSettings(error_after_calls="finish")).finish_failed
    assert policy(upstream=CODEX, header=None).finish_failed
    chat = ChatSettings(error_after_calls="fail")
    assert not policy(chat, CODEX, None).finish_failed


# --- the request ------------------------------------------------------------------------------------------------------

TOOLS = (Tool(name="now"),)


@pytest.mark.parametrize("flag", [True, False])
def test_parallel_calls_are_set_where_the_client_says_nothing(flag: bool) -> None:
    under = policy(ChatSettings(enable_parallel_tool_calls=flag))
    assert apply_to_request(Request(tools=TOOLS), under)[0].parallel_calls is flag
    said = Request(tools=TOOLS, parallel_calls=not flag)
    assert apply_to_request(said, under)[0] is said
    plain = Request()
    assert apply_to_request(plain, under)[0] is plain


@pytest.mark.parametrize(
    ("wish", "header", "pairs"),
    [("auto", b"obsidian", True), ("auto", b"openai", False), ("on", b"openai", True), ("off", b"obsidian", False)],
)  # fmt: skip
def test_written_results_are_paired_by_mode_or_by_wish(
    wish: str, header: bytes, pairs: bool
) -> None:
    chat = structs.replace(ChatSettings(), written_results=wish)
    assert policy(chat, header=header).pairs_results is pairs


def test_blocks_are_looked_for_where_the_client_reads_them() -> None:
    xml, json = policy(header=b"obsidian"), policy()
    assert formats_for(json, ()) == ()
    assert formats_for(xml, ()) == ("use_tool",)
    assert formats_for(xml, ("hermes",)) == ("hermes", "use_tool")
    assert formats_for(xml, ("auto",)) == ("auto",)
    assert formats_for(xml, ("use_tool",)) == ("use_tool",)


def test_without_tools_blocks_are_found_in_that_mode_alone() -> None:
    xml = policy(header=b"obsidian")
    assert stage_without_tools(xml, Request(), "s") is not None
    assert stage_without_tools(policy(), Request(), "s") is None
    none = Request(tool_choice=ToolChoice(mode="none"))
    assert stage_without_tools(xml, none, "s") is None


# --- the environment --------------------------------------------------------------------------------------------------

READ = [
    ("PROXY_OUTPUT_MODE", "obsidian_xml", "obsidian-xml"),
    ("PROXY_OUTPUT_MODE", "OpenAI", "openai-json"),
    ("PROXY_STOP_AFTER_TOOLS", "on", True),
    ("PROXY_STOP_AFTER_TOOLS", "0", False),
    ("PROXY_STOP_AFTER_TOOLS_MODE", "FIRST", "first"),
    ("PROXY_STOP_AFTER_TOOLS_GRACE_MS", "25", 25),
    ("PROXY_SUPPRESS_TAIL_AFTER_TOOLS", "yes", True),
    ("PROXY_SUPPRESS_TAIL_AFTER_TOOLS", "No", False),
    ("PROXY_TOOL_BLOCK_MAX", " 2 ", 2),
    ("PROXY_TOOL_BLOCK_DELIMITER", "true", "\n\n"),
    ("PROXY_TOOL_BLOCK_DELIMITER", "false", ""),
    ("PROXY_TOOL_BLOCK_DELIMITER", "\\n--\\n", "\n--\n"),
    ("PROXY_TOOL_BLOCK_DELIMITER", " | ", " | "),
    ("PROXY_TOOL_BLOCK_DEDUP", "1", True),
    ("PROXY_ENABLE_PARALLEL_TOOL_CALLS", "false", False),
]


@pytest.mark.parametrize(("variable", "text", "value"), READ)
def test_every_variable_is_read(tmp_path: Path, variable: str, text: str, value: object) -> None:
    key = PROXY_VARIABLES[variable][0]
    assert getattr(load(tmp_path, {variable: text}), key) == value


def test_every_variable_has_been_tried() -> None:
    assert {variable for variable, _, _ in READ} == set(PROXY_VARIABLES)


def test_the_environment_wins_over_the_file_and_an_empty_variable_says_nothing(
    tmp_path: Path,
) -> None:
    text = '[chat]\noutput_mode = "openai_json"\ntool_block_max = 3\n'
    environ = {"PROXY_OUTPUT_MODE": "obsidian-xml", "PROXY_TOOL_BLOCK_MAX": ""}
    assert load(tmp_path, environ, text) == ChatSettings(
        output_mode="obsidian-xml", tool_block_max=3
    )


@pytest.mark.parametrize(
    ("variable", "text", "complaint"),
    [
        ("PROXY_OUTPUT_MODE", "yaml", 'PROXY_OUTPUT_MODE: expected one of "obsidian-xml"'),
        ("PROXY_STOP_AFTER_TOOLS", "maybe", "PROXY_STOP_AFTER_TOOLS: expected true or false"),
        ("PROXY_STOP_AFTER_TOOLS_MODE", "last", 'PROXY_STOP_AFTER_TOOLS_MODE: expected one of "burst", "first"'),
        ("PROXY_TOOL_BLOCK_MAX", "-1", "PROXY_TOOL_BLOCK_MAX: expected an integer"),
        ("PROXY_STOP_AFTER_TOOLS_GRACE_MS", "1e3", "PROXY_STOP_AFTER_TOOLS_GRACE_MS: expected an integer"),
        ("PROXY_STOP_AFTER_TOOLS_GRACE_MS", "99999999", "chat.stop_after_tools_grace_ms: expected milliseconds"),
        ("PROXY_TOOL_BLOCK_DEDUP", "2", "PROXY_TOOL_BLOCK_DEDUP: expected true or false"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_an_error(
    tmp_path: Path, variable: str, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load(tmp_path, {variable: text})


def test_a_negative_maximum_in_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("chat.tool_block_max: expected 0 or more")):
        load(tmp_path, {}, "[chat]\ntool_block_max = -1\n")


# --- the page ---------------------------------------------------------------------------------------------------------

_ROW = re.compile(r"^\| `(PROXY_\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_the_page_has_every_variable_once_and_every_key_has_a_variable_or_is_named() -> None:
    assert [row[0] for row in _ROW.findall(PAGE)] == list(PROXY_VARIABLES)
    keys = {key for key, _ in PROXY_VARIABLES.values()}
    others = [key for key in ChatSettings.__struct_fields__ if key not in keys]
    named = PAGE.partition("\n## Settings\n")[2].partition("\n## ")[0]
    assert f"{', '.join(f'`{key}`' for key in others[:-1])} and `{others[-1]}`" in named


def test_a_variable_has_the_name_of_its_key() -> None:
    for variable, (key, _) in PROXY_VARIABLES.items():
        assert variable == f"PROXY_{key.upper()}"


@pytest.mark.parametrize("row", _ROW.findall(PAGE), ids=lambda row: row[0])
def test_the_page_says_the_default_and_names_tests_that_exist(row: tuple[str, ...]) -> None:
    variable, default, _, tests = row
    key = PROXY_VARIABLES[variable][0]
    lines = re.fullmatch(r"`(\w+)`", default.strip())
    value = getattr(ChatSettings(), key)
    if lines is None:
        assert value in (None, "")
    else:
        assert getattr(ChatSettings(), key) == (value if str(value).lower() == lines[1] else None)
    files = [*(ROOT / "tests" / "e2e").glob("test_gateway_obsidian*.py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = re.findall(r"`(test_\w+)`", tests)
    assert names
    assert [name for name in names if f"def {name}(" not in source] == []
