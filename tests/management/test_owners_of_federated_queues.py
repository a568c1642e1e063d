"""Tests that the creator of a federated queue is its owner, whose quota includes it from the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.harness.clients.peers import Peer

from .conftest import Manager, StartProcess

RULES = """
[[rules]]
who = ["anonymous"]
may = ["connect", "send", "receive", "create"]
on = ["$management", "dynamic-*"]
[[rules]]
who = ["anonymous"]
may = ["*"]
on = ["mine.*"]
[[rules]]
who = ["anonymous"]
may = ["use"]
on = ["$connector/there"]
[[quotas]]
who = ["anonymous"]
max-queues = 3
"""
OWNER = "x-cairnmq-owner"
CREATED, OK, NO_CONTENT, FORBIDDEN = 201, 200, 204, 403


def test_following_has_its_maker_as_owner_and_counts(
    start_process: StartProcess, peer_at: Callable[..., Peer], tmp_path: Path
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    process = start_process("--acl-file", str(path), "--connect-to", "amqp://127.0.0.1:1?name=there")
    manager = Manager(peer_at(process.port))  # the first queue is the node for responses

    def follow(name: str, **arguments: object) -> tuple[int, str]:
        asked = {"connector": "there", "source": "q", "arguments": arguments}
        answer = manager.ask("CREATE", "federated-queue", name, asked)
        return answer.status, answer.text

    for owner in ("ben", "anonymous", "", None):
        assert follow("mine.a", **{OWNER: owner})[0] == FORBIDDEN, owner
    assert follow("mine.a")[0] == CREATED
    assert follow("mine.b")[0] == CREATED
    status, reason = follow("mine.c")
    assert status >= 400
    assert "3 of 3 queues (max-queues)" in reason
    assert manager.ask("DELETE", "federated-queue", "mine.b").status == NO_CONTENT
    assert follow("mine.b")[0] == CREATED
    assert manager.ask("PROMOTE", "federated-queue", "mine.a", {"force": True}).status in (OK, NO_CONTENT)
    taken = manager.ask("READ", "queue", "mine.a")
    assert taken.status == OK
    assert taken.body["arguments"][OWNER] == "anonymous"
    assert follow("mine.c")[0] >= 400, "taken over it counts as before"
