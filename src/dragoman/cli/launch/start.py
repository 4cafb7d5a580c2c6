"""Finds or starts the gateway, chooses the model, and runs the client in the foreground: it has the terminal.

A terminal sends Ctrl-C, Ctrl-\\ and its end to all processes of its foreground group, so the client gets them by itself, and
this process must only not end because of them. A signal that was sent to this process alone is passed on.
"""

import asyncio
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TextIO
from urllib.parse import urlsplit

from msgspec import Struct, structs

from dragoman.cli.connect import (
    access_to,
    check_url,
    choose_model,
    key_for,
    models_at,
    write_client,
)
from dragoman.cli.launch.clients import (
    CLIENTS,
    LaunchedClient,
    LaunchEnvironment,
    LaunchGateway,
    environment_of,
)
from dragoman.cli.options import Options
from dragoman.cli.screen import complain, own_command
from dragoman.cli.trust import ask_for_trust
from dragoman.config.check import check_surroundings
from dragoman.config.environment import state_folder, with_key, write_private
from dragoman.config.read import Flags, load_settings
from dragoman.config.settings import PASS_ON, LogSettings, ServerSettings, Settings
from dragoman.errors import ConfigError
from dragoman.gateway.route import Candidate, Router, default_models
from dragoman.inspection.terminal_text import visible_line
from dragoman.server.connect import (
    KEY_VARIABLE,
    GatewayAccess,
    access_of,
    gateway_url,
    passes_key_on,
)
from dragoman.server.reachability import offered_models
from dragoman.server.run import serving
from dragoman.server.running import RunningGateway, find_gateway
from dragoman.upstream.errors import UNREACHABLE
from dragoman.upstream.http.model_list import OfferedModel

# Seconds for the list of an upstream. The person waits for the client; a server on this machine answers at once.
_LIST_PATIENCE = 5.0
# Seconds for a question to the client's program.
_ASK_PATIENCE = 20.0
# Seconds. When the gateway ends, its only client is already gone.
_GRACE = 1.0
# Bytes. Beyond this a new log begins, and the previous one is kept.
_MAX_LOG = 4 * 1024 * 1024
_KEY_BYTES = 32
_FROM_TERMINAL = ("SIGINT", "SIGQUIT", "SIGHUP")
_HANDLED = (*_FROM_TERMINAL, "SIGTERM")
_BY_SIGNAL = 128  # shells report 128 and the number of the signal
# A client's model picker should not list every model of a reseller.
_MOST_MODELS = 50
_MOST_SHOWN = 20
_REHEARSAL_NOTE = (
    "no upstream is configured, so the rehearsal answers: a stand-in for a model that needs no key; "
    "for a real one: --upstream, OPENAI_API_KEY or ANTHROPIC_API_KEY, or {command} init"
)
_WITHOUT_V1 = ("chat", "responses")


class _Gateway(Struct, frozen=True, kw_only=True):
    """The gateway to use. settings: None if it runs elsewhere and its settings are not known. is_own: we start it.

    lasting: how the client reaches it, or one with its settings, after the launch.
    """

    url: str = ""
    key: str
    settings: Settings | None
    models: tuple[OfferedModel, ...]
    is_own: bool
    lasting: GatewayAccess


def start(options: Options) -> int:
    client = CLIENTS[options.client]
    program = which(client.program)
    if program is None:
        raise ConfigError(
            f"expected {client.title} as {client.program!r} on the PATH, found none; install it: {client.install}"
        )
    if options.context_window is not None and options.context_window < 1:
        raise ConfigError(
            f"--context-window: expected a number of tokens, got {options.context_window}"
        )
    gateway = _gateway(options, client)
    models = _models(options, client, gateway)
    if options.write:
        access = structs.replace(gateway.lasting, model=models[0].name)
        # Standard output is the client's.
        complain(write_client(client.guide, access, os.environ).splitlines())
        if gateway.is_own:
            serve = _serve_command(options, gateway.settings)
            complain([f"no gateway answers at {access.url} yet; start it: {serve}"])
    with ExitStack() as stack:
        url, log = gateway.url, None
        if gateway.is_own and gateway.settings is not None:
            log = stack.enter_context(_open_log(os.environ))
            url = stack.enter_context(serving(gateway.settings, log))
        connection = LaunchGateway(url=url, key=gateway.key, models=models)
        where = "" if log is None else f"; its log: {log.name}"
        complain([f"{client.title} uses {models[0].name} at {url}{where}"])
        code = _run(options, client, program, connection)
    if code == 0 and _is_session(options):
        complain([f"to continue this session: {_same_command()} -- {client.resume}"])
    return code


