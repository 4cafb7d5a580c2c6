"""The form in which a client carries the summary of a conversation: one opaque string that contains the summary itself.

A client may send it back after days, to another gateway, for another upstream, so nothing of it is stored here. The string is
`dgmc1.` + a digest + `.` + base64url of JSON. The digest finds truncated and altered strings. It is no signature: a client that
writes its own summary gains nothing, because it may write any message of its conversation.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import blake2b

from dragoman._json import as_object, dumps
from dragoman.core.fields import read_text
from dragoman.errors import MalformedJson, RequestRefused

TAG = "dgmc1."
INVALID = "invalid_encrypted_content"
"""OpenAI's code for content that it cannot decrypt."""


def pack_summary(summary: str) -> str:
    """Return the string for `encrypted_content`."""
    data = dumps({"summary": summary})
    return f"{TAG}{_digest(data)}.{urlsafe_b64encode(data).decode('ascii')}"


def unpack_summary(packed: str) -> str | None:
    """Return the summary; None if the string was not made by a gateway of this kind.

    Raises:
        RequestRefused: the string was made here, and was damaged since.
    """
    if not packed.startswith(TAG):
        return None
    digest, _, encoded = packed.removeprefix(TAG).partition(".")
    try:
        data = urlsafe_b64decode(encoded.encode("ascii"))
        fields = as_object(data) if _digest(data) == digest else {}
    except (Base64Error, ValueError, MalformedJson):  # ValueError: a character that is not ASCII
        fields = {}
    summary = read_text(fields.get("summary"))
    if summary is None:
        raise refusal("expected the content of a compaction as it was sent, got a damaged one")
    return summary


def refusal(message: str) -> RequestRefused:
    """The refusal of a compaction whose content cannot be read."""
    return RequestRefused(f"input: {message}", param="input", code=INVALID)


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
