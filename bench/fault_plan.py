"""What `make faults` does, as values: a seed is a scene, and a scene is a fault of a kind and some exchanges.

No I/O and no clock: the same seed gives the same scene. Of each hundred seeds, the first `FRAME_SCENES` cut a stream after every
frame, for every pair of door and upstream and in every way; the others draw their faults.
"""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from fault_oracle import Circumstances, Sent, SentCall

from vendor_wire import Answer, Said, Tool, body_bytes, stream

Json = dict[str, Any]
Door = Literal["chat", "responses", "messages", "websocket"]
Link = Literal["client", "upstream"]
Behaviour = Literal["read", "leave", "slow"]
WireFault = Literal[
    "reset",
    "close",
    "half-close",
    "delay",
    "silence",
    "trickle",
    "garbage",
    "duplicate",
    "drop",
    "polite end",
    "status",
]
Event = Literal[
    "none",
    "kill",
    "stop",
    "disk full",
    "database stopped",
    "database cut",
    "database silent",
    "database garbage",
    "clock",
]

DOORS: tuple[Door, ...] = ("chat", "responses", "messages", "websocket")
UPSTREAMS = ("chat", "responses", "messages")
NAMES = ("read_file", "search", "write_file", "run-tests", "get_weather")
AT_END = -1
"""The place of a fault that happens after the bytes that were read first: a whole request of usual size."""

EXCHANGES = 24
"""In one scene, all at once."""

FRAME_SCENES = 48
_SHARES: dict[str, int] = {
    "frames": FRAME_SCENES,
    "wire": 24,
    "clients": 12,
    "kill": 4,
    "disk full": 4,
    "database": 4,
    "clock": 4,
}
KINDS = tuple(_SHARES)
_KIND_OF = [kind for kind, share in _SHARES.items() for _ in range(share)]
_MANNERS: tuple[WireFault, ...] = ("close", "reset", "half-close", "polite end")
_UPSTREAM_FAULTS: tuple[WireFault, ...] = (
    *("reset", "close", "half-close", "delay", "trickle", "garbage", "duplicate", "drop", "status"),
)
_CLIENT_FAULTS: tuple[WireFault, ...] = (
    *("reset", "close", "half-close", "delay", "trickle", "garbage"),
)
_HARMLESS = ("delay", "trickle")
_KILLS: tuple[Event, ...] = ("kill", "stop", "kill", "kill")
_DATABASE: tuple[Event, ...] = (
    *("database stopped", "database cut", "database silent", "database garbage"),
)
_SILENCES = 0.06
"""The share of drawn faults that are silence: each lasts until a time limit of the gateway."""

_LARGE = 0.04
"""The share of answers with a call of tens of kilobytes."""


class Fault(Struct, frozen=True, kw_only=True):
    """What happens to one connection.

    at: bytes of the answer that pass before; of the request, if `in_request`.
    frames: instead, whole frames that pass before it, and `at` bytes of the next one.
    is_once: a second attempt of the same exchange meets no fault.
    """

    kind: WireFault
    link: Link
    at: int = 0
    frames: int | None = None
    in_request: bool = False
    is_once: bool = False
    seconds: float = 0.0
    data: bytes = b""


class Exchange(Struct, frozen=True, kw_only=True):
    """One request of a client, and the answer that the upstream has for it. `name` is in no other request."""

    name: str
    door: Door
    upstream: str
    answer: Answer
    is_stream: bool = True
    is_background: bool = False
    fault: Fault | None = None
    behaviour: Behaviour = "read"
    leaves_after: int = 0
    pace: float = 0.0
    """Seconds between two frames of the upstream."""
    starts: float = 0.0
    """Seconds until the client sends its request."""
    continues: bool = False
    """Whether the client sends the results of the calls, with the id of the response."""

    @property
    def model(self) -> str:
        return f"{self.upstream}-{self.name}"


class Scene(Struct, frozen=True, kw_only=True):
    """Exchanges that run at once, and what happens to the gateways or the store meanwhile."""

    seed: int
    kind: str
    exchanges: tuple[Exchange, ...]
    event: Event = "none"
    after: float = 0.0
    """Seconds until the event."""
    lasts: float = 0.0
    jump: float = 0.0
    """Seconds by which the clock jumps."""

    @property
    def needs_postgres(self) -> bool:
        """The odd hundreds use PostgreSQL. Only SQLite writes to a disk of the gateway's own."""
        is_odd = self.seed // 100 % 2 == 1
        return self.event in _DATABASE or (is_odd and self.event != "disk full")


