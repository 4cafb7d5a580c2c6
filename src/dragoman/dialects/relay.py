"""A stream of the same dialect on both sides: passed on byte for byte while it is regular, written anew from then on.

    upstream bytes → StreamDecoder → frame and events ─┬─ regular: the frame, as it came ─────────────────→ client
                                                       └─ the dialect's encoder, in shadow: discarded ─╴
    from the first irregular frame on: what the encoder says of its events ─────────────────────────────→ client

A `watching.Watch` tells regular frames from others; so do the problems that the reader finds, parts that overlap, and names
that have to be restored. The encoder hears everything, so that it can go on with the same ids, indices and numbers. To
know that it stands where the client stands, both sides are reduced to marks (what a frame opens, closes and ends, and
by which ids), and compared. A frame that is ahead of the encoder is held until the encoder has caught up: a call whose
name may still grow, a finish that may be contradicted. Holding changes no byte, and lasts for a frame or two.

    PASSING --a frame ahead of the encoder--> PASSING, with frames held --the encoder has caught up--> PASSING
       '-------------------------------------------'--an irregular frame, a cut--> SPEAKING

Plain deltas cost a check and no encoding; the encoder is told of them in one piece when something else happens.
"""

from collections.abc import Iterable, Sequence

from dragoman.core.aliases import NameMap
from dragoman.core.tally import NOTED, Tally
from dragoman.dialects.base import DecodeContext, EncodeContext, Step, StreamDecoder
from dragoman.dialects.registry import codec
from dragoman.dialects.relay_body import relay_body
from dragoman.dialects.relay_decoder import RelayDecoder
from dragoman.dialects.relay_entry import Entry
from dragoman.dialects.relay_passage import BLANK, BLANKS, Passage
from dragoman.dialects.staging import Stage
from dragoman.model.events import Event, Failed, Noticed, Started
from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.sse import parse_lines

__all__ = ("StreamRelay", "relay_body")

_PING = Noticed("ping")


class StreamRelay:
    """One answer. See `interpret.Interpreter`.

    names: as for a translator; a call that has to be renamed is irregular.
    stage: reads the text, and may find calls in it. Frames wait where it waits; what it finds is told by the encoder.
    exact: pass everything on as it comes, regular or not; only a stream that is cut or cannot be read gets its failure.
    """

    def __init__(
        self,
        dialect: str,
        *,
        decode: DecodeContext,
        encode: EncodeContext,
        names: NameMap | None = None,
        stage: Stage | None = None,
        exact: bool = False,
    ) -> None:
        reader = codec(dialect).reader(decode)
        watch = codec(dialect).watch(encode)
        self._passage = Passage(watch, model=encode.model, names=names)
        self._out = self._passage.out
        self._exact = _ExactRelay(StreamDecoder(reader), self._passage) if exact else None
        self._passing = RelayDecoder(Entry(reader, self._passage, stage))
        self._decoder = self._passing if self._exact is None else self._exact.decoder

    @property
    def tally(self) -> Tally:
        return self._passage.tally

    @property
    def is_over(self) -> bool:
        return self._decoder.is_over

    @property
    def waiting(self) -> int:
        return self._decoder.waiting

    @property
    def error(self) -> ErrorInfo | None:
        """Why the answer failed, if it did."""
        return self._passage.tally.error

    @property
    def problems(self) -> Sequence[Problem]:
        return self._decoder.problems

    @property
    def losses(self) -> Sequence[Loss]:
        """What the encoder could not say, once it speaks."""
        return () if self.is_passing else self._passage.encoder.losses

    @property
    def is_passing(self) -> bool:
        """Whether the upstream's own frames are still passed on."""
        return self._passage.is_passing

    @property
    def reason(self) -> str:
        """Why they no longer are: the kind of a problem, or of the error."""
        return self._passage.reason

    def feed(self, data: bytes) -> bytes:
        """What the client gets of this read: whole frames."""
        if self._exact is not None:
            return self._exact.feed(data)
        self._passing.advance(data)
        out = self._out
        return out.pop() if len(out) == 1 else self._passage.take()

    def feed_together(self, pieces: list[bytes]) -> bytes:
        """The same for a read that came in several pieces."""
        if self._exact is not None:
            return self._exact.feed(b"".join(pieces))
        self._passing.advance_together(pieces)
        return self._passage.take()

    def close(self) -> bytes:
        """The upstream has ended: what remains, and always a terminal."""
        if self._exact is not None:
            return self._exact.close()
        self._decoder.close()
        if not self.is_passing:
            return self._passage.take() + self._passage.encoder.close()
        return self._passage.take()

    def fail(self, error: ErrorInfo) -> bytes:
        """The answer ends here, and has failed: what is open is closed, and the failure told. Nothing if it was over."""
        if self._exact is not None:
            return self._exact.fail(error)
        self._decoder.fail(error)
        return self._passage.take()

    def keep_alive(self) -> bytes:
        """What keeps a silent connection open at this point."""
        return b"" if self.is_over else self._passage.keep_alive()


_UNREAD = frozenset({"malformed_frame", "invalid_utf8", "frame_too_large"})


class _ExactRelay:
    """Everything as it comes. The encoder is asked for one thing: the failure of a stream that is cut or cannot be read."""

    def __init__(self, decoder: StreamDecoder, passage: Passage) -> None:
        self.decoder = decoder
        self._passage = passage
        self._last = b""  # the last frame
        self._has_failed = False

    def feed(self, data: bytes) -> bytes:
        return self._pass(self.decoder.feed(data))

    def close(self) -> bytes:
        steps = self.decoder.close()
        out = self._pass(steps)
        if out and not out.endswith(BLANKS):
            out += BLANK  # what is left of a frame must not swallow the failure
        ending = steps[-1].events[-1:] if steps and not steps[-1].raw else ()
        return out + b"".join(self._fail(each.error) for each in ending if isinstance(each, Failed))

    def fail(self, error: ErrorInfo) -> bytes:
        events = self.decoder.fail(error)
        self._note(events)
        return self._fail(error) if events else b""

    def _pass(self, steps: Sequence[Step]) -> bytes:
        if self._has_failed:
            return b""
        out: list[bytes] = []
        for step in steps:
            self._note(step.events)
            out.append(step.raw)
            failed = step.events[-1] if step.events else None
            if isinstance(failed, Failed) and any(each.kind in _UNREAD for each in step.problems):
                # A client that passes over such a frame must not take what follows for the rest of a call.
                out += (b"" if step.raw.endswith(BLANKS) else BLANK, self._fail(failed.error))
                break
            self._last = step.raw or self._last
        return b"".join(out)

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            if type(event) in NOTED:
                self._passage.tally.note(event)
            if isinstance(event, Started):
                self._passage.encoder.encode(event)
                self._passage.encoder.encode(
                    _PING
                )  # what it begins an answer with, the client has seen

    def _fail(self, error: ErrorInfo) -> bytes:
        self._passage.is_passing = False
        self._has_failed = True
        data = parse_lines(self._last).data
        if data is not None:
            self._passage.watch.follow(data)
        return self._passage.encoder.encode(Failed(error))
