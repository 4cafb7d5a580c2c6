"""Which contract one request to the Chat door is served under: the request's header, then the settings. Pure.

    x-proxy-output-mode   of this request
    [chat] output_mode    of the gateway (PROXY_OUTPUT_MODE wins over the file)
    output_mode           of the upstream
    by its kind           `obsidian-xml` for `codex`, `openai-json` for all others

Without a header, with nothing said in `[chat]` and by the upstream, there is no contract: answers pass as they would.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from dragoman.core.aliases import NameMap
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Repair
from dragoman.model.request import Request
from dragoman.server.settings import ChatSettings
from dragoman.textcalls.contract.chain import Contract, tail_of
from dragoman.textcalls.contract.policy import ContractPolicy, OutputMode, mode_of
from dragoman.textcalls.contract.results import pair_written_results
from dragoman.textcalls.formats.use_tool import USE_TOOL
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.stage import StageSettings, TextCallStage
from dragoman.textcalls.tail import TailPolicy
from dragoman.upstream.settings import UpstreamSettings

__all__ = (
    "MODE_HEADER",
    "Terms",
    "contract_request",
    "formats_under",
    "is_contracted",
    "make_contract",
    "stage_without_tools",
    "terms_of",
)

MODE_HEADER = b"x-proxy-output-mode"

_DEFAULTS = ChatSettings()
_BLOCKS = "use_tool"
_CODEX = "codex"  # the kind of upstream that the contract was made for


class Terms(Struct, frozen=True):
    """What one request is served under. grace: seconds to wait for further calls where the turn is to stop."""

    policy: ContractPolicy
    grace: float
    parallel_calls: bool | None
    pairs_results: bool

    @property
    def tail(self) -> TailPolicy:
        """What it means for calls that come as text."""
        return tail_of(self.policy)

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The effective mode, for the answer."""
        return MODE_HEADER, self.policy.mode.encode()


def is_contracted(chat: ChatSettings, upstream: UpstreamSettings) -> bool:
    """Whether there are terms for every request, also for one that asks for none."""
    is_codex = str(upstream.kind) == _CODEX
    return is_codex or upstream.output_mode is not None or chat != _DEFAULTS


def terms_of(
    chat: ChatSettings, upstream: UpstreamSettings, headers: Mapping[bytes, bytes]
) -> Terms | None:
    """The terms for one request; None where nobody asked for any.

    Raises:
        RequestRefused: the header names no mode.
    """
    asked = headers.get(MODE_HEADER)
    if asked is None and not is_contracted(chat, upstream):
        return None
    is_codex = str(upstream.kind) == _CODEX
    mode = _mode(chat, upstream, asked)
    finishes = (chat.error_after_calls or ("finish" if is_codex else "fail")) == "finish"
    written = chat.written_results
    policy = ContractPolicy(
        mode=mode,
        xml_escape=chat.xml_escape,
        stop=chat.stop_after_tools,
        stop_mode=chat.stop_after_tools_mode,
        suppress_tail=chat.suppress_tail_after_tools,
        max_calls=chat.tool_block_max,
        delimiter=chat.tool_block_delimiter,
        dedup=chat.tool_block_dedup,
        finish_failed=finishes,
    )
    return Terms(
        policy,
        grace=chat.stop_after_tools_grace_ms / 1000,
        parallel_calls=chat.enable_parallel_tool_calls,
        pairs_results=written == "on" or (written == "auto" and mode == "obsidian-xml"),
    )


def contract_request(request: Request, terms: Terms) -> tuple[Request, tuple[Repair, ...]]:
    """The request as it is to be asked under these terms; the same object if nothing changes."""
    repairs: tuple[Repair, ...] = ()
    if terms.pairs_results:
        request, repairs = pair_written_results(request)
    if terms.parallel_calls is not None and request.parallel_calls is None and request.tools:
        request = structs.replace(request, parallel_calls=terms.parallel_calls)
    return request, repairs


def formats_under(terms: Terms, formats: tuple[str, ...]) -> tuple[str, ...]:
    """The formats of written calls to look for: a client that reads `<use_tool>` has a model that may write it."""
    if terms.policy.mode != "obsidian-xml" or formats == ("auto",) or _BLOCKS in formats:
        return formats
    return (*formats, _BLOCKS)


def stage_without_tools(terms: Terms, request: Request, seed: str) -> TextCallStage | None:
    """What finds `<use_tool>` blocks where the client declares no tools, but describes them in its prompt.

    Obsidian Copilot up to 3.1.5 does; so every name counts, and values have no types.
    """
    choice = request.tool_choice
    if terms.policy.mode != "obsidian-xml" or (choice is not None and choice.mode == "none"):
        return None
    patterns = tuple(USE_TOOL)
    return TextCallStage(
        StageSettings(offers=Offers(None), patterns=patterns, policy=terms.tail, seed=seed)
    )


def make_contract(
    terms: Terms,
    request: Request,
    *,
    names: NameMap,
    written: TextCallStage | None,
    upstream: UpstreamSettings,
) -> Contract:
    """The contract at work on one answer."""
    return Contract(
        terms.policy,
        tools=request.tools,
        names=names,
        written=written,
        losses=upstream.losses,
        choices=request.choices or 1,
    )


def _mode(chat: ChatSettings, upstream: UpstreamSettings, asked: bytes | None) -> OutputMode:
    if asked is not None:
        mode = mode_of(asked.decode("latin-1"))
        if mode is None:
            raise RequestRefused(
                f'{MODE_HEADER.decode()}: expected "obsidian-xml" or "openai-json", '
                f"got {asked[:40].decode('latin-1')!r}",
                param=MODE_HEADER.decode(),
                code="unknown_output_mode",
            )
        return mode
    said = chat.output_mode or upstream.output_mode
    default: OutputMode = "obsidian-xml" if str(upstream.kind) == _CODEX else "openai-json"
    return (mode_of(said) if said is not None else None) or default
