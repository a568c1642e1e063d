"""The connection of a session to the broker.

A management request is answered before the next one is sent. The blocking client runs on threads of a bounded pool,
one at a time for each connection, and a few for each user, however many sessions it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...amqp.client.links import Sender
from ...amqp.client.login import BrokerLogin, LoginRefused
from ...amqp.client.loop import Loop
from ...amqp.client.management import Answer, Management, RequestRefused, await_true
from ...amqp.client.wire import Wire, outcome_of
from ...amqp.codec.types import Described
from ...amqp.frames import performatives as p
from ...base.errors import BrokerError
from .errors import CONFLICT, DENIED, INVALID, LOGIN_REQUIRED, UNAVAILABLE, ApiError, refusal

PAGE_ROWS = 1000
NODE = "org.amqp.management"
IDLE_S = 60.0
"""A connection without requests is closed, and made again for the next one: the tab that used it may be closed."""


class BrokerClient:
    """A connection to the broker, made when it is needed and made again after it was lost. Event loop only."""

    def __init__(self, where: BrokerLogin, name: str, threads: ThreadPoolExecutor, idle_s: float = IDLE_S) -> None:
        self.login = where
        self.of_user = asyncio.Semaphore()
        """The threads that requests of the user may occupy; sessions of one user share it."""
        self._name = name
        self._threads = threads
        self._turn = asyncio.Lock()
        self._wire: Wire | None = None
        self._loop: Loop | None = None
        self._management: Management | None = None
        self._relay: Sender | None = None
        self._used_s = 0.0
        self._idle_s = idle_s

    @property
    def is_connected(self) -> bool:
        """Return whether a connection was made, and was not found to be lost."""
        return self._management is not None

    def use_password(self, password: str) -> None:
        """Log in with *password* when the connection is made again."""
        self.login = self.login._replace(password=password)

    async def connect(self) -> None:
        """Log in. Raises `BrokerError`."""
        async with self._turn:
            self.note_use()
            await self._run(self._connected)

    async def ask(
        self, operation: str, type: str, name: str | None = None, body: Mapping[str, Any] | None = None, **more: Any
    ) -> Any:
        """Return the body of the broker's response. Raises `ApiError` for a refusal, and without a broker."""
        given = {"operation": operation, "type": type, "name": name, **more}
        properties = {key: value for key, value in given.items() if value is not None}
        if operation != "ACCESS":  # the console asks this by itself, too
            self.note_use()
        answer: Answer = await self._guarded(self._ask, properties, None if body is None else dict(body))
        if answer.status >= 400:
            raise refusal(answer.status, answer.description)
        return answer.body

    async def rows(
        self, type: str, attributes: tuple[str, ...] = (), *, internal: bool = False, most: int = 100_000
    ) -> AsyncIterator[dict[str, Any]]:
        """Return all entities of *type*, at most *most*, with these *attributes* or with all."""
        offset: int | None = 0
        flags: dict[str, Any] = {"internal": True} if internal else {}
        body = {"attributeNames": list(attributes)} if attributes else None
        while offset is not None and offset < most:
            found = await self.ask("QUERY", NODE, None, body, entityType=type, offset=offset, count=PAGE_ROWS, **flags)
            for row in found["results"]:
                yield dict(zip(found["attributeNames"], row, strict=True))
            offset = found["next"]

    async def publish(self, message: bytes) -> None:
        """Send an encoded message over the anonymous relay. Raises `ApiError` if it is not accepted."""
        self.note_use()
        code, fields = p.state_of(await self._guarded(self._publish, message))
        if code != p.ACCEPTED:
            text = p.error_text(fields[0] if fields else None)
            if text.startswith("amqp:unauthorized-access"):
                raise ApiError(403, DENIED, text)
            raise ApiError(409, CONFLICT, text or "the broker did not accept the message; see its log")

    async def keep_alive(self) -> None:
        """Send an empty frame if the broker needs one. A lost connection is closed, and an idle one."""
        if self._wire is not None and not self._turn.locked():
            async with self._turn:
                if asyncio.get_running_loop().time() - self._used_s > self._idle_s:
                    await self._run(self._drop)
                    return
                try:
                    await self._run(self._pulse)
                except BrokerError:
                    await self._run(self._drop)

    def note_use(self) -> None:
        """Keep the connection open for the time of idle ones."""
        self._used_s = asyncio.get_running_loop().time()

    async def close(self) -> None:
        async with self._turn:
            await self._run(self._drop)

    # ---- on a thread of the pool

    async def _run(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _guarded(self, work: Any, *arguments: Any) -> Any:
        """Run *work*. It outlives a cancelled caller: only its thread may use the connection until it ends."""
        running = asyncio.create_task(self._in_turn(work, *arguments))
        running.add_done_callback(_take_error)
        return await asyncio.shield(running)

    async def _in_turn(self, work: Any, *arguments: Any) -> Any:
        """Run *work*. The connection is closed after an error, since a late response would be another request's."""
        async with self._turn:
            had_connection = self._management is not None
            try:
                async with self.of_user:
                    return await self._run(work, *arguments)
            except RequestRefused as error:
                raise ApiError(400, INVALID, str(error)) from error
            except BrokerError as error:
                await self._run(self._drop)
                if not had_connection and (isinstance(error, LoginRefused) or is_denial(error)):
                    text = f"the broker refuses the login of this session: {error}"
                    raise ApiError(401, LOGIN_REQUIRED, text) from error
                if not had_connection:
                    raise ApiError(503, UNAVAILABLE, str(error), 2) from error
                raise ApiError(503, UNAVAILABLE, f"the connection to the broker was lost: {error}", 2) from error
            except (ValueError, OverflowError, TypeError) as error:
                await self._run(self._drop)
                raise ApiError(400, INVALID, f"a value can't be sent to the broker: {error}") from error

    def _connected(self) -> Management:
        if self._management is None:
            self._wire = Wire(self.login, self._name)
            self._loop = Loop(self._wire)
            try:
                self._management = Management(self._wire, self._loop)
            except BrokerError:
                self._drop()
                raise
        return self._management

    def _ask(self, properties: dict[str, Any], body: dict[str, Any] | None) -> Answer:
        return self._connected().ask(properties, body)

    def _publish(self, message: bytes) -> Described | None:
        self._connected()
        assert self._wire is not None
        assert self._loop is not None
        relay = self._relay
        if relay is None:
            relay = Sender(self._wire, f"{self._name}-relay", "")
            self._wire.attach(relay)
            await_true(self._wire, self._loop, "link to the anonymous relay", lambda: relay.attached)
            self._relay = relay
        outcome: list[Any] = []
        relay.post(message, outcome.append)
        await_true(self._wire, self._loop, "outcome of the message", lambda: bool(outcome))
        found: Described | None = outcome[0]
        assert outcome_of(found)
        return found

    def _pulse(self) -> None:
        if self._loop is not None:
            self._loop.turn(0)

    def _drop(self) -> None:
        wire, self._wire = self._wire, None
        self._loop = self._management = self._relay = None
        if wire is not None:
            wire.cut()


def is_denial(error: BrokerError) -> bool:
    """Return whether the access rules deny the connection, or the use of management."""
    return "unauthorized-access" in str(error)


def _take_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a task whose caller may have been cancelled; the event loop would log it."""
    if not task.cancelled():
        task.exception()
