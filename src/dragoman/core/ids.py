"""Ids that the gateway mints where a dialect demands an id and none was received.

Each id has the vendor's prefix (`fc_`, `msg_`, `rs_`, `ctc_`, `call_`, `toolu_`, `chatcmpl-`, `resp_`), because clients
send item ids back and OpenAI rejects other prefixes. Minting is deterministic: the same seed mints the same ids in the
same order, so ids differ between answers only if their seeds do.

If the seed is the id of a response of this gateway, the minted item ids contain it: `response_of` finds the response
of an item that a client only refers to. Every delta repeats the id of its item, so ids are as short as possible.
"""

import re
from hashlib import blake2b

from msgspec import Struct

RESPONSE_PREFIX = "resp_dgm"
"""Response ids of this gateway begin with this. No vendor's id does: after `resp_` come digits or other words."""

CONVERSATION_PREFIX = "conv_dgm"
"""Conversation ids of this gateway begin with this."""

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


# 88 bits: those of a request id of this gateway, which are random, or a hash of any other seed. A hash for each answer took
# half a percent of a small request.
_HASH_BYTES = 11
_REQUEST = re.compile(r"req_([0-9a-f]{22})[0-9a-f]{2}")
# The digits that count, ready for most answers: formatting a number costs as much as the rest of an id.
_ENDS = tuple([f"{count:02x}" for count in range(256)])


class Minter(Struct, eq=False):
    """Mints `prefix` + 22 hexadecimal digits, or `prefix` + `dgm` + the response's number; two or more digits follow, which count.

    One seed never mints the same id twice.
    """

    _seed: str = ""
    _count: int = 0
    _stem: str = ""  # made with the first id: many seeds mint none

    def seed(self, seed: str) -> None:
        """Start again, with another seed."""
        self._seed, self._count, self._stem = seed, 0, ""

    def __call__(self, prefix: str) -> str:
        self._count = count = self._count + 1
        if not self._stem:
            self._stem = _stem_of(self._seed)
        return prefix + self._stem + (_ENDS[count] if count < len(_ENDS) else f"{count:02x}")


def _stem_of(seed: str) -> str:
    number = seed.removeprefix(RESPONSE_PREFIX)
    if number != seed and _NUMBER.fullmatch(number):
        return f"dgm{number}"
    request = _REQUEST.fullmatch(seed)
    if request is not None:
        return request[1]
    return blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()


def response_of(item_id: str) -> str | None:
    """The id of this gateway's response that contains the item; None if the item id does not contain it."""
    found = _CARRIED.fullmatch(item_id)
    return None if found is None else RESPONSE_PREFIX + found[1]
