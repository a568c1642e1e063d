"""Sessions of browsers.

A session is a login at the broker, which confirms account and rights every `CONFIRM_S`. Its token is in a cookie that
scripts cannot read; the console keeps a hash of it only. The password is kept in memory while the session lives: the
connection to the broker is made again with it after the broker has restarted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ...amqp.client.login import BrokerLogin, LoginRefused
from ...amqp.sasl.server import CONSOLE
from ...base.accounts.credentials import canonical_name
from ...base.clock import SystemClock
from ...base.errors import BrokerError
from .broker_client import BrokerClient, is_denial
from .errors import DENIED, FORGED, LIMIT, LOGIN_REQUIRED, UNAVAILABLE, ApiError
from .login_door import LoginDoor
from .rooms import Room, TimeBudget
from .steps import Steps

log = logging.getLogger(__name__)

MOST_SESSIONS = 64
KEPT_FOR_MANAGERS = 16
"""Sessions beyond the limit that are reserved for the users whom the broker reserves connections for."""
MOST_SESSIONS_OF_USER = 16
CONFIRM_S = 2.0
"""The age at which the broker's answer about an account and its rights is not used any more."""
MOST_REQUESTS = 6
"""Requests of one session at a time: as many connections as browsers open to a host."""
MOST_WAITING = 32
MOST_THREADS_OF_USER = 4
"""Threads that wait for responses to one user, and as many that wait for its moves of messages."""
MOST_PAGES_OF_USER = 2
"""Pages of messages of one user in memory; each has 1 MiB, and six times as much as JSON."""
LIFETIME_S = 12 * 3600.0
READ_SHARE, READ_BURST_S = 0.2, 1.0
"""The share of the time in which lists are read from the broker, for all sessions together, and the burst."""
QUICK_S = 10.0
"""Time limit of the broker's response to a request that does not move messages."""
LONG_S = 120.0


class Rights(NamedTuple):
    """The rights of the user of a connection, as the broker reports them."""

    user: str | None
    """None for an anonymous client."""
    is_manager: bool
    """Places are reserved for the user."""
    may_browse: bool
    """The rules let the user browse some queue."""
    reloads: int
    """The number of reloads of the rules."""

    @classmethod
    async def of(cls, client: BrokerClient) -> Rights:
        """Ask the broker. Raises `ApiError`."""
        found = await client.ask("ACCESS", "broker", "broker", {"on": ""})
        return cls(found["user"] or None, found["manager"], found["browses"], found["reloads"])


class BrowserSession:
    """A login: its connections to the broker, and its share of the console."""

    def __init__(
        self,
        token: str,
        quick: BrokerClient,
        long: BrokerClient,
        now_s: float,
        rights: Rights,
        caches: dict[str, Any],
        reads: TimeBudget,
    ) -> None:
        self.digest = digest(token)
        self.csrf = secrets.token_urlsafe(24)
        self.user = rights.user
        """The name of the user as the broker has it; None for an anonymous session."""
        self.rights = rights
        self.confirmed_s = now_s
        """When the broker last confirmed the account."""
        self.confirming = asyncio.Lock()
        self.quick = quick
        self.long = long
        """The connection for moves of messages, which take longer than other requests."""
        self.begun_s = self.used_s = now_s
        self.caches = caches
        """Values that endpoints keep for all sessions of the user, who have the same rights, by name of their owner."""
        self.reads = reads
        """The budget in which lists are read from the broker, for all sessions."""
        self.streams = 0
        """The open streams of events."""
        self.is_closed = False
        self.room = Room(MOST_REQUESTS, MOST_WAITING, _too_many_requests)
        self.steps: Steps = caches.setdefault("steps", Steps())
        self.pages: asyncio.Semaphore = caches.setdefault("pages", asyncio.Semaphore(MOST_PAGES_OF_USER))

    def check_csrf(self, given: str) -> None:
        if not hmac.compare_digest(given.encode(), self.csrf.encode()):
            raise ApiError(403, FORGED, "the header X-CSRF-Token is missing or wrong; GET /api/v1/session returns it")

    def use_password(self, password: str) -> None:
        """Continue after the user has changed its password."""
        self.quick.use_password(password)
        self.long.use_password(password)

    async def close(self) -> None:
        await self.quick.close()
        await self.long.close()


