"""What a recorded answer holds and what is wrong with it, as plain values. `examine` makes them."""

from msgspec import Struct

from dragoman.inspection.recognise import DialectName, Form
from dragoman.model.outcome import ErrorInfo, FinishReason, Usage
from dragoman.model.parts import CallKind

__all__ = ("CallReport", "ChoiceReport", "ProblemReport", "Report")


class CallReport(Struct, frozen=True, kw_only=True):
    """One call. `deltas`: in how many pieces its arguments came. `reason` is the verdict of `core.calls.judge`.

    `minted`: the recording has no id for it; `id` is the one a translation would give it.
    """

    id: str
    name: str
    namespace: str | None
    kind: CallKind
    arguments: str
    deltas: int
    executable: bool
    reason: str
    choice: int
    minted: bool = False


class ChoiceReport(Struct, frozen=True, kw_only=True):
    """One answer. `native_finish` is the provider's own word; `others` names parts that are none of the rest."""

    index: int
    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    sealed: int = 0
    finish: FinishReason | None = None
    native_finish: str | None = None
    others: tuple[str, ...] = ()


class ProblemReport(Struct, frozen=True, kw_only=True):
    """`line` is where the frame begins in the file, where frames have lines."""

    frame: int
    line: int | None
    kind: str
    message: str


class Report(Struct, frozen=True, kw_only=True):
    dialect: DialectName
    form: Form
    frames: int
    status: int | None
    response_id: str
    model: str
    calls: tuple[CallReport, ...]
    choices: tuple[ChoiceReport, ...]
    usage: Usage | None
    error: ErrorInfo | None
    problems: tuple[ProblemReport, ...]
