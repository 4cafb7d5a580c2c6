"""`dragoman init`: writes a commented `dragoman.toml` for what there is: keys in the environment, servers on this machine, Codex.

Keys are named by their variables and never written. Ports of this machine are asked for their models, and nothing else is.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import which
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman._json import dumps
from dragoman.cli.options import Options
from dragoman.cli.screen import CLEAN, counted, own_command, show, write
from dragoman.cli.trust import found_in
from dragoman.config.check import complete
from dragoman.config.environment import upstreams_from, write_private
from dragoman.config.read import CONFIG_FILE
from dragoman.config.settings import Settings, UpstreamSettings
from dragoman.config.trust import Trusted
from dragoman.config.values import to_toml
from dragoman.errors import ConfigError
from dragoman.inspection.layout import Span
from dragoman.inspection.terminal_text import visible, visible_line
from dragoman.server.running import fetch_all
from dragoman.upstream.chatgpt_codex.credentials import auth_path
from dragoman.upstream.http.model_list import read_model_list

SUMMARY = "write a dragoman.toml for the keys, local servers and programs that it finds"

# Servers that run models on this machine, by the port that each uses unless it is set otherwise.
LOCAL_SERVERS = {"ollama": ("Ollama", 11434), "vllm": ("vLLM", 8000), "lmstudio": ("LM Studio", 1234)}  # fmt: skip
# Vendors that speak Chat Completions: the variable that each one's documentation uses for its key, the address, and the names of
# its models. The last ones have models of many families under names with a slash.
CHAT_VENDORS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "gemini": ("GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai", ("gemini-*",)),
    "mistral": ("MISTRAL_API_KEY", "https://api.mistral.ai/v1", ("mistral-*", "devstral-*", "codestral-*")),
    "deepseek": ("DEEPSEEK_API_KEY", "https://api.deepseek.com/v1", ("deepseek-*",)),
    "xai": ("XAI_API_KEY", "https://api.x.ai/v1", ("grok-*",)),
    "moonshot": ("MOONSHOT_API_KEY", "https://api.moonshot.ai/v1", ("kimi-*",)),
    "zai": ("ZAI_API_KEY", "https://api.z.ai/api/paas/v4", ("glm-*",)),
    "dashscope": ("DASHSCOPE_API_KEY", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", ("qwen*",)),
    "cerebras": ("CEREBRAS_API_KEY", "https://api.cerebras.ai/v1", ("llama*",)),
    "groq": ("GROQ_API_KEY", "https://api.groq.com/openai/v1", ("llama-*", "openai/*", "moonshotai/*")),
    "fireworks": ("FIREWORKS_API_KEY", "https://api.fireworks.ai/inference/v1", ("accounts/*",)),
    "together": ("TOGETHER_API_KEY", "https://api.together.xyz/v1", ("*/*",)),
    "openrouter": ("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", ("*/*",)),
}  # fmt: skip
# Seconds. A server on this machine lists its models within milliseconds.
_PATIENCE = 1.0
# A route for each model of a server makes the model known by its name; more would hide the rest of the file.
_MOST_ROUTES = 20
_GLOB_SIGNS = frozenset("*?[")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "It looks for keys of vendors in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY "
        "and others), for Ollama (port 11434), vLLM (8000) and LM Studio (1234) on this "
        "machine, and for codex on the PATH. Exit code: 0 written, 2 there is a file already, or it cannot be written."
    )
    parser.add_argument(
        "--force", action="store_true", help=f"replace a {CONFIG_FILE} that is there"
    )
    parser.add_argument("--stdout", action="store_true", help="print it, and write no file")
    parser.set_defaults(run=_init)


def _init(options: Options) -> int:
    path = Path(CONFIG_FILE)
    if not options.stdout and not options.force and os.path.lexists(path):
        raise ConfigError(
            f"{CONFIG_FILE} is there already; --force replaces it, --stdout prints without writing"
        )
    found = find(os.environ)
    text = configuration(found)
    if options.stdout:
        write(visible(text).encode())
        return CLEAN
    _write(path, text.encode(), replaces=options.force)
    file = found_in(Path())
    if file.data == text.encode():
        # The person has just asked for this file, and it holds what the person's own environment has.
        Trusted(os.environ).add(file)
    command = own_command()
    show(
        (
            (Span(f"wrote {CONFIG_FILE}", "strong"),),
            *((Span(f"  {visible_line(line)}"),) for line in found.lines),
            (
                Span(
                    f"next: {command} check, then {command} serve, or {command} launch claude",
                    "faint",
                ),
            ),
        )
    )
    return CLEAN


def _write(path: Path, data: bytes, *, replaces: bool) -> None:
    try:
        if replaces:
            write_private(path, data)
        else:
            with path.open("xb") as stream:  # nobody else's file, nor a link, that came between
                stream.write(data)
    except OSError as error:
        raise ConfigError(f"{path}: expected to write it: {error.strerror or error}") from error


# --- what there is ----------------------------------------------------------------------------------------------------


class FoundUpstream(Struct, frozen=True):
    """An upstream for the file. why: a comment that says what was found. models: names or globs that are routed to it."""

    name: str
    settings: UpstreamSettings
    why: str
    models: tuple[str, ...]


class Found(Struct, frozen=True):
    """Everything that was found. notes: what was found and cannot be used as it is."""

    upstreams: tuple[FoundUpstream, ...]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        return (*(f"{each.name}: {each.why}" for each in self.upstreams), *self.notes)


def find(
    environ: Mapping[str, str], servers: Mapping[str, tuple[str, int]] = LOCAL_SERVERS
) -> Found:
    """Look at the environment, at ports of this machine and at the PATH. servers: titles and ports by name."""
    upstreams: list[FoundUpstream] = []
    notes: list[str] = []
    for each in (*_vendors(environ), *_local_servers(servers), *_codex(environ)):
        if isinstance(each, str):
            notes.append(each)
            continue
        try:
            complete(Settings(upstreams={each.name: each.settings}))
        except ConfigError:
            host = urlsplit(each.settings.base_url).hostname
            notes.append(f"{each.name}: {each.why}, but the address {host} cannot be used as it is")
        else:
            upstreams.append(each)
    return Found(tuple(upstreams), tuple(notes))


def _vendors(environ: Mapping[str, str]) -> Iterator[FoundUpstream]:
    families = {"openai": ("gpt-*",), "anthropic": ("claude-*",)}
    for name, settings in upstreams_from(environ).items():
        yield FoundUpstream(name, settings, f"{settings.api_key_env} is set", families[name])
    for name, (variable, url, models) in CHAT_VENDORS.items():
        if environ.get(variable):
            settings = UpstreamSettings(kind="chat", base_url=url, api_key_env=variable)
            yield FoundUpstream(name, settings, f"{variable} is set", models)


def _local_servers(servers: Mapping[str, tuple[str, int]]) -> Iterator[FoundUpstream]:
    urls = {name: f"http://127.0.0.1:{port}/v1" for name, (_, port) in servers.items()}
    pages = fetch_all([f"{url}/models" for url in urls.values()], patience=_PATIENCE)
    for name, url in urls.items():
        page = pages[f"{url}/models"]
        models = read_model_list(page.body) if page is not None and page.status == 200 else ()
        if not models:
            continue
        title, port = servers[name]
        count = counted(len(models), "model")
        names = [each.name for each in models if not _GLOB_SIGNS & set(each.name)]
        yield FoundUpstream(
            name,
            UpstreamSettings(kind="chat", base_url=url),
            f"a server at port {port}, which {title} uses, has {count}",
            tuple(names[:_MOST_ROUTES]),
        )


def _codex(environ: Mapping[str, str]) -> Iterator[FoundUpstream | str]:
    if which("codex", path=environ.get("PATH")) is None:
        return
    if not auth_path(None, environ).exists():
        yield 'codex: on the PATH, but not logged in; after `codex login`: [upstreams.codex] kind = "codex"'
        return
    settings = UpstreamSettings(kind="codex")
    yield FoundUpstream("codex", settings, "codex is on the PATH and logged in", ("codex",))


# --- the file ---------------------------------------------------------------------------------------------------------

_HEAD = """\
# The configuration of Dragoman, based on what `dragoman init` found.
# `dragoman check` shows what results from it, and tries each upstream; with --all it shows every key.

