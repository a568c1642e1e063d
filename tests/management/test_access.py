"""Tests with a real broker that access rules apply to every management operation and all names in it (A13)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proton import symbol

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
on = ["open", "open.*", "amq.topic", "$auto-link/*"]

[[rules]]
who = ["anonymous"]
may = ["send", "create"]
on = ["secret"]
"""


def test_only_what_the_rules_allow(
    start_process: StartProcess, peer_at: Callable[..., Peer], tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    process = start_process("--acl-file", str(rules))
    peer = peer_at(process.port)
    peer.put(peer.sender("open"), ["one"])
    peer.put(peer.sender("secret"), ["two"])
    manager = Manager(peer_at(process.port))
    assert [row["name"] for row in manager.rows("queue", "name")] == ["open"]
    assert [row["name"] for row in manager.rows("exchange", "name")] == ["amq.topic"]
    assert manager.rows("connection") == []
    for operation, type, name, body in (
        ("READ", "queue", "secret", None),
        ("READ", "queue", "not-there", None),
        ("PEEK", "queue", "secret", None),
        ("SAMPLES", "queue", "secret", None),
        ("SAMPLES", "broker", "broker", None),
        ("PURGE", "queue", "secret", None),
        ("DELETE", "queue", "secret", None),
        ("MOVE", "queue", "secret", {"to": "open"}),
        ("CREATE", "queue", "other", None),
        ("CREATE", "queue", "open.2", {"arguments": {"dead-letter-address": "elsewhere"}}),
        ("CREATE", "binding", None, {"exchange": "amq.topic", "queue": "secret", "key": "a"}),
        ("CREATE", "binding", None, {"exchange": "amq.direct", "queue": "open", "key": "a"}),
        ("CREATE", "auto-link", "a", {"direction": "out", "address": "secret", "connector": "there"}),
        ("CREATE", "auto-link", "a", {"direction": "out", "address": "queue://secret", "connector": "there"}),
        ("CREATE", "auto-link", "a", {"direction": "in", "address": "other", "connector": "there"}),
        ("READ", "broker", "broker", None),
        ("READ", "store", "store", None),
    ):
        answer = manager.ask(operation, type, name, body)
        assert (answer.status, answer.body) == (403, None), (operation, name)
    assert manager.ask("READ", "queue", "open").body["messages"] == 1
    assert manager.ask("MOVE", "queue", "open", {"to": "secret"}).body == {"moved": 1}
    assert manager.ask("CREATE", "queue", "open.2").status == 201


def test_what_others_receive_on_is_not_looked_at(manager: Manager, new_peer: Callable[..., Peer]) -> None:
    """A14: messages on a dynamic node of another connection can be neither read nor moved."""
    peer = new_peer()
    link = peer.attach(peer.session.receiver("private"), None, dynamic=True)
    address = link.remote_source.address
    peer.put(peer.sender(address), ["for me"], durable=False)
    for operation, body in (("PEEK", None), ("MOVE", {"to": "mine"})):
        assert manager.ask(operation, "queue", address, body).status == 403


def test_queue_is_not_bound_to_the_topic_of_others(manager: Manager, new_peer: Callable[..., Peer]) -> None:
    """C8, A14: a binding would give its messages to another connection."""
    peer = new_peer()
    link = peer.session.sender("creator")
    link.target.capabilities.put_object(symbol("temporary-topic"))
    address = peer.attach(link, None, dynamic=True).remote_target.address
    assert manager.ask("CREATE", "queue", "open.copy").status == 201
    asked = {"exchange": address, "queue": "open.copy", "key": "", "arguments": {}}
    assert manager.ask("CREATE", "binding", None, asked).status == 403
