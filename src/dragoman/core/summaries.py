"""The form in which a client carries the summary of a conversation: one opaque string that contains the summary itself.

A client may send it back after days, to another gateway, for another upstream, so nothing of it is stored here. The string is
`dgmc1.` + a digest + `.` + base64url of JSON. The digest finds damage: truncated and altered strings. It is not a signature, and does not
find a forgery. It need not: a summary becomes a message of the user, and a client may write any such message itself. Nodes share no
secret, so a signature would also tie a conversation to one of them.

Where a provider made the compaction, the string also contains the provider's own item or block, for the way back to it. The provider
checks its own signature. A string with anything else in its place is refused, so that no other item or block gets past the gateway.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import blake2b

from msgspec import Struct

from dragoman._json import Raw, as_object, dumps
from dragoman.core.fields import read_bool, read_object, read_text
from dragoman.errors import MalformedJson, RequestRefused

TAG = "dgmc1."
COMPACTIONS = frozenset({"compaction", "compaction_summary"})
"""The types of an item or block that contains a summary: the second is an older name of the item."""
INVALID = "invalid_encrypted_content"
"""OpenAI's code for content that it cannot decrypt."""


class Packed(Struct, frozen=True, kw_only=True):
    """A compaction in a string.

    summary: None if only the provider can read it. native: the provider's item or block, in `dialect`. is_inline: the provider made it
    in the middle of an answer, so what precedes it is no longer needed; else the client has already left out what it replaces.
    """

    summary: str | None = None
    native: Raw | None = None
    dialect: str = ""
    is_inline: bool = False


def pack_summary(packed: Packed) -> str:
    """Return the string for `encrypted_content`."""
    fields: dict[str, object] = {"summary": packed.summary}
    if packed.native is not None:
        fields |= {"native": packed.native, "dialect": packed.dialect}
    if packed.is_inline:
        fields["inline"] = True
    data = dumps(fields)
    return f"{TAG}{_digest(data)}.{urlsafe_b64encode(data).decode('ascii')}"


def unpack_summary(packed: str) -> Packed | None:
    """Return what the string contains; None if the string was not made by a gateway of this kind.

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
    native = fields.get("native")
    found = Packed(
        summary=read_text(fields.get("summary")),
        native=native,
        dialect=read_text(fields.get("dialect")) or "",
        is_inline=read_bool(fields.get("inline")) or False,
    )
    is_whole = found.summary is not None if native is None else _is_compaction(native)
    if not is_whole:
        raise refusal("expected the content of a compaction as it was sent, got a damaged one")
    return found


def _is_compaction(native: Raw) -> bool:
    """Whether a provider's item or block is a compaction."""
    return read_text(read_object(native).get("type")) in COMPACTIONS


def refusal(message: str) -> RequestRefused:
    """The refusal of a compaction whose content cannot be read."""
    return RequestRefused(f"input: {message}", param="input", code=INVALID)


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
