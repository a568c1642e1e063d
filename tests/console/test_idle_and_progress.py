"""Tests of what the console occupies and reports: connections to the broker, and the progress of questions."""

from __future__ import annotations

import asyncio
import csv
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

from cairnmq.amqp.client.login import BrokerLogin
from cairnmq.console.history.readers import HistoryReaders, Progress
from cairnmq.console.http.csv_list import csv_response
from cairnmq.console.session.broker_client import BrokerClient
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
