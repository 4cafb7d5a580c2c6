"""Which formats a model writes, by its name.

`auto` looks for every format with a sentinel, and for what the model's profile adds: formats without one, and marks that
only this family writes. Names are matched as globs against the model's name in lower case, with and without the
vendor's prefix (`meta-llama/`); every profile that matches counts.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

__all__ = ("PROFILES", "Profile", "formats_of_model")


class Profile(Struct, frozen=True):
    """models: globs of names. formats: what these models write beside the formats with a sentinel."""

    models: tuple[str, ...]
    formats: tuple[str, ...]


PROFILES = (
    Profile(("*llama-3*", "*llama3*", "*llama-3.*"), ("bare_json",)),
    Profile(("*llama-4*", "*llama4*", "*toolace*"), ("pythonic",)),
    Profile(("*xlam*",), ("bare_json_array", "json_fence")),
    Profile(("granite-3*", "granite3*"), ("bare_json_array",)),
    Profile(("command-r*", "c4ai-command*"), ("command_r",)),
    Profile(
        ("command-*", "c4ai-command-*", "*command-a*", "*command-r7b*"),
        ("command_thoughts", "command_marks"),
    ),
    Profile(("gpt-oss*", "*gpt-oss*"), ("harmony", "harmony_marks")),
    Profile(("kimi-k3*", "*kimi-k3*"), ("kimi_k3_marks",)),
    Profile(
        ("*functionary*v3.2*", "*functionary-medium-v3*"),
        ("functionary_v32", "functionary_v32_content"),
    ),
    Profile(("*muse*", "*glimmer*"), ("muse_thoughts", "muse_headers", "muse_marks")),
    Profile(("dots*", "*dots.llm*"), ("dots_marks",)),
)
"""The profiles we know."""


def formats_of_model(model: str | None, profiles: Iterable[Profile] = PROFILES) -> tuple[str, ...]:
    """The formats that the profiles of a model add."""
    if not model:
        return ()
    name = model.lower()
    names = (name, name.rpartition("/")[2])
    found: dict[str, None] = {}
    for profile in profiles:
        if any(fnmatchcase(one, glob) for one in names for glob in profile.models):
            found.update(dict.fromkeys(profile.formats))
    return tuple(found)
