"""Decodes an upstream's reply to events, or writes it to the client, as a stream or as a body whichever the upstream sent.

An error before the first forwarded byte is returned, so that the caller may try another upstream. A later error is
written into the stream, in the client's dialect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Protocol

from msgspec import structs

from dragoman.core.failures import error_info
from dragoman.core.secrets import Secrets
from dragoman.core.usage import Tally
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.relay import StreamRelay, relay_body
from dragoman.dialects.responses.terminal import early_response_id
from dragoman.dialects.staging import Scanning
from dragoman.dialects.translate import (
    BodyCollector,
    Interpreter,
    StreamInterpreter,
    TranslatedBody,
    make_decoder,
    make_encoder,
    read_answer,
    read_body,
    stream_body,
    write_answer,
)
from dragoman.errors import FrameTooLarge, GatewayError
from dragoman.gateway.early_end import (
    EndingCollector,
    EndingInterpreter,
    PatientReply,
    completed,
)
from dragoman.gateway.plan import AnswerPlan
from dragoman.gateway.reply import (
    MAX_BODY_BYTES,
    SHORT,
    feed_slice,
    is_one_step,
    is_stream,
    read_whole,
    slices,
)
from dragoman.model.events import Event, Failed
from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.model.parts import Dialect
from dragoman.obsidian.answer import ObsidianAnswer
from dragoman.offload import LARGE, offload
from dragoman.sse import encode_comment
from dragoman.upstream.base import UpstreamReply

# The limit of a stream, passed on or collected for a client that asked for a body. Long answers with twenty alternatives
# beside each token come near this limit.
MAX_ANSWER_BYTES = 256 * 1024 * 1024
_LONG_ENOUGH = 64  # how many bytes `reply.is_stream` looks at


Pending = Callable[[], Awaitable[None]] | None
"""The rest of a write that waits for a slow client; the caller awaits it before the next write. None: the write is done."""


AnswerReport = tuple[ErrorInfo | None, tuple[Problem, ...], ObsidianAnswer | None]
"""Why an answer could not be stored (the client was sent a failure in place of the end), its problems, and its Obsidian policy."""


async def settle(pending: Pending) -> None:
    """Wait until a write is done."""
    if pending is not None:
        await pending()


class ClientWriter(Protocol):
    """The receiver of one answer.

    started, finished: whether the first and the last byte were written. keep_alive: returns the bytes for a silent stream.
    """

    started: bool
    finished: bool
    bytes_out: int
    keep_alive: Callable[[], bytes] | None

    def write(self, data: bytes) -> Pending:
        """Write the next frames of a stream."""
        ...

    def finish(self, data: bytes = b"") -> Pending:
        """Write the last frames of a stream, and end the stream."""
        ...

    def respond(self, status: int, body: bytes) -> Pending:
        """Write a whole answer."""
        ...


class EventReader:
    """Decodes one answer, stream or body, to events that have the tool names of the client's request."""

    __slots__ = ("_decoder", "_plan", "_problems", "_restore")

    def __init__(self, plan: AnswerPlan) -> None:
        self._plan = plan
        self._decoder = make_decoder(plan.dialect, plan.decode)
        self._restore = _restore_by(plan)
        self._problems: tuple[Problem, ...] = ()  # of an answer that is a body

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended; the reader ignores later bytes."""
        ending = self._plan.ending
        return self._decoder.is_over or (ending is not None and ending.is_over)

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended before the upstream's did."""
        ending = self._plan.ending
        return ending is not None and ending.is_cut

    @property
    def waiting(self) -> int:
        """How many bytes of an incomplete frame are buffered."""
        return self._decoder.waiting

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the answer, and those of calls that the model wrote as text."""
        return self._plan.with_written((*self._decoder.problems, *self._problems))

    def feed(self, data: bytes) -> Sequence[Event]:
        """Decode the next bytes of a stream."""
        return self._restore(self._decoder.events(data))

    def close(self) -> Sequence[Event]:
        """End the stream. If the stream was cut, the last event is Failed."""
        return self._restore([event for step in self._decoder.close() for event in step.events])

    def fail(self, error: ErrorInfo) -> Sequence[Event]:
        """End a stream that broke off with an error."""
        return self._restore(self._decoder.fail(error))

    def body(self, data: bytes) -> Sequence[Event]:
        """Decode a whole answer that is not a stream."""
        if self._plan.ending is not None:
            self._plan.ending.expect_complete()
        step = read_body(data, self._plan.dialect, self._plan.decode)
        self._problems = step.problems
        return self._restore(step.events)


class AnswerWriter:
    """Writes one reply to the client. The log reads `tally`, `problems` and `losses`. No struct, as `server.client.Client`."""

    __slots__ = (
        "_client",
        "_error",
        "_interpreter",
        "_is_done",
        "_last",
        "_on_body",
        "_pending",
        "_plan",
        "_rest",
        "_secrets",
        "_waiting",
        "is_stream",
        "losses",
        "problems",
        "tally",
    )

    def __init__(
        self,
        plan: AnswerPlan,
        client: ClientWriter,
        on_body: Callable[[TranslatedBody], None],
        secrets: Secrets,
    ) -> None:
        """`secrets`: the upstream's; removed from its errors, and from answers that end with an error."""
        self._plan = plan
        self._client = client
        self._on_body = on_body
        self._secrets = secrets
        self.tally: Tally | None = None  # of what was read so far; None: nothing
        self.problems: tuple[Problem, ...] = ()
        self.losses: tuple[Loss, ...] = ()
        # After the last event of a stream, the end of the HTTP body may still have to be read.
        self.is_stream = False
        self._interpreter: Interpreter | None = None
        # State that the last read of a stream leaves for `_write_stream`, which waits for the end of `forward`.
        self._is_done = False
        self._last = b""
        self._pending: Pending = None
        self._rest: list[bytes] = []  # a read that is too large for one step
        self._waiting = 0  # buffered bytes of an incomplete frame
        self._error: Exception | None = None

    @property
    def obsidian(self) -> ObsidianAnswer | None:
        """The Obsidian policy, which may end the answer before the upstream does."""
        return self._plan.obsidian

    def report(self) -> AnswerReport:
        """What the record needs besides the tally and the losses."""
        plan, problems = self._plan, self.problems
        unstored = None if plan.keeper is None else plan.keeper.problem
        if plan.written is not None and plan.written.problems:
            problems = plan.with_written(problems)
        return unstored, problems, plan.obsidian

    async def write(self, reply: UpstreamReply) -> ErrorInfo | None:
        """Write the whole answer. Returns an error that comes before anything was forwarded."""
        client = self._client
        obsidian = self._plan.obsidian
        if obsidian is not None:
            reply = PatientReply(reply, obsidian)
        if self._plan.wants_stream:
            client.keep_alive = _comment
        # The whole answer, if it has arrived already. The pieces are joined only where one byte string is needed.
        pieces = reply.take_pieces()
        try:
            first = _beginning(pieces) if pieces else await reply.read()
        except GatewayError as error:
            return await self._give_up(self._error_info(error))
        # JSON begins with a brace and a stream never does, whatever the content type says.
        if first[:1] != b"{":
            self.is_stream = is_stream(reply.headers.get("content-type", ""), first)
        if self.is_stream:
            if self._plan.wants_stream:
                pieces = pieces or [first]
                del first
                return await self._write_stream(reply, pieces)
            return await self._write_collected(reply, b"".join(pieces) if pieces else first)
        try:
            data = b"".join(pieces) or await read_whole(reply, MAX_BODY_BYTES, first)
        except GatewayError as error:
            return await self._give_up(self._error_info(error))
        if self._plan.wants_stream:
            return await self._write_body_as_stream(data)
        size = len(data)
        # The test that `offload` makes, without its coroutine.
        encoded = (
            self._encode_body(data)
            if size < LARGE
            else await offload(size, self._encode_body, data)
        )
        encoded = self._without_secrets(encoded)
        if self._plan.escrow is not None and encoded.error is None:
            await offload(len(data), self._plan.escrow.see_body, self._plan.dialect, data)
        if self._plan.keeper is not None:
            encoded = await self._store_body(encoded)
        failed = self._respond(encoded)
        if self._pending is not None:
            await self._pending()
        return failed

    async def fail(self, error: ErrorInfo) -> None:
        """Write a failure into a stream that has begun, after closing its open parts."""
        if self._client.finished:
            return
        interpreter = self._interpreter
        if interpreter is None:  # keep-alives have begun the stream
            interpreter = self._interpreter = _interpreter(self._plan)
            self.tally = interpreter.tally
        pending, self._pending = self._pending, None
        await settle(pending)
        last = self._last + interpreter.fail(error)
        if self._plan.keeper is not None:
            last = await self._plan.keeper.end_stream(last)
        await settle(self._client.finish(last))

    async def _write_stream(self, reply: UpstreamReply, pieces: list[bytes]) -> ErrorInfo | None:
        client = self._client
        self._choose_id(pieces[0])
        interpreter = self._interpreter = _interpreter(self._plan)
        client.keep_alive = interpreter.keep_alive
        tally = self.tally = interpreter.tally
        try:
            is_taken = not pieces[0] or self._take(pieces)
            pieces.clear()  # the caller keeps a reference to the list until the end
            if not is_taken:
                await self._catch_up()
            while not self._is_done:
                if await reply.forward(self._take):
                    self._last = interpreter.close()
                    break
                await self._catch_up()
        except GatewayError as error:
            info = self._error_info(error)
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
        if self._plan.ending is not None:
            self.is_stream = not self._plan.ending.is_cut  # the rest of a cut answer is not read
        await settle(client.finish(await self._store_end()))
        return None

    def _take(self, pieces: list[bytes]) -> bool:
        """Write the output of one read of a stream at once. False: `_catch_up` must be awaited."""
        interpreter = self._interpreter
        if interpreter is None:
            return False
        data = b"".join(pieces)  # the list belongs to the caller
        # The first comparison is that of `is_one_step`, and nearly all reads are short.
        if len(data) + self._waiting > SHORT and not is_one_step([data], self._waiting):
            self._rest = [data]
            return False
        try:
            return self._pass(interpreter, interpreter.feed(data))
        except Exception as error:
            # The event loop calls `_take` and could not handle the exception: `_catch_up` raises it again.
            self._error = error
            return False

    async def _feed_slices(self, pieces: list[bytes]) -> None:
        """Write a large read of a stream, slice by slice."""
        interpreter = self._interpreter
        if interpreter is None:
            return
        for part in slices(pieces):
            size = interpreter.waiting + len(part)
            if size < LARGE:
                output = interpreter.feed(part)
            else:
                output = await self._feed_large(interpreter, part, size)
            if not self._pass(interpreter, output):
                if self._is_done:
                    return
                await self._catch_up()
            await asyncio.sleep(0)

    async def _feed_large(self, interpreter: Interpreter, data: bytes, size: int) -> bytes:
        """Decode a large frame in a thread. No keep-alive may use the interpreter meanwhile."""
        client = self._client
        keep_alive, client.keep_alive = client.keep_alive, None
        try:
            return await offload(size, interpreter.feed, data)
        finally:
            if not client.finished:
                client.keep_alive = keep_alive

    def _pass(self, interpreter: Interpreter, output: bytes) -> bool:
        client = self._client
        if interpreter.is_over or not (client.started or interpreter.tally.error is None):
            self._is_done = True
            self._last = output
            return False
        if output:
            self._waiting = 0
            if self._plan.keeper is not None:
                self._plan.keeper.take(output)
            self._pending = client.write(output)
            if client.bytes_out > MAX_ANSWER_BYTES:
                raise too_large()
        else:
            self._waiting = interpreter.waiting
        return self._pending is None

    async def _store_end(self) -> bytes:
        """Store the answer before its end is written. Returns the bytes of the end: a failure if storing failed."""
        output, keeper, notes = self._last, self._plan.keeper, self._plan.encode.notes
        # The upstream wrote the text of an error.
        if self.tally is not None and self.tally.error is not None:
            output = self._last = self._secrets.hide_bytes(output)
            if notes is not None:
                notes.hide(self._secrets.hide_bytes)
        if keeper is not None:
            output = await keeper.end_stream(output)
        self._last = b""
        return output

    async def _store_body(self, answer: TranslatedBody) -> TranslatedBody:
        """Store a body before it is sent."""
        keeper = self._plan.keeper
        if keeper is None or answer.error is not None:
            return answer
        body = await keeper.end_body(answer.body)
        return answer if body is answer.body else structs.replace(answer, body=body)

    def _choose_id(self, first: bytes) -> None:
        """Give the response our id if the upstream repeats an id that it has used before."""
        plan = self._plan
        if plan.renamed is None or plan.keeper is None:
            return
        response_id = early_response_id(first)
        if response_id is not None and plan.keeper.repeats(response_id):
            self._plan = plan.renamed()

    async def _catch_up(self) -> None:
        """Finish the work that the last read left: raise its error, await its write, feed the rest."""
        if self._error is not None:
            raise self._error
        pending, self._pending = self._pending, None
        if pending is not None:
            await pending()
        rest, self._rest = self._rest, []
        if rest:
            await self._feed_slices(rest)

    async def _write_collected(self, reply: UpstreamReply, data: bytes) -> ErrorInfo | None:
        plan = self._plan
        collector = _collector(plan)
        self.tally = collector.tally
        size = 0
        try:
            while data and not collector.is_over:
                size += len(data)
                if size > MAX_ANSWER_BYTES:
                    raise too_large()
                for part in slices([data]):
                    await feed_slice(collector, part)
                data = b"" if collector.is_over else await reply.read()
            collector.close()
        except GatewayError as error:
            if plan.obsidian is None:
                return self._error_info(error)
            collector.fail(self._error_info(error))
        if plan.ending is not None:
            self.is_stream = not plan.ending.is_cut
        answer = self._without_secrets(
            await offload(size, collector.body, plan.client_dialect, plan.encode)
        )
        answer = await self._store_body(answer)
        failed = self._respond(answer)
        await settle(self._pending)
        return failed

    async def _write_body_as_stream(self, data: bytes) -> ErrorInfo | None:
        plan = self._plan
        if plan.ending is not None:
            plan.ending.expect_complete()
        answer, self.tally = await offload(
            len(data),
            stream_body,
            data,
            plan.dialect,
            plan.client_dialect,
            decode=plan.decode,
            encode=plan.encode,
            change=plan.change(),
        )
        answer = self._without_secrets(answer)
        if answer.error is not None and not self._client.started:
            return answer.error
        answer = completed(answer, plan.ending)
        self.problems, self.losses = answer.problems, answer.losses
        self._last = answer.body
        await settle(self._client.finish(await self._store_end()))
        return None

    def _encode_body(self, data: bytes) -> TranslatedBody:
        plan = self._plan
        if plan.relay != "none":
            answer, self.tally = relay_body(
                data,
                plan.client_dialect,
                decode=plan.decode,
                encode=plan.encode,
                names=plan.names,
                stage=plan.written,  # an answer under the Obsidian policy is never relayed
                exact=plan.relay == "exact",
            )
            return answer
        ending, scan = plan.ending, plan.written
        if ending is not None:
            ending.expect_complete()
            scan = None
        stage = None if scan is not None else plan.stage
        read = read_answer(data, plan.dialect, plan.decode, plan.names, stage, scan)
        self.tally = read.tally
        answer = write_answer(read, plan.client_dialect, plan.encode)
        return answer if ending is None else completed(answer, ending)

    def _without_secrets(self, answer: TranslatedBody) -> TranslatedBody:
        """The answer without the upstream's secrets, if the answer is an error or ends with one."""
        tally = self.tally
        if tally is not None and tally.error is not None:
            tally.error = self._secrets.hide_error(tally.error)
        elif answer.error is None:
            return answer
        return structs.replace(
            answer,
            body=self._secrets.hide_bytes(answer.body),
            error=None if answer.error is None else self._secrets.hide_error(answer.error),
        )

    def _error_info(self, error: GatewayError) -> ErrorInfo:
        return self._secrets.hide_error(error_info(error))

    def _respond(self, answer: TranslatedBody) -> ErrorInfo | None:
        self.problems, self.losses = answer.problems, answer.losses
        if answer.error is not None:
            return answer.error
        if answer.losses or self._plan.obsidian is not None:
            self._on_body(answer)
        self._pending = self._client.respond(200, answer.body)
        return None

    async def _give_up(self, error: ErrorInfo) -> ErrorInfo | None:
        """Return an error that came before any event; if a keep-alive has begun the stream, write the error into it."""
        if not self._client.started:
            return error
        await self.fail(error)
        return None


