"""A request is written the same, whether its tools were read and written before or are new."""

import pytest
from msgspec.structs import replace

from corpus_cases import DIALECTS, FolderCase, folder_cases
from dragoman.dialects.codec import EncodedRequest
from dragoman.dialects.registry import codec
from dragoman.errors import RequestRefused
from dragoman.model.outcome import LossAction
from dragoman.model.request import Request

POLICIES: tuple[dict[str, LossAction], ...] = (
    {},
    {"schema": "refuse", "cache_control": "carry"},
    {"builtin_tool": "refuse", "namespace": "drop"},
)


def written(
    request: Request, target: str, policy: dict[str, LossAction]
) -> EncodedRequest | tuple[str, str | None]:
    try:
        return codec(target).encode_request(request, codec(target).target, policy)
    except RequestRefused as error:
        return (error.message, error.param)


@pytest.mark.parametrize("case", folder_cases("requests"), ids=lambda case: case.name)
def test_remembered_tools_are_written_as_new_ones(case: FolderCase) -> None:
    try:
        request = codec(case.meta["source"]).decode_request(case.read("request.json"))
    except RequestRefused:
        return
    new = replace(request, tools=tuple(request.tools))
    for target in DIALECTS:
        for policy in POLICIES:
            expected = written(new, target, policy)
            assert written(request, target, policy) == expected
            assert written(request, target, policy) == expected
