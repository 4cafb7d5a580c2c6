"""What to paste into a client so that it uses the gateway. Text only; nothing here looks whether one is running.

Each text is valid in the language of the place it goes to (TOML, shell, Python, TypeScript), so that it can be pasted,
or piped, as it is; what a person must know besides stands in comments.
"""

import shlex
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from dragoman._json import dumps
from dragoman.config.settings import PASS_ON, ServerSettings, Settings
from dragoman.gateway.route import default_model

KEY_VARIABLE = "DRAGOMAN_API_KEY"
OBSIDIAN_ORIGIN = "app://obsidian.md"
UNKNOWN_MODEL = "your-model"

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to connect if all of them are listened on


class GatewayAccess(Struct, frozen=True, kw_only=True):
    """url: without `/v1` and without a slash at the end. key: whose key the client must send."""

    url: str
    model: str = UNKNOWN_MODEL
    key: Literal["none", "gateway", "upstream"] = "none"
    allows_obsidian: bool = False

    @property
    def placeholder(self) -> str:
        """What stands where a key belongs. Clients insist on one even if nobody reads it."""
        words = {"gateway": "YOUR-GATEWAY-KEY", "upstream": "YOUR-UPSTREAM-KEY", "none": "unused"}
        return words[self.key]


class ClientGuide(Struct, frozen=True):
    """One client: its name for people, the language of its text, and the text."""

    title: str
    language: str
    write: Callable[[GatewayAccess], str]


def access_of(
    settings: Settings, url: str | None = None, model: str | None = None
) -> GatewayAccess:
    """How to reach the gateway that these settings make; `url` and `model` as given, if they are."""
    passes_on = any(upstream.api_key == PASS_ON for upstream in settings.upstreams.values())
    origins = settings.server.cors_origins
    return GatewayAccess(
        url=_bare(url) if url else gateway_url(settings.server),
        model=model or default_model(settings) or UNKNOWN_MODEL,
        key="gateway" if settings.server.api_keys else "upstream" if passes_on else "none",
        allows_obsidian="*" in origins or OBSIDIAN_ORIGIN in origins,
    )


def snippet(client: str, access: GatewayAccess) -> str:
    """The text for a client of `CLIENTS`."""
    return CLIENTS[client].write(access)


def gateway_url(server: ServerSettings) -> str:
    """Where a client on this machine finds the gateway."""
    host = server.host.removeprefix("[").removesuffix("]")
    host = _ANYWHERE.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def _bare(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _quoted(text: str) -> str:
    """A string of JSON is one of TOML, Python and TypeScript too."""
    return dumps(text).decode()


def _codex(access: GatewayAccess) -> str:
    lines = [
        "# ~/.codex/config.toml (these two lines above its first [table])",
        f"model = {_quoted(access.model)}",
        'model_provider = "dragoman"',
        "",
        "[model_providers.dragoman]",
        'name = "Dragoman"',
        f"base_url = {_quoted(access.url + '/v1')}",
        'wire_api = "responses"',
    ]
    if access.key != "none":
        lines += [
            f'env_key = "{KEY_VARIABLE}"',
            "",
            f"# and in the shell: export {KEY_VARIABLE}={access.placeholder}",
        ]
    return _text(lines)


def _claude_code(access: GatewayAccess) -> str:
    model = shlex.quote(access.model)
    return _text(
        [
            "# in the shell that starts claude",
            "unset ANTHROPIC_API_KEY  # it would be sent instead of the token",
            f"export ANTHROPIC_BASE_URL={shlex.quote(access.url)}",
            f"export ANTHROPIC_AUTH_TOKEN={access.placeholder}",
            f"export ANTHROPIC_MODEL={model}",
            f"export ANTHROPIC_DEFAULT_HAIKU_MODEL={model}  # for its small requests in the background",
        ]
    )


def _openai(access: GatewayAccess) -> str:
    base_url, model = _quoted(f"{access.url}/v1"), _quoted(access.model)
    return _text(
        [
            "from openai import OpenAI",
            "",
            f"client = OpenAI(base_url={base_url}, api_key={_quoted(access.placeholder)})",
            f'response = client.responses.create(model={model}, input="Say hello.")',
            "print(response.output_text)",
            "",
            "# client.chat.completions works alike",
        ]
    )


def _anthropic(access: GatewayAccess) -> str:
    base_url = _quoted(access.url)
    return _text(
        [
            "from anthropic import Anthropic",
            "",
            f"client = Anthropic(base_url={base_url}, api_key={_quoted(access.placeholder)})",
            "message = client.messages.create(",
            f"    model={_quoted(access.model)},",
            "    max_tokens=1024,",
            '    messages=[{"role": "user", "content": "Say hello."}],',
            ")",
            "print(message.content)",
        ]
    )


def _obsidian(access: GatewayAccess) -> str:
    lines = [
        "Obsidian: Settings > Copilot > Model > Add Model",
        "",
        f"  Model Name   {access.model}",
        "  Provider     OpenAI Format",
        f"  Base URL     {access.url}/v1",
        f"  API Key      {access.placeholder}",
    ]
    if access.allows_obsidian:
        lines.append("  Enable CORS  off (the gateway allows Obsidian, and answers are streamed)")
    else:
        lines += [
            "  Enable CORS  on (answers then come whole)",
            "",
            "To have them streamed, switch it off and allow Obsidian in dragoman.toml:",
            "",
            "  [server]",
            f'  cors_origins = ["{OBSIDIAN_ORIGIN}"]',
        ]
    return _text(lines)


def _vercel(access: GatewayAccess) -> str:
    return _text(
        [
            "// npm install ai @ai-sdk/openai-compatible",
            'import { createOpenAICompatible } from "@ai-sdk/openai-compatible";',
            'import { generateText } from "ai";',
            "",
            "const dragoman = createOpenAICompatible({",
            '  name: "dragoman",',
            f"  baseURL: {_quoted(access.url + '/v1')},",
            f"  apiKey: {_quoted(access.placeholder)},",
            "});",
            "const { text } = await generateText({",
            f"  model: dragoman({_quoted(access.model)}),",
            '  prompt: "Say hello.",',
            "});",
            "console.log(text);",
        ]
    )


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


CLIENTS: Mapping[str, ClientGuide] = {
    "codex": ClientGuide("Codex CLI", "toml", _codex),
    "claude-code": ClientGuide("Claude Code", "sh", _claude_code),
    "openai": ClientGuide("OpenAI SDK", "python", _openai),
    "anthropic": ClientGuide("Anthropic SDK", "python", _anthropic),
    "obsidian": ClientGuide("Obsidian Copilot", "text", _obsidian),
    "vercel": ClientGuide("Vercel AI SDK", "ts", _vercel),
}
"""Every client that has a text, by the word for it on the command line."""
