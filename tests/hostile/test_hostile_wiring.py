"""Tests that a broker starts on a wiring that was edited by hand: rows that can't be used are ignored and reported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from proton import Message, ProtonException
from proton.utils import BlockingConnection

from cairnmq.store import open_store
from tests.harness.process import DEADLINE_S, broker

_NOT_OBJECTS = ("[]", "7", "null", '"text"', "{", "", "NaN", b"\x00\xff", 5, "[" * 9000 + "]" * 9000)
_QUEUE_ARGUMENTS = (
    '{"max-messages": -1}', '{"max-messages": 1e400}', '{"max-messages": 99999999999999999999999}',
    '{"max-messages": "x"}', '{"overflow": 7}', '{"overflow": "boom"}', '{"unknown": 1}', '{"x-owner": 7}',
    '{"x-owner": [1]}',
    '{"message-ttl-ms": true}', '{"priorities": 1}', '{"last-value-key": "\\ud800"}', '{"\\u0000": 1}',
    '{"\\udfff": 1}', '{"follows": 7}', '{"follows": {}}', '{"follows": {"connector": 7, "source": []}}',
    '{"notes-of": 7}', '{"notes-of": "nothing"}', '{"follows": {"connector":"c","source":"s","follower":"f"}}',
    '{"x-subscription": 7}', '{"x-subscription": {"exchange": 7}}', '{"x-goes-with": [1]}',
    '{"x-subscription": {"exchange": "amq.topic", "key": "k", "x-selector": "a ="}}', '{"x-link": 7}',
    '{"duplicate-window": 100000000000}', '{"a": ' * 3000 + "1" + "}" * 3000, '{"x-deep": ' + "[" * 40 + "]" * 40 + "}",
    '{"dead-letter-address": "$management", "max-deliveries": 1}', '{"expiry-address": "\\u202e", "message-ttl-ms": 1}',
    '{"auto-delete": "sometimes"}', '{"x-long": "' + "x" * 100_000 + '"}', '{"x-number": 1e308, "x-nan": NaN}',
)  # fmt: skip
_NAMES = ("", b"\x00\xff", 5, "x" * 100_000, "a\x00b", "$management", "amq.topic", "$failures:good", "$duplicates:good",
          "$link:x", "\u202egood", "a\nb", "$failures:gone", "$")  # fmt: skip
_IDS = (0, -5, 1 << 40, (1 << 63) - 1)
_EXCHANGE_ARGUMENTS = (
    '{"alternate-exchange": 7}', '{"alternate-exchange": {}}', '{"alternate-exchange": "nowhere"}',
    '{"alternate-exchange": "good"}', '{"replicated": 7}', '{"auto-delete": 7}', '{"x": ' * 3000 + "1" + "}" * 3000,
)  # fmt: skip
_BINDING_ARGUMENTS = (
    '{"x-selector": 7}', '{"x-selector": "a ="}', '{"x-selector": "' + "(" * 5000 + '"}', '{"x-not-from": 7}',
    '{"x-match": 7}', '{"x-match": "any", "a": [1], "b": {"c": 1}}', '{"a": 1e999}', '{"x-match": []}',
)  # fmt: skip
_KEYS = ("", "x" * 1000, "#.#.#.*", 7, b"\xff", "*." * 400, "k")
_CONFIGS = ("template:*", "template:[", "template:" + "*" * 500, "connector:", "link-route:", "auto-link:", "other")
_SETTINGS = (
    *_NOT_OBJECTS, "{}", '{"max-messages": "x"}', '{"url": 7}', '{"url": "amqp://:99999999"}', '{"direction": 7}',
    '{"direction": "sideways", "connector": [1], "address": {}, "strip": 7}', '{"unknown": [1]}',
)  # fmt: skip


def _rows(ids: Iterator[int]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield statements with their values."""
    queue = "INSERT INTO queue(id, name, arguments) VALUES(?, ?, ?)"
    exchange = "INSERT INTO exchange(id, name, type, arguments) VALUES(?, ?, ?, ?)"
    binding = "INSERT INTO binding(exchange_id, queue_id, key, arguments) VALUES(?, ?, ?, ?)"
    for arguments in (*_NOT_OBJECTS, *_QUEUE_ARGUMENTS):
        for prefix in ("bad", "$link:", "$failures:", "$duplicates:"):
            number = next(ids)
            yield queue, (number, f"{prefix}{number}", arguments)
    for name in _NAMES:
        yield queue, (next(ids), name, "{}")
    for number in _IDS:
        yield queue, (number, f"id {number}", "{}")
        yield exchange, (number, f"exchange {number}", "topic", "{}")
        yield binding, (number, 1, "k", "{}")
    for kind in ("direct", "", "boom", "topic", "headers", "fanout", 7, b"\xff", "x" * 300):
        number = next(ids)
        yield exchange, (number, f"exchange {number}", kind, "{}")
        yield binding, (number, 1, "k", "{}")
    for kind in ("topic", "headers"):
        for arguments in (*_NOT_OBJECTS, *_EXCHANGE_ARGUMENTS):
            number = next(ids)
            yield exchange, (number, f"exchange {number}", kind, arguments)
        for arguments in (*_NOT_OBJECTS, *_BINDING_ARGUMENTS):
            number = next(ids)
            yield exchange, (number, f"exchange {number}", kind, "{}")
            yield binding, (number, 1, "k", arguments)
        for key in _KEYS:
            number = next(ids)
            yield exchange, (number, f"exchange {number}", kind, "{}")
            yield binding, (number, 1, key, "{}")
    one, other = next(ids), next(ids)
    yield exchange, (one, "circle 1", "topic", '{"alternate-exchange": "circle 2"}')
    yield exchange, (other, "circle 2", "topic", '{"alternate-exchange": "circle 1"}')
    yield exchange, (next(ids), "good", "topic", "{}")
    yield exchange, (next(ids), "amq.match", "direct", "{}")
    yield binding, (77777, 1, "k", "{}")
    yield binding, (one, 77777, "k", "{}")
    yield binding, ("x", "y", "k", "{}")
    for name in _CONFIGS:
        for settings in _SETTINGS:
            yield "INSERT INTO config(name, settings) VALUES(?, ?)", (f"{name}{next(ids)}", settings)
    for name, number in (("good", 1), (b"\xff", -1), ("zz", 999_999)):
        yield "INSERT INTO going_queue(id, name) VALUES(?, ?)", (number, name)


