"""A gate before a tool: it refuses what the policy denies, asks for approval where the policy says so, and then calls the tool.

A refusal is a `ToolError` that the model can read. Without a function to ask, calls that need approval are refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct, structs

from dragoman.core.aliases import flat_name
from dragoman.engine.approval import Approval, FileChange, Policy, Subject
from dragoman.engine.tools import Invocation, Offer, Output, Tool
from dragoman.errors import ToolError
from dragoman.model.parts import Call


class GateRefusal(Struct, frozen=True):
    """No, and why: the model reads the reason."""

    reason: str


Consent = bool | Literal["always", "tool", "never"] | GateRefusal
"""`always`: allow the same call from now on. `tool`: allow every call of this tool that is not denied from now on. `never`:
refuse every call of this tool from now on.
"""

Ask = Callable[[Approval], Awaitable[Consent]]
"""Asks a person whether a call may run."""
Preview = Callable[[Call], Awaitable[Sequence[FileChange]]]

# People may take a night to answer; the time limit of the tool starts when it runs.
WAIT_SECONDS = 86_400.0
# For tools without a time limit: the engine's default.
RUN_SECONDS = 600.0


async def say_yes(approval: Approval) -> Consent:
    """For `--yes`: allow every call, but refuse one that a rule might deny if its commands could be determined."""
    return not approval.may_be_denied


class Gate:
    """A policy, a function to ask for approval, and the permanent answers. It asks one question at a time."""

    def __init__(self, policy: Policy, ask: Ask | None) -> None:
        self._policy = policy
        self._ask = ask
        self._asking: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._tools: set[str] = set()
        self._never: set[str] = set()
        self._known: set[tuple[str, tuple[Subject, ...], str]] = set()

    async def check(
        self, tool: str, call: Call, subjects: tuple[Subject, ...], preview: Preview | None = None
    ) -> None:
        """Return if the call may run. `preview`: what it would do to files, for the one who is asked.

        Raises:
            ToolError: the call may not run.
        """
        judgement = self._policy.judge(tool, subjects)
        because = "by default" if judgement.rule is None else f"by the rule {str(judgement.rule)!r}"
        if judgement.verdict == "deny":
            raise ToolError(
                f"{tool} is denied here {because}. Do not try it another way; say what you need and why."
            )
        approval = Approval(
            tool=tool,
            call=call,
            subjects=subjects,
            rule=judgement.rule,
            unseen=judgement.unseen,
            may_be_denied=judgement.may_be_denied,
        )
        if judgement.verdict == "allow" or self._is_known(approval):
            return
        because = f"because {judgement.unseen}" if judgement.unseen else because
        if self._ask is None:
            raise ToolError(
                f"{tool} needs approval {because}, and nobody can be asked: it was not run."
            )
        async with self._lock():
            # The answer to the previous question may cover this call.
            if self._is_known(approval):
                return
            self._check_never(tool)
            answer = await self._ask(await _with_changes(approval, preview))
        if answer == "tool":
            self._tools.add(tool)
        elif answer == "always":
            self._known.add(_key(approval))
        elif answer == "never":
            self._never.add(tool)
            self._check_never(tool)
        elif isinstance(answer, GateRefusal):
            raise ToolError(
                f"the user refused this call of {tool}: it was not run. The user's reason: {answer.reason}"
            )
        if not answer and approval.may_be_denied:
            raise ToolError(
                f"this call of {tool} was refused: {approval.unseen}, and some commands are denied here. "
                "It was not run. Write the command so that all of it can be seen."
            )
        if not answer:
            raise ToolError(f"the user refused this call of {tool}: it was not run.")

    def _check_never(self, tool: str) -> None:
        if tool in self._never:
            raise ToolError(
                f"the user refuses every call of {tool}: it was not run. Do not try it another way."
            )

    def _lock(self) -> asyncio.Lock:
        """The lock that orders the questions. Each event loop has its own."""
        loop = asyncio.get_running_loop()
        if self._asking is None or self._asking[0] is not loop:
            self._asking = (loop, asyncio.Lock())
        return self._asking[1]

    def _is_known(self, approval: Approval) -> bool:
        # Approval of a whole tool does not cover calls that may be denied.
        is_allowed = approval.tool in self._tools and not approval.may_be_denied
        return is_allowed or _key(approval) in self._known


async def _with_changes(approval: Approval, preview: Preview | None) -> Approval:
    if preview is None:
        return approval
    try:
        return structs.replace(approval, changes=tuple(await preview(approval.call)))
    except ToolError:
        # The call will fail. Its error may quote a file, so the model gets it only after the approval.
        return approval


def _key(approval: Approval) -> tuple[str, tuple[Subject, ...], str]:
    """The key of a permanent answer. It includes the arguments: the same command in another folder is another call."""
    is_command = any(subject.kind == "command" for subject in approval.subjects)
    return approval.tool, approval.subjects, approval.call.input if is_command else ""


@runtime_checkable
class _NamesSubjects(Protocol):
    """A tool that names the subjects of a call for the policy."""

    def subjects(self, call: Call) -> Sequence[Subject]: ...


@runtime_checkable
class _ShowsChanges(Protocol):
    """A tool that can say beforehand what a call would do to files."""

    async def preview(self, call: Call) -> Sequence[FileChange]: ...


def _subjects_of(tool: Tool, call: Call) -> tuple[Subject, ...]:
    """The subjects of a call.

    Raises:
        ToolError: the arguments do not fit, or a path leads out of the root.
    """
    if isinstance(tool, _NamesSubjects):
        return tuple(tool.subjects(call))
    return (Subject("input", call.input),)


class GuardedTool:
    """A tool behind a gate. `inner`: the tool itself."""

    def __init__(self, tool: Tool, gate: Gate) -> None:
        self.inner = tool
        self._gate = gate

    @property
    def offer(self) -> Offer:
        return structs.replace(self.inner.offer, timeout=WAIT_SECONDS)

    async def run(self, invocation: Invocation) -> Output:
        tool, call = self.inner, invocation.call
        declaration = tool.offer.declaration
        name = flat_name(declaration.name, declaration.namespace)
        subjects = _subjects_of(tool, call)
        preview = tool.preview if isinstance(tool, _ShowsChanges) else None
        await self._gate.check(name, call, subjects, preview)
        if _subjects_of(tool, call) != subjects:
            # A link was changed while a person was asked.
            raise ToolError(
                f"a path of this call of {name} leads elsewhere now: it was not run. Call it again."
            )
        seconds = RUN_SECONDS if tool.offer.timeout is None else tool.offer.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await tool.run(invocation)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ToolError(
                f"{declaration.name} took more than {seconds:g} s and was ended"
            ) from error


def guarded(tool: Tool, policy: Policy | Gate, ask: Ask | None = None) -> GuardedTool:
    """Put a gate before a tool. Tools that share a gate share its permanent answers."""
    return GuardedTool(tool, policy if isinstance(policy, Gate) else Gate(policy, ask))
