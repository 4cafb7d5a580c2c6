"""Damaged copies of real bytes: cut, doubled, swapped and flipped, and JSON values replaced by values of other types."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

ODD_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1e300,
    "",
    "x",
    [],
    {},
    [None],
    [[]],
    {"type": None},
    "\ud83d",
    "{",
    10**30,
]
ODD_BYTES = [
    b"\xff",
    b"\r",
    b"\n\n",
    b"\x00",
    b"{",
    b"}",
    b'"',
    b"\\ud83d",
    b"\xe2\x80\xa8",
    b": ",
    b"[DONE]",
]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.randrange(1, 40))
        match rng.randrange(5):
            case 0:
                data = data[:start] + data[end:]
            case 1:
                data = data[:start] + data[start:end] * 2 + data[end:]
            case 2:
                data = data[:start] + rng.choice(ODD_BYTES) + data[start:]
            case 3:
                data = data[:start] + rng.randbytes(end - start) + data[end:]
            case _:
                data = data[:start]
    return data


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) inside a JSON value."""
    entries: list[tuple[Any, Any]] = []
    if hasattr(value, "items"):
        entries = list(value.items())
    elif hasattr(value, "append"):
        entries = [(index, value[index]) for index in range(len(value))]
    for key, item in entries:
        yield value, key
        yield from places(item)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """The value with one place in it changed: replaced, removed, renamed or doubled."""
    holders = list(places(value))
    if not holders:
        return deepcopy(rng.choice(ODD_VALUES))
    holder, key = rng.choice(holders)
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(key, int):
            holder.append(holder[key])
        case 2 if isinstance(key, str):
            holder[key + "x"] = holder.pop(key)
        case _:
            holder[key] = deepcopy(rng.choice(ODD_VALUES))
    return value


def mutate_body(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    value = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        value = mutate_json(value, rng)
    return json.dumps(value).encode()


def mutate_stream(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    frames = data.split(b"\n\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(frames))
        head, mark, payload = frames[at].partition(b"data: ")
        match rng.randrange(5):
            case 0:
                del frames[at]
            case 1:
                frames.insert(rng.randrange(len(frames) + 1), frames[at])
            case 2:
                other = rng.randrange(len(frames))
                frames[at], frames[other] = frames[other], frames[at]
            case _ if mark and payload.startswith(b"{") and b"\n" not in payload:
                value = mutate_json(json.loads(payload), rng)
                frames[at] = head + mark + json.dumps(value).encode()
            case _:
                pass
        if not frames:
            break
    return b"\n\n".join(frames)
