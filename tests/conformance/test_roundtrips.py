"""A client's request to an upstream of another dialect, and the answer back in the client's own terms."""

import pytest

from corpus_cases import FolderCase, folder_cases
from corpus_checks import CHECKS, calls_of, check, check_calls, cuts
from dragoman.core.fold import fold
from dragoman.dialects.translate import StreamTranslator, make_decoder, translate_request

CASES = folder_cases("roundtrips")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answer_comes_back_in_the_clients_terms(case: FolderCase) -> None:
    client, upstream = case.meta["client"], case.meta["upstream"]
    encoded = translate_request(case.read("request.json"), client, upstream)
    for rule in case.meta.get("checks", ()):
        check(encoded.body, rule)
    for reads in cuts(case.read("stream.sse")).values():
        translator = StreamTranslator(upstream, client, names=encoded.names)
        out = b"".join(map(translator.feed, reads)) + translator.close()
        CHECKS[client](out)
        decoder = make_decoder(client)
        steps = decoder.feed(out) + decoder.close()
        outcome = fold(event for step in steps for event in step.events)
        assert outcome.choices[0].finish == case.meta["expect"]["finish"]
        check_calls(calls_of(outcome), case.meta["expect"])
