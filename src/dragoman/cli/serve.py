"""`dragoman serve`: runs the gateway until a signal ends it.

At the start it prints its address, where requests go, and what to paste into clients. It never prints a key.
"""

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from urllib.parse import urlsplit

from dragoman.cli.options import Options, add_serving_options, flags_of, settings_of
from dragoman.cli.screen import own_command, show
from dragoman.cli.trust import ask_for_trust
from dragoman.config.check import is_loopback
from dragoman.config.environment import sqlite_place, store_engine
from dragoman.config.secrets import mask_command
from dragoman.config.settings import (
    Route,
    Settings,
    StoreSettings,
    UpstreamSettings,
    peers_of,
    split_fallback,
)
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.terminal_text import visible_line
from dragoman.server.connect import CLIENTS, GatewayAccess, access_of
from dragoman.server.running import GatewayRecord, recorded

SUMMARY = "start the gateway: any client dialect in front of any upstream"

_TITLE_WIDTH = 11
# A table of a hundred routes would push the address off the screen; `dragoman check` shows them all.
_MOST_ROWS = 12


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without any configuration it listens on 127.0.0.1:8787 and answers from the rehearsal, "
        "which needs no key. Exit code: 0 stopped, 2 it cannot be started."
    )
    add_serving_options(parser)
    parser.set_defaults(run=_serve)


def _serve(options: Options) -> int:
    # These need the gateway's dependencies.
    from dragoman.server.reload import ReloadResult, Source, takes_hangups  # noqa: PLC0415
    from dragoman.server.run import passed_listener, serve  # noqa: PLC0415

    with ExitStack() as stack:
        listener = passed_listener()
        if listener is not None:
            # The address is the service manager's to choose; the settings are checked with it.
            with listener:
                options.host, options.port = listener.getsockname()[:2]
        settings = settings_of(options, ask_for_trust)
        records: list[GatewayRecord] = []

        def announce(url: str) -> None:
            address = access_of(settings, url).url
            record = recorded(address, os.environ, is_reloadable=takes_hangups())
            records.append(stack.enter_context(record))
            if settings.log.format != "json":  # in a JSON log, a program reads every line
                show(start_message(settings, url))

        def report(outcome: ReloadResult) -> None:
            for record in records:
                record.note(outcome.problems, outcome.notes)

        source = Source.at_start(options.config, flags_of(options))
        return serve(settings, source, announce, report)


def start_message(settings: Settings, url: str | None = None) -> Sequence[Line]:
    """The lines printed at the start. `url`: the address of the gateway if it differs from the settings (port 0)."""
    access = access_of(settings, url)
    host = settings.server.host
    elsewhere = "" if is_loopback(host) else f"  (listens on {visible_line(host)})"
    return (
        (
            Span(f"Dragoman {version('dragoman')}", "title"),
            Span(f"  {access.url}", "strong"),
            Span(elsewhere, "faint"),
        ),
        (),
        *_section("upstreams", _upstreams(settings)),
        *_section("routes", _routes(settings.routes)),
        *_section("keys", [_keys(settings)]),
        *_section("stores", _storage(settings.store or StoreSettings())),
        *_section("clients", _clients(access)),
        *_section("see also", _pages(settings, access)),
        (),
    )


def _section(title: str, rows: Iterable[str]) -> Iterator[Line]:
    shown = list(rows)
    if len(shown) > _MOST_ROWS:
        more = len(shown) - _MOST_ROWS + 1
        shown = [*shown[: _MOST_ROWS - 1], f"and {more} more: {own_command()} check --offline"]
    for index, row in enumerate(shown):
        head = title if index == 0 else ""
        yield (Span(f"  {head:<{_TITLE_WIDTH}}", "faint"), Span(visible_line(row)))


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _upstreams(settings: Settings) -> Iterator[str]:
    return _columns([(name, each.kind, _place(each)) for name, each in settings.upstreams.items()])


def _place(upstream: UpstreamSettings) -> str:
    if upstream.kind == "rehearsal":
        return "answers by itself: no key, no network"
    if upstream.kind == "replay":
        return f"plays {upstream.recordings}"
    if upstream.kind == "codex":
        return f"started here: {' '.join(mask_command(upstream.command))}"
    urls = [own.base_url for own in peers_of("", upstream).values()]
    return ", ".join(urlsplit(url).netloc.rpartition("@")[2] for url in urls)


def _routes(routes: Sequence[Route]) -> Iterator[str]:
    return _columns([(route.model, f"-> {_way(route)}") for route in routes])


def _way(route: Route) -> str:
    first = _named(route.upstream, route.upstream_model)
    others = [
        _named(name, model or route.upstream_model)
        for name, model in map(split_fallback, route.fallback)
    ]
    return ", then ".join([first, *others])


def _named(upstream: str, model: str | None) -> str:
    return upstream if model is None else f"{upstream} as {model}"


def _keys(settings: Settings) -> str:
    if settings.server.api_keys or settings.keys:
        return "needed: Authorization: Bearer KEY, or x-api-key: KEY"
    return "none needed: only this machine can connect"


def _storage(store: StoreSettings) -> Iterator[str]:
    if store.policy == "off":
        yield "nothing"
        return
    match store_engine(store.url):
        case "sqlite":
            place = str(sqlite_place(store.url, os.environ)[0])
        case "memory":
            place = "memory"
        case _:
            place = "PostgreSQL"
    what = "responses that ask for it" if store.policy == "asked" else "responses"
    days = f"{store.ttl / 86_400:g} day{'' if store.ttl == 86_400 else 's'}"
    yield f"{what}, for {days}, in {place}"
    yield "DRAGOMAN_STORE_POLICY=off stores nothing"


def _clients(access: GatewayAccess) -> Iterator[str]:
    short = {
        "codex": f'base_url = "{access.url}/v1"',
        "claude-code": f"ANTHROPIC_BASE_URL={access.url}",
        "openai": f'base_url="{access.url}/v1"',
        "anthropic": f'base_url="{access.url}"',
        "obsidian": f"Base URL {access.url}/v1",
        "vercel": f'baseURL: "{access.url}/v1"',
    }
    rows = [(CLIENTS[name].title, text) for name, text in short.items()]
    yield from _columns(rows)
    yield f"complete settings to paste: {own_command()} connect {'|'.join(CLIENTS)}"


def _pages(settings: Settings, access: GatewayAccess) -> Iterator[str]:
    if settings.inspect.capture != "off":
        yield f"{access.url}/  (the requests and their calls, in a browser)"
    if settings.server.metrics:
        yield f"{access.url}/metrics"
    yield f"{access.url}/v1/models"
    yield f"every setting and its value: {own_command()} check --all"
