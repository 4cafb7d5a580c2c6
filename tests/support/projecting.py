"""What the projections share: the book of demanded losses, answers as stories, and what no dialect promises."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from dragoman._json import Raw, escape_separators, loads, raw
from dragoman.core.fold import fold
from dragoman.core.losses import DESCRIPTIVE
from dragoman.model.events import (
    Event,
    LimitsReported,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    Started,
    UsageReported,
)
from dragoman.model.outcome import Choice, ErrorInfo, Outcome, Usage
from dragoman.model.parts import (
    Annotation,
    Dialect,
    Extra,
    Opaque,
    Part,
    Reasoning,
    Result,
    Seal,
    Text,
)

NORMALISED: Mapping[str, str] = {
    "one line": "raw JSON keeps its tokens; white space around it goes, line ends in it become spaces, and U+2028, "
    "U+2029 and U+0085 become escapes, because SSE clients split there",
    "null": "a field that is null and one that is not there mean the same everywhere",
    "ids": "an item's id is its identity in its own dialect: one without items has no place for it, and one that "
    "demands a prefix mints another",
    "citation": "a citation crosses dialects by its address, title, quotation and place; its raw form is its own "
    "dialect's, and places and titles that a type demands are filled in",
    "total": "the total of the tokens is their sum: a dialect may leave it out, or demand it",
    "zero": "a count or a time that a dialect demands is 0 where nobody stated it",
    "created": "Messages does not say when an answer was made",
    "silence": "a text, refusal or reasoning without text, citation or seal has no form in some dialects",
    "failure": "a stream that failed tells its parts and its error; what is told only at a regular end (finish, usage, "
    "extra fields) is not, and neither is how far a part had come",
    "error": "an error is told in the dialect's own words: kinds that share a word are told apart by their code only, "
    "and a code that has no field is the dialect's own word for the kind; the HTTP status is the caller's",
    "progress": "where a provider is, is no part of the answer: `fold` leaves it out",
    "summary": "a dialect that does not tell summaries from the thoughts themselves says `summary`",
    "message": "Chat has no order of parts but that of its deltas: texts (refusals, thoughts, sounds) that follow each "
    "other are one",
    "status": "Chat and Messages say how far a call came by the finish alone: the last call of a cut answer counts as "
    "cut in Chat, and as whole in Messages if its JSON is; nothing else has a status there",
    "tool names": "a provider's own tool goes by the vendor's name and by one id, that of its item",
    "refusal": "Messages says by its stop reason that a text is a refusal",
    "echo": "Responses says again what the request said, and its items have fields that must be there: filled in where "
    "nobody stated them; details of usage are kept as an object beside the counts in them",
    "code": "a provider's code tool takes bare code in one dialect and an object with it in another; a search crosses by "
    "its query, a fetch by its address",
    "cut call": "what follows a call that was cut is told when the answer ends, not if it fails; Messages fails rather "
    "than show a cut call that looks whole in front of another block",
}
"""What a crossing may change without being a loss, and why."""


@dataclass
class Book:
    """The codes that a projection demands."""

    dialect: Dialect
    codes: set[str] = field(default_factory=set[str])

    def note(self, code: str) -> None:
        self.codes.add(code)

    def own(self, extra: Extra | None, code: str = "unknown_field") -> Extra | None:
        """The fields of the dialect's own; those of another are a loss, unless they only describe the answer."""
        if extra is None or extra.dialect == self.dialect:
            return settle_extra(extra)
        if extra.fields.keys() - DESCRIPTIVE:
            self.note(code)
        return None

    def lose(self, extra: Extra | None, code: str = "unknown_field") -> None:
        """Fields that have no place here, whoever's they are."""
        if extra is not None and extra.fields:
            self.note(code)


@dataclass(frozen=True)
class Projection:
    """What must come back, and which losses must have been reported."""

    outcome: Outcome
    codes: frozenset[str]


@dataclass
class Story:
    """One part: its value, and what its deltas say beyond the value."""

    value: Part
    thoughts: list[ReasoningDelta] = field(default_factory=list[ReasoningDelta])
    has_output: bool = False


