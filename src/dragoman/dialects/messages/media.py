"""Images and files of a conversation as blocks. The vendor takes images, PDFs and plain text; other media are losses."""

from base64 import b64decode
from binascii import Error as Base64Error

from dragoman.core.losses import LossBook
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import Block, own_extra
from dragoman.model.parts import Media

__all__ = ("media_block",)

_PDF = "application/pdf"
# OpenAI's file ids; the vendor's own begin with `file_`.
_FOREIGN_FILE = "file-"


def media_block(media: Media, book: LossBook, where: str) -> Block | None:
    """A block, or None with a loss noted."""
    note_foreign(book, media.extra, where)
    if media.kind in ("audio", "video"):
        book.note("audio" if media.kind == "audio" else "video", where)
        return None
    if media.file_id is not None and media.file_id.startswith(_FOREIGN_FILE):
        book.note("file_id", where)
        return None
    source = _source(media)
    if source is None:
        book.note("file_type", where, media.media_type or "unknown type")
        return None
    own = dict(own_extra(media.extra))
    block: Block = {"type": "image" if media.kind == "image" else "document", "source": source}
    if media.kind != "image" and media.filename:
        block["title"] = media.filename
    elif media.filename:
        book.note("file_name", where)
    if media.detail not in (None, "auto"):
        book.note("image_detail", where, str(media.detail))
    return {**block, **own}


def _source(media: Media) -> Block | None:
    media_type, data, url = media.media_type, media.data, media.url
    if url is not None and url.startswith("data:"):
        head, _, data = url.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0] or media_type
        url = None
    if media.file_id is not None:
        return {"type": "file", "file_id": media.file_id}
    if url is not None:
        return {"type": "url", "url": url}
    if data is None:
        return None
    if media.kind == "image":
        return {"type": "base64", "media_type": media_type or "image/png", "data": data}
    if media_type in (None, _PDF):
        return {"type": "base64", "media_type": _PDF, "data": data}
    if media_type.startswith("text/"):
        text = _decoded(data)
        return None if text is None else {"type": "text", "media_type": "text/plain", "data": text}
    return None


def _decoded(data: str) -> str | None:
    try:
        return b64decode(data, validate=True).decode("utf-8")
    except (Base64Error, ValueError):
        return None
