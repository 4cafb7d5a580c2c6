"""Every exception this package raises on purpose.

    GatewayError
      ConfigError            the operator's settings cannot work
      ProtocolError
        LocalProtocolError   our side broke the grammar: a bug here, or a misuse of the library
        RemoteProtocolError  the other side broke its protocol
          MalformedJson      bytes that should be JSON are not
          FrameTooLarge      one SSE frame (or one body) exceeds its limit
          StreamTruncated    the stream ended before its protocol's end
      RequestRefused         the client's request cannot be served as it stands
      UpstreamError          the provider answered with an error, or not at all
      ToolError              one tool call cannot be used; becomes a result for the model
        FatalToolError       nothing more can be done in this conversation; ends the turn
      StoreError             stored state is missing or cannot be reached
        StoreUnavailable     the store does not answer, or not in time
        StoreMissing         nothing is stored under this id, for this caller, any more
        StoreConflict        the stored value exists already, or has already ended
          StoreHeld          another response holds the conversation
        StoreTooLarge        a value exceeds a limit of the store
        StoreDamaged         the store cannot be read: another program or a later version wrote it, or it is broken

Each class has a `kind` (the canonical error vocabulary of `model.outcome.ErrorKind`) and the HTTP status to use
while no byte of an answer has been sent, so no caller needs a chain of ifs from classes to codes.
"""

__all__ = (
    "ConfigError",
    "FatalToolError",
    "FrameTooLarge",
    "GatewayError",
    "LocalProtocolError",
    "MalformedJson",
    "ProtocolError",
    "RemoteProtocolError",
    "RequestRefused",
    "StoreConflict",
    "StoreDamaged",
    "StoreError",
    "StoreHeld",
    "StoreMissing",
    "StoreTooLarge",
    "StoreUnavailable",
    "StreamTruncated",
    "ToolError",
    "UpstreamError",
)


class GatewayError(Exception):
    """Root of the tree. `message` says what was expected, what came, and where.

    kind, status: None: those of the class.
    detail: text for the operator only, such as addresses of other machines. It is logged and not sent to clients.
    """

    kind: str = "server"
    status: int = 500
    detail: str = ""

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        status: int | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        if kind is not None:
            self.kind = kind
        if status is not None:
            self.status = status
        if detail:
            self.detail = detail

    @property
    def whole(self) -> str:
        """The message with the detail, for the operator."""
        return f"{self.message} ({self.detail})" if self.detail else self.message


class ConfigError(GatewayError):
    """The operator's settings, or the arguments of a program that uses the library, cannot work."""

    kind = "config"


class ProtocolError(GatewayError):
    """One side of a conversation broke the rules of its protocol."""

    kind = "protocol"
    status = 502


class LocalProtocolError(ProtocolError):
    """Our side broke the grammar: a bug here, or a misuse of the library."""

    status = 500


class RemoteProtocolError(ProtocolError):
    """The other side broke its protocol."""


class MalformedJson(RemoteProtocolError):
    """Bytes that should be JSON are not."""


class FrameTooLarge(RemoteProtocolError):
    """One SSE frame or one body of an answer exceeds its limit. (The kind `too_large` is for requests.)"""


class StreamTruncated(RemoteProtocolError):
    """The stream ended before its protocol's end."""

    kind = "truncated"


class RequestRefused(GatewayError):
    """The client's request is wrong. `param` is the path of the offending field, `code` a stable machine-readable word."""

    kind = "invalid_request"
    status = 400

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class UpstreamError(GatewayError):
    """The provider answered with an error, or not at all."""

    kind = "upstream"
    status = 502


class ToolError(GatewayError):
    """One tool call cannot be used; it becomes a result for the model."""

    kind = "tool"
    status = 422


class FatalToolError(ToolError):
    """A tool found that nothing more can be done in this conversation; the turn ends."""


class StoreError(GatewayError):
    """Stored state is missing or cannot be reached."""

    kind = "store"
    status = 503


class StoreUnavailable(StoreError):
    """The store does not answer, or not in time. A write may or may not have happened."""

    kind = "overloaded"


class StoreMissing(StoreError):
    """Nothing is stored under this id, for this caller, any more. `response_id` is the missing id."""

    kind = "not_found"
    status = 404

    def __init__(self, message: str, *, response_id: str | None = None) -> None:
        super().__init__(message)
        self.response_id = response_id


class StoreConflict(StoreError):
    """The stored value exists already, or has already ended."""

    kind = "conflict"
    status = 409


class StoreHeld(StoreConflict):
    """Another response holds the conversation, or has held it meanwhile."""


class StoreTooLarge(StoreError):
    """A value exceeds a limit of the store."""

    kind = "too_large"
    status = 413


class StoreDamaged(StoreError):
    """The store cannot be read: another program or a later version wrote it, or it is broken."""

    status = 500
