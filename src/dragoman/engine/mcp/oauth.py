"""Access tokens for servers that are reached by HTTP. The SDK's OAuth client implements the protocol; the rest is here:

    who logs in        a person, in a browser that is redirected to a port of this machine; or this program, by credentials
    where tokens are   in a file with mode 0600, or in memory; with the data that renews them after a restart
    when               a request with a token does not wait; a request that is refused renews the token, or logs in

Tokens, codes and secrets appear in no message and no log. The SDK's own log would show some, so `servers` silences it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthTokenError, TokenStorage
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from dragoman._json import dumps_document, loads
from dragoman.config.environment import write_private
from dragoman.config.settings import McpServerSettings, OAuthSettings
from dragoman.engine.mcp.host import Host, TimeLimits
from dragoman.errors import ConfigError, GatewayError, MalformedJson, ToolError

logger = logging.getLogger(__name__)

LOGIN_SECONDS = 300.0
"""Seconds for a person to log in, with time to look up passwords and second factors."""
MAX_LOGINS = 3
LOGIN_WINDOW = 600.0
"""Seconds in which a person is sent to a browser at most `MAX_LOGINS` times: a server may refuse every token."""
EARLY_SECONDS = 10.0
"""Seconds before its end at which a token is renewed: the request takes time, and clocks differ."""
MAX_WORDS = 300
"""Characters of an authorization server's text in a message."""

_REQUEST_BYTES = 16 * 1024
_REQUEST_SECONDS = 10.0
_PATH = "/callback"
_VERSION = 1


def needs_authorization(settings: McpServerSettings) -> bool:
    """Whether a server is reached by HTTP, and its headers have no token already."""
    headers = (*settings.headers, *settings.headers_from)
    return bool(settings.url) and not any(name.lower() == "authorization" for name in headers)


