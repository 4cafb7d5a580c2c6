"""`dragoman reload`: makes a running gateway read its configuration again, or replace its workers, and prints the result."""

import argparse
import os
import signal
import sys
import time

from dragoman.cli.connect import check_url
from dragoman.cli.options import Options
from dragoman.cli.screen import complain
from dragoman.errors import ConfigError
from dragoman.server.running import LastOutcome, RecordedGateway, recorded_gateways

SUMMARY = "make a running gateway read its configuration again, without stopping it"

# Seconds. New workers import everything anew, on a machine that may be busy; the gateway itself gives up after a minute.
_PATIENCE = 90.0
_POLL = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Requests that run keep their settings; new ones get the new settings. A configuration with a problem changes nothing. "
        "Exit code: 0 done, 1 nothing has changed, because of the problems that are printed, 2 no gateway can be asked."
    )
    parser.add_argument("--url", help="the address of the gateway, if several run")
    parser.add_argument(
        "--restart",
        action="store_true",
        help="start new workers, with the code that is installed now, and stop the old ones when the new ones serve",
    )
    parser.set_defaults(run=_reload)


def _reload(options: Options) -> int:
    if sys.platform == "win32":
        raise ConfigError(
            "expected a system with signals; on Windows, stop the gateway and start it"
        )
    gateway = _choose(recorded_gateways(os.environ), options.url)
    count = gateway.last_outcome().count
    number = signal.SIGUSR2 if options.restart else signal.SIGHUP
    try:
        os.kill(gateway.process, number)
    except OSError as error:
        raise ConfigError(
            f"{gateway.url}: expected to reach process {gateway.process}: {error.strerror}"
        ) from error
    outcome = _wait(gateway, count)
    if outcome.problems:
        complain([*outcome.problems, f"{gateway.url} keeps its settings"])
        return 1
    for note in outcome.notes:
        print(note)
    print(f"{gateway.url} {'has new workers' if options.restart else 'has the new settings'}")
    return 0


def _choose(gateways: list[RecordedGateway], url: str | None) -> RecordedGateway:
    """
    Raises:
        ConfigError: no gateway runs, or several do and none was named, or it takes no signal.
    """
    if url is not None:
        wanted = check_url(url)
        gateways = [each for each in gateways if each.url == wanted]
    where = "" if url is None else f" at {url}"
    if not gateways:
        raise ConfigError(
            f"expected a gateway{where} that this user started with `dragoman serve`; found none. "
            "For a gateway of another user, or one in a container, send the signal: kill -HUP PID"
        )
    if len(gateways) > 1:
        found = ", ".join(each.url for each in gateways)
        raise ConfigError(f"expected --url with one of the gateways that run: {found}")
    if not gateways[0].is_reloadable:
        raise ConfigError(
            f"{gateways[0].url}: expected a gateway that takes SIGHUP; this one was started with the signal ignored (nohup)"
        )
    return gateways[0]


def _wait(gateway: RecordedGateway, count: int) -> LastOutcome:
    """What came of it: the first outcome after so many."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        outcome = gateway.last_outcome()
        if outcome.count > count:
            return outcome
        if not gateway.is_running:
            return LastOutcome(problems=("the gateway has ended; its log says why",))
        time.sleep(_POLL)
    return LastOutcome(
        problems=(f"the gateway did not answer in {_PATIENCE:g} s; its log says why",)
    )
