"""What an answer under the contract amounted to: said in the stream's last comment, in headers and in the log."""

from msgspec import Struct

from dragoman._json import dumps
from dragoman.textcalls.contract.policy import OutputMode, StopMode

__all__ = ("ContractReport",)


class ContractReport(Struct, frozen=True, kw_only=True):
    """tool_call_count: calls that may be run. tool_call_truncated: whether calls were withheld that the model made."""

    output_mode: OutputMode
    tool_call_count: int = 0
    tool_call_names: tuple[str, ...] = ()
    tool_call_ids: tuple[str, ...] = ()
    tool_call_truncated: bool = False
    stop_after_tools_mode: StopMode = "burst"

    @property
    def comment(self) -> str:
        """The last comment of a stream."""
        facts = {
            "tool_call_count": self.tool_call_count,
            "tool_call_truncated": self.tool_call_truncated,
            "stop_after_tools_mode": self.stop_after_tools_mode,
        }
        return dumps(facts).decode()

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The same, of an answer that is not streamed."""
        return (
            (b"x-codex-stop-after-tools-mode", self.stop_after_tools_mode.encode()),
            (b"x-codex-tool-call-count", b"%d" % self.tool_call_count),
            (b"x-codex-tool-call-truncated", b"true" if self.tool_call_truncated else b"false"),
        )

    @property
    def facts(self) -> dict[str, object]:
        """All of it, for a log line."""
        return {
            "output_mode": self.output_mode,
            "has_tool_calls": self.tool_call_count > 0,
            "tool_call_count": self.tool_call_count,
            "tool_call_names": list(self.tool_call_names),
            "tool_call_ids": list(self.tool_call_ids),
            "tool_call_truncated": self.tool_call_truncated,
            "stop_after_tools_mode": self.stop_after_tools_mode,
        }
