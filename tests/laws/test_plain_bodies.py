"""A body read and written by its type alone is what it is when read field by field and written part by part.

Every body here is compared as it is and with each of its members changed in turn: what is read quickly although it should
not be would show.
"""

import json
from copy import deepcopy
from itertools import chain
from typing import Any

import pytest

from corpus_cases import DIALECTS, stream_cases
from dragoman.core.aliases import NameMap
from dragoman.core.fold import fold
from dragoman.core.losses import answer_book
from dragoman.core.restore import Restorer
from dragoman.core.usage import Tally, tally_of
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import read_whole, translate_body
from dragoman.model.request import Request, Tool
from plain_variants import PLAIN, never, slowly, variants
from vendor_answers import BODIES

WRITERS = [f"dragoman.dialects.{dialect}.body.write_typed" for dialect in DIALECTS]
CONTEXT = DecodeContext(tools=(Tool(name="look"),), choices=1, seed="law")
NAMES = NameMap.build((Tool(name="look", namespace="eyes"),))
ENCODES = (
    EncodeContext(seed="law", created=7),
    EncodeContext(seed="law", response_id="resp_9"),
    EncodeContext(seed="law", clock=lambda: 8.0, request=Request(previous_id="resp_8")),
    EncodeContext(
        model="mine", profile="required_action", legacy_functions=True, losses={"seal": "refuse"}
    ),
)


def words_only(finish: str) -> dict[str, Any]:
    """A body of Chat that is a text and nothing more."""
    body = deepcopy(PLAIN["chat"])
    choice = body["choices"][0]
    choice["finish_reason"] = finish
    del choice["message"]["tool_calls"], choice["message"]["reasoning_content"]
    return body


def counted(tally: Tally) -> list[object]:
    return [getattr(tally, name) for name in Tally.__struct_fields__]


def check_body(dialect: str, body: bytes, context: DecodeContext) -> bool:
    """Whether a body is plain; if it is, it is the same in every dialect as by the long way."""
    plain = codec(dialect).read_typed(body)
    step = codec(dialect).read_body(body, context)
    outcome = fold(step.events)
    if plain is not None:
        # What was read by its type is relayed without another look.
        assert dialect != "chat" or codec(dialect).is_usable_body(body, EncodeContext(), False)
        assert (plain, ()) == (outcome, step.problems)
        whole = read_whole(plain, None)
        assert whole is not None
        assert counted(whole[1]) == counted(tally_of(step.events))
        restored = list(chain.from_iterable(map(Restorer(NAMES).feed, step.events)))
        whole = read_whole(plain, NAMES)
        assert whole is not None
        assert (whole[0], counted(whole[1])) == (fold(restored), counted(tally_of(restored)))
    for target in DIALECTS:
        for encode in ENCODES:

            def write(target: str = target, encode: EncodeContext = encode) -> object:
                book = answer_book(codec(target).losses, encode.losses)
                return codec(target).write_body(outcome, encode, book), book.losses

            assert write() == slowly(dict.fromkeys(WRITERS, never), write)
    return plain is not None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_changed_body_means_the_same(dialect: str) -> None:
    bodies = list(variants(PLAIN[dialect]))
    plain = [check_body(dialect, json.dumps(body).encode(), CONTEXT) for body in bodies]
    assert plain[0]
    assert sum(plain) < len(bodies) / 2


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter"])
def test_a_changed_text_means_the_same(finish: str) -> None:
    for body in variants(words_only(finish)):
        check_body("chat", json.dumps(body).encode(), CONTEXT)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_bodies_of_the_vendors_mean_the_same(dialect: str) -> None:
    for body in BODIES[dialect].values():
        check_body(dialect, json.dumps(body).encode(), CONTEXT)
        check_body(dialect, json.dumps(body).encode(), DecodeContext())


def test_bodies_of_the_corpus_mean_the_same() -> None:
    for case in stream_cases():
        if case.body is not None:
            check_body(case.dialect, case.body, case.context)


def changed(dialect: str, path: list[str | int], value: object) -> bytes:
    body = deepcopy(PLAIN[dialect])
    *way, last = path
    holder: Any = body
    for key in way:
        holder = holder[key]
    holder[last] = value
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", changed("chat", ["choices", 0, "message", "tool_calls", 1, "id"], "call_0")),
        ("chat", json.dumps({**words_only("stop"), "usage": None, "x_groq": {}}).encode()),
        ("responses", changed("responses", ["output", 3, "call_id"], "call_0")),
        ("responses", changed("responses", ["output", 3, "id"], "fc_0")),
        *((name, changed(name, ["model"], "mm").replace(b"mm", b"m\xff")) for name in DIALECTS),
        *((name, changed(name, ["odd"], "mm").replace(b"mm", b"m\xff")) for name in DIALECTS),
    ],
)
def test_what_is_not_plain_is_left_to_the_long_way(dialect: str, body: bytes) -> None:
    assert not check_body(dialect, body, CONTEXT)


def test_reasoning_without_a_word_means_the_same() -> None:
    item: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": []}
    assert check_body("responses", changed("responses", ["output", 0], item), CONTEXT)


def test_a_plain_call_of_a_custom_tool_is_unwrapped() -> None:
    source = json.dumps({"input": "*** Begin Patch"})
    path: list[str | int] = ["choices", 0, "message", "tool_calls", 0, "function", "arguments"]
    names = NameMap.build((Tool(name="look", kind="custom"),))
    found = translate_body(changed("chat", path, source), "chat", "responses", names=names)
    calls = [item for item in json.loads(found.body)["output"] if "call_id" in item]
    assert (calls[0]["type"], calls[0]["input"]) == ("custom_tool_call", "*** Begin Patch")
