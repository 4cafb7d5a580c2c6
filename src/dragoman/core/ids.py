"""Ids that the gateway mints where a dialect demands an id and none was received.

Each id has the vendor's prefix (`fc_`, `msg_`, `rs_`, `ctc_`, `call_`, `toolu_`, `chatcmpl-`, `resp_`), because clients
send item ids back and OpenAI rejects other prefixes. Minting is deterministic: the same seed mints the same ids in the
same order, so ids differ between answers only if their seeds do.

If the seed is the id of a response of this gateway, the minted item ids contain it: `response_of` finds the response
of an item that a client only refers to. Every delta repeats the id of its item, so ids are as short as possible.
"""

import re
from hashlib import blake2b

RESPONSE_PREFIX = "resp_dgm"
"""Response ids of this gateway begin with this. No vendor's id does: after `resp_` come digits or other words."""

# 24 hexadecimal digits are the older form: such ids are still stored, and clients still refer to them.
_NUMBER = re.compile(r"[0-9a-v]{19}|[0-9a-f]{24}")
_CARRIED = re.compile(r"[a-z]+_dgm([0-9a-v]{19}|[0-9a-f]{24})[0-9a-f]{2,4}")

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = tuple([first + second for first in _DIGITS for second in _DIGITS])
# Bit positions of the nine pairs of digits; a single digit follows. Of the 95 bits, 39 are the time, until the year 2242.
_PLACES = tuple(range(85, 4, -10))
_TICKS = 64
NOISE_BITS = 56
"""Random bits in a number: at a thousand responses a second, two of one tick collide once in 300,000 years."""


def number_of(now: float, noise: int) -> str:
    """The number of a response, 19 digits. `noise`: `NOISE_BITS` random bits.

    The number begins with the time, in 64ths of a second, so that new responses are neighbours in a database index.
    The digits sort in the same order under every collation.
    """
    number = int(now * _TICKS) << NOISE_BITS | noise
    pairs = [_PAIRS[number >> place & 1023] for place in _PLACES]
    return "".join(pairs) + _DIGITS[number & 31]


# One hash has 120 hexadecimal digits: enough for the ids of most answers. A hash for each id took 2 % of a small request.
_HASH_BYTES = 60
_ID_DIGITS = 24


class Minter:
    """Mints `prefix` + 24 hexadecimal digits, or `prefix` + `dgm` + the response's number + 2 or more digits.

    One seed never mints the same id twice.
    """

    def __init__(self, seed: str = "") -> None:
        self.seed(seed)

    def seed(self, seed: str) -> None:
        """Start again, with another seed."""
        self._seed = seed
        self._count = 0
        self._digits = ""
        number = seed.removeprefix(RESPONSE_PREFIX)
        self._number = number if number != seed and _NUMBER.fullmatch(number) else None

    def __call__(self, prefix: str) -> str:
        self._count += 1
        if self._number is not None:
            return f"{prefix}dgm{self._number}{self._count:02x}"
        if not self._digits:
            text = f"{self._seed}\n{self._count}".encode("utf-8", "surrogatepass")
            self._digits = blake2b(text, digest_size=_HASH_BYTES).hexdigest()
        found, self._digits = self._digits[:_ID_DIGITS], self._digits[_ID_DIGITS:]
        return prefix + found


def response_of(item_id: str) -> str | None:
    """The id of this gateway's response that contains the item; None if the item id does not contain it."""
    found = _CARRIED.fullmatch(item_id)
    return None if found is None else RESPONSE_PREFIX + found[1]