class Peer(NamedTuple):
    """The network address of a browser, as the audit trail of the broker shows it."""

    address: str
    port: int = 0

    @property
    def origin(self) -> str:
        """Return address and port as one text."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Sessions:
    """All sessions. Event loop only."""

    def __init__(
        self,
        broker: BrokerLogin,
        idle_s: float,
        clock: Callable[[], float],
        threads: ThreadPoolExecutor,
        token: str = "",
    ) -> None:
        """*token*: the secret that proves to the broker that this is its own console; empty for another console."""
        self._broker = broker
        self._idle_s = idle_s
        self._now_s = clock
        self._threads = threads
        self._token = token
        self._door = LoginDoor(SystemClock())
        self._by_digest: dict[bytes, BrowserSession] = {}
        self.reads = TimeBudget(READ_SHARE, READ_BURST_S)
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_digest)

    def all(self) -> list[BrowserSession]:
        return list(self._by_digest.values())

    async def login(self, peer: Peer, user: str | None, password: str) -> tuple[BrowserSession, str]:
        """Log in at the broker; return the session and its token. Raises `ApiError`."""
        called = canonical_name(user or "")
        quick, long = self._clients(peer, user, password)
        try:
            async with self._door.turn(peer.address, called):
                await self._prove(quick, peer, called)
            rights = await Rights.of(quick)
            self.expire()
            self._make_room(rights)
        except BaseException:
            await asyncio.shield(quick.close())
            raise
        token = secrets.token_urlsafe(32)
        caches = next((one.caches for one in self._by_digest.values() if one.user == rights.user), {})
        for kind, client in (("quick", quick), ("long", long)):
            client.of_user = caches.setdefault(f"threads {kind}", asyncio.Semaphore(MOST_THREADS_OF_USER))
        session = BrowserSession(token, quick, long, self._now_s(), rights, caches, self.reads)
        self._by_digest[session.digest] = session
        return session, token

    def _clients(self, peer: Peer, user: str | None, password: str) -> tuple[BrokerClient, BrokerClient]:
        """Return the clients of a new session: for requests that are quick, and for moves of messages."""
        where = self._broker._replace(user=user, password=password, timeout_s=QUICK_S)
        kind = "web-console"
        if self._token:
            kind, where = CONSOLE, where._replace(sasl_host=f"{CONSOLE} {self._token} {peer.origin}")
        name = f"{kind}@{peer.address}-{secrets.token_hex(4)}"
        slow = where._replace(timeout_s=LONG_S)
        return BrokerClient(where, name, self._threads), BrokerClient(slow, f"{name}-long", self._threads)

    async def _prove(self, client: BrokerClient, peer: Peer, called: str) -> None:
        """Log in at the broker. Raises `ApiError`."""
        try:
            await client.connect()
        except BrokerError as error:
            if is_denial(error):
                text = f"{called or 'anonymous'!r} may not use the management of the broker: {error}"
                raise ApiError(403, DENIED, text) from error
            if not isinstance(error, LoginRefused):
                raise ApiError(503, UNAVAILABLE, str(error), 2) from error
            text = "the broker requires a user name"
            if called:
                self._door.failed(peer.address, called)
                text = "wrong user name or password"
            event = {"event": "console.login-failed"}
            log.warning("%s: console login of user %r failed: %s", peer.address, called[:64], text, extra=event)
            raise ApiError(401, DENIED, text) from error
        self._door.succeeded(peer.address, called)

    def _make_room(self, rights: Rights) -> None:
        """End the user's oldest session if it has too many. Raises `ApiError` if all users together have too many."""
        own = [session for session in self._by_digest.values() if session.user == rights.user]
        if len(own) >= MOST_SESSIONS_OF_USER:
            self._end(min(own, key=lambda session: session.used_s))
        if len(self._by_digest) >= MOST_SESSIONS + (KEPT_FOR_MANAGERS if rights.is_manager else 0):
            raise ApiError(503, LIMIT, f"the console has {MOST_SESSIONS} sessions; log out of another one", 30)

    async def confirm(self, session: BrowserSession) -> None:
        """Have the broker confirm account and rights, unless it did within `CONFIRM_S`. Raises `ApiError`.

        A session ends if the account was removed, has another password, or may not use the console any more.
        """
        async with session.confirming:
            if session.is_closed:
                raise _no_session()
            if session.quick.is_connected and self._now_s() - session.confirmed_s < CONFIRM_S:
                return
            try:
                rights = await self._rights_of(session)
            except ApiError as error:
                if error.status in (401, 403):
                    self._end(session)
                raise
            session.confirmed_s = self._now_s()
            if rights != session.rights:
                forget_answers(session)
            session.rights = rights

    async def _rights_of(self, session: BrowserSession) -> Rights:
        """Ask the broker; once more if the connection was lost, which may be the reason to ask."""
        was_connected = session.quick.is_connected
        try:
            return await Rights.of(session.quick)
        except ApiError as error:
            if error.status != 503 or not was_connected:
                raise
        return await Rights.of(session.quick)

    def find(self, token: str | None, *, is_use: bool = True) -> BrowserSession:
        """Return the session of *token*. *is_use*: the session counts as used. Raises `ApiError`."""
        session = None if token is None else self._by_digest.get(digest(token))
        if session is not None and self._is_over(session):
            self._end(session)
            session = None
        if session is None:
            raise _no_session()
        if is_use:
            session.used_s = self._now_s()
        return session

    def logout(self, session: BrowserSession) -> None:
        self._end(session)

    def expire(self) -> None:
        """End the sessions that are idle for too long, or too old."""
        for session in self.all():
            if self._is_over(session):
                self._end(session)

    async def keep_alive(self) -> None:
        """Confirm the sessions with connections to the broker, and keep connections in use open."""
        connected = [session for session in self.all() if session.quick.is_connected]
        await asyncio.gather(*map(self.confirm, connected), return_exceptions=True)
        for session in self.all():
            await session.quick.keep_alive()
            await session.long.keep_alive()

    async def close(self) -> None:
        for session in self.all():
            self._end(session)
        if self._closing:
            await asyncio.wait(self._closing, timeout=2.0)
        await self._door.close()

    def _is_over(self, session: BrowserSession) -> bool:
        now_s = self._now_s()
        return now_s - session.used_s > self._idle_s or now_s - session.begun_s > LIFETIME_S

    def _end(self, session: BrowserSession) -> None:
        """Forget *session*; its connections are closed after their present request."""
        self._by_digest.pop(session.digest, None)
        session.is_closed = True
        task = asyncio.get_running_loop().create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _no_session() -> ApiError:
    return ApiError(401, LOGIN_REQUIRED, "log in: there is no session, or it has expired")


def forget_answers(session: BrowserSession) -> None:
    """Forget what the broker has answered to the user of *session*, whose rights may have changed."""
    for key in [key for key in session.caches if key.startswith(("rows ", "access"))]:
        del session.caches[key]


def _too_many_requests() -> ApiError:
    return ApiError(429, LIMIT, f"more than {MOST_WAITING} requests of this session wait; try again later", 1)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
