"""Sections of a TOML file, added and removed: every other byte stays."""

import tomllib

import pytest

from dragoman.config.toml_text import with_section, without_section
from dragoman.errors import ConfigError

FILE = b"""# The gateway of a team.
[server]
port = 8787   # the usual one

[[routes]]
model = "*"
upstream = "rehearsal"
"""
OTHERS = b"""[keys.one]
digest = "a"   # of one
models = [
  "gpt-*", # with a comment
  "]",
]

# The second key.
[keys."two.b"]
digest = "b"

[upstreams.x]
kind = "rehearsal"
"""


@pytest.mark.parametrize("data", [b"", FILE, FILE.rstrip(), FILE.replace(b"\n", b"\r\n")])
def test_section_is_added_at_the_end_and_its_removal_gives_the_file_back(data: bytes) -> None:
    made = with_section(data, "keys", "team", '[keys.team]\ndigest = "d"\n')
    assert made.startswith(data)
    assert tomllib.loads(made.decode().replace("\r\n", "\n"))["keys"] == {"team": {"digest": "d"}}
    assert without_section(made, "keys", "team").rstrip() == data.rstrip()


def test_section_in_the_middle_goes_alone() -> None:
    expected = OTHERS[OTHERS.index(b"# The second") :]
    assert without_section(OTHERS, "keys", "one") == expected
    assert without_section(OTHERS, "keys", "two.b") == (
        OTHERS[: OTHERS.index(b'[keys."two')] + OTHERS[OTHERS.index(b"[upstreams.x]") :]
    )


@pytest.mark.parametrize(
    "data",
    [
        b'keys.team.digest = "d"\n',
        b'[keys]\nteam.digest = "d"\n',
        b'[keys]\nteam = { digest = "d" }\n',
    ],
)
def test_key_that_is_written_in_lines_of_its_own_is_removed_too(data: bytes) -> None:
    made = without_section(data + b'[log]\nlevel = "info"\n', "keys", "team")
    assert tomllib.loads(made.decode()).get("keys", {}) == {}
    assert tomllib.loads(made.decode())["log"] == {"level": "info"}


@pytest.mark.parametrize(
    "data",
    [
        b'keys = { team = { digest = "d" } }\n',
        b'[keys.team]\ndigest = "d"\n[log]\n[keys.team.more]\na = 1\n',
    ],
)
def test_section_that_cannot_be_cut_out_is_left_alone(data: bytes) -> None:
    with pytest.raises(ConfigError, match="by hand"):
        without_section(data, "keys", "team")


def test_section_cannot_be_added_to_an_inline_table() -> None:
    with pytest.raises(ConfigError, match="by hand"):
        with_section(b"keys = {}\n", "keys", "team", '[keys.team]\ndigest = "d"\n')


def test_section_is_not_added_twice_and_an_unknown_one_is_named() -> None:
    with pytest.raises(ConfigError, match="there already"):
        with_section(OTHERS, "keys", "one", '[keys.one]\ndigest = "d"\n')
    with pytest.raises(ConfigError, match=r"there is no keys\.three; there are: one, two\.b"):
        without_section(OTHERS, "keys", "three")


def test_header_in_a_string_is_no_section() -> None:
    data = b'[server]\nhost = """\n[keys.team]\n"""\n[keys.team]\ndigest = "d"\n'
    assert without_section(data, "keys", "team") == b'[server]\nhost = """\n[keys.team]\n"""\n'