def _is_session(options: Options) -> bool:
    """Whether the client had a session with a person that only a launch finds again: the client names a command that does not."""
    return sys.stdin.isatty() and not options.arguments and not options.share_home


def _same_command() -> str:
    """The command of this launch, without the arguments of the client."""
    words = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    return f"{own_command()} {shlex.join(words)}"


def _serve_command(options: Options, settings: Settings | None) -> str:
    """The command that starts a gateway with the settings of this launch, and stays."""
    words = ["serve"]
    if options.config is not None:
        words += ["--config", options.config]
    if options.upstream is not None and settings is not None:
        ((_, upstream),) = settings.upstreams.items()
        place = f"={upstream.base_url}" if upstream.base_url else ""
        words += ["--upstream", f"{upstream.kind}{place}"]
    if options.key_env is not None:
        words += ["--key-env", options.key_env]
    return f"{own_command()} {shlex.join(words)}"


def _run(options: Options, client: LaunchedClient, program: str, connection: LaunchGateway) -> int:
    arguments = tuple(options.arguments)
    home = {} if options.share_home else {client.home: str(_client_home(options.client))}
    environ = os.environ | home
    with TemporaryDirectory(prefix="dragoman-") as folder:  # its mode is 0700
        is_codex = client.program == "codex"
        place = LaunchEnvironment(
            arguments=arguments,
            environ=os.environ,
            folder=Path(folder),
            own_catalog=_ask((program, "debug", "models"), environ) if is_codex else b"",
            options=_ask((program, "--help"), environ) if is_codex else b"",
        )
        plan = client.plan(connection, place)
        for file, data in plan.files.items():
            write_private(file, data)
        command = (program, *plan.arguments, *arguments)
        return _run_client(command, environment_of(plan, os.environ, home))


