"""Every request case in its target's dialect, and every request in all nine pairs."""

from typing import Any

import pytest
from msgspec.structs import replace

from corpus_cases import DIALECTS, FolderCase, folder_cases
from corpus_checks import check
from dragoman.core.aliases import IdLimits
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import translate_request
from dragoman.model.parts import Call, Result

CASES = folder_cases("requests")


def target_of(meta: dict[str, Any]) -> Target:
    target = codec(meta["target"]).target
    if "target_ids" in meta:
        target = replace(target, ids=IdLimits(**meta["target_ids"]))
    if meta.get("target_user_first"):
        target = replace(target, user_first=True)
    if meta.get("target_cache"):
        target = replace(target, cache=True)
    return target


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_request_arrives_as_its_target_wants_it(case: FolderCase) -> None:
    encoded = translate_request(
        case.read("request.json"),
        case.meta["source"],
        case.meta["target"],
        limits=target_of(case.meta),
    )
    for rule in case.meta["checks"]:
        check(encoded.body, rule)
    assert set(case.meta.get("losses", ())) <= {loss.code for loss in encoded.losses}
    assert set(case.meta.get("repairs", ())) <= {repair.rule for repair in encoded.repairs}


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_call_sent_has_exactly_one_result(case: FolderCase, target: str) -> None:
    encoded = translate_request(case.read("request.json"), case.meta["source"], target)
    request = codec(target).decode_request(encoded.body)
    parts = [part for turn in request.turns for part in turn.parts]
    calls = [part.call_id for part in parts if isinstance(part, Call) and is_for_client(part)]
    results = [part.call_id for part in parts if isinstance(part, Result) and is_for_client(part)]
    assert len(calls) == len(set(calls))
    assert sorted(calls) == sorted(results)


def is_for_client(part: Call | Result) -> bool:
    return part.executor == "client"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_encoding_twice_gives_the_same_bytes(case: FolderCase) -> None:
    def encode() -> EncodedRequest:
        return translate_request(
            case.read("request.json"), case.meta["source"], case.meta["target"]
        )

    assert encode().body == encode().body
