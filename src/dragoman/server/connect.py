"""The configuration to paste into a client so that it uses the gateway, and the model that fits a client. Text only.

Each text is valid in the language of its destination (TOML, shell, Python, TypeScript), so that it can be pasted
or piped unchanged; notes for a person are comments.
"""

import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import Literal

from msgspec import Struct

from dragoman._json import dumps
from dragoman.config.settings import PASS_ON, ServerSettings, Settings

KEY_VARIABLE = "DRAGOMAN_API_KEY"
OBSIDIAN_ORIGIN = "app://obsidian.md"
UNKNOWN_MODEL = "your-model"

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - the address to connect to when listening on all


class GatewayAccess(Struct, frozen=True, kw_only=True):
    """url: without `/v1` and without a slash at the end. key: which key the client must send."""

    url: str
    model: str = UNKNOWN_MODEL
    key: Literal["none", "gateway", "upstream"] = "none"
    allows_obsidian: bool = False

    @property
    def placeholder(self) -> str:
        """The text in place of a key. Clients require one even if the gateway does not."""
        words = {"gateway": "YOUR-GATEWAY-KEY", "upstream": "YOUR-UPSTREAM-KEY", "none": "unused"}
        return words[self.key]


class ClientGuide(Struct, frozen=True):
    """One client: its display name, the language of its text, and the text, with `$` before each placeholder.

    families: how the names of the models begin that fit the client best, the best first.
    without_obsidian, with_key: lines added if the gateway does not allow Obsidian's pages, or if it needs a key.
    """

    title: str
    language: str
    text: str
    families: tuple[str, ...] = ()
    without_obsidian: str = ""
    with_key: str = ""


def fitting_model(client: str, models: Sequence[str]) -> str | None:
    """The model of these that fits a client of `CLIENTS` best: one of the client's vendor, else the first."""
    for family in CLIENTS[client].families:
        for model in models:
            if model.startswith(family):
                return model
    return next(iter(models), None)


def access_of(
    settings: Settings, url: str | None = None, model: str | None = None
) -> GatewayAccess:
    """How to reach the gateway with these settings. `url` overrides the settings; `model`: None if no model is known."""
    passes_on = passes_key_on(settings)
    origins = settings.server.cors_origins
    return GatewayAccess(
        url=_bare(url) if url else gateway_url(settings.server),
        model=model or UNKNOWN_MODEL,
        key="gateway"
        if settings.server.api_keys or settings.keys
        else "upstream"
        if passes_on
        else "none",
        allows_obsidian="*" in origins or OBSIDIAN_ORIGIN in origins,
    )


def passes_key_on(settings: Settings) -> bool:
    """Whether an upstream gets the key that the client sends."""
    return any(upstream.api_key == PASS_ON for upstream in settings.upstreams.values())


def snippet(client: str, access: GatewayAccess) -> str:
    """The text for a client of `CLIENTS`."""
    guide = CLIENTS[client]
    text = guide.text
    if not access.allows_obsidian:
        text += guide.without_obsidian
    if access.key != "none":
        text += guide.with_key
    # A JSON string is also a valid string in TOML, Python and TypeScript.
    values = {"url": access.url, "model": access.model, "key": access.placeholder}
    quoted = {f"{name}_json": dumps(value).decode() for name, value in values.items()}
    shell = {f"{name}_shell": shlex.quote(value) for name, value in values.items()}
    base = dumps(f"{access.url}/v1").decode()
    cors = "off (the gateway allows Obsidian, and answers are streamed)"
    if not access.allows_obsidian:
        cors = "on (answers then come whole)"
    return Template(text).substitute(values | quoted | shell, base_json=base, cors=cors)


def gateway_url(server: ServerSettings) -> str:
    """The URL of the gateway for a client on this machine."""
    host = server.host.removeprefix("[").removesuffix("]")
    host = _ANYWHERE.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def _bare(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


CLIENTS: Mapping[str, ClientGuide] = {
    "codex": ClientGuide(
        "Codex CLI",
        "toml",
        """\
# ~/.codex/config.toml (these two lines above its first [table])
model = $model_json
model_provider = "dragoman"

[model_providers.dragoman]
name = "Dragoman"
base_url = $base_json
wire_api = "responses"
""",
        with_key=f"""\
env_key = "{KEY_VARIABLE}"

# and in the shell: export {KEY_VARIABLE}=$key
""",
        families=("gpt-", "codex"),
    ),
    "claude-code": ClientGuide(
        "Claude Code",
        "sh",
        """\
# in the shell that starts claude
unset ANTHROPIC_API_KEY  # it would be sent instead of the token
export ANTHROPIC_BASE_URL=$url_shell
export ANTHROPIC_AUTH_TOKEN=$key
export ANTHROPIC_MODEL=$model_shell
export ANTHROPIC_DEFAULT_HAIKU_MODEL=$model_shell  # for its small requests in the background
""",
        families=("claude",),
    ),
    "openai": ClientGuide(
        "OpenAI SDK",
        "python",
        """\
from openai import OpenAI

client = OpenAI(base_url=$base_json, api_key=$key_json)
response = client.responses.create(model=$model_json, input="Say hello.")
print(response.output_text)

# client.chat.completions works the same way
""",
        families=("gpt-",),
    ),
    "anthropic": ClientGuide(
        "Anthropic SDK",
        "python",
        """\
from anthropic import Anthropic

client = Anthropic(base_url=$url_json, api_key=$key_json)
message = client.messages.create(
    model=$model_json,
    max_tokens=1024,
    messages=[{"role": "user", "content": "Say hello."}],
)
print(message.content)
""",
        families=("claude",),
    ),
    "obsidian": ClientGuide(
        "Obsidian Copilot",
        "text",
        """\
Obsidian: Settings > Copilot > Model > Add Model

  Model Name   $model
  Provider     OpenAI Format
  Base URL     $url/v1
  API Key      $key
  Enable CORS  $cors
""",
        without_obsidian=f"""
To have them streamed, switch it off and allow Obsidian in dragoman.toml:

  [server]
  cors_origins = ["{OBSIDIAN_ORIGIN}"]
""",
    ),
    "vercel": ClientGuide(
        "Vercel AI SDK",
        "ts",
        """\
// npm install ai @ai-sdk/openai-compatible
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";

const dragoman = createOpenAICompatible({
  name: "dragoman",
  baseURL: $base_json,
  apiKey: $key_json,
});
const { text } = await generateText({
  model: dragoman($model_json),
  prompt: "Say hello.",
});
console.log(text);
""",
    ),
}
"""Every client that has a text, by its name on the command line."""
