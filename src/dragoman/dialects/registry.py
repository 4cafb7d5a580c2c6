"""The dialects by name. The only module that imports all of them."""

from collections.abc import Iterable, Mapping

from dragoman.dialects import chat, codex, messages, responses
from dragoman.dialects.codec import Codec, UpstreamCodec
from dragoman.dialects.shapes import DialectName
from dragoman.errors import ConfigError
from dragoman.model.parts import Dialect

CODECS: Mapping[str, Codec] = {
    "chat": Codec(
        name="chat",
        reader=chat.ChatReader,
        encoder=chat.ChatEncoder,
        check=chat.ChatCheck,
        read_body=chat.read_body,
        read_typed=chat.read_typed,
        write_body=chat.write_body,
        is_usable_body=chat.is_usable_body,
        decode_request=chat.decode_request,
        encode_request=chat.encode_request,
        find_repairs=chat.find_repairs,
        decode_error=chat.decode_error,
        encode_error=chat.encode_error,
        target=chat.DEFAULT_TARGET,
        losses=chat.LOSSES,
    ),
    "responses": Codec(
        name="responses",
        reader=responses.ResponsesReader,
        encoder=responses.ResponsesEncoder,
        check=responses.ResponsesCheck,
        read_body=responses.read_body,
        read_typed=responses.read_typed,
        write_body=responses.write_body,
        is_usable_body=responses.is_usable_body,
        decode_request=responses.decode_request,
        encode_request=responses.encode_request,
        find_repairs=responses.find_repairs,
        decode_error=responses.decode_error,
        encode_error=responses.encode_error,
        target=responses.DEFAULT_TARGET,
        losses=responses.LOSSES,
    ),
    "messages": Codec(
        name="messages",
        reader=messages.MessagesReader,
        encoder=messages.MessagesEncoder,
        check=messages.MessagesCheck,
        read_body=messages.read_body,
        read_typed=messages.read_typed,
        write_body=messages.write_body,
        is_usable_body=messages.is_usable_body,
        decode_request=messages.decode_request,
        check_request=messages.check_request,
        encode_request=messages.encode_request,
        find_repairs=messages.find_repairs,
        decode_error=messages.decode_error,
        encode_error=messages.encode_error,
        aliases_ids=True,
        target=messages.DEFAULT_TARGET,
        losses=messages.LOSSES,
    ),
}
"""Every dialect that doors and upstreams both speak, by its name."""

UPSTREAM_CODECS: Mapping[str, UpstreamCodec] = {
    **CODECS,
    "codex": UpstreamCodec(
        name="codex",
        reader=codex.CodexReader,
        read_body=codex.read_body,
        read_typed=codex.read_typed,
        encode_request=codex.encode_request,
        decode_error=codex.decode_error,
        target=codex.DEFAULT_TARGET,
        losses=codex.LOSSES,
    ),
}
"""Every dialect that some upstream speaks, by its name."""


def codec(dialect: DialectName | str) -> Codec:
    """Return the codec of a dialect that clients speak.

    Examples:
        >>> codec("messages").encode_error(ErrorInfo(kind="overloaded", message="busy"))
        b'{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":null}'

    Raises:
        ConfigError: there is no such dialect.
    """
    try:
        return CODECS[dialect]
    except (KeyError, TypeError):  # a TypeError: it cannot be a key, as a list
        raise _unknown(dialect, CODECS) from None


def upstream_codec(dialect: Dialect | str) -> UpstreamCodec:
    """Return the part of a dialect's codec that an upstream needs.

    Raises:
        ConfigError: there is no such dialect.
    """
    try:
        return UPSTREAM_CODECS[dialect]
    except (KeyError, TypeError):
        raise _unknown(dialect, UPSTREAM_CODECS) from None


def _unknown(dialect: object, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"expected a dialect, one of {', '.join(known)}; got {dialect!r}")