class Answer:
    """A whole answer, from its events. `stories` has the parts of each choice in order."""

    def __init__(self, events: Iterable[Event]) -> None:
        found = tuple(events)
        self.outcome = fold(found)
        self.has_started = any(isinstance(event, Started) for event in found)
        self.usages = [event.usage for event in found if isinstance(event, UsageReported)]
        self.has_limits = any(isinstance(event, LimitsReported) for event in found)
        self.has_part_progress = any(
            isinstance(event, Progress) and event.part is not None for event in found
        )
        self.stories: dict[int, list[Story]] = {choice.index: [] for choice in self.outcome.choices}
        by_part: dict[int, Story] = {}
        for event in found:
            match event:
                case PartStarted():
                    by_part[event.part] = Story(event.header)
                    self.stories[event.choice].append(by_part[event.part])
                case PartEnded():
                    by_part[event.part].value = event.value
                case ReasoningDelta():
                    by_part[event.part].thoughts.append(event)
                case OutputDelta():
                    by_part[event.part].has_output = True
                case _:
                    pass

    @property
    def has_failed(self) -> bool:
        return self.outcome.error is not None


def settle(outcome: Outcome, ids: frozenset[str] = frozenset()) -> Outcome:
    """An answer without what no dialect promises. `ids`: the item ids that were not minted on the way."""
    return replace(
        outcome,
        choices=tuple(
            replace(
                choice,
                parts=tuple(_settle_part(part, ids) for part in choice.parts),
                finish_extra=settle_extra(choice.finish_extra),
            )
            for choice in outcome.choices
        ),
        usage=_settle_usage(outcome.usage),
        error=_settle_error(outcome.error),
        started_extra=settle_extra(outcome.started_extra),
        completed_extra=settle_extra(outcome.completed_extra),
    )


def settle_raw(value: Raw) -> Raw:
    """Raw JSON as it stands on one line of an SSE stream."""
    line = bytes(value).strip().replace(b"\n", b" ").replace(b"\r", b" ")
    return Raw(escape_separators(line))


def settle_extra(extra: Extra | None) -> Extra | None:
    if extra is None:
        return None
    fields = {
        name: raw
        for name, value in sorted(extra.fields.items())
        if bytes(raw := settle_raw(value)) != b"null"
    }
    return Extra(extra.dialect, fields) if fields else None


def without_fields(extra: Extra | None, *names: str) -> Extra | None:
    if extra is None:
        return None
    rest = {name: raw for name, raw in extra.fields.items() if name not in names}
    return Extra(extra.dialect, rest) if rest else None


def _settle_part(part: Part, ids: frozenset[str]) -> Part:
    item_id = part.item_id if part.item_id in ids else None
    if isinstance(part, Opaque):
        return replace(part, raw=settle_raw(part.raw), item_id=item_id)
    part = replace(part, item_id=item_id, extra=settle_extra(part.extra))
    if isinstance(part, Text):
        return replace(
            part,
            annotations=tuple(_settle_annotation(each) for each in part.annotations),
            logprobs=_settle_logprobs(part.logprobs),
            item_extra=settle_extra(part.item_extra),
        )
    if isinstance(part, Reasoning):
        return replace(part, seals=tuple(Seal(seal.kind, seal.data) for seal in part.seals))
    if isinstance(part, Result):
        content = tuple(_settle_content(each) for each in part.content)
        return replace(part, content=content)
    return part


def _settle_logprobs(logprobs: Raw | None) -> Raw | None:
    """Arrays of several deltas are joined: their entries count, not the space between them."""
    return None if logprobs is None else raw(loads(bytes(logprobs)))


def _settle_content(part: Part) -> Part:
    return _settle_part(part, frozenset())


def _settle_annotation(annotation: Annotation) -> Annotation:
    return replace(annotation, raw=settle_raw(annotation.raw))


def _settle_usage(usage: Usage | None) -> Usage | None:
    return None if usage is None else replace(usage, extra=settle_extra(usage.extra))


def _settle_error(error: ErrorInfo | None) -> ErrorInfo | None:
    """What an error says. Where it came from, and its raw form, only its own dialect knows."""
    if error is None:
        return None
    return ErrorInfo(kind=error.kind, message=error.message, code=error.code)


def failed(outcome: Outcome) -> Outcome:
    """Return the contents of a failed stream: its header, its parts, its error."""
    return Outcome(
        response_id=outcome.response_id,
        model=outcome.model,
        created=outcome.created,
        started_extra=outcome.started_extra,
        choices=tuple(
            Choice(index=choice.index, parts=choice.parts)
            for choice in outcome.choices
            if choice.parts
        ),
        error=outcome.error,
    )
