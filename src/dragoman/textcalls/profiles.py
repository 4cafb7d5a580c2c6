"""Which formats a model writes, by its name.

`auto` looks for every format with a sentinel, and for what the model's profile adds: formats without one, and marks that
only this family writes. Some models call tools while they think: for them an opener counts there too, in `<think>` and
in the reasoning channel; for all others thinking is text. Names are matched as globs against the model's name in lower case, with and without the
vendor's prefix (`meta-llama/`); every profile that matches counts.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import chain

from msgspec import Struct

__all__ = ("PROFILES", "Profile", "formats_of_model", "thinking_of_model")


class Profile(Struct, frozen=True):
    """models: globs of names. formats: what these models write beside the formats with a sentinel. thinking: the
    formats in which they call tools while they think.
    """

    models: tuple[str, ...]
    formats: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()


PROFILES = (
    Profile(("*llama-3*", "*llama3*", "*llama-3.*"), ("bare_json",)),
    Profile(("*llama-4*", "*llama4*", "*toolace*"), ("pythonic",)),
    Profile(("*xlam*",), ("bare_json_array", "json_fence")),
    Profile(("granite-3*", "granite3*"), ("bare_json_array",)),
    Profile(
        ("command-*", "c4ai-command-*", "*command-a*", "*command-r7b*"),
        ("command_thoughts", "command_marks"),
    ),
    Profile(("gpt-oss*", "*gpt-oss*"), ("harmony_channels", "harmony_marks")),
    Profile(("kimi-k3*", "*kimi-k3*"), ("kimi_k3_marks",)),
    Profile(
        ("*functionary*v3.2*", "*functionary-medium-v3*"),
        ("functionary_v32", "functionary_v32_content"),
    ),
    Profile(("*kimi-k2*",), thinking=("kimi_k2", "kimi_k2_bare")),
    Profile(("*minimax-m1*",), thinking=("minimax_m1",)),
    Profile(("*qwen3*", "*qwq*"), thinking=("hermes", "qwen3_coder")),
    Profile(("*muse*", "*glimmer*"), ("muse_thoughts", "muse_headers", "muse_marks")),
    Profile(("dots*", "*dots.llm*"), ("dots_marks",)),
    # Models tuned for one agent's prompt, and those that were trained on ReAct.
    Profile(("*cline*", "*roocode*", "*roo-code*"), ("tool_tags",)),
    Profile(("qwen-*-chat*", "*-react*", "*_react*"), ("react",)),
)
"""The profiles we know."""


def formats_of_model(model: str | None, profiles: Iterable[Profile] = PROFILES) -> tuple[str, ...]:
    """The formats that the profiles of a model add."""
    found = (profile.formats for profile in _profiles_of(model, profiles))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def thinking_of_model(model: str | None, profiles: Iterable[Profile] = PROFILES) -> tuple[str, ...]:
    """The formats in which a model calls tools while it thinks."""
    found = (profile.thinking for profile in _profiles_of(model, profiles))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def _profiles_of(model: str | None, profiles: Iterable[Profile]) -> list[Profile]:
    name = (model or "").lower()
    names = (name, name.rpartition("/")[2])
    return [
        profile
        for profile in profiles
        if any(fnmatchcase(one, glob) for one in names for glob in profile.models)
    ]
