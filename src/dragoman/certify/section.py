"""Writes the result of a run as a section of `dragoman.toml`, with a reason for each setting, and the whole report as JSON. Pure."""

from collections.abc import Callable, Iterator
from textwrap import wrap

from msgspec import structs

from dragoman._json import dumps_document
from dragoman.certify.run import CertifyReport, value_of
from dragoman.config.values import key_path, toml_value
from dragoman.inspection.terminal_text import visible_line

# Columns of a comment, without its sign.
_WIDTH = 110


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
