"""What clients say about the provider's cache of prompts: breakpoints, how long they last, and the settings of a request.

Each dialect names the fields (`BreakpointForm`); this module knows what is common to them.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from dragoman._json import Raw
from dragoman.core.fields import Fields, ask_present, ask_text, extra_of, read_object, read_text
from dragoman.model.parts import Breakpoint, Dialect, Extra
from dragoman.model.request import CacheSettings

# The few objects that clients write as breakpoints, each of some tens of bytes. Longer ones are not cached.
_OBJECTS = 64
_LONGEST = 128

_TTL = "ttl"
_OPTIONS = frozenset({"mode", _TTL})
_UNITS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,6})([smhd])")


class BreakpointForm:
    """The object of a breakpoint in one dialect: a field that always has the same word, and how long the breakpoint lasts.

    alone: clients that write this form place all breakpoints themselves.
    """

    def __init__(self, dialect: Dialect, field: str, word: str, *, alone: bool) -> None:
        self._dialect: Dialect = dialect
        self._field = field
        self._word = word
        self._alone = alone
        self._read = lru_cache(_OBJECTS)(self._read_object)

    def read(self, value: Raw | None) -> Breakpoint | None:
        """Read a breakpoint; None if the value is not an object."""
        if value is None:
            return None
        source = bytes(value)
        return self._read(source) if len(source) <= _LONGEST else self._read_object(source)

    def _read_object(self, source: bytes) -> Breakpoint | None:
        fields = read_object(source)
        if not fields:
            return None
        ttl = read_text(fields.get(_TTL))
        is_known = read_text(fields.get(self._field)) == self._word
        is_whole = is_known and len(fields) == (1 if ttl is None else 2)
        extra = None if is_whole else Extra(self._dialect, fields)
        return Breakpoint(ttl=ttl, alone=self._alone, extra=extra)

    def write(self, point: Breakpoint) -> dict[str, object]:
        """Write a breakpoint; one that came in this form, of whichever dialect, unchanged."""
        if point.extra is not None and point.alone == self._alone:
            return dict(point.extra.fields)
        stated: dict[str, object] = {self._field: self._word}
        if point.ttl is not None:
            stated[_TTL] = point.ttl
        return stated


def read_settings(
    dialect: Dialect, fields: Fields, options_key: str, retention_key: str
) -> CacheSettings | None:
    """The settings of a request, from the two fields that have them in both of OpenAI's dialects.

    Raises:
        RequestRefused: one of them has a value of another type.
    """
    options, retention = ask_present(fields, options_key), ask_text(fields, retention_key)
    if options is None:
        return None if retention is None else CacheSettings(retention=retention)
    rest = extra_of(dialect, options, _OPTIONS)
    mode, ttl = ask_text(options, "mode", options_key), ask_text(options, _TTL, options_key)
    is_stated = rest is not None or mode is not None or ttl is not None
    return CacheSettings(
        mode=mode,
        ttl=ttl,
        retention=retention,
        extra=rest if is_stated else Extra(dialect, {}),  # an empty object is an object
    )


def write_options(settings: CacheSettings) -> dict[str, object] | None:
    """The options that `read_settings` read; None if the client sent none."""
    extra = settings.extra
    stated = {"mode": settings.mode, _TTL: settings.ttl}
    written: dict[str, object] = {name: word for name, word in stated.items() if word is not None}
    if extra is None:
        return written or None
    return {**written, **extra.fields}


def seconds_of(duration: str | None) -> int | None:
    """How long a duration like `30m` is; None for any other word."""
    found = None if duration is None else _DURATION.fullmatch(duration)
    return None if found is None else int(found[1]) * _UNITS[found[2]]
