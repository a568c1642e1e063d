"""Tests of the limits of concurrent requests: rooms, waiting requests, time budgets, and turns of users."""

from __future__ import annotations

import asyncio

import pytest

from cairnmq.console.history.readers import HistoryReaders
from cairnmq.console.session.errors import LIMIT, ApiError
from cairnmq.console.session.rooms import Room, TimeBudget
from cairnmq.console.session.steps import Steps


def refusal() -> ApiError:
    return ApiError(429, LIMIT, "too many", 1)


def test_requests_beyond_the_room_wait_or_are_refused() -> None:
    async def run() -> None:
        room = Room(2, 3, refusal)
        leave = asyncio.Event()
        running: list[int] = []

        async def request(number: int) -> None:
            async with room.turn():
                running.append(number)
                await leave.wait()

        tasks = [asyncio.create_task(request(number)) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert running == [0, 1]
        with pytest.raises(ApiError) as caught:
            await request(5)
        assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
        tasks[4].cancel()
        await asyncio.gather(tasks[4], return_exceptions=True)
        tasks.append(asyncio.create_task(request(6)))
        leave.set()
        await asyncio.gather(*tasks[:4], tasks[5])
        assert running == [0, 1, 2, 3, 6], "a request that leaves makes room for another one"
        assert room.is_empty

    asyncio.run(run())


def test_time_budget_is_used_up_and_refilled() -> None:
    async def run() -> None:
        scarce = TimeBudget(1e-9, 0.001)
        assert not scarce.is_used_up
        async with scarce.turn(0.0):
            await asyncio.sleep(0.01)
        assert scarce.is_used_up
        async with scarce.turn(0.01):
            pass  # the wait is bounded, although a refill would take years
        plenty = TimeBudget(0.9, 0.001)
        async with plenty.turn(0.0):
            await asyncio.sleep(0.01)
        async with plenty.turn(60.0):
            assert not plenty.is_used_up, "it waited for the refill"

    asyncio.run(run())


def test_questions_of_one_user_leave_a_reader_to_others() -> None:
    async def run() -> None:
        readers = HistoryReaders("/no/store", None)
        many = [asyncio.create_task(readers.ask("mallory", "range")) for _ in range(12)]
        other = asyncio.create_task(readers.ask("anna", "range"))
        found = await asyncio.gather(*many, other, return_exceptions=True)
        statuses = [one.status for one in found if isinstance(one, ApiError)]
        assert len(statuses) == 13, "each is answered"
        assert statuses.count(429) == 12 - 7, "one is read, and six wait"
        assert statuses[-1] != 429, "the other user was served"

    asyncio.run(run())


def test_user_with_many_requests_has_one_step_in_each_turn_of_the_loop() -> None:
    async def run() -> None:
        order: list[str] = []

        async def request(user: str) -> str:
            for _ in range(3):
                order.append(user)
                await asyncio.sleep(0)
            return user

        mallory, anna = Steps(), Steps()
        many = [asyncio.create_task(mallory.run(lambda: request("mallory"))) for _ in range(50)]
        one = asyncio.create_task(anna.run(lambda: request("anna")))
        assert await one == "anna"
        assert order.count("mallory") <= 8, "50 requests do not delay the three steps of another user"
        many[-1].cancel()
        found = await asyncio.gather(*many, return_exceptions=True)
        assert isinstance(found[-1], asyncio.CancelledError)
        assert found[:-1] == ["mallory"] * 49

    asyncio.run(run())


def test_step_that_fails_is_the_error_of_its_request() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise refusal()

    async def run() -> None:
        steps = Steps()
        for _ in range(2):
            with pytest.raises(ApiError, match="too many"):
                await steps.run(fail)

    asyncio.run(run())


def test_history_without_a_store_says_what_it_requires() -> None:
    with pytest.raises(ApiError, match="--store-dir") as caught:
        asyncio.run(HistoryReaders(None, None).ask("anna", "range"))
    assert caught.value.status == 501
