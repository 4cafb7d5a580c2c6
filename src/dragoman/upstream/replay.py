"""An upstream that plays recordings: `kind = "replay"`. It needs no key and no network, and answers with recorded bytes.

The answer comes from the recording of the same request (`match = "request"`: the same JSON, however it is spelled), or the
recordings are played one after the other (`match = "order"`). A request without a recording gets an error that says what
differs from the nearest one.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from dragoman._json import as_object, canonical_text, dumps_document
from dragoman.config.settings import UpstreamSettings
from dragoman.core.secrets import NO_SECRETS
from dragoman.errors import ConfigError, MalformedJson, RequestRefused, UpstreamError
from dragoman.inspection.exchange import RecordedAnswer, TimedBytes
from dragoman.inspection.redaction import redact_source
from dragoman.inspection.replay import count_differences, describe_difference
from dragoman.model.parts import Dialect
from dragoman.offload import offload
from dragoman.recordings import read_recordings
from dragoman.upstream.base import CheckResult, UpstreamReply, UpstreamRequest

# How many recordings are searched for the nearest, and how many differences are counted in each: enough to explain a mistake.
_MAX_COMPARED = 200
_MAX_COUNTED = 50
# Seconds. Nobody wants a test to wait longer between two pieces of an answer.
_LONGEST_PAUSE = 60.0
# Headers of the recorded connection, which do not apply to this one.
_NOT_PLAYED = frozenset(
    ("connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding", "upgrade")
)  # fmt: skip


class Played(Struct, frozen=True):
    """One recorded answer. `began`: milliseconds, when its request was sent."""

    name: str
    dialect: Dialect
    body: bytes
    began: float
    answer: RecordedAnswer


class ReplayUpstream:
    """A `base.Upstream` that answers from a folder of recordings, which is read once.

    Raises:
        ConfigError: the folder has no recordings, or one that cannot be read.
    """

    secrets = NO_SECRETS

    def __init__(self, name: str, settings: UpstreamSettings) -> None:
        self.name = name
        self._settings = settings
        root = Path(settings.recordings or "")
        try:
            self._played = list(_read(root))
        except RequestRefused as error:
            raise ConfigError(f"upstreams.{name}.recordings: {error.message}") from error
        if not self._played:
            raise ConfigError(f"upstreams.{name}.recordings: {root}: no recording has an answer")
        self._next = 0
        self._by_request: defaultdict[tuple[Dialect, bytes], list[Played]] = defaultdict(list)
        for each in reversed(self._played):
            if each.body:
                self._by_request[each.dialect, self._key(each.body)].append(each)
        counts: Counter[Dialect] = Counter(each.dialect for each in self._played)
        self._dialects: list[Dialect] = [dialect for dialect, _ in counts.most_common()]

    def dialect_for(self, door: Dialect) -> Dialect:
        """The client's dialect, if something was recorded in it; otherwise the dialect of most recordings."""
        return door if door in self._dialects else self._dialects[0]

    def url_of(self, dialect: Dialect, operation: str) -> str:  # noqa: ARG002 -- it answers by itself
        return ""

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """The recorded reply.

        Raises:
            RequestRefused: no recording answers this request.
        """
        if request.operation != "generate":
            raise RequestRefused(f"expected a request that was recorded, got {request.operation}")
        if self._settings.match == "order":
            played = self._in_order()
        else:
            size = len(request.body) * min(len(self._played), _MAX_COMPARED)
            same = await offload(size, self._find, request)
            # Only the event loop changes the list: two threads could take the same recording.
            played = same.pop() if len(same) > 1 else same[0]
        if not played.answer.is_whole:
            raise UpstreamError(f"the recording {played.name} is cut: its capture had no more room")
        return ReplayReply(played, is_paced=self._settings.speed == "recorded")

    async def check(self) -> CheckResult:
        return CheckResult(
            ok=True, status=None, detail=f"plays {len(self._played)} recorded answers"
        )

    async def close(self) -> None:
        """Does nothing: there are no connections."""

    def _in_order(self) -> Played:
        if self._next == len(self._played):
            raise _no_recording(
                f"all {len(self._played)} recorded answers of {self._settings.recordings} were played"
            )
        self._next += 1
        return self._played[self._next - 1]

    def _find(self, request: UpstreamRequest) -> list[Played]:
        """The recordings of this request. They are played in their order, and then the last one is repeated."""
        # Secrets were taken out of the recordings.
        body = redact_source(request.body)
        same = self._by_request.get((request.dialect, self._key(body)))
        if same:
            return same
        raise self._describe(request.dialect, self._without_ignored(body))

    def _key(self, body: bytes) -> bytes:
        return canonical_text(self._without_ignored(body).decode("utf-8", "replace"))

    def _without_ignored(self, body: bytes) -> bytes:
        if not self._settings.ignore:
            return body
        try:
            fields = as_object(body)
        except MalformedJson:
            return body
        kept = {name: each for name, each in fields.items() if name not in self._settings.ignore}
        return dumps_document(kept)

    def _describe(self, dialect: Dialect, body: bytes) -> RequestRefused:
        """The error that says what differs from the nearest recording."""
        others = [each for each in self._played if each.body and each.dialect == dialect]
        if not others:
            return _no_recording(f"no recording has a request in the dialect {dialect}")
        bodies = [(self._without_ignored(each.body), each.name) for each in others[:_MAX_COMPARED]]
        nearest, name = min(bodies, key=lambda each: count_differences(body, each[0], _MAX_COUNTED))
        differences = "; ".join(describe_difference(body, nearest))
        return _no_recording(
            f"no recording matches this request. The nearest is {name}: {differences}"
        )


def _read(root: Path) -> Iterator[Played]:
    for name, exchange in read_recordings(root):
        for attempt in exchange.attempts:
            if attempt.answer is not None and attempt.answer.pieces:
                yield Played(name, attempt.dialect, attempt.body, attempt.at, attempt.answer)


def _no_recording(message: str) -> RequestRefused:
    return RequestRefused(message, code="no_recording")


class ReplayReply(UpstreamReply):
    """A recorded answer. `is_paced`: its pieces come at the recorded pace."""

    def __init__(self, played: Played, *, is_paced: bool) -> None:
        answer = played.answer
        self.status = answer.status or 200
        self.headers: Mapping[str, str] = {
            name: value for name, value in answer.headers if name not in _NOT_PLAYED
        }
        if "content-type" not in self.headers:
            kind = "text/event-stream" if answer.is_stream else "application/json"
            self.headers = {**self.headers, "content-type": kind}
        self._pieces: list[TimedBytes] = list(reversed(answer.pieces))
        self._is_paced = is_paced
        self._at = played.began

    @property
    def is_over(self) -> bool:
        return not self._pieces

    def take_pieces(self) -> list[bytes]:
        if self._is_paced:
            return []
        taken = [piece.data for piece in reversed(self._pieces)]
        self._pieces.clear()
        return taken

    async def read(self) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop()
        if self._is_paced:
            pause = (piece.at - self._at) / 1000
            self._at = piece.at
            await asyncio.sleep(min(max(pause, 0.0), _LONGEST_PAUSE))
        return piece.data

    def close(self) -> None:
        self._pieces.clear()