[server]
# host = "127.0.0.1"    # an address that other machines can reach needs api_keys
# port = 8787
# api_keys = ["…"]      # keys that clients must send; better in the variable DRAGOMAN_API_KEYS
"""
_REHEARSAL = """
# No key and no server of a model was found. The rehearsal is a stand-in that needs no key and no network.
[upstreams.rehearsal]
kind = "rehearsal"
"""
_EXAMPLES = """
# Another server, for example one that speaks Chat Completions:
# [upstreams.local]
# kind = "chat"                                 # or "responses", or "messages"
# base_url = "http://127.0.0.1:8000/v1"
# api_key_env = "LOCAL_API_KEY"                 # the variable that holds its key, if it needs one
#
# Azure OpenAI. The model is the name of a deployment.
# [upstreams.azure]
# kind = "responses"
# also = ["chat"]
# base_url = "https://RESOURCE.openai.azure.com/openai/v1"
# api_key_env = "AZURE_OPENAI_API_KEY"
# api_key_header = "api-key"
#
# Amazon Bedrock with an API key of Bedrock. For Claude: kind = "messages", and the address of its Anthropic endpoint.
# [upstreams.bedrock]
# kind = "chat"
# base_url = "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1"
# api_key_env = "AWS_BEARER_TOKEN_BEDROCK"
#
# Vertex AI. The program prints a token, and is run again before the token expires.
# [upstreams.vertex]
# kind = "chat"
# base_url = "https://us-central1-aiplatform.googleapis.com/v1/projects/PROJECT/locations/us-central1/endpoints/openapi"
# token_command = ["gcloud", "auth", "print-access-token"]
#
"""
_ROUTES = """
# Where requests go, by the model that the client asks for. The first route that matches decides.
"""


def configuration(found: Found) -> str:
    """The text of the file."""
    parts = [_HEAD]
    for each in found.upstreams:
        settings = to_toml(each.settings, is_all=False)
        parts.append(f"\n# {each.why}\n[upstreams.{each.name}]\n{settings}")
    if not found.upstreams:
        parts.append(_REHEARSAL)
    parts += [f"\n# {visible_line(note)}\n" for note in found.notes]
    parts += [_EXAMPLES, _ROUTES, *_routes(found.upstreams)]
    return "".join(parts)


def _routes(upstreams: Sequence[FoundUpstream]) -> Iterator[str]:
    seen: set[str] = set()
    for each in upstreams:
        for model in each.models:
            if model not in seen:  # two servers may have the same model; the first answers for it
                seen.add(model)
                yield _route(model, each.name)
    yield _route("*", upstreams[0].name if upstreams else "rehearsal")


def _route(model: str, upstream: str) -> str:
    return f'[[routes]]\nmodel = {dumps(model).decode()}\nupstream = "{upstream}"\n\n'
