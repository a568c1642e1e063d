"""Tests of what the console occupies and reports: connections to the broker, and the progress of questions."""

from __future__ import annotations

import asyncio
import csv
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest
from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

from cairnmq.amqp.client.login import BrokerLogin
from cairnmq.console.api import access
from cairnmq.console.history.readers import HistoryReaders, Progress
from cairnmq.console.http.csv_list import csv_response
from cairnmq.console.session.broker_client import BrokerClient
from cairnmq.console.session.errors import LOGIN_REQUIRED, UNAVAILABLE, ApiError
from cairnmq.console.session.sessions import Peer, Sessions
from tests.harness.process import DEADLINE_S, broker


def consoles(port: int) -> int:
    """Return the number of open connections of a console."""
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
    about = {"operation": "QUERY", "type": "org.amqp.management", "entityType": "connection"}
    found = SyncRequestResponse(connection, "$management").call(Message(properties=about, body={})).body
    at = found["attributeNames"].index("container")
    connection.close()
    return sum(row[at] == "a-console" for row in found["results"])


async def use_until_idle(port: int) -> list[int]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as threads:
        client = BrokerClient(BrokerLogin("127.0.0.1", port, timeout_s=DEADLINE_S), "a-console", threads, idle_s=0.0)
        await client.connect()
        found = [await loop.run_in_executor(None, consoles, port)]
        await client.keep_alive()
        found.append(await loop.run_in_executor(None, consoles, port))
        await client.ask("READ", "broker", "broker")
        found.append(await loop.run_in_executor(None, consoles, port))
        await client.close()
    return found


def test_idle_connection_to_the_broker_ends_and_is_made_again(tmp_path: Path) -> None:  # U6
    with broker(tmp_path / "store") as process:
        assert asyncio.run(use_until_idle(process.port)) == [1, 0, 1]


async def journal_with_progress(store: Path) -> tuple[Progress, Progress | None]:
    readers = HistoryReaders(str(store), None, url="amqp://here")
    asked = asyncio.create_task(readers.ask("anna", "journal"))
    while "anna" not in readers.running:
        await asyncio.sleep(0)
    progress = readers.running["anna"]
    assert (await asked)["containers"]
    return progress, readers.running.get("anna")


def test_question_to_history_reports_its_progress(tmp_path: Path) -> None:  # U6
    with broker(tmp_path / "store") as process:
        connection = BlockingConnection(f"127.0.0.1:{process.port}", timeout=DEADLINE_S)
        connection.create_sender("orders").send(Message("one", durable=True))
        connection.close()
        progress, after = asyncio.run(journal_with_progress(tmp_path / "store"))
    assert progress.question == "journal"
    assert progress.stage
    assert 0 <= progress.done <= progress.total
    assert progress.total > 0
    assert after is None


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_cell_of_a_csv_file_is_no_formula(text: str) -> None:  # U6
    response = csv_response([{"name": text, "messages": -1, "arguments": {"a": 1}}])
    [row] = csv.DictReader(io.StringIO(bytes(response.body).decode()))
    assert row == {"name": f"'{text}", "messages": "-1", "arguments": '{"a":1}'}


async def pulse_idle_session(port: int) -> list[bool]:
    """Return whether a session is connected: after its login, a pulse without use, and a confirmation."""
    with ThreadPoolExecutor(2) as threads:
        where = BrokerLogin("127.0.0.1", port, timeout_s=DEADLINE_S)
        sessions = Sessions(where, 3600.0, monotonic, threads)
        session, _ = await sessions.login(Peer("127.0.0.1"), None, "")
        session.quick._used_s -= 1e6
        session.confirmed_s -= 1e6
        found = [session.quick.is_connected]
        await sessions.keep_alive()
        found.append(session.quick.is_connected)
        await sessions.keep_alive()  # an idle session is not connected again by it
        found.append(session.quick.is_connected)
        session.confirmed_s -= 1e6
        await sessions.confirm(session)
        found.append(session.quick.is_connected)
        await sessions.close()
    return found


def test_confirmations_keep_no_idle_connection_open(tmp_path: Path) -> None:
    with broker(tmp_path / "store") as process:
        assert asyncio.run(pulse_idle_session(process.port)) == [True, False, False, True]


async def outlast(errors: list[ApiError], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the result of a question whose confirmations fail with *errors* after the first one."""
    asked = 0

    async def check() -> None:
        nonlocal asked
        asked += 1
        if asked > 1 and errors:
            raise errors.pop(0)

    async def answer() -> str:
        return "answer"

    monkeypatch.setattr(access, "RETRY_S", 0.0)
    return str(await access.while_allowed(check, answer))


def test_question_outlasts_an_unavailable_broker_and_no_lost_right(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, removed = ApiError(503, UNAVAILABLE, "gone"), ApiError(401, LOGIN_REQUIRED, "removed")
    assert asyncio.run(outlast([gone, gone], monkeypatch)) == "answer"
    with pytest.raises(ApiError, match="removed"):
        asyncio.run(outlast([gone, removed], monkeypatch))
    monkeypatch.setattr(access, "PATIENCE_S", -1.0)
    with pytest.raises(ApiError, match="gone"):
        asyncio.run(outlast([gone], monkeypatch))
