"""The report of a run: as values, as a section of `dragoman.toml` with a reason for each setting, and as JSON. Pure."""

from collections.abc import Callable, Iterator, Mapping
from textwrap import wrap
from typing import Literal, cast

from msgspec import Struct, field, structs

from dragoman._json import dumps_document
from dragoman.config.settings import UpstreamSettings
from dragoman.config.values import key_path, toml_value
from dragoman.inspection.terminal_text import visible_line

# Columns of a comment, without its sign.
_WIDTH = 110

Status = Literal["ok", "repaired", "setting", "lacks", "unhelped", "not_shown", "not_tried"]


class ProbeFinding(Struct, frozen=True):
    """The result of one probe.

    ok          it works
    repaired    it is irregular, and the gateway repairs it by itself
    setting     it works with `settings`
    lacks       it does not work, but the usual clients do not need it
    unhelped    it does not work, and no setting helps
    not_shown   the model did not do it, so nothing is known
    not_tried   an earlier finding makes it pointless, or the run had to end
    """

    name: str
    title: str
    status: Status
    detail: str = ""
    settings: Mapping[str, object] = field(default_factory=dict[str, object])


class CertifyReport(Struct, frozen=True, kw_only=True):
    """The result of a run. settings: those that the upstream needs. reasons: why, by key. suggestions: settings that are not needed.

    stopped: why the run ended early.
    """

    model: str
    settings: UpstreamSettings
    findings: tuple[ProbeFinding, ...]
    reasons: Mapping[str, str]
    suggestions: Mapping[str, tuple[object, str]]
    asked: int
    input_tokens: int
    output_tokens: int
    stopped: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the upstream works with the settings that the run began with."""
        bad = ("setting", "unhelped")
        return self.stopped is None and not any(each.status in bad for each in self.findings)


def value_of(settings: UpstreamSettings, key: str) -> object:
    """The value of a key; keys of these tables begin with `limits.` or `losses.`."""
    table, _, name = key.rpartition(".")
    if table == "losses":
        return settings.losses.get(name)
    return cast("object", getattr(settings.limits if table else settings, name))


def section(
    name: str, report: CertifyReport, *, is_new: bool = True, hide: Callable[[str], str] = str
) -> str:
    """The section of an upstream, valid TOML; empty if nothing is to be added.

    is_new: with its address; otherwise only the additions to the existing section. hide: hides secrets in the reasons, which
    quote the upstream.
    """
    if not is_new and not report.reasons and not report.suggestions:
        return ""
    path = key_path("upstreams", name)
    lines = [f"[{path}]"]
    if is_new:
        lines = [*_comment(f"Found by `dragoman certify`, with the model {report.model}."), *lines]
        lines += _address(report)
    plain = [key for key in report.reasons if "." not in key]
    for key in plain:
        lines += _setting(key, report, hide)
    for key, (value, why) in report.suggestions.items():
        lines += [*_comment(why), f"# {key} = {toml_value(value)}"]
    for table in ("limits", "losses"):
        keys = [key for key in report.reasons if key.startswith(f"{table}.")]
        if keys:
            lines += ["", f"[{path}.{table}]"]
            lines += [line for key in keys for line in _setting(key, report, hide)]
    return "\n".join(lines) + "\n"


def _address(report: CertifyReport) -> Iterator[str]:
    settings = report.settings
    yield f"kind = {toml_value(settings.kind)}"
    yield f"base_url = {toml_value(settings.base_url)}"
    if settings.api_key_env is not None:
        yield f"api_key_env = {toml_value(settings.api_key_env)}"


def _setting(key: str, report: CertifyReport, hide: Callable[[str], str]) -> Iterator[str]:
    yield from _comment(hide(report.reasons[key]))
    name = key.rpartition(".")[2]
    yield f"{key_path('', name)} = {toml_value(value_of(report.settings, key))}"


def _comment(text: str) -> list[str]:
    """A comment in lines, without control characters: TOML allows none, and they should not reach a terminal."""
    return [f"# {line}" for line in wrap(visible_line(text), _WIDTH)]


def to_json(name: str, report: CertifyReport, text: str) -> bytes:
    """The report for a program. text: the section."""
    return dumps_document(
        {
            "upstream": name,
            "kind": report.settings.kind,
            "model": report.model,
            "is_clean": report.is_clean,
            "stopped": report.stopped,
            "requests": report.asked,
            "input_tokens": report.input_tokens,
            "output_tokens": report.output_tokens,
            "findings": [structs.asdict(finding) for finding in report.findings],
            "settings": {key: value_of(report.settings, key) for key in report.reasons},
            "section": text,
        }
    )
