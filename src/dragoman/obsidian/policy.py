"""Determines the policy for one request of the Chat API. The first of these that is set decides the output mode:

    x-proxy-output-mode   the header of the request
    [chat] output_mode    the setting of the gateway (PROXY_OUTPUT_MODE wins over the file)
    output_mode           the setting of the upstream
    the upstream's kind   `obsidian-xml` for `codex`, `openai-json` for all others

If none of the first three is set, the other `[chat]` settings have their defaults and the upstream is not Codex, then no
policy applies and this package does not change the answer.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.errors import RequestRefused
from dragoman.obsidian.settings import ChatSettings, OutputMode, mode_of
from dragoman.textcalls.tail import TailPolicy

MODE_HEADER = b"x-proxy-output-mode"

_DEFAULTS = ChatSettings()
_CODEX = "codex"  # the kind of upstream that the contract was made for


class ObsidianPolicy(Struct, frozen=True, kw_only=True):
    """The settings, and what they leave to the request and the upstream.

    mode: `obsidian-xml` writes each call as a `<use_tool>` block too, after the text before it.
    finish_failed: an answer that fails after complete calls ends with those calls, not with the failure.
    parallel_calls: sent to the upstream if the client did not set it. pairs_results: see `request`.
    """

    chat: ChatSettings = _DEFAULTS
    mode: OutputMode = "openai-json"
    finish_failed: bool = False
    parallel_calls: bool | None = None
    pairs_results: bool = False

    @property
    def grace(self) -> float:
        """The seconds to wait for further calls before the turn is ended."""
        return self.chat.stop_after_tools_grace_ms / 1000

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The mode that applies, as a header of the answer."""
        return MODE_HEADER, self.mode.encode()

    @property
    def tail(self) -> TailPolicy:
        """The policy for calls that came as text. `max_calls` counts them later, together with all others."""
        stops = self.chat.stop_after_tools
        return TailPolicy(
            stop="never" if stops is False else self.chat.stop_after_tools_mode,
            suppress_tail=stops is True or self.chat.suppress_tail_after_tools is not False,
        )


def always_applies(chat: ChatSettings, *, kind: str, upstream_mode: str | None) -> bool:
    """Whether a policy applies to every request, even to one without the header.

    kind: the upstream's. upstream_mode: the `output_mode` of the upstream's settings.
    """
    return kind == _CODEX or upstream_mode is not None or chat != _DEFAULTS


def policy_for(
    chat: ChatSettings, headers: Mapping[bytes, bytes], *, kind: str, upstream_mode: str | None
) -> ObsidianPolicy | None:
    """The policy for one request; None if neither the request nor the settings ask for one.

    Raises:
        RequestRefused: the header does not name a known mode.
    """
    requested = headers.get(MODE_HEADER)
    if requested is None and not always_applies(chat, kind=kind, upstream_mode=upstream_mode):
        return None
    if requested is not None:
        mode = _requested_mode(requested)
    else:
        default: OutputMode = "obsidian-xml" if kind == _CODEX else "openai-json"
        mode = mode_of(chat.output_mode or upstream_mode or "") or default
    after_calls = chat.error_after_calls or ("finish" if kind == _CODEX else "fail")
    results = chat.written_results
    return ObsidianPolicy(
        chat=chat,
        mode=mode,
        finish_failed=after_calls == "finish",
        parallel_calls=_parallel_calls(chat, kind, mode),
        pairs_results=results == "on" or (results == "auto" and mode == "obsidian-xml"),
    )


def _parallel_calls(chat: ChatSettings, kind: str, mode: OutputMode) -> bool | None:
    """Off by default with Codex, as in the original proxy, for clients that may run the calls of one answer at once.

    A reader of `<use_tool>` blocks runs them one after the other, and sends the results as text, which continues no turn of
    Codex: held back, the other calls of a turn would be lost. So that mode gets all calls of a turn, unless the setting forbids it.
    """
    if chat.enable_parallel_tool_calls is not None:
        return chat.enable_parallel_tool_calls
    return False if kind == _CODEX and mode == "openai-json" else None


def _requested_mode(header: bytes) -> OutputMode:
    mode = mode_of(header.decode("latin-1"))
    if mode is None:
        raise RequestRefused(
            f'{MODE_HEADER.decode()}: expected "obsidian-xml" or "openai-json", '
            f"got {header[:40].decode('latin-1')!r}",
            param=MODE_HEADER.decode(),
            code="unknown_output_mode",
        )
    return mode