def _collector(plan: AnswerPlan) -> BodyCollector | EndingCollector:
    collector = BodyCollector(plan.dialect, decode=plan.decode, change=plan.change())
    return collector if plan.ending is None else EndingCollector(collector, plan.ending)


def _interpreter(plan: AnswerPlan) -> Interpreter:
    if plan.relay == "none":
        interpreter = StreamInterpreter(
            plan.dialect,
            plan.client_dialect,
            decode=plan.decode,
            encode=plan.encode,
            change=plan.change(is_scanned=plan.scan is not None),
            scan=plan.scan,
        )
        return interpreter if plan.ending is None else EndingInterpreter(interpreter, plan.ending)
    return StreamRelay(
        plan.dialect,
        decode=plan.decode,
        encode=plan.encode,
        names=plan.names,
        stage=plan.scan,
        exact=plan.relay == "exact",
    )


def failed_stream(dialect: Dialect, error: ErrorInfo, context: EncodeContext) -> bytes:
    """A stream that contains only a failure."""
    encoder = make_encoder(dialect, context)
    return encoder.encode(Failed(error)) + encoder.close()


def _comment() -> bytes:
    """A keep-alive before the upstream's first byte: a comment is not an event in any dialect."""
    return encode_comment("keep-alive")


def _beginning(pieces: list[bytes]) -> bytes:
    """The first bytes of an answer, enough to see whether it is a stream."""
    return pieces[0] if len(pieces[0]) >= _LONG_ENOUGH else b"".join(pieces)


def too_large() -> FrameTooLarge:
    """The error for an answer of more than `MAX_ANSWER_BYTES`."""
    return FrameTooLarge(f"expected an answer of at most {MAX_ANSWER_BYTES:,} bytes, got more")


def _restore_by(plan: AnswerPlan) -> Callable[[Sequence[Event]], Sequence[Event]]:
    scan = plan.scan
    change = plan.change(is_scanned=scan is not None)
    if scan is not None:
        return Scanning(scan, change or _same).feed
    if change is None:
        return lambda events: events
    return lambda events: list(chain.from_iterable(map(change, events)))


def _same(event: Event) -> tuple[Event]:
    return (event,)
