"""Losses: things that a target dialect cannot express. Each dialect lists them in a table; every loss is reported.

A table maps a code to its meaning and its default action, which the operator's policy may override: `refuse` (reject the
request), `carry` (send it in a form that the target may not understand, or as text), `drop`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from dragoman._json import Raw
from dragoman.core.fields import NULL, read_json, read_object, read_text
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss, LossAction
from dragoman.model.parts import Dialect, Extra, Opaque, Text
from dragoman.model.request import Namespace, Turn

# Fields of an answer that describe the answer or the server, or repeat the request: no client misses them, so their loss is
# not reported, whichever dialect they come from. In a request the same names are settings, and their loss is reported.
DESCRIPTIVE = frozenset(
    {
        *("system_fingerprint", "service_tier", "provider", "timings", "stats", "object", "kv_transfer_params"),
        *("prompt_logprobs", "prompt_token_ids", "x_groq", "prompt_filter_results"),
        *("background", "billing", "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls"),
        *("metadata", "moderation", "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key"),
        *("prompt_cache_retention", "reasoning", "safety_identifier", "store", "temperature", "text", "tool_choice"),
        *("cache_creation", "prompt_cache_options", "tools", "top_logprobs", "top_p", "truncation", "user", "completed_at", "conversation", "prompt"),
    }
)  # fmt: skip


class LossRule(Struct, frozen=True):
    """`is_reported`: whether a loss by the default action is reported; where it is not, no client misses anything."""

    meaning: str
    action: LossAction
    is_reported: bool = True


LossTable = Mapping[str, LossRule]

REQUEST_LOSSES: LossTable = {
    "background": LossRule(
        "the upstream cannot answer in the background, the client has to wait", "refuse"
    ),
    "conversation": LossRule(
        "the gateway cannot read a conversation that another provider stores, so it would be missing",
        "refuse",
    ),
    "item_reference": LossRule(
        "the gateway cannot read an item that another provider stores, so it would be missing",
        "refuse",
    ),
    "inference_geo": LossRule(
        "the upstream cannot choose where the model runs, and a report after the run would be too late",
        "refuse",
    ),
    "max_tool_calls": LossRule("calls of the provider's own tools are not limited", "drop"),
    "moderation": LossRule("the answer comes without the scores of a moderation model", "drop"),
    "moderation_block": LossRule(
        "content that a moderation model should block would not be blocked", "refuse"
    ),
    "prompt": LossRule(
        "the gateway cannot read a prompt template that another provider stores, so it would be missing",
        "refuse",
    ),
    "tool_definition": LossRule(
        "a result refers to a tool that the request does not declare, or to more definitions than a model can read; only the name is sent",
        "carry",
    ),
    "thread": LossRule(
        "the gateway cannot read a message thread that another provider stores, so it would be missing",
        "refuse",
    ),
    "truncation": LossRule(
        "a conversation that is too long is not shortened; the upstream may refuse it", "drop"
    ),
}
"""Fields of a request that need a rule of their own, other than `unknown_field`; the same for every upstream.

