"""Chat requests as values, for tests of reading and writing them."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from dragoman._json import Raw
from dragoman.dialects.chat import DEFAULT_TARGET, decode_request, encode_request
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.model.outcome import LossAction
from dragoman.model.parts import Part, Text
from dragoman.model.request import Request, Role, Turn

OPENAI = replace(DEFAULT_TARGET, builtin=frozenset({"custom", "web_search"}))
CACHE = {"type": "ephemeral"}
SCHEMA = Raw(b'{"type":"object","properties":{"x":{"type":"string"}}}')
HELLO = {"role": "user", "content": "hello"}
_MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])


def ask(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [HELLO], **fields}).encode()


def decode(**fields: object) -> Request:
    return decode_request(ask(**fields))


def decode_turns(*given: object) -> tuple[Turn, ...]:
    return decode(messages=given).turns


def encode(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode_request(request, target, policy).body)
    return body


def foreign(*turns: Turn, **fields: Any) -> Request:
    """A request of another dialect."""
    user = Turn(role="user", parts=(Text(text="hello"),))
    return Request(model="m", turns=turns or (user,), **fields)


def turn(role: Role, *parts: Part, **fields: Any) -> Turn:
    return Turn(role=role, parts=parts, **fields)


def messages(request: Request, **options: Any) -> list[dict[str, Any]]:
    """The messages of a request as written, of the types that the vendor's SDK sends."""
    written: list[dict[str, Any]] = encode(request, **options)["messages"]
    _MESSAGES.validate_python(written)
    return written


def codes(encoded: EncodedRequest) -> list[str]:
    return [loss.code for loss in encoded.losses]
