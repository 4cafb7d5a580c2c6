"""What a dialect cannot say is a Loss: declared in its table, decided by policy, reported always.

A table maps a code to what it means and what is done unless the operator's policy says otherwise: `refuse` (the
request is rejected), `carry` (it travels in a form the target may not understand, or in-band), `drop`.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss, LossAction
from dragoman.model.parts import Dialect, Extra, Text
from dragoman.model.request import Turn

__all__ = (
    "LossBook",
    "LossRule",
    "LossTable",
    "answer_book",
    "foreign_fields",
    "foreign_noter",
    "instruction_texts",
)


# Fields with which answers describe themselves and the server, or repeat the request: their absence costs nobody anything.
# They are known by name, whoever's they are, so that what is reported is what somebody may miss.
DESCRIPTIVE = frozenset(
    {
        *("system_fingerprint", "service_tier", "provider", "timings", "stats", "object", "kv_transfer_params"),
        *("prompt_logprobs", "prompt_token_ids", "x_groq", "prompt_filter_results"),
        *("background", "billing", "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls"),
        *("metadata", "moderation", "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key"),
        *("prompt_cache_retention", "reasoning", "safety_identifier", "store", "temperature", "text", "tool_choice"),
        *("tools", "top_logprobs", "top_p", "truncation", "user", "completed_at", "conversation", "prompt"),
    }
)  # fmt: skip


class LossRule(Struct, frozen=True):
    meaning: str
    action: LossAction


LossTable = Mapping[str, LossRule]

_NO_RULES: frozenset[tuple[str, LossAction]] = frozenset()


class LossBook:
    """Collects the losses of one request or one answer. Each (code, where) is noted once."""

    def __init__(
        self,
        table: LossTable,
        policy: Mapping[str, LossAction] | None = None,
        *,
        may_refuse: bool = True,
    ) -> None:
        self._table = table
        self._policy = policy or {}
        self._may_refuse = may_refuse
        self._noted: dict[tuple[str, str], Loss] = {}

    @property
    def losses(self) -> tuple[Loss, ...]:
        return tuple(self._noted.values())

    def note(self, code: str, where: str = "", detail: str = "") -> LossAction:
        """Record a loss and say what to do about it.

        Raises:
            RequestRefused: the policy refuses what this code stands for.
        """
        rule = self._table[code]
        action = self._policy.get(code, rule.action)
        if action == "refuse" and not self._may_refuse:
            action = "drop"
        if action == "refuse":
            message = f"{where or 'request'}: {rule.meaning}" + (f" ({detail})" if detail else "")
            raise RequestRefused(message, param=where or None, code=code)
        self._noted.setdefault((code, where), Loss(code, where, action, detail))
        return action

    def fresh(self) -> "LossBook":
        """An empty book by the same rules, for work whose losses are remembered with what it made."""
        return LossBook(self._table, self._policy, may_refuse=self._may_refuse)

    def add(self, losses: Iterable[Loss]) -> None:
        """Record what another book by the same rules has noted."""
        for loss in losses:
            self._noted.setdefault((loss.code, loss.where), loss)

    @property
    def rules(self) -> frozenset[tuple[str, LossAction]]:
        """What of the policy may differ from book to book, as a key."""
        return frozenset(self._policy.items()) if self._policy else _NO_RULES


def foreign_fields(extra: Extra | None, dialect: Dialect) -> str:
    """The fields of another dialect that somebody may miss, for a report; empty if there are none."""
    if extra is None or extra.dialect == dialect or not extra.fields:
        return ""
    return ", ".join(sorted(extra.fields.keys() - DESCRIPTIVE))


def foreign_noter(dialect: Dialect) -> Callable[["LossBook", Extra | None, str], None]:
    """What declares, for an encoder of `dialect`, the fields of another that stay behind and may be missed."""

    def note(book: LossBook, extra: Extra | None, where: str) -> None:
        fields = foreign_fields(extra, dialect)
        if fields:
            book.note("unknown_field", where, fields)

    return note


def instruction_texts(turn: Turn, where: str, book: LossBook) -> list[str]:
    """The texts of a turn that becomes instructions, which are nothing but text."""
    texts: list[str] = []
    for part in turn.parts:
        if isinstance(part, Text):
            texts.append(part.text)
            if part.cache is not None:
                book.note("cache_control", where)
        else:
            book.note("media_input", where, "instructions are text")
    return texts


def answer_book(table: LossTable, policy: Mapping[str, LossAction]) -> LossBook:
    """A book for answers: they have begun when a loss turns up, and what it is too late to refuse is dropped."""
    return LossBook(table, policy, may_refuse=False)