def _ask(command: tuple[str, ...], environ: Mapping[str, str]) -> bytes:
    """What a program prints; nothing if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - what the user asked to launch
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


# --- the gateway ------------------------------------------------------------------------------------------------------


def _gateway(options: Options, client: LaunchedClient) -> _Gateway:
    if options.url is not None:
        if options.upstream is not None or options.config is not None:
            raise ConfigError("--url names a gateway that runs; leave --upstream and --config out")
        url = check_url(options.url)
        key = os.environ.get(KEY_VARIABLE)
        running = find_gateway(url, key)
        if running is None:
            raise ConfigError(f"--url: expected a gateway at {url}, none answers there")
        return _running(running, key, None)
    flags = Flags(upstream=options.upstream, key_env=options.key_env)
    settings = load_settings(options.config, os.environ, flags, ask_for_trust)
    if options.upstream is None:
        url = gateway_url(settings.server)
        key = key_for(settings)
        running = find_gateway(url, key)
        if running is not None:
            return _running(running, key, settings)
    check_surroundings(settings, os.environ)
    return _own(settings, client, is_short=options.upstream is not None)


def _running(running: RunningGateway, key: str | None, settings: Settings | None) -> _Gateway:
    if running.models is None:
        raise ConfigError(
            f"the gateway at {running.url} wants a key: set {KEY_VARIABLE} to one of its server.api_keys"
        )
    models, is_same = models_at(running, key, settings)
    if key is None and is_same and settings is not None and passes_key_on(settings):
        raise ConfigError(
            f"the gateway at {running.url} passes the client's key on: set {KEY_VARIABLE} to the upstream's key"
        )
    return _Gateway(
        url=running.url,
        key=key or "unused",
        settings=settings if is_same else None,
        models=models,
        is_own=False,
        lasting=access_to(running, settings if is_same and settings else Settings(), None),
    )


def _own(settings: Settings, client: LaunchedClient, *, is_short: bool) -> _Gateway:
    """A gateway that is started for one client. `is_short`: the upstream comes from `--upstream`."""
    if not is_short and all(each.kind == "rehearsal" for each in settings.upstreams.values()):
        complain([_REHEARSAL_NOTE.format(command=own_command())])
    key, lasting = _launch_key(os.environ), access_of(settings)
    upstreams = {
        name: each if each.api_key != PASS_ON else with_key(structs.replace(each, api_key=None), os.environ)
        for name, each in settings.upstreams.items()
    }  # fmt: skip
    for name, each in upstreams.items():
        if each.api_key == PASS_ON or (
            settings.upstreams[name].api_key == PASS_ON and each.api_key_env is None
        ):
            raise ConfigError(
                f"upstreams.{name}.api_key: the client must send the key, but {client.title} is launched without one; "
                "set the key in DRAGOMAN_UPSTREAM_KEY"
            )
    server = structs.replace(
        settings.server,
        host=ServerSettings().host,
        port=0,
        workers=1,
        api_keys=(key,),
        cors_origins=(),
        allowed_hosts=(),
        shutdown_grace=_GRACE,
    )
    settings = structs.replace(
        settings,
        upstreams=upstreams,
        server=server,
        log=LogSettings(format="json", level=settings.log.level),
    )
    if is_short:
        settings = _with_version(settings)
    models = tuple(OfferedModel(name) for name in default_models(settings))
    return _Gateway(key=key, settings=settings, models=models, is_own=True, lasting=lasting)


def _with_version(settings: Settings) -> Settings:
    """The settings with `/v1` added to the address of `--upstream` if models are listed there and not without it."""
    ((name, upstream),) = settings.upstreams.items()
    if upstream.kind not in _WITHOUT_V1 or urlsplit(upstream.base_url).path.strip("/"):
        return settings
    longer = structs.replace(upstream, base_url=f"{upstream.base_url.rstrip('/')}/v1")
    pair = {"as given": upstream, "with /v1": longer}
    found = asyncio.run(offered_models(pair, os.environ, _LIST_PATIENCE))
    if found["as given"] or not found["with /v1"] or isinstance(found["with /v1"], str):
        return settings
    complain(
        [
            f"--upstream: {upstream.base_url} has no list of models, {longer.base_url} has one and is used"
        ]
    )
    return structs.replace(settings, upstreams={name: longer})


def _open_log(environ: Mapping[str, str]) -> TextIO:
    file = state_folder(environ) / "launch.log"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.stat().st_size > _MAX_LOG:
            file.replace(file.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(file, flags, 0o600))
        return file.open("a", encoding="utf-8", errors="backslashreplace")
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"expected to write the log {file}: {error}") from error


def _launch_key(environ: Mapping[str, str]) -> str:
    """The key of gateways that are started here. It is kept, because stored responses belong to the key in the next launch too."""
    file = state_folder(environ) / "launch.key"
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, encoding="ascii") as stream:
            key = stream.read().strip()
        if len(key) >= _KEY_BYTES:
            return key
    except (OSError, ValueError, RuntimeError):
        pass
    key = secrets.token_urlsafe(_KEY_BYTES)
    try:
        write_private(file, key.encode())
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"expected to write {file}: {error}") from error
    return key


def _client_home(client: str) -> Path:
    home = state_folder(os.environ) / "clients" / client
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"expected to make the folder {home}: {error}") from error
    return home


# --- the model --------------------------------------------------------------------------------------------------------


def _models(
    options: Options, client: LaunchedClient, gateway: _Gateway
) -> tuple[OfferedModel, ...]:
    """The models for the client, the one to start with first.

    Raises:
        ConfigError: no model was named, and none is known.
    """
    offered, problems = _offered(gateway)
    if options.upstream is not None and any(UNREACHABLE in each for each in problems):
        # The client would ask in vain, again and again, and its screen would hide why.
        raise ConfigError("\n".join((*problems, "start the server first, or correct --upstream")))
    if options.model is not None:
        _check_route(options.model, gateway.settings)
    name = options.model or choose_model(
        client.guide, gateway.models, offered, problems=problems, how="--model"
    )
    for problem in problems:
        complain([problem])
    known = {each.name: each for each in (*gateway.models, *offered)}
    if offered and name not in known:
        names = ", ".join(visible_line(each.name) for each in offered[:_MOST_SHOWN])
        complain([f"--model: no upstream lists {visible_line(name)}; listed: {names}"])
    chosen = known.get(name, OfferedModel(name))
    if options.context_window is not None:
        chosen = OfferedModel(name, options.context_window)
    others = [each for each in known.values() if each.name != name]
    return (chosen, *others[: _MOST_MODELS - 1])


def _offered(gateway: _Gateway) -> tuple[tuple[OfferedModel, ...], list[str]]:
    """The models that the upstreams list and the routes send there, and why some upstreams list none."""
    if gateway.settings is None:
        return (), []
    router = Router(gateway.settings)
    found = asyncio.run(offered_models(gateway.settings.upstreams, os.environ, _LIST_PATIENCE))
    models: list[OfferedModel] = []
    problems: list[str] = []
    for upstream, listed in found.items():
        if isinstance(listed, str):
            problems.append(f"upstreams.{upstream}: {listed}")
            continue
        models += [
            model for model in listed if router.first(model.name) == Candidate(upstream, model.name)
        ]
    return tuple(models), problems


def _check_route(model: str, settings: Settings | None) -> None:
    if settings is not None and Router(settings).first(model) is None:
        globs = ", ".join(route.model for route in settings.routes)
        raise ConfigError(f"--model: no route takes {model!r}; the routes take: {globs}")


# --- the client in the foreground --------------------------------------------------------------------------------------


def _run_client(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end. Returns its exit code.

    Raises:
        ConfigError: the program cannot be started.
    """
    relay = _SignalRelay()
    with relay.installed(), _terminal_kept():
        try:
            process = subprocess.Popen(list(command), env=dict(environ))  # noqa: S603 - what the user asked to launch
        except OSError as error:
            raise ConfigError(
                f"expected to start {command[0]}: {error.strerror or error}"
            ) from error
        relay.process = process
        code = process.wait()
    return code if code >= 0 else _BY_SIGNAL - code


class _SignalRelay:
    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._has_been_ended = False

    @contextmanager
    def installed(self) -> Generator[None]:
        # Handlers, not SIG_IGN, which the client would inherit. A signal that is ignored (`nohup`) stays ignored for both.
        numbers = [getattr(signal, name) for name in _HANDLED if hasattr(signal, name)]
        handled = [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._receive) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.process is None:
            # The client does not run yet: end as if there were no handler.
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        if name in _FROM_TERMINAL and _is_in_foreground():
            return
        if name == "SIGTERM" and self._has_been_ended:
            self.process.kill()
            return
        self._has_been_ended = self._has_been_ended or name == "SIGTERM"
        self.process.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether a terminal sends its signals to this process and, in the same group, to the client."""
    if sys.platform == "win32":
        return True
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False


@contextmanager
def _terminal_kept() -> Generator[None]:
    """Restore the mode of the terminal: a killed client leaves it without echo and line ends."""
    if sys.platform == "win32" or not os.isatty(0):
        yield
        return
    import termios  # noqa: PLC0415 - not on every system

    before = termios.tcgetattr(0)
    try:
        yield
    finally:
        if _is_in_foreground():  # a process in the background would be stopped
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, before)
