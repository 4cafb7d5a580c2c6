"""Of what models write in each format, 99.5 % is read right: calls, prose, malformed blocks and calls of other tools.

The right answers come from the generator (`text_cases`), which does not use the code under test. Each case is read whole and in
pieces. `make laws` reads twenty times as many; `python tests/support/text_cases.py 2000` prints the table.
"""

import pytest

from text_cases import KINDS, Kind, measure
from text_formats import FORMATS, TextFormat
from text_samples import ROUNDS

COUNT = 12
"""Cases of each kind and format."""
MOST_WRONG = 0.005


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_texts_of_every_kind_are_read_right(form: TextFormat, kind: Kind) -> None:
    count = COUNT * ROUNDS
    wrong = measure(form, kind, count, "law")
    assert len(wrong) <= MOST_WRONG * count, [(case.text, fault) for case, fault in wrong]
