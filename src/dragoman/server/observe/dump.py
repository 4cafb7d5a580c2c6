"""The dump: one JSON line per interesting event that upstreams sent, for debugging.

    {"at":1700000000.1,"request_id":"req_1","answer":0,"upstream":"codex","dialect":"responses","frame":7,"event":{…}}

The event loop only queues bytes; a separate thread parses frames, picks events, hides secrets and writes. If the thread falls
behind, data is left out, and a file that cannot be written is logged once: no request waits or fails because of the dump.

The dump shows how calls came and how the answer ended, not the deltas of text. For a Responses stream these are the starts and ends of
items, the whole arguments, and the starts and ends of answers. Chat and Messages send arguments only in pieces; the pieces are joined
when the call ends, because half a credential cannot be recognised. Copies of the request or of the whole answer are left out,
credentials and seals are hidden, and an event beyond a size limit is named without its content.
"""

import asyncio
import logging
import os
import queue
import re
import threading
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from time import time
from typing import cast

from dragoman._json import dumps, loads
from dragoman.config.settings import DumpSettings
from dragoman.core.secrets import NO_SECRETS, Secrets, redact_json
from dragoman.dialects.messages import EVENTS
from dragoman.errors import FrameTooLarge, MalformedJson
from dragoman.gateway.targets import AttemptTarget
from dragoman.sse import FrameParser

logger = logging.getLogger(__name__)

# Reads in the thread's queue. A read has at most some hundred kilobytes, and usually one.
_MAX_WAITING = 4096
# How long a stopping gateway waits for the last lines.
_LAST_LINES_SECONDS = 2.0
_OWN_EYES_ONLY = 0o600


