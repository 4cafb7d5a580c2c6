"""Ids we mint where a wire demands one and none came.

They carry the vendor's prefix (`fc_`, `msg_`, `rs_`, `ctc_`, `call_`, `toolu_`, `chatcmpl-`, `resp_`), because clients
replay item ids and OpenAI rejects other prefixes. Deterministic: the same seed mints the same ids in the same order,
so a caller that wants ids to differ between answers gives a seed that does.

A seed that is itself the id of a response of ours is carried by the ids it mints: of an item that is only referred to,
`response_of` finds the response of an item. Every delta of an item repeats its id: they are as short as they can be.
"""

import re
from hashlib import blake2b

RESPONSE_PREFIX = "resp_dgm"
"""How the ids of responses begin that are ours. No vendor's do: theirs go on with digits or other words."""

# Those of 24 hexadecimal digits are older: they are still stored, and clients still refer to them.
_NUMBER = re.compile(r"[0-9a-v]{19}|[0-9a-f]{24}")
_CARRIED = re.compile(r"[a-z]+_dgm([0-9a-v]{19}|[0-9a-f]{24})[0-9a-f]{2,4}")

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = tuple([first + second for first in _DIGITS for second in _DIGITS])
# Of a number's 95 bits, 39 are the time, until the year 2242. The places of its pairs of digits, one digit is left.
_PLACES = tuple(range(85, 4, -10))
_TICKS = 64
NOISE_BITS = 56
"""Chance in a number: of a thousand responses a second, two of one tick are alike once in 300,000 years."""


def number_of(now: float, noise: int) -> str:
    """The number of a response, 19 digits. `noise`: `NOISE_BITS` of chance.

    It begins with the time, in 64ths of a second: the newest are neighbours in the index of a database, whose order these
    digits have in every language.
    """
    number = int(now * _TICKS) << NOISE_BITS | noise
    pairs = [_PAIRS[number >> place & 1023] for place in _PLACES]
    return "".join(pairs) + _DIGITS[number & 31]


class Minter:
    """Mints `prefix` + 24 hexadecimal digits, or `dgm` + a number + 2 or more; never the same twice from one seed."""

    def __init__(self, seed: str = "") -> None:
        self.seed(seed)

    def seed(self, seed: str) -> None:
        """Begin anew, from another seed."""
        self._seed = seed
        self._count = 0
        number = seed.removeprefix(RESPONSE_PREFIX)
        self._number = number if number != seed and _NUMBER.fullmatch(number) else None

    def __call__(self, prefix: str) -> str:
        self._count += 1
        if self._number is not None:
            return f"{prefix}dgm{self._number}{self._count:02x}"
        text = f"{self._seed}\n{self._count}".encode("utf-8", "surrogatepass")
        return prefix + blake2b(text, digest_size=12).hexdigest()


def response_of(item_id: str) -> str | None:
    """The response of ours that has the item of this id; None if the id does not say."""
    found = _CARRIED.fullmatch(item_id)
    return None if found is None else RESPONSE_PREFIX + found[1]