def kind_of(seed: int) -> str:
    return _KIND_OF[seed % len(_KIND_OF)]


def scene_of(seed: int) -> Scene:
    """Return the scene of this seed."""
    dice = random.Random(seed)
    kind = kind_of(seed)
    if kind == "frames":
        return Scene(seed=seed, kind=kind, exchanges=tuple(_cut_exchanges(seed, dice)))
    made = tuple(_exchange(f"s{seed}n{number}", kind, dice) for number in range(EXCHANGES))
    event: Event = "none"
    jump = 0.0
    if kind == "kill":
        event = _KILLS[seed % len(_KILLS)]
    elif kind == "disk full":
        event = "disk full"
    elif kind == "database":
        event = _DATABASE[seed % len(_DATABASE)]
    elif kind == "clock":
        event = "clock"
        # Less than the time that responses are kept, which is 30 days.
        jump = dice.choice((-1, 1)) * dice.choice((2, 90, 3600, 86400, 20 * 86400))
    after, lasts = dice.uniform(0.0, 1.0), dice.uniform(0.2, 1.5)
    return Scene(
        seed=seed, kind=kind, exchanges=made, event=event, after=after, lasts=lasts, jump=jump
    )


def _exchange(name: str, kind: str, dice: random.Random) -> Exchange:
    door = dice.choice(DOORS)
    is_stream = door == "websocket" or dice.random() < 0.7
    upstream = dice.choice(UPSTREAMS)
    is_slow_kind = kind not in ("wire", "clients")
    answer = random_answer(name, dice)
    exchange = Exchange(
        name=name,
        door=door,
        upstream=upstream,
        answer=answer,
        is_stream=is_stream,
        # The event of the scene should come in the middle of many answers.
        pace=_pace(upstream, answer, dice) if is_slow_kind else 0.0,
        starts=dice.uniform(0.0, 1.5) if is_slow_kind else 0.0,
        is_background=door == "responses" and is_slow_kind and dice.random() < 0.3,
        continues=door in ("responses", "websocket") and dice.random() < 0.5,
    )
    if kind == "wire" and dice.random() < 0.9:
        return structs.replace(exchange, fault=_upstream_fault(exchange, dice))
    if kind == "clients":
        return _client_trouble(exchange, dice)
    return exchange


def _pace(upstream: str, answer: Answer, dice: random.Random) -> float:
    """Between two frames, so that the whole answer takes two seconds at most."""
    return min(dice.choice((0.0, 0.01, 0.05)), 2.0 / len(frames_of(upstream, answer)))


def soak_scene(seed: int) -> Scene:
    """One exchange of a soak: mostly regular, sometimes with a fault on a link, a client that leaves, or one that is slow."""
    dice = random.Random(f"soak {seed}")
    kind = dice.choices(("regular", "clients", "wire"), (60, 20, 20))[0]
    exchange = _exchange(f"s{seed}n0", kind, dice)
    if exchange.fault is not None and exchange.fault.kind == "silence":
        exchange = structs.replace(exchange, fault=None)  # it would only wait for a time limit
    return Scene(seed=seed, kind="soak", exchanges=(structs.replace(exchange, starts=0.0),))


def _client_trouble(exchange: Exchange, dice: random.Random) -> Exchange:
    drawn = dice.random()
    if drawn < 0.2:
        return structs.replace(
            exchange, behaviour="leave", leaves_after=dice.choice((0, 1, 300, 2000))
        )
    if drawn < 0.35:
        return structs.replace(exchange, behaviour="slow", answer=_long_answer(exchange.name, dice))
    if drawn < 0.9:
        return structs.replace(exchange, fault=_client_fault(dice))
    return exchange


def _client_fault(dice: random.Random) -> Fault:
    kind = dice.choice(_CLIENT_FAULTS)
    in_request = dice.random() < 0.4 or kind in ("garbage", "half-close")
    return Fault(
        kind=kind,
        link="client",
        at=dice.choice((AT_END, 0, dice.randrange(400), dice.randrange(3000))),
        in_request=in_request,
        seconds=dice.uniform(0.01, 0.3),
        data=_garbage(dice),
    )