class Authorization(httpx2.Auth):
    """The authorization for one server, over all of its restarts. `folder`: where tokens are kept; None: in memory.

    problem: why there is no token, as words after the server's name; empty if there is no known problem.
    limits: the time limits of the current connection; they are paused while a person logs in.

    Raises:
        ConfigError: a variable that the settings name is not set.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        folder: Path | None,
        host: Host | None,
        environ: Mapping[str, str],
    ) -> None:
        self.problem = ""
        self.limits = TimeLimits()
        self._name = settings.name
        self._oauth = settings.oauth or OAuthSettings()
        self._host = host
        self._secret = _held(self._oauth.client_secret_from, environ)
        key = _held(self._oauth.private_key_from, environ)
        self._storage = _Storage(_file(folder, settings), self._registered())
        self._provider = self._make_provider(settings.url, key)
        self._context = self._provider.context
        self._context.client_metadata = self._metadata("http://127.0.0.1/callback")
        self._storage.context = self._context
        self._receiver: _Receiver | None = None
        self._logins: deque[float] = deque(maxlen=MAX_LOGINS)
        self._has_failed = False
        self._scopes_in_vain: set[str] = set()

    @property
    def _is_personal(self) -> bool:
        return self._oauth.grant == "authorization_code"

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        # The SDK's flow handles one request at a time, until its answer begins; most requests do not need it.
        self._storage.load()
        token = self._storage.valid_token()
        if token is not None or not self._context.can_refresh_token():
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if not _is_refused(response):
                self._accept(response)
                return
            if token is not None and response.status_code == 401:
                self._storage.expire(token)
        self._storage.reload()  # another process may have renewed the token
        flow = self._provider.async_auth_flow(request)
        is_first = True
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                if outgoing is request:
                    if not await self._may_go_on(response, is_first=is_first):
                        return
                    is_first = False
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except GatewayError:
            raise
        except Exception as error:
            raise self._failure(error) from None
        finally:
            await flow.aclose()
            if self._receiver is not None:
                self._receiver.close()
                self._receiver = None

    def _accept(self, response: httpx2.Response) -> None:
        if response.is_success:
            self.problem = ""

    def _failure(self, error: Exception) -> ToolError:
        """The error that says why the login failed, without text that may contain a secret."""
        if isinstance(error, OAuthFlowError):
            self._has_failed = True
            why = _words(error)
        else:  # a key that cannot sign, or an invalid answer
            why = f"an answer, or the key, cannot be used ({type(error).__name__})"
        self.problem = f"cannot be logged in to: {why}"
        return ToolError(self.problem)

    async def _may_go_on(self, response: httpx2.Response, *, is_first: bool) -> bool:
        """Whether a login may follow the response to a request; notes whether the server accepts the token."""
        if not _is_refused(response):
            self._accept(response)
        elif is_first:
            return await self._can_log_in(response)
        else:
            # The server refused a new token, so another new token would not help.
            self.problem = "refuses the token that it was given"
            if response.status_code == 403:
                self._scopes_in_vain.add(_challenged_scope(response))
        return True

    async def _can_log_in(self, response: httpx2.Response) -> bool:
        if response.status_code == 403 and _challenged_scope(response) in self._scopes_in_vain:
            self.problem = "refuses the scopes of the token that it was given"
            return False
        if not self._is_personal:
            return True
        if self._host is None:
            self.problem = (
                "wants a login, and nobody can log in here: log in once with `dragoman run`, or set"
                ' `oauth` with grant = "client_credentials"'
            )
            return False
        if self._has_failed:
            self.problem = self.problem or "wants a login, which has failed before"
            return False
        now = time.monotonic()
        if len(self._logins) == MAX_LOGINS and now - self._logins[0] < LOGIN_WINDOW:
            self.problem = "asks for a login again and again"
            return False
        self._logins.append(now)
        await self._open_receiver()
        return True

    async def _open_receiver(self) -> None:
        """Listen on the port to which the browser is redirected, the one of our registration if there is one."""
        registered = self._context.client_info
        known = _ports_of(registered)
        fixed = self._oauth.redirect_port
        self._receiver = receiver = _Receiver()
        for port in (fixed,) if fixed else (*known, 0):
            try:
                await receiver.open(port)
                break
            except OSError as error:
                if port in (fixed, 0):
                    raise ToolError(
                        f"cannot be logged in to: the port {port} of 127.0.0.1 is not free ({error.strerror})"
                    ) from error
        self._context.client_metadata = self._metadata(receiver.url)
        is_ours = registered is not None and registered.client_id not in (
            self._oauth.client_id,
            self._oauth.client_metadata_url,
        )
        if is_ours and receiver.port not in known:
            self._context.client_info = None  # register again, with the current address

    def _make_provider(self, url: str, key: str) -> OAuthClientProvider:
        oauth = self._oauth
        if self._is_personal:
            return OAuthClientProvider(
                server_url=url,
                client_metadata=self._metadata("http://127.0.0.1/callback"),
                storage=self._storage,
                redirect_handler=self._send_to_browser,
                callback_handler=self._come_back,
                client_metadata_url=oauth.client_metadata_url or None,
            )
        if self._secret:
            return ClientCredentialsOAuthProvider(
                server_url=url,
                storage=self._storage,
                client_id=oauth.client_id,
                client_secret=self._secret,
                token_endpoint_auth_method=oauth.token_endpoint_auth_method,
                scope=oauth.scope or None,
                issuer=oauth.issuer,
            )
        signing = SignedJWTParameters(
            issuer=oauth.client_id,
            subject=oauth.client_id,
            signing_key=key,
            signing_algorithm=oauth.signing_algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            server_url=url,
            storage=self._storage,
            client_id=oauth.client_id,
            assertion_provider=signing.create_assertion_provider(),
            scope=oauth.scope or None,
            issuer=oauth.issuer,
        )

    def _metadata(self, redirect_url: str) -> "_ClientMetadata":
        oauth = self._oauth
        metadata = _ClientMetadata.model_validate(
            {
                "client_name": "Dragoman",
                "redirect_uris": [redirect_url],
                "grant_types": ["authorization_code", "refresh_token"]
                if self._is_personal
                else ["client_credentials"],
                "scope": oauth.scope or None,
            }
        )
        if not self._is_personal:
            metadata.redirect_uris = None
        return metadata

    def _registered(self) -> OAuthClientInformationFull | None:
        oauth = self._oauth
        if not oauth.client_id or not self._is_personal:
            return None
        return OAuthClientInformationFull(
            client_id=oauth.client_id,
            client_secret=self._secret or None,
            token_endpoint_auth_method=oauth.token_endpoint_auth_method if self._secret else "none",
            issuer=oauth.issuer or None,
        )

    async def _send_to_browser(self, url: str) -> None:
        assert self._host is not None  # noqa: S101 - checked in `_can_log_in`
        assert self._receiver is not None  # noqa: S101
        self._receiver.expect(_first(parse_qs(urlsplit(url).query), "state"))
        with self.limits.paused():
            await self._host.open_login(self._name, url)

    async def _come_back(self) -> AuthorizationCodeResult:
        assert self._receiver is not None  # noqa: S101 - see above
        try:
            with self.limits.paused():
                async with asyncio.timeout(LOGIN_SECONDS):
                    return await self._receiver.result()
        except TimeoutError:
            raise OAuthFlowError(f"nobody logged in within {LOGIN_SECONDS:g} s") from None


class _ClientMetadata(OAuthClientMetadata):
    """Keeps the configured scopes: the SDK drops them if the server names none."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "scope" or value is not None:
            super().__setattr__(name, value)


