"""An upstream's reply, told to the client: streams as streams, bodies as bodies, and each as the other.

Errors that come before the first byte was forwarded are returned, so that the exchange may try elsewhere; later ones
are told in the stream, in the dialect's own way.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from dragoman.core.aliases import NameMap
from dragoman.core.failures import error_info
from dragoman.core.tally import Tally
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.interpret import (
    BodyCollector,
    Change,
    Interpreter,
    StreamInterpreter,
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
from dragoman.server.doors import Door
from dragoman.sse import encode_comment
from dragoman.upstream.base import Reply

__all__ = ("Answer", "AnswerPlan", "Profile", "failed_stream", "read_whole")

# An answer is held whole only for clients that asked for a body; images come in it as base64.
MAX_ANSWER_BYTES = 256 * 1024 * 1024


Profile = Literal["default", "required_action"]


class AnswerPlan(Struct, frozen=True, kw_only=True):
    """How an answer is to be read and told. `relay`: `none` where the dialects differ or a change is wanted."""

    door: Door
    dialect: Dialect
    wants_stream: bool
    decode: DecodeContext
    encode: EncodeContext
    names: NameMap | None
    change: Change | None
    relay: Literal["none", "repair", "exact"]


class Answer:
    """One reply on its way to the client. `tally`, `problems` and `losses` say what it amounted to."""

    __slots__ = (
        "_client",
        "_interpreter",
        "_on_body",
        "_plan",
        "is_stream",
        "losses",
        "problems",
        "tally",
    )

    def __init__(
        self, plan: AnswerPlan, client: Client, on_body: Callable[[TranslatedBody], None]
    ) -> None:
        self.tally = Tally()
        self.problems: tuple[Problem, ...] = ()
        self.losses: tuple[Loss, ...] = ()
        self.is_stream = (
            False  # its end was told by the stream itself: that of the reply may still be due
        )
        self._plan = plan
        self._client = client
        self._on_body = on_body
        self._interpreter: Interpreter | None = None

    async def tell(self, reply: Reply) -> ErrorInfo | None:
        """Tell the whole reply. An error is returned if nothing has been forwarded when it comes."""
        client = self._client
        if self._plan.wants_stream:
            client.keep_alive = _comment
        try:
            first = await reply.read()
        except GatewayError as error:
            return await self._give_up(error_info(error))
        self.is_stream = _is_stream(reply.headers.get("content-type", ""), first)
        if self.is_stream:
            if self._plan.wants_stream:
                return await self._tell_stream(reply, first)
            return await self._collect(reply, first)
        try:
            data = await read_whole(reply, MAX_ANSWER_BYTES, first)
        except GatewayError as error:
            return await self._give_up(error_info(error))
        return await self._tell_body(data)

    async def fail(self, error: ErrorInfo) -> None:
        """End an answer that has begun: with a failure in its own dialect, after closing what is open."""
        if self._interpreter is not None and not self._client.finished:
            told = self._interpreter.fail(error)
            if told:
                await self._client.write(told)
            await self._client.finish()

    async def _tell_stream(self, reply: Reply, data: bytes) -> ErrorInfo | None:
        client = self._client
        interpreter = self._interpreter = _interpreter(self._plan)
        client.keep_alive = interpreter.keep_alive
        tally = self.tally = interpreter.tally
        feed = interpreter.feed
        write = client.write
        read = reply.read
        try:
            while data:
                told = feed(data)
                if told:
                    if not client.started and tally.error is not None and not tally.started:
                        return tally.error
                    await write(told)
                if interpreter.is_over:
                    break
                data = await read()
            told = b"" if interpreter.is_over else interpreter.close()
        except GatewayError as error:
            info = error_info(error)
            if not client.started:
                return info
            told = interpreter.fail(info)
        finally:
            self.problems = tuple(interpreter.problems)
            self.losses = tuple(interpreter.losses)
        if told:
            if not client.started and tally.error is not None and not tally.started:
                return tally.error
            await write(told)
        await client.finish()
        return None

    async def _collect(self, reply: Reply, data: bytes) -> ErrorInfo | None:
        plan = self._plan
        collector = BodyCollector(plan.dialect, decode=plan.decode, change=plan.change)
        self.tally = collector.tally
        size = 0
        try:
            while data and not collector.is_over:
                size += len(data)
                if size > MAX_ANSWER_BYTES:
                    raise _too_large()
                collector.feed(data)
                data = await reply.read()
            collector.close()
        except GatewayError as error:
            return error_info(error)
        return await self._respond(collector.body(plan.door.dialect, plan.encode))

    async def _tell_body(self, data: bytes) -> ErrorInfo | None:
        plan = self._plan
        door = plan.door.dialect
        if plan.wants_stream:
            told, self.tally = tell_body(
                data,
                plan.dialect,
                door,
                decode=plan.decode,
                encode=plan.encode,
                change=plan.change,
            )
            if told.error is not None and not self._client.started:
                return told.error
            self.problems, self.losses = told.problems, told.losses
            await self._client.write(told.body)
            await self._client.finish()
            return None
        if plan.relay != "none":
            told, self.tally = relay_body(
                data,
                door,
                decode=plan.decode,
                encode=plan.encode,
                names=plan.names,
                exact=plan.relay == "exact",
            )
        else:
            told, self.tally = interpret_body(
                data,
                plan.dialect,
                door,
                decode=plan.decode,
                encode=plan.encode,
                change=plan.change,
            )
        return await self._respond(told)

    async def _respond(self, told: TranslatedBody) -> ErrorInfo | None:
        self.problems, self.losses = told.problems, told.losses
        if told.error is not None:
            return told.error
        self._on_body(told)
        await self._client.respond(200, told.body)
        return None

    async def _give_up(self, error: ErrorInfo) -> ErrorInfo | None:
        """An error before anything was read. A keep-alive may have begun the stream all the same."""
        if not self._client.started:
            return error
        self._interpreter = _interpreter(self._plan)
        self.tally = self._interpreter.tally
        await self.fail(error)
        return None


def _interpreter(plan: AnswerPlan) -> Interpreter:
    if plan.relay == "none":
        return StreamInterpreter(
            plan.dialect,
            plan.door.dialect,
            decode=plan.decode,
            encode=plan.encode,
            change=plan.change,
        )
    return StreamRelay(
        plan.dialect,
        decode=plan.decode,
        encode=plan.encode,
        names=plan.names,
        exact=plan.relay == "exact",
    )


def failed_stream(dialect: Dialect, error: ErrorInfo, model: str) -> bytes:
    """A stream that says nothing but that it failed."""
    encoder = make_encoder(dialect, EncodeContext(model=model))
    return encoder.encode(Failed(error)) + encoder.close()


def _comment() -> bytes:
    """Before the upstream's first byte: what is no event in any dialect."""
    return encode_comment("keep-alive")


def _is_stream(content_type: str, first: bytes) -> bool:
    """By the content type where it is one of the two, else by the first byte: JSON opens with a brace."""
    if content_type.startswith("text/event-stream"):
        # Some servers send a JSON error under the content type of the stream that was asked for.
        return not first[:64].lstrip().startswith(b"{")
    return first[:64].lstrip().startswith((b"data:", b"event:", b":", b"id:", b"retry:"))


async def read_whole(reply: Reply, limit: int, first: bytes = b"") -> bytes:
    """The rest of a reply.

    Raises:
        FrameTooLarge: it exceeds `limit`. UpstreamError: it was cut.
    """
    pieces = [first]
    size = len(first)
    while data := await reply.read():
        pieces.append(data)
        size += len(data)
        if size > limit:
            raise _too_large()
    return b"".join(pieces)


def _too_large() -> FrameTooLarge:
    return FrameTooLarge(f"expected an answer of at most {MAX_ANSWER_BYTES:,} bytes, got more")
