"""A string that a schema allows, from the user's words where that does no harm. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.upstream.rehearsal.harmless import NOWHERE, PLACEHOLDER, is_path_name, safe_text
from dragoman.upstream.rehearsal.merging import Schema, list_in, number_in
from dragoman.upstream.rehearsal.patterns import example
from dragoman.upstream.rehearsal.words import Words, split_name, vocabulary

__all__ = ("MAX_STRING", "StringMaker")

# A schema may demand a string of any length; past this it gets a shorter one.
MAX_STRING = 100_000
# How much of the user's text a parameter such as `query` gets.
MAX_PASSAGE = 200

_FORMATS: Mapping[str, str] = {
    "date": "2025-01-15",
    "date-time": "2025-01-15T12:00:00Z",
    "datetime": "2025-01-15T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "rehearsal@example.com",
    "idn-email": "rehearsal@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "iri": "https://example.com/",
    "uri-reference": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/rehearsal",
    "regex": "rehearsal",
    "byte": "cmVoZWFyc2Fs",
    "binary": "rehearsal",
}
"""Names and addresses are those that standards reserve for examples: nobody is at the other end."""

_FORMAT_OF_NAME: Mapping[str, str] = {
    "email": "email",
    "mail": "email",
    "url": "uri",
    "uri": "uri",
    "link": "uri",
    "href": "uri",
    "date": "date",
    "uuid": "uuid",
    "hostname": "hostname",
}
_TEXT_OF_NAME: Mapping[str, str] = {
    "timezone": "UTC",
    "language": "en",
    "lang": "en",
    "locale": "en",
}
_PASSAGES = vocabulary(
    "body content input instruction message phrase prompt q query question search sentence text topic"
)


class StringMaker(Struct):
    """Makes the strings of one call: every one takes the next of the user's names.

    careful: the tool changes or runs things, so it gets placeholders only.
    """

    words: Words
    tool: str = ""
    careful: bool = False
    taken: int = 0

    def make(self, schema: Schema, name: str, nudge: int = 0) -> str:
        """A string for a parameter of this name."""
        pattern = schema.get("pattern")
        least = int(number_in(schema, "minLength") or 0)
        if isinstance(pattern, str):
            text = example(pattern, min(least, MAX_STRING))
            if text is not None:
                return text
        text = self._formatted(schema.get("format"))
        if text is None:
            text = safe_text(name, self.tool)
        if text is None:
            text = _stated(schema.get("default"), schema) or self._named(name, schema)
        return _fit(f"{text} {nudge + 1}" if nudge else text, schema)

    def _formatted(self, form: object) -> str | None:
        if not isinstance(form, str) or form not in _FORMATS:
            return None
        if self.careful:
            return _FORMATS[form]
        if form == "date" and self.words.dates:
            return self.words.dates[0]
        if form in ("uri", "url") and self.words.urls:
            return self.words.urls[0]
        return _FORMATS[form]

    def _named(self, name: str, schema: Schema) -> str:
        words = split_name(name)
        if is_path_name(name):
            if self.careful:
                return NOWHERE
            return self.words.paths[0] if self.words.paths else "README.md"
        for word in words:
            if word in _FORMAT_OF_NAME:
                return self._formatted(_FORMAT_OF_NAME[word]) or PLACEHOLDER
            if word in _TEXT_OF_NAME:
                return _TEXT_OF_NAME[word]
        if self.careful:
            return PLACEHOLDER
        said = self.words.text.strip()
        if said and not _PASSAGES.isdisjoint(words):
            return said[:MAX_PASSAGE]
        examples = (_stated(each, schema) for each in list_in(schema.get("examples")))
        return self._next_name() or next(filter(None, examples), PLACEHOLDER)

    def _next_name(self) -> str | None:
        names = self.words.names
        if not names:
            return None
        text = names[self.taken % len(names)]
        self.taken += 1
        return text


def _stated(value: object, schema: Schema) -> str | None:
    """What the schema itself gives as a default or an example, if it is a string that fits."""
    if not isinstance(value, str) or not value:
        return None
    return value if _fit(value, schema) == value else None


def _fit(text: str, schema: Schema) -> str:
    """The text, made as long as it must be and cut where it may not be longer."""
    least = min(int(number_in(schema, "minLength") or 0), MAX_STRING)
    most = number_in(schema, "maxLength")
    if len(text) < least:
        text += (f" {PLACEHOLDER}" * (1 + least // (1 + len(PLACEHOLDER))))[: least - len(text)]
    return text if most is None or most < 0 else text[: int(most)]