class _Storage(TokenStorage):
    """The stored data of one server: the tokens, when they expire, the client they belong to, and where to renew them.

    context: the SDK's context; `load` puts stored data into it that the SDK never asks for.
    """

    context: OAuthContext

    def __init__(self, file: Path | None, registered: OAuthClientInformationFull | None) -> None:
        self._file = file
        self._registered = registered
        self._kept: dict[str, object] = {}
        self._is_loaded = False

    def load(self) -> None:
        """Load the stored data, once, before the first request."""
        if self._is_loaded:
            return
        self._is_loaded = True
        context = self.context
        self._kept = {} if self._file is None else _read(self._file)
        context.client_info = self._registered or self._client()
        context.current_tokens = self._tokens()
        # without these a token could not be renewed after a restart, and a person would have to log in again
        with suppress(ValueError):
            context.oauth_metadata = OAuthMetadata.model_validate(self._kept.get("metadata"))
        with suppress(ValueError):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                self._kept.get("resource")
            )

    def valid_token(self) -> str | None:
        context = self.context
        tokens = context.current_tokens
        return tokens.access_token if tokens is not None and context.is_token_valid() else None

    def expire(self, token: str) -> None:
        """Mark a token that the server refused as expired, unless another request has renewed it in the meantime."""
        current = self.context.current_tokens
        if current is not None and current.access_token == token:
            self.context.token_expiry_time = 1.0

    def reload(self) -> None:
        """Load the file again if another process has written newer tokens."""
        if self._file is None:
            return
        found = _read(self._file)
        if found.get("tokens") not in (None, self._kept.get("tokens")):
            self._kept = found
            self.context.current_tokens = self._tokens()

    async def get_tokens(self) -> OAuthToken | None:
        # the SDK asks if it has no tokens, or could not renew them; stored tokens that failed are not tried again
        return self.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        lifetime = tokens.expires_in
        early = 0.0 if lifetime is None else min(EARLY_SECONDS, lifetime / 10)
        ends = None if lifetime is None else time.time() + lifetime - early
        context.token_expiry_time = ends
        self._kept |= {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": ends,
            "metadata": _dumped(context.oauth_metadata),
            "resource": _dumped(context.protected_resource_metadata),
        }
        self._save()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._registered or self.context.client_info or self._client()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        if self._registered is not None:
            raise OAuthFlowError(
                "it names another authorization server than the `issuer` of the settings"
            )
        self._kept["client"] = client_info.model_dump(mode="json", exclude_none=True)
        self._save()

    def _client(self) -> OAuthClientInformationFull | None:
        try:
            return OAuthClientInformationFull.model_validate(self._kept["client"])
        except (KeyError, ValueError):
            return None

    def _tokens(self) -> OAuthToken | None:
        ends = self._kept.get("expires_at")
        try:
            tokens = OAuthToken.model_validate(self._kept["tokens"])
        except (KeyError, ValueError):
            return None
        self.context.token_expiry_time = float(ends) if isinstance(ends, (int, float)) else None
        return tokens

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            write_private(self._file, dumps_document({**self._kept, "version": _VERSION}))
        except OSError as error:
            logger.warning("%s: the access token cannot be stored: %s", self._file, error.strerror)


