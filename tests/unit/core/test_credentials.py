"""No credential is stored."""

import json

import pytest

from dragoman._json import Raw
from dragoman.core.credentials import credentials_of, remove_credentials, remove_from_item
from dragoman.dialects.registry import codec
from dragoman.model.parts import Extra, Opaque, Text
from dragoman.model.request import Namespace, Request, Tool, Turn
from dragoman.store.codec import pack
from dragoman.store.packing import unpack_bytes

SECRET = "hush-hush"


def test_request_without_secrets_is_the_very_same() -> None:
    tools = (Tool(name="f", extra=Extra("responses", {"x": Raw(b'{"tokens":1}')})), Tool(name="g"))
    request = Request(tools=tools, extra=Extra("chat", {"max": Raw(b"1")}))
    assert remove_credentials(request) is request
    assert remove_credentials(Request()) == Request()


@pytest.mark.parametrize(
    "name",
    ["authorization", "Authorization", "headers", "api_key", "api-key", "x-api-key", "access_token", "password",
     "authorization_token", "client_secret", "cookie", "token", "credentials", "domain_secrets"],
)  # fmt: skip
def test_fields_with_credentials_are_left_out_at_every_depth(name: str) -> None:
    nested = Raw(f'{{"a":[{{"{name}" : "{SECRET}","b":1}},2]}}'.encode())
    extra = Extra("responses", {name: Raw(f'"{SECRET}"'.encode()), "kept": nested})
    request = Request(tools=(Tool(name="m", kind="mcp", extra=extra),), extra=extra)
    scrubbed = remove_credentials(request)
    kept = Extra("responses", {"kept": Raw(b'{"a":[{"b":1},2]}')})
    assert scrubbed == Request(tools=(Tool(name="m", kind="mcp", extra=kept),), extra=kept)


def test_function_may_have_a_parameter_called_token() -> None:
    schema = Raw(b'{"properties":{"token":{"type":"string"},"headers":{}}}')
    request = Request(tools=(Tool(name="f", schema=schema),))
    assert remove_credentials(request) is request
    extra = Extra("responses", {"output_schema": schema})
    request = Request(tools=(Tool(name="f", extra=extra),))
    assert remove_credentials(request) is request


def test_texts_of_credentials_are_found_at_every_depth() -> None:
    fields = {
        "authorization": Raw(b'"one"'),
        "headers": Raw(b'{"a":"two","b":["three",4,""],"c":null}'),
        "servers": Raw(b'[{"name":"s","token":"four","parameters":{"token":"no secret"}},true]'),
    }
    extra = Extra("responses", fields)
    tools = (Tool(name="m", kind="mcp", extra=extra), Tool(name="f"))
    assert credentials_of(Request(tools=tools)) == ("one", "two", "three", "four")
    assert credentials_of(Request(namespaces=(Namespace("n", extra=extra),)))[0] == "one"
    harmless = Extra("responses", {"x": Raw(b'"token"')})
    assert credentials_of(Request(tools=(Tool(name="f", extra=harmless),))) == ()


FUNCTION = (
    b'{"type":"function", "name":"get", "parameters":{"properties":{"headers":{"type":"object"}}}}'
)
SERVER = b'{"type":"mcp","server_label":"s","server_url":"https://s","authorization":"hush-hush"}'


@pytest.mark.parametrize(
    "item",
    [
        b'{"type":"additional_tools","role":"developer","tools":[%b]}',
        b'{"type":"tool_search_output","call_id":"c","execution":"client","tools":[%b]}',
    ],
)
def test_tools_inside_a_conversation_lose_credentials_and_keep_their_parameters(
    item: bytes,
) -> None:
    def decode(tools: bytes) -> tuple[Request, bytes]:
        data = item % tools
        return codec("responses").decode_request(b'{"model":"m","input":[%b]}' % data), data

    request, data = decode(FUNCTION)
    assert remove_credentials(request) is request
    assert remove_from_item(request.turns[0], data) is data
    request, data = decode(FUNCTION + b"," + SERVER)
    assert SECRET.encode() not in unpack_bytes(pack(remove_credentials(request)))
    server = {"type": "mcp", "server_label": "s", "server_url": "https://s"}
    kept = json.loads(remove_from_item(request.turns[0], data))
    assert kept["tools"] == [json.loads(FUNCTION), server]


@pytest.mark.parametrize(
    ("door", "body"),
    [
        (
            "responses",
            b'{"model":"m","input":"hi","tools":[{"type":"mcp","server_label":"s","authorization":"hush-hush"}]}',
        ),
        (
            "messages",
            b'{"model":"m","max_tokens":5,"messages":[],"mcp_servers":[{"name":"s","authorization_token":"hush-hush"}]}',
        ),
        (
            "chat",
            b'{"model":"m","messages":[{"role":"user","content":"hi"}],"extra_body":{"api_key":"hush-hush"}}',
        ),
    ],
)
def test_credentials_of_mcp_servers_are_not_stored(door: str, body: bytes) -> None:
    request = codec(door).decode_request(body)
    scrubbed = remove_credentials(request)
    assert scrubbed != request
    assert SECRET.encode() in unpack_bytes(pack(request))
    assert SECRET.encode() not in unpack_bytes(pack(scrubbed))


def test_tools_that_the_developer_declares_in_the_conversation_lose_theirs() -> None:
    def declared(raw: bytes) -> Turn:
        part = Opaque(dialect="responses", type="additional_tools", raw=Raw(raw))
        return Turn(role="developer", parts=(Text(text="token"), part))

    spoken = Turn(role="user", parts=(Opaque(dialect="chat", type="x", raw=Raw(b'{"token":1}')),))
    group = Namespace("n", extra=Extra("responses", {"headers": Raw(b"{}")}))
    turns = (spoken, declared(b'{"tools":[{"headers":{},"type":"mcp"}]}'))
    scrubbed = remove_credentials(Request(turns=turns, namespaces=(group, Namespace("m"))))
    assert scrubbed.turns == (spoken, declared(b'{"tools":[{"type":"mcp"}]}'))
    assert scrubbed.namespaces == (Namespace("n", extra=Extra("responses", {})), Namespace("m"))
    harmless = Request(turns=(declared(b"{}"),))
    assert remove_credentials(harmless) is harmless
