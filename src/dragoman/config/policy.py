"""Reads the policy file (`--policy`): rules that allow, ask for or deny calls. `engine.approval` applies them."""

from difflib import get_close_matches

from msgspec import Struct

from dragoman.config.values import Problems, read_struct, read_toml
from dragoman.engine.approval import BUILTIN_NAMES, Policy, Rule, Verdict
from dragoman.engine.globs import path_glob, text_glob
from dragoman.errors import ConfigError

MAX_RULES = 1_000
# How similar an unknown name must be to count as a typing error: `shel` is one, `reader` is another tool.
NEARLY = 0.85


class _PolicyFile(Struct):
    default: Verdict = "ask"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


def read_policy(source: str, name: str = "the policy") -> Policy:
    """Read a policy from TOML. `name` is the name of the file in errors.

    Raises:
        ConfigError: the source is not TOML or not a valid policy. The message lists all problems, one per line.
    """
    problems: Problems = []
    file = read_struct(_PolicyFile, read_toml(source.encode(), name), "", problems)
    file = file or _PolicyFile()
    policy = Policy(
        default=file.default,
        allow=_rules("allow", file.allow, problems),
        ask=_rules("ask", file.ask, problems),
        deny=_rules("deny", file.deny, problems),
    )
    if problems:
        raise ConfigError("\n".join(f"{name}: {problem}" for problem in problems))
    return policy


def _rules(key: str, entries: tuple[str, ...], problems: Problems) -> tuple[Rule, ...]:
    if len(entries) > MAX_RULES:
        problems.append(f"{key}: expected at most {MAX_RULES} rules, got {len(entries)}")
        return ()
    return tuple(_rule(f"{key}[{at}]", entry, problems) for at, entry in enumerate(entries))


def _rule(where: str, entry: str, problems: Problems) -> Rule:
    tool, colon, pattern = (word.strip() for word in entry.partition(":"))
    near = get_close_matches(tool, BUILTIN_NAMES, n=1, cutoff=NEARLY)
    if not tool or (colon and not pattern):
        problems.append(f'{where}: expected a rule such as "shell: git status*", got {entry!r}')
    elif near and tool not in BUILTIN_NAMES:
        problems.append(f"{where}: there is no tool {tool!r}; did you mean {near[0]}?")
    try:
        text_glob(tool)
        path_glob(pattern)
        text_glob(pattern)
    except ValueError as error:
        problems.append(f"{where}: {error}")
    return Rule(tool, pattern if colon else None)