class _Receiver:
    """Listens on a port of 127.0.0.1 for the redirected browser with its code. Other requests are refused."""

    def __init__(self) -> None:
        self.port = 0
        self._server: asyncio.Server | None = None
        self._visits: set[asyncio.Task[None]] = set()
        self._state = ""
        self._came: asyncio.Future[AuthorizationCodeResult] = (
            asyncio.get_running_loop().create_future()
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{_PATH}"

    async def open(self, port: int) -> None:
        """Start to listen.

        Raises:
            OSError: the port is not free.
        """
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port, limit=_REQUEST_BYTES
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    def expect(self, state: str) -> None:
        self._state = state

    async def result(self) -> AuthorizationCodeResult:
        """Wait for the browser.

        Raises:
            OAuthFlowError: the authorization server refused.
        """
        return await self._came

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for visit in self._visits:
            visit.cancel()
        if self._came.done() and not self._came.cancelled():
            self._came.exception()  # mark the exception as retrieved, even if no task waited for it
        self._came.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = cast("asyncio.Task[None]", asyncio.current_task())
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)
        try:
            with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head.split(b"\r\n", 1)[0].decode("ascii", "replace")))
                    await writer.drain()
        finally:
            writer.close()

    def _answer(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        query = parse_qs(target.query)
        if method != "GET" or target.path != _PATH:
            return _page("404 Not Found", "There is nothing here.")
        if not self._state or _first(query, "state") != self._state:
            return _page("400 Bad Request", "This is not the login that Dragoman started.")
        if not self._came.done():
            self._settle(query)
        return _page("200 OK", "You may close this window and go back to the terminal.")

    def _settle(self, query: dict[str, list[str]]) -> None:
        error = _first(query, "error")
        if error or "code" not in query:
            words = " ".join(filter(None, (error, _first(query, "error_description"))))
            self._came.set_exception(OAuthFlowError(f"the login was refused: {words or 'no code'}"))
            return
        self._came.set_result(
            AuthorizationCodeResult(
                code=query["code"][0], state=self._state, iss=_first(query, "iss") or None
            )
        )


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>Dragoman</title><p>{text}</p>\n".encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
    return f"{head}cache-control: no-store\r\nconnection: close\r\n\r\n".encode() + body


def _is_refused(response: httpx2.Response) -> bool:
    """Whether a response refuses a request because a token is missing or not sufficient."""
    challenge = response.headers.get("www-authenticate", "")
    return response.status_code == 401 or (
        response.status_code == 403 and "insufficient_scope" in challenge
    )


def _challenged_scope(response: httpx2.Response) -> str:
    return (
        str(response.headers.get("www-authenticate", "")).partition("scope=")[2].partition(",")[0]
    )


def _words(error: OAuthFlowError) -> str:
    """The problem in words. The text of a token response is left out: it may contain the token."""
    text = str(error)
    if isinstance(error, OAuthTokenError):
        text = text.partition(":")[0]
    if text.startswith("State parameter mismatch"):
        text = "the browser came back from another login"
    return text[:MAX_WORDS]


def _held(variable: str, environ: Mapping[str, str]) -> str:
    if not variable:
        return ""
    if not environ.get(variable):
        raise ConfigError(f"the environment variable {variable} is not set")
    return environ[variable]


def _ports_of(client: OAuthClientInformationFull | None) -> tuple[int, ...]:
    listed = (client.redirect_uris or ()) if client else ()
    return tuple(port for each in listed if (port := urlsplit(str(each)).port))


def _first(query: Mapping[str, list[str]], key: str) -> str:
    return query.get(key, [""])[0]


def _dumped(model: OAuthMetadata | ProtectedResourceMetadata | None) -> object:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _file(folder: Path | None, settings: McpServerSettings) -> Path | None:
    """A file for each server and client. File names do not reveal either."""
    if folder is None:
        return None
    oauth = settings.oauth or OAuthSettings()
    parts = (settings.url, oauth.grant, oauth.client_id, oauth.client_metadata_url, oauth.issuer)
    return folder / f"{blake2b(chr(0).join(parts).encode(), digest_size=16).hexdigest()}.json"


def _read(file: Path) -> dict[str, object]:
    try:
        value = loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, MalformedJson) as error:
        logger.warning("%s: the access token cannot be read: %s", file, type(error).__name__)
        return {}
    kept = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return kept if kept.get("version") == _VERSION else {}
