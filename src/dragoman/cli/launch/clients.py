"""The arguments, environment and files with which a client uses the gateway. Pure.

Nothing here changes files of the user. A key is passed in the environment or in a private file, never as an argument:
every user of a machine can see the arguments of a program.

Codex takes overrides of its configuration as arguments. It looks models up in a catalog; for a model that the catalog does
not have, it prints a warning, guesses the context window and leaves tools out. So it gets a catalog with the models of the gateway. An
entry is copied from Codex's own catalog, for the fields whose meaning Codex alone knows.

Claude Code takes everything from its environment. The `env` of the user's settings wins over the environment, and a file
named by `--settings` wins over both.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct

from dragoman._json import dumps, dumps_document, loads
from dragoman.errors import MalformedJson
from dragoman.server.connect import KEY_VARIABLE
from dragoman.upstream.http.model_list import OfferedModel

# Tokens. Most models for coding that run on one's own machine take at least this many. If a client assumes a smaller window than
# the real one, it summarises early, which does less harm than a request that the upstream refuses.
DEFAULT_WINDOW = 128_000
_CLAUDE_WINDOW = 200_000
# Claude Code asks for up to 32,000 tokens. Servers refuse a request whose input and output together exceed the window.
_CLAUDE_OUTPUT = 32_000
_OUTPUT_SHARE = 4
_NO_DAEMON = b"--no-daemon"
_SETTINGS_FILE = "settings.json"
_TOOL_SEARCH = "ENABLE_TOOL_SEARCH"
_CATALOG_FILE = "models.json"
# Variables that would make Claude Code use another server, or send another key to the gateway.
_CLAUDE_ELSEWHERE = (
    *("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    *("CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_MANTLE", "CLAUDE_CODE_USE_ANTHROPIC_AWS", "CLAUDE_CODE_USE_GATEWAY"),
)  # fmt: skip
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class LaunchGateway(Struct, frozen=True, kw_only=True):
    """The gateway and its models for one client.

    url: without `/v1`. models: those that the client may offer; it starts with the first.
    """

    url: str
    key: str
    models: tuple[OfferedModel, ...]

    @property
    def model(self) -> OfferedModel:
        return self.models[0]


class LaunchedClient(Struct, frozen=True):
    """A client that can be launched.

    guide: its name in `server.connect.CLIENTS`. install: how to install it. home: the variable that names its folder.
    resume: the arguments that continue its last session. plan: decides which arguments, environment and files the client gets.
    """

    title: str
    program: str
    guide: str
    install: str
    home: str
    resume: str
    plan: "Callable[[LaunchGateway, LaunchEnvironment], ClientPlan]"


class LaunchEnvironment(Struct, frozen=True, kw_only=True):
    """Where a client is launched.

    arguments, environ: the user's. folder: private, for files that end with the launch.
    own_catalog: what `codex debug models` prints; empty if it prints none. options: what `codex --help` prints.
    """

    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str]
    folder: Path
    own_catalog: bytes = b""
    options: bytes = b""


class ClientPlan(Struct, frozen=True):
    """arguments: before the user's. environ: variables to set. remove: variables to remove. files: by their paths."""

    arguments: tuple[str, ...]
    environ: dict[str, str]
    remove: tuple[str, ...] = ()
    files: Mapping[Path, bytes] = {}


def plan_codex(connection: LaunchGateway, place: LaunchEnvironment) -> ClientPlan:
    provider = {
        "name": "Dragoman",
        "base_url": f"{connection.url}/v1",
        "env_key": KEY_VARIABLE,
        "wire_api": "responses",
    }
    table = ",".join(f"{name}={_toml(value)}" for name, value in provider.items())
    overrides = [
        f"model={_toml(connection.model.name)}",
        'model_provider="dragoman"',
        f"model_providers.dragoman={{{table}}}",
    ]
    files: dict[Path, bytes] = {}
    catalog = codex_catalog(connection.models, place.own_catalog)
    if catalog is not None:
        file = place.folder / _CATALOG_FILE
        files[file] = catalog
        overrides.append(f"model_catalog_json={_toml(str(file))}")
    arguments = tuple(word for each in overrides for word in ("-c", each))
    if _NO_DAEMON in place.options:
        # If Codex left a server running, that server has neither the key nor the environment of this launch.
        arguments = (_NO_DAEMON.decode(), *arguments)
    return ClientPlan(arguments, {KEY_VARIABLE: connection.key}, (), files)


def codex_catalog(models: Sequence[OfferedModel], own_catalog: bytes) -> bytes | None:
    """The catalog for Codex; None if Codex's own is not known, or if it has the first model.

    A model of Codex's own catalog keeps its entry: Codex has prompts and tools that were made for it.
    """
    known = {str(entry["slug"]): entry for entry in _entries(own_catalog)}
    template = next(filter(_is_plain, known.values()), None)
    if template is None or (models[0].name in known and models[0].context_window is None):
        return None
    entries = [
        _entry(model, known.get(model.name, template), is_known=model.name in known, rank=rank)
        for rank, model in enumerate(models, 1)
    ]
    return dumps_document({"models": entries})


