"""The application of the console: sessions, the API, and static files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ..amqp.client.login import BrokerLogin
from .api.endpoint import ApiCall, Endpoint, Field, read_body, read_query
from .api.openapi import PREFIX, description
from .api.table import all_endpoints
from .http.disconnect import until_disconnect
from .http.guard import Guard, Refused, client_of, own_names
from .session.errors import ANONYMOUS_LOGIN, INTERNAL, INVALID, LOGIN_REQUIRED, NOT_ALLOWED, NOT_FOUND, ApiError
from .session.options import ConsoleOptions
from .session.sessions import BrowserSession, Sessions

STATIC = Path(__file__).parent / "static"
COOKIE = "cairnmq-session"
PULSE_S = 10.0
"""The interval at which connections to the broker are kept open, and expired sessions ended."""
THREADS = 64
"""Enough for 8 users that occupy all of theirs; a thread is started when it is needed."""
MOST_DEPTH = 16
"""Levels of objects and arrays in a body."""
LOGIN = {
    "user": Field("string", "The user; null for an anonymous session."),
    "password": Field("string", "The password.", default=""),
}
SESSION_QUERY = {"optional": Field("boolean", "Answer 204 without a session, not 401.", default=False)}


class Console:
    """The handlers of HTTP requests. Event loop only."""

    def __init__(self, options: ConsoleOptions, clock: Callable[[], float] = time.monotonic) -> None:
        broker = BrokerLogin(options.broker_host, options.broker_port, options.broker_tls, options.broker_ca)
        self._options = options
        self._threads = ThreadPoolExecutor(THREADS, "broker-client")
        self.sessions = Sessions(broker, options.session_idle_s, clock, self._threads, options.broker_token)
        self.endpoints = all_endpoints(options, self.sessions.confirm)
        self._openapi = json_response(description(self.endpoints, LOGIN))
        """A client without a login may ask for the description as often as it wants."""

    def app(self) -> ASGIApp:
        """Return the ASGI application."""
        session = Route("/session", self._session, methods=["GET", "POST", "DELETE"])
        about = Route("/openapi.json", self._description)
        found = by_path(self.endpoints)
        routes = [Route(path, self._handler(each), methods=list(each)) for path, each in found.items()]
        endpoints = Router([session, about, *routes], redirect_slashes=False, default=self._unknown)
        api = [Mount(PREFIX, endpoints), Mount("/api", self._unknown)]
        pages = [Route("/", _index), Mount("/", StaticFiles(directory=STATIC, check_dir=False))]
        starlette = Starlette(routes=[*api, *pages], exception_handlers=_HANDLERS, lifespan=self._lifespan)
        return Guard(starlette, own_names(self._options.host, self._options.host_names))

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        pulse = asyncio.create_task(self._pulse())
        try:
            yield
        finally:
            pulse.cancel()
            with suppress(asyncio.CancelledError):
                await pulse
            await self.sessions.close()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _pulse(self) -> None:
        while True:
            await asyncio.sleep(PULSE_S)
            self.sessions.expire()
            await self.sessions.keep_alive()

    # ---- requests

    def _handler(self, endpoints: dict[str, Endpoint]) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            endpoint = endpoints["GET" if request.method == "HEAD" else request.method]
            try:
                return await self._answer(endpoint, request)
            except ApiError as error:
                return error_response(error)
            except ClientDisconnect:
                return Response(status_code=499)  # for no client

        return handle

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        session = self._session_of(request, is_use=endpoint.is_use)
        if endpoint.method != "GET":
            session.check_csrf(request.headers.get("x-csrf-token", ""))
        await self.sessions.confirm(session)
        if endpoint.is_use:
            session.quick.note_use()
        path = {name: _name(text) for name, text in request.path_params.items()}
        query = read_query(endpoint.query, request.query_params)
        body = read_body(endpoint.body, await _json(request)) if endpoint.body else {}
        call = ApiCall(session, path, query, body)
        work = session.steps.run(lambda: _in_turn(endpoint, call))
        found: Response = await (until_disconnect(request, work) if endpoint.ends_with_client else work)
        return found

    def _session_of(self, request: Request, *, is_use: bool = True) -> BrowserSession:
        return self.sessions.find(request.cookies.get(COOKIE), is_use=is_use)

    async def _session(self, request: Request) -> Response:
        try:
            if request.method == "POST":
                return await self._login(request)
            if request.method != "DELETE":
                return await self._shown_session(request)
            session = self._session_of(request)
            session.check_csrf(request.headers.get("x-csrf-token", ""))
            self.sessions.logout(session)
            response = Response(status_code=204, headers=_NO_STORE)
            response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
            return response
        except ApiError as error:
            if error.condition == LOGIN_REQUIRED and self._options.signs_in_anonymously:
                error = ApiError(401, ANONYMOUS_LOGIN, "log in: POST an empty object to this resource")
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)  # for no client

    async def _shown_session(self, request: Request) -> Response:
        """Return the session. Raises `ApiError`."""
        is_optional = read_query(SESSION_QUERY, request.query_params)["optional"]
        try:
            session = self._session_of(request, is_use=False)
            try:
                await self.sessions.confirm(session)
                self._session_of(request)  # it is used
            except ApiError as error:
                if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
            return json_response(self._described(session))
        except ApiError as error:
            if error.condition != LOGIN_REQUIRED or not is_optional:
                raise
            if self._options.signs_in_anonymously:
                return json_response({"login": "anonymous"})
            return Response(status_code=204, headers=_NO_STORE)  # a browser would log another status as an error

    async def _login(self, request: Request) -> Response:
        given = read_body(LOGIN, await _json(request))
        login = self.sessions.login(client_of(request.scope), given["user"] or None, given["password"])
        session, token = await until_disconnect(request, login)
        with suppress(ApiError):  # the session before, if the browser had one, ends
            self.sessions.logout(self._session_of(request, is_use=False))
        response = json_response(self._described(session), 201)
        is_secure = request.scope["scheme"] == "https"
        response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="strict", secure=is_secure)
        return response

    async def _description(self, request: Request) -> Response:
        return self._openapi

    def _described(self, session: BrowserSession) -> dict[str, Any]:
        options = self._options
        return {
            "user": session.user,
            "csrf": session.csrf,
            "broker": {"url": options.broker_url},
            "has_history": options.store_dir is not None,
            "idle_s": options.session_idle_s,
        }

    async def _unknown(self, scope: Any, receive: Any, send: Any) -> None:
        error = ApiError(404, NOT_FOUND, "no such endpoint; GET /api/v1/openapi.json lists them")
        await error_response(error)(scope, receive, send)


async def _in_turn(endpoint: Endpoint, call: ApiCall) -> Response:
    async with call.session.room.turn():
        found = await endpoint.handle(call)
    if isinstance(found, Response):
        return found
    if endpoint.status == 204:
        return Response(status_code=204, headers=_NO_STORE)
    return json_response(found, endpoint.status)


def by_path(endpoints: Iterable[Endpoint]) -> dict[str, dict[str, Endpoint]]:
    """Return the endpoints by path and method."""
    found: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        found.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return found


async def _refuse_method(request: Request, error: HTTPException) -> Response:
    allowed = (error.headers or {}).get("Allow", "")
    text = f"{request.url.path} has no method {request.method} (methods: {allowed})"
    response = error_response(ApiError(405, NOT_ALLOWED, text))
    response.headers["allow"] = allowed
    return response


async def _report_failure(request: Request, error: Exception) -> Response:
    return error_response(ApiError(500, INTERNAL, "internal error; the log of the console has more"))


async def _refuse_body(request: Request, refused: Refused) -> Response:
    response = error_response(ApiError(refused.status, refused.condition, refused.text))
    response.headers["connection"] = "close"
    return response


_HANDLERS: Any = {405: _refuse_method, 500: _report_failure, Refused: _refuse_body}


async def _index(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


_NO_STORE = {"cache-control": "no-store"}


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, _NO_STORE, "application/json")


def error_response(error: ApiError) -> Response:
    described = {"condition": error.condition, "text": error.text, **({"field": error.field} if error.field else {})}
    response = json_response({"error": described}, error.status)
    if error.retry_after_s:
        response.headers["retry-after"] = str(error.retry_after_s)
    return response


async def _json(request: Request) -> Any:
    """Return the decoded body. Raises `ApiError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, INVALID, "the body is JSON: send Content-Type: application/json")
    try:
        found = msgspec.json.decode(await request.body() or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, INVALID, f"the body is not valid JSON: {error}") from error
    except ClientDisconnect as error:
        raise ApiError(400, INTERNAL, "the client has disconnected") from error
    if not _is_flat(found, MOST_DEPTH):
        raise ApiError(400, INVALID, f"the body has more than {MOST_DEPTH} levels of objects and arrays; flatten it")
    return found


def _is_flat(value: Any, levels: int) -> bool:
    """Return whether a JSON value has at most so many levels of objects and arrays."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_flat(one, levels - 1) for one in inner)


def _name(text: str) -> str:
    """Return a segment of a path, decoded. Raises `ApiError`."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise ApiError(400, INVALID, "a name in the path is not percent-encoded UTF-8") from error
