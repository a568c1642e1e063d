"""Tests of the places of logins at the console when browsers leave."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cairnmq.base.clock import SystemClock
from cairnmq.console.session.login_door import MOST_AT_ONCE, LoginDoor


async def _leave_at(door: LoginDoor, step: int) -> None:
    """Begin a login, and cancel it after *step* turns of the event loop, whatever it waits for."""

    async def log_in() -> None:
        async with door.turn("10.0.0.1", "anna"):
            await asyncio.sleep(0)

    task = asyncio.create_task(log_in())
    for _ in range(step):
        await asyncio.sleep(0.001 if step % 2 else 0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _logins_after_departures() -> int:
    door = LoginDoor(SystemClock())
    for number in range(40):
        await _leave_at(door, number % 10)
    done = 0
    for _ in range(2 * MOST_AT_ONCE):
        async with asyncio.timeout(60), door.turn("10.0.0.2", "ben"):
            done += 1
    await door.close()
    return done


def test_browsers_that_leave_during_their_login_take_no_place() -> None:
    assert asyncio.run(_logins_after_departures()) == 2 * MOST_AT_ONCE
