"""Citations on text, both ways. Chat knows one kind: a URL and the stretch of text it stands for."""

from dragoman._json import Raw, raw
from dragoman.dialects.chat.fields import fields_of, int_of, text_of
from dragoman.model.parts import Annotation

__all__ = ("read_annotation", "write_annotation")


def read_annotation(value: Raw) -> Annotation:
    citation = fields_of(fields_of(value).get("url_citation"))
    return Annotation(
        dialect="chat",
        raw=value,
        url=text_of(citation.get("url")),
        title=text_of(citation.get("title")),
        start=int_of(citation.get("start_index")),
        end=int_of(citation.get("end_index")),
    )


def write_annotation(annotation: Annotation) -> Raw | None:
    """The citation as Chat has it; None if it is not about a URL."""
    if annotation.dialect == "chat":
        return annotation.raw
    if annotation.url is None:
        return None
    # The SDK's type demands all four. Without a stretch of its own a citation stands at the beginning.
    citation = {
        "end_index": annotation.end or 0,
        "start_index": annotation.start or 0,
        "title": annotation.title or annotation.url,
        "url": annotation.url,
    }
    return raw({"type": "url_citation", "url_citation": citation})
