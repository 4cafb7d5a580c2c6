"""Lists of models as servers write them."""

import json

import pytest

from dragoman.upstream.http.model_list import OfferedModel, read_model_list


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ({}, None),
        ({"max_model_len": 32768}, 32768),
        ({"context_length": 131072}, 131072),
        ({"max_context_length": 8192}, 8192),
        ({"context_window": 200000}, 200000),
        ({"meta": {"n_ctx": 4096}}, 4096),
        ({"max_model_len": None, "context_length": 5}, 5),
        ({"max_model_len": True}, None),
        ({"max_model_len": -1}, None),
        ({"max_model_len": "32768"}, None),
    ],
)
def test_the_context_window_is_read_where_a_server_says_it(
    fields: dict[str, object], window: int | None
) -> None:
    body = json.dumps({"object": "list", "data": [{"id": "m", **fields}]}).encode()
    assert read_model_list(body) == (OfferedModel("m", window),)


@pytest.mark.parametrize(
    "body",
    [b"", b"Ollama is running", b"[]", b"{}", b'{"data": {}}', b'{"data": ["m", {"name": "m"}]}'],
)
def test_another_format_is_no_list(body: bytes) -> None:
    assert read_model_list(body) == ()


def test_what_cannot_be_a_name_is_left_out_and_a_name_is_listed_once() -> None:
    names = ["a", "", "b\x1b[2J", "c" * 300, "a", 7, "d"]
    body = json.dumps({"data": [{"id": name} for name in names]}).encode()
    assert [each.name for each in read_model_list(body)] == ["a", "d"]
