"""Tests with a real broker of the permission that each management request requires."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.clients.peers import Peer

from .conftest import Manager, StartProcess

BASE = """
[[rules]]
who = ["anonymous"]
may = ["connect", "send", "receive", "create"]
on = ["$management", "dynamic-*"]
"""
CREATES = BASE + '[[rules]]\nwho = ["anonymous"]\nmay = ["create"]\n'
TENANT = BASE + '[[rules]]\nwho = ["anonymous"]\nmay = ["*"]\non = ["evil.*"]\n'
MONITOR = BASE + '[[rules]]\nwho = ["anonymous"]\nmay = ["monitor"]\n'
INFIX = BASE + '[[rules]]\nwho = ["anonymous"]\nmay = ["*"]\non = ["*infix*"]\n'
USER = TENANT + '[[rules]]\nwho = ["anonymous"]\nmay = ["use"]\non = ["$connector/siteB"]\n'

ROUTE = {"connector": "siteB", "strip": "evil."}
FOLLOWED = {"connector": "siteB", "source": "victim.secret"}
LINKED = {"direction": "in", "address": "evil.q", "connector": "siteB"}
EXPIRING = {"arguments": {"message-ttl-ms": 1}}
FORBIDDEN, CREATED, OK, NO_CONTENT = 403, 201, 200, 204


@pytest.mark.parametrize(
    ("rules", "requests"),
    [
        pytest.param(CREATES, [
            ("CREATE", "template", "*", EXPIRING, FORBIDDEN),  # W4, attack 37
            ("CREATE", "link-route", "*", {"connector": "siteB"}, FORBIDDEN),  # W4, attack 38
            ("CREATE", "connector", "own", {"url": "amqp://127.0.0.1:1"}, FORBIDDEN),  # W4, attack 38
            ("CREATE", "auto-link", "own", {"direction": "in", "address": "q", "connector": "siteB"}, FORBIDDEN),
            ("CREATE", "federated-queue", "evil.f", FOLLOWED, FORBIDDEN),
            ("CREATE", "queue", "anything", None, CREATED),
        ], id="create is not configure"),
        pytest.param(TENANT, [
            ("CREATE", "link-route", "evil.*", ROUTE, FORBIDDEN),  # W3, attack 35
            ("CREATE", "federated-queue", "evil.f", FOLLOWED, FORBIDDEN),  # W3, attack 36
            ("CREATE", "auto-link", "evil.a", LINKED, FORBIDDEN),
            ("CREATE", "template", "*", EXPIRING, FORBIDDEN),
            ("CREATE", "template", "evil*", EXPIRING, FORBIDDEN),
            ("READ", "connector", "siteB", None, FORBIDDEN),
            ("DELETE", "connector", "siteB", None, FORBIDDEN),
            ("CREATE", "template", "evil.*", EXPIRING, CREATED),
            ("CREATE", "template", "evil.a*b?", EXPIRING, CREATED),
            ("DELETE", "template", "evil.*", None, NO_CONTENT),
        ], id="a tenant configures its own names, and uses no connector"),
        pytest.param(USER, [
            ("CREATE", "link-route", "victim.*", ROUTE, FORBIDDEN),
            ("CREATE", "link-route", "*", ROUTE, FORBIDDEN),
            ("CREATE", "link-route", "evil.*", {"connector": "siteC"}, FORBIDDEN),
            ("CREATE", "link-route", "evil.*", ROUTE, CREATED),
            ("CREATE", "federated-queue", "evil.f", FOLLOWED, CREATED),
            ("DELETE", "federated-queue", "evil.f", None, NO_CONTENT),
        ], id="whoever may use a connector has routes over it"),
        pytest.param(INFIX, [
            ("CREATE", "template", "*[infix]*", EXPIRING, FORBIDDEN),  # W4, attack 39
            ("CREATE", "link-route", "*[infix]*", ROUTE, FORBIDDEN),
            ("READ", "template", "*[infix]*", None, FORBIDDEN),
            ("CREATE", "template", "*infix*", EXPIRING, CREATED),
            ("CREATE", "template", "an-infix-name", EXPIRING, CREATED),
            ("CREATE", "queue", "*[infix]*", None, CREATED),  # a queue name is not a pattern
        ], id="a pattern is compared as a pattern"),
        pytest.param(MONITOR, [
            ("READ", "broker", "broker", None, OK),
            ("READ", "connector", "siteB", None, OK),
            ("READ", "exchange", "amq.topic", None, OK),
            ("CREATE", "queue", "other", None, FORBIDDEN),
            ("CREATE", "template", "*", EXPIRING, FORBIDDEN),
            ("DELETE", "connector", "siteB", None, FORBIDDEN),
            ("RELOAD", "broker", "broker", None, FORBIDDEN),
            ("PEEK", "queue", "there", None, FORBIDDEN),
            ("PURGE", "queue", "there", None, FORBIDDEN),
        ], id="monitor changes nothing and reads no message"),
    ],
)  # fmt: skip
def test_request_needs_its_operation(
    start_process: StartProcess,
    peer_at: Callable[..., Peer],
    tmp_path: Path,
    rules: str,
    requests: list[tuple[str, str, str, object, int]],
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(rules)
    process = start_process("--acl-file", str(path), "--connect-to", "amqp://127.0.0.1:1?name=siteB")
    manager = Manager(peer_at(process.port))
    answers = [manager.ask(*request[:4]) for request in requests]
    assert [(*request[:3], answer.status) for request, answer in zip(requests, answers, strict=True)] == [
        (*request[:3], request[4]) for request in requests
    ], [answer.text for answer in answers]