A loss that would change the question (the conversation, the prompt) or break a promise about how it is handled (blocking,
the place) is refused; a loss that only makes the answer less convenient is reported.
"""

# No vendor's object has half as many fields, nor such a long name. Fields beyond these limits are only counted.
MOST_FIELDS = 64
LONGEST_NAME = 128

# Values that equal the default behaviour: dropping them loses nothing.
_IDLE: Mapping[str, object] = {
    "background": False,
    "modalities": ["text"],
    "truncation": "disabled",
}

# Fields of a call or a result that repeat what the vocabulary has: who runs a search for tools (`executor`).
_HELD = frozenset({"execution"})

BUILTIN_FIELDS = frozenset({"type", "name", "description", "parameters"})
"""Fields of the whole object of a built-in tool that `Tool` has too. Nothing of them is lost if the tool becomes a function."""

_NO_RULES: frozenset[tuple[str, LossAction]] = frozenset()


class LossBook(Struct, eq=False):
    """Collects the losses of one request or one answer. Each (code, where) is recorded once.

    may_refuse: false for an answer, which has begun, so that nothing can be refused any more.
    """

    table: LossTable
    policy: Mapping[str, LossAction] | None = None
    may_refuse: bool = True
    noted: dict[tuple[str, str], Loss] = {}

    @property
    def losses(self) -> tuple[Loss, ...]:
        return tuple(self.noted.values())

    def note(self, code: str, where: str = "", detail: str = "") -> LossAction:
        """Record a loss and return the action to take.

        Raises:
            RequestRefused: the policy refuses this loss.
        """
        rule = self.table[code]
        policy = self.policy or {}
        action = policy.get(code, rule.action)
        if action == "refuse" and not self.may_refuse:
            action = "drop"
        if action == "refuse":
            message = f"{where or 'request'}: {rule.meaning}" + (f" ({detail})" if detail else "")
            raise RequestRefused(message, param=where or None, code=code)
        if rule.is_reported or code in policy:
            self.noted.setdefault((code, where), Loss(code, where, action, detail))
        return action

    def fresh(self) -> "LossBook":
        """An empty book with the same rules, for work whose losses are cached together with its result."""
        return LossBook(self.table, self.policy, may_refuse=self.may_refuse)

    def add(self, losses: Iterable[Loss]) -> None:
        """Record the losses of another book with the same rules."""
        for loss in losses:
            self.noted.setdefault((loss.code, loss.where), loss)

    @property
    def rules(self) -> frozenset[tuple[str, LossAction]]:
        """The policy as a hashable key, for caches."""
        return frozenset(self.policy.items()) if self.policy else _NO_RULES


class ForeignNoter(Protocol):
    def __call__(
        self, book: LossBook, extra: Extra | None, where: str, known: Collection[str] = ()
    ) -> None:
        """Report the fields of another dialect as lost, except those that are `known`."""


def foreign_noter(dialect: Dialect) -> ForeignNoter:
    """Return a function that reports, for an encoder of `dialect`, the fields of other dialects that are lost."""

    def note(book: LossBook, extra: Extra | None, where: str, known: Collection[str] = ()) -> None:
        if extra is None or extra.dialect == dialect or not extra.fields:
            return
        if not book.may_refuse:
            # One loss for all names: they come from the upstream, and a stream may have any number of them.
            missed = extra.fields.keys() - DESCRIPTIVE
            if missed:
                book.note("unknown_field", where, ", ".join(sorted(missed)))
            return
        names = [
            name
            for name, value in extra.fields.items()
            if value != NULL and name not in known and name not in _HELD
        ]
        _note_unknown(book, names, where)

    return note


def _note_unknown(book: LossBook, names: Sequence[str], where: str = "") -> None:
    for name in names[:MOST_FIELDS]:
        short = name[:LONGEST_NAME]
        book.note("unknown_field", f"{where}.{short}" if where else short)
    if len(names) > MOST_FIELDS:
        more = f"and {len(names) - MOST_FIELDS} more fields"
        book.note("unknown_field", where or "request", more)


def note_request_fields(book: LossBook, extra: Extra | None, carried: Collection[str] = ()) -> None:
    """Report or refuse the top-level fields of another dialect's request, except those that are `carried`.

    Raises:
        RequestRefused: the policy refuses to drop one of them.
    """
    if extra is None:
        return
    unknown: list[str] = []
    for name, value in extra.fields.items():
        code = None if name in carried else request_field_code(name, value)
        if code == "unknown_field":
            unknown.append(name)
        elif code is not None:
            book.note(code, name)
    _note_unknown(book, unknown)


def request_field_code(name: str, value: Raw) -> str | None:
    """The loss code of a top-level field of a request; None if dropping the value loses nothing."""
    if value == NULL or (name in _IDLE and read_json(value) == _IDLE[name]):
        return None
    if name == "moderation":
        policy = read_object(read_object(value).get("policy"))
        modes = (
            read_text(read_object(policy.get(side)).get("mode")) for side in ("input", "output")
        )
        return "moderation_block" if "block" in modes else name
    if name == "thread" and read_text(read_object(value).get("type")) != "continue":
        return "unknown_field"  # a new thread is still empty
    return name if name in REQUEST_LOSSES else "unknown_field"


def note_namespaces(
    book: LossBook, namespaces: Iterable[Namespace], note_foreign: ForeignNoter
) -> None:
    """Report the descriptions and other fields of namespaces as lost, for a dialect without namespaces."""
    for group in namespaces:
        where = f"namespaces.{group.name}"
        note_foreign(book, group.extra, where)
        if group.description:
            book.note("unknown_field", f"{where}.description")


def note_opaque(book: LossBook, code: str, where: str, part: Opaque) -> Text | None:
    """Report a part that only its own dialect understands, under `code`; an item reference under `item_reference`.

    Returns the text to send instead of it, which is reported under `opaque_text`; None if it has none.
    """
    detail = f"{part.dialect} {part.type}"
    if part.text is not None and book.note("opaque_text", where, detail) == "carry":
        return Text(text=part.text)
    if part.text is None:
        book.note("item_reference" if part.type == "item_reference" else code, where, detail)
    return None


def instruction_texts(
    turn: Turn, where: str, book: LossBook, note_foreign: ForeignNoter
) -> list[str]:
    """The texts of a turn that becomes instructions, which hold only text; reports the rest as lost."""
    note_foreign(book, turn.extra, where)
    texts: list[str] = []
    for part in turn.parts:
        if isinstance(part, Text):
            texts.append(part.text)
            note_foreign(book, part.extra, where)
            if part.cache is not None:
                book.note("cache_control", where)
            if part.annotations:
                book.note("annotation", where, "instructions have no citations")
        elif isinstance(part, Opaque):
            text = note_opaque(book, "opaque_part", where, part)
            texts += [] if text is None else [text.text]
        else:
            book.note("media_input", where, "instructions are text")
    return texts


def answer_book(table: LossTable, policy: Mapping[str, LossAction]) -> LossBook:
    """A book for an answer: the answer has begun when a loss is found, so `refuse` becomes `drop`."""
    return LossBook(table, policy, may_refuse=False)