@pytest.mark.parametrize("last_id", [0, -7, "x", (1 << 63) - 1])
def test_broker_starts_on_an_edited_wiring(tmp_path: Path, last_id: object) -> None:  # U1
    data = tmp_path / "data"
    with open_store(str(data)) as store:
        store.queue("good").put(bytes(Message(body="kept", durable=True).encode())).result()
    with closing(sqlite3.connect(data / "wiring.sqlite")) as sql, sql:
        sql.execute("PRAGMA foreign_keys=OFF")
        for statement, values in _rows(count(100)):
            with suppress(sqlite3.IntegrityError):  # some of the values can't be stored at all
                sql.execute(statement, values)
        sql.execute("UPDATE store SET last_id=?", (last_id,))
    for _ in range(2):
        with broker(data) as running:
            connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
            for address in ("circle 1/k", "good", "exchange 300/k", "amq.match", "new"):
                with suppress(ProtonException):  # unroutable, or a name that is taken twice
                    connection.create_sender(address, name=address).send(Message(body="kept", durable=True))
            receiver = connection.create_receiver("good")
            assert receiver.receive(timeout=DEADLINE_S).body == "kept"
            connection.close()
            reports = [line for line in running.lines if "wiring.invalid-row" in line]
            assert any("queue 100, 'bad100': arguments '[]': not a JSON object" in line for line in reports)
            assert any("max-messages is -1; use 0 to" in line for line in reports)
            assert any("there is no type 'boom'" in line for line in reports)
            assert any("binding 77777, 1: the queue or the exchange does not exist" in line for line in reports)
            assert not any("internal-error" in line for line in running.lines)
            assert running.stop() == 0
