"""The run: sends all probes, tries the settings that may help, and keeps those that do.

Settings add up: a probe is sent with the settings that earlier probes needed. A refusal is confirmed by asking again, and a setting
counts only if the request succeeds with it, so a server that fails now and then gets no settings for it. A probe whose result depends
on the model is sent several times, and is *not shown* if the model never does what was asked.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from msgspec import structs

from dragoman.certify import requests
from dragoman.certify.asker import (
    MAX_REQUESTS,
    PATIENCE,
    Asker,
    ProbeAnswer,
    ProbeRequest,
    RunStopped,
)
from dragoman.certify.judgement import ProbeJudgement, answers, examine, short
from dragoman.certify.probes import (
    ALL,
    BASIC,
    CALL,
    CLIENTS,
    CONVERSATION,
    TOOLS,
    FailedProbe,
    Probe,
    Remedy,
    kind_of,
    unwanted_fields,
)
from dragoman.certify.report import CertifyReport, ProbeFinding, Status, value_of
from dragoman.config.check import complete
from dragoman.config.settings import ServerSettings, Settings, UpstreamSettings
from dragoman.core.token_estimate import estimate_tokens
from dragoman.errors import ConfigError, GatewayError
from dragoman.gateway.route import make_upstream
from dragoman.model.parts import Dialect
from dragoman.upstream.http.websocket_pool import ACCEPTED

MANY_TOOLS = 128
"""The most tools that OpenAI accepts; Claude Code with a few MCP servers has as many."""

NO_SUCH_MODEL = "dragoman-certify-no-such-model"

# The upstream may be a gateway like this one, at this gateway's usual port.
_ANY_PORT = ServerSettings(port=0)

# A remedy that depends on the model must help twice within this number of tries.
_PROOFS = 2
_PROOF_TRIES = 3


def probes_for(dialect: Dialect, *, is_quick: bool) -> Iterator[Probe]:
    for probe in (*BASIC, CALL, *TOOLS, *CONVERSATION, *CLIENTS):
        if dialect in probe.kinds and not (is_quick and probe.is_large):
            yield probe


def cost_in_words(settings: UpstreamSettings, *, is_quick: bool) -> str:
    """What a run will cost: at most, and approximately if nothing is wrong."""
    dialect = kind_of(settings)
    asked = [probe.request(dialect) for probe in probes_for(dialect, is_quick=is_quick)]
    asked.append(requests.many_tools(dialect, MANY_TOOLS))
    tokens = sum(estimate_tokens(each.request) for each in asked)
    return (
        f"about {len(asked) + 3} requests if nothing is wrong, at most {MAX_REQUESTS}; about {tokens:,} tokens of input, "
        f"at most {2 * requests.MAX_TOKENS:,} of each answer"
    )


OnFinding = Callable[[ProbeFinding], None]


async def certify(  # noqa: PLR0913 -- an upstream, and how it is asked
    name: str,
    settings: UpstreamSettings,
    model: str,
    environ: Mapping[str, str],
    *,
    patience: float = PATIENCE,
    max_requests: int = MAX_REQUESTS,
    is_quick: bool = False,
    on_finding: OnFinding = lambda _finding: None,
) -> CertifyReport:
    """Send all probes to an upstream of the kind `chat`, `responses` or `messages`. `on_finding` gets each finding at once."""
    asker = Asker(name, model, environ, patience=patience, max_requests=max_requests)
    run = _Run(asker, name, settings, model, on_finding)
    stopped: str | None = None
    try:
        await run.ask_all(environ, is_quick=is_quick)
    except RunStopped as error:
        stopped = str(error)
    finally:
        await asker.close()
    return CertifyReport(
        model=model,
        settings=run.settings,
        findings=tuple(run.findings),
        reasons=run.reasons,
        suggestions=run.suggestions,
        asked=asker.asked,
        input_tokens=asker.input_tokens,
        output_tokens=asker.output_tokens,
        stopped=stopped,
    )


class _Run:
    """The state of one run. `seen`: the last answer to each probe."""

    def __init__(
        self,
        asker: Asker,
        name: str,
        settings: UpstreamSettings,
        model: str,
        on_finding: OnFinding,
    ) -> None:
        self.settings = settings
        self.findings: list[ProbeFinding] = []
        self.reasons: dict[str, str] = {}
        self.suggestions: dict[str, tuple[object, str]] = {}
        self._asker = asker
        self._name = name
        self._model = model
        self._on_finding = on_finding
        self._accepted: set[str] = set()
        self._seen: dict[str, ProbeAnswer] = {}

    @property
    def _dialect(self) -> Dialect:
        return kind_of(self.settings)

    async def ask_all(self, environ: Mapping[str, str], *, is_quick: bool) -> None:
        for probe in BASIC:
            found = await self._examine(probe)
            if found.status == "unhelped":
                raise RunStopped(f"nothing works without {probe.title}: {found.detail}")
        self._judge_usage()
        called = await self._examine(CALL)
        needing = (*TOOLS, *CLIENTS)
        if called.status == "unhelped":
            for probe in needing:
                self._note(probe, "not_tried", "it takes no tools")
        else:
            for probe in TOOLS:
                await self._examine(probe)
            await self._count_tools()
        for probe in CONVERSATION:
            if self._dialect in probe.kinds:
                await self._examine(probe)
        for probe in CLIENTS if called.status != "unhelped" else ():
            if is_quick and probe.is_large:
                self._note(probe, "not_tried", "left out by --quick")
            else:
                await self._examine(probe)
        await self._ask_for_error()
        await self._ask_for_more(environ)

    # --- one probe ----------------------------------------------------------------------------------------------------

    async def _examine(self, probe: Probe) -> ProbeFinding:
        judged = await self._try(probe, self.settings, probe.tries)
        if judged.verdict == "refused" and not self._is_late(probe):
            judged = await self._try(probe, self.settings, 1)
        if judged.verdict == "wrong" and probe.control is not None:
            judged = await self._controlled(probe, probe.control, judged)
        if judged.verdict == "right":
            return self._note(probe, "repaired" if judged.detail else "ok", judged.detail)
        if not self._is_late(probe):
            found = await self._find_remedy(probe, judged)
            if found is not None:
                return found
        if judged.verdict == "absent":
            return self._note(probe, "not_shown", f"{judged.detail}, in {_times(probe.tries)}")
        detail = "; ".join(filter(None, (judged.detail, *self._advice(probe))))
        return self._note(probe, "lacks" if probe.is_optional else "unhelped", detail)

    async def _controlled(
        self, probe: Probe, control: Callable[[Dialect], ProbeRequest], judged: ProbeJudgement
    ) -> ProbeJudgement:
        """The judgement, if the model gets the control right; otherwise the model may just not follow instructions."""
        seen = await self._asker.ask(control(self._dialect), self.settings)
        if examine(probe.judge, seen).verdict == "right":
            return judged
        return ProbeJudgement(
            "absent", "the model does not do what it is asked to do, not even with a short prompt"
        )

    async def _try(self, probe: Probe, settings: UpstreamSettings, tries: int) -> ProbeJudgement:
        """The first judgement that is right, otherwise the last; a refusal is not tried again."""
        judged = ProbeJudgement("absent")
        for _ in range(tries):
            seen = await self._asker.ask(probe.request(self._dialect), settings)
            self._seen[probe.name] = seen
            judged = examine(probe.judge, seen)
            if judged.verdict != "refused":
                self._accepted |= seen.fields
            if judged.verdict in ("right", "refused"):
                break
        return judged

    def _advice(self, probe: Probe) -> Iterator[str]:
        most = self.settings.limits.max_tools
        offered = len(self._seen[probe.name].tools)
        if most is not None and offered > most:
            yield (
                f"it takes {most} tools and this client offers {offered}; Claude Code with ENABLE_TOOL_SEARCH=true offers nine at first"
            )
        else:
            yield probe.advice.get(self._dialect, "")

    def _is_late(self, probe: Probe) -> bool:
        error = self._seen[probe.name].error
        return error is not None and error.kind == "timeout"

    async def _find_remedy(self, probe: Probe, judged: ProbeJudgement) -> ProbeFinding | None:
        failed = FailedProbe(
            seen=self._seen[probe.name],
            settings=self.settings,
            model=self._model,
            accepted=frozenset(self._accepted),
        )
        remedies = [*probe.remedies_for(failed)]
        if probe.may_drop and judged.verdict == "refused":
            remedies += unwanted_fields(failed)
        for remedy in remedies:
            if await self._helps(probe, remedy, judged):
                values = await self._narrowed(probe, remedy, judged, failed.settings)
                return self._adopt(probe, remedy, values, judged)
        return None

    async def _helps(self, probe: Probe, remedy: Remedy, first: ProbeJudgement) -> bool:
        changed = with_values(self._name, self.settings, remedy.values)
        if changed is None or changed == self.settings:
            return False
        if not remedy.needs_answer:
            judged = await self._try(probe, changed, 1)
            # After a refusal it is enough that the request is accepted: the model may still not do what was asked.
            is_accepted = judged.verdict == "absent" and first.verdict == "refused"
            return judged.verdict == "right" or is_accepted
        proofs = 0
        for tried in range(_PROOF_TRIES):
            judged = await self._try(probe, changed, 1)
            proofs += judged.verdict == "right"
            if proofs == _PROOFS:
                return True
            if judged.verdict == "refused" or _PROOF_TRIES - tried - 1 < _PROOFS - proofs:
                return False
        return False

    async def _narrowed(
        self, probe: Probe, remedy: Remedy, first: ProbeJudgement, before: UpstreamSettings
    ) -> Mapping[str, object]:
        """The values of a remedy without the members of its list that are not needed."""
        if not remedy.is_narrowed:
            return remedy.values
        [(key, value)] = remedy.values.items()
        items = list(cast("tuple[str, ...]", value))
        old = set(cast("tuple[str, ...]", value_of(before, key) or ()))
        for item in [each for each in items if each not in old]:
            fewer = tuple(each for each in items if each != item)
            is_last = set(fewer) <= old
            narrower = structs.replace(remedy, values={key: fewer})
            if not is_last and await self._helps(probe, narrower, first):
                items.remove(item)
        return {key: tuple(items)}

    def _adopt(
        self, probe: Probe, remedy: Remedy, values: Mapping[str, object], judged: ProbeJudgement
    ) -> ProbeFinding:
        changed = with_values(self._name, self.settings, values)
        if changed is not None:
            self.settings = changed
        for key in values:
            self.reasons[key] = f"{probe.title}: {judged.detail}; {remedy.effect}"
        return self._note(probe, "setting", judged.detail, values)

    def _note(
        self,
        probe: Probe,
        status: Status,
        detail: str = "",
        settings: Mapping[str, object] | None = None,
    ) -> ProbeFinding:
        return self._found(ProbeFinding(probe.name, probe.title, status, detail, settings or {}))

    def _found(self, finding: ProbeFinding) -> ProbeFinding:
        self.findings.append(finding)
        self._on_finding(finding)
        return finding

    # --- probes that are not one request ------------------------------------------------------------------------------

    def _judge_usage(self) -> None:
        lacking = [
            title
            for name, title in (("text_body", "bodies"), ("text_stream", "streams"))
            if not _has_usage(self._seen[name])
        ]
        finding = ProbeFinding("usage", "token counts", "ok")
        if lacking:
            detail = f"{' and '.join(lacking)} have none: agents cannot see how full the context is"
            finding = structs.replace(finding, status="unhelped", detail=detail)
        self._found(finding)

    async def _count_tools(self) -> None:
        """Find the number of tools that the upstream takes, if it refuses many."""
        probe = structs.replace(CALL, name="many_tools", title=f"{MANY_TOOLS} tools")
        stated = self.settings.limits.max_tools
        most = min(stated or MANY_TOOLS, MANY_TOOLS)
        refusal = await self._refusal_of(most)
        if refusal is None:
            detail = "" if most == MANY_TOOLS else f"it takes {most}, as max_tools says"
            self._note(probe, "ok", detail)
            return
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            if await self._refusal_of(middle) is None:
                low = middle
            else:
                high = middle
        if await self._refusal_of(high) is None:
            self._note(probe, "not_shown", f"refused once, then accepted: {refusal}")
            return
        effect = (
            "the gateway searches where a client defers its tools; other clients must offer fewer"
        )
        remedy = Remedy(values={"limits.max_tools": low}, effect=effect)
        self._adopt(probe, remedy, remedy.values, ProbeJudgement("refused", refusal))

    async def _refusal_of(self, count: int) -> str | None:
        seen = await self._asker.ask(requests.many_tools(self._dialect, count), self.settings)
        if seen.error is None:
            return None
        return short(seen.error.message)

    async def _ask_for_error(self) -> None:
        """Ask for a model that does not exist: clients stop at a clear error, and repeat a request after a vague one."""
        asked = requests.one_word(self._dialect)
        seen = await self._asker.ask(asked, self.settings, NO_SUCH_MODEL, is_vital=False)
        error = seen.error
        status: Status = "ok"
        detail = ""
        if error is None:
            detail = "it answers for any model name"
        elif not 400 <= (error.status or 0) < 500:
            status = "lacks"
            detail = f"an unknown model is answered by {error.status}, which clients take for a temporary failure"
        elif error.raw is None:
            status = "repaired"
            detail = "its errors are not JSON; clients get an error in their own dialect"
        self._found(ProbeFinding("error", "an error", status, detail))

    async def _ask_for_more(self, environ: Mapping[str, str]) -> None:
        """Find out what the upstream also supports: other dialects, WebSockets."""
        others: list[Dialect] = [
            each for each in ALL if each not in (self._dialect, *self.settings.also)
        ]
        spoken: list[str] = []
        for other in others:
            settings = structs.replace(self.settings, also=(*self.settings.also, other))
            asked = requests.one_word(other)
            seen = await self._asker.ask(asked, settings, is_vital=False)
            if examine(answers, seen).verdict == "right":
                spoken.append(other)
        if spoken:
            why = "it speaks these too; with this setting, clients of these dialects are served without translation"
            self.suggestions["also"] = ((*self.settings.also, *spoken), why)
        detail = f"it speaks {', '.join(spoken)} too" if spoken else "it speaks no other"
        self._found(ProbeFinding("also", "other dialects", "ok", detail))
        if self._dialect == "responses" and not self.settings.never_stream:
            await self._try_websocket(environ)

    async def _try_websocket(self, environ: Mapping[str, str]) -> None:
        try:
            upstream = make_upstream(
                self._name, structs.replace(self.settings, websocket=True), environ
            )
        except GatewayError:
            return
        is_there = False
        try:
            async with asyncio.timeout(self._asker.patience):
                is_there = (await upstream.check()).detail.endswith(ACCEPTED)
        except TimeoutError:
            pass  # counts as a refusal
        finally:
            await upstream.close()
        if is_there and not self.settings.websocket:
            why = "it accepts WebSockets: each turn sends only what is new"
            self.suggestions["websocket"] = (True, why)
        found: tuple[Status, str] = ("ok", "") if is_there else ("lacks", "it speaks HTTP only")
        self._found(ProbeFinding("websocket", "WebSockets", *found))


def _has_usage(seen: ProbeAnswer) -> bool:
    usage = None if seen.outcome is None else seen.outcome.usage
    return usage is not None and bool(usage.input) and bool(usage.output)


def _times(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def with_values(
    name: str, settings: UpstreamSettings, values: Mapping[str, object]
) -> UpstreamSettings | None:
    """The settings with these values; None if they cannot work together."""
    limits: dict[str, object] = {}
    losses: dict[str, object] = {}
    plain: dict[str, object] = {}
    tables = {"limits": limits, "losses": losses, "": plain}
    for key, value in values.items():
        table, _, own = key.rpartition(".")
        tables[table][own] = value
    if limits:
        plain["limits"] = structs.replace(settings.limits, **limits)
    if losses:
        plain["losses"] = {**settings.losses, **losses}
    changed = structs.replace(settings, **plain)
    try:
        complete(Settings(server=_ANY_PORT, upstreams={name: changed}))
    except ConfigError:
        return None
    return changed