def _entries(catalog: bytes) -> Iterator[dict[str, object]]:
    try:
        document: object = loads(catalog)
    except MalformedJson:
        return
    models = (
        cast("dict[str, object]", document).get("models") if isinstance(document, dict) else None
    )
    for entry in cast("list[object]", models) if isinstance(models, list) else ():
        if isinstance(entry, dict) and "slug" in entry:
            yield cast("dict[str, object]", entry)


def _is_plain(entry: dict[str, object]) -> bool:
    """Whether tools are offered one by one. Other models get a single tool that runs JavaScript; they are trained for it."""
    return not entry.get("use_responses_lite") and not entry.get("tool_mode")


def _entry(
    model: OfferedModel, source: dict[str, object], *, is_known: bool, rank: int
) -> dict[str, object]:
    if is_known and model.context_window is None:
        return source
    window = window_of(model)
    own = source | {"context_window": window, "max_context_window": window}
    if is_known:
        return own
    prompt = str(source.get("base_instructions", ""))
    fields: dict[str, object] = {
        "slug": model.name,
        "display_name": model.name,
        "description": None,
        "priority": rank,
        "visibility": "list",
        "supported_in_api": True,
        # This is another model, and we do not know whether and how it reasons.
        "base_instructions": prompt.replace(
            ", a coding agent based on GPT-5.", ", a coding agent."
        ),
        "model_messages": None,
        "default_reasoning_level": None,
        "supported_reasoning_levels": [],
        "support_verbosity": False,
        "default_verbosity": None,
        "additional_speed_tiers": [],
        "service_tiers": [],
        "apply_patch_tool_type": "freeform",
        "upgrade": None,
        "availability_nux": None,
        "comp_hash": None,
    }
    return own | fields


def window_of(model: OfferedModel) -> int:
    """The context window of a model; an assumed one if the upstream does not report it."""
    if model.context_window is not None:
        return model.context_window
    return _CLAUDE_WINDOW if model.name.startswith("claude") else DEFAULT_WINDOW


def plan_claude(connection: LaunchGateway, place: LaunchEnvironment) -> ClientPlan:
    name = connection.model.name
    environ = {
        "ANTHROPIC_BASE_URL": connection.url,
        "ANTHROPIC_AUTH_TOKEN": connection.key,
        "ANTHROPIC_MODEL": name,
        # The model names that it uses for its own agents and its small requests.
        "ANTHROPIC_DEFAULT_OPUS_MODEL": name,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": name,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": name,
        # Without it, all tools are sent with each request to a server that is not Anthropic's.
        _TOOL_SEARCH: place.environ.get(_TOOL_SEARCH, "true"),
    }
    window = connection.model.context_window
    if window is not None:
        environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(window)
        environ["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(min(_CLAUDE_OUTPUT, window // _OUTPUT_SHARE))
    if any(word.partition("=")[0] == "--settings" for word in place.arguments):
        return ClientPlan((), environ, _CLAUDE_ELSEWHERE)  # it takes only one such file, the user's
    file = place.folder / _SETTINGS_FILE
    files = {file: dumps_document({"env": environ})}
    return ClientPlan(("--settings", str(file)), environ, _CLAUDE_ELSEWHERE, files)


CLIENTS: Mapping[str, LaunchedClient] = {
    "codex": LaunchedClient(
        "Codex CLI",
        "codex",
        "codex",
        "npm install -g @openai/codex",
        "CODEX_HOME",
        "resume --last",
        plan_codex,
    ),
    "claude": LaunchedClient(
        "Claude Code",
        "claude",
        "claude-code",
        "npm install -g @anthropic-ai/claude-code",
        "CLAUDE_CONFIG_DIR",
        "--continue",
        plan_claude,
    ),
}
"""Every client that can be launched, by its name on the command line."""


def environment_of(
    plan: ClientPlan, environ: Mapping[str, str], home: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the client: the user's, with what the plan adds and removes. `home`: the client's folder."""
    kept = {name: value for name, value in environ.items() if name not in plan.remove}
    kept |= plan.environ | dict(home)
    if any(name.lower() in _PROXIES for name in kept):
        # A proxy cannot reach this machine's loopback address.
        for name in ("NO_PROXY", "no_proxy"):
            words = [word for word in kept.get(name, "").split(",") if word]
            kept[name] = ",".join(dict.fromkeys((*words, "127.0.0.1", "localhost", "::1")))
    return kept


def _toml(text: str) -> str:
    """A string of TOML; a JSON string is one."""
    return dumps(text).decode()
