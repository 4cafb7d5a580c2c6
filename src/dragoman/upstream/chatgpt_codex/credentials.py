"""Codex's login, from its own `auth.json`: read on first use and again when the file changes, never written.

    {"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "last_refresh": "…",
     "tokens": {"access_token": JWT, "id_token": JWT, "refresh_token": "…", "account_id": "…"}}

A file made by `codex login --with-api-key` has a key and no tokens. Only Codex renews a login, when it
is used: two programs that renew one login would invalidate each other's tokens. No message contains anything from the file,
and the representation of a login hides its token.
"""

import binascii
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from os import stat_result
from pathlib import Path

from msgspec import Struct

from dragoman._json import as_object
from dragoman.core.fields import Fields, read_float, read_object, read_text
from dragoman.errors import MalformedJson, UpstreamError

FILE_NAME = "auth.json"
HOME_VARIABLE = "CODEX_HOME"

# Codex writes some kilobytes.
_MAX_FILE = 1024 * 1024
_CLAIMS = "https://api.openai.com/auth"
_ACCOUNT = "chatgpt_account_id"


class Login(Struct, frozen=True):
    """The credentials of a request. `expires_at`: seconds since 1970, None if the token has no expiry."""

    token: str
    account_id: str | None = None
    expires_at: float | None = None
    is_api_key: bool = False

    def __repr__(self) -> str:
        return f"Login(expires_at={self.expires_at}, is_api_key={self.is_api_key})"


class LoginFile:
    """The current login in a file. Checking whether the file has changed takes microseconds."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self.path = path
        self._now = now
        self._seen: tuple[int, int, int] | None = None
        self._login: Login | None = None

    def current(self) -> Login:
        """The login to use.

        Raises:
            UpstreamError: kind `authentication`: the login is missing, unreadable or expired.
        """
        try:
            found = _mark(self.path.stat())
        except OSError as error:
            raise self._missing(error) from error
        if self._login is None or found != self._seen:
            self._login = None
            self._login = read_login(self._read(), self.path)
            self._seen = found
        login = self._login
        if login.expires_at is not None and login.expires_at <= self._now():
            raise login_error(f"the ChatGPT login in {self.path} has expired")
        return login

    def reread(self) -> Login:
        """Read the login again, even if the file's date has not changed.

        Raises:
            UpstreamError: as `current`.
        """
        self._login = None
        return self.current()

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as stream:
                data = stream.read(_MAX_FILE + 1)
        except OSError as error:
            raise self._missing(error) from error
        if len(data) > _MAX_FILE:
            raise login_error(f"{self.path} is too large to be Codex's {FILE_NAME}")
        return data

    def _missing(self, error: OSError) -> UpstreamError:
        if isinstance(error, FileNotFoundError):
            return login_error(f"there is no Codex login: {self.path} does not exist")
        return login_error(f"{self.path} cannot be read ({error.strerror or type(error).__name__})")


def auth_path(named: str | None, environ: Mapping[str, str]) -> Path:
    """The path of the login: the operator's file, else Codex's default."""
    if named is not None:
        return Path(named).expanduser()
    home = environ.get(HOME_VARIABLE)
    return (Path(home) if home else Path.home() / ".codex") / FILE_NAME


def read_login(data: bytes, where: object = FILE_NAME) -> Login:
    """The login in a file. ChatGPT's tokens are preferred to a key, unless the file states which to use.

    Raises:
        UpstreamError: kind `authentication`: the file contains no login.
    """
    try:
        fields = as_object(data)
    except MalformedJson:  # its message would quote the file
        raise login_error(f"{where} is not Codex's {FILE_NAME}: expected a JSON object") from None
    tokens = read_object(fields.get("tokens"))
    access = _text(tokens, "access_token")
    key = _text(fields, "OPENAI_API_KEY")
    mode = (_text(fields, "auth_mode") or "").lower().replace("_", "")
    if key is not None and (mode == "apikey" or (access is None and not mode)):
        return Login(key, is_api_key=True)
    if access is None:
        raise login_error(f"{where} holds neither ChatGPT's tokens nor an API key")
    claims = _claims(access)
    return Login(access, _account(tokens, claims), read_float(claims.get("exp")))


def login_error(problem: str) -> UpstreamError:
    """The error for a caller: the problem, and the advice to log in again."""
    return UpstreamError(f"{problem}; run `codex login`", kind="authentication", status=401)


def _mark(found: stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _account(tokens: Fields, access: Fields) -> str | None:
    """The account id, from the file or, in older files, from the tokens."""
    account = _text(tokens, "account_id") or _text(read_object(access.get(_CLAIMS)), _ACCOUNT)
    if account is not None:
        return account
    identity = _claims(_text(tokens, "id_token") or "")
    return _text(read_object(identity.get(_CLAIMS)), _ACCOUNT)


def _claims(token: str) -> Fields:
    """The claims of a JWT, unverified: the backend verifies them. Empty for a token of another format."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return as_object(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (MalformedJson, binascii.Error, ValueError):
        return {}


def _text(fields: Fields, key: str) -> str | None:
    """A value that is valid in a header."""
    value = (read_text(fields.get(key)) or "").strip()
    return value if value and value.isascii() and value.isprintable() else None
