"""What an answer under the contract needs of the shell: an upstream that is not waited for too long, and an end of its own.

PatientReply        the reply; once its calls are told and the turn is to stop, further ones are waited for so long
ContractInterpreter a stream on its way that may be over before the upstream's is
ContractCollector   the same, gathered for a body
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import structs

from dragoman.core.tally import Tally
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.interpret import BodyCollector, Interpreter
from dragoman.dialects.translate import TranslatedBody
from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.textcalls.contract.chain import Contract
from dragoman.upstream.base import Reply

__all__ = ("ContractCollector", "ContractInterpreter", "PatientReply", "completed")

_Inner = TypeVar("_Inner", bound=Interpreter | BodyCollector)

_CUT = ErrorInfo(kind="cancelled", message="the answer was ended after its calls")


class PatientReply:
    """A reply that ends when nobody waits for more of it. `grace`: seconds from the last call to the end."""

    __slots__ = ("_contract", "_deadline", "_grace", "_reply", "_told")

    def __init__(self, reply: Reply, contract: Contract, grace: float) -> None:
        self._reply = reply
        self._contract = contract
        self._grace = grace
        self._told = 0
        self._deadline = 0.0

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def read(self) -> bytes:
        contract = self._contract
        if contract.is_over:
            return b""
        if not contract.is_lingering:
            return await self._reply.read()
        if contract.told != self._told:
            self._told = contract.told
            self._deadline = asyncio.get_running_loop().time() + self._grace
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._reply.read()
        except TimeoutError:
            contract.stop()
            return b""

    def close(self) -> None:
        self._reply.close()


class _Contracted(Generic[_Inner]):
    """An answer on its way, in whatever form, whose changes include a contract."""

    __slots__ = ("_contract", "_inner")

    def __init__(self, inner: _Inner, contract: Contract) -> None:
        self._inner = inner
        self._contract = contract

    @property
    def tally(self) -> Tally:
        return self._inner.tally

    @property
    def is_over(self) -> bool:
        return self._contract.is_over or self._inner.is_over

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    @property
    def problems(self) -> Sequence[Problem]:
        return (*self._inner.problems, *self._contract.problems)

    @property
    def losses(self) -> Sequence[Loss]:
        return (*self._inner.losses, *self._contract.losses)

    def feed(self, data: bytes) -> bytes:
        return self._inner.feed(data)

    def close(self) -> bytes:
        if self._contract.is_over:
            return b""
        return self._inner.fail(_CUT) if self._contract.is_stopped else self._inner.close()

    def fail(self, error: ErrorInfo) -> bytes:
        return b"" if self._contract.is_over else self._inner.fail(error)


class ContractInterpreter(_Contracted[Interpreter]):
    """An `Interpreter` whose changes include a contract."""

    __slots__ = ()

    def keep_alive(self) -> bytes:
        return b"" if self._contract.is_over else self._inner.keep_alive()


class ContractCollector(_Contracted[BodyCollector]):
    """A `BodyCollector` whose changes include a contract."""

    __slots__ = ()

    def body(self, target: str, encode: EncodeContext) -> TranslatedBody:
        return completed(self._inner.body(target, encode), self._contract)


def completed(told: TranslatedBody, contract: Contract | None) -> TranslatedBody:
    """A body with what the contract has to say about it."""
    if contract is None:
        return told
    return structs.replace(
        told,
        problems=(*told.problems, *contract.problems),
        losses=(*told.losses, *contract.losses),
    )
