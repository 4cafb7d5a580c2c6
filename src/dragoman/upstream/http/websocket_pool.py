"""WebSockets to one server: which connection carries a request, what the request may leave out, and when HTTP does it instead.

    continued   the connection whose last response the request goes on with: only what is new is sent
    free        another connection of the same owner that waits: the whole input
    new         a new connection: the whole input

A request that fails on one of the first two before an event came is sent once more, whole, on a new connection; the client does
not notice. What fails on a new connection is the caller's to judge, as over HTTP. One connection carries one answer at a time.

A server that refuses WebSockets, or cannot be reached by them, is asked over HTTP for a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b

from msgspec import Struct
from websockets.utils import generate_key

from dragoman.core.failures import ReportedError
from dragoman.dialects.responses.websocket_client import (
    BETA,
    LIMIT_REACHED,
    AnswerState,
    SocketRequest,
    create_message,
    find_continued,
    is_of_request,
    read_request,
)
from dragoman.errors import UpstreamError
from dragoman.offload import offload
from dragoman.upstream import errors
from dragoman.upstream.base import UpstreamReply
from dragoman.upstream.http.connection import UpstreamConnection
from dragoman.upstream.http.transport import HttpReply, Transport
from dragoman.upstream.http.websocket import (
    SocketReader,
    handshake_headers,
    handshake_problem,
    message_frame,
)

logger = logging.getLogger(__name__)

# Connections that wait for their conversation to go on. Each takes some 50 KB with TLS, and remembers 20 bytes, and 20 for each
# item of reasoning, of its conversation.
MAX_IDLE = 256
# With so many connections of one owner waiting, a new conversation takes the oldest of them instead of opening another: who asks
# many short questions should not pay for a handshake each time.
MAX_RESERVED = 64
# Seconds. A person who reads an answer needs minutes; after that the prompt is sent whole, as over HTTP.
MAX_IDLE_SECONDS = 600.0
# Seconds. OpenAI ends a connection after an hour, and an answer may take minutes.
MAX_AGE = 55 * 60.0

# Seconds that a server which does not speak WebSocket is asked over HTTP, and one where the handshakes failed.
HTTP_SECONDS = 600.0
HTTP_SECONDS_AFTER_FAILURES = 60.0
# Handshakes in a row. One may fail for the reasons for which any request fails; a proxy that cuts WebSockets fails each.
MAX_FAILURES = 3

ACCEPTED = "WebSocket accepted"
"""What `SocketPool.check` returns if the server opened one."""

_SWITCHED = 101
# Upgrade required, not found, method not allowed, not implemented: nobody speaks WebSocket there. A proxy that does not
# understand the handshake calls it a bad request, or passes it on as an ordinary one, which may even succeed.
_NO_WEBSOCKET = frozenset((400, 404, 405, 426, 501, *range(200, 300)))
# The account, not the connection, is why these come; the caller's retry policy knows what to do.
_OF_ACCOUNT = frozenset((401, 402, 403, 429))
# A proxy that forbids WebSockets answers 403, so that this status of a handshake counts as a failure.
_OF_ACCOUNT_IN_HANDSHAKE = _OF_ACCOUNT - {403}
# Headers of a POST that say nothing about the connection, beside those of Codex that belong to a request.
_NOT_OF_OWNER = frozenset(
    (
        *("x-request-id", "x-client-request-id", "accept", "accept-encoding", "content-type"),
        *("traceparent", "tracestate"),
    )
)

ByHttp = Callable[[], Awaitable[UpstreamReply]]


class _Asked(Struct, frozen=True):
    """One request: read, the headers of its POST, whose it is, and the size of its body."""

    request: SocketRequest
    headers: Mapping[str, str]
    owner: bytes
    size: int


class SocketPool:
    """The WebSockets to one server. `url`: where a POST goes.

    own_beta: the operator's value of `openai-beta`, which stays.
    """

    def __init__(
        self,
        name: str,
        url: str,
        transport: Transport,
        *,
        own_beta: str | None = None,
    ) -> None:
        self._name = name
        self._url = url
        self._transport = transport
        self._beta = BETA if own_beta is None else own_beta
        transport.make_room = self._close_oldest
        self._open: dict[UpstreamConnection, SocketReader] = {}
        # Those that wait, the oldest first: all of them, and by owner; and by the state of requests that continue their answer.
        self._idle: dict[UpstreamConnection, SocketReader] = {}
        self._idle_of: dict[bytes, dict[UpstreamConnection, SocketReader]] = {}
        self._by_state: dict[bytes, SocketReader] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._failures = 0
        self._http_until = 0.0

    async def send(self, body: bytes, headers: Mapping[str, str], by_http: ByHttp) -> UpstreamReply:
        """Send a request. `headers`: those of its POST.

        Raises:
            UpstreamError: as `Transport.send`.
        """
        if _now() < self._http_until:
            return await by_http()
        owner = _owner_of(headers)
        request = await offload(len(body), read_request, body, owner)
        if request is None:
            return await by_http()
        asked = _Asked(request, headers, owner, len(body))
        continued = self._take_continued(request)
        if continued is not None:
            count, reader = continued
            reply = await self._ask(asked, reader, count)
        else:
            free = self._take_free(owner)
            reply = None if free is None else await self._ask(asked, free)
        return await self._ask_anew(asked, by_http) if reply is None else reply

    async def check(self, headers: Mapping[str, str]) -> str:
        """Open and close a WebSocket; return the result."""
        try:
            opened = await self._open_socket(headers)
        except UpstreamError as error:
            return f"no WebSocket: {error.message}"
        if isinstance(opened, HttpReply):
            opened.close()
            return f"no WebSocket: it answered {opened.status}; HTTP is used"
        self._transport.drop(opened)
        return ACCEPTED

    def give_back(self, connection: UpstreamConnection) -> None:
        """End an answer: keep its connection for the next request if possible, else close it."""
        reader = self._open.get(connection)
        if reader is None:
            return
        if not connection.rest() or self._is_old(reader):
            self._drop(connection)
            return
        self._idle[connection] = reader
        self._idle_of.setdefault(reader.owner, {})[connection] = reader
        state = reader.answer.state
        if state is not None:
            self._by_state[state] = reader
        if len(self._idle) > MAX_IDLE:
            self._close_oldest()
        self._watch()
        self._transport.call_next()

    def close(self) -> None:
        """Close all connections."""
        for connection in tuple(self._open):
            self._drop(connection)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._transport.make_room = None  # it refers to this pool

    # --- which connection

    def _take_continued(self, request: SocketRequest) -> tuple[int, SocketReader] | None:
        found = find_continued(request, self._by_state)
        if found is None:
            return None
        return found if self._take(found[1]) else None

    def _take_free(self, owner: bytes) -> SocketReader | None:
        waiting = self._idle_of.get(owner)
        while waiting is not None and len(waiting) >= MAX_RESERVED:
            reader = next(iter(waiting.values()))
            if self._take(reader):
                return reader
        return None

    def _take(self, reader: SocketReader) -> bool:
        """Take a waiting connection out; False if it has been closed, or is too old."""
        connection = reader.connection
        self._forget(connection, reader)
        if connection.is_usable(MAX_IDLE_SECONDS) and not self._is_old(reader):
            return True
        self._drop(connection)
        return False

    def _forget(self, connection: UpstreamConnection, reader: SocketReader) -> None:
        if self._idle.pop(connection, None) is None:
            return
        waiting = self._idle_of[reader.owner]
        del waiting[connection]
        if not waiting:
            del self._idle_of[reader.owner]
        state = reader.answer.state
        if state is not None and self._by_state.get(state) is reader:
            del self._by_state[state]

    def _is_old(self, reader: SocketReader) -> bool:
        return _now() - reader.since >= MAX_AGE

    def _close_oldest(self) -> bool:
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def _drop(self, connection: UpstreamConnection) -> None:
        reader = self._open.pop(connection, None)
        if reader is not None:
            self._forget(connection, reader)
            reader.end()
        self._transport.drop(connection)

    def _watch(self) -> None:
        """Close connections when they have waited too long. There is one timer, for the oldest."""
        if self._expiry is None and self._idle:
            oldest = next(iter(self._idle))
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_at(oldest.idle_since + MAX_IDLE_SECONDS, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        while self._idle and not next(iter(self._idle)).is_usable(MAX_IDLE_SECONDS):
            self._close_oldest()
        self._watch()

    # --- requests

    async def _ask(self, asked: _Asked, reader: SocketReader, known: int = 0) -> HttpReply | None:
        """Ask on a connection that has carried an answer before. `known`: how many items the server has.

        None: it failed before an event came, and may succeed on a new connection.
        """
        try:
            reply = await self._exchange(asked, reader, known)
        except UpstreamError as error:
            if error.kind == "timeout":
                raise  # another wait would be as long
            return None
        is_refused = not 200 <= reply.status <= 299 and reply.status not in _OF_ACCOUNT
        if is_refused and (known or reader.error_code == LIMIT_REACHED):
            reply.close()
            return None
        return reply

    async def _ask_anew(self, asked: _Asked, by_http: ByHttp) -> UpstreamReply:
        """Ask on a new connection."""
        try:
            opened = await self._open_socket(asked.headers)
        except UpstreamError as error:
            # A ReportedError says that no connection was free: nothing was tried.
            if not isinstance(error, ReportedError) and self._has_failed(error.message):
                return await by_http()
            raise
        if isinstance(opened, HttpReply):
            status = opened.status
            why = f"its WebSocket's handshake was answered with status {status}"
            if status in _NO_WEBSOCKET:
                self._use_http(HTTP_SECONDS, why)
            elif status in _OF_ACCOUNT_IN_HANDSHAKE or not self._has_failed(why):
                return opened
            opened.close()
            return await by_http()
        self._failures = 0
        answer = AnswerState(asked.request)
        reader = SocketReader(opened, self._name, owner=asked.owner, since=_now(), answer=answer)
        self._open[opened] = reader
        opened.speak(reader)
        return await self._exchange(asked, reader)

    async def _exchange(self, asked: _Asked, reader: SocketReader, known: int = 0) -> HttpReply:
        connection = reader.connection
        is_answered = False
        try:
            previous = reader.answer.response_id if known else None
            reader.expect(AnswerState(asked.request, previous))
            frame = await offload(asked.size, _frame_of, asked, known, previous)
            await connection.ask(frame, b"")
            is_answered = True
        finally:
            if not is_answered:  # it failed, or the client left
                self._drop(connection)
        return HttpReply(self, connection, self._name)

    async def _open_socket(self, headers: Mapping[str, str]) -> UpstreamConnection | HttpReply:
        """A connection that speaks WebSocket from now on, or the answer of a server that refuses."""
        key = generate_key()
        fields = {name: value for name, value in headers.items() if name != "content-type"}
        fields |= {"accept": "application/json", "openai-beta": self._beta}
        fields |= handshake_headers(key)
        lines = self._transport.lines(fields)
        connection = await self._transport.upgrade(self._url, lines)
        if connection.status != _SWITCHED:
            return HttpReply(self._transport, connection, self._name)
        problem = handshake_problem(connection, key)
        if problem is not None:
            self._transport.drop(connection)
            raise errors.not_websocket(self._name, problem)
        return connection

    # --- HTTP instead

    def _has_failed(self, why: str) -> bool:
        """Count a handshake that failed; True if HTTP is used from now on."""
        self._failures += 1
        if self._failures < MAX_FAILURES:
            return False
        times = f"{MAX_FAILURES} WebSockets in a row could not be opened, the last because "
        self._use_http(HTTP_SECONDS_AFTER_FAILURES, times + why)
        return True

    def _use_http(self, seconds: float, why: str) -> None:
        self._failures = 0
        if _now() >= self._http_until:
            logger.warning("upstream %r is asked over HTTP for %g s: %s", self._name, seconds, why)
        self._http_until = _now() + seconds


def _now() -> float:
    return asyncio.get_running_loop().time()


def _frame_of(asked: _Asked, known: int, previous: str | None) -> bytes:
    return message_frame(create_message(asked.request, asked.headers, known, previous))


def _owner_of(headers: Mapping[str, str]) -> bytes:
    """A digest of the headers that belong to the connection, credentials among them: requests with others do not share one."""
    lines = [
        f"{name}: {value}\n"
        for name, value in sorted(headers.items())
        if name not in _NOT_OF_OWNER and not is_of_request(name)
    ]
    return blake2b("".join(lines).encode("utf-8", "surrogatepass"), digest_size=20).digest()
