"""Ids we mint where a wire demands one and none came.

They carry the vendor's prefix (`fc_`, `msg_`, `rs_`, `ctc_`, `call_`, `toolu_`, `chatcmpl-`, `resp_`), because clients
replay item ids and OpenAI rejects other prefixes. Deterministic: the same seed mints the same ids in the same order,
so a caller that wants ids to differ between answers gives a seed that does.
"""

from hashlib import blake2b

__all__ = ("Minter",)


class Minter:
    """Mints `prefix` + 24 hexadecimal digits, never the same twice from one seed."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed
        self._count = 0

    def __call__(self, prefix: str) -> str:
        self._count += 1
        text = f"{self._seed}\n{self._count}".encode("utf-8", "surrogatepass")
        return prefix + blake2b(text, digest_size=12).hexdigest()
