"""The environment that commands are given: the user's own, without what could be a secret.

Told by name (`*_KEY`, `*TOKEN*`, …) and by value (an address with a password, the beginnings that providers give their
keys). What is left out by mistake can be named in `passed`.
"""

import re
from collections.abc import Collection, Mapping

__all__ = ("command_environment", "is_secret")

_NAMES = re.compile(
    r"KEY|TOKEN|SECRET|PASS(?!IVE|THROUGH)|CREDENTIAL|AUTH|COOKIE|SESSION_ID|BEARER|PRIVATE|SIGNATURE|DSN$|_PAT$|(^|_)PWD_|CONNECTION_STRING",
    re.IGNORECASE,
)
_VALUES = re.compile(
    r"^[A-Za-z][A-Za-z0-9+.-]*://[^/\s@]*:[^/\s@]+@"
    r"|^(?:sk-|sk_live_|rk_live_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abeprs]-|AKIA|AIza|hf_|npm_|pypi-|eyJ[A-Za-z0-9_-]{10,}\.)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
# Programs that would page, colour, animate or ask have nobody to do it for.
_PLAIN = {
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "TERM": "dumb",
}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like something that a command must not see."""
    return _NAMES.search(name) is not None or _VALUES.search(value[:4096]) is not None


def command_environment(
    environment: Mapping[str, str], passed: Collection[str] = ()
) -> dict[str, str]:
    """What a command is given of the environment; `passed` are names that are given although they look secret."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in passed or not is_secret(name, value)
    }
    return {**kept, **_PLAIN}
