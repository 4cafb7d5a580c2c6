"""An upstream's reply, told to the client: streams as streams, bodies as bodies, and each as the other.

Errors that come before the first byte was forwarded are returned, so that the exchange may try elsewhere; later ones
are told in the stream, in the dialect's own way.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

from msgspec import Struct, structs

from dragoman.core.aliases import NameMap
from dragoman.core.failures import error_info
from dragoman.core.secrets import Secrets
from dragoman.core.tally import Tally
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.interpret import (
    BodyCollector,
    Change,
    Interpreter,
    StreamInterpreter,
    change_of,
    interpret_body,
    tell_body,
)
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.relay_body import relay_body
from dragoman.dialects.translate import TranslatedBody, make_encoder
from dragoman.errors import FrameTooLarge, GatewayError
from dragoman.model.events import Failed
from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.model.parts import Dialect
from dragoman.server.client import Client
from dragoman.server.contracted import (
    ContractCollector,
    ContractInterpreter,
    PatientReply,
    completed,
)
from dragoman.server.doors import Door
from dragoman.server.late_stage import LateStage
from dragoman.server.line import Pending, settle
from dragoman.server.replies import (
    MAX_BODY_BYTES,
    SHORT,
    feed_slice,
    is_one_step,
    is_stream,
    read_whole,
    slices,
)
from dragoman.server.state.escrow import Escrow, seen_by
from dragoman.sse import encode_comment
from dragoman.store.working import LARGE, beside
from dragoman.textcalls.contract.chain import Contract
from dragoman.textcalls.stage import TextCallStage
from dragoman.upstream.base import Reply
from dragoman.upstream.transport import HttpReply

__all__ = ("Answer", "AnswerKeeper", "AnswerPlan", "Profile", "failed_stream")

# Of a stream, whether it is passed on or gathered for a client that asked for a body. With twenty alternatives beside each
# token of a long answer some come near it.
MAX_ANSWER_BYTES = 256 * 1024 * 1024
_LONG_ENOUGH = 64  # what `replies.is_stream` looks at
# Where vendors write the id of a response, in the first frame of its stream.
_ID = re.compile(rb'"response"\s*:\s*\{\s*"id"\s*:\s*"([^"\\]+)"')
_LONGEST_HEAD = 1024


Profile = Literal["default", "required_action"]


_NOTHING_TOLD = Tally()  # nobody writes to it: whoever tells an answer has a tally of its own


class AnswerKeeper(Protocol):
    """What keeps an answer while it is told: all of it (`state.keeping`), or what a client cannot carry (`state.escrow`)."""

    def take(self, told: bytes) -> None:
        """More of a stream is told."""
        ...

    async def end_stream(self, last: bytes) -> bytes:
        """What is to be told as the last of a stream: `last`, or that it failed."""
        ...

    async def end_body(self, body: bytes) -> bytes:
        """The body that is to be sent: the same, or with another id. Raises StoreError: none may be."""
        ...

    def repeats(self, response_id: str) -> bool:
        """Whether the id that an upstream gives names another answer already."""
        ...

    @property
    def problem(self) -> ErrorInfo | None:
        """Why `end_stream` said that it failed."""
        ...


class AnswerPlan(Struct, frozen=True, kw_only=True):
    """How an answer is to be read and told.

    `stage`: what changes it on the way, beside its names; `written`, what of that finds calls in the text.
    `relay`: `none` where the dialects differ or more than the text is looked at.
    `contract`: the stage, where it is one that may end the answer; `grace`: seconds it waits for further calls.
    `keeper`: what keeps it; `escrow`: the same, where it must see what is told before it is written.
    `renamed`: the plan under which it has our id, where it would pass with the upstream's.
    """

    door: Door
    dialect: Dialect
    wants_stream: bool
    decode: DecodeContext
    encode: EncodeContext
    names: NameMap | None
    stage: Change | None
    written: TextCallStage | LateStage | None = None
    relay: Literal["none", "repair", "exact"]
    contract: Contract | None = None
    grace: float = 0.0
    keeper: AnswerKeeper | None = None
    escrow: Escrow | None = None
    renamed: "Callable[[], AnswerPlan] | None" = None

    @property
    def scan(self) -> TextCallStage | LateStage | None:
        """The stage, where it does nothing but find calls in the text: then it need not see all of it."""
        return self.written if self.contract is None else None

    def change(self, *, is_scanned: bool = False) -> Change | None:
        """What happens to each event on its way. `is_scanned`: the text is looked at before."""
        change = change_of(self.names, None if is_scanned else self.stage)
        return change if self.escrow is None else seen_by(self.escrow, change)


class Answer:
    """One reply on its way to the client. `tally`, `problems` and `losses` say what it amounted to.

    secrets: what the upstream was let in with. Only its errors are searched for them, and what ends with one.
    """

    __slots__ = (
        "_client",
        "_fault",
        "_interpreter",
        "_is_done",
        "_last",
        "_on_body",
        "_pending",
        "_plan",
        "_rest",
        "_secrets",
        "_waiting",
        "contract",
        "is_stream",
        "losses",
        "problems",
        "tally",
    )

    def __init__(
        self,
        plan: AnswerPlan,
        client: Client,
        on_body: Callable[[TranslatedBody], None],
        secrets: Secrets,
    ) -> None:
        self.tally = _NOTHING_TOLD
        self.problems: tuple[Problem, ...] = ()
        self.losses: tuple[Loss, ...] = ()
        self.is_stream = (
            False  # its end was told by the stream itself: that of the reply may still be due
        )
        self.contract = plan.contract  # what may end it before the upstream does
        self._plan = plan
        self._client = client
        self._on_body = on_body
        self._secrets = secrets
        self._interpreter: Interpreter | None = None
        # What came of the last read of a stream, for who waits for its end.
        self._is_done = False
        self._last = b""
        self._pending: Pending = None
        self._rest: list[bytes] = []  # of a read that is too large for one step
        self._waiting = 0  # bytes of a frame that has no end yet
        self._fault: Exception | None = None

    @property
    def unstored(self) -> ErrorInfo | None:
        """Why the client was sent a failure in place of the end."""
        return None if self._plan.keeper is None else self._plan.keeper.problem

    def all_problems(self) -> tuple[Problem, ...]:
        """What was irregular, also in calls that the model wrote as text: why a block stayed text."""
        written = self._plan.written
        if written is None or not written.problems:
            return self.problems
        return (
            *self.problems,
            *(
                Problem(problem.frame, f"text_{problem.kind}", problem.message)
                for problem in written.problems
            ),
        )

    async def tell(self, reply: Reply) -> ErrorInfo | None:
        """Tell the whole reply. An error is returned if nothing has been forwarded when it comes."""
        client = self._client
        contract = self._plan.contract
        if contract is not None:
            reply = PatientReply(reply, contract, self._plan.grace)
        if self._plan.wants_stream:
            client.keep_alive = _comment
        # All of it, if it has arrived already; it is not joined before it is known that it must be.
        pieces = reply.take_pieces() if isinstance(reply, HttpReply) else []
        try:
            first = _beginning(pieces) if pieces else await reply.read()
        except GatewayError as error:
            return await self._give_up(self._info(error))
        # JSON opens with a brace, and no stream does, whatever the content type says.
        if first[:1] != b"{":
            self.is_stream = is_stream(reply.headers.get("content-type", ""), first)
        if self.is_stream:
            if self._plan.wants_stream:
                pieces = pieces or [first]
                del first
                return await self._tell_stream(reply, pieces)
            return await self._collect(reply, b"".join(pieces) if pieces else first)
        try:
            data = b"".join(pieces) or await read_whole(reply, MAX_BODY_BYTES, first)
        except GatewayError as error:
            return await self._give_up(self._info(error))
        if self._plan.wants_stream:
            return await self._tell_as_stream(data)
        told = self._hidden(await beside(len(data), self._tell_body, data))
        if self._plan.escrow is not None and told.error is None:
            await beside(len(data), self._plan.escrow.see_body, self._plan.dialect, data)
        told = await self._keep_body(told)
        failed = self._respond(told)
        if self._pending is not None:
            await self._pending()
        return failed

    async def fail(self, error: ErrorInfo) -> None:
        """End an answer that has begun: with a failure in its own dialect, after closing what is open."""
        if self._interpreter is not None and not self._client.finished:
            pending, self._pending = self._pending, None
            await settle(pending)
            told = self._last + self._interpreter.fail(error)
            if self._plan.keeper is not None:
                told = await self._plan.keeper.end_stream(told)
            await settle(self._client.finish(told))

    async def _tell_stream(self, reply: Reply, pieces: list[bytes]) -> ErrorInfo | None:
        client = self._client
        self._name(pieces[0])
        interpreter = self._interpreter = _interpreter(self._plan)
        client.keep_alive = interpreter.keep_alive
        tally = self.tally = interpreter.tally
        pour = reply.pour if isinstance(reply, HttpReply) else partial(_pour, reply)
        try:
            is_taken = not pieces[0] or self._take_together(pieces)
            pieces.clear()  # who asked for them waits for the end
            if not is_taken:
                await self._settle()
            while not self._is_done:
                if await pour(self._take, self._take_together):
                    self._last = interpreter.close()
                    break
                await self._settle()
        except GatewayError as error:
            info = self._info(error)
            if not client.started:
                return info
            self._last = interpreter.fail(info)
        finally:
            self.problems = tuple(interpreter.problems)
            self.losses = tuple(interpreter.losses)
        if tally.error is not None:
            tally.error = self._secrets.hide_error(tally.error)
            if not client.started and not tally.started:
                return tally.error
        if self._plan.contract is not None:
            self.is_stream = not self._plan.contract.is_cut  # what is cut is not heard to its end
        await settle(client.finish(await self._keep_last()))
        return None

    def _take(self, data: bytes) -> bool:
        """One read of a stream, told at once. False: whoever waits for the end has something to do."""
        interpreter = self._interpreter
        if interpreter is None:
            return False
        # Asked of every read, and nearly all are short.
        if len(data) + self._waiting > SHORT and not is_one_step([data], self._waiting):
            self._rest = [data]
            return False
        try:
            return self._pass(interpreter, interpreter.feed(data))
        except Exception as error:
            # Called by the event loop, which could do nothing with it: who waits for the end raises it again.
            self._fault = error
            return False

    def _take_together(self, pieces: list[bytes]) -> bool:
        """The same for a read that came in several pieces."""
        interpreter = self._interpreter
        if not isinstance(interpreter, StreamInterpreter | StreamRelay) or len(pieces) == 1:
            return self._take(b"".join(pieces))
        if not is_one_step(pieces, self._waiting):
            self._rest = pieces.copy()  # they are the caller's
            return False
        try:
            return self._pass(interpreter, interpreter.feed_together(pieces))
        except Exception as error:  # as above
            self._fault = error
            return False

    async def _work_off(self, pieces: list[bytes]) -> None:
        """A large read of a stream: slice by slice."""
        interpreter = self._interpreter
        if interpreter is None:
            return
        for part in slices(pieces):
            size = interpreter.waiting + sum(map(len, part))
            told = self._feed(part) if size < LARGE else await self._feed_large(part, size)
            if not self._pass(interpreter, told):
                if self._is_done:
                    return
                await self._settle()
            await asyncio.sleep(0)

    async def _feed_large(self, pieces: list[bytes], size: int) -> bytes:
        """A frame that came in many reads. Nobody else may ask the interpreter for anything while a thread does."""
        client = self._client
        keep_alive, client.keep_alive = client.keep_alive, None
        try:
            return await beside(size, self._feed, pieces)
        finally:
            if not client.finished:
                client.keep_alive = keep_alive

    def _feed(self, pieces: list[bytes]) -> bytes:
        interpreter = self._interpreter
        if isinstance(interpreter, StreamInterpreter | StreamRelay) and len(pieces) > 1:
            return interpreter.feed_together(pieces)
        return b"" if interpreter is None else interpreter.feed(b"".join(pieces))

    def _pass(self, interpreter: Interpreter, told: bytes) -> bool:
        client = self._client
        if interpreter.is_over or not (client.started or interpreter.tally.error is None):
            self._is_done = True
            self._last = told
            return False
        if told:
            self._waiting = 0
            if self._plan.keeper is not None:
                self._plan.keeper.take(told)
            self._pending = client.write(told)
            if client.bytes_out > MAX_ANSWER_BYTES:
                self._fault = _too_large()
                return False
        else:
            self._waiting = interpreter.waiting
        return self._pending is None

    async def _keep_last(self) -> bytes:
        """Have the answer kept before its end is told. Whoever stops it meanwhile is told of what was not."""
        told, keeper = self._last, self._plan.keeper
        if self.tally.error is not None:  # the frame that says so came as the upstream wrote it
            told = self._secrets.hide_bytes(told)
        if keeper is not None:
            told = await keeper.end_stream(told)
        self._last = b""
        return told

    async def _keep_body(self, told: TranslatedBody) -> TranslatedBody:
        """Have a body kept before it is sent."""
        keeper = self._plan.keeper
        if keeper is None or told.error is not None:
            return told
        body = await keeper.end_body(told.body)
        return told if body is told.body else structs.replace(told, body=body)

    def _name(self, first: bytes) -> None:
        """Give a stream our id if it begins with one that the upstream repeats."""
        plan = self._plan
        if plan.renamed is None or plan.keeper is None:
            return
        found = _ID.search(first, 0, _LONGEST_HEAD)
        if found is not None and plan.keeper.repeats(found[1].decode("utf-8", "replace")):
            self._plan = plan.renamed()

    async def _settle(self) -> None:
        """What the last read left to be done."""
        if self._fault is not None:
            raise self._fault
        pending, self._pending = self._pending, None
        if pending is not None:
            await pending()
        rest, self._rest = self._rest, []
        if rest:
            await self._work_off(rest)

    async def _collect(self, reply: Reply, data: bytes) -> ErrorInfo | None:
        plan = self._plan
        collector = _collector(plan)
        self.tally = collector.tally
        size = 0
        try:
            while data and not collector.is_over:
                size += len(data)
                if size > MAX_ANSWER_BYTES:
                    raise _too_large()
                for part in slices([data]):
                    await feed_slice(collector, lambda some: collector.feed(b"".join(some)), part)
                data = await reply.read()
            collector.close()
        except GatewayError as error:
            if plan.contract is None:
                return self._info(error)
            collector.fail(self._info(error))
        if plan.contract is not None:
            self.is_stream = not plan.contract.is_cut
        told = self._hidden(await beside(size, collector.body, plan.door.dialect, plan.encode))
        told = await self._keep_body(told)
        failed = self._respond(told)
        await settle(self._pending)
        return failed

    async def _tell_as_stream(self, data: bytes) -> ErrorInfo | None:
        plan = self._plan
        if plan.contract is not None:
            plan.contract.hear_end()
        told, self.tally = await beside(
            len(data),
            tell_body,
            data,
            plan.dialect,
            plan.door.dialect,
            decode=plan.decode,
            encode=plan.encode,
            change=plan.change(),
        )
        told = self._hidden(told)
        if told.error is not None and not self._client.started:
            return told.error
        told = completed(told, plan.contract)
        self.problems, self.losses = told.problems, told.losses
        self._last = told.body
        await settle(self._client.finish(await self._keep_last()))
        return None

    def _tell_body(self, data: bytes) -> TranslatedBody:
        plan = self._plan
        contract = plan.contract
        if plan.relay != "none":
            told, self.tally = relay_body(
                data,
                plan.door.dialect,
                decode=plan.decode,
                encode=plan.encode,
                names=plan.names,
                stage=plan.written,  # there is no contract where an answer is relayed
                exact=plan.relay == "exact",
            )
            return told
        if contract is not None:
            contract.hear_end()
        scan = plan.written if contract is None else None
        told, self.tally = interpret_body(
            data,
            plan.dialect,
            plan.door.dialect,
            decode=plan.decode,
            encode=plan.encode,
            names=plan.names,
            stage=None if scan is not None else plan.stage,
            scan=scan,
        )
        return told if contract is None else completed(told, contract)

    def _hidden(self, told: TranslatedBody) -> TranslatedBody:
        """A body that is an error, or ends with one, without what the upstream was let in with."""
        error = self.tally.error
        if error is None and told.error is None:
            return told
        if error is not None:
            self.tally.error = self._secrets.hide_error(error)
        return structs.replace(
            told,
            body=self._secrets.hide_bytes(told.body),
            error=None if told.error is None else self._secrets.hide_error(told.error),
        )

    def _info(self, error: GatewayError) -> ErrorInfo:
        return self._secrets.hide_error(error_info(error))

    def _respond(self, told: TranslatedBody) -> ErrorInfo | None:
        self.problems, self.losses = told.problems, told.losses
        if told.error is not None:
            return told.error
        self._on_body(told)
        self._pending = self._client.respond(200, told.body)
        return None

    async def _give_up(self, error: ErrorInfo) -> ErrorInfo | None:
        """An error before anything was read. A keep-alive may have begun the stream all the same."""
        if not self._client.started:
            return error
        self._interpreter = _interpreter(self._plan)
        self.tally = self._interpreter.tally
        await self.fail(error)
        return None


def _collector(plan: AnswerPlan) -> BodyCollector | ContractCollector:
    collector = BodyCollector(plan.dialect, decode=plan.decode, change=plan.change())
    return collector if plan.contract is None else ContractCollector(collector, plan.contract)


def _interpreter(plan: AnswerPlan) -> Interpreter:
    if plan.relay == "none":
        interpreter = StreamInterpreter(
            plan.dialect,
            plan.door.dialect,
            decode=plan.decode,
            encode=plan.encode,
            change=plan.change(is_scanned=plan.scan is not None),
            scan=plan.scan,
        )
        contract = plan.contract
        return interpreter if contract is None else ContractInterpreter(interpreter, contract)
    return StreamRelay(
        plan.dialect,
        decode=plan.decode,
        encode=plan.encode,
        names=plan.names,
        stage=plan.scan,
        exact=plan.relay == "exact",
    )


def failed_stream(dialect: Dialect, error: ErrorInfo, model: str) -> bytes:
    """A stream that says nothing but that it failed."""
    encoder = make_encoder(dialect, EncodeContext(model=model))
    return encoder.encode(Failed(error)) + encoder.close()


def _comment() -> bytes:
    """Before the upstream's first byte: what is no event in any dialect."""
    return encode_comment("keep-alive")


def _beginning(pieces: list[bytes]) -> bytes:
    """Enough of an answer to tell what it is."""
    return pieces[0] if len(pieces[0]) >= _LONG_ENOUGH else b"".join(pieces)


async def _pour(
    reply: Reply, take: Callable[[bytes], bool], _together: Callable[[list[bytes]], bool]
) -> bool:
    """As `HttpReply.pour`, of any other reply."""
    while data := await reply.read():
        if not take(data):
            return False
    return True


def _too_large() -> FrameTooLarge:
    return FrameTooLarge(f"expected an answer of at most {MAX_ANSWER_BYTES:,} bytes, got more")