class Dump:
    """Writes the dump. Its thread starts with the first answer and ends with `close`."""

    def __init__(self, settings: DumpSettings) -> None:
        self._file = _RotatingFile(
            Path(settings.path or ""), settings.max_bytes, max(1, settings.files)
        )
        self._waiting: queue.Queue[tuple[DumpTap, bytes | None] | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._numbers = count()
        self._has_complained = False

    def begin(
        self, target: AttemptTarget, request_id: str, secrets: Secrets = NO_SECRETS
    ) -> "DumpTap":
        """Returns the tap for the answer to an attempt."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dragoman-dump", daemon=True)
            self._thread.start()
        context = {
            "request_id": request_id,
            "answer": next(self._numbers),
            "upstream": target.upstream,
            "dialect": target.dialect,
            "model": target.model,
        }
        return DumpTap(self, context, secrets)

    def hand_over(self, tap: "DumpTap", data: bytes | None) -> bool:
        """Queue bytes of an answer for the thread; None: its end. False: the queue is full, and they are dropped."""
        try:
            self._waiting.put_nowait((tap, data))
        except queue.Full:
            return False
        return True

    async def close(self) -> None:
        """Write what is queued, within a time limit."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(self._end, thread)

    def _end(self, thread: threading.Thread) -> None:
        try:
            self._waiting.put(None, timeout=_LAST_LINES_SECONDS)
        except queue.Full:
            return
        thread.join(_LAST_LINES_SECONDS)

    def _run(self) -> None:
        while (taken := self._waiting.get()) is not None:
            tap, data = taken
            try:
                for line in list(tap.lines(data)):
                    self._file.write(line)
            except Exception as error:
                if not self._has_complained:
                    self._has_complained = True
                    logger.warning("the dump cannot be written: %s", error)
        self._file.close()


class DumpTap:
    """One answer: queues its bytes, and makes the lines for its interesting events, in the thread.

    context: the first fields of each line. secrets: the upstream's credentials, which are hidden.
    """

    def __init__(self, dump: Dump, context: Mapping[str, object], secrets: Secrets) -> None:
        self._dump = dump
        self._context = context
        self._secrets = secrets
        self._is_open = True
        # Used by the thread only.
        self._parser: FrameParser | None = FrameParser()
        self._picker = EventPicker(str(context["dialect"]))
        self._frame = 0

    def feed(self, data: bytes) -> None:
        # After a gap the frames could not be parsed.
        if self._is_open and not self._dump.hand_over(self, data):
            self._is_open = False

    def close(self, *, is_whole: bool = True) -> None:
        del is_whole
        if self._is_open:
            self._is_open = False
            self._dump.hand_over(self, None)

    def lines(self, data: bytes | None) -> Iterator[bytes]:
        """The lines that follow from more bytes, or (None) from the end of the answer."""
        at = round(time(), 3)
        for event in self._picker.close() if data is None else self._events(data):
            line = {"at": at, **self._context, "frame": self._frame, "event": event}
            yield self._secrets.hide_bytes(dumps(line)) + b"\n"

    def _events(self, data: bytes) -> Iterator["Json"]:
        try:
            for frame in () if self._parser is None else self._parser.feed(data):
                self._frame += 1
                if frame.data is not None:
                    yield from self._picker.pick(frame.data)
        except FrameTooLarge:
            self._parser = None


class _RotatingFile:
    """Appends lines to a file. A full file becomes `name.1`, that one `name.2`, and so on up to the number of files kept."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._descriptor: int | None = None
        self._size = 0

    def write(self, line: bytes) -> None:
        if self._descriptor is not None and self._size + len(line) > self._max_bytes:
            self._rotate()
        if self._descriptor is None:
            self._open()
            if self._size and self._size + len(line) > self._max_bytes:
                self._rotate()
                self._open()
        if self._descriptor is not None:
            # One system call per line, so that lines of several workers do not mix.
            os.write(self._descriptor, line)
            self._size += len(line)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._descriptor = os.open(self._path, flags, _OWN_EYES_ONLY)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        """Rename the files, unless another worker has just done so."""
        is_current = self._is_current()
        self.close()
        if not is_current:
            return
        if self._files == 1:
            self._path.unlink(missing_ok=True)
            return
        for number in range(self._files - 1, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _is_current(self) -> bool:
        if self._descriptor is None:
            return False
        opened = os.fstat(self._descriptor)
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


# --- which events are written -----------------------------------------------------------------------------------------

Json = dict[str, object]

# An image comes as megabytes of base64 in one event; the events of interest have kilobytes.
MAX_EVENT = 256 * 1024

_RESPONSES = frozenset(
    (
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "codex.rate_limits",
        "error",
    )
)
_MESSAGES = EVENTS - {"ping"}
_CHAT = re.compile(
    rb'"(?:tool_calls|function_call)"\s*:\s*[\[{]|"finish_reason"\s*:\s*"|"usage"\s*:\s*\{|"error"\s*:\s*[{"]'
)
_HEAD = ("id", "object", "created", "model")
# The members of a `response` that are kept: its identity, how it ended and what it cost.
_KEPT = ("id", "model", "status", "usage", "error", "incomplete_details")


class EventPicker:
    """Picks events from one stream. Holds only the pieces of arguments until their call ends."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._pieces: dict[tuple[object, object], list[str]] = {}

    def pick(self, data: bytes) -> list[Json]:
        """The events to dump for a frame's payload: mostly none."""
        if self._dialect == "chat" and _CHAT.search(data) is None:
            return []
        try:
            event = loads(data)
        except MalformedJson:
            return []  # `[DONE]`, or not a JSON object
        fields = _object(event)
        kind = fields.get("type")
        match self._dialect:
            case "responses" if kind in _RESPONSES:
                picked = iter((_without_response(fields),))
            case "messages" if kind in _MESSAGES:
                picked = self._pick_block(fields, str(kind))
            case "chat" if fields:
                picked = self._pick_chunk(fields)
            case _:
                return []
        return [_written(each) for each in picked]

    def close(self) -> list[Json]:
        """The held arguments of calls that never ended."""
        if self._dialect == "messages":
            keys = tuple(self._pieces)
            rest = [delta for _, index in keys for delta in self._block_delta(index)]
        else:
            choices = dict.fromkeys(choice for choice, _ in self._pieces)
            rest = [chunk for choice in choices for chunk in self._chunk_of(choice, {})]
        return [_written(each) for each in rest]

    # --- Messages -----------------------------------------------------------------------------------------------------

    def _pick_block(self, event: Json, kind: str) -> Iterator[Json]:
        index = event.get("index")
        if kind == "content_block_delta":
            piece = _object(event.get("delta")).get("partial_json")
            if isinstance(piece, str):
                self._pieces.setdefault((0, index), []).append(piece)
            return
        if kind == "content_block_stop":
            yield from self._block_delta(index)
        yield event

    def _block_delta(self, index: object) -> Iterator[Json]:
        pieces = self._pieces.pop((0, index), None)
        if pieces is not None:
            delta = {"type": "input_json_delta", "partial_json": "".join(pieces)}
            yield {"type": "content_block_delta", "index": index, "delta": delta}

    # --- Chat ---------------------------------------------------------------------------------------------------------

    def _pick_chunk(self, chunk: Json) -> Iterator[Json]:
        choices = _list(chunk.get("choices"))
        is_news = not choices or chunk.get("error") is not None
        for choice in map(_object, choices):
            number = choice.get("index", 0)
            delta = _object(choice.get("delta"))
            calls = [*_list(delta.get("tool_calls")), {"function": delta.get("function_call")}]
            taken = [self._take_call(number, _object(call)) for call in calls]
            is_news = is_news or any(taken)
            if choice.get("finish_reason") is not None:
                yield from self._chunk_of(number, chunk)
                is_news = True
        if is_news:
            yield chunk

    def _take_call(self, choice: object, call: Json) -> bool:
        """Take the piece of arguments out of a delta; return whether the delta contains anything else."""
        body = _object(call.get("function")) or _object(call.get("custom"))
        for key in ("arguments", "input"):
            piece = body.get(key)
            if isinstance(piece, str) and piece:
                self._pieces.setdefault((choice, call.get("index")), []).append(piece)
                body[key] = ""
        return bool(call.get("id") or body.get("name"))

    def _chunk_of(self, choice: object, like: Json) -> Iterator[Json]:
        """The arguments of all calls of a choice, in one chunk."""
        keys = [key for key in self._pieces if key[0] == choice]
        calls = [
            {"index": index, "function": {"arguments": "".join(self._pieces.pop((choice, index)))}}
            for _, index in keys
        ]
        if calls:
            chosen = {"index": choice, "delta": {"tool_calls": calls}, "finish_reason": None}
            head = {key: value for key, value in like.items() if key in _HEAD}
            yield {"object": "chat.completion.chunk", **head, "choices": [chosen]}


def _without_response(event: Json) -> Json:
    if "response" not in event:
        return event
    response = _object(event["response"])
    return {**event, "response": {key: response[key] for key in _KEPT if key in response}}


def _written(event: Json) -> Json:
    hidden = {key: redact_json(value, key) for key, value in event.items()}
    size = len(dumps(hidden))
    return hidden if size <= MAX_EVENT else {"type": event.get("type"), "omitted_bytes": size}


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
