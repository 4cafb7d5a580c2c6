"""Sends requests to the ChatGPT Codex backend with Codex's login and the session headers of that backend.

The body is already shaped (`request.py`); the answer is a normal Responses stream. An `auth.json` with an API key
leads to OpenAI's public API, as it does in Codex, unless the operator configured an address.
"""

from pathlib import Path
from time import time

from msgspec import structs

from dragoman._json import as_object, loads
from dragoman.config.settings import CHATGPT_CODEX_URL, UpstreamSettings
from dragoman.core.secrets import Secrets
from dragoman.errors import MalformedJson, UpstreamError
from dragoman.model.parts import Dialect
from dragoman.upstream.base import CheckResult, UpstreamReply, UpstreamRequest
from dragoman.upstream.chatgpt_codex.credentials import Login, LoginFile, login_error
from dragoman.upstream.http.upstream import HttpUpstream

_API_URL = "https://api.openai.com/v1"

# Identifies the gateway where the client is not Codex itself, which sends its own header.
ORIGINATOR = "dragoman"
_BETA = "responses=experimental"
_SESSION = ("session-id", "session_id")
_CACHE_KEY = b'"prompt_cache_key"'
_LONGEST_SESSION = 128


class ChatGptCodexUpstream:
    """The backend with one login. Its settings include an address.

    Raises:
        ConfigError: the address or a header is invalid.
    """

    def __init__(self, name: str, settings: UpstreamSettings, *, auth_file: Path) -> None:
        self.name = name
        # A key and a login go to different servers; each has its own connections.
        as_responses = structs.replace(settings, kind="responses", also=(), api_key=None)
        self._backend = HttpUpstream(name, as_responses, key=None)
        self._api = self._backend
        if settings.base_url == CHATGPT_CODEX_URL:
            public = structs.replace(as_responses, base_url=_API_URL)
            self._api = HttpUpstream(name, public, key=None)
        self._logins = LoginFile(auth_file, time)
        self._login: Login | None = None
        self.secrets = self._backend.secrets
        self._configured = frozenset(header.lower() for header in settings.headers)

    def dialect_for(self, door: Dialect) -> Dialect:  # noqa: ARG002 -- it speaks one
        return "responses"

    def url_of(self, dialect: Dialect, operation: str) -> str:
        return self._backend.url_of(dialect, operation)

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        login = self._logins.current()
        reply = await self._ask(request, login)
        if reply.status != 401:
            return reply
        reply.close()
        # Codex may have just renewed the login.
        renewed = self._logins.reread()
        if renewed == login:
            raise self._refused(login)
        reply = await self._ask(request, renewed)
        if reply.status == 401:
            reply.close()
            raise self._refused(renewed)
        return reply

    async def check(self) -> CheckResult:
        """Whether there is a login, and whether the backend accepts it."""
        try:
            login = self._logins.current()
        except UpstreamError as error:
            return CheckResult(ok=False, status=None, detail=error.message)
        found = await self._place(login).check(self._credentials(login))
        if found.status in (401, 403):
            return structs.replace(found, detail=self._refused(login).message)
        # It wants to know the version of a client that it does not ask others for.
        if found.status == 400:
            return CheckResult(ok=True, status=400, detail="reached; it does not list its models")
        return found

    async def close(self) -> None:
        await self._backend.close()
        if self._api is not self._backend:
            await self._api.close()

    async def _ask(self, request: UpstreamRequest, login: Login) -> UpstreamReply:
        headers = self._credentials(login)
        if "originator" not in request.headers and "originator" not in self._configured:
            headers["originator"] = ORIGINATOR
        session = _session(request)
        if session is not None and "session-id" not in self._configured:
            headers["session-id"] = session
        # The client's own key must not be sent there.
        without_key = structs.replace(request, client_key=None)
        return await self._place(login).send(without_key, headers)

    def _place(self, login: Login) -> HttpUpstream:
        return self._api if login.is_api_key else self._backend

    def _credentials(self, login: Login) -> dict[str, str]:
        if login != self._login:
            self._login = login
            self.secrets = self._backend.secrets | Secrets((login.token,))
        headers = {"authorization": f"Bearer {login.token}"}
        if login.account_id is not None:
            headers["chatgpt-account-id"] = login.account_id
        if not login.is_api_key and "openai-beta" not in self._configured:
            headers["openai-beta"] = _BETA
        return headers

    def _refused(self, login: Login) -> UpstreamError:
        what = "API key" if login.is_api_key else "ChatGPT login"
        return login_error(f"the {what} in {self._logins.path} was refused")


def _session(request: UpstreamRequest) -> str | None:
    """The session id, from the cache key: requests of one conversation share it, and should use the same cache."""
    if any(name in request.headers for name in _SESSION) or _CACHE_KEY not in request.body:
        return None
    try:
        raw = as_object(request.body).get("prompt_cache_key")
        key = None if raw is None else loads(bytes(raw))
    except MalformedJson:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_SESSION:
        return None
    return key if key.isascii() and key.isprintable() else None
