"""Aliases: replaces names and ids that a target's charset or length forbids, and finds the originals again.

A valid name or id is never changed. The rules for the others:

- a tool in a namespace becomes `namespace__name` if the dialect has no namespaces;
- a name that is too long or has forbidden characters becomes a readable part and a hash of the whole name, so that
  different names stay different; `NameMap` resolves the remaining collisions over the whole list of tools;
- an id with forbidden characters becomes `dgm_` + base64url, which `original_id` decodes; if that does not fit, the id
  becomes a readable part and a hash.

Aliases depend on the input alone: the same conversation gets the same aliases on every request. This module does not
know which target has which limits.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from hashlib import shake_256
from string import ascii_letters, ascii_lowercase, digits

from msgspec import Struct, structs

from dragoman.core.tool_cache import made_of
from dragoman.errors import ConfigError
from dragoman.model.parts import CLIENT_KINDS, Call, Part, Result
from dragoman.model.request import Tool, ToolRef

NAMESPACE_JOIN = "__"
REVERSIBLE = "dgm_"

# 36^8 names: two of a thousand tools collide once in six million lists, and a collision only costs another hash.
NAME_HASH = 8
# 62^16 is 95 bits: ids are aliased one by one, so only the width of the hash keeps two of them apart.
ID_HASH = 16
# OpenAI's `safety_identifier`; others refuse a `user` beyond 128. Claude Code sends some 150 characters.
MAX_USER = 64
USER_HASH = 32
# A shorter readable part would not be readable.
MIN_HEAD = 4
# Reached only if the limits are too narrow for the list (a thousand tools in two characters).
MAX_SALT = 1000

ToolKey = tuple[str | None, str]
"""The namespace and the name of a tool."""


class NameLimits(Struct, frozen=True, cache_hash=True):
    """Limits of a target for a tool's name.

    `pattern` is a regular expression for one allowed character; `reserved` are names that the target reserves.
    """

    pattern: str = "[a-zA-Z0-9_-]"
    max_length: int = 64
    reserved: frozenset[str] = frozenset()


class IdLimits(Struct, frozen=True, cache_hash=True):
    """Limits of a target for a call id. `pattern` is a regular expression for one allowed character."""

    pattern: str = "[a-zA-Z0-9_-]"
    max_length: int = 64
    min_length: int = 1


DEFAULT_NAMES = NameLimits()


class NameMap(Struct, frozen=True):
    """Which tool has which name on the wire. Build one per request with `NameMap.build`.

    `others` are names that calls in the history use and no tool has. Their wire
    names depend on no tool, since a tool that is declared later must not change them; a tool may have the same one. A map
    depends only on the tools, the limits and `others`. If `flatten` is false (the dialect has namespaces), the wire name of a
    member is unique only within its namespace, and `origin` and `find` need the namespace too. `plain` are the functions
    without a namespace that have their own names on the wire; `is_same`: every tool has its own name, without a namespace.
    """

    limits: NameLimits = DEFAULT_NAMES
    flatten: bool = True
    wires: dict[ToolKey, str] = {}
    origins: dict[ToolKey, ToolRef] = {}
    guesses: dict[str, ToolRef | None] = {}
    others: tuple[ToolKey, ...] = ()
    plain: frozenset[str] = frozenset()
    is_same: bool = False

    @classmethod
    def build(
        cls,
        tools: Iterable[Tool],
        used: Collection[ToolKey] = (),
        limits: NameLimits = DEFAULT_NAMES,
        *,
        flatten: bool = True,
    ) -> "NameMap":
        """Assign a wire name to every offered tool and to every (namespace, name) that calls in the history use.

        Raises:
            ConfigError: the limits are too narrow for so many names.
        """
        offered = tools if isinstance(tools, tuple) else tuple(tools)

        names = made_of(offered, (cls, limits, flatten), cls._make, offered, (), limits, flatten)
        # Histories mostly use tools that are still offered.
        if not used:
            return names
        keys = [(namespace or None, name) for namespace, name in used]
        if names.wires.keys() >= set(keys):
            return names
        others = tuple(dict.fromkeys(key for key in keys if key not in names.wires))
        return made_of(
            offered, (cls, limits, flatten, others), cls._make, offered, others, limits, flatten
        )

    @classmethod
    def _make(
        cls,
        tools: tuple[Tool, ...],
        others: tuple[ToolKey, ...],
        limits: NameLimits,
        flatten: bool,  # noqa: FBT001 -- `made_of` passes it on
    ) -> "NameMap":
        refs: dict[ToolKey, ToolRef] = {}
        late: list[ToolKey] = []  # declared inside the conversation
        for tool in tools:
            ref = ToolRef(tool.name, tool.kind, tool.namespace or None)
            key = (ref.namespace, ref.name)
            if tool.place == "input" and key not in refs:
                late.append(key)
            refs.setdefault(key, ref)
        guesses = _guesses(refs.values())
        wires = _assign(refs, tuple(late), limits, flatten=flatten)
        origins = {(None if flatten else key[0], wire): refs[key] for key, wire in wires.items()}
        for key in others:
            wires[key] = next(_candidates(key, limits, flatten=flatten))
            space = None if flatten else key[0]
            origins.setdefault((space, wires[key]), ToolRef(key[1], "function", key[0]))
        plain = frozenset(
            wire for (_, wire), ref in origins.items() if ref == ToolRef(wire, "function", None)
        )
        is_same = all(key == (None, wire) for key, wire in wires.items())
        return cls(limits, flatten, wires, origins, guesses, others, plain, is_same)

    def wire(self, name: str, namespace: str | None = None) -> str:
        """The name on the wire. A tool that `build` did not get receives a name that no other tool has."""
        key = (namespace or None, name)
        known = self.wires.get(key)
        if known is not None:
            return known
        space = None if self.flatten else key[0]
        return next(
            wire
            for wire in _candidates(key, self.limits, flatten=self.flatten)
            if (space, wire) not in self.origins
        )

    def origin(self, wire_name: str, namespace: str | None = None) -> ToolRef | None:
        """The tool that has exactly this name on the wire."""
        return self.origins.get((None if self.flatten else namespace or None, wire_name))

    def find(self, wire_name: str, namespace: str | None = None) -> ToolRef | None:
        """The tool that a model means: by its wire name, or by another spelling that fits only one offered tool.

        Models write the namespace with a dot, with two underscores or not at all, use the name they read in a prompt
        instead of its alias, and some put `functions.` in front.
        """
        if namespace:
            member = None if self.flatten else self.origin(wire_name, namespace)
            member = member or self.guesses.get(f"{namespace}.{wire_name}")
            # Codex and some models write `functions` for "no namespace".
            return member or (self.find(wire_name) if namespace == "functions" else None)
        known = self.origin(wire_name) or self.guesses.get(wire_name)
        if known is None and wire_name.startswith("functions."):
            bare = wire_name.removeprefix("functions.")
            known = self.origin(bare) or self.guesses.get(bare)
        return known


def alias_id(call_id: str, limits: IdLimits) -> str:
    """The id in a form that the target accepts: unchanged if valid, else an alias that is always the same."""
    size = len(call_id)
    allowed = _is_made_of(call_id, limits.pattern)
    if allowed and limits.min_length <= size <= limits.max_length:
        return call_id
    if not allowed and call_id:
        encoded = urlsafe_b64encode(call_id.encode("utf-8", "surrogatepass"))
        alias = REVERSIBLE + encoded.decode("ascii").rstrip("=")
        fits = limits.min_length <= len(alias) <= limits.max_length
        if fits and _is_made_of(alias, limits.pattern):
            return alias
    width = min(max(ID_HASH, limits.min_length), limits.max_length)
    alphabet = _letters(limits.pattern, ascii_letters + digits)
    tail = _hash(call_id, alphabet, width)
    head = _head(call_id, limits.pattern, limits.max_length - width)
    # A hashed alias must never look like the reversible form, even if the id begins with its prefix.
    return tail if head.startswith(REVERSIBLE) else head + tail


def original_id(call_id: str) -> str:
    """Decode the reversible form of `alias_id`; return any other id unchanged."""
    if not call_id.startswith(REVERSIBLE):
        return call_id
    encoded = call_id[len(REVERSIBLE) :]
    try:
        data = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        original = data.decode("utf-8", "surrogatepass")
    except (Base64Error, ValueError):
        return call_id
    # An id that only looks like an alias must not change. A real alias is canonical base64url and encodes an id with a
    # forbidden character, so the decoded id is not made of base64url characters alone.
    is_ours = urlsafe_b64encode(data).rstrip(b"=") == encoded.encode("utf-8", "surrogatepass")
    if not is_ours or _is_made_of(original, "[a-zA-Z0-9_-]"):
        return call_id
    return original


def with_original_id(part: Part) -> Part:
    """Return the part with the original id of its call in place of the reversible alias that a client was given."""
    if not isinstance(part, (Call, Result)) or part.executor != "client":
        return part
    original = original_id(part.call_id)
    return part if original == part.call_id else structs.replace(part, call_id=original)


def _assign(
    refs: dict[ToolKey, ToolRef], later: tuple[ToolKey, ...], limits: NameLimits, *, flatten: bool
) -> dict[ToolKey, str]:
    """A wire name for each key. Names that are valid unchanged choose first, then flattened names, then aliases.

    Those in `later` choose after all others, one after the other: what a conversation adds must change no earlier name, or
    the upstream could not use its cache for the beginning of the conversation.
    """
    wires: dict[ToolKey, str] = {}
    taken: set[ToolKey] = set()
    first = refs.keys() - set(later)
    plain = [key for key in refs if key in first and _is_plain(key, limits, flatten=flatten)]
    flat = [
        key
        for key in refs
        if key in first and key[0] and _is_name(_joined(key, flatten=flatten), limits)
    ]
    for key in (*plain, *flat, *filter(first.__contains__, refs), *later):
        if key not in wires:
            space = None if flatten else key[0]
            wires[key] = next(
                candidate
                for candidate in _candidates(key, limits, flatten=flatten)
                if (space, candidate) not in taken
            )
            taken.add((space, wires[key]))
    return {key: wires[key] for key in refs}


def _candidates(key: ToolKey, limits: NameLimits, *, flatten: bool) -> Iterator[str]:
    whole = _joined(key, flatten=flatten)
    if _is_name(whole, limits):
        yield whole
    width = min(NAME_HASH, limits.max_length)
    alphabet = _letters(limits.pattern, ascii_lowercase + digits)
    head = _head(whole or "tool", limits.pattern, limits.max_length - width)
    for salt in range(MAX_SALT):
        identity = "\n".join((key[0] or "", key[1], str(salt) if salt else ""))
        yield head + _hash(identity, alphabet, width)
    raise ConfigError(
        f"expected room for every tool name within {limits.max_length} characters of "
        f"{limits.pattern}, got no free name for {key[1]!r}"
    )


def _guesses(refs: Iterable[ToolRef]) -> dict[str, ToolRef | None]:
    """Spellings that models use for a tool, with the tool; None if two tools share a spelling."""
    guesses: dict[str, ToolRef | None] = {}
    for ref in refs:
        spellings = {ref.name}
        if ref.namespace:
            bare = ref.namespace.rstrip("_")
            spellings |= {
                f"{namespace}{join}{ref.name}"
                for namespace in (ref.namespace, bare)
                for join in (".", NAMESPACE_JOIN)
            }
        for spelling in spellings:
            guesses[spelling] = None if spelling in guesses else ref
    return guesses


def short_user(user: str) -> str:
    """A user id that every server accepts: unchanged, or a hash if it is longer than the strictest server allows."""
    return user if len(user) <= MAX_USER else _hash(user, ascii_letters + digits, USER_HASH)


def key_of(tool: Tool | ToolRef) -> ToolKey:
    return tool.namespace or None, tool.name


def is_named(tool: Tool) -> bool:
    """Whether a dialect that has only functions and custom tools can offer this tool, under its own name."""
    if tool.kind in ("function", "custom"):
        return True
    return tool.kind in CLIENT_KINDS and tool.schema is not None


def flat_name(name: str, namespace: str | None) -> str:
    """The name of a tool in a dialect without namespaces."""
    if namespace is None:
        return name
    join = "" if namespace.endswith(NAMESPACE_JOIN) else NAMESPACE_JOIN
    return f"{namespace}{join}{name}"


def _joined(key: ToolKey, *, flatten: bool) -> str:
    namespace, name = key
    return flat_name(name, namespace) if flatten else name


def _is_plain(key: ToolKey, limits: NameLimits, *, flatten: bool) -> bool:
    return (key[0] is None or not flatten) and _is_name(key[1], limits)


def _is_name(name: str, limits: NameLimits) -> bool:
    return (
        0 < len(name) <= limits.max_length
        and name not in limits.reserved
        and _is_made_of(name, limits.pattern)
    )


def _is_made_of(text: str, pattern: str) -> bool:
    return _compiled(pattern)[0].fullmatch(text) is not None


def _head(text: str, pattern: str, room: int) -> str:
    """A readable beginning of at most `room` characters, to be followed by a hash; "" if `room` is too small."""
    _, single, letters = _compiled(pattern)
    join = "_" if "_" in letters else ""
    kept = room - len(join)
    if kept < MIN_HEAD:
        return ""
    head = "".join(character if single.fullmatch(character) else join for character in text[:kept])
    return head + join if head else ""


def _hash(text: str, alphabet: str, width: int) -> str:
    digest = shake_256(text.encode("utf-8", "surrogatepass")).digest(width)
    return "".join(alphabet[byte % len(alphabet)] for byte in digest)


def _letters(pattern: str, preferred: str) -> str:
    letters = _compiled(pattern)[2]
    return "".join(letter for letter in letters if letter in preferred) or letters


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str], str]:
    """The patterns for a text and for one character, and the letters, digits, `_` and `-` that the pattern allows."""
    try:
        single = re.compile(pattern)
        whole = re.compile(f"(?:{pattern})*")
    except re.error as error:
        raise ConfigError(
            f"expected a regular expression for one character, got {pattern!r}: {error}"
        ) from error
    letters = "".join(
        letter for letter in ascii_letters + digits + "_-" if single.fullmatch(letter)
    )
    if not letters:
        raise ConfigError(f"expected a pattern that allows letters or digits, got {pattern!r}")
    return whole, single, letters
