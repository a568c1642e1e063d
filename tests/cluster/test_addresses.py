"""Tests of client addresses: members exchange them, and clients receive those of the other members."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Data, symbol

from cairnmq.broker_plugin.membership import reachable
from cairnmq.cluster.nodes.failover_addresses import ClientAddresses
from cairnmq.router.admission.admission import Admission, AdmissionOptions
from tests.harness.cluster.cluster_harness import ClusterHarness, Sender


def at(*nodes: int) -> ClientAddresses:
    return ClientAddresses(
        tuple([(f"mq{node}", 5672) for node in nodes]), tuple([(f"mq{node}", 5671) for node in nodes])
    )


def knows(harness: ClusterHarness, node: int, *others: int) -> bool:
    return harness.until(lambda: harness[node].core.addresses.others == at(*others))


def with_addresses(harness: ClusterHarness | None = None) -> ClusterHarness:
    harness = harness or ClusterHarness()
    for node, member in harness.members.items():
        member.places = at(node)
    return harness.start()


def test_each_knows_the_others_who_come_and_go() -> None:
    harness = with_addresses()
    received: list[ClientAddresses] = []
    harness[1].core.addresses.on_change = received.append
    assert knows(harness, 1, 2, 3)
    assert knows(harness, 3, 1, 2)
    harness[3].kill()
    assert knows(harness, 1, 2)
    harness[3].start()
    assert knows(harness, 3, 1, 2)
    assert knows(harness, 1, 2, 3)
    assert received[-1] == at(2, 3)
    harness[3].stop()
    harness[3].places = ClientAddresses()
    harness[3].start()
    assert harness.until(lambda: harness[3].serves)
    assert knows(harness, 1, 2), "it says nothing"


def test_who_is_cut_off_sends_its_clients_to_those_it_knew() -> None:
    harness = with_addresses()
    assert knows(harness, 1, 2, 3)
    harness.network.partition([1], [2, 3])
    assert harness.until(lambda: not harness[1].serves)
    harness.run(2)
    assert harness[1].core.addresses.others == at(2, 3)
    assert knows(harness, 2, 3)
    harness.network.heal()
    assert knows(harness, 2, 1, 3)


def test_those_who_are_cut_off_with_it_come_last() -> None:
    harness = with_addresses(ClusterHarness(5))
    assert knows(harness, 1, 2, 3, 4, 5)
    client = Sender(harness[1])
    assert harness.until(lambda: client.driver is not None)
    harness.network.partition([1, 2, 4], [3, 5])
    assert knows(harness, 1, 2, 4), "the majority is here"
    harness.network.heal()
    assert knows(harness, 1, 2, 3, 4, 5)
    harness.network.partition([1, 2], [3, 4, 5])
    assert harness.until(lambda: bool(client.connection.expelled))
    assert client.connection.sent_elsewhere
    assert knows(harness, 1, 3, 4, 5, 2)
    harness.network.heal()
    assert knows(harness, 1, 2, 3, 4, 5)


def decoded(answer: bytes) -> Any:
    data = Data()
    data.decode(answer)
    data.rewind()
    data.next()
    return data.get_dict()


def told(answer: bytes) -> list[tuple[str, int]]:
    properties: Any = decoded(answer)
    found = properties.get(symbol("failover-server-list"), [])
    return [(one[symbol("network-host")], int(one[symbol("port")])) for one in found]


def test_a_client_is_told_of_those_that_it_can_use() -> None:
    admission = Admission("me", AdmissionOptions((("far", 1),)))
    assert told(admission.admit(object(), "", "c", ()).properties) == [("far", 1)]
    admission.failover_to([("a", 2), ("far", 1)], [("b", 3)])
    assert told(admission.admit(object(), "", "c", ()).properties) == [("far", 1), ("a", 2)]
    assert told(admission.admit(object(), "", "c", (), secure=True).properties) == [("far", 1), ("b", 3)]
    assert told(admission.refuse("amqp:unauthorized-access", "no").properties) == [("far", 1), ("a", 2)]
    alone = Admission("me", AdmissionOptions())
    alone.failover_to([("a", 2)], [])
    alone.failover_to([], [])
    assert told(alone.admit(object(), "", "c", ()).properties) == []


def test_who_is_sent_away_is_told_where_to() -> None:
    admission = Admission("me", AdmissionOptions((("far", 1),)))
    admission.failover_to([("a", 2), ("far", 1)], [("b", 3)])
    info = decoded(admission.elsewhere())
    assert (info[symbol("network-host")], info[symbol("hostname")], info[symbol("port")]) == ("far", "far", 1)
    assert told(admission.elsewhere()) == [("far", 1), ("a", 2)]
    assert told(admission.elsewhere(secure=True)) == [("far", 1), ("b", 3)]
    assert Admission("me", AdmissionOptions()).elsewhere() == b"", "it knows nobody"


@pytest.mark.parametrize(
    ("host", "found"),
    [("192.0.2.7", "192.0.2.7"), ("2001:db8::1", "2001:db8::1"), ("127.0.0.1", ""), ("::1", ""), ("0.0.0.0", "here")],
)
def test_where_it_listens_is_where_it_is_found(host: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert reachable(ClientAddresses(((host, 5672),), ())) == ClientAddresses(((found, 5672),) if found else (), ())
