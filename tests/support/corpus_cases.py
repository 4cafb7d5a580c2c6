"""The corpus as values: `tests/corpus/<dialect>/<case>/` and `tests/corpus/{requests,bodies,roundtrips}/<case>/`.

A stream case has `meta.toml` (title, origin, what is expected) and `stream.sse`; a body case `body.json`; where both
exist they hold the same answer. `events.jsonl` is the decoded stream, accepted once by a person and compared as a whole
since then (`python -m corpus_cases accept` rewrites it). Corpus bytes are never reformatted.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.stream_decoder import Step
from dragoman.dialects.translate import make_decoder
from dragoman.model.events import Event
from dragoman.model.request import Tool

CORPUS = Path(__file__).parents[1] / "corpus"
DIALECTS = ("chat", "responses", "messages")


class Case(msgspec.Struct, frozen=True):
    name: str
    dialect: str
    folder: Path
    meta: dict[str, Any]

    @property
    def stream(self) -> bytes:
        return (self.folder / "stream.sse").read_bytes()

    @property
    def body(self) -> bytes | None:
        path = self.folder / "body.json"
        return path.read_bytes() if path.exists() else None

    @property
    def golden(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def context(self) -> DecodeContext:
        return DecodeContext(tools=tuple(Tool(name=name) for name in self.meta.get("tools", ())))


class FolderCase(msgspec.Struct, frozen=True):
    """A case of the folders `requests`, `bodies` or `roundtrips`."""

    name: str
    meta: dict[str, Any]
    folder: Path

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def stream_cases() -> list[Case]:
    found: list[Case] = []
    for dialect in DIALECTS:
        for meta in sorted((CORPUS / dialect).glob("*/meta.toml")):
            values = tomllib.loads(meta.read_text(encoding="utf-8"))
            found.append(Case(f"{dialect}/{meta.parent.name}", dialect, meta.parent, values))
    return found


def folder_cases(kind: str) -> list[FolderCase]:
    return [
        FolderCase(meta.parent.name, tomllib.loads(meta.read_text(encoding="utf-8")), meta.parent)
        for meta in sorted((CORPUS / kind).glob("*/meta.toml"))
    ]


def decode(case: Case, reads: list[bytes]) -> tuple[list[Step], list[Event]]:
    decoder = make_decoder(case.dialect, case.context)
    steps = [step for read in reads for step in decoder.feed(read)]
    steps += decoder.close()
    return steps, [event for step in steps for event in step.events]


def golden_bytes(events: list[Event]) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


if __name__ == "__main__" and sys.argv[1:] == ["accept"]:
    for accepted in stream_cases():
        accepted.golden.write_bytes(golden_bytes(decode(accepted, [accepted.stream])[1]))
