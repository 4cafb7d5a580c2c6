"""The line of a problem: exact where the key is at the beginning of a line, else near what encloses it."""

import pytest

from dragoman.config.toml_text import located, places_of

FILE = b'''# a comment with [brackets]
title = "x"

[server]
api_keys = [
  "one # not a comment",  # a comment with "quotes
  "port = 1",
]
port = 2
note = """
[server]
host = 3
"""
host = 4

[upstreams."a.b"]
kind = "chat"
models = { "gpt-*" = { strict = true } }
limits.max_name_length = 5

[upstreams."a.b".models."q*"]
strict_tools = 1

[[routes]]
model = "x"
[[routes]]
model = "y"
'''
PLACES = places_of(FILE)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("title", "f:2"),
        ("server", "f:4"),
        ("server.api_keys", "f:5"),
        ("server.api_keys[1]", "f: near line 5"),
        ("server.port", "f:9"),
        ("server.host", "f:14"),
        ("server.metrics", "f: near line 4"),
        ('upstreams."a.b".kind', "f:17"),
        ('upstreams."a.b".models."gpt-*".strict', "f:18"),
        ('upstreams."a.b".limits.max_name_length', "f:19"),
        ('upstreams."a.b".models."q*".strict_tools', "f:22"),
        ("routes[0].model", "f:25"),
        ("routes[1].model", "f:27"),
        ("routes[1].upstream", "f: near line 26"),
        ("mcp[0].name", "f"),
    ],
)
def test_the_line_of_a_key(path: str, where: str) -> None:
    assert located(f"{path}: wrong", "f", PLACES) == f"{where}: {path}: wrong"


@pytest.mark.parametrize("data", [b"", b"[", b"a = [", b'a = """', b"\xff = 1", b"= 1", b"[[]]"])
def test_what_is_no_toml_has_places_too(data: bytes) -> None:
    assert located("b: wrong", "f", places_of(data)) == "f: b: wrong"
