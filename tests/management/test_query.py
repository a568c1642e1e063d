"""Tests of QUERY, step by step in one thread: pages, concurrent changes, and fairness of long queries."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.amqp.codec import decode, encode, sections
from cairnmq.amqp.codec.sections import Properties
from cairnmq.amqp.ports import Open, Terminus
from cairnmq.management.operations.operations import STEP_ROWS
from cairnmq.management.serve import serve
from tests.harness.broker.world import FakeTerminal, World

MANY = 10_000


class FakeConnection:
    name = "here:1"
    container = "tests"
    user = ""

    def idle_s(self) -> float | None: ...

    def expel(self, description: str, *, elsewhere: bool = False) -> None: ...


class Asking:
    """A client with a link to the management node and a link from it."""

    def __init__(self, forbidden: str = "") -> None:
        self.world = World(1 << 28)
        self.asked: list[tuple[str, str]] = []

        def denial_reason(user: str, operation: str, name: str, *, pattern: bool = False) -> str:
            self.asked.append((operation, name))
            return "no" if name and name == forbidden else ""

        serve(self.world.broker.parts, denial_reason)
        connection = FakeConnection()
        self.world.do(self.world.broker.drivers.connection_opened, connection)
        self._links = []
        for to_client in (True, False):
            terminal = FakeTerminal()
            attach = Open(to_client, Terminus("$management"), connection=connection)
            self.world.do(self.world.broker.drivers.open, attach, terminal)
            self._links.append(terminal)
        self.world.do(self._links[0].driver.request, 1 << 30, False)

    def post(self, properties: dict[str, Any], body: bytes = b"") -> None:
        content = sections.properties_section(Properties()) + sections.application_properties_section(properties) + body
        self.world.send(self._links[1], (object(), content, 0))

    def answers(self) -> list[Any]:
        contents: list[Any] = [content for _, content in self._links[0].forwarded]
        self._links[0].forwarded.clear()
        return [decode.value(content, sections.index(content).body[0].value)[0] for content in contents]

    def query(self, **properties: Any) -> Any:
        self.post({"operation": "QUERY", "entityType": "queue", **properties})
        self.world.read_all()
        [answer] = self.answers()
        return answer


def test_a_long_query_is_answered_in_steps_between_which_others_have_their_turn() -> None:
    asking = Asking()
    nodes = asking.world.broker.nodes
    for number in range(MANY):
        nodes.add_queue(f"queue-{number}", {})
    asking.post({"operation": "QUERY", "entityType": "queue", "type": "org.amqp.management"})
    asking.post({"operation": "GET-MGMT-NODES", "type": "org.amqp.management"})
    assert asking.answers() == [[]]  # the later request is answered first
    steps = 0
    while asking.world.readings:
        asking.world.read_one()
        steps += 1
    assert steps == MANY // STEP_ROWS
    [answer] = asking.answers()
    assert (answer["count"], answer["next"]) == (MANY, None)
    assert [row[0] for row in answer["results"]] == [f"queue-{number}" for number in range(MANY)]


def test_what_goes_meanwhile_is_left_out() -> None:
    asking = Asking()
    nodes = asking.world.broker.nodes
    for number in range(2 * STEP_ROWS):
        nodes.add_queue(f"queue-{number}", {})
    asking.post({"operation": "QUERY", "entityType": "queue"})
    asking.world.do(nodes.delete_queue, nodes.queues["queue-5"], lambda _: None)
    asking.world.do(nodes.delete_queue, nodes.queues[f"queue-{STEP_ROWS + 5}"], lambda _: None)
    nodes.add_queue("late", {})
    asking.world.read_all()
    [answer] = asking.answers()
    names = [row[0] for row in answer["results"]]
    assert f"queue-{STEP_ROWS + 5}" not in names
    assert "late" not in names
    assert "queue-5" in names  # read before its deletion


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_pages_make_the_whole(size: int) -> None:
    asking = Asking()
    for number in range(20):
        asking.world.broker.nodes.add_queue(f"queue-{number}", {})
    names = []
    offset: int | None = 0
    while offset is not None:
        answer = asking.query(offset=offset, count=size)
        assert len(answer["results"]) == answer["count"] <= size
        names += [row[0] for row in answer["results"]]
        offset = answer["next"]
    assert names == [f"queue-{number}" for number in range(20)]
    assert asking.query(offset=1 << 61)["results"] == []


def test_the_asker_is_asked_about_for_all_that_it_reads() -> None:
    """A13: reading requires a permission for each name, and without it, existing and missing names look the same."""
    asking = Asking(forbidden="secret")
    for name in ("secret", "open"):
        asking.world.broker.nodes.add_queue(name, {})
    assert [row[0] for row in asking.query()["results"]] == ["open"]
    assert {("monitor", "secret"), ("monitor", "open")} <= set(asking.asked)
    for operation in ("READ", "DELETE", "PURGE", "PEEK"):
        texts = []
        for name in ("secret", "not-there"):
            asking.asked.clear()
            asking.post({"operation": operation, "type": "queue", "name": name})
            texts += asking.answers()
            assert asking.asked[0][1] == name
        assert texts == [None, None]
    assert "secret" in asking.world.broker.nodes.queues


@pytest.mark.parametrize(
    ("asked", "body", "wanted"),
    [
        (("CREATE", "queue", "x"), {"arguments": {"dead-letter-address": "secret"}}, "send"),
        (("CREATE", "queue", "x"), {"arguments": {"expiry-address": "queue://secret"}}, "send"),
        (("CREATE", "template", "x"), {"arguments": {"expiry-address": "secret"}}, "send"),
        (("CREATE", "exchange", "x"), {"arguments": {"alternate-exchange": "secret"}}, "send"),
        (("CREATE", "queue", "secret"), {}, "create"),
        (("CREATE", "binding", ""), {"exchange": "amq.fanout", "queue": "secret"}, "manage"),
        (("CREATE", "binding", ""), {"exchange": "secret", "queue": "open"}, "receive"),
        (("MOVE", "queue", "open"), {"to": "secret"}, "send"),
        (("MOVE", "queue", "secret"), {"to": "open"}, "receive"),
    ],
)
def test_other_names_in_an_operation_are_asked_about_too(
    asked: tuple[str, str, str], body: Any, wanted: str
) -> None:
    """A13, A14: permissions also apply to dead-letter addresses, alternate exchanges and bound queues."""
    asking = Asking(forbidden="secret")
    for name in ("secret", "open"):
        asking.world.broker.nodes.add_queue(name, {})
    before = list(asking.world.broker.nodes.queues), list(asking.world.broker.nodes.exchanges)
    properties = dict(zip(("operation", "type", "name"), asked, strict=True))
    asking.post(properties, encode.described(sections.VALUE, encode.value(body)))
    asking.world.read_all()
    assert asking.answers() == [None]
    assert (wanted, "secret") in asking.asked
    assert (list(asking.world.broker.nodes.queues), list(asking.world.broker.nodes.exchanges)) == before
