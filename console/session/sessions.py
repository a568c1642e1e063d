"""Sessions of browsers.

A session is a login at the broker. Its token is in a cookie that scripts cannot read; the
console keeps a hash of it only. The password is kept in memory while the session lives: the connection to the broker is
made again with it after the broker has restarted.
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
from ...base.errors import BrokerError
from .broker_client import BrokerClient
from .errors import DENIED, FORGED, LIMIT, LOGIN_REQUIRED, UNAVAILABLE, ApiError
from .login_throttle import LoginThrottle
from .rooms import Room, TimeBudget
from .steps import Steps

log = logging.getLogger(__name__)

MOST_SESSIONS = 64
MOST_SESSIONS_OF_USER = 16
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


class BrowserSession:
    """A login: its connections to the broker, and its share of the console."""

    def __init__(
        self,
        token: str,
        user: str | None,
        quick: BrokerClient,
        long: BrokerClient,
        now_s: float,
        caches: dict[str, Any],
        reads: TimeBudget,
    ) -> None:
        self.digest = digest(token)
        self.csrf = secrets.token_urlsafe(24)
        self.user = user
        """The user; None for an anonymous session."""
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


class Sessions:
    """All sessions. Event loop only."""

    def __init__(
        self, broker: BrokerLogin, idle_s: float, clock: Callable[[], float], threads: ThreadPoolExecutor
    ) -> None:
        self._broker = broker
        self._idle_s = idle_s
        self._clock = clock
        self._threads = threads
        self._throttle = LoginThrottle(clock)
        self._by_digest: dict[bytes, BrowserSession] = {}
        self._logins = asyncio.Semaphore(4)
        self.reads = TimeBudget(READ_SHARE, READ_BURST_S)
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_digest)

    def all(self) -> list[BrowserSession]:
        return list(self._by_digest.values())

    async def login(self, peer: Peer, user: str | None, password: str) -> tuple[BrowserSession, str]:
        """Log in at the broker; return the session and its token. Raises `ApiError`."""
        called = user or ""
        if wait_s := self._throttle.wait_s(peer.address, called):
            raise ApiError(429, LIMIT, f"too many failed logins; try again in {wait_s} s", wait_s)
        self.expire()
        if sum(session.user == user for session in self._by_digest.values()) >= MOST_SESSIONS_OF_USER:
            self._end(min((s for s in self._by_digest.values() if s.user == user), key=lambda s: s.used_s))
        if len(self._by_digest) >= MOST_SESSIONS:
            raise ApiError(503, LIMIT, f"the console has {MOST_SESSIONS} sessions; log out of another one", 30)
        where = self._broker._replace(user=user, password=password, timeout_s=QUICK_S)
        name = f"cairnmq-console@{peer.address}-{secrets.token_hex(4)}"
        quick = BrokerClient(where, name, self._threads)
        async with self._logins:
            if wait_s := self._throttle.wait_s(peer.address, called):
                raise ApiError(429, LIMIT, f"too many failed logins; try again in {wait_s} s", wait_s)
            try:
                await quick.connect()
            except BrokerError as error:
                await quick.close()
                if "unauthorized-access" in str(error):
                    text = f"{user or 'anonymous'!r} may not use the management of the broker: {error}"
                    raise ApiError(403, DENIED, text) from error
                if not isinstance(error, LoginRefused):
                    raise ApiError(503, UNAVAILABLE, str(error), 2) from error
                self._throttle.failed(peer.address, called)
                text = "wrong user name or password" if user is not None else "the broker requires a user name"
                event = {"event": "console.login-failed"}
                log.warning("%s: console login of user %r failed: %s", peer.address, called[:64], text, extra=event)
                raise ApiError(401, DENIED, text) from error
        self._throttle.succeeded(peer.address, called)
        token = secrets.token_urlsafe(32)
        long = BrokerClient(where._replace(timeout_s=LONG_S), f"{name}-long", self._threads)
        caches = next((one.caches for one in self._by_digest.values() if one.user == user), {})
        for kind, client in (("quick", quick), ("long", long)):
            client.of_user = caches.setdefault(f"threads {kind}", asyncio.Semaphore(MOST_THREADS_OF_USER))
        session = BrowserSession(token, user, quick, long, self._clock(), caches, self.reads)
        self._by_digest[session.digest] = session
        return session, token

    def find(self, token: str | None, *, is_use: bool = True) -> BrowserSession:
        """Return the session of *token*. *is_use*: the session counts as used. Raises `ApiError`."""
        session = None if token is None else self._by_digest.get(digest(token))
        if session is not None and self._is_over(session):
            self._end(session)
            session = None
        if session is None:
            raise ApiError(401, LOGIN_REQUIRED, "log in: there is no session, or it has expired")
        if is_use:
            session.used_s = self._clock()
        return session

    def logout(self, session: BrowserSession) -> None:
        self._end(session)

    def expire(self) -> None:
        """End the sessions that are idle for too long, or too old."""
        for session in self.all():
            if self._is_over(session):
                self._end(session)

    async def keep_alive(self) -> None:
        """Keep the connections to the broker open."""
        for session in self.all():
            await session.quick.keep_alive()
            await session.long.keep_alive()

    async def close(self) -> None:
        for session in self.all():
            self._end(session)
        if self._closing:
            await asyncio.wait(self._closing, timeout=2.0)

    def _is_over(self, session: BrowserSession) -> bool:
        now_s = self._clock()
        return now_s - session.used_s > self._idle_s or now_s - session.begun_s > LIFETIME_S

    def _end(self, session: BrowserSession) -> None:
        """Forget *session*; its connections are closed after their present request."""
        self._by_digest.pop(session.digest, None)
        session.is_closed = True
        task = asyncio.get_running_loop().create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _too_many_requests() -> ApiError:
    return ApiError(429, LIMIT, f"more than {MOST_WAITING} requests of this session wait; try again later", 1)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
