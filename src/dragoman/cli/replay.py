"""`dragoman replay`: sends recorded requests again, and shows what differs in the calls of the answers."""

import argparse
import http.client
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.cli.options import Options, add_config_option, add_upstream_options
from dragoman.cli.screen import CLEAN, PROBLEMS, show, write
from dragoman.cli.trust import ask_for_trust
from dragoman.config.read import Flags, load_checked_settings
from dragoman.config.settings import InspectSettings, Settings, StoreSettings
from dragoman.errors import GatewayError, RequestRefused
from dragoman.inspection.exchange import RecordedAnswer, RecordedExchange, TimedBytes
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.replay import CallDifference, compare_answers, request_again
from dragoman.inspection.terminal_text import cut_to, visible_line
from dragoman.model.parts import Dialect
from dragoman.recordings import read_recordings

SUMMARY = "send recorded requests again, and show what differs in the calls"

_READ = 64 * 1024
# Seconds without a byte: reasoning models think for minutes before the first.
_TIMEOUT = 600.0
_MAX_SHOWN = 100  # characters of a value on the screen; --json has all


class Replayed(Struct, frozen=True):
    """A recording whose request was sent again. `error`: why there is nothing to compare."""

    name: str
    differences: list[CallDifference]
    error: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit code: 0 the calls are the same, 1 they differ, 2 nothing could be sent. Prose, ids and usage may differ. "
        "Arguments that are the same JSON in another spelling are shown, but count as a difference only with --bytes."
    )
    parser.add_argument("folder", metavar="DIR", help="a recording, or a folder of recordings")
    add_config_option(parser)
    add_upstream_options(parser.add_argument)
    parser.add_argument("--model", help="the model to ask for (default: the recorded one)")
    parser.add_argument(
        "--bytes", action="store_true", help="the arguments must have the same bytes"
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON lines")
    parser.set_defaults(run=_replay)


def _replay(options: Options) -> int:
    flags = Flags(upstream=options.upstream, key_env=options.key_env)
    settings = _alone(load_checked_settings(options.config, os.environ, flags, ask_for_trust))
    from dragoman.server.run import serving  # noqa: PLC0415 - needs the gateway's dependencies

    code = CLEAN
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        url = ""
        for name, exchange in read_recordings(Path(options.folder)):
            url = url or stack.enter_context(serving(settings, log))
            replayed = _send(url, name, exchange, options.model)
            _print(replayed, is_json=options.json)
            if replayed.error is not None or _differs(replayed, is_exact=options.bytes):
                code = PROBLEMS
    return code


def _alone(settings: Settings) -> Settings:
    """The settings for a gateway of this command: on a free port of this machine, without keys, storing nothing."""
    server = structs.replace(settings.server, host="127.0.0.1", port=0, workers=1, api_keys=())
    server = structs.replace(server, shutdown_grace=0.0, cors_origins=())
    return structs.replace(
        settings,
        server=server,
        keys={},
        inspect=InspectSettings(capture="off"),
        store=StoreSettings(url="memory:"),
    )


def _send(url: str, name: str, exchange: RecordedExchange, model: str | None) -> Replayed:
    exchange = _with_client(exchange)
    dialect = exchange.dialect
    try:
        body = request_again(exchange, dialect, model)
        answer = _ask(url, _PATHS[dialect], body)
    except (GatewayError, OSError, http.client.HTTPException, KeyError) as error:
        return Replayed(name, [], f"it could not be sent again: {error}")
    return Replayed(name, compare_answers(exchange.answer, answer, dialect))


_PATHS: dict[Dialect, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


def _with_client(exchange: RecordedExchange) -> RecordedExchange:
    """A recording without a client is the recording of an upstream: the client's request is that of the upstream."""
    if exchange.body or not exchange.attempts:
        return exchange
    attempt = exchange.attempts[-1]
    answer = attempt.answer or RecordedAnswer()
    return structs.replace(exchange, dialect=attempt.dialect, body=attempt.body, answer=answer)


def _ask(url: str, path: str, body: bytes) -> RecordedAnswer:
    if not body:
        raise RequestRefused("the recording has no request")
    client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=_TIMEOUT)
    began = monotonic()
    try:
        client.request("POST", path, body, {"content-type": "application/json"})
        reply = client.getresponse()
        pieces: list[TimedBytes] = []
        while data := reply.read1(_READ):
            pieces.append(TimedBytes((monotonic() - began) * 1000, data))
        return RecordedAnswer(status=reply.status, pieces=tuple(pieces))
    finally:
        client.close()


def _differs(replayed: Replayed, *, is_exact: bool) -> bool:
    return any(is_exact or not each.is_spelling for each in replayed.differences)


def _print(replayed: Replayed, *, is_json: bool) -> None:
    if is_json:
        write(dumps(replayed) + b"\n")
        return
    name = Span(visible_line(replayed.name), "strong")
    if replayed.error is not None:
        show(((name, Span(f": {visible_line(replayed.error)}", "bad")),))
        return
    is_other = _differs(replayed, is_exact=False)
    verdict = Span("the calls differ", "bad") if is_other else Span("the same calls", "good")
    lines: list[Line] = [(name, Span(": "), verdict)]
    for each in replayed.differences:
        what = f"   {visible_line(each.what)}"
        lines.append((Span(what, "warning") if each.is_spelling else Span(what, "bad"),))
        for title, value in (("recorded", each.recorded), ("now", each.now)):
            lines.append(
                (Span(f"      {title:<9}", "faint"), Span(cut_to(visible_line(value), _MAX_SHOWN)))
            )
    show(tuple(lines))