def _upstream_fault(exchange: Exchange, dice: random.Random) -> Fault:
    size = len(answer_bytes(exchange))
    kind: WireFault = "silence" if dice.random() < _SILENCES else dice.choice(_UPSTREAM_FAULTS)
    return Fault(
        kind=kind,
        link="upstream",
        # The head of the answer is some 120 bytes.
        at=dice.randrange(size + 120),
        in_request=kind in ("reset", "close", "delay") and dice.random() < 0.15,
        is_once=dice.random() < 0.3,
        seconds=dice.uniform(0.01, 0.3),
        data=_garbage(dice),
    )


def _garbage(dice: random.Random) -> bytes:
    """Bytes that are nowhere valid: not in a JSON string, nor as UTF-8, nor as the size of a chunk."""
    return b"\x00\xff" + dice.randbytes(dice.choice((1, 7, 200))) + b"\xfe\x01"


def _cut_exchanges(seed: int, dice: random.Random) -> list[Exchange]:
    """This scene's share of all cuts: after every frame, in every manner, for every pair of door and upstream."""
    sizes = {each: len(frames_of(each, _sample("x", random.Random(0)))) for each in UPSTREAMS}
    cuts: list[tuple[Door, str, WireFault, int]] = [
        (door, upstream, manner, frame)
        for door in DOORS
        for upstream in UPSTREAMS
        for manner in _MANNERS
        for frame in range(sizes[upstream])
    ]
    made: list[Exchange] = []
    for number, (door, upstream, manner, frame) in enumerate(cuts[seed % 100 :: FRAME_SCENES]):
        name = f"s{seed}n{number}"
        answer = _sample(name, dice)
        within = dice.choice((0, 0, 1, 9, 40)) if manner != "polite end" else 0
        fault = Fault(kind=manner, link="upstream", frames=frame, at=within)
        is_stream = door == "websocket" or dice.random() < 0.9
        made.append(
            Exchange(
                name=name,
                door=door,
                upstream=upstream,
                answer=answer,
                is_stream=is_stream,
                fault=fault,
            )
        )
    return made


# --- answers ---------------------------------------------------------------------------------------------------------


