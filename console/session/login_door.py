"""The turns of logins at the console: the rule of the broker's AMQP port (`LoginTurns`), by the addresses of browsers.

`MOST_AT_ONCE` logins are at the broker at a time, `MOST_WAITING` wait, and as many again are delayed after failures.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ...base.accounts.login_turns import LoginTurns
from ...base.clock import Clock
from .errors import LIMIT, ApiError

MOST_AT_ONCE = 4
MOST_WAITING = 24
RETRY_S = 5


class LoginDoor:
    """The logins that wait, and those at the broker. Event loop only, except the jobs of its thread."""

    def __init__(self, clock: Clock) -> None:
        self._turns = LoginTurns(clock, MOST_WAITING, "console")
        self._at_broker = threading.Semaphore(MOST_AT_ONCE)

    @asynccontextmanager
    async def turn(self, host: str, user: str) -> AsyncIterator[None]:
        """Wait for the turn of a login of *user* from *host*, and keep it. Raises `ApiError` if too many wait."""
        loop = asyncio.get_running_loop()
        admitted: asyncio.Future[bool] = loop.create_future()

        def decide(is_admitted: bool) -> None:
            if not admitted.done():
                admitted.set_result(is_admitted)
            elif is_admitted:
                self._at_broker.release()  # the client has left meanwhile

        def report(is_admitted: bool) -> None:
            try:
                loop.call_soon_threadsafe(decide, is_admitted)
            except RuntimeError:  # the console has ended
                if is_admitted:
                    self._at_broker.release()

        def enter() -> None:
            self._at_broker.acquire()
            report(is_admitted=True)

        def is_wanted() -> bool:
            return not admitted.done()

        if not self._turns.submit(host, user, enter, is_wanted, lambda: report(is_admitted=False)):
            raise _too_many()
        try:
            is_admitted = await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled() and admitted.result():
                self._at_broker.release()  # the client has left between the decision and this task
            raise
        if not is_admitted:
            raise _too_many()
        try:
            yield
        finally:
            self._at_broker.release()

    def failed(self, host: str, user: str) -> None:
        """Count a wrong name or password."""
        self._turns.failed(host, user)

    def succeeded(self, host: str, user: str) -> None:
        """Note that the user has proved the password, from this address."""
        self._turns.succeeded(host, user)

    async def close(self) -> None:
        """End the threads; logins that wait are abandoned."""
        with suppress(asyncio.CancelledError):
            await asyncio.to_thread(self._turns.stop)


def _too_many() -> ApiError:
    return ApiError(429, LIMIT, "too many logins wait, or were delayed after failures; try again later", RETRY_S)