def _sample(name: str, dice: random.Random) -> Answer:
    """Always the same number of frames: a text in two pieces, a call in three, and one in two."""
    first, second = _arguments(dice), _arguments(dice)
    thirds = (first[: len(first) // 3], first[len(first) // 3 : -1], first[-1:])
    halves = (second[: len(second) // 2], second[len(second) // 2 :])
    return Answer(
        (
            Said(("Let me ", "look.")),
            Tool(f"call_{name}a", dice.choice(NAMES), thirds),
            Tool(f"call_{name}b", dice.choice(NAMES), halves),
        )
    )


def random_answer(name: str, dice: random.Random) -> Answer:
    """Some text, some calls; sometimes calls written as text, or an answer that a limit cuts."""
    words = tuple(dice.choice(_WORDS) for _ in range(dice.randrange(1, 9)))
    if dice.random() < 0.12:
        return _written_answer(dice)
    calls = tuple(
        Tool(f"call_{name}c{number}", dice.choice(NAMES), _pieces(_arguments(dice), dice))
        for number in range(dice.choice((0, 1, 1, 1, 2, 3, 5)))
    )
    texts = (Said(words),) if dice.random() < 0.7 or not calls else ()
    is_cut = not calls and dice.random() < 0.1
    return Answer(
        (*texts, *calls),
        finish="length" if is_cut else "stop",
        interleaved=dice.random() < 0.3,
    )


def _long_answer(name: str, dice: random.Random) -> Answer:
    """More than the buffers of the sockets hold."""
    call = Tool(f"call_{name}l", dice.choice(NAMES), _pieces(_arguments(dice), dice))
    return Answer((Said(tuple("some words and more " * 50 for _ in range(400))), call))


def _written_answer(dice: random.Random) -> Answer:
    """Calls in the text, in the form of Hermes and Qwen."""
    blocks = [
        f'<tool_call>\n{{"name": "{dice.choice(NAMES)}", "arguments": {_arguments(dice)}}}\n</tool_call>'
        for _ in range(dice.choice((1, 2)))
    ]
    return Answer((Said(_pieces("I look.\n" + "\n".join(blocks), dice)),))


def _arguments(dice: random.Random) -> str:
    value = {dice.choice(_KEYS): _value(dice, 0) for _ in range(dice.randrange(0, 5))}
    if dice.random() < _LARGE:
        value["content"] = "".join(dice.choices(_CHARACTERS, k=dice.choice((20_000, 70_000))))
    separators = dice.choice(((",", ":"), (", ", ": "), (" , ", " :  ")))
    return json.dumps(value, ensure_ascii=dice.random() < 0.5, separators=separators)


def _value(dice: random.Random, depth: int) -> object:
    drawn = dice.randrange(8 if depth < 3 else 5)
    if drawn < 2:
        return "".join(dice.choices(_CHARACTERS, k=dice.randrange(40)))
    if drawn < 5:
        return dice.choice((True, False, None, 0, -1, 1e-7, 2**63, 1.5, 10**20))
    if drawn == 5:
        return [_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(_KEYS): _value(dice, depth + 1) for _ in range(dice.randrange(4))}


def _pieces(text: str, dice: random.Random) -> tuple[str, ...]:
    """The text in pieces of at least one character."""
    longest = dice.choice((3, 12, 80, 5000)) if len(text) < 2000 else 2000
    found: list[str] = []
    at = 0
    while at < len(text):
        size = dice.randrange(1, longest + 1)
        found.append(text[at : at + size])
        at += size
    return tuple(found)


_WORDS = (
    "I ",
    "look ",
    "at ",
    "the file. ",
    "Größe ",
    "日本語 ",
    "🙂 ",
    'a "quote" ',
    "back\\slash\n",
)
_KEYS = ("path", "query", "a b", "ключ", "n", 'q"', "data", "id")
_CHARACTERS = 'abc xyz 0123456789{}[]:,"\\/\n\t\x7fäß€語🙂<>&'


def frames_of(upstream: str, answer: Answer) -> list[bytes]:
    """The frames of a streamed answer, each with the blank line that ends it."""
    return [frame + b"\n\n" for frame in stream(upstream, answer).split(b"\n\n")[:-1]]


def answer_bytes(exchange: Exchange, *, is_stream: bool | None = None) -> bytes:
    """The body of the upstream's answer. Its ids are this exchange's alone."""
    streams = exchange.is_stream if is_stream is None else is_stream
    made = stream if streams else body_bytes
    return made(exchange.upstream, exchange.answer).replace(b"vendor", exchange.name.encode())


# --- what the oracle needs -------------------------------------------------------------------------------------------


def sent_of(exchange: Exchange) -> Sent:
    """The calls and the text of the answer."""
    answer = exchange.answer
    text = "".join(part.text for part in answer.parts if isinstance(part, Said))
    written = _written_calls(text)
    if written:
        return Sent(calls=written, text=None)
    calls = tuple(SentCall(call.name, call.arguments, call.call_id) for call in answer.calls)
    return Sent(calls=calls, text=text, is_cut_by_limit=answer.finish == "length")


def _written_calls(text: str) -> tuple[SentCall, ...]:
    found: list[SentCall] = []
    for block in text.split("<tool_call>\n")[1:]:
        body = block.partition("\n</tool_call>")[0]
        name = str(json.loads(body)["name"])
        found.append(SentCall(name, body.partition(', "arguments": ')[2][:-1]))
    return tuple(found)


def circumstances_of(exchange: Exchange, event: Event) -> Circumstances:
    """What the exchange's own fault and the event of its scene allow."""
    fault = exchange.fault
    may_close = event == "kill"
    may_fail = event != "none"
    may_succeed = True
    if fault is not None and fault.link == "client":
        may_close = may_close or fault.kind not in _HARMLESS
        # A request that trickles may be too slow for `server.body_timeout`.
        may_fail = may_fail or may_close or (fault.kind == "trickle" and fault.in_request)
    elif fault is not None:
        may_fail = may_fail or fault.kind not in _HARMLESS
        may_succeed = not _withholds_end(exchange, fault)
    return Circumstances(
        may_fail=may_fail,
        may_close=may_close,
        may_refuse=event == "stop",
        may_succeed=may_succeed,
    )


def _withholds_end(exchange: Exchange, fault: Fault) -> bool:
    """Whether the fault surely keeps the end of the answer from the gateway."""
    if fault.frames is None or not exchange.is_stream:
        return False
    return fault.frames <= _last_needed(frames_of(exchange.upstream, exchange.answer))


def _last_needed(frames: Sequence[bytes]) -> int:
    """The number of the frame that says how the answer ended."""
    marks = (
        b'"finish_reason": "',
        b'"response.completed"',
        b'"response.incomplete"',
        b'"stop_reason": "',
    )
    return next(
        number for number, frame in enumerate(frames) if any(mark in frame for mark in marks)
    )
